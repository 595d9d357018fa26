//! INSERT … ON CONFLICT of several sessions at once.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::runtime::SpawnedTask;

use crate::support::{assert_no_leak, fresh, open, refused, row, rows, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_of_many_sessions_lose_no_update() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE hits (page int PRIMARY KEY, n int NOT NULL)").await;
    let tasks = (0..6).map(|worker| {
        let database = Arc::clone(&database);
        SpawnedTask::spawn(async move {
            let mut session = database.session();
            for turn in 0..20 {
                let (one, other) = ((worker + turn) % 4, 4 + turn % 3);
                let sql = format!(
                    "INSERT INTO hits VALUES ({one}, 1), ({other}, 1) ON CONFLICT (page) DO UPDATE SET n = hits.n + excluded.n"
                );
                run(&mut session, &sql).await;
                // Who deletes and who inserts anew are in each other's way as well.
                if turn % 7 == 0 {
                    run(&mut session, "BEGIN; DELETE FROM hits WHERE page = 9").await;
                    run(&mut session, "INSERT INTO hits VALUES (9, 1) ON CONFLICT (page) DO UPDATE SET n = hits.n; COMMIT").await;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(row(&mut session, "SELECT sum(n) FROM hits WHERE page < 9").await, "240");
    assert_eq!(row(&mut session, "SELECT count(*) FROM hits").await, "8");
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT sum(n) FROM hits WHERE page < 9").await, "240");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_waits_for_the_key_and_then_updates_or_inserts() {
    for (end, expected) in [("COMMIT", "1,11"), ("ROLLBACK", "1,1")] {
        let (_directory, database) = fresh().await;
        let (mut one, mut two) = (database.session(), database.session());
        run(&mut one, "CREATE TABLE t (a int PRIMARY KEY, n int)").await;
        run(&mut one, "BEGIN; INSERT INTO t VALUES (1, 10)").await;
        let mut task = SpawnedTask::spawn(async move {
            run(&mut two, "INSERT INTO t VALUES (1, 1) ON CONFLICT (a) DO UPDATE SET n = t.n + 1")
                .await;
        });
        assert!(tokio::time::timeout(Duration::from_millis(300), &mut task).await.is_err());
        run(&mut one, end).await;
        task.await.unwrap();
        assert_eq!(rows(&mut one, "SELECT * FROM t").await, [expected]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_a_snapshot_does_not_show_fails_the_upsert() {
    let (_directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE t (a int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)").await;
    for action in ["NOTHING", "UPDATE SET n = 0"] {
        run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t").await;
        run(&mut two, "DELETE FROM t WHERE a = 2; INSERT INTO t VALUES (2, 2)").await;
        let sql = format!("INSERT INTO t VALUES (2, 3) ON CONFLICT (a) DO {action}");
        assert_eq!(refused(&mut one, &sql).await.sqlstate(), "40001");
        run(&mut one, "ROLLBACK").await;
    }
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t").await;
    run(&mut two, "UPDATE t SET n = n + 1 WHERE a = 1").await;
    let sql = "INSERT INTO t VALUES (1, 3) ON CONFLICT (a) DO UPDATE SET n = t.n + 1";
    assert_eq!(refused(&mut one, sql).await.sqlstate(), "40001");
}
