//! Filters a scan's input by an index: from keys and the index's pages it computes the rows that the scan must look at.
//!
//! ```text
//!   ranges, or ─────────┐
//!   keys of a join ─────┤
//!   pages of runs ──────┴─▶ entries ─▶ VIDs ─┐
//!   VIDs that the host knows ────────────────┴─▶ sorted ─▶ for each page of the scan: its rows, or leave it out
//! ```
//!
//! 1. The host sends an [`IndexFilter`] beside the morsels: pages of an index, and rows that it found itself. It either
//!    gives the ranges of keys and the pages that may hold them by their fences (and filters); or it names the index's
//!    first column ([`ScanKeys`]), and gives all pages with their fences. An input may have several of the second kind.
//! 2. The first partition of a scan that takes a morsel reads the entries, where it runs, and keeps the VIDs for all
//!    partitions. For a named column, the ranges come from the values that the scan's filters list by then: joins above
//!    have read their build sides. Of several indexes it takes the one that saves most; if none pays ([`worth`]), the
//!    scan goes on without. A scan that is run again (a pass) looks at its filters again.
//! 3. A page of a segment filtered by an index has rows that count up from `vid_first`, but for the gaps that its
//!    morsel lists. Pages without a hit are not read; of the others, only hits are looked at.
//!
//! Invariants: an index filter only removes rows, and the scan evaluates all its conditions again; so it may name too
//! many rows, never too few. Segments that it does not name are read whole, and so are pages with rows that the index
//! does not have yet. Source: rule 16; the joins: hybridNDP's BNLIJ, whose look-ups are batched and sorted by page.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use cleave_store::index::INDEX_KEY_BYTES_MAX;
use cleave_store::{KeyRange, SegmentId, VidGaps};
use datafusion_common::{DataFusionError, Result};
use tokio::sync::OnceCell;

use crate::index_input::{FENCE_BYTES_MAX, IndexPages};
use crate::morsel::{Morsel, MorselPage};
use crate::operators::table_scan_exec::TableScanExec;

mod figures;
mod look_up;
mod scan_keys;
mod worth;

pub use figures::IndexFigures;
use look_up::Hits;
pub(crate) use look_up::LookUpRequest;
pub use scan_keys::{ScanKeys, Thrift};
use worth::InputSize;

/// Most ranges of one index filter.
pub const RANGE_COUNT_MAX: usize = 4096;
/// Longest index name in an index filter.
const NAME_BYTES_MAX: usize = 1024;

/// The part of one morsel input that an index selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexFilter {
    /// The morsel input.
    pub input: u32,
    /// The requested ranges of keys: ascending and disjoint.
    pub ranges: Vec<KeyRange>,
    /// Instead of ranges: the column whose keys the scan knows when it starts.
    pub keys: Option<ScanKeys>,
    /// The parts of the input that are filtered by an index: one for each tablet.
    pub parts: Vec<IndexFilteredPart>,
}

/// The index filter of one tablet's part of the input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexFilteredPart {
    /// Its segments, whose pages hold consecutive VIDs.
    pub segments: Vec<SegmentId>,
    /// The pages of the index that may hold the requested keys.
    pub runs: Vec<IndexPages>,
    /// VIDs that the host found already.
    pub rows: Vec<u64>,
    /// Those of the segments of which the index has only the rows below `vid_covered`.
    pub hot: Vec<SegmentId>,
    /// A page of these with this row or a later one is scanned whole.
    pub vid_covered: u64,
}

impl IndexFilter {
    /// The index filter that `scan` over `morsels` needs, before it is sent. If the scan already lists the keys, only
    /// the index pages that may have them are kept; None if it will not pay, or no more keys will come.
    ///
    /// # Errors
    /// As [`IndexFilteredInput::new`].
    pub fn for_scan(self, scan: &TableScanExec, morsels: &[Morsel]) -> Result<Option<Self>> {
        if self.keys.is_none() {
            return Ok(Some(self));
        }
        look_up::trimmed(&Choice::new(self, morsels)?, scan)
    }

    /// Refuses malformed filters.
    pub fn check(&self) -> Result<()> {
        let refused = |what: String| {
            let input = self.input;
            Err(DataFusionError::Plan(format!("the index filter of input {input} {what}")))
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
        let mut runs = self.parts.iter().flat_map(|part| &part.runs);
        let Some(keys) = &self.keys else {
            if self.ranges.is_empty() && runs.next().is_some() {
                return refused("has pages of an index and no ranges".to_owned());
            }
            return Ok(());
        };
        if !self.ranges.is_empty() {
            return refused("has ranges beside the keys of a column".to_owned());
        }
        if keys.index.len() > NAME_BYTES_MAX {
            let bytes = keys.index.len();
            return refused(format!("names an index in {bytes} bytes, of {NAME_BYTES_MAX}"));
        }
        for run in runs {
            let is_fenced = run.fences.len() == run.pages.len() + 1
                && run.fences.is_sorted()
                && run.fences.iter().all(|fence| fence.len() <= FENCE_BYTES_MAX);
            if !is_fenced {
                return refused("has pages of an index without their fences".to_owned());
            }
        }
        Ok(())
    }
}

/// The index filters of one input where the fragment runs, shared by the partitions of its scan.
pub struct IndexFilteredInput {
    number: u32,
    /// One filter that is read in any case, or several of which the scan may read one.
    choices: Vec<Arc<Choice>>,
    by_keys: bool,
    /// Results, by pass of the scan.
    passes: Mutex<BTreeMap<usize, Arc<Found>>>,
    in_force: AtomicBool,
}

/// The result of one pass; None if all rows must be scanned.
type Found = OnceCell<Option<Hits>>;

/// One index filter with figures of its input.
struct Choice {
    index_filter: IndexFilter,
    parts_by_segment: BTreeMap<SegmentId, usize>,
    /// The size of the pages that it may leave out.
    size: InputSize,
    /// The first VID of each of those pages, ascending, by part.
    pages: Vec<Vec<u64>>,
}

/// The index filter of one pass over an input.
pub(crate) struct IndexFilteredPass {
    input: Arc<IndexFilteredInput>,
    found: Arc<Found>,
}

impl IndexFilteredInput {
    /// Combines the `index_filters` of one input with `morsels`; reads nothing yet.
    ///
    /// # Errors
    /// As [`IndexFilter::check`]; for a segment in two parts, and for several filters that are not all by keys.
    pub fn new(index_filters: Vec<IndexFilter>, morsels: &[Morsel]) -> Result<Arc<Self>> {
        let number = index_filters.first().map_or(0, |index_filter| index_filter.input);
        let by_keys = index_filters.iter().all(|index_filter| index_filter.keys.is_some());
        if index_filters.len() > 1 && !by_keys {
            return Err(DataFusionError::Plan(format!(
                "input {number} is filtered by an index twice"
            )));
        }
        let choices =
            index_filters.into_iter().map(|index_filter| Choice::new(index_filter, morsels));
        Ok(Arc::new(Self {
            number,
            choices: choices.collect::<Result<_>>()?,
            by_keys,
            passes: Mutex::default(),
            in_force: AtomicBool::new(false),
        }))
    }

    /// The filter of the pass number `pass`.
    pub(crate) fn of_pass(self: &Arc<Self>, pass: usize) -> IndexFilteredPass {
        // Ranges are the same in each pass; keys are those that the join's build side has by then.
        let pass = if self.by_keys { pass } else { 0 };
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        // Unused passes are dropped: a recursive query has any number of them.
        passes.retain(|number, found| *number == pass || Arc::strong_count(found) > 1);
        let found = Arc::clone(passes.entry(pass).or_default());
        IndexFilteredPass { input: Arc::clone(self), found }
    }

    /// Whether an index was read and removes pages, so that the next pages cannot be predicted.
    pub(crate) fn is_in_force(&self) -> bool {
        self.in_force.load(Ordering::Relaxed)
    }
}

impl IndexFilteredPass {
    /// Reads the entries, unless another partition already has.
    pub(crate) async fn resolve(&self, asked: &LookUpRequest<'_>) -> Result<()> {
        self.found.get_or_try_init(|| self.look_up(asked)).await.map(|_| ())
    }

    async fn look_up(&self, asked: &LookUpRequest<'_>) -> Result<Option<Hits>> {
        let hits = match self.input.choices.as_slice() {
            [only] if !self.input.by_keys => Some(look_up::by_ranges(only, asked).await?),
            choices => look_up::by_keys(choices, asked).await?,
        };
        let leaves_out = hits.as_ref().is_some_and(Hits::come_from_an_index);
        self.input.in_force.fetch_or(leaves_out, Ordering::Relaxed);
        Ok(hits)
    }

    /// The hits on `page` of `segment`, ascending; `None` if all its rows must be scanned.
    pub(crate) fn hits_on(&self, segment: SegmentId, page: &MorselPage) -> Option<&[u64]> {
        self.found.get()?.as_ref()?.on(segment, page)
    }
}

impl Choice {
    fn new(index_filter: IndexFilter, morsels: &[Morsel]) -> Result<Arc<Self>> {
        index_filter.check()?;
        let mut parts_by_segment = BTreeMap::new();
        for (place, part) in index_filter.parts.iter().enumerate() {
            for segment in &part.segments {
                if parts_by_segment.insert(*segment, place).is_some() {
                    return Err(DataFusionError::Plan(format!(
                        "the index filter of input {} names {segment} twice",
                        index_filter.input
                    )));
                }
            }
        }
        let pages = vec![Vec::new(); index_filter.parts.len()];
        let mut choice = Self { index_filter, parts_by_segment, size: InputSize::default(), pages };
        // Without a choice, nothing is weighed.
        let weighed = morsels.iter().filter(|_| choice.index_filter.keys.is_some());
        let pages = weighed.flat_map(|morsel| morsel.pages.iter().map(move |page| (morsel, page)));
        let covered: Vec<(usize, &MorselPage)> = pages
            .filter_map(|(morsel, page)| {
                Some((choice.part_of(morsel.segment.segment, page)?, page))
            })
            .collect();
        for (part, page) in covered {
            choice.size.add(&page.page);
            if let Some(pages) = choice.pages.get_mut(part) {
                pages.push(page.vid_first);
            }
        }
        choice.pages.iter_mut().for_each(|pages| pages.sort_unstable());
        Ok(Arc::new(choice))
    }

    /// The part that selects the rows of a page; None if all are scanned.
    fn part_of(&self, segment: SegmentId, page: &MorselPage) -> Option<usize> {
        let place = *self.parts_by_segment.get(&segment)?;
        let part = self.index_filter.parts.get(place)?;
        let is_covered = !part.hot.contains(&segment) || page.vid_end() <= part.vid_covered;
        is_covered.then_some(place)
    }
}

/// `hits` as rows of a page of `row_count` rows, the first of which is `vid_first`.
pub(crate) fn rows_of(
    hits: &[u64],
    vid_first: u64,
    gaps: &VidGaps,
    row_count: usize,
) -> BooleanBuffer {
    let mut rows = BooleanBufferBuilder::new(row_count);
    rows.append_n(row_count, false);
    for vid in hits {
        // The entry of a pruned row is a hit as well.
        let row = vid.checked_sub(vid_first).and_then(|offset| gaps.slot_at(offset));
        let row = row.and_then(|row| usize::try_from(row).ok());
        if let Some(row) = row.filter(|row| *row < row_count) {
            rows.set_bit(row, true);
        }
    }
    rows.finish()
}

impl fmt::Debug for IndexFilteredInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexFilteredInput")
            .field("input", &self.number)
            .field("choices", &self.choices.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
