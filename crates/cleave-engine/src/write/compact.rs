//! Compaction: runs of one index in, fewer out, by size.
//!
//! A look-up asks every run, so their number is bounded by [`RUNS_MAX`]; beyond it [`compact`] merges the smallest
//! ones. [`tier`] chooses them: from the smallest on, each run that is not larger than those before it together, so
//! that a key is rewritten only when the size of its run has about doubled. Compaction is part of the commit that adds
//! a run: a crash before it leaves the old runs, one after it the new.
//!
//! Source: size-tiered compaction as in Cassandra; rule 14.

use std::sync::Arc;

use cleave_catalog::catalog::segment_extents;
use cleave_catalog::error::Result;
use cleave_catalog::index::TabletIndex;
use cleave_store::{SegmentDirectory, SegmentKind};

use super::load::segment_ref;
use super::merge_runs::{NewRun, RunMerger};
use crate::device::Claim;
use crate::storage_engine::catalog_edit::CatalogEdit;

/// Most runs that a key is looked up in.
const RUNS_MAX: usize = 8;
/// Fewest runs that are worth a merge.
const MERGE_RUNS_MIN: usize = 4;

/// The runs of `index`, all of which are `runs`, after a merge if they are too many, in space of `claim`.
///
/// # Errors
/// Those of reading and writing.
pub(crate) async fn compact(
    edit: &mut CatalogEdit,
    claim: &Arc<Claim>,
    index: &TabletIndex,
    mut runs: Vec<Arc<SegmentDirectory>>,
    merger: &RunMerger,
) -> Result<Vec<Arc<SegmentDirectory>>> {
    if runs.len() <= RUNS_MAX {
        return Ok(runs);
    }
    let sizes: Vec<u64> = runs.iter().map(|run| run.row_count()).collect();
    let chosen = tier(&sizes);
    let merging: Vec<_> =
        chosen.iter().filter_map(|place| runs.get(*place)).map(Arc::clone).collect();
    let level = merging.iter().map(|run| level(run)).max().unwrap_or(0).saturating_add(1);
    let segment = segment_ref(edit, index.shape().schema())?;
    let new = NewRun { shape: index.shape(), segment, level, newest: true };
    let merged = merger.merge(claim, new, &merging).await?;
    // Runs of this very statement were never committed: their space is the claim's to free.
    let committed: Vec<_> = index.runs().collect();
    for run in merging.iter().filter(|run| !committed.iter().any(|old| Arc::ptr_eq(old, run))) {
        segment_extents(run).for_each(|extent| claim.give_back(extent));
    }
    runs.retain(|run| !merging.iter().any(|merged| Arc::ptr_eq(merged, run)));
    runs.push(Arc::new(merged));
    Ok(runs)
}

/// Places of the runs to merge, of which `sizes` are the entries.
fn tier(sizes: &[u64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..sizes.len()).collect();
    let size = |place: usize| sizes.get(place).copied().unwrap_or(0);
    places.sort_by_key(|place| size(*place));
    let mut sum = 0_u64;
    let mut count = 0;
    for place in &places {
        if count >= MERGE_RUNS_MIN && size(*place) > sum {
            break;
        }
        sum = sum.saturating_add(size(*place));
        count += 1;
    }
    places.truncate(count);
    places
}

fn level(run: &SegmentDirectory) -> u32 {
    match &run.kind {
        SegmentKind::Index(run) => run.level,
        SegmentKind::Heap => 0,
    }
}

#[cfg(test)]
mod tests;
