//! Simulated media: sparse blocks, live and durable, with faults on every operation.
//!
//! 1. A write changes the live blocks; [`Media::sync`] makes them durable.
//! 2. [`SimMedia::lose_power`] keeps each unsynced block with even odds: the older or the newer bytes. A kill
//!    keeps all of them.
//! 3. A failed sync keeps each unsynced block with even odds, for good, as a system does that reports a failure once
//!    and then takes the block for written. The handle syncs nothing more ([`SyncGate`]) until its process is started
//!    again, which [`SimMedia::wants_restart`] reports.
//! 4. [`SimMedia::attach`] gives one start of a device its own handle, [`Attached`]. Cutting the power or attaching
//!    anew disables older handles: leftovers of a dead process write nothing.
//!
//! Not [`cleave_media::FaultyMedia`], because faults come from the world's seed and go into its trace, and because a
//! device of many gigabytes must cost only the blocks written to it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_media::{
    AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, Media, MediaError, SplitMix64, SyncGate,
};

use crate::world::{self, Change, Disk};

/// Media that outlives the processes that use it.
#[derive(Debug)]
pub struct SimMedia {
    name: &'static str,
    /// What it lies on. The host's loses power with it.
    disk: Disk,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    live: BTreeMap<u64, Vec<u8>>,
    /// The earlier contents of the blocks written since the last sync; `None` means zeros.
    unsynced: BTreeMap<u64, Option<Vec<u8>>>,
    block_count: u64,
    durable_block_count: u64,
    /// The handle that may use it.
    life: u64,
    /// A sync of that handle failed.
    wants_restart: bool,
}

impl SimMedia {
    /// Empty media; `is_hosts` if it loses its power with the host.
    #[must_use]
    pub fn new(name: &'static str, is_hosts: bool) -> Arc<Self> {
        Self::on(name, if is_hosts { Disk::Host } else { Disk::Far })
    }

    /// Empty media on `disk`.
    #[must_use]
    pub fn on(name: &'static str, disk: Disk) -> Arc<Self> {
        Arc::new(Self { name, disk, blocks: Mutex::default() })
    }

    /// What it lies on.
    #[must_use]
    pub fn disk(&self) -> Disk {
        self.disk
    }

    /// The media for a process that starts now. Older handles fail from here on.
    #[must_use]
    pub fn attach(self: &Arc<Self>) -> Arc<Attached> {
        let mut blocks = self.lock();
        blocks.life += 1;
        blocks.wants_restart = false;
        Arc::new(Attached {
            media: Arc::clone(self),
            life: blocks.life,
            syncs: SyncGate::new(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        })
    }

    /// Ends the process that uses it: its writes stay.
    pub fn detach(&self) {
        self.lock().life += 1;
    }

    /// Ends the process, and loses any of the unsynced writes.
    pub fn lose_power(&self) {
        let mut blocks = self.lock();
        blocks.life += 1;
        let count = blocks.unsynced.len();
        let lost = blocks.lose_unsynced();
        blocks.unsynced.clear();
        if world::below(2) == 0 {
            let durable = blocks.durable_block_count;
            blocks.block_count = durable;
            blocks.live.retain(|block, _| *block < durable);
        }
        world::log(format_args!("media {}: {lost} of {count} unsynced blocks are lost", self.name));
    }

    /// Whether a sync failed, so that the process that uses it can store nothing more.
    #[must_use]
    pub fn wants_restart(&self) -> bool {
        self.lock().wants_restart
    }

    fn is_hosts(&self) -> bool {
        self.disk == Disk::Host
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The media as seen by one process.
#[derive(Debug)]
pub struct Attached {
    media: Arc<SimMedia>,
    life: u64,
    syncs: SyncGate,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Attached {
    /// The blocks, unless this handle's process has ended.
    fn blocks(&self, operation: &'static str) -> Result<MutexGuard<'_, Blocks>, MediaError> {
        let blocks = self.media.lock();
        let has_power = !self.media.is_hosts() || world::with(world::SimWorld::host_has_power);
        if blocks.life == self.life && has_power { Ok(blocks) } else { Err(fails(operation)) }
    }

    /// How much of a change is done.
    fn change(&self, operation: &'static str) -> Result<Change, MediaError> {
        if !self.media.is_hosts() {
            return Ok(Change::Whole);
        }
        match world::with(world::SimWorld::host_change) {
            Change::None => Err(fails(operation)),
            change => Ok(change),
        }
    }

    fn sync_once(&self) -> Result<(), MediaError> {
        self.change("sync")?;
        // The power may have failed just now.
        let mut blocks = self.blocks("sync")?;
        let count = blocks.unsynced.len();
        if world::happens(|rates| rates.sync_error) {
            let lost = blocks.lose_unsynced();
            blocks.wants_restart = true;
            drop(blocks);
            self.log(format_args!("sync: fails, {lost} of {count} unsynced blocks are lost"));
            let (media, source) = (self.media.name.to_owned(), io::Error::other("injected"));
            return Err(MediaError::Sync { media, source });
        }
        if !world::with(world::SimWorld::media_lies) {
            blocks.unsynced.clear();
            blocks.durable_block_count = blocks.block_count;
        }
        drop(blocks);
        self.log(format_args!("sync of {count} blocks"));
        Ok(())
    }

    fn log(&self, what: std::fmt::Arguments<'_>) {
        world::log(format_args!("media {}: {what}", self.media.name));
    }
}

fn fails(operation: &'static str) -> MediaError {
    MediaError::Injected { operation }
}

impl Blocks {
    fn check(&self, extent: Extent) -> Result<(), MediaError> {
        if extent.end().0 <= self.block_count {
            return Ok(());
        }
        Err(MediaError::OutOfRange { extent, block_count: self.block_count })
    }

    /// Keeps each unsynced block with even odds; returns how many there were.
    fn lose_unsynced(&mut self) -> usize {
        let unsynced = std::mem::take(&mut self.unsynced);
        let count = unsynced.len();
        for (block, before) in unsynced {
            if world::below(2) != 0 {
                self.unsynced.insert(block, before);
                continue;
            }
            match before {
                Some(bytes) => self.live.insert(block, bytes),
                None => self.live.remove(&block),
            };
        }
        count - self.unsynced.len()
    }

    fn write(&mut self, block: u64, bytes: &[u8]) {
        let before = self.live.insert(block, bytes.to_vec());
        self.unsynced.entry(block).or_insert(before);
    }
}

impl Media for Attached {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        let blocks = self.blocks("read")?;
        blocks.check(extent)?;
        let mut buffer = AlignedBuffer::zeroed(extent.bytes());
        for (block, bytes) in (extent.start.0..).zip(buffer.chunks_mut(BLOCK_SIZE)) {
            if let Some(stored) = blocks.live.get(&block) {
                bytes.copy_from_slice(stored);
            }
        }
        if world::happens(|rates| rates.read_error) {
            self.log(format_args!("read {extent}: fails"));
            return Err(fails("read"));
        }
        if world::happens(|rates| rates.read_flip) && !buffer.is_empty() {
            let at = usize::try_from(world::below(buffer.len() as u64)).unwrap_or(0);
            buffer[at] ^= 1 << world::below(8);
            self.log(format_args!("read {extent}: flips a bit of byte {at}"));
        }
        self.log(format_args!("read {extent} {:08x}", crc32c::crc32c(&buffer)));
        self.bytes_read.fetch_add(extent.bytes() as u64, Ordering::Relaxed);
        Ok(buffer)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        if !data.len().is_multiple_of(BLOCK_SIZE) {
            return Err(MediaError::NotWholeBlocks { length: data.len() });
        }
        let count = data.len() / BLOCK_SIZE;
        let extent = Extent { start, block_count: u32::try_from(count).unwrap_or(u32::MAX) };
        let change = self.change("write")?;
        // The power may have failed just now; part of this still reaches the media.
        let mut blocks = self.media.lock();
        if blocks.life != self.life {
            return Err(fails("write"));
        }
        blocks.check(extent)?;
        let is_torn = change == Change::Part || world::happens(|rates| rates.write_error);
        // Each block is written or not, independently.
        let mut torn = SplitMix64::new(if is_torn { world::below(u64::MAX) } else { 0 });
        for (block, bytes) in (start.0..).zip(data.chunks(BLOCK_SIZE)) {
            if !is_torn || torn.below(2) == 0 {
                blocks.write(block, bytes);
            }
        }
        drop(blocks);
        let how = if is_torn { "fails, torn" } else { "" };
        self.log(format_args!("write {extent} {:08x} {how}", crc32c::crc32c(data)));
        if is_torn {
            return Err(fails("write"));
        }
        self.bytes_written.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.syncs.sync(&self.media.name, || self.sync_once())
    }

    fn block_count(&self) -> u64 {
        self.media.lock().block_count
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        let change = self.change("grow")?;
        let growth = block_count.saturating_sub(self.block_count()) * BLOCK_SIZE as u64;
        let growth = i64::try_from(growth).unwrap_or(i64::MAX);
        let is_full = !world::with(|world| world.takes_room(self.media.disk, growth));
        if is_full || change == Change::Part || world::happens(|rates| rates.sync_error) {
            self.log(format_args!("grow to {block_count}: the disk is full"));
            let source = io::Error::from(io::ErrorKind::StorageFull);
            return Err(MediaError::Full {
                media: self.media.name.to_owned(),
                block_count,
                source,
            });
        }
        let mut blocks = self.blocks("grow")?;
        blocks.block_count = blocks.block_count.max(block_count);
        drop(blocks);
        self.log(format_args!("grow to {block_count}"));
        Ok(())
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }
}
