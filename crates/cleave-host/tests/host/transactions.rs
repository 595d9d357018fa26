//! Tests of transactions of several sessions: visibility, waits and failures.

use std::sync::Arc;

use cleave_host::check::{CheckOptions, check};
use cleave_host::{Client, Database, OpenOptions, Session, TransactionStatus};
use datafusion::common::runtime::SpawnedTask;

use crate::support::{
    assert_no_leak, beside, embedded, fresh, open, refused, row, rows, run, waits,
};

async fn accounts() -> (tempfile::TempDir, Arc<Database>, Session, Session) {
    let (directory, database) = fresh().await;
    let mut one = database.session();
    run(&mut one, "CREATE TABLE account (id int PRIMARY KEY, balance int)").await;
    run(&mut one, "INSERT INTO account VALUES (1, 100), (2, 200)").await;
    let two = database.session();
    (directory, database, one, two)
}

const BALANCES: &str = "SELECT id, balance FROM account ORDER BY id";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_block_is_seen_before_it_commits() {
    let (directory, database, mut one, mut two) = accounts().await;
    run(&mut one, "BEGIN; UPDATE account SET balance = 0; INSERT INTO account VALUES (3, 3)").await;
    assert_eq!(one.transaction_status(), TransactionStatus::Open);
    assert_eq!(rows(&mut two, BALANCES).await, ["1,100", "2,200"]);
    assert_eq!(rows(&mut one, BALANCES).await, ["1,0", "2,0", "3,3"]);
    run(&mut one, "COMMIT").await;
    assert_eq!(one.transaction_status(), TransactionStatus::Idle);
    assert_eq!(rows(&mut two, BALANCES).await, ["1,0", "2,0", "3,3"]);
    drop((one, two, database));
    let database = open(directory.path()).await;
    assert_eq!(rows(&mut database.session(), BALANCES).await, ["1,0", "2,0", "3,3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_is_given_up_leaves_no_page_and_no_lock() {
    let (_directory, database, mut one, mut two) = accounts().await;
    run(&mut one, "BEGIN; INSERT INTO account SELECT i, i FROM generate_series(10, 999) AS g (i)")
        .await;
    run(&mut one, "UPDATE account SET balance = balance + 1").await;
    assert_eq!(row(&mut one, "SELECT count(*) FROM account").await, "992");
    drop(one);
    run(&mut two, "UPDATE account SET balance = balance + 1 WHERE id = 1").await;
    assert_eq!(rows(&mut two, BALANCES).await, ["1,101", "2,200"]);
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_committed_waits_and_goes_on_with_the_newest_row() {
    let (_directory, _database, mut one, two) = accounts().await;
    run(&mut one, "BEGIN; UPDATE account SET balance = balance + 10 WHERE id = 1").await;
    let mut task = beside(two, "UPDATE account SET balance = balance + 1 WHERE id = 1");
    assert!(waits(&mut task).await);
    run(&mut one, "COMMIT").await;
    let (mut two, outcome) = task.await.unwrap();
    assert_eq!(outcome, "done");
    assert_eq!(rows(&mut two, BALANCES).await, ["1,111", "2,200"]);
    // A row that no longer satisfies the condition is left alone.
    run(&mut one, "BEGIN; UPDATE account SET balance = -1 WHERE id = 1").await;
    let mut task = beside(two, "DELETE FROM account WHERE balance > 0 AND id = 1");
    assert!(waits(&mut task).await);
    run(&mut one, "COMMIT").await;
    let (mut two, outcome) = task.await.unwrap();
    assert_eq!(outcome, "done");
    assert_eq!(rows(&mut two, BALANCES).await, ["1,-1", "2,200"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatable_read_keeps_its_snapshot_and_the_first_who_updates_wins() {
    let (_directory, _database, mut one, mut two) = accounts().await;
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(row(&mut one, "SELECT sum(balance) FROM account").await, "300");
    run(&mut two, "UPDATE account SET balance = 0 WHERE id = 1; DELETE FROM account WHERE id = 2")
        .await;
    assert_eq!(rows(&mut one, BALANCES).await, ["1,100", "2,200"]);
    assert_eq!(row(&mut one, "SELECT balance FROM account WHERE id = 1").await, "100");
    let error = refused(&mut one, "UPDATE account SET balance = balance + 1 WHERE id = 1").await;
    assert_eq!(error.sqlstate(), "40001");
    assert_eq!(one.transaction_status(), TransactionStatus::Failed);
    assert_eq!(refused(&mut one, "SELECT 1").await.sqlstate(), "25P02");
    run(&mut one, "ROLLBACK").await;
    assert_eq!(rows(&mut one, BALANCES).await, ["1,0"]);
    // The same while the other one is still running.
    run(&mut one, "BEGIN; UPDATE account SET balance = 5").await;
    run(&mut two, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM account").await;
    let mut task = beside(two, "UPDATE account SET balance = balance + 1");
    assert!(waits(&mut task).await);
    run(&mut one, "COMMIT").await;
    assert_eq!(task.await.unwrap().1, "40001");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_others_are_waited_for() {
    let (_directory, _database, mut one, two) = accounts().await;
    run(&mut one, "BEGIN; INSERT INTO account VALUES (7, 1)").await;
    let mut task = beside(two, "INSERT INTO account VALUES (7, 2)");
    assert!(waits(&mut task).await);
    run(&mut one, "COMMIT").await;
    let (two, outcome) = task.await.unwrap();
    assert_eq!(outcome, "23505");
    run(&mut one, "BEGIN; INSERT INTO account VALUES (8, 1)").await;
    let mut task = beside(two, "INSERT INTO account VALUES (8, 2)");
    assert!(waits(&mut task).await);
    run(&mut one, "ROLLBACK").await;
    let (mut two, outcome) = task.await.unwrap();
    assert_eq!(outcome, "done");
    assert_eq!(row(&mut two, "SELECT balance FROM account WHERE id = 8").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlocks_end_and_lock_timeouts_too() {
    let (_directory, _database, mut one, mut two) = accounts().await;
    run(&mut one, "BEGIN; UPDATE account SET balance = 1 WHERE id = 1").await;
    run(&mut two, "BEGIN; UPDATE account SET balance = 2 WHERE id = 2").await;
    let mut task = beside(two, "UPDATE account SET balance = 2 WHERE id = 1");
    assert!(waits(&mut task).await);
    let error = refused(&mut one, "UPDATE account SET balance = 1 WHERE id = 2").await;
    assert_eq!(error.sqlstate(), "40P01");
    // Who has failed is in nobody's way, even before ROLLBACK.
    let (mut two, outcome) = task.await.unwrap();
    assert_eq!(outcome, "done");
    run(&mut one, "ROLLBACK; SET lock_timeout = 50").await;
    let error = refused(&mut one, "DELETE FROM account").await;
    assert_eq!(error.sqlstate(), "55P03");
    run(&mut two, "COMMIT").await;
    assert_eq!(rows(&mut one, BALANCES).await, ["1,2", "2,2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn savepoints_free_what_was_locked_since() {
    let (_directory, _database, mut one, mut two) = accounts().await;
    run(&mut one, "BEGIN; UPDATE account SET balance = 1 WHERE id = 1; SAVEPOINT a").await;
    run(&mut one, "UPDATE account SET balance = 2 WHERE id = 2; ROLLBACK TO a").await;
    run(&mut two, "SET lock_timeout = 100; UPDATE account SET balance = 7 WHERE id = 2").await;
    let error = refused(&mut two, "UPDATE account SET balance = 7 WHERE id = 1").await;
    assert_eq!(error.sqlstate(), "55P03");
    run(&mut one, "COMMIT").await;
    assert_eq!(rows(&mut two, BALANCES).await, ["1,1", "2,7"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_block_keeps_what_its_last_savepoint_has() {
    let (_directory, database, mut one, mut two) = accounts().await;
    run(&mut two, "SET lock_timeout = 100").await;
    run(&mut one, "BEGIN; UPDATE account SET balance = 1 WHERE id = 1; SAVEPOINT a").await;
    run(&mut one, "UPDATE account SET balance = 2 WHERE id = 2").await;
    assert_eq!(refused(&mut one, "SELECT 1 / 0").await.sqlstate(), "22012");
    run(&mut two, "UPDATE account SET balance = 7 WHERE id = 2").await;
    let error = refused(&mut two, "UPDATE account SET balance = 7 WHERE id = 1").await;
    assert_eq!(error.sqlstate(), "55P03");
    run(&mut one, "ROLLBACK TO a; UPDATE account SET balance = balance + 1 WHERE id = 2; COMMIT")
        .await;
    assert_eq!(rows(&mut two, BALANCES).await, ["1,1", "2,8"]);
    // Without a savepoint it has nothing any more, pages of an own table included.
    for end in ["ROLLBACK", "COMMIT"] {
        run(&mut one, "BEGIN ISOLATION LEVEL SERIALIZABLE; CREATE TABLE own (a int)").await;
        run(&mut one, "INSERT INTO own SELECT * FROM generate_series(1, 20000) AS s (a)").await;
        run(&mut one, "UPDATE account SET balance = 0").await;
        assert_eq!(refused(&mut one, "SELECT 1 / 0").await.sqlstate(), "22012");
        run(&mut two, "UPDATE account SET balance = balance + 1; CREATE TABLE own (b int)").await;
        for sql in ["SELECT 1", "SAVEPOINT b", "INSERT INTO own VALUES (1)"] {
            assert_eq!(refused(&mut one, sql).await.sqlstate(), "25P02", "{sql}");
        }
        assert_no_leak(&database);
        run(&mut one, end).await;
        run(&mut two, "DROP TABLE own").await;
    }
    assert_eq!(rows(&mut one, BALANCES).await, ["1,3", "2,10"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_among_many_sessions() {
    let (_directory, database, mut one, two) = accounts().await;
    drop(two);
    let mut tasks = Vec::new();
    for task in 0..4 {
        let mut session = database.session();
        tasks.push(SpawnedTask::spawn(async move {
            for turn in 0..10 {
                let (from, to) = if (task + turn) % 2 == 0 { (1, 2) } else { (2, 1) };
                // In one order, so that there is no deadlock cycle.
                let (first, second) = (from.min(to), from.max(to));
                let step = |id: i32| if id == from { -1 } else { 1 };
                run(
                    &mut session,
                    &format!(
                        "BEGIN;
                         UPDATE account SET balance = balance + ({}) WHERE id = {first};
                         UPDATE account SET balance = balance + ({}) WHERE id = {second};
                         COMMIT",
                        step(first),
                        step(second)
                    ),
                )
                .await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(rows(&mut one, BALANCES).await, ["1,100", "2,200"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_changed_checks_and_compacts() {
    let (directory, database, mut one, _two) = accounts().await;
    run(&mut one, "CREATE INDEX account_balance ON account (balance)").await;
    run(&mut one, "INSERT INTO account SELECT i, i FROM generate_series(10, 20009) AS g (i)").await;
    for turn in 0..5 {
        run(&mut one, &format!("UPDATE account SET balance = balance + 1 WHERE id % 5 = {turn}"))
            .await;
        run(&mut one, &format!("DELETE FROM account WHERE id % 100 = {turn} AND id >= 10")).await;
    }
    let count = row(&mut one, "SELECT count(*) FROM account").await;
    let sum = row(&mut one, "SELECT sum(balance) FROM account").await;
    let by_index = "SELECT id FROM account WHERE balance = 5006";
    assert_eq!(rows(&mut one, by_index).await, ["5005"]);
    assert_no_leak(&database);
    drop((one, _two, database));
    let options = OpenOptions::new(embedded());
    let report = check(directory.path(), options, &CheckOptions::default()).await.unwrap();
    assert!(report.findings.kept().is_empty(), "{:#?}", report.findings);
    let database = open(directory.path()).await;
    let mut one = database.session();
    assert_eq!(row(&mut one, "SELECT count(*) FROM account").await, count);
    assert_eq!(row(&mut one, "SELECT sum(balance) FROM account").await, sum);
    assert_eq!(rows(&mut one, by_index).await, ["5005"]);
    assert_eq!(refused(&mut one, "INSERT INTO account VALUES (5005, 0)").await.sqlstate(), "23505");
    run(&mut one, "INSERT INTO account VALUES (5000, 0)").await;
}

#[tokio::test]
async fn a_session_that_only_reads_refuses_changes_whatever_it_sets() {
    let (_directory, _database, mut one, mut two) = accounts().await;
    run(&mut one, "CREATE SEQUENCE s").await;
    run(&mut two, "PREPARE put (int) AS INSERT INTO account VALUES ($1, 0)").await;
    two.only_read("a test says so");
    assert_eq!(row(&mut two, "SHOW transaction_read_only").await, "on");
    run(&mut two, "SET default_transaction_read_only = off").await;
    let block = "BEGIN READ WRITE; SET TRANSACTION READ WRITE;";
    run(&mut two, block).await;
    assert_eq!(row(&mut two, "SHOW transaction_read_only").await, "on");
    run(&mut two, "ROLLBACK").await;
    for statement in [
        "DELETE FROM account",
        "INSERT INTO account VALUES (3, 3)",
        "EXECUTE put(3)",
        "SELECT nextval('s')",
        "SELECT setval('s', 9)",
        "SELECT * FROM account WHERE id = 1 FOR UPDATE",
        "CREATE TEMPORARY TABLE own (a int)",
        "CREATE ROLE reader",
        "ANALYZE account",
        "EXPLAIN ANALYZE UPDATE account SET balance = 0",
        "COPY account TO '/nowhere/account.csv'",
    ] {
        for begin in ["", block] {
            let error = refused(&mut two, &format!("{begin}{statement}")).await;
            assert_eq!(error.sqlstate(), "25006", "{statement}: {error}");
            let why = "this session only reads, because a test says so";
            assert!(error.to_string().contains(why), "{statement}: {error}");
            run(&mut two, "ROLLBACK").await;
        }
    }
    // It sees what others commit.
    run(&mut one, "UPDATE account SET balance = 5 WHERE id = 1").await;
    run(&mut two, "RESET ALL; DISCARD ALL").await;
    assert_eq!(rows(&mut two, BALANCES).await, ["1,5", "2,200"]);
    two.set_client(Client::default());
    assert_eq!(refused(&mut two, "DELETE FROM account").await.sqlstate(), "25006");
}
