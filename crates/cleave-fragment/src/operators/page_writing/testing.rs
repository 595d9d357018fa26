//! A place to write pages to, for tests of the roots that write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cleave_media::BlockAddress;
use cleave_store::{
    EncodedPage, PageColumns, PageRead, PageRef, PageSource, SegmentRef, Snapshot, StoreError,
};
use datafusion_common::Result;
use datafusion_execution::TaskContext;
use datafusion_execution::runtime_env::RuntimeEnv;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::fragment::{FragmentContext, fragment_task_context};
use crate::page_sink::PageSink;
use crate::row_places::RowPlaces;

/// Places pages one behind the other, and yields before each: other partitions come between.
#[derive(Debug, Default)]
pub(crate) struct Counting(Mutex<(u64, u32)>);

impl PageSink for Counting {
    fn push(&self, page: EncodedPage) -> BoxFuture<'_, Result<PageRef>> {
        async move {
            tokio::task::yield_now().await;
            let mut state = self.0.lock().unwrap();
            let start = BlockAddress(state.0);
            state.0 += u64::from(page.block_count());
            Ok(page.page_ref(start))
        }
        .boxed()
    }

    fn finish(&self) -> BoxFuture<'_, Result<()>> {
        self.0.lock().unwrap().1 += 1;
        futures::future::ready(Ok(())).boxed()
    }
}

#[derive(Debug)]
struct Unread;

impl PageSource for Unread {
    fn read(&self, _: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        panic!("nothing is read");
    }

    fn read_overflow(
        &self,
        _: SegmentRef,
        _: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<bytes::Bytes>, StoreError>> {
        panic!("nothing is read");
    }
}

impl Counting {
    /// Blocks of the pages that were pushed, and partitions that have finished.
    pub(crate) fn seen(&self) -> (u64, u32) {
        *self.0.lock().unwrap()
    }
}

/// The context of a fragment that reads nothing and writes to `sink`.
pub(crate) fn task_writing_to(sink: &Arc<Counting>) -> Arc<TaskContext> {
    let context = FragmentContext {
        pages: Arc::new(Unread),
        snapshot: Snapshot { commit: 1 },
        inputs: BTreeMap::new(),
        index_filters: BTreeMap::new(),
        indexes: BTreeMap::new(),
        peer_rows: Default::default(),
        broadcasts: Default::default(),
        sink: Some(Arc::clone(sink) as Arc<dyn PageSink>),
        spill: None,
        tasks: None,
        locks: None,
        read_ahead: 1,
        places: RowPlaces::default(),
        history: None,
        counters: Arc::default(),
    };
    let runtime = Arc::new(RuntimeEnv::default());
    fragment_task_context(Arc::new(context), runtime, &[]).unwrap()
}
