//! Finds pages and rows: a logical page or a VID in, the physical page and slot out.
//!
//! 1. [`SegmentDirectory::page`] finds a logical page, [`SegmentDirectory::slot_of`] the page and slot of a VID.
//! 2. [`Placement`] finds the segments of a tablet.
//!
//! Invariant: a segment that a run of the version map names holds VIDs in ascending order, and its directory knows the
//! gaps within each page. A VID is therefore found by binary search, without reading a page.
//!
//! Source: `docs/design/pages-and-encodings.md`; rule 15.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::ids::SegmentId;
use crate::page_source::PageRef;
use crate::segment::{PageEntry, SegmentDirectory};

/// The segments of one tablet. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    segments: BTreeMap<SegmentId, Arc<SegmentDirectory>>,
}

impl SegmentDirectory {
    /// The page with this logical number; overflow pages are not found.
    #[must_use]
    pub fn page(&self, page: u32) -> Option<&PageEntry> {
        let index = self.pages.binary_search_by_key(&page, |entry| entry.page.page).ok()?;
        self.pages.get(index)
    }

    /// Page and slot of `vid`, in a segment that holds VIDs in ascending order.
    #[must_use]
    pub fn slot_of(&self, vid: u64) -> Option<(&PageEntry, u16)> {
        let after = self.pages.partition_point(|entry| entry.vid_first <= vid);
        let entry = self.pages.get(after.checked_sub(1)?)?;
        Some((entry, entry.slot_of(vid)?))
    }
}

impl PageEntry {
    /// The overflow page with this logical number.
    #[must_use]
    pub fn overflow_page(&self, page: u32) -> Option<PageRef> {
        self.overflow.iter().find(|overflow| overflow.page == page).copied()
    }

    /// The range of VIDs of the page's rows: first and count. If rows were pruned, not all of these VIDs are on the
    /// page.
    #[must_use]
    pub fn vids(&self) -> (u64, u64) {
        (self.vid_first, u64::from(self.page.row_count).saturating_add(self.gaps.missing()))
    }

    /// One past its last VID.
    #[must_use]
    pub fn vid_end(&self) -> u64 {
        let (first, count) = self.vids();
        first.saturating_add(count)
    }

    /// The VIDs of its rows, by slot, as stretches that count up one by one.
    pub fn vid_stretches(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.vid_first;
        let behind = move |offset: Range<u64>| {
            first.saturating_add(offset.start)..first.saturating_add(offset.end)
        };
        self.gaps.stretches(self.page.row_count).map(behind)
    }

    /// The VIDs of its rows, by slot.
    pub fn row_vids(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.page.row_count)
            .map(|slot| self.vid_first.saturating_add(self.gaps.offset_of(slot)))
    }

    /// The slot of `vid`; None: it is not on the page.
    #[must_use]
    pub fn slot_of(&self, vid: u64) -> Option<u16> {
        let slot = self.gaps.slot_at(vid.checked_sub(self.vid_first)?)?;
        let slot = Some(slot).filter(|slot| *slot < u64::from(self.page.row_count));
        slot.and_then(|slot| u16::try_from(slot).ok())
    }
}

impl Placement {
    /// A placement of no segments.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a segment or replaces its directory.
    pub fn insert(&mut self, directory: Arc<SegmentDirectory>) {
        self.segments.insert(directory.segment, directory);
    }

    /// The directory of a segment.
    #[must_use]
    pub fn segment(&self, segment: SegmentId) -> Option<&Arc<SegmentDirectory>> {
        self.segments.get(&segment)
    }

    /// All segments, ascending.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<SegmentDirectory>> {
        self.segments.values()
    }
}

#[cfg(test)]
mod tests;
