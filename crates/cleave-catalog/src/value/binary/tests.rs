//! Binary values read back as the text that they were made from.

use std::sync::Arc;

use arrow::array::types::Int32Type;
use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, ListArray, StringArray};
use arrow::array::{BooleanArray, Float64Array, UInt64Array};
use bytes::BytesMut;
use proptest::prelude::*;

use super::*;

fn binary(array: ArrayRef) -> Vec<u8> {
    let mut out = BytesMut::new();
    BinaryWriter::new(&array, "x").unwrap().write(&mut out, 0).unwrap();
    out.to_vec()
}

fn back(array: ArrayRef) -> String {
    let element = Element::of_arrow(array.data_type());
    binary_text(element, &binary(array)[4..]).unwrap()
}

fn numeric(value: i128, scale: i8) -> ArrayRef {
    let array = Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale);
    Arc::new(array.unwrap())
}

#[test]
fn values_come_back() {
    for (array, text) in [
        (Arc::new(Int32Array::from(vec![-7])) as ArrayRef, "-7"),
        (Arc::new(UInt64Array::from(vec![7])), "7"),
        (Arc::new(Float64Array::from(vec![1.5])), "1.5"),
        (Arc::new(BooleanArray::from(vec![true])), "t"),
        (Arc::new(StringArray::from(vec!["ä"])), "ä"),
        (Arc::new(Date32Array::from(vec![0])), "1970-01-01"),
        (Arc::new(Time64MicrosecondArray::from(vec![1_500_000])), "00:00:01.5"),
        (Arc::new(TimestampMicrosecondArray::from(vec![0])), "1970-01-01 00:00:00"),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![0]).with_timezone("UTC")),
            "1970-01-01 00:00:00+00",
        ),
        (
            Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(
                1,
                2,
                3_000_000_000,
            )])),
            "1 mon 2 days 00:00:03",
        ),
        (numeric(12_345_678, 3), "12345.678"),
        (numeric(-1, 5), "-0.00001"),
        (numeric(0, 2), "0.00"),
        (numeric(100_000_000, 0), "100000000"),
        (numeric(5, -2), "500"),
    ] {
        assert_eq!(back(array), text);
    }
}

#[test]
fn infinite_times_are_the_ends_of_their_integers() {
    let four = |days: i32| {
        let mut out = BytesMut::new();
        out.put_i32(days);
        out.to_vec()
    };
    let eight = |micros: i64| {
        let mut out = BytesMut::new();
        out.put_i64(micros);
        out.to_vec()
    };
    for (infinite, text) in [(Infinite::Early, "-infinity"), (Infinite::Late, "infinity")] {
        let (days, micros) = (infinite.days(), infinite.micros());
        let date: ArrayRef = Arc::new(Date32Array::from(vec![days]));
        let moments = TimestampMicrosecondArray::from(vec![micros]);
        let zoned: ArrayRef = Arc::new(moments.clone().with_timezone("UTC"));
        assert_eq!(binary(Arc::clone(&date))[4..], four(days));
        assert_eq!(binary(Arc::clone(&zoned))[4..], eight(micros));
        assert_eq!(back(date), text);
        assert_eq!(back(Arc::new(moments)), text);
        assert_eq!(back(zoned), text);
    }
    // A finite value there does not become infinite here.
    let days = i32::MAX - DAYS_TO_2000;
    assert_eq!(binary_text(Element::Date, &four(days)), None);
    let micros = i64::MAX - MICROS_TO_2000;
    assert_eq!(binary_text(Element::Timestamp, &eight(micros)), None);
}

#[test]
fn numbers_are_in_network_order() {
    assert_eq!(binary(Arc::new(Int64Array::from(vec![258]))), [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 1, 2]);
    // 12345.678: three digits of base 10,000, the first of weight 1.
    let expected = [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c];
    assert_eq!(binary(numeric(12_345_678, 3))[4..], expected);
}

#[test]
fn lists_tell_their_dimension_and_type() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None])]);
    let expected = [
        [0, 0, 0, 32],
        [0, 0, 0, 1],
        [0, 0, 0, 1],
        [0, 0, 0, 23],
        [0, 0, 0, 2],
        [0, 0, 0, 1],
        [0, 0, 0, 4],
        [0, 0, 0, 1],
        [255, 255, 255, 255],
    ];
    let bytes = binary(Arc::new(list));
    assert_eq!(bytes, expected.concat());
    assert_eq!(binary_list_text(Element::Int4, &bytes[4..]).unwrap(), r#"{"1",NULL}"#);
    assert_eq!(binary_list_text(Element::Int4, &bytes[4..30]), None);
    assert_eq!(binary_list_text(Element::Text, &[0; 12]).unwrap(), "{}");
}

proptest! {
    #[test]
    fn every_numeric_comes_back(value in any::<i64>(), scale in 0_i8..30) {
        let array = numeric(i128::from(value), scale);
        let text = value_text(&array, 0).unwrap().unwrap();
        prop_assert_eq!(back(array), text);
    }

    #[test]
    fn no_bytes_bring_it_down(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        for element in [
            Element::Bool, Element::Int2, Element::Int4, Element::Int8, Element::Float4,
            Element::Float8, Element::Date, Element::Time, Element::Timestamp, Element::TimestampTz,
            Element::Interval, Element::Numeric, Element::Uuid, Element::Bytea,
        ] {
            drop(binary_text(element, &bytes));
            drop(binary_list_text(element, &bytes));
        }
    }
}
