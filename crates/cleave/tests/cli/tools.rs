//! `generate`, `load`, `device` and the demo.

use tempfile::tempdir;

use crate::program::{cleave, sql};

/// Small enough for a debug build: about 15,000 rows.
const SCALE: &str = "0.0002";

#[test]
fn files_and_direct_loading_hold_the_same_rows() {
    let place = tempdir().unwrap();
    let csv = place.path().join("csv");
    let (direct, loaded) = (place.path().join("direct"), place.path().join("loaded"));
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    cleave(&["generate", "imdb", "--scale", SCALE, "--out", &text(&csv)]).ok();
    cleave(&["generate", "imdb", "--scale", SCALE, "--db", &text(&direct)]).ok();
    sql(&loaded, &["-f", &text(&csv.join("schema.sql"))]).ok();
    let mut table_count = 0;
    for entry in std::fs::read_dir(&csv).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            let table = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let run = cleave(&["load", "--db", &text(&loaded), &table, &text(&path)]);
            assert!(run.stderr.contains("rows/s"), "{run:?}");
            run.ok();
            table_count += 1;
        }
    }
    assert_eq!(table_count, 21);
    // Both leave statistics.
    for db in [&direct, &loaded] {
        let shown = sql(db, &["--format", "csv", "-c", "SHOW STATISTICS FOR title"]).ok();
        assert!(shown.lines().count() > 5 && shown.contains("title,production_year,"), "{shown}");
    }
    let query = "SELECT count(*) AS n, min(title) AS first, max(production_year) AS last, sum(id) AS ids FROM title";
    for query in
        [query, "SELECT count(*) AS n, min(note) AS first, sum(person_id) AS people FROM cast_info"]
    {
        let results = [&direct, &loaded].map(|db| sql(db, &["--format", "csv", "-c", query]).ok());
        assert_eq!(results[0], results[1], "{query}");
        assert!(!results[0].contains("\n0,"), "{query} found no rows: {}", results[0]);
    }
}

#[test]
fn tpch_is_generated_too() {
    let place = tempdir().unwrap();
    let directory = place.path().to_str().unwrap();
    cleave(&["generate", "tpch", "--scale", "0.01", "--db", directory]).ok();
    let query = "SELECT count(*) AS n FROM lineitem, orders WHERE l_orderkey = o_orderkey";
    let out = sql(
        place.path(),
        &["--format", "csv", "-c", query, "-c", "SELECT count(*) AS n FROM lineitem"],
    )
    .ok();
    let counts: Vec<&str> = out.lines().filter(|line| *line != "n").collect();
    assert_eq!(counts.len(), 2);
    assert_eq!(counts[0], counts[1], "every line item has its order");
    assert_ne!(counts[0], "0");
}

#[test]
fn tpch_that_would_repeat_keys_is_refused_before_anything_is_made() {
    let place = tempdir().unwrap();
    let folder = place.path().join("new");
    for scale in ["0.001", "0.015"] {
        for option in ["--db", "--out"] {
            let folder = folder.to_str().unwrap();
            let error = cleave(&["generate", "tpch", "--scale", scale, option, folder]).fails(1);
            assert!(error.contains(scale) && error.contains("take 0.01"), "{error}");
        }
        assert!(!folder.exists());
    }
}

#[test]
fn particles_are_the_same_from_files_and_in_tablets() {
    let place = tempdir().unwrap();
    let csv = place.path().join("csv");
    let (direct, loaded) = (place.path().join("direct"), place.path().join("loaded"));
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let generate = |to: &[&str]| {
        cleave(&[&["generate", "particles", "--rows", "20000"][..], to].concat()).ok();
    };
    generate(&["--out", &text(&csv)]);
    generate(&["--db", &text(&direct), "--set", "default_tablets=4"]);
    sql(&loaded, &["-f", &text(&csv.join("schema.sql"))]).ok();
    let file = csv.join("particles.csv");
    cleave(&["load", "--db", &text(&loaded), "particles", &text(&file)]).ok();
    let shown = sql(&direct, &["-c", "\\d particles"]).ok();
    assert!(shown.contains("4 tablets by hash (id)"), "{shown}");
    for query in [
        "SELECT count(*) AS n, sum(id) AS ids, min(x) AS x, max(uz) AS uz, max(ke) AS ke FROM particles",
        "SELECT id, x, y, z, ux, uy, uz, ke FROM particles WHERE ke > 0.9 ORDER BY id",
        "SELECT count(*) AS n FROM particles WHERE ke > 0.2",
    ] {
        let run = |db: &std::path::Path, split: &str| {
            sql(db, &["--format", "csv", "--set", split, "-c", query]).ok()
        };
        let expected = run(&loaded, "split=host");
        assert!(expected.lines().count() > 1 && !expected.contains("\n0"), "{query}: {expected}");
        assert_eq!(run(&direct, "split=host"), expected, "{query}");
        assert_eq!(run(&direct, "split=h0"), expected, "{query}");
    }
}

#[test]
fn a_size_of_another_generator_is_refused() {
    let place = tempdir().unwrap();
    let folder = place.path().join("new");
    for size in [&["particles", "--scale", "1"][..], &["imdb", "--scale", "0.01", "--rows", "9"]] {
        let to = ["--db", folder.to_str().unwrap()];
        let error = cleave(&[&["generate"][..], size, &to].concat()).fails(1);
        assert!(error.contains("--rows with particles"), "{error}");
    }
    assert!(!folder.exists());
}

#[test]
fn a_wrong_file_is_told_by_line_and_column_and_loads_nothing() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    sql(&directory, &["-c", "CREATE TABLE t (id integer PRIMARY KEY, n integer NOT NULL)"]).ok();
    let file = place.path().join("t.csv");
    std::fs::write(&file, "1,10\n2,20\n3,thirty\n").unwrap();
    let error = cleave(&["load", "--db", directory.to_str().unwrap(), "t", file.to_str().unwrap()])
        .fails(3);
    for part in ["t.csv", "line 3", "thirty", "\"n\""] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
    let out = sql(&directory, &["--format", "csv", "-c", "SELECT count(*) AS n FROM t"]).ok();
    assert_eq!(out, "n\n0\n");
    let error =
        cleave(&["load", "--db", directory.to_str().unwrap(), "tt", file.to_str().unwrap()])
            .fails(3);
    assert!(error.contains("42P01"), "{error}");
    cleave(&["load", "--db", directory.to_str().unwrap(), "t", "missing.csv"]).fails(1);
}

#[test]
fn a_device_that_is_not_there_is_exit_code_2() {
    let place = tempdir().unwrap();
    let token = place.path().join("token");
    cleave_media::files::write_durably(&token, b"0123456789abcdef0123456789abcdef").unwrap();
    let directory = place.path().join("db");
    let directory = directory.to_str().unwrap();
    sql(directory.as_ref(), &["-c", "SELECT 1"]).ok();
    let arguments = ["device", "add", "far", "--db", directory, "--address", "127.0.0.1:1"];
    let error =
        cleave(&[&arguments[..], &["--token-file", token.to_str().unwrap()]].concat()).fails(2);
    assert!(error.contains("far") && error.contains("127.0.0.1:1"), "{error}");
    let out = cleave(&["device", "list", "--db", directory]).ok();
    assert!(out.contains("embedded") && !out.contains("far"), "{out}");
    let error = cleave(&["device", "remove", "embeded", "--db", directory]).fails(2);
    assert!(error.contains("did you mean \"embedded\""), "{error}");
    let error = cleave(&["device", "remove", "embedded", "--db", directory]).fails(2);
    assert!(error.contains("stays"), "{error}");
}

#[test]
fn the_demo_agrees_with_itself() {
    let out = cleave(&["demo", "--scale", SCALE, "--rounds", "1"]).ok();
    let parts = [
        "01-needle",
        "10-everything",
        "Link of 1 Gbit/s",
        "Link of 100 Mbit/s",
        "Timing mode: capped",
    ];
    for part in parts {
        assert!(out.contains(part), "{part} is missing: {out}");
    }
    let last = out.lines().last().unwrap();
    assert!(
        last.starts_with("Splitting made the same queries") && last.contains("100 Mbit/s."),
        "{last}"
    );
}

#[test]
fn a_database_without_a_segment_file_opens_and_says_which_table_is_refused() {
    let place = tempdir().unwrap();
    let db = place.path().to_str().unwrap();
    let make = "CREATE TABLE lost (id int PRIMARY KEY);
        INSERT INTO lost SELECT v FROM generate_series(1, 20000) AS s(v);
        CREATE TABLE kept (id int PRIMARY KEY); INSERT INTO kept VALUES (7)";
    sql(place.path(), &["-c", make]).ok();
    let segments = place.path().join("segments");
    for entry in std::fs::read_dir(&segments).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let kept = sql(place.path(), &["--format", "csv", "-c", "SELECT id FROM kept"]);
    assert!(kept.stderr.contains("warning: table \"lost\" cannot be used: segment"), "{kept:?}");
    assert_eq!(kept.ok(), "id\n7\n");
    let lost = sql(place.path(), &["-c", "SELECT count(*) FROM lost"]);
    assert_eq!(lost.exit_code, 3, "{lost:?}");
    for part in ["table \"lost\" cannot be used", "it is missing", "DROP TABLE", "`cleave check`"] {
        assert!(lost.stderr.contains(part), "{part} is not said: {lost:?}");
    }
    let listed = sql(place.path(), &["-c", "\\d"]).ok();
    assert!(listed.contains("lost") && listed.contains("damaged"), "{listed}");
    let check = cleave(&["check", "--db", db]);
    assert_eq!(check.exit_code, 1, "{check:?}");
    assert!(check.stdout.contains("table \"lost\""), "{check:?}");
    let inspect = cleave(&["inspect", "manifest", "--db", db]).ok();
    assert!(inspect.contains("DAMAGED: segment"), "{inspect}");
    sql(place.path(), &["-c", "DROP TABLE lost"]).ok();
    let check = cleave(&["check", "--db", db]);
    assert!(check.stderr.contains("everything holds"), "{check:?}");
}

#[test]
fn the_way_to_a_device_changes_while_the_database_is_closed() {
    let place = tempdir().unwrap();
    let db = place.path().to_str().unwrap();
    sql(place.path(), &["-c", "CREATE TABLE t (id int)"]).ok();
    let way = ["--local", "/nowhere/device.sock"];
    let change = |name| [&["device", "change", name, "--db", db][..], &way].concat();
    let error = cleave(&change("embeded")).fails(2);
    assert!(error.contains("did you mean \"embedded\""), "{error}");
    let error = cleave(&change("embedded")).fails(2);
    assert!(error.contains("the database's own"), "{error}");
    let none = place.path().join("none");
    let arguments = ["device", "change", "far", "--db", none.to_str().unwrap()];
    let error = cleave(&[&arguments[..], &way].concat()).fails(2);
    assert!(error.contains("does not exist"), "{error}");
}
