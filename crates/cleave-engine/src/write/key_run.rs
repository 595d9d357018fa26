//! Sorted runs of an index, written by a load, a build or a flush.
//!
//! 1. [`KeyRunWriter::push`] takes keys in any order. A [`KeySorter`] gathers them up to a budget; each time it is full
//!    its keys go to a run. A batch that begins behind the end of the one before continues the same run: keys that come
//!    in order stream into one.
//! 2. [`KeyRunWriter::finish`] merges all runs into one, at most [`MERGE_RUNS_MAX`] at a time, with memory for a few
//!    pages of each of them.
//!
//! Invariant: the result is one run without duplicates; space of merged runs is given back before the statement
//! commits. Source: Graefe, "Implementing Sorting in Database Systems" (external merge sort).

use std::sync::Arc;

use arrow::array::BinaryArray;
use cleave_catalog::catalog::segment_extents;
use cleave_catalog::error::Result;
use cleave_catalog::index::IndexShape;
use cleave_store::index::run::INDEX_PAGE_CLASS;
use cleave_store::{
    KeySorter, Memtable, RunProperties, RunWriter, SegmentDirectory, SegmentKind, SegmentRef,
    VersionMap,
};

use super::merge_runs::{NewRun, RunMerger};
use super::segment_sink::SegmentSink;
use crate::device::Claim;

/// Bytes of keys that a statement sorts in memory at once, over all its indexes, tablets and workers.
const SORT_BYTES: usize = 64 << 20;
/// Of the memory of queries, the part that a statement sorts keys in: one in so many.
const SORT_SHARE: usize = 4;
/// Least share of one of them.
const SORT_BYTES_MIN: usize = 1 << 20;
/// Most runs that are merged at once: each takes memory for the pages that it is read ahead by.
const MERGE_RUNS_MAX: usize = 64;
/// Blocks that a run claims at once: 4 MiB.
pub(crate) const AHEAD_BLOCKS: u32 = 1024;

/// Makes one run of keys that come in any order. See the module's description.
pub(crate) struct KeyRunWriter {
    shape: Arc<IndexShape>,
    claim: Arc<Claim>,
    segment: SegmentRef,
    sorter: KeySorter,
    /// Its share of [`SORT_BYTES`].
    sort_bytes: usize,
    open: Option<OpenRun>,
    done: Vec<Arc<SegmentDirectory>>,
}

/// The run that is being written.
struct OpenRun {
    writer: RunWriter,
    sink: SegmentSink,
    last_key: Vec<u8>,
}

impl KeyRunWriter {
    /// A run of the index `shape`, to be `segment`; `sharing` writers are at work for the statement.
    pub(crate) fn new(
        shape: Arc<IndexShape>,
        claim: Arc<Claim>,
        segment: SegmentRef,
        sharing: usize,
    ) -> Self {
        Self {
            shape,
            claim,
            segment,
            sorter: KeySorter::new(),
            sort_bytes: (SORT_BYTES / sharing.max(1)).max(SORT_BYTES_MIN),
            open: None,
            done: Vec::new(),
        }
    }

    /// The same within its share of the memory of queries, of `query_memory` bytes, over all writers.
    pub(crate) fn within(mut self, query_memory: usize, sharing: usize) -> Self {
        let share = (query_memory / SORT_SHARE / sharing.max(1)).max(SORT_BYTES_MIN);
        self.sort_bytes = self.sort_bytes.min(share);
        self
    }

    /// Adds the entries of rows with these VIDs, but for those that are dead for `map`.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`](cleave_catalog::error::Error::DuplicateKey) as soon as one is seen, and those of
    /// writing.
    pub(crate) async fn push(
        &mut self,
        keys: &BinaryArray,
        vids: impl IntoIterator<Item = u64>,
        map: &VersionMap,
    ) -> Result<()> {
        let entries = keys.iter().zip(vids);
        for (key, vid) in entries.filter(|(_, vid)| !map.is_dead(*vid)) {
            self.sorter.push(key.unwrap_or_default(), vid);
        }
        if self.sorter.byte_size() >= self.sort_bytes {
            self.spill().await?;
        }
        Ok(())
    }

    /// One run of all keys; `None` if there were none.
    ///
    /// # Errors
    /// As [`KeyRunWriter::push`].
    pub(crate) async fn finish(self, merger: &RunMerger) -> Result<Option<Arc<SegmentDirectory>>> {
        let (shape, claim, segment) =
            (Arc::clone(&self.shape), Arc::clone(&self.claim), self.segment);
        let runs = self.finish_runs().await?;
        merge_all(&shape, &claim, segment, runs, merger).await
    }

    /// The runs that all keys make, not merged yet.
    ///
    /// # Errors
    /// As [`KeyRunWriter::push`].
    pub(crate) async fn finish_runs(mut self) -> Result<Vec<Arc<SegmentDirectory>>> {
        self.spill().await?;
        self.close().await?;
        Ok(std::mem::take(&mut self.done))
    }

    /// Writes what the sorter holds: behind the open run if it begins there, else to a new one.
    async fn spill(&mut self) -> Result<()> {
        let (mut open, mut closed, mut pages) = (self.open.take(), None, Vec::new());
        let (shape, claim, segment) = (&self.shape, &self.claim, self.segment);
        self.sorter.drain_sorted(|key, vid| -> Result<()> {
            // Only the first key can lie below the end of the open run: all others are sorted.
            if open.as_ref().is_none_or(|run| run.last_key.as_slice() > key) {
                closed = open.replace(OpenRun::new(shape, segment, claim)?);
            }
            if let Some(run) = &mut open {
                let full = run.writer.push(key, vid).map_err(|error| shape.key_error(error))?;
                pages.extend(full);
                run.last_key.clear();
                run.last_key.extend_from_slice(key);
            }
            Ok(())
        })?;
        if let Some(run) = closed {
            self.done.push(Arc::new(run.finish(&self.shape, self.segment).await?));
        }
        if let Some(run) = &mut open {
            run.sink.push_all(pages).await?;
        }
        self.open = open;
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        if let Some(run) = self.open.take() {
            self.done.push(Arc::new(run.finish(&self.shape, self.segment).await?));
        }
        Ok(())
    }
}

impl OpenRun {
    fn new(shape: &IndexShape, segment: SegmentRef, claim: &Arc<Claim>) -> Result<Self> {
        Ok(Self {
            writer: RunWriter::new(segment, 0, shape.definition.unique)?,
            sink: SegmentSink::new(Arc::clone(claim), AHEAD_BLOCKS),
            last_key: Vec::new(),
        })
    }

    async fn finish(mut self, shape: &IndexShape, segment: SegmentRef) -> Result<SegmentDirectory> {
        let end = self.writer.finish()?;
        self.sink.push_all(end.pages).await?;
        let run = RunProperties { index_id: shape.definition.id, level: 0, filter: end.filter };
        let mut directory =
            SegmentDirectory::new(segment, SegmentKind::Index(run), INDEX_PAGE_CLASS);
        directory.pages = self.sink.finish().await?;
        directory.sealed = true;
        Ok(directory)
    }
}

/// Merges `runs`, which this statement wrote, into one; `None` if there are none. The space of those merged is given
/// back.
///
/// # Errors
/// As [`RunMerger::merge`].
pub(crate) async fn merge_all(
    shape: &IndexShape,
    claim: &Arc<Claim>,
    segment: SegmentRef,
    mut runs: Vec<Arc<SegmentDirectory>>,
    merger: &RunMerger,
) -> Result<Option<Arc<SegmentDirectory>>> {
    while runs.len() > 1 {
        // Short ones first, so that few keys are written more than once.
        runs.sort_by_key(|run| run.pages.len());
        let count = next_merge(runs.len());
        let merging: Vec<_> = runs.drain(..count).collect();
        let merged = merger
            .merge(claim, NewRun { shape, segment, level: 0, newest: false }, &merging)
            .await?;
        for run in &merging {
            segment_extents(run).for_each(|extent| claim.give_back(extent));
        }
        runs.push(Arc::new(merged));
    }
    Ok(runs.pop())
}

/// How many of `run_count` runs are merged next: all that there are, or before that as many as it takes
/// to leave one full merge.
fn next_merge(run_count: usize) -> usize {
    match run_count.checked_sub(MERGE_RUNS_MAX) {
        None | Some(0) => run_count,
        Some(above) => MERGE_RUNS_MAX.min(above + 1),
    }
}

/// Writes `memtable` as a run.
///
/// # Errors
/// Those of writing.
pub(crate) async fn write_memtable(
    shape: &IndexShape,
    claim: &Arc<Claim>,
    segment: SegmentRef,
    memtable: &Memtable,
) -> Result<SegmentDirectory> {
    let mut run = OpenRun::new(shape, segment, claim)?;
    for (key, vid) in memtable.iter_from(None) {
        let full = run.writer.push(key, vid).map_err(|error| shape.key_error(error))?;
        run.sink.push_all(full).await?;
    }
    run.finish(shape, segment).await
}

#[cfg(test)]
mod tests;
