//! One page of a run, searched where it lies: a key in, its row out.
//!
//! A page holds thousands of entries. A look-up is a binary search of about a dozen steps, and reads only the rows that
//! it found; decoding the page would validate every entry first.
//!
//! Invariant: the result is that of [`super::run::KeyBlock`] for the same page, provided that its entries ascend. A
//! page whose first or last key is not its fence is damaged.

#![deny(clippy::indexing_slicing)]

use arrow::array::{Array, BinaryArray};

use super::run::{IndexEntry, KEY_COLUMN, KeyRange, Walk, check_fences, check_kind};
use crate::decode::OpenedPage;
use crate::error::StoreError;
use crate::page_source::{ColumnRef, PageRead};
use crate::segment::PageEntry;

/// A page of a run. See the module's description.
#[derive(Debug)]
pub(super) struct PageEntries<'a> {
    page: &'a OpenedPage,
    keys: &'a BinaryArray,
}

impl<'a> PageEntries<'a> {
    /// The entries of `page`, which `read` describes; None if their encoding must be decoded.
    ///
    /// # Errors
    /// [`StoreError::Frame`] for a page that contradicts its fences, [`StoreError::Corrupt`] for a chunk that lies.
    pub(super) fn open(
        entry: &PageEntry,
        read: &PageRead,
        page: &'a OpenedPage,
    ) -> Result<Option<Self>, StoreError> {
        check_kind(read, page.header())?;
        let keys = page.binary(ColumnRef::User(KEY_COLUMN));
        let Some(keys) = keys.filter(|keys| keys.null_count() == 0) else { return Ok(None) };
        let entries = Self { page, keys };
        let last = keys.len().saturating_sub(1);
        check_fences(entry, read, entries.key(0).zip(entries.key(last)))?;
        Ok(Some(entries))
    }

    /// The row of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let slot = self.position(key);
        if self.key(slot) != Some(key) {
            return Ok(None);
        }
        let mut row = Vec::with_capacity(1);
        self.rows(slot..slot.saturating_add(1), &mut row)?;
        Ok(row.first().copied())
    }

    /// Adds the rows of the entries in `range` to `rows`.
    pub(super) fn rows_in(&self, range: &KeyRange, rows: &mut Vec<u64>) -> Result<(), StoreError> {
        let slots = self.slots_of(range);
        if slots.is_empty() { Ok(()) } else { self.rows(slots, rows) }
    }

    /// Adds the entries that `walk` asks for to `found`.
    pub(super) fn walk(
        &self,
        walk: &Walk<'_>,
        is_wanted: &(dyn Fn(u64) -> bool + Sync),
        found: &mut Vec<IndexEntry>,
    ) -> Result<(), StoreError> {
        let mut slots = self.slots_of(walk.range);
        // Most often the first ones suffice: not all of a page's rows need be read.
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
                let key = self.key(first.saturating_add(place)).unwrap_or_default();
                Ok((key, rows.get(place).copied().unwrap_or(u64::MAX)))
            };
            walk.take(rows.len(), entry, is_wanted, found)?;
            piece_count = piece_count.saturating_mul(4);
        }
        Ok(())
    }

    fn slots_of(&self, range: &KeyRange) -> std::ops::Range<usize> {
        let from = self.position(&range.from);
        let below = range.below.as_ref().map_or(self.keys.len(), |below| self.position(below));
        from..below.max(from)
    }

    fn rows(&self, slots: std::ops::Range<usize>, rows: &mut Vec<u64>) -> Result<(), StoreError> {
        self.page.unsigned(ColumnRef::Vid, slots, rows)
    }

    fn key(&self, slot: usize) -> Option<&'a [u8]> {
        (slot < self.keys.len()).then(|| self.keys.value(slot))
    }

    /// Slot of the first entry that is not below `key`.
    fn position(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.keys.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle).is_some_and(|found| found < key) {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low
    }
}
