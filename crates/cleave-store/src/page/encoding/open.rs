//! A chunk whose head is read: picked rows in, arrays out, and predicates evaluated on the encoded values.
//!
//! 1. [`OpenChunk::new`] finds the layout, the NULLs, and for plain chunks the whole array at no cost.
//! 2. [`OpenChunk::decode`] takes a [`Pick`] of rows: a range, all of it or the selected rows. If few are selected only
//!    they are decoded. Otherwise the whole range is decoded, numbers block by block, and the selected rows are kept.
//! 3. [`OpenChunk::distinct`] and [`OpenChunk::compare`] answer for all rows without decoding them,
//!    [`OpenChunk::contained_in`], [`OpenChunk::coded_in`] and [`OpenChunk::emptiness`] for the remaining rows.
//!
//! Invariants: an open chunk shares the chunk's memory, so it may be kept. The entries of a dictionary are decoded and
//! checked once. A slot has one value, whatever the order of reads.

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::types::{Date32Type, Int16Type, Int32Type, Int64Type};
use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray,
    Float64Array, PrimitiveArray, StringArray, UInt32Array, downcast_primitive, make_array,
    new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{FilterBuilder, FilterPredicate, TakeOptions, take};
use arrow::datatypes::{ArrowNativeType, DataType};
use bytes::Bytes;

use super::arrays::{among, compare_array, extend_from_array, single};
use super::light::{DIGITS_MAX, unscaled};
use super::{Chunk, size_of};
use crate::error::{Corruption, StoreError};
use crate::integer_set::{IntegerSet, Kept};
use crate::page::columns::{Layout, ValueType};
use crate::page::header::{Encoding, corrupt};
use crate::page::integers::Integers;
use crate::page::overflow::OverflowValues;
use crate::page::strings::Strings;
use crate::page_source::{ColumnRef, PageRef, SegmentRef};

/// Bytes before the validity.
const HEAD: usize = 8;
/// An offset of a text in an array.
const OFFSET_BYTES: usize = 4;
/// One selected row in so many, or fewer, is decoded by itself.
const SPARSE: usize = 12;

/// Up to so many rows of an array are compared here: DataFusion's comparison needs a batch of them.
const ARRAY_ROWS_MAX: usize = 4096;

/// A chunk ready to decode.
#[derive(Debug)]
pub(crate) struct OpenChunk {
    place: (PageRef, SegmentRef, ColumnRef),
    value_type: ValueType,
    row_count: usize,
    nulls: Option<NullBuffer>,
    values: OpenValues,
}

#[derive(Debug)]
enum OpenValues {
    /// Arrow's own, NULLs included.
    Array(ArrayRef),
    Nulls,
    Rule {
        base: u64,
        step: u64,
    },
    Integers(Integers),
    Scaled(Integers, u8),
    Strings(Strings),
    Dictionary {
        codes: Integers,
        entries: Entries,
        decoded: OnceLock<ArrayRef>,
    },
}

#[derive(Debug)]
enum Entries {
    Fixed { bytes: Bytes, width: usize },
    Texts(Strings),
}

impl Entries {
    fn count(&self) -> usize {
        match self {
            Self::Fixed { bytes, width } => bytes.len() / width,
            Self::Texts(strings) => strings.count(),
        }
    }
}

/// Which rows of a page to decode, prepared once for all of its columns.
#[derive(Debug)]
pub struct Pick {
    range: Range<usize>,
    /// None: all of the range.
    selected: Option<Selected>,
}

#[derive(Debug)]
struct Selected {
    count: usize,
    how: How,
}

#[derive(Debug)]
enum How {
    /// Selected slots, ascending.
    Each(Vec<usize>),
    Most(Most),
}

/// Many rows of a range.
#[derive(Debug)]
struct Most {
    /// A bit for each row of the range.
    bits: BooleanBuffer,
    /// Whether several columns use the selection.
    is_shared: bool,
    /// The selection for Arrow's arrays, made on demand.
    filter: OnceLock<FilterPredicate>,
}

impl Most {
    fn filter(&self) -> &FilterPredicate {
        self.filter.get_or_init(|| {
            let builder = FilterBuilder::new(&BooleanArray::new(self.bits.clone(), None));
            // Preparing the selection pays only if several columns use it.
            if self.is_shared { builder.optimize() } else { builder }.build()
        })
    }
}

impl Pick {
    /// The rows of `range` that are set in `selection`, over all rows of the page (None: all), for `column_count`
    /// columns.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for a range that the selection does not cover.
    pub fn new(
        range: Range<usize>,
        selection: Option<&BooleanBuffer>,
        column_count: usize,
    ) -> Result<Self, StoreError> {
        let fits = selection.is_none_or(|selection| range.end <= selection.len());
        if range.start > range.end || !fits {
            return Err(StoreError::Mismatch {
                what: "selecting rows",
                reason: format!("rows {range:?} beyond the selection"),
            });
        }
        let selected = selection.and_then(|selection| {
            let bits = selection.slice(range.start, range.len());
            let count = bits.count_set_bits();
            if count == range.len() {
                return None;
            }
            let how = if count * SPARSE <= range.len() {
                How::Each(bits.set_indices().map(|slot| range.start + slot).collect())
            } else {
                How::Most(Most { bits, is_shared: column_count > 1, filter: OnceLock::new() })
            };
            Some(Selected { count, how })
        });
        Ok(Self { range, selected })
    }

    /// Number of picked rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.selected.as_ref().map_or(self.range.len(), |selected| selected.count)
    }

    /// The range of slots that contains the rows.
    pub(crate) fn range(&self) -> &Range<usize> {
        &self.range
    }
}

impl OpenChunk {
    pub(super) fn new(
        chunk: &Chunk<'_>,
        overflow: &OverflowValues,
        selection: Option<&BooleanBuffer>,
    ) -> Result<Self, StoreError> {
        let entry = chunk.entry;
        let row_count = size_of(chunk.header.row_count);
        let (mut nulls, values) = match entry.encoding {
            Encoding::Constant if entry.null_count > 0 => {
                (Some(NullBuffer::new_null(row_count)), OpenValues::Nulls)
            }
            Encoding::Constant => (None, OpenValues::Rule { base: entry.base, step: 0 }),
            Encoding::Sequence => (None, OpenValues::Rule { base: entry.base, step: 1 }),
            Encoding::FromSegment => {
                (None, OpenValues::Rule { base: chunk.read.segment.commit, step: 0 })
            }
            Encoding::Plain => (None, OpenValues::Array(chunk.plain(overflow, selection)?)),
            Encoding::Integers | Encoding::Dictionary | Encoding::Strings | Encoding::Scaled => {
                let bytes = chunk.bytes.cloned().unwrap_or_default();
                let (nulls, body) =
                    parse_validity(&bytes, row_count).map_err(|reason| chunk.corrupt(reason))?;
                chunk.check_null_count(nulls.as_ref().map_or(0, NullBuffer::null_count))?;
                let values =
                    parse_body(chunk, &body, row_count).map_err(|reason| chunk.corrupt(reason))?;
                (nulls, values)
            }
        };
        nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        Ok(Self {
            place: (chunk.read.page, chunk.read.segment, entry.column),
            value_type: entry.value_type,
            row_count,
            nulls,
            values,
        })
    }

    /// The picked values.
    pub(crate) fn decode(&self, pick: &Pick) -> Result<ArrayRef, StoreError> {
        match &pick.selected {
            None => self.range(pick.range.clone()),
            Some(Selected { how: How::Most(most), count }) => {
                self.most(pick.range.clone(), most, *count)
            }
            Some(Selected { how: How::Each(slots), .. }) => self.slots(slots),
        }
    }

    /// The distinct values of all rows and for each row the index of its value among them; None unless the chunk has a
    /// dictionary.
    pub(crate) fn distinct(&self) -> Result<Option<(ArrayRef, UInt32Array)>, StoreError> {
        let OpenValues::Dictionary { codes, entries, decoded } = &self.values else {
            return Ok(None);
        };
        let codes =
            UInt32Array::new(range_codes(codes, 0..self.row_count).into(), self.nulls.clone());
        Ok(Some((Arc::clone(self.entries(entries, decoded)?), codes)))
    }

    /// Appends the dictionary codes of the rows of `range` to `target`; those of NULLs are arbitrary. False if the
    /// chunk has no dictionary.
    pub(crate) fn codes(&self, range: Range<usize>, target: &mut Vec<u32>) -> bool {
        let OpenValues::Dictionary { codes, .. } = &self.values else { return false };
        codes.extend(range, target, to_code);
        true
    }

    /// The distinct values that the codes index; None unless the chunk has a dictionary.
    pub(crate) fn distinct_values(&self) -> Result<Option<ArrayRef>, StoreError> {
        match &self.values {
            OpenValues::Dictionary { entries, decoded, .. } => {
                Ok(Some(Arc::clone(self.entries(entries, decoded)?)))
            }
            _ => Ok(None),
        }
    }

    /// Appends the rows of `range` as integers to `target`: numerics and times in their stored unit, NULLs as any
    /// value. False if the chunk is not stored as integers.
    pub(crate) fn integers(&self, range: Range<usize>, target: &mut Vec<i64>) -> bool {
        match &self.values {
            OpenValues::Integers(integers) if self.value_type.is_integral() => {
                integers.extend(range, target, |value| value);
            }
            OpenValues::Rule { base, step } if self.value_type.is_integral() => {
                target.extend(range.map(|slot| self.signed(rule(*base, *step, slot))));
            }
            OpenValues::Array(array) => {
                return extend_from_array(&array.slice(range.start, range.len()), target);
            }
            _ => return false,
        }
        true
    }

    /// As [`Self::integers`], for those rows of `range` that are `selected`, a bit for each.
    pub(crate) fn integers_selected(
        &self,
        range: Range<usize>,
        selected: &BooleanBuffer,
        target: &mut Vec<i64>,
    ) -> bool {
        if let OpenValues::Integers(integers) = &self.values
            && self.value_type.is_integral()
        {
            integers.extend_selected(range, selected, target, |value| value);
            return true;
        }
        let mut all = Vec::with_capacity(range.len());
        let is_read = self.integers(range, &mut all);
        target.extend(selected.set_indices().filter_map(|row| all.get(row)));
        is_read
    }

    /// The number with the bits of a constant or sequence: bits beyond its type's width are zeros, also below zero.
    fn signed(&self, bits: u64) -> i64 {
        match self.value_type.layout() {
            Layout::Fixed(2) => i64::from(to_i16(bits.cast_signed())),
            Layout::Fixed(4) => i64::from(to_i32(bits.cast_signed())),
            _ => bits.cast_signed(),
        }
    }

    /// Bounds of the values of [`OpenChunk::integers`], as far as the head tells them.
    pub(crate) fn integer_bounds(&self) -> Option<(i64, i64)> {
        match &self.values {
            OpenValues::Integers(integers) if self.value_type.is_integral() => integers.bounds(),
            OpenValues::Rule { base, step: 0 } if self.value_type.is_integral() => {
                Some((self.signed(*base), self.signed(*base)))
            }
            _ => None,
        }
    }

    /// Which rows are not NULL; None: all.
    pub(crate) fn nulls(&self) -> Option<&NullBuffer> {
        match &self.values {
            OpenValues::Array(array) => array.nulls(),
            _ => self.nulls.as_ref(),
        }
    }

    /// For each row whether comparing its value, as an integer, with `other` gives one of `wanted`; NULLs give false.
    /// None unless the chunk is stored as integers, or is a short array.
    pub(crate) fn compare(
        &self,
        other: i128,
        wanted: impl Fn(Ordering) -> bool,
    ) -> Option<BooleanBuffer> {
        if self.value_type == ValueType::UInt64 {
            return None;
        }
        let holds = match &self.values {
            OpenValues::Integers(integers) => integers.compare(other, wanted),
            OpenValues::Array(array) if self.row_count <= ARRAY_ROWS_MAX => {
                compare_array(array, other, wanted)?
            }
            _ => return None,
        };
        Some(match self.nulls() {
            Some(nulls) => &holds & nulls.inner(),
            None => holds,
        })
    }

    /// The rows of `kept` whose values are in `set`; NULLs are in no set. None unless the values are integers or days,
    /// and the chunk has no dictionary.
    pub(crate) fn contained_in(&self, set: &IntegerSet, kept: &Kept) -> Option<BooleanBuffer> {
        use ValueType::{Date32, Int16, Int32, Int64};
        if !matches!(self.value_type, Int16 | Int32 | Int64 | Date32) {
            return None;
        }
        let holds = match &self.values {
            OpenValues::Integers(integers) => integers.contained_in(set, kept),
            OpenValues::Rule { base, step: 0 } => kept.if_so(set.contains(self.signed(*base))),
            OpenValues::Rule { base, .. } => {
                let first = set.place(self.signed(*base));
                kept.narrowed(|row, _| set.among_next(first.wrapping_add(row as u64)))
            }
            OpenValues::Nulls => kept.if_so(false),
            OpenValues::Array(array) => match self.value_type {
                Int16 => among::<Int16Type>(set, array, kept)?,
                Int32 => among::<Int32Type>(set, array, kept)?,
                Date32 => among::<Date32Type>(set, array, kept)?,
                _ => among::<Int64Type>(set, array, kept)?,
            },
            OpenValues::Scaled(..) | OpenValues::Strings(_) | OpenValues::Dictionary { .. } => {
                return None;
            }
        };
        Some(match self.nulls() {
            Some(nulls) => &holds & nulls.inner(),
            None => holds,
        })
    }

    /// The rows of `kept` whose dictionary codes are in `codes`, and the NULL rows if `null` says so; None unless the
    /// chunk has a dictionary.
    pub(crate) fn coded_in(
        &self,
        codes: &IntegerSet,
        null: bool,
        kept: &Kept,
    ) -> Option<BooleanBuffer> {
        let OpenValues::Dictionary { codes: places, .. } = &self.values else { return None };
        let holds = places.contained_in(codes, kept);
        Some(match &self.nulls {
            Some(nulls) if null => &holds | &(&kept.if_so(true) & &!nulls.inner()),
            Some(nulls) => &holds & nulls.inner(),
            None => holds,
        })
    }

    /// The rows of `kept` whose texts are empty, or are not, as `empty` says; NULLs are neither. None unless the
    /// chunk is of texts.
    pub(crate) fn emptiness(&self, empty: bool, kept: &BooleanBuffer) -> Option<BooleanBuffer> {
        let wanted = |are_empty: BooleanBuffer| if empty { are_empty } else { !&are_empty };
        let holds = match &self.values {
            OpenValues::Strings(strings) => &wanted(strings.are_empty()) & kept,
            OpenValues::Dictionary { codes, entries: Entries::Texts(strings), .. } => {
                let words = wanted(strings.are_empty()).bit_chunks().iter_padded().collect();
                codes.contained_in(&IntegerSet::of_bits(0, words), &Kept::of(kept))
            }
            OpenValues::Array(array) => {
                let offsets = match array.data_type() {
                    DataType::Utf8 => array.as_string::<i32>().value_offsets(),
                    DataType::Binary => array.as_binary::<i32>().value_offsets(),
                    _ => return None,
                };
                let ends = offsets.iter().zip(offsets.iter().skip(1));
                &wanted(ends.map(|(start, end)| start == end).collect()) & kept
            }
            _ => return None,
        };
        Some(match self.nulls() {
            Some(nulls) => &holds & nulls.inner(),
            None => holds,
        })
    }

    fn range(&self, range: Range<usize>) -> Result<ArrayRef, StoreError> {
        let nulls = self.nulls.as_ref().map(|nulls| nulls.slice(range.start, range.len()));
        match &self.values {
            OpenValues::Array(array) => Ok(array.slice(range.start, range.len())),
            OpenValues::Nulls => Ok(new_null_array(&self.value_type.arrow(), range.len())),
            OpenValues::Rule { base, step } => {
                let count = range.len();
                let values = range.map(|slot| rule(*base, *step, slot));
                self.computed(*base, count, values)
            }
            OpenValues::Integers(integers) => {
                let count = range.len();
                let buffer = match self.value_type.layout() {
                    Layout::Fixed(2) => blocks(integers, range, to_i16),
                    Layout::Fixed(4) => blocks(integers, range, to_i32),
                    Layout::Fixed(8) => blocks(integers, range, |value| value),
                    _ => blocks(integers, range, i128::from),
                };
                self.array(count, nulls, vec![buffer])
            }
            OpenValues::Scaled(integers, digits) => {
                let mut values = Vec::with_capacity(range.len());
                integers.each_block(range, |block| {
                    values.extend(block.iter().map(|integer| unscaled(*integer, *digits)));
                });
                Ok(Arc::new(Float64Array::new(values.into(), nulls)))
            }
            OpenValues::Strings(strings) => {
                let count = range.len();
                let (offsets, bytes) = strings.decode(range).map_err(|r| self.corrupt(r))?;
                self.array(count, nulls, vec![Buffer::from_vec(offsets), Buffer::from_vec(bytes)])
            }
            OpenValues::Dictionary { codes, entries, decoded } => {
                let codes = UInt32Array::new(range_codes(codes, range).into(), nulls);
                self.take(self.entries(entries, decoded)?, &codes)
            }
        }
    }

    /// The values of the `count` rows of `range` that `most` selects.
    fn most(&self, range: Range<usize>, most: &Most, count: usize) -> Result<ArrayRef, StoreError> {
        let bits = &most.bits;
        let nulls = match &self.nulls {
            Some(nulls) => {
                let valid = nulls.inner().slice(range.start, range.len());
                let valid = most.filter().filter(&BooleanArray::new(valid, None))?;
                Some(NullBuffer::new(valid.as_boolean().values().clone()))
            }
            None => None,
        };
        match &self.values {
            OpenValues::Integers(integers) => {
                let buffer = match self.value_type.layout() {
                    Layout::Fixed(2) => selected(integers, range, bits, count, to_i16),
                    Layout::Fixed(4) => selected(integers, range, bits, count, to_i32),
                    Layout::Fixed(8) => selected(integers, range, bits, count, |value| value),
                    _ => selected(integers, range, bits, count, i128::from),
                };
                self.array(count, nulls, vec![buffer])
            }
            OpenValues::Scaled(integers, digits) => {
                let mut values = Vec::with_capacity(count);
                let unscaled = |integer| unscaled(integer, *digits);
                integers.extend_selected(range, bits, &mut values, unscaled);
                Ok(Arc::new(Float64Array::new(values.into(), nulls)))
            }
            OpenValues::Dictionary { codes, entries, decoded } => {
                let mut picked: Vec<u32> = Vec::with_capacity(count);
                codes.extend_selected(range, bits, &mut picked, to_code);
                self.take(self.entries(entries, decoded)?, &UInt32Array::new(picked.into(), nulls))
            }
            OpenValues::Array(_)
            | OpenValues::Nulls
            | OpenValues::Rule { .. }
            | OpenValues::Strings(_) => Ok(most.filter().filter(&self.range(range)?)?),
        }
    }

    /// The values of a few slots of the chunk, copied.
    pub(crate) fn few(&self, slots: &[usize]) -> Result<ArrayRef, StoreError> {
        match (&self.values, slots) {
            (OpenValues::Array(array), [slot]) => match single(array, *slot) {
                Some(value) => Ok(value),
                None => self.slots(slots),
            },
            _ => self.slots(slots),
        }
    }

    /// Bytes of memory that reading adds to its own: the decoded entries of a dictionary.
    pub(crate) fn later_bytes(&self) -> usize {
        match &self.values {
            OpenValues::Dictionary { entries: Entries::Fixed { bytes, .. }, .. } => bytes.len(),
            OpenValues::Dictionary { entries: Entries::Texts(strings), .. } => strings
                .decoded_length()
                .saturating_add(strings.count().saturating_add(1).saturating_mul(OFFSET_BYTES)),
            _ => 0,
        }
    }

    /// All values, if they are stored plain.
    pub(crate) fn stored_array(&self) -> Option<&ArrayRef> {
        match &self.values {
            OpenValues::Array(array) => Some(array),
            _ => None,
        }
    }

    /// The values of these slots of the chunk.
    pub(super) fn slots(&self, slots: &[usize]) -> Result<ArrayRef, StoreError> {
        let count = slots.len();
        let nulls = self
            .nulls
            .as_ref()
            .map(|nulls| NullBuffer::new(slots.iter().map(|slot| nulls.is_valid(*slot)).collect()));
        match &self.values {
            OpenValues::Array(array) => {
                let indices = slots.iter().map(|slot| u32::try_from(*slot).unwrap_or(u32::MAX));
                let indices = UInt32Array::from_iter_values(indices);
                self.take(array, &indices)
            }
            OpenValues::Nulls => Ok(new_null_array(&self.value_type.arrow(), count)),
            OpenValues::Rule { base, step } => {
                self.computed(*base, count, slots.iter().map(|slot| rule(*base, *step, *slot)))
            }
            OpenValues::Integers(integers) => {
                let mut values = Vec::with_capacity(count);
                integers.gather(slots, |value| values.push(value));
                let buffer = match self.value_type.layout() {
                    Layout::Fixed(2) => buffer_of(values, to_i16),
                    Layout::Fixed(4) => buffer_of(values, to_i32),
                    Layout::Fixed(8) => Buffer::from_vec(values),
                    _ => buffer_of(values, i128::from),
                };
                self.array(count, nulls, vec![buffer])
            }
            OpenValues::Scaled(integers, digits) => {
                let mut values = Vec::with_capacity(count);
                integers.gather(slots, |integer| values.push(unscaled(integer, *digits)));
                Ok(Arc::new(Float64Array::new(values.into(), nulls)))
            }
            OpenValues::Strings(strings) => {
                let (offsets, bytes) =
                    strings.gather(slots).map_err(|reason| self.corrupt(reason))?;
                self.array(count, nulls, vec![Buffer::from_vec(offsets), Buffer::from_vec(bytes)])
            }
            OpenValues::Dictionary { codes, entries, decoded } => {
                let mut picked = Vec::with_capacity(count);
                codes.gather(slots, |code| picked.push(to_code(code)));
                // A few values do not pay for decoding all entries.
                let few = count == 1 || count * SPARSE <= entries.count();
                if decoded.get().is_none() && few {
                    return self.some_entries(entries, &picked, nulls);
                }
                self.take(self.entries(entries, decoded)?, &UInt32Array::new(picked.into(), nulls))
            }
        }
    }

    fn entries<'a>(
        &self,
        entries: &Entries,
        decoded: &'a OnceLock<ArrayRef>,
    ) -> Result<&'a ArrayRef, StoreError> {
        if let Some(array) = decoded.get() {
            return Ok(array);
        }
        let array = match entries {
            Entries::Fixed { bytes, .. } => {
                self.array(entries.count(), None, vec![Buffer::from(bytes.clone())])?
            }
            Entries::Texts(strings) => {
                let count = entries.count();
                let (offsets, bytes) = strings.decode(0..count).map_err(|r| self.corrupt(r))?;
                self.array(count, None, vec![Buffer::from_vec(offsets), Buffer::from_vec(bytes)])?
            }
        };
        Ok(decoded.get_or_init(|| array))
    }

    /// The entries of `codes`, one by one; those of NULLs are arbitrary.
    fn some_entries(
        &self,
        entries: &Entries,
        codes: &[u32],
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, StoreError> {
        if nulls.as_ref().is_some_and(|nulls| nulls.null_count() == codes.len()) {
            return Ok(new_null_array(&self.value_type.arrow(), codes.len()));
        }
        let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let places: Vec<usize> = codes
            .iter()
            .enumerate()
            .map(|(row, code)| if is_null(row) { 0 } else { size_of(*code) })
            .collect();
        if let Some(code) = places.iter().find(|code| **code >= entries.count()) {
            let reason = format!("the code {code} of no entry");
            return Err(self.corrupt(Corruption::Values(reason)));
        }
        let buffers = match entries {
            Entries::Fixed { bytes, width } => {
                let values =
                    places.iter().filter_map(|code| bytes.get(code * width..)?.get(..*width));
                vec![Buffer::from_vec(values.flatten().copied().collect())]
            }
            Entries::Texts(strings) => {
                let (offsets, bytes) =
                    strings.gather(&places).map_err(|reason| self.corrupt(reason))?;
                vec![Buffer::from_vec(offsets), Buffer::from_vec(bytes)]
            }
        };
        self.array(codes.len(), nulls, buffers)
    }

    fn take(&self, array: &ArrayRef, indices: &UInt32Array) -> Result<ArrayRef, StoreError> {
        take(array, indices, Some(TakeOptions { check_bounds: true }))
            .map_err(|error| self.corrupt(Corruption::Values(error.to_string())))
    }

    /// Values of a constant or a sequence.
    fn computed(
        &self,
        base: u64,
        count: usize,
        values: impl Iterator<Item = u64>,
    ) -> Result<ArrayRef, StoreError> {
        let buffer = match self.value_type.layout() {
            Layout::Bits if base == 0 => BooleanBuffer::new_unset(count).into_inner(),
            Layout::Bits => BooleanBuffer::new_set(count).into_inner(),
            Layout::Fixed(2) => buffer_of(values, |value| to_i16(value.cast_signed())),
            Layout::Fixed(4) => buffer_of(values, |value| to_i32(value.cast_signed())),
            Layout::Fixed(8) => buffer_of(values, |value| value),
            Layout::Fixed(_) | Layout::Bytes => {
                let reason = "a rule for values that have none".into();
                return Err(self.corrupt(Corruption::Values(reason)));
            }
        };
        self.array(count, None, vec![buffer])
    }

    fn array(
        &self,
        length: usize,
        nulls: Option<NullBuffer>,
        buffers: Vec<Buffer>,
    ) -> Result<ArrayRef, StoreError> {
        let data_type = self.value_type.arrow();
        let made = match buffers.as_slice() {
            [values] => numbers(&data_type, values, length, nulls.as_ref()),
            [offsets, values] => texts(&data_type, (offsets, values), length, nulls.as_ref()),
            _ => None,
        };
        if let Some(array) = made {
            return Ok(array);
        }
        // Bytes from media are aligned; those from a network may not be, and are then copied.
        let data = ArrayData::builder(data_type)
            .len(length)
            .nulls(nulls)
            .buffers(buffers)
            .align_buffers(true)
            .build()
            .map_err(|error| self.corrupt(Corruption::Values(error.to_string())))?;
        Ok(make_array(data))
    }

    fn corrupt(&self, reason: Corruption) -> StoreError {
        let (page, segment, column) = &self.place;
        corrupt(page, segment, Some(*column), reason)
    }
}

/// An array of numbers of `data_type`. Arrow's general constructor would cost a single row as much as its look-up. None
/// if they are of another type, are not aligned, or are not `length`.
fn numbers(
    data_type: &DataType,
    values: &Buffer,
    length: usize,
    nulls: Option<&NullBuffer>,
) -> Option<ArrayRef> {
    macro_rules! of_type {
        ($of:ty) => {{
            type Native = <$of as ArrowPrimitiveType>::Native;
            let byte_count = length.checked_mul(std::mem::size_of::<Native>());
            let is_whole = byte_count.is_some_and(|bytes| bytes <= values.len())
                && values.as_ptr().cast::<Native>().is_aligned()
                && nulls.is_none_or(|nulls| nulls.len() == length);
            is_whole.then(|| {
                let values = ScalarBuffer::<Native>::new(values.clone(), 0, length);
                let array = PrimitiveArray::<$of>::new(values, nulls.cloned());
                Arc::new(array.with_data_type(data_type.clone())) as ArrayRef
            })
        }};
    }
    downcast_primitive! {
        data_type => (of_type),
        _ => None
    }
}

/// The same for texts and bytes; None also if offsets or texts are invalid: the general constructor then reports how.
fn texts(
    data_type: &DataType,
    (offsets, values): (&Buffer, &Buffer),
    length: usize,
    nulls: Option<&NullBuffer>,
) -> Option<ArrayRef> {
    let byte_count = length.checked_add(1)?.checked_mul(OFFSET_BYTES)?;
    if byte_count > offsets.len() || !offsets.as_ptr().cast::<i32>().is_aligned() {
        return None;
    }
    let offsets = ScalarBuffer::<i32>::new(offsets.clone(), 0, length.saturating_add(1));
    if offsets.first().is_none_or(|first| *first < 0) || !offsets.is_sorted() {
        return None;
    }
    let (offsets, values, nulls) = (OffsetBuffer::new(offsets), values.clone(), nulls.cloned());
    Some(match data_type {
        DataType::Utf8 => Arc::new(StringArray::try_new(offsets, values, nulls).ok()?),
        DataType::Binary => Arc::new(BinaryArray::try_new(offsets, values, nulls).ok()?),
        _ => return None,
    })
}

fn buffer_of<T, N: ArrowNativeType>(
    values: impl IntoIterator<Item = T>,
    to: impl Fn(T) -> N,
) -> Buffer {
    Buffer::from_vec(values.into_iter().map(to).collect::<Vec<N>>())
}

/// NULLs of a light chunk, and its body.
fn parse_validity(
    bytes: &Bytes,
    row_count: usize,
) -> Result<(Option<NullBuffer>, Bytes), Corruption> {
    let truncated = |expected: usize| Corruption::Truncated {
        expected: expected as u64,
        found: bytes.len() as u64,
    };
    let head = bytes.first_chunk::<HEAD>().ok_or_else(|| truncated(HEAD))?;
    let [kind, zeros @ .., l0, l1, l2, l3] = *head;
    let length = size_of(u32::from_le_bytes([l0, l1, l2, l3]));
    let end = HEAD.saturating_add(length);
    if zeros != [0; 3] || end > bytes.len() {
        return Err(truncated(end));
    }
    let validity = bytes.slice(HEAD..end);
    let nulls = match kind {
        0 if length == 0 => None,
        1 if length == row_count.div_ceil(8) => {
            Some(NullBuffer::new(BooleanBuffer::new(Buffer::from(validity), 0, row_count)))
        }
        2 | 3 => {
            let head = validity.first_chunk::<4>().ok_or_else(|| truncated(HEAD + 4))?;
            let count = size_of(u32::from_le_bytes(*head));
            let (slots, _) = Integers::parse(&validity.slice(4..), count.min(row_count))?;
            let mut valid = vec![if kind == 2 { u8::MAX } else { 0 }; row_count.div_ceil(8)];
            let mut outside = count > row_count;
            slots.each_block(0..slots.count(), |block| {
                for slot in block {
                    let slot = usize::try_from(*slot).unwrap_or(usize::MAX);
                    match valid.get_mut(slot / 8).filter(|_| slot < row_count) {
                        Some(byte) if kind == 2 => *byte &= !(1 << (slot % 8)),
                        Some(byte) => *byte |= 1 << (slot % 8),
                        None => outside = true,
                    }
                }
            });
            if outside {
                return Err(Corruption::Values("a NULL at a slot that there is not".into()));
            }
            Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(valid), 0, row_count)))
        }
        _ => return Err(Corruption::Values(format!("a validity of the unknown kind {kind}"))),
    };
    Ok((nulls, bytes.slice(end..)))
}

fn parse_body(chunk: &Chunk<'_>, body: &Bytes, row_count: usize) -> Result<OpenValues, Corruption> {
    let truncated = || Corruption::Truncated { expected: 8, found: body.len() as u64 };
    let (values, rest) = match chunk.entry.encoding {
        Encoding::Integers => {
            let (integers, rest) = Integers::parse(body, row_count)?;
            (OpenValues::Integers(integers), rest)
        }
        Encoding::Scaled => {
            let [digits, zeros @ ..] = *body.first_chunk::<8>().ok_or_else(truncated)?;
            if digits > DIGITS_MAX || zeros != [0; 7] {
                return Err(Corruption::Values(format!("numbers of {digits} digits")));
            }
            let (integers, rest) = Integers::parse(&body.slice(8..), row_count)?;
            (OpenValues::Scaled(integers, digits), rest)
        }
        Encoding::Strings => (OpenValues::Strings(Strings::parse(body, row_count)?), Bytes::new()),
        Encoding::Dictionary => {
            let head = *body.first_chunk::<8>().ok_or_else(truncated)?;
            let count = usize::try_from(u64::from_le_bytes(head)).unwrap_or(usize::MAX);
            if count == 0 || count > row_count {
                return Err(Corruption::Values(format!("{count} entries for {row_count} rows")));
            }
            let (codes, rest) = Integers::parse(&body.slice(8..), row_count)?;
            let entries = match chunk.entry.value_type.layout() {
                Layout::Fixed(width) if rest.len() == count * width => {
                    Entries::Fixed { bytes: rest, width }
                }
                Layout::Bytes => Entries::Texts(Strings::parse(&rest, count)?),
                _ => {
                    let reason = format!("{} bytes of {count} entries", rest.len());
                    return Err(Corruption::Values(reason));
                }
            };
            (OpenValues::Dictionary { codes, entries, decoded: OnceLock::new() }, Bytes::new())
        }
        _ => return Err(Corruption::Values("no light encoding".into())),
    };
    if rest.is_empty() {
        Ok(values)
    } else {
        Err(Corruption::Values(format!("{} bytes too many", rest.len())))
    }
}

fn rule(base: u64, step: u64, slot: usize) -> u64 {
    base.wrapping_add(step.wrapping_mul(slot as u64))
}

/// The numbers of a range as values of another type.
fn blocks<T: ArrowNativeType>(
    integers: &Integers,
    range: Range<usize>,
    convert: impl Fn(i64) -> T,
) -> Buffer {
    let mut values = Vec::with_capacity(range.len());
    integers.extend(range, &mut values, convert);
    Buffer::from_vec(values)
}

/// The selected numbers of a range as values of another type.
fn selected<T: ArrowNativeType>(
    integers: &Integers,
    range: Range<usize>,
    bits: &BooleanBuffer,
    count: usize,
    convert: impl Fn(i64) -> T,
) -> Buffer {
    let mut values = Vec::with_capacity(count);
    integers.extend_selected(range, bits, &mut values, convert);
    Buffer::from_vec(values)
}

fn range_codes(codes: &Integers, range: Range<usize>) -> Vec<u32> {
    let mut all = Vec::with_capacity(range.len());
    codes.extend(range, &mut all, to_code);
    all
}

/// A code; an invalid one becomes one that no dictionary has.
fn to_code(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "writers put in 16 bits; of others some bits will do"
)]
fn to_i16(value: i64) -> i16 {
    value as i16
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "writers put in 32 bits; of others some bits will do"
)]
fn to_i32(value: i64) -> i32 {
    value as i32
}
