//! The tablet of a row: stable, evenly spread, and the same for equal values.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{any, proptest};
use proptest::prop_assert_eq;

use super::TabletKey;
use crate::schema::{Column, ColumnType, TableSchema};

fn schema(types: &[ColumnType]) -> TableSchema {
    let column = |(id, column_type): (u32, &ColumnType)| Column {
        id,
        name: format!("c{id}"),
        column_type: *column_type,
        not_null: false,
        default: None,
        absent: None,
    };
    TableSchema {
        table_id: 1,
        version: 1,
        name: "t".into(),
        columns: (1..).zip(types).map(column).collect(),
        primary_key: Vec::new(),
    }
}

fn tablets(types: &[ColumnType], values: &[ArrayRef], count: u32) -> Vec<u32> {
    let ids: Vec<u32> = (1..).take(types.len()).collect();
    let key = TabletKey::new(&schema(types), &ids).unwrap();
    key.tablets_of(values, count).unwrap()
}

fn integers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// Rows lie where they were put: another answer here would lose them.
#[test]
fn the_tablet_of_a_row_never_changes() {
    let ids = tablets(&[ColumnType::BigInt], &[integers(0..16)], 5);
    assert_eq!(ids, GOLDEN_IDS);
    let words: ArrayRef = Arc::new(StringArray::from(vec![
        Some(""),
        None,
        Some("amber"),
        Some("a longer text, of two blocks or more"),
    ]));
    assert_eq!(tablets(&[ColumnType::Text], &[words], 1000), GOLDEN_WORDS);
}

const GOLDEN_IDS: [u32; 16] = [1, 0, 4, 2, 3, 4, 1, 0, 3, 2, 3, 4, 1, 1, 4, 0];
const GOLDEN_WORDS: [u32; 4] = [125, 731, 647, 779];

#[test]
fn tablets_are_about_equally_large() {
    for count in [2_u32, 3, 5, 64] {
        let mut sizes = vec![0_u32; count as usize];
        for tablet in tablets(&[ColumnType::BigInt], &[integers(0..64_000)], count) {
            sizes[tablet as usize] += 1;
        }
        let mean = 64_000 / count;
        let largest = sizes.iter().map(|size| size.abs_diff(mean)).max().unwrap();
        assert!(largest < mean / 5, "{count} tablets: {sizes:?}");
    }
}

#[test]
fn a_table_without_the_column_is_refused() {
    assert!(TabletKey::new(&schema(&[ColumnType::Int]), &[2]).is_err());
    assert!(TabletKey::new(&schema(&[ColumnType::Int]), &[]).is_err());
}

#[test]
fn values_that_are_equal_are_together() {
    let zeros: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN]));
    let found = tablets(&[ColumnType::Double], &[zeros], 1_000_000);
    assert_eq!((found[0], found[2]), (found[1], found[3]));
}

proptest! {
    #[test]
    fn a_row_has_the_tablet_that_it_has_alone(
        rows in vec((option::of(any::<i64>()), option::of(".{0,40}")), 1..50),
        count in 1_u32..100,
    ) {
        let types = [ColumnType::BigInt, ColumnType::Text];
        let numbers: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>());
        let texts: ArrayRef = Arc::new(rows.iter().map(|row| row.1.as_deref()).collect::<StringArray>());
        let together = tablets(&types, &[Arc::clone(&numbers), Arc::clone(&texts)], count);
        for (place, tablet) in together.iter().enumerate() {
            assert!(*tablet < count);
            let alone = tablets(&types, &[numbers.slice(place, 1), texts.slice(place, 1)], count);
            prop_assert_eq!(alone.as_slice(), &[*tablet][..]);
        }
    }
}
