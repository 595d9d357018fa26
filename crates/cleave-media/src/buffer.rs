//! Memory that direct I/O accepts: a length in, zeroed bytes at a block-aligned address out.
//!
//! Alignment comes from allocating one block more than requested and starting at the first aligned byte, so no `unsafe`
//! is needed. Read buffers may come from [`SpareBuffers`], where dropped ones are kept for the next read: fresh memory
//! from the system costs a fault and a zeroed page each time, more than the read itself.
//!
//! Invariant: the first byte's address is a multiple of [`BLOCK_SIZE`] for the life of the
//! buffer, and stays so when it becomes [`Bytes`], since its allocation never moves or grows.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::BLOCK_SIZE;

/// Bytes whose first one lies at a multiple of [`BLOCK_SIZE`].
pub struct AlignedBuffer {
    allocation: Vec<u8>,
    start: usize,
    length: usize,
    /// Destination of the allocation when the buffer is dropped.
    home: Option<Arc<SpareBuffers>>,
}

/// Allocations of dropped buffers, by size, for reads of about the same size. At most [`SPARE_BYTES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers(Mutex<Spares>);

#[derive(Debug, Default)]
struct Spares {
    by_size: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

/// Most bytes of spare buffers: about what a few scans read at once.
const SPARE_BYTES_MAX: usize = 8 << 20;

impl SpareBuffers {
    /// A buffer of `length` bytes to be read into. It holds the bytes of an earlier read: a caller that fills only a
    /// part of it must not pass it on.
    pub(crate) fn take(self: &Arc<Self>, length: usize) -> AlignedBuffer {
        let size = size_class(length);
        let spare = {
            let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let spare = spares.by_size.get_mut(&size).and_then(Vec::pop);
            spares.bytes -= spare.as_ref().map_or(0, Vec::len);
            spare
        };
        let allocation = spare.unwrap_or_else(|| vec![0; size.saturating_add(BLOCK_SIZE)]);
        let start = allocation.as_ptr().align_offset(BLOCK_SIZE);
        AlignedBuffer { allocation, start, length, home: Some(Arc::clone(self)) }
    }

    fn keep(&self, allocation: Vec<u8>) {
        let size = allocation.len().saturating_sub(BLOCK_SIZE);
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.bytes.saturating_add(allocation.len()) > SPARE_BYTES_MAX {
            // Of sizes that are most likely not in use any more.
            *spares = Spares::default();
        }
        if allocation.len() <= SPARE_BYTES_MAX {
            spares.bytes += allocation.len();
            spares.by_size.entry(size).or_default().push(allocation);
        }
    }
}

/// `length` and at most an eighth more, so that reads of about the same size share buffers.
fn size_class(length: usize) -> usize {
    let step = (length.next_power_of_two() / 16).max(BLOCK_SIZE);
    length.checked_next_multiple_of(step).unwrap_or(length)
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.keep(std::mem::take(&mut self.allocation));
        }
    }
}

impl AlignedBuffer {
    /// A buffer of `length` zero bytes.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        if length == 0 {
            return Self { allocation: Vec::new(), start: 0, length: 0, home: None };
        }
        let allocation = vec![0; length.saturating_add(BLOCK_SIZE)];
        let start = allocation.as_ptr().align_offset(BLOCK_SIZE);
        // `align_offset` may refuse to answer only in const evaluation; the sum is then caught by slicing.
        Self { allocation, start, length, home: None }
    }

    /// A buffer that holds a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Bytes in the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// True where the buffer holds no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Shares the buffer without copying it.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.allocation[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.allocation[self.start..self.start + self.length]
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for AlignedBuffer {
    /// Copies the bytes; the copy is aligned on its own.
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl PartialEq for AlignedBuffer {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for AlignedBuffer {}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AlignedBuffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests;
