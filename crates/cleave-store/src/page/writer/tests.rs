//! Writing pages: rows survive, pages stay within their class, tails grow in place.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::UInt64Type;
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use crate::page::testing::{SEGMENT, Stored, TYPES, array, assert_same, rows, table};
use crate::{
    ColumnRef, ColumnType, CommitColumn, EncodedPage, Encoding, PageClass, PageKind, PageRead,
    PageRef, SegmentWriter, StoreError, TableSchema, Tail, Versions, VidColumn, all_columns,
    append_rows,
};

fn write(schema: &TableSchema, class: PageClass, batches: &[RecordBatch]) -> Vec<EncodedPage> {
    let mut writer = SegmentWriter::new(SEGMENT, schema, class, 0, 500).unwrap();
    let mut pages = Vec::new();
    for batch in batches {
        pages.extend(writer.push(batch).unwrap());
    }
    assert_eq!(
        writer.next_vid(),
        500 + batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>()
    );
    pages.extend(writer.finish().unwrap());
    pages
}

/// Reads all pages back and compares them with the batches that went in.
fn assert_round_trip(schema: &TableSchema, pages: &[EncodedPage], batches: &[RecordBatch]) {
    let stored = Stored::place(pages);
    let decoded: Vec<RecordBatch> =
        stored.heap.iter().map(|page| stored.decode(schema, *page).unwrap()).collect();
    let expected = concat_batches(&schema.arrow(), batches).unwrap();
    let found = concat_batches(&decoded[0].schema(), &decoded).unwrap();
    for index in 0..schema.columns.len() {
        assert_same(expected.column(index), found.column(index));
    }
    let vids = found.column(schema.columns.len()).as_primitive::<UInt64Type>();
    let rows = found.num_rows() as u64;
    assert!(vids.values().iter().copied().eq(500..500 + rows), "VIDs count from the first");
}

fn hot(pages: &[EncodedPage]) -> Vec<PageRef> {
    Stored::place(pages).heap
}

#[test]
fn every_type_survives_both_classes() {
    let schema = table(&TYPES);
    for class in [PageClass::HOT, PageClass::BULK] {
        for seed in 0..12 {
            let batches = [rows(&schema, 150, 20, seed), rows(&schema, 70, 20, seed + 100)];
            assert_round_trip(&schema, &write(&schema, class, &batches), &batches);
        }
    }
}

proptest! {
    #[test]
    fn rows_survive_in_order(
        picks in prop::collection::vec(0..TYPES.len(), 1..6),
        row_counts in prop::collection::vec(1_usize..400, 1..5),
        slice in 0_usize..50,
        text_length_max in prop::sample::select(vec![0_u64, 3, 30, 400, 6000]),
        row_count_max in prop::sample::select(vec![1_u32, 7, 100, 65536]),
        seed in any::<u64>(),
    ) {
        let types: Vec<ColumnType> = picks.iter().map(|pick| TYPES[*pick]).collect();
        let schema = table(&types);
        let row_counts = row_counts.iter().map(|count| if text_length_max > 1000 { count % 20 + 1 } else { *count });
        let batches: Vec<RecordBatch> = row_counts
            .zip(seed..=u64::MAX)
            // Sliced, so that bitmaps and offsets do not begin at 0.
            .map(|(count, seed)| rows(&schema, count + slice, text_length_max, seed).slice(slice, count))
            .collect();
        let class = PageClass { row_count_max, ..PageClass::HOT };
        let pages = write(&schema, class, &batches);
        for page in &pages {
            prop_assert!(page.row_count <= row_count_max);
            let heap = page.kind == PageKind::Heap;
            if heap && page.row_count > 1 {
                prop_assert!(page.bytes.len() <= 16 << 10, "{} bytes", page.bytes.len());
            }
            prop_assert_eq!(page.zones.len(), if heap { types.len() } else { 0 });
        }
        assert_round_trip(&schema, &pages, &batches);
    }

    #[test]
    fn appending_row_by_row_equals_writing_at_once(
        counts in prop::collection::vec(1_usize..60, 1..12),
        text_length_max in prop::sample::select(vec![3_u64, 30, 3000]),
        seed in any::<u64>(),
    ) {
        let schema = table(&[ColumnType::BigInt, ColumnType::Text, ColumnType::Boolean]);
        let (mut heap, mut overflow) = (Vec::<EncodedPage>::new(), Vec::new());
        let mut next_page = 0;
        let mut batches = Vec::new();
        for (turn, count) in counts.iter().enumerate() {
            let new = rows(&schema, *count, text_length_max, seed.wrapping_add(turn as u64));
            let vids: Vec<u64> = (0..*count as u64).map(|row| row * 3 + turn as u64 * 1000).collect();
            let versions = Versions {
                vid: VidColumn::Each(vids),
                commit: CommitColumn::Each(vec![turn as u64 + 1; *count]),
            };
            let stored = Stored::place(&heap);
            let tail = stored.heap.last().map(|page| {
                let read = PageRead { segment: SEGMENT, page: *page, columns: all_columns(&schema) };
                let columns = stored.pages().read_page(&read).unwrap();
                (read, columns)
            });
            let tail = tail.as_ref().map(|(read, columns)| Tail { read, columns });
            let pages = append_rows(SEGMENT, &schema, PageClass::HOT, tail, next_page, &new, versions).unwrap();
            for page in pages {
                next_page = next_page.max(page.page + 1);
                if page.kind == PageKind::Overflow {
                    overflow.push(page);
                } else if heap.last().is_some_and(|last| last.page == page.page) {
                    let old = heap.pop().unwrap();
                    prop_assert!(old.row_count < page.row_count);
                    prop_assert_eq!(old.vid_first, page.vid_first);
                    heap.push(page);
                } else {
                    heap.push(page);
                }
            }
            batches.push(new);
        }
        let mut numbers: Vec<u32> = heap.iter().chain(&overflow).map(|page| page.page).collect();
        numbers.sort_unstable();
        let numbered: Vec<u32> = (0..next_page).collect();
        prop_assert_eq!(numbers, numbered, "each number is given out once");
        let all: Vec<EncodedPage> = overflow.into_iter().chain(heap).collect();
        let stored = Stored::place(&all);
        let decoded: Vec<RecordBatch> =
            stored.heap.iter().map(|page| stored.decode(&schema, *page).unwrap()).collect();
        let found = concat_batches(&decoded[0].schema(), &decoded).unwrap();
        let expected = concat_batches(&schema.arrow(), &batches).unwrap();
        for index in 0..3 {
            assert_same(expected.column(index), found.column(index));
        }
        let mut row = 0;
        for (turn, count) in counts.iter().enumerate() {
            for at in 0..*count {
                let number = |column: usize| found.column(column).as_primitive::<UInt64Type>().value(row);
                prop_assert_eq!(number(3), at as u64 * 3 + turn as u64 * 1000);
                prop_assert_eq!(number(4), turn as u64 + 1);
                row += 1;
            }
        }
    }
}

#[test]
fn rows_that_come_one_by_one_fill_pages_as_rows_that_come_at_once() {
    let schema = table(&[ColumnType::Int]);
    let class = PageClass { page_bytes: 4096, ..PageClass::HOT };
    let bits: Vec<Option<u64>> = (0..1000).map(|row| Some(row * 77 % 1009)).collect();
    let batch =
        RecordBatch::try_new(schema.arrow(), vec![array(&ColumnType::Int, &bits, 0)]).unwrap();
    let versions = |first: u64, commits: std::ops::Range<u64>| Versions {
        commit: CommitColumn::Each(commits.collect()),
        ..Versions::loaded(first)
    };
    let at_once =
        append_rows(SEGMENT, &schema, class, None, 0, &batch, versions(1, 1..1001)).unwrap();

    let mut pages = Vec::<EncodedPage>::new();
    for row in 0..1000 {
        let tail = pages.last().map(|page| {
            let stored = Stored::place(std::slice::from_ref(page));
            let (page, columns) = (stored.heap[0], all_columns(&schema));
            let read = PageRead { segment: SEGMENT, page, columns };
            let columns = stored.pages().read_page(&read).unwrap();
            (read, columns)
        });
        let tail = tail.as_ref().map(|(read, columns)| Tail { read, columns });
        let next_page = u32::try_from(pages.len()).unwrap();
        let vid = u64::try_from(row).unwrap() + 1;
        let (one, versions) = (batch.slice(row, 1), versions(vid, vid..vid + 1));
        for page in append_rows(SEGMENT, &schema, class, tail, next_page, &one, versions).unwrap() {
            pages.truncate(usize::try_from(page.page).unwrap());
            pages.push(page);
        }
    }
    let rows = |pages: &[EncodedPage]| pages.iter().map(|page| page.row_count).collect::<Vec<_>>();
    assert!(pages.len().abs_diff(at_once.len()) <= 1, "{:?}, {:?}", rows(&pages), rows(&at_once));
    assert_eq!(rows(&pages).iter().sum::<u32>(), 1000);
    for (pages, row_count) in [(&pages, 1000), (&at_once, 1000)] {
        let stored = Stored::place(pages);
        let decoded: Vec<RecordBatch> =
            stored.heap.iter().map(|page| stored.decode(&schema, *page).unwrap()).collect();
        let found = concat_batches(&decoded[0].schema(), &decoded).unwrap();
        assert_same(batch.column(0), found.column(0));
        let numbers = |column: usize| found.column(column).as_primitive::<UInt64Type>().values();
        assert!(numbers(1).iter().copied().eq(1..=row_count), "VIDs");
        assert!(numbers(2).iter().copied().eq(1..=row_count), "commits");
    }
}

#[test]
fn a_full_tail_is_left_alone() {
    let schema = table(&[ColumnType::Text]);
    let wide = |count: usize| -> RecordBatch {
        let texts = StringArray::from(vec!["x".repeat(2000); count]);
        RecordBatch::try_new(schema.arrow(), vec![Arc::new(texts)]).unwrap()
    };
    let pages = write(&schema, PageClass::HOT, &[wide(8)]);
    assert_eq!(pages.iter().map(|page| page.row_count).collect::<Vec<_>>(), [8]);
    let stored = Stored::place(&pages);
    let read = PageRead { segment: SEGMENT, page: stored.heap[0], columns: all_columns(&schema) };
    let columns = stored.pages().read_page(&read).unwrap();
    let tail = Tail { read: &read, columns: &columns };
    let versions = Versions { commit: CommitColumn::Each(vec![9]), ..Versions::loaded(1) };
    let new =
        append_rows(SEGMENT, &schema, PageClass::HOT, Some(tail), 1, &wide(1), versions).unwrap();
    assert_eq!(new.iter().map(|page| (page.page, page.row_count)).collect::<Vec<_>>(), [(1, 1)]);
}

#[test]
fn a_row_wider_than_a_page_gets_a_page_of_its_own() {
    let schema = table(&[ColumnType::Text; 200]);
    let bits: Vec<Option<u64>> = (0..5).map(Some).collect();
    let columns = (0..200).map(|_| array(&ColumnType::Text, &bits, 600)).collect();
    let batches = [RecordBatch::try_new(schema.arrow(), columns).unwrap()];
    let pages = write(&schema, PageClass::HOT, &batches);
    assert_eq!(pages.len(), 5);
    assert!(pages.iter().all(|page| page.row_count == 1 && page.bytes.len() > 16 << 10));
    assert_round_trip(&schema, &pages, &batches);
}

#[test]
fn columns_that_follow_a_rule_take_no_bytes() {
    let schema = table(&[ColumnType::Int, ColumnType::BigInt, ColumnType::Text, ColumnType::Real]);
    let counting: Vec<Option<u64>> = (1..=1000).map(Some).collect();
    let batch = RecordBatch::try_new(
        schema.arrow(),
        vec![
            array(&ColumnType::Int, &counting, 0),
            array(&ColumnType::BigInt, &vec![Some(u64::MAX); 1000], 0),
            array(&ColumnType::Text, &vec![None; 1000], 0),
            array(&ColumnType::Real, &vec![Some(f32::NAN.to_bits().into()); 1000], 0),
        ],
    )
    .unwrap();
    let pages = write(&schema, PageClass::BULK, std::slice::from_ref(&batch));
    assert_eq!(pages.len(), 1);
    assert_eq!(pages[0].bytes.len(), 4096, "nothing but a header");
    assert_round_trip(&schema, &pages, &[batch]);
    let stored = Stored::place(&pages);
    let read = PageRead { segment: SEGMENT, page: stored.heap[0], columns: vec![] };
    let header = stored.pages().read_page(&read).unwrap().header;
    let encodings: Vec<Encoding> = header.chunks.iter().map(|chunk| chunk.encoding).collect();
    assert_eq!(
        encodings,
        [
            Encoding::Constant,
            Encoding::Constant,
            Encoding::Constant,
            Encoding::Sequence,
            Encoding::Sequence,
            Encoding::FromSegment
        ]
    );
}

#[test]
fn bulk_pages_fill_up_to_their_size() {
    let schema = table(&[ColumnType::BigInt, ColumnType::Double, ColumnType::Text]);
    let batches: Vec<RecordBatch> = (0..12)
        .map(|seed| {
            let bits: Vec<Option<u64>> =
                (0..8192).map(|row| Some((row + seed) * 0x9e37_79b9)).collect();
            let columns = [ColumnType::BigInt, ColumnType::Double, ColumnType::Text]
                .iter()
                .map(|column_type| array(column_type, &bits, 90))
                .collect();
            RecordBatch::try_new(schema.arrow(), columns).unwrap()
        })
        .collect();
    let class = PageClass { page_bytes: 2 << 20, ..PageClass::BULK };
    let plain_class = PageClass { chunk_alignment: 2048, ..class };
    let pages = write(&schema, plain_class, &batches);
    assert!(pages.len() > 2);
    for page in &pages[..pages.len() - 1] {
        let fill = page.bytes.len();
        assert!((2 << 20) - 65_536 < fill && fill <= 2 << 20, "{fill} bytes");
    }
    assert_round_trip(&schema, &pages, &batches);
    let encoded = write(&schema, class, &batches);
    let bytes = |pages: &[EncodedPage]| pages.iter().map(|page| page.bytes.len()).sum::<usize>();
    assert!(bytes(&encoded) < bytes(&pages) / 2, "{} bytes", bytes(&encoded));
    assert_round_trip(&schema, &encoded, &batches);
    assert_eq!(hot(&pages).len(), pages.len());
}

#[test]
fn rows_of_another_type_or_number_are_refused() {
    let schema = table(&[ColumnType::Int]);
    let other = table(&[ColumnType::Text]);
    let mut writer = SegmentWriter::new(SEGMENT, &schema, PageClass::HOT, 0, 0).unwrap();
    let mismatch = |error: StoreError| matches!(error, StoreError::Mismatch { .. });
    assert!(mismatch(writer.push(&rows(&other, 2, 3, 0)).unwrap_err()));
    let batch = rows(&schema, 2, 3, 0);
    let versions = Versions { commit: CommitColumn::Each(vec![1]), ..Versions::loaded(0) };
    assert!(mismatch(writer.push_versions(&batch, versions).unwrap_err()));
    let last = Versions::loaded(u64::MAX);
    assert!(matches!(
        writer.push_versions(&batch, last).unwrap_err(),
        StoreError::OutOfRange { what: "vid", .. }
    ));
    let stranger = TableSchema { table_id: 8, ..schema.clone() };
    assert!(mismatch(SegmentWriter::new(SEGMENT, &stranger, PageClass::HOT, 0, 0).unwrap_err()));
    let odd = PageClass { chunk_alignment: 100, ..PageClass::HOT };
    assert!(mismatch(SegmentWriter::new(SEGMENT, &schema, odd, 0, 0).unwrap_err()));
}

#[test]
fn a_segment_without_page_numbers_left_says_so() {
    let schema = table(&[ColumnType::Int]);
    let mut writer =
        SegmentWriter::new(SEGMENT, &schema, PageClass::HOT, crate::ids::PAGE_MAX + 1, 0).unwrap();
    writer.push(&rows(&schema, 1, 0, 0)).unwrap();
    assert!(matches!(writer.finish().unwrap_err(), StoreError::OutOfRange { what: "page", .. }));

    // A part of the numbers, where others write pages of the same segment.
    let writer = SegmentWriter::new(SEGMENT, &schema, PageClass::HOT, 40, 0).unwrap();
    let mut writer = writer.with_pages_below(41).with_pages_below(crate::ids::PAGE_MAX + 9);
    let many = rows(&schema, 40_000, 0, 0);
    let pages = writer.push(&many);
    assert!(matches!(pages.unwrap_err(), StoreError::OutOfRange { what: "page", max: 40, .. }));
}

#[test]
fn index_runs_and_version_columns_are_pages_like_others() {
    let schema = table(&[ColumnType::Bytea]);
    let mut writer = SegmentWriter::new(SEGMENT, &schema, PageClass::HOT, 4, 0)
        .unwrap()
        .with_kind(PageKind::IndexRun);
    let batch = rows(&schema, 3, 5, 1);
    let versions = Versions { vid: VidColumn::Each(vec![9, 2, 5]), ..Versions::loaded(0) };
    writer.push_versions(&batch, versions).unwrap();
    let pages = writer.finish().unwrap();
    assert_eq!((pages[0].kind, pages[0].page, pages[0].vid_first), (PageKind::IndexRun, 4, 9));
    assert!(pages[0].zones.is_empty(), "whoever writes a run sets them");
    let stored = Stored::place(&pages);
    let decoded = stored.decode(&schema, stored.heap[0]).unwrap();
    assert_same(batch.column(0), decoded.column(0));
    assert_eq!(decoded.column(1).as_primitive::<UInt64Type>().values()[..], [9, 2, 5]);
    assert_eq!(decoded.column(2).as_primitive::<UInt64Type>().values()[..], [41, 41, 41]);
    let read = PageRead { segment: SEGMENT, page: stored.heap[0], columns: vec![ColumnRef::Vid] };
    assert_eq!(stored.pages().read_page(&read).unwrap().header.kind, PageKind::IndexRun);
}
