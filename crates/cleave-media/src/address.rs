//! Addresses on media: block numbers in, byte ranges out.
//!
//! Invariant: an address is physical. Nothing below the host's placement map translates it (NVMe calls it LBA).
//! Source: `docs/design/pages-and-encodings.md`.

use std::fmt;

/// Bytes of one block, the unit of addresses, reads and writes, and the alignment of every buffer.
pub const BLOCK_SIZE: usize = 4096;

/// Number of a block on one device's media, from 0. In NVMe terms an LBA with a format of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddress(pub u64);

/// A run of blocks on one device's media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First block.
    pub start: BlockAddress,
    /// Blocks in the run.
    pub block_count: u32,
}

impl BlockAddress {
    /// The address `block_count` blocks further; None beyond the highest address.
    #[must_use]
    pub fn checked_add(self, block_count: u32) -> Option<Self> {
        self.0.checked_add(u64::from(block_count)).map(Self)
    }

    /// Byte offset of the block on its media; None if it exceeds 64 bits.
    #[must_use]
    pub fn byte_offset(self) -> Option<u64> {
        self.0.checked_mul(BLOCK_SIZE as u64)
    }
}

impl Extent {
    /// Length in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.block_count as usize * BLOCK_SIZE
    }

    /// The address behind the last block, saturating at the highest address.
    #[must_use]
    pub const fn end(self) -> BlockAddress {
        BlockAddress(self.start.0.saturating_add(self.block_count as u64))
    }

    /// True if every block of `other` is one of this extent.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// True if some block is in both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

impl fmt::Display for BlockAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "block {}", self.0)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "blocks {}..{}", self.start.0, self.end().0)
    }
}

#[cfg(test)]
mod tests;
