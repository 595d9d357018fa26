//! Tests of power loss and of failing media: exactly what was acknowledged is there.
//!
//! The device runs over media that keep durable bytes apart from those written since the last sync. A power loss keeps
//! the durable ones and any subset of the others.

use std::path::Path;
use std::sync::{Arc, Mutex};

use cleave_host::{Database, EmbeddedFactory, OpenOptions, SnapshotKind};
use cleave_media::{Fault, FaultPlan, FaultyMedia, Media, Memory, Operation};

use crate::support::{DEVICE, assert_no_leak, batches, note, numbered, over, refused, row, run};

/// A device whose media can be replaced between two restarts.
#[derive(Clone)]
pub(crate) struct Slot(pub(crate) Arc<Mutex<Arc<dyn Media>>>);

impl Slot {
    pub(crate) fn new(media: Arc<dyn Media>) -> Self {
        Self(Arc::new(Mutex::new(media)))
    }

    fn factory(&self) -> EmbeddedFactory {
        let slot = self.clone();
        Arc::new(move |_: &Path| over(Arc::clone(&slot.0.lock().unwrap()), DEVICE))
    }

    pub(crate) async fn open(&self, directory: &Path) -> Arc<Database> {
        let options = OpenOptions::new(self.factory()).create(true);
        Database::open(directory, options).await.unwrap()
    }
}

const ALL: &str = "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM t";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_loss_of_power() {
    for seed in 0..12 {
        let directory = tempfile::tempdir().unwrap();
        let media = Arc::new(FaultyMedia::new());
        let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
        let database = slot.open(directory.path()).await;
        let mut session = database.session();
        run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
        session.load("t", batches(vec![numbered(0..5000)]), None).await.unwrap();
        for id in 5000..5020 {
            run(&mut session, &format!("INSERT INTO t VALUES ({id}, '{}')", note(id))).await;
        }
        // One more load, which fails after that many operations on the media, each time at another one.
        media.fail_after(seed);
        let failed = session.load("t", batches(vec![numbered(5020..9000)]), None).await;
        let end = if failed.is_ok() { 9000 } else { 5020 };
        drop((session, database));
        *slot.0.lock().unwrap() = Arc::new(media.crash(seed).unwrap());

        let database = slot.open(directory.path()).await;
        let mut session = database.session();
        assert_eq!(row(&mut session, ALL).await, format!("{end},{end},0,{}", end - 1), "{seed}");
        for id in [0, 4999, 5000, 5019] {
            let sql = format!("SELECT note FROM t WHERE id = {id}");
            assert_eq!(row(&mut session, &sql).await, note(id), "seed {seed}");
        }
        assert_no_leak(&database);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_not_synced_is_needed() {
    // Power is lost after each of the operations in turn, and takes all that was not synced.
    let mut acknowledged = 0;
    for operations in 0..16 {
        let directory = tempfile::tempdir().unwrap();
        let media = Arc::new(FaultyMedia::new());
        let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
        let database = slot.open(directory.path()).await;
        let mut session = database.session();
        run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
        media.fail_after(operations);
        let mut end = 0;
        let loaded = session.load("t", batches(vec![numbered(0..3000)]), None).await;
        if loaded.is_ok() {
            end = 3000;
            while end < 3003 {
                let sql = format!("INSERT INTO t VALUES ({end}, '{}')", note(end));
                if session.run(&sql).await.is_err() {
                    break;
                }
                end += 1;
                // Which has it written as pages, or fails.
                drop(session.run("SELECT count(*) FROM t").await);
            }
        }
        drop((session, database));
        *slot.0.lock().unwrap() = Arc::new(media.forget_unsynced().unwrap());

        let database = slot.open(directory.path()).await;
        let mut session = database.session();
        let found =
            row(&mut session, "SELECT count(*), count(DISTINCT id), count(note) FROM t").await;
        assert_eq!(found, format!("{end},{end},{end}"), "after {operations} operations");
        if end > 0 {
            let sql = format!("SELECT note FROM t WHERE id = {}", end - 1);
            assert_eq!(row(&mut session, &sql).await, note(end - 1), "after {operations}");
        }
        assert_no_leak(&database);
        acknowledged = end;
    }
    assert_eq!(acknowledged, 3003, "fewer operations are needed than were let through at last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn media_that_lie_are_found_out() {
    for fault in [Fault::Lost, Fault::Torn, Fault::Misdirected] {
        let mut found = 0;
        for seed in 0..6 {
            let directory = tempfile::tempdir().unwrap();
            let plan = FaultPlan::new(seed).one_in(Operation::Write, 2, fault);
            let media = FaultyMedia::over(Arc::new(Memory::new()), plan);
            let slot = Slot::new(Arc::new(media));
            let database = slot.open(directory.path()).await;
            let mut session = database.session();
            run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
            let load = session.load("t", batches(vec![numbered(0..20_000)]), None).await;
            let Ok(_) = load else { continue };
            database.buffer_pool().clear();
            // Either nothing that the query reads was damaged, or the page is named; never other rows.
            let sql = "SELECT count(*), sum(length(note)) FROM t";
            let expected: usize = (0..20_000).map(|id| note(id).len()).sum();
            match session.run(sql).await {
                Ok(_) => {
                    assert_eq!(row(&mut session, sql).await, format!("20000,{expected}"));
                }
                Err(error) => {
                    assert_eq!(error.sqlstate(), "XX001", "{fault:?}, seed {seed}: {error}");
                    assert!(error.to_string().contains("page"), "{error}");
                    found += 1;
                }
            }
        }
        assert!(found > 0, "{fault:?} hit no page that was read");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_fails_or_lies_is_the_statement_s_and_not_the_next_one_s() {
    let directory = tempfile::tempdir().unwrap();
    let beneath: Arc<dyn Media> = Arc::new(Memory::new());
    let slot = Slot::new(Arc::clone(&beneath));
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    drop((session, database));
    // A database each, so that nothing is in the buffer pool.
    let every_read_lies = FaultPlan::new(3).one_in(Operation::Read, 1, Fault::FlippedBit);
    let every_read_fails = FaultPlan::new(3).one_in(Operation::Read, 1, Fault::Error);
    for (plan, sqlstate) in [(every_read_fails, "58030"), (every_read_lies, "XX001")] {
        let media = Arc::new(FaultyMedia::over(Arc::clone(&beneath), FaultPlan::default()));
        *slot.0.lock().unwrap() = Arc::clone(&media) as Arc<dyn Media>;
        let database = slot.open(directory.path()).await;
        let mut session = database.session();
        media.follow(plan);
        let error = refused(&mut session, "SELECT sum(length(note)) FROM t").await;
        assert_eq!(error.sqlstate(), sqlstate, "{error}");
        media.follow(FaultPlan::default());
        assert_eq!(row(&mut session, ALL).await, "20000,20000,0,19999");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_device_fails_the_statement_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let plan =
        FaultPlan::new(1).at(Operation::Grow, 2, Fault::Full).at(Operation::Grow, 3, Fault::Full);
    let plan = plan.at(Operation::Grow, 4, Fault::Full);
    let slot = Slot::new(Arc::new(FaultyMedia::over(Arc::new(Memory::new()), plan)));
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO t VALUES (-1, 'there before')").await;
    drop(database.snapshot(SnapshotKind::Flushed).await.unwrap());
    let space = database.devices()[0].space();
    let error = session.load("t", batches(vec![numbered(0..50_000)]), None).await.unwrap_err();
    assert_eq!(error.sqlstate(), "53100", "{error}");
    let message = error.to_string();
    for part in ["device \"embedded\"", "no space for", "drop tables"] {
        assert!(message.contains(part), "{part} is not said: {message}");
    }
    assert_eq!(database.devices()[0].space(), space, "its space came back");
    assert_eq!(row(&mut session, ALL).await, "1,1,-1,-1");
    session.load("t", batches(vec![numbered(0..50_000)]), None).await.unwrap();
    assert_eq!(row(&mut session, ALL).await, "50001,50001,-1,49999");
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_the_media_refuse_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(FaultyMedia::new());
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO t VALUES (1, 'one')").await;
    let generation = database.catalog().generation;
    for operations in 0..3 {
        media.fail_after(operations);
        let error = match session.run("INSERT INTO t VALUES (2, 'two')").await {
            Err(error) => error,
            // All that it needed had been done.
            Ok(_) => break,
        };
        assert_eq!(error.sqlstate(), "58030", "{error}");
        assert!(error.to_string().contains("a test asked for it"), "{error}");
        media.mend();
        assert_eq!(database.catalog().generation, generation);
        assert_eq!(row(&mut session, ALL).await, "1,1,1,1");
    }
    media.fail_after(0);
    let error = refused(&mut session, "INSERT INTO t VALUES (1, 'uno')").await;
    assert_eq!(error.sqlstate(), "23505", "keys are looked up without writing: {error}");
    media.mend();
    run(&mut session, "INSERT INTO t VALUES (3, 'three')").await;
    assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 3").await, "three");
    run(&mut session, "CREATE TABLE u (id int)").await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_that_cannot_be_replaced_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let slot = Slot::new(Arc::new(FaultyMedia::new()));
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    let space = database.devices()[0].space();
    // A directory in its place: the new manifest cannot be written.
    std::fs::create_dir(directory.path().join("manifest.new")).unwrap();
    for sql in ["CHECKPOINT", "CREATE TABLE u (id int)", "DROP TABLE t"] {
        let error = refused(&mut session, sql).await;
        assert!(error.to_string().contains("manifest.new"), "{sql}: {error}");
    }
    let load = session.load("t", batches(vec![numbered(0..5000)]), None).await;
    assert!(load.unwrap_err().to_string().contains("manifest.new"));
    std::fs::remove_dir(directory.path().join("manifest.new")).unwrap();
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "0");
    assert_eq!(database.devices()[0].space(), space);
    assert_eq!(std::fs::read_dir(directory.path().join("segments")).unwrap().count(), 0);
    run(&mut session, "INSERT INTO t VALUES (1, 'x')").await;
    assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 1").await, "x");
    run(&mut session, "CHECKPOINT").await;
    assert_no_leak(&database);
}
