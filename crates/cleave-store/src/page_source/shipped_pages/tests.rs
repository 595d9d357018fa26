//! Pages in memory beside those of media, in the requested order; damaged, missing and invalid pages are refused.

use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use cleave_media::{BlockAddress, Media, Memory};
use futures::executor::block_on;

use crate::page::testing::{SEGMENT, table};
use crate::{
    ColumnRef, ColumnType, MediaPages, OverflowValues, PageClass, PageRead, PageRef, PageSource,
    Projection, SHIPPED_START, SegmentId, SegmentRef, SegmentWriter, ShippedPages, StoreError,
    decode_batch,
};

const SHIPPED: SegmentRef =
    SegmentRef { segment: SegmentId(crate::ids::SHIPPED_SEGMENT_FIRST), ..SEGMENT };

/// A page of one column with these values.
fn page(segment: SegmentRef, values: &[i64], start: BlockAddress) -> (PageRef, Bytes) {
    let schema = table(&[ColumnType::BigInt]);
    let array = Arc::new(Int64Array::from(values.to_vec()));
    let batch = RecordBatch::try_new(schema.arrow(), vec![array]).unwrap();
    let mut writer = SegmentWriter::new(segment, &schema, PageClass::HOT, 0, 1).unwrap();
    let mut pages = writer.push(&batch).unwrap();
    pages.extend(writer.finish().unwrap());
    let [page] = pages.as_slice() else { panic!("one page") };
    (page.page_ref(start), Bytes::copy_from_slice(&page.bytes))
}

fn read(segment: SegmentRef, page: PageRef) -> PageRead {
    PageRead { segment, page, columns: vec![ColumnRef::User(1)] }
}

/// A page of media, a page in memory, and a source of both.
fn both() -> (PageRead, PageRead, Arc<dyn PageSource>) {
    let media = Memory::new();
    let (stored, bytes) = page(SEGMENT, &[1, 2], BlockAddress(3));
    media.grow_to(8).unwrap();
    media.write(BlockAddress(3), &bytes).unwrap();
    let (shipped, bytes) = page(SHIPPED, &[7, 8, 9], SHIPPED_START);
    let pages = ShippedPages::new([(SHIPPED_START, bytes)]).unwrap();
    let source = pages.over(Arc::new(MediaPages::new(Arc::new(media))));
    (read(SEGMENT, stored), read(SHIPPED, shipped), source)
}

#[test]
fn pages_of_both_come_in_the_order_asked_for() {
    let (stored, shipped, source) = both();
    let reads = vec![shipped.clone(), stored.clone(), shipped.clone()];
    let schema = table(&[ColumnType::BigInt]);
    let projection = Projection::of_table(&schema, &[0]);
    for pages in
        [block_on(source.read(reads.clone())), block_on(source.read_scattered(reads.clone()))]
    {
        let values: Vec<Vec<i64>> = pages
            .unwrap()
            .iter()
            .zip(&reads)
            .map(|(page, read)| {
                let rows = decode_batch(page, read, &projection, None, &OverflowValues::default())
                    .unwrap();
                rows.column(0).as_primitive::<Int64Type>().values().to_vec()
            })
            .collect();
        assert_eq!(values, [vec![7, 8, 9], vec![1, 2], vec![7, 8, 9]]);
    }
    let opened = block_on(source.open(reads)).unwrap();
    assert_eq!(opened.iter().flatten().count(), 3);
    assert!(source.open_at_hand(&shipped).is_none());
}

#[test]
fn a_page_that_is_damaged_or_missing_is_an_error() {
    let (_, shipped, source) = both();
    let elsewhere = PageRef {
        extent: cleave_media::Extent {
            start: BlockAddress(SHIPPED_START.0 + 9),
            ..shipped.page.extent
        },
        ..shipped.page
    };
    let missing = block_on(source.read(vec![read(SHIPPED, elsewhere)]));
    assert!(matches!(missing, Err(StoreError::Media { .. })), "{missing:?}");
    let (page, bytes) = page(SHIPPED, &[7, 8, 9], SHIPPED_START);
    let mut bytes = bytes.to_vec();
    bytes[20] ^= 1;
    let pages = ShippedPages::new([(SHIPPED_START, bytes.into())]).unwrap();
    let source = pages.over(Arc::new(MediaPages::new(Arc::new(Memory::new()))));
    let damaged = block_on(source.read(vec![read(SHIPPED, page)]));
    assert!(matches!(damaged, Err(StoreError::Corrupt { .. })), "{damaged:?}");
}

#[test]
fn what_cannot_be_pages_is_refused() {
    let blocks = |count: usize| Bytes::from(vec![0; count * 4096]);
    let at = |offset: u64| BlockAddress(SHIPPED_START.0 + offset);
    for pages in [
        vec![(BlockAddress(SHIPPED_START.0 - 1), blocks(1))],
        vec![(at(0), Bytes::new())],
        vec![(at(0), Bytes::from_static(&[0; 100]))],
        vec![(at(1), blocks(1)), (at(1), blocks(1))],
        vec![(at(4), blocks(1)), (at(0), blocks(5))],
        vec![(BlockAddress(u64::MAX), blocks(1))],
    ] {
        assert!(matches!(ShippedPages::new(pages), Err(StoreError::Mismatch { .. })));
    }
    let pages = ShippedPages::new([(at(4), blocks(2)), (at(0), blocks(4))]).unwrap();
    assert_eq!(pages.byte_count(), 6 * 4096);
}
