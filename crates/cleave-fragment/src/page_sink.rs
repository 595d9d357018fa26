//! Where a fragment writes pages: encoded pages in, their places out.
//!
//! The host owns physical space: it allocates extents and names them beside the fragment. Where the fragment runs, a
//! [`PageSink`] hands them out: on the device it writes to local media and knows no other blocks, on the host it writes
//! over the link. Invariant: a fragment writes nowhere else. Source: `docs/design/pages-and-encodings.md`.

use std::fmt;

use cleave_store::{EncodedPage, PageRef};
use datafusion_common::Result;
use futures::future::BoxFuture;

/// Takes the pages that a fragment's root makes.
pub trait PageSink: Send + Sync + fmt::Debug {
    /// Gives `page` the place after the previous one and begins to write it there.
    ///
    /// Fails with [`OutOfReservedPages`] if there is no room, and with the error of an earlier page's write.
    fn push(&self, page: EncodedPage) -> BoxFuture<'_, Result<PageRef>>;

    /// Waits until all pages were written; they are durable after the next sync of the device.
    fn finish(&self) -> BoxFuture<'_, Result<()>>;
}

/// The pages reserved for a fragment are full: run it again with more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the fragment has filled the {reserved_blocks} blocks that were reserved for its pages")]
pub struct OutOfReservedPages {
    /// Blocks that it had.
    pub reserved_blocks: u64,
}
