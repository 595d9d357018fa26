//! Blocked Bloom filters: hashes of keys in, "certainly not here" or "perhaps" out.
//!
//! ```text
//!   hash of a key:  high half ─▶ one block of 32 bytes     low half ─▶ one bit in each of its eight words
//! ```
//!
//! A look-up touches one block, hence one cache line. The high half selects the block as a fraction of their number, so
//! a filter whose number of blocks is a power of two halves by merging neighbouring blocks. A filter is therefore
//! filled at its largest size, whatever the number of its keys turns out to be, and then [shrunk](BloomFilter::shrunk).
//! The share of set bits tells how many different keys it has.
//!
//! Invariants: a key that was added passes, in each size. The hashes of keys are defined here and are the same on every
//! machine and in every process: filters are sent over links and stored in the directories of index runs
//! ([`index::filter`](crate::index::filter)).
//!
//! Source: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007).

#![deny(clippy::indexing_slicing)]

pub use crate::index::filter::hash as hash_bytes;
use crate::index::filter::mixed;

/// Most bytes of a filter. At ten bits a key it has 419,430 keys.
pub const BLOOM_BYTES_MAX: usize = 512 << 10;
/// Bits of a filter for each key, at least, unless the filter would be too large.
pub(crate) const KEY_BITS: usize = 10;
/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = WORDS * 4;
/// Words of a block.
const WORDS: usize = 8;
const BLOCK_BITS: usize = BLOCK_BYTES * 8;
/// Share of the bits that are set where there are [`KEY_BITS`] of them for each key.
const FULL: f64 = 0.556;
/// Keeps a hash from being equal to its integer.
const OFFSET: u64 = 0x51_7c_c1_b7_27_22_0a_95;

/// Odd multipliers, one a word, that spread the low half of a hash differently.
const SPREAD: [u32; WORDS] = [
    0x9e37_79b1,
    0x85eb_ca6b,
    0xc2b2_ae35,
    0x27d4_eb2f,
    0x1656_67b1,
    0xd3a2_646d,
    0xfd70_46c5,
    0xb55a_4f09,
];

/// A filter; see the [module](self).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BloomFilter {
    blocks: Vec<[u32; WORDS]>,
}

impl BloomFilter {
    /// A filter without keys, of the largest size.
    #[must_use]
    pub fn largest() -> Self {
        Self { blocks: vec![[0; WORDS]; BLOOM_BYTES_MAX / BLOCK_BYTES] }
    }

    /// The filter of these keys, with [`KEY_BITS`] bits for each as far as it may.
    #[must_use]
    pub fn of(hashes: &[u64]) -> Self {
        let wanted = (hashes.len() * KEY_BITS).div_ceil(BLOCK_BITS).next_power_of_two();
        let block_count = wanted.min(BLOOM_BYTES_MAX / BLOCK_BYTES);
        let mut filter = Self { blocks: vec![[0; WORDS]; block_count] };
        for hash in hashes {
            filter.add(*hash);
        }
        filter
    }

    /// Adds a key.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        let place = block_of(hash, self.blocks.len());
        let Some(block) = place.and_then(|place| self.blocks.get_mut(place)) else { return };
        for (word, bit) in block.iter_mut().zip(bits(hash)) {
            *word |= bit;
        }
    }

    /// Whether a key may have been added; no means certainly not.
    #[inline]
    #[must_use]
    pub fn may_have(&self, hash: u64) -> bool {
        let place = block_of(hash, self.blocks.len());
        let Some(block) = place.and_then(|place| self.blocks.get(place)) else { return true };
        let missing =
            block.iter().zip(bits(hash)).fold(0, |missing, (word, bit)| missing | (bit & !word));
        missing == 0
    }

    /// The same filter with as few bytes as leave [`KEY_BITS`] bits for each key, at most `bytes_max`, and a block at
    /// least.
    #[must_use]
    pub fn shrunk(mut self, bytes_max: usize) -> Self {
        while self.blocks.len() > 1 && self.blocks.len().is_power_of_two() {
            let halved = 1.0 - (1.0 - self.fill()).powi(2);
            if halved > FULL && self.bytes() <= bytes_max {
                break;
            }
            let pairs = self.blocks.as_chunks::<2>().0.iter();
            self.blocks = pairs.map(|[one, other]| together(one, other)).collect();
        }
        self
    }

    /// About how many different keys were added; infinitely many if the filter is too full to tell.
    #[must_use]
    pub fn key_count(&self) -> f64 {
        (1.0 - self.fill()).ln() / unset_by_a_key().ln() * self.blocks.len() as f64
    }

    /// The share of other keys that pass: the false positive rate.
    #[must_use]
    pub fn false_share(&self) -> f64 {
        let shares = self.blocks.iter().map(|block| {
            let words = block.iter().map(|word| f64::from(word.count_ones()) / 32.0);
            words.product::<f64>()
        });
        shares.sum::<f64>() / self.blocks.len().max(1) as f64
    }

    /// The false positive rate of a filter of `key_count` keys at its proper size.
    #[must_use]
    pub fn expected_false_share(key_count: f64) -> f64 {
        let blocks_max = (BLOOM_BYTES_MAX / BLOCK_BYTES) as f64;
        let keys_a_block = (key_count / blocks_max).max(BLOCK_BITS as f64 / KEY_BITS as f64);
        (1.0 - unset_by_a_key().powf(keys_a_block)).powf(WORDS as f64)
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// The filter as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.blocks.iter().flatten().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The filter in `bytes`; None if they are too many, or not whole blocks.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (blocks, left) = words.as_chunks::<WORDS>();
        let is_whole = rest.is_empty() && left.is_empty();
        let is_sound = is_whole && blocks.len().is_power_of_two() && bytes.len() <= BLOOM_BYTES_MAX;
        is_sound.then(|| Self { blocks: blocks.to_vec() })
    }

    /// The share of its bits that are set.
    fn fill(&self) -> f64 {
        let ones: u64 = self.blocks.iter().flatten().map(|word| u64::from(word.count_ones())).sum();
        ones as f64 / (self.blocks.len() * BLOCK_BITS).max(1) as f64
    }
}

/// The share of the bits of a block that one key leaves unset.
fn unset_by_a_key() -> f64 {
    31.0 / 32.0
}

fn together(one: &[u32; WORDS], other: &[u32; WORDS]) -> [u32; WORDS] {
    let mut words = *one;
    for (word, other) in words.iter_mut().zip(other) {
        *word |= other;
    }
    words
}

/// The block of a hash among so many: its high half as a fraction of them, without a division.
#[inline]
pub(crate) fn block_of(hash: u64, block_count: usize) -> Option<usize> {
    usize::try_from(((hash >> 32) * block_count as u64) >> 32).ok()
}

/// One bit for each word of the block.
#[inline]
pub(crate) fn bits(hash: u64) -> [u32; WORDS] {
    let low = u32::try_from(hash & u64::from(u32::MAX)).unwrap_or_default();
    SPREAD.map(|spread| 1 << (low.wrapping_mul(spread) >> 27))
}

/// The hash of an integer, of whatever width.
#[inline]
#[must_use]
pub fn hash_integer(value: i64) -> u64 {
    mixed(value.cast_unsigned() ^ OFFSET)
}

/// The hash of a key of several parts: that of its first parts, and that of the next.
#[inline]
#[must_use]
pub fn hash_both(first: u64, next: u64) -> u64 {
    mixed(first.rotate_left(23) ^ next)
}

#[cfg(test)]
mod tests;
