//! Spill space: where operators put rows that do not fit their memory, in blocks on the media of the side that runs
//! them.
//!
//! 1. The host reserves blocks for one run and names them beside the fragment, as for pages that a fragment writes
//!    ([`crate::page_sink`]). Where the fragment runs, a [`SpillSpace`] hands them out and takes them back.
//! 2. A [`RunsWriter`] divides batches into [`SpillRun`]s: it gathers rows of each, and writes them as frames.
//! 3. A [`SpillRun`] returns its batches in order, any number of times, and frees its blocks when it is dropped.
//!
//! ```text
//! frame: magic 8 │ stamp 8 │ body length 8 │ crc32c 4 │ zeros to 64 │ one batch, as in a slot │ zeros to a block
//! ```
//!
//! The checksum is over magic, stamp, length and body. The stamp is unique to this frame, so that neither a lost write
//! nor an older frame in the same place passes for it. Frames live as long as their run: nothing durable names them,
//! and no version of them is kept. Invariant: a run writes only to blocks reserved for it. Source:
//! `docs/design/rules.md`, rule 1.

use std::fmt;

use cleave_media::{AlignedBuffer, Extent};
use datafusion_common::Result;
use futures::future::BoxFuture;

mod frame;
mod run;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use run::FRAME_BYTES;
pub use run::{RunsWriter, SpillFigures, SpillRun};

/// Blocks that one run may fill, read and fill again.
pub trait SpillSpace: Send + Sync + fmt::Debug {
    /// Writes whole blocks to a place of their own, and returns it once they are written. The write begins at once; a
    /// place whose future is dropped is lost to the run.
    ///
    /// Fails with [`OutOfReservedPages`](crate::OutOfReservedPages) if there is no room.
    fn write(&self, blocks: AlignedBuffer) -> BoxFuture<'static, Result<Extent>>;

    /// Reads the blocks written to `place`. The read begins at once.
    fn read(&self, place: Extent) -> BoxFuture<'static, Result<AlignedBuffer>>;

    /// Frees `place`: it may be written again.
    fn give_back(&self, place: Extent);
}

/// Spilled rows read back differ from those written: the media, or the way to it, is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("rows that a fragment put aside at {place} are corrupt: {reason}")]
pub struct SpillDamaged {
    /// Their place.
    pub place: Extent,
    /// What is wrong.
    pub reason: &'static str,
}
