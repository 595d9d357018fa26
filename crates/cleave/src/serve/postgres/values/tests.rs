//! What is written in binary reads back as the text that it was.

use std::sync::Arc;

use arrow::array::types::Int32Type;
use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, ListArray, StringArray};
use arrow::array::{BooleanArray, Float64Array, RecordBatch, UInt64Array};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;

fn binary(array: ArrayRef) -> Vec<u8> {
    let mut out = BytesMut::new();
    BinaryWriter::new(&array, "x").unwrap().write(&mut out, 0).unwrap();
    out.to_vec()
}

fn back(array: ArrayRef) -> String {
    let element = WireType::of_arrow(array.data_type()).element;
    let bytes = Bytes::from(binary(array)).slice(4..);
    parameter_text(1, element, Format::Binary, &bytes).unwrap()
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
    assert_eq!(binary(Arc::new(list)), expected.concat());
}

#[test]
fn a_row_is_framed() {
    let batch = RecordBatch::try_from_iter([
        ("a", Arc::new(Int32Array::from(vec![Some(12), None])) as ArrayRef),
        ("b", Arc::new(StringArray::from(vec!["x", "y"]))),
    ])
    .unwrap();
    let column = |name: &str, format| Column {
        name: name.to_owned(),
        wire_type: WireType::of_arrow(&DataType::Utf8),
        format,
    };
    let columns = [column("a", Format::Text), column("b", Format::Binary)];
    let mut writer = RowWriter::new(&batch, &columns).unwrap();
    let mut out = BytesMut::new();
    writer.write(&mut out, 0).unwrap();
    writer.write(&mut out, 1).unwrap();
    let first = b"D\0\0\0\x11\0\x02\0\0\0\x0212\0\0\0\x01x";
    let second = b"D\0\0\0\x0f\0\x02\xff\xff\xff\xff\0\0\0\x01y";
    assert_eq!(out.to_vec(), [&first[..], second].concat());
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
        }
    }
}
