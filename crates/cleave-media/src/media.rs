//! The trait that storage drivers implement: extents in, aligned bytes out.
//!
//! Invariants: every call is synchronous and may be made by any number of threads at once. Reads and writes of blocks
//! that do not overlap do not affect each other. Writes that [`Media::sync`] acknowledged survive a loss of power;
//! later writes may survive in part, in any order, torn at block boundaries. There is no allocation here: the host owns
//! physical space ([`crate::SpaceMap`]).
//!
//! Source: `docs/design/pages-and-encodings.md`; `docs/design/rules.md`, rules 25 and 34 (bytes are counted at the
//! media).

use std::fmt::Debug;

use crate::{AlignedBuffer, BlockAddress, Extent, MediaError};

/// Page-addressed persistent storage of one device.
pub trait Media: Send + Sync + Debug {
    /// Reads the blocks of `extent`.
    ///
    /// # Errors
    /// [`MediaError::OutOfRange`] beyond the end, [`MediaError::Io`] if the media fails.
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError>;

    /// Reads several extents, one buffer for each, in their order. Media that supports it has several reads under way
    /// at once; other media reads one after the other.
    ///
    /// # Errors
    /// As [`Media::read`], of one of the extents.
    fn read_many(&self, extents: &[Extent]) -> Result<Vec<AlignedBuffer>, MediaError> {
        extents.iter().map(|extent| self.read(*extent)).collect()
    }

    /// Writes `data`, a whole number of blocks at any alignment, to the blocks from `start` on.
    /// Durable only after [`Media::sync`].
    ///
    /// # Errors
    /// [`MediaError::NotWholeBlocks`], [`MediaError::OutOfRange`] (media grows only by [`Media::grow_to`]), or
    /// [`MediaError::Io`] after which the blocks hold old bytes, new bytes or a mixture.
    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError>;

    /// Returns once everything written before the call is durable.
    ///
    /// # Errors
    /// [`MediaError::Sync`]: no caller may take writes since the last successful sync as durable. Every later call
    /// fails too, until the media is opened anew ([`crate::SyncGate`]).
    fn sync(&self) -> Result<(), MediaError>;

    /// Blocks that can be addressed.
    fn block_count(&self) -> u64;

    /// Makes the media at least `block_count` blocks large; new blocks read as zeros. Never shrinks.
    ///
    /// # Errors
    /// [`MediaError::Full`] if there is no space; the media is then unchanged or partly grown.
    fn grow_to(&self, block_count: u64) -> Result<(), MediaError>;

    /// Bytes read since the media was opened, failed reads not counted.
    fn bytes_read(&self) -> u64;

    /// Bytes written since the media was opened, failed writes not counted.
    fn bytes_written(&self) -> u64;
}

/// Checks a write's length and place; returns the extent it covers.
pub(crate) fn written_extent(
    start: BlockAddress,
    data: &[u8],
    block_count: u64,
) -> Result<Extent, MediaError> {
    let whole = data.len() / crate::BLOCK_SIZE;
    let Ok(blocks) = u32::try_from(whole) else {
        return Err(MediaError::NotWholeBlocks { length: data.len() });
    };
    if whole * crate::BLOCK_SIZE != data.len() {
        return Err(MediaError::NotWholeBlocks { length: data.len() });
    }
    let extent = Extent { start, block_count: blocks };
    check_range(extent, block_count)?;
    Ok(extent)
}

/// Refuses an extent that is not wholly on media of `block_count` blocks.
pub(crate) fn check_range(extent: Extent, block_count: u64) -> Result<(), MediaError> {
    let end = extent.start.0.checked_add(u64::from(extent.block_count));
    match end {
        Some(end) if end <= block_count => Ok(()),
        _ => Err(MediaError::OutOfRange { extent, block_count }),
    }
}

#[cfg(test)]
mod tests;
