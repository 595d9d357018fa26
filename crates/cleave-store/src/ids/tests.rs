//! Tests of RecIDs: every field survives, limits are refused.

use proptest::prelude::{any, prop_assert_eq, proptest};

use super::{PAGE_MAX, RecId, SEGMENT_MAX, SegmentId};
use crate::StoreError;

proptest! {
    #[test]
    fn fields_survive(segment in 1..=SEGMENT_MAX, page in 0..=PAGE_MAX, slot in any::<u16>()) {
        let rec_id = RecId::new(SegmentId(segment), page, slot).unwrap();
        prop_assert_eq!((rec_id.segment().0, rec_id.page(), rec_id.slot()), (segment, page, slot));
        prop_assert_eq!(RecId::from_bits(rec_id.bits()), Some(rec_id));
    }
}

#[test]
fn beyond_the_limits_there_is_no_rec_id() {
    for (segment, page) in [(0, 0), (SEGMENT_MAX + 1, 0), (1, PAGE_MAX + 1)] {
        assert!(matches!(
            RecId::new(SegmentId(segment), page, 0),
            Err(StoreError::OutOfRange { .. })
        ));
    }
    assert_eq!(RecId::from_bits(0), None);
    assert_eq!(RecId::from_bits((1 << 40) - 1), None);
    assert_eq!(RecId::new(SegmentId(3), 5, 7).unwrap().to_string(), "3/5/7");
}
