//! Absent values of every type survive a round trip; bytes that are no value are refused.

use arrow::array::{Array, Float64Array, Int32Array, StringArray, new_null_array};
use arrow::datatypes::DataType;

use super::AbsentValue;
use crate::page::testing::{assert_same, rows, table};
use crate::schema::ColumnType;

const TYPES: [ColumnType; 16] = [
    ColumnType::SmallInt,
    ColumnType::Int,
    ColumnType::BigInt,
    ColumnType::Real,
    ColumnType::Double,
    ColumnType::Numeric { precision: 20, scale: 3 },
    ColumnType::Boolean,
    ColumnType::Text,
    ColumnType::Char(9),
    ColumnType::Date,
    ColumnType::Time,
    ColumnType::Timestamp,
    ColumnType::TimestampTz,
    ColumnType::Interval,
    ColumnType::Bytea,
    ColumnType::Uuid,
];

#[test]
fn values_of_every_type_come_back() {
    let schema = table(&TYPES);
    let batch = rows(&schema, 40, 7, 3);
    let mut found = 0;
    for array in batch.columns() {
        for row in 0..array.len() {
            let one = array.slice(row, 1);
            let Some(value) = AbsentValue::of(&one) else {
                assert!(one.is_null(0));
                continue;
            };
            let value = AbsentValue::from_bytes(value.bytes());
            let many = value.array(array.data_type(), 3).unwrap();
            assert_eq!(many.len(), 3);
            for place in 0..3 {
                assert_same(&many.slice(place, 1), &one);
            }
            assert_eq!(value.array(array.data_type(), 0).unwrap().len(), 0);
            found += 1;
        }
    }
    assert!(found > 100, "{found}");
}

#[test]
fn nulls_and_several_values_are_none() {
    assert_eq!(AbsentValue::of(&new_null_array(&DataType::Int32, 1)), None);
    assert_eq!(AbsentValue::of(&Int32Array::from(vec![1, 1])), None);
    assert_eq!(AbsentValue::of(&Int32Array::from(Vec::<i32>::new())), None);
}

#[test]
fn nan_is_a_value_like_others() {
    let value = AbsentValue::of(&Float64Array::from(vec![f64::NAN])).unwrap();
    assert_eq!(value.clone(), value);
    let array = value.array(&DataType::Float64, 2).unwrap();
    assert_same(&array, &Float64Array::from(vec![f64::NAN; 2]));
}

#[test]
fn bytes_of_another_type_are_none() {
    let text = AbsentValue::of(&StringArray::from(vec!["abc"])).unwrap();
    for column_type in TYPES {
        let is_bytes =
            matches!(column_type, ColumnType::Text | ColumnType::Char(_) | ColumnType::Bytea);
        let array = text.array(&column_type.arrow(), 1);
        assert_eq!(array.is_some(), is_bytes, "{column_type}");
    }
    let no_text = AbsentValue::from_bytes(&[0xff]);
    assert!(no_text.array(&DataType::Utf8, 1).is_none());
    assert!(no_text.array(&DataType::Boolean, 1).is_none());
}
