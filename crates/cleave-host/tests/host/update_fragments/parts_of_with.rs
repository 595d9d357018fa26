//! Data-modifying parts of WITH as fragments: what each part changes and returns is what the host does, all parts read
//! one snapshot, and a part that fails or comes too late undoes the others.

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;

use super::{fragments, two_tables};
use crate::support::{assert_no_leak, assert_no_leak_soon, fresh, refused, row, rows, run, waits};
use crate::twin_tables::on_both;

/// Statements, and whether a fragment runs one of their parts.
const PARTS: [(&str, bool); 9] = [
    (
        "WITH up AS (UPDATE @ SET price = price + 1 WHERE id % 10 = 3 RETURNING id, price) \
         SELECT count(*), sum(id), sum(price) FROM up",
        true,
    ),
    // The main statement reads the rows as they were.
    (
        "WITH up AS (UPDATE @ SET price = price + 100 WHERE id % 10 = 5 RETURNING 1) \
         SELECT count(*), sum(price) FROM @",
        true,
    ),
    (
        "WITH gone AS (DELETE FROM @ WHERE id % 13 = 2 RETURNING id, note), \
              up AS (UPDATE other SET factor = factor WHERE kind = 3 RETURNING factor) \
         SELECT count(*), min(note), (SELECT count(*) FROM up), (SELECT count(*) FROM @) FROM gone",
        true,
    ),
    ("WITH up AS (UPDATE other SET factor = factor WHERE kind = 3) UPDATE @ SET small = 3", true),
    ("WITH up AS (UPDATE @ SET small = 4 WHERE id % 10 = 4) SELECT 1", true),
    // The rows of a part are sent to the fragment.
    (
        "WITH few AS (DELETE FROM other WHERE kind = 1000 RETURNING kind) \
         UPDATE @ SET small = 5 WHERE NOT EXISTS (SELECT 1 FROM few) AND id % 10 = 6 RETURNING id",
        true,
    ),
    // Two parts change rows of one table: each row once.
    (
        "WITH gone AS (DELETE FROM @ WHERE id % 17 = 2 RETURNING id) \
         UPDATE @ SET small = 6 WHERE id % 17 < 3 RETURNING (SELECT count(*) FROM gone)",
        false,
    ),
    (
        "WITH up AS (UPDATE @ SET kind = kind WHERE id % 10 = 1 RETURNING id) SELECT sum(id) FROM up",
        false,
    ),
    ("WITH up AS (UPDATE @ SET price = 1 RETURNING 1 / (id - 9)) SELECT count(*) FROM up", true),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_change_what_the_parts_of_a_statement_change() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    two_tables(&mut session, 12_000).await;
    for locking in ["shared", "optimistic"] {
        run(&mut session, &format!("SET update_locking = {locking}")).await;
        for (sql, by_fragment) in PARTS {
            on_both(&database, &mut session, (sql, "*"), by_fragment).await;
        }
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_fails_or_is_late_undoes_what_fragments_have_changed() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE log (n bigint)")
        .await;
    run(&mut session, "INSERT INTO a SELECT v, 0 FROM generate_series(1, 20000) AS s(v)").await;
    run(&mut session, "CHECKPOINT; SET update_placement = device").await;
    let before = fragments(&database).await;
    let up = "WITH up AS (UPDATE a SET n = n + 1 WHERE id % 5000 = 1 RETURNING id, n)";
    let fails = format!("{up} INSERT INTO log SELECT 1 / (count(*) - 4) FROM up");
    assert_eq!(refused(&mut session, &fails).await.sqlstate(), "22012");
    assert_eq!(fragments(&database).await, before + 1);
    assert_eq!(row(&mut session, "SELECT sum(n) FROM a").await, "0");

    // In a block: over what the block has changed before, and undone to its savepoint.
    let adds = format!("{up} INSERT INTO log SELECT sum(n) FROM up");
    run(&mut session, "BEGIN; UPDATE a SET n = 10 WHERE id < 3").await;
    run(&mut session, &format!("{adds}; SAVEPOINT s; {adds}")).await;
    assert_eq!(rows(&mut session, "SELECT n FROM log ORDER BY n").await, ["14", "18"]);
    run(&mut session, "ROLLBACK TO s; COMMIT").await;
    assert_eq!(row(&mut session, "SELECT sum(n), max(n) FROM a").await, "24,11");
    assert_eq!(rows(&mut session, "SELECT n FROM log").await, ["14"]);

    // Another transaction is faster: all parts run again, on a later snapshot, or fail if theirs is kept.
    for (level, end) in [("READ COMMITTED", None), ("REPEATABLE READ", Some("40001"))] {
        run(&mut session, "UPDATE a SET n = 0; CHECKPOINT; DELETE FROM log").await;
        run(&mut session, "BEGIN; UPDATE a SET n = 7 WHERE id = 5001").await;
        let (other, adds) = (Arc::clone(&database), adds.clone());
        let mut task = SpawnedTask::spawn(async move {
            let mut session = other.session();
            run(&mut session, "SET update_placement = device").await;
            run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            let ended = session.run(&adds).await.map(drop);
            run(&mut session, if ended.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
            ended.err().map(|error| error.sqlstate())
        });
        assert!(waits(&mut task).await, "{level}");
        run(&mut session, "COMMIT").await;
        assert_eq!(task.await.unwrap(), end, "{level}");
        let sums = "SELECT (SELECT sum(n) FROM a), (SELECT sum(n) FROM log)";
        let wanted = if end.is_none() { "11,11" } else { "7,NULL" };
        assert_eq!(row(&mut session, sums).await, wanted, "{level}");
    }
    assert_no_leak_soon(&database).await;
}
