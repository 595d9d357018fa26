//! A comparison that cannot fail would be worth nothing.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, StringArray};
use arrow::record_batch::RecordBatch;

use super::Rows;

fn batch(ids: Vec<Option<i32>>, sums: Vec<f64>, names: Vec<&str>) -> RecordBatch {
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int32Array::from(ids))),
        ("sum", Arc::new(Float64Array::from(sums))),
        ("name", Arc::new(StringArray::from(names))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn rows(batches: &[RecordBatch], is_ordered: bool) -> Rows {
    Rows::new(batches, is_ordered).unwrap()
}

#[test]
fn order_and_batches_do_not_matter_without_order_by() {
    let one = batch(vec![Some(1), None], vec![0.5, 2.0], vec!["a", "b"]);
    let parts =
        [batch(vec![None], vec![2.0], vec!["b"]), batch(vec![Some(1)], vec![0.5], vec!["a"])];
    assert_eq!(rows(std::slice::from_ref(&one), false).difference(&rows(&parts, false)), None);
    assert!(rows(&[one], true).difference(&rows(&parts, true)).is_some());
}

#[test]
fn floats_may_differ_by_rounding_only() {
    let sums = |value: f64| rows(&[batch(vec![Some(1)], vec![value], vec!["a"])], false);
    assert_eq!(sums(0.3).difference(&sums(0.1 + 0.2)), None);
    assert_eq!(sums(f64::NAN).difference(&sums(f64::NAN)), None);
    assert!(sums(0.3).difference(&sums(0.300_000_01)).is_some());
    assert!(sums(0.3).difference(&sums(f64::NAN)).is_some());
}

#[test]
fn every_other_difference_is_found() {
    let base = rows(&[batch(vec![Some(1)], vec![1.0], vec!["a"])], false);
    for other in [
        batch(vec![Some(2)], vec![1.0], vec!["a"]),
        batch(vec![None], vec![1.0], vec!["a"]),
        batch(vec![Some(1)], vec![1.0], vec!["A"]),
        batch(vec![Some(1), Some(1)], vec![1.0, 1.0], vec!["a", "a"]),
        batch(vec![], vec![], vec![]),
    ] {
        assert!(base.difference(&rows(std::slice::from_ref(&other), false)).is_some(), "{other:?}");
    }
}

#[test]
fn null_is_not_the_text_null() {
    let text: ArrayRef = Arc::new(StringArray::from(vec![Some("")]));
    let null: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
    let one = |array| RecordBatch::try_from_iter_with_nullable([("x", array, true)]).unwrap();
    assert!(rows(&[one(text)], false).difference(&rows(&[one(null)], false)).is_some());
}
