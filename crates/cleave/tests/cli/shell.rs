//! `cleave sql` from a script: sources, layouts, exit codes, and error messages.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::tempdir;

use crate::program::{cleave, cleave_with_input, sql};

const PEOPLE: &str = "CREATE TABLE people (id integer PRIMARY KEY, name text, born date);
INSERT INTO people VALUES (1, 'Ada', '1815-12-10'), (2, NULL, NULL);";

#[test]
fn statements_run_and_last() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let out = sql(&directory, &["-c", PEOPLE]).ok();
    assert_eq!(out, "CREATE TABLE\nINSERT 0 2\n");
    // Another process, so another incarnation of the database.
    let out = sql(&directory, &["-c", "SELECT * FROM people ORDER BY id"]).ok();
    assert_eq!(
        out,
        " id | name | born\n----+------+------------\n  1 | Ada  | 1815-12-10\n  2 | NULL | NULL\n(2 rows)\n"
    );
}

#[test]
fn csv_and_json_are_nothing_but_rows() {
    let place = tempdir().unwrap();
    sql(place.path(), &["-c", PEOPLE]).ok();
    let query = "SELECT name, id FROM people ORDER BY id";
    let csv = sql(place.path(), &["--format", "csv", "-c", "SET split = host", "-c", query]).ok();
    assert_eq!(csv, "name,id\nAda,1\n,2\n");
    let json = sql(place.path(), &["--format", "json", "-c", query]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let expected = serde_json::json!([{ "name": "Ada", "id": 1 }, { "name": null, "id": 2 }]);
    assert_eq!(json, expected);
}

#[test]
fn scripts_see_whole_results_in_any_layout() {
    let place = tempdir().unwrap();
    sql(place.path(), &["-c", PEOPLE]).ok();
    let query = "SELECT name, id FROM people ORDER BY id";
    let markdown = sql(place.path(), &["--format", "markdown", "-c", query]).ok();
    assert_eq!(markdown, "| name | id |\n| ---- | --: |\n| Ada  |  1 |\n| NULL |  2 |\n");
    let lines = sql(place.path(), &["--format", "line", "-c", query]).ok();
    assert_eq!(lines, "name = Ada\n  id = 1\n\nname = NULL\n  id = 2\n");
    let script = format!("\\pset format box\n\\pset null -\n{query}");
    let boxed = sql(place.path(), &["-c", &script]).ok();
    assert!(boxed.contains("│ Ada  │  1 │\n│ -    │  2 │"), "{boxed}");
    let long = "SELECT repeat('x', 500) AS a, repeat('y', 500) AS b FROM generate_series(1, 1500)";
    let whole = sql(place.path(), &["-c", long]).ok();
    assert!(whole.contains(&"y".repeat(500)) && whole.ends_with("(1500 rows)\n"));
    let error = sql(place.path(), &["-c", "\\pset fromat box"]).fails(3);
    assert!(error.contains("did you mean format?"), "{error}");
}

#[test]
fn a_batch_shows_the_rows_of_each_query_and_then_what_failed() {
    let place = tempdir().unwrap();
    sql(place.path(), &["-c", PEOPLE]).ok();
    let script = "BATCH BEGIN;
        SELECT name FROM people WHERE id = 1; SELECT count(*) AS n FROM people WHERE born IS NULL;
        BATCH END; SELECT 3 AS three";
    let out = sql(place.path(), &["--format", "csv", "-c", script]).ok();
    assert_eq!(out, "name\nAda\nn\n1\nthree\n3\n");
    let failing = "BATCH BEGIN; SELECT 1 / (id - id) FROM people; SELECT 2 AS two; BATCH END";
    sql(place.path(), &["-c", failing]).fails(3);
}

#[test]
fn files_commands_and_standard_input_are_sources() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let file = place.path().join("people.sql");
    std::fs::write(&file, format!("-- people; all of them\n{PEOPLE}\n\\x\nSELECT 1 AS one;\n"))
        .unwrap();
    let file = file.to_str().unwrap();
    let out = sql(&directory, &["-f", file, "-c", "SELECT 2 AS two"]).ok();
    assert!(out.contains("one | 1"), "{out}");
    let (one, two) = (out.find("one | 1").unwrap(), out.find("two | 2").unwrap());
    assert!(one < two, "sources run in the order given: {out}");
    let arguments = ["sql", "--create", "--db", directory.to_str().unwrap(), "--format", "csv"];
    let out = cleave_with_input(&arguments, "SELECT count(*)\nAS n\nFROM people").ok();
    assert_eq!(out, "n\n2\n");
}

#[test]
fn a_script_may_begin_with_a_byte_order_mark() {
    let place = tempdir().unwrap();
    let file = place.path().join("one.sql");
    std::fs::write(&file, "\u{feff}SELECT 1 AS one;\n").unwrap();
    let include = format!("\u{feff}\\i {}\n", file.display());
    let begin = ["sql", ":memory:", "--format", "csv"];
    let run = |more: &[&str], input| cleave_with_input(&[&begin[..], more].concat(), input);
    assert_eq!(run(&["-f", file.to_str().unwrap()], "").ok(), "one\n1\n");
    assert_eq!(run(&[], &include).ok(), "one\n1\n");
}

#[test]
fn filled_tables_are_analysed() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let shown = |table: &str| {
        let query = format!("SHOW STATISTICS FOR {table}");
        sql(&directory, &["--format", "csv", "-c", &query]).ok().lines().count() - 1
    };
    // A large change at once, so that the rest of the script is planned with what was found.
    let large = "CREATE TABLE large (id int, x int);
        INSERT INTO large SELECT v, v % 7 FROM generate_series(1, 20000) AS s (v);
        EXPLAIN SELECT count(*) FROM large WHERE x = 3";
    let out = sql(&directory, &["-c", large]).ok();
    assert!(out.contains("analyzed") && out.contains("at 20000 rows"), "{out}");
    assert_eq!(shown("large"), 2);
    // A small one at the end, also of a script that failed.
    let small = "CREATE TABLE small (id int); INSERT INTO small SELECT v FROM generate_series(1, 99) AS s (v); SELEC";
    sql(&directory, &["-c", small]).fails(3);
    assert_eq!(shown("small"), 1);
    let off = "ALTER SYSTEM SET autoanalyze = off; CREATE TABLE left_out (id int);
        INSERT INTO left_out SELECT v FROM generate_series(1, 20000) AS s (v)";
    sql(&directory, &["-c", off]).ok();
    assert_eq!(shown("left_out"), 0);
}

#[test]
fn rows_of_copy_stand_in_the_script() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let dump = format!(
        "{PEOPLE}\nCOPY public.people (id, name, born)\n  FROM stdin;\n\
         3\tCyd; Charisse\t1922-03-08\n4\t\\N\t\\N\n\\.\n\n\
         COPY people FROM STDIN WITH (FORMAT csv);\n5,\"two\nlines\",\n\\.\n\
         SELECT nothing;\n"
    );
    let file = place.path().join("dump.sql");
    std::fs::write(&file, dump).unwrap();
    let run = sql(&directory, &["-f", file.to_str().unwrap()]);
    assert!(run.stdout.ends_with("COPY 2\nCOPY 1\n"), "{run:?}");
    let error = run.fails(3);
    assert!(error.contains("dump.sql:13: ERROR 42703"), "{error}");
    let arguments = ["sql", "--create", "--db", directory.to_str().unwrap(), "--format", "csv"];
    let script = "COPY people (id) FROM STDIN;\n6\n7\n\\.\nSELECT count(*) AS n FROM people;";
    assert_eq!(cleave_with_input(&arguments, script).ok(), "n\n7\n");
    let copy = [
        "sql",
        "--create",
        "--db",
        directory.to_str().unwrap(),
        "-c",
        "COPY people (id) FROM STDIN",
    ];
    assert_eq!(cleave_with_input(&copy, "8\n").ok(), "COPY 1\n", "-c takes them from its input");
}

#[test]
fn copy_to_stdout_is_nothing_but_rows() {
    let place = tempdir().unwrap();
    sql(place.path(), &["-c", PEOPLE]).ok();
    let copy = "COPY (SELECT id, name FROM people ORDER BY id) TO STDOUT";
    assert_eq!(sql(place.path(), &["-c", copy]).ok(), "1\tAda\n2\t\\N\n");
    let beside = tempdir().unwrap();
    let file = beside.path().join("people.txt");
    let copy = format!("COPY people TO '{}'", file.display());
    assert_eq!(sql(place.path(), &["-c", &copy]).ok(), "COPY 2\n", "the rows are elsewhere");
}

#[test]
fn settings_say_what_was_done() {
    let place = tempdir().unwrap();
    let script = "SET split = h0; RESET split; RESET ALL";
    assert_eq!(sql(place.path(), &["-c", script]).ok(), "SET\nRESET\nRESET\n");
}

#[test]
fn scripts_stop_at_the_first_error() {
    let place = tempdir().unwrap();
    let run = sql(place.path(), &["-c", "SELECT 1 AS one; SELECT nothing; SELECT 3 AS three"]);
    assert!(run.stdout.contains("one"), "{run:?}");
    assert!(!run.stdout.contains("three"), "{run:?}");
    run.fails(3);
    let run = sql(place.path(), &["-c", "SELECT nothing", "-c", "SELECT 3 AS three"]);
    assert!(!run.stdout.contains("three"), "{run:?}");
    run.fails(3);
}

#[test]
fn errors_name_place_and_remedy() {
    let place = tempdir().unwrap();
    sql(place.path(), &["-c", PEOPLE]).ok();
    let error = sql(place.path(), &["-c", "SELECT nmae FROM people"]).fails(3);
    assert!(error.contains("42703") && error.contains("\"name\""), "{error}");
    let error = sql(place.path(), &["-c", "SELECT * FROM poeple"]).fails(3);
    assert!(error.contains("42P01") && error.contains("\"people\""), "{error}");
    let error = sql(place.path(), &["-c", "SELECT *\nFORM people"]).fails(3);
    assert!(error.contains("42601"), "{error}");
    let lines: Vec<&str> = error.lines().collect();
    let caret = lines.iter().position(|line| line.trim() == "^").expect("no caret");
    assert!(lines[caret - 1].starts_with("LINE 2: FORM people"), "{error}");
    let file = place.path().join("wrong.sql");
    std::fs::write(&file, "SELECT 1;\n\nSELECT nmae\nFROM people;\n").unwrap();
    let error = sql(place.path(), &["-f", file.to_str().unwrap()]).fails(3);
    assert!(error.contains("wrong.sql:3: ERROR 42703"), "{error}");
}

#[test]
fn duplicate_keys_and_wrong_values_change_nothing() {
    let place = tempdir().unwrap();
    sql(place.path(), &["-c", PEOPLE]).ok();
    let error =
        sql(place.path(), &["-c", "INSERT INTO people VALUES (3, 'C', NULL), (1, 'D', NULL)"])
            .fails(3);
    assert!(error.contains("23505"), "{error}");
    let error =
        sql(place.path(), &["-c", "INSERT INTO people VALUES (4, 'C', '1815-13-10')"]).fails(3);
    assert!(error.contains("2200") || error.contains("22P02"), "{error}");
    let out =
        sql(place.path(), &["--format", "csv", "-c", "SELECT count(*) AS n FROM people"]).ok();
    assert_eq!(out, "n\n2\n");
}

#[test]
fn backslash_commands_describe() {
    let place = tempdir().unwrap();
    sql(place.path(), &["-c", PEOPLE]).ok();
    let out = sql(place.path(), &["-c", "\\d people"]).ok();
    assert!(out.contains("born   | date") && out.contains("_pkey PRIMARY KEY (id)"), "{out}");
    let out = sql(place.path(), &["-c", "\\d"]).ok();
    assert!(out.contains("people | 2"), "{out}");
    let out = sql(place.path(), &["-c", "\\set"]).ok();
    assert!(out.contains("split"), "{out}");
    let error = sql(place.path(), &["-c", "\\d poeple"]).fails(3);
    assert!(error.contains("people"), "{error}");
    let results = place.path().join("results.txt");
    let redirect = format!("\\o {}", results.display());
    assert_eq!(sql(place.path(), &["-c", &redirect, "-c", "SELECT 1 AS one"]).ok(), "");
    assert!(std::fs::read_to_string(results).unwrap().contains("one"));
}

#[test]
fn the_catalog_is_listed_and_statements_explained() {
    let place = tempdir().unwrap();
    let more =
        "CREATE INDEX by_name ON people (name DESC); CREATE VIEW named AS SELECT name FROM people;
        CREATE ROLE ada LOGIN";
    sql(place.path(), &["-c", PEOPLE, "-c", more]).ok();
    for (command, parts) in [
        ("\\dt+", &["people | 2    | 1 "][..]),
        ("\\d+ people", &["born   | date", "by_name (name DESC)", "Table \"people\": "]),
        ("\\d named", &["View \"named\"", "name   | text"]),
        ("\\d+ named", &["Query:", "FROM people"]),
        ("\\d by_name", &["Index \"by_name\" of table \"people\": (name DESC)"]),
        ("\\di", &["by_name", "people_pkey"]),
        ("\\dv", &["named | SELECT"]),
        ("\\du", &["ada", "superuser"]),
        ("\\df date_tr", &["date_trunc", "scalar"]),
        ("\\h create index", &["CREATE [UNIQUE] INDEX"]),
        ("\\?", &["\\copy T FROM"]),
    ] {
        let out = sql(place.path(), &["-c", command]).ok();
        assert!(parts.iter().all(|part| out.contains(part)), "{command}: {out}");
    }
    // Layouts for programs have rows alone, and all of them.
    for (format, command, rows) in [
        ("csv", "\\dt", "table,rows,device\npeople,2,embedded\n"),
        ("json", "\\di", "\"index\":\"by_name\",\"table\":\"people\""),
        ("json", "\\dt+", "\"rows\":2,"),
        ("csv", "\\d people", "name,text,\"\",\"\"\n"),
        ("csv", "\\d people", "index,kind\n"),
        ("csv", "\\df date_trunc", "function,kind\n"),
        ("markdown", "\\dv", "| named | SELECT"),
        ("json", "\\l", "\"device\":\"embedded\""),
    ] {
        let out = sql(place.path(), &["--format", format, "-c", command]).ok();
        assert!(out.contains(rows) && !out.contains("Table \""), "{command}: {out}");
    }
    let boxed = sql(place.path(), &["-c", "\\pset format box\n\\d people"]).ok();
    assert!(boxed.contains("│ born   │ date"), "{boxed}");
    let error = sql(place.path(), &["-c", "\\tming"]).fails(3);
    assert!(error.contains("did you mean \\timing?"), "{error}");
}

#[test]
fn commands_run_the_statement_before_them() {
    let place = tempdir().unwrap();
    let file = place.path().join("a file.txt");
    let directory = place.path().join("db");
    let script = format!(
        "SELECT 1 AS one \\gx\n\\g {}\nSELECT\n2 AS two \\watch 0 c=2\n\\p\nSELECT 'gone' \\r\n",
        file.display()
    );
    let out = sql(&directory, &["-c", &script]).ok();
    assert!(out.starts_with("-[ RECORD 1 ]") && out.contains("one | 1\n"), "{out}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), " one\n-----\n   1\n(1 row)\n");
    assert_eq!(out.matches("\n two\n").count(), 2, "{out}");
    assert!(out.ends_with("\nSELECT\n2 AS two\n") && !out.contains("gone"), "{out}");
    let error = sql(&directory, &["-c", "\\g"]).fails(3);
    assert!(error.contains("no statement to run"), "{error}");
}

#[test]
fn copy_reads_and_writes_files_of_the_shell() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    sql(&directory, &["-c", PEOPLE]).ok();
    let file = place.path().join("it's.csv");
    let quoted = file.display().to_string().replace('\'', "''");
    let out =
        format!("\\copy (SELECT id, name FROM people ORDER BY id) TO '{quoted}' WITH (HEADER)");
    assert_eq!(sql(&directory, &["-c", &out]).ok(), "COPY 2\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "id,name\n1,Ada\n2,\n");
    let back =
        format!("DELETE FROM people;\n\\copy people (id, name) FROM '{quoted}' WITH (HEADER)");
    assert_eq!(sql(&directory, &["-c", &back]).ok(), "DELETE 2\nCOPY 2\n");
    let missing = sql(&directory, &["-c", "\\copy people FROM no-such-file.csv"]).fails(1);
    assert!(missing.contains("no-such-file.csv"), "{missing}");
}

#[test]
fn a_statement_that_fails_leaves_the_file_of_its_result() {
    let place = tempdir().unwrap();
    let file = place.path().join("b.csv");
    std::fs::write(&file, "n\n1\n2\n").unwrap();
    let path = file.display();
    for command in [
        format!("SELEC 1 \\g {path}"),
        format!("SELECT 1 / (n - 2) FROM '{path}' \\gx {path}"),
        format!("\\copy (SELECT 1 / (n - 2) FROM '{path}') TO {path} (HEADER)"),
    ] {
        cleave(&["sql", ":memory:", "-c", &command]).fails(3);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "n\n1\n2\n", "{command}");
    }
    // It is read before it is replaced.
    let copy = format!("\\copy (SELECT n + 1 AS n FROM '{path}' ORDER BY n) TO {path} (HEADER)");
    cleave(&["sql", ":memory:", "-c", &copy]).ok();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "n\n2\n3\n");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "nothing else stays");
    // A stream is written as it is.
    let copy = "\\copy (SELECT 7) TO /dev/stdout";
    assert_eq!(cleave(&["sql", ":memory:", "-c", copy]).ok(), "7\nCOPY 1\n");
}

#[test]
fn files_that_include_themselves_end() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let file = place.path().join("loop.sql");
    std::fs::write(&file, format!("\\i {}\n", file.display())).unwrap();
    let error = sql(&directory, &["-f", file.to_str().unwrap()]).fails(1);
    assert!(error.contains("include each other"), "{error}");
}

#[test]
fn settings_hold_for_the_whole_run() {
    let place = tempdir().unwrap();
    let out = sql(place.path(), &["--set", "split=h0", "--format", "csv", "-c", "SHOW split"]).ok();
    assert!(out.contains("h0"), "{out}");
    let error = sql(place.path(), &["--set", "splt=h0", "-c", "SELECT 1"]).fails(1);
    assert!(error.contains("\"split\""), "{error}");
    let error = sql(place.path(), &["--set", "split=h99", "-c", "SELECT 1"]).fails(1);
    assert!(error.contains("h0"), "{error}");
}

#[test]
fn misuse_is_exit_code_1() {
    let error = cleave(&["sql", "-c", "SELECT 1"]).fails(1);
    assert!(error.contains("--db"), "{error}");
    cleave(&["frobnicate"]).fails(1);
    cleave(&["sql", "--format", "xml"]).fails(1);
    let place = tempdir().unwrap();
    let error = sql(place.path(), &["-f", "no-such-file.sql"]).fails(1);
    assert!(error.contains("no-such-file.sql"), "{error}");
    assert!(cleave(&["--help"]).ok().contains("cleave demo"));
    assert!(cleave(&["--version"]).ok().starts_with("cleave "));
}

#[test]
fn a_database_in_memory_goes_with_the_shell() {
    let place = tempdir().unwrap();
    let file = place.path().join("people.csv");
    std::fs::write(&file, "id,name\n1,Ada\n").unwrap();
    let count = format!("CREATE TABLE t AS SELECT name FROM '{}'; SELECT * FROM t", file.display());
    let ran = Command::new(env!("CARGO_BIN_EXE_cleave"))
        .args(["sql", ":memory:", "--format", "csv", "-c", &count])
        .current_dir(place.path())
        .env("TMPDIR", place.path())
        .output()
        .unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stdout).ends_with("name\nAda\n"), "{ran:?}");
    assert_eq!(place.path().read_dir().unwrap().count(), 1, "only the file is left");
}

#[test]
fn a_database_in_memory_of_a_killed_shell_goes_with_the_next_one() {
    let place = tempdir().unwrap();
    sql(&place.path().join("cleave-films"), &["-c", PEOPLE]).ok();
    let shell = |statement: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
        command.args(["sql", ":memory:", "-c", statement]).env("TMPDIR", place.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // Databases in memory that are there, by their folders.
    let folders = || -> BTreeSet<PathBuf> {
        let entries = place.path().read_dir().unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|folder| folder.join("memory/manifest").exists()).collect()
    };
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    let begun = || {
        let before = folders();
        let child = shell("SELECT pg_sleep(600)").spawn().unwrap();
        for _ in 0..1200 {
            if !folders().is_subset(&before) {
                break;
            }
            nothing.recv_timeout(Duration::from_millis(50)).unwrap_err();
        }
        child
    };
    let mut killed = begun();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = folders();
    let mut living = begun();
    let after = folders();
    let ran = shell("SELECT 1").status();
    let last = folders();
    living.kill().unwrap();
    living.wait().unwrap();
    assert!(ran.unwrap().success());
    assert_eq!((left.len(), after.len()), (1, 1), "{left:?} {after:?}");
    assert!(after.is_disjoint(&left), "{left:?}");
    assert_eq!(last, after, "one that is in use stays");
    assert!(place.path().join("cleave-films/manifest").exists());
}

#[test]
fn what_is_no_database_is_exit_code_2() {
    let place = tempdir().unwrap();
    std::fs::write(place.path().join("letter.txt"), "Dear Ada").unwrap();
    let error = sql(place.path(), &["-c", "SELECT 1"]).fails(2);
    assert!(error.contains("not a Cleave database"), "{error}");
    assert!(!place.path().join("manifest").exists(), "nothing may be written into it");
    let letter = place.path().join("letter.txt");
    let missing = place.path().join("missing");
    let arguments = ["load", "--db", missing.to_str().unwrap(), "t", letter.to_str().unwrap()];
    cleave(&arguments).fails(2);
    assert!(!missing.exists(), "load makes no database");
    // Not where somebody types, either.
    let arguments = ["sql", missing.to_str().unwrap()];
    let error = cleave(&arguments).fails(1);
    assert!(error.contains("there is no database in") && error.contains("--create"), "{error}");
    let serve = ["serve", "--db", missing.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    cleave(&serve).fails(1);
    let add = ["device", "add", "near", "--local", "no.sock", "--db", missing.to_str().unwrap()];
    cleave(&add).fails(1);
    assert!(!missing.exists(), "a mistyped name makes no database");
}

#[test]
fn media_that_is_gone_is_missed_and_not_made_anew() {
    let place = tempdir().unwrap();
    sql(place.path(), &["-c", PEOPLE]).ok();
    let media = place.path().join("device-0.media");
    let aside = place.path().join("aside");
    std::fs::rename(&media, &aside).unwrap();
    let said = sql(place.path(), &["-c", "SELECT 1"]).fails(2);
    assert!(said.contains("device-0.media is missing"), "{said}");
    assert!(!media.exists());
    std::fs::rename(&aside, &media).unwrap();
    sql(place.path(), &["-c", "SELECT * FROM people"]).ok();
}

#[test]
fn a_limit_of_file_sizes_fails_the_statement_and_nothing_else() {
    let place = tempdir().unwrap();
    sql(place.path(), &["-c", PEOPLE]).ok();
    let program = env!("CARGO_BIN_EXE_cleave");
    let insert = |first: u32, count: u32| {
        let last = first + count - 1;
        format!(
            "INSERT INTO people SELECT i, repeat(md5(i::text), 28), NULL FROM generate_series({first}, {last}) AS g(i)"
        )
    };
    // In blocks of 512 bytes; the statement's data needs more.
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 8192; exec \"$@\"", "sh", program, "sql", "--create", "--db"])
        .arg(place.path())
        .args(["-c", &insert(10, 10), "-c", &insert(1000, 20_000)])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ERROR 53100") && said.contains("drop tables"), "{said}");
    let count = ["--format", "csv", "-c", "SELECT count(*) AS n FROM people"];
    assert_eq!(sql(place.path(), &count).ok(), "n\n12\n", "{said}");
    sql(place.path(), &["-c", &insert(1000, 20_000)]).ok();
    assert_eq!(sql(place.path(), &count).ok(), "n\n20012\n");
}
