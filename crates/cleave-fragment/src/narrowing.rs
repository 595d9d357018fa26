//! What an index leaves of a scan's input: ranges of keys and the pages that hold them in, the rows to look at out.
//!
//! ```text
//!   ranges ─┐
//!   pages of runs ─▶ entries ─▶ VIDs ─┐
//!   VIDs that the host knows ─────────┴─▶ sorted ─▶ for each page of the scan: its rows, or leave it out
//! ```
//!
//! 1. The host sends a [`Narrowing`] beside the morsels: the pages of an index that fences say may hold the ranges, and the
//!    rows that it found itself (those of the memtable, or all of them where it has asked the index).
//! 2. The first copy of a scan that takes a morsel reads the entries, where it runs, and keeps the VIDs for all copies.
//! 3. A page of a narrowed segment has the rows `vid_first..vid_first + row_count`, one behind the other. Pages without a
//!    hit are not read; of the others, only hits are looked at.
//!
//! Invariants: a narrowing only leaves out, and the scan asks all its conditions again; so it may name too many rows,
//! never too few. Segments that it does not name are read whole. Source: rule 16.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use cleave_store::index::INDEX_KEY_BYTES_MAX;
use cleave_store::{KeyRange, PageCursor, PageSource, SegmentId, StoreError};
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use tokio::sync::OnceCell;

use crate::index_input::IndexPages;
use crate::morsel::MorselPage;

/// Most ranges of one narrowing.
pub const RANGE_COUNT_MAX: usize = 4096;
/// Pages of an index that are read at once.
const PAGES_AT_ONCE: usize = 8;
/// What a page takes while its entries are looked at, as so many times its size.
const PAGE_EXPANSION: usize = 3;

/// What an index says of one morsel input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Narrowing {
    /// The morsel input.
    pub input: u32,
    /// The ranges of keys that are asked for: ascending, and apart.
    pub ranges: Vec<KeyRange>,
    /// The parts of the input that are narrowed: one for each tablet.
    pub parts: Vec<NarrowedPart>,
}

/// What an index says of one tablet's part of the input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NarrowedPart {
    /// Its segments, whose pages hold consecutive VIDs.
    pub segments: Vec<SegmentId>,
    /// The pages of the index that may hold the ranges.
    pub runs: Vec<IndexPages>,
    /// VIDs that were found already.
    pub rows: Vec<u64>,
}

impl Narrowing {
    /// Whether the scan learns which pages it reads only from an index.
    #[must_use]
    pub fn reads_an_index(&self) -> bool {
        self.parts.iter().any(|part| !part.runs.is_empty())
    }

    /// Refuses what no host asks for.
    pub fn check(&self) -> Result<()> {
        let refused = |what: String| {
            let input = self.input;
            Err(DataFusionError::Plan(format!("the index narrowing of input {input} {what}")))
        };
        if self.ranges.len() > RANGE_COUNT_MAX {
            let count = self.ranges.len();
            return refused(format!("has {count} ranges, of at most {RANGE_COUNT_MAX}"));
        }
        let key_bytes_max = INDEX_KEY_BYTES_MAX + size_of::<u64>() + 1;
        let mut end: Option<&[u8]> = None;
        for (place, range) in self.ranges.iter().enumerate() {
            let is_last = place + 1 == self.ranges.len();
            let bytes = range.from.len().max(range.below.as_ref().map_or(0, Vec::len));
            if bytes > key_bytes_max {
                return refused(format!("has a key of {bytes} bytes, of at most {key_bytes_max}"));
            }
            let is_behind = end.is_none_or(|end| end <= range.from.as_slice());
            if range.is_empty() || !is_behind || range.below.is_none() && !is_last {
                return refused(
                    "has ranges that are empty, overlap or are out of order".to_owned(),
                );
            }
            end = range.below.as_deref();
        }
        if self.ranges.is_empty() && self.parts.iter().any(|part| !part.runs.is_empty()) {
            return refused("has pages of an index and no ranges".to_owned());
        }
        Ok(())
    }
}

/// A narrowing where the fragment runs, shared by the copies of its scan.
pub struct NarrowedInput {
    narrowing: Narrowing,
    parts_by_segment: BTreeMap<SegmentId, usize>,
    hits: OnceCell<Hits>,
}

/// The VIDs of each part, ascending.
struct Hits {
    parts: Vec<Vec<u64>>,
    _memory: MemoryReservation,
}

impl NarrowedInput {
    /// `narrowing`, not read yet.
    ///
    /// # Errors
    /// As [`Narrowing::check`], and for a segment of two parts.
    pub fn new(narrowing: Narrowing) -> Result<Arc<Self>> {
        narrowing.check()?;
        let mut parts_by_segment = BTreeMap::new();
        for (place, part) in narrowing.parts.iter().enumerate() {
            for segment in &part.segments {
                if parts_by_segment.insert(*segment, place).is_some() {
                    return Err(DataFusionError::Plan(format!(
                        "the index narrowing of input {} names {segment} twice",
                        narrowing.input
                    )));
                }
            }
        }
        Ok(Arc::new(Self { narrowing, parts_by_segment, hits: OnceCell::new() }))
    }

    /// Reads the entries, unless a copy has before.
    pub(crate) async fn resolve(
        &self,
        pages: &dyn PageSource,
        memory: &Arc<dyn MemoryPool>,
    ) -> Result<()> {
        self.hits.get_or_try_init(|| self.read(pages, memory)).await.map(|_| ())
    }

    async fn read(&self, pages: &dyn PageSource, memory: &Arc<dyn MemoryPool>) -> Result<Hits> {
        let memory = MemoryConsumer::new("rows that an index found").register(memory);
        let mut parts = Vec::with_capacity(self.narrowing.parts.len());
        let mut held_bytes = 0;
        for part in &self.narrowing.parts {
            let mut vids = part.rows.clone();
            for run in &part.runs {
                let page_bytes =
                    run.pages.iter().map(|page| page.extent.bytes()).max().unwrap_or(0);
                let ahead_bytes = page_bytes * PAGE_EXPANSION * PAGES_AT_ONCE.min(run.pages.len());
                let mut cursor = PageCursor::new(run.segment, run.pages.clone(), PAGES_AT_ONCE);
                memory.try_resize(held_bytes + bytes_of(&vids) + ahead_bytes)?;
                while let Some(block) = cursor.next(pages).await.map_err(external)? {
                    for range in &self.narrowing.ranges {
                        let mut hits = block.from_key(&range.from);
                        if let Some(below) = &range.below {
                            hits = hits.below_key(below);
                        }
                        vids.extend(hits.vids.values());
                    }
                    memory.try_resize(held_bytes + bytes_of(&vids) + ahead_bytes)?;
                }
            }
            vids.sort_unstable();
            vids.dedup();
            held_bytes += bytes_of(&vids);
            memory.try_resize(held_bytes)?;
            parts.push(vids);
        }
        Ok(Hits { parts, _memory: memory })
    }

    /// The hits on `page` of `segment`, ascending; `None`: all its rows are to be looked at.
    pub(crate) fn hits_on(&self, segment: SegmentId, page: &MorselPage) -> Option<&[u64]> {
        let part = self.parts_by_segment.get(&segment)?;
        let vids = self.hits.get()?.parts.get(*part)?;
        let end = page.vid_first.saturating_add(u64::from(page.page.row_count));
        let from = vids.partition_point(|vid| *vid < page.vid_first);
        let to = vids.partition_point(|vid| *vid < end);
        vids.get(from..to)
    }
}

/// `hits` as rows of a page of `row_count` rows, the first of which is `vid_first`.
pub(crate) fn rows_of(hits: &[u64], vid_first: u64, row_count: usize) -> BooleanBuffer {
    let mut rows = BooleanBufferBuilder::new(row_count);
    rows.append_n(row_count, false);
    for vid in hits {
        let row = vid.checked_sub(vid_first).and_then(|row| usize::try_from(row).ok());
        if let Some(row) = row.filter(|row| *row < row_count) {
            rows.set_bit(row, true);
        }
    }
    rows.finish()
}

fn bytes_of(vids: &[u64]) -> usize {
    // Twice, for the room that a growing list has.
    2 * size_of_val(vids)
}

fn external(error: StoreError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl fmt::Debug for NarrowedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NarrowedInput")
            .field("input", &self.narrowing.input)
            .field("parts", &self.narrowing.parts.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
