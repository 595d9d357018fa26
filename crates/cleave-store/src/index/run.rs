//! Sorted runs of an index: ascending keys in, a segment of index pages out, and look-ups and scans of such a segment.
//!
//! ```text
//!   page of a run,         user column 1 = key (bytea, ascending) │ Vid = the row of each
//!   up to 64 KiB:          │ Commit = the segment's
//!   its directory entry:   zone of column 1 = first and last key, whole
//! ```
//!
//! 1. [`RunWriter::push`] takes keys in order and returns full pages, which go to media like any others.
//! 2. [`Run::get`] asks the run's filter, finds the one page whose fences enclose the key, reads it, and searches it.
//!    [`Run::rows_in`] searches for both ends of a [`KeyRange`]. [`Run::walk`] gives the first or last entries of a
//!    [`KeyRange`].
//! 3. [`RunCursor::next`] scans a [`KeyRange`] page by page, reading a few ahead.
//!
//! The *fences* of a page are its first and last key; they stand in its directory entry.
//!
//! Invariant: keys of a run ascend strictly, within a page and from page to page. The writer refuses other keys.
//! [`Run::new`] checks the order of the fences. A reader that finds a page in contradiction to its fences reports
//! damage. The level and the filter of a run lie in its directory ([`crate::segment::RunProperties`]), so an LSM tree
//! can be built of the same pages.

#![deny(clippy::indexing_slicing)]

mod walk;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, AsArray, BinaryArray, BinaryBuilder, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};

use super::filter::FilterBuilder;
use super::key::{KEY_VID_BYTES, after_prefix, search_key};
use super::page_entries::PageEntries;
use crate::decode::{OpenedPage, Projection, decode_batch};
use crate::error::StoreError;
use crate::frame::FrameError;
use crate::page::{
    CommitColumn, EncodedPage, OverflowValues, PAGE_ROW_COUNT_MAX, PageClass, PageHeader, PageKind,
    SegmentWriter, Versions, VidColumn,
};
use crate::page_source::{
    ColumnRef, PageColumns, PageRead, PageRef, PageSource, SegmentRef, opened,
};
use crate::schema::{Column, ColumnType, TableSchema};
use crate::segment::{KeyFilter, PageEntry, SegmentDirectory, SegmentKind};
use crate::zone_map::{ZoneEntry, ZoneValue};

pub use walk::{IndexEntry, WALK_PAGE_COUNT_MAX, Walk};

/// Column id of the key in index pages.
pub const KEY_COLUMN: u32 = 1;
/// Pages of index runs: 64 KiB, read whole.
pub const INDEX_PAGE_CLASS: PageClass =
    PageClass { page_bytes: 64 << 10, chunk_alignment: 64, row_count_max: PAGE_ROW_COUNT_MAX };

/// Keys that are passed to the page writer at once.
const WRITE_ENTRY_COUNT: usize = 1024;
/// Pages that a scan or a look-up of many keys reads at once: 1 MiB.
const READ_PAGE_COUNT: usize = 16;
/// Bytes of pages that a scan of one run reads at once.
pub const SCAN_BYTES: usize = READ_PAGE_COUNT * (64 << 10);

/// Writes the pages of one run.
#[derive(Debug)]
pub struct RunWriter {
    writer: SegmentWriter,
    schema: SchemaRef,
    keys: BinaryBuilder,
    vids: Vec<u64>,
    last: Option<(Vec<u8>, u64)>,
    /// Keys in the page writer that are in no finished page yet.
    inside: VecDeque<BinaryArray>,
    entry_count: u64,
    unique: bool,
    filter: FilterBuilder,
}

/// The rest of a run that is finished.
#[derive(Debug)]
pub struct FinishedRun {
    /// Its last pages.
    pub pages: Vec<EncodedPage>,
    /// The filter over its search keys.
    pub filter: Option<KeyFilter>,
}

/// A run that can be read.
#[derive(Debug, Clone)]
pub struct Run {
    directory: Arc<SegmentDirectory>,
}

/// A scan of a run.
#[derive(Debug, Clone)]
pub struct RunCursor {
    run: Run,
    next_page: usize,
    range: KeyRange,
    blocks: VecDeque<KeyBlock>,
}

/// A range of entries: from one key on and below another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// Inclusive lower bound; empty: from the first entry.
    pub from: Vec<u8>,
    /// Exclusive upper bound; None: to the last entry.
    pub below: Option<Vec<u8>>,
}

/// Keys, ascending, and the row of each.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyBlock {
    /// Keys, none NULL.
    pub keys: BinaryArray,
    /// As many VIDs.
    pub vids: UInt64Array,
}

impl RunWriter {
    /// A writer for an index, `unique` or not, of the segment's table, whose pages are numbered from `first_page` on.
    ///
    /// # Errors
    /// [`StoreError`] for a segment that the page writer refuses.
    pub fn new(segment: SegmentRef, first_page: u32, unique: bool) -> Result<Self, StoreError> {
        let key = Column {
            id: KEY_COLUMN,
            name: "key".into(),
            column_type: ColumnType::Bytea,
            not_null: true,
            default: None,
            absent: None,
        };
        let schema = TableSchema {
            table_id: segment.table_id,
            version: segment.schema_version,
            name: "index".into(),
            columns: vec![key],
            primary_key: vec![KEY_COLUMN],
        };
        let writer = SegmentWriter::new(segment, &schema, INDEX_PAGE_CLASS, first_page, 0)?;
        Ok(Self {
            writer: writer.with_kind(PageKind::IndexRun),
            schema: schema.arrow(),
            keys: BinaryBuilder::new(),
            vids: Vec::new(),
            last: None,
            inside: VecDeque::new(),
            entry_count: 0,
            unique,
            filter: FilterBuilder::default(),
        })
    }

    /// Adds a key above all before; returns the pages that became full, mostly none.
    ///
    /// # Errors
    /// [`StoreError::DuplicateKey`] for the key before once more, [`StoreError::Mismatch`] for a key below it,
    /// [`StoreError::OutOfRange`] for a key longer than [`super::INDEX_KEY_BYTES_MAX`] or a full segment.
    pub fn push(&mut self, key: &[u8], vid: u64) -> Result<Vec<EncodedPage>, StoreError> {
        if key.len() > super::INDEX_KEY_BYTES_MAX + KEY_VID_BYTES {
            return Err(StoreError::OutOfRange {
                what: super::INDEX_KEY_BYTES,
                value: key.len() as u64,
                max: super::INDEX_KEY_BYTES_MAX as u64,
            });
        }
        match &mut self.last {
            None => self.last = Some((key.to_vec(), vid)),
            Some((last, last_vid)) => {
                match key.cmp(last.as_slice()) {
                    Ordering::Greater => {}
                    Ordering::Equal => {
                        let (first, key) = (*last_vid, key.to_vec());
                        return Err(StoreError::DuplicateKey { first, second: vid, key });
                    }
                    Ordering::Less => {
                        let reason = format!("row {vid} comes after {last_vid} with a lesser key");
                        return Err(StoreError::Mismatch { what: "writing an index run", reason });
                    }
                }
                last.clear();
                last.extend_from_slice(key);
                *last_vid = vid;
            }
        }
        // A key with a NULL in a unique index enters the filter with its VID; no look-up asks for it.
        self.filter.add(if self.unique { key } else { search_key(key) });
        self.keys.append_value(key);
        self.vids.push(vid);
        self.entry_count = self.entry_count.saturating_add(1);
        if self.vids.len() < WRITE_ENTRY_COUNT { Ok(Vec::new()) } else { self.write() }
    }

    /// Adds the keys of a block, as [`RunWriter::push`].
    ///
    /// # Errors
    /// As [`RunWriter::push`].
    pub fn push_block(&mut self, block: &KeyBlock) -> Result<Vec<EncodedPage>, StoreError> {
        let mut pages = Vec::new();
        for (key, vid) in block.iter() {
            pages.extend(self.push(key, vid)?);
        }
        Ok(pages)
    }

    /// Keys added.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.entry_count
    }

    /// Ends the run.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`] for a full segment.
    pub fn finish(mut self) -> Result<FinishedRun, StoreError> {
        let mut pages = self.write()?;
        let last = self.writer.finish()?;
        pages.extend(fenced(&mut self.inside, last)?);
        Ok(FinishedRun { pages, filter: self.filter.finish() })
    }

    fn write(&mut self) -> Result<Vec<EncodedPage>, StoreError> {
        let keys = self.keys.finish();
        let vids = std::mem::take(&mut self.vids);
        self.inside.push_back(keys.clone());
        let rows = RecordBatch::try_new(SchemaRef::clone(&self.schema), vec![Arc::new(keys)])?;
        let versions = Versions { vid: VidColumn::Each(vids), commit: CommitColumn::Segment };
        let pages = self.writer.push_versions(&rows, versions)?;
        fenced(&mut self.inside, pages)
    }
}

/// Gives pages their first and last keys, whole, as zones. The page writer keeps the order, so the keys of a page are
/// the next ones of `inside`.
fn fenced(
    inside: &mut VecDeque<BinaryArray>,
    mut pages: Vec<EncodedPage>,
) -> Result<Vec<EncodedPage>, StoreError> {
    for page in &mut pages {
        let mut left = usize::try_from(page.row_count).unwrap_or(usize::MAX);
        let (mut first, mut last) = (None, None);
        while left > 0 {
            let Some(keys) = inside.pop_front() else {
                let reason = format!("page {} has more keys than were given", page.page);
                return Err(StoreError::Mismatch { what: "writing an index run", reason });
            };
            let taken = left.min(keys.len());
            if taken > 0 {
                first.get_or_insert_with(|| keys.value(0).to_vec());
                last = Some(keys.value(taken - 1).to_vec());
            }
            if taken < keys.len() {
                inside.push_front(keys.slice(taken, keys.len() - taken));
            }
            left -= taken;
        }
        page.zones = vec![ZoneEntry {
            column: KEY_COLUMN,
            null_count: 0,
            min: first.map(ZoneValue::Bytes),
            max: last.map(ZoneValue::Bytes),
        }];
    }
    Ok(pages)
}

impl Run {
    /// The run that `directory` describes.
    ///
    /// # Errors
    /// [`StoreError::Frame`] for a segment that is no run, or whose fences are missing or out of order.
    pub fn new(directory: Arc<SegmentDirectory>) -> Result<Self, StoreError> {
        let segment = directory.segment;
        let malformed =
            |reason| StoreError::Frame(FrameError::Malformed { name: "index run", reason });
        if !matches!(directory.kind, SegmentKind::Index(_)) {
            return Err(malformed(format!("{segment} is none")));
        }
        let mut before: Option<&[u8]> = None;
        for entry in &directory.pages {
            let page = entry.page.page;
            let Some((first, last)) = fences(entry) else {
                return Err(malformed(format!("page {page} of {segment} has no fences")));
            };
            if before.is_some_and(|before| before >= first) || first > last {
                return Err(malformed(format!("page {page} of {segment} is out of order")));
            }
            before = Some(last);
        }
        Ok(Self { directory })
    }

    /// The run's directory.
    #[must_use]
    pub fn directory(&self) -> &Arc<SegmentDirectory> {
        &self.directory
    }

    /// Keys of the run.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.directory.row_count()
    }

    /// The first and the last key; None for a run of no keys.
    #[must_use]
    pub fn key_range(&self) -> Option<(&[u8], &[u8])> {
        let (first, _) = fences(self.directory.pages.first()?)?;
        let (_, last) = fences(self.directory.pages.last()?)?;
        Some((first, last))
    }

    /// Whether an entry may have this search key; no means certainly not.
    #[must_use]
    pub fn may_have(&self, search_key: &[u8]) -> bool {
        match &self.directory.kind {
            SegmentKind::Index(run) => {
                run.filter.as_ref().is_none_or(|filter| filter.may_have(search_key))
            }
            SegmentKind::Heap => true,
        }
    }

    /// Pages that may have entries of `range`, and how many entries certainly lie in it, according to the fences.
    #[must_use]
    pub fn measure(&self, range: &KeyRange) -> (usize, u64) {
        let pages = self.pages_of(range);
        let page_count = pages.len();
        let whole = self.directory.pages.get(pages).unwrap_or_default().iter().filter(|entry| {
            fences(entry).is_some_and(|(first, last)| range.has(first) && range.has(last))
        });
        (page_count, whole.map(|entry| u64::from(entry.page.row_count)).sum())
    }

    /// The pages that may have entries of `ranges`, in order, each once. `search_keys`: each range is that of one
    /// search key, so the filter is asked.
    #[must_use]
    pub fn pages_in(&self, ranges: &[KeyRange], search_keys: bool) -> Vec<PageRef> {
        let wanted = ranges.iter().filter(|range| !search_keys || self.may_have(&range.from));
        let indices: BTreeSet<usize> = wanted.flat_map(|range| self.pages_of(range)).collect();
        let entry = |index: usize| self.directory.pages.get(index).map(|entry| entry.page);
        indices.into_iter().filter_map(entry).collect()
    }

    /// The fences of the run's pages: the first entry of every page, and the last of the run, each cut to its first
    /// `bytes_max` bytes.
    #[must_use]
    pub fn fences(&self, bytes_max: usize) -> Vec<Vec<u8>> {
        let cut = |key: &[u8]| key.get(..bytes_max).unwrap_or(key).to_vec();
        let pages = &self.directory.pages;
        let firsts = pages.iter().filter_map(|entry| Some(cut(fences(entry)?.0)));
        let last = pages.last().and_then(|entry| Some(cut(fences(entry)?.1)));
        firsts.chain(last).collect()
    }

    /// The row of `key`, the search key of a unique index, by reading at most one page.
    ///
    /// # Errors
    /// Errors of `pages`, or [`StoreError::Frame`] for a page that contradicts its fences.
    pub async fn get(&self, pages: &dyn PageSource, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let Some(index) = self.page_of(key).filter(|_| self.may_have(key)) else {
            return Ok(None);
        };
        let found = self.open(pages, &[index]).await?;
        let Some(found) = found.first() else { return Ok(None) };
        match found.entries()? {
            Some(entries) => entries.get(key),
            None => Ok(found.block(pages).await?.get(key)),
        }
    }

    /// The same from a page in memory; an outer None: it is not in memory, or must be decoded.
    ///
    /// # Errors
    /// As [`Run::get`].
    pub fn get_at_hand(
        &self,
        pages: &dyn PageSource,
        key: &[u8],
    ) -> Result<Option<Option<u64>>, StoreError> {
        let Some(index) = self.page_of(key).filter(|_| self.may_have(key)) else {
            return Ok(Some(None));
        };
        let Some(mut wished) = self.wished(&[index]).next() else { return Ok(Some(None)) };
        wished.opened = pages.open_at_hand(&wished.read);
        wished.entries()?.map(|entries| entries.get(key)).transpose()
    }

    /// The row of each of `keys`, in their order, by reading each page once at most, 1 MiB at a time.
    ///
    /// # Errors
    /// As [`Run::get`].
    pub async fn get_many(
        &self,
        pages: &dyn PageSource,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<u64>>, StoreError> {
        let mut wanted: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (position, key) in keys.iter().enumerate() {
            if let Some(index) = self.page_of(key).filter(|_| self.may_have(key)) {
                wanted.entry(index).or_default().push(position);
            }
        }
        let mut found = vec![None; keys.len()];
        let wanted: Vec<(usize, Vec<usize>)> = wanted.into_iter().collect();
        for group in wanted.chunks(READ_PAGE_COUNT) {
            let indices: Vec<usize> = group.iter().map(|(index, _)| *index).collect();
            let opened = self.open(pages, &indices).await?;
            for (page, (_, positions)) in opened.iter().zip(group) {
                let entries = page.entries()?;
                let block = match entries {
                    Some(_) => None,
                    None => Some(page.block(pages).await?),
                };
                for position in positions {
                    let (Some(found), Some(key)) = (found.get_mut(*position), keys.get(*position))
                    else {
                        continue;
                    };
                    *found = match (&entries, &block) {
                        (Some(entries), _) => entries.get(key)?,
                        (None, block) => block.as_ref().and_then(|block| block.get(key)),
                    };
                }
            }
        }
        Ok(found)
    }

    /// Adds the rows of the entries in `range` to `rows`, until these are more than `limit`.
    ///
    /// # Errors
    /// As [`Run::get`].
    pub async fn rows_in(
        &self,
        pages: &dyn PageSource,
        range: &KeyRange,
        limit: usize,
        rows: &mut Vec<u64>,
    ) -> Result<(), StoreError> {
        let mut indices = self.pages_of(range);
        while rows.len() <= limit && !indices.is_empty() {
            let group: Vec<usize> = indices.by_ref().take(READ_PAGE_COUNT).collect();
            for found in self.open(pages, &group).await? {
                match found.entries()? {
                    Some(entries) => entries.rows_in(range, rows)?,
                    None => {
                        let block = found.block(pages).await?.from_key(&range.from);
                        let block = match &range.below {
                            Some(below) => block.below_key(below),
                            None => block,
                        };
                        rows.extend_from_slice(block.vids.values());
                    }
                }
            }
        }
        Ok(())
    }

    /// A scan of the entries of `range`.
    #[must_use]
    pub fn scan(&self, range: KeyRange) -> RunCursor {
        let next_page = self.pages_of(&range).start;
        RunCursor { run: self.clone(), next_page, range, blocks: VecDeque::new() }
    }

    /// Indices of the pages that may have entries of `range`.
    fn pages_of(&self, range: &KeyRange) -> std::ops::Range<usize> {
        let pages = &self.directory.pages;
        let ends_before =
            |entry: &PageEntry| fences(entry).is_some_and(|(_, last)| last < range.from.as_slice());
        let begins_in =
            |entry: &PageEntry| fences(entry).is_some_and(|(first, _)| range.ends_behind(first));
        let start = pages.partition_point(ends_before);
        start..pages.partition_point(begins_in).max(start)
    }

    /// Index of the only page that may have `key`.
    fn page_of(&self, key: &[u8]) -> Option<usize> {
        let begins_by = |entry: &PageEntry| fences(entry).is_some_and(|(first, _)| first <= key);
        let index = self.directory.pages.partition_point(begins_by).checked_sub(1)?;
        let (_, last) = fences(self.directory.pages.get(index)?)?;
        (key <= last).then_some(index)
    }

    /// The entries of the pages at these indices, for a reader of most of them.
    async fn read(
        &self,
        pages: &dyn PageSource,
        indices: &[usize],
    ) -> Result<Vec<KeyBlock>, StoreError> {
        let wished: Vec<Wished<'_>> = self.wished(indices).collect();
        let reads: Vec<PageRead> = wished.iter().map(|wished| wished.read.clone()).collect();
        let answers = pages.read(reads).await?;
        check_answers(answers.len(), wished.len())?;
        wished.iter().zip(&answers).map(|(wished, page)| wished.block_of(page)).collect()
    }

    /// The pages at these indices, for a reader of few of their entries.
    async fn open(
        &self,
        pages: &dyn PageSource,
        indices: &[usize],
    ) -> Result<Vec<Wished<'_>>, StoreError> {
        let mut wished: Vec<Wished<'_>> = self.wished(indices).collect();
        let reads: Vec<PageRead> = wished.iter().map(|wished| wished.read.clone()).collect();
        for (wished, page) in wished.iter_mut().zip(opened(pages, &reads).await?) {
            wished.opened = page;
        }
        Ok(wished)
    }

    fn wished(&self, indices: &[usize]) -> impl Iterator<Item = Wished<'_>> {
        let segment = self.directory.segment_ref();
        let entries = indices.iter().filter_map(|index| self.directory.pages.get(*index));
        entries.map(move |entry| {
            let read = PageRead { segment, page: entry.page, columns: KEY_COLUMNS.to_vec() };
            Wished { entry, read, opened: None }
        })
    }
}

impl RunCursor {
    /// The next entries, ascending: those of one page. None after the last.
    ///
    /// # Errors
    /// As [`Run::get`].
    pub async fn next(&mut self, pages: &dyn PageSource) -> Result<Option<KeyBlock>, StoreError> {
        if self.blocks.is_empty() {
            let last = self.run.pages_of(&self.range).end;
            let end = self.next_page.saturating_add(READ_PAGE_COUNT).min(last);
            let indices: Vec<usize> = (self.next_page..end).collect();
            if indices.is_empty() {
                return Ok(None);
            }
            self.blocks = self.run.read(pages, &indices).await?.into();
            self.next_page = end;
            let from = std::mem::take(&mut self.range.from);
            if let Some(first) = self.blocks.front_mut() {
                *first = first.from_key(&from);
            }
            if let (Some(below), Some(last)) = (&self.range.below, self.blocks.back_mut()) {
                *last = last.below_key(below);
            }
        }
        Ok(self.blocks.pop_front())
    }
}

impl KeyRange {
    /// All entries that begin with `prefix`.
    #[must_use]
    pub fn of_prefix(prefix: Vec<u8>) -> Self {
        Self { below: after_prefix(&prefix), from: prefix }
    }

    /// Whether `key` lies in the range.
    #[must_use]
    pub fn has(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.ends_behind(key)
    }

    /// Whether no key can lie in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.ends_behind(&self.from)
    }

    fn ends_behind(&self, key: &[u8]) -> bool {
        self.below.as_ref().is_none_or(|below| key < below.as_slice())
    }
}

impl KeyBlock {
    /// A block of no entries.
    #[must_use]
    pub fn empty() -> Self {
        Self { keys: BinaryBuilder::new().finish(), vids: UInt64Array::from(Vec::<u64>::new()) }
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Keys and VIDs.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.keys.iter().flatten().zip(self.vids.values().iter().copied())
    }

    /// The entry at `index`.
    #[must_use]
    pub fn entry(&self, index: usize) -> Option<(&[u8], u64)> {
        let vid = self.vids.values().get(index)?;
        (index < self.keys.len()).then(|| (self.keys.value(index), *vid))
    }

    /// The last key.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        self.entry(self.len().checked_sub(1)?).map(|(key, _)| key)
    }

    /// The row of `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        let (found, vid) = self.entry(self.position(key))?;
        (found == key).then_some(vid)
    }

    /// The entries that are not below `key`, not copied.
    #[must_use]
    pub fn from_key(&self, key: &[u8]) -> Self {
        let position = self.position(key);
        let length = self.len().saturating_sub(position);
        Self { keys: self.keys.slice(position, length), vids: self.vids.slice(position, length) }
    }

    /// The entries that are below `key`, not copied.
    #[must_use]
    pub fn below_key(&self, key: &[u8]) -> Self {
        let length = self.position(key);
        Self { keys: self.keys.slice(0, length), vids: self.vids.slice(0, length) }
    }

    /// Index of the first entry that is not below `key`.
    fn position(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle).is_some_and(|(found, _)| found < key) {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low
    }
}

/// First and last key of a page.
fn fences(entry: &PageEntry) -> Option<(&[u8], &[u8])> {
    let zone = entry.zones.iter().find(|zone| zone.column == KEY_COLUMN)?;
    Some((zone.min.as_ref()?.bytes()?, zone.max.as_ref()?.bytes()?))
}

/// The columns of an index page.
pub(super) const KEY_COLUMNS: [ColumnRef; 2] = [ColumnRef::User(KEY_COLUMN), ColumnRef::Vid];

/// A requested page of a run.
struct Wished<'a> {
    entry: &'a PageEntry,
    read: PageRead,
    /// The page, if few of its entries are requested.
    opened: Option<Arc<OpenedPage>>,
}

impl Wished<'_> {
    /// The entries as they are stored; None if they must be decoded.
    fn entries(&self) -> Result<Option<PageEntries<'_>>, StoreError> {
        match &self.opened {
            Some(page) => PageEntries::open(self.entry, &self.read, page),
            None => Ok(None),
        }
    }

    /// All of its entries, out of what was read.
    fn block_of(&self, page: &PageColumns) -> Result<KeyBlock, StoreError> {
        let block = decode_keys(&self.read, page)?;
        let ends = block.entry(0).map(|(key, _)| key).zip(block.last_key());
        check_fences(self.entry, &self.read, ends)?;
        Ok(block)
    }

    /// All of its entries.
    async fn block(&self, pages: &dyn PageSource) -> Result<KeyBlock, StoreError> {
        let answers = pages.read(vec![self.read.clone()]).await?;
        check_answers(answers.len(), 1)?;
        answers.first().map_or_else(|| Ok(KeyBlock::empty()), |page| self.block_of(page))
    }
}

/// Refuses the answer of a source that has more or fewer pages than were requested.
fn check_answers(answer_count: usize, read_count: usize) -> Result<(), StoreError> {
    if answer_count == read_count {
        return Ok(());
    }
    let reason = format!("{answer_count} answers to {read_count} reads");
    Err(StoreError::Mismatch { what: "reading an index run", reason })
}

/// The entries of a page, whatever its fences are.
pub(super) fn decode_keys(read: &PageRead, page: &PageColumns) -> Result<KeyBlock, StoreError> {
    static PROJECTION: LazyLock<Projection> = LazyLock::new(|| {
        Projection::new(
            Arc::new(Schema::new(vec![
                Field::new("key", DataType::Binary, false),
                Field::new("vid", DataType::UInt64, false),
            ])),
            KEY_COLUMNS.to_vec(),
        )
    });
    check_kind(read, &page.header)?;
    let batch = decode_batch(page, read, &PROJECTION, None, &OverflowValues::none())?;
    let (keys, vids) = match batch.columns() {
        [keys, vids] => (keys.as_binary_opt::<i32>(), vids.as_primitive_opt::<UInt64Type>()),
        _ => (None, None),
    };
    let (Some(keys), Some(vids)) = (keys, vids) else {
        return Err(malformed_page(read, "has other columns than key and row"));
    };
    Ok(KeyBlock { keys: keys.clone(), vids: vids.clone() })
}

/// Refuses a page that is of no run.
pub(super) fn check_kind(read: &PageRead, header: &PageHeader) -> Result<(), StoreError> {
    if header.kind == PageKind::IndexRun {
        return Ok(());
    }
    Err(malformed_page(read, "is no index page"))
}

/// Refuses a page whose first and last key are not its fences. The order within the page is covered by the checksum and
/// checked by the merge: a look-up should not pay for it.
pub(super) fn check_fences(
    entry: &PageEntry,
    read: &PageRead,
    ends: Option<(&[u8], &[u8])>,
) -> Result<(), StoreError> {
    if fences(entry) == ends {
        return Ok(());
    }
    Err(malformed_page(read, "contradicts its fences"))
}

fn malformed_page(read: &PageRead, reason: &str) -> StoreError {
    let reason = format!("page {} of {} {reason}", read.page.page, read.segment.segment);
    StoreError::Frame(FrameError::Malformed { name: "index run", reason })
}

#[cfg(test)]
mod tests;
