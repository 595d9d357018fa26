//! Keys: their order is that of the values, and they decode.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::types::Float64Type;
use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int16Array, Int32Array, Int64Array, StringArray,
};
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{any, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::{INDEX_KEY_BYTES_MAX, IndexKey, KeyColumn, after_prefix};
use crate::error::StoreError;

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

/// Keys of a unique index, NULLs first, the order of Rust options.
fn unique(types: Vec<DataType>) -> IndexKey {
    let column = |data_type| KeyColumn { data_type, descending: false, nulls_first: true };
    IndexKey::new(types.into_iter().map(column).collect(), true).unwrap()
}

/// How SQL orders two values of a column.
fn compared<T: Ord>(column: &KeyColumn, one: &Option<T>, other: &Option<T>) -> Ordering {
    match (one, other) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) if column.nulls_first => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => compared(column, other, one).reverse(),
        (Some(one), Some(other)) if column.descending => other.cmp(one),
        (Some(one), Some(other)) => one.cmp(other),
    }
}

fn arrays(rows: &[(Option<i32>, Option<String>)]) -> [ArrayRef; 2] {
    let numbers: Int32Array = rows.iter().map(|row| row.0).collect();
    let texts: StringArray = rows.iter().map(|row| row.1.clone()).collect();
    [Arc::new(numbers), Arc::new(texts)]
}

proptest! {
    #[test]
    fn the_key_of_one_row_is_that_of_many(
        numbers in (any::<i16>(), any::<i32>(), any::<i64>()),
        text in "\\PC{0,80}",
        length in 0_usize..140,
        descending in any::<[bool; 5]>(),
    ) {
        let ascii = "x".repeat(length);
        let values: [ArrayRef; 5] = [
            Arc::new(Int16Array::from(vec![numbers.0])),
            Arc::new(Int32Array::from(vec![numbers.1])),
            Arc::new(StringArray::from(vec![text])),
            Arc::new(Int64Array::from(vec![numbers.2])),
            Arc::new(StringArray::from(vec![ascii])),
        ];
        let column = |(value, descending): (&ArrayRef, bool)| KeyColumn {
            descending,
            ..KeyColumn::ascending(value.data_type().clone())
        };
        let columns = values.iter().zip(descending).map(column);
        let key = IndexKey::new(columns.collect(), true).unwrap();
        let many = key.rows(&values).unwrap().try_into_binary().unwrap();
        prop_assert_eq!(&key.encode(&values).unwrap(), &many);
        prop_assert_eq!(key.encode_one(&values).unwrap(), many.value(0));
        prop_assert_eq!(super::single::single(key.columns(), &values).unwrap(), many.value(0));
        let first = key.prefix(&values[..3]).unwrap();
        prop_assert!(many.value(0).starts_with(&first));
    }

    #[test]
    fn entries_sort_as_their_columns_say(
        rows in vec((option::of(-3i32..3), option::of("[a-b\u{0}é]{0,40}")), 1..30),
        options in any::<[bool; 4]>(),
        is_unique in any::<bool>(),
    ) {
        let column = |data_type, [descending, nulls_first]: [bool; 2]| {
            KeyColumn { data_type, descending, nulls_first }
        };
        let [a, b, c, d] = options;
        let columns = vec![column(DataType::Int32, [a, b]), column(DataType::Utf8, [c, d])];
        let key = IndexKey::new(columns.clone(), is_unique).unwrap();
        let arrays = arrays(&rows);
        let entries = key.entries(&arrays, 7..).unwrap();
        for (i, one) in rows.iter().enumerate() {
            let has_null = is_unique && (one.0.is_none() || one.1.is_none());
            prop_assert_eq!(key.has_null(entries.value(i)), has_null);
            // A single row takes another code path.
            let alone: Vec<_> = arrays.iter().map(|array| array.slice(i, 1)).collect();
            let alone = key.entries(&alone, [7 + i as u64]).unwrap();
            prop_assert_eq!(alone.value(0), entries.value(i));
            for (j, other) in rows.iter().enumerate() {
                let order = compared(&columns[0], &one.0, &other.0)
                    .then_with(|| compared(&columns[1], &one.1, &other.1));
                // Equal rows are told apart by their VIDs, except in a unique index, where only NULLs are distinct.
                let distinct = !is_unique || one.0.is_none() || one.1.is_none();
                let order = if distinct { order.then(i.cmp(&j)) } else { order };
                prop_assert_eq!(entries.value(i).cmp(entries.value(j)), order);
            }
        }
        let decoded = key.decode(&entries.iter().flatten().collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(decoded, arrays.to_vec());
    }

    #[test]
    fn a_prefix_begins_the_entries_with_its_values_and_no_others(
        rows in vec((option::of(-3i32..3), option::of("[a-b\u{0}é]{0,40}")), 1..30),
        options in any::<[bool; 4]>(),
        is_unique in any::<bool>(),
        column_count in 1usize..=2,
    ) {
        let [a, b, c, d] = options;
        let columns = vec![
            KeyColumn { data_type: DataType::Int32, descending: a, nulls_first: b },
            KeyColumn { data_type: DataType::Utf8, descending: c, nulls_first: d },
        ];
        let key = IndexKey::new(columns, is_unique).unwrap();
        let arrays = arrays(&rows);
        let entries = key.entries(&arrays, 7..).unwrap();
        for (i, one) in rows.iter().enumerate() {
            let values: Vec<_> =
                arrays.iter().take(column_count).map(|array| array.slice(i, 1)).collect();
            let prefix = key.prefix(&values).unwrap();
            let below = after_prefix(&prefix);
            for (j, other) in rows.iter().enumerate() {
                let equal = one.0 == other.0 && (column_count == 1 || one.1 == other.1);
                let entry = entries.value(j);
                prop_assert_eq!(entry.starts_with(&prefix), equal);
                let within = entry >= prefix.as_slice()
                    && below.as_ref().is_none_or(|below| entry < below.as_slice());
                prop_assert_eq!(within, equal);
            }
            if column_count == 2 && (!is_unique || one.0.is_some() && one.1.is_some()) {
                prop_assert_eq!(key.search_key(entries.value(i)), prefix.as_slice());
            }
        }
    }

    #[test]
    fn keys_sort_as_rows_do(
        rows in vec((option::of(-3i32..3), option::of("[a-b\u{0}é]{0,3}")), 1..40)
    ) {
        let key = unique(vec![DataType::Int32, DataType::Utf8]);
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
        let key = unique(vec![DataType::Utf8, DataType::Int32]);
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.1)));
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.0)));
        let keys = key.encode(&[Arc::clone(&texts), Arc::clone(&numbers)]).unwrap();
        let decoded = key.decode(&keys.iter().flatten().collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(&decoded, &vec![texts, numbers]);
    }

    #[test]
    fn foreign_bytes_never_panic(bytes in vec(0u8..4, 0..90), which in 0usize..14) {
        let key = unique(vec![all_types()[which].clone()]);
        drop(key.decode(&[&bytes]));
    }

    #[test]
    fn damaged_keys_never_panic(
        text in "\\PC{0,80}", number in any::<i32>(), at in any::<usize>(), bit in 0u8..8
    ) {
        let key = unique(vec![DataType::Utf8, DataType::Int32]);
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
        let key = unique(vec![data_type.clone()]);
        let null = arrow::array::new_null_array(&data_type, 1);
        let bytes = key.encode_one(&[null]).unwrap();
        let decoded = key.decode(&[&bytes]).unwrap();
        assert_eq!(decoded[0].data_type(), &data_type);
        assert!(decoded[0].is_null(0), "{data_type}");
    }
}

#[test]
fn floats_that_sql_holds_equal_have_one_key() {
    let key = unique(vec![DataType::Float64]);
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
fn ill_fitting_columns_are_refused() {
    let key = unique(vec![DataType::Int32]);
    let two: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    for columns in [vec![], vec![text], vec![Arc::clone(&two), Arc::clone(&two)]] {
        assert!(matches!(key.encode(&columns), Err(StoreError::Mismatch { .. })));
    }
    assert!(matches!(key.encode_one(&[two]), Err(StoreError::Mismatch { .. })));
    assert!(matches!(IndexKey::new(vec![], true), Err(StoreError::Mismatch { .. })));
    let list = DataType::new_list(DataType::Int32, true);
    assert!(matches!(
        IndexKey::new(vec![KeyColumn::ascending(list)], true),
        Err(StoreError::Mismatch { .. })
    ));
}

#[test]
fn long_keys_are_refused() {
    let key = unique(vec![DataType::Utf8]);
    let text = |length| -> ArrayRef { Arc::new(StringArray::from(vec!["x".repeat(length)])) };
    key.encode(&[text(2_000)]).unwrap();
    assert!(matches!(key.encode(&[text(INDEX_KEY_BYTES_MAX)]), Err(StoreError::OutOfRange { .. })));
}
