//! The indexes of one tablet: a key in, the VIDs of its rows out.
//!
//! ```text
//!   key ─▶ memtable ─┬─▶ VIDs ─▶ (caller) version map ─▶ rows
//!       └▶ runs, newest first ─┘
//! ```
//!
//! Keys of INSERT go to the memtable. After a restart it is rebuilt at the first use, from the rows of hot segments
//! from [`TabletIndex::vid_covered`] on; all older rows, and all bulk-loaded ones, are in runs. Successive catalog
//! versions share the memtable, also with transaction blocks that may be undone. So it has the keys of all these rows,
//! deleted or not in the version that uses it first, and may hold keys that are younger than a reader's version, whose
//! VIDs that version's map does not know.
//!
//! The key of a row never changes: an update makes the row dead and inserts another one under a new VID. So an entry is
//! valid if its row is live. Of a unique index's entries with one key at most one is valid, and the newest has the
//! greatest VID. Entries of dead rows are dropped when runs are merged and a newer row has their key.
//!
//! Invariant: an entry is in at most one place, memtable or one run. Source: rule 16.

mod heap_rows;
mod rows_by_vid;
mod walk;

use std::sync::{Arc, PoisonError, RwLock};

use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use cleave_fragment::IndexPages;
use cleave_fragment::index_input::FENCE_BYTES_MAX;
use cleave_store::{
    INDEX_KEY_BYTES, IndexKey, KeyMerge, KeyRange, Memtable, MergeSource, PageClass, PageSource,
    Projection, Run, SegmentDirectory, StoreError, TableSchema, VersionMap,
};
use tokio::sync::OnceCell;

use crate::catalog::TabletState;
use crate::catalog::index_definition::IndexDefinition;
use crate::error::{Error, Fault, Result};

pub use heap_rows::{heap_rows, long_values};
pub use rows_by_vid::{Scattered, newest, rows_by_vid, rows_of_page};
pub use walk::Walked;

/// Pages of hot segments that are read at once to rebuild the memtable.
const REBUILD_PAGE_COUNT: usize = 64;

/// The static part of an index, for readers and writers: its key encoding and its name.
#[derive(Debug)]
pub struct IndexShape {
    /// Name, columns, whether it is unique.
    pub definition: Arc<IndexDefinition>,
    /// The encoding of its keys.
    pub key: IndexKey,
    /// Positions of its columns in the table, in key order.
    pub columns: Vec<usize>,
    schema: Arc<TableSchema>,
}

/// One index of one tablet in one catalog version.
#[derive(Debug, Clone)]
pub struct TabletIndex {
    shape: Arc<IndexShape>,
    /// Sorted runs, oldest first.
    runs: Vec<Run>,
    /// Rows of hot segments below this VID are in a run.
    pub vid_covered: u64,
    memtable: Arc<SharedMemtable>,
}

/// A memtable that is built on demand.
#[derive(Debug, Default)]
pub(crate) struct SharedMemtable {
    cell: OnceCell<RwLock<Memtable>>,
}

/// Keys of a statement, which are added to the memtable when it commits.
#[derive(Debug)]
pub struct PendingKeys {
    memtable: Arc<SharedMemtable>,
    keys: Vec<(Vec<u8>, u64)>,
}

impl IndexShape {
    /// The shape of `definition`, an index of the table `schema`.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for columns that the table does not have.
    pub fn new(
        definition: Arc<IndexDefinition>,
        schema: &Arc<TableSchema>,
    ) -> Result<Arc<Self>, StoreError> {
        let key = definition.key(schema)?;
        let columns = definition.column_indices(schema);
        Ok(Arc::new(Self { definition, key, columns, schema: Arc::clone(schema) }))
    }

    /// The table.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// The key columns alone, of whole rows of the table.
    ///
    /// # Errors
    /// For rows of another table.
    pub fn key_rows(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        Ok(rows.project(&self.columns)?)
    }

    /// The entries of whole rows of the table, with consecutive VIDs from `vid_first` on.
    ///
    /// # Errors
    /// A key that is too long; for rows of another table.
    pub fn row_entries(&self, rows: &RecordBatch, vid_first: u64) -> Result<BinaryArray> {
        let columns = self.columns.iter().filter_map(|place| rows.columns().get(*place));
        let columns: Vec<ArrayRef> = columns.map(Arc::clone).collect();
        self.key.entries(&columns, vid_first..).map_err(|error| self.key_error(error))
    }

    /// The entries of rows with the key columns `keys`, with consecutive VIDs from `vid_first` on.
    ///
    /// # Errors
    /// A key that is too long.
    pub fn entries(&self, keys: &RecordBatch, vid_first: u64) -> Result<BinaryArray> {
        self.entries_of(keys, vid_first..)
    }

    /// The entries of rows with the key columns `keys` and these VIDs.
    ///
    /// # Errors
    /// A key that is too long.
    pub fn entries_of(
        &self,
        keys: &RecordBatch,
        vids: impl IntoIterator<Item = u64>,
    ) -> Result<BinaryArray> {
        self.key.entries(keys.columns(), vids).map_err(|error| self.key_error(error))
    }

    /// The columns that a reader of rows needs for the index.
    pub fn projection(&self) -> Projection {
        Projection::of_table(&self.schema, &self.columns).nullable()
    }

    /// The name of the table.
    pub fn table_name(&self) -> &str {
        &self.schema.name
    }

    /// The error of a duplicate key, with its values.
    pub fn duplicate_key(&self, key: &[u8]) -> Error {
        let names = self.definition.column_names(&self.schema);
        Error::DuplicateKey {
            table: self.schema.name.clone(),
            constraint: self.definition.name.clone(),
            columns: names.join(", "),
            key: self.key_text(key),
        }
    }

    /// The values of a key, separated by commas.
    pub fn key_text(&self, key: &[u8]) -> String {
        let values = self.key_values(key).unwrap_or_else(|_| vec!["?".to_owned()]);
        values.join(", ")
    }

    fn key_values(&self, key: &[u8]) -> Result<Vec<String>> {
        self.key
            .decode(&[key])?
            .iter()
            .map(|column| Ok(crate::value::value_text(column, 0)?.unwrap_or_default()))
            .collect()
    }

    /// An error of the store, with duplicate keys in SQL terms.
    pub fn key_error(&self, error: StoreError) -> Error {
        match error {
            StoreError::DuplicateKey { key, .. } => self.duplicate_key(&key),
            StoreError::OutOfRange { what: INDEX_KEY_BYTES, value, max } => Error::Invalid {
                message: format!(
                    "a key of {value} bytes is too long for index \"{}\", which takes {max}",
                    self.definition.name
                ),
                fault: Fault::TooLong,
                position: None,
            },
            other => other.into(),
        }
    }

    /// Reads `sources` to their end and refuses a repeated key, not counting rows that are dead in `map`.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], and those of reading.
    pub async fn check_unique(
        &self,
        sources: Vec<MergeSource>,
        pages: &dyn PageSource,
        map: &VersionMap,
    ) -> Result<()> {
        let mut merge = KeyMerge::new(sources, false);
        let mut last: Option<Vec<u8>> = None;
        while let Some(block) = merge.next(pages).await? {
            for (key, _) in block.iter().filter(|(_, vid)| !map.is_dead(*vid)) {
                if last.as_deref() == Some(key) {
                    return Err(self.duplicate_key(key));
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
        }
        Ok(())
    }
}

impl TabletIndex {
    /// The index of a tablet without rows.
    pub fn empty(shape: Arc<IndexShape>) -> Self {
        Self::built(shape, Vec::new(), 0)
    }

    /// An index with all its keys in `runs`: those of all rows below `vid_covered`.
    pub fn built(shape: Arc<IndexShape>, runs: Vec<Run>, vid_covered: u64) -> Self {
        Self { shape, runs, vid_covered, memtable: SharedMemtable::of(Memtable::new()) }
    }

    /// The index from a manifest: its memtable is not built yet.
    ///
    /// # Errors
    /// [`StoreError::Frame`] for a segment that is no run.
    pub fn stored(
        shape: Arc<IndexShape>,
        runs: Vec<Arc<SegmentDirectory>>,
        vid_covered: u64,
    ) -> Result<Self, StoreError> {
        Ok(Self { shape, runs: opened(runs)?, vid_covered, memtable: Arc::default() })
    }

    /// The same index with other runs and the same memtable.
    ///
    /// # Errors
    /// As [`TabletIndex::stored`].
    pub fn with_runs(&self, runs: Vec<Arc<SegmentDirectory>>) -> Result<Self, StoreError> {
        let (shape, memtable) = (Arc::clone(&self.shape), Arc::clone(&self.memtable));
        Ok(Self { shape, runs: opened(runs)?, vid_covered: self.vid_covered, memtable })
    }

    /// The same entries, after a change of the definition of the table or the index.
    pub fn with_shape(&self, shape: Arc<IndexShape>) -> Self {
        let (runs, memtable) = (self.runs.clone(), Arc::clone(&self.memtable));
        Self { shape, runs, vid_covered: self.vid_covered, memtable }
    }

    /// The index after its memtable went into `runs`, with all rows below `vid_covered`.
    ///
    /// # Errors
    /// As [`TabletIndex::stored`].
    pub fn flushed(
        &self,
        runs: Vec<Arc<SegmentDirectory>>,
        vid_covered: u64,
    ) -> Result<Self, StoreError> {
        Ok(Self::built(Arc::clone(&self.shape), opened(runs)?, vid_covered))
    }

    /// Its key encoding and its definition.
    pub fn shape(&self) -> &Arc<IndexShape> {
        &self.shape
    }

    /// Name, columns, whether it is unique.
    pub fn definition(&self) -> &Arc<IndexDefinition> {
        &self.shape.definition
    }

    /// The directories of the runs, oldest first.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = &Arc<SegmentDirectory>> {
        self.runs.iter().map(Run::directory)
    }

    /// The row of `key`, the search key of a unique index, in `tablet`.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn get(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
        key: &[u8],
    ) -> Result<Option<u64>> {
        let is_there = |vid: &u64| tablet.version_map.lookup(*vid).is_some();
        let memtable = self.memtable(tablet, pages).await?;
        let found = read(memtable).rows_of(key).find(is_there);
        if found.is_some() {
            return Ok(found);
        }
        for run in self.runs.iter().rev() {
            let found = run.get(pages, key).await?.filter(is_there);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The same from pages in memory; an outer None: something must be read.
    ///
    /// # Errors
    /// As [`TabletIndex::get`].
    pub fn get_at_hand(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
        key: &[u8],
    ) -> Result<Option<Option<u64>>> {
        let is_there = |vid: &u64| tablet.version_map.lookup(*vid).is_some();
        let Some(memtable) = self.memtable.cell.get() else { return Ok(None) };
        let found = read(memtable).rows_of(key).find(is_there);
        if found.is_some() {
            return Ok(Some(found));
        }
        for run in self.runs.iter().rev() {
            let Some(found) = run.get_at_hand(pages, key)? else { return Ok(None) };
            let found = found.filter(is_there);
            if found.is_some() {
                return Ok(Some(found));
            }
        }
        Ok(Some(None))
    }

    /// The rows of all entries in `ranges`, in no order, some of which may be younger than `tablet`; None if they are
    /// more than `limit`. `search_keys`: each range is that of one search key.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn rows_in(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
        ranges: &[KeyRange],
        search_keys: bool,
        limit: usize,
    ) -> Result<Option<Vec<u64>>> {
        let mut vids = Vec::new();
        {
            let memtable = read(self.memtable(tablet, pages).await?);
            for range in ranges {
                let room = limit.saturating_sub(vids.len()).saturating_add(1);
                vids.extend(memtable.vids_in(range).take(room));
            }
        }
        for run in &self.runs {
            for range in ranges {
                if search_keys && !run.may_have(&range.from) {
                    continue;
                }
                run.rows_in(pages, range, limit, &mut vids).await?;
            }
        }
        Ok((vids.len() <= limit).then_some(vids))
    }

    /// What a scan needs to look up `ranges` itself: the pages of runs that may have them, and the rows from the
    /// memtable.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn unread(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
        ranges: &[KeyRange],
        search_keys: bool,
    ) -> Result<(Vec<IndexPages>, Vec<u64>)> {
        let rows = {
            let memtable = read(self.memtable(tablet, pages).await?);
            ranges.iter().flat_map(|range| memtable.vids_in(range)).collect()
        };
        let pages_of = |run: &Run| {
            IndexPages::whole(run.directory().segment_ref(), run.pages_in(ranges, search_keys))
        };
        let runs = self.runs.iter().map(pages_of).filter(|run| !run.pages.is_empty());
        Ok((runs.collect(), rows))
    }

    /// All pages of its runs, with their fences, for a scan that gets its keys later.
    pub fn all_pages(&self) -> Vec<IndexPages> {
        let runs = self.runs.iter().filter(|run| run.entry_count() > 0);
        let pages_of = |run: &Run| IndexPages {
            segment: run.directory().segment_ref(),
            pages: run.directory().pages.iter().map(|entry| entry.page).collect(),
            fences: run.fences(FENCE_BYTES_MAX),
        };
        runs.map(pages_of).collect()
    }

    /// Pages of runs that may have `ranges`, and how many entries certainly lie in them, according to the fences.
    pub fn measure(&self, ranges: &[KeyRange]) -> (usize, u64) {
        let measured =
            self.runs.iter().flat_map(|run| ranges.iter().map(|range| run.measure(range)));
        measured.fold((0, 0), |sum, (pages, entries)| (sum.0 + pages, sum.1 + entries))
    }

    /// The position of the first of `keys`, search keys of a unique index, that a row of `tablet` has.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn first_present(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
        keys: &[&[u8]],
    ) -> Result<Option<usize>> {
        let is_there = |vid: &u64| tablet.version_map.lookup(*vid).is_some();
        let in_memtable = {
            let memtable = read(self.memtable(tablet, pages).await?);
            keys.iter().position(|key| memtable.rows_of(key).any(|vid| is_there(&vid)))
        };
        if in_memtable.is_some() {
            return Ok(in_memtable);
        }
        for run in self.runs.iter().rev() {
            let found = run.get_many(pages, keys).await?;
            if let Some(position) = found.iter().position(|vid| vid.as_ref().is_some_and(is_there))
            {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// For each of `keys`, search keys of a unique index, its row in `tablet`.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn get_many(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<u64>>> {
        let is_there = |vid: &u64| tablet.version_map.lookup(*vid).is_some();
        let mut found: Vec<Option<u64>> = {
            let memtable = read(self.memtable(tablet, pages).await?);
            keys.iter().map(|key| memtable.rows_of(key).find(is_there)).collect()
        };
        for run in self.runs.iter().rev() {
            if found.iter().all(Option::is_some) {
                break;
            }
            for (known, in_run) in found.iter_mut().zip(run.get_many(pages, keys).await?) {
                *known = known.or(in_run.filter(is_there));
            }
        }
        Ok(found)
    }

    /// All entries whose key may lie in `first..=last`, as sources of a merge.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn overlapping(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
        first: &[u8],
        last: &[u8],
    ) -> Result<Vec<MergeSource>> {
        let mut sources = Vec::new();
        for run in &self.runs {
            let overlaps = run.key_range().is_some_and(|(low, high)| low <= last && first <= high);
            if overlaps {
                // Nothing lies between a key and that key with a zero byte appended.
                let below = Some([last, &[0]].concat());
                let range = KeyRange { from: first.to_vec(), below };
                sources.push(MergeSource::Run(run.scan(range)));
            }
        }
        let memtable = read(self.memtable(tablet, pages).await?).clone();
        if !memtable.is_empty() {
            sources.push(MergeSource::Memtable(Arc::new(memtable)));
        }
        Ok(sources)
    }

    /// The present keys of the memtable.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn memtable_copy(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
    ) -> Result<Memtable> {
        Ok(read(self.memtable(tablet, pages).await?).clone())
    }

    /// Size of the memtable in bytes.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn memtable_bytes(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
    ) -> Result<usize> {
        Ok(read(self.memtable(tablet, pages).await?).byte_size())
    }

    /// The same index with `keys` in a memtable of its own, which no other version sees: their rows are the next ones
    /// of `tablet`. Keys that others have committed since may have the same VIDs, and are left out.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn with_keys(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
        keys: Vec<(Vec<u8>, u64)>,
    ) -> Result<Self> {
        let mut memtable = read(self.memtable(tablet, pages).await?).before(tablet.next_vid);
        for (key, vid) in keys {
            memtable.put(&key, vid);
        }
        let (shape, runs) = (Arc::clone(&self.shape), self.runs.clone());
        let memtable = SharedMemtable::of(memtable);
        Ok(Self { shape, runs, vid_covered: self.vid_covered, memtable })
    }

    /// Keys that are to enter this index's memtable with the commit.
    pub fn pending(&self, keys: Vec<(Vec<u8>, u64)>) -> PendingKeys {
        PendingKeys { memtable: Arc::clone(&self.memtable), keys }
    }

    async fn memtable(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
    ) -> Result<&RwLock<Memtable>> {
        self.memtable
            .cell
            .get_or_try_init(|| async { self.rebuild(tablet, pages).await.map(RwLock::new) })
            .await
    }

    /// Keys of all rows that lie in hot segments and in no run, dead ones included: `tablet` may belong to a block that
    /// is undone later, or be newer than that of other readers.
    async fn rebuild(&self, tablet: &TabletState, pages: &dyn PageSource) -> Result<Memtable> {
        let mut memtable = Memtable::new();
        let projection = self.shape.projection();
        for segment in tablet.indexed_heap().filter(|segment| segment.class == PageClass::HOT) {
            let entries: Vec<_> =
                segment.pages.iter().filter(|entry| entry.vid_end() > self.vid_covered).collect();
            for entries in entries.chunks(REBUILD_PAGE_COUNT) {
                for (vids, rows) in heap_rows(pages, segment, entries, &projection).await? {
                    let keys = self.shape.entries_of(&rows, vids.iter().copied())?;
                    let entries = keys.iter().zip(vids).filter(|(_, vid)| *vid >= self.vid_covered);
                    for (key, vid) in entries {
                        if let Some(key) = key {
                            memtable.put(key, vid);
                        }
                    }
                }
            }
        }
        Ok(memtable)
    }
}

impl SharedMemtable {
    fn of(memtable: Memtable) -> Arc<Self> {
        Arc::new(Self { cell: OnceCell::new_with(Some(RwLock::new(memtable))) })
    }
}

impl PendingKeys {
    /// Adds the keys to the memtable. They were checked: no live row has one of them.
    pub fn publish(self) {
        // A statement that inserts keys has looked them up, which built the memtable.
        let Some(memtable) = self.memtable.cell.get() else { return };
        let mut memtable = memtable.write().unwrap_or_else(PoisonError::into_inner);
        for (key, vid) in self.keys {
            memtable.put(&key, vid);
        }
    }
}

fn opened(runs: Vec<Arc<SegmentDirectory>>) -> Result<Vec<Run>, StoreError> {
    runs.into_iter().map(Run::new).collect()
}

fn read(memtable: &RwLock<Memtable>) -> std::sync::RwLockReadGuard<'_, Memtable> {
    memtable.read().unwrap_or_else(PoisonError::into_inner)
}
