//! Tests of scans that are under way at the same time on a device: what one of them evaluates for another, and that
//! each has its own rows.

use cleave_host::{Outcome, Session};

use crate::devices::attach_nas;
use crate::support::{fresh, row, rows, run, text_of};

/// Pages of which EXPLAIN ANALYZE says that they were evaluated for other scans.
async fn shared(session: &mut Session, sql: &str) -> u64 {
    let plan = rows(session, &format!("EXPLAIN ANALYZE {sql}")).await;
    let counts = plan.iter().find_map(|line| line.split_once(" for other scans"));
    let number = counts.and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
    number.unwrap_or(0)
}

/// The rows of a query, or the code of its error.
async fn found(session: &mut Session, sql: &str) -> Vec<String> {
    match session.run(sql).await.as_deref() {
        Ok([Outcome::Rows { batches, .. }]) => text_of(batches),
        Ok(other) => panic!("{sql} gives {other:?}"),
        Err(error) => vec![error.sqlstate().to_owned()],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_evaluates_what_another_one_has_not_come_to() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut first = database.session();
    run(
        &mut first,
        "SET default_device = 'nas'; CREATE TABLE far (id int PRIMARY KEY, tag text, note text);
         INSERT INTO far SELECT v, CASE WHEN v / 1000 = 7 THEN 'ax' ELSE 'az' END || v, repeat(md5(v::text), 9)
             FROM generate_series(1, 60000) AS s(v);
         DELETE FROM far WHERE id % 10 = 0;
         CHECKPOINT",
    )
    .await;
    let mut second = database.session();
    for session in [&mut first, &mut second] {
        run(session, "SET split = h0; SET index_scan = off; SET stealing = off").await;
    }
    // Nothing is under way.
    assert_eq!(shared(&mut second, "SELECT count(*) FROM far WHERE tag LIKE '%z7%'").await, 0);
    // A cursor whose rows do not fit the slots stays where it is.
    run(
        &mut first,
        "SET slot_bytes = 65536; SET slot_count = 2; BEGIN;
         DECLARE c CURSOR FOR SELECT id, note FROM far WHERE tag LIKE '%z%'; FETCH 1 FROM c",
    )
    .await;
    let beside = "SELECT count(*), sum(id) FROM far WHERE tag LIKE '%x%'";
    assert!(shared(&mut second, beside).await > 0);
    // 7000 to 7999 without the tens.
    assert_eq!(row(&mut second, beside).await, "900,6750000");
    // It was evaluated once, and stays known.
    assert_eq!(shared(&mut second, "SELECT count(*) FROM far WHERE tag LIKE '%ax%'").await, 0);
    let left = rows(&mut first, "FETCH ALL FROM c").await;
    assert_eq!(left.len(), 54_000 - 900 - 1);
    run(&mut first, "COMMIT").await;
}

/// Queries at the same time, which ask the same columns, over rows that change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_queries_at_once_has_its_own_rows() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(
        &mut session,
        "SET default_device = 'nas'; CREATE TABLE far (id int PRIMARY KEY, tag text, w real, part int, note text);
         INSERT INTO far SELECT v, CASE WHEN v / 1000 = 7 THEN 'ax' ELSE 'az' END || v, v * 37 % 100,
             nullif(v % 7, 5), 'note ' || v || repeat(md5(v::text), 8) FROM generate_series(1, 30000) AS s(v);
         CHECKPOINT; SET filter_history = off; SET index_scan = off; SET split = h0",
    )
    .await;
    let conditions = [
        "tag LIKE '%x%'",
        "NOT (tag LIKE '%x%' OR w < 40)",
        "w > 95 AND part = 3",
        "w < 40 OR part IS NULL",
        "w >= 50.5 AND id > 100",
        "100 / (id - 7) >= 0 AND id > 7 AND w < 60",
    ];
    for (round, change) in
        ["SELECT 1", "DELETE FROM far WHERE id % 3 = 0", "UPDATE far SET tag = 'xx' WHERE id < 900"]
            .into_iter()
            .enumerate()
    {
        run(&mut session, change).await;
        let mut tasks = Vec::new();
        for condition in conditions {
            let sql = format!("SELECT count(*), sum(id), max(note) FROM far WHERE {condition}");
            let expected = found(&mut session, &sql).await;
            let mut other = database.session();
            let split = if round == 1 { "host" } else { "h0" };
            run(&mut other, &format!("SET split = {split}; SET index_scan = off")).await;
            tasks.push(async move {
                for _ in 0..3 {
                    assert_eq!(found(&mut other, &sql).await, expected, "{sql}");
                }
            });
        }
        futures::future::join_all(tasks).await;
    }
}
