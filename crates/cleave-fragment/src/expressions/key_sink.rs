//! What takes the keys of a join's build side while the join reads it: a Bloom filter that may cross a link
//! ([`key_filter`](super::key_filter)), or the filter that a join hands down to the scans of its other side
//! ([`filled_filter`](crate::operators::filled_filter)).

use std::fmt;
use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion_execution::memory_pool::MemoryReservation;

/// Takes the keys of a build side, once for each pass over its rows.
pub(crate) trait KeySink: fmt::Debug + Send + Sync {
    /// Takes the keys of a pass that begins, charged to `memory`; `None` if it wants none.
    fn collector(self: Arc<Self>, memory: MemoryReservation) -> Option<Box<dyn KeyCollector>>;

    /// The rows are read again, and may be others: drops the keys for good.
    fn end(&self);
}

/// Keys on their way into a [`KeySink`]. Dropped before [`KeyCollector::finish`], it leaves the sink as it was.
pub(crate) trait KeyCollector: fmt::Debug + Send {
    /// Adds keys whose parts are in these columns, one key a row; false if it wants no more of them.
    fn add(&mut self, parts: &[ArrayRef]) -> bool;

    /// All keys were added.
    fn finish(self: Box<Self>);
}
