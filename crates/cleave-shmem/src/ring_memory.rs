//! The memory of one ring: positions and flags that both sides change, and the bytes between them.
//!
//! ```text
//! control   tail u64 at 0 │ head u64 at 128 │ consumer sleeps u32 at 256 │ producer sleeps u32 at 384 │ to 512
//! ```
//!
//! Each has two cache lines of its own, because processors fetch them in pairs. Numbers are in the machine's byte
//! order, since only one machine sees them.
//!
//! Invariant: bytes are copied between here and private memory through raw pointers; no reference to them is
//! ever made, because another process may change them at any moment.

#![expect(unsafe_code, reason = "copies between shared and private memory")]

use bytes::BufMut;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use modelled::RingMemory;
#[cfg(not(loom))]
pub(crate) use shared::RingMemory;

/// A value on cache lines of its own.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// The state that the two sides of a ring share. Zeroes are an empty ring.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    /// Bytes ever written. The producer's.
    pub(crate) tail: Line<AtomicU64>,
    /// Bytes ever read. The consumer's.
    pub(crate) head: Line<AtomicU64>,
    /// 1: the consumer wants its bell rung when there is something to read.
    pub(crate) consumer_sleeps: Line<AtomicU32>,
    /// 1: the producer wants its bell rung when there is room.
    pub(crate) producer_sleeps: Line<AtomicU32>,
}

/// The place of `position` in the ring, and how many of `count` bytes follow before its end.
fn place(position: u64, count: usize, capacity: usize) -> (usize, usize) {
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    let at = position as usize & (capacity - 1);
    (at, count.min(capacity - at))
}

#[cfg(not(loom))]
mod shared {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use super::{BufMut, Control, place};
    use crate::region::Region;

    /// One ring in a region. Cloned once, for its other end.
    #[derive(Debug, Clone)]
    pub(crate) struct RingMemory {
        control: NonNull<Control>,
        data: NonNull<u8>,
        capacity: usize,
        /// Keeps the region mapped.
        _region: Arc<Region>,
    }

    // SAFETY: the pointers lead into the region, which any thread may use.
    unsafe impl Send for RingMemory {}

    impl RingMemory {
        /// The ring with its control at `control` and its bytes at `data`; none if they do not lie in `region`, are not
        /// aligned, or `capacity` is no power of two.
        pub(crate) fn in_region(
            region: &Arc<Region>,
            control: usize,
            data: usize,
            capacity: usize,
        ) -> Option<Self> {
            let control_start = region.part(control, size_of::<Control>())?.cast::<Control>();
            if !capacity.is_power_of_two() || !control_start.is_aligned() {
                return None;
            }
            let data = region.part(data, capacity)?;
            Some(Self { control: control_start, data, capacity, _region: Arc::clone(region) })
        }

        pub(crate) fn capacity(&self) -> usize {
            self.capacity
        }

        pub(crate) fn control(&self) -> &Control {
            // SAFETY: it lies in the region, which lives as long as `self`, is aligned, and consists of
            // atomics, for which all bytes are values and which others may change.
            unsafe { self.control.as_ref() }
        }

        /// Copies `bytes`, which are at most the capacity, into the ring from `position` on. The caller is the
        /// producer, and these places are free.
        pub(crate) fn copy_in(&self, position: u64, bytes: &[u8]) {
            assert!(bytes.len() <= self.capacity, "more than the ring holds");
            let (at, first) = place(position, bytes.len(), self.capacity);
            let (first, second) = bytes.split_at(first);
            for (at, part) in [(at, first), (0, second)] {
                // SAFETY: `at` is below the capacity, which all lies in the region.
                let to = unsafe { self.data.add(at) };
                // SAFETY: `place` keeps `part` within the ring, and private memory is not in the region. In this
                // process nobody else touches these bytes: the consumer does not read them before `tail` says
                // so. Another process that does spoils the bytes and nothing else.
                unsafe { to.as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            }
        }

        /// Copies `count` bytes, at most the capacity, from `position` on into `sink`. The caller is the
        /// consumer, and these places were written.
        pub(crate) fn copy_out(&self, position: u64, count: usize, sink: &mut impl BufMut) {
            assert!(
                count <= self.capacity && count <= sink.remaining_mut(),
                "more than there is room for"
            );
            let (at, first) = place(position, count, self.capacity);
            for (mut at, mut left) in [(at, first), (0, count - first)] {
                while left > 0 {
                    let room = sink.chunk_mut();
                    let length = left.min(room.len());
                    // SAFETY: `at` is below the capacity, which all lies in the region.
                    let from = unsafe { self.data.add(at) };
                    // SAFETY: `place` keeps the part within the ring, and the sink, which is private memory, has
                    // room for it. In this process nobody else touches these bytes: the producer does not
                    // write them before `head` says so. Another process that does spoils the bytes and nothing
                    // else: whoever reads them looks at the copy.
                    unsafe { room.as_mut_ptr().copy_from_nonoverlapping(from.as_ptr(), length) };
                    // SAFETY: so many bytes were just written there.
                    unsafe { sink.advance_mut(length) };
                    (at, left) = (at + length, left - length);
                }
            }
        }
    }
}

#[cfg(loom)]
mod modelled {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    use super::{AtomicU32, AtomicU64, BufMut, Control, Line, place};

    /// A ring whose every access the model watches.
    #[derive(Debug, Clone)]
    pub(crate) struct RingMemory(Arc<Modelled>);

    #[derive(Debug)]
    struct Modelled {
        control: Control,
        data: Vec<UnsafeCell<u8>>,
    }

    // SAFETY: the model itself reports two threads that use one byte at a time.
    unsafe impl Send for Modelled {}
    // SAFETY: as above.
    unsafe impl Sync for Modelled {}

    impl RingMemory {
        #[cfg_attr(not(test), expect(dead_code, reason = "only the models make rings here"))]
        pub(crate) fn new(capacity: usize) -> Self {
            Self(Arc::new(Modelled {
                control: Control {
                    tail: Line(AtomicU64::new(0)),
                    head: Line(AtomicU64::new(0)),
                    consumer_sleeps: Line(AtomicU32::new(0)),
                    producer_sleeps: Line(AtomicU32::new(0)),
                },
                data: (0..capacity).map(|_| UnsafeCell::new(0)).collect(),
            }))
        }

        pub(crate) fn capacity(&self) -> usize {
            self.0.data.len()
        }

        pub(crate) fn control(&self) -> &Control {
            &self.0.control
        }

        pub(crate) fn copy_in(&self, position: u64, bytes: &[u8]) {
            for (offset, byte) in bytes.iter().enumerate() {
                let (at, _) = place(position + offset as u64, 1, self.capacity());
                // SAFETY: the model reports who else uses the byte now.
                self.0.data[at].with_mut(|place| unsafe { *place = *byte });
            }
        }

        pub(crate) fn copy_out(&self, position: u64, count: usize, sink: &mut impl BufMut) {
            for offset in 0..count {
                let (at, _) = place(position + offset as u64, 1, self.capacity());
                // SAFETY: the model reports who else uses the byte now.
                sink.put_u8(self.0.data[at].with(|place| unsafe { *place }));
            }
        }
    }
}
