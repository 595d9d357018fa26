//! The contents of one entry: its holder, and its waiters in order.
//!
//! ```text
//! slot     0        1        2                                  last
//!        holder │ waits │ waits │ … │ 0 │ 0 │ …              │ the host's alone
//!        least significant bits                 most significant bits
//! ```
//!
//! A free slot is 0, the host's is all ones, and a job's is its number. Slots are taken from the first on, without
//! gaps; a release moves those behind up by one. Jobs leave the last slot free, so that the host always finds a place:
//! if all slots are taken the last one is the host's, and further requests of the host share it.
//!
//! Pure functions of a number: the same for all divisions of an entry.

use std::fmt;
use std::num::NonZeroU16;

/// The division of an entry into slots, which also says how many bytes an entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotFormat {
    slot_bits: u32,
    slot_count: u32,
}

impl SlotFormat {
    /// 8 slots of 2 bytes: up to 7 jobs an entry and 65,534 jobs at once.
    pub const EIGHT: Self = Self { slot_bits: 16, slot_count: 8 };
    /// 16 slots of 1 byte: up to 15 jobs an entry and 254 jobs at once.
    pub const SIXTEEN: Self = Self { slot_bits: 8, slot_count: 16 };
    /// 4 slots of 2 bytes, in an entry of 8 bytes, for processors that change no 16 bytes at once (and for the model,
    /// which has no atomic of 16 bytes): up to 3 jobs an entry and 65,534 jobs at once.
    pub const FOUR: Self = Self { slot_bits: 16, slot_count: 4 };

    /// The format for a table on this processor.
    #[must_use]
    pub fn of_this_machine() -> Self {
        if Self::EIGHT.is_lock_free() { Self::EIGHT } else { Self::FOUR }
    }

    /// Whether this processor changes an entry at once, as two processes that share it need.
    #[cfg(not(loom))]
    #[must_use]
    pub fn is_lock_free(self) -> bool {
        self.entry_bytes() < 16 || portable_atomic::AtomicU128::is_lock_free()
    }

    /// Whether the model has an atomic of an entry's size.
    #[cfg(loom)]
    fn is_lock_free(self) -> bool {
        self.entry_bytes() < 16
    }

    /// Bytes of an entry: 16 or 8.
    #[must_use]
    pub fn entry_bytes(self) -> usize {
        (self.slot_bits * self.slot_count / 8) as usize
    }

    /// Bytes of a slot.
    #[cfg(not(loom))]
    pub(crate) fn slot_bytes(self) -> u32 {
        self.slot_bits / 8
    }

    /// The format with entries and slots of these sizes.
    #[cfg(not(loom))]
    pub(crate) fn of_sizes(entry_bytes: usize, slot_bytes: u32) -> Option<Self> {
        [Self::EIGHT, Self::SIXTEEN, Self::FOUR]
            .into_iter()
            .find(|format| (format.entry_bytes(), format.slot_bytes()) == (entry_bytes, slot_bytes))
    }

    /// The host's value in a slot.
    #[inline]
    pub(crate) fn host(self) -> u16 {
        u16::MAX >> (16 - self.slot_bits)
    }

    /// Whether slots have room for `job`'s number.
    pub(crate) fn admits(self, job: JobId) -> bool {
        job.0.get() < self.host()
    }

    fn slots_of_jobs(self) -> u32 {
        self.slot_count - 1
    }
}

/// The number of a job in the slots of one table. A job is one run that locks; the host knows its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(NonZeroU16);

impl JobId {
    /// Any number but 0 and the greatest, which are never a job's.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).filter(|number| number.get() < u16::MAX).map(Self)
    }

    /// The number.
    #[inline]
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The owner of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Transactions of the host, one or many.
    Host,
    /// A job on the device.
    Job(JobId),
}

/// A valid entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queue {
    bits: u128,
    format: SlotFormat,
}

impl Queue {
    /// `bits` as a queue; none for an entry that neither side could have written: with a gap, a job in the host's slot,
    /// or a job twice.
    pub(crate) fn sound(bits: u128, format: SlotFormat) -> Option<Self> {
        let queue = Self { bits, format };
        let mut ended = false;
        for place in 0..format.slot_count {
            let slot = queue.slot(place);
            let doubled =
                slot != format.host() && (0..place).any(|before| queue.slot(before) == slot);
            if slot == 0 {
                ended = true;
            } else if ended || doubled {
                return None;
            }
        }
        let last = queue.slot(format.slot_count - 1);
        let fits = format.slot_bits * format.slot_count == u128::BITS
            || bits >> (format.slot_bits * format.slot_count) == 0;
        (fits && (last == 0 || last == format.host())).then_some(queue)
    }

    pub(crate) fn bits(self) -> u128 {
        self.bits
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    fn slot(self, place: u32) -> u16 {
        (self.bits >> (place * self.format.slot_bits)) as u16 & self.format.host()
    }

    /// How many slots are taken.
    pub(crate) fn length(self) -> u32 {
        (u128::BITS - self.bits.leading_zeros()).div_ceil(self.format.slot_bits)
    }

    fn holder_at(self, place: u32) -> Option<Holder> {
        let slot = self.slot(place);
        if slot == self.format.host() {
            return Some(Holder::Host);
        }
        JobId::new(slot).map(Holder::Job)
    }

    /// The holder of the entry.
    pub(crate) fn head(self) -> Option<Holder> {
        self.holder_at(0)
    }

    /// The last in the queue.
    pub(crate) fn tail(self) -> Option<Holder> {
        self.holder_at(self.length().checked_sub(1)?)
    }

    /// All, the holder first.
    pub(crate) fn holders(self) -> impl Iterator<Item = Holder> {
        (0..self.length()).filter_map(move |place| self.holder_at(place))
    }

    /// The position of `job`.
    pub(crate) fn place_of(self, job: JobId) -> Option<u32> {
        (0..self.length()).find(|place| self.slot(*place) == job.get())
    }

    /// How many slots the host has.
    pub(crate) fn host_count(self) -> usize {
        self.holders().filter(|holder| *holder == Holder::Host).count()
    }

    /// The position of the host's slot number `index`.
    pub(crate) fn place_of_host(self, index: usize) -> Option<u32> {
        let host = self.format.host();
        (0..self.length()).filter(|place| self.slot(*place) == host).nth(index)
    }

    /// The queue with `job` appended; none if the entry is full for jobs.
    pub(crate) fn with_job(self, job: JobId) -> Option<Self> {
        (self.length() < self.format.slots_of_jobs()).then(|| self.with(job.get()))
    }

    /// The queue with a slot of the host appended; none if the last is the host's, to be shared.
    pub(crate) fn with_host(self) -> Option<Self> {
        // A full queue ends with a slot of the host.
        (self.tail() != Some(Holder::Host) && self.length() < self.format.slot_count)
            .then(|| self.with(self.format.host()))
    }

    fn with(self, slot: u16) -> Self {
        let bits = self.bits | u128::from(slot) << (self.length() * self.format.slot_bits);
        Self { bits, ..self }
    }

    /// The queue without the slot at `place`: those behind move up.
    pub(crate) fn without(self, place: u32) -> Self {
        let at = place * self.format.slot_bits;
        let before = self.bits & !(u128::MAX << at);
        let behind = self.bits.checked_shr(at + self.format.slot_bits).unwrap_or(0);
        Self { bits: before | behind << at, ..self }
    }

    /// The host `count` times and no jobs, as far as slots allow: the replacement of an invalid entry.
    pub(crate) fn of_host(count: usize, format: SlotFormat) -> Self {
        (0..count.min(format.slot_count as usize))
            .fold(Self { bits: 0, format }, |queue, _| queue.with(format.host()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
