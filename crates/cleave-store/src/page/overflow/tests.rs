//! Long values: cut, joined again, fetched only on need, and never trusted.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use cleave_media::{Media, SplitMix64};

use super::{PAYLOAD_BYTES_MAX, overflow_pages};
use crate::page::testing::{SEGMENT, Stored, assert_same, everything, table};
use crate::{
    ColumnRef, ColumnType, Corruption, EncodedPage, OverflowValues, PageClass, PageColumns,
    PageKind, PageRead, Projection, SegmentWriter, StoreError, TableSchema, all_columns,
    decode_batch, decode_rows,
};

fn text(length: usize, seed: u64) -> String {
    let mut random = SplitMix64::new(seed);
    (0..length).map(|_| char::from(b'a' + u8::try_from(random.below(26)).unwrap())).collect()
}

fn write(schema: &TableSchema, class: PageClass, columns: Vec<ArrayRef>) -> Vec<EncodedPage> {
    let batch = RecordBatch::try_new(schema.arrow(), columns).unwrap();
    let mut writer = SegmentWriter::new(SEGMENT, schema, class, 10, 0).unwrap();
    let mut pages = writer.push(&batch).unwrap();
    pages.extend(writer.finish().unwrap());
    pages
}

/// One hot page: column 2 short and long texts and a NULL, column 1 one text of three overflow pages.
fn sample() -> (TableSchema, Vec<ArrayRef>, Vec<EncodedPage>) {
    let schema = table(&[ColumnType::Text, ColumnType::Text]);
    let mixed: ArrayRef = Arc::new(StringArray::from(vec![
        Some("short".into()),
        Some(text(PAYLOAD_BYTES_MAX - 10, 1)),
        None,
        Some(text(5000, 2)),
        Some(text(2048, 3)),
        Some(text(2049, 4)),
    ]));
    let mut long = vec![None; 6];
    long[3] = Some(text(2 * PAYLOAD_BYTES_MAX + 1, 5));
    let long: ArrayRef = Arc::new(StringArray::from(long));
    let columns = vec![mixed, long];
    let pages = write(&schema, PageClass::HOT, columns.clone());
    (schema, columns, pages)
}

fn read(stored: &Stored, schema: &TableSchema) -> (PageRead, PageColumns) {
    let page = stored.heap[0];
    let read = PageRead { segment: SEGMENT, page, columns: all_columns(schema) };
    let columns = stored.pages().read_page(&read).unwrap();
    (read, columns)
}

#[test]
fn long_values_go_before_their_page_and_come_back() {
    let (schema, columns, pages) = sample();
    let shape: Vec<(PageKind, u32, u32)> =
        pages.iter().map(|page| (page.kind, page.page, page.row_count)).collect();
    let overflow = PageKind::Overflow;
    assert_eq!(
        shape,
        [
            (overflow, 10, 0),
            (overflow, 11, 0),
            (overflow, 12, 0),
            (overflow, 13, 0),
            (overflow, 14, 0),
            (PageKind::Heap, 15, 6)
        ]
    );
    assert_eq!(pages[5].overflow_first_count, (10, 5));
    assert!(pages[5].bytes.len() <= 16 << 10);
    let stored = Stored::place(&pages);
    let decoded = stored.decode(&schema, stored.heap[0]).unwrap();
    assert_same(&columns[0], decoded.column(0));
    assert_same(&columns[1], decoded.column(1));
}

#[test]
fn only_the_pages_of_wanted_values_are_needed() {
    let (schema, _, pages) = sample();
    let stored = Stored::place(&pages);
    let (wish, page) = read(&stored, &schema);
    let needed = |columns: &[ColumnRef], rows: Option<&[usize]>| {
        let selection = rows.map(|rows| BooleanBuffer::collect_bool(6, |row| rows.contains(&row)));
        overflow_pages(&page, &wish, columns, selection.as_ref()).unwrap()
    };
    let (mixed, long) = (ColumnRef::User(2), ColumnRef::User(1));
    assert_eq!(needed(&[mixed, long], None), [10, 11, 12, 13, 14]);
    assert_eq!(needed(&[mixed], None), [10, 11]);
    assert_eq!(needed(&[long], None), [12, 13, 14]);
    assert_eq!(needed(&[mixed], Some(&[0, 2, 4])), Vec::<u32>::new());
    assert_eq!(needed(&[mixed], Some(&[1])), [10]);
    assert_eq!(needed(&[mixed], Some(&[3])), [10, 11], "cut by a page's end");
    assert_eq!(needed(&[mixed], Some(&[5])), [11]);
    assert_eq!(needed(&[ColumnRef::Vid], None), Vec::<u32>::new());
}

#[test]
fn a_selection_and_a_row_need_no_more_than_they_show() {
    let (schema, columns, pages) = sample();
    let stored = Stored::place(&pages);
    let (wish, page) = read(&stored, &schema);
    let projection = Projection::of_table(&schema, &[0]);
    let last = *stored.overflow.iter().find(|page| page.page == 11).unwrap();
    let overflow: OverflowValues =
        [(11, stored.pages().read_overflow_page(&SEGMENT, &last).unwrap())].into_iter().collect();
    let selection = BooleanBuffer::collect_bool(6, |row| [0, 2, 5].contains(&row));
    let batch = decode_batch(&page, &wish, &projection, Some(&selection), &overflow).unwrap();
    let texts = batch.column(0).as_string::<i32>();
    let original = columns[0].as_string::<i32>();
    assert_eq!((texts.len(), texts.value(0), texts.value(2)), (3, "short", original.value(5)));
    assert!(texts.is_null(1));
    let row = decode_rows(&page, &wish, &[5], &projection, &overflow).unwrap();
    assert_same(row.column(0), &columns[0].slice(5, 1));

    // Row 1 lies in a page that was not fetched.
    let missing = |found: Result<RecordBatch, StoreError>| {
        let error = found.unwrap_err();
        assert!(matches!(error, StoreError::Mismatch { .. }), "{error}");
        assert!(error.to_string().contains("overflow page 10 of column 2"), "{error}");
    };
    missing(decode_batch(&page, &wish, &projection, None, &overflow));
    missing(decode_rows(&page, &wish, &[1], &projection, &overflow));
}

#[test]
fn bytes_beneath_nulls_are_not_stored() {
    // 100 NULLs with 100 kB beneath each, as an outer join or a cast may leave them, and one value.
    let schema = table(&[ColumnType::Text]);
    let beneath = 100_000;
    let lengths = std::iter::repeat_n(beneath, 100).chain([5]);
    let mut bytes = vec![b'x'; 100 * beneath];
    bytes.extend_from_slice(b"value");
    let texts: ArrayRef = Arc::new(StringArray::new(
        OffsetBuffer::from_lengths(lengths),
        Buffer::from_vec(bytes),
        Some(NullBuffer::from_iter((0..101).map(|row| row == 100))),
    ));
    for class in [PageClass::HOT, PageClass::BULK] {
        let pages = write(&schema, class, vec![Arc::clone(&texts)]);
        let [page] = pages.as_slice() else { panic!("{} pages", pages.len()) };
        assert_eq!((page.kind, page.row_count), (PageKind::Heap, 101));
        assert!(page.bytes.len() <= 16 << 10, "{} bytes", page.bytes.len());
        assert_eq!(page.overflow_first_count.1, 0);
        let stored = Stored::place(&pages);
        let decoded = stored.decode(&schema, stored.heap[0]).unwrap();
        assert_same(&texts, decoded.column(0));
        assert_eq!(decoded.column(0).as_string::<i32>().value(100), "value");
    }
}

#[test]
fn a_damaged_overflow_page_is_named() {
    let (schema, _, pages) = sample();
    let stored = Stored::place(&pages);
    let hurt = stored.overflow[1];
    let mut bytes = stored.media.read(hurt.extent).unwrap();
    bytes[500] ^= 1;
    stored.media.write(hurt.extent.start, &bytes).unwrap();
    match stored.decode(&schema, stored.heap[0]) {
        Err(StoreError::Corrupt { page, address, column, reason, .. }) => {
            assert_eq!((page, address), (hurt.page, hurt.extent.start));
            assert_eq!(column, Some(ColumnRef::User(2)));
            assert!(matches!(reason, Corruption::Checksum { .. }));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn heap_and_overflow_pages_are_not_mistaken_for_each_other() {
    let (schema, _, pages) = sample();
    let stored = Stored::place(&pages);
    assert!(matches!(
        stored.pages().read_overflow_page(&SEGMENT, &stored.heap[0]),
        Err(StoreError::Corrupt { reason: Corruption::Field { field: "kind", .. }, .. })
    ));
    let wish =
        PageRead { segment: SEGMENT, page: stored.overflow[0], columns: all_columns(&schema) };
    let page = stored.pages().read_page(&PageRead { columns: vec![], ..wish.clone() }).unwrap();
    let columns = PageColumns { chunks: vec![None; wish.columns.len()], ..page };
    let none = OverflowValues::none();
    assert!(matches!(
        decode_batch(&columns, &wish, &everything(&schema), None, &none),
        Err(StoreError::Corrupt { reason: Corruption::Field { field: "kind", .. }, .. })
    ));
}

#[test]
fn a_short_payload_is_an_error() {
    let (schema, _, pages) = sample();
    let stored = Stored::place(&pages);
    let (wish, page) = read(&stored, &schema);
    let payload = stored.pages().read_overflow_page(&SEGMENT, &stored.overflow[0]).unwrap();
    let overflow: OverflowValues = [(10, payload.slice(..100))].into_iter().collect();
    let projection = Projection::of_table(&schema, &[0]);
    assert!(matches!(
        decode_rows(&page, &wish, &[1], &projection, &overflow),
        Err(StoreError::Corrupt { reason: Corruption::Truncated { .. }, .. })
    ));
}

#[test]
fn many_long_values_close_a_page_before_it_needs_too_much_memory() {
    let schema = table(&[ColumnType::Text]);
    let value = "x".repeat(20 << 20);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![value.as_str(); 5]));
    let pages = write(&schema, PageClass::BULK, vec![Arc::clone(&texts)]);
    let heap: Vec<u32> = pages
        .iter()
        .filter(|page| page.kind == PageKind::Heap)
        .map(|page| page.row_count)
        .collect();
    assert_eq!(heap, [3, 2]);
    let stored = Stored::place(&pages);
    let decoded = stored.decode(&schema, stored.heap[1]).unwrap();
    assert_same(decoded.column(0), &texts.slice(3, 2));
}
