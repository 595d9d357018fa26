//! What a record says of VIDs.

use proptest::collection::btree_set;
use proptest::prelude::*;

use super::{gaps, vids};

proptest! {
    #[test]
    fn ended_rows_come_back(ended in btree_set(0..u64::MAX, 0..50)) {
        prop_assert_eq!(vids(&gaps(&ended)), ended);
    }
}
