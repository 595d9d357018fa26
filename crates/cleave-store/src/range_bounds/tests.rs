//! Ranges have the order of SQL, rows without a value lie in the last tablet, and what is no bound is refused.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array,
    Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::DataType;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::{any, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::RangeBounds;
use crate::index::key::{IndexKey, KeyColumn};
use crate::index::{KeyRange, after_prefix};
use crate::schema::{Column, ColumnType, TableSchema};
use crate::tablet_key::TabletKey;

fn bounds(values: &ArrayRef) -> RangeBounds {
    let keys = RangeBounds::keys_of(values).unwrap();
    RangeBounds::of_keys(values.data_type(), keys).unwrap()
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

/// A table of one column.
fn schema(column_type: ColumnType) -> TableSchema {
    let column = Column {
        id: 3,
        name: "c".into(),
        column_type,
        not_null: false,
        default: None,
        absent: None,
    };
    TableSchema {
        table_id: 1,
        version: 1,
        name: "t".into(),
        columns: vec![column],
        primary_key: Vec::new(),
    }
}

/// The tablets of `values` between `limits`, in a table whose column is of `column_type`.
fn tablets(column_type: ColumnType, limits: &ArrayRef, values: &ArrayRef) -> Vec<u32> {
    let bounds = bounds(limits);
    let count = u32::try_from(bounds.tablet_count()).unwrap();
    let key = TabletKey::of_ranges(&schema(column_type), 3, bounds).unwrap();
    key.tablets_of(&[Arc::clone(values)], count).unwrap()
}

#[test]
fn a_bound_belongs_to_the_tablet_above_it() {
    let limits: ArrayRef = Arc::new(Int32Array::from(vec![-1000, -1, 0, 70]));
    let values = [Some(i32::MIN), Some(-1001), Some(-1000), Some(-2), Some(-1), Some(0), Some(69)];
    let values = values.into_iter().chain([Some(70), Some(i32::MAX), None]);
    let values: ArrayRef = Arc::new(values.collect::<Int32Array>());
    assert_eq!(tablets(ColumnType::Int, &limits, &values), [0, 0, 1, 1, 2, 3, 3, 4, 4, 4]);
}

#[test]
fn every_type_has_the_order_of_sql() {
    // C order: capitals first, and by bytes of UTF-8.
    let found =
        tablets(ColumnType::Text, &texts(&["a", "ab", "é"]), &texts(&["", "Z", "a", "aa", "b"]));
    assert_eq!(found, [0, 0, 1, 1, 2]);
    let long = "a long text of more than one block";
    let longer = format!("{long}s");
    let values = texts(&[long.split_at(20).0, long, longer.as_str(), "é"]);
    let found = tablets(ColumnType::Text, &texts(&[long]), &values);
    assert_eq!(found, [0, 1, 1, 1]);
    let floats = |values: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
    let found = tablets(
        ColumnType::Double,
        &floats(vec![-1.5, 0.0, f64::NAN]),
        &floats(vec![f64::NEG_INFINITY, -1.5, -0.0, 0.0, f64::INFINITY, f64::NAN, -f64::NAN]),
    );
    assert_eq!(found, [0, 1, 2, 2, 2, 3, 3]);
    let numerics = |values: Vec<i128>| -> ArrayRef {
        let values = Decimal128Array::from(values);
        Arc::new(values.with_precision_and_scale(20, 3).unwrap())
    };
    let numeric = ColumnType::Numeric { precision: 20, scale: 3 };
    let limits = numerics(vec![-5000, 1001]);
    let values = numerics(vec![-5001, -5000, 0, 1000, 1001, i128::from(i64::MAX)]);
    assert_eq!(tablets(numeric, &limits, &values), [0, 1, 1, 1, 2, 2]);
    let dates = |values: Vec<i32>| -> ArrayRef { Arc::new(Date32Array::from(values)) };
    let found = tablets(ColumnType::Date, &dates(vec![-365, 0]), &dates(vec![-366, -365, -1, 0]));
    assert_eq!(found, [0, 1, 1, 2]);
    let moments = |values: Vec<i64>| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"))
    };
    let found = tablets(
        ColumnType::TimestampTz,
        &moments(vec![-1, 1_700_000_000_000_000]),
        &moments(vec![i64::MIN, -1, 0, 1_700_000_000_000_000, i64::MAX]),
    );
    assert_eq!(found, [0, 1, 1, 2, 2]);
    let flags = |values: Vec<bool>| -> ArrayRef { Arc::new(BooleanArray::from(values)) };
    let found = tablets(ColumnType::Boolean, &flags(vec![true]), &flags(vec![false, true]));
    assert_eq!(found, [0, 1]);
    let bytes = |values: Vec<&[u8]>| -> ArrayRef { Arc::new(BinaryArray::from(values)) };
    let limits = bytes(vec![b"\x00".as_slice(), b"\xff\x00".as_slice()]);
    let values =
        [b"".as_slice(), b"\x00".as_slice(), b"\xff".as_slice(), b"\xff\x00\x01".as_slice()];
    let found = tablets(ColumnType::Bytea, &limits, &bytes(values.to_vec()));
    assert_eq!(found, [0, 1, 1, 2]);
}

#[test]
fn bounds_are_read_back() {
    let values: ArrayRef =
        Arc::new(StringArray::from(vec!["", "amber", "long ".repeat(40).as_str()]));
    assert_eq!(&bounds(&values).values(values.data_type()).unwrap(), &values);
}

#[test]
fn what_is_no_bound_is_refused() {
    let numbers = DataType::Int64;
    let keys = |values: Vec<Option<i64>>| -> Vec<Vec<u8>> {
        RangeBounds::keys_of(&(Arc::new(Int64Array::from(values)) as ArrayRef)).unwrap()
    };
    assert!(RangeBounds::of_keys(&numbers, keys(vec![Some(1), Some(2)])).is_ok());
    let mut cut = keys(vec![Some(1)]);
    cut[0].pop();
    let mut longer = keys(vec![Some(1)]);
    longer[0].push(0);
    for (strange, reason) in [
        (Vec::new(), "none"),
        (keys(vec![Some(2), Some(2)]), "ascend"),
        (keys(vec![Some(2), Some(1)]), "ascend"),
        (keys(vec![Some(2), None]), "NULL"),
        (vec![vec![1; 3000]], "too long"),
        (cut, "does not fit"),
        (longer, "does not fit"),
        (vec![Vec::new()], "does not fit"),
        (vec![vec![7; 9]], "does not fit"),
    ] {
        let error = RangeBounds::of_keys(&numbers, strange).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    // Of another type.
    assert!(RangeBounds::of_keys(&DataType::Int32, keys(vec![Some(1)])).is_err());
    assert!(RangeBounds::of_keys(&DataType::Utf8, keys(vec![Some(1)])).is_err());
    let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(5000)]));
    assert!(RangeBounds::keys_of(&long).is_err());
}

proptest! {
    #[test]
    fn a_row_lies_above_as_many_bounds_as_are_not_above_it(
        limits in btree_set(any::<i64>(), 1..12),
        values in vec(option::of(any::<i64>()), 1..40),
    ) {
        let limits: Vec<i64> = limits.into_iter().collect();
        let values: Vec<Option<i64>> =
            values.into_iter().chain(limits.iter().copied().map(Some)).collect();
        let of_limits: ArrayRef = Arc::new(Int64Array::from(limits.clone()));
        let of_values: ArrayRef = Arc::new(Int64Array::from(values.clone()));
        let found = tablets(ColumnType::BigInt, &of_limits, &of_values);
        for (value, tablet) in values.iter().zip(found) {
            let expected = match value {
                Some(value) => limits.iter().filter(|limit| *limit <= value).count(),
                None => limits.len(),
            };
            prop_assert_eq!(tablet as usize, expected);
        }
    }

    #[test]
    fn entries_of_a_range_of_keys_lie_in_its_tablets(
        limits in btree_set("[a-c]{0,3}", 1..6),
        rows in vec((option::of("[a-c]{0,4}"), any::<i32>()), 1..30),
        ends in ("[a-c]{0,3}", "[a-c]{0,3}"),
    ) {
        let limits: ArrayRef = Arc::new(limits.into_iter().collect::<Vec<_>>().into_iter().map(Some)
            .collect::<StringArray>());
        let bounds = bounds(&limits);
        let types = [DataType::Utf8, DataType::Int32];
        let key = IndexKey::new(types.map(KeyColumn::ascending).to_vec(), false).unwrap();
        let texts: ArrayRef = Arc::new(rows.iter().map(|row| row.0.clone()).collect::<StringArray>());
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1)));
        let entries = key.entries(&[Arc::clone(&texts), numbers], 1..).unwrap();
        let found = tablets(ColumnType::Text, &limits, &texts);
        let end = |text: &String| {
            key.prefix(&[Arc::new(StringArray::from(vec![text.as_str()])) as ArrayRef]).unwrap()
        };
        let (from, last) = (end(&ends.0), end(&ends.1));
        for range in [
            KeyRange { from: from.clone(), below: after_prefix(&last) },
            KeyRange { from: from.clone(), below: Some(last) },
            KeyRange { from, below: None },
            KeyRange::default(),
        ] {
            for (entry, tablet) in entries.iter().flatten().zip(&found) {
                if range.has(entry) {
                    prop_assert!(bounds.tablets(&range).contains(&(*tablet as usize)));
                }
            }
        }
    }
}
