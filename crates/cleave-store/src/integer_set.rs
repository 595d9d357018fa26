//! A set of integers for millions of look-ups: ascending keys in, answers for 64 values at a time out.
//!
//! 1. [`IntegerSet::of`] makes a bitmap of keys that lie close together, and of others a hash table behind a bitmap of
//!    hashes.
//! 2. `IntegerSet::among` answers for up to 64 numbers as a page stores them: one addition turns a stored number into
//!    its distance from the least key, so nothing is decoded.
//!
//! ```text
//! keys close together   bit (value − first) of a bitmap; a word of zeros at its end stands for all beyond
//! keys wide apart       bit hash(value) of a small bitmap: mostly no ─▶ out
//!                                                          mostly yes ─▶ open addressing in a table of keys
//! keys not known        a Bloom filter of them, with false positives
//! ```
//!
//! Invariants: distances are modulo 2^64, so one comparison checks both ends of the set, and a value below the least
//! key is far above the greatest one. The loop over 64 numbers has no branch that depends on them. A bitmap takes at
//! most [`BITS_PER_KEY_MAX`] bits a key and [`BITMAP_WORDS_MAX`] words.
//!
//! Source: the filter before the table is a Bloom filter with one hash function (Bloom, 1970).

#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::{BooleanBuffer, Buffer};

use crate::bloom::{BloomFilter, hash_integer};

/// Bits of a bitmap for each key, at most.
const BITS_PER_KEY_MAX: u64 = 512;
/// Words of a bitmap, at most: 8 MiB.
const BITMAP_WORDS_MAX: u64 = 1 << 20;
/// Bits of the filter before a table for each key, at least.
const FILTER_BITS_PER_KEY: usize = 16;
/// Up to so many numbers of a word of 64 are looked up one by one.
const FEW: u32 = 12;
/// Spreads keys over all bits: 2^64 divided by the golden ratio, odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A set of integers for look-ups.
#[derive(Debug, Clone)]
pub struct IntegerSet {
    /// The least key.
    first: i64,
    /// Distance from the least key to the greatest.
    span: u64,
    members: Members,
}

#[derive(Debug, Clone)]
enum Members {
    /// One bit for each integer from the first on, and a word of zeros.
    Bitmap(Vec<u64>),
    Hashed {
        /// A bit for each hash; their number is a power of two.
        filter: Vec<u64>,
        filter_shift: u32,
        /// Keys by hash, with linear probing; free slots hold the first key, which is in the set anyway. Their number
        /// is a power of two.
        slots: Vec<i64>,
        slot_shift: u32,
    },
    /// The values that pass; the first key is 0, so positions are the integers themselves.
    Likely(Arc<BloomFilter>),
}

/// Size of a set, known from its bounds and the number of its keys.
enum Plan {
    Bitmap { words: usize },
    Hashed { filter_words: usize, slots: usize },
}

impl Plan {
    fn of(span: u64, key_count: usize) -> Self {
        let words = span / 64 + 2;
        if words <= BITMAP_WORDS_MAX && span / BITS_PER_KEY_MAX <= key_count as u64 {
            return Self::Bitmap { words: usize::try_from(words).unwrap_or(2) };
        }
        let filter_bits = (key_count * FILTER_BITS_PER_KEY).next_power_of_two().max(64);
        let slots = (key_count + key_count / 2).next_power_of_two().max(4);
        Self::Hashed { filter_words: filter_bits / 64, slots }
    }
}

impl IntegerSet {
    /// The set of `keys`, which ascend.
    #[must_use]
    pub fn of(keys: &[i64]) -> Self {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Self { first: 0, span: 0, members: Members::Bitmap(vec![0]) };
        };
        let (first, span) = (*first, last.abs_diff(*first));
        let members = match Plan::of(span, keys.len()) {
            Plan::Bitmap { words } => Members::Bitmap(bitmap(keys, first, words)),
            Plan::Hashed { filter_words, slots } => hashed(keys, first, filter_words, slots),
        };
        Self { first, span, members }
    }

    /// The set of `keys` in any order, and the distinct keys, ascending.
    #[must_use]
    pub fn collect(keys: Vec<i64>) -> (Self, Vec<i64>) {
        if let Some(set) = Self::small_bitmap(&keys) {
            let keys = set.keys().unwrap_or_default();
            return (set, keys);
        }
        let keys = sorted(keys);
        (Self::of(&keys), keys)
    }

    /// The distinct `keys`, ascending. Takes at most twice their memory beside them.
    #[must_use]
    pub fn distinct(keys: Vec<i64>) -> Vec<i64> {
        let set = Self::small_bitmap(&keys);
        set.and_then(|set| set.keys()).unwrap_or_else(|| sorted(keys))
    }

    /// The set of `keys` as a bitmap that is no larger than they are: it sorts them at no cost.
    fn small_bitmap(keys: &[i64]) -> Option<Self> {
        let (first, last) = (*keys.iter().min()?, *keys.iter().max()?);
        let span = last.abs_diff(first);
        match Plan::of(span, keys.len()) {
            Plan::Bitmap { words } if words <= keys.len() => {
                let members = Members::Bitmap(bitmap(keys, first, words));
                Some(Self { first, span, members })
            }
            _ => None,
        }
    }

    /// The integers from `first` on whose bits are set: bit n of word w stands for `first` + 64 w + n.
    #[must_use]
    pub fn of_bits(first: i64, mut words: Vec<u64>) -> Self {
        let span = (words.len() as u64 * 64).saturating_sub(1).min(i64::MAX.abs_diff(first));
        words.push(0);
        Self { first, span, members: Members::Bitmap(words) }
    }

    /// The integers that pass `filter`, by [`hash_integer`]: its keys, and false positives.
    #[must_use]
    pub fn likely(filter: Arc<BloomFilter>) -> Self {
        Self { first: 0, span: u64::MAX, members: Members::Likely(filter) }
    }

    /// The keys of a bitmap, ascending; None if the set is no bitmap.
    #[must_use]
    pub fn keys(&self) -> Option<Vec<i64>> {
        let Members::Bitmap(words) = &self.members else { return None };
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        let mut keys = Vec::with_capacity(count);
        for (place, word) in (0_u64..).step_by(64).zip(words) {
            each_bit(*word, |bit| {
                keys.push(self.first.wrapping_add_unsigned(place + u64::from(bit)));
            });
        }
        Some(keys)
    }

    /// Bytes of a set of `key_count` keys with these bounds.
    #[must_use]
    pub fn size(first: i64, last: i64, key_count: usize) -> usize {
        match Plan::of(last.abs_diff(first), key_count) {
            Plan::Bitmap { words } => words * 8,
            Plan::Hashed { filter_words, slots } => (filter_words + slots) * 8,
        }
    }

    /// Whether `key` is in the set.
    #[must_use]
    pub fn contains(&self, key: i64) -> bool {
        self.holds(self.place(key))
    }

    /// For each of `values` whether its `integer` is in the set.
    pub fn contains_each<T: Copy>(
        &self,
        values: &[T],
        integer: impl Fn(T) -> i64,
    ) -> BooleanBuffer {
        let words = values.chunks(64).map(|values| {
            self.among(values, u64::MAX, |value| self.place(integer(value)))
                & low_bits(values.len())
        });
        BooleanBuffer::new(Buffer::from_vec(words.collect::<Vec<_>>()), 0, values.len())
    }

    /// Position of `key`: its distance from the first key.
    pub(crate) fn place(&self, key: i64) -> u64 {
        key.wrapping_sub(self.first).cast_unsigned()
    }

    /// Whether any key may lie from `low` to `high`.
    pub(crate) fn may_meet(&self, low: i64, high: i64) -> bool {
        if matches!(self.members, Members::Likely(_)) {
            return true;
        }
        let last = self.first.wrapping_add_unsigned(self.span);
        if low > last || high < self.first {
            return false;
        }
        let Members::Bitmap(words) = &self.members else { return true };
        let word = |key: i64| {
            let place = key.min(last).max(self.first).abs_diff(self.first);
            usize::try_from(place / 64).unwrap_or(usize::MAX)
        };
        // Checking the bits between the page's bounds costs far less than checking its values.
        let inside: Range<usize> = word(low)..word(high).saturating_add(1);
        words.get(inside).is_none_or(|words| words.iter().any(|word| *word != 0))
    }

    /// For each of up to 64 `numbers` with a bit in `kept`, whether the key at its `place` is in the set.
    #[inline]
    pub(crate) fn among<T: Copy>(&self, numbers: &[T], kept: u64, place: impl Fn(T) -> u64) -> u64 {
        if kept.count_ones() <= FEW {
            let mut word = 0;
            each_bit(kept, |bit| {
                let number = usize::try_from(bit).ok().and_then(|bit| numbers.get(bit));
                word |= u64::from(number.is_some_and(|number| self.holds(place(*number)))) << bit;
            });
            return word;
        }
        match &self.members {
            Members::Bitmap(words) => {
                let beyond = words.len().saturating_sub(1);
                let mut flags = [0_u8; 64];
                for (flag, number) in flags.iter_mut().zip(numbers) {
                    *flag = bit_of(words, place(*number), beyond);
                }
                word_of(&flags) & kept
            }
            Members::Likely(filter) => {
                let mut flags = [0_u8; 64];
                for (flag, number) in flags.iter_mut().zip(numbers) {
                    let key = place(*number).cast_signed();
                    *flag = u8::from(filter.may_have(hash_integer(key)));
                }
                word_of(&flags) & kept
            }
            Members::Hashed { filter, filter_shift, .. } => {
                let mut flags = [0_u8; 64];
                for (flag, number) in flags.iter_mut().zip(numbers) {
                    let place = place(*number);
                    let likely = bit_of(filter, hash(place) >> filter_shift, usize::MAX);
                    *flag = likely & u8::from(place <= self.span);
                }
                let mut word = word_of(&flags) & kept;
                each_bit(word, |bit| {
                    let number = usize::try_from(bit).ok().and_then(|bit| numbers.get(bit));
                    if !number.is_some_and(|number| self.holds(place(*number))) {
                        word &= !(1 << bit);
                    }
                });
                word
            }
        }
    }

    /// For each of the 64 keys from `place` on whether it is in the set.
    pub(crate) fn among_next(&self, place: u64) -> u64 {
        let Members::Bitmap(words) = &self.members else {
            let mut numbers = [0_u64; 64];
            for (number, at) in numbers.iter_mut().zip(0..) {
                *number = at;
            }
            return self.among(&numbers, u64::MAX, |number| place.wrapping_add(number));
        };
        let word = |at: u64| {
            let word = usize::try_from(at).ok().and_then(|at| words.get(at));
            word.copied().unwrap_or(0)
        };
        let before = 0_u64.wrapping_sub(place);
        match (before, place % 64) {
            // Some lie before the first key, where distances wrap around.
            (1..64, _) => word(0) << before,
            (_, 0) => word(place / 64),
            (_, shift) => word(place / 64) >> shift | word(place / 64 + 1) << (64 - shift),
        }
    }

    /// Whether the key at `place` is in the set.
    fn holds(&self, place: u64) -> bool {
        match &self.members {
            Members::Bitmap(words) => bit_of(words, place, usize::MAX) == 1,
            Members::Likely(filter) => filter.may_have(hash_integer(place.cast_signed())),
            Members::Hashed { slots, slot_shift, .. } => {
                let key = self.first.wrapping_add_unsigned(place);
                let start = usize::try_from(hash(place) >> slot_shift).unwrap_or(0);
                let (before, behind) =
                    slots.split_at_checked(start).unwrap_or((&[], slots.as_slice()));
                let found =
                    behind.iter().chain(before).find(|slot| **slot == key || **slot == self.first);
                found == Some(&key)
            }
        }
    }
}

/// The answers of [`IntegerSet::among`] for successive rows, as one bitmap.
#[derive(Debug)]
pub(crate) struct Kept {
    words: Vec<u64>,
    count: usize,
}

impl Kept {
    /// The rows that `kept` has set.
    pub(crate) fn of(kept: &BooleanBuffer) -> Self {
        Self { words: kept.bit_chunks().iter_padded().collect(), count: kept.len() }
    }

    /// The rows that `narrow` leaves; it is called with the first row of a word, and the word.
    pub(crate) fn narrowed(&self, mut narrow: impl FnMut(usize, u64) -> u64) -> BooleanBuffer {
        let words = self
            .words
            .iter()
            .enumerate()
            .map(|(place, kept)| if *kept == 0 { 0 } else { narrow(place * 64, *kept) & kept });
        // The last word may be padding.
        let words: Vec<u64> = words.take(self.count.div_ceil(64)).collect();
        BooleanBuffer::new(Buffer::from_vec(words), 0, self.count)
    }

    /// All rows, or none.
    pub(crate) fn if_so(&self, answer: bool) -> BooleanBuffer {
        self.narrowed(|_, kept| if answer { kept } else { 0 })
    }

    /// The rows of those runs for whose index `holds` is true; `ends` has the end of each run.
    pub(crate) fn runs(&self, ends: &[u32], holds: impl Fn(usize) -> bool) -> BooleanBuffer {
        let mut bits = BooleanBufferBuilder::new(self.count);
        for (run, end) in ends.iter().enumerate() {
            let end = usize::try_from(*end).unwrap_or(self.count).min(self.count);
            bits.append_n(end.saturating_sub(bits.len()), holds(run));
        }
        bits.append_n(self.count.saturating_sub(bits.len()), false);
        let runs = bits.finish();
        &runs & &self.if_so(true)
    }
}

/// The bits of 64 flags, each 0 or 1.
#[inline]
pub(crate) fn word_of(flags: &[u8; 64]) -> u64 {
    let mut word = 0;
    for (place, flags) in flags.as_chunks::<8>().0.iter().enumerate() {
        let byte = u64::from_le_bytes(*flags).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        word |= byte << (8 * place);
    }
    word
}

/// Bit `place` of `words`; that of word `beyond` if it lies beyond their end.
#[inline]
fn bit_of(words: &[u64], place: u64, beyond: usize) -> u8 {
    let at = usize::try_from(place / 64).unwrap_or(usize::MAX).min(beyond);
    let bit = words.get(at).copied().unwrap_or(0) >> (place % 64);
    u8::from(bit & 1 == 1)
}

#[inline]
fn hash(place: u64) -> u64 {
    place.wrapping_mul(SPREAD)
}

fn each_bit(mut word: u64, mut take: impl FnMut(u32)) {
    while word != 0 {
        take(word.trailing_zeros());
        word &= word - 1;
    }
}

fn low_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

fn set_bit(words: &mut [u64], place: u64) {
    if let Some(word) = usize::try_from(place / 64).ok().and_then(|at| words.get_mut(at)) {
        *word |= 1 << (place % 64);
    }
}

fn sorted(mut keys: Vec<i64>) -> Vec<i64> {
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn bitmap(keys: &[i64], first: i64, words: usize) -> Vec<u64> {
    let mut bits = vec![0; words];
    for key in keys {
        set_bit(&mut bits, key.wrapping_sub(first).cast_unsigned());
    }
    bits
}

fn hashed(keys: &[i64], first: i64, filter_words: usize, slot_count: usize) -> Members {
    let (mut filter, mut slots) = (vec![0; filter_words], vec![first; slot_count]);
    // Both lengths are powers of two above one, so shifts stay below 64.
    let filter_shift = u64::BITS - (filter_words * 64).trailing_zeros();
    let slot_shift = u64::BITS - slot_count.trailing_zeros();
    for key in keys {
        let hash = hash(key.wrapping_sub(first).cast_unsigned());
        set_bit(&mut filter, hash >> filter_shift);
        let start = usize::try_from(hash >> slot_shift).unwrap_or(0);
        let (before, behind) = slots.split_at_mut_checked(start).unwrap_or((&mut [], &mut []));
        let place = behind.iter_mut().chain(before).find(|slot| **slot == *key || **slot == first);
        if let Some(place) = place {
            *place = *key;
        }
    }
    Members::Hashed { filter, filter_shift, slots, slot_shift }
}

#[cfg(test)]
mod tests;
