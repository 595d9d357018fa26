//! The indexes of one tablet: a key in, the VIDs of its rows out.
//!
//! ```text
//!   key ─▶ memtable ─┬─▶ VIDs ─▶ (caller) version map ─▶ rows
//!       └▶ runs, newest first ─┘
//! ```
//!
//! Keys of INSERT go to the memtable, which is made again at the first use after a restart, from the rows of hot
//! segments from [`TabletIndex::vid_covered`] on; all older rows, and all that a bulk load wrote, are in runs. The
//! memtable is shared by successive catalog states, and by what blocks see that may be undone: it has the keys of all
//! these rows, be they deleted or not in the state that is first to use it, and may hold keys that are younger than a
//! reader's state, whose VID that state's version map does not know.
//!
//! A row has one key for as long as it lives: an update ends it and begins another one under a new VID. So an entry
//! counts if its row is live; of a unique index's entries with one key that is at most one, and the newest has
//! the greatest VID. Entries of dead rows go when runs are merged and a newer row has their key.
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

/// Pages of hot segments that are read at once when the memtable is made again.
const REBUILD_PAGE_COUNT: usize = 64;

/// What all who read and write an index need of it: how its keys are made, and what to call it.
#[derive(Debug)]
pub struct IndexShape {
    /// Name, columns, whether it is unique.
    pub definition: Arc<IndexDefinition>,
    /// How its keys are made.
    pub key: IndexKey,
    /// Positions of its columns in the table, in key order.
    pub columns: Vec<usize>,
    schema: Arc<TableSchema>,
}

/// One index of one tablet, as of one catalog state.
#[derive(Debug, Clone)]
pub struct TabletIndex {
    shape: Arc<IndexShape>,
    /// Sorted runs, oldest first.
    runs: Vec<Run>,
    /// Rows of hot segments below this VID are in a run.
    pub vid_covered: u64,
    memtable: Arc<SharedMemtable>,
}

/// A memtable that is made when first needed.
#[derive(Debug, Default)]
pub(crate) struct SharedMemtable {
    cell: OnceCell<RwLock<Memtable>>,
}

/// Keys of a statement, which enter the memtable when it commits.
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

    /// The key columns alone, of rows of the whole table.
    ///
    /// # Errors
    /// For rows of another table.
    pub fn key_rows(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        Ok(rows.project(&self.columns)?)
    }

    /// The entries of rows of the whole table, whose VIDs rise from `vid_first`.
    ///
    /// # Errors
    /// A key that is too long; for rows of another table.
    pub fn row_entries(&self, rows: &RecordBatch, vid_first: u64) -> Result<BinaryArray> {
        let columns = self.columns.iter().filter_map(|place| rows.columns().get(*place));
        let columns: Vec<ArrayRef> = columns.map(Arc::clone).collect();
        self.key.entries(&columns, vid_first..).map_err(|error| self.key_error(error))
    }

    /// The entries of rows of which `keys` are the key columns, and whose VIDs rise from `vid_first`.
    ///
    /// # Errors
    /// A key that is too long.
    pub fn entries(&self, keys: &RecordBatch, vid_first: u64) -> Result<BinaryArray> {
        self.entries_of(keys, vid_first..)
    }

    /// The entries of rows of which `keys` are the key columns, and which have these VIDs.
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

    /// The error of a key that is there already, with its values.
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

    /// An error of the store, where duplicate keys are told as SQL tells them.
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

    /// Reads `sources` to their end and refuses a key that comes twice, but for those of dead rows for
    /// `map`.
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

    /// An index all of whose keys are in `runs`: those of all rows below `vid_covered`.
    pub fn built(shape: Arc<IndexShape>, runs: Vec<Run>, vid_covered: u64) -> Self {
        Self { shape, runs, vid_covered, memtable: SharedMemtable::of(Memtable::new()) }
    }

    /// The index as a manifest stores it: its memtable is yet to be made.
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

    /// The same entries, of a table or an index that is described otherwise now.
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

    /// How its keys are made, and what it is called.
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

    /// The row of `key`, the search key of a unique index, that `tablet` has.
    ///
    /// # Errors
    /// Those of reading pages.
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

    /// The same by what is at hand; an outer None: something must be read.
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

    /// The rows of all entries in `ranges`, in no order, some of which may be younger than `tablet`; None: they are
    /// more than `limit`. `search_keys`: each range is that of one search key.
    ///
    /// # Errors
    /// Those of reading pages.
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

    /// What a scan needs to look `ranges` up itself: the pages of runs that may hold them, and the rows that the
    /// memtable has.
    ///
    /// # Errors
    /// Those of reading pages.
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

    /// All pages of its runs, with their fences, for a scan that learns later which keys it wants.
    pub fn all_pages(&self) -> Vec<IndexPages> {
        let runs = self.runs.iter().filter(|run| run.entry_count() > 0);
        let pages_of = |run: &Run| IndexPages {
            segment: run.directory().segment_ref(),
            pages: run.directory().pages.iter().map(|entry| entry.page).collect(),
            fences: run.fences(FENCE_BYTES_MAX),
        };
        runs.map(pages_of).collect()
    }

    /// Pages of runs that hold `ranges`, and how many entries certainly lie in them, as far as fences tell.
    pub fn measure(&self, ranges: &[KeyRange]) -> (usize, u64) {
        let measured =
            self.runs.iter().flat_map(|run| ranges.iter().map(|range| run.measure(range)));
        measured.fold((0, 0), |sum, (pages, entries)| (sum.0 + pages, sum.1 + entries))
    }

    /// The first of `keys`, search keys of a unique index, that a row of `tablet` has, by its position.
    ///
    /// # Errors
    /// Those of reading pages.
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

    /// For each of `keys`, search keys of a unique index, the row that `tablet` has.
    ///
    /// # Errors
    /// Those of reading pages.
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

    /// Everything in the index whose key may lie in `first..=last`, as sources of a merge.
    ///
    /// # Errors
    /// Those of reading pages.
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
                // Nothing lies between a key and that with one more byte.
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

    /// The keys of the memtable, as of now.
    ///
    /// # Errors
    /// Those of reading pages.
    pub async fn memtable_copy(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
    ) -> Result<Memtable> {
        Ok(read(self.memtable(tablet, pages).await?).clone())
    }

    /// Bytes that the memtable takes.
    ///
    /// # Errors
    /// Those of reading pages.
    pub async fn memtable_bytes(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
    ) -> Result<usize> {
        Ok(read(self.memtable(tablet, pages).await?).byte_size())
    }

    /// The same index with `keys` in a memtable of its own, which no other state sees: their rows are the next ones of
    /// `tablet`. What others have committed since may have the same VIDs, and is left out.
    ///
    /// # Errors
    /// Those of reading pages.
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

    /// Keys that shall enter this index's memtable with the commit.
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

    /// Keys of all rows that lie in hot segments and in no run, also of those that are dead: `tablet` may be of a
    /// block that is undone later, or newer than what others read.
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
    /// Puts the keys into the memtable. They were checked: no live row has one of them.
    pub fn publish(self) {
        // A statement that inserts keys has looked them up, which made the memtable.
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
