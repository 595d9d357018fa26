//! Tests of the slots of the result ring: their size follows the predicted result, or the setting, and the rows are the
//! same.

use crate::devices::with_nas;
use crate::support::{assert_no_leak, row, rows, run};

/// The slot size that EXPLAIN ANALYZE shows for the only fragment.
fn slot_size(plan: &[String]) -> &str {
    let line = plan.iter().find(|line| line.trim_start().starts_with("slots: "));
    let line = line.unwrap_or_else(|| panic!("no fragment ran on a device: {plan:#?}"));
    line.split("of up to ").nth(1).unwrap().split(',').next().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn little_comes_in_small_slots_and_much_in_large_ones() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "ANALYZE far; SET split = h0; SET stealing = off; SET index_scan = off")
        .await;
    let (few, many) = ("SELECT id FROM far WHERE id < 5", "SELECT id, note FROM far WHERE id >= 5");
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {few}")).await;
    assert_eq!(slot_size(&plan), "1kB", "{plan:#?}");
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {many}")).await;
    let large: u32 = slot_size(&plan).trim_end_matches("kB").parse().unwrap_or(1024);
    assert!(large >= 8, "{plan:#?}");
    let expected = rows(&mut session, many).await;
    assert_eq!(expected.len(), 19_996);
    for size in ["1kB", "8kB", "1MB"] {
        run(&mut session, &format!("SET slot_bytes = '{size}'")).await;
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {many}")).await;
        assert_eq!(slot_size(&plan), size, "{plan:#?}");
        let mut found = rows(&mut session, many).await;
        let mut expected = expected.clone();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
    run(&mut session, "SET slot_bytes = auto").await;
    assert_eq!(row(&mut session, "SHOW slot_bytes").await, "auto");
    assert_no_leak(&database);
}
