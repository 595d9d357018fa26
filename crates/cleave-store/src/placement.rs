//! Placement: a logical page, a RecID or a VID in, the physical page and slot out.
//!
//! 1. [`SegmentDirectory::page`] finds a logical page, [`SegmentDirectory::slot_of`] the page and slot of a VID.
//! 2. [`Placement`] does both over all segments of a tablet, from what the version map says.
//!
//! Invariant: a segment that a run of the version map names holds VIDs in ascending order, and its directory knows the
//! gaps within a page, so that it finds a VID by binary search and no page is read for that. Segments with versions of
//! scattered VIDs are reached by RecID only.
//!
//! Source: `design.md`, "Words" (placement map) and "Native storage"; rule 15.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::ids::{RecId, SegmentId};
use crate::page_source::PageRef;
use crate::segment::{PageEntry, SegmentDirectory};
use crate::version::{VersionMap, VersionPlace};

/// The segments of one tablet. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    segments: BTreeMap<SegmentId, Arc<SegmentDirectory>>,
}

/// Where a version lies: all that a read of it needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowPlace<'a> {
    /// The segment.
    pub directory: &'a SegmentDirectory,
    /// The page.
    pub entry: &'a PageEntry,
    /// The slot in the page.
    pub slot: u16,
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

    /// The range of VIDs in which those of its rows lie: first and count. Where rows were pruned, not all of them are
    /// on the page.
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

    /// Where the version `record` lies; None: no such segment, page or slot.
    #[must_use]
    pub fn record(&self, record: RecId) -> Option<RowPlace<'_>> {
        let directory = self.segments.get(&record.segment())?;
        let entry = directory.page(record.page())?;
        (u32::from(record.slot()) < entry.page.row_count).then_some(RowPlace {
            directory,
            entry,
            slot: record.slot(),
        })
    }

    /// Where the newest version of `vid` lies, by `map`; None: no such row, or none of these segments has it.
    #[must_use]
    pub fn newest(&self, map: &VersionMap, vid: u64) -> Option<RowPlace<'_>> {
        match map.lookup(vid)? {
            VersionPlace::Record(record) => self.record(record),
            VersionPlace::Segment(segment) => {
                let directory = self.segments.get(&segment)?;
                let (entry, slot) = directory.slot_of(vid)?;
                Some(RowPlace { directory, entry, slot })
            }
        }
    }
}

impl RowPlace<'_> {
    /// The version's name; None only for a directory that no decoder accepted.
    #[must_use]
    pub fn record(&self) -> Option<RecId> {
        RecId::new(self.directory.segment, self.entry.page.page, self.slot).ok()
    }
}

#[cfg(test)]
mod tests;
