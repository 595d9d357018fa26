//! Merges sorted runs of an index into one: as a fragment on the device of their pages, else on the host, by the same
//! operators.
//!
//! ```text
//!   runs ─▶ WriteRunExec ─┬─▶ device: reads and writes its own media ──┬─▶ PlacedRun ─▶ checked ─▶ directory
//!           └ MergeRunsExec └─▶ host: pages over the link, both ways ──┘
//! ```
//!
//! 1. [`RunMerger::merge`] takes space for the new run, somewhat more than the old ones have, and
//!    [sends](super::writing_fragment) the fragment with it; where no fragment may be sent, or the device refuses it,
//!    the same plan runs on the host.
//! 2. The result is checked: as many entries as went in, keys in order, every page inside the reserved space. The rest
//!    of the space is given back.
//!
//! Invariant: nothing names the new run before the statement commits, which syncs the device first; a statement that
//! ends earlier leaves the old runs, and the space free. Source: `docs/design/indexes.md`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::segment_extents;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::IndexShape;
use cleave_catalog::settings::Settings;
use cleave_fragment::{IndexInput, IndexPages, MergeRunsExec, PlacedRun, WriteRunExec};
use cleave_media::Extent;
use cleave_store::index::run::INDEX_PAGE_CLASS;
use cleave_store::{
    Run, RunProperties, SegmentDirectory, SegmentKind, SegmentRef, Snapshot, StoreError,
};
use datafusion_common::error::DataFusionError;
use datafusion_physical_plan::ExecutionPlan;

use super::writing_fragment::{Sides, WritingFragment, give_back_unused};
use crate::device::{Claim, Device};
use crate::storage_engine::Engine;

/// The number of the only index input.
const INPUT: u32 = 0;

/// Merges runs on one device.
#[derive(Debug, Clone)]
pub(crate) struct RunMerger {
    sides: Sides,
    /// Whether merges on the host wait for one another.
    is_patient: bool,
}

/// The run to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRun<'a> {
    pub shape: &'a IndexShape,
    pub segment: SegmentRef,
    pub level: u32,
    /// Of equal keys, that of the newest row is left; if not, they are an error.
    pub newest: bool,
}

impl RunMerger {
    /// Merges on `device`, for a statement with `settings`.
    ///
    /// # Errors
    /// A device that is not attached.
    pub(crate) fn new(
        database: &Arc<Engine>,
        device: &Arc<Device>,
        settings: &Arc<Settings>,
    ) -> Result<Self> {
        Ok(Self { sides: Sides::new(database, device, settings)?, is_patient: false })
    }

    /// The same, whose merges on the host wait until few others are under way: for statements that merge several runs
    /// at once, and hold nothing that others wait for.
    pub(crate) fn patient(self) -> Self {
        Self { is_patient: true, ..self }
    }

    /// Where its fragments run.
    pub(super) fn sides(&self) -> &Sides {
        &self.sides
    }

    /// One run of the entries of `runs`, in space of `claim`.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] where two of them have a key in common; those of reading and writing.
    pub(crate) async fn merge(
        &self,
        claim: &Arc<Claim>,
        new: NewRun<'_>,
        runs: &[Arc<SegmentDirectory>],
    ) -> Result<SegmentDirectory> {
        self.merge_without(claim, new, runs, Arc::default()).await
    }

    /// As [`RunMerger::merge`], without the entries of rows in `gone`: stretches of VIDs, each with the one behind its
    /// last. Where no entry is left, a run without pages.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn merge_without(
        &self,
        claim: &Arc<Claim>,
        new: NewRun<'_>,
        runs: &[Arc<SegmentDirectory>],
        gone: Arc<[(u64, u64)]>,
    ) -> Result<SegmentDirectory> {
        let input = IndexInput { number: INPUT, runs: runs.iter().map(|run| pages(run)).collect() };
        let entries = match gone.is_empty() {
            true => entry_counts(new, &input),
            false => 0..=input.entry_count(),
        };
        let old = runs.iter().flat_map(|run| segment_extents(run));
        let fragment = WritingFragment {
            what: "merge index runs",
            plan: plan(new, gone)?,
            snapshot: Snapshot { commit: 0 },
            inputs: Vec::new(),
            indexes: vec![input],
            block_count: old.map(|extent| u64::from(extent.block_count)).sum(),
        };
        if let Some((rows, space)) = fragment.on_device(&self.sides, claim).await? {
            return self.accepted(claim, new, &entries, &rows, space);
        }
        let _turn = match self.is_patient {
            true => self.sides.database.merge_turn().await,
            false => None,
        };
        let rows = match fragment.on_host(&self.sides, claim).await {
            Ok(rows) => rows,
            Err(error) => return Err(named(new.shape, error)),
        };
        let placed = PlacedRun::read(&rows)?;
        if !entries.contains(&placed.entry_count) {
            let reason = format!("{} of {} entries came out", placed.entry_count, entries.end());
            return Err(StoreError::Mismatch { what: "merging index runs", reason }.into());
        }
        Ok(directory(new, placed)?)
    }

    /// The run that the device says it wrote, if it may be so: with one of these numbers of `entries`.
    ///
    /// # Errors
    /// [`StorageError::Answer`](cleave_catalog::storage_error::StorageError::Answer) if it may not.
    pub(super) fn accepted(
        &self,
        claim: &Claim,
        new: NewRun<'_>,
        entries: &RangeInclusive<u64>,
        rows: &[RecordBatch],
        space: Vec<Extent>,
    ) -> Result<SegmentDirectory> {
        let placed = PlacedRun::read(rows).map_err(|error| self.strange(&error.to_string()))?;
        check_placed(&placed, entries).map_err(|reason| self.strange(&reason))?;
        let used = placed.pages.iter().map(|entry| entry.page.extent).collect();
        let directory = directory(new, placed);
        let directory = directory.map_err(|error| self.strange(&error.to_string()))?;
        give_back_unused(claim, space, used).map_err(|reason| self.strange(&reason))?;
        Ok(directory)
    }

    fn strange(&self, what: &str) -> Error {
        self.sides.device.strange_payload(&format!("pages of an index run that cannot be: {what}"))
    }
}

/// The plan that runs on either side.
fn plan(new: NewRun<'_>, gone: Arc<[(u64, u64)]>) -> Result<Arc<dyn ExecutionPlan>> {
    let entries = MergeRunsExec::new(INPUT, new.segment.table_id).without(gone)?;
    let entries = Arc::new(if new.newest { entries.of_newest() } else { entries });
    Ok(Arc::new(WriteRunExec::new(entries, new.segment, new.shape.definition.unique)?))
}

fn pages(run: &SegmentDirectory) -> IndexPages {
    let pages = run.pages.iter().map(|entry| entry.page).collect();
    IndexPages::whole(run.segment_ref(), pages)
}

/// How many entries may come out: all that go in, or less where newer ones take the place of others.
fn entry_counts(new: NewRun<'_>, input: &IndexInput) -> RangeInclusive<u64> {
    let all = input.entry_count();
    if new.newest { all.min(1)..=all } else { all..=all }
}

/// Compares the entries that a device reports as written with the request.
fn check_placed(placed: &PlacedRun, entries: &RangeInclusive<u64>) -> Result<(), String> {
    let on_pages: u64 = placed.pages.iter().map(|entry| u64::from(entry.page.row_count)).sum();
    if placed.entry_count != on_pages || !entries.contains(&on_pages) {
        let (told, all) = (placed.entry_count, entries.end());
        return Err(format!("{told} entries, {on_pages} on pages, of {all} that there are"));
    }
    Ok(())
}

/// The run of `placed`, whose fences are checked.
fn directory(new: NewRun<'_>, placed: PlacedRun) -> Result<SegmentDirectory, StoreError> {
    let NewRun { shape, segment, level, .. } = new;
    let run = RunProperties { index_id: shape.definition.id, level, filter: placed.filter };
    let kind = SegmentKind::Index(run);
    let directory =
        Arc::new(SegmentDirectory::sealed(segment, kind, INDEX_PAGE_CLASS, placed.pages)?);
    if !directory.pages.is_empty() {
        drop(Run::new(Arc::clone(&directory))?);
    }
    Ok(Arc::unwrap_or_clone(directory))
}

/// The error of a merge, with duplicate keys as SQL reports them.
fn named(shape: &IndexShape, error: DataFusionError) -> Error {
    if let DataFusionError::External(source) = error.find_root()
        && let Some(StoreError::DuplicateKey { key, .. }) = source.downcast_ref()
    {
        return shape.duplicate_key(key);
    }
    error.into()
}

#[cfg(test)]
mod tests;
