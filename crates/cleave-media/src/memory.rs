//! Media in the memory of the process: extents in, aligned bytes out, nothing stored.
//!
//! Invariant: behaves as [`crate::DirectFile`], `sync` included, except that nothing outlives the value. Blocks are
//! kept in pieces of 1 MiB, so growing never copies existing ones.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::media::{check_range, written_extent};
use crate::{AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, Media, MediaError};

/// Bytes of one piece of memory.
const PIECE_BYTES: usize = 256 * BLOCK_SIZE;

/// Media in the memory of this process.
#[derive(Default)]
pub struct Memory {
    blocks: RwLock<Blocks>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// Pieces of [`PIECE_BYTES`]; the last one may extend beyond `block_count`.
#[derive(Default, Clone)]
struct Blocks {
    pieces: Vec<Vec<u8>>,
    block_count: u64,
}

impl Memory {
    /// Media of no blocks; see [`Media::grow_to`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of the present contents, with counters at zero: as another process would find the media.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let blocks = self.blocks.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        Self { blocks: RwLock::new(blocks.clone()), ..Self::default() }
    }
}

impl Media for Memory {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        let blocks = self.blocks.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        check_range(extent, blocks.block_count)?;
        let mut buffer = AlignedBuffer::zeroed(extent.bytes());
        let mut rest: &mut [u8] = &mut buffer;
        for (piece, from, length) in pieces_of(extent.start, extent.bytes()) {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(length);
            if let Some(stored) = blocks.pieces.get(piece) {
                head.copy_from_slice(&stored[from..from + length]);
            }
            rest = tail;
        }
        self.bytes_read.fetch_add(extent.bytes() as u64, Ordering::Relaxed);
        Ok(buffer)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        let mut blocks = self.blocks.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let extent = written_extent(start, data, blocks.block_count)?;
        let mut rest = data;
        for (piece, from, length) in pieces_of(start, extent.bytes()) {
            let (head, tail) = rest.split_at(length);
            if let Some(stored) = blocks.pieces.get_mut(piece) {
                stored[from..from + length].copy_from_slice(head);
            }
            rest = tail;
        }
        self.bytes_written.fetch_add(extent.bytes() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediaError> {
        Ok(())
    }

    fn block_count(&self) -> u64 {
        self.blocks.read().unwrap_or_else(std::sync::PoisonError::into_inner).block_count
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        let mut blocks = self.blocks.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let pieces = usize::try_from(block_count.div_ceil(256)).map_err(|_| MediaError::Full {
            media: "memory".to_owned(),
            block_count,
            source: std::io::Error::from(std::io::ErrorKind::OutOfMemory),
        })?;
        while blocks.pieces.len() < pieces {
            blocks.pieces.push(vec![0; PIECE_BYTES]);
        }
        blocks.block_count = blocks.block_count.max(block_count);
        Ok(())
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Memory({} blocks)", self.block_count())
    }
}

/// (piece, first byte in it, bytes) for each piece that a run of bytes from `start` touches. The caller has checked
/// that the run is on the media, hence that it is addressable memory.
fn pieces_of(start: BlockAddress, length: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut at = usize::try_from(start.0).unwrap_or(usize::MAX).saturating_mul(BLOCK_SIZE);
    let end = at.saturating_add(length);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let from = at % PIECE_BYTES;
        let taken = (PIECE_BYTES - from).min(end - at);
        let item = (at / PIECE_BYTES, from, taken);
        at += taken;
        Some(item)
    })
}
