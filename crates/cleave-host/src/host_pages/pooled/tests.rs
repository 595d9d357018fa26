//! Fetches that come to nothing.

use std::sync::mpsc;
use std::time::Duration;

use cleave_media::{BlockAddress, Extent};
use cleave_store::SegmentId;

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
        // What is spawned here is dropped by the one who spawns it.
        let _entered = handle.enter();
        let source: Arc<dyn PageSource> = Arc::new(Nothing);
        let outcome = futures::executor::block_on(told.read_through(&[read], &source));
        give.send(outcome.is_err()).unwrap();
    });
    drop(thread.unwrap());
    assert_eq!(take.recv_timeout(Duration::from_secs(60)), Ok(true), "it waits for itself");
    assert!(pages.pool.flights().of_page(&header).is_empty());
}
