//! Tests of materialized views beside other sessions: what is renamed or dropped below waits for a refresh, and the
//! other way round; a refresh reads with the rights of the view's owner.

use crate::support::{fresh, refused, row, run};

const LOCK_TIMEOUT: &str = "55P03";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renames_and_refreshes_wait_for_each_other() {
    let (_directory, database) = fresh().await;
    let (mut one, mut other) = (database.session(), database.session());
    run(
        &mut one,
        "CREATE TABLE t (i int, v int); INSERT INTO t VALUES (1, 10), (2, 20);
         CREATE VIEW below AS SELECT * FROM t; CREATE MATERIALIZED VIEW m AS SELECT * FROM below;
         CREATE VIEW above AS SELECT i FROM below",
    )
    .await;
    run(&mut other, "SET lock_timeout = 50").await;
    for rename in ["ALTER VIEW below RENAME TO renamed", "ALTER TABLE t RENAME COLUMN v TO w"] {
        run(&mut one, &format!("BEGIN; {rename}")).await;
        for sql in [
            "DROP MATERIALIZED VIEW m",
            "REFRESH MATERIALIZED VIEW m",
            "CREATE INDEX ON m (i)",
            "DROP VIEW above",
            "CREATE OR REPLACE VIEW above AS SELECT 1 AS i",
        ] {
            assert_eq!(refused(&mut other, sql).await.sqlstate(), LOCK_TIMEOUT, "{rename}, {sql}");
        }
        run(&mut one, "ROLLBACK; BEGIN; REFRESH MATERIALIZED VIEW m").await;
        assert_eq!(refused(&mut other, rename).await.sqlstate(), LOCK_TIMEOUT, "{rename}");
        // Rows are read beside it.
        assert_eq!(row(&mut other, "SELECT sum(v) FROM m").await, "30");
        run(&mut one, "COMMIT").await;
        run(&mut other, rename).await;
        run(&mut other, "INSERT INTO t VALUES (3, 30); REFRESH MATERIALIZED VIEW m").await;
        assert_eq!(row(&mut one, "SELECT max(i) FROM m").await, "3");
        run(&mut other, "DELETE FROM t WHERE i = 3; REFRESH MATERIALIZED VIEW m").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_is_not_read_by_newer_names() {
    let (_directory, database) = fresh().await;
    let (mut one, mut other) = (database.session(), database.session());
    run(
        &mut one,
        "CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2);
         CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
    )
    .await;
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM m").await;
    for rename in ["a TO x", "b TO a", "x TO b"] {
        run(&mut other, &format!("ALTER TABLE t RENAME COLUMN {rename}")).await;
    }
    assert_eq!(refused(&mut one, "REFRESH MATERIALIZED VIEW m").await.sqlstate(), "40001");
    run(&mut one, "ROLLBACK; REFRESH MATERIALIZED VIEW m").await;
    assert_eq!(row(&mut one, "SELECT a FROM m").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_reads_with_the_rights_of_the_owner() {
    let (_directory, database) = fresh().await;
    let mut owner = database.session();
    run(
        &mut owner,
        "CREATE TABLE secret (i int); INSERT INTO secret VALUES (7);
         CREATE ROLE ada; GRANT CREATE ON SCHEMA public TO ada; SET ROLE ada;
         CREATE VIEW v AS SELECT 1 AS i; CREATE MATERIALIZED VIEW m AS SELECT i, current_user FROM v;
         CREATE OR REPLACE VIEW v AS SELECT i FROM secret; RESET ROLE",
    )
    .await;
    assert_eq!(refused(&mut owner, "REFRESH MATERIALIZED VIEW m").await.sqlstate(), "42501");
    assert_eq!(row(&mut owner, "SELECT i FROM m").await, "1");
    run(&mut owner, "GRANT SELECT ON secret TO ada; REFRESH MATERIALIZED VIEW m").await;
    assert_eq!(row(&mut owner, "SELECT i || \"current_user\" FROM m").await, "7ada");
    run(&mut owner, "CREATE ROLE bob; SET ROLE bob").await;
    assert_eq!(refused(&mut owner, "REFRESH MATERIALIZED VIEW m").await.sqlstate(), "42501");
}
