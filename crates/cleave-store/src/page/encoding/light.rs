//! Light-weight encodings: a column in, the bytes of a chunk that is shorter than the plain one out.
//!
//! ```text
//! chunk       validity kind u8 │ 3 zero │ validity length u32 │ validity │ body
//! validity    0 none: no NULLs   1 bits   2 slots of NULLs   3 slots of values
//!             2 and 3: a count u32 and a stream of integers
//!
//! Integers    stream of integers
//! Scaled      digits u8 │ 7 zero │ stream of integers         value = integer / 10^digits
//! Strings     block of texts
//! Dictionary  entry count u32 │ 4 zero │ codes, a stream of integers │ entries: plain values, or a block of texts
//! ```
//!
//! 1. Integers are exact: [`integers::encode`] computes the size of each of its layouts.
//! 2. A dictionary is tried if a sample has repeated values; distinct values are counted only up to the break-even
//!    point.
//! 3. For text, the estimates of [`TextPlan`] decide whether to use a dictionary.
//!
//! Invariants: the choice depends on the values only, so equal rows make equal pages. Slots of NULLs hold the value
//! before them, which costs nothing in any layout. The result is shorter than the plain chunk.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Decimal128Type, Float64Type};

use super::{fixed_values, size};
use crate::page::columns::{Layout, ValueType};
use crate::page::header::Encoding;
use crate::page::integers;
use crate::page::strings::TextPlan;

/// Size of the sample that decides whether to try a dictionary.
const SAMPLE_COUNT: usize = 4096;
/// Most decimal digits of a scaled number: powers of ten that are exact.
pub(crate) const DIGITS_MAX: u8 = 15;
/// Part of the stored format, so no library's function computes them.
const POWERS_OF_TEN: [f64; DIGITS_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
/// Scaled numbers stay below this, where every integer is a double.
const SCALED_MAX: f64 = 9_007_199_254_740_992.0;

/// Encodes a column whose plain chunk takes `plain_length` bytes; None if no encoding is shorter.
pub(crate) fn encode(
    value_type: ValueType,
    array: &dyn Array,
    plain_length: usize,
) -> Option<(Encoding, Vec<u8>)> {
    let mut bytes = Vec::new();
    put_validity(array, &mut bytes);
    let encoding = match value_type.layout() {
        Layout::Bits => return None,
        Layout::Bytes => encode_texts(value_type, array, &mut bytes),
        Layout::Fixed(width) => encode_numbers(value_type, width, array, &mut bytes)?,
    };
    // A chunk that saves almost nothing is better read in place.
    (bytes.len() < plain_length / 20 * 19).then_some((encoding, bytes))
}

fn put_validity(array: &dyn Array, target: &mut Vec<u8>) {
    let mut validity = Vec::new();
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let kind = match nulls {
        None => 0,
        Some(nulls) => {
            let few_nulls = nulls.null_count() * 2 < nulls.len();
            let bits = super::packed(nulls.inner());
            let slots: Vec<i64> = (0_i64..)
                .zip(nulls.inner())
                .filter(|(_, valid)| *valid != few_nulls)
                .map(|(slot, _)| slot)
                .collect();
            if slots.len() < nulls.len() / 16 {
                validity.extend_from_slice(&u32::try_from(slots.len()).unwrap_or(0).to_le_bytes());
                integers::encode(&slots, &mut validity);
            }
            if validity.is_empty() || validity.len() >= bits.len() {
                validity.clear();
                validity.extend_from_slice(&bits);
                1
            } else if few_nulls {
                2
            } else {
                3
            }
        }
    };
    target.extend_from_slice(&[kind, 0, 0, 0]);
    target.extend_from_slice(&u32::try_from(validity.len()).unwrap_or(0).to_le_bytes());
    target.extend_from_slice(&validity);
}

fn encode_numbers(
    value_type: ValueType,
    width: usize,
    array: &dyn Array,
    target: &mut Vec<u8>,
) -> Option<Encoding> {
    let start = target.len();
    let values = fixed_values(array, width).ok()?;
    let values = values.as_slice();
    let mut encoding = None;
    if value_type == ValueType::Float64 {
        if let Some((digits, scaled)) = scaled(array.as_primitive::<Float64Type>().values(), array)
        {
            target.extend_from_slice(&[digits, 0, 0, 0, 0, 0, 0, 0]);
            integers::encode(&scaled, target);
            encoding = Some(Encoding::Scaled);
        }
    } else if value_type.is_integral()
        && let Some(wide) = as_integers(value_type, values, width, array)
    {
        integers::encode(&wide, target);
        encoding = Some(Encoding::Integers);
    }
    let found = target.len() - start;
    let best = if encoding.is_some() { found } else { values.len() };
    // Numbers that are short already gain too little from a dictionary.
    if best > array.len() * 2
        && let Some(dictionary) = Dictionary::of(array, best / (2 * width), |slot| {
            values.get(slot * width..(slot + 1) * width).unwrap_or_default()
        })
    {
        let mut body = dictionary.head();
        for slot in &dictionary.firsts {
            body.extend_from_slice(
                values.get(slot * width..(slot + 1) * width).unwrap_or_default(),
            );
        }
        if body.len() < best / 4 * 3 {
            target.truncate(start);
            target.extend_from_slice(&body);
            return Some(Encoding::Dictionary);
        }
    }
    encoding
}

fn encode_texts(value_type: ValueType, array: &dyn Array, target: &mut Vec<u8>) -> Encoding {
    let (offsets, values): (&[i32], &[u8]) = match value_type {
        ValueType::Utf8 => {
            let array = array.as_string::<i32>();
            (array.offsets(), array.values())
        }
        _ => {
            let array = array.as_binary::<i32>();
            (array.offsets(), array.values())
        }
    };
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let value = |slot: usize| -> &[u8] {
        if nulls.is_some_and(|nulls| nulls.is_null(slot)) {
            return &[];
        }
        let place = offsets.get(slot).zip(offsets.get(slot + 1));
        place.and_then(|(from, to)| values.get(size(*from)..size(*to))).unwrap_or_default()
    };
    let count = array.len();
    let bytes: usize = match (nulls, offsets.first().zip(offsets.last())) {
        (None, Some((first, last))) => size(*last - *first),
        _ => (0..count).map(|slot| value(slot).len()).sum(),
    };
    let dictionary = Dictionary::of(array, count / 2, value);
    if let Some(dictionary) = dictionary {
        let entry_bytes = dictionary.firsts.iter().map(|slot| value(*slot).len()).sum();
        let entry =
            |index: usize| dictionary.firsts.get(index).map_or(&[][..], |slot| value(*slot));
        let plan = TextPlan::of(dictionary.firsts.len(), entry_bytes, entry);
        let mut body = dictionary.head();
        let length_estimate = body.len() + plan.length_estimate;
        let pays = dictionary.firsts.len() < count / 16 || {
            // Without a dictionary: about as many bytes as the coding of the entries suggests, and lengths.
            let coded = bytes.saturating_mul(plan.length_estimate) / entry_bytes.max(1);
            length_estimate < coded.min(bytes) + count / 2
        };
        if pays {
            plan.encode(dictionary.firsts.iter().map(|slot| value(*slot)), entry_bytes, &mut body);
            target.extend_from_slice(&body);
            return Encoding::Dictionary;
        }
    }
    let plan = TextPlan::of(count, bytes, value);
    plan.encode((0..count).map(value), bytes, target);
    Encoding::Strings
}

/// The integers that are stored for values of up to 64 bits; None if a decimal is longer.
fn as_integers(
    value_type: ValueType,
    values: &[u8],
    width: usize,
    array: &dyn Array,
) -> Option<Vec<i64>> {
    let mut wide: Vec<i64> = match width {
        2 => values.as_chunks().0.iter().map(|b| i64::from(i16::from_le_bytes(*b))).collect(),
        4 => values.as_chunks().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect(),
        8 => values.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
        16 if matches!(value_type, ValueType::Decimal128 { .. }) => {
            let decimals = array.as_primitive::<Decimal128Type>();
            let mut fits = true;
            let wide = (0..decimals.len())
                .map(|slot| {
                    i64::try_from(decimals.value(slot)).unwrap_or_else(|_| {
                        fits &= decimals.is_null(slot);
                        0
                    })
                })
                .collect();
            if !fits {
                return None;
            }
            wide
        }
        _ => return None,
    };
    fill_nulls(array, &mut wide);
    Some(wide)
}

/// Fills each slot of a NULL with the value before it, and leading NULLs with the first value.
fn fill_nulls(array: &dyn Array, values: &mut [i64]) {
    let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return;
    };
    let first = nulls.valid_indices().next().and_then(|slot| values.get(slot));
    let mut last = first.copied().unwrap_or(0);
    for (value, valid) in values.iter_mut().zip(nulls) {
        if valid {
            last = *value;
        } else {
            *value = last;
        }
    }
}

/// Doubles as integers over a power of ten, if that reproduces every bit of each.
fn scaled(values: &[f64], array: &dyn Array) -> Option<(u8, Vec<i64>)> {
    let exact = |value: f64, digits: u8| -> Option<i64> {
        let rounded = (value * power_of_ten(digits)).round();
        // Bits, not values: a zero may have a sign.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a whole number below 2^53, or saturated"
        )]
        let integer = rounded as i64;
        let same = unscaled(integer, digits).to_bits() == value.to_bits();
        (rounded.abs() < SCALED_MAX && same).then_some(integer)
    };
    let used = || values.iter().enumerate().filter(|(slot, _)| array.is_valid(*slot));
    let mut digits = 0;
    for (_, value) in used() {
        while exact(*value, digits).is_none() {
            digits += 1;
            if digits > DIGITS_MAX {
                return None;
            }
        }
    }
    let mut integers = vec![0; values.len()];
    for (slot, value) in used() {
        if let Some(place) = integers.get_mut(slot) {
            *place = exact(*value, digits)?;
        }
    }
    fill_nulls(array, &mut integers);
    Some((digits, integers))
}

fn power_of_ten(digits: u8) -> f64 {
    // Readers refuse more digits.
    POWERS_OF_TEN.get(usize::from(digits)).copied().unwrap_or(f64::NAN)
}

/// The double that `integer` and its decimal digits stand for.
pub(crate) fn unscaled(integer: i64, digits: u8) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "writers take integers below 2^53")]
    let whole = integer as f64;
    whole / power_of_ten(digits)
}

/// The distinct values of a column, in the order of their first slots.
struct Dictionary {
    /// The first slot of each entry.
    firsts: Vec<usize>,
    codes: Vec<i64>,
}

impl Dictionary {
    /// None if there are more than `entry_count_max` distinct values, or a sample predicts so.
    fn of<'a>(
        array: &dyn Array,
        entry_count_max: usize,
        value: impl Fn(usize) -> &'a [u8],
    ) -> Option<Self> {
        let count = array.len();
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let is_valid = |slot: usize| nulls.is_none_or(|nulls| nulls.is_valid(slot));
        let step = count / SAMPLE_COUNT;
        if step > 1 {
            let mut sample = Interner::with_room_for(SAMPLE_COUNT);
            let mut sampled = 0;
            for slot in (0..count).step_by(step).filter(|slot| is_valid(*slot)) {
                sample.code_of(slot, &value);
                sampled += 1;
            }
            if sample.firsts.len() * 16 > sampled * 15 {
                return None;
            }
        }
        let mut entries = Interner::with_room_for(entry_count_max);
        let mut codes = vec![0; count];
        for (slot, code) in codes.iter_mut().enumerate() {
            if is_valid(slot) {
                *code = i64::try_from(entries.code_of(slot, &value)).unwrap_or(0);
                if entries.firsts.len() > entry_count_max {
                    return None;
                }
            }
        }
        fill_nulls(array, &mut codes);
        Some(Self { firsts: entries.firsts, codes })
    }

    /// Entry count and codes.
    fn head(&self) -> Vec<u8> {
        let count = u32::try_from(self.firsts.len()).unwrap_or(u32::MAX);
        let mut body = u64::from(count).to_le_bytes().to_vec();
        integers::encode(&self.codes, &mut body);
        body
    }
}

/// Assigns a code to each distinct value.
struct Interner {
    /// A code plus one, or 0 for free; by hash, with linear probing.
    table: Vec<u32>,
    firsts: Vec<usize>,
}

impl Interner {
    fn with_room_for(count: usize) -> Self {
        let table = vec![0; (2 * count.max(8)).next_power_of_two() * 2];
        Self { table, firsts: Vec::new() }
    }

    fn code_of<'a>(&mut self, slot: usize, value: &impl Fn(usize) -> &'a [u8]) -> usize {
        let bytes = value(slot);
        let mask = self.table.len() - 1;
        let mut place = usize::try_from(hash(bytes) >> 20).unwrap_or(0) & mask;
        loop {
            let Some(entry) = self.table.get_mut(place) else {
                return 0;
            };
            let code = usize::try_from(*entry).unwrap_or(0);
            if code == 0 {
                self.firsts.push(slot);
                *entry = u32::try_from(self.firsts.len()).unwrap_or(u32::MAX);
                return self.firsts.len() - 1;
            }
            if self.firsts.get(code - 1).is_some_and(|first| value(*first) == bytes) {
                return code - 1;
            }
            place = (place + 1) & mask;
        }
    }
}

/// A quick hash; its user compares the values too.
fn hash(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut mix = |word: u64| hash = (hash.rotate_left(23) ^ word).wrapping_mul(ODD);
    for word in words {
        mix(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (place, byte) in last.iter_mut().zip(rest) {
        *place = *byte;
    }
    mix(u64::from_le_bytes(last));
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests;
