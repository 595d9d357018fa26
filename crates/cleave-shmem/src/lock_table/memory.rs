//! The memory of a lock table: entries that both sides change, and beside each the marks of its rows.
//!
//! ```text
//! offset         0  magic "CLVSLT\r\n" │ version u32 at 8 │ bytes of a slot u32 at 12 │ entries u64 at 16
//!              128  epoch u64
//!              256  counters of the host, 6 × u64 │ at 320 those of the device
//!             4096  entries, of 16 bytes (version 2) or 8 (version 3)
//!  + size × entries  marks, 8 bytes each
//! ```
//!
//! Numbers are in the machine's byte order, since only one machine sees them. Zeroes are a table without locks.
//!
//! An entry changes only by compare-and-swap, sequentially consistent. So of a thread that raises the epoch and then
//! reads an entry, and a thread that changes an entry and then reads the epoch, at least one sees the other. Marks are
//! hints for counting and decide nothing, so they may be late or lost; nor do the counters.

#![cfg_attr(not(loom), expect(unsafe_code, reason = "entries lie in shared memory"))]

#[cfg(loom)]
pub(crate) use modelled::LockMemory;
#[cfg(not(loom))]
pub(crate) use shared::LockMemory;

/// Orders this thread's earlier accesses before its later reads in the model, which orders accesses to different places
/// only by a fence. Everywhere else the accesses themselves are ordered.
#[inline]
pub(crate) fn settle() {
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

#[cfg(not(loom))]
mod shared {
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use portable_atomic::AtomicU128;

    use crate::lock_table::attach::LockTableError;
    use crate::lock_table::{
        Counters, ENTRY_COUNT_MAX, ENTRY_COUNT_MIN, Of, SlotFormat, TableShape,
    };
    use crate::region::{Region, RegionError};

    /// "CLVSLT\r\n", as a number of this machine.
    const MAGIC: u64 = u64::from_le_bytes(*b"CLVSLT\r\n");
    /// Version of the layout and of its use by the two sides, with entries of 16 bytes.
    const VERSION_WIDE: u32 = 2;
    /// The same with entries of 8 bytes.
    const VERSION_NARROW: u32 = 3;
    const WIDE_BYTES: usize = size_of::<AtomicU128>();
    const NARROW_BYTES: usize = size_of::<AtomicU64>();
    const ENTRIES: usize = 4096;
    const MARK_BYTES: usize = size_of::<AtomicU64>();

    #[repr(C)]
    struct Header {
        magic: AtomicU64,
        version: AtomicU32,
        slot_bytes: AtomicU32,
        entry_count: AtomicU64,
        unused: [u64; 13],
        epoch: AtomicU64,
        unused_too: [u64; 15],
        of_host: Counters,
        of_device: Counters,
    }

    /// The entries, by their size.
    #[derive(Debug, Clone, Copy)]
    enum Entries {
        Wide(NonNull<AtomicU128>),
        Narrow(NonNull<AtomicU64>),
    }

    /// A table's memory. Lives as long as any user of it.
    #[derive(Debug)]
    pub(crate) struct LockMemory {
        header: NonNull<Header>,
        entries: Entries,
        marks: NonNull<AtomicU64>,
        entry_count: u32,
        region: Region,
    }

    // SAFETY: the pointers lead into the region, which any thread may use, and at atomics alone.
    unsafe impl Send for LockMemory {}
    // SAFETY: as above.
    unsafe impl Sync for LockMemory {}

    impl LockMemory {
        pub(crate) fn region_bytes(shape: TableShape) -> usize {
            let bytes = shape.format.entry_bytes().saturating_add(MARK_BYTES);
            (shape.entry_count as usize).saturating_mul(bytes).saturating_add(ENTRIES)
        }

        /// Makes an empty table of `region`, which is all zeroes.
        pub(crate) fn fill(region: Region, shape: TableShape) -> Result<Self, LockTableError> {
            let memory = Self::in_region(region, shape)?;
            let header = memory.header();
            let version = match memory.entries {
                Entries::Wide(_) => VERSION_WIDE,
                Entries::Narrow(_) => VERSION_NARROW,
            };
            header.version.store(version, Ordering::Relaxed);
            header.slot_bytes.store(shape.format.slot_bytes(), Ordering::Relaxed);
            header.entry_count.store(u64::from(shape.entry_count), Ordering::Relaxed);
            header.magic.store(MAGIC, Ordering::Release);
            Ok(memory)
        }

        /// The table in a region that a peer made.
        pub(crate) fn open(region: Region) -> Result<(Self, TableShape), LockTableError> {
            let start = region
                .part(0, size_of::<Header>())
                .map(NonNull::cast::<Header>)
                .filter(|start| start.is_aligned())
                .ok_or(LockTableError::Header("is too small"))?;
            // SAFETY: it lies in the region, is aligned, and all bytes are values of it; its numbers are
            // atomics, which others may change, and nobody looks at the rest.
            let header = unsafe { start.as_ref() };
            if header.magic.load(Ordering::Acquire) != MAGIC {
                return Err(LockTableError::Header("does not begin as it should"));
            }
            let entry_bytes = match header.version.load(Ordering::Relaxed) {
                VERSION_WIDE => WIDE_BYTES,
                VERSION_NARROW => NARROW_BYTES,
                _ => {
                    let why = "has another version: upgrade the older side";
                    return Err(LockTableError::Header(why));
                }
            };
            let slot_bytes = header.slot_bytes.load(Ordering::Relaxed);
            let format = SlotFormat::of_sizes(entry_bytes, slot_bytes)
                .ok_or(LockTableError::Header("has slots of a size that none may have"))?;
            // Read once: what is checked is what is used.
            let shape = u32::try_from(header.entry_count.load(Ordering::Relaxed))
                .ok()
                .filter(|count| count.is_power_of_two())
                .filter(|count| (ENTRY_COUNT_MIN..=ENTRY_COUNT_MAX).contains(count))
                .map(|entry_count| TableShape { entry_count, format })
                .filter(|shape| Self::region_bytes(*shape) == region.bytes())
                .ok_or(LockTableError::Header("has entries that do not fill it"))?;
            Ok((Self::in_region(region, shape)?, shape))
        }

        fn in_region(region: Region, shape: TableShape) -> Result<Self, LockTableError> {
            if !shape.format.is_lock_free() && region.descriptor().is_some() {
                return Err(LockTableError::NotLockFree);
            }
            let entry_count = shape.entry_count;
            let part = |offset, length| {
                region.part(offset, length).ok_or(RegionError::Unfit("is too small"))
            };
            let count = entry_count as usize;
            let entries_bytes = count.saturating_mul(shape.format.entry_bytes());
            let header = part(0, size_of::<Header>())?.cast::<Header>();
            let entries = part(ENTRIES, entries_bytes)?;
            let (entries, is_aligned) = if shape.format.entry_bytes() == WIDE_BYTES {
                let entries = entries.cast::<AtomicU128>();
                (Entries::Wide(entries), entries.is_aligned())
            } else {
                let entries = entries.cast::<AtomicU64>();
                (Entries::Narrow(entries), entries.is_aligned())
            };
            let marks = part(ENTRIES.saturating_add(entries_bytes), count * MARK_BYTES)?
                .cast::<AtomicU64>();
            if !entry_count.is_power_of_two()
                || !header.is_aligned()
                || !is_aligned
                || !marks.is_aligned()
            {
                return Err(RegionError::Unfit("is not laid out for locks").into());
            }
            Ok(Self { header, entries, marks, entry_count, region })
        }

        pub(crate) fn region(&self) -> &Region {
            &self.region
        }

        #[inline]
        pub(crate) fn entry_count(&self) -> u32 {
            self.entry_count
        }

        #[inline]
        fn header(&self) -> &Header {
            // SAFETY: it lies in the region, which lives as long as `self`, and is aligned; its numbers are
            // atomics, for which all bytes are values and which others may change.
            unsafe { self.header.as_ref() }
        }

        /// A number that belongs to no entry is replaced by one that does.
        #[inline]
        fn within(&self, entry: u32) -> usize {
            (entry & (self.entry_count - 1)) as usize
        }

        #[inline]
        fn wide(&self, entries: NonNull<AtomicU128>, entry: u32) -> &AtomicU128 {
            // SAFETY: the number is below the count, and so many entries lie in the region.
            let place = unsafe { entries.add(self.within(entry)) };
            // SAFETY: within the region, which lives as long as `self`, and aligned; all bytes are values, and
            // whoever else changes them does so by whole compare-and-swaps, or spoils what it can reach.
            unsafe { place.as_ref() }
        }

        #[inline]
        fn narrow(&self, entries: NonNull<AtomicU64>, entry: u32) -> &AtomicU64 {
            // SAFETY: the number is below the count, and so many entries lie in the region.
            let place = unsafe { entries.add(self.within(entry)) };
            // SAFETY: as in `wide`.
            unsafe { place.as_ref() }
        }

        #[inline]
        fn mark_of(&self, entry: u32) -> &AtomicU64 {
            // SAFETY: the number is below the count, and so many marks lie in the region.
            let place = unsafe { self.marks.add(self.within(entry)) };
            // SAFETY: within the region, which lives as long as `self`, and aligned; all bytes are values.
            unsafe { place.as_ref() }
        }

        #[inline]
        pub(crate) fn load(&self, entry: u32) -> u128 {
            match self.entries {
                Entries::Wide(entries) => self.wide(entries, entry).load(Ordering::SeqCst),
                Entries::Narrow(entries) => {
                    self.narrow(entries, entry).load(Ordering::SeqCst).into()
                }
            }
        }

        /// Stores `new` if the value is `seen`; otherwise returns the value.
        #[inline]
        pub(crate) fn exchange(&self, entry: u32, seen: u128, new: u128) -> Result<(), u128> {
            match self.entries {
                Entries::Wide(entries) => self
                    .wide(entries, entry)
                    .compare_exchange(seen, new, Ordering::SeqCst, Ordering::SeqCst)
                    .map(|_| ()),
                Entries::Narrow(entries) => self
                    .narrow(entries, entry)
                    .compare_exchange(low(seen), low(new), Ordering::SeqCst, Ordering::SeqCst)
                    .map(|_| ())
                    .map_err(u128::from),
            }
        }

        /// Overwrites an invalid entry.
        pub(crate) fn overwrite(&self, entry: u32, new: u128) {
            match self.entries {
                Entries::Wide(entries) => self.wide(entries, entry).store(new, Ordering::SeqCst),
                Entries::Narrow(entries) => {
                    self.narrow(entries, entry).store(low(new), Ordering::SeqCst);
                }
            }
        }

        /// The counters of one side.
        pub(crate) fn counters(&self, of: Of) -> &Counters {
            match of {
                Of::Host => &self.header().of_host,
                Of::Device => &self.header().of_device,
            }
        }

        #[inline]
        pub(crate) fn epoch(&self) -> u64 {
            self.header().epoch.load(Ordering::SeqCst)
        }

        pub(crate) fn set_epoch(&self, epoch: u64) {
            self.header().epoch.store(epoch, Ordering::SeqCst);
        }

        /// Records that a user of `entry` is there for rows of `mark`: these alone if it was free before.
        #[inline]
        pub(crate) fn mark(&self, entry: u32, mark: u64, was_free: bool) {
            let marks = self.mark_of(entry);
            if was_free {
                marks.store(mark, Ordering::Relaxed);
            } else if marks.load(Ordering::Relaxed) & mark == 0 {
                marks.fetch_or(mark, Ordering::Relaxed);
            }
        }

        /// Whether a user of `entry` may be there for a row of `mark`.
        #[inline]
        pub(crate) fn is_marked(&self, entry: u32, mark: u64) -> bool {
            self.mark_of(entry).load(Ordering::Relaxed) & mark != 0
        }
    }

    /// The bits of a narrow entry: a queue of its format has no others.
    #[inline]
    fn low(bits: u128) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "queues of this format have 64 bits")]
        let low = bits as u64;
        low
    }
}

#[cfg(loom)]
mod modelled {
    use loom::sync::atomic::{AtomicU64, Ordering};

    use crate::lock_table::{Counters, Of};

    /// A table whose every access the model watches: the model has no atomic of 16 bytes, so entries have 8.
    #[derive(Debug)]
    pub(crate) struct LockMemory {
        entries: Vec<AtomicU64>,
        epoch: AtomicU64,
        of_host: Counters,
        of_device: Counters,
    }

    fn short(bits: u128) -> u64 {
        u64::try_from(bits).expect("the model's entries have 8 bytes")
    }

    impl LockMemory {
        #[cfg_attr(not(test), expect(dead_code, reason = "only the models make tables here"))]
        pub(crate) fn new(entry_count: u32) -> Self {
            let entries = (0..entry_count).map(|_| AtomicU64::new(0)).collect();
            let (of_host, of_device) = (Counters::default(), Counters::default());
            Self { entries, epoch: AtomicU64::new(0), of_host, of_device }
        }

        pub(crate) fn counters(&self, of: Of) -> &Counters {
            match of {
                Of::Host => &self.of_host,
                Of::Device => &self.of_device,
            }
        }

        pub(crate) fn entry_count(&self) -> u32 {
            u32::try_from(self.entries.len()).unwrap_or(1)
        }

        pub(crate) fn load(&self, entry: u32) -> u128 {
            super::settle();
            self.entries[entry as usize].load(Ordering::SeqCst).into()
        }

        pub(crate) fn exchange(&self, entry: u32, seen: u128, new: u128) -> Result<(), u128> {
            let exchanged = self.entries[entry as usize].compare_exchange(
                short(seen),
                short(new),
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            super::settle();
            exchanged.map(|_| ()).map_err(u128::from)
        }

        pub(crate) fn overwrite(&self, entry: u32, new: u128) {
            self.entries[entry as usize].store(short(new), Ordering::SeqCst);
        }

        pub(crate) fn epoch(&self) -> u64 {
            super::settle();
            self.epoch.load(Ordering::SeqCst)
        }

        pub(crate) fn set_epoch(&self, epoch: u64) {
            self.epoch.store(epoch, Ordering::SeqCst);
            super::settle();
        }

        // Marks decide nothing, and each would be one more place for the model to interleave.

        pub(crate) fn mark(&self, _entry: u32, _mark: u64, _was_free: bool) {}

        pub(crate) fn is_marked(&self, _entry: u32, _mark: u64) -> bool {
            true
        }
    }
}
