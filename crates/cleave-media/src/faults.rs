//! Media that fails on request: the trait of [`Media`] in, live bytes out, durable bytes kept apart.
//!
//! 1. A write goes to the live bytes; [`Media::sync`] copies what was written to the durable bytes.
//! 2. [`FaultyMedia::crash`] gives the media that a restart would find: the durable bytes, plus any subset, in
//!    any order, of the blocks written since, chosen by a seed.
//! 3. [`FaultyMedia::fail_after`] makes the media refuse everything after so many operations;
//!    [`FaultyMedia::flip_bit`] damages a stored bit in both copies.
//!
//! Invariant: the faults named here are the only ones injected; reads between a write and a crash see the write.
//! Source: house style, "Crash tests keep live and durable bytes apart".

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, Media, MediaError, Memory, SplitMix64,
};

/// Media in memory with a durable copy of its own, for tests.
#[derive(Debug, Default)]
pub struct FaultyMedia {
    live: Memory,
    durable: Memory,
    /// Blocks written since the last sync.
    unsynced: Mutex<BTreeSet<u64>>,
    /// Operations still allowed, plus one; 0: without end.
    fuse: AtomicU64,
    /// Counted here, since copying live blocks to durable ones reads them too.
    bytes_read: AtomicU64,
}

impl FaultyMedia {
    /// Media of no blocks that never fails until told to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `operation_count` more writes, syncs and growths succeed, and then none.
    pub fn fail_after(&self, operation_count: u64) {
        self.fuse.store(operation_count.saturating_add(1), Ordering::SeqCst);
    }

    /// Lets every operation succeed again.
    pub fn mend(&self) {
        self.fuse.store(0, Ordering::SeqCst);
    }

    /// The media after a loss of power: everything synced, and each block written since with even odds.
    ///
    /// # Errors
    /// None in practice: both copies are in memory and of one size.
    pub fn crash(&self, seed: u64) -> Result<Memory, MediaError> {
        let unsynced = self.unsynced.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let after = self.durable.snapshot();
        let mut random = SplitMix64::new(seed);
        for block in unsynced.iter() {
            if random.next_u64() & 1 == 0 {
                after.grow_to(block.saturating_add(1))?;
                after.write(BlockAddress(*block), &self.live.read(one(*block))?)?;
            }
        }
        Ok(after)
    }

    /// Flips one bit of the stored byte at `byte` (counted from the start of the media), live and durable.
    ///
    /// # Errors
    /// [`MediaError::OutOfRange`] behind the end.
    pub fn flip_bit(&self, byte: u64, bit: u8) -> Result<(), MediaError> {
        let block = byte / BLOCK_SIZE as u64;
        let within = usize::try_from(byte % BLOCK_SIZE as u64).unwrap_or(0);
        for copy in [&self.live, &self.durable] {
            let mut bytes = copy.read(one(block))?;
            if let Some(stored) = bytes.get_mut(within) {
                *stored ^= 1 << (bit % 8);
            }
            copy.write(BlockAddress(block), &bytes)?;
        }
        Ok(())
    }

    fn burn(&self, operation: &'static str) -> Result<(), MediaError> {
        let left = self.fuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            0 | 1 => None,
            more => Some(more - 1),
        });
        match left {
            Ok(_) | Err(0) => Ok(()),
            Err(_) => Err(MediaError::Injected { operation }),
        }
    }
}

impl Media for FaultyMedia {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        let buffer = self.live.read(extent)?;
        self.bytes_read.fetch_add(extent.bytes() as u64, Ordering::Relaxed);
        Ok(buffer)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        self.burn("write")?;
        let mut unsynced = self.unsynced.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.live.write(start, data)?;
        let end = start.0.saturating_add((data.len() / BLOCK_SIZE) as u64);
        unsynced.extend(start.0..end);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.burn("sync")?;
        let mut unsynced = self.unsynced.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.durable.grow_to(self.live.block_count())?;
        for block in std::mem::take(&mut *unsynced) {
            self.durable.write(BlockAddress(block), &self.live.read(one(block))?)?;
        }
        Ok(())
    }

    fn block_count(&self) -> u64 {
        self.live.block_count()
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        self.burn("grow")?;
        self.live.grow_to(block_count)?;
        self.durable.grow_to(block_count)
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn bytes_written(&self) -> u64 {
        self.live.bytes_written()
    }
}

fn one(block: u64) -> Extent {
    Extent { start: BlockAddress(block), block_count: 1 }
}
