//! Tests of the plan cache: a plan is used again for the same query, and never for another snapshot, definition or
//! time.

use std::sync::Arc;

use cleave_host::activity::Act;
use cleave_host::{Database, Session};

use crate::support::{fresh, refused, rows, run};

fn kept_count(database: &Arc<Database>) -> u64 {
    database.activity().count(Act::CachedPlan)
}

/// The rows of `sql`, and whether they came from a cached plan.
async fn asked(database: &Arc<Database>, session: &mut Session, sql: &str) -> (Vec<String>, bool) {
    let before = kept_count(database);
    let rows = rows(session, sql).await;
    (rows, kept_count(database) > before)
}

/// Runs it until its plan is cached.
async fn keep(database: &Arc<Database>, session: &mut Session, sql: &str) {
    for expected in [false, false, true] {
        assert_eq!(asked(database, session, sql).await.1, expected, "{sql}");
    }
}

const JOIN: &str = "SELECT k.name, count(*), sum(t.n) FROM t JOIN k ON k.id = t.kind WHERE t.n > 1 GROUP BY k.name \
    ORDER BY 1";

async fn with_tables() -> (tempfile::TempDir, Arc<Database>, Session) {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE k (id int PRIMARY KEY, name text NOT NULL); INSERT INTO k VALUES (1, 'one'), (2, 'two'); \
         CREATE TABLE t (id int PRIMARY KEY, kind int NOT NULL, n int); \
         INSERT INTO t VALUES (1, 1, 1), (2, 1, 2), (3, 2, 3)",
    )
    .await;
    (directory, database, session)
}

#[tokio::test]
async fn a_cached_plan_reads_what_there_is_now() {
    let (_directory, database, mut session) = with_tables().await;
    keep(&database, &mut session, JOIN).await;
    run(&mut session, "INSERT INTO t VALUES (4, 2, 10); UPDATE t SET n = 20 WHERE id = 2").await;
    let now = (vec!["one,1,20".to_owned(), "two,2,13".to_owned()], true);
    assert_eq!(asked(&database, &mut session, JOIN).await, now);
    // Its own changes, which others do not see.
    let mut other = database.session();
    run(&mut other, "BEGIN; DELETE FROM t WHERE kind = 1").await;
    assert_eq!(asked(&database, &mut other, JOIN).await, (vec!["two,2,13".to_owned()], true));
    assert_eq!(asked(&database, &mut session, JOIN).await, now);
    run(&mut other, "ROLLBACK").await;
    // Settings that affect the plan are compared each time.
    for split in ["host", "h0", "h1", "ndp"] {
        run(&mut session, &format!("SET split = {split}")).await;
        assert_eq!(asked(&database, &mut session, JOIN).await.0, now.0, "{split}");
    }
}

#[tokio::test]
async fn values_and_statistics_that_change_are_followed() {
    let (_directory, database, mut session) = with_tables().await;
    run(&mut session, "PREPARE above (int) AS SELECT count(*) FROM t WHERE n > $1").await;
    for _ in 0..3 {
        for (value, count) in [(0, 3), (1, 2), (2, 1)] {
            let found = rows(&mut session, &format!("EXECUTE above ({value})")).await;
            assert_eq!(found, [count.to_string()]);
        }
    }
    assert_eq!(kept_count(&database), 3, "each value is a query of its own");
    run(
        &mut session,
        "INSERT INTO t SELECT i, 1, 5 FROM generate_series(10, 2000) AS g (i); ANALYZE t",
    )
    .await;
    assert_eq!(rows(&mut session, "EXECUTE above (2)").await, ["1992"]);
}

#[tokio::test]
async fn definitions_that_change_end_a_cached_plan() {
    let (_directory, database, mut session) = with_tables().await;
    let all = "SELECT * FROM t WHERE id = 3 OR n = 3";
    keep(&database, &mut session, all).await;
    run(&mut session, "ALTER TABLE t ADD COLUMN note text DEFAULT 'new'").await;
    assert_eq!(asked(&database, &mut session, all).await, (vec!["3,2,3,new".to_owned()], false));
    keep_again(&database, &mut session, all).await;
    run(&mut session, "ALTER TABLE t RENAME COLUMN n TO m").await;
    assert_eq!(refused(&mut session, all).await.sqlstate(), "42703");
    run(
        &mut session,
        "DROP TABLE t; CREATE TABLE t (id text, n text); INSERT INTO t VALUES ('3', '4')",
    )
    .await;
    let text = "SELECT n || '!' FROM t WHERE id > '2'";
    keep(&database, &mut session, text).await;
    run(&mut session, "DROP TABLE t").await;
    assert_eq!(refused(&mut session, text).await.sqlstate(), "42P01");
    run(&mut session, "CREATE TABLE t (id int, n int); INSERT INTO t VALUES (3, 4)").await;
    // The literal is an int now.
    assert_eq!(asked(&database, &mut session, text).await, (vec!["4!".to_owned()], false));
}

/// As [`keep`], of a query that was seen before.
async fn keep_again(database: &Arc<Database>, session: &mut Session, sql: &str) {
    for _ in 0..2 {
        rows(session, sql).await;
    }
    assert!(asked(database, session, sql).await.1, "{sql}");
}

#[tokio::test]
async fn views_and_blocks_have_their_own_definitions() {
    let (_directory, database, mut session) = with_tables().await;
    run(&mut session, "CREATE VIEW v AS SELECT id, n FROM t WHERE n > 1").await;
    let sum = "SELECT sum(n) FROM v";
    keep(&database, &mut session, sum).await;
    let mut other = database.session();
    run(&mut other, "BEGIN; CREATE OR REPLACE VIEW v AS SELECT id, n FROM t WHERE n > 2").await;
    assert_eq!(asked(&database, &mut other, sum).await, (vec!["3".to_owned()], false));
    run(&mut other, "ROLLBACK").await;
    assert_eq!(rows(&mut session, sum).await, ["5"]);
    run(&mut session, "CREATE OR REPLACE VIEW v AS SELECT id, n FROM t WHERE n < 2").await;
    assert_eq!(asked(&database, &mut session, sum).await, (vec!["1".to_owned()], false));
    // A temporary table is one session's alone.
    let count = "SELECT count(*) FROM t";
    keep(&database, &mut session, count).await;
    run(&mut other, "CREATE TEMPORARY TABLE mine (id int); INSERT INTO mine VALUES (1)").await;
    keep(&database, &mut other, "SELECT count(*) FROM mine").await;
    assert_eq!(refused(&mut session, "SELECT count(*) FROM mine").await.sqlstate(), "42P01");
}

#[tokio::test]
async fn what_may_say_something_else_next_time_is_not_kept() {
    let (_directory, database, mut session) = with_tables().await;
    run(&mut session, "CREATE SEQUENCE s; CREATE VIEW v AS SELECT n, now() AS moment FROM t").await;
    run(&mut session, "CREATE VIEW w AS SELECT n, current_setting('split') AS split FROM t").await;
    for sql in [
        "SELECT n, moment > '2020-01-01' FROM v",
        "SELECT n, split FROM w",
        "SELECT random() < 2, n FROM t",
        "SELECT now() > '2020-01-01', n FROM t",
        "SELECT count(*) FROM t WHERE current_date > '2020-01-01'",
        "SELECT nextval('s') FROM t",
        "SELECT current_user, n FROM t",
        "SELECT current_setting('split'), n FROM t",
        "SELECT count(*) FROM generate_series(1, 3) AS g (i) JOIN t ON t.id = g.i",
        "SELECT count(*) FROM cleave.activity, t",
        "SELECT count(*) FROM pg_catalog.pg_class, t",
    ] {
        for _ in 0..4 {
            let (_, is_kept) = asked(&database, &mut session, sql).await;
            assert!(!is_kept, "{sql}");
        }
    }
}

#[tokio::test]
async fn plans_that_were_not_asked_for_longest_go() {
    let (_directory, database, mut session) = with_tables().await;
    // Statements over small tables that differ in constants would share a plan.
    run(&mut session, "SET look_up_rows = 0").await;
    keep(&database, &mut session, JOIN).await;
    for number in 0..70 {
        keep(&database, &mut session, &format!("SELECT count(*) FROM t WHERE n > {number}")).await;
    }
    assert!(!asked(&database, &mut session, JOIN).await.1);
    let long: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    let long = format!("SELECT count(*) FROM t WHERE n NOT IN ({})", long.join(", "));
    for _ in 0..4 {
        assert!(!asked(&database, &mut session, &long).await.1, "too large");
    }
}

#[tokio::test]
async fn a_plan_that_has_run_holds_no_rows() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE a (id int PRIMARY KEY, t text, v int); CREATE TABLE b (id int PRIMARY KEY, t text); \
         CREATE TABLE c (id int PRIMARY KEY, t text); INSERT INTO c VALUES (7, 'x'); \
         INSERT INTO a SELECT g, 'x', g FROM generate_series(1, 300) AS s(g); \
         INSERT INTO b SELECT g, 'x' FROM generate_series(1, 300) AS s(g)",
    )
    .await;
    let reserved = || database.query_runtime().memory_pool.reserved();
    for (constant, is_cached) in [(0, false), (1, false), (2, true), (3, true)] {
        let sql = format!(
            "SELECT count(*) FROM a JOIN b ON a.t = b.t JOIN c ON c.t = b.t WHERE a.v > {constant}"
        );
        let (rows, was_cached) = asked(&database, &mut session, &sql).await;
        assert_eq!(rows, [((300 - constant) * 300).to_string()]);
        assert_eq!((was_cached, reserved()), (is_cached, 0), "{constant}");
    }
}
