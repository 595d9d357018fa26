//! Reading pages from media: how much is read, and that every kind of lost write is found and named.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use bytes::Bytes;
use cleave_media::{
    AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, FaultyMedia, Media, MediaError,
};
use futures::executor::block_on;

use crate::page::testing::{SEGMENT, Stored, array, everything, rows, table};
use crate::{
    ColumnRef, ColumnType, Corruption, EncodedPage, MediaPages, OverflowValues, PageClass,
    PageColumns, PageRead, PageRef, PageSource, Projection, SegmentId, SegmentRef, SegmentWriter,
    StoreError, TableSchema, all_columns, decode_batch,
};

const BLOCK: u64 = BLOCK_SIZE as u64;

fn write(schema: &TableSchema, class: PageClass, batch: &RecordBatch) -> Vec<EncodedPage> {
    let mut writer = SegmentWriter::new(SEGMENT, schema, class, 0, 1).unwrap();
    let mut pages = writer.push(batch).unwrap();
    pages.extend(writer.finish().unwrap());
    pages
}

/// Makes neighbouring numbers differ in all of their bits.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Four columns of 8 bytes without a pattern, 20,000 rows: 40 blocks of header-free bytes a column, ids 4 to 1.
fn bulk() -> (TableSchema, RecordBatch, Stored) {
    let schema = table(&[ColumnType::BigInt; 4]);
    let columns = (0..4_u64).map(|column| {
        let bits: Vec<Option<u64>> =
            (0..20_000).map(|row| Some((4 * row + column + 1).wrapping_mul(ODD))).collect();
        array(&ColumnType::BigInt, &bits, 0)
    });
    let batch = RecordBatch::try_new(schema.arrow(), columns.collect()).unwrap();
    let stored = Stored::place(&write(&schema, PageClass::BULK, &batch));
    assert_eq!(stored.heap.len(), 1);
    (schema, batch, stored)
}

fn read(page: PageRef, columns: &[ColumnRef]) -> PageRead {
    PageRead { segment: SEGMENT, page, columns: columns.to_vec() }
}

#[test]
fn only_header_and_asked_columns_are_read() {
    let (_, batch, stored) = bulk();
    let chunk_blocks = 20_000_u64 * 8 / BLOCK + 1;
    for (columns, blocks) in [
        (vec![], 1),
        (vec![ColumnRef::Vid, ColumnRef::Commit], 1),
        (vec![ColumnRef::User(3)], 1 + chunk_blocks),
        (vec![ColumnRef::User(4), ColumnRef::User(1)], 1 + 2 * chunk_blocks),
        (vec![ColumnRef::User(2), ColumnRef::User(1), ColumnRef::User(2)], 1 + 2 * chunk_blocks),
    ] {
        let before = stored.media.bytes_read();
        let page = stored.pages().read_page(&read(stored.heap[0], &columns)).unwrap();
        assert_eq!(stored.media.bytes_read() - before, blocks * BLOCK, "{columns:?}");
        assert_eq!(page.chunks.len(), columns.len());
        for (column, chunk) in columns.iter().zip(&page.chunks) {
            assert_eq!(chunk.is_some(), matches!(column, ColumnRef::User(_)));
        }
    }
    assert_eq!(batch.num_rows(), 20_000);
}

/// Media that counts reads, and those of one call.
#[derive(Debug)]
struct Counting {
    media: Arc<dyn Media>,
    reads: AtomicU64,
    turns: AtomicU64,
    /// A test fails if more blocks are read at once.
    blocks_max: u32,
}

impl Counting {
    fn over(stored: &Stored) -> Arc<Self> {
        let media = Arc::clone(&stored.media) as Arc<dyn Media>;
        let (reads, turns) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { media, reads, turns, blocks_max: u32::MAX })
    }

    fn pages(self: &Arc<Self>) -> MediaPages {
        MediaPages::new(Arc::clone(self) as Arc<dyn Media>)
    }
}

impl Media for Counting {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        assert!(extent.block_count <= self.blocks_max, "memory for {extent}");
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.media.read(extent)
    }
    fn read_many(&self, extents: &[Extent]) -> Result<Vec<AlignedBuffer>, MediaError> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        extents.iter().map(|extent| self.read(*extent)).collect()
    }
    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        self.media.write(start, data)
    }
    fn sync(&self) -> Result<(), MediaError> {
        self.media.sync()
    }
    fn block_count(&self) -> u64 {
        self.media.block_count()
    }
    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        self.media.grow_to(block_count)
    }
    fn bytes_read(&self) -> u64 {
        self.media.bytes_read()
    }
    fn bytes_written(&self) -> u64 {
        self.media.bytes_written()
    }
}

#[test]
fn neighbouring_chunks_come_in_one_read() {
    let (schema, _, stored) = bulk();
    let reads_of = |page: PageRef, media: &Stored, columns: &[ColumnRef]| {
        let counting = Counting::over(media);
        counting.pages().read_page(&read(page, columns)).unwrap();
        counting.reads.load(Ordering::Relaxed)
    };
    let user = ColumnRef::User;
    assert_eq!(reads_of(stored.heap[0], &stored, &[]), 1);
    assert_eq!(reads_of(stored.heap[0], &stored, &[user(1), user(2), user(3)]), 2);
    assert_eq!(reads_of(stored.heap[0], &stored, &[user(1), user(3)]), 3);
    assert_eq!(reads_of(stored.heap[0], &stored, &all_columns(&schema)), 2);
    let hot = Stored::place(&write(&schema, PageClass::HOT, &rows(&schema, 20, 0, 3)));
    assert_eq!(reads_of(hot.heap[0], &hot, &all_columns(&schema)), 1);
}

#[test]
fn a_chunk_for_a_host_keeps_no_neighbours_in_memory() {
    let block = Bytes::from(vec![7; 90_000]);
    let alone = super::apart(&block, 0..89_000);
    assert_eq!((alone.len(), alone.as_ptr()), (89_000, block.as_ptr()), "read alone, not copied");
    let beside = super::apart(&block, 1000..41_000);
    assert_eq!(&beside[..], &block[1000..41_000]);
    assert!(!block.as_ptr_range().contains(&beside.as_ptr()), "read with others, copied");

    let (_, _, stored) = bulk();
    let wish = read(stored.heap[0], &[ColumnRef::User(2), ColumnRef::User(1), ColumnRef::Vid]);
    let raw = stored.pages().read_raw(&wish).unwrap();
    let page = stored.pages().read_page(&wish).unwrap();
    assert_eq!(raw.chunks, page.chunks);
}

#[test]
fn a_header_longer_than_a_block_is_read_whole() {
    let schema = table(&[ColumnType::BigInt; 300]);
    let bits: Vec<Option<u64>> = (0..200).map(|row| Some(row * row)).collect();
    let columns = (0..300).map(|_| array(&ColumnType::BigInt, &bits, 0));
    let batch = RecordBatch::try_new(schema.arrow(), columns.collect()).unwrap();
    let stored = Stored::place(&write(&schema, PageClass::BULK, &batch));
    let before = stored.media.bytes_read();
    let wish = read(stored.heap[0], &[ColumnRef::User(300), ColumnRef::User(1)]);
    let page = stored.pages().read_page(&wish).unwrap();
    assert_eq!(page.header.header_length, 48 + 302 * 40);
    assert_eq!(stored.media.bytes_read() - before, BLOCK + 3 * BLOCK + 2 * BLOCK);
    let decoded = stored.decode(&schema, stored.heap[0]).unwrap();
    assert_eq!(decoded.column(0), batch.column(0));
    assert_eq!(decoded.column(299), batch.column(299));
}

#[test]
fn long_headers_of_many_pages_are_read_at_once() {
    let schema = table(&[ColumnType::BigInt; 300]);
    let bits: Vec<Option<u64>> = (0..600_u64).map(|row| Some(row.wrapping_mul(ODD))).collect();
    let columns = (0..300).map(|_| array(&ColumnType::BigInt, &bits, 0));
    let batch = RecordBatch::try_new(schema.arrow(), columns.collect()).unwrap();
    let class = PageClass { row_count_max: 100, ..PageClass::BULK };
    let stored = Stored::place(&write(&schema, class, &batch));
    assert_eq!(stored.heap.len(), 6);
    let wishes: Vec<PageRead> =
        stored.heap.iter().map(|page| read(*page, &[ColumnRef::User(7)])).collect();
    let counting = Counting::over(&stored);
    let pages = counting.pages().read_pages(&wishes).unwrap();
    assert_eq!(pages.len(), 6);
    for (page, wish) in pages.iter().zip(&wishes) {
        assert_eq!(page.header.page, wish.page.page);
    }
    let turns = counting.turns.load(Ordering::Relaxed);
    assert_eq!(turns, 3, "first blocks, headers, chunks");
}

#[test]
fn lies_about_sizes_take_no_memory() {
    let schema = table(&[ColumnType::Text]);
    let long = arrow::array::StringArray::from(vec!["x".repeat(300_000)]);
    let batch = RecordBatch::try_new(schema.arrow(), vec![Arc::new(long)]).unwrap();
    let stored = Stored::place(&write(&schema, PageClass::HOT, &batch));
    let counting = Counting {
        media: Arc::clone(&stored.media) as Arc<dyn Media>,
        reads: AtomicU64::new(0),
        turns: AtomicU64::new(0),
        blocks_max: 64,
    };
    let pages = MediaPages::new(Arc::new(counting));
    let sized = |page: &PageRef, block_count: u32| {
        let extent = Extent { block_count, ..page.extent };
        PageRef { extent, ..*page }
    };
    // A reference to as many blocks as the media may have.
    let overflow = stored.overflow[0];
    for block_count in [65, 1 << 28, u32::MAX] {
        let lie = sized(&overflow, block_count);
        assert_corrupt(pages.read_overflow_page(&SEGMENT, &lie), lie, None);
        if block_count > 65 {
            let lie = sized(&stored.heap[0], block_count);
            assert_corrupt(pages.read_page(&read(lie, &[])), lie, None);
        }
    }
    pages.read_overflow_page(&SEGMENT, &overflow).unwrap();
    // A first block that claims such a header length.
    let heap = stored.heap[0];
    let mut block = stored.media.read(Extent { block_count: 1, ..heap.extent }).unwrap();
    for chunk_count in [1605_u32, 100_000] {
        block[32..36].copy_from_slice(&(48 + 40 * chunk_count).to_le_bytes());
        stored.media.write(heap.extent.start, &block).unwrap();
        let lie = sized(&heap, 1 << 16);
        assert_corrupt(pages.read_page(&read(lie, &[])), lie, None);
    }
}

#[test]
fn a_batch_of_reads_is_answered_in_order() {
    let schema = table(&[ColumnType::BigInt]);
    let stored = Stored::place(&write(&schema, PageClass::HOT, &rows(&schema, 9000, 0, 4)));
    assert!(stored.heap.len() > 2);
    let columns = [ColumnRef::Vid];
    let mut reads: Vec<PageRead> = stored.heap.iter().map(|page| read(*page, &columns)).collect();
    reads.reverse();
    let source: Arc<dyn PageSource> = Arc::new(stored.pages());
    let answers = block_on(source.read(reads.clone())).unwrap();
    let projection = Projection::new(Arc::new(arrow::datatypes::Schema::empty()), vec![])
        .with_version(ColumnRef::Vid);
    let mut last = u64::MAX;
    for (answer, wish) in answers.iter().zip(&reads) {
        let batch = decode_batch(answer, wish, &projection, None, &OverflowValues::none()).unwrap();
        let vids = batch.column(0).as_primitive::<UInt64Type>();
        assert!(vids.value(vids.values().len() - 1) < last);
        last = vids.value(0);
    }
}

#[test]
fn bytes_for_a_peer_verify_on_the_other_side() {
    let (schema, _, stored) = bulk();
    let wish = read(stored.heap[0], &[ColumnRef::User(2), ColumnRef::Vid]);
    let raw = stored.pages().read_raw(&wish).unwrap();
    assert_eq!(raw.header.len(), 48 + 6 * 40);
    let page = PageColumns::verify(&wish, raw.clone()).unwrap();
    assert_eq!(page.byte_size(), 20_000 * 8);
    let mut tampered = raw.clone();
    tampered.chunks[0] = raw.chunks[0].as_ref().map(|chunk| chunk.slice(8..));
    assert_corrupt(PageColumns::verify(&wish, tampered), stored.heap[0], Some(ColumnRef::User(2)));
    let mut tampered = raw.clone();
    tampered.chunks[1] = raw.chunks[0].clone();
    assert_corrupt(PageColumns::verify(&wish, tampered), stored.heap[0], Some(ColumnRef::Vid));
    let mut short = raw;
    short.chunks.pop();
    assert!(matches!(PageColumns::verify(&wish, short), Err(StoreError::Mismatch { .. })));
    assert_eq!(schema.columns.len(), 4);
}

fn assert_corrupt<T>(found: Result<T, StoreError>, page: PageRef, column: Option<ColumnRef>) {
    match found {
        Err(StoreError::Corrupt { segment, page: number, address, column: named, .. }) => {
            assert_eq!(
                (segment, number, address, named),
                (SEGMENT.segment, page.page, page.extent.start, column)
            );
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("damage was not found"),
    }
}

#[test]
fn a_damaged_chunk_harms_only_reads_of_its_column() {
    let (schema, batch, stored) = bulk();
    let header = stored.pages().read_page(&read(stored.heap[0], &[])).unwrap().header;
    let chunk = header.entry(ColumnRef::User(2)).unwrap();
    let block = BlockAddress(stored.heap[0].extent.start.0 + u64::from(chunk.offset) / BLOCK + 3);
    let mut bytes = stored.media.read(Extent { start: block, block_count: 1 }).unwrap();
    bytes[77] ^= 4;
    stored.media.write(block, &bytes).unwrap();
    let error = stored.pages().read_page(&read(stored.heap[0], &[ColumnRef::User(2)])).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("page 0 of segment 3 at block 1 is corrupt, column 2: its checksum is "),
        "{text}"
    );
    assert_corrupt::<()>(Err(error), stored.heap[0], Some(ColumnRef::User(2)));
    let wish = read(stored.heap[0], &[ColumnRef::User(1), ColumnRef::User(3)]);
    let page = stored.pages().read_page(&wish).unwrap();
    let projection = Projection::of_table(&schema, &[3, 1]);
    let decoded = decode_batch(&page, &wish, &projection, None, &OverflowValues::none()).unwrap();
    assert_eq!(decoded.column(0), batch.column(3));
    assert_eq!(decoded.column(1), batch.column(1));
}

#[test]
fn lost_stale_torn_and_misdirected_writes_are_found() {
    let schema = table(&[ColumnType::BigInt; 3]);
    let page = |salt: u64| {
        let bits: Vec<Option<u64>> = (0..9000).map(|row| Some(row * row + salt)).collect();
        let columns = (0..3).map(|_| array(&ColumnType::BigInt, &bits, 0));
        let batch = RecordBatch::try_new(schema.arrow(), columns.collect()).unwrap();
        write(&schema, PageClass::BULK, &batch).remove(0)
    };
    let (old, new) = (page(1), page(2));
    assert_ne!(old.bytes, new.bytes);
    let media = Arc::new(FaultyMedia::new());
    media.grow_to(400).unwrap();
    let place = new.page_ref(BlockAddress(100));
    let wish = read(place, &all_columns(&schema));
    let pages = MediaPages::new(Arc::clone(&media) as Arc<dyn Media>);

    // Lost: the blocks hold nothing.
    assert_corrupt(pages.read_page(&wish), place, None);
    // Stale: they hold what lay there before.
    media.write(BlockAddress(100), &old.bytes).unwrap();
    assert_corrupt(pages.read_page(&wish), place, None);
    // Torn: the header and a part of the chunks are new.
    media.write(BlockAddress(100), &new.bytes[..8 * BLOCK_SIZE]).unwrap();
    assert!(matches!(
        pages.read_page(&wish),
        Err(StoreError::Corrupt { column: Some(_), reason: Corruption::Checksum { .. }, .. })
    ));
    // Misdirected: the page lies elsewhere, and another one here.
    media.write(BlockAddress(200), &new.bytes).unwrap();
    media.write(BlockAddress(100), &page(3).bytes).unwrap();
    assert_corrupt(pages.read_page(&wish), place, None);
    // Whole again.
    media.write(BlockAddress(100), &new.bytes).unwrap();
    pages.read_page(&wish).unwrap();

    // A reference to another table, segment, page or schema version than that of the bytes.
    for segment in [
        SegmentRef { table_id: 1, ..SEGMENT },
        SegmentRef { segment: SegmentId(9), ..SEGMENT },
        SegmentRef { schema_version: 9, ..SEGMENT },
    ] {
        let wish = PageRead { segment, ..wish.clone() };
        assert!(matches!(
            pages.read_page(&wish),
            Err(StoreError::Corrupt { reason: Corruption::Field { .. }, .. })
        ));
    }
    for page in [
        PageRef { page: 5, ..place },
        PageRef { row_count: 8999, ..place },
        PageRef { extent: Extent { block_count: 5, ..place.extent }, ..place },
    ] {
        assert_corrupt(pages.read_page(&PageRead { page, ..wish.clone() }), page, None);
    }
    let away = PageRef { extent: Extent { start: BlockAddress(500), ..place.extent }, ..place };
    assert!(matches!(
        pages.read_page(&PageRead { page: away, ..wish }),
        Err(StoreError::Media { page: 0, source: MediaError::OutOfRange { .. }, .. })
    ));
}

#[test]
fn damage_to_a_page_leaves_others_alone() {
    let schema = table(&[ColumnType::BigInt, ColumnType::Text]);
    let pages = write(&schema, PageClass::HOT, &rows(&schema, 2000, 40, 2));
    let stored = Stored::place(&pages);
    let hurt = stored.heap[1];
    stored.media.write(hurt.extent.start, &[0xee; BLOCK_SIZE]).unwrap();
    for page in &stored.heap {
        let found = stored.decode(&schema, *page);
        if page.page == hurt.page {
            assert_corrupt(found, hurt, None);
        } else {
            assert_eq!(found.unwrap().num_columns(), everything(&schema).columns.len());
        }
    }
}
