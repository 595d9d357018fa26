//! Every row goes to one tablet, and no tablet gets two rows more than another.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use proptest::collection::vec;
use proptest::prelude::proptest;
use proptest::{prop_assert, prop_assert_eq};

use super::EqualShares;

fn rows(from: i64, count: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + count));
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

#[test]
fn what_is_left_over_goes_to_those_that_have_less() {
    let mut shares = EqualShares::new(vec![2, 0, 1]);
    let mut sizes = |count| -> Vec<(usize, usize)> {
        let parts = shares.divide(&rows(0, count));
        parts.iter().map(|(place, rows)| (*place, rows.num_rows())).collect()
    };
    assert_eq!(sizes(7), [(2, 3), (0, 2), (1, 2)]);
    assert_eq!(sizes(1), [(0, 1)]);
    // The last one is next, and then the first again.
    assert_eq!(sizes(5), [(2, 2), (0, 1), (1, 2)]);
    assert!(sizes(0).is_empty());
}

proptest! {
    #[test]
    fn shares_are_equal_however_rows_come(
        batches in vec(0_i64..40, 1..12),
        count in 1_usize..9,
    ) {
        let mut shares = EqualShares::new((0..count).rev().collect());
        let mut given: BTreeMap<usize, Vec<i64>> = (0..count).map(|at| (at, Vec::new())).collect();
        let mut first = 0;
        for batch in batches {
            for (place, part) in shares.divide(&rows(first, batch)) {
                let values = part.column(0).as_primitive::<Int64Type>().values();
                given.get_mut(&place).unwrap().extend_from_slice(values);
            }
            first += batch;
            let sizes = given.values().map(Vec::len);
            prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
        for own in given.values() {
            prop_assert!(own.is_sorted());
        }
        let mut all: Vec<i64> = given.into_values().flatten().collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..first).collect::<Vec<_>>());
    }
}
