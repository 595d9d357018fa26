//! The page cache that all readers of the same media share: reads and a source in, verified chunks out.
//!
//! The host's buffer pool is the only cache. A device in the host's process reads the same media as the host, so it
//! gets the host's pool as a [`PageCache`] and knows nothing else of it: pages that either side has read, both find.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::{PageColumns, PageRead, PageRef, PageSource, SegmentRef};
use crate::error::StoreError;

/// Caches verified parts of the pages of one device.
pub trait PageCache: Send + Sync + Debug {
    /// As [`PageSource::read`]: cached parts, and the rest from `source`, which is then cached. Two readers that miss
    /// the same chunk at once have it fetched once.
    ///
    /// Chunks of `source` must not keep their neighbours in memory.
    fn read(
        &self,
        reads: Vec<PageRead>,
        source: Arc<dyn PageSource>,
    ) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>>;

    /// As [`PageSource::read_overflow`]: cached pages, and the rest from `source`, which is then cached. Readers that
    /// miss the same page at once may each have it fetched.
    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
        source: Arc<dyn PageSource>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>>;
}
