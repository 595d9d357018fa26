//! Tests of the VIDs in a record.

use proptest::collection::btree_set;
use proptest::prelude::*;

use super::{gaps, vids};

proptest! {
    #[test]
    fn dead_rows_come_back(dead in btree_set(0..u64::MAX, 0..50)) {
        let gaps = gaps(&dead.iter().copied().collect());
        prop_assert!(vids(&gaps).eq(dead));
    }
}
