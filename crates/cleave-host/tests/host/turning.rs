//! Pieces of a plan that turn to the other side when the keys of the joins above are known, and give the same rows there.

use crate::prepared::behind_a_slow_link;
use crate::support::{assert_no_leak, row, rows, run};

/// What was decided again of the scan of `far`.
fn decided(plan: &[String]) -> Option<&str> {
    plan.iter().find_map(|line| line.trim().strip_prefix("decided again: "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_keys_contradict_turns() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = behind_a_slow_link(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET stealing = off; SET index_scan = off").await;
    run(&mut session, "CREATE TABLE near (k int PRIMARY KEY, note text)").await;
    // Nothing is known of it but how many rows it has.
    let filled = "INSERT INTO near SELECT v, CASE WHEN v < 4 THEN 'other' ELSE 'note' END FROM generate_series(0, 59999) AS s(v)";
    run(&mut session, filled).await;
    let join = "SELECT count(*), min(f.note), max(f.note) FROM near JOIN far f ON f.id = near.k WHERE";
    // Every row has all of it, which nobody would expect; next to none is what it is not.
    let all = "near.note LIKE '%o%' AND near.note LIKE '%t%' AND near.note LIKE '%e%' AND near.k >= 0 AND near.note LIKE '%_%'";
    let few = "near.note <> 'note'";
    for (condition, side) in [(all, "for the host"), (few, "for the device")] {
        let sql = format!("{join} {condition}");
        run(&mut session, "SET split = host").await;
        let expected = row(&mut session, &sql).await;
        run(&mut session, "SET split = auto").await;
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
        assert!(decided(&plan).is_some_and(|line| line.starts_with(side)), "{plan:#?}");
        assert_eq!(row(&mut session, &sql).await, expected, "{sql}");
        // A forced split is as it was forced.
        run(&mut session, "SET split = h0").await;
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
        assert_eq!(decided(&plan), None, "{plan:#?}");
    }
    assert_no_leak(&database);
}
