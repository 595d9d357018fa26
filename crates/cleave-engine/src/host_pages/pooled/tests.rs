//! Tests of fetches that fail.

use std::sync::mpsc;
use std::time::Duration;

use arrow::array::{RecordBatch, StringArray};
use cleave_media::{BlockAddress, Extent};
use cleave_store::{Column, ColumnType, PageClass, SegmentId, SegmentWriter, TableSchema};

use super::*;

/// A source that has nothing.
#[derive(Debug)]
struct Nothing;

impl PageSource for Nothing {
    fn read(&self, _: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        let reason = "nothing is there".to_owned();
        async { Err(StoreError::Mismatch { what: "a page read", reason }) }.boxed()
    }

    fn read_overflow(
        &self,
        _: SegmentRef,
        _: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        async { Ok(Vec::new()) }.boxed()
    }
}

#[test]
fn a_read_while_the_runtime_ends_fails_and_leaves_no_flight() {
    let extent = Extent { start: BlockAddress(0), block_count: 1 };
    let page = PageRef { page: 0, extent, row_count: 1, checksum: 7 };
    let segment = SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
    let read = PageRead { segment, page, columns: vec![ColumnRef::User(1)] };
    let pages = PooledPages::new(DeviceId::EMBEDDED, Arc::new(BufferPool::new(1 << 20)));
    let header = pages.key(&page, Part::Header);
    let (told, tell) = (pages.clone(), mpsc::channel());
    let (give, take) = tell;
    let thread = std::thread::Builder::new().spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        // The spawning call drops the task.
        let _entered = handle.enter();
        let source: Arc<dyn PageSource> = Arc::new(Nothing);
        let outcome = futures::executor::block_on(told.read_through(&[read], &source));
        give.send(outcome.is_err()).unwrap();
    });
    drop(thread.unwrap());
    assert_eq!(take.recv_timeout(Duration::from_secs(60)), Ok(true), "it waits for itself");
    assert!(pages.pool.flights().of_page(&header).is_empty());
}

/// A page of 2,000 rows with one of four long words each, and what reads these.
fn words() -> (Vec<u8>, PageRead) {
    let column = Column {
        id: 1,
        name: "word".into(),
        column_type: ColumnType::Text,
        not_null: false,
        default: None,
        absent: None,
    };
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "t".into(),
        columns: vec![column],
        primary_key: Vec::new(),
    };
    let words = (0..2000).map(|row| format!("word {} ", row % 4).repeat(50));
    let column = Arc::new(StringArray::from_iter_values(words));
    let rows = RecordBatch::try_new(schema.arrow(), vec![column]).unwrap();
    let segment = SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
    let mut writer = SegmentWriter::new(segment, &schema, PageClass::BULK, 0, 1).unwrap();
    let mut pages = writer.push(&rows).unwrap();
    pages.extend(writer.finish().unwrap());
    let page = pages.first().unwrap();
    let extent = Extent { start: BlockAddress(0), block_count: page.block_count() };
    let (row_count, checksum) = (page.row_count, page.checksum);
    let place = PageRef { page: page.page, extent, row_count, checksum };
    (page.bytes.to_vec(), PageRead { segment, page: place, columns: vec![ColumnRef::User(1)] })
}

#[test]
fn what_is_opened_of_a_page_that_is_held_whole_counts() {
    let (bytes, read) = words();
    let pages_in = |budget: u64| {
        let pages = PooledPages::new(DeviceId::EMBEDDED, Arc::new(BufferPool::new(budget)));
        pages.keep_written(read.segment, read.page, &bytes);
        pages
    };
    let pages = pages_in(1 << 30);
    let before = pages.pool.status().bytes;
    assert!(before >= bytes.len() as u64);
    let opened = pages.open_at_hand(&read).unwrap();
    let after = pages.pool.status().bytes;
    assert_eq!(after - before, opened.own_byte_count() as u64);
    // Four words of 350 bytes.
    assert!(after - before >= 1400, "{}", after - before);
    assert!(pages.open_at_hand(&read).is_some());
    assert_eq!(pages.pool.status().bytes, after);
    // What there is no room for beside it goes with it, and is read again.
    let pages = pages_in(before + 1000);
    assert_eq!(pages.pool.status().bytes, before);
    assert!(pages.open_at_hand(&read).is_some());
    assert_eq!(pages.pool.status().bytes, 0);
    assert!(pages.open_at_hand(&read).is_none());
}
