//! Opened columns: ranges and selections agree with decoding the whole column, and mismatched requests are refused.

use arrow::array::{Array, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter;
use arrow::datatypes::DataType;

use super::OpenColumn;
use crate::absent_value::AbsentValues;
use crate::page::testing::{SEGMENT, Stored, TYPES, array, assert_same, table};
use crate::{ColumnRef, OverflowValues, PageClass, PageRead, Pick, SegmentWriter, StoreError};

#[test]
fn ranges_and_selections_agree_with_the_whole() {
    let schema = table(&TYPES);
    let bits: Vec<Option<u64>> =
        (0..2000).map(|row| (row % 13 > 0).then_some(row * row % 300)).collect();
    let columns = schema.columns.iter().map(|column| array(&column.column_type, &bits, 20));
    let batch = RecordBatch::try_new(schema.arrow(), columns.collect()).unwrap();
    let mut writer = SegmentWriter::new(SEGMENT, &schema, PageClass::BULK, 0, 0).unwrap();
    writer.push(&batch).unwrap();
    let stored = Stored::place(&writer.finish().unwrap());
    let user: Vec<ColumnRef> =
        schema.columns.iter().map(|column| ColumnRef::User(column.id)).collect();
    let read = PageRead {
        segment: SEGMENT,
        page: stored.heap[0],
        columns: user.iter().copied().chain([ColumnRef::Vid, ColumnRef::User(99)]).collect(),
    };
    let page = stored.pages().read_page(&read).unwrap();
    let open = |column, data_type: &DataType| {
        let (absent, none) = (AbsentValues::default(), OverflowValues::none());
        OpenColumn::open(&page, &read, column, data_type, &absent, &none, None)
    };
    for (column, original) in user.iter().zip(batch.columns()) {
        let opened = open(*column, original.data_type()).unwrap();
        let decode =
            |range, rows: Option<&BooleanBuffer>| opened.decode(&Pick::new(range, rows, 1)?);
        for odds in [2, 90] {
            let rows = BooleanBuffer::collect_bool(2000, |row| row * 7 % odds == 0);
            let expected = filter(&original.slice(300, 900), &rows.slice(300, 900).into()).unwrap();
            assert_same(&expected, &decode(300..1200, Some(&rows)).unwrap());
        }
        assert_same(&original.slice(5, 0), &decode(5..5, None).unwrap());
        if let Some((values, places)) = opened.distinct().unwrap() {
            let again = arrow::compute::take(&values, &places, None).unwrap();
            assert_same(original, &again);
        }
        for wrong in [1990..2001, 2001..2001] {
            assert!(matches!(decode(wrong, None), Err(StoreError::Mismatch { .. })));
        }
        let short = BooleanBuffer::new_set(1999);
        assert!(matches!(decode(1990..2000, Some(&short)), Err(StoreError::Mismatch { .. })));
    }
    let younger = open(ColumnRef::User(99), &DataType::Boolean).unwrap();
    assert!(younger.compare(0, std::cmp::Ordering::is_eq).is_none());
    assert!(younger.distinct().unwrap().is_none());
    assert_eq!(younger.decode(&Pick::new(10..20, None, 1).unwrap()).unwrap().null_count(), 10);
    assert!(matches!(open(ColumnRef::Vid, &DataType::Int64), Err(StoreError::Mismatch { .. })));
    assert!(matches!(open(ColumnRef::Commit, &DataType::UInt64), Err(StoreError::Mismatch { .. })));
}
