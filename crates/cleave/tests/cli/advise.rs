//! `cleave advise` over a device process: its predictions, and its messages for statements that it cannot plan.

use serde_json::Value;
use tempfile::tempdir;

use crate::local_device::Process;
use crate::program::{cleave, sql};

const MAKE: &str =
    "CREATE TABLE t (id integer PRIMARY KEY, n integer, note text) WITH (device = near);
    INSERT INTO t SELECT v, v % 7, repeat('note ' || v, 20) FROM generate_series(1, 15000) AS s(v)";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn queries_are_priced_and_what_cannot_be_planned_is_named() {
    let place = tempdir().unwrap();
    let database = place.path().join("db");
    let folder = database.to_str().unwrap().to_owned();
    let socket = place.path().join("device.sock").to_str().unwrap().to_owned();
    let _device = Process::device(place.path());
    // As slow as a network, so that bytes count.
    let link = ["--local", &socket, "--rate-cap", "100mbit"];
    cleave(&[&["device", "add", "near", "--create", "--db", &folder], &link[..]].concat()).ok();
    sql(&database, &["-c", MAKE]).ok();
    let queries = place.path().join("queries");
    std::fs::create_dir(&queries).unwrap();
    let write = |name: &str, text: &str| std::fs::write(queries.join(name), text).unwrap();
    write(
        "b.sql",
        "SELECT count(*) FROM t WHERE note LIKE '%77%';\n-- a remark\n\nSELECT n FROM t WHERE id = 5",
    );
    write("a.sql", "SELECT max(note) FROM t;");
    write("ignored.txt", "SELECT nothing");
    let queries = queries.to_str().unwrap();

    let found = lines(&cleave(&["advise", "--db", &folder, "--json", queries]).ok());
    let places: Vec<&str> = found.iter().filter_map(|line| line["place"].as_str()).collect();
    let expected = ["a.sql:1", "b.sql:1", "b.sql:4"].map(|place| format!("{queries}/{place}"));
    assert_eq!(places, expected);
    let scan = &found[1];
    assert_eq!(scan["profile"], "measured", "{scan}");
    assert_ne!(scan["best"], "host", "{scan}");
    let number = |line: &Value, way: &str, name: &str| line[way][name].as_f64().unwrap();
    // The note of every row would cross; a count is small.
    assert!(number(scan, "host_only", "link_bytes") > 1e5, "{scan}");
    assert!(number(scan, "best_split", "link_bytes") < 1e4, "{scan}");
    assert!(
        number(scan, "host_only", "host_cpu_seconds")
            > number(scan, "best_split", "host_cpu_seconds")
    );
    assert_eq!(found[2]["best"], "look-up");
    let total = &found[3];
    assert_eq!((&total["planned"], &total["failed"]), (&3.into(), &0.into()));
    for name in ["seconds", "link_bytes", "host_cpu_seconds"] {
        let sum: f64 = found[..3].iter().map(|line| number(line, "saved", name)).sum();
        assert!(
            sum > 0.0 && (sum - number(total, "saved", name)).abs() < 1e-6 * sum,
            "{name}: {total}"
        );
    }
    let picture = place.path().join("advice.svg");
    let drawn = ["--svg", picture.to_str().unwrap()];
    let table = cleave(&[&["advise", "--db", &folder, queries], &drawn[..]].concat()).ok();
    let picture = std::fs::read_to_string(picture).unwrap();
    for part in [">Predicted for 3 statements", ">a.sql:1<", ">best split<", "class=\"auto\""] {
        assert!(picture.contains(part), "{part} in {picture}");
    }
    for part in [
        "a.sql:1",
        "look-up",
        "in all",
        "3 statements",
        "Figures of host, devices and links: measured",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }

    // None of it was run, and an error does not affect the statements after it.
    let wrong = place.path().join("wrong.sql");
    std::fs::write(&wrong, "SELECT missing FROM t; DROP TABLE t; SELEC; SELECT sum(n) FROM t")
        .unwrap();
    let run = cleave(&["advise", "--db", &folder, "--json", wrong.to_str().unwrap()]);
    let found = lines(&run.stdout);
    let states: Vec<&str> =
        found.iter().filter_map(|line| line["error"]["sqlstate"].as_str()).collect();
    assert_eq!(states, ["42703", "0A000", "42601"], "{run:?}");
    assert_eq!((&found[4]["planned"], &found[4]["failed"]), (&1.into(), &3.into()));
    let said = run.fails(3);
    assert!(
        said.contains("wrong.sql:1: ERROR 42703") && said.contains("3 of 4 statements"),
        "{said}"
    );
    let count = sql(&database, &["--format", "csv", "-c", "SELECT count(*) AS n FROM t"]).ok();
    assert_eq!(count, "n\n15000\n");
}

#[test]
fn the_query_log_of_a_shell_is_taken_as_copy_writes_it() {
    let place = tempdir().unwrap();
    let database = place.path().join("db");
    let log = place.path().join("log.csv");
    let copy = format!(
        "COPY (SELECT text FROM cleave.query_log) TO '{}' WITH (FORMAT csv, HEADER)",
        log.display()
    );
    let query = "SELECT count(*) AS \"a, b\"\nFROM t WHERE note <> 'x;y'";
    sql(&database, &["-c", "CREATE TABLE t (id integer, note text)", "-c", query, "-c", &copy])
        .ok();
    let folder = database.to_str().unwrap();
    let found = cleave(&["advise", "--db", folder, "--json", "--log", log.to_str().unwrap()]).ok();
    let found = lines(&found);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0]["statement"], query);
    assert_eq!(found[0]["place"], format!("{}, record 2", log.display()));
    assert_eq!((&found[0]["best"], &found[0]["auto"]), (&"host".into(), &"host".into()));

    // A record with a second statement does not run it.
    std::fs::write(&log, "\"SELECT 1; DROP TABLE t\"\n").unwrap();
    cleave(&["advise", "--db", folder, "--log", log.to_str().unwrap()]).fails(3);
    sql(&database, &["-c", "SELECT count(*) FROM t"]).ok();
}

#[test]
fn misuse_is_exit_code_1_and_a_missing_database_2() {
    let place = tempdir().unwrap();
    let empty = place.path().to_str().unwrap();
    let said = cleave(&["advise", "--db", empty, empty]).fails(1);
    assert!(said.contains("no *.sql file"), "{said}");
    let said = cleave(&["advise", "--db", empty, "missing.sql"]).fails(1);
    assert!(said.contains("missing.sql"), "{said}");
    let file = place.path().join("q.sql");
    std::fs::write(&file, "-- nothing\n").unwrap();
    let said = cleave(&["advise", "--db", empty, file.to_str().unwrap()]).fails(1);
    assert!(said.contains("no statement"), "{said}");
    std::fs::write(&file, "SELECT 1").unwrap();
    cleave(&["advise", "--db", empty, file.to_str().unwrap()]).fails(2);
}
