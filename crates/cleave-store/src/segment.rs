//! Segment directories: the places of the pages of one append-only segment, and facts about each without reading it.
//!
//! ```text
//!   SegmentDirectory ─┬─ PageEntry: page 0 ─▶ extent, checksum, rows, first VID, zones
//!                     ├─ PageEntry: page 1 ─▶ ...            └─ overflow ─▶ pages 2, 3
//!                     └─ PageEntry: page 4 ─▶ ...            └─ shared ─▶ blocks of earlier versions of page 4
//! ```
//!
//! 1. A writer passes encoded pages, with the places that the host chose, to [`SegmentDirectory::append`].
//! 2. The host keeps the directory of an open segment in its manifest, that of a sealed one in a file of its own;
//!    [`SegmentDirectory::encode`] frames it with a magic number, a format version and a checksum.
//! 3. Readers prune by [`SegmentDirectory::zone_arrays`], and look up pages with `placement.rs`.
//!
//! Invariant: entries ascend by logical page, and all logical numbers of an entry, including its overflow pages, are
//! above those of the entry before it. Numbers are unique. Every page has at least one row and one block, and no more
//! than pages may have. An overflow page belongs to the entry that points to it. [`SegmentDirectory::decode`] refuses
//! anything else. Since an entry carries the page's checksum, the directory covers every byte of the segment.
//!
//! Source: `docs/design/pages-and-encodings.md`; rule 17 (zone maps).

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use cleave_media::{BlockAddress, Extent};
use prost::Message;

use crate::error::StoreError;
use crate::frame::{Format, FrameError};
use crate::ids::{PAGE_MAX, RecId, SegmentId};
use crate::page::{EncodedPage, PAGE_ROW_COUNT_MAX, PageClass, PageKind, block_count_max};
use crate::page_source::{PageRef, SegmentRef};
use crate::proto;
use crate::vid_gaps::VidGaps;
use crate::zone_map::{ZoneArrays, ZoneEntry, zone_arrays};

/// The frame of directories; the newest version is written, all are read.
pub const DIRECTORY: Format =
    Format { magic: *b"CLVSEGDR", name: "segment directory", versions: 1..=3 };

/// A segment: what it is, and all its pages.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentDirectory {
    /// The segment.
    pub segment: SegmentId,
    /// The kind of its contents.
    pub kind: SegmentKind,
    /// The table.
    pub table_id: u32,
    /// Version of the table's schema that its pages are written in.
    pub schema_version: u32,
    /// Commit number of rows whose page refers to the segment for it; 0 while the run that writes it is open.
    pub commit: u64,
    /// How large its pages are.
    pub class: PageClass,
    /// Nothing is appended any more.
    pub sealed: bool,
    /// Pages with rows, ascending by logical number.
    pub pages: Vec<PageEntry>,
}

/// The kind of contents of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SegmentKind {
    /// Versions of rows.
    Heap,
    /// A sorted run of an index.
    Index(RunProperties),
}

/// Properties of an index run as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunProperties {
    /// Which index of the table; 0 is the primary key.
    pub index_id: u32,
    /// Level in the LSM tree, 0 for a flushed memtable.
    pub level: u32,
    /// Filter over all keys of the run, to skip it in look-ups; None: there is none.
    pub filter: Option<KeyFilter>,
}

/// A filter over keys, as stored ([`crate::index::filter`]). A kind that a build does not know counts as no filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFilter {
    /// How to read the bytes; kinds are never reused. 0 is not a kind.
    pub kind: u32,
    /// The filter.
    pub bytes: Vec<u8>,
}

/// A page with rows, its overflow pages, and what is known of both.
#[derive(Debug, Clone, PartialEq)]
pub struct PageEntry {
    /// Logical number, place and checksum.
    pub page: PageRef,
    /// VID of slot 0.
    pub vid_first: u64,
    /// Where the VIDs of successive rows are not consecutive.
    pub gaps: VidGaps,
    /// Pages with the long values of this one, ascending by logical number.
    pub overflow: Vec<PageRef>,
    /// Blocks of earlier versions of the page in which chunks lie that it shares with them, ascending.
    pub shared: Vec<Extent>,
    /// Bounds of its user columns; of an index run the first and last key, whole.
    pub zones: Vec<ZoneEntry>,
}

impl SegmentDirectory {
    /// An open segment without pages.
    #[must_use]
    pub fn new(segment: SegmentRef, kind: SegmentKind, class: PageClass) -> Self {
        Self {
            segment: segment.segment,
            kind,
            table_id: segment.table_id,
            schema_version: segment.schema_version,
            commit: segment.commit,
            class,
            sealed: false,
            pages: Vec::new(),
        }
    }

    /// A sealed segment of `pages`, which already have their places.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for pages that make no segment.
    pub fn sealed(
        segment: SegmentRef,
        kind: SegmentKind,
        class: PageClass,
        pages: Vec<PageEntry>,
    ) -> Result<Self, StoreError> {
        let directory = Self { pages, sealed: true, ..Self::new(segment, kind, class) };
        match directory.validate() {
            Ok(()) => Ok(directory),
            Err(reason) => Err(StoreError::Mismatch { what: "a sealed segment", reason }),
        }
    }

    /// The properties that its pages share, for reads.
    #[must_use]
    pub fn segment_ref(&self) -> SegmentRef {
        SegmentRef {
            table_id: self.table_id,
            segment: self.segment,
            schema_version: self.schema_version,
            commit: self.commit,
        }
    }

    /// Rows of all pages.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.pages.iter().map(|entry| u64::from(entry.page.row_count)).sum()
    }

    /// Logical number for the next page.
    #[must_use]
    pub fn next_page(&self) -> u32 {
        self.pages.last().map_or(0, |entry| entry.number_last().saturating_add(1))
    }

    /// Every page, overflow pages behind the page they belong to.
    pub fn page_refs(&self) -> impl Iterator<Item = &PageRef> {
        self.pages.iter().flat_map(PageEntry::page_refs)
    }

    /// The places of all pages, and those of chunks that page versions share: what the segment occupies.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.pages.iter().flat_map(PageEntry::extents)
    }

    /// Adds pages in the order in which they were encoded, each with the first block of its place. An overflow page
    /// comes before the page that points to it. Pages that begin at the logical number of the last entry replace it
    /// (the tail of a hot segment, rewritten with more rows). Returns the extents that it no longer needs, which the
    /// caller retires.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`], which leaves the directory unchanged: pages out of order, missing or unclaimed
    /// overflow pages, a sealed segment.
    pub fn append(
        &mut self,
        written: &[(&EncodedPage, BlockAddress)],
    ) -> Result<Vec<Extent>, StoreError> {
        let refused = |reason: String| StoreError::Mismatch { what: "a segment directory", reason };
        if self.sealed {
            return Err(refused(format!("{} is sealed", self.segment)));
        }
        let first = written.iter().find(|(page, _)| page.kind != PageKind::Overflow);
        let tail = self
            .pages
            .last()
            .filter(|tail| first.is_some_and(|(first, _)| first.page == tail.page.page));
        let kept_count = self.pages.len().saturating_sub(usize::from(tail.is_some()));
        let old_overflow = tail.map(|tail| tail.overflow.clone()).unwrap_or_default();
        let mut retired: Vec<Extent> = tail
            .iter()
            .flat_map(|tail| std::iter::once(&tail.page.extent).chain(&tail.shared))
            .copied()
            .collect();

        let mut overflow = old_overflow.clone();
        let mut entries = Vec::new();
        for (page, start) in written {
            let page_ref = page.page_ref(*start);
            if page.kind == PageKind::Overflow {
                overflow.push(page_ref);
                continue;
            }
            let (first, count) = page.overflow_first_count;
            let wanted = first..first.saturating_add(count);
            let (mine, others): (Vec<_>, Vec<_>) =
                overflow.into_iter().partition(|page| wanted.contains(&page.page));
            if u32::try_from(mine.len()) != Ok(count) {
                let (page, mine) = (page.page, mine.len());
                return Err(refused(format!("page {page} has {mine} of {count} overflow pages")));
            }
            overflow = others;
            entries.push(PageEntry {
                page: page_ref,
                vid_first: page.vid_first,
                gaps: VidGaps::none(),
                overflow: mine,
                shared: Vec::new(),
                zones: page.zones.clone(),
            });
        }
        // Overflow pages of the old tail may drop out; new ones may not appear.
        if let Some(page) = overflow.iter().find(|page| !old_overflow.contains(page)) {
            return Err(refused(format!("nothing points to overflow page {}", page.page)));
        }
        retired.extend(overflow.iter().map(|page| page.extent));

        let kept = self.pages.get(..kept_count).unwrap_or_default();
        let mut last = kept.last().map(PageEntry::number_last);
        for entry in &entries {
            entry.validate(last).map_err(refused)?;
            last = Some(entry.number_last());
        }
        self.pages.truncate(kept_count);
        self.pages.extend(entries);
        Ok(retired)
    }

    /// Bounds of a column over all pages, in page order, as arrays of `data_type`; pages that lack it have those of
    /// `absent`.
    #[must_use]
    pub fn zone_arrays(
        &self,
        column: u32,
        data_type: &DataType,
        absent: Option<&ZoneEntry>,
    ) -> ZoneArrays {
        let pages = self.pages.iter();
        let pages = pages.map(|entry| (entry.page.row_count, entry.zones.as_slice()));
        zone_arrays(pages, column, data_type, absent)
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        DIRECTORY.seal(&proto::SegmentDirectory::from(self).encode_to_vec())
    }

    /// Reads what [`SegmentDirectory::encode`] wrote.
    ///
    /// # Errors
    /// [`FrameError`] for bytes that were not written so; a newer format version has a variant of its own.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (_, payload) = DIRECTORY.open(bytes)?;
        let message = proto::SegmentDirectory::decode(payload)
            .map_err(|error| DIRECTORY.malformed(error.to_string()))?;
        Self::try_from(message)
    }

    /// Checks what the module promises.
    fn validate(&self) -> Result<(), String> {
        RecId::new(self.segment, 0, 0).map_err(|error| error.to_string())?;
        let mut last = None;
        for entry in &self.pages {
            entry.validate(last)?;
            last = Some(entry.number_last());
        }
        Ok(())
    }
}

impl PageEntry {
    /// The page, then its overflow pages.
    pub fn page_refs(&self) -> impl Iterator<Item = &PageRef> {
        std::iter::once(&self.page).chain(&self.overflow)
    }

    /// What the page occupies, with its overflow pages and the chunks that it shares with earlier versions.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.page_refs().map(|page| page.extent).chain(self.shared.iter().copied())
    }

    /// Bytes of the page, and of the chunks that it shares: what reading all of its columns costs.
    pub fn byte_count(&self) -> usize {
        let shared: usize = self.shared.iter().map(|extent| extent.bytes()).sum();
        self.page.extent.bytes().saturating_add(shared)
    }

    /// The highest of its logical numbers.
    fn number_last(&self) -> u32 {
        self.page_refs().map(|page| page.page).max().unwrap_or(0)
    }

    /// Checks an entry that follows another one whose highest number is `last`.
    fn validate(&self, last: Option<u32>) -> Result<(), String> {
        let PageRef { page, row_count, .. } = self.page;
        if row_count == 0 || row_count > PAGE_ROW_COUNT_MAX {
            return Err(format!("page {page} has {row_count} rows"));
        }
        let span = u64::from(row_count).checked_add(self.gaps.missing());
        if span.and_then(|span| self.vid_first.checked_add(span)).is_none() {
            return Err(format!("page {page} has rows past the last VID"));
        }
        let mut numbers = BTreeSet::new();
        for (index, part) in self.page_refs().enumerate() {
            let number = part.page;
            if last.is_some_and(|last| last >= number) {
                return Err(format!("page number {number} is out of order"));
            }
            if number > PAGE_MAX || !numbers.insert(number) {
                return Err(format!("page number {number} is taken or too large"));
            }
            let block_count = part.extent.block_count;
            let end = part.extent.start.0.checked_add(u64::from(block_count));
            if block_count == 0 || end.is_none() {
                return Err(format!("page {number} lies nowhere"));
            }
            if block_count > block_count_max(index > 0) {
                return Err(format!("page {number} has {block_count} blocks"));
            }
        }
        let mut free_from = 0;
        for extent in &self.shared {
            let end = extent.start.0.checked_add(u64::from(extent.block_count));
            let is_apart = extent.start.0 >= free_from && !extent.overlaps(self.page.extent);
            let Some(end) = end.filter(|_| extent.block_count > 0 && is_apart) else {
                return Err(format!("page {page} shares {extent}, which cannot be"));
            };
            free_from = end;
        }
        Ok(())
    }
}

impl From<&SegmentDirectory> for proto::SegmentDirectory {
    fn from(directory: &SegmentDirectory) -> Self {
        let run = match &directory.kind {
            SegmentKind::Heap => None,
            SegmentKind::Index(run) => Some(proto::RunProperties {
                index_id: run.index_id,
                level: run.level,
                filter_kind: run.filter.as_ref().map_or(0, |filter| filter.kind),
                filter: run.filter.as_ref().map(|filter| filter.bytes.clone()).unwrap_or_default(),
            }),
        };
        Self {
            segment: directory.segment.0,
            table_id: directory.table_id,
            schema_version: directory.schema_version,
            commit: directory.commit,
            page_bytes: directory.class.page_bytes,
            chunk_alignment: directory.class.chunk_alignment,
            row_count_max: directory.class.row_count_max,
            sealed: directory.sealed,
            run,
            pages: directory.pages.iter().map(proto::PageEntry::from).collect(),
        }
    }
}

impl TryFrom<proto::SegmentDirectory> for SegmentDirectory {
    type Error = FrameError;

    fn try_from(message: proto::SegmentDirectory) -> Result<Self, FrameError> {
        let kind = message.run.map_or(SegmentKind::Heap, |run| {
            let filter = KeyFilter { kind: run.filter_kind, bytes: run.filter };
            SegmentKind::Index(RunProperties {
                index_id: run.index_id,
                level: run.level,
                filter: (filter.kind != 0).then_some(filter),
            })
        });
        let directory = Self {
            segment: SegmentId(message.segment),
            kind,
            table_id: message.table_id,
            schema_version: message.schema_version,
            commit: message.commit,
            class: PageClass {
                page_bytes: message.page_bytes,
                chunk_alignment: message.chunk_alignment,
                row_count_max: message.row_count_max,
            },
            sealed: message.sealed,
            pages: message.pages.into_iter().map(PageEntry::try_from).collect::<Result<_, _>>()?,
        };
        directory.validate().map_err(|reason| DIRECTORY.malformed(reason))?;
        Ok(directory)
    }
}

impl From<&PageEntry> for proto::PageEntry {
    fn from(entry: &PageEntry) -> Self {
        let (gap_slots, gap_counts) = entry.gaps.steps();
        Self {
            page: Some(proto::PageRef::from(&entry.page)),
            vid_first: entry.vid_first,
            gap_slots,
            gap_counts,
            overflow: entry.overflow.iter().map(proto::PageRef::from).collect(),
            shared_starts: entry.shared.iter().map(|extent| extent.start.0).collect(),
            shared_counts: entry.shared.iter().map(|extent| extent.block_count).collect(),
            zones: entry.zones.iter().map(proto::ZoneEntry::from).collect(),
        }
    }
}

impl TryFrom<proto::PageEntry> for PageEntry {
    type Error = FrameError;

    fn try_from(message: proto::PageEntry) -> Result<Self, FrameError> {
        let Some(page) = message.page else {
            return Err(DIRECTORY.malformed("an entry has no page"));
        };
        let (slots, counts) = (&message.gap_slots, &message.gap_counts);
        let gaps = VidGaps::from_steps(slots, counts, page.row_count)
            .ok_or_else(|| DIRECTORY.malformed("an entry has rows with VIDs that do not ascend"))?;
        let (starts, counts) = (&message.shared_starts, &message.shared_counts);
        if starts.len() != counts.len() {
            return Err(DIRECTORY.malformed("an entry has shared blocks without their number"));
        }
        let shared = starts.iter().zip(counts).map(|(start, block_count)| Extent {
            start: BlockAddress(*start),
            block_count: *block_count,
        });
        Ok(Self {
            page: PageRef::from(page),
            shared: shared.collect(),
            vid_first: message.vid_first,
            gaps,
            overflow: message.overflow.into_iter().map(PageRef::from).collect(),
            zones: message.zones.into_iter().map(ZoneEntry::from).collect(),
        })
    }
}

impl From<&PageRef> for proto::PageRef {
    fn from(page: &PageRef) -> Self {
        Self {
            page: page.page,
            start: page.extent.start.0,
            block_count: page.extent.block_count,
            row_count: page.row_count,
            checksum: page.checksum,
        }
    }
}

/// Takes the message as it is: the reader of the page validates ([`crate::parse_header`]).
impl From<proto::PageRef> for PageRef {
    fn from(message: proto::PageRef) -> Self {
        Self {
            page: message.page,
            extent: Extent { start: BlockAddress(message.start), block_count: message.block_count },
            row_count: message.row_count,
            checksum: message.checksum,
        }
    }
}

impl From<&SegmentRef> for proto::SegmentRef {
    fn from(segment: &SegmentRef) -> Self {
        Self {
            table_id: segment.table_id,
            segment: segment.segment.0,
            schema_version: segment.schema_version,
            commit: segment.commit,
        }
    }
}

/// Takes the message as it is: the reader of the page validates.
impl From<proto::SegmentRef> for SegmentRef {
    fn from(message: proto::SegmentRef) -> Self {
        Self {
            table_id: message.table_id,
            segment: SegmentId(message.segment),
            schema_version: message.schema_version,
            commit: message.commit,
        }
    }
}

#[cfg(test)]
mod tests;
