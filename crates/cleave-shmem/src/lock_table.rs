//! The shared lock table: locks rows for writers on either side, host and one device.
//!
//! ```text
//!   host transactions                                                   jobs of the device
//!         │  exact, by row: the host's own table (the tail)                     │
//!         ▼                                                                     ▼
//!     HostLocks ── one slot for many transactions ──▶ entry ◀── one slot a job ── JobLocks
//!                                               ┌──────────────┐
//!                              (object, VID) ─▶ │ J3 H J7 0 …  │  16 or 8 bytes, changed by compare-and-swap
//!                                               └──────────────┘
//!                                                 holder, then waiters, in order
//! ```
//!
//! 1. The hash of a [`Row`] selects an entry. Entries hold no rows, so several rows may share one.
//! 2. `queue`: the contents of an entry, and its changes.
//! 3. `memory`: entries in a region that two processes map, on the heap, or as cells of the loom model.
//! 4. `host`: [`HostLocks`], the host's side. All its transactions share the slots of the host, which `shares` counts
//!    by entry. The host's own lock table decides which transaction has which row; its queue continues (is the tail of)
//!    the entry's.
//! 5. `device`: [`DeviceLocks`] and [`JobLocks`], the device's side. A job has an entry once, for all its rows there,
//!    until it ends.
//! 6. `waiters`: the waiters that a release wakes, in this process or in the other one.
//! 7. `attach`: a table for two sides of one process, or for a local device, which gets it over a socket.
//!
//! There is one table between a host and each of its devices, since a tablet lies on one device: its jobs are that
//! device's, and all other users are the host's.
//!
//! Invariants: the holder of an entry is in its first slot, and no other user proceeds; a release hands over to the
//! next in order. The host finds a place in any entry; a job that finds none gets [`JobLock::Full`], and queues in the
//! host's table as its transaction. Nothing in the region is trusted: each side knows its locks from private memory, an
//! entry that neither side could have written is an error ([`LockError::Spoilt`]), and a device that died or misbehaves
//! loses its slots at once, by a new epoch ([`HostLocks::fence`]).
//!
//! Deliberately absent: modes (the entry is exclusive; the host's table has shared locks), deadlock detection and time
//! limits (the host's, which sees both sides: [`HostLocks::contended`]), rows (marks beside an entry count conflicts
//! between different rows in it, [`LockFigures`]), and locks for devices behind a network, for which the host itself
//! uses this table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use waiters::Peer;

#[cfg(not(loom))]
mod attach;
mod device;
mod host;
mod memory;
mod queue;
mod shares;
mod waiters;

#[cfg(not(loom))]
pub use attach::{LOCK_OFFER_BYTES, LockTableError};
pub use device::{DeviceLocks, JobLock, JobLocks, JobWait, Waiting};
pub use host::{HostLocks, HostWait, Joined, Ticket};
pub use queue::{Holder, JobId, SlotFormat};

use memory::LockMemory;
use queue::Queue;

/// The primitives that the model replaces.
mod sync {
    #[cfg(loom)]
    pub(super) use loom::{
        hint::spin_loop,
        sync::{Mutex, atomic},
        thread::yield_now,
    };
    #[cfg(not(loom))]
    pub(super) use std::{
        hint::spin_loop,
        sync::{Mutex, atomic},
        thread::yield_now,
    };
}

/// Least entries of a table.
pub const ENTRY_COUNT_MIN: u32 = 16;
/// Most entries of a table.
pub const ENTRY_COUNT_MAX: u32 = 1 << 22;

/// The size of a table, and how its entries are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableShape {
    /// Number of entries: a power of two. More entries mean fewer false conflicts, and more memory: pages of a table
    /// are touched when rows in them are locked.
    pub entry_count: u32,
    /// How each is divided.
    pub format: SlotFormat,
}

impl Default for TableShape {
    fn default() -> Self {
        Self { entry_count: 1 << 20, format: SlotFormat::of_this_machine() }
    }
}

/// The row to lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// The table, or other object, that the row is in.
    pub object: u64,
    /// The row in it.
    pub vid: u64,
}

/// A job in an epoch of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Job {
    /// Its number in the slots.
    pub id: JobId,
    /// The epoch that it was assigned in: its slots are removed when another begins.
    pub epoch: u64,
    /// Whether it may have entries that an earlier run of it has locked.
    pub goes_on: bool,
}

/// Why a lock was not granted, or not released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// An entry that neither side could have written: end the statement, and fence the device.
    #[error(
        "entry {entry} of the shared lock table is spoilt ({bits:#034x}); end the device's jobs and fence it"
    )]
    Spoilt {
        /// The entry.
        entry: u32,
        /// Its contents.
        bits: u128,
    },
    /// The host has removed the locks of this device's jobs: end the job.
    #[error(
        "the locks of this job, of epoch {ours}, were taken away: the lock table is in epoch {now}"
    )]
    Fenced {
        /// The job's epoch.
        ours: u64,
        /// The table's epoch.
        now: u64,
    },
    /// The job's number does not fit this table's slots: a defect of the host.
    #[error("{0} is no number of a job in this lock table")]
    Job(JobId),
}

/// Counters of one side since its table was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockFigures {
    /// Requests for a row's lock. A job's are counted where they are made: [`JobLocks::count_requests`].
    pub requests: u64,
    /// Those that had to wait for the other side, or for another job.
    pub waits: u64,
    /// Those that would have had to wait, and did not want to.
    pub refusals: u64,
    /// Waits and refusals whose row had no request since the entry was last free: false conflicts. Rows may have equal
    /// marks, so the true number may be higher.
    pub false_conflicts: u64,
    /// Requests of jobs that found no free slot.
    pub overflows: u64,
    /// Entries that neither side could have written.
    pub spoilt: u64,
}

impl LockFigures {
    /// Requests for a row that another user had, or another row of its entry.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.waits.saturating_add(self.refusals)
    }
}

/// A table as one side sees it.
#[derive(Debug)]
struct LockTable {
    memory: Arc<LockMemory>,
    side: Of,
    format: SlotFormat,
    /// The host's value in a slot.
    host: u16,
    /// Bits of an entry's number from the row's hash, and from its VID.
    /// Of an entry's number.
    entry_bits: u32,
}

/// Whose a view of a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Host,
    Device,
}

/// Running counters of one side, a cache line. They lie beside the entries, so that the host can show those of another
/// process. Never modelled: nothing depends on them.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Counters {
    requests: AtomicU64,
    waits: AtomicU64,
    refusals: AtomicU64,
    false_conflicts: AtomicU64,
    overflows: AtomicU64,
    spoilt: AtomicU64,
}

/// How a conflict ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conflict {
    Wait,
    Refusal,
}

/// The place of a row's lock.
#[derive(Debug, Clone, Copy)]
struct Place {
    entry: u32,
    /// One bit, selected by the row.
    mark: u64,
}

/// The position of an added slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutIn {
    First,
    Behind,
    Not,
}

/// A removed slot.
#[derive(Debug, Clone, Copy)]
struct TakenOut {
    place: u32,
    /// The holder of the entry since.
    head: Option<Holder>,
}

impl LockTable {
    fn new(memory: Arc<LockMemory>, format: SlotFormat, side: Of) -> Self {
        let entry_bits = memory.entry_count().ilog2();
        Self { memory, side, format, host: format.host(), entry_bits }
    }

    /// The place of `row`'s lock. Rows of an object have the entries that follow a place of the object's, in the order
    /// of their VIDs: as many consecutive VIDs as there are entries never share one, so that a job which locks a large
    /// part of such a table keeps no writer of other rows waiting.
    #[inline]
    fn place_of(&self, row: Row) -> Place {
        let mixed = row.object.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let first = mixed.checked_shr(u64::BITS - self.entry_bits).unwrap_or(0);
        let entry = first.wrapping_add(row.vid) & ((1 << self.entry_bits) - 1);
        #[expect(clippy::cast_possible_truncation, reason = "below the number of entries")]
        let entry = entry as u32;
        let marked = row.vid.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mixed;
        Place { entry, mark: 1 << (marked >> (u64::BITS - 6)) }
    }

    fn sound(&self, entry: u32, bits: u128) -> Result<Queue, LockError> {
        Queue::sound(bits, self.format).ok_or_else(|| self.spoilt(entry, bits))
    }

    fn spoilt(&self, entry: u32, bits: u128) -> LockError {
        self.counters().spoilt.fetch_add(1, Ordering::Relaxed);
        LockError::Spoilt { entry, bits }
    }

    fn load(&self, entry: u32) -> Result<Queue, LockError> {
        self.sound(entry, self.memory.load(entry))
    }

    /// Replaces `entry` by the result of `change`, and returns that; none if `change` returns none.
    fn change(
        &self,
        entry: u32,
        mut seen: u128,
        mut change: impl FnMut(Queue) -> Result<Option<Queue>, LockError>,
    ) -> Result<Option<Queue>, LockError> {
        loop {
            let Some(changed) = change(self.sound(entry, seen)?)? else { return Ok(None) };
            match self.memory.exchange(entry, seen, changed.bits()) {
                Ok(()) => return Ok(Some(changed)),
                Err(now) => seen = now,
            }
        }
    }

    /// Puts `slot` into an empty entry, or applies `change` to others.
    #[inline]
    fn put_in(
        &self,
        entry: u32,
        slot: u16,
        change: impl FnMut(Queue) -> Result<Option<Queue>, LockError>,
    ) -> Result<PutIn, LockError> {
        match self.memory.exchange(entry, 0, slot.into()) {
            Ok(()) => Ok(PutIn::First),
            Err(seen) => Ok(match self.change(entry, seen, change)? {
                // Released meanwhile.
                Some(queue) if queue.length() == 1 => PutIn::First,
                Some(_) => PutIn::Behind,
                None => PutIn::Not,
            }),
        }
    }

    /// Removes the slot that `which` finds, most likely the only one, with the value `slot`; none if it finds none.
    #[inline]
    fn take_out(
        &self,
        entry: u32,
        slot: u16,
        which: impl Fn(Queue) -> Option<u32>,
    ) -> Result<Option<TakenOut>, LockError> {
        let Err(seen) = self.memory.exchange(entry, slot.into(), 0) else {
            return Ok(Some(TakenOut { place: 0, head: None }));
        };
        let mut taken = 0;
        let changed = self.change(entry, seen, |queue| {
            let place = which(queue);
            taken = place.unwrap_or_default();
            Ok(place.map(|place| queue.without(place)))
        })?;
        Ok(changed.map(|queue| TakenOut { place: taken, head: queue.head() }))
    }

    fn counters(&self) -> &Counters {
        self.memory.counters(self.side)
    }

    /// Counts a request that met another user at `place`.
    fn count_conflict(&self, place: Place, conflict: Conflict) {
        let counters = self.counters();
        let counted = match conflict {
            Conflict::Wait => &counters.waits,
            Conflict::Refusal => &counters.refusals,
        };
        counted.fetch_add(1, Ordering::Relaxed);
        if !self.memory.is_marked(place.entry, place.mark) {
            counters.false_conflicts.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn figures(&self, of: Of) -> LockFigures {
        let counters = self.memory.counters(of);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LockFigures {
            requests: read(&counters.requests),
            waits: read(&counters.waits),
            refusals: read(&counters.refusals),
            false_conflicts: read(&counters.false_conflicts),
            overflows: read(&counters.overflows),
            spoilt: read(&counters.spoilt),
        }
    }
}

/// The waiters of both sides, as one of them sees them.
#[derive(Debug)]
struct Sides {
    host: Peer,
    device: Peer,
}

/// The sides whose bell is to be rung.
#[derive(Debug, Clone, Copy, Default)]
struct Bells {
    host: bool,
    device: bool,
}

impl Sides {
    /// Wakes the side that holds `entry` after the removal of `taken`, if that was the holder; adds to `bells` if a
    /// bell is to be rung.
    fn wake(&self, entry: u32, taken: TakenOut, bells: &mut Bells) {
        match taken.head.filter(|_| taken.place == 0) {
            Some(Holder::Host) => bells.host |= self.host.wake(entry),
            Some(Holder::Job(_)) => bells.device |= self.device.wake(entry),
            None => {}
        }
    }

    fn ring(&self, bells: Bells) {
        if bells.host {
            self.host.ring();
        }
        if bells.device {
            self.device.ring();
        }
    }

    /// As [`Sides::wake`], ringing at once.
    fn hand_over(&self, entry: u32, taken: TakenOut) {
        let mut bells = Bells::default();
        self.wake(entry, taken, &mut bells);
        self.ring(bells);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod process_tests;
#[cfg(all(test, not(loom)))]
mod tests;
