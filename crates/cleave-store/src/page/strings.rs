//! A block of texts: values of any length in, offsets and compressed bytes out, and back, whole, in part or one.
//!
//! ```text
//! head, 16 bytes   coding u8 │ symbol count u8 │ 2 zero │ bytes before coding u32 │ bytes after u32 │ zero u32
//! 0 raw    head │ count + 1 offsets, a stream of integers │ bytes
//! 1 fsst   head │ length of each symbol u8 │ symbols u64 │ offsets, a stream of integers │ codes
//! ```
//!
//! A code below the symbol count stands for that symbol, 255 for the byte that follows it (FSST).
//!
//! 1. [`TextPlan::of`] trains symbols on a sample and estimates the size of the values with them.
//! 2. [`TextPlan::encode`] writes the block.
//! 3. [`Strings::parse`] checks head, symbols and lengths; [`Strings::gather`] returns some values, [`Strings::decode`]
//!    a range. Both check only the offsets that they use, so reading one value does not pass over all.
//!
//! Invariants: every value is coded by itself, so it is read without its neighbours. Training and coding see trusted
//! input only and are done by the `fsst-rs` crate; decoding is done here, and any bytes decode to some bytes or an
//! error. The caller checks whether the bytes are valid text.
//!
//! Source: Boncz, Neumann and Leis, "FSST: Fast Random Access String Compression".

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use bytes::Bytes;
use fsst::Compressor;

use crate::error::Corruption;
use crate::page::encoding::size_of;
use crate::page::integers::{self, Integers};

/// Bytes of the head.
const HEAD: usize = 16;
/// The code before a literal byte.
const ESCAPE: u8 = 255;
/// Size of the sample for training symbols and estimating their savings.
const SAMPLE_BYTES: usize = 1 << 15;
/// Size of each of the two samples that tell whether training is worth its time.
const PROBE_BYTES: usize = 1 << 11;
/// Values of which symbols of a small sample save less than this share, in hundredths, are not trained for. Random
/// letters, which compress to three quarters, let them save a sixth.
const PROBE_SAVES: usize = 20;
/// Below this many bytes symbols do not pay for their table.
const FSST_BYTES_MIN: usize = 2048;
/// Most bytes that a symbol stands for.
const SYMBOL_BYTES: usize = 8;
/// Codes whose start positions are known at a time: few enough to stay in the L1 cache.
const WINDOW: usize = 4096;
/// Room for eight symbols.
const EIGHT_SYMBOLS: usize = 64;
/// Up to so many values, symbols are looked up in their stored form.
const FEW: usize = 64;

/// The chosen coding of a block.
pub(crate) struct TextPlan {
    /// None: no symbols.
    compressor: Option<Compressor>,
    /// Estimated bytes of the block.
    pub(crate) length_estimate: usize,
}

/// A checked block.
#[derive(Debug, Clone)]
pub(crate) struct Strings {
    symbols: Option<Symbols>,
    /// Bytes of all values, decoded.
    decoded_length: usize,
    offsets: Integers,
    data: Bytes,
}

/// Bytes and length of the symbols in their stored form, by code; codes without a symbol have none.
#[derive(Debug, Clone)]
struct Symbols {
    table: Bytes,
    count: usize,
}

/// Eight bytes, and how many of them are valid.
type Symbol = ([u8; SYMBOL_BYTES], u8);

impl TextPlan {
    /// Chooses the coding of `count` values of `bytes` in all. `value` gives the bytes of one.
    pub(crate) fn of<'a>(count: usize, bytes: usize, value: impl Fn(usize) -> &'a [u8]) -> Self {
        // About a byte for the length of each value.
        let raw = bytes + count + HEAD;
        if bytes < FSST_BYTES_MIN {
            return Self { compressor: None, length_estimate: raw };
        }
        // Values from all over the block; every one if there are few.
        let mean = (bytes / count.max(1)).max(1);
        let step = (count * mean / SAMPLE_BYTES).max(1);
        let sample: Vec<&[u8]> = (0..count)
            .step_by(step)
            .map(&value)
            .filter(|value| !value.is_empty())
            .scan(0, |total, value| {
                let before: usize = *total;
                *total += value.len();
                (before < 2 * SAMPLE_BYTES).then_some(value.get(..SAMPLE_BYTES).unwrap_or(value))
            })
            .collect();
        if !is_worth_training(&sample) {
            return Self { compressor: None, length_estimate: raw };
        }
        let compressor = Compressor::train(&sample);
        let plain: usize = sample.iter().map(|value| value.len()).sum();
        let (coded, _) = coded(&compressor, &sample);
        let table = compressor.n_symbols() * 9;
        let coded = bytes.saturating_mul(coded.len()) / plain.max(1) + count + HEAD + table;
        if coded < raw / 10 * 7 {
            Self { compressor: Some(compressor), length_estimate: coded }
        } else {
            Self { compressor: None, length_estimate: raw }
        }
    }

    /// Appends the block to `target`.
    pub(crate) fn encode<'a>(
        &self,
        values: impl Iterator<Item = &'a [u8]>,
        bytes: usize,
        target: &mut Vec<u8>,
    ) {
        let (data, ends) = match &self.compressor {
            Some(compressor) => coded(compressor, &values.collect::<Vec<_>>()),
            None => {
                let (mut data, mut ends) = (Vec::with_capacity(bytes), Vec::new());
                for value in values {
                    data.extend_from_slice(value);
                    ends.push(data.len() as u64);
                }
                (data, ends)
            }
        };
        let ends = ends.into_iter().map(|end| i64::try_from(end).unwrap_or(i64::MAX));
        let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
        let symbols = self
            .compressor
            .as_ref()
            .map(|compressor| (compressor.symbol_table(), compressor.symbol_lengths()));
        let (table, lengths) = symbols.unwrap_or_default();
        let count = u8::try_from(table.len()).unwrap_or(ESCAPE);
        target.extend_from_slice(&[u8::from(self.compressor.is_some()), count, 0, 0]);
        for number in [bytes, data.len(), 0] {
            // A page's in-line values are far below 4 GiB.
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            target.extend_from_slice(&number.to_le_bytes());
        }
        target.extend_from_slice(lengths);
        for symbol in table {
            target.extend_from_slice(&symbol.to_u64().to_le_bytes());
        }
        integers::encode(&offsets, target);
        target.extend_from_slice(&data);
    }
}

impl Strings {
    /// Checks the block of `count` values that takes all of `bytes`.
    pub(crate) fn parse(bytes: &Bytes, count: usize) -> Result<Self, Corruption> {
        let truncated = |expected: usize| Corruption::Truncated {
            expected: expected as u64,
            found: bytes.len() as u64,
        };
        let head = bytes.first_chunk::<HEAD>().ok_or_else(|| truncated(HEAD))?;
        let [coding, symbol_count, zero_a, zero_b, d0, d1, d2, d3, l0, l1, l2, l3, zeros @ ..] =
            *head;
        let fsst = match coding {
            0 | 1 if (zero_a, zero_b, zeros) == (0, 0, [0; 4]) => coding == 1,
            _ => return Err(nonsense(format!("texts of the unknown coding {coding}"))),
        };
        if !fsst && symbol_count > 0 {
            return Err(nonsense(format!("{symbol_count} symbols of no code")));
        }
        let table_end = HEAD + usize::from(symbol_count) * (1 + SYMBOL_BYTES);
        let table = bytes.get(HEAD..table_end).ok_or_else(|| truncated(table_end))?;
        let table = bytes.slice_ref(table);
        let symbols = if fsst { Some(Symbols::parse(symbol_count, table)?) } else { None };
        let decoded_length = size_of(u32::from_le_bytes([d0, d1, d2, d3]));
        let (offsets, data) = Integers::parse(&bytes.slice(table_end..), count + 1)?;
        if data.len() != size_of(u32::from_le_bytes([l0, l1, l2, l3])) {
            return Err(nonsense(format!(
                "{} bytes of texts, which is not what they say",
                data.len()
            )));
        }
        // A code stands for at most eight bytes.
        if decoded_length > data.len().saturating_mul(SYMBOL_BYTES) {
            return Err(nonsense(format!("{decoded_length} bytes from {} of code", data.len())));
        }
        Ok(Self { symbols, decoded_length, offsets, data })
    }

    /// Number of values.
    pub(crate) fn count(&self) -> usize {
        self.offsets.count().saturating_sub(1)
    }

    /// Bytes of all values, decoded.
    pub(crate) fn decoded_length(&self) -> usize {
        self.decoded_length
    }

    /// For each value whether it has no bytes. Neither a symbol nor an escaped byte is empty, so no value is decoded.
    pub(crate) fn are_empty(&self) -> BooleanBuffer {
        let count = self.count();
        let mut bits = BooleanBufferBuilder::new(count);
        // The first offset is the start of the first value, and the end of none.
        let mut before = None;
        self.offsets.each_block(0..count + 1, |block| {
            for end in block {
                if let Some(start) = before.replace(*end) {
                    bits.append(start == *end);
                }
            }
        });
        bits.finish()
    }

    /// The values at `indices`, in any order; ascending ones are read fastest. Returns the start and end of each in the
    /// decoded bytes, and these bytes.
    pub(crate) fn gather(&self, indices: &[usize]) -> Result<(Vec<i32>, Vec<u8>), Corruption> {
        let ends: Vec<usize> = indices.iter().flat_map(|index| [*index, index + 1]).collect();
        let mut places = Vec::with_capacity(ends.len());
        self.offsets.gather(&ends, |offset| {
            places.push(usize::try_from(offset).unwrap_or(usize::MAX));
        });
        let mut offsets = Vec::with_capacity(indices.len() + 1);
        let mut room = Room { bytes: Vec::new(), filled: 0, bytes_max: usize::MAX };
        offsets.push(0);
        // A few values do not use most symbols.
        let entries = self.symbols.as_ref().filter(|_| indices.len() > FEW).map(Symbols::entries);
        for [from, to] in places.as_chunks::<2>().0 {
            if *to > self.data.len() || from > to {
                return Err(outside());
            }
            let growth = (to - from) * SYMBOL_BYTES + EIGHT_SYMBOLS;
            room.bytes.resize(room.filled + growth, 0);
            match (&self.symbols, &entries) {
                (Some(_), Some(entries)) => {
                    let entry = |code: u8| entries.get(usize::from(code)).copied();
                    self.write_coded(*from..*to, &mut room, entry)?;
                }
                (Some(symbols), None) => {
                    let (lengths, bytes) = symbols.parts();
                    let entry = |code: u8| {
                        let (symbol, length) =
                            bytes.get(usize::from(code)).zip(lengths.get(usize::from(code)))?;
                        Some((*symbol, *length))
                    };
                    self.write_coded(*from..*to, &mut room, entry)?;
                }
                (None, _) => self.write_plain(*from..*to, &mut room)?,
            }
            offsets.push(room.offset());
        }
        Ok((offsets, room.finish()))
    }

    /// The values of `range`: the start and end of each in the decoded bytes, and these bytes.
    pub(crate) fn decode(&self, range: Range<usize>) -> Result<(Vec<i32>, Vec<u8>), Corruption> {
        let whole = range.len() == self.count();
        let offset = |index| usize::try_from(self.offsets.get(index)).unwrap_or(usize::MAX);
        let place = offset(range.start)..offset(range.end);
        if place.start > place.end || place.end > self.data.len() {
            return Err(outside());
        }
        let (expected, bytes_max) = match &self.symbols {
            Some(_) if whole => (self.decoded_length, self.decoded_length),
            // Proportional to the values' share of all codes, and some more: with room for a window beyond, it seldom
            // grows.
            Some(_) => {
                let all = self.decoded_length.saturating_mul(place.len());
                let share = all / self.data.len().max(1);
                (share + share / 8 + WINDOW * SYMBOL_BYTES, place.len() * SYMBOL_BYTES)
            }
            None => (place.len(), place.len()),
        };
        let bytes = vec![0; expected.min(bytes_max) + EIGHT_SYMBOLS];
        let mut room = Room { bytes, filled: 0, bytes_max: bytes_max + EIGHT_SYMBOLS };
        let mut ends = Vec::with_capacity(range.len() + 1);
        self.offsets.each_block(range.start..range.end + 1, |block| {
            ends.extend(block.iter().map(|end| usize::try_from(*end).unwrap_or(usize::MAX)));
        });
        let offsets = match &self.symbols {
            Some(symbols) => {
                let codes = self.data.get(place.clone()).ok_or_else(outside)?;
                symbols.write_all(codes, &ends, place.start, &mut room)?
            }
            None => {
                let mut offsets = Vec::with_capacity(ends.len());
                offsets.push(0);
                for (from, to) in ends.iter().zip(ends.iter().skip(1)) {
                    self.write_plain(*from..*to, &mut room)?;
                    offsets.push(room.offset());
                }
                offsets
            }
        };
        if whole && room.filled != self.decoded_length {
            let (found, expected) = (room.filled, self.decoded_length);
            return Err(nonsense(format!("{found} bytes of text where {expected} are promised")));
        }
        Ok((offsets, room.finish()))
    }

    fn write_coded(
        &self,
        place: Range<usize>,
        room: &mut Room,
        entry: impl Fn(u8) -> Option<Symbol>,
    ) -> Result<(), Corruption> {
        let codes = self.data.get(place).ok_or_else(outside)?;
        let filled = write(codes, &mut room.bytes, room.filled, entry);
        room.filled =
            filled.ok_or_else(|| nonsense("texts that are no codes, or too long".into()))?;
        Ok(())
    }

    fn write_plain(&self, place: Range<usize>, room: &mut Room) -> Result<(), Corruption> {
        let bytes = self.data.get(place).ok_or_else(outside)?;
        let end = room.filled + bytes.len();
        let target = room.bytes.get_mut(room.filled..end);
        target.ok_or_else(|| nonsense("texts that are too long".into()))?.copy_from_slice(bytes);
        room.filled = end;
        Ok(())
    }
}

/// A buffer that is partly filled.
struct Room {
    bytes: Vec<u8>,
    filled: usize,
    /// Its maximum size.
    bytes_max: usize,
}

impl Room {
    /// Makes room for `length` bytes, within the maximum.
    fn grow_to(&mut self, length: usize) {
        let length = length.min(self.bytes_max);
        if length > self.bytes.len() {
            let grown = length.max(self.bytes.len() + self.bytes.len() / 8).min(self.bytes_max);
            self.bytes.reserve_exact(grown - self.bytes.len());
            self.bytes.resize(grown, 0);
        }
    }

    fn offset(&self) -> i32 {
        // A page with an inexact total is refused for its offsets.
        i32::try_from(self.filled).unwrap_or(i32::MAX)
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.truncate(self.filled);
        self.bytes
    }
}

impl Symbols {
    fn parse(count: u8, table: Bytes) -> Result<Self, Corruption> {
        let symbols = Self { table, count: usize::from(count) };
        let (lengths, _) = symbols.parts();
        if lengths.iter().any(|length| !(1..=SYMBOL_BYTES).contains(&usize::from(*length))) {
            return Err(nonsense("a symbol of no length that symbols have".into()));
        }
        Ok(symbols)
    }

    /// Lengths of the symbols, and the symbols.
    fn parts(&self) -> (&[u8], &[[u8; SYMBOL_BYTES]]) {
        let (lengths, bytes) = self.table.split_at_checked(self.count).unwrap_or_default();
        (lengths, bytes.as_chunks::<SYMBOL_BYTES>().0)
    }

    /// The bytes of each code; a code without a symbol has none.
    fn entries(&self) -> Box<[Symbol; 256]> {
        let mut entries = Box::new([([0; SYMBOL_BYTES], 0); 256]);
        let (lengths, symbols) = self.parts();
        for (entry, symbol) in entries.iter_mut().zip(symbols.iter().zip(lengths)) {
            *entry = (*symbol.0, *symbol.1);
        }
        entries
    }

    /// Decodes the `codes` of successive values; returns the end of each value, counted from `start`.
    ///
    /// All codes are decoded in one loop: values are short, so a loop for each would mostly mispredict its end.
    fn write_all(
        &self,
        codes: &[u8],
        ends: &[usize],
        start: usize,
        room: &mut Room,
    ) -> Result<Vec<i32>, Corruption> {
        let too_long = || nonsense("texts longer than they say".into());
        let entries = self.entries();
        let mut offsets = Vec::with_capacity(ends.len());
        let mut ends = ends.iter().map(|end| end.wrapping_sub(start)).peekable();
        // Start position of the bytes of each code of a window; -1 within a code, where no value ends.
        let mut begins = [-1_i32; WINDOW];
        let (mut at, mut index, mut from) = (0, 0, 0);
        while from < codes.len() {
            let until = (from + WINDOW).min(codes.len());
            room.grow_to(at + (until - from) * SYMBOL_BYTES + EIGHT_SYMBOLS);
            begins.fill(-1);
            while index < until
                && let Some(code) = codes.get(index)
            {
                if let Some(eight) = codes.get(index..until).and_then(<[u8]>::first_chunk)
                    && escape_free(u64::from_le_bytes(*eight)) == SYMBOL_BYTES
                    && let Some(begins) = begins.get_mut(index - from..)
                    && let Some(begins) = begins.first_chunk_mut::<SYMBOL_BYTES>()
                    && let Some(target) = room.bytes.get_mut(at..)
                    && let Some(target) = target.first_chunk_mut::<EIGHT_SYMBOLS>()
                {
                    at += write_eight(eight, (at, begins), target, &entries);
                    index += SYMBOL_BYTES;
                    continue;
                }
                if let Some(begin) = begins.get_mut(index - from) {
                    *begin = i32::try_from(at).unwrap_or(-1);
                }
                let target: &mut [u8; SYMBOL_BYTES] = room
                    .bytes
                    .get_mut(at..)
                    .and_then(<[u8]>::first_chunk_mut)
                    .ok_or_else(too_long)?;
                let (symbol, length) = entries.get(usize::from(*code)).copied().unwrap_or_default();
                if *code == ESCAPE {
                    target[0] = *codes.get(index + 1).ok_or_else(outside)?;
                    at += 1;
                    index += 2;
                } else {
                    *target = symbol;
                    at += usize::from(length);
                    index += 1;
                }
            }
            while let Some(end) = ends.next_if(|end| *end < until) {
                // An end before the window means that the ends do not ascend.
                let begin = begins.get(end.wrapping_sub(from)).copied();
                offsets.push(begin.filter(|begin| *begin >= 0).ok_or_else(outside)?);
            }
            from = until;
        }
        room.filled = at;
        for end in ends {
            if end != codes.len() {
                return Err(outside());
            }
            offsets.push(room.offset());
        }
        if offsets.is_sorted() { Ok(offsets) } else { Err(outside()) }
    }
}

/// Decodes eight codes, none of which is an escape, into `target`, which begins at `at`; returns their bytes, and notes
/// where each begins. Most of what is checked for each code alone is checked once for all of them.
fn write_eight(
    codes: &[u8; SYMBOL_BYTES],
    (at, begins): (usize, &mut [i32; SYMBOL_BYTES]),
    target: &mut [u8; EIGHT_SYMBOLS],
    entries: &[Symbol; 256],
) -> usize {
    let mut filled = 0;
    for (code, begin) in codes.iter().zip(begins) {
        *begin = i32::try_from(at + filled).unwrap_or(-1);
        let (symbol, length) = entries.get(usize::from(*code)).copied().unwrap_or_default();
        // There is room: no symbol is longer than eight bytes.
        if let Some(place) = target.get_mut(filled..).and_then(<[u8]>::first_chunk_mut) {
            *place = symbol;
        }
        filled += usize::from(length);
    }
    filled
}

/// Decodes `codes` into `room`, from `at` on, and returns the end of the output. None if the bytes end within a code,
/// or if less than eight bytes would be left free. A code without a symbol decodes to nothing.
fn write(
    mut codes: &[u8],
    room: &mut [u8],
    mut at: usize,
    entry: impl Fn(u8) -> Option<Symbol>,
) -> Option<usize> {
    // A symbol is written as eight bytes; the next one overwrites those beyond its length.
    while let Some((eight, rest)) = codes.split_first_chunk::<SYMBOL_BYTES>()
        && let Some(target) = room.get_mut(at..)?.first_chunk_mut::<EIGHT_SYMBOLS>()
    {
        let plain = escape_free(u64::from_le_bytes(*eight));
        let mut filled = 0;
        for code in eight.iter().take(plain) {
            let (symbol, length) = entry(*code).unwrap_or_default();
            *target.get_mut(filled..)?.first_chunk_mut()? = symbol;
            filled += usize::from(length);
        }
        at += filled;
        codes = if plain == SYMBOL_BYTES {
            rest
        } else {
            let (byte, rest) = codes.get(plain + 1..)?.split_first()?;
            *room.get_mut(at)? = *byte;
            at += 1;
            rest
        };
    }
    let mut codes = codes.iter();
    while let Some(code) = codes.next() {
        let target: &mut [u8; SYMBOL_BYTES] = room.get_mut(at..)?.first_chunk_mut()?;
        if *code == ESCAPE {
            target[0] = *codes.next()?;
            at += 1;
        } else {
            let (symbol, length) = entry(*code).unwrap_or_default();
            *target = symbol;
            at += usize::from(length);
        }
    }
    Some(at)
}

/// Whether symbols that are trained for a few values of `sample` save anything of others: random text does not
/// compress, and training for all of the sample takes several times as long to find that out.
fn is_worth_training(sample: &[&[u8]]) -> bool {
    let part = |odd: usize| {
        let values = sample.iter().skip(odd).step_by(2);
        let within = values.scan(0, |total, value| {
            let before: usize = *total;
            *total += value.len();
            (before < PROBE_BYTES).then_some(value.get(..PROBE_BYTES).unwrap_or(value))
        });
        within.collect::<Vec<&[u8]>>()
    };
    let (trained, others) = (part(0), part(1));
    let plain: usize = others.iter().map(|value| value.len()).sum();
    if plain < PROBE_BYTES {
        return true;
    }
    let (data, _) = coded(&Compressor::train(&trained), &others);
    data.len() * 100 < plain * (100 - PROBE_SAVES)
}

/// The codes of all values, each coded by itself, one after the other, and the end of each.
fn coded(compressor: &Compressor, values: &[&[u8]]) -> (Vec<u8>, Vec<u64>) {
    let (mut codes, mut ends) = (Vec::new(), Vec::new());
    // Several values at once, in one allocation; one by one would allocate for each.
    compressor
        .compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(values, &mut codes, &mut ends);
    (codes, ends)
}

/// How many of eight codes come before the first escape.
fn escape_free(codes: u64) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    // A byte of ones is a zero in the complement; the lowest zero is found exactly.
    let inverse = !codes;
    let zeros = inverse.wrapping_sub(LOW) & codes & (LOW << 7);
    usize::try_from(zeros.trailing_zeros() / 8).unwrap_or(0)
}

fn outside() -> Corruption {
    nonsense("a text outside of its block".into())
}

fn nonsense(reason: String) -> Corruption {
    Corruption::Values(reason)
}

#[cfg(test)]
mod tests;
