//! A bulk load: a stream of batches in; for each tablet one sealed segment and one run for each index out, all or
//! nothing.
//!
//! ```text
//!  batches ─▶ RowChecks ─▶ Router ─┬─▶ TabletLoad ─┬─▶ (thread) SegmentWriter ─▶ SegmentSink ─▶ device
//!                                  │               ├─▶ (task) IndexLoad: keys ─▶ KeyRunWriter ─▶ SegmentSink ─▶ device
//!                                  │               └─▶ … one for each index
//!                                  └─▶ … one for each tablet
//! ```
//!
//! Encoding has a thread of its own, and each index a task of its own, beside the task that reads and checks rows and
//! the writes in flight; so the devices of a table's tablets are written side by side. Memory is bounded by a page, a
//! few batches and the writes in flight for each tablet, and the keys that are sorted at once, whatever the length of
//! the stream. A tablet that gets no rows is not touched.
//!
//! Invariant: nothing is visible before the commit, and a failed load ends all its tasks and writes, and so gives back
//! its space on all devices, before it returns the error. The writer lock is held from the first batch to the commit.

mod tablet_load;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use cleave_catalog::catalog::{CatalogState, TableState, TabletState};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::index::TabletIndex;
use cleave_catalog::settings::{Settings, Stack};
use cleave_store::{
    KeyRange, MergeSource, Run, SegmentDirectory, SegmentRef, TableSchema, VersionRun,
};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::compact::compact;
use super::insert::with_ends;
use super::merge_runs::RunMerger;
use super::route::Router;
use super::unique::check_across;
use super::vid_set::VidSet;
use crate::device::Claim;
use crate::host_pages::HostPages;
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::storage_engine::commit::Changes;
use tablet_load::TabletLoad;

/// Loads `batches` into `table`, as rows that `made` makes of them for its schema; see `Session::load`.
///
/// # Errors
/// As above.
pub async fn load(
    database: &Arc<Engine>,
    settings: &Arc<Settings>,
    table: &str,
    mut batches: BoxStream<'_, Result<RecordBatch>>,
    progress: Option<&(dyn Fn(u64) + Send + Sync)>,
    made: &(dyn Fn(&Arc<TableSchema>, &RecordBatch) -> Result<RecordBatch> + Send + Sync),
    (checks, check): (Arc<dyn RowChecks>, &dyn LoadCheck),
) -> Result<u64> {
    database.ask_devices(table).await?;
    let edit = CatalogEdit::begin(database).await?;
    let schema = Arc::clone(&edit.table(table)?.schema);
    let mut load = BulkLoad::begin(edit, settings, &schema, Some(checks))?;
    while let Some(batch) = batches.next().await {
        load.push(batch.and_then(|batch| made(&schema, &batch))).await?;
        if let Some(progress) = progress {
            progress(load.row_count());
        }
    }
    load.commit(check).await
}

/// Evaluates CHECK constraints of rows.
#[async_trait]
pub trait RowChecks: Send + Sync {
    /// Refuses `rows` that `table` would store, if one breaks a check.
    ///
    /// # Errors
    /// [`Error::Violation`]; what computing a check gives.
    async fn check_rows(&self, table: &TableState, rows: &RecordBatch) -> Result<()>;
}

/// Checks of a load that its table alone cannot answer: foreign keys.
#[async_trait]
pub trait LoadCheck: Send + Sync {
    /// Refuses the rows that `loaded`, which is to be committed, has of the table of this id.
    ///
    /// # Errors
    /// [`Error::Violation`]; those of a query.
    async fn check(&self, loaded: &CatalogState, table: u32) -> Result<()>;
}

/// A load under way.
pub struct BulkLoad {
    edit: CatalogEdit,
    settings: Arc<Settings>,
    table: Arc<TableState>,
    router: Router,
    /// None: its rows have been checked.
    checks: Option<Arc<dyn RowChecks>>,
    /// By place of the tablet, of those that got rows.
    tablets: Vec<Option<TabletLoad>>,
    row_count: u64,
}

impl BulkLoad {
    /// Begins to load into `table`, of which `schema` is what the rows were made for. No `checks`: they have been
    /// checked.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the table was replaced meanwhile.
    pub fn begin(
        edit: CatalogEdit,
        settings: &Arc<Settings>,
        schema: &Arc<TableSchema>,
        checks: Option<Arc<dyn RowChecks>>,
    ) -> Result<Self> {
        let table = target(&edit, schema)?;
        let router = Router::new(&table)?;
        let tablets = table.tablets.iter().map(|_| None).collect();
        let settings = Arc::clone(settings);
        Ok(Self { edit, settings, table, router, checks, tablets, row_count: 0 })
    }

    /// Rows taken so far.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Takes the rows of `first`, and then those of `rest`.
    ///
    /// # Errors
    /// Those of [`BulkLoad::push`].
    pub async fn push_all(
        &mut self,
        first: Vec<RecordBatch>,
        mut rest: BoxStream<'_, Result<RecordBatch>>,
    ) -> Result<()> {
        for batch in first {
            self.push(Ok(batch)).await?;
        }
        while let Some(batch) = rest.next().await {
            self.push(batch).await?;
        }
        Ok(())
    }

    /// Takes rows that conform to the table, or the error of their source.
    ///
    /// # Errors
    /// That of `rows`; those of encoding and writing these or earlier rows; [`Error::DuplicateKey`].
    pub async fn push(&mut self, rows: Result<RecordBatch>) -> Result<()> {
        let given = match rows {
            Ok(rows) => self.give(rows).await,
            Err(error) => Err(error),
        };
        if given.is_err() {
            self.stop().await;
        }
        given
    }

    async fn give(&mut self, rows: RecordBatch) -> Result<()> {
        if let Some(checks) = &self.checks {
            checks.check_rows(&self.table, &rows).await?;
        }
        let row_count = rows.num_rows() as u64;
        for (place, rows) in self.router.route(rows)? {
            if rows.num_rows() > 0 {
                self.tablet(place)?.give(rows).await?;
            }
        }
        self.row_count += row_count;
        Ok(())
    }

    /// The load of the tablet at `place`, begun if it was not.
    fn tablet(&mut self, place: usize) -> Result<&mut TabletLoad> {
        let made_anew = || made_anew(&self.table.schema.name);
        let tablet = self.table.tablets.get(place).ok_or_else(made_anew)?;
        let load = self.tablets.get_mut(place).ok_or_else(made_anew)?;
        match load {
            Some(load) => Ok(load),
            none => {
                let (schema, count) = (&self.table.schema, self.table.tablets.len());
                let settings = &self.settings;
                let begun = TabletLoad::begin(&mut self.edit, settings, schema, tablet, count)?;
                Ok(none.insert(begun))
            }
        }
    }

    /// Deletes rows of the table, by the places of their tablets: their keys are free then.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a row that is dead already.
    pub fn end_rows(&mut self, dead: &BTreeMap<usize, VidSet>) -> Result<()> {
        let table = with_ends(&self.table, dead)?;
        for (load, tablet) in self.tablets.iter_mut().zip(&table.tablets) {
            if let Some(load) = load {
                load.tablet = Arc::clone(tablet);
            }
        }
        self.edit.put_table(TableState::clone(&table));
        self.table = Arc::new(table);
        Ok(())
    }

    /// Commits what was taken; returns how many rows that were.
    ///
    /// # Errors
    /// As [`BulkLoad::push`]; and those of the commit.
    pub async fn commit(self, check: &dyn LoadCheck) -> Result<u64> {
        if self.row_count == 0 {
            return Ok(0);
        }
        let table = self.table.schema.table_id;
        let (edit, row_count) = self.end().await?;
        check.check(&edit.next, table).await?;
        let database = Arc::clone(edit.database());
        database.commit(Changes::edit(edit)).await?;
        Ok(row_count)
    }

    /// The edit with what was taken, and how many rows that are.
    ///
    /// # Errors
    /// As [`BulkLoad::push`].
    pub async fn end(mut self) -> Result<(CatalogEdit, u64)> {
        if self.row_count == 0 {
            return Ok((self.edit, 0));
        }
        match self.finish().await {
            Ok(tablets) => {
                let table = TableState { tablets, ..TableState::clone(&self.table) };
                self.edit.put_table(table);
                Ok((self.edit, self.row_count))
            }
            Err(error) => {
                self.stop().await;
                Err(error)
            }
        }
    }

    /// The table's tablets with what was taken.
    async fn finish(&mut self) -> Result<Vec<Arc<TabletState>>> {
        // All at once, so that their ends are written side by side; heaps first, so that a full device is noticed
        // before the keys are written.
        let mut loads: Vec<&mut TabletLoad> = self.tablets.iter_mut().flatten().collect();
        loads.iter_mut().for_each(|load| load.end_rows());
        let mut loaded = Vec::with_capacity(loads.len());
        for load in &mut loads {
            loaded.push(Loaded { heap: load.finish_heap().await?, runs: Vec::new() });
        }
        // One index after the other, so that a tablet claims space ahead for one run at a time.
        for place in 0..self.table.indexes.len() {
            loads.iter_mut().for_each(|load| load.end_keys(place));
            for (load, loaded) in loads.iter_mut().zip(&mut loaded) {
                loaded.runs.push(load.finish_keys(place).await?);
            }
        }
        let tablets = self.tablets.iter().flatten().map(|load| &load.tablet);
        let new: Vec<_> = tablets.zip(&loaded).collect();
        check_unique(self.edit.database(), &self.table, &new).await?;
        let mut tablets = self.table.tablets.clone();
        for (load, loaded) in self.tablets.iter().flatten().zip(loaded) {
            let by = (&load.claim, &load.merger);
            let changed = with_rows(&mut self.edit, &load.tablet, by, loaded).await?;
            if let Some(tablet) = tablets.iter_mut().find(|tablet| tablet.id == changed.id) {
                *tablet = Arc::new(changed);
            }
        }
        Ok(tablets)
    }

    /// Ends the tasks of a load that failed, before its error is returned: the space that they hold is free by then.
    async fn stop(&mut self) {
        for load in self.tablets.iter_mut().flatten() {
            load.stop().await;
        }
    }
}

/// What a tablet got: its heap's new segment, and the new run of each index.
pub(super) struct Loaded {
    pub(super) heap: SegmentDirectory,
    pub(super) runs: Vec<Option<Arc<SegmentDirectory>>>,
}

/// Refuses a key that `table` has already, or that the runs which its tablets got have twice. In each run alone none
/// does.
///
/// # Errors
/// [`Error::DuplicateKey`]; those of reading.
pub(super) async fn check_unique(
    database: &Engine,
    table: &TableState,
    loaded: &[(&Arc<TabletState>, &Loaded)],
) -> Result<()> {
    for (at, definition) in table.indexes.iter().enumerate().filter(|(_, index)| index.unique) {
        let mut new = Vec::with_capacity(loaded.len());
        for (tablet, loaded) in loaded {
            let run = loaded.runs.get(at).cloned().flatten();
            let Some((run, index)) = run.zip(tablet.indexes.get(at)) else { continue };
            if table.divides(definition) {
                new.push((Arc::clone(tablet), run));
            } else {
                let pages = database.host_pages(tablet.device, Stack::Native)?;
                check_within((tablet, &*pages), index, run).await?;
            }
        }
        let index = table.tablets.first().and_then(|tablet| tablet.indexes.get(at));
        if let Some(index) = index.filter(|_| !new.is_empty()) {
            check_across(database, table, index.shape(), &new).await?;
        }
    }
    Ok(())
}

/// Refuses a key of the new run `new` that `tablet`, whose pages are `pages`, has in `index`.
async fn check_within(
    (tablet, pages): (&TabletState, &HostPages),
    index: &TabletIndex,
    new: Arc<SegmentDirectory>,
) -> Result<()> {
    let new = Run::new(new)?;
    let Some((first, last)) = new.key_range() else { return Ok(()) };
    let mut sources = index.overlapping(tablet, pages, first, last).await?;
    if sources.is_empty() {
        return Ok(());
    }
    sources.push(MergeSource::Run(new.scan(KeyRange::default())));
    index.shape().check_unique(sources, pages, &tablet.version_map).await
}

/// `tablet` with what it got, in space of `claim`.
pub(super) async fn with_rows(
    edit: &mut CatalogEdit,
    tablet: &TabletState,
    by: (&Arc<Claim>, &RunMerger),
    loaded: Loaded,
) -> Result<TabletState> {
    let mut tablet = TabletState::clone(tablet);
    let mut indexes = Vec::with_capacity(tablet.indexes.len());
    for (index, run) in tablet.indexes.iter().zip(loaded.runs) {
        indexes.push(match run {
            Some(run) => with_run(edit, by, index, run).await?,
            None => Arc::clone(index),
        });
    }
    let row_count = loaded.heap.row_count();
    // Only the last segment may be open, and this one is behind it.
    if let Some(last) = tablet.heap.last_mut().filter(|last| !last.sealed) {
        Arc::make_mut(last).sealed = true;
    }
    Arc::make_mut(&mut tablet.version_map).append_run(VersionRun {
        vid_first: tablet.next_vid,
        vid_count: row_count,
        segment: loaded.heap.segment,
    })?;
    tablet.heap.push(Arc::new(loaded.heap));
    tablet.next_vid += row_count;
    tablet.indexes = indexes;
    Ok(tablet)
}

/// `index` with one run more.
async fn with_run(
    edit: &mut CatalogEdit,
    (claim, merger): (&Arc<Claim>, &RunMerger),
    index: &Arc<TabletIndex>,
    run: Arc<SegmentDirectory>,
) -> Result<Arc<TabletIndex>> {
    let mut runs: Vec<_> = index.runs().map(Arc::clone).collect();
    runs.push(run);
    let runs = compact(edit, claim, index, runs, merger).await?;
    Ok(Arc::new(index.with_runs(runs)?))
}

/// The table that `schema` describes, which has at least one tablet.
///
/// # Errors
/// As [`CatalogState::find_writable_table`](cleave_catalog::catalog::CatalogState::find_writable_table);
/// [`Error::Invalid`] where the table was replaced meanwhile.
pub fn target(edit: &CatalogEdit, schema: &TableSchema) -> Result<Arc<TableState>> {
    let table = Arc::clone(edit.next.find_writable_table(&schema.name)?);
    let same = table.schema.table_id == schema.table_id && table.schema.version == schema.version;
    if same && !table.tablets.is_empty() { Ok(table) } else { Err(made_anew(&schema.name)) }
}

/// The error of a statement whose table was replaced meanwhile.
pub fn made_anew(table: &str) -> Error {
    Error::Invalid {
        message: format!("table \"{table}\" was dropped and created again while the statement ran"),
        fault: Fault::State,
        position: None,
    }
}

/// A new segment of the table that `schema` describes, written by this edit alone.
///
/// # Errors
/// [`StorageError::Exhausted`](cleave_catalog::storage_error::StorageError::Exhausted).
pub fn segment_ref(edit: &mut CatalogEdit, schema: &TableSchema) -> Result<SegmentRef> {
    Ok(SegmentRef {
        table_id: schema.table_id,
        segment: edit.segment_id()?,
        schema_version: schema.version,
        commit: edit.commit_number(),
    })
}
