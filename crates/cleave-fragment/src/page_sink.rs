//! Where a fragment writes pages: encoded pages in, their places out.
//!
//! The host owns physical space: it allocates extents and names them beside the fragment. Where the fragment runs, a
//! [`PageSink`] hands them out: on the device it writes to local media and knows no other blocks, on the host it writes
//! over the link. Invariant: a fragment writes nowhere else. Source: `docs/design/pages-and-encodings.md`.
//!
//! All partitions of a fragment share one sink. Each writes pages of its own, with logical numbers of its own
//! ([`page_numbers`]), so that the pages of one segment can come from several partitions.

use std::fmt;
use std::ops::Range;

use cleave_store::ids::PAGE_MAX;
use cleave_store::{EncodedPage, PageRef};
use datafusion_common::Result;
use futures::future::BoxFuture;

/// Takes the pages that a fragment's root makes, from any number of partitions at once.
pub trait PageSink: Send + Sync + fmt::Debug {
    /// Gives `page` the place after the previous one and begins to write it there.
    ///
    /// Fails with [`OutOfReservedPages`] if there is no room, and with the error of an earlier page's write, of any
    /// partition.
    fn push(&self, page: EncodedPage) -> BoxFuture<'_, Result<PageRef>>;

    /// Waits until all pages that were pushed before were written; they are durable after the next sync of the device.
    /// Each partition calls it once, after its last page; others may still push theirs.
    fn finish(&self) -> BoxFuture<'_, Result<()>>;
}

/// The logical page numbers of partition `partition` of `partition_count`, for pages of one segment: those of a higher
/// partition are higher.
#[must_use]
pub fn page_numbers(partition: usize, partition_count: usize) -> Range<u32> {
    let count = u32::try_from(partition_count).unwrap_or(u32::MAX).max(1);
    let share = PAGE_MAX.saturating_add(1) / count;
    let first = u32::try_from(partition).unwrap_or(u32::MAX).saturating_mul(share);
    first..first.saturating_add(share)
}

/// The pages reserved for a fragment are full: run it again with more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the fragment has filled the {reserved_blocks} blocks that were reserved for its pages")]
pub struct OutOfReservedPages {
    /// Blocks that it had.
    pub reserved_blocks: u64,
}

#[cfg(test)]
mod tests;
