//! Memory that direct I/O accepts: a length in, zeroed bytes at a block-aligned address out.
//!
//! Alignment comes from allocating one block more than asked and starting at the first aligned byte, so no
//! `unsafe` is needed. Invariant: the first byte's address is a multiple of [`BLOCK_SIZE`] for the life of the
//! buffer, and stays so when it becomes [`Bytes`], since its allocation never moves or grows.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use crate::BLOCK_SIZE;

/// Bytes whose first one lies at a multiple of [`BLOCK_SIZE`].
pub struct AlignedBuffer {
    allocation: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// A buffer of `length` zero bytes.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        if length == 0 {
            return Self { allocation: Vec::new(), start: 0, length: 0 };
        }
        let allocation = vec![0; length.saturating_add(BLOCK_SIZE)];
        let start = allocation.as_ptr().align_offset(BLOCK_SIZE);
        // `align_offset` may refuse to answer only in const evaluation; the sum is then caught by slicing.
        Self { allocation, start, length }
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
