//! Tests of the VIDs in a record.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::{CommittedTablet, DeadRows, gaps_of, runs_of, vids_of_gaps, vids_of_runs};
use crate::write::vid_set::VidSet;

proptest! {
    #[test]
    fn dead_rows_come_back(dead in btree_set(0..u64::MAX, 0..50)) {
        let set: VidSet = dead.iter().copied().collect();
        prop_assert!(vids_of_gaps(&gaps_of(&set)).eq(dead.iter().copied()));
        prop_assert!(vids_of_runs(&runs_of(&set)).eq(dead));
    }

    #[test]
    fn runs_of_dead_rows_come_back_in_the_shorter_form(
        runs in vec((0_u64..4, 1_u64..9), 0..60),
    ) {
        let mut next = 0;
        let mut set = VidSet::default();
        for (gap, length) in runs {
            set.extend(next + gap..next + gap + length);
            next += gap + length;
        }
        let DeadRows { gaps, runs } = DeadRows::of(&set);
        prop_assert!(gaps.is_empty() || runs.is_empty());
        prop_assert!(gaps.len() + runs.len() <= set.len());
        let tablet = CommittedTablet { dead_gaps: gaps, dead_runs: runs, ..Default::default() };
        prop_assert!(tablet.dead().eq(set.iter()));
    }
}

#[test]
fn millions_of_rows_in_a_row_take_a_few_bytes() {
    let set: VidSet = (7..2_000_007).collect();
    assert_eq!(DeadRows::of(&set).runs, [7, 1_999_999]);
}
