//! What a record says of VIDs.

use proptest::collection::btree_set;
use proptest::prelude::*;

use super::{gaps, vids};

proptest! {
    #[test]
    fn ended_rows_come_back(ended in btree_set(0..u64::MAX, 0..50)) {
        let gaps = gaps(&ended.iter().copied().collect());
        prop_assert!(vids(&gaps).eq(ended));
    }
}
