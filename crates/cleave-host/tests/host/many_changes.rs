//! Tests of changes that exceed the memory of queries: blocks write them to pages of their own before they commit, and
//! what has to stay in memory is refused. The memory of queries is 8 MiB here, so that a block keeps 1 MiB of changes.

use std::path::Path;
use std::sync::Arc;

use cleave_host::check::{CheckOptions, check};
use cleave_host::statement::parse_script;
use cleave_host::{Database, OpenOptions, Outcome, Session};

use crate::support::{assert_no_leak_soon, embedded, refused, row, rows, run};

const MEMORY: u64 = 8 << 20;
/// The bytes that a block keeps in memory.
const KEPT: usize = 1 << 20;

async fn open(directory: &Path) -> Arc<Database> {
    let options = OpenOptions::new(embedded()).create(true).query_memory_bytes(MEMORY);
    Database::open(directory, options).await.unwrap()
}

async fn fresh() -> (tempfile::TempDir, Arc<Database>, Session) {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, n int, note text)").await;
    run(&mut session, "CREATE INDEX t_n ON t (n)").await;
    (directory, database, session)
}

/// Rows of 400 bytes each, with the keys `from` to `to`.
fn rows_of(from: u32, to: u32) -> String {
    format!(
        "INSERT INTO t SELECT v, v % 1000, lpad(v::text, 400, 'x') FROM generate_series({from}, {to}) AS s(v)"
    )
}

fn reserved(database: &Database) -> usize {
    database.query_runtime().memory_pool.reserved()
}

const SUMS: &str = "SELECT count(*), sum(id), sum(n), min(length(note)) FROM t";

async fn everything_holds(database: &Arc<Database>) {
    assert_eq!(reserved(database), 0);
    assert_no_leak_soon(database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_changes_more_than_fits_into_memory() {
    let (directory, database, mut one) = fresh().await;
    let mut two = database.session();
    run(&mut one, "BEGIN").await;
    for part in 0..3 {
        run(&mut one, &rows_of(part * 20_000 + 1, (part + 1) * 20_000)).await;
        assert!(reserved(&database) <= KEPT, "{}", reserved(&database));
    }
    run(&mut one, "UPDATE t SET n = n + 1").await;
    run(&mut one, "DELETE FROM t WHERE id % 3 = 0").await;
    run(&mut one, "UPDATE t SET note = 'one' WHERE id = 59999; DELETE FROM t WHERE id = 1").await;
    run(&mut one, "INSERT INTO t VALUES (3, 3, 'three') ON CONFLICT (id) DO NOTHING").await;
    let changed = row(&mut one, SUMS).await;
    assert_eq!(changed, "40000,1200000002,20020001,3");
    assert_eq!(row(&mut one, "SELECT count(*) FROM t WHERE n = 7").await, "40");
    assert!(reserved(&database) <= KEPT, "{}", reserved(&database));
    // Readers do not wait; writers do.
    assert_eq!(row(&mut two, "SELECT count(*) FROM t").await, "0");
    run(&mut two, "SET lock_timeout = '50ms'").await;
    assert_eq!(refused(&mut two, "INSERT INTO t VALUES (-1, 1, '')").await.sqlstate(), "55P03");
    run(&mut one, "COMMIT").await;
    run(&mut two, "INSERT INTO t VALUES (-1, 0, '---')").await;
    let after = row(&mut two, SUMS).await;
    assert_eq!(after, "40001,1200000001,20020001,3");
    everything_holds(&database).await;
    drop((one, two, database));
    let options = OpenOptions::new(embedded());
    let report = check(directory.path(), options, &CheckOptions::default()).await.unwrap();
    assert!(report.findings.kept().is_empty(), "{:#?}", report.findings);
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), SUMS).await, after);
    everything_holds(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_many_small_statements_are_written_too() {
    let (_directory, database, mut one) = fresh().await;
    let mut two = database.session();
    run(&mut two, "SET lock_timeout = '50ms'").await;
    run(&mut one, "BEGIN; INSERT INTO t VALUES (0, 0, 'first')").await;
    run(&mut two, "INSERT INTO t VALUES (-1, 1, '')").await;
    let mut was_kept = 0;
    for part in 0..80 {
        run(&mut one, &rows_of(part * 100 + 1, (part + 1) * 100)).await;
        was_kept = was_kept.max(reserved(&database));
        run(&mut one, &format!("UPDATE t SET n = -5 WHERE id = {}", part * 100 + 50)).await;
    }
    assert!((KEPT / 2..2 * KEPT).contains(&was_kept), "{was_kept}");
    assert_eq!(refused(&mut two, "INSERT INTO t VALUES (-2, 1, '')").await.sqlstate(), "55P03");
    assert_eq!(refused(&mut one, &rows_of(7_900, 8_100)).await.sqlstate(), "23505");
    run(&mut one, "ROLLBACK").await;
    assert_eq!(row(&mut one, "SELECT count(*), sum(id) FROM t").await, "1,-1");
    everything_holds(&database).await;
    run(&mut one, "BEGIN").await;
    for part in 0..40 {
        run(&mut one, &rows_of(part * 100 + 1, (part + 1) * 100)).await;
    }
    assert_eq!(rows(&mut one, "DELETE FROM t WHERE id = 3950 RETURNING n").await, ["950"]);
    assert_eq!(rows(&mut one, "SELECT id FROM t WHERE n = 949 FOR UPDATE").await.len(), 4);
    run(&mut one, "COMMIT").await;
    assert_eq!(row(&mut two, "SELECT count(*), sum(id) FROM t").await, "4000,7998049");
    everything_holds(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn savepoints_and_rollback_give_the_pages_back() {
    let (_directory, database, mut session) = fresh().await;
    run(&mut session, "BEGIN; INSERT INTO t VALUES (0, 0, 'first')").await;
    let first = row(&mut session, SUMS).await;
    run(&mut session, "SAVEPOINT a").await;
    run(&mut session, &rows_of(1, 20_000)).await;
    let second = row(&mut session, SUMS).await;
    run(&mut session, "SAVEPOINT b; UPDATE t SET n = 1, note = note || 'y'").await;
    assert_ne!(row(&mut session, SUMS).await, second);
    assert_eq!(refused(&mut session, "UPDATE t SET id = 1").await.sqlstate(), "23505");
    run(&mut session, "ROLLBACK TO b").await;
    assert_eq!(row(&mut session, SUMS).await, second);
    run(&mut session, "UPDATE t SET id = id + 1; ROLLBACK TO a").await;
    assert_eq!(row(&mut session, SUMS).await, first);
    run(&mut session, "COMMIT").await;
    assert_eq!(row(&mut session, SUMS).await, first);
    everything_holds(&database).await;
    run(&mut session, "BEGIN").await;
    run(&mut session, &rows_of(1, 20_000)).await;
    run(&mut session, "UPDATE t SET n = 1; ROLLBACK").await;
    assert_eq!(row(&mut session, SUMS).await, first);
    everything_holds(&database).await;
    // A session that is lost.
    run(&mut session, "BEGIN").await;
    run(&mut session, &rows_of(1, 20_000)).await;
    drop(session);
    everything_holds(&database).await;
    assert_eq!(row(&mut database.session(), SUMS).await, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_outside_of_a_block_are_bounded_too() {
    let (_directory, database, mut session) = fresh().await;
    run(&mut session, &rows_of(1, 40_000)).await;
    run(&mut session, "UPDATE t SET id = id + 1").await;
    assert_eq!(row(&mut session, SUMS).await, "40000,800060000,19980000,400");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t WHERE id = 40001").await, "1");
    let before = row(&mut session, SUMS).await;
    for (statement, code) in [
        ("UPDATE t SET id = id / 2", "23505"),
        ("UPDATE t SET n = 1 / (40001 - id)", "22012"),
        ("UPDATE t SET id = NULL WHERE id > 2", "23502"),
        ("UPDATE t SET n = 1 RETURNING note", "53200"),
        ("DELETE FROM t RETURNING note", "53200"),
        ("INSERT INTO t SELECT id, n, note FROM t ON CONFLICT DO NOTHING", "53200"),
        ("INSERT INTO t SELECT -id, n, note FROM t RETURNING note", "53200"),
    ] {
        let error = refused(&mut session, statement).await;
        assert_eq!(error.sqlstate(), code, "{statement}: {error}");
        if code == "53200" {
            assert!(error.to_string().contains("--query-memory"), "{error}");
        }
        assert_eq!(row(&mut session, SUMS).await, before, "{statement}");
        everything_holds(&database).await;
    }
    run(&mut session, "DELETE FROM t WHERE id > 10").await;
    assert_eq!(row(&mut session, "SELECT count(*), sum(id) FROM t").await, "9,54");
    everything_holds(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_with_one_snapshot_keeps_to_it() {
    let (_directory, database, mut one) = fresh().await;
    let mut two = database.session();
    run(&mut two, &rows_of(1, 20_000)).await;
    let before = row(&mut two, SUMS).await;
    run(&mut one, "SET update_placement = host").await;
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await;
    run(&mut two, "INSERT INTO t VALUES (0, 0, 'of another')").await;
    // The table in pages would have the other row: few changes stay in memory, and many are refused.
    run(&mut one, "UPDATE t SET n = 1 WHERE id <= 4000").await;
    assert_eq!(row(&mut one, "SELECT count(*), min(id) FROM t").await, "20000,1");
    assert_eq!(refused(&mut one, "UPDATE t SET note = note || 'y'").await.sqlstate(), "53200");
    run(&mut one, "ROLLBACK; RESET update_placement").await;
    run(&mut two, "DELETE FROM t WHERE id = 0").await;
    assert_eq!(row(&mut one, SUMS).await, before);
    // Where nobody else has changed it, they are not.
    run(&mut one, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM t").await;
    run(&mut one, "UPDATE t SET n = n + 1").await;
    run(&mut one, &rows_of(20_001, 40_000)).await;
    assert_eq!(row(&mut one, "SELECT count(*), sum(n) FROM t").await, "40000,20000000");
    run(&mut one, "COMMIT").await;
    assert_eq!(row(&mut two, "SELECT count(*), sum(n) FROM t").await, "40000,20000000");
    // The first who changes a row wins.
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await;
    run(&mut two, "UPDATE t SET n = 0 WHERE id = 7").await;
    let late = refused(&mut one, "UPDATE t SET n = n + 1 WHERE id < 1000").await;
    assert_eq!(late.sqlstate(), "40001");
    run(&mut one, "ROLLBACK").await;
    everything_holds(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_keys_of_many_rows_are_asked() {
    let (_directory, database, mut session) = fresh().await;
    run(&mut session, "CREATE TABLE child (id int PRIMARY KEY, t int REFERENCES t, note text)")
        .await;
    run(&mut session, &rows_of(1, 10_000)).await;
    let children = |to: u32| {
        format!(
            "INSERT INTO child SELECT v, (v + 1) / 2, lpad('', 400, 'z') FROM generate_series(1, {to}) AS s(v)"
        )
    };
    run(&mut session, "BEGIN").await;
    assert_eq!(refused(&mut session, &children(20_001)).await.sqlstate(), "23503");
    run(&mut session, "ROLLBACK; BEGIN").await;
    run(&mut session, &children(20_000)).await;
    run(&mut session, "UPDATE child SET note = note || 'y'").await;
    run(&mut session, "SAVEPOINT a").await;
    assert_eq!(refused(&mut session, "DELETE FROM t WHERE id = 5").await.sqlstate(), "23503");
    run(&mut session, "ROLLBACK TO a; COMMIT").await;
    let sums = "SELECT count(*), sum(t), min(length(note)) FROM child";
    assert_eq!(row(&mut session, sums).await, "20000,100010000,401");
    everything_holds(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_reads_no_column_that_it_does_not_need() {
    let (_directory, database, mut session) = fresh().await;
    run(&mut session, &rows_of(1, 60_000)).await;
    // Rows of 24 MB, of which 3.2 MB would be gathered for their keys: more than there is.
    run(&mut session, "BEGIN; DELETE FROM t WHERE id <= 8000 AND length(note) > 1").await;
    assert!(reserved(&database) <= KEPT, "{}", reserved(&database));
    run(&mut session, "ROLLBACK; DELETE FROM t WHERE id > 1000").await;
    assert_eq!(row(&mut session, SUMS).await, "1000,500500,499500,400");
    let explained = rows(&mut session, "EXPLAIN DELETE FROM t WHERE n = 5").await;
    assert!(!format!("{explained:?}").contains("note"), "{explained:?}");
    everything_holds(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_have_few_rows_where_memory_is_scarce() {
    let (_directory, database, mut session) = fresh().await;
    run(&mut session, &rows_of(1, 5000)).await;
    for split in ["host", "h0"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let mut outcomes = session.run("SELECT id, note FROM t").await.unwrap();
        let Outcome::Rows { batches, .. } = outcomes.remove(0) else { panic!("no rows") };
        let counts: Vec<usize> = batches.iter().map(|batch| batch.num_rows()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 5000, "{split}");
        assert!(counts.iter().all(|count| *count <= 256), "{split}: {counts:?}");
    }
    drop(session);
    everything_holds(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_asked_at_the_end_are_charged() {
    let (_directory, database, mut session) = fresh().await;
    run(
        &mut session,
        "CREATE TABLE c (id int PRIMARY KEY REFERENCES t DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    run(&mut session, "BEGIN").await;
    let mut error = None;
    for part in 0..40 {
        let (from, to) = (part * 5000 + 1, (part + 1) * 5000);
        let insert = format!("INSERT INTO c SELECT v FROM generate_series({from}, {to}) AS s(v)");
        run(&mut session, "SAVEPOINT s").await;
        if let Err(refused) = session.run(&insert).await {
            error = Some(refused);
            break;
        }
    }
    let error = error.expect("200,000 keys and savepoints with them are more than 8 MiB");
    assert_eq!(error.sqlstate(), "53200", "{error}");
    run(&mut session, "ROLLBACK").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM c").await, "0");
    drop(session);
    everything_holds(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returned_rows_are_charged_until_they_are_taken() {
    let (_directory, database, mut session) = fresh().await;
    run(&mut session, &rows_of(1, 2000)).await;
    let update = "UPDATE t SET n = 1 RETURNING note";
    let parsed = parse_script(update).unwrap().remove(0);
    let started = session.start(parsed).await.unwrap();
    assert!(reserved(&database) >= 2000 * 400, "{} are charged", reserved(&database));
    drop(started);
    drop(session);
    everything_holds(&database).await;
}
