//! Bit packing: numbers in, each in as few bits as the largest needs out, and back.
//!
//! ```text
//! block: 256 numbers of `width` bits in 32 × width bytes
//!   width ≤ 32:  8 lanes of u32, number 8r + l is the r-th of lane l
//!   width > 32:  4 lanes of u64, number 4r + l is the r-th of lane l
//!   word k of all lanes lies together, so that one shift serves a whole row of lanes
//! ```
//!
//! 1. [`pack`] writes whole blocks, the last one padded with zeros.
//! 2. [`Packed::new`] checks that the number of bytes fits count and width.
//! 3. [`Packed::get`] reads one number, [`Packed::block_narrow`] and [`Packed::block`] unpack 256.
//!
//! Invariants: after [`Packed::new`] no read can be out of bounds; a number never has more bits than the width. The
//! loops over lanes have no branches and the same shift for each lane, which compilers turn into vector instructions.
//!
//! Source: the layout is the idea of Afroozeh and Boncz, "The FastLanes Compression Layout", with few lanes.

#![deny(clippy::indexing_slicing)]

mod unpack;

use bytes::Bytes;

use crate::error::Corruption;

/// Numbers of one block.
pub(crate) const BLOCK: usize = 256;
/// Bytes that one row of lanes takes.
const ROW_BYTES: usize = 32;

/// Packed numbers whose length is checked.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    bytes: Bytes,
    width: u32,
    count: usize,
}

/// Bits that `value` needs.
pub(crate) fn width_of(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// Bytes of `count` packed numbers.
pub(crate) fn packed_length(count: usize, width: u32) -> usize {
    count.div_ceil(BLOCK) * ROW_BYTES * usize::try_from(width).unwrap_or(64)
}

/// Packs numbers of at most `width` bits and appends them to `target`.
pub(crate) fn pack(numbers: impl Iterator<Item = u64>, width: u32, target: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let mut block = [0_u64; BLOCK];
    let mut filled = 0;
    for number in numbers {
        if let Some(place) = block.get_mut(filled) {
            *place = number;
        }
        filled += 1;
        if filled == BLOCK {
            pack_block(&block, width, target);
            filled = 0;
        }
    }
    if filled > 0 {
        for place in block.iter_mut().skip(filled) {
            *place = 0;
        }
        pack_block(&block, width, target);
    }
}

fn pack_block(block: &[u64; BLOCK], width: u32, target: &mut Vec<u8>) {
    if width <= 32 {
        pack_lanes::<8>(block, width, 32, target)
    } else {
        pack_lanes::<4>(block, width, 64, target)
    }
}

/// Packs into `LANES` lanes of words of `word_bits` bits.
fn pack_lanes<const LANES: usize>(
    block: &[u64; BLOCK],
    width: u32,
    word_bits: u32,
    target: &mut Vec<u8>,
) {
    let mut words = [0_u64; LANES];
    let mut used = 0;
    for row in block.as_chunks::<LANES>().0 {
        for (word, number) in words.iter_mut().zip(row) {
            *word |= number << used;
        }
        used += width;
        if used >= word_bits {
            put_words(&words, word_bits, target);
            used -= word_bits;
            let written = width - used;
            for (word, number) in words.iter_mut().zip(row) {
                *word = number.checked_shr(written).unwrap_or(0);
            }
        }
    }
}

fn put_words(words: &[u64], word_bits: u32, target: &mut Vec<u8>) {
    let bytes = usize::try_from(word_bits / 8).unwrap_or(8);
    for word in words {
        target.extend_from_slice(word.to_le_bytes().get(..bytes).unwrap_or_default());
    }
}

impl Packed {
    /// `count` numbers of `width` bits at the start of `bytes`; also returns the rest of the bytes.
    pub(crate) fn new(
        bytes: &Bytes,
        count: usize,
        width: u32,
    ) -> Result<(Self, Bytes), Corruption> {
        let length = packed_length(count, width);
        if width > u64::BITS || length > bytes.len() {
            let (expected, found) = (length as u64, bytes.len() as u64);
            return Err(Corruption::Truncated { expected, found });
        }
        let packed = Self { bytes: bytes.slice(..length), width, count };
        Ok((packed, bytes.slice(length..)))
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether every number fits 32 bits.
    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    pub(crate) fn is_narrow(&self) -> bool {
        self.width <= 32
    }

    /// The number at `index`; 0 beyond the last.
    pub(crate) fn get(&self, index: usize) -> u64 {
        let rows = self.rows(index / BLOCK);
        let within = index % BLOCK;
        let (lanes, word_bits) = if self.is_narrow() { (8, 32) } else { (4, 64) };
        let (row, lane) = (within / lanes, within % lanes);
        let bit = u32::try_from(row).unwrap_or(0) * self.width;
        let word = |at: u32| -> u64 {
            let row = rows.get(usize::try_from(at).unwrap_or(usize::MAX));
            if word_bits == 32 {
                row.and_then(|row| row.as_chunks::<4>().0.get(lane))
                    .map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
            } else {
                row.and_then(|row| row.as_chunks::<8>().0.get(lane))
                    .map_or(0, |bytes| u64::from_le_bytes(*bytes))
            }
        };
        let (at, shift) = (bit / word_bits, bit % word_bits);
        let mut number = word(at) >> shift;
        if shift + self.width > word_bits {
            number |= word(at + 1) << (word_bits - shift);
        }
        number & mask(self.width)
    }

    /// Unpacks a block of numbers of at most 32 bits; zeros for wider ones.
    pub(crate) fn block_narrow(&self, block: usize, target: &mut [u32; BLOCK]) {
        unpack::unpack(self.rows(block), self.width, target);
    }

    /// Unpacks a block.
    pub(crate) fn block(&self, block: usize, target: &mut [u64; BLOCK]) {
        if self.is_narrow() {
            let mut narrow = [0; BLOCK];
            self.block_narrow(block, &mut narrow);
            for (target, number) in target.iter_mut().zip(narrow) {
                *target = u64::from(number);
            }
            return;
        }
        let rows = self.rows(block);
        let mask = mask(self.width);
        let mut bit = 0;
        let none = [0; ROW_BYTES];
        for target in target.as_chunks_mut::<4>().0 {
            let (at, shift) = (bit / 64, bit % 64);
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let low = rows.get(at).unwrap_or(&none).as_chunks::<8>().0;
            if shift + self.width > 64 {
                let high = rows.get(at + 1).unwrap_or(&none).as_chunks::<8>().0;
                for ((target, low), high) in target.iter_mut().zip(low).zip(high) {
                    let both = u64::from_le_bytes(*low) >> shift
                        | u64::from_le_bytes(*high) << (64 - shift);
                    *target = both & mask;
                }
            } else {
                for (target, low) in target.iter_mut().zip(low) {
                    *target = u64::from_le_bytes(*low) >> shift & mask;
                }
            }
            bit += self.width;
        }
    }

    /// The rows of lanes of a block; empty where there are none.
    fn rows(&self, block: usize) -> &[[u8; ROW_BYTES]] {
        let width = usize::try_from(self.width).unwrap_or(0);
        let from = block.saturating_mul(width);
        let rows = self.bytes.as_chunks::<ROW_BYTES>().0;
        rows.get(from..from.saturating_add(width)).unwrap_or_default()
    }
}

fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - width).unwrap_or(0)
}

#[cfg(test)]
mod tests;
