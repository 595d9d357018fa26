//! Waits of fragments for rows, in each attach mode: they end by timeouts and deadlocks, and once they can only fail.

use std::time::Duration;

use super::beside_writers::{SUM, table, two_sessions};
use super::{assert_no_leak_soon, fragments, refused, row, run};
use crate::index_filter::attached;
use crate::support::{beside, waits};

/// Statements that run as fragments and lock rows.
const LOCKING: [&str; 3] =
    ["UPDATE a SET n = n + 1", "DELETE FROM a", "SELECT id FROM a WHERE kind < 8 FOR UPDATE"];

/// Longer than any statement takes here.
const PATIENCE: Duration = Duration::from_secs(20);

fn clause(mode: &str) -> &'static str {
    if mode == "embedded" { "" } else { "WITH (device = other)" }
}

/// A fragment that waits for a row ends by each timeout and by a deadlock, wherever it runs; it leaves no lock and no
/// page behind.
async fn every_end_of_a_wait(mode: &str) {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached(mode, outside.path()).await;
    table(&mut database.session(), clause(mode)).await;
    let (mut one, mut two) = two_sessions(&database).await;
    let mut three = database.session();
    // A fragment that was given up keeps its rows until the device says that it has stopped.
    run(&mut three, "SET lock_timeout = 5000").await;
    let free = "SELECT n FROM a WHERE id = 3 FOR UPDATE";
    for sql in LOCKING {
        for (setting, code, said) in [
            ("lock_timeout", "55P03", "canceling statement due to lock timeout"),
            ("statement_timeout", "57014", "canceling statement due to statement timeout"),
        ] {
            let what = format!("{mode}, {sql}, {setting}");
            run(&mut one, "BEGIN; UPDATE a SET n = 7 WHERE id = 11").await;
            run(&mut two, &format!("SET {setting} = 200")).await;
            let error = refused(&mut two, sql).await;
            assert_eq!(error.sqlstate(), code, "{what}: {error}");
            assert!(error.to_string().starts_with(said), "{what}: {error}");
            run(&mut three, free).await;
            // A block keeps to its end what it has locked.
            run(&mut two, "BEGIN; SAVEPOINT s").await;
            assert_eq!(refused(&mut two, sql).await.sqlstate(), code, "{what}");
            run(&mut two, &format!("ROLLBACK TO s; RESET {setting}")).await;
            run(&mut two, "UPDATE a SET n = 0 WHERE id = 3; COMMIT").await;
            run(&mut three, free).await;
            run(&mut one, "ROLLBACK").await;
            // Nobody is in its way any more.
            run(&mut two, &format!("BEGIN; {sql}; ROLLBACK")).await;
        }
        run(&mut one, "BEGIN; UPDATE a SET n = 7 WHERE id = 11").await;
        run(&mut two, "BEGIN; UPDATE a SET n = 1 WHERE kind = 3").await;
        let mut task = beside(two, sql);
        assert!(waits(&mut task).await, "{mode}, {sql}");
        let failed = refused(&mut one, "UPDATE a SET n = 8 WHERE id = 13").await;
        assert_eq!(failed.sqlstate(), "40P01", "{mode}, {sql}");
        let (session, end) = task.await.unwrap();
        assert_eq!(end, "done", "{mode}, {sql}");
        run(&mut one, "ROLLBACK").await;
        two = session;
        run(&mut two, "ROLLBACK").await;
    }
    assert_eq!(row(&mut one, SUM).await, "20000,0", "{mode}");
    assert!(fragments(&database).await > 0, "{mode}");
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_row_ends_on_the_embedded_device() {
    Box::pin(every_end_of_a_wait("embedded")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_row_ends_on_a_local_device() {
    Box::pin(every_end_of_a_wait("local")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_row_ends_on_a_remote_device() {
    Box::pin(every_end_of_a_wait("remote")).await;
}

/// A transaction that keeps its snapshot does not wait for a row that others have changed since, whoever has it now.
async fn every_lost_wait(mode: &str) {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached(mode, outside.path()).await;
    table(&mut database.session(), clause(mode)).await;
    let (mut keeps, mut first) = two_sessions(&database).await;
    let mut next = database.session();
    run(&mut next, "SET update_placement = host").await;
    run(&mut first, "SET update_placement = host").await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for sql in ["UPDATE a SET n = 5 WHERE id = 11"].into_iter().chain(LOCKING) {
            let what = format!("{mode}, {level}, {sql}");
            // It waits behind one who goes on with the row.
            run(&mut keeps, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM a"))
                .await;
            run(&mut first, "BEGIN; UPDATE a SET n = n + 1 WHERE id = 11").await;
            let mut second = beside(next, "BEGIN; UPDATE a SET n = n + 1 WHERE id = 11");
            assert!(waits(&mut second).await, "{what}");
            let mut waiting = beside(keeps, sql);
            assert!(waits(&mut waiting).await, "{what}");
            run(&mut first, "COMMIT").await;
            let (session, end) = second.await.unwrap();
            assert_eq!(end, "done", "{what}");
            next = session;
            let ended = tokio::time::timeout(PATIENCE, waiting).await;
            let (session, end) = ended.unwrap_or_else(|_| panic!("{what}: it waits")).unwrap();
            assert_eq!(end, "40001", "{what}");
            keeps = session;
            // What its fragment had locked is free soon.
            run(&mut first, "SET lock_timeout = 5000; SELECT n FROM a WHERE id = 1 FOR UPDATE")
                .await;
            run(&mut keeps, "ROLLBACK").await;
            // One that comes later does not even begin to wait.
            run(&mut next, "ROLLBACK").await;
            run(&mut keeps, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM a"))
                .await;
            run(&mut first, "UPDATE a SET n = n - 1 WHERE id = 11").await;
            run(&mut next, "BEGIN; UPDATE a SET n = 9 WHERE id = 11").await;
            let ended = tokio::time::timeout(PATIENCE, keeps.run(sql)).await;
            let ended = ended.unwrap_or_else(|_| panic!("{what}: it waits"));
            assert_eq!(ended.unwrap_err().sqlstate(), "40001", "{what}");
            run(&mut keeps, "ROLLBACK").await;
            // What rolls back was no change.
            run(&mut keeps, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM a"))
                .await;
            let mut waiting = beside(keeps, sql);
            assert!(waits(&mut waiting).await, "{what}");
            run(&mut next, "ROLLBACK").await;
            let (session, end) = waiting.await.unwrap();
            assert_eq!(end, "done", "{what}");
            keeps = session;
            run(&mut keeps, "ROLLBACK; CHECKPOINT").await;
        }
    }
    assert_eq!(row(&mut keeps, SUM).await, "20000,0", "{mode}");
    assert!(fragments(&database).await > 0, "{mode}");
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_wait_ends_on_the_embedded_device() {
    every_lost_wait("embedded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_wait_ends_on_a_local_device() {
    every_lost_wait("local").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_wait_ends_on_a_remote_device() {
    every_lost_wait("remote").await;
}
