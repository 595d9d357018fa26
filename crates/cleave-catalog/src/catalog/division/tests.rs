//! A division says which rows are together, writes itself as SQL, and spreads tablets over devices by weight.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, StringArray};
use cleave_store::Column;
use proptest::collection::vec;
use proptest::prelude::proptest;
use proptest::{prop_assert, prop_assert_eq};

use super::*;
use crate::catalog::index_definition::IndexColumn;

fn schema() -> TableSchema {
    let column = |id, name: &str, column_type| Column {
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
        columns: vec![
            column(1, "id", ColumnType::Int),
            column(2, "note", ColumnType::Text),
            column(3, "x", ColumnType::Double),
        ],
        primary_key: Vec::new(),
    }
}

fn index(columns: Vec<IndexColumn>) -> IndexDefinition {
    IndexDefinition { id: 1, name: "i".to_owned(), columns, unique: true, constraint: false }
}

fn range(id: u32, values: ArrayRef) -> Division {
    let keys = RangeBounds::keys_of(&values).unwrap();
    Division::Range(id, RangeBounds::of_keys(values.data_type(), keys).unwrap())
}

#[test]
fn it_is_written_as_create_table_has_it() {
    let numbers = range(1, Arc::new(Int32Array::from(vec![-5, 0, 70])));
    assert_eq!(numbers.describe(&schema()), "range (id), bounds = (-5, 0, 70)");
    assert_eq!(numbers.kind(&schema()), "range (id)");
    let texts = range(2, Arc::new(StringArray::from(vec!["it", "it's"])));
    assert_eq!(texts.describe(&schema()), "range (note), bounds = ('it', 'it''s')");
    let floats = range(3, Arc::new(Float64Array::from(vec![1.5, f64::INFINITY, f64::NAN])));
    assert_eq!(floats.describe(&schema()), "range (x), bounds = (1.5, 'Infinity', 'NaN')");
    assert_eq!(Division::Hash(vec![2, 1]).describe(&schema()), "hash (note, id)");
    assert_eq!(Division::RoundRobin.describe(&schema()), "round_robin");
}

#[test]
fn rows_with_one_key_are_together_where_the_key_has_the_dividing_columns() {
    let by_id = range(1, Arc::new(Int32Array::from(vec![0])));
    let ascending = |ids: &[u32]| index(ids.iter().copied().map(IndexColumn::ascending).collect());
    assert!(by_id.holds_together(&ascending(&[1])) && by_id.holds_together(&ascending(&[2, 1])));
    assert!(!by_id.holds_together(&ascending(&[2])));
    for other in [Division::LoadOrder, Division::RoundRobin] {
        assert!(!other.holds_together(&ascending(&[1, 2, 3])), "{other:?}");
    }
}

#[test]
fn only_an_index_in_the_order_of_the_bounds_tells_tablets() {
    let by_id = range(1, Arc::new(Int32Array::from(vec![0, 10])));
    let all = KeyRange::default();
    let key = |value: i32| -> Vec<u8> {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![value]));
        RangeBounds::keys_of(&values).unwrap().remove(0)
    };
    let some = KeyRange { from: key(0), below: Some(key(10)) };
    let fitting = index(vec![IndexColumn::ascending(1), IndexColumn::ascending(2)]);
    assert_eq!(by_id.tablets_of_keys(&fitting, &some), Some(1..=1));
    assert_eq!(by_id.tablets_of_keys(&fitting, &all), Some(0..=2));
    for other in [
        index(vec![IndexColumn::ascending(2), IndexColumn::ascending(1)]),
        index(vec![IndexColumn { descending: true, ..IndexColumn::ascending(1) }]),
        index(vec![IndexColumn { nulls_first: true, ..IndexColumn::ascending(1) }]),
    ] {
        assert_eq!(by_id.tablets_of_keys(&other, &some), None, "{other:?}");
    }
    assert_eq!(Division::Hash(vec![1]).tablets_of_keys(&fitting, &some), None);
}

#[test]
fn tablets_are_spread_by_weight() {
    assert_eq!(spread(&[1, 1, 1], 5), [0, 1, 2, 0, 1]);
    assert_eq!(spread(&[3, 1], 4), [0, 0, 1, 0]);
    assert_eq!(spread(&[3, 1], 8), [0, 0, 1, 0, 0, 0, 1, 0]);
    // Each device has one, whatever it weighs.
    assert_eq!(spread(&[64, 1], 2), [0, 1]);
    assert_eq!(spread(&[1, 64, 1], 4), [1, 0, 2, 1]);
    assert!(spread(&[], 3).is_empty());
}

proptest! {
    #[test]
    fn equal_weights_are_taken_in_turn(devices in 1_usize..9, more in 0_usize..30) {
        let expected: Vec<usize> = (0..devices).cycle().take(devices + more).collect();
        prop_assert_eq!(spread(&vec![2; devices], devices + more), expected);
    }

    #[test]
    fn every_device_has_its_share(weights in vec(1_u32..9, 1..6), more in 0_usize..40) {
        let count = weights.len() + more;
        let found = spread(&weights, count);
        prop_assert_eq!(found.len(), count);
        let sum: u32 = weights.iter().sum();
        for (place, weight) in weights.iter().enumerate() {
            let own = found.iter().filter(|device| **device == place).count();
            let due = count as f64 * f64::from(*weight) / f64::from(sum);
            prop_assert!(own >= 1);
            // The device that each has at least may be taken from the others.
            let slack = weights.len() as f64;
            prop_assert!((own as f64 - due).abs() <= slack, "{found:?} of {weights:?}");
        }
    }
}
