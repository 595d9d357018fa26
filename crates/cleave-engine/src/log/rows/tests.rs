//! Tests of rows in records: all types there and back, and bytes that are invalid.

use std::sync::Arc;

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, StringArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, IntervalMonthDayNano, Schema, SchemaRef};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn low<const N: usize>(number: i64) -> [u8; N] {
    *number.to_le_bytes().first_chunk().unwrap()
}

/// A batch with a column of each type of tables, filled from numbers; None: NULL.
fn batch(numbers: &[Option<i64>]) -> RecordBatch {
    let numbers = || numbers.iter().copied();
    let text = || {
        numbers()
            .map(|number| number.map(|number| "é".repeat(usize::from(low::<1>(number)[0] & 3))))
    };
    let bytes: Vec<Option<[u8; 16]>> =
        numbers().map(|number| number.map(|number| i128::from(number).to_le_bytes())).collect();
    let interval =
        |number: i64| IntervalMonthDayNano::new(i32::from_le_bytes(low(number)), -7, number);
    let decimals = numbers().map(|number| number.map(|number| i128::from(number) * 1_000_000_007));
    let stamps = || numbers().collect::<TimestampMicrosecondArray>();
    let uuids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes.iter().copied(), 16);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(
            numbers()
                .map(|number| number.map(|it| i16::from_le_bytes(low(it))))
                .collect::<Int16Array>(),
        ),
        Arc::new(
            numbers()
                .map(|number| number.map(|it| i32::from_le_bytes(low(it))))
                .collect::<Int32Array>(),
        ),
        Arc::new(numbers().collect::<Int64Array>()),
        Arc::new(
            numbers()
                .map(|number| number.map(|it| f32::from(i16::from_le_bytes(low(it)))))
                .collect::<Float32Array>(),
        ),
        Arc::new(
            numbers()
                .map(|number| number.map(|it| f64::from(i32::from_le_bytes(low(it)))))
                .collect::<Float64Array>(),
        ),
        Arc::new(decimals.collect::<Decimal128Array>().with_precision_and_scale(38, 4).unwrap()),
        Arc::new(numbers().map(|number| number.map(|it| it & 1 == 1)).collect::<BooleanArray>()),
        Arc::new(text().collect::<StringArray>()),
        Arc::new(
            numbers()
                .map(|number| number.map(|it| i32::from_le_bytes(low(it))))
                .collect::<Date32Array>(),
        ),
        Arc::new(numbers().collect::<Time64MicrosecondArray>()),
        Arc::new(stamps()),
        Arc::new(stamps().with_timezone("UTC")),
        Arc::new(
            numbers().map(|number| number.map(interval)).collect::<IntervalMonthDayNanoArray>(),
        ),
        Arc::new(BinaryArray::from_iter(text())),
        Arc::new(uuids.unwrap()),
    ];
    let fields = columns
        .iter()
        .zip(0..)
        .map(|(column, number)| Field::new(format!("c{number}"), column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns).unwrap()
}

/// The rows of one record.
fn decode(bytes: Vec<u8>, schema: &SchemaRef) -> Result<RecordBatch, String> {
    let mut builder = RowsBuilder::new(SchemaRef::clone(schema));
    builder.push(bytes)?;
    let rows = builder.finish()?.whole().unwrap();
    Ok(rows.map_or_else(|| RecordBatch::new_empty(SchemaRef::clone(schema)), Arc::unwrap_or_clone))
}

proptest! {
    #[test]
    fn rows_of_many_records_come_back_in_their_order(
        records in vec((vec(any::<Option<i64>>(), 0..4), any::<bool>()), 1..40),
    ) {
        let schema = batch(&[]).schema();
        let mut builder = RowsBuilder::new(SchemaRef::clone(&schema));
        let mut wanted = Vec::new();
        for (numbers, is_message) in &records {
            let rows = batch(numbers);
            let bytes = if *is_message { encode_batch(&rows) } else { encode(&rows) };
            builder.push(bytes.unwrap()).unwrap();
            wanted.push(rows);
            prop_assert_eq!(builder.row_count(), wanted.iter().map(RecordBatch::num_rows).sum::<usize>());
        }
        let found = builder.finish().unwrap();
        let found: Vec<RecordBatch> = found.batches().cloned().collect();
        prop_assert_eq!(concat_batches(&schema, &found).unwrap(), concat_batches(&schema, &wanted).unwrap());
        prop_assert_eq!(builder.row_count(), 0);
    }

    #[test]
    fn rows_come_back(numbers in vec(any::<Option<i64>>(), 0..20), from in 0..20_usize) {
        let whole = batch(&numbers);
        let from = from.min(whole.num_rows());
        let rows = whole.slice(from, whole.num_rows() - from);
        let bytes = encode(&rows).unwrap();
        prop_assert_eq!(bytes.first(), Some(&FORM));
        prop_assert_eq!(decode(bytes, &rows.schema()).unwrap(), rows);
    }

    #[test]
    fn strange_bytes_are_an_error_or_rows(
        numbers in vec(any::<Option<i64>>(), 1..4),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        length in any::<prop::sample::Index>(),
    ) {
        let rows = batch(&numbers);
        let mut bytes = encode(&rows).unwrap();
        let cut = bytes[..length.index(bytes.len())].to_vec();
        prop_assert!(decode(cut, &rows.schema()).is_err());
        let place = place.index(bytes.len());
        bytes[place] = byte;
        drop(decode(bytes, &rows.schema()));
    }
}

#[test]
fn a_row_takes_few_bytes() {
    let rows = batch(&[Some(1)]);
    let bytes = encode(&rows).unwrap();
    assert!(bytes.len() < 110, "{} bytes", bytes.len());
    assert!(encode_batch(&rows).unwrap().len() > 1000);
}

#[test]
fn messages_of_earlier_builds_are_read_and_unknown_forms_named() {
    let rows = batch(&[Some(1), None]);
    let message = encode_batch(&rows).unwrap();
    assert_eq!(message.first(), Some(&IPC));
    assert_eq!(decode(message, &rows.schema()).unwrap(), rows);
    let error = decode(vec![2, 1], &rows.schema()).unwrap_err();
    assert!(error.contains("form 2") && error.contains("a newer one"), "{error}");
}
