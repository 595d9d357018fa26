//! Batches survive encoding and decoding, and carry no more than their rows.

use arrow::array::{
    BinaryViewArray, Decimal128Array, DictionaryArray, Int64Array, ListArray, StringArray,
    StringViewArray,
};
use arrow::datatypes::{Field, Int32Type};

use super::*;

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| Field::new(format!("c{index}"), column.data_type().clone(), true))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// 1000 rows of every kind of array that an operator may emit.
fn every_kind() -> RecordBatch {
    let texts: Vec<Option<String>> = (0..1000)
        .map(|row| (row % 7 != 0).then(|| format!("a text that is too long to be inline {row}")))
        .collect();
    let bytes: Vec<Option<&[u8]>> =
        texts.iter().map(|t| t.as_ref().map(String::as_bytes)).collect();
    let lists = (0..1000).map(|row| (row % 5 != 0).then(|| vec![Some(row), None, Some(row + 1)]));
    let words: DictionaryArray<Int32Type> =
        (0..1000).map(|row| ["red", "green", "blue"][row % 3]).collect();
    batch(vec![
        Arc::new(Int64Array::from_iter((0..1000).map(|row| (row % 3 != 0).then_some(row)))),
        Arc::new(StringArray::from_iter(texts.clone())),
        Arc::new(StringViewArray::from_iter(texts.clone())),
        Arc::new(BinaryViewArray::from_iter(bytes)),
        Arc::new(Decimal128Array::from_iter_values(0..1000)),
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
        Arc::new(words),
    ])
}

#[test]
fn batches_come_back_as_they_were() {
    let whole = every_kind();
    let decoder = SlotDecoder::new(&whole.schema());
    for (start, length) in [(0, 1000), (0, 0), (999, 1), (3, 500), (500, 500)] {
        let slice = whole.slice(start, length);
        let decoded = decoder.decode(encode_batch(&slice).unwrap().into()).unwrap();
        assert_eq!(decoded, slice);
    }
    // A slot is decodable without those before it.
    let fresh = SlotDecoder::new(&whole.schema());
    let late = whole.slice(700, 10);
    assert_eq!(fresh.decode(encode_batch(&late).unwrap().into()).unwrap(), late);
}

#[test]
fn a_slice_carries_only_its_rows() {
    let whole = every_kind();
    let all = encode_batch(&whole).unwrap().len();
    let few = encode_batch(&whole.slice(400, 10)).unwrap().len();
    assert!(few * 20 < all, "{few} of {all} bytes for a hundredth of the rows");
    // A slice of views counts and carries the values it refers to, not the buffers that it shares.
    let views = batch(vec![Arc::clone(whole.column(2))]).slice(0, 10);
    assert!(batch_bytes(&views) < 1000, "{}", batch_bytes(&views));
    assert!(batch_bytes(&whole.slice(400, 10)) * 20 < batch_bytes(&whole));
}

#[test]
fn rows_without_columns_are_counted() {
    let options = arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(42));
    let schema = Arc::new(Schema::empty());
    let batch = RecordBatch::try_new_with_options(schema, Vec::new(), &options).unwrap();
    let decoder = SlotDecoder::new(&batch.schema());
    assert_eq!(decoder.decode(encode_batch(&batch).unwrap().into()).unwrap().num_rows(), 42);
}

#[test]
fn schemas_come_back_as_they_were() {
    let schema = every_kind().schema();
    assert_eq!(decode_schema(encode_schema(&schema).unwrap().into()).unwrap(), schema);
    assert!(decode_schema(Bytes::new()).is_err());
    let batch = encode_batch(&every_kind()).unwrap();
    assert!(decode_schema(batch.into()).is_err(), "a batch is no schema");
}

#[test]
fn what_is_not_one_batch_is_an_error() {
    let whole = every_kind();
    let good = encode_batch(&whole.slice(0, 3)).unwrap();
    let decode = |bytes: Vec<u8>| SlotDecoder::new(&whole.schema()).decode(bytes.into());
    assert!(decode(good.clone()).is_ok());
    assert!(decode(Vec::new()).is_err());
    assert!(decode(vec![0x55; 100]).is_err());
    assert!(decode([good.clone(), good.clone()].concat()).is_err(), "two batches");
    for length in 1..good.len() {
        assert!(decode(good[..length].to_vec()).is_err(), "cut off at {length}");
    }
}

#[test]
fn a_schema_that_arrow_panics_at_is_an_error() {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, true)]);
    let bytes = encode_schema(&schema).unwrap();
    let mut refused = 0;
    for place in 0..bytes.len() - 4 {
        if bytes[place..place + 4] == [64, 0, 0, 0] {
            // Integers of 17 bits, if this byte is the bit width.
            let mut odd = bytes.clone();
            odd[place] = 17;
            let decoded = decode_schema(odd.into());
            refused += usize::from(decoded.is_err_and(|e| e.to_string().contains("cannot take")));
        }
    }
    assert_eq!(refused, 1);
}
