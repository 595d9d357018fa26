//! Tests of readers that flush the delta beside committing sessions: each sees all that was acknowledged before it, and
//! no half of a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};

use cleave_host::check::CheckOptions;
use cleave_media::SplitMix64;
use datafusion::common::runtime::SpawnedTask;

use crate::support::{assert_no_leak, fresh, open, row, rows, run};

const ROWS: i64 = 300;
const WRITERS: u64 = 3;
const COMMITS: usize = 120;

/// Increments that were asked for, and those that were acknowledged.
#[derive(Debug, Default)]
struct Told {
    begun: AtomicI64,
    done: AtomicI64,
    writing: AtomicUsize,
}

async fn write(database: Arc<cleave_host::Database>, told: Arc<Told>, seed: u64) {
    let mut session = database.session();
    let mut random = SplitMix64::new(seed);
    let own = 1000 + i64::try_from(seed).unwrap() * 1000;
    for step in 0..i64::try_from(COMMITS).unwrap() {
        told.begun.fetch_add(2, SeqCst);
        // Two rows in one commit, one of which may be of this delta; and rows that are inserted and ended.
        let one = i64::try_from(random.next_u64() % 300).unwrap();
        let sql = format!(
            "BEGIN; UPDATE c SET n = n + 1 WHERE id = {one}; INSERT INTO c VALUES ({own} + {step}, 1, 'new'); COMMIT"
        );
        run(&mut session, &sql).await;
        told.done.fetch_add(2, SeqCst);
        if step % 3 == 2 {
            let id = own + step - 1;
            run(&mut session, &format!("UPDATE c SET note = 'again' WHERE id = {id}")).await;
        }
    }
    told.writing.fetch_sub(1, SeqCst);
}

async fn flush_beside_writers(placement: &str) {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        &format!("CREATE TABLE c (id bigint PRIMARY KEY, n bigint NOT NULL, note text) {placement}; CREATE INDEX \
            c_note ON c (note)"),
    )
    .await;
    run(
        &mut session,
        &format!("INSERT INTO c SELECT i, 0, 'old' FROM generate_series(0, {}) AS g (i)", ROWS - 1),
    )
    .await;
    let told = Arc::new(Told::default());
    told.writing.store(usize::try_from(WRITERS).unwrap(), SeqCst);
    let writers = (0..WRITERS).map(|seed| write(Arc::clone(&database), Arc::clone(&told), seed));
    let writers: Vec<_> = writers.map(SpawnedTask::spawn).collect();
    let mut seen = 0;
    while told.writing.load(SeqCst) > 0 {
        for split in ["host", "ndp"] {
            run(&mut session, &format!("SET split = {split}")).await;
            let acknowledged = told.done.load(SeqCst);
            let sums = row(&mut session, "SELECT sum(n), count(*) FROM c").await;
            let (sum, count) = sums.split_once(',').unwrap();
            let (sum, count): (i64, i64) = (sum.parse().unwrap(), count.parse().unwrap());
            assert!(acknowledged <= sum && sum <= told.begun.load(SeqCst), "{sum} of {told:?}");
            assert_eq!(sum, (count - ROWS) * 2, "half of a commit is seen");
            assert!(sum >= seen);
            seen = sum;
        }
    }
    for writer in writers {
        writer.join().await.unwrap();
    }
    let all = "SELECT id, n, note FROM c ORDER BY id";
    let total = 2 * i64::try_from(COMMITS).unwrap() * i64::try_from(WRITERS).unwrap();
    assert_eq!(row(&mut session, "SELECT sum(n) FROM c").await, total.to_string());
    let by_index = row(&mut session, "SELECT count(*) FROM c WHERE note = 'again'").await;
    assert_eq!(by_index, (COMMITS / 3 * usize::try_from(WRITERS).unwrap()).to_string());
    let before = rows(&mut session, all).await;
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    assert_eq!(rows(&mut database.session(), all).await, before, "after it was opened again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_flush_beside_writers() {
    flush_beside_writers("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_flush_divided_tables_beside_writers() {
    flush_beside_writers("WITH (tablets = 3, tablet_by = hash (id))").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_changes_nothing_is_counted() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    for id in 0..3 {
        let nothing =
            format!("BEGIN; INSERT INTO t VALUES ({id}); DELETE FROM t WHERE id = {id}; COMMIT");
        run(&mut session, &nothing).await;
        // A commit after a checkpoint counts from there.
        run(&mut session, "CHECKPOINT").await;
        run(&mut session, &format!("INSERT INTO t VALUES (10 + {id})")).await;
        run(&mut session, &nothing).await;
    }
    assert_eq!(rows(&mut session, "SELECT id FROM t ORDER BY id").await, ["10", "11", "12"]);
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    let found = rows(&mut database.session(), "SELECT id FROM t ORDER BY id").await;
    assert_eq!(found, ["10", "11", "12"]);
}
