//! Decoding against Arrow's own kernels: projections, selections, older pages, and mismatched requests.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use proptest::prelude::{any, prop, prop_assert_eq, proptest};

use super::{Projection, decode_batch};
use crate::page::testing::{SEGMENT, Stored, TYPES, everything, rows, table};
use crate::{
    Column, ColumnRef, ColumnType, CommitColumn, OpenedPage, OverflowValues, PageClass,
    PageColumns, PageRead, SegmentWriter, StoreError, TableSchema, Versions, VidColumn,
    all_columns, decode_rows,
};

fn stored(schema: &TableSchema, batch: &RecordBatch, versions: Versions) -> Stored {
    let class = PageClass { page_bytes: 1 << 20, ..PageClass::HOT };
    let mut writer = SegmentWriter::new(SEGMENT, schema, class, 0, 0).unwrap();
    let mut pages = writer.push_versions(batch, versions).unwrap();
    pages.extend(writer.finish().unwrap());
    let stored = Stored::place(&pages);
    assert_eq!((stored.heap.len(), stored.overflow.len()), (1, 0));
    stored
}

fn read(stored: &Stored, columns: Vec<ColumnRef>) -> (PageRead, PageColumns) {
    let read = PageRead { segment: SEGMENT, page: stored.heap[0], columns };
    let page = stored.pages().read_page(&read).unwrap();
    (read, page)
}

fn none() -> OverflowValues {
    OverflowValues::none()
}

proptest! {
    #[test]
    fn projection_and_selection_agree_with_arrow(
        row_count in 1_usize..300,
        picks in prop::collection::vec(0..TYPES.len(), 0..6),
        odds in 0_u64..5,
        seed in any::<u64>(),
    ) {
        let schema = table(&TYPES);
        let batch = rows(&schema, row_count, 12, seed);
        let stored = stored(&schema, &batch, Versions::loaded(900));
        let projection = Projection::of_table(&schema, &picks);
        // Read in another order than projected, with a column that the projection lacks.
        let mut columns = projection.columns.clone();
        columns.reverse();
        columns.push(ColumnRef::Vid);
        let (wish, page) = read(&stored, columns);
        let expected = batch.project(&picks).unwrap();
        let found = decode_batch(&page, &wish, &projection, None, &none()).unwrap();
        prop_assert_eq!(found.num_rows(), row_count);
        for (left, right) in found.columns().iter().zip(expected.columns()) {
            prop_assert_eq!(left.to_data(), right.to_data());
        }
        let mut random = cleave_media::SplitMix64::new(seed);
        let selection = BooleanBuffer::collect_bool(row_count, |_| random.below(4) < odds);
        let found = decode_batch(&page, &wish, &projection, Some(&selection), &none()).unwrap();
        let filtered = filter_record_batch(&expected, &BooleanArray::new(selection.clone(), None)).unwrap();
        prop_assert_eq!(found.num_rows(), selection.count_set_bits());
        for (left, right) in found.columns().iter().zip(filtered.columns()) {
            prop_assert_eq!(left.to_data(), right.to_data());
        }
        let slot = u16::try_from(seed % row_count as u64).unwrap();
        let row = decode_rows(&page, &wish, &[slot], &projection, &none()).unwrap();
        prop_assert_eq!(row.num_rows(), 1);
        for (left, right) in row.columns().iter().zip(expected.columns()) {
            prop_assert_eq!(left.to_data(), right.slice(usize::from(slot), 1).to_data());
        }
        let opened = OpenedPage::open(&page, &wish).unwrap().unwrap();
        prop_assert_eq!(&opened.rows(&[slot], &projection).unwrap(), &row);
        let other = u16::try_from((seed >> 32) % row_count as u64).unwrap();
        let both = opened.rows(&[slot, other, slot], &projection).unwrap();
        prop_assert_eq!(both.num_rows(), 3);
        for (left, right) in both.columns().iter().zip(expected.columns()) {
            prop_assert_eq!(left.slice(1, 1).to_data(), right.slice(usize::from(other), 1).to_data());
            prop_assert_eq!(left.slice(2, 1).to_data(), right.slice(usize::from(slot), 1).to_data());
        }
    }
}

#[test]
fn what_a_dictionary_makes_later_is_counted() {
    let schema = table(&[ColumnType::Text]);
    let text = |row: usize| format!("{:0>200}", row % 50);
    let texts = StringArray::from_iter_values((0..2_000).map(text));
    let batch = RecordBatch::try_new(schema.arrow(), vec![Arc::new(texts)]).unwrap();
    let mut writer = SegmentWriter::new(SEGMENT, &schema, PageClass::BULK, 0, 0).unwrap();
    let mut pages = writer.push_versions(&batch, Versions::loaded(900)).unwrap();
    pages.extend(writer.finish().unwrap());
    let stored = Stored::place(&pages);
    let projection = Projection::of_table(&schema, &[0]);
    let (wish, page) = read(&stored, projection.columns.clone());
    assert!(page.byte_size() < 50 * 200);
    let opened = OpenedPage::open(&page, &wish).unwrap().unwrap();
    assert!(opened.byte_count() >= 50 * 200);
    let slots: Vec<u16> = (0..2_000).collect();
    assert_eq!(opened.rows(&slots, &projection).unwrap().columns(), batch.columns());
}

#[test]
fn counting_rows_reads_no_chunk() {
    let schema = table(&[ColumnType::Text]);
    let stored = stored(&schema, &rows(&schema, 50, 9, 1), Versions::loaded(0));
    let (wish, page) = read(&stored, vec![]);
    let projection = Projection::new(Arc::new(Schema::empty()), vec![]);
    let all = decode_batch(&page, &wish, &projection, None, &none()).unwrap();
    assert_eq!((all.num_rows(), all.num_columns()), (50, 0));
    let some = BooleanBuffer::collect_bool(50, |row| row < 8);
    let some = decode_batch(&page, &wish, &projection, Some(&some), &none()).unwrap();
    assert_eq!(some.num_rows(), 8);
}

#[test]
fn version_columns_come_as_numbers() {
    let schema = table(&[ColumnType::Int]);
    let batch = rows(&schema, 3, 0, 2);
    let versions = Versions {
        vid: VidColumn::Each(vec![30, 10, 20]),
        commit: CommitColumn::Each(vec![5, 6, 6]),
    };
    let stored = stored(&schema, &batch, versions);
    let (wish, page) = read(&stored, all_columns(&schema));
    let found = decode_batch(&page, &wish, &everything(&schema), None, &none()).unwrap();
    let number = |at: usize| found.column(at).as_primitive::<UInt64Type>().values().to_vec();
    assert_eq!(number(1), [30, 10, 20]);
    assert_eq!(number(2), [5, 6, 6]);
    let row = decode_rows(&page, &wish, &[2], &everything(&schema), &none()).unwrap();
    assert_eq!(row.column(1).as_primitive::<UInt64Type>().value(0), 20);
}

#[test]
fn versions_that_a_page_leaves_out_have_their_defaults() {
    let schema = table(&[ColumnType::Int]);
    let stored = stored(&schema, &rows(&schema, 4, 0, 2), Versions::loaded(77));
    let (wish, page) = read(&stored, all_columns(&schema));
    assert!(page.chunks[1..].iter().all(Option::is_none));
    let found = decode_batch(&page, &wish, &everything(&schema), None, &none()).unwrap();
    let number = |at: usize| found.column(at).as_primitive::<UInt64Type>().values().to_vec();
    assert_eq!(number(1), [77, 78, 79, 80]);
    assert_eq!(number(2), [SEGMENT.commit; 4]);
    let row = decode_rows(&page, &wish, &[3], &everything(&schema), &none()).unwrap();
    let opened = OpenedPage::open(&page, &wish).unwrap().unwrap();
    assert_eq!(opened.rows(&[3], &everything(&schema)).unwrap(), row);
    assert!(opened.rows(&[4], &everything(&schema)).is_err(), "there are four rows");
    assert_eq!(row.column(1).as_primitive::<UInt64Type>().value(0), 80);
    assert_eq!(row.column(2).as_primitive::<UInt64Type>().value(0), SEGMENT.commit);
}

#[test]
fn a_column_younger_than_the_page_is_null() {
    let schema = table(&[ColumnType::Int]);
    let stored = stored(&schema, &rows(&schema, 4, 0, 2), Versions::loaded(0));
    let mut younger = schema.clone();
    younger.columns.push(Column {
        id: 2,
        name: "added".into(),
        column_type: ColumnType::Text,
        not_null: false,
        default: None,
        absent: None,
    });
    let (wish, page) = read(&stored, all_columns(&younger));
    let projection = Projection::of_table(&younger, &[1, 0]);
    let found = decode_batch(&page, &wish, &projection, None, &none()).unwrap();
    assert_eq!((found.column(0).null_count(), found.column(1).len()), (4, 4));
    let row = decode_rows(&page, &wish, &[0], &projection, &none()).unwrap();
    assert!(row.column(0).is_null(0));

    let strict = Projection::new(
        Arc::new(Schema::new(vec![Field::new("added", DataType::Utf8, false)])),
        vec![ColumnRef::User(2)],
    );
    let error = decode_batch(&page, &wish, &strict, None, &none()).unwrap_err();
    assert!(error.to_string().contains("added is NOT NULL and has NULLs"), "{error}");
}

#[test]
fn wishes_that_do_not_fit_are_refused() {
    let schema = table(&[ColumnType::Int, ColumnType::Text]);
    let stored = stored(&schema, &rows(&schema, 10, 5, 3), Versions::loaded(0));
    let (wish, page) = read(&stored, vec![ColumnRef::User(2)]);
    let refused = |projection: &Projection, selection: Option<&BooleanBuffer>, what: &str| {
        let error = decode_batch(&page, &wish, projection, selection, &none()).unwrap_err();
        assert!(matches!(error, StoreError::Mismatch { .. }));
        assert!(error.to_string().contains(what), "{error}");
    };
    refused(&Projection::of_table(&schema, &[1]), None, "column 1 was not read");
    let good = Projection::of_table(&schema, &[0]);
    refused(&good, Some(&BooleanBuffer::new_set(9)), "a selection of 9 of 10 rows");
    let other = Projection {
        schema: Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)])),
        ..good.clone()
    };
    refused(&other, None, "column 2 is Int32 in the page and Int64 in the projection");
    let short = Projection { columns: vec![], ..good.clone() };
    refused(&short, None, "more or fewer fields than columns");
    assert!(matches!(
        decode_rows(&page, &wish, &[10], &good, &none()),
        Err(StoreError::Mismatch { .. })
    ));
}
