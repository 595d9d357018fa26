//! Encodings of one column of one page: an Arrow array in, buffers of a chunk out, and back.
//!
//! ```text
//! plain chunk, each part at a multiple of 64 bytes from the chunk's start
//!   ├ validity bits, if NULLs ┼ values ┤                                          fixed width, boolean
//!   ├ validity bits, if NULLs ┼ row count + 1 offsets ┼ overflow table ┼ bytes ┤  text, bytea
//! ```
//!
//! A column of one value (or of NULLs only) is [`Encoding::Constant`], one of consecutive values is
//! [`Encoding::Sequence`]: neither takes bytes. Pages that are read by columns use the encodings of [`light`] if these
//! save space. All other columns are [`Encoding::Plain`], Arrow's own buffers: decoding slices the chunk, and the array
//! shares the chunk's memory.
//!
//! 1. [`encode`] turns a column into an [`EncodedChunk`].
//! 2. [`Chunk::open`] reads the head of a chunk, [`OpenChunk::decode`] its values for the rows of a [`Pick`].
//! 3. [`Chunk::decode_slots`] reads a few values.
//!
//! Invariants: only Arrow's validating constructors make arrays, so an inconsistent chunk is an error and never a
//! panic. Unused bits of bitmaps, bytes between parts and values beneath NULLs are zero or empty, so equal rows make
//! equal pages.

#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, make_array, new_empty_array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute::concat;
use bytes::Bytes;

use crate::error::{Corruption, StoreError};
use crate::page::columns::{Layout, ValueType};
use crate::page::header::{ChunkEntry, Encoding, PageHeader, corrupt};
use crate::page::overflow::{self, LongValues, OverflowValues};
use crate::page_source::{ColumnRef, PageRead};

mod arrays;
pub(crate) mod light;
pub(crate) mod open;

pub(crate) use open::OpenChunk;
pub use open::Pick;

/// Alignment of the parts of a chunk, as Arrow recommends for its buffers.
const PART_ALIGNMENT: usize = 64;

/// A column of a page, ready to be placed.
#[derive(Debug)]
pub(crate) struct EncodedChunk {
    pub(crate) column: ColumnRef,
    pub(crate) value_type: ValueType,
    pub(crate) encoding: Encoding,
    pub(crate) null_count: u32,
    pub(crate) overflow_count: u32,
    pub(crate) base: u64,
    /// Parts with their place in the chunk.
    pub(crate) parts: Vec<(usize, Buffer)>,
    /// Bytes of the chunk.
    pub(crate) length: usize,
}

/// Byte ranges of the parts of a plain chunk, within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sections {
    /// Empty where there are no NULLs.
    validity: Range<usize>,
    /// Values, or offsets.
    values: Range<usize>,
    /// Empty but for long values.
    pub(crate) overflow: Range<usize>,
    /// Empty but for text and bytes.
    data: Range<usize>,
}

/// One column of one page with its bytes, to be decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk<'a> {
    pub(crate) read: &'a PageRead,
    pub(crate) header: &'a PageHeader,
    pub(crate) entry: &'a ChunkEntry,
    /// None where the entry has no bytes.
    pub(crate) bytes: Option<&'a Bytes>,
}

/// Options of [`encode`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Longest value that stays in its page.
    pub(crate) inline_bytes_max: u32,
    /// Whether to look for encodings that take less space.
    pub(crate) light: bool,
}

/// Encodes a column. `array` has the Arrow type of `value_type`. Values that are too long are returned separately; the
/// caller then sets the chunk's `base`.
pub(crate) fn encode(
    column: ColumnRef,
    value_type: ValueType,
    array: &dyn Array,
    effort: Effort,
) -> Result<(EncodedChunk, Option<LongValues>), StoreError> {
    let (mut chunk, long) = encode_plainly(column, value_type, array, effort.inline_bytes_max)?;
    if effort.light
        && long.is_none()
        && chunk.encoding == Encoding::Plain
        && chunk.length > 0
        && let Some((encoding, bytes)) = light::encode(value_type, array, chunk.length)
    {
        chunk.encoding = encoding;
        chunk.length = bytes.len();
        chunk.parts = vec![(0, Buffer::from_vec(bytes))];
    }
    Ok((chunk, long))
}

fn encode_plainly(
    column: ColumnRef,
    value_type: ValueType,
    array: &dyn Array,
    inline_bytes_max: u32,
) -> Result<(EncodedChunk, Option<LongValues>), StoreError> {
    let mut chunk = EncodedChunk {
        column,
        value_type,
        encoding: Encoding::Plain,
        null_count: number(array.null_count(), "null count")?,
        overflow_count: 0,
        base: 0,
        parts: Vec::new(),
        length: 0,
    };
    if array.is_empty() {
        return Ok((chunk, None));
    }
    if array.null_count() == array.len() {
        chunk.encoding = Encoding::Constant;
        return Ok((chunk, None));
    }
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    if let Some(nulls) = nulls {
        chunk.push(packed(nulls.inner()));
    }
    let mut long = None;
    match value_type.layout() {
        Layout::Bits => {
            let values = array.as_boolean().values();
            let set = values.count_set_bits();
            if let Some(nulls) = nulls {
                chunk.push(packed(&(values & nulls.inner())));
            } else if set == 0 || set == values.len() {
                chunk.constant(u64::from(set > 0));
            } else {
                chunk.push(packed(values));
            }
        }
        Layout::Fixed(width) => {
            let values = fixed_values(array, width)?;
            if let Some(nulls) = nulls {
                chunk.push(zeroed(values, nulls, width));
            } else if let Some(base) = constant_of(&values, width) {
                chunk.constant(base);
            } else if let Some(base) = sequence_of(&values, width, value_type) {
                chunk.constant(base);
                chunk.encoding = Encoding::Sequence;
            } else {
                chunk.push(values);
            }
        }
        Layout::Bytes => {
            let (offsets, values) = match value_type {
                ValueType::Utf8 => {
                    let array = array.as_string::<i32>();
                    (array.offsets(), array.values())
                }
                _ => {
                    let array = array.as_binary::<i32>();
                    (array.offsets(), array.values())
                }
            };
            let (offsets, values) = match nulls.and_then(|nulls| emptied(offsets, values, nulls)) {
                Some((offsets, values)) => (Cow::Owned(offsets), values),
                None => (Cow::Borrowed(&offsets[..]), values.clone()),
            };
            let split = overflow::split(&offsets, &values, inline_bytes_max)?;
            if let Some(split) = &split {
                chunk.overflow_count = number(split.entries.len(), "overflow count")?;
                chunk.push(Buffer::from_vec(split.offsets.clone()));
                chunk.push(split.table());
                chunk.push(Buffer::from_vec(split.inline.clone()));
            } else {
                let first = offsets.first().copied().unwrap_or(0);
                let last = offsets.last().copied().unwrap_or(first);
                let rebased: Vec<i32> = offsets.iter().map(|offset| offset - first).collect();
                chunk.push(Buffer::from_vec(rebased));
                chunk.push(values.slice_with_length(size(first), size(last - first)));
            }
            long = split;
        }
    }
    Ok((chunk, long))
}

impl EncodedChunk {
    /// The entry of a column without stored bytes.
    pub(crate) fn without_bytes(
        column: ColumnRef,
        value_type: ValueType,
        encoding: Encoding,
        base: u64,
    ) -> Self {
        Self {
            column,
            value_type,
            encoding,
            null_count: 0,
            overflow_count: 0,
            base,
            parts: Vec::new(),
            length: 0,
        }
    }

    fn push(&mut self, part: Buffer) {
        let start = self.length.next_multiple_of(PART_ALIGNMENT);
        self.length = start + part.len();
        self.parts.push((start, part));
    }

    fn constant(&mut self, base: u64) {
        self.encoding = Encoding::Constant;
        self.base = base;
    }
}

impl Sections {
    /// Finds the parts of a plain chunk.
    pub(crate) fn of(entry: &ChunkEntry, row_count: u32) -> Result<Self, Corruption> {
        let rows = size_of(row_count);
        let length = size_of(entry.length);
        let overflow_bytes = size_of(entry.overflow_count).saturating_mul(overflow::ENTRY_BYTES);
        let validity = 0..if entry.null_count > 0 { rows.div_ceil(8) } else { 0 };
        let start = validity.end.next_multiple_of(PART_ALIGNMENT);
        let (values, overflow, data) = match entry.value_type.layout() {
            Layout::Bits => (start..start.saturating_add(rows.div_ceil(8)), 0..0, 0..0),
            Layout::Fixed(width) => (start..start.saturating_add(rows * width), 0..0, 0..0),
            // A chunk without rows has no parts at all.
            Layout::Bytes if rows == 0 => (0..0, 0..0, 0..0),
            Layout::Bytes => {
                let values = start..start.saturating_add((rows + 1) * 4);
                let start = values.end.next_multiple_of(PART_ALIGNMENT);
                let overflow = start..start.saturating_add(overflow_bytes);
                let start = overflow.end.next_multiple_of(PART_ALIGNMENT);
                (values, overflow, start..length.max(start))
            }
        };
        let end = values.end.max(data.end);
        if end != length {
            return Err(Corruption::Field {
                field: "length",
                found: u64::from(entry.length),
                expected: Some(end as u64),
            });
        }
        Ok(Self { validity, values, overflow, data })
    }
}

impl Chunk<'_> {
    /// Makes the chunk ready to decode. Of values in overflow pages only those in `selection` (None: all) are filled
    /// in; others are empty.
    pub(crate) fn open(
        &self,
        overflow: &OverflowValues,
        selection: Option<&BooleanBuffer>,
    ) -> Result<OpenChunk, StoreError> {
        OpenChunk::new(self, overflow, selection)
    }

    /// All values of a plain chunk.
    fn plain(
        &self,
        overflow: &OverflowValues,
        selection: Option<&BooleanBuffer>,
    ) -> Result<ArrayRef, StoreError> {
        let rows = size_of(self.header.row_count);
        let entry = self.entry;
        let sections = self.sections()?;
        let bytes = self.bytes.cloned().unwrap_or_default();
        let validity = (entry.null_count > 0)
            .then(|| self.part(&bytes, &sections.validity))
            .transpose()?
            .map(Buffer::from);
        let mut buffers = vec![Buffer::from(self.part(&bytes, &sections.values)?)];
        if entry.value_type.layout() == Layout::Bytes {
            if rows == 0 {
                return Ok(new_null_array(&entry.value_type.arrow(), 0));
            }
            let data = self.part(&bytes, &sections.data)?;
            if entry.overflow_count > 0 {
                let (offsets, data) = self.spliced(&bytes, &data, overflow, selection)?;
                buffers = vec![Buffer::from_vec(offsets), Buffer::from_vec(data)];
            } else {
                buffers.push(Buffer::from(data));
            }
        }
        let array = self.array(rows, validity, buffers)?;
        self.check_null_count(array.null_count())?;
        Ok(array)
    }

    /// Refuses a chunk with more or fewer NULLs than its entry says.
    fn check_null_count(&self, found: usize) -> Result<(), StoreError> {
        let promised = size_of(self.entry.null_count);
        if found == promised {
            return Ok(());
        }
        Err(self.nonsense(format!("{found} NULLs where {promised} are promised")))
    }

    /// The values of a few slots, copied out of the page.
    pub(crate) fn decode_slots(
        &self,
        slots: &[usize],
        overflow: &OverflowValues,
    ) -> Result<ArrayRef, StoreError> {
        let rows = size_of(self.header.row_count);
        if let Some(slot) = slots.iter().find(|slot| **slot >= rows) {
            return Err(StoreError::Mismatch {
                what: "reading a row",
                reason: format!("slot {slot} of a page of {rows} rows"),
            });
        }
        if self.entry.encoding != Encoding::Plain {
            return OpenChunk::new(self, overflow, None)?.slots(slots);
        }
        let values: Vec<ArrayRef> =
            slots.iter().map(|slot| self.plain_slot(*slot, overflow)).collect::<Result<_, _>>()?;
        match values.as_slice() {
            [] => Ok(new_empty_array(&self.entry.value_type.arrow())),
            [value] => Ok(Arc::clone(value)),
            _ => Ok(concat(&values.iter().map(AsRef::as_ref).collect::<Vec<_>>())?),
        }
    }

    /// One value of a plain chunk; of text, only this value is checked.
    fn plain_slot(&self, slot: usize, overflow: &OverflowValues) -> Result<ArrayRef, StoreError> {
        let entry = self.entry;
        let sections = self.sections()?;
        let bytes = self.bytes.cloned().unwrap_or_default();
        let bit = |part: &Bytes| part.get(slot / 8).is_some_and(|byte| byte >> (slot % 8) & 1 == 1);
        if entry.null_count > 0 && !bit(&self.part(&bytes, &sections.validity)?) {
            return Ok(new_null_array(&entry.value_type.arrow(), 1));
        }
        let values = self.part(&bytes, &sections.values)?;
        let buffers = match entry.value_type.layout() {
            Layout::Bits => vec![Buffer::from_vec(vec![u8::from(bit(&values))])],
            Layout::Fixed(width) => {
                let at = slot * width;
                let value = values.get(at..at + width).unwrap_or_default();
                vec![Buffer::from_slice_ref(value)]
            }
            Layout::Bytes => {
                let data = self.part(&bytes, &sections.data)?;
                let mut value = Vec::new();
                match self.spans(&bytes)?.iter().find(|span| span.slot == slot) {
                    Some(span) => overflow.append(self, span, &mut value)?,
                    None => value.extend_from_slice(self.inline_value(&values, &data, slot)?),
                }
                let offsets = vec![0, self.offset(value.len())?];
                vec![Buffer::from_vec(offsets), Buffer::from_vec(value)]
            }
        };
        self.array(1, None, buffers)
    }

    /// The column's long values, in slot order.
    pub(crate) fn spans(&self, bytes: &Bytes) -> Result<Vec<overflow::Span>, StoreError> {
        if self.entry.overflow_count == 0 {
            return Ok(Vec::new());
        }
        let table = self.part(bytes, &self.sections()?.overflow)?;
        overflow::spans(self.entry, &table, self.header.row_count).map_err(|r| self.corrupt(r))
    }

    /// The error of this chunk.
    pub(crate) fn corrupt(&self, reason: Corruption) -> StoreError {
        corrupt(&self.read.page, &self.read.segment, Some(self.entry.column), reason)
    }

    fn nonsense(&self, reason: String) -> StoreError {
        self.corrupt(Corruption::Values(reason))
    }

    fn sections(&self) -> Result<Sections, StoreError> {
        Sections::of(self.entry, self.header.row_count).map_err(|reason| self.corrupt(reason))
    }

    fn part(&self, bytes: &Bytes, place: &Range<usize>) -> Result<Bytes, StoreError> {
        if place.start > place.end || place.end > bytes.len() {
            let (expected, found) = (place.end as u64, bytes.len() as u64);
            return Err(self.corrupt(Corruption::Truncated { expected, found }));
        }
        Ok(bytes.slice(place.clone()))
    }

    /// Offsets and bytes with the long values inserted.
    fn spliced(
        &self,
        bytes: &Bytes,
        data: &Bytes,
        overflow: &OverflowValues,
        selection: Option<&BooleanBuffer>,
    ) -> Result<(Vec<i32>, Vec<u8>), StoreError> {
        let sections = self.sections()?;
        let inline = self.part(bytes, &sections.values)?;
        let rows = size_of(self.header.row_count);
        let spans = self.spans(bytes)?;
        let mut spans = spans.iter().peekable();
        let mut offsets = Vec::with_capacity(rows + 1);
        let mut values = Vec::with_capacity(data.len());
        offsets.push(0);
        for slot in 0..rows {
            match spans.next_if(|span| span.slot == slot) {
                Some(span) => {
                    if selection
                        .is_none_or(|selection| slot < selection.len() && selection.value(slot))
                    {
                        overflow.append(self, span, &mut values)?;
                    }
                }
                None => values.extend_from_slice(self.inline_value(&inline, data, slot)?),
            }
            offsets.push(self.offset(values.len())?);
        }
        Ok((offsets, values))
    }

    /// The bytes in the page of the value at `slot`.
    fn inline_value<'d>(
        &self,
        offsets: &Bytes,
        data: &'d Bytes,
        slot: usize,
    ) -> Result<&'d [u8], StoreError> {
        let offset = |at: usize| -> Option<usize> {
            let bytes = offsets.get(at * 4..)?.first_chunk::<4>()?;
            usize::try_from(i32::from_le_bytes(*bytes)).ok()
        };
        let place = offset(slot).zip(offset(slot + 1));
        place
            .and_then(|(from, to)| data.get(from..to))
            .ok_or_else(|| self.nonsense(format!("slot {slot} lies outside of the chunk")))
    }

    /// An offset into values that were joined here: they may exceed the limit of one array.
    fn offset(&self, length: usize) -> Result<i32, StoreError> {
        i32::try_from(length).map_err(|_| StoreError::OutOfRange {
            what: "bytes of text in one page",
            value: length as u64,
            max: u64::from(i32::MAX.unsigned_abs()),
        })
    }

    fn array(
        &self,
        length: usize,
        validity: Option<Buffer>,
        buffers: Vec<Buffer>,
    ) -> Result<ArrayRef, StoreError> {
        // Bytes from media are aligned; those from a network may not be, and are then copied.
        let data = ArrayData::builder(self.entry.value_type.arrow())
            .len(length)
            .null_bit_buffer(validity)
            .buffers(buffers)
            .align_buffers(true)
            .build()
            .map_err(|error| self.nonsense(error.to_string()))?;
        Ok(make_array(data))
    }
}

/// The bits from the first on, with the unused ones of the last byte cleared.
fn packed(bits: &BooleanBuffer) -> Buffer {
    let packed = bits.sliced();
    let used = bits.len() % 8;
    let mask = if used == 0 { 0xff } else { (1_u8 << used) - 1 };
    match packed.as_slice().last() {
        Some(last) if last & !mask != 0 => {
            let mut copy = packed.as_slice().to_vec();
            if let Some(last) = copy.last_mut() {
                *last &= mask;
            }
            Buffer::from_vec(copy)
        }
        _ => packed,
    }
}

fn fixed_values(array: &dyn Array, width: usize) -> Result<Buffer, StoreError> {
    let data = array.to_data();
    let (from, length) = (data.offset() * width, data.len() * width);
    match data.buffers().first() {
        Some(values) if from + length <= values.len() => Ok(values.slice_with_length(from, length)),
        _ => Err(StoreError::Mismatch {
            what: "encoding a column",
            reason: format!("{} values do not have {width} bytes each", array.data_type()),
        }),
    }
}

/// Values of a fixed width with zeros beneath NULLs; shared if there were zeros already.
fn zeroed(values: Buffer, nulls: &NullBuffer, width: usize) -> Buffer {
    let is_null = !nulls.inner();
    let place = |slot: usize| slot * width..(slot + 1) * width;
    let is_dirty = |slot: usize| {
        values.get(place(slot)).is_some_and(|value| value.iter().any(|byte| *byte != 0))
    };
    if !is_null.set_indices().any(is_dirty) {
        return values;
    }
    let mut clean = values.to_vec();
    for slot in is_null.set_indices() {
        if let Some(value) = clean.get_mut(place(slot)) {
            value.fill(0);
        }
    }
    Buffer::from_vec(clean)
}

/// Offsets and bytes of texts without the bytes beneath NULLs; None if there are no such bytes.
fn emptied(offsets: &[i32], values: &[u8], nulls: &NullBuffer) -> Option<(Vec<i32>, Buffer)> {
    let ends = |slot: usize| offsets.get(slot).copied().zip(offsets.get(slot + 1).copied());
    let is_dirty = |slot: usize| ends(slot).is_some_and(|(from, to)| from < to);
    if !(!nulls.inner()).set_indices().any(is_dirty) {
        return None;
    }
    let (mut clean, mut bytes) = (vec![0], Vec::with_capacity(values.len()));
    let mut end = 0;
    for slot in 0..nulls.len() {
        if let Some((from, to)) = ends(slot).filter(|_| nulls.is_valid(slot)) {
            bytes.extend_from_slice(values.get(size(from)..size(to)).unwrap_or_default());
            end += to - from;
        }
        clean.push(end);
    }
    Some((clean, Buffer::from_vec(bytes)))
}

/// The value of all rows, in its low bits, if they are equal.
fn constant_of(values: &Buffer, width: usize) -> Option<u64> {
    let mut values = values.as_slice().chunks_exact(width);
    let first = values.next()?;
    values.all(|value| value == first).then(|| low_bits(first)).flatten()
}

/// The first value, if each other one is one more than the one before.
fn sequence_of(values: &Buffer, width: usize, value_type: ValueType) -> Option<u64> {
    if !value_type.counts() {
        return None;
    }
    let first = low_bits(values.as_slice().get(..width)?)?;
    // Sequences do not wrap, so the last value is known to fit.
    let row_count = (values.len() / width) as u64;
    let highest = match value_type {
        ValueType::UInt64 => u64::MAX,
        ValueType::Int64 if first >> 63 == 0 => u64::MAX >> 1,
        ValueType::Int32 if first >> 31 == 0 => u64::from(u32::MAX >> 1),
        ValueType::Int32 => u64::from(u32::MAX),
        _ => u64::MAX,
    };
    if first.checked_add(row_count).is_none_or(|end| end > highest) {
        return None;
    }
    values
        .as_slice()
        .chunks_exact(width)
        .enumerate()
        .all(|(slot, value)| low_bits(value) == Some(first.wrapping_add(slot as u64)))
        .then_some(first)
}

/// A little-endian number of up to 8 bytes; None for longer ones.
fn low_bits(bytes: &[u8]) -> Option<u64> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

/// A count as the 32 bits that a page has for it.
pub(crate) fn number(value: usize, what: &'static str) -> Result<u32, StoreError> {
    u32::try_from(value).map_err(|_| StoreError::OutOfRange {
        what,
        value: value as u64,
        max: u64::from(u32::MAX),
    })
}

/// A stored count as a size; `usize` has 32 bits at least.
pub(crate) fn size_of(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// An Arrow offset, which is never negative.
fn size(offset: i32) -> usize {
    usize::try_from(offset).unwrap_or(0)
}

#[cfg(test)]
mod tests;
