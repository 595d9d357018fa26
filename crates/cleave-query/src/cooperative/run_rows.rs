//! A run of an [exchange](super::exchanges): what comes of it, and the space that a consumer has to put rows aside.
//!
//! The rows of an exchange come once, so that a consumer cannot be sent again for itself as [other
//! fragments](super::spill_space) are. Space is taken before it begins: where it is expected to hold more than its
//! memory, or where all runs of the exchange begin a second time because one has lacked memory.
//!
//! Invariant: a run whose device has no room for that begins without, and may lack memory.

use std::sync::Arc;
use std::time::Duration;

use cleave_engine::device::{Claim, ClaimedRun, Device};
use cleave_fragment::command::{Execute, RunReport};
use cleave_fragment::link::{Link, LinkError, RunStream};
use cleave_media::BLOCK_SIZE;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

/// Blocks that a consumer has at first. Where they are full it gets more.
const BLOCKS_FIRST: u64 = 1024;

/// The rows of a run.
pub(super) enum RunRows {
    Plain(Box<RunStream>),
    WithSpace(Box<ClaimedRun>),
}

/// Space for a run to put rows aside.
#[derive(Debug, Clone, Copy)]
pub(super) struct Space {
    first_blocks: u32,
    most_blocks: u64,
}

impl Space {
    /// Up to `bytes`; None: there would be none.
    pub(super) fn up_to(bytes: u64) -> Option<Self> {
        let most_blocks = bytes / BLOCK_SIZE as u64;
        let first_blocks = u32::try_from(BLOCKS_FIRST.min(most_blocks)).unwrap_or(u32::MAX);
        (most_blocks > 0).then_some(Self { first_blocks, most_blocks })
    }
}

impl RunRows {
    /// Begins `request` on `device`, with `space` if the device has room for it. Its rows are of `schema`.
    ///
    /// # Errors
    /// Those of the link and the device.
    pub(super) async fn begin(
        device: &Arc<Device>,
        link: &Arc<dyn Link>,
        mut request: Execute,
        (schema, space): (SchemaRef, Option<Space>),
    ) -> Result<Self, LinkError> {
        if let Some(Space { first_blocks, most_blocks }) = space {
            let claim = Arc::new(Claim::new(Arc::clone(device)));
            if let Ok(extent) = claim.acquire(first_blocks).await {
                request.reserved = vec![extent];
                request.extensible = true;
                let begun = ClaimedRun::begin(claim, link, request, &schema, most_blocks);
                return Ok(Self::WithSpace(Box::new(Box::pin(begun).await?)));
            }
        }
        let mut stream = link.execute(request).await?;
        stream.expect_rows(schema)?;
        Ok(Self::Plain(Box::new(stream)))
    }

    /// As [`RunStream::next`]. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>, LinkError> {
        match self {
            Self::Plain(stream) => stream.next().await,
            Self::WithSpace(run) => run.next().await,
        }
    }

    /// As [`RunStream::report`].
    pub(super) fn report(&self) -> Option<&RunReport> {
        match self {
            Self::Plain(stream) => stream.report(),
            Self::WithSpace(run) => run.report(),
        }
    }

    /// As [`RunStream::slot_bytes`].
    pub(super) fn slot_bytes(&self) -> u64 {
        match self {
            Self::Plain(stream) => stream.slot_bytes(),
            Self::WithSpace(run) => run.slot_bytes(),
        }
    }

    /// As [`RunStream::waited`].
    pub(super) fn waited(&self) -> Duration {
        match self {
            Self::Plain(stream) => stream.waited(),
            Self::WithSpace(run) => run.waited(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! How much space there may be.

    use super::*;

    #[test]
    fn space_is_a_whole_number_of_blocks() {
        let blocks = |bytes| Space::up_to(bytes).map(|own| (own.first_blocks, own.most_blocks));
        let block = BLOCK_SIZE as u64;
        assert_eq!(blocks(block - 1), None);
        assert_eq!(blocks(3 * block), Some((3, 3)));
        assert_eq!(blocks(5000 * block), Some((1024, 5000)));
    }
}
