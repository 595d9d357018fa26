//! One column of one page, opened once: ranges of its rows out, or answers about all rows without decoding them.
//!
//! 1. [`OpenColumn::open`] finds the column's chunk, or that the page has none.
//! 2. [`OpenColumn::compare`] and [`OpenColumn::contained_in`] let a predicate work on packed integers as they are
//!    stored, [`OpenColumn::distinct_values`] and [`OpenColumn::coded_in`] once a distinct value of a dictionary.
//! 3. [`OpenColumn::codes`] and [`OpenColumn::integers`] hand out what is stored, for an aggregate that works on it.
//! 4. [`OpenColumn::decode`] makes an array of the rows that are left, a [`Pick`].
//!
//! A page without the column is asked for arrays only.
//!
//! Invariant: all of them speak of the same values; which of them a caller asks changes time and never rows.

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

/// A column of a page, ready to decode. Keeps its share of the page's memory.
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
    /// Opens `column`, whose type the caller expects to be `data_type`, of a page that was read as `read` says; a page
    /// without it has what `absent` says. Of long values only those of the rows in `selection` (None: all) need be
    /// among `overflow`; others become empty.
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

    /// The distinct values of all rows, and for each row the place of its value among them (NULL: it is NULL), where
    /// the column is stored so.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] where the values do not decode.
    pub fn distinct(&self) -> Result<Option<(ArrayRef, UInt32Array)>, StoreError> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.distinct(),
            OpenSource::Absent(_) => Ok(None),
        }
    }

    /// The distinct values of the column, where it is stored so; [`OpenColumn::codes`] are their places.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] where the values do not decode.
    pub fn distinct_values(&self) -> Result<Option<ArrayRef>, StoreError> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.distinct_values(),
            OpenSource::Absent(_) => Ok(None),
        }
    }

    /// Appends, for each row of `range`, the place of its value among [`OpenColumn::distinct_values`]; NULLs have any
    /// place. A damaged page may give places that there are not. False: the column is not stored so.
    #[must_use]
    pub fn codes(&self, range: Range<usize>, target: &mut Vec<u32>) -> bool {
        match &self.source {
            OpenSource::Chunk(chunk) if range.end <= self.row_count => chunk.codes(range, target),
            _ => false,
        }
    }

    /// Appends the rows of `range` as integers: numerics by their digits, dates and times as they lie, NULLs as any.
    /// False: the column is not stored as integers of 64 bits.
    #[must_use]
    pub fn integers(&self, range: Range<usize>, target: &mut Vec<i64>) -> bool {
        match &self.source {
            OpenSource::Chunk(chunk) if range.end <= self.row_count => {
                chunk.integers(range, target)
            }
            _ => false,
        }
    }

    /// Bounds of what [`OpenColumn::integers`] gives, where the page's heads tell them.
    #[must_use]
    pub fn integer_bounds(&self) -> Option<(i64, i64)> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.integer_bounds(),
            OpenSource::Absent(_) => None,
        }
    }

    /// Which rows are not NULL; None: all, as far as it is not a column that the page does not have.
    #[must_use]
    pub fn nulls(&self) -> Option<&NullBuffer> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.nulls(),
            OpenSource::Absent(_) => None,
        }
    }

    /// For each row whether comparing its value with `other` gives one of `wanted`; NULLs give false. Where the column
    /// is of integers, or of what has their order (dates, times, decimals by their digits), and stored as such.
    #[must_use]
    pub fn compare(&self, other: i128, wanted: impl Fn(Ordering) -> bool) -> Option<BooleanBuffer> {
        match &self.source {
            OpenSource::Chunk(chunk) => chunk.compare(other, wanted),
            OpenSource::Absent(_) => None,
        }
    }

    /// The rows of `kept` whose values are in `set`; NULLs are in none. Where the column is of integers or days, and
    /// not stored as distinct values.
    #[must_use]
    pub fn contained_in(&self, set: &IntegerSet, kept: &BooleanBuffer) -> Option<BooleanBuffer> {
        match &self.source {
            OpenSource::Chunk(chunk) if kept.len() == self.row_count => {
                chunk.contained_in(set, &Kept::of(kept))
            }
            _ => None,
        }
    }

    /// The rows of `kept` whose places among [`OpenColumn::distinct_values`] are in `codes`, where the column is stored
    /// so; those that are NULL, if `null` says it.
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
