//! Bloom filters over the search keys of a run: a key in, "certainly not here" or "perhaps" out.
//!
//! They are blocked Bloom filters ([`crate::bloom`]), sized by the number of keys. With [`KEY_BITS`] bits a key about
//! one in a hundred absent keys passes. The filter lies in the run's directory, whose checksum covers it, and so in the
//! host's memory. A run of more than [`FILTER_KEYS_MAX`] keys has none: there are few such runs, and they have most
//! keys.
//!
//! Invariant: a key that was added passes. Stored bytes that are no filter pass every key.

#![deny(clippy::indexing_slicing)]

use crate::bloom::{BLOCK_BYTES, KEY_BITS, bits, block_of};
use crate::segment::KeyFilter;

/// The kind of these filters in a directory.
const BLOCKED: u32 = 1;
/// Most keys of a run that gets a filter: its filter takes 1.25 MiB.
pub const FILTER_KEYS_MAX: usize = 1 << 20;
const WORD_BYTES: usize = 4;

/// Hashes that are kept until the number of keys is known: 1 MiB. More go to a filter of the largest size, which is
/// shrunk at the end, so the filter of a run that is being written takes 2.25 MiB at most, whatever its length.
const HASHES_MAX: usize = 1 << 17;

/// Builds the filter of a run's keys.
#[derive(Debug, Default)]
pub(super) struct FilterBuilder {
    last: Option<u64>,
    key_count: usize,
    /// Hashes of the first keys.
    hashes: Vec<u64>,
    /// A filter for [`FILTER_KEYS_MAX`] keys, used beyond [`HASHES_MAX`] keys.
    largest: Vec<u8>,
}

impl FilterBuilder {
    /// Adds a key; repeating the key before it costs nothing.
    pub(super) fn add(&mut self, search_key: &[u8]) {
        let hash = hash(search_key);
        if self.last == Some(hash) || self.key_count > FILTER_KEYS_MAX {
            return;
        }
        self.last = Some(hash);
        self.key_count += 1;
        if self.key_count <= HASHES_MAX {
            self.hashes.push(hash);
        } else if self.key_count <= FILTER_KEYS_MAX {
            if self.largest.is_empty() {
                self.largest = filter_of(FILTER_KEYS_MAX, &std::mem::take(&mut self.hashes));
            }
            set_bits(&mut self.largest, hash);
        } else {
            self.largest = Vec::new();
        }
    }

    /// The filter; None for no keys or too many.
    pub(super) fn finish(self) -> Option<KeyFilter> {
        if self.key_count == 0 || self.key_count > FILTER_KEYS_MAX {
            return None;
        }
        let bytes = match self.key_count <= HASHES_MAX {
            true => filter_of(self.key_count, &self.hashes),
            false => shrunk(self.largest, self.key_count),
        };
        Some(KeyFilter { kind: BLOCKED, bytes })
    }
}

/// The filter of `hashes`, with room for `key_count` keys.
fn filter_of(key_count: usize, hashes: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; block_count(key_count) * BLOCK_BYTES];
    for hash in hashes {
        set_bits(&mut bytes, *hash);
    }
    bytes
}

/// Blocks of a filter of `key_count` keys.
fn block_count(key_count: usize) -> usize {
    (key_count * KEY_BITS).div_ceil(BLOCK_BYTES * 8)
}

fn set_bits(filter: &mut [u8], hash: u64) {
    let start = block_start(hash, filter.len());
    let block = start.and_then(|start| filter.get_mut(start..)?.get_mut(..BLOCK_BYTES));
    let words = block.into_iter().flat_map(|block| block.chunks_exact_mut(WORD_BYTES));
    for (word, bit) in words.zip(bits(hash)) {
        for (byte, bit) in word.iter_mut().zip(bit.to_le_bytes()) {
            *byte |= bit;
        }
    }
}

/// `filter` with its blocks halved, again and again, as long as there is room for `key_count` keys. A block is selected
/// by a fraction of their number, so the merged block of two neighbours is where the keys of both are looked up.
fn shrunk(mut filter: Vec<u8>, key_count: usize) -> Vec<u8> {
    while filter.len().is_multiple_of(2 * BLOCK_BYTES)
        && filter.len() / 2 >= block_count(key_count) * BLOCK_BYTES
    {
        let pairs = filter.chunks_exact(2 * BLOCK_BYTES).map(|pair| pair.split_at(BLOCK_BYTES));
        filter = pairs.flat_map(|(one, other)| one.iter().zip(other).map(|(a, b)| a | b)).collect();
    }
    filter
}

impl KeyFilter {
    /// Whether the run may have a key; no means certainly not.
    #[must_use]
    pub fn may_have(&self, search_key: &[u8]) -> bool {
        if self.kind != BLOCKED {
            return true;
        }
        let hash = hash(search_key);
        let block = block_start(hash, self.bytes.len())
            .and_then(|start| self.bytes.get(start..)?.get(..BLOCK_BYTES));
        let Some(block) = block else { return true };
        block.chunks_exact(WORD_BYTES).zip(bits(hash)).all(|(word, bit)| {
            word.iter().zip(bit.to_le_bytes()).all(|(byte, bit)| byte & bit == bit)
        })
    }
}

/// Where the block of `hash` begins in a filter of `byte_count` bytes.
fn block_start(hash: u64, byte_count: usize) -> Option<usize> {
    block_of(hash, byte_count / BLOCK_BYTES)?.checked_mul(BLOCK_BYTES)
}

/// A stored hash, used here and for the tablet of a row, and sent over links: it may never change under the same kind.
#[must_use]
pub fn hash(key: &[u8]) -> u64 {
    let mut hash = 0x51_7c_c1_b7_27_22_0a_95 ^ key.len() as u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        for (byte, from) in word.iter_mut().zip(chunk) {
            *byte = *from;
        }
        hash = mixed(hash ^ u64::from_le_bytes(word));
    }
    mixed(hash)
}

/// Spreads every bit over all.
pub(crate) fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ (value >> 32)
}

#[cfg(test)]
mod tests;
