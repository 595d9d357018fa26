//! Rows are framed as the protocol requires.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use bytes::BytesMut;

use cleave_host::settings::IntervalStyle;

use super::super::types::WireType;
use super::*;

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
        origin: None,
    };
    let columns = [column("a", Format::Text), column("b", Format::Binary)];
    let mut writer = RowWriter::new(&batch, &columns, IntervalStyle::Postgres).unwrap();
    let mut out = BytesMut::new();
    writer.write(&mut out, 0, &mut |_| Ok(())).unwrap();
    writer.write(&mut out, 1, &mut |_| Ok(())).unwrap();
    let first = b"D\0\0\0\x11\0\x02\0\0\0\x0212\0\0\0\x01x";
    let second = b"D\0\0\0\x0f\0\x02\xff\xff\xff\xff\0\0\0\x01y";
    assert_eq!(out.to_vec(), [&first[..], second].concat());
}
