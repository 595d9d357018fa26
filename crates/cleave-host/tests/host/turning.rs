//! Tests of parts of a plan that move to the other side when the keys of the joins above are known, with the same rows.

use crate::prepared::behind_a_slow_link;
use crate::support::{assert_no_leak, row, rows, run};

/// The revised decision about the scan of `far`.
fn decided(plan: &[String]) -> Option<&str> {
    plan.iter().find_map(|line| line.trim().strip_prefix("decided again: "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_keys_contradict_turns() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = behind_a_slow_link(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET stealing = off; SET index_scan = off; SET broadcast_bytes = 0").await;
    run(&mut session, "CREATE TABLE near (k int PRIMARY KEY, note text)").await;
    // Only its number of rows is known.
    let filled = "INSERT INTO near SELECT v, CASE WHEN v < 4 THEN 'other' ELSE 'note' END FROM generate_series(0, \
        59999) AS s(v)";
    run(&mut session, filled).await;
    let join =
        "SELECT count(*), min(f.note), max(f.note) FROM near JOIN far f ON f.id = near.k WHERE";
    // Every row matches, which nobody would expect; the opposite matches almost none.
    let all = "near.note LIKE '%o%' AND near.note LIKE '%t%' AND near.note LIKE '%e%' AND near.k >= 0 AND near.note \
        LIKE '%_%'";
    let few = "near.note <> 'note'";
    // In this order: pages that the host has read stay with the host from then on.
    for (condition, side) in [(few, "for the device"), (all, "for the host")] {
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {join} {condition}")).await;
        assert!(decided(&plan).is_some_and(|line| line.starts_with(side)), "{plan:#?}");
    }
    for condition in [few, all] {
        let sql = format!("{join} {condition}");
        let found = row(&mut session, &sql).await;
        for split in ["host", "h0"] {
            run(&mut session, &format!("SET split = {split}")).await;
            assert_eq!(row(&mut session, &sql).await, found, "{split}: {sql}");
            // A forced split is as it was forced.
            let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
            assert_eq!(decided(&plan), None, "{plan:#?}");
        }
        run(&mut session, "SET split = auto").await;
    }
    assert_no_leak(&database);
}
