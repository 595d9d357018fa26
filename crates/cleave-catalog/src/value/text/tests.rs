//! The text of every type, as PostgreSQL prints it, and its round trip.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    DurationSecondArray, FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Float64Array,
    Int32Array, ListArray, RunArray, StringArray, StringViewArray, StructArray, Time32SecondArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int32Type};
use cleave_store::ColumnType;
use proptest::prelude::*;

use super::value_text;
use crate::value::{ColumnBuilder, ValueText};

fn text(array: &dyn Array) -> String {
    value_text(array, 0).unwrap().unwrap()
}

#[test]
fn numbers() {
    assert_eq!(text(&Int32Array::from(vec![-7])), "-7");
    assert_eq!(text(&UInt64Array::from(vec![u64::MAX])), "18446744073709551615");
    assert_eq!(text(&BooleanArray::from(vec![true])), "t");
    assert_eq!(text(&BooleanArray::from(vec![false])), "f");
}

#[test]
fn doubles_are_short_and_have_exponents_where_postgres_has_them() {
    for (value, expected) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (0.1, "0.1"),
        (0.1 + 0.2, "0.30000000000000004"),
        (100.0, "100"),
        (123_456.789, "123456.789"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (1.5e300, "1.5e+300"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-1.25e-7, "-1.25e-07"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
        (5e-324, "5e-324"),
    ] {
        assert_eq!(text(&Float64Array::from(vec![value])), expected);
    }
}

#[test]
fn reals_have_exponents_earlier() {
    for (value, expected) in
        [(0.1, "0.1"), (100_000.0, "100000"), (1_000_000.0, "1e+06"), (1_234_567.0, "1.234567e+06")]
    {
        assert_eq!(text(&Float32Array::from(vec![value])), expected);
    }
}

#[test]
fn numerics_keep_their_scale() {
    for (value, scale, expected) in [
        (0, 2, "0.00"),
        (5, 2, "0.05"),
        (-5, 2, "-0.05"),
        (12_340, 2, "123.40"),
        (-7, 0, "-7"),
        (12, -3, "12000"),
        (0, -3, "0"),
        (i128::MIN + 1, 10, "-17014118346046923173168730371.5884105727"),
    ] {
        let array = Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale);
        assert_eq!(text(&array.unwrap()), expected);
    }
}

#[test]
fn times_and_dates() {
    assert_eq!(text(&Date32Array::from(vec![19_782])), "2024-02-29");
    assert_eq!(text(&Date32Array::from(vec![-719_528])), "0001-01-01 BC");
    assert_eq!(text(&Date32Array::from(vec![2_932_897])), "10000-01-01");
    assert_eq!(text(&Time64MicrosecondArray::from(vec![14_706_789_000])), "04:05:06.789");
    assert_eq!(text(&Time64MicrosecondArray::from(vec![86_400_000_000])), "24:00:00");
    assert_eq!(text(&Time32SecondArray::from(vec![60])), "00:01:00");
    let micros = 19_782 * 86_400_000_000 + 11_045_678_000;
    assert_eq!(text(&TimestampMicrosecondArray::from(vec![micros])), "2024-02-29 03:04:05.678");
    let zoned = TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC");
    assert_eq!(text(&zoned), "2024-02-29 03:04:05.678+00");
    assert_eq!(text(&TimestampMicrosecondArray::from(vec![-1])), "1969-12-31 23:59:59.999999");
    assert_eq!(text(&TimestampNanosecondArray::from(vec![1])), "1970-01-01 00:00:00.000000001");
    let ancient = TimestampSecondArray::from(vec![-63_517_780_800]).with_timezone("UTC");
    assert_eq!(text(&ancient), "0044-03-15 12:00:00+00 BC");
}

#[test]
fn bytes_and_uuids() {
    assert_eq!(text(&BinaryArray::from_vec(vec![&[0xde, 0xad, 0x00]])), "\\xdead00");
    let bytes = [
        0xa0, 0xee, 0xbc, 0x99, 0x9c, 0x0b, 0x4e, 0xf8, 0xbb, 0x6d, 0x6b, 0xb9, 0xbd, 0x38, 0x0a,
        0x11,
    ];
    let uuids = FixedSizeBinaryArray::try_from_iter(std::iter::once(bytes)).unwrap();
    assert_eq!(text(&uuids), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
    let short = FixedSizeBinaryArray::try_from_iter(std::iter::once([1_u8, 2])).unwrap();
    assert_eq!(text(&short), "\\x0102");
}

#[test]
fn what_queries_return_beyond_the_types_of_tables() {
    assert_eq!(text(&StringViewArray::from(vec!["a b"])), "a b");
    let dictionary: DictionaryArray<Int32Type> = vec!["x", "y"].into_iter().collect();
    assert_eq!(value_text(&dictionary, 1).unwrap().unwrap(), "y");
    let keys = Int32Array::from(vec![0, 1]);
    let values = Arc::new(StringArray::from(vec![None, Some("x")]));
    let dictionary = DictionaryArray::<Int32Type>::new(keys, values);
    assert_eq!(value_text(&dictionary, 0).unwrap(), None);
    assert_eq!(value_text(&dictionary, 1).unwrap().unwrap(), "x");
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
        Some(vec![Some(9)]),
    ]);
    assert_eq!(text(&list), "{1,NULL}");
    assert_eq!(value_text(&list, 1).unwrap(), None);
    assert_eq!(value_text(&list, 2).unwrap().unwrap(), "{}");
    assert_eq!(value_text(&list.slice(3, 1), 0).unwrap().unwrap(), "{9}");
    let words: ArrayRef =
        Arc::new(StringArray::from(vec![Some("a\"b"), Some(""), Some("null"), None, Some("c")]));
    let field = Arc::new(Field::new("item", DataType::Utf8, true));
    let list = FixedSizeListArray::new(field, 5, Arc::clone(&words), None);
    assert_eq!(text(&list), r#"{"a\"b","","null",NULL,c}"#);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4, 5]));
    let record = StructArray::from(vec![
        (Arc::new(Field::new("w", DataType::Utf8, true)), words),
        (Arc::new(Field::new("n", DataType::Int32, true)), numbers),
    ]);
    assert_eq!(text(&record), r#"("a""b",1)"#);
    assert_eq!(value_text(&record, 3).unwrap().unwrap(), "(,4)");
    // A duration is an interval of days and hours.
    assert_eq!(text(&DurationSecondArray::from(vec![60])), "00:01:00");
    assert_eq!(text(&DurationSecondArray::from(vec![-178_200])), "-2 days -01:30:00");
    // A type that only Arrow can print.
    let numbers = Arc::new(Int32Array::from(vec![1, 2]));
    let runs = RunArray::try_new(&Int32Array::from(vec![1, 2]), &*numbers).unwrap();
    assert_eq!(text(&runs), "1");
}

#[test]
fn null_and_nothing_are_no_text() {
    let array = Int32Array::from(vec![None, Some(1)]);
    let writer = ValueText::new(&array).unwrap();
    let mut out = String::from("kept");
    assert!(!writer.write(0, &mut out));
    assert!(!writer.write(2, &mut out));
    assert_eq!(out, "kept");
    assert_eq!(value_text(&arrow::array::NullArray::new(1), 0).unwrap(), None);
}

/// The text of a value that the builder made of `text`.
fn through(column_type: ColumnType, text: &str) -> String {
    let mut builder = ColumnBuilder::new(&column_type, 1);
    builder.append_text(text).unwrap();
    value_text(&builder.finish(), 0).unwrap().unwrap()
}

proptest! {
    #[test]
    fn numbers_come_back(long: i64, double: f64, single: f32, digits in -10_i128.pow(20)..10_i128.pow(20)) {
        prop_assert_eq!(through(ColumnType::BigInt, &long.to_string()), long.to_string());
        let text = value_text(&Float64Array::from(vec![double]), 0).unwrap().unwrap();
        prop_assert!(text.parse::<f64>().unwrap().to_bits() == double.to_bits() || double.is_nan());
        prop_assert_eq!(&through(ColumnType::Double, &text), &text);
        let text = value_text(&Float32Array::from(vec![single]), 0).unwrap().unwrap();
        prop_assert!(text.parse::<f32>().unwrap().to_bits() == single.to_bits() || single.is_nan());
        let array = Decimal128Array::from(vec![digits]).with_precision_and_scale(38, 7).unwrap();
        let text = value_text(&array, 0).unwrap().unwrap();
        prop_assert_eq!(through(ColumnType::Numeric { precision: 38, scale: 7 }, &text), text);
    }

    #[test]
    fn times_come_back(
        days in -1_721_425_i32..2_145_000_000,
        micros in -62_000_000_000_000_000_i64..i64::MAX,
        bytes: Vec<u8>
    ) {
        let date = value_text(&Date32Array::from(vec![days]), 0).unwrap().unwrap();
        prop_assert_eq!(through(ColumnType::Date, &date), date);
        let plain = value_text(&TimestampMicrosecondArray::from(vec![micros]), 0).unwrap().unwrap();
        prop_assert_eq!(through(ColumnType::Timestamp, &plain), plain);
        let zoned = TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC");
        let zoned = value_text(&zoned, 0).unwrap().unwrap();
        prop_assert_eq!(through(ColumnType::TimestampTz, &zoned), zoned);
        let hex = value_text(&BinaryArray::from_vec(vec![&bytes]), 0).unwrap().unwrap();
        prop_assert_eq!(through(ColumnType::Bytea, &hex), hex);
    }
}
