//! Tests of loads beside writers: while rows of a load are on their way, all else goes on, also in its table, and what
//! is there in the end is what the same statements leave one after the other.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_host::{Database, Error, Session};
use datafusion::common::runtime::SpawnedTask;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};

use crate::support::{
    assert_no_leak_soon, beside, checks_out, fresh, numbered, open, refused, row, rows, run, waits,
};

/// A load whose rows come as they are sent.
struct Load {
    rows: UnboundedSender<Result<RecordBatch, Error>>,
    task: SpawnedTask<Result<u64, Error>>,
}

impl Load {
    /// Begins to load into `table`; it has taken its locks and some rows.
    async fn begin(mut session: Session, table: &'static str, ids: std::ops::Range<i32>) -> Self {
        let (rows, received) = unbounded();
        let (told, taken) = tokio::sync::oneshot::channel();
        let told = std::sync::Mutex::new(Some(told));
        let task = SpawnedTask::spawn(async move {
            let progress = |_| {
                if let Some(told) = told.lock().unwrap().take() {
                    told.send(()).unwrap();
                }
            };
            session.load(table, received.boxed(), Some(&progress)).await
        });
        let load = Self { rows, task };
        load.send(ids);
        taken.await.unwrap();
        load
    }

    fn send(&self, ids: std::ops::Range<i32>) {
        self.rows.unbounded_send(Ok(numbered(ids))).unwrap();
    }

    async fn end(self) -> Result<u64, Error> {
        drop(self.rows);
        self.task.join().await.unwrap()
    }
}

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, note text)";

/// The database of a table with the rows 0 to 999.
async fn filled() -> (tempfile::TempDir, Arc<Database>, Session) {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, TABLE).await;
    run(&mut session, "INSERT INTO t SELECT v, 'old' FROM generate_series(0, 999) AS s(v)").await;
    (directory, database, session)
}

async fn reopened(directory: &Path, expected: &str, query: &str) {
    let database = open(directory).await;
    assert_eq!(row(&mut database.session(), query).await, expected);
    assert_no_leak_soon(&database).await;
    drop(database);
    checks_out(directory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_go_on_while_rows_are_loaded() {
    let (directory, database, mut other) = filled().await;
    let load = Load::begin(database.session(), "t", 10_000..30_000).await;
    run(&mut other, "SET statement_timeout = '20s'; CREATE TABLE u (id int)").await;
    run(&mut other, "INSERT INTO u VALUES (1); INSERT INTO t VALUES (5000, 'new')").await;
    run(&mut other, "UPDATE t SET note = 'changed' WHERE id % 10 = 3").await;
    run(
        &mut other,
        "BEGIN; DELETE FROM t WHERE id < 100; UPDATE t SET id = -7 WHERE id = 700; COMMIT",
    )
    .await;
    run(&mut other, "VACUUM t").await;
    assert_eq!(row(&mut other, "SELECT count(*), min(id), max(id) FROM t").await, "901,-7,5000");
    load.send(30_000..60_000);
    run(&mut other, "INSERT INTO t SELECT v, 'many' FROM generate_series(6000, 6999) AS s(v)")
        .await;
    assert_eq!(load.end().await.unwrap(), 50_000);
    let all = "SELECT count(*), sum(id), count(*) FILTER (WHERE note = 'changed') FROM t";
    let sum = (100..1000).sum::<i64>() - 700 - 7
        + 5000
        + (6000..7000).sum::<i64>()
        + (10_000..60_000).sum::<i64>();
    let expected = format!("51901,{sum},90");
    assert_eq!(row(&mut other, all).await, expected);
    // Rows of all of them are found by their keys, changed, and deleted.
    for id in [-7, 150, 5000, 6500, 10_000, 59_999] {
        assert_eq!(
            row(&mut other, &format!("SELECT id FROM t WHERE id = {id}")).await,
            id.to_string()
        );
    }
    assert_eq!(refused(&mut other, "INSERT INTO t VALUES (20000, '')").await.sqlstate(), "23505");
    run(&mut other, "INSERT INTO t VALUES (70000, 'after'); DELETE FROM t WHERE id = 70000").await;
    run(&mut other, "UPDATE t SET note = note WHERE id IN (6500, 20000, 150)").await;
    assert_eq!(row(&mut other, all).await, expected);
    drop((other, database));
    reopened(directory.path(), &expected, all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_came_meanwhile_are_refused() {
    let (directory, database, mut other) = filled().await;
    let load = Load::begin(database.session(), "t", 10_000..30_000).await;
    run(&mut other, "INSERT INTO t VALUES (12345, 'mine')").await;
    // A key that came and went is free.
    run(&mut other, "INSERT INTO t VALUES (12346, 'gone'); DELETE FROM t WHERE id = 12346").await;
    let error = load.end().await.unwrap_err();
    assert_eq!(error.sqlstate(), "23505", "{error}");
    run(&mut other, "DELETE FROM t WHERE id = 12345").await;
    assert_eq!(row(&mut other, "SELECT count(*) FROM t").await, "1000");
    assert_no_leak_soon(&database).await;
    let load = Load::begin(database.session(), "t", 10_000..30_000).await;
    run(&mut other, "INSERT INTO t VALUES (12345, 'gone'); DELETE FROM t WHERE id = 12345").await;
    let mut open_block = database.session();
    run(&mut open_block, "BEGIN; INSERT INTO t VALUES (15000, 'waiting')").await;
    assert_eq!(load.end().await.unwrap(), 20_000);
    let error = refused(&mut open_block, "COMMIT").await;
    assert_eq!(error.sqlstate(), "23505", "{error}");
    let found =
        rows(&mut other, "SELECT id, note LIKE 'note%' FROM t WHERE id IN (12345, 12346)").await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(row(&mut other, "SELECT id FROM t WHERE id = 12345").await, "12345");
    // Merges of runs keep the entries of rows that live.
    for round in 0..3 {
        let from = 100_000 + round * 10_000;
        let query = format!(
            "INSERT INTO t SELECT v, 'more' FROM generate_series({from}, {}) AS s(v)",
            from + 9_999
        );
        run(&mut other, &query).await;
    }
    run(&mut other, "VACUUM t").await;
    assert_eq!(row(&mut other, "SELECT id FROM t WHERE id = 12345").await, "12345");
    drop((other, open_block, database));
    reopened(directory.path(), "51000,51000", "SELECT count(*), count(DISTINCT id) FROM t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_of_one_table_and_definitions_of_it_wait() {
    let (directory, database, mut other) = filled().await;
    run(&mut other, "CREATE TABLE u (id int, note text)").await;
    let load = Load::begin(database.session(), "t", 10_000..30_000).await;
    // Another table is loaded at the same time.
    let second = Load::begin(database.session(), "u", 0..20_000).await;
    assert_eq!(second.end().await.unwrap(), 20_000);
    run(&mut other, "SET lock_timeout = '50ms'").await;
    let many = "INSERT INTO t SELECT v, '' FROM generate_series(100000, 120000) AS s(v)";
    for statement in [many, "CREATE INDEX ON t (note)", "TRUNCATE t", "ALTER TABLE t ADD x int"] {
        let error = refused(&mut other, statement).await;
        assert_eq!(error.sqlstate(), "55P03", "{statement}: {error}");
    }
    run(&mut other, "RESET lock_timeout").await;
    let mut waiting = beside(other, many);
    assert!(waits(&mut waiting).await);
    assert_eq!(load.end().await.unwrap(), 20_000);
    let (mut other, _) = waiting.join().await.unwrap();
    assert_eq!(row(&mut other, "SELECT count(*) FROM t").await, "41001");
    drop((other, database));
    reopened(directory.path(), "41001,120000", "SELECT count(*), max(id) FROM t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_fails_leaves_what_others_have_written() {
    let (directory, database, mut other) = filled().await;
    let load = Load::begin(database.session(), "t", 10_000..30_000).await;
    run(&mut other, "INSERT INTO t VALUES (5000, 'new')").await;
    let wrong = Error::unsupported("the rest");
    load.rows.unbounded_send(Err(wrong)).unwrap();
    assert_eq!(load.end().await.unwrap_err().sqlstate(), "0A000");
    assert_no_leak_soon(&database).await;
    let load = Load::begin(database.session(), "t", 10_000..30_000).await;
    drop(load.task);
    assert_eq!(row(&mut other, "SELECT count(*), max(id) FROM t").await, "1001,5000");
    assert_no_leak_soon(&database).await;
    // Killed in the middle.
    let _load = Load::begin(database.session(), "t", 10_000..30_000).await;
    run(&mut other, "INSERT INTO t VALUES (5001, 'newer')").await;
    drop((_load, other, database));
    reopened(directory.path(), "1002,5001", "SELECT count(*), max(id) FROM t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_is_used_again_while_a_client_sends_no_rows() {
    let (_directory, database, mut other) = filled().await;
    let all = "INSERT INTO u SELECT v, repeat('x', 500) FROM generate_series(1, 9000) AS s(v)";
    run(&mut other, "CREATE TABLE u (id int, note text)").await;
    let load = Load::begin(database.session(), "t", 10_000..30_000).await;
    let device = database.devices().remove(0);
    let mut used = Vec::new();
    for _ in 0..6 {
        run(&mut other, all).await;
        run(&mut other, "CHECKPOINT; TRUNCATE u; CHECKPOINT").await;
        used.push(device.space().used_blocks);
    }
    assert!(used[5] < used[1] + 500, "{used:?}");
    assert_eq!(load.end().await.unwrap(), 20_000);
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_load_are_counted_and_vacuumed() {
    let (directory, database, mut other) = filled().await;
    for from in [10_000, 30_000, 50_000] {
        let load = Load::begin(database.session(), "t", from..from + 20_000).await;
        run(&mut other, &format!("INSERT INTO t VALUES ({}, 'between')", -from / 10_000)).await;
        assert_eq!(load.end().await.unwrap(), 20_000);
    }
    // Numbers that nobody got are no changed rows.
    let changed = database.catalog().table("t").unwrap().change_count();
    assert_eq!(changed, 61_003);
    run(&mut other, "DELETE FROM t WHERE id % 3 <> 0; VACUUM t").await;
    let load = Load::begin(database.session(), "t", 100_000..120_000).await;
    run(&mut other, "VACUUM t; UPDATE t SET note = 'x' WHERE id % 300 = 0").await;
    assert_eq!(load.end().await.unwrap(), 20_000);
    let all = "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE note = 'x') FROM t";
    let found = row(&mut other, all).await;
    assert_eq!(found, "40335,40335,204");
    run(&mut other, "ANALYZE t; CREATE INDEX ON t (note)").await;
    assert_eq!(row(&mut other, "SELECT count(*) FROM t WHERE note = 'x'").await, "204");
    drop((other, database));
    reopened(directory.path(), &found, all).await;
}
