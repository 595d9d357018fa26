//! Tests of the log: commits that no manifest contains are recovered however the process ends.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use cleave_host::{Database, OpenOptions, SnapshotKind};
use cleave_media::files::Files;
use cleave_media::simulation::{World, enter};
use cleave_media::{FaultyMedia, ForgetfulFiles, Media};

use crate::durability::Slot;
use crate::support::{
    assert_no_leak, checks_out, embedded, open, open_forgetful, refused, row, rows, run,
};

fn log_bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory.join("log")).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

const ALL: &str = "SELECT id, note FROM t ORDER BY id";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_media_forgot_is_made_again_from_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text, amount numeric(8, 2))").await;
    run(&mut session, "CREATE INDEX t_note ON t (note)").await;
    run(&mut session, "INSERT INTO t VALUES (1, 'one', 1.5), (2, NULL, 2), (3, 'drei', NULL)")
        .await;
    run(&mut session, "UPDATE t SET note = 'two' WHERE id = 2").await;
    run(&mut session, "BEGIN; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (4, 'vier', 4)")
        .await;
    run(&mut session, "UPDATE t SET id = id + 10 WHERE id > 2; COMMIT").await;
    run(&mut session, "BEGIN; DELETE FROM t").await;
    let expected = ["2,two", "13,drei", "14,vier"];
    drop((session, database));
    for _ in 0..2 {
        let database = open_forgetful(directory.path()).await;
        let mut session = database.session();
        assert_eq!(rows(&mut session, ALL).await, expected);
        assert_eq!(row(&mut session, "SELECT id FROM t WHERE note = 'vier'").await, "14");
        let error = refused(&mut session, "INSERT INTO t VALUES (13, '', 0)").await;
        assert_eq!(error.sqlstate(), "23505");
        assert_no_leak(&database);
    }
    checks_out(directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_commits_than_are_made_again_at_once_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, n int, note text)").await;
    run(&mut session, "CREATE TABLE moved (id int, at_turn int)").await;
    run(&mut session, "INSERT INTO t SELECT g, 0, 'row ' || g FROM generate_series(1, 1000) g")
        .await;
    run(&mut session, "CHECKPOINT").await;
    let manifest = || std::fs::read(directory.path().join("manifest")).unwrap();
    let before = manifest();
    // Rows are ended as often as inserted, mostly among those that recovery replays with them: 82,000 changes.
    for turn in 1..=40 {
        run(&mut session, "UPDATE t SET n = n + 1").await;
        run(&mut session, &format!("DELETE FROM t WHERE id = {turn}")).await;
        run(&mut session, &format!("INSERT INTO moved VALUES ({turn}, {turn})")).await;
        run(&mut session, &format!("INSERT INTO t VALUES ({turn}, {turn}, NULL)")).await;
    }
    assert_eq!(manifest(), before, "all of it is in the log alone");
    drop((session, database));
    for _ in 0..2 {
        let database = open(directory.path()).await;
        let mut session = database.session();
        let all = "SELECT count(*), sum(n), count(note), min(n), max(n) FROM t";
        assert_eq!(row(&mut session, all).await, "1000,40000,960,40,40");
        assert_eq!(row(&mut session, "SELECT count(*), sum(at_turn) FROM moved").await, "40,820");
        for id in [1, 7, 40, 41, 1000] {
            let one = format!("SELECT count(*), sum(n) FROM t WHERE id = {id}");
            assert_eq!(row(&mut session, &one).await, "1,40", "row {id}");
        }
        let error = refused(&mut session, "INSERT INTO t VALUES (7, 0, '')").await;
        assert_eq!(error.sqlstate(), "23505");
        assert_no_leak(&database);
    }
    checks_out(directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_keep_the_log_and_the_space_small() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO t VALUES (1, '')").await;
    // Each statement flushes the commit before it.
    run(&mut session, "SET shipped_delta_bytes = 0").await;
    let manifest = || std::fs::read(directory.path().join("manifest")).unwrap();
    let before = manifest();
    for turn in 0..1100 {
        run(&mut session, &format!("UPDATE t SET note = 'turn {turn}'")).await;
        if turn == 500 {
            assert_eq!(manifest(), before, "small commits leave the manifest alone");
        }
    }
    assert_ne!(manifest(), before, "after many of them one writes it");
    run(&mut session, "CHECKPOINT").await;
    assert_eq!(rows(&mut session, ALL).await, ["1,turn 1099"]);
    assert_no_leak(&database);
    drop((session, database));
    assert!(log_bytes(directory.path()) < 64 << 20);
    let database = open(directory.path()).await;
    assert_eq!(rows(&mut database.session(), ALL).await, ["1,turn 1099"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_lost_or_damaged_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int); INSERT INTO t VALUES (1)").await;
    drop((session, database));
    let away = directory.path().join("log-away");
    std::fs::rename(directory.path().join("log"), &away).unwrap();
    let error = Database::open(directory.path(), OpenOptions::new(embedded())).await.unwrap_err();
    assert_eq!(error.sqlstate(), "XX001");
    assert!(error.to_string().contains("log"), "{error}");
    std::fs::rename(&away, directory.path().join("log")).unwrap();
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM t").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_a_failed_sync_may_have_lost_are_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(FaultyMedia::new());
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO t VALUES (1, 'one'), (2, 'two')").await;
    drop(database.snapshot(SnapshotKind::Flushed).await.unwrap());
    media.fail_after(0);
    assert_eq!(refused(&mut session, "CHECKPOINT").await.sqlstate(), "58030");
    media.mend();
    // A successful sync now would vouch for pages that are gone.
    let error = refused(&mut session, "INSERT INTO t VALUES (3, 'three')").await;
    assert!(error.to_string().contains("open it again"), "{error}");
    drop((session, database));
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(rows(&mut session, ALL).await, ["1,one", "2,two"]);
    run(&mut session, "INSERT INTO t VALUES (3, 'three')").await;
}

/// A world whose files behave like Linux's, and which is otherwise as simple as possible.
struct Forgetful {
    files: ForgetfulFiles,
    ticks: Cell<u64>,
}

impl World for Forgetful {
    fn now(&self) -> Duration {
        self.ticks.set(self.ticks.get() + 1);
        Duration::from_micros(self.ticks.get())
    }

    fn wall(&self) -> i64 {
        0
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for byte in bytes {
            self.ticks.set(self.ticks.get() + 1);
            *byte = u8::try_from(self.ticks.get() % 251).unwrap();
        }
    }

    fn wake_at(&self, _at: Duration, waker: Waker) {
        waker.wake();
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_synced_stops_the_database_and_loses_nothing_later() {
    let directory = tempfile::tempdir().unwrap();
    let files = ForgetfulFiles::new();
    let _world = enter(Rc::new(Forgetful { files: files.clone(), ticks: Cell::default() }));
    let media = Arc::new(FaultyMedia::new());
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let mut database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        run(&mut session, &format!("INSERT INTO t VALUES ({}, 'there')", 2 * round)).await;
        acknowledged.push((2 * round).to_string());
        files.fail_syncs(true);
        let uncertain = format!("INSERT INTO t VALUES ({}, 'perhaps')", 2 * round + 1);
        assert_eq!(refused(&mut session, &uncertain).await.sqlstate(), "58030");
        files.fail_syncs(false);
        // The caller is told, with the reason; nothing more is acknowledged.
        assert!(database.stopped().await.contains("the log failed"));
        let error = refused(&mut session, "INSERT INTO t VALUES (100, 'there')").await;
        assert_eq!(error.sqlstate(), "58030", "{error}");
        drop((session, database));
        database = slot.open(directory.path()).await;
        session = database.session();
    }
    run(&mut session, "INSERT INTO t VALUES (50, 'there')").await;
    acknowledged.push("50".to_owned());
    drop((session, database));
    files.lose_power(|_| 0, |_| ()).unwrap();
    let slot = Slot::new(Arc::new(media.forget_unsynced().unwrap()));
    let database = slot.open(directory.path()).await;
    let found = "SELECT id FROM t WHERE note = 'there' ORDER BY id";
    assert_eq!(rows(&mut database.session(), found).await, acknowledged);
}
