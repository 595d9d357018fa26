//! Tests of crashes: a process killed at random instants, and the state of the database when it is opened again.
//!
//! The test runs its own binary once more as the process to be killed. That process reports each finished step on its
//! standard output. The test kills it a random moment after a random line and opens the database. It checks that every
//! statement is there whole or not at all, that everything acknowledged is there, and that the space in use is the
//! space that is named. Unsynced writes of the killed process are lost with it, though a kill alone would leave them in
//! the page cache. Rounds continue one database, so that recovery is followed by recovery.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cleave_host::Database;
use cleave_host::check::CheckOptions;
use cleave_media::{DirectFile, Media, OpenMode, SplitMix64};

use crate::support::{assert_no_leak, batches, note, numbered, open, open_forgetful, row, run};

pub(crate) const DIRECTORY: &str = "CLEAVE_CRASH_DIRECTORY";
const LOAD_ROWS: i32 = 20_000;
const ROUNDS: u64 = 8;

/// Starts `child` on `directory`, kills it a while after it has said `lines` lines, and returns what it
/// said.
pub(crate) fn run_and_kill(
    child: &str,
    directory: &Path,
    lines: u64,
    linger: Duration,
) -> Vec<String> {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", child, "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = process.stdout.take().unwrap();
    let (send, receive) = mpsc::channel();
    let reader = std::thread::Builder::new().spawn(move || {
        for line in BufReader::new(output).lines() {
            // The test harness prints lines of its own, and does not always end its line.
            if let Some((_, said)) = line.unwrap().split_once("child: ") {
                send.send(said.to_owned()).unwrap();
            }
        }
    });
    let mut said = Vec::new();
    for _ in 0..lines {
        said.push(receive.recv_timeout(Duration::from_secs(120)).expect("the child works"));
    }
    // The instant itself: waits, and reads what is printed meanwhile.
    if let Ok(line) = receive.recv_timeout(linger) {
        said.push(line);
    }
    process.kill().unwrap();
    process.wait().unwrap();
    reader.unwrap().join().unwrap();
    said.extend(receive.try_iter());
    said
}

pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "child: {line}").unwrap();
    out.flush().unwrap();
}

/// `check` finds nothing, and no file in `segments/` is superfluous.
async fn assert_sound(database: &Arc<Database>, directory: &Path) {
    assert_no_leak(database);
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    let catalog = database.catalog();
    let sealed = catalog
        .tables()
        .flat_map(|table| table.tablets.clone())
        .flat_map(|tablet| tablet.segments().cloned().collect::<Vec<_>>())
        .filter(|segment| segment.sealed)
        .count();
    let files = std::fs::read_dir(directory.join("segments")).unwrap().count();
    assert_eq!(files, sealed);
    assert!(!directory.join("manifest.new").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_killed_at_any_instant_is_there_or_not() {
    let directory = tempfile::tempdir().unwrap();
    {
        let database = open(directory.path()).await;
        run(&mut database.session(), "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    }
    let mut random = SplitMix64::new(0x10ad);
    let mut before: i32 = 0;
    for round in 0..ROUNDS {
        let lines = 1 + random.below(14);
        let linger = Duration::from_micros(random.below(15_000));
        let said = run_and_kill("crash::child_load", directory.path(), lines, linger);
        let acknowledged = said.iter().filter(|line| line.starts_with("loaded")).count();
        let acknowledged = before + i32::try_from(acknowledged).unwrap() * LOAD_ROWS;

        let database = open(directory.path()).await;
        let mut session = database.session();
        let count: i32 = row(&mut session, "SELECT count(*) FROM t").await.parse().unwrap();
        assert_eq!(
            count % LOAD_ROWS,
            0,
            "round {round}: half a load ({count} rows) after {said:?}"
        );
        assert!(count >= acknowledged, "round {round}: {count} of {acknowledged} after {said:?}");
        assert!(count <= acknowledged + LOAD_ROWS, "round {round}: {count} after {said:?}");
        if count > 0 {
            let all = "SELECT count(DISTINCT id), min(id), max(id), count(DISTINCT note) FROM t";
            assert_eq!(row(&mut session, all).await, format!("{count},0,{},{count}", count - 1));
            for id in [0, count / 2, count - 1] {
                let sql = format!("SELECT note FROM t WHERE id = {id}");
                assert_eq!(row(&mut session, &sql).await, note(id));
            }
        }
        assert_sound(&database, directory.path()).await;
        before = count;
    }
    assert!(before > 0, "some load was finished");
    // Space of loads that were killed is used again: the media has room for what is named and one load.
    let database = open(directory.path()).await;
    let mut session = database.session();
    let named = database.devices()[0].space().used_blocks;
    let ids = before..before + LOAD_ROWS;
    session.load("t", batches(vec![numbered(ids)]), None).await.unwrap();
    let grown = database.devices()[0].space().used_blocks - named;
    drop((session, database));
    let media = DirectFile::open(&directory.path().join("device-0.media"), OpenMode::Existing);
    let blocks = media.unwrap().block_count();
    let ahead = 2 * 16 * 1024 + 2 * 1024;
    assert!(blocks <= named + 2 * grown + ahead, "{blocks} blocks for {named}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_insert_killed_at_any_instant_is_there_or_not() {
    let directory = tempfile::tempdir().unwrap();
    {
        let database = open(directory.path()).await;
        run(&mut database.session(), "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    }
    let mut random = SplitMix64::new(0x1235);
    let mut before: i64 = 0;
    for round in 0..ROUNDS {
        let lines = 1 + random.below(40);
        let linger = Duration::from_micros(random.below(8_000));
        let said = run_and_kill("crash::child_insert", directory.path(), lines, linger);
        let acknowledged = before + 3 * i64::try_from(said.len()).unwrap();

        let database = open(directory.path()).await;
        let mut session = database.session();
        let found = row(&mut session, "SELECT count(*), coalesce(max(id) + 1, 0) FROM t").await;
        let (count, end) = found.split_once(',').unwrap();
        assert_eq!(count, end, "round {round}: rows are missing in between");
        let count: i64 = count.parse().unwrap();
        assert_eq!(count % 3, 0, "round {round}: half a statement");
        assert!(count >= acknowledged, "round {round}: {count} of {acknowledged}");
        assert!(count <= acknowledged + 3, "round {round}: {count} of {acknowledged}");
        for id in [0, count / 2, count - 1] {
            let sql = format!("SELECT note FROM t WHERE id = {id}");
            assert_eq!(row(&mut session, &sql).await, format!("inserted {id}"));
        }
        assert_sound(&database, directory.path()).await;
        before = count;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_amid_result_sets_killed_at_any_instant_is_there_or_not() {
    let directory = tempfile::tempdir().unwrap();
    {
        let database = open(directory.path()).await;
        run(
            &mut database.session(),
            "CREATE TABLE t (id int PRIMARY KEY, v int, note text);
             INSERT INTO t SELECT i, 0, md5(i::text) FROM generate_series(1, 3000) AS g (i);
             CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v",
        )
        .await;
    }
    let last = |said: &[String], what: &str| -> u64 {
        let numbers = said.iter().filter_map(|line| line.strip_prefix(what)?.parse().ok());
        numbers.max().unwrap_or(0)
    };
    let mut random = SplitMix64::new(0x5e75);
    let (mut before, mut refreshed) = (0, 0);
    for round in 0..6 {
        let lines = 1 + random.below(12);
        let linger = Duration::from_micros(random.below(20_000));
        let said = run_and_kill("crash::child_refresh", directory.path(), lines, linger);
        before = before.max(last(&said, "updated "));
        refreshed = refreshed.max(last(&said, "refreshed "));

        let database = open(directory.path()).await;
        let mut session = database.session();
        let sets = row(&mut session, "SELECT count(*), min(owner) FROM cleave.result_sets").await;
        assert_eq!(sets, "1,materialized view", "round {round}");
        let now: u64 = row(&mut session, "SELECT min(v) FROM t").await.parse().unwrap();
        let all = row(&mut session, "SELECT count(*), max(v) FROM t").await;
        assert_eq!(all, format!("3000,{now}"), "round {round}: half an update after {said:?}");
        assert!((before..=before + 1).contains(&now), "round {round}: {now} after {said:?}");
        let view = row(&mut session, "SELECT count(*), sum(n), min(v) FROM m").await;
        let of = view.strip_prefix("1,3000,").map(|of| of.parse::<u64>().unwrap());
        let is_whole = of.is_some_and(|of| (refreshed..=now).contains(&of));
        assert!(is_whole, "round {round}: the view has {view} of {now} after {said:?}");
        assert_sound(&database, directory.path()).await;
        before = now;
    }
    assert!(refreshed > 0, "some refresh was finished");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run, and killed, by a_load_killed_at_any_instant_is_there_or_not"]
async fn child_load() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let database = open_forgetful(Path::new(&directory)).await;
    let mut session = database.session();
    let mut from: i32 = row(&mut session, "SELECT count(*) FROM t").await.parse().unwrap();
    say("opened");
    while from < i32::MAX - LOAD_ROWS {
        let parts = (0..10).map(|part| {
            let step = LOAD_ROWS / 10;
            numbered(from + part * step..from + (part + 1) * step)
        });
        let progress = |rows: u64| say(&format!("{rows} rows"));
        session.load("t", batches(parts.collect()), Some(&progress)).await.unwrap();
        from += LOAD_ROWS;
        say(&format!("loaded up to {from}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run, and killed, by an_insert_killed_at_any_instant_is_there_or_not"]
async fn child_insert() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let database = open_forgetful(Path::new(&directory)).await;
    let mut session = database.session();
    let mut id: i64 = row(&mut session, "SELECT count(*) FROM t").await.parse().unwrap();
    while id < i64::from(i32::MAX) {
        let values: Vec<String> =
            (id..id + 3).map(|id| format!("({id}, 'inserted {id}')")).collect();
        run(&mut session, &format!("INSERT INTO t VALUES {}", values.join(", "))).await;
        id += 3;
        say(&format!("inserted up to {id}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run, and killed, by a_refresh_amid_result_sets_killed_at_any_instant_is_there_or_not"]
async fn child_refresh() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let database = open_forgetful(Path::new(&directory)).await;
    let mut session = database.session();
    let settings = "SET stages = always; SET result_reuse = on; SET update_placement = device";
    run(&mut session, settings).await;
    let mut v: u64 = row(&mut session, "SELECT max(v) FROM t").await.parse().unwrap();
    let staged = "WITH x AS MATERIALIZED (SELECT v, note FROM t)
        SELECT count(*), min(a.v), max(b.v) FROM x a JOIN x b ON a.note = b.note";
    loop {
        v += 1;
        run(&mut session, &format!("UPDATE t SET v = {v}")).await;
        say(&format!("updated {v}"));
        let held = "CLOSE ALL; DECLARE c CURSOR WITH HOLD FOR SELECT id, note FROM t";
        run(&mut session, held).await;
        say("declared");
        assert_eq!(row(&mut session, staged).await, format!("3000,{v},{v}"));
        say("staged");
        let method = if v.is_multiple_of(2) { "all" } else { "changes" };
        run(&mut session, &format!("SET refresh_method = {method}; REFRESH MATERIALIZED VIEW m"))
            .await;
        say(&format!("refreshed {v}"));
    }
}
