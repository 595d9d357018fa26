//! What each layout shows for the values that are easily shown wrong.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float64Array,
    Int32Array, IntervalMonthDayNanoArray, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::IntervalMonthDayNano;
use arrow::record_batch::RecordBatch;

use super::{Format, Layout, write_rows};

fn shown(format: Format, expanded: bool, columns: Vec<(&str, ArrayRef)>) -> String {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let mut out = Vec::new();
    write_rows(&mut out, Layout { format, expanded }, &batch.schema(), &[batch]).unwrap();
    String::from_utf8(out).unwrap()
}

fn people() -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("id", Arc::new(Int32Array::from(vec![Some(1), Some(20), None]))),
        ("name", Arc::new(StringArray::from(vec![Some("Ada, \"Countess\""), Some(""), None]))),
        ("likes", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
    ]
}

#[test]
fn table_aligns_and_shows_null() {
    assert_eq!(
        shown(Format::Table, false, people()),
        "   id | name            | likes\n\
         ------+-----------------+-------\n\
         \x20   1 | Ada, \"Countess\" | t\n\
         \x20  20 |                 | f\n\
         \x20NULL | NULL            | NULL\n\
         (3 rows)\n"
    );
}

#[test]
fn table_of_one_row_says_row() {
    let one: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    assert!(shown(Format::Table, false, vec![("n", one)]).ends_with("(1 row)\n"));
}

#[test]
fn expanded_gives_a_line_a_value() {
    let text = shown(Format::Table, true, people());
    assert!(text.starts_with("-[ RECORD 1 ]"), "{text}");
    assert!(text.contains("\nid    | 20\nname  | \nlikes | f\n"), "{text}");
}

#[test]
fn csv_tells_null_from_empty() {
    assert_eq!(
        shown(Format::Csv, false, people()),
        "id,name,likes\n1,\"Ada, \"\"Countess\"\"\",t\n20,\"\",f\n,,\n"
    );
}

#[test]
fn json_is_json() {
    let text = shown(Format::Json, false, people());
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value,
        serde_json::json!([
            { "id": 1, "name": "Ada, \"Countess\"", "likes": true },
            { "id": 20, "name": "", "likes": false },
            { "id": null, "name": null, "likes": null },
        ])
    );
    let none: ArrayRef = Arc::new(Int32Array::from(Vec::<i32>::new()));
    assert_eq!(shown(Format::Json, false, vec![("n", none)]), "[]\n");
}

#[test]
fn values_read_as_postgresql_prints_them() {
    let decimal = Decimal128Array::from(vec![1250]).with_precision_and_scale(10, 2).unwrap();
    let uuid = FixedSizeBinaryArray::try_from_iter([[0x12_u8; 16]].iter()).unwrap();
    let interval = IntervalMonthDayNano::new(14, 3, 11_045_500_000_000);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("numeric", Arc::new(decimal)),
        ("bytea", Arc::new(BinaryArray::from(vec![b"hi".as_slice()]))),
        ("uuid", Arc::new(uuid)),
        ("interval", Arc::new(IntervalMonthDayNanoArray::from(vec![interval]))),
        ("timestamp", Arc::new(TimestampMicrosecondArray::from(vec![1_500_000]))),
        (
            "timestamptz",
            Arc::new(TimestampMicrosecondArray::from(vec![1_500_000]).with_timezone("UTC")),
        ),
    ];
    assert_eq!(
        shown(Format::Csv, false, columns).lines().nth(1).unwrap(),
        "12.50,\\x6869,12121212-1212-1212-1212-121212121212,1 year 2 mons 3 days 03:04:05.5,\
         1970-01-01 00:00:01.500,1970-01-01 00:00:01.500+00"
    );
}

#[test]
fn floats_are_the_shortest_that_read_back() {
    let cases = [
        (1.0, "1"),
        (0.1, "0.1"),
        (-0.0, "-0"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (1.5e300, "1.5e+300"),
        (-2.5e-7, "-2.5e-07"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-Infinity"),
    ];
    for (value, expected) in cases {
        let array: ArrayRef = Arc::new(Float64Array::from(vec![value]));
        let text = shown(Format::Csv, false, vec![("x", array)]);
        assert_eq!(text.lines().nth(1).unwrap(), expected);
    }
}
