//! One column of one page, opened once: ranges of its rows out, or predicates evaluated on all rows without decoding
//! them.
//!
//! 1. [`OpenColumn::open`] finds the column's chunk, or that the page has none.
//! 2. [`OpenColumn::compare`] and [`OpenColumn::contained_in`] evaluate a predicate on packed integers as they are
//!    stored, [`OpenColumn::emptiness`] on the lengths of texts, [`OpenColumn::distinct_values`] and
//!    [`OpenColumn::coded_in`] once for each distinct value of a dictionary.
//! 3. [`OpenColumn::codes`] and [`OpenColumn::integers`] return the stored form, for an aggregate that works on it.
//! 4. [`OpenColumn::decode`] makes an array of the remaining rows, a [`Pick`].
//!
//! A column that the page lacks supports arrays only.
//!
//! Invariant: all methods agree on the values; the choice among them changes the time and never the result.

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::ops::Range;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;

use super::batch::{Lacking, Source, source};
use crate::absent_value::AbsentValues;
use crate::error::StoreError;
use crate::integer_set::{IntegerSet, Kept};
use crate::page::encoding::{OpenChunk, Pick, size_of};
use crate::page::overflow::OverflowValues;
use crate::page_source::{ColumnRef, PageColumns, PageRead};

/// A column of a page, ready to decode. Shares the page's memory.
#[derive(Debug)]
pub struct OpenColumn {
    row_count: usize,
    source: OpenSource,
}

#[derive(Debug)]
enum OpenSource {
    Chunk(Box<OpenChunk>),
    Absent(Lacking),
}

impl OpenColumn {
    /// Opens `column`, expected to be of type `data_type`, of a page that was read as `read` says; a page without the
    /// column has the value in `absent`. Of long values only those of the rows in `selection` (None: all) need be among
    /// `overflow`; others become empty.
    ///
    /// # Errors
    /// As [`super::decode_batch`].
    pub fn open(
        page: &PageColumns,
        read: &PageRead,
        column: ColumnRef,
        data_type: &DataType,
        absent: &AbsentValues,
        overflow: &OverflowValues,
        selection: Option<&BooleanBuffer>,
    ) -> Result<Self, StoreError> {
        let source = match source(page, read, column, data_type, absent)? {
            Source::Chunk(chunk) => OpenSource::Chunk(Box::new(chunk.open(overflow, selection)?)),
            Source::Absent(lacking) => OpenSource::Absent(lacking),
        };
        Ok(Self { row_count: size_of(page.header.row_count), source })
    }

    /// The values of the picked rows.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] where the chunk does not decode, [`StoreError::Mismatch`] for rows that the page does
    /// not have.
    pub fn decode(&self, pick: &Pick) -> Result<ArrayRef, StoreError> {
        if pick.range().end > self.row_count {
            return Err(StoreError::Mismatch {
                what: "decoding a column",
                reason: format!("rows {:?} of {}", pick.range(), self.row_count),
            });
        }
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.decode(pick),
            OpenSource::Absent(lacking) => lacking.array(pick.count()),
        }
    }

    /// The distinct values of all rows, and for each row the index of its value among them (NULL for NULL); None unless
    /// the column is dictionary-encoded.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] where the values do not decode.
    pub fn distinct(&self) -> Result<Option<(ArrayRef, UInt32Array)>, StoreError> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.distinct(),
            OpenSource::Absent(_) => Ok(None),
        }
    }

    /// The distinct values of a dictionary-encoded column; [`OpenColumn::codes`] are indices into them.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] where the values do not decode.
    pub fn distinct_values(&self) -> Result<Option<ArrayRef>, StoreError> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.distinct_values(),
            OpenSource::Absent(_) => Ok(None),
        }
    }

    /// Appends, for each row of `range`, the index of its value in [`OpenColumn::distinct_values`]; NULLs have any
    /// index. A damaged page may give indices out of range. False if the column is not dictionary-encoded.
    #[must_use]
    pub fn codes(&self, range: Range<usize>, target: &mut Vec<u32>) -> bool {
        match &self.source {
            OpenSource::Chunk(chunk) if range.end <= self.row_count => chunk.codes(range, target),
            _ => false,
        }
    }

    /// Appends the rows of `range` as integers: unscaled numerics, dates and times in their stored unit; NULLs have any
    /// value. False if the column is not stored as 64-bit integers.
    #[must_use]
    pub fn integers(&self, range: Range<usize>, target: &mut Vec<i64>) -> bool {
        match &self.source {
            OpenSource::Chunk(chunk) if range.end <= self.row_count => {
                chunk.integers(range, target)
            }
            _ => false,
        }
    }

    /// Appends those rows of `range` that are `selected`, a bit for each, as [`OpenColumn::integers`] gives them.
    #[must_use]
    pub fn integers_selected(
        &self,
        range: Range<usize>,
        selected: &BooleanBuffer,
        target: &mut Vec<i64>,
    ) -> bool {
        match &self.source {
            OpenSource::Chunk(chunk)
                if range.end <= self.row_count && selected.len() == range.len() =>
            {
                chunk.integers_selected(range, selected, target)
            }
            _ => false,
        }
    }

    /// Bounds of the values of [`OpenColumn::integers`], if the heads of the page's encodings tell them.
    #[must_use]
    pub fn integer_bounds(&self) -> Option<(i64, i64)> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.integer_bounds(),
            OpenSource::Absent(_) => None,
        }
    }

    /// Whether the page has the column; one that was added later has one value for all rows of it.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self.source, OpenSource::Chunk(_))
    }

    /// Which rows are not NULL; None for all. Does not apply to a column that the page lacks.
    #[must_use]
    pub fn nulls(&self) -> Option<&NullBuffer> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.nulls(),
            OpenSource::Absent(_) => None,
        }
    }

    /// For each row whether comparing its value with `other` gives one of `wanted`; NULLs give false. None unless the
    /// column is stored as integers, or as values of their order (dates, times, unscaled decimals).
    #[must_use]
    pub fn compare(&self, other: i128, wanted: impl Fn(Ordering) -> bool) -> Option<BooleanBuffer> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.compare(other, wanted),
            OpenSource::Absent(_) => None,
        }
    }

    /// The rows of `kept` whose values are in `set`; NULLs are in none. None unless the column is of integers or days,
    /// and not dictionary-encoded.
    #[must_use]
    pub fn contained_in(&self, set: &IntegerSet, kept: &BooleanBuffer) -> Option<BooleanBuffer> {
        match &self.source {
            OpenSource::Chunk(chunk) if kept.len() == self.row_count => {
                chunk.contained_in(set, &Kept::of(kept))
            }
            _ => None,
        }
    }

    /// The rows of `kept` whose texts are empty, or are not, as `empty` says; NULLs are neither. None unless the
    /// column is of texts that the page has.
    #[must_use]
    pub fn emptiness(&self, empty: bool, kept: &BooleanBuffer) -> Option<BooleanBuffer> {
        match &self.source {
            OpenSource::Chunk(chunk) if kept.len() == self.row_count => {
                chunk.emptiness(empty, kept)
            }
            _ => None,
        }
    }

    /// The rows of `kept` whose indices into [`OpenColumn::distinct_values`] are in `codes`, and the NULL rows if
    /// `null` says so; None unless the column is dictionary-encoded.
    #[must_use]
    pub fn coded_in(
        &self,
        codes: &IntegerSet,
        null: bool,
        kept: &BooleanBuffer,
    ) -> Option<BooleanBuffer> {
        match &self.source {
            OpenSource::Chunk(chunk) if kept.len() == self.row_count => {
                chunk.coded_in(codes, null, &Kept::of(kept))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
