//! The shipped delta: rows that are in no stored page yet, as pages in memory beside those of a catalog version.
//!
//! ```text
//!  catalog, commits behind it ─┬▶ inserted rows: pages of a segment of their own, a tablet each ─┬▶ CatalogState
//!                              └▶ deleted rows: bits of the version maps ────────────────────────┤
//!  own changes of a transaction: the same, in segments behind those ─────────────────────────────┘
//! ```
//!
//! The planner treats the result as any other catalog version, one that has all that was committed: its scans read the
//! pages from memory, fragments get them with the command that starts them and keep them for the run, zone maps rule
//! them out, and the host takes them first where both sides share a scan. Nothing is written, and no commit waits.
//!
//! Invariants: such a catalog version is a value that nothing changes, whatever is flushed later, so a block may keep
//! it. It is only read: no commit, no private version on pages of devices and no look-up by an index begins with it.
//! The keys of its rows may be in no index, so an index filter of a scan leaves their pages in. Committed rows have the
//! VIDs that they will have in stored pages, and own rows those behind them. Source: the Update NDP paper, 2.3.3
//! (*shipped & cache*); rules 14 and 21; `docs/design/delta-and-snapshots.md`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::RecordBatch;
use bytes::Bytes;
use cleave_catalog::catalog::{CatalogState, Keep, TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::storage_error::StorageError;
use cleave_media::BlockAddress;
use cleave_store::ids::{SEGMENT_MAX, SHIPPED_SEGMENT_FIRST};
use cleave_store::{
    CommitColumn, EncodedPage, PageClass, SHIPPED_START, SegmentDirectory, SegmentId, SegmentKind,
    SegmentRef, ShippedPages, TableSchema, VersionRun, Versions, VidColumn, append_rows,
};

use super::{Live, Moment, VERSION_BYTES};
use crate::write::insert::{TableChange, with_ends};
use crate::write::load::made_anew;

/// The catalog version that was shipped last: for as long as it is the newest, and beyond that while somebody reads it.
#[derive(Debug, Default)]
pub(crate) struct LastShipped(Mutex<Option<Last>>);

#[derive(Debug)]
struct Last {
    of: Moment,
    state: Weak<CatalogState>,
    /// The same, until something is committed: statements that follow each other do not make it anew.
    newest: Option<Arc<CatalogState>>,
}

impl LastShipped {
    /// All of `live` as one catalog version: the one that others read, or a new one. `is_newest` tells whether nothing
    /// was committed since; it is asked once the version is kept, so a commit that it misses [forgets](Self::forget)
    /// the version.
    ///
    /// # Errors
    /// None that a statement is to blame for.
    pub(crate) fn state(
        &self,
        live: &Live,
        is_newest: impl FnOnce() -> bool,
    ) -> Result<Arc<CatalogState>> {
        if let Some(last) = &*self.last()
            && last.of.is_of(live)
            && let Some(state) = last.state.upgrade()
        {
            return Ok(state);
        }
        let state = Arc::new(state_with(live)?);
        let newest = Some(Arc::clone(&state));
        let last = Last { of: Moment::of(live), state: Arc::downgrade(&state), newest };
        let before = self.last().replace(last);
        drop(before);
        if !is_newest() {
            self.forget();
        }
        Ok(state)
    }

    /// Lets go of a version that is no longer the newest, so that its pages can be used again.
    pub(crate) fn forget(&self) {
        let newest = self.last().as_mut().and_then(|last| last.newest.take());
        drop(newest);
    }

    fn last(&self) -> MutexGuard<'_, Option<Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The catalog version of `live` with the commits behind it.
fn state_with(live: &Live) -> Result<CatalogState> {
    let mut state = CatalogState::clone(&live.state);
    state.commit += live.number;
    state.log_end = live.log_end;
    let mut pages = Pages::behind(&live.state.shipped);
    for delta in live.delta.contents(live.number)? {
        let schema = &delta.change.schema;
        let table = live.state.tables().find(|table| table.schema.table_id == schema.table_id);
        let Some(table) = table else { continue };
        let mut changed = pages.changed(table, &delta.change, state.commit)?;
        if !delta.dead_in_delta.is_empty() {
            changed = with_ends(&changed, &delta.dead_in_delta)?;
        }
        state.tables.insert(schema.name.clone(), Arc::new(changed));
    }
    state.shipped = ShippedPages::new(pages.written)?;
    state.keep = Some(Arc::new(Keep::new(Arc::clone(&live.state), Vec::new())));
    Ok(state)
}

/// Bytes that `changes` take in memory, counted as those of a delta are.
pub fn byte_count(changes: &[&TableChange]) -> u64 {
    let bytes = changes.iter().map(|change| {
        let versions = change.row_count().saturating_mul(VERSION_BYTES);
        change.byte_count().saturating_add(versions)
    });
    let bytes = bytes.fold(0_usize, usize::saturating_add);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// `base` with `changes` of one transaction: its rows are the next ones of their tablets, on pages in memory.
///
/// # Errors
/// [`Error::Conflict`](cleave_catalog::error::Error::Conflict) where a row to delete is dead; of a table that was
/// replaced meanwhile.
pub fn with_changes(
    base: &Arc<CatalogState>,
    changes: &[&TableChange],
) -> Result<Arc<CatalogState>> {
    let mut state = CatalogState::clone(base);
    state.generation += 1;
    state.commit += 1;
    let mut pages = Pages::behind(&base.shipped);
    for change in changes {
        let schema = &change.schema;
        let table = base.find_writable_table(&schema.name)?;
        if (table.schema.table_id, table.schema.version) != (schema.table_id, schema.version) {
            return Err(made_anew(&schema.name));
        }
        let changed = pages.changed(table, change, state.commit)?;
        state.tables.insert(schema.name.clone(), Arc::new(changed));
    }
    state.shipped = ShippedPages::new(pages.written)?;
    state.keep = Some(Arc::new(Keep::new(Arc::clone(base), Vec::new())));
    Ok(Arc::new(state))
}

/// Pages in memory, with their places.
struct Pages {
    written: Vec<(BlockAddress, Bytes)>,
    /// Blocks of them, and of those before.
    block_count: u64,
}

impl Pages {
    /// Those of `before`, to which others are added.
    fn behind(before: &ShippedPages) -> Self {
        let written = before.pages().map(|(start, bytes)| (start, bytes.clone())).collect();
        Self { written, block_count: before.end().0 - SHIPPED_START.0 }
    }

    /// `table` with `change`, whose rows are in these pages.
    fn changed(
        &mut self,
        table: &TableState,
        change: &TableChange,
        commit: u64,
    ) -> Result<TableState> {
        let mut changed = with_ends(table, &change.dead)?;
        for (place, rows) in &change.rows {
            let rows = rows.whole()?.filter(|rows| rows.num_rows() > 0);
            if let (Some(tablet), Some(rows)) = (changed.tablets.get_mut(*place), rows) {
                self.append(&change.schema, &rows, commit, Arc::make_mut(tablet))?;
            }
        }
        Ok(changed)
    }

    /// Adds `rows`, the next ones of `tablet`, as a segment of its own.
    fn append(
        &mut self,
        schema: &TableSchema,
        rows: &RecordBatch,
        commit: u64,
        tablet: &mut TabletState,
    ) -> Result<()> {
        // Each has a page, so the blocks before it tell it from all others.
        let number = u32::try_from(self.block_count).unwrap_or(u32::MAX);
        let segment = SegmentId(SHIPPED_SEGMENT_FIRST.saturating_add(number));
        if segment.0 > SEGMENT_MAX {
            return Err(StorageError::Exhausted { what: "pages of one snapshot" }.into());
        }
        let segment = SegmentRef {
            table_id: schema.table_id,
            segment,
            schema_version: schema.version,
            commit,
        };
        let versions = Versions {
            vid: VidColumn::Sequence { first: tablet.next_vid },
            commit: CommitColumn::Segment,
        };
        let pages = append_rows(segment, schema, PageClass::HOT, None, 0, rows, versions)?;
        let placed: Vec<(&EncodedPage, BlockAddress)> =
            pages.iter().map(|page| (page, self.place(page))).collect();
        let mut directory = SegmentDirectory::new(segment, SegmentKind::Heap, PageClass::HOT);
        // Nothing was there before that it could replace.
        drop(directory.append(&placed)?);
        directory.sealed = true;
        let row_count = rows.num_rows() as u64;
        let run = VersionRun {
            vid_first: tablet.next_vid,
            vid_count: row_count,
            segment: segment.segment,
        };
        Arc::make_mut(&mut tablet.version_map).append_run(run)?;
        tablet.heap.push(Arc::new(directory));
        tablet.next_vid += row_count;
        let addresses: Vec<BlockAddress> = placed.into_iter().map(|(_, start)| start).collect();
        let blocks = pages.into_iter().map(|page| page.bytes.into_bytes());
        self.written.extend(addresses.into_iter().zip(blocks));
        Ok(())
    }

    /// A place for `page`.
    fn place(&mut self, page: &EncodedPage) -> BlockAddress {
        let start = BlockAddress(SHIPPED_START.0 + self.block_count);
        self.block_count += u64::from(page.block_count());
        start
    }
}
