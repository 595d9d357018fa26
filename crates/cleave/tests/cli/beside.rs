//! Several processes on one directory: the first shell answers the others, which only read.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::tempdir;

use crate::program::{Run, cleave, sql};

const PEOPLE: &str = "CREATE TABLE people (id integer PRIMARY KEY, name text); CREATE SEQUENCE s;
INSERT INTO people VALUES (1, 'Ada'), (2, NULL);";

/// A shell that has run some statements, and waits for the rest of its script.
struct Waiting {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Waiting {
    /// Runs `statements` on `db`, up to the last line of what they print.
    fn start(db: &Path, statements: &str, last: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cleave"))
            .args(["sql", "--format", "csv", "--db", db.to_str().unwrap()])
            .args(["-c", statements, "-c", "SELECT 'ready' AS word", "-f", "/dev/stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut waiting = Self { child, input, output };
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != "ready\n") {
            let mut line = String::new();
            assert_ne!(waiting.output.read_line(&mut line).unwrap(), 0, "it ended: {lines:?}");
            lines.push(line);
        }
        assert!(lines.concat().contains(last), "{lines:?}");
        waiting
    }

    /// Gives it the rest of its script; returns its exit code and its errors.
    fn end(mut self, rest: &str) -> (Option<i32>, String) {
        self.go_on(rest);
        self.ended()
    }

    /// Gives it the rest of its script.
    fn go_on(&mut self, rest: &str) {
        let mut input = self.input.take().unwrap();
        drop(input.write_all(rest.as_bytes()));
    }

    fn ended(mut self) -> (Option<i32>, String) {
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code(), errors)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// `cleave sql ARGUMENTS` on `db`, as a process that makes nothing.
fn second(db: &Path, arguments: &[&str]) -> Run {
    cleave(&[&["sql", "--format", "csv", "--db", db.to_str().unwrap()], arguments].concat())
}

const COUNT: &str = "SELECT count(*) AS n FROM people";

#[test]
fn a_second_process_reads_what_the_first_has_committed_and_changes_nothing() {
    let place = tempdir().unwrap();
    let db = place.path().join("db");
    sql(&db, &["-c", "SELECT 1"]).ok();
    let first = Waiting::start(&db, PEOPLE, "");
    let who = format!("process {} (cleave sql)", first.child.id());
    let run = second(&db, &["-c", COUNT]);
    assert!(run.stderr.contains(&format!("beside {who}")), "{run:?}");
    assert_eq!(run.ok(), "n\n2\n");
    let file = place.path().join("people.csv");
    let copy = format!("COPY people TO '{}'", file.display());
    let insert = "INSERT INTO people VALUES (3, 'Eve')";
    for statements in [
        insert,
        &format!("SET default_transaction_read_only = off; {insert}"),
        &format!("BEGIN READ WRITE; {insert}; COMMIT"),
        "SELECT nextval('s')",
        "CREATE TABLE own (a int)",
        "ANALYZE",
        &copy,
    ] {
        let failed = second(&db, &["-c", statements]).fails(3);
        assert!(failed.contains("ERROR 25006: "), "{statements}: {failed}");
        assert!(failed.contains(&format!("because {who} has the database open")), "{failed}");
    }
    assert!(!file.exists());
    second(&db, &["-c", &format!("\\copy people TO '{}'", file.display())]).ok();
    assert!(std::fs::read_to_string(&file).unwrap().contains("1,Ada\n"));
    let name = db.to_str().unwrap();
    assert!(cleave(&["explain", "--db", name, COUNT]).ok().contains("people"));
    let explained = ["explain", "--db", name, "--analyze", "DELETE FROM people"];
    assert!(cleave(&explained).fails(3).contains("25006"));
    // What cannot go by the shell says who has the database.
    let holder = format!("in use by another process, {} (cleave); this", first.child.id());
    for command in [&["check", "--db", name][..], &["device", "list", "--db", name]] {
        let failed = cleave(command).fails(2);
        assert!(failed.contains(&holder) && failed.contains("for itself"), "{failed}");
    }
    assert_eq!(first.end("DELETE FROM people WHERE id = 2;"), (Some(0), String::new()));
    assert_eq!(second(&db, &["-c", COUNT]).ok(), "n\n1\n");
}

#[test]
fn the_first_process_does_not_wait_for_the_second_and_may_be_killed() {
    let place = tempdir().unwrap();
    let db = place.path().join("db");
    sql(&db, &["-c", PEOPLE]).ok();
    let first = Waiting::start(&db, "SELECT 1", "1");
    let beside = Waiting::start(&db, COUNT, "2");
    let who = format!("process {} (cleave sql)", first.child.id());
    assert_eq!(first.end(""), (Some(0), String::new()));
    let (exit_code, errors) = beside.end("SELECT 2;");
    let told = format!("{who}, which had the database open, has ended");
    assert!(exit_code == Some(3) && errors.contains(&told), "{errors}");
    assert!(!db.join("server.address").exists() && !db.join("shell.socket").exists());
    // A killed one leaves its files behind, which count for nothing.
    drop(Waiting::start(&db, "SELECT 1", "1"));
    assert!(db.join("server.address").exists());
    let run = second(&db, &["-c", "DELETE FROM people", "-c", COUNT]);
    assert_eq!((run.stderr.as_str(), run.stdout.as_str()), ("", "n\n0\n"), "{run:?}");
}

#[test]
fn the_end_of_the_first_process_stops_what_others_run() {
    let place = tempdir().unwrap();
    let db = place.path().join("db");
    sql(&db, &["-c", PEOPLE]).ok();
    let first = Waiting::start(&db, "SELECT 1", "1");
    let mut beside = Waiting::start(&db, COUNT, "2");
    beside.go_on("SELECT pg_sleep(1000);");
    let running = "SELECT count(*) AS n FROM pg_stat_activity WHERE state = 'active' \
                   AND query LIKE '%pg_sleep%' AND query NOT LIKE '%pg_stat_activity%'";
    let sleeps = || second(&db, &["-c", running]).ok() == "n\n1\n";
    assert!((0..200).any(|_| sleeps()), "it does not run");
    assert_eq!(first.end(""), (Some(0), String::new()));
    let (exit_code, errors) = beside.ended();
    assert!(exit_code == Some(3) && errors.contains("has ended"), "{errors}");
}

#[test]
fn who_asks_only_to_read_only_reads() {
    let place = tempdir().unwrap();
    let db = place.path().join("db");
    sql(&db, &["-c", PEOPLE]).ok();
    let reading = |statement| second(&db, &["--read-only", "-c", statement]);
    assert_eq!(reading(COUNT).ok(), "n\n2\n");
    let failed = reading("SET transaction_read_only = off; DELETE FROM people").fails(3);
    assert!(failed.contains("25006") && failed.contains("--read-only"), "{failed}");
}
