//! Tests of INSERT … ON CONFLICT in several concurrent sessions.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::runtime::SpawnedTask;

use crate::support::{assert_no_leak, fresh, open, planned, refused, row, rows, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_need_no_plan_and_flush_nothing() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (a int, b text, n int DEFAULT 5, note text, PRIMARY KEY (a, b), UNIQUE (note));
         INSERT INTO t VALUES (1, 'x', 10, 'one'), (2, 'x', 20, 'two')",
    )
    .await;
    // The plan of each clause is made once, and cached.
    let statements = [
        "INSERT INTO t AS x (a, b, note) VALUES (1, 'x', 'uno') ON CONFLICT (a, b) DO UPDATE \
         SET note = x.note || '+' || excluded.note WHERE x.n < 1000 RETURNING a, x.note || '!', n * 2",
        "INSERT INTO t VALUES (3, 'x', 1, 'three') ON CONFLICT (b, a) DO UPDATE SET n = t.n + excluded.n RETURNING *",
        "INSERT INTO t VALUES (4, 'x', 1, 'two') ON CONFLICT DO NOTHING RETURNING a",
        "INSERT INTO t VALUES (4, 'x', 1, 'two') ON CONFLICT (note) DO UPDATE SET n = DEFAULT, note = \
            upper(excluded.note)",
    ];
    for sql in statements {
        run(&mut session, sql).await;
    }
    run(&mut session, "UPDATE t SET n = 20, note = 'two' WHERE a = 2; DELETE FROM t WHERE a = 3")
        .await;
    let before = planned(&database);
    assert_eq!(rows(&mut session, statements[0]).await, ["1,one+uno+uno!,20"]);
    assert_eq!(rows(&mut session, statements[1]).await, ["3,x,1,three"]);
    assert_eq!(rows(&mut session, statements[1]).await, ["3,x,2,three"]);
    assert_eq!(rows(&mut session, statements[2]).await, Vec::<String>::new());
    run(&mut session, statements[3]).await;
    // In a block also its own rows, and those that it has deleted.
    run(&mut session, "BEGIN; DELETE FROM t WHERE a = 3 AND b = 'x'").await;
    assert_eq!(rows(&mut session, statements[1]).await, ["3,x,1,three"]);
    assert_eq!(rows(&mut session, statements[1]).await, ["3,x,2,three"]);
    assert_eq!(rows(&mut session, statements[0]).await, ["1,one+uno+uno+uno!,20"]);
    run(&mut session, "COMMIT").await;
    assert_eq!(planned(&database), before);
    let all = rows(&mut session, "SELECT * FROM t ORDER BY a").await;
    assert_eq!(all, ["1,x,10,one+uno+uno+uno", "2,x,5,TWO", "3,x,2,three"]);
    // A column without a table may be of either row.
    let ambiguous =
        "INSERT INTO t VALUES (1, 'x') ON CONFLICT (a, b) DO UPDATE SET n = n + 1 WHERE n > 0";
    refused(&mut session, ambiguous).await;
}

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
                    "INSERT INTO hits VALUES ({one}, 1), ({other}, 1) ON CONFLICT (page) DO UPDATE SET n = hits.n + \
                        excluded.n"
                );
                run(&mut session, &sql).await;
                // Deletes and repeated inserts conflict as well.
                if turn % 7 == 0 {
                    run(&mut session, "BEGIN; DELETE FROM hits WHERE page = 9").await;
                    run(&mut session, "INSERT INTO hits VALUES (9, 1) ON CONFLICT (page) DO UPDATE SET n = hits.n; \
                        COMMIT").await;
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
