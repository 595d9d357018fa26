//! Snapshots and pages.

use proptest::prelude::proptest;
use proptest::prop_assert;

use super::{PageVisibility, Snapshot};

proptest! {
    #[test]
    fn a_page_is_judged_as_its_rows_are(snapshot in 0u64..9, low in 0u64..9, more in 0u64..4) {
        let snapshot = Snapshot { commit: snapshot };
        let seen: Vec<bool> = (low..=low + more).map(|commit| snapshot.sees(commit)).collect();
        match snapshot.page_visibility(low, low + more, true) {
            PageVisibility::All => prop_assert!(seen.iter().all(|seen| *seen)),
            PageVisibility::None => prop_assert!(!seen.iter().any(|seen| *seen)),
            PageVisibility::Each => prop_assert!(seen.contains(&true) && seen.contains(&false)),
        }
    }
}

#[test]
fn an_open_run_is_never_seen() {
    assert!(!Snapshot { commit: u64::MAX }.sees(0));
    assert_eq!(Snapshot { commit: 5 }.page_visibility(0, 0, true), PageVisibility::None);
}

#[test]
fn superseded_pages_are_asked_row_by_row() {
    assert_eq!(Snapshot { commit: 5 }.page_visibility(3, 3, false), PageVisibility::Each);
    assert_eq!(Snapshot { commit: 5 }.page_visibility(3, 3, true), PageVisibility::All);
    assert_eq!(Snapshot { commit: 2 }.page_visibility(3, 3, false), PageVisibility::None);
}
