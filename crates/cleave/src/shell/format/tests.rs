//! Each layout's output for values that are easily printed wrong.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, StringArray,
};
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
fn numbers_that_json_cannot_say_are_strings() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5, f64::NAN, f64::INFINITY, 1e300]));
    let text = shown(Format::Json, false, vec![("x", floats)]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value,
        serde_json::json!([{ "x": 1.5 }, { "x": "NaN" }, { "x": "Infinity" }, { "x": 1e300 }])
    );
}

#[test]
fn numbers_keep_all_their_digits() {
    let decimal = Decimal128Array::from(vec![123_456_789_012_345_678_901_234_567_890_i128])
        .with_precision_and_scale(38, 2)
        .unwrap();
    let text = shown(Format::Json, false, vec![("n", Arc::new(decimal))]);
    assert!(text.contains("\"n\":1234567890123456789012345678.90"), "{text}");
}
