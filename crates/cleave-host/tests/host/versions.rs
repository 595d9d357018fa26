//! Tests of `as_of`: older snapshots, as far as they are kept.

use std::sync::Arc;
use std::time::Duration;

use cleave_host::Session;

use crate::durability::Slot;
use crate::full_media::{BLOCK_COUNT, Bounded};
use crate::support::{assert_no_leak, batches, fresh, numbered, open, refused, row, rows, run};

/// Twice a tick of the retention of the tests, 100 seconds.
const TICKS: Duration = Duration::from_millis(250);

/// A time after everything done so far, and before everything later.
async fn moment(session: &mut Session) -> String {
    tokio::time::sleep(TICKS).await;
    row(session, "SELECT now()").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_read_the_database_as_of_a_time() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "CREATE INDEX t_note ON t (note)").await;
    let set = "SET as_of = '2020-01-01'";
    run(&mut session, set).await;
    let error = refused(&mut session, "SELECT * FROM t").await;
    assert!(error.to_string().contains("version_retention is 0"), "{error}");
    assert_eq!(error.sqlstate(), "22023");
    assert_eq!(refused(&mut session, "SET as_of = 'yesterday'").await.sqlstate(), "22023");
    let error = refused(&mut session, "RESET as_of; ALTER SYSTEM SET version_retention = -1").await;
    assert_eq!(error.sqlstate(), "22023");
    run(&mut session, "ALTER SYSTEM SET version_retention = 100").await;
    assert_eq!(row(&mut session, "SHOW version_retention").await, "100");

    session.load("t", batches(vec![numbered(0..3000)]), None).await.unwrap();
    let loaded = moment(&mut session).await;
    run(
        &mut session,
        "UPDATE t SET note = 'changed' WHERE id < 10; INSERT INTO t VALUES (-1, 'x')",
    )
    .await;
    let changed = moment(&mut session).await;
    run(&mut session, "DELETE FROM t WHERE id >= 100; CHECKPOINT").await;
    let deleted = moment(&mut session).await;
    run(&mut session, "DROP TABLE t").await;
    run(&mut session, "CREATE TABLE u (id int PRIMARY KEY, note text)").await;
    session.load("u", batches(vec![numbered(0..3000)]), None).await.unwrap();

    for split in ["host", "ndp"] {
        run(&mut session, &format!("SET split = {split}")).await;
        for (at, count, changes) in [(&loaded, 3000, 0), (&changed, 3001, 10), (&deleted, 101, 10)]
        {
            run(&mut session, &format!("SET as_of = '{at}'")).await;
            let counts = "SELECT count(*), count(*) FILTER (WHERE note = 'changed') FROM t";
            assert_eq!(row(&mut session, counts).await, format!("{count},{changes}"), "{at}");
            let by_index = rows(&mut session, "SELECT id FROM t WHERE note = 'changed'").await;
            assert_eq!(by_index.len(), changes);
            let by_key = rows(&mut session, "SELECT note FROM t WHERE id = -1").await;
            assert_eq!(by_key.len(), usize::from(at != &loaded));
            assert_eq!(refused(&mut session, "SELECT * FROM u").await.sqlstate(), "42P01");
        }
        run(&mut session, "RESET as_of; RESET split").await;
    }
    assert_eq!(refused(&mut session, "SELECT * FROM t").await.sqlstate(), "42P01");
    // A transaction may read the past, and not change it.
    run(&mut session, &format!("SET as_of = '{changed}'; BEGIN")).await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "3001");
    for statement in ["DELETE FROM t", "INSERT INTO u VALUES (1, '')", "DROP TABLE u"] {
        let error = refused(&mut session, statement).await;
        assert!(["25006", "25001"].contains(&error.sqlstate()), "{statement}: {error}");
        run(&mut session, "ROLLBACK; BEGIN").await;
    }
    run(&mut session, "ROLLBACK; RESET as_of; BEGIN; DELETE FROM u WHERE id = 1").await;
    let error = refused(&mut session, &format!("SET as_of = '{deleted}'; SELECT 1 FROM t")).await;
    assert_eq!(error.sqlstate(), "25001");
    run(&mut session, "ROLLBACK; RESET as_of").await;

    run(&mut session, "SET as_of = '2100-01-01'").await;
    assert!(refused(&mut session, "SELECT * FROM u").await.to_string().contains("yet to come"));
    run(&mut session, "SET as_of = '2020-01-01'").await;
    assert!(refused(&mut session, "SELECT * FROM u").await.to_string().contains("begins at"));
    run(&mut session, "RESET as_of; ALTER SYSTEM RESET version_retention").await;
    run(&mut session, &format!("SET as_of = '{deleted}'")).await;
    refused(&mut session, "SELECT * FROM t").await;
    run(&mut session, "RESET as_of; ALTER SYSTEM SET version_retention = 100").await;
    assert_no_leak(&database);
    drop((session, database));
    // Versions before it was opened are not kept.
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, &format!("SET as_of = '{deleted}'")).await;
    assert!(refused(&mut session, "SELECT * FROM u").await.to_string().contains("begins at"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_gives_way_where_a_device_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let slot = Slot::new(Arc::new(Bounded::new(BLOCK_COUNT)));
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET version_retention = 100").await;
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "CREATE TABLE u (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    let then = moment(&mut session).await;
    run(&mut session, "DROP TABLE t").await;
    run(&mut session, &format!("SET as_of = '{then}'")).await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "20000");
    run(&mut session, "RESET as_of").await;
    let mut end = 0;
    let error = loop {
        let loaded = session.load("u", batches(vec![numbered(end..end + 50_000)]), None).await;
        match loaded {
            Ok(_) => end += 50_000,
            Err(error) => break error,
        }
        assert!(end < 2_000_000, "it grows");
    };
    assert_eq!(error.sqlstate(), "53100", "{error}");
    // A statement that finds it full drops old versions.
    run(&mut session, &format!("SET as_of = '{then}'")).await;
    let error = refused(&mut session, "SELECT * FROM t").await;
    assert!(error.to_string().contains("begins at"), "{error}");
    run(&mut session, "RESET as_of").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM u").await, end.to_string());
    assert_no_leak(&database);
}
