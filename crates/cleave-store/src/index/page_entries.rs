//! One page of a run, searched where it lies: a key in, its row out.
//!
//! A page holds thousands of entries. A look-up halves them a dozen times and reads the rows it found; decoding the page
//! would check every entry first.
//!
//! Invariant: what comes out is what [`super::run::KeyBlock`] of the same page would give, as far as entries ascend; a
//! page whose first or last key is not its fence is damage.

#![deny(clippy::indexing_slicing)]

use arrow::array::AsArray;
use arrow::datatypes::{DataType, UInt64Type};

use super::run::{IndexEntry, KEY_COLUMN, KeyRange, Walk, check_fences, check_kind};
use crate::decode::batch::{Source, source};
use crate::decode::{OpenColumn, Pick};
use crate::error::StoreError;
use crate::page::OverflowValues;
use crate::page::encoding::{InlineValues, size_of};
use crate::page_source::{ColumnRef, PageColumns, PageRead};
use crate::segment::PageEntry;

/// A page of a run. See the module's description.
#[derive(Debug)]
pub(super) struct PageEntries<'a> {
    read: &'a PageRead,
    page: &'a PageColumns,
    keys: InlineValues<'a>,
    count: usize,
}

impl<'a> PageEntries<'a> {
    /// The entries of `page`, which `read` answers; None: they are stored so that they must be decoded.
    ///
    /// # Errors
    /// [`StoreError::Frame`] for a page that contradicts its fences, [`StoreError::Corrupt`] for a chunk that lies.
    pub(super) fn open(
        entry: &PageEntry,
        read: &'a PageRead,
        page: &'a PageColumns,
    ) -> Result<Option<Self>, StoreError> {
        check_kind(read, page)?;
        let chunk = match source(page, read, ColumnRef::User(KEY_COLUMN), &DataType::Binary)? {
            Source::Chunk(chunk) => chunk,
            Source::Absent(..) => return Ok(None),
        };
        let Some(keys) = chunk.inline_values()? else { return Ok(None) };
        let entries = Self { read, page, keys, count: size_of(page.header.row_count) };
        let last = entries.count.saturating_sub(1);
        check_fences(entry, read, Some((entries.keys.get(0)?, entries.keys.get(last)?)))?;
        Ok(Some(entries))
    }

    /// The row of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let slot = self.position(key)?;
        if slot == self.count || self.keys.get(slot)? != key {
            return Ok(None);
        }
        let mut row = Vec::with_capacity(1);
        self.rows(slot..slot.saturating_add(1), &mut row)?;
        Ok(row.first().copied())
    }

    /// Adds the rows of the entries in `range` to `rows`.
    pub(super) fn rows_in(&self, range: &KeyRange, rows: &mut Vec<u64>) -> Result<(), StoreError> {
        let slots = self.slots_of(range)?;
        if slots.is_empty() { Ok(()) } else { self.rows(slots, rows) }
    }

    /// Adds the entries that `walk` asks for to `found`.
    pub(super) fn walk(
        &self,
        walk: &Walk<'_>,
        is_wanted: &(dyn Fn(u64) -> bool + Sync),
        found: &mut Vec<IndexEntry>,
    ) -> Result<(), StoreError> {
        let mut slots = self.slots_of(walk.range)?;
        // Most often the first ones do: not all of a page's rows need be read.
        let mut piece_count = walk.limit.saturating_sub(found.len()).saturating_mul(2);
        while !slots.is_empty() && found.len() < walk.limit {
            let count = piece_count.clamp(16, slots.len().max(16)).min(slots.len());
            let piece = match walk.backward {
                false => slots.start..slots.start.saturating_add(count),
                true => slots.end.saturating_sub(count)..slots.end,
            };
            slots = match walk.backward {
                false => piece.end..slots.end,
                true => slots.start..piece.start,
            };
            let (first, mut rows) = (piece.start, Vec::with_capacity(count));
            self.rows(piece, &mut rows)?;
            let entry = |place: usize| {
                let key = self.keys.get(first.saturating_add(place))?;
                Ok((key, rows.get(place).copied().unwrap_or(u64::MAX)))
            };
            walk.take(rows.len(), entry, is_wanted, found)?;
            piece_count = piece_count.saturating_mul(4);
        }
        Ok(())
    }

    fn slots_of(&self, range: &KeyRange) -> Result<std::ops::Range<usize>, StoreError> {
        let from = self.position(&range.from)?;
        let below = match &range.below {
            Some(below) => self.position(below)?,
            None => self.count,
        };
        Ok(from..below.max(from))
    }

    fn rows(&self, slots: std::ops::Range<usize>, rows: &mut Vec<u64>) -> Result<(), StoreError> {
        let none = OverflowValues::none();
        let (read, page) = (self.read, self.page);
        let vids = OpenColumn::open(page, read, ColumnRef::Vid, &DataType::UInt64, &none, None)?;
        let vids = vids.decode(&Pick::new(slots, None, 1)?)?;
        rows.extend_from_slice(vids.as_primitive::<UInt64Type>().values());
        Ok(())
    }

    /// Slot of the first entry that is not below `key`.
    fn position(&self, key: &[u8]) -> Result<usize, StoreError> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.keys.get(middle)? < key {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}
