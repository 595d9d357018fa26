#![expect(unsafe_code, reason = "handing memory to the kernel while it reads is what io_uring is")]
//! Many reads of one file at once through io_uring: places in, filled buffers out; the only file here with `unsafe`.
//!
//! 1. [`Rings::of_system`] checks once whether the kernel grants a ring: seccomp profiles, `kernel.io_uring_disabled`
//!    and old kernels refuse, and the caller then reads one place after the other.
//! 2. [`Rings::read`] takes an idle ring, or makes one while there are fewer than [`RING_COUNT_MAX`], and keeps up to
//!    [`QUEUE_DEPTH`] reads under way until all are done.
//! 3. The rest of a short read is requested again.
//!
//! Invariant, on which every `unsafe` block rests: a [`Batch`] owns the buffers that the kernel writes to, touches none
//! of them while a read is under way, and returns or frees them only when none is. If the kernel does not even say
//! whether reads ended, the buffers are leaked.
//!
//! Deliberately absent: registered buffers, which gain nothing measurable here (`docs/design/pages-and-encodings.md`);
//! writes; kernel polling threads.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

use crate::buffer::SpareBuffers;
use crate::{AlignedBuffer, BLOCK_SIZE};

/// Reads that one ring has under way at once.
const QUEUE_DEPTH: u32 = 32;
/// Rings of one file: further concurrent callers read without.
const RING_COUNT_MAX: usize = 8;
/// Most bytes of one read; the kernel takes up to 2 GiB less a page.
const READ_BYTES_MAX: usize = 1 << 30;

/// The rings of one file, each used by one caller at a time.
#[derive(Debug)]
pub(crate) struct Rings {
    state: Mutex<RingState>,
}

#[derive(Debug, Default)]
struct RingState {
    idle: Vec<Ring>,
    made_count: usize,
}

/// One ring, with nothing under way between calls.
struct Ring(IoUring);

/// A place in a file: byte offset and length, both of whole blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadPlace {
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// Which of the places could not be read, and why.
#[derive(Debug)]
pub(crate) struct ReadFailure {
    pub(crate) place: usize,
    pub(crate) source: io::Error,
}

impl Rings {
    /// Rings for one file; `None` if the system grants none.
    pub(crate) fn of_system() -> Option<Self> {
        let first = Ring::new().ok()?;
        Some(Self { state: Mutex::new(RingState { idle: vec![first], made_count: 1 }) })
    }

    /// Reads all of `places`; `None` if every ring is busy or no further one is granted.
    pub(crate) fn read(
        &self,
        file: &File,
        places: &[ReadPlace],
        spare: &Arc<SpareBuffers>,
    ) -> Option<Result<Vec<AlignedBuffer>, ReadFailure>> {
        let ring = self.take()?;
        let mut batch = Batch::new(ring, file, places, spare);
        let outcome = batch.run();
        let buffers = self.take_back(batch)?;
        Some(outcome.map(|()| buffers))
    }

    /// The buffers of a finished batch, whose ring becomes idle. A lost ring is no longer counted, so another one may
    /// be made in its place.
    fn take_back(&self, batch: Batch<'_>) -> Option<Vec<AlignedBuffer>> {
        let parts = batch.into_parts();
        let mut state = self.lock();
        if let Some((ring, buffers)) = parts {
            state.idle.push(ring);
            Some(buffers)
        } else {
            state.made_count = state.made_count.saturating_sub(1);
            None
        }
    }

    fn take(&self) -> Option<Ring> {
        let mut state = self.lock();
        if let Some(ring) = state.idle.pop() {
            return Some(ring);
        }
        if state.made_count >= RING_COUNT_MAX {
            return None;
        }
        let ring = Ring::new().ok()?;
        state.made_count += 1;
        Some(ring)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn new() -> io::Result<Self> {
        let ring = IoUring::builder().dontfork().build(QUEUE_DEPTH)?;
        // Without it a completion could be lost when the queue is full: kernels before 5.5.
        if !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if probe.is_supported(opcode::Read::CODE) {
            Ok(Self(ring))
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// Reads under way and the memory that they fill.
struct Batch<'a> {
    /// `None` once returned.
    ring: Option<Ring>,
    file: &'a File,
    places: &'a [ReadPlace],
    buffers: Vec<AlignedBuffer>,
    /// Bytes that each buffer has so far.
    done: Vec<usize>,
    /// Reads that the kernel may still work on.
    in_flight: usize,
    /// The kernel failed to say whether reads ended.
    is_lost: bool,
}

impl<'a> Batch<'a> {
    fn new(ring: Ring, file: &'a File, places: &'a [ReadPlace], spare: &Arc<SpareBuffers>) -> Self {
        Self {
            ring: Some(ring),
            file,
            places,
            buffers: places.iter().map(|place| spare.take(place.length)).collect(),
            done: vec![0; places.len()],
            in_flight: 0,
            is_lost: false,
        }
    }

    /// Reads everything; reports the first of several failures.
    fn run(&mut self) -> Result<(), ReadFailure> {
        let mut waiting: Vec<usize> = (0..self.places.len()).rev().collect();
        let mut failure: Option<ReadFailure> = None;
        while self.in_flight > 0 || (!waiting.is_empty() && failure.is_none()) {
            while failure.is_none()
                && self.in_flight < QUEUE_DEPTH as usize
                && let Some(place) = waiting.pop()
            {
                if !self.push(place) {
                    waiting.push(place);
                    break;
                }
            }
            if let Err(source) = self.wait() {
                self.is_lost = true;
                return Err(ReadFailure { place: 0, source });
            }
            for (place, outcome) in self.completed() {
                match self.note(place, outcome) {
                    Ok(true) => {}
                    Ok(false) => waiting.push(place),
                    Err(source) => failure = failure.or(Some(ReadFailure { place, source })),
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Puts the rest of a read into the queue; false if it is full.
    fn push(&mut self, place: usize) -> bool {
        let (Some(ring), Some(buffer), Some(done), Some(at)) = (
            self.ring.as_mut(),
            self.buffers.get_mut(place),
            self.done.get(place),
            self.places.get(place),
        ) else {
            return false;
        };
        let rest = buffer.get_mut(*done..).unwrap_or_default();
        let length = u32::try_from(rest.len().min(READ_BYTES_MAX)).unwrap_or(u32::MAX);
        let descriptor = types::Fd(self.file.as_raw_fd());
        let entry = opcode::Read::new(descriptor, rest.as_mut_ptr(), length)
            .offset(at.offset.saturating_add(*done as u64))
            .build()
            .user_data(place as u64);
        // SAFETY: the kernel may write `length` bytes from `rest` on until the completion of this entry is taken.
        // `rest` is that long (`length` is the smaller of two figures, one of them its length) and lies in a heap
        // allocation of `self.buffers`, which neither moves nor is read, written or freed while `in_flight` is not 0:
        // `run` touches a buffer only here, for a place that has no read under way (it was never pushed, or its
        // completion was taken), and `drop` and `into_parts` wait for `in_flight` or leak. The descriptor stays open,
        // since `self` borrows the file.
        let pushed = unsafe { ring.0.submission().push(&entry) };
        if pushed.is_ok() {
            self.in_flight += 1;
        }
        pushed.is_ok()
    }

    /// Submits the queue and waits for at least one completion.
    fn wait(&mut self) -> io::Result<()> {
        let Some(ring) = self.ring.as_mut() else { return Ok(()) };
        loop {
            match ring.0.submit_and_wait(1) {
                Ok(_) => return Ok(()),
                // Interrupted, or the kernel has no room for more: the completions so far are taken first.
                Err(error) if is_transient(&error) => {
                    if !ring.0.completion().is_empty() {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The completions so far: which place, and its bytes or a negative error number.
    fn completed(&mut self) -> Vec<(usize, i32)> {
        let Some(ring) = self.ring.as_mut() else { return Vec::new() };
        let completed: Vec<(usize, i32)> = ring
            .0
            .completion()
            .map(|entry| (usize::try_from(entry.user_data()).unwrap_or(usize::MAX), entry.result()))
            .collect();
        self.in_flight = self.in_flight.saturating_sub(completed.len());
        completed
    }

    /// Records the result of a read; true if its buffer is full.
    fn note(&mut self, place: usize, outcome: i32) -> io::Result<bool> {
        let (Some(done), Some(at)) = (self.done.get_mut(place), self.places.get(place)) else {
            return Err(io::Error::other("a completion of nothing that was asked for"));
        };
        match usize::try_from(outcome) {
            Ok(count) => {
                let read = *done + count;
                // Direct I/O continues only at a whole block; less than one more is the end of the file.
                let whole = if read < at.length { read - read % BLOCK_SIZE } else { read };
                let is_end = whole == *done && whole < at.length;
                *done = whole;
                if is_end {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(whole >= at.length)
                }
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(outcome.saturating_neg());
                if is_transient(&error) { Ok(false) } else { Err(error) }
            }
        }
    }

    /// The ring and the buffers; `None` if reads may still be under way.
    fn into_parts(mut self) -> Option<(Ring, Vec<AlignedBuffer>)> {
        if self.in_flight > 0 || self.is_lost {
            return None;
        }
        Some((self.ring.take()?, std::mem::take(&mut self.buffers)))
    }
}

impl Drop for Batch<'_> {
    /// Reads are under way here only if the kernel failed to wait, or this thread panicked.
    fn drop(&mut self) {
        while self.in_flight > 0 && !self.is_lost {
            self.is_lost = self.wait().is_err();
            self.completed();
        }
        if self.in_flight > 0 {
            std::mem::take(&mut self.buffers).leak();
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

#[cfg(test)]
mod tests;
