//! Tests of error positions in a statement's text, and of the depth of statements.

use crate::support::{fresh, refused, row, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_names_and_types_say_where_they_stand() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int, g text)").await;
    run(&mut session, "CREATE TABLE u (id int)").await;
    for (sql, state, line, column) in [
        ("SELECT nope FROM t", "42703", 1, 8),
        ("SELECT id, nope FROM t", "42703", 1, 12),
        ("SELECT id\nFROM t\nWHERE nope = 1", "42703", 3, 7),
        ("SELECT t.nope FROM t", "42703", 1, 8),
        ("SELECT z.id FROM t", "42P01", 1, 8),
        ("SELECT id FROM nope", "42P01", 1, 16),
        ("SELECT 1 FROM t JOIN nope ON true", "42P01", 1, 22),
        ("SELECT id, nofn(id) FROM t", "42883", 1, 12),
        ("SELECT t.id FROM t, u WHERE id = 1", "42702", 1, 29),
        ("SELECT g, id FROM t GROUP BY g", "42803", 1, 11),
        ("SELECT id FROM t WHERE g", "42804", 1, 24),
        ("SELECT id, sum(g) FROM t GROUP BY id", "42883", 1, 12),
        ("SELECT id FROM t ORDER BY z.id", "42P01", 1, 27),
        ("UPDATE t SET id = nope", "42703", 1, 19),
        ("DELETE FROM t WHERE nope = 1", "42703", 1, 21),
        ("SELECT 1; SELECT nope FROM t", "42703", 1, 18),
    ] {
        let error = refused(&mut session, sql).await;
        let place = error.position().map(|place| (place.line, place.column));
        assert_eq!((error.sqlstate(), place), (state, Some((line, column))), "{sql}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_statements_run_and_deeper_ones_are_refused() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int)").await;
    run(&mut session, "INSERT INTO t VALUES (1), (2), (3)").await;
    let around =
        |inner: &str, count: usize| format!("{}{inner}{}", "(".repeat(count), ")".repeat(count));
    let ored: Vec<String> = (0..3000).map(|number| format!("id = {number}")).collect();
    let nested = (0..3000).map(|number| format!(" OR id = {number})")).collect::<String>();
    for condition in [
        around("id = 1 OR id > 1", 4000),
        ored.join(" OR "),
        format!("{}id = 1{nested}", "(".repeat(3000)),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        assert!(["3", "2"].contains(&row(&mut session, &sql).await.as_str()));
    }
    let delete = format!("DELETE FROM t WHERE {}", around("id = 3", 4000));
    drop(run(&mut session, &delete).await);
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "2");
    for sql in [
        format!("SELECT {}", around("1", 9000)),
        format!("UPDATE t SET id = {}id{}", "(".repeat(2500), " + 1)".repeat(2500)),
    ] {
        let error = refused(&mut session, &sql).await;
        assert_eq!(error.sqlstate(), "54001", "{error}");
        assert!(error.to_string().contains("levels") || error.to_string().contains("limit"));
    }
    assert_eq!(row(&mut session, "SELECT 1").await, "1");
}
