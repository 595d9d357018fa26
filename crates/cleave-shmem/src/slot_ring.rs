//! A ring buffer of bytes from one side to the other: a byte stream in (frames with slots and commands), the same bytes
//! out.
//!
//! ```text
//!             head                tail
//!  ────────────┼───────────────────┼────────────────      positions count for ever; their low bits
//!   free       │ written, not read │ free                  are the place in the ring
//! ```
//!
//! 1. [`Producer::write`] copies bytes in, moves `tail`, and returns whether the consumer sleeps.
//! 2. [`Consumer::read`] copies bytes out, moves `head`, and returns whether the producer sleeps.
//! 3. A side without work sets a flag ([`Producer::prepare_to_sleep`], [`Consumer::prepare_to_sleep`]), checks once
//!    more, and then waits for its bell. A side that moves a position reads the other side's flag after it, with a full
//!    fence between; a side that sets its flag reads the position after it in the same way. So one of the two sees the
//!    other.
//!
//! Invariants: each side keeps its own position in private memory and never reads it back. The other side's is believed
//! only if it lies between its previous value and its possible maximum; any other value ends the ring ([`RingError`]).
//! The model `loom_tests` checks that no wake-up is lost, that nothing is read that was not written, and that a side
//! that stops leaves the other with a prefix.

use bytes::BufMut;

use crate::ring_memory::{Ordering, RingMemory, fence};

#[cfg(not(loom))]
pub(crate) mod pair;

/// Most bytes that one write or read moves: the other side starts on them, while they are in a cache, as the next ones
/// are copied.
const PIECE_BYTES: usize = 128 << 10;

/// Why a ring cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The other side's position is impossible: end the connection.
    #[error(
        "the other side of the shared memory stands where it cannot be: {theirs}, and this one at {ours}"
    )]
    Position {
        /// This side's position.
        ours: u64,
        /// The other side's claimed position.
        theirs: u64,
    },
    /// The region has another layout than this version's: end the connection.
    #[error("the shared memory {0}")]
    Header(&'static str),
    /// A side of a region was requested twice: a defect of this program.
    #[error("this side of the shared memory is taken")]
    Taken,
}

/// The result of a write or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes moved; 0 if there was no room, or nothing to read.
    pub bytes: usize,
    /// Whether the other side sleeps: ring its bell.
    pub wake: bool,
}

impl Moved {
    const NOTHING: Self = Self { bytes: 0, wake: false };
}

/// The writing end.
#[derive(Debug)]
pub struct Producer {
    memory: RingMemory,
    tail: u64,
    /// The consumer's position when it was last read.
    head_seen: u64,
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer {
    memory: RingMemory,
    head: u64,
    /// The producer's position when it was last read.
    tail_seen: u64,
}

/// The two ends of an empty ring in `memory`.
#[cfg_attr(all(loom, not(test)), expect(dead_code, reason = "only the models make rings there"))]
pub(crate) fn ends(memory: RingMemory) -> (Producer, Consumer) {
    let producer = Producer { memory: memory.clone(), tail: 0, head_seen: 0 };
    (producer, Consumer { memory, head: 0, tail_seen: 0 })
}

impl Producer {
    /// Copies as much of `bytes` as there is room for, a piece at most.
    ///
    /// # Errors
    /// [`RingError::Position`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<Moved, RingError> {
        let wanted = bytes.len().min(PIECE_BYTES);
        let mut room = self.room();
        if room < wanted {
            room = self.look()?;
        }
        let count = wanted.min(room);
        let Some(bytes) = bytes.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return Ok(Moved::NOTHING);
        };
        self.memory.copy_in(self.tail, bytes);
        self.tail += count as u64;
        let control = self.memory.control();
        control.tail.0.store(self.tail, Ordering::Release);
        fence(Ordering::SeqCst);
        let wake = control.consumer_sleeps.0.load(Ordering::Relaxed) != 0;
        if wake {
            control.consumer_sleeps.0.store(0, Ordering::Relaxed);
        }
        Ok(Moved { bytes: count, wake })
    }

    /// Announces that this side is going to wait for its bell; false if there is room after all.
    ///
    /// # Errors
    /// [`RingError::Position`].
    pub fn prepare_to_sleep(&mut self) -> Result<bool, RingError> {
        self.memory.control().producer_sleeps.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(self.look()? == 0)
    }

    /// Room, as far as known.
    fn room(&self) -> usize {
        self.memory.capacity() - distance(self.head_seen, self.tail)
    }

    /// Room, after reading the consumer's position.
    fn look(&mut self) -> Result<usize, RingError> {
        let theirs = self.memory.control().head.0.load(Ordering::Acquire);
        if theirs < self.head_seen || theirs > self.tail {
            return Err(RingError::Position { ours: self.tail, theirs });
        }
        self.head_seen = theirs;
        Ok(self.room())
    }
}

impl Consumer {
    /// Copies available bytes into `sink`, as far as that has room, a piece at most.
    ///
    /// # Errors
    /// [`RingError::Position`].
    pub fn read(&mut self, sink: &mut impl BufMut) -> Result<Moved, RingError> {
        let mut there = distance(self.head, self.tail_seen);
        if there == 0 {
            there = self.look()?;
        }
        let count = there.min(sink.remaining_mut()).min(PIECE_BYTES);
        if count == 0 {
            return Ok(Moved::NOTHING);
        }
        self.memory.copy_out(self.head, count, sink);
        self.head += count as u64;
        let control = self.memory.control();
        control.head.0.store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        // A waiting producer is woken when a good part is free, at the latest when all is: not for every piece.
        let room = self.memory.capacity() - distance(self.head, self.tail_seen);
        let wake = room >= self.memory.capacity() / 4
            && control.producer_sleeps.0.load(Ordering::Relaxed) != 0;
        if wake {
            control.producer_sleeps.0.store(0, Ordering::Relaxed);
        }
        Ok(Moved { bytes: count, wake })
    }

    /// Announces that this side is going to wait for its bell; false if there is something to read after all.
    ///
    /// # Errors
    /// [`RingError::Position`].
    pub fn prepare_to_sleep(&mut self) -> Result<bool, RingError> {
        self.memory.control().consumer_sleeps.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(self.look()? == 0)
    }

    /// Bytes to read, after reading the producer's position.
    fn look(&mut self) -> Result<usize, RingError> {
        let theirs = self.memory.control().tail.0.load(Ordering::Acquire);
        let most = self.head.saturating_add(self.memory.capacity() as u64);
        if theirs < self.tail_seen || theirs > most {
            return Err(RingError::Position { ours: self.head, theirs });
        }
        self.tail_seen = theirs;
        Ok(distance(self.head, theirs))
    }
}

/// Bytes from `from` to `to`, which are at most a ring apart.
fn distance(from: u64, to: u64) -> usize {
    usize::try_from(to - from).unwrap_or(usize::MAX)
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
