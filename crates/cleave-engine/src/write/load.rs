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
//! A load by itself goes on [beside](BulkLoad::beside) all writers: its rows get VIDs far behind those of the others,
//! and the writer lock is taken when all pages are written and synced. One such load at a time writes to a table.
//! Others have an edit of their own, in which VIDs go on from the table's last.
//!
//! Invariant: nothing is visible before the commit, and a failed load ends all its tasks and writes, and so gives back
//! its space on all devices, before it returns the error.

mod tablet_load;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::settings::Settings;
use cleave_store::{SegmentRef, TableSchema};
use futures::StreamExt;
use futures::future::{BoxFuture, try_join_all};
use futures::stream::BoxStream;

use super::insert::with_ends;
use super::new_rows::{self, NewRows, vid_beside};
use super::route::Router;
use super::vid_set::VidSet;
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
    let schema = Arc::clone(&database.catalog().find_table(table)?.schema);
    let mut load = BulkLoad::beside(database, settings, &schema, checks)?;
    while let Some(batch) = batches.next().await {
        load.push(batch.and_then(|batch| made(&schema, &batch))).await?;
        if let Some(progress) = progress {
            progress(load.row_count());
        }
    }
    load.commit(check).await
}

/// Evaluates CHECK constraints of rows.
pub trait RowChecks: Send + Sync {
    /// Refuses `rows` that `table` would store, if one breaks a check.
    ///
    /// # Errors
    /// [`Error::Violation`]; what computing a check gives.
    fn check_rows<'a>(
        &'a self,
        table: &'a TableState,
        rows: &'a RecordBatch,
    ) -> BoxFuture<'a, Result<()>>;
}

/// Checks of a load that its table alone cannot answer: foreign keys.
pub trait LoadCheck: Send + Sync {
    /// Refuses the rows that `loaded`, which is to be committed, has of the table of this id.
    ///
    /// # Errors
    /// [`Error::Violation`]; those of a query.
    fn check<'a>(&'a self, loaded: &'a CatalogState, table: u32) -> BoxFuture<'a, Result<()>>;
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
    /// It goes on beside the table's writers.
    is_beside: bool,
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
        let (row_count, is_beside) = (0, false);
        Ok(Self { edit, settings, table, router, checks, tablets, row_count, is_beside })
    }

    /// Begins to load into the table that `schema` describes beside its writers, but no other such load. The caller has
    /// locked the table: nobody else defines anything of it before the load has ended.
    ///
    /// # Errors
    /// As [`BulkLoad::begin`].
    pub fn beside(
        database: &Arc<Engine>,
        settings: &Arc<Settings>,
        schema: &Arc<TableSchema>,
        checks: Arc<dyn RowChecks>,
    ) -> Result<Self> {
        let edit = edit_beside(database)?;
        Ok(Self { is_beside: true, ..Self::begin(edit, settings, schema, Some(checks))? })
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
                let vid_first = if self.is_beside { vid_beside(tablet) } else { tablet.next_vid };
                let (edit, rows) = (&mut self.edit, (&**tablet, vid_first));
                let begun = TabletLoad::begin(edit, &self.settings, schema, rows, count)?;
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

    /// The edit with what was taken, and how many rows that are. That of a load beside writers has the writer lock.
    ///
    /// # Errors
    /// As [`BulkLoad::push`]; [`Error::Invalid`] for a table that has become another one.
    pub async fn end(mut self) -> Result<(CatalogEdit, u64)> {
        if self.row_count == 0 {
            return Ok((self.edit, 0));
        }
        let new = match self.finish().await {
            Ok(new) => new,
            Err(error) => {
                self.stop().await;
                return Err(error);
            }
        };
        let (mut edit, mut table) = (self.edit, self.table);
        if self.is_beside {
            (edit, table) = newest(edit, &table).await?;
        }
        new_rows::add(&mut edit, &table, new).await?;
        Ok((edit, self.row_count))
    }

    /// Waits until everything is written: what each tablet gets.
    async fn finish(&mut self) -> Result<Vec<NewRows>> {
        // All at once, so that their ends are written side by side; heaps first, so that a full device is noticed
        // before the keys are written.
        let loads = self.tablets.iter_mut().enumerate();
        let mut loads: Vec<(usize, &mut TabletLoad)> =
            loads.filter_map(|(place, load)| Some((place, load.as_mut()?))).collect();
        loads.iter_mut().for_each(|(_, load)| load.end_rows());
        let mut loaded = Vec::with_capacity(loads.len());
        for (place, load) in &mut loads {
            let heap = load.finish_heap().await?;
            let (claim, merger) = (Arc::clone(&load.claim), load.merger.clone());
            let (place, vid_first, runs) = (*place, load.vid_first, Vec::new());
            loaded.push(NewRows { place, vid_first, heap, runs, claim, merger });
        }
        // One index after the other, so that a tablet claims space ahead for one run at a time.
        for at in 0..self.table.indexes.len() {
            loads.iter_mut().for_each(|(_, load)| load.end_keys(at));
            for ((_, load), loaded) in loads.iter_mut().zip(&mut loaded) {
                loaded.runs.push(load.finish_keys(at).await?);
            }
        }
        Ok(loaded)
    }

    /// Ends the tasks of a load that failed, before its error is returned: the space that they hold is free by then.
    async fn stop(&mut self) {
        for load in self.tablets.iter_mut().flatten() {
            load.stop().await;
        }
    }
}

/// An edit for pages that are written beside the writers of their table. It holds no published catalog version, whose
/// pages could not be used again as long as the client sends rows: it reads none of them.
pub(super) fn edit_beside(database: &Arc<Engine>) -> Result<CatalogEdit> {
    let state = CatalogState { keep: None, ..CatalogState::clone(&database.catalog()) };
    CatalogEdit::kept(database, Arc::new(state), BTreeMap::new())
}

/// An edit of the newest catalog version, with the writer lock, in place of `kept`, which has written pages for
/// `table`; and the table as it is now.
///
/// # Errors
/// [`Error::Invalid`] for a table that has become another one; those of syncing the pages.
pub(super) async fn newest(
    kept: CatalogEdit,
    table: &TableState,
) -> Result<(CatalogEdit, Arc<TableState>)> {
    let database = Arc::clone(kept.database());
    let (kept, claims) = kept.into_kept();
    // Before anybody waits for this.
    try_join_all(claims.values().map(|claim| claim.sync_written())).await?;
    let mut edit = CatalogEdit::begin(&database).await?;
    let now = target(&edit, &table.schema)?;
    let is_same = now.tablets.len() == table.tablets.len()
        && now.tablets.iter().zip(&table.tablets).all(|(now, then)| now.device == then.device)
        && now.indexes.iter().map(|index| index.id).eq(table.indexes.iter().map(|index| index.id));
    if !is_same {
        return Err(made_anew(&table.schema.name));
    }
    for (device, claim) in claims {
        edit.adopt(device, claim);
    }
    // The segments that were written have their numbers from there.
    edit.next.next_segment = edit.next.next_segment.max(kept.next_segment);
    Ok((edit, now))
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
