//! `kill -9` of a host that builds an index: the table is unchanged, and the index is there whole or not at all. And of
//! a host whose transaction has changed more than fits into memory: all of it is there, or nothing.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cleave_media::Stopwatch;
use tempfile::tempdir;

use crate::local_device::Process;
use crate::program::{cleave, sql};

const ROWS: &str = "60000";
const INDEXES: [&str; 2] =
    ["CREATE INDEX t_note ON t (note, id)", "CREATE UNIQUE INDEX t_id ON t (id DESC)"];

/// Instants at which a build is killed, spread over the time of a whole one.
const KILLS: u32 = 8;

/// A process that builds the indexes.
fn build(db: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.args(["sql", "--create", "--db"]).arg(db);
    for index in INDEXES {
        command.args(["-c", index]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Builds the indexes and is killed after `time`; returns whether both were finished before.
fn build_and_kill(db: &Path, time: Duration) -> bool {
    let mut process = build(db);
    std::thread::park_timeout(time);
    let ended = process.try_wait().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    ended.is_some_and(|status| status.success())
}

fn rounds(db: &Path, create: &str) {
    sql(db, &["-c", create]).ok();
    let fill = format!(
        "INSERT INTO t SELECT v, 'note ' || v * 7919 % 10007 FROM generate_series(1, {ROWS}) AS s(v)"
    );
    sql(db, &["-c", &fill]).ok();
    let drop_indexes = || sql(db, &["-c", "DROP INDEX IF EXISTS t_note, t_id"]).ok();
    let watch = Stopwatch::start();
    assert!(build(db).wait().unwrap().success());
    let whole = watch.elapsed();
    let mut killed = 0;
    for part in 1..=KILLS {
        // Existing ones are dropped, so that each round builds them again.
        drop_indexes();
        let time = whole * part / KILLS;
        let ended = build_and_kill(db, time);
        let check = cleave(&["check", "--db", db.to_str().unwrap()]);
        assert!(check.stderr.contains("everything holds"), "after {time:?}: {check:?}");
        for scan in ["on", "off"] {
            let setting = format!("index_scan={scan}");
            let query = "SELECT count(*), sum(id) FROM t WHERE note = 'note 4711'";
            let found = sql(db, &["--format", "csv", "--set", &setting, "-c", query]).ok();
            assert!(found.ends_with("\n6,174045\n"), "{scan}: {found}");
        }
        killed += u32::from(!ended);
    }
    assert!(killed > 0, "every build ended before its part of {whole:?}");
}

#[test]
fn an_index_build_killed_at_any_instant_leaves_the_table() {
    let place = tempdir().unwrap();
    rounds(place.path(), "CREATE TABLE t (id int PRIMARY KEY, note text)");
}

#[test]
fn so_it_is_where_a_device_process_holds_the_table() {
    let (place, folder) = (tempdir().unwrap(), tempdir().unwrap());
    let _device = Process::device(folder.path());
    let db = place.path().to_str().unwrap();
    sql(place.path(), &["-c", "SELECT 1"]).ok();
    let socket = folder.path().join("device.sock");
    cleave(&["device", "add", "beside", "--local", socket.to_str().unwrap(), "--db", db]).ok();
    rounds(place.path(), "CREATE TABLE t (id int PRIMARY KEY, note text) WITH (device = beside)");
}

/// A transaction that spills its rows to pages before it commits, and the content of the table after it.
const CHANGES: &[&str] = &[
    "BEGIN",
    "INSERT INTO t SELECT v, repeat('new ', 100) FROM generate_series(1001, 40000) AS s(v)",
    "UPDATE t SET note = note || 'er' WHERE id % 2 = 0",
    "DELETE FROM t WHERE id <= 500",
    "COMMIT",
];
const CHANGED: &str = "\n39500,799894750,19750\n";

/// A process that runs [`CHANGES`] with 8 MiB of memory for them.
fn change(db: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.args(["sql", "--create", "--query-memory", "8MiB", "--db"]).arg(db);
    for statement in CHANGES {
        command.args(["-c", statement]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn changes_beyond_memory_killed_at_any_instant_are_there_whole_or_not_at_all() {
    let filled = || {
        let place = tempdir().unwrap();
        sql(place.path(), &["-c", "CREATE TABLE t (id int PRIMARY KEY, note text)"]).ok();
        let rows = "INSERT INTO t SELECT v, 'old' FROM generate_series(1, 1000) AS s(v)";
        sql(place.path(), &["-c", rows]).ok();
        place
    };
    let first = filled();
    let watch = Stopwatch::start();
    assert!(change(first.path()).wait().unwrap().success());
    let whole = watch.elapsed();
    let mut killed = 0;
    for part in 0..=KILLS {
        let place = filled();
        let mut process = change(place.path());
        std::thread::park_timeout(whole * part / KILLS);
        let ended = process.try_wait().unwrap().is_some_and(|status| status.success());
        process.kill().unwrap();
        process.wait().unwrap();
        let check = cleave(&["check", "--db", place.path().to_str().unwrap()]);
        assert!(check.stderr.contains("everything holds"), "part {part}: {check:?}");
        let query = "SELECT count(*), sum(id), count(*) FILTER (WHERE note LIKE '%er') FROM t";
        let found = sql(place.path(), &["--format", "csv", "-c", query]).ok();
        let is_changed = found.ends_with(CHANGED);
        assert!(
            is_changed || !ended && found.ends_with("\n1000,500500,0\n"),
            "part {part}: {found}"
        );
        killed += u32::from(!is_changed);
    }
    assert!(killed > 0, "every transaction ended before its part of {whole:?}");
}
