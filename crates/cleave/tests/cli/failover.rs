//! `cleave failover`: a host is killed at any instant and loses its folder, and another one continues.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::tempdir;

use crate::local_device::Process;
use crate::program::{cleave, sql};
use crate::serve::client::Server;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Inserts numbers from `first` on, each in a commit, until it is killed after `time`; returns the last acknowledged
/// one.
fn insert_and_kill(database: &Path, first: u64, time: Duration) -> u64 {
    let script = database.with_extension("sql");
    let inserts =
        (first..first + 20_000).map(|id| format!("INSERT INTO t VALUES ({id}) RETURNING id;"));
    std::fs::write(&script, inserts.collect::<Vec<_>>().join("\n")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_cleave"))
        .args(["sql", "--create", "--format", "csv", "--db"])
        .arg(database)
        .arg("-f")
        .arg(&script)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.filter_map(|line| line.parse::<u64>().ok()).last()
        });
        std::thread::park_timeout(time);
        child.kill().unwrap();
        child.wait().unwrap();
        reading.join().unwrap().unwrap_or(first - 1)
    })
}

#[test]
fn a_killed_host_loses_its_folder_and_no_commit() {
    let place = tempdir().unwrap();
    let _device = Process::device(place.path());
    let socket = place.path().join("device.sock");
    let mut database = place.path().join("db 0");
    sql(&database, &["-c", "SELECT 1"]).ok();
    cleave(&["device", "add", "beside", "--local", text(&socket), "--db", text(&database)]).ok();
    let create = "CREATE TABLE t (id bigint PRIMARY KEY) WITH (device = beside)";
    sql(&database, &["-c", create, "-c", "CREATE TABLE own (id int)"]).ok();
    sql(&database, &["-c", "ALTER SYSTEM SET log_replica = 'beside'"]).ok();
    let mut next = 1;
    for turn in 1..=4 {
        let time = Duration::from_millis(500 + 300 * turn);
        let acknowledged = insert_and_kill(&database, next, time);
        std::fs::remove_dir_all(&database).unwrap();
        database = place.path().join(format!("db {turn}"));
        let out = cleave(&["failover", text(&database), "--local", text(&socket)]).ok();
        assert!(out.contains("failed over") && (turn > 1 || out.contains("own")), "{out}");
        assert!(out.contains("has no other device that could say"), "{out}");
        let found = sql(
            &database,
            &["--format", "csv", "-c", "SELECT count(*) AS n, coalesce(max(id), 0) AS m FROM t"],
        );
        let found = found.ok();
        let (count, last) = found.lines().last().unwrap().split_once(',').unwrap();
        let (count, last): (u64, u64) = (count.parse().unwrap(), last.parse().unwrap());
        assert_eq!(count, last, "rows are those from the first to the last");
        assert!(last >= acknowledged, "{last} of {acknowledged} that were acknowledged");
        next = last + 1;
    }
    assert!(next > 4, "no host came to anything");
}

#[test]
fn what_cannot_be_failed_over_is_named() {
    let place = tempdir().unwrap();
    let _device = Process::device(place.path());
    let socket = place.path().join("device.sock");
    let [database, new] = ["db", "new"].map(|name| place.path().join(name));
    let error = cleave(&["failover", text(&new), "--local", text(&socket)]).fails(2);
    assert!(error.contains("no database's"), "{error}");
    let add = ["device", "add", "beside", "--create", "--local", text(&socket)];
    cleave(&[&add[..], &["--db", text(&database)]].concat()).ok();
    let error = cleave(&["failover", text(&new), "--local", text(&socket)]).fails(2);
    assert!(error.contains("no log replica"), "{error}");
    let error = cleave(&["failover", text(&new), "--local", "nothing.sock"]).fails(2);
    assert!(error.contains("nothing.sock"), "{error}");
    for arguments in [&["failover"][..], &["failover", "new"]] {
        cleave(arguments).fails(1);
    }
    assert!(!new.exists());
}

/// A host that continues without the replica ends it when its device is back.
#[test]
fn a_server_ends_a_replica_that_was_given_up_when_its_device_is_back() {
    let place = tempdir().unwrap();
    let device = Process::device(place.path());
    let socket = place.path().join("device.sock");
    let [database, new] = ["db", "new"].map(|name| place.path().join(name));
    sql(&database, &["-c", "CREATE TABLE t (id int PRIMARY KEY)"]).ok();
    cleave(&["device", "add", "beside", "--local", text(&socket), "--db", text(&database)]).ok();
    sql(&database, &["-c", "ALTER SYSTEM SET log_replica = 'beside'"]).ok();
    let server = Server::start(place.path(), &["--allow-files"]);
    let mut client = server.client();
    assert_eq!(client.query("INSERT INTO t VALUES (1)").tags, ["INSERT 0 1"]);
    drop(device);
    assert_eq!(client.query("ALTER SYSTEM RESET log_replica").tags, ["ALTER SYSTEM"]);
    assert_eq!(client.query("INSERT INTO t VALUES (2)").tags, ["INSERT 0 1"]);
    let _device = Process::device(place.path());
    let is_ended = (0..600).any(|_| {
        std::thread::park_timeout(Duration::from_millis(50));
        client.value("SHOW log_replica_status") == "off"
    });
    assert!(is_ended, "{}", client.value("SHOW log_replica_status"));
    let error = cleave(&["failover", text(&new), "--local", text(&socket)]).fails(2);
    assert!(error.contains("no log replica"), "{error}");
}
