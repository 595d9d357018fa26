//! Tests of SET and SET LOCAL in transactions, of PostgreSQL's session information functions, and of waiting for a safe
//! snapshot.

use std::time::Duration;

use crate::support::{fresh, refused, row, rows, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_set_goes_with_its_transaction() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    // Outside of a block it has no effect.
    run(&mut session, "SET LOCAL split = h0").await;
    assert_eq!(row(&mut session, "SHOW split").await, "auto");
    assert_eq!(refused(&mut session, "SET LOCAL split = h77").await.sqlstate(), "22023");
    run(&mut session, "BEGIN; SET LOCAL split = h0; SET threads = 3").await;
    assert_eq!(row(&mut session, "SHOW split").await, "h0");
    run(&mut session, "COMMIT").await;
    assert_eq!(row(&mut session, "SHOW split").await, "auto");
    assert_eq!(row(&mut session, "SHOW threads").await, "3");
    run(&mut session, "BEGIN; SET threads = 4; SET LOCAL split = ndp; RESET ALL; ROLLBACK").await;
    assert_eq!(row(&mut session, "SHOW threads").await, "3");
    // The last one holds; the value of SET holds after the block.
    run(&mut session, "BEGIN; SET LOCAL threads = 5; SET threads = 6; SET LOCAL threads = 7").await;
    assert_eq!(row(&mut session, "SHOW threads").await, "7");
    run(&mut session, "COMMIT").await;
    assert_eq!(row(&mut session, "SHOW threads").await, "6");
    // A block that has failed is undone by COMMIT.
    run(&mut session, "BEGIN; SET threads = 8").await;
    assert_eq!(refused(&mut session, "SELECT 1 / 0").await.sqlstate(), "22012");
    run(&mut session, "COMMIT").await;
    assert_eq!(row(&mut session, "SHOW threads").await, "6");
    assert_eq!(row(&mut session, "SHOW transaction_isolation").await, "read committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn savepoints_bring_back_what_was_set() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "BEGIN; SAVEPOINT a; SET threads = 1; SAVEPOINT b").await;
    run(&mut session, "SET LOCAL threads = 2; SET split = h0").await;
    run(&mut session, "ROLLBACK TO b").await;
    assert_eq!(row(&mut session, "SHOW threads").await, "1");
    assert_eq!(row(&mut session, "SHOW split").await, "auto");
    run(&mut session, "SET threads = 3; RELEASE b").await;
    run(&mut session, "SAVEPOINT c; SET threads = 4; RELEASE c").await;
    assert_eq!(row(&mut session, "SHOW threads").await, "4");
    run(&mut session, "ROLLBACK TO a").await;
    assert_eq!(row(&mut session, "SHOW threads").await, "0");
    run(&mut session, "SET threads = 5; ROLLBACK TO a; SET LOCAL threads = 6; COMMIT").await;
    assert_eq!(row(&mut session, "SHOW threads").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_config_and_roles_go_with_their_transaction_too() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE ROLE ada").await;
    run(&mut session, "BEGIN; SELECT set_config('threads', '2', true)").await;
    run(&mut session, "SELECT set_config('split', 'h0', false); SET LOCAL ROLE ada").await;
    assert_eq!(row(&mut session, "SELECT current_role").await, "ada");
    assert_eq!(row(&mut session, "SHOW threads").await, "2");
    run(&mut session, "COMMIT").await;
    assert_eq!(row(&mut session, "SELECT current_role").await, "cleave");
    assert_eq!(row(&mut session, "SHOW threads").await, "0");
    assert_eq!(row(&mut session, "SHOW split").await, "h0");
    run(&mut session, "BEGIN; SET ROLE ada; ROLLBACK").await;
    assert_eq!(row(&mut session, "SELECT current_role").await, "cleave");
    run(&mut session, "BEGIN; SET SESSION AUTHORIZATION ada; COMMIT").await;
    assert_eq!(row(&mut session, "SELECT session_user").await, "ada");
    run(&mut session, "RESET SESSION AUTHORIZATION").await;
    assert_eq!(row(&mut session, "SELECT session_user").await, "cleave");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_of_postgresql_are_known() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, owner text DEFAULT 'cleave')").await;
    run(&mut session, "INSERT INTO t VALUES (1), (2)").await;
    assert_eq!(rows(&mut session, "TABLE t ORDER BY id DESC").await, ["2,cleave", "1,cleave"]);
    assert_eq!(rows(&mut session, "WITH x AS (TABLE t) TABLE x LIMIT 1").await.len(), 1);
    run(&mut session, "CREATE TABLE u AS TABLE t; INSERT INTO u TABLE t").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM u").await, "4");
    let here = "SELECT current_schema, current_role = current_user, current_catalog FROM t LIMIT 1";
    assert_eq!(row(&mut session, here).await, "public,t,cleave");
    run(&mut session, "BEGIN; DELETE FROM t; ABORT").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferrable_transaction_waits_for_a_state_that_nobody_can_spoil() {
    let (_directory, database) = fresh().await;
    let mut sessions: Vec<_> = (0..3).map(|_| database.session()).collect();
    let [receipt, closer, report] = sessions.as_mut_slice() else { unreachable!() };
    run(
        report,
        "CREATE TABLE batch (id int PRIMARY KEY, open int); INSERT INTO batch VALUES (1, 1);
         CREATE TABLE receipts (id int PRIMARY KEY, batch int)",
    )
    .await;
    run(receipt, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT open FROM batch WHERE id = 1").await;
    run(closer, "BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE batch SET open = 2 WHERE id = 1").await;
    run(closer, "COMMIT").await;
    let modes = "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE";
    run(report, modes).await;
    assert_eq!(row(report, "SHOW transaction_deferrable").await, "on");
    // Nothing is certain while the receipt may or may not come.
    let asked = report.run("SELECT count(*) FROM receipts");
    assert!(tokio::time::timeout(Duration::from_millis(200), asked).await.is_err());
    report.fail_block();
    run(report, "ROLLBACK").await;
    run(report, modes).await;
    let counted = async {
        let receipts = rows(report, "SELECT count(*) FROM receipts").await;
        run(report, "COMMIT").await;
        receipts
    };
    let written = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        run(receipt, "INSERT INTO receipts VALUES (1, 1); COMMIT").await;
    };
    let (counted, ()) = tokio::join!(counted, written);
    assert_eq!(counted, ["1"]);
    // Outside of such blocks DEFERRABLE changes nothing.
    run(report, "BEGIN READ ONLY, DEFERRABLE; SELECT 1; COMMIT; BEGIN NOT DEFERRABLE; ROLLBACK")
        .await;
    let error = refused(report, "BEGIN; SELECT 1; SET TRANSACTION DEFERRABLE").await;
    assert_eq!(error.sqlstate(), "25001");
}
