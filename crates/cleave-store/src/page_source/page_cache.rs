//! Where pages are kept for all who read the same media: reads and a source in, verified chunks out.
//!
//! The host's buffer pool is the only cache. A device in the host's process reads the same media as the host does, so
//! it is handed the host's pool as a [`PageCache`] and knows nothing else of it: what either has read, both find.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::{PageColumns, PageRead, PageRef, PageSource, SegmentRef};
use crate::error::StoreError;

/// Keeps verified parts of the pages of one device.
pub trait PageCache: Send + Sync + Debug {
    /// As [`PageSource::read`]: what is held, and the rest from `source`, which is then held. Two readers that miss
    /// the same chunk at once have it fetched once.
    ///
    /// Chunks that `source` gives must not keep their neighbours in memory.
    fn read(
        &self,
        reads: Vec<PageRead>,
        source: Arc<dyn PageSource>,
    ) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>>;

    /// As [`PageSource::read_overflow`]: what is held, and the rest from `source`, which is then held. Readers that
    /// miss the same page at once may each have it fetched.
    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
        source: Arc<dyn PageSource>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>>;
}
