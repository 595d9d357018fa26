//! Keys: their order is that of the values, and they decode.

use std::sync::Arc;

use arrow::array::types::{Float64Type, Int32Type};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{any, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::{INDEX_KEY_BYTES_MAX, IndexKey};
use crate::error::StoreError;
use crate::schema::{Column, ColumnType, TableSchema};

fn all_types() -> Vec<DataType> {
    vec![
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(20, 3),
        DataType::Boolean,
        DataType::Utf8,
        DataType::Date32,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Binary,
        DataType::FixedSizeBinary(16),
    ]
}

proptest! {
    #[test]
    fn keys_sort_as_rows_do(
        rows in vec((option::of(-3i32..3), option::of("[a-b\u{0}é]{0,3}")), 1..40)
    ) {
        let key = IndexKey::new(vec![DataType::Int32, DataType::Utf8]).unwrap();
        let numbers: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int32Array>());
        let texts: ArrayRef = Arc::new(rows.iter().map(|row| row.1.clone()).collect::<StringArray>());
        let keys = key.encode(&[numbers, texts]).unwrap();
        for (i, one) in rows.iter().enumerate() {
            for (j, other) in rows.iter().enumerate() {
                prop_assert_eq!(keys.value(i).cmp(keys.value(j)), one.cmp(other));
            }
        }
    }

    #[test]
    fn keys_decode(rows in vec((any::<i32>(), "\\PC{0,80}"), 1..20)) {
        let key = IndexKey::new(vec![DataType::Utf8, DataType::Int32]).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.1)));
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.0)));
        let keys = key.encode(&[Arc::clone(&texts), Arc::clone(&numbers)]).unwrap();
        let decoded = key.decode(&keys.iter().flatten().collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(&decoded, &vec![texts, numbers]);
    }

    #[test]
    fn foreign_bytes_never_panic(bytes in vec(0u8..4, 0..90), which in 0usize..14) {
        let key = IndexKey::new(vec![all_types()[which].clone()]).unwrap();
        drop(key.decode(&[&bytes]));
    }

    #[test]
    fn damaged_keys_never_panic(
        text in "\\PC{0,80}", number in any::<i32>(), at in any::<usize>(), bit in 0u8..8
    ) {
        let key = IndexKey::new(vec![DataType::Utf8, DataType::Int32]).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![number]));
        let mut bytes = key.encode_one(&[texts, numbers]).unwrap();
        let at = at % bytes.len();
        prop_assert!(key.decode(&[&bytes[..at]]).is_err());
        bytes[at] ^= 1 << bit;
        drop(key.decode(&[&bytes]));
    }
}

#[test]
fn every_type_has_keys_that_decode() {
    for data_type in all_types() {
        let key = IndexKey::new(vec![data_type.clone()]).unwrap();
        let null = arrow::array::new_null_array(&data_type, 1);
        let bytes = key.encode_one(&[null]).unwrap();
        let decoded = key.decode(&[&bytes]).unwrap();
        assert_eq!(decoded[0].data_type(), &data_type);
        assert!(decoded[0].is_null(0), "{data_type}");
    }
}

#[test]
fn floats_that_sql_holds_equal_have_one_key() {
    let key = IndexKey::new(vec![DataType::Float64]).unwrap();
    let floats = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, -1.0];
    let array: ArrayRef = Arc::new(Float64Array::from(floats.to_vec()));
    let keys = key.encode(&[array]).unwrap();
    assert_eq!(keys.value(0), keys.value(1));
    assert_eq!(keys.value(2), keys.value(3));
    assert!(keys.value(2) > keys.value(4), "NaN is above all, as in PostgreSQL");
    assert!(keys.value(5) < keys.value(0));
    let decoded = key.decode(&[keys.value(5)]).unwrap();
    assert!((decoded[0].as_primitive::<Float64Type>().value(0) + 1.0).abs() < f64::EPSILON);
}

#[test]
fn primary_key_columns_come_in_key_order() {
    let column = |id, name: &str, column_type| Column {
        id,
        name: name.into(),
        column_type,
        not_null: true,
        default: None,
    };
    let mut schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "t".into(),
        columns: vec![column(1, "a", ColumnType::Int), column(2, "b", ColumnType::Text)],
        primary_key: vec![2, 1],
    };
    let key = IndexKey::of_primary_key(&schema).unwrap().unwrap();
    assert_eq!(key.types(), [DataType::Utf8, DataType::Int32]);
    let batch = RecordBatch::try_new(
        schema.arrow(),
        vec![Arc::new(Int32Array::from(vec![7])), Arc::new(StringArray::from(vec!["x"]))],
    )
    .unwrap();
    let keys = key.encode_batch(&batch, &schema.primary_key_indices()).unwrap();
    let decoded = key.decode(&[keys.value(0)]).unwrap();
    assert_eq!(decoded[1].as_primitive::<Int32Type>().value(0), 7);
    key.encode_batch(&batch, &[1, 2]).unwrap_err();

    schema.primary_key.clear();
    assert!(IndexKey::of_primary_key(&schema).unwrap().is_none());
}

#[test]
fn ill_fitting_columns_are_refused() {
    let key = IndexKey::new(vec![DataType::Int32]).unwrap();
    let two: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    for columns in [vec![], vec![text], vec![Arc::clone(&two), Arc::clone(&two)]] {
        assert!(matches!(key.encode(&columns), Err(StoreError::Mismatch { .. })));
    }
    assert!(matches!(key.encode_one(&[two]), Err(StoreError::Mismatch { .. })));
    assert!(matches!(IndexKey::new(vec![]), Err(StoreError::Mismatch { .. })));
    let list = DataType::new_list(DataType::Int32, true);
    assert!(matches!(IndexKey::new(vec![list]), Err(StoreError::Mismatch { .. })));
}

#[test]
fn long_keys_are_refused() {
    let key = IndexKey::new(vec![DataType::Utf8]).unwrap();
    let text = |length| -> ArrayRef { Arc::new(StringArray::from(vec!["x".repeat(length)])) };
    key.encode(&[text(2_000)]).unwrap();
    assert!(matches!(key.encode(&[text(INDEX_KEY_BYTES_MAX)]), Err(StoreError::OutOfRange { .. })));
}
