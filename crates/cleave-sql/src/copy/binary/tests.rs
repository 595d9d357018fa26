//! Tests: written files read back, and invalid files give their errors.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, StringArray};
use cleave_store::{Column, ColumnType, TableSchema};
use proptest::prelude::*;

use super::*;

fn columns() -> InputColumns {
    let column = |id, name: &str, column_type, not_null| Column {
        id,
        name: name.to_owned(),
        column_type,
        not_null,
        default: None,
        absent: None,
    };
    let table = TableSchema {
        table_id: 1,
        version: 1,
        name: "t".to_owned(),
        columns: vec![
            column(1, "a", ColumnType::Int, true),
            column(2, "b", ColumnType::Text, false),
        ],
        primary_key: Vec::new(),
    };
    InputColumns::new(&table, &[], 0).unwrap()
}

fn batch() -> RecordBatch {
    let a: ArrayRef = Arc::new(Int32Array::from(vec![1, -2]));
    let b: ArrayRef = Arc::new(StringArray::from(vec![Some("x\ty"), None]));
    RecordBatch::try_new(Arc::clone(columns().schema()), vec![a, b]).unwrap()
}

fn written() -> Vec<u8> {
    let mut writer = BinaryCopyWriter::new(Vec::new(), "f");
    writer.write(&batch()).unwrap();
    assert_eq!(writer.rows_written(), 2);
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Option<RecordBatch>> {
    BinaryReader::new(bytes, "f", columns(), InputMemory::default()).next_batch()
}

#[test]
fn rows_come_back() {
    let bytes = written();
    let mut reader = BinaryReader::new(bytes.as_slice(), "f", columns(), InputMemory::default());
    assert_eq!(reader.next_batch().unwrap().unwrap(), batch());
    assert!(reader.next_batch().unwrap().is_none());
}

#[test]
fn what_is_wrong_is_told_with_its_record() {
    let whole = written();
    let told = |bytes: &[u8]| {
        let error = read(bytes).unwrap_err();
        (error.sqlstate(), error.to_string())
    };
    assert!(told(b"1\tx\n2\ty\n3\tz\n").1.contains("signature"));
    assert!(told(&whole[..whole.len() - 3]).1.contains("ends before"));
    let changed = |place: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[place] = byte;
        told(&bytes)
    };
    // The count of values, a length, and a NULL where none may be.
    assert!(changed(20, 3).1.contains("record 1 has 3 values"), "{}", changed(20, 3).1);
    assert!(changed(24, 2).1.contains("incorrect binary data"), "{}", changed(24, 2).1);
    assert_eq!(changed(24, 2).0, "22P04");
    assert!(changed(21, 0x7f).1.contains("longer than"), "{}", changed(21, 0x7f).1);
    assert!(changed(12, 1).1.contains("OID"), "{}", changed(12, 1).1);
    let mut null = whole[..21].to_vec();
    null.extend([255; 4]);
    assert_eq!(told(&null).0, "23502");
}

proptest! {
    #[test]
    fn no_bytes_bring_it_down(
        place in 11_usize..40,
        bytes in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut file = written();
        for (offset, byte) in bytes.iter().enumerate() {
            if let Some(old) = file.get_mut(place + offset) {
                *old = *byte;
            }
        }
        drop(read(&file));
    }
}
