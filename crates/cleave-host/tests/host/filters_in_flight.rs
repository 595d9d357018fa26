//! Tests of dynamic filters: what operators above a cut learn while the fragment runs reaches its scan.

use crate::stealing::two_tables;
use crate::support::{rows, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_top_k_above_a_join_stops_rows_on_the_device() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, _database, _served, mut session) = two_tables(outside.path()).await;
    // The rows that are kept come first, and the device is never far ahead.
    let sql = "SELECT m.id, m.note, f.kind FROM few f RIGHT JOIN many m ON f.id = m.few AND f.kind > 2 \
               ORDER BY m.id LIMIT 5";
    run(&mut session, "SET split = host").await;
    let expected = rows(&mut session, sql).await;
    run(
        &mut session,
        "SET split = h0; SET slot_bytes = '4kB'; SET slot_count = 1; SET threads = 1",
    )
    .await;
    for stealing in ["off", "always"] {
        run(&mut session, &format!("SET stealing = {stealing}")).await;
        assert_eq!(rows(&mut session, sql).await, expected, "stealing {stealing}");
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
        let of_many = plan.split("  scans: many on device").nth(1).unwrap_or_default();
        let count = of_many.split("  rows: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        assert!(of_many.contains("  filters in flight: "), "{plan}");
        // The number depends on the machine's pace; that a filter stops rows is tested with a run that stands still.
        assert!(count.parse::<u64>().unwrap() < 60_000, "{plan}");
    }
}
