//! Tests of EXPLAIN ANALYZE of statements that change rows: the change above the plan that ran.

use crate::support::{fresh, row, rows, run};

#[tokio::test]
async fn what_is_to_be_done_stands_above_the_plan() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE u (id int, v int)")
        .await;
    run(&mut session, "INSERT INTO t SELECT i, i FROM generate_series(1, 9) AS g (i)").await;
    for (sql, planned, operation) in [
        ("UPDATE t SET v = v + 1 WHERE v % 2 = 1", "Update of t", "Update"),
        ("UPDATE t SET v = 1 FROM u WHERE u.id = t.id RETURNING t.id", "Update of t", "Update"),
        ("DELETE FROM t WHERE v + 0 = 8", "Delete from t", "Delete"),
        ("INSERT INTO u SELECT id, v FROM t WHERE v > 0", "Insert into u", "Insert"),
    ] {
        let shown = rows(&mut session, &format!("EXPLAIN {sql}")).await;
        assert_eq!(shown[0], planned, "{sql}: {shown:?}");
        assert!(shown[1].starts_with("  "), "{sql}: {shown:?}");
        let names_vid = |line: &String| line.contains("Projection") && line.contains("vid");
        assert!(!shown.iter().any(names_vid), "{sql}: {shown:?}");
        let json = row(&mut session, &format!("EXPLAIN (FORMAT JSON) {sql}")).await;
        let root = "[{\"Plan\":{\"Node Type\":\"ModifyTable\",";
        assert!(json.starts_with(root), "{sql}: {json}");
        assert!(json.contains(&format!("\"Operation\":\"{operation}\"")), "{sql}: {json}");
    }
    assert_eq!(row(&mut session, "SELECT count(*), sum(v) FROM t").await, "9,45");
}

#[tokio::test]
async fn what_was_done_stands_above_the_plan() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE u (id int, v int)")
        .await;
    run(&mut session, "INSERT INTO t SELECT i, i FROM generate_series(1, 9) AS g (i)").await;
    for (sql, done, planned) in [
        ("UPDATE t SET v = 0 WHERE v % 2 = 1", "Update of 5 rows of t", true),
        (
            "UPDATE t SET v = 1 FROM u WHERE u.id = t.id RETURNING t.id",
            "Update of 0 rows of t",
            true,
        ),
        ("DELETE FROM t WHERE v + 0 = 8", "Delete of 1 row of t", true),
        ("INSERT INTO u SELECT id, v FROM t WHERE v > 0", "Insert of 3 rows into u", true),
        (
            "INSERT INTO u VALUES (1, 2), (3, 4)",
            "Insert of 2 rows into u, on the host, without a plan",
            false,
        ),
        ("UPDATE t SET v = 7 WHERE id = 1", "Update by point look-up", false),
    ] {
        let shown = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
        assert!(shown[0].starts_with(done), "{sql}: {shown:?}");
        assert!(shown.iter().any(|line| line.contains("execution time")), "{sql}: {shown:?}");
        let below = shown[1].starts_with("  ") && shown.iter().any(|line| line.contains("(rows "));
        assert!(!planned || below, "{sql}: {shown:?}");
        let is_told = shown.iter().any(|line| line.starts_with("  writing rows: "));
        assert_eq!(is_told, planned, "{sql}: {shown:?}");
    }
    // In JSON, the root has the number.
    for (sql, count) in [
        ("UPDATE t SET v = v WHERE v + 0 > 0", 4),
        ("INSERT INTO u SELECT id, v FROM t WHERE v < 0", 0),
        ("UPDATE t SET v = 7 WHERE id = 1", 1),
        ("SELECT v FROM t WHERE id = 1", 1),
        ("CREATE TABLE copied AS SELECT id FROM t", 8),
    ] {
        let shown = row(&mut session, &format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}")).await;
        let root = shown.split("\"Plans\":").next().unwrap_or_default();
        let is_told = root.contains(&format!("\"Actual Rows\":{count},\"Actual Loops\":1"));
        assert!(is_told && !root.contains("Plan Rows"), "{sql}: {shown}");
        let is_look_up = sql.starts_with("SELECT");
        assert!(!is_look_up || shown.contains("\"Planning Time\":0.000,"), "{sql}: {shown}");
    }
    assert_eq!(row(&mut session, "SELECT count(*), sum(v) FROM t").await, "8,19");
    assert_eq!(row(&mut session, "SELECT count(*) FROM u").await, "5");
}
