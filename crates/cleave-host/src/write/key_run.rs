//! Sorted runs of a primary key's index, written by a load, a flush or a merge.
//!
//! 1. [`KeyRunWriter::push`] takes keys in any order. A [`KeySorter`] gathers them up to a budget; each
//!    time it is full its keys go to a run. As long as a batch begins behind the end of the one before,
//!    it is the same run: keys that come in order stream straight into one.
//! 2. [`KeyRunWriter::finish`] merges what runs there are into one, at most [`MERGE_RUNS_MAX`] at a time, with
//!    memory for a few pages of each of them.
//!
//! Invariant: what comes out is one run without duplicates; space of runs that were merged is given back
//! before the statement commits. Source: Graefe, "Implementing Sorting in Database Systems" (external
//! merge sort).

use std::sync::Arc;

use arrow::array::BinaryArray;
use cleave_store::index::run::INDEX_PAGE_CLASS;
use cleave_store::{
    KeyMerge, KeySorter, MergeSource, PageSource, Run, RunProperties, RunWriter, SegmentDirectory,
    SegmentKind, SegmentRef, TableSchema,
};

use super::segment_sink::SegmentSink;
use crate::catalog::segment_extents;
use crate::device::Claim;
use crate::error::Result;
use crate::index::key_error;

/// Bytes of keys that are sorted in memory at once.
const SORT_BYTES: usize = 32 << 20;
/// Most runs that are merged at once: each takes memory for the pages that it is read ahead by.
const MERGE_RUNS_MAX: usize = 64;
/// Blocks that a run claims at once: 4 MiB.
const AHEAD_BLOCKS: u32 = 1024;

/// Makes one run of keys that come in any order. See the module's description.
pub(crate) struct KeyRunWriter {
    schema: Arc<TableSchema>,
    claim: Arc<Claim>,
    segment: SegmentRef,
    sorter: KeySorter,
    /// [`SORT_BYTES`], but for tests.
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
    /// A run of `schema`'s primary key, to be `segment`.
    pub(crate) fn new(schema: Arc<TableSchema>, claim: Arc<Claim>, segment: SegmentRef) -> Self {
        Self {
            schema,
            claim,
            segment,
            sorter: KeySorter::new(),
            sort_bytes: SORT_BYTES,
            open: None,
            done: Vec::new(),
        }
    }

    /// Adds the keys of rows whose VIDs rise from `vid_first`.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`](crate::error::Error::DuplicateKey) as soon as one is seen, and those of
    /// writing.
    pub(crate) async fn push(&mut self, keys: &BinaryArray, vid_first: u64) -> Result<()> {
        for (key, vid) in keys.iter().zip(vid_first..) {
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
    pub(crate) async fn finish(
        mut self,
        pages: &dyn PageSource,
    ) -> Result<Option<SegmentDirectory>> {
        self.spill().await?;
        self.close().await?;
        let mut runs = std::mem::take(&mut self.done);
        while runs.len() > 1 {
            // Short ones first, so that few keys are written more than once.
            runs.sort_by_key(|run| run.pages.len());
            let count = next_merge(runs.len());
            let merging: Vec<_> = runs.drain(..count).collect();
            let sources = whole_runs(&merging)?;
            let merged = merge(&self.schema, &self.claim, self.segment, sources, pages).await?;
            for run in &merging {
                segment_extents(run).for_each(|extent| self.claim.give_back(extent));
            }
            runs.push(Arc::new(merged));
        }
        Ok(runs.pop().map(Arc::unwrap_or_clone))
    }

    /// Writes what the sorter holds: behind the open run if it begins there, else to a new one.
    async fn spill(&mut self) -> Result<()> {
        let (mut open, mut closed, mut pages) = (self.open.take(), None, Vec::new());
        let (schema, claim, segment) = (&self.schema, &self.claim, self.segment);
        self.sorter.drain_sorted(|key, vid| -> Result<()> {
            // Only the first key can lie below the end of the open run: all others are sorted.
            if open.as_ref().is_none_or(|run| run.last_key.as_slice() > key) {
                closed = open.replace(OpenRun::new(segment, claim)?);
            }
            if let Some(run) = &mut open {
                let full = run.writer.push(key, vid).map_err(|error| key_error(schema, error))?;
                pages.extend(full);
                run.last_key.clear();
                run.last_key.extend_from_slice(key);
            }
            Ok(())
        })?;
        if let Some(run) = closed {
            self.done.push(Arc::new(run.finish(self.segment).await?));
        }
        if let Some(run) = &mut open {
            run.sink.push_all(pages).await?;
        }
        self.open = open;
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        if let Some(run) = self.open.take() {
            self.done.push(Arc::new(run.finish(self.segment).await?));
        }
        Ok(())
    }
}

impl OpenRun {
    fn new(segment: SegmentRef, claim: &Arc<Claim>) -> Result<Self> {
        Ok(Self {
            writer: RunWriter::new(segment, 0)?,
            sink: SegmentSink::new(Arc::clone(claim), AHEAD_BLOCKS),
            last_key: Vec::new(),
        })
    }

    async fn finish(mut self, segment: SegmentRef) -> Result<SegmentDirectory> {
        self.sink.push_all(self.writer.finish()?).await?;
        let mut directory = SegmentDirectory::new(
            segment,
            SegmentKind::Index(RunProperties::default()),
            INDEX_PAGE_CLASS,
        );
        directory.pages = self.sink.finish().await?;
        directory.sealed = true;
        Ok(directory)
    }
}

/// How many of `run_count` runs are merged next: all that there are, or before that as many as it takes
/// to leave one full merge.
fn next_merge(run_count: usize) -> usize {
    match run_count.checked_sub(MERGE_RUNS_MAX) {
        None | Some(0) => run_count,
        Some(above) => MERGE_RUNS_MAX.min(above + 1),
    }
}

/// Merges sorted sources, of which no two may have a key in common, into one run.
///
/// # Errors
/// [`Error::DuplicateKey`](crate::error::Error::DuplicateKey), and those of reading and writing.
pub(crate) async fn merge(
    schema: &Arc<TableSchema>,
    claim: &Arc<Claim>,
    segment: SegmentRef,
    sources: Vec<MergeSource>,
    pages: &dyn PageSource,
) -> Result<SegmentDirectory> {
    let mut run = OpenRun::new(segment, claim)?;
    let mut merge = KeyMerge::new(sources, true);
    while let Some(block) = merge.next(pages).await.map_err(|error| key_error(schema, error))? {
        let full = run.writer.push_block(&block).map_err(|error| key_error(schema, error))?;
        run.sink.push_all(full).await?;
    }
    run.finish(segment).await
}

/// All of `runs`, each from its first key on.
///
/// # Errors
/// Those of a run whose directory does not hold together.
pub(crate) fn whole_runs(runs: &[Arc<SegmentDirectory>]) -> Result<Vec<MergeSource>> {
    runs.iter()
        .map(|directory| Ok(MergeSource::Run(Run::new(Arc::clone(directory))?.scan(None))))
        .collect()
}

#[cfg(test)]
mod tests;
