//! Reads the index entries that an index filter asks for: ranges of keys in, VIDs of rows out.
//!
//! 1. Each page of a run is paired with the ranges that its fences say it may hold ([`pages_wanted`]); without fences,
//!    with all ranges.
//! 2. If the keys come from the filters of joins above, several indexes may fit. Each is weighed ([`Worth`]), and the
//!    best one is taken, if it pays.
//! 3. The pages are read in order, several at once; their entries inside the ranges are hits. For keys of joins, the
//!    hits and the scan's pages that they lie on are counted meanwhile. If there are too many, the look-up is given up.

use std::ops::Range;
use std::sync::Arc;

use cleave_store::{ColumnRef, KeyRange, PageCursor, PageRef, PageSource, Projection, SegmentId};
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion_physical_expr::PhysicalExpr;

use super::figures::IndexFigures;
use super::scan_keys::{ListedKeys, ScanKeys, Thrift};
use super::worth::Worth;
use super::{Choice, IndexFilter};
use crate::index_input::{FENCE_BYTES_MAX, IndexPages};
use crate::morsel::MorselPage;
use crate::operators::table_scan_exec::scan_page::external;
use crate::operators::table_scan_exec::{TableScan, TableScanExec};

/// Pages of an index that are read at once.
const PAGES_AT_ONCE: usize = 8;
/// Memory of a page while its entries are examined, as a multiple of its size.
const PAGE_EXPANSION: usize = 3;
/// Most keys that are looked up.
const KEY_COUNT_MAX: usize = 1 << 16;
/// A list with more than one key for so many rows is not weighed.
const ROWS_PER_KEY_MIN: u64 = 8;
/// Bytes of a range besides its keys: two lists, and their allocations.
const RANGE_BYTES: usize = size_of::<KeyRange>() + 32;
/// Assumed bytes of a text in a chunk.
const TEXT_BYTES: f64 = 16.0;

/// The question of a scan to an index.
pub(crate) struct LookUpRequest<'a> {
    /// Conditions that all rows of the scan satisfy, each over the columns beside it.
    pub(crate) filters: Vec<(Arc<dyn PhysicalExpr>, &'a Projection)>,
    pub(crate) scan: &'a TableScan,
    pub(crate) pages: &'a dyn PageSource,
    pub(crate) memory: &'a Arc<dyn MemoryPool>,
    /// Receives the figures.
    pub(crate) record: Box<dyn Fn(&IndexFigures) + Send + Sync + 'a>,
}

/// The VIDs of each part, ascending.
pub(super) struct Hits {
    choice: Arc<Choice>,
    parts: Vec<Vec<u64>>,
    _memory: MemoryReservation,
}

/// One index, and the keys that are looked for in it.
struct LookUp<'a> {
    choice: &'a Arc<Choice>,
    ranges: Vec<KeyRange>,
    /// For each part and run: the pages that may hold some of the ranges, and which ranges.
    wanted: Vec<Vec<Wanted>>,
}

/// The pages of a run that may hold some of the ranges.
type Wanted = Vec<WantedPage>;

/// A page, and which of the ranges it may hold.
struct WantedPage {
    page: PageRef,
    ranges: Range<usize>,
    /// Whether all of its entries lie in them, according to its fences.
    is_whole: bool,
}

/// Counts what a look-up by keys finds.
struct Meter<'a> {
    choice: &'a Choice,
    worth: Worth,
    hits: usize,
    /// Of each part, the pages with hits.
    touched: Vec<Vec<bool>>,
    touched_count: usize,
}

/// Reads the rows of the only index filter, in any case.
pub(super) async fn by_ranges(choice: &Arc<Choice>, asked: &LookUpRequest<'_>) -> Result<Hits> {
    let look_up = LookUp::new(choice, choice.index_filter.ranges.clone());
    let (hits, _) = look_up.read(asked, None).await?;
    hits.ok_or_else(|| DataFusionError::Internal("a look-up without a limit was given up".into()))
}

/// The rows that one of `choices` finds by the current keys of the scan's filters; None if none of them pays.
pub(super) async fn by_keys(
    choices: &[Arc<Choice>],
    asked: &LookUpRequest<'_>,
) -> Result<Option<Hits>> {
    let mut best: Option<(f64, LookUp<'_>, Worth)> = None;
    for choice in choices {
        let Some(keys) = &choice.index_filter.keys else { continue };
        let Some(listed) = choice.listed(keys, &asked.filters)? else { continue };
        let count = listed.len() as u64;
        if !choice.may_pay(keys, listed.len(), asked.scan) {
            (asked.record)(&IndexFigures { given_up: 1, ..choice.figures(count) });
            continue;
        }
        let Some(ranges) = keys.ranges_of(listed) else { continue };
        let look_up = LookUp::new(choice, ranges);
        let (pays, saving, worth) = look_up.is_expected_to_pay(keys, asked.scan);
        if !pays {
            (asked.record)(&IndexFigures { given_up: 1, ..look_up.figures() });
            continue;
        }
        if best.as_ref().is_none_or(|(most, ..)| *most < saving) {
            best = Some((saving, look_up, worth));
        }
    }
    let Some((_, look_up, worth)) = best else { return Ok(None) };
    let meter = Meter::new(look_up.choice, worth);
    match look_up.read(asked, Some(meter)).await {
        Ok((hits, figures)) => {
            (asked.record)(&figures);
            Ok(hits)
        }
        // Without the index the scan needs less memory.
        Err(error) if matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) => {
            (asked.record)(&IndexFigures { given_up: 1, ..look_up.figures() });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The index filter of `choice` with only the index pages that may have the keys listed by `scan`, if it pays;
/// unchanged if operators on the scan's side may still add keys.
pub(super) fn trimmed(choice: &Arc<Choice>, scan: &TableScanExec) -> Result<Option<IndexFilter>> {
    let Some(keys) = &choice.index_filter.keys else {
        return Ok(Some(choice.index_filter.clone()));
    };
    let named = scan.scan();
    let own = named.predicate.iter().map(|predicate| (Arc::clone(predicate), &named.filter));
    let listed = choice.listed(keys, &own.collect::<Vec<_>>())?;
    if listed.as_ref().is_some_and(|listed| !choice.may_pay(keys, listed.len(), named)) {
        return Ok(None);
    }
    let Some(ranges) = listed.and_then(|listed| keys.ranges_of(listed)) else {
        let may_learn = !scan.dynamic_filters().is_empty();
        return Ok(may_learn.then(|| choice.index_filter.clone()));
    };
    let look_up = LookUp::new(choice, ranges);
    if !look_up.is_expected_to_pay(keys, named).0 {
        return Ok(None);
    }
    let mut index_filter = choice.index_filter.clone();
    for (part, wanted) in index_filter.parts.iter_mut().zip(&look_up.wanted) {
        for (run, wanted) in part.runs.iter_mut().zip(wanted) {
            *run = only(run, wanted);
        }
        part.runs.retain(|run| !run.pages.is_empty());
    }
    Ok(Some(index_filter))
}

/// The wanted pages of `run`. Each fence is an upper bound of the page before it, even if pages between them are gone.
fn only(run: &IndexPages, wanted: &Wanted) -> IndexPages {
    let mut kept = IndexPages::whole(run.segment, Vec::with_capacity(wanted.len()));
    let mut end = None;
    for (page, fences) in run.pages.iter().zip(run.fences.windows(2)) {
        if wanted.get(kept.pages.len()).is_some_and(|wanted| wanted.page == *page) {
            kept.pages.push(*page);
            kept.fences.extend(fences.first().cloned());
            end = fences.get(1).cloned();
        }
    }
    kept.fences.extend(end);
    kept
}

impl Choice {
    /// The keys that `filters` list, if they are not too many.
    fn listed(
        &self,
        keys: &ScanKeys,
        filters: &[(Arc<dyn PhysicalExpr>, &Projection)],
    ) -> Result<Option<ListedKeys>> {
        let rows = self.size.row_count();
        let count_max = match keys.thrift {
            Thrift::None => KEY_COUNT_MAX,
            _ => KEY_COUNT_MAX.min(usize::try_from(rows / ROWS_PER_KEY_MIN).unwrap_or(usize::MAX)),
        };
        Ok(keys.listed(filters)?.filter(|listed| listed.len() <= count_max))
    }

    /// Whether looking `count` keys up could pay if no page of the index had to be read: known before the keys are
    /// encoded, which takes longer than the rest of a look-up that does not pay.
    fn may_pay(&self, keys: &ScanKeys, count: usize, scan: &TableScan) -> bool {
        let worth = self.worth(keys, scan, 0, 0);
        let hits = count as f64 * keys.rows_per_key.max(1) as f64;
        worth.pays(hits, worth.pages_touched(hits))
    }

    fn worth(
        &self,
        keys: &ScanKeys,
        scan: &TableScan,
        index_page_count: usize,
        index_bytes: u64,
    ) -> Worth {
        let (thrift, input, row_bytes) = (keys.thrift, self.size, row_bytes(scan));
        Worth { thrift, input, row_bytes, index_page_count, index_bytes }
    }

    /// The figures of a look-up of `count` keys before anything is read.
    fn figures(&self, count: u64) -> IndexFigures {
        let keys = self.index_filter.keys.as_ref();
        IndexFigures {
            index: keys.map(|keys| keys.index.clone()).unwrap_or_default(),
            keys: count,
            pages: keys.map_or(0, |keys| keys.page_count),
            ..IndexFigures::default()
        }
    }
}

impl Hits {
    /// Whether index pages were read here; otherwise the host has read them, and left out pages itself.
    pub(super) fn come_from_an_index(&self) -> bool {
        self.choice.index_filter.parts.iter().any(|part| !part.runs.is_empty())
    }

    /// The hits on `page` of `segment`, ascending; `None` if all its rows must be scanned.
    pub(super) fn on(&self, segment: SegmentId, page: &MorselPage) -> Option<&[u64]> {
        let vids = self.parts.get(self.choice.part_of(segment, page)?)?;
        let from = vids.partition_point(|vid| *vid < page.vid_first);
        let to = vids.partition_point(|vid| *vid < page.vid_end());
        vids.get(from..to)
    }
}

impl<'a> LookUp<'a> {
    fn new(choice: &'a Arc<Choice>, ranges: Vec<KeyRange>) -> Self {
        let parts = choice.index_filter.parts.iter();
        let wanted =
            parts.map(|part| part.runs.iter().map(|run| pages_wanted(run, &ranges)).collect());
        Self { choice, wanted: wanted.collect(), ranges }
    }

    fn pages(&self) -> impl Iterator<Item = &PageRef> {
        self.wanted.iter().flatten().flatten().map(|wanted| &wanted.page)
    }

    /// Whether it is expected to pay before anything is read, and how much it saves.
    fn is_expected_to_pay(&self, keys: &ScanKeys, scan: &TableScan) -> (bool, f64, Worth) {
        let index_bytes = self.pages().map(|page| page.extent.bytes() as u64).sum();
        let worth = self.choice.worth(keys, scan, self.pages().count(), index_bytes);
        let expected = self.ranges.len() as f64 * keys.rows_per_key.max(1) as f64;
        let whole = self.wanted.iter().flatten().flatten().filter(|wanted| wanted.is_whole);
        let certain: f64 = whole.map(|wanted| f64::from(wanted.page.row_count)).sum();
        let hits = expected.max(certain);
        let touched = worth.pages_touched(hits);
        (worth.pays(hits, touched), worth.saving(hits, touched), worth)
    }

    /// The figures before anything is read.
    fn figures(&self) -> IndexFigures {
        self.choice.figures(self.ranges.len() as u64)
    }

    /// Reads the pages; None if `meter` found that it does not pay.
    async fn read(
        &self,
        asked: &LookUpRequest<'_>,
        mut meter: Option<Meter<'_>>,
    ) -> Result<(Option<Hits>, IndexFigures)> {
        let memory = MemoryConsumer::new("rows that an index found").register(asked.memory);
        let mut figures = self.figures();
        let wanted_count = self.pages().count() as u64;
        let mut parts = Vec::with_capacity(self.wanted.len());
        let range_bytes = |range: &KeyRange| {
            RANGE_BYTES + range.from.len() + range.below.as_ref().map_or(0, Vec::len)
        };
        let mut held_bytes: usize = self.ranges.iter().map(range_bytes).sum();
        for (place, (part, runs)) in
            self.choice.index_filter.parts.iter().zip(&self.wanted).enumerate()
        {
            let mut vids = part.rows.clone();
            for (run, wanted) in part.runs.iter().zip(runs) {
                let page_bytes = wanted.iter().map(|w| w.page.extent.bytes()).max().unwrap_or(0);
                let ahead_bytes = page_bytes * PAGE_EXPANSION * PAGES_AT_ONCE.min(wanted.len());
                let pages = wanted.iter().map(|wanted| wanted.page).collect();
                let mut cursor = PageCursor::new(run.segment, pages, PAGES_AT_ONCE);
                memory.try_resize(held_bytes + bytes_of(&vids) + ahead_bytes)?;
                for WantedPage { ranges, .. } in wanted {
                    let Some(block) = cursor.next(asked.pages).await.map_err(external)? else {
                        break;
                    };
                    let before = vids.len();
                    for range in self.ranges.get(ranges.clone()).unwrap_or_default() {
                        let mut hits = block.from_key(&range.from);
                        if let Some(below) = &range.below {
                            hits = hits.below_key(below);
                        }
                        vids.extend(hits.vids.values());
                    }
                    figures.pages_read += 1;
                    let found = vids.get(before..).unwrap_or_default();
                    figures.entries += found.len() as u64;
                    // A look-up that was read to its end is used, whatever it cost.
                    if let Some(meter) = &mut meter
                        && !meter.goes_on(place, found)
                        && figures.pages_read < wanted_count
                    {
                        figures.given_up = 1;
                        return Ok((None, figures));
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
        memory.try_resize(parts.iter().map(|vids| bytes_of(vids)).sum())?;
        figures.used = 1;
        let choice = Arc::clone(self.choice);
        Ok((Some(Hits { choice, parts, _memory: memory }), figures))
    }
}

impl<'a> Meter<'a> {
    fn new(choice: &'a Choice, worth: Worth) -> Self {
        let touched = choice.pages.iter().map(|pages| vec![false; pages.len()]).collect();
        Self { choice, worth, hits: 0, touched, touched_count: 0 }
    }

    /// Counts the hits in a part; returns whether the rest is still worth reading.
    fn goes_on(&mut self, part: usize, found: &[u64]) -> bool {
        self.hits += found.len();
        let (Some(pages), Some(touched)) =
            (self.choice.pages.get(part), self.touched.get_mut(part))
        else {
            return true;
        };
        for vid in found {
            let page = pages.partition_point(|first| first <= vid).checked_sub(1);
            if let Some(touched) = page.and_then(|page| touched.get_mut(page))
                && !std::mem::replace(touched, true)
            {
                self.touched_count += 1;
            }
        }
        self.worth.pays(self.hits as f64, self.touched_count as f64)
    }
}

/// The pages of `run` that may hold some of `ranges` (ascending and disjoint), and which ranges; without fences, every
/// page may hold all.
fn pages_wanted(run: &IndexPages, ranges: &[KeyRange]) -> Wanted {
    if run.fences.is_empty() {
        let all =
            |page: &PageRef| WantedPage { page: *page, ranges: 0..ranges.len(), is_whole: false };
        return run.pages.iter().map(all).collect();
    }
    let between = run.fences.windows(2).filter_map(|ends| match ends {
        [first, last] => Some((first.as_slice(), last.as_slice())),
        _ => None,
    });
    let mut wanted = Vec::new();
    for (page, (first, last)) in run.pages.iter().zip(between) {
        // A fence may be truncated: an entry that begins with it may be above all of these bytes.
        let ends_before = |range: &KeyRange| range.below.as_deref().is_some_and(|b| b <= first);
        let begins_by = |range: &KeyRange| {
            let from = range.from.as_slice();
            from <= last || last.len() == FENCE_BYTES_MAX && from.starts_with(last)
        };
        let start = ranges.partition_point(ends_before);
        let end = ranges.partition_point(begins_by);
        if start < end {
            let only = ranges.get(start).filter(|_| start + 1 == end);
            let is_whole = only.is_some_and(|range| {
                let ends_behind =
                    |below: &Vec<u8>| last < below.as_slice() && !below.starts_with(last);
                range.from.as_slice() <= first && range.below.as_ref().is_none_or(ends_behind)
            });
            wanted.push(WantedPage { page: *page, ranges: start..end, is_whole });
        }
    }
    wanted
}

/// Approximate bytes of a row that the scan reads of pages read by column: half the size of its values.
fn row_bytes(scan: &TableScan) -> f64 {
    let filter = &scan.filter;
    let own = scan.output.columns.iter().zip(scan.output.schema.fields());
    let own = own.filter(|(column, _): &(&ColumnRef, _)| !filter.columns.contains(column));
    let fields = filter.schema.fields().iter().chain(own.map(|(_, field)| field));
    let width = |width: Option<usize>| width.map_or(TEXT_BYTES, |width| width as f64);
    fields.map(|field| width(field.data_type().primitive_width()) / 2.0).sum()
}

fn bytes_of(vids: &[u64]) -> usize {
    // Twice, for the spare capacity of a growing list.
    2 * size_of_val(vids)
}
