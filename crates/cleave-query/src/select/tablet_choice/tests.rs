//! Tablets that conditions on the column of ranges leave: all with matches, and not more than needed.

use std::sync::Arc;

use cleave_store::{Column, ColumnType, TableSchema};
use datafusion::arrow::array::{Int32Array, StringArray};
use datafusion::logical_expr::{col, lit};
use proptest::prelude::{any, proptest};
use proptest::{collection, option, prop_assert};

use super::*;

fn schema() -> TableSchema {
    let column = |id: u32, name: &str, column_type| Column {
        id,
        name: name.to_owned(),
        column_type,
        not_null: false,
        default: None,
        absent: None,
    };
    TableSchema {
        table_id: 1,
        version: 1,
        name: "t".to_owned(),
        columns: vec![column(1, "n", ColumnType::Int), column(2, "s", ColumnType::Text)],
        primary_key: Vec::new(),
    }
}

fn ranges(values: ArrayRef) -> RangeBounds {
    let keys = RangeBounds::keys_of(&values).unwrap();
    RangeBounds::of_keys(values.data_type(), keys).unwrap()
}

/// The tablets that `filter` leaves of those between the bounds of the column `id`.
fn left(ranges: &RangeBounds, id: u32, filter: Expr) -> Vec<usize> {
    let bounds = bounds(&schema(), &[filter]);
    match bounds.get(&id) {
        Some(bounds) => in_ranges(ranges, bounds).into_iter().collect(),
        None => (0..ranges.tablet_count()).collect(),
    }
}

#[test]
fn ends_are_exact() {
    let thousands = ranges(Arc::new(Int32Array::from(vec![1000, 2000, 3000])));
    let n = || col("n");
    for (filter, expected) in [
        (n().eq(lit(1000)), vec![1]),
        (n().lt(lit(1000)), vec![0]),
        (n().lt_eq(lit(1000)), vec![0, 1]),
        (n().gt_eq(lit(2000)), vec![2, 3]),
        (lit(2000).lt_eq(n()), vec![2, 3]),
        (n().gt(lit(2999)), vec![2, 3]),
        (n().gt_eq(lit(1000)).and(n().lt(lit(2000))), vec![1]),
        (n().between(lit(-5), lit(999)), vec![0]),
        (n().in_list(vec![lit(5), lit(3000), lit(3001)], false), vec![0, 3]),
        (n().in_list(vec![lit(5), lit(3000)], false).and(n().lt(lit(1000))), vec![0]),
        (n().eq(lit(5)).or(n().eq(lit(2500))), vec![0, 2]),
        (n().is_null(), vec![3]),
        (n().is_null().or(n().eq(lit(5))), vec![0, 3]),
        (n().lt(lit(500)).and(n().gt(lit(2500))), vec![]),
        (n().is_not_null(), vec![0, 1, 2, 3]),
        (n().not_eq(lit(5)), vec![0, 1, 2, 3]),
        (col("s").eq(lit("x")), vec![0, 1, 2, 3]),
    ] {
        assert_eq!(left(&thousands, 1, filter.clone()), expected, "{filter}");
    }
    let letters = ranges(Arc::new(StringArray::from(vec!["b", "c"])));
    let s = || col("s");
    for (filter, expected) in [
        (s().like(lit("b%")), vec![1]),
        (s().like(lit("a%z")), vec![0]),
        (s().like(lit("%a")), vec![0, 1, 2]),
        (s().gt_eq(lit("bb")).and(s().lt(lit("c"))), vec![1]),
        // No index has such a key.
        (s().lt(lit("a".repeat(5000))), vec![0, 1, 2]),
    ] {
        assert_eq!(left(&letters, 2, filter.clone()), expected, "{filter}");
    }
}

proptest! {
    #[test]
    fn no_row_that_matches_is_left_out(
        limits in collection::btree_set(-20i32..20, 1..6),
        rows in collection::vec(option::of(-25i32..25), 1..40),
        ends in (-25i32..25, -25i32..25),
        kind in 0u8..6,
        in_order in any::<bool>(),
    ) {
        let ranges = ranges(Arc::new(limits.into_iter().map(Some).collect::<Int32Array>()));
        let (low, high) = if in_order { (ends.0.min(ends.1), ends.0.max(ends.1)) } else { ends };
        let n = || col("n");
        let (filter, holds): (Expr, Box<dyn Fn(i32) -> bool>) = match kind {
            0 => (n().lt(lit(high)), Box::new(move |n| n < high)),
            1 => (n().gt(lit(low)), Box::new(move |n| n > low)),
            2 => (n().between(lit(low), lit(high)), Box::new(move |n| n >= low && n <= high)),
            3 => {
                let within = n().gt_eq(lit(low)).and(n().lt(lit(high)));
                (within, Box::new(move |n| n >= low && n < high))
            }
            4 => {
                let list = n().in_list(vec![lit(low), lit(high)], false);
                (list, Box::new(move |n| n == low || n == high))
            }
            _ => {
                let both = n().lt(lit(low)).and(n().lt_eq(lit(high)));
                (both, Box::new(move |n| n < low && n <= high))
            }
        };
        let wanted = left(&ranges, 1, filter);
        for row in rows {
            let value: ArrayRef = Arc::new(Int32Array::from(vec![row]));
            let key = RangeBounds::keys_of(&value).unwrap().remove(0);
            if row.is_some_and(&holds) {
                prop_assert!(wanted.contains(&ranges.tablet(&key)), "{row:?} not in {wanted:?}");
            }
        }
    }
}
