//! Inserts: few rows in, appended to the table's hot segment; many rows in, loaded as a bulk segment.
//!
//! 1. Rows of an INSERT are gathered up to [`ROWS_MAX`] rows or [`BYTES_MAX`] bytes; beyond, they and all that follow
//!    go to a [`BulkLoad`]. A [`TableChange`] is [applied](apply) in the same way, after the rows that it deletes are
//!    marked dead in their version maps: their keys are free then.
//! 2. Rows are [routed](Router) to tablets. Their keys are looked up, among themselves and in the index of their
//!    tablet, or of every tablet where equal keys may lie in another one.
//! 3. In each of them, side by side, the tail page of the hot segment is rewritten at another place with the rows that
//!    it has room for; the others go to new pages. Pages never change, so readers of the old tail are undisturbed.
//!    While a transaction has [pinned](TailPins) the tails of the table, all rows go to new pages.
//! 4. Keys enter the memtable with the commit; in the same commit a memtable that has grown too large goes to a run,
//!    and a hot segment that has grown too large is sealed.
//!
//! Invariant: the manifest holds the directory of at most one hot segment a tablet, of a bounded size. A commit that
//! rewrites the manifest, which has an entry for each sealed segment, run and version map of the database, costs with
//! their number, and not with the pages or rows of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::catalog::{TableState, TabletState, segment_extents};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::TabletIndex;
use cleave_catalog::settings::{Settings, Stack};
use cleave_media::{AlignedBuffer, BlockAddress, Extent};
use cleave_store::{
    CommitColumn, EncodedPage, Memtable, PageClass, PageKind, PageRead, PageSource,
    SegmentDirectory, SegmentKind, TableSchema, Tail, VersionRun, Versions, VidColumn, all_columns,
    append_rows,
};
use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream::BoxStream;

use super::begun::{Begun, byte_count};
use super::compact::compact;
use super::key_run::write_memtable;
use super::load::{BulkLoad, LoadCheck, RowChecks, made_anew, segment_ref, target};
use super::merge_runs::RunMerger;
use super::route::Router;
use super::vid_set::VidSet;
use crate::delta::TableDelta;
use crate::device::{COMMAND_BYTES, Claim, DISK_FULL};
use crate::host_pages::PooledPages;
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::CatalogEdit;
#[cfg(doc)]
use crate::write::tail_pins::TailPins;

/// Most rows that are appended to a hot segment at once.
const ROWS_MAX: usize = 10_000;
/// Most bytes that are.
const BYTES_MAX: usize = 4 << 20;
/// Pages at which a hot segment is sealed: 4 MiB of rows.
const HOT_PAGES_MAX: usize = 256;
/// Bytes at which a memtable goes to a run.
const MEMTABLE_BYTES_MAX: usize = 4 << 20;

/// The rows of a statement that have come so far.
pub enum Gathered<'a> {
    /// All of them.
    Few(Vec<RecordBatch>),
    /// The first, and those that follow.
    Many(Vec<RecordBatch>, BoxStream<'a, Result<RecordBatch>>),
}

/// Reads `batches` to their end, or until they are many.
///
/// # Errors
/// Those of `batches`.
pub async fn gather(mut batches: BoxStream<'_, Result<RecordBatch>>) -> Result<Gathered<'_>> {
    let mut few: Vec<RecordBatch> = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        rows += batch.num_rows();
        bytes += byte_count(&batch);
        few.push(batch);
        if rows > ROWS_MAX || bytes > BYTES_MAX {
            return Ok(Gathered::Many(few, batches));
        }
    }
    Ok(Gathered::Few(few))
}

/// Reads `rest` to its end, or until all rows take more than `bytes_max`.
///
/// # Errors
/// Those of `rest`.
pub async fn gather_up_to(
    mut first: Vec<RecordBatch>,
    mut rest: BoxStream<'_, Result<RecordBatch>>,
    bytes_max: usize,
) -> Result<Gathered<'_>> {
    let mut bytes: usize = first.iter().map(byte_count).sum();
    while bytes <= bytes_max {
        let Some(batch) = rest.next().await else { return Ok(Gathered::Few(first)) };
        let batch = batch?;
        bytes += byte_count(&batch);
        first.push(batch);
    }
    Ok(Gathered::Many(first, rest))
}

/// Whether a statement's rows are too few to be loaded.
pub fn are_few(rows: &RecordBatch) -> bool {
    are_few_in_all(std::slice::from_ref(rows))
}

/// The same of rows in several batches.
pub fn are_few_in_all(rows: &[RecordBatch]) -> bool {
    let bytes: usize = rows.iter().map(byte_count).sum();
    rows.iter().map(RecordBatch::num_rows).sum::<usize>() <= ROWS_MAX && bytes <= BYTES_MAX
}

/// Loads the rows of `first` and `rest`, which conform to `schema`; returns how many that were.
///
/// # Errors
/// Those of `rest`; [`Error::DuplicateKey`]; those of the device.
pub async fn load(
    database: &Arc<Engine>,
    settings: &Arc<Settings>,
    schema: &Arc<TableSchema>,
    (first, rest): (Vec<RecordBatch>, BoxStream<'_, Result<RecordBatch>>),
    (checks, check): (Arc<dyn RowChecks>, &dyn LoadCheck),
) -> Result<u64> {
    database.ask_devices(&schema.name).await?;
    let mut load = BulkLoad::beside(database, settings, schema, checks)?;
    load.push_all(first, rest).await?;
    load.commit(check).await
}

/// What a statement or a transaction changes in one table.
#[derive(Debug, Clone)]
pub struct TableChange {
    /// The table, as it was then.
    pub schema: Arc<TableSchema>,
    /// VIDs of deleted rows, by the places of their tablets.
    pub dead: BTreeMap<usize, VidSet>,
    /// Inserted rows, by the places of their tablets.
    pub rows: BTreeMap<usize, Begun>,
    /// Whether the inserted rows replace the deleted ones with the same unique keys: it locks less then.
    pub keeps_keys: bool,
    /// By tablet, the [mark](cleave_catalog::catalog::rewrites::Rewrites::mark) of the state in which the deleted rows
    /// were read; None: they have been locked, and found as they were read.
    pub marks: Option<Arc<[u64]>>,
}

impl TableChange {
    /// No change of the table that `schema` describes.
    pub fn new(schema: Arc<TableSchema>) -> Self {
        let (dead, rows) = (BTreeMap::new(), BTreeMap::new());
        Self { schema, dead, rows, keeps_keys: false, marks: None }
    }

    /// No change yet of `table`, by a statement that has read this state of it: the rows that it deletes must be as
    /// they are here.
    pub fn of_read(table: &TableState) -> Self {
        let marks = table.tablets.iter().map(|tablet| tablet.rewrites.mark());
        Self { marks: Some(marks.collect()), ..Self::new(Arc::clone(&table.schema)) }
    }

    /// Inserted rows.
    pub fn row_count(&self) -> usize {
        self.rows.values().map(Begun::row_count).sum()
    }

    /// The same in their batches.
    pub fn batches(&self) -> Vec<&RecordBatch> {
        self.rows.values().flat_map(Begun::batches).collect()
    }

    /// Bytes of memory that its rows and VIDs take.
    pub fn byte_count(&self) -> usize {
        let rows = self.rows.values().map(Begun::byte_count).sum::<usize>();
        rows + self.dead.values().map(VidSet::byte_count).sum::<usize>()
    }

    /// The places of the tablets with deleted or inserted rows.
    pub fn places(&self) -> Vec<usize> {
        let mut places: Vec<usize> = self.dead.keys().chain(self.rows.keys()).copied().collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Whether its rows are appended, and not loaded.
    pub fn is_small(&self) -> bool {
        let bytes = self.rows.values().map(Begun::byte_count).sum::<usize>();
        self.row_count() <= ROWS_MAX && bytes <= BYTES_MAX
    }

    /// Whether so many rows are deleted that those in pages are marked in the version maps at once: a delta would have
    /// an entry for each.
    pub fn has_many_dead(&self) -> bool {
        self.dead.values().map(VidSet::len).sum::<usize>() > ROWS_MAX
    }
}

/// The parts of `rows`, by the places of the tablets of `table` that they go to.
///
/// # Errors
/// For rows of another table.
pub fn route(table: &TableState, rows: RecordBatch) -> Result<BTreeMap<usize, Begun>> {
    if rows.num_rows() == 0 {
        return Ok(BTreeMap::new());
    }
    let parts = Router::new(table)?.route_all(rows)?.into_iter();
    Ok(parts.map(|(place, rows)| (place, rows.into())).collect())
}

/// `edit` with `change`.
///
/// # Errors
/// [`Error::Conflict`] where a row to delete is dead; [`Error::DuplicateKey`]; as [`target`]; those of the device.
pub async fn apply(
    mut edit: CatalogEdit,
    settings: &Arc<Settings>,
    change: &TableChange,
) -> Result<CatalogEdit> {
    let table = target(&edit, &change.schema)?;
    if !change.dead.is_empty() {
        edit.put_table(with_ends(&table, &change.dead)?);
    }
    if change.is_small() || edit.is_private() {
        let rows = change.rows.clone();
        return Append::new(edit, settings, &change.schema, rows)?.run().await;
    }
    let mut load = BulkLoad::begin(edit, settings, &change.schema, None)?;
    for rows in change.batches() {
        load.push(Ok(rows.clone())).await?;
    }
    Ok(load.end().await?.0)
}

/// `edit` with all rows of a delta for a table, which were checked when they were committed.
///
/// # Errors
/// As [`apply`].
pub(crate) async fn flush(
    mut edit: CatalogEdit,
    settings: &Arc<Settings>,
    delta: TableDelta,
) -> Result<CatalogEdit> {
    let TableDelta { change, dead_in_delta } = delta;
    let table = target(&edit, &change.schema)?;
    if !change.dead.is_empty() {
        edit.put_table(with_ends(&table, &change.dead)?);
    }
    let mut append = Append::new(edit, settings, &change.schema, change.rows)?;
    append.is_checked = true;
    let mut edit = append.run().await?;
    if !dead_in_delta.is_empty() {
        let table = target(&edit, &change.schema)?;
        edit.put_table(with_ends(&table, &dead_in_delta)?);
    }
    Ok(edit)
}

/// `table` without those of the rows `dead` that are in its pages; the others are in the delta.
///
/// # Errors
/// As [`with_ends`].
pub(crate) fn with_ends_in_pages(
    table: &TableState,
    dead: &BTreeMap<usize, VidSet>,
) -> Result<TableState> {
    let next_vid = |place: usize| table.tablets.get(place).map_or(0, |tablet| tablet.next_vid);
    let in_pages = dead.iter().map(|(place, vids)| (*place, vids.below(next_vid(*place))));
    with_ends(table, &in_pages.collect())
}

/// `table` without the rows `dead`.
///
/// # Errors
/// [`Error::concurrent_update`] for a row that is dead already.
pub(crate) fn with_ends(table: &TableState, dead: &BTreeMap<usize, VidSet>) -> Result<TableState> {
    let mut changed = TableState::clone(table);
    for (place, vids) in dead {
        let Some(tablet) = changed.tablets.get_mut(*place).map(Arc::make_mut) else {
            return Err(made_anew(&table.schema.name));
        };
        let map = Arc::make_mut(&mut tablet.version_map);
        for vid in vids.iter() {
            if map.lookup(vid).is_none() {
                return Err(Error::concurrent_update());
            }
            map.end(vid);
        }
    }
    Ok(changed)
}

/// The rows of a statement on their way to the hot segments of their tablets.
struct Append {
    edit: CatalogEdit,
    schema: Arc<TableSchema>,
    table: Arc<TableState>,
    parts: Vec<Part>,
    /// Whether its keys are known to be unique. Of rows with one key the last counts, the others are dead.
    is_checked: bool,
}

/// The rows that go to one tablet.
struct Part {
    tablet: Arc<TabletState>,
    claim: Arc<Claim>,
    pages: Arc<dyn PageSource>,
    /// Where its pages are found again.
    pool: PooledPages,
    merger: RunMerger,
    rows: Arc<RecordBatch>,
    /// Whether the hot segment's last page may be replaced by one with more rows.
    extends_tail: bool,
}

impl Append {
    fn new(
        mut edit: CatalogEdit,
        settings: &Arc<Settings>,
        schema: &Arc<TableSchema>,
        rows: BTreeMap<usize, Begun>,
    ) -> Result<Self> {
        let table = target(&edit, schema)?;
        let mut parts = Vec::new();
        let extends_tail = !edit.database().tail_pins().has(schema.table_id);
        for (place, rows) in rows {
            let (Some(tablet), Some(rows)) = (table.tablets.get(place), rows.whole()?) else {
                continue;
            };
            if rows.num_rows() == 0 {
                continue;
            }
            let device = edit.database().attached(tablet.device)?;
            let pages = edit.database().page_source(tablet.device, Stack::Native)?;
            let pool = Arc::clone(edit.database().buffer_pool());
            let pool = PooledPages::new(tablet.device, pool);
            let claim = edit.claim(&device);
            let merger = RunMerger::new(edit.database(), &device, settings)?;
            let tablet = Arc::clone(tablet);
            parts.push(Part { tablet, claim, pages, pool, merger, rows, extends_tail });
        }
        if extends_tail && !parts.is_empty() {
            edit.note_extended(schema.table_id);
        }
        let schema = Arc::clone(schema);
        Ok(Self { edit, schema, table, parts, is_checked: false })
    }

    /// The edit with the rows.
    async fn run(mut self) -> Result<CatalogEdit> {
        if self.parts.is_empty() {
            return Ok(self.edit);
        }
        let mut indexes: Vec<Vec<Arc<TabletIndex>>> = vec![Vec::new(); self.parts.len()];
        for place in 0..self.table.indexes.len() {
            let keys = self.checked_keys(place).await?;
            for ((part, keys), indexes) in self.parts.iter().zip(keys).zip(&mut indexes) {
                if let Some(index) = part.tablet.indexes.get(place) {
                    let with_keys = part.index(&mut self.edit, index, keys).await?;
                    indexes.push(with_keys);
                }
            }
        }
        let commit = self.edit.commit_number();
        let mut hot = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            hot.push(part.hot_segment(&mut self.edit, &self.schema)?);
        }
        // Side by side: they may lie on different devices.
        let schema = &*self.schema;
        let appended = self.parts.iter().zip(hot);
        let appended = appended.map(|(part, hot)| part.append(schema, hot, commit));
        let appended = try_join_all(appended).await?;
        let mut tablets = self.table.tablets.clone();
        for ((part, hot), indexes) in self.parts.iter().zip(appended).zip(indexes) {
            let changed = part.tablet_with(hot, indexes)?;
            if let Some(tablet) = tablets.iter_mut().find(|tablet| tablet.id == changed.id) {
                *tablet = Arc::new(changed);
            }
        }
        self.edit.put_table(TableState { tablets, ..TableState::clone(&self.table) });
        Ok(self.edit)
    }

    /// The keys of the index at `place`, of each part, sorted. Where it is unique, none of them is there twice.
    async fn checked_keys(&self, place: usize) -> Result<Vec<Keys>> {
        let mut keys = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            keys.push(match part.tablet.indexes.get(place) {
                Some(index) => part.keys(index, self.is_checked)?,
                None => Keys::new(),
            });
        }
        let needs_check = |index: &&Arc<IndexDefinition>| index.unique && !self.is_checked;
        let definition = self.table.indexes.get(place).filter(needs_check);
        let Some(definition) = definition else { return Ok(keys) };
        if !self.table.divides(definition) {
            let asked = self.parts.iter().zip(&keys).filter_map(|(part, keys)| {
                let index = part.tablet.indexes.get(place)?;
                Some(async move {
                    let sorted: Vec<&[u8]> = keys.keys().map(Vec::as_slice).collect();
                    absent(index, &part.tablet, &*part.pages, &sorted).await
                })
            });
            try_join_all(asked).await?;
            return Ok(keys);
        }
        // Rows with a NULL are equal to none, though their entries may be: VIDs are the tablet's.
        let all = keys.iter().flat_map(BTreeMap::keys);
        let shape = self.table.tablets.first().and_then(|tablet| tablet.indexes.get(place));
        let Some(shape) = shape.map(|index| Arc::clone(index.shape())) else { return Ok(keys) };
        let mut sorted: Vec<&[u8]> =
            all.map(Vec::as_slice).filter(|key| !shape.key.has_null(key)).collect();
        sorted.sort_unstable();
        if let Some([key, _]) = sorted.windows(2).find(|pair| pair.first() == pair.last()) {
            return Err(shape.duplicate_key(key));
        }
        let database = self.edit.database();
        let asked = self.table.tablets.iter().filter_map(|tablet| {
            let index = tablet.indexes.get(place)?;
            let sorted = &sorted;
            Some(async move {
                let pages = database.page_source(tablet.device, Stack::Native)?;
                absent(index, tablet, &*pages, sorted).await
            })
        });
        try_join_all(asked).await?;
        Ok(keys)
    }
}

/// Entries of an index by key, with the VIDs of their rows.
type Keys = BTreeMap<Vec<u8>, u64>;

/// Refuses the first of `sorted` that `index` has.
async fn absent(
    index: &TabletIndex,
    tablet: &TabletState,
    pages: &dyn PageSource,
    sorted: &[&[u8]],
) -> Result<()> {
    let present = index.first_present(tablet, pages, sorted).await?;
    match present.and_then(|position| sorted.get(position)) {
        Some(key) => Err(index.shape().duplicate_key(key)),
        None => Ok(()),
    }
}

impl Part {
    /// The entries of its rows in `index`, no two of them the same; where they are checked, the last of those that are.
    fn keys(&self, index: &TabletIndex, is_checked: bool) -> Result<Keys> {
        let shape = index.shape();
        let encoded = shape.row_entries(&self.rows, self.tablet.next_vid)?;
        let mut keys = Keys::new();
        for (key, vid) in encoded.iter().flatten().zip(self.tablet.next_vid..) {
            if keys.insert(key.to_vec(), vid).is_some() && !is_checked {
                return Err(shape.duplicate_key(key));
            }
        }
        Ok(keys)
    }

    /// `index` with `keys`, which enter its memtable with the commit, or a run now if there are many.
    async fn index(
        &self,
        edit: &mut CatalogEdit,
        index: &Arc<TabletIndex>,
        keys: Keys,
    ) -> Result<Arc<TabletIndex>> {
        let (tablet, pages) = (&self.tablet, &*self.pages);
        if edit.is_private() {
            let with_keys = index.with_keys(tablet, pages, keys.into_iter().collect()).await?;
            return Ok(Arc::new(with_keys));
        }
        if index.memtable_bytes(tablet, pages).await? < MEMTABLE_BYTES_MAX {
            if !edit.is_published() {
                let with_keys = index.with_keys(tablet, pages, keys.into_iter().collect()).await?;
                return Ok(Arc::new(with_keys));
            }
            edit.keys.push(index.pending(keys.into_iter().collect()));
            return Ok(Arc::clone(index));
        }
        match self.flush(edit, index, &keys).await {
            // Committed rows stay readable: keys gather in memory until there is room for a run of them.
            Err(error) if edit.is_published() && error.sqlstate() == DISK_FULL => {
                edit.keys.push(index.pending(keys.into_iter().collect()));
                Ok(Arc::clone(index))
            }
            flushed => flushed,
        }
    }

    /// `index` with a run of its memtable and `keys`. The run has a claim of its own: where there is too little room,
    /// nothing of it is left taken.
    async fn flush(
        &self,
        edit: &mut CatalogEdit,
        index: &Arc<TabletIndex>,
        keys: &Keys,
    ) -> Result<Arc<TabletIndex>> {
        let (shape, tablet, pages) = (index.shape(), &self.tablet, &*self.pages);
        let claim = match edit.is_published() {
            true => Arc::new(Claim::new(edit.database().attached(tablet.device)?)),
            false => Arc::clone(&self.claim),
        };
        let mut memtable: Memtable = index.memtable_copy(tablet, pages).await?;
        for (key, vid) in keys {
            memtable.put(key, *vid);
        }
        let segment = segment_ref(edit, shape.schema())?;
        let run = write_memtable(shape, &claim, segment, &memtable).await?;
        let mut runs: Vec<_> = index.runs().map(Arc::clone).collect();
        runs.push(Arc::new(run));
        let runs = compact(edit, &claim, index, runs, &self.merger).await?;
        if edit.is_published() {
            let named = runs.iter().flat_map(|run| segment_extents(run));
            let mut named: Vec<Extent> = named.collect();
            named.sort_by_key(|extent| extent.start);
            edit.publish_kept(claim, named);
        }
        let covered = tablet.next_vid + self.rows.num_rows() as u64;
        Ok(Arc::new(index.flushed(runs, covered)?))
    }

    /// The tablet's hot segment, or a new one.
    fn hot_segment(
        &self,
        edit: &mut CatalogEdit,
        schema: &TableSchema,
    ) -> Result<SegmentDirectory> {
        let fits = |hot: &&Arc<SegmentDirectory>| {
            hot.class == PageClass::HOT && hot.schema_version == schema.version
        };
        if let Some(hot) = self.tablet.hot_segment().filter(fits) {
            return Ok(SegmentDirectory::clone(hot));
        }
        let mut segment = segment_ref(edit, schema)?;
        // Many commits write it: each row carries its own number.
        segment.commit = 0;
        Ok(SegmentDirectory::new(segment, SegmentKind::Heap, PageClass::HOT))
    }

    /// Writes the rows; `hot` with them.
    async fn append(
        &self,
        schema: &TableSchema,
        mut hot: SegmentDirectory,
        commit: u64,
    ) -> Result<SegmentDirectory> {
        let versions = Versions {
            vid: VidColumn::Sequence { first: self.tablet.next_vid },
            commit: CommitColumn::Each(vec![commit; self.rows.num_rows()]),
        };
        let tail = hot.pages.last().filter(|_| self.extends_tail);
        let read = tail.map(|entry| PageRead {
            segment: hot.segment_ref(),
            page: entry.page,
            columns: all_columns(schema),
        });
        let columns = match &read {
            Some(read) => self.pages.read(vec![read.clone()]).await?.into_iter().next(),
            None => None,
        };
        let tail = read.as_ref().zip(columns.as_ref());
        let pages = append_rows(
            hot.segment_ref(),
            schema,
            PageClass::HOT,
            tail.map(|(read, columns)| Tail { read, columns }),
            hot.next_page(),
            &self.rows,
            versions,
        )?;
        let places = self.write(&pages).await?;
        let written: Vec<_> = pages.iter().zip(places).collect();
        for (page, start) in written.iter().filter(|(page, _)| page.kind == PageKind::Heap) {
            self.pool.keep_written(hot.segment_ref(), page.page_ref(*start), &page.bytes);
        }
        // The old tail's place is retired by the commit, which compares what the catalog versions name.
        drop(hot.append(&written)?);
        hot.sealed = hot.pages.len() >= HOT_PAGES_MAX;
        Ok(hot)
    }

    /// Writes `pages` side by side, in as few commands as their size allows.
    async fn write(&self, pages: &[EncodedPage]) -> Result<Vec<BlockAddress>> {
        let block_count = pages.iter().map(EncodedPage::block_count).sum();
        let extent = self.claim.acquire(block_count).await?;
        let mut places = Vec::with_capacity(pages.len());
        let mut next = extent.start;
        for command in commands(pages) {
            let start = next;
            let bytes = command.iter().map(|page| page.bytes.len()).sum();
            let mut joined = AlignedBuffer::zeroed(bytes);
            let mut from = 0;
            for page in command {
                let to = from + page.bytes.len();
                if let Some(place) = joined.get_mut(from..to) {
                    place.copy_from_slice(&page.bytes);
                }
                from = to;
                places.push(next);
                next = BlockAddress(next.0 + u64::from(page.block_count()));
            }
            self.claim.write(start, joined.into_bytes()).await?;
        }
        Ok(places)
    }

    /// The tablet with the rows, which are in `hot` by now, and their keys in `indexes`.
    fn tablet_with(
        &self,
        hot: SegmentDirectory,
        indexes: Vec<Arc<TabletIndex>>,
    ) -> Result<TabletState> {
        let row_count = self.rows.num_rows() as u64;
        let mut tablet = TabletState::clone(&self.tablet);
        Arc::make_mut(&mut tablet.version_map).append_run(VersionRun {
            vid_first: tablet.next_vid,
            vid_count: row_count,
            segment: hot.segment,
        })?;
        match tablet.heap.last_mut() {
            Some(last) if last.segment == hot.segment => *last = Arc::new(hot),
            _ => tablet.heap.push(Arc::new(hot)),
        }
        tablet.next_vid += row_count;
        tablet.indexes = indexes;
        Ok(tablet)
    }
}

/// `pages` in groups that one command may carry each: of at most [`COMMAND_BYTES`], or of one page that is larger by
/// itself.
fn commands(mut pages: &[EncodedPage]) -> Vec<&[EncodedPage]> {
    let mut commands = Vec::new();
    while !pages.is_empty() {
        let mut bytes = 0;
        let fitting = pages.iter().take_while(|page| {
            bytes += page.bytes.len();
            bytes <= COMMAND_BYTES
        });
        let count = fitting.count().max(1);
        let Some((command, behind)) = pages.split_at_checked(count) else { break };
        commands.push(command);
        pages = behind;
    }
    commands
}

#[cfg(test)]
mod tests;
