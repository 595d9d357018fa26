//! Media that fails on request: wraps any media, keeps unsynced writes apart from durable bytes, and injects planned
//! faults.
//!
//! ```text
//!   write ──▶ blocks written since the last sync (in memory) ──sync──▶ the wrapped media: durable bytes
//!   read  ◀── these first, then the wrapped media
//! ```
//!
//! 1. [`FaultyMedia::over`] wraps a file or memory, and takes a [`FaultPlan`]: which operation meets which [`Fault`],
//!    by its number or at random from a seed.
//! 2. Dropping it, or killing the process that has it, loses every unsynced write, unlike the page cache of a killed
//!    process. [`FaultyMedia::crash`] gives the media after a loss of power: the durable bytes, plus any of the blocks
//!    written since, chosen by a seed.
//! 3. [`FaultyMedia::fail_after`] refuses everything after so many operations; [`FaultyMedia::flip_bit`] damages a
//!    stored bit; [`FaultyMedia::lose`] removes the whole media.
//! 4. A failing sync loses any of the blocks that it was to store, chosen by the seed, and as on all media
//!    ([`SyncGate`]) all later ones fail: [`FaultyMedia::mend`] has the effect of opening the media anew.
//!
//! Invariant: no other faults than these are injected. Reads between a write and a crash see the write, unless the plan
//! spoilt it. The same plan over the same operations injects the same faults.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::media::{check_range, written_extent};
use crate::{
    AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, Media, MediaError, Memory, SplitMix64,
    SyncGate,
};

/// The operations that a [`Fault`] can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Media::read`], and each extent of [`Media::read_many`].
    Read,
    /// [`Media::write`].
    Write,
    /// [`Media::sync`].
    Sync,
    /// [`Media::grow_to`].
    Grow,
}

/// A fault of one operation. A fault that does not apply to the operation acts as [`Fault::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and has no effect.
    Error,
    /// It fails for lack of space: a write or a growth.
    Full,
    /// An acknowledged write of which only the first part arrives, cut between sectors of 512 bytes.
    Torn,
    /// An acknowledged write that never arrives.
    Lost,
    /// An acknowledged write that arrives at another place, over the old contents.
    Misdirected,
    /// A read that returns one bit inverted.
    FlippedBit,
    /// It takes this time; the harness's clock implements it ([`FaultyMedia::with_wait`]).
    Slow(Duration),
    /// The media is gone, from this operation on.
    Gone,
}

/// Which operations meet which faults; equal plans repeat.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    seed: u64,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy)]
struct Rule {
    operation: Operation,
    when: When,
    fault: Fault,
}

#[derive(Debug, Clone, Copy)]
enum When {
    /// The operation of this number among those of its kind, counted from 1.
    Nth(u64),
    /// One in so many, at random.
    OneIn(u64),
}

impl FaultPlan {
    /// No faults; `seed` decides the random choices of faults and of [`FaultPlan::one_in`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, rules: Vec::new() }
    }

    /// The `number`th `operation`, counted from 1, meets `fault`.
    #[must_use]
    pub fn at(mut self, operation: Operation, number: u64, fault: Fault) -> Self {
        self.rules.push(Rule { operation, when: When::Nth(number), fault });
        self
    }

    /// One in `count` of this `operation`, at random, meets `fault`.
    #[must_use]
    pub fn one_in(mut self, operation: Operation, count: u64, fault: Fault) -> Self {
        self.rules.push(Rule { operation, when: When::OneIn(count), fault });
        self
    }
}

/// Name of the media in errors.
const NAME: &str = "the media of a test";

/// Called with the duration of a slow operation.
pub type Wait = Arc<dyn Fn(Duration) + Send + Sync>;

/// Media with faults, for tests.
pub struct FaultyMedia {
    durable: Arc<dyn Media>,
    state: Mutex<FaultsInner>,
    /// Operations still allowed, plus one; 0: no limit.
    fuse: AtomicU64,
    is_lost: AtomicBool,
    syncs: SyncGate,
    wait: Option<Wait>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

#[derive(Debug)]
struct FaultsInner {
    plan: FaultPlan,
    random: SplitMix64,
    /// Operations of each kind so far.
    counts: BTreeMap<Operation, u64>,
    /// Blocks written since the last sync.
    unsynced: BTreeMap<u64, Box<[u8]>>,
}

impl Default for FaultyMedia {
    fn default() -> Self {
        Self::new()
    }
}

impl FaultyMedia {
    /// Media in memory, of no blocks and without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::over(Arc::new(Memory::new()), FaultPlan::default())
    }

    /// Applies the faults of `plan` over `durable`, which gets the synced blocks.
    #[must_use]
    pub fn over(durable: Arc<dyn Media>, plan: FaultPlan) -> Self {
        let random = SplitMix64::new(plan.seed);
        let (counts, unsynced) = (BTreeMap::new(), BTreeMap::new());
        Self {
            durable,
            state: Mutex::new(FaultsInner { plan, random, counts, unsynced }),
            fuse: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            syncs: SyncGate::new(),
            wait: None,
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        }
    }

    /// Calls `wait` for operations that are [`Fault::Slow`].
    #[must_use]
    pub fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Follows another plan from now on, and counts operations anew.
    pub fn follow(&self, plan: FaultPlan) {
        let mut state = self.state();
        state.random = SplitMix64::new(plan.seed);
        state.counts.clear();
        state.plan = plan;
    }

    /// Lets `operation_count` more writes, syncs and growths succeed, and then none.
    pub fn fail_after(&self, operation_count: u64) {
        self.fuse.store(operation_count.saturating_add(1), Ordering::SeqCst);
    }

    /// Lets every operation succeed again that the plan lets succeed, also after the loss of the media or a failed
    /// sync.
    pub fn mend(&self) {
        self.syncs.reopen();
        self.fuse.store(0, Ordering::SeqCst);
        self.is_lost.store(false, Ordering::SeqCst);
    }

    /// Removes the media: every operation fails until it is mended.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    /// The media after a loss of power: everything synced, and each block written since with even odds.
    ///
    /// # Errors
    /// Errors of the wrapped media.
    pub fn crash(&self, seed: u64) -> Result<Memory, MediaError> {
        let mut random = SplitMix64::new(seed);
        self.after_power_loss(|| random.next_u64() & 1 == 0)
    }

    /// As [`FaultyMedia::crash`], but with all unsynced writes lost.
    ///
    /// # Errors
    /// Errors of the wrapped media.
    pub fn forget_unsynced(&self) -> Result<Memory, MediaError> {
        self.after_power_loss(|| false)
    }

    fn after_power_loss(&self, mut keeps: impl FnMut() -> bool) -> Result<Memory, MediaError> {
        let state = self.state();
        let after = Memory::new();
        let block_count = self.durable.block_count();
        after.grow_to(block_count)?;
        for block in 0..block_count {
            after.write(BlockAddress(block), &self.durable.read(one(block))?)?;
        }
        for (block, bytes) in &state.unsynced {
            if keeps() {
                after.write(BlockAddress(*block), bytes)?;
            }
        }
        Ok(after)
    }

    /// Flips one bit of the stored byte at `byte` (counted from the start of the media), live and durable.
    ///
    /// # Errors
    /// [`MediaError::OutOfRange`] behind the end.
    pub fn flip_bit(&self, byte: u64, bit: u8) -> Result<(), MediaError> {
        let mut state = self.state();
        let block = byte / BLOCK_SIZE as u64;
        let within = usize::try_from(byte % BLOCK_SIZE as u64).unwrap_or(0);
        let flip = |bytes: &mut [u8]| {
            if let Some(stored) = bytes.get_mut(within) {
                *stored ^= 1 << (bit % 8);
            }
        };
        let mut durable = self.durable.read(one(block))?;
        flip(&mut durable);
        self.durable.write(BlockAddress(block), &durable)?;
        if let Some(live) = state.unsynced.get_mut(&block) {
            flip(live);
        }
        Ok(())
    }

    /// Blocks that a loss of power may lose.
    #[must_use]
    pub fn unsynced_block_count(&self) -> usize {
        self.state().unsynced.len()
    }

    fn state(&self) -> MutexGuard<'_, FaultsInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation; returns the fault that it continues with, after the faults that make it fail.
    fn meet(&self, operation: Operation) -> Result<Option<Fault>, MediaError> {
        if operation != Operation::Read {
            self.burn(operation)?;
        }
        let fault = self.state().next_fault(operation);
        if fault == Some(Fault::Gone) {
            self.lose();
        }
        if self.is_lost.load(Ordering::SeqCst) {
            return Err(operation.injected());
        }
        match (fault, operation) {
            (Some(Fault::Slow(time)), _) => {
                if let Some(wait) = &self.wait {
                    wait(time);
                }
                Ok(None)
            }
            (Some(Fault::Full), Operation::Write | Operation::Grow) => Err(MediaError::Full {
                media: NAME.to_owned(),
                block_count: self.block_count(),
                source: io::Error::from(io::ErrorKind::StorageFull),
            }),
            (Some(Fault::Torn | Fault::Lost | Fault::Misdirected), Operation::Write)
            | (Some(Fault::FlippedBit), Operation::Read)
            | (None, _) => Ok(fault),
            (Some(_), _) => Err(operation.injected()),
        }
    }

    fn burn(&self, operation: Operation) -> Result<(), MediaError> {
        let left = self.fuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            0 | 1 => None,
            more => Some(more - 1),
        });
        match left {
            Ok(_) | Err(0) => Ok(()),
            Err(_) => Err(operation.injected()),
        }
    }
}

impl Operation {
    fn injected(self) -> MediaError {
        let operation = match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Grow => "grow",
        };
        MediaError::Injected { operation }
    }
}

impl FaultsInner {
    fn next_fault(&mut self, operation: Operation) -> Option<Fault> {
        let count = self.counts.entry(operation).or_default();
        *count += 1;
        let number = *count;
        let mut fault = None;
        for rule in self.plan.rules.iter().filter(|rule| rule.operation == operation) {
            let meets = match rule.when {
                When::Nth(nth) => nth == number,
                // Drawn for every rule, so that the outcome of one rule does not affect another.
                When::OneIn(count) => self.random.below(count.max(1)) == 0,
            };
            if meets {
                fault = fault.or(Some(rule.fault));
            }
        }
        fault
    }

    /// Loses each unsynced block with even odds: the system takes it for written.
    fn lose_unsynced(&mut self) {
        let random = &mut self.random;
        self.unsynced.retain(|_, _| random.next_u64() & 1 == 0);
    }

    /// Puts `data` over the blocks from `start` on.
    fn put(&mut self, start: BlockAddress, data: &[u8]) {
        for (block, bytes) in (start.0..).zip(data.chunks(BLOCK_SIZE)) {
            self.unsynced.insert(block, bytes.into());
        }
    }
}

impl Media for FaultyMedia {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        check_range(extent, self.block_count())?;
        let fault = self.meet(Operation::Read)?;
        let mut state = self.state();
        let mut buffer = self.durable.read(extent)?;
        for (block, bytes) in state.unsynced.range(extent.start.0..extent.end().0) {
            let at = usize::try_from(block - extent.start.0).unwrap_or(0) * BLOCK_SIZE;
            if let Some(place) = buffer.get_mut(at..at + BLOCK_SIZE) {
                place.copy_from_slice(bytes);
            }
        }
        if fault == Some(Fault::FlippedBit) {
            let bit = state.random.below(buffer.len() as u64 * 8);
            let place = usize::try_from(bit / 8).ok().and_then(|byte| buffer.get_mut(byte));
            if let Some(byte) = place {
                *byte ^= 1 << (bit % 8);
            }
        }
        self.bytes_read.fetch_add(extent.bytes() as u64, Ordering::Relaxed);
        Ok(buffer)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        let extent = written_extent(start, data, self.block_count())?;
        let fault = self.meet(Operation::Write)?;
        let mut state = self.state();
        match fault {
            Some(Fault::Lost) => {}
            Some(Fault::Torn) => {
                const SECTOR_BYTES: usize = 512;
                let sectors = state.random.below((data.len() / SECTOR_BYTES) as u64);
                let kept = usize::try_from(sectors).unwrap_or(0) * SECTOR_BYTES;
                let whole = kept - kept % BLOCK_SIZE;
                state.put(start, data.get(..whole).unwrap_or_default());
                if kept > whole {
                    let block = start.0 + (whole / BLOCK_SIZE) as u64;
                    let mut bytes = match state.unsynced.get(&block) {
                        Some(bytes) => bytes.to_vec(),
                        None => self.durable.read(one(block))?.to_vec(),
                    };
                    for (place, byte) in bytes.iter_mut().zip(&data[whole..kept]) {
                        *place = *byte;
                    }
                    state.put(BlockAddress(block), &bytes);
                }
            }
            Some(Fault::Misdirected) => {
                let places = self.block_count() - u64::from(extent.block_count) + 1;
                let elsewhere = state.random.below(places);
                state.put(BlockAddress(elsewhere), data);
            }
            _ => state.put(start, data),
        }
        self.bytes_written.fetch_add(extent.bytes() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.syncs.sync(&NAME, || {
            let met = self.meet(Operation::Sync);
            let mut state = self.state();
            if let Err(error) = met {
                state.lose_unsynced();
                return Err(error);
            }
            for (block, bytes) in &state.unsynced {
                self.durable.write(BlockAddress(*block), bytes)?;
            }
            self.durable.sync()?;
            state.unsynced.clear();
            Ok(())
        })
    }

    fn block_count(&self) -> u64 {
        self.durable.block_count()
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        self.meet(Operation::Grow)?;
        self.durable.grow_to(block_count)
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for FaultyMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyMedia")
            .field("durable", &self.durable)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

fn one(block: u64) -> Extent {
    Extent { start: BlockAddress(block), block_count: 1 }
}

#[cfg(test)]
mod tests;
