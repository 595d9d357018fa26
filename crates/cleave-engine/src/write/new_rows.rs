//! Rows that were written beside a table, as a sealed segment and a run for each index, become the table's.
//!
//! A bulk load and a fragment that inserts write pages that nothing names yet. [`add`] checks them against the table as
//! it is when they are committed, and puts them behind its rows.
//!
//! Invariants: VIDs ascend with commits, also where the rows got theirs [before](vid_beside) others that were committed
//! earlier. In each run alone no key comes twice.

use std::sync::Arc;

use cleave_catalog::catalog::{TableState, TabletState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::TabletIndex;
use cleave_catalog::settings::Stack;
use cleave_store::{KeyRange, MergeSource, Run, SegmentDirectory, VersionRun};

use super::compact::compact;
use super::load::made_anew;
use super::merge_runs::RunMerger;
use super::unique::check_across;
use crate::device::Claim;
use crate::host_pages::HostPages;
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::CatalogEdit;

/// VIDs that rows which are written beside a tablet's writers leave to these. A tablet has room for as many such loads.
/// Small commits cannot insert so many rows while one runs.
const VIDS_LEFT: u64 = 1 << 32;

/// The VID of the first row that is written beside the writers of `tablet`: far behind all that they insert before it
/// is committed. VIDs that nobody gets cost nothing, as all that lists VIDs is compressed.
pub(crate) fn vid_beside(tablet: &TabletState) -> u64 {
    tablet.next_vid.saturating_add(VIDS_LEFT)
}

/// What one tablet gets.
pub(crate) struct NewRows {
    /// The place of the tablet.
    pub(crate) place: usize,
    /// The VID of the first row.
    pub(crate) vid_first: u64,
    /// The rows.
    pub(crate) heap: SegmentDirectory,
    /// Their keys, for each index of the tablet; none: there are none.
    pub(crate) runs: Vec<Option<Arc<SegmentDirectory>>>,
    /// The space that all of it takes.
    pub(crate) claim: Arc<Claim>,
    pub(crate) merger: RunMerger,
}

/// Adds the rows of `new` to `table`, which `edit` has.
///
/// # Errors
/// [`Error::DuplicateKey`]; [`Error::concurrent_update`] where others have used up the VIDs that were left to them;
/// those of reading and merging keys.
pub(crate) async fn add(
    edit: &mut CatalogEdit,
    table: &TableState,
    new: Vec<NewRows>,
) -> Result<()> {
    for rows in &new {
        if rows.vid_first < tablet_of(table, rows)?.next_vid {
            return Err(Error::concurrent_update());
        }
    }
    check_unique(edit.database(), table, &new).await?;
    let mut tablets = table.tablets.clone();
    for rows in new {
        let place = rows.place;
        let grown = with_rows(edit, tablet_of(table, &rows)?, rows).await?;
        if let Some(tablet) = tablets.get_mut(place) {
            *tablet = Arc::new(grown);
        }
    }
    edit.put_table(TableState { tablets, ..TableState::clone(table) });
    Ok(())
}

fn tablet_of<'a>(table: &'a TableState, rows: &NewRows) -> Result<&'a Arc<TabletState>> {
    table.tablets.get(rows.place).ok_or_else(|| made_anew(&table.schema.name))
}

/// Refuses a key that `table` has already, or that two of the runs have.
async fn check_unique(database: &Engine, table: &TableState, new: &[NewRows]) -> Result<()> {
    for (at, definition) in table.indexes.iter().enumerate().filter(|(_, index)| index.unique) {
        let mut across = Vec::with_capacity(new.len());
        for rows in new {
            let tablet = tablet_of(table, rows)?;
            let run = rows.runs.get(at).cloned().flatten();
            let Some((run, index)) = run.zip(tablet.indexes.get(at)) else { continue };
            if table.divides(definition) {
                across.push((Arc::clone(tablet), run));
            } else {
                let pages = database.host_pages(tablet.device, Stack::Native)?;
                check_within((tablet, &*pages), index, run).await?;
            }
        }
        let index = table.tablets.first().and_then(|tablet| tablet.indexes.get(at));
        if let Some(index) = index.filter(|_| !across.is_empty()) {
            check_across(database, table, index.shape(), &across).await?;
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

/// `tablet` with what it gets.
async fn with_rows(
    edit: &mut CatalogEdit,
    tablet: &TabletState,
    new: NewRows,
) -> Result<TabletState> {
    let NewRows { vid_first, heap, runs, claim, merger, .. } = new;
    let mut tablet = TabletState::clone(tablet);
    let mut indexes = Vec::with_capacity(tablet.indexes.len());
    let mut runs = runs.into_iter();
    for index in &tablet.indexes {
        indexes.push(match runs.next().flatten() {
            Some(run) => with_run(edit, (&claim, &merger), index, run).await?,
            None => Arc::clone(index),
        });
    }
    let row_count = heap.row_count();
    // Only the last segment may be open, and this one is behind it.
    if let Some(last) = tablet.heap.last_mut().filter(|last| !last.sealed) {
        Arc::make_mut(last).sealed = true;
    }
    Arc::make_mut(&mut tablet.version_map).append_run(VersionRun {
        vid_first,
        vid_count: row_count,
        segment: heap.segment,
    })?;
    tablet.heap.push(Arc::new(heap));
    tablet.vids_skipped += vid_first - tablet.next_vid;
    tablet.next_vid = vid_first + row_count;
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
