//! The primary key of one tablet: a key in, the VID of its row out.
//!
//! ```text
//!   key ─▶ memtable ── not there ──▶ runs, newest first ──▶ VID ─▶ (caller) version map ─▶ row
//! ```
//!
//! Keys of INSERT go to the memtable, which is made again at the first use after an opening, from the
//! rows of hot segments from [`TabletIndex::vid_covered`] on; all older rows, and all that a bulk load
//! wrote, are in runs. The memtable is shared by successive catalog states: it may hold keys that are
//! younger than a reader's state, whose VID that state's version map does not know. In this format
//! version rows are only added, so such a key has no older row.
//!
//! Invariant: a key is in at most one place, memtable or one run. Source: rule 16.

use std::sync::{Arc, PoisonError, RwLock};

use cleave_store::{
    IndexKey, KeyMerge, Memtable, MergeSource, OverflowValues, PageClass, PageRead, PageSource,
    Projection, Run, SegmentDirectory, StoreError, TableSchema, decode_batch, overflow_pages,
};
use tokio::sync::OnceCell;

use crate::catalog::TabletState;
use crate::error::{Error, Result};

/// Pages of hot segments that are read at once when the memtable is made again.
const REBUILD_PAGE_COUNT: usize = 64;

/// Index of one tablet's primary key, as of one catalog state.
#[derive(Debug, Clone)]
pub struct TabletIndex {
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
pub(crate) struct PendingKeys {
    memtable: Arc<SharedMemtable>,
    keys: Vec<(Vec<u8>, u64)>,
}

impl TabletIndex {
    /// The index of a tablet without rows.
    pub(crate) fn empty() -> Self {
        Self { runs: Vec::new(), vid_covered: 0, memtable: SharedMemtable::of(Memtable::new()) }
    }

    /// The index as a root stores it: its memtable is yet to be made.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] for a segment that is no run.
    pub(crate) fn stored(
        runs: Vec<Arc<SegmentDirectory>>,
        vid_covered: u64,
    ) -> Result<Self, StoreError> {
        Ok(Self { runs: opened(runs)?, vid_covered, memtable: Arc::default() })
    }

    /// The same index with other runs and the same memtable.
    ///
    /// # Errors
    /// As [`TabletIndex::stored`].
    pub(crate) fn with_runs(&self, runs: Vec<Arc<SegmentDirectory>>) -> Result<Self, StoreError> {
        let memtable = Arc::clone(&self.memtable);
        Ok(Self { runs: opened(runs)?, vid_covered: self.vid_covered, memtable })
    }

    /// The index after its memtable went into `runs`, with all rows below `vid_covered`.
    ///
    /// # Errors
    /// As [`TabletIndex::stored`].
    pub(crate) fn flushed(
        runs: Vec<Arc<SegmentDirectory>>,
        vid_covered: u64,
    ) -> Result<Self, StoreError> {
        let memtable = SharedMemtable::of(Memtable::new());
        Ok(Self { runs: opened(runs)?, vid_covered, memtable })
    }

    /// The directories of the runs, oldest first.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = &Arc<SegmentDirectory>> {
        self.runs.iter().map(Run::directory)
    }

    /// The row of `key`, which may be younger than `tablet`.
    ///
    /// # Errors
    /// Those of reading pages.
    pub async fn get(
        &self,
        tablet: &TabletState,
        schema: &TableSchema,
        pages: &dyn PageSource,
        key: &[u8],
    ) -> Result<Option<u64>> {
        let memtable = self.memtable(tablet, schema, pages).await?;
        let found = read(memtable).get(key);
        if found.is_some() {
            return Ok(found);
        }
        for run in self.runs.iter().rev() {
            if let Some(vid) = run.get(pages, key).await? {
                return Ok(Some(vid));
            }
        }
        Ok(None)
    }

    /// The first of `keys` that the index has, by its position.
    ///
    /// # Errors
    /// Those of reading pages.
    pub(crate) async fn first_present(
        &self,
        tablet: &TabletState,
        schema: &TableSchema,
        pages: &dyn PageSource,
        keys: &[&[u8]],
    ) -> Result<Option<usize>> {
        let in_memtable = {
            let memtable = read(self.memtable(tablet, schema, pages).await?);
            keys.iter().position(|key| memtable.get(key).is_some())
        };
        if in_memtable.is_some() {
            return Ok(in_memtable);
        }
        for run in self.runs.iter().rev() {
            let found = run.get_many(pages, keys).await?;
            if let Some(position) = found.iter().position(Option::is_some) {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Everything in the index whose key may lie in `first..=last`, as sources of a merge.
    ///
    /// # Errors
    /// Those of reading pages.
    pub(crate) async fn overlapping(
        &self,
        tablet: &TabletState,
        schema: &TableSchema,
        pages: &dyn PageSource,
        first: &[u8],
        last: &[u8],
    ) -> Result<Vec<MergeSource>> {
        let mut sources = Vec::new();
        for run in &self.runs {
            let overlaps = run.key_range().is_some_and(|(low, high)| low <= last && first <= high);
            if overlaps {
                sources.push(MergeSource::Run(run.scan(Some(first))));
            }
        }
        let memtable = read(self.memtable(tablet, schema, pages).await?).clone();
        if !memtable.is_empty() {
            sources.push(MergeSource::Memtable(Arc::new(memtable)));
        }
        Ok(sources)
    }

    /// The keys of the memtable, as of now.
    ///
    /// # Errors
    /// Those of reading pages.
    pub(crate) async fn memtable_copy(
        &self,
        tablet: &TabletState,
        schema: &TableSchema,
        pages: &dyn PageSource,
    ) -> Result<Memtable> {
        Ok(read(self.memtable(tablet, schema, pages).await?).clone())
    }

    /// Bytes that the memtable takes.
    ///
    /// # Errors
    /// Those of reading pages.
    pub(crate) async fn memtable_bytes(
        &self,
        tablet: &TabletState,
        schema: &TableSchema,
        pages: &dyn PageSource,
    ) -> Result<usize> {
        Ok(read(self.memtable(tablet, schema, pages).await?).byte_size())
    }

    /// Keys that shall enter this index's memtable with the commit.
    pub(crate) fn pending(&self, keys: Vec<(Vec<u8>, u64)>) -> PendingKeys {
        PendingKeys { memtable: Arc::clone(&self.memtable), keys }
    }

    async fn memtable(
        &self,
        tablet: &TabletState,
        schema: &TableSchema,
        pages: &dyn PageSource,
    ) -> Result<&RwLock<Memtable>> {
        self.memtable
            .cell
            .get_or_try_init(|| async {
                rebuild(tablet, schema, pages, self.vid_covered).await.map(RwLock::new)
            })
            .await
    }
}

impl SharedMemtable {
    fn of(memtable: Memtable) -> Arc<Self> {
        Arc::new(Self { cell: OnceCell::new_with(Some(RwLock::new(memtable))) })
    }
}

impl PendingKeys {
    /// Puts the keys into the memtable. They were checked: none of them is there.
    pub(crate) fn publish(self) {
        // A statement that inserts keys has looked them up, which made the memtable.
        let Some(memtable) = self.memtable.cell.get() else { return };
        let mut memtable = memtable.write().unwrap_or_else(PoisonError::into_inner);
        for (key, vid) in self.keys {
            let inserted = memtable.insert(&key, vid);
            debug_assert!(inserted.is_ok(), "keys are checked before they are published");
        }
    }
}

fn opened(runs: Vec<Arc<SegmentDirectory>>) -> Result<Vec<Run>, StoreError> {
    runs.into_iter().map(Run::new).collect()
}

fn read(memtable: &RwLock<Memtable>) -> std::sync::RwLockReadGuard<'_, Memtable> {
    memtable.read().unwrap_or_else(PoisonError::into_inner)
}

/// Keys of all rows from `vid_covered` on that lie in hot segments.
async fn rebuild(
    tablet: &TabletState,
    schema: &TableSchema,
    pages: &dyn PageSource,
    vid_covered: u64,
) -> Result<Memtable> {
    let mut memtable = Memtable::new();
    let Some(index_key) = IndexKey::of_primary_key(schema)? else { return Ok(memtable) };
    let projection = Projection::of_table(schema, &schema.primary_key_indices());
    for segment in tablet.heap.iter().filter(|segment| segment.class == PageClass::HOT) {
        let entries: Vec<_> = segment
            .pages
            .iter()
            .filter(|entry| entry.vid_first + u64::from(entry.page.row_count) > vid_covered)
            .collect();
        for entries in entries.chunks(REBUILD_PAGE_COUNT) {
            let reads: Vec<PageRead> = entries
                .iter()
                .map(|entry| PageRead {
                    segment: segment.segment_ref(),
                    page: entry.page,
                    columns: projection.columns.clone(),
                })
                .collect();
            let answers = pages.read(reads.clone()).await?;
            for ((entry, read), page) in entries.iter().zip(&reads).zip(&answers) {
                let mut overflow = OverflowValues::none();
                let needed = overflow_pages(page, read, &projection.columns, None)?;
                let needed: Vec<_> =
                    needed.into_iter().filter_map(|page| entry.overflow_page(page)).collect();
                let payloads = pages.read_overflow(read.segment, needed.clone()).await?;
                for (page, payload) in needed.iter().zip(payloads) {
                    overflow.insert(page.page, payload);
                }
                let rows = decode_batch(page, read, &projection, None, &overflow)?;
                let keys = index_key.encode(rows.columns())?;
                for (key, vid) in keys.iter().zip(entry.vid_first..) {
                    if let Some(key) = key.filter(|_| vid >= vid_covered) {
                        memtable.insert(key, vid)?;
                    }
                }
            }
        }
    }
    Ok(memtable)
}

/// The error of a key that is there already, with its values.
pub(crate) fn duplicate_key(schema: &TableSchema, key: &[u8]) -> Error {
    let columns = schema.primary_key_indices();
    let names: Vec<&str> = columns
        .iter()
        .filter_map(|index| schema.columns.get(*index))
        .map(|column| column.name.as_str())
        .collect();
    let values = key_values(schema, key).unwrap_or_else(|_| vec!["?".to_owned()]);
    Error::DuplicateKey {
        table: schema.name.clone(),
        columns: names.join(", "),
        key: values.join(", "),
    }
}

fn key_values(schema: &TableSchema, key: &[u8]) -> Result<Vec<String>> {
    let Some(index_key) = IndexKey::of_primary_key(schema)? else { return Ok(Vec::new()) };
    index_key
        .decode(&[key])?
        .iter()
        .map(|column| Ok(crate::value::value_text(column, 0)?.unwrap_or_default()))
        .collect()
}

/// An error of the store, where duplicate keys are told as SQL tells them.
pub(crate) fn key_error(schema: &TableSchema, error: StoreError) -> Error {
    match error {
        StoreError::DuplicateKey { key, .. } => duplicate_key(schema, &key),
        other => other.into(),
    }
}

/// Reads `sources` to their end and refuses a key that comes twice.
pub(crate) async fn check_unique(
    schema: &TableSchema,
    sources: Vec<MergeSource>,
    pages: &dyn PageSource,
) -> Result<()> {
    let mut merge = KeyMerge::new(sources, true);
    while merge.next(pages).await.map_err(|error| key_error(schema, error))?.is_some() {}
    Ok(())
}
