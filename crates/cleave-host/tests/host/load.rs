//! Tests of bulk loads: all or nothing, keys unique, in any order.

use std::sync::atomic::{AtomicU64, Ordering};

use cleave_host::{Database, Error, Session};
use cleave_store::SegmentKind;
use futures::StreamExt;
use futures::stream;

use crate::support::{assert_no_leak, batches, fresh, note, numbered, open, row, rows, run};

async fn table(session: &mut Session) {
    run(session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
}

/// Loads batches with the ids from the first to before the second of each pair.
async fn load(session: &mut Session, ids: Vec<(i32, i32)>) -> Result<u64, Error> {
    let all = ids.into_iter().map(|(from, to)| numbered(from..to)).collect();
    session.load("t", batches(all), None).await
}

async fn assert_holds(session: &mut Session, ids: std::ops::Range<i32>) {
    let (count, sum): (i64, i64) =
        (ids.clone().map(|_| 1_i64).sum(), ids.clone().map(i64::from).sum());
    let found = row(session, "SELECT count(*), sum(id), count(DISTINCT note) FROM t").await;
    assert_eq!(found, format!("{count},{sum},{count}"));
    for id in [ids.start, ids.start + 777, ids.end - 1] {
        let found = row(session, &format!("SELECT note FROM t WHERE id = {id}")).await;
        assert_eq!(found, note(id));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_loaded_are_there_now_and_after_reopening() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session).await;
    let told = AtomicU64::new(0);
    let progress = |rows| told.store(rows, Ordering::Relaxed);
    let all = vec![numbered(0..30_000), numbered(30_000..100_000)];
    let count = session.load("t", batches(all), Some(&progress)).await.unwrap();
    assert_eq!(count, 100_000);
    assert_eq!(told.load(Ordering::Relaxed), 100_000);
    assert_holds(&mut session, 0..100_000).await;
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    assert_holds(&mut database.session(), 0..100_000).await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_reads_of_an_index_what_its_keys_lie_among() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session).await;
    let even = numbered((0..600_000).step_by(2));
    session.load("t", batches(vec![even]), None).await.unwrap();
    let index_bytes: usize = {
        let catalog = database.catalog();
        let tablet = &catalog.table("t").unwrap().tablets[0];
        let runs = tablet.segments().filter(|segment| segment.kind != SegmentKind::Heap);
        runs.flat_map(|run| run.extents()).map(|extent| extent.bytes()).sum()
    };
    database.buffer_pool().clear();
    let device = database.devices().remove(0);
    let before = device.traffic();
    let odd = numbered((1..2_000).step_by(2));
    session.load("t", batches(vec![odd]), None).await.unwrap();
    let read = device.traffic().since(before).received_bytes;
    assert!(read > 0 && read < index_bytes as u64 / 4, "{read} of {index_bytes} bytes");
    let error = load(&mut session, vec![(1_999, 2_001)]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "23505", "the greatest key is compared too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_in_any_order_make_one_run() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session).await;
    // Every second batch lies below the one before, and rows within a batch descend.
    let order = [3, 0, 2, 1];
    let all = order.map(|part| numbered((part * 5000..(part + 1) * 5000).rev())).to_vec();
    session.load("t", batches(all), None).await.unwrap();
    assert_holds(&mut session, 0..20_000).await;
    let catalog = database.catalog();
    let index = &catalog.table("t").unwrap().tablets[0].indexes[0];
    let counts: Vec<u64> = index.runs().map(|run| run.row_count()).collect();
    assert_eq!(counts, [20_000]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_comes_twice_undoes_the_load() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session).await;
    let before = database.devices()[0].space();
    for ids in [vec![(0, 5000), (4999, 6000)], vec![(5000, 6000), (0, 5001)]] {
        let error = load(&mut session, ids).await.unwrap_err();
        assert_eq!(error.sqlstate(), "23505");
        assert!(error.to_string().contains("\"t_pkey\": Key (id)=("), "{error}");
        assert!(error.to_string().contains("already exists"), "{error}");
    }
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "0");
    assert_eq!(database.devices()[0].space(), before, "space of failed loads is free again");
    load(&mut session, vec![(0, 6000)]).await.unwrap();
    assert_holds(&mut session, 0..6000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_earlier_loads_and_inserts_count() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session).await;
    load(&mut session, vec![(0, 3000)]).await.unwrap();
    run(&mut session, &format!("INSERT INTO t VALUES (3000, '{}')", note(3000))).await;
    for (ids, key) in [((2999, 3000), 2999), ((2000, 2500), 2000), ((3000, 3100), 3000)] {
        let error = load(&mut session, vec![ids]).await.unwrap_err();
        assert_eq!(error.sqlstate(), "23505");
        assert!(error.to_string().contains(&format!("(id)=({key})")), "{error}");
    }
    load(&mut session, vec![(3001, 5000)]).await.unwrap();
    assert_holds(&mut session, 0..5000).await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_whose_input_fails_leaves_nothing() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session).await;
    let before = database.devices()[0].space();
    let broken = Error::io("read", std::path::Path::new("x.csv"), std::io::Error::other("gone"));
    let input = stream::iter([Ok(numbered(0..100_000)), Err(broken)]).boxed();
    let error = session.load("t", input, None).await.unwrap_err();
    assert!(error.to_string().contains("x.csv"), "{error}");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "0");
    load(&mut session, vec![(0, 10)]).await.unwrap();
    flushed(&database).await;
    let after = database.devices()[0].space();
    assert!(after.used_blocks <= before.used_blocks + 64, "{after:?}");
    assert_no_leak(&database);
}

/// Waits until the writes of statements that ended early have ended too: each commit syncs the device, which answers in
/// order.
async fn flushed(database: &Database) {
    database.devices()[0].sync().await.unwrap();
    tokio::task::yield_now().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_is_dropped_leaves_nothing() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session).await;
    let endless = stream::iter((0..).map(|part| Ok(numbered(part * 10_000..(part + 1) * 10_000))));
    let seen = AtomicU64::new(0);
    let enough = tokio::sync::Notify::new();
    let progress = |rows| {
        seen.store(rows, Ordering::Relaxed);
        if rows > 300_000 {
            enough.notify_one();
        }
    };
    {
        let load = session.load("t", endless.boxed(), Some(&progress));
        tokio::select! {
            result = load => panic!("an endless load ended: {result:?}"),
            () = enough.notified() => {}
        }
    }
    assert!(seen.load(Ordering::Relaxed) > 300_000);
    // Its locks are free then, and the next load need not wait.
    session.fail_block();
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "0");
    load(&mut session, vec![(0, 20_000)]).await.unwrap();
    assert_holds(&mut session, 0..20_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_break_a_constraint_undo_the_load() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note varchar(10))").await;
    let error = load(&mut session, vec![(0, 10)]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "22001");
    let error = session.load("nothing", batches(Vec::new()), None).await.unwrap_err();
    assert_eq!(error.sqlstate(), "42P01");
    assert_eq!(rows(&mut session, "SELECT * FROM t").await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_load_changes_nothing() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session).await;
    let generation = database.catalog().generation;
    assert_eq!(load(&mut session, vec![(0, 0)]).await.unwrap(), 0);
    assert_eq!(database.catalog().generation, generation);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_appended_belong_to_the_block_or_commit_alone() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session).await;
    for (from, to) in [(0, 20_000), (20_000, 20_003)] {
        let appended = session.append("t", batches(vec![numbered(from..to)])).await.unwrap();
        assert_eq!(appended, u64::from((to - from).unsigned_abs()));
    }
    assert_holds(&mut session, 0..20_003).await;
    // Twice the same keys: nothing is added, and the block has failed.
    run(&mut session, "BEGIN").await;
    session.append("t", batches(vec![numbered(20_003..20_010)])).await.unwrap();
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "20010");
    let error = session.append("t", batches(vec![numbered(0..2)])).await.unwrap_err();
    assert_eq!(error.sqlstate(), "23505");
    let error = session.append("t", batches(vec![numbered(30_000..30_001)])).await.unwrap_err();
    assert_eq!(error.sqlstate(), "25P02");
    run(&mut session, "ROLLBACK").await;
    assert_holds(&mut session, 0..20_003).await;
}
