//! Tests of data-modifying queries of WITH beside other transactions.

use std::time::Duration;

use datafusion::common::runtime::SpawnedTask;

use crate::support::{fresh, refused, row, rows, run};

const MOVE: &str = "WITH put AS (INSERT INTO log VALUES (1) RETURNING n), up AS (UPDATE t SET v = v + 1 WHERE id = 1 \
    RETURNING v) \
                    INSERT INTO log SELECT v FROM up";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_parts_run_again_where_another_transaction_was_faster() {
    let (_directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE log (n int)").await;
    run(&mut one, "INSERT INTO t VALUES (1, 10)").await;
    run(&mut one, "BEGIN; UPDATE t SET v = 50 WHERE id = 1").await;
    let mut waiting = SpawnedTask::spawn(async move {
        run(&mut two, MOVE).await;
        two
    });
    let waits = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(waits.is_err());
    run(&mut one, "COMMIT").await;
    let mut two = waiting.await.unwrap();
    assert_eq!(rows(&mut one, "SELECT n FROM log ORDER BY n").await, ["1", "51"]);
    assert_eq!(row(&mut one, "SELECT v FROM t").await, "51");

    // One snapshot for the block: it fails, and leaves nothing.
    run(&mut two, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT v FROM t").await;
    run(&mut one, "UPDATE t SET v = 60 WHERE id = 1").await;
    assert_eq!(refused(&mut two, MOVE).await.sqlstate(), "40001");
    run(&mut two, "ROLLBACK").await;
    assert_eq!(row(&mut one, "SELECT count(*) FROM log").await, "2");
}

#[tokio::test]
async fn what_a_part_inserts_is_many_rows_and_still_undone_with_the_others() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int); CREATE TABLE log (n bigint)").await;
    let many =
        "WITH put AS (INSERT INTO t SELECT i FROM generate_series(1, 30000) AS g (i) RETURNING id)";
    let failing = format!("{many} INSERT INTO log SELECT 1 / (count(*) - 30000) FROM put");
    assert_eq!(refused(&mut session, &failing).await.sqlstate(), "22012");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "0");
    run(&mut session, &format!("{many} INSERT INTO log SELECT sum(id) FROM put")).await;
    assert_eq!(row(&mut session, "SELECT n FROM log").await, "450015000");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "30000");
}
