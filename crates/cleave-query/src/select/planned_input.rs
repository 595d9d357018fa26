//! The morsels of one scan: a table and its predicate in, the pages that may have matches out.
//!
//! Pages whose zones rule out every row are left out before anything is read or sent. Where planning read an index, all
//! pages but those of the rows that it found are left out too, and the scan reads these rows alone; where the scan
//! reads the index, it leaves out both itself. Pages are left out again by zones when a join above the scan knows its
//! keys, and by an offered index ([`OfferedIndex`]), which the scan may use with these keys.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::catalog::{DeviceId, TableState, TabletState};
use cleave_catalog::index::newest;
use cleave_fragment::filter_history::PageKey;
use cleave_fragment::{
    IndexFilter, IndexFilteredPart, IndexPages, Morsel, MorselPage, ScanKeys, Thrift,
};
use cleave_store::{
    ColumnRef, DeadRows, KeyRange, PageClass, Projection, SegmentDirectory, SegmentId, ZoneEntry,
    zone_arrays,
};
use datafusion::arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;

use super::index_choice::IndexChoice;
use page_order::LeadingColumn;

pub(super) mod page_order;

/// Bytes of small pages that are worth one morsel.
const MORSEL_BYTES: usize = 1 << 20;

/// The input of one scan of one statement.
#[derive(Debug, Clone)]
pub struct PlannedInput {
    /// The table as the statement sees it.
    pub table: Arc<TableState>,
    /// The pages left, by tablet, in VID order.
    pages: Vec<InputPage>,
    /// Pages of the table.
    pub page_count: usize,
    /// The index that left these pages, if one did, and how many there were before.
    pub index: Option<(IndexChoice, usize)>,
    /// The index filter that the scan applies to them.
    index_filter: Option<Arc<PlannedIndexFilter>>,
    /// Indexes that the scan may ask by the keys of joins above it, where no other one was chosen.
    offered: Vec<OfferedIndex>,
    /// The column of which a top-k above the scan takes the first values.
    leading: Option<LeadingColumn>,
    /// Of how many tablets, where the division says that matches lie in no others.
    pub tablet_count: Option<usize>,
    /// Rows that are read of each page, its first ones; None: all.
    first_rows: Option<usize>,
}

/// The rows that an index leaves on the pages left.
#[derive(Debug, Default)]
struct PlannedIndexFilter {
    ranges: Vec<KeyRange>,
    /// Tablets, by place, with what is known of them.
    tablets: Vec<(usize, Vec<IndexPages>, Vec<u64>)>,
}

/// An index whose first column gets its keys from a join above the scan.
#[derive(Debug, Clone)]
pub struct OfferedIndex {
    /// The index.
    pub definition: Arc<IndexDefinition>,
    /// Rows that a value of its first column is expected to have; 0: nothing tells.
    pub rows_per_key: u64,
    /// It is asked wherever it can be, as the settings want it.
    pub always: bool,
}

/// One page of the input.
#[derive(Debug, Clone, Copy)]
struct InputPage {
    tablet: usize,
    segment: usize,
    page: usize,
}

impl PlannedInput {
    /// All pages of `table`.
    pub fn new(table: Arc<TableState>) -> Self {
        let mut pages = Vec::new();
        for (tablet_index, tablet) in table.tablets.iter().enumerate() {
            for (segment_index, segment) in tablet.heap.iter().enumerate() {
                pages.extend((0..segment.pages.len()).map(|page| InputPage {
                    tablet: tablet_index,
                    segment: segment_index,
                    page,
                }));
            }
        }
        Self {
            page_count: pages.len(),
            table,
            pages,
            index: None,
            index_filter: None,
            offered: Vec::new(),
            leading: None,
            tablet_count: None,
            first_rows: None,
        }
    }

    /// The devices on which the pages left lie; where none is left, the one that was nearest to have some.
    pub fn devices(&self) -> BTreeSet<DeviceId> {
        let mut devices: BTreeSet<DeviceId> = self.entries().map(|(device, _)| device).collect();
        if devices.is_empty() {
            devices.extend(self.table.tablets.first().map(|tablet| tablet.device));
        }
        devices
    }

    /// Places of the tablets that have pages left.
    pub fn tablets(&self) -> BTreeSet<usize> {
        self.pages.iter().map(|page| page.tablet).collect()
    }

    /// Bytes of long values that a row has, in the page where that is most.
    pub fn long_bytes(&self) -> u64 {
        let bytes = |entry: &cleave_store::PageEntry| {
            let bytes: u64 = entry.overflow.iter().map(|page| page.extent.bytes() as u64).sum();
            bytes / u64::from(entry.page.row_count.max(1))
        };
        self.entries().map(|(_, entry)| bytes(entry)).max().unwrap_or_default()
    }

    /// The input with only the pages of these tablets, by place.
    pub fn in_tablets(self, wanted: &BTreeSet<usize>) -> Self {
        let pages = self.pages.iter().filter(|page| wanted.contains(&page.tablet));
        Self { pages: pages.copied().collect(), tablet_count: Some(wanted.len()), ..self }
    }

    /// The input, so far of all pages, with only those at these places, and of each the first rows if not all.
    pub fn at_places(self, wanted: &BTreeSet<usize>, first_rows: Option<usize>) -> Self {
        let places = (0..).zip(&self.pages).filter(|(place, _)| wanted.contains(place));
        Self { pages: places.map(|(_, page)| *page).collect(), first_rows, ..self }
    }

    /// The input with only the pages that begin with one of `vids`.
    pub fn with_first_vids(self, vids: &Range<u64>) -> Self {
        let begins = |page: &&InputPage| {
            self.entry(**page).is_some_and(|(_, entry)| vids.contains(&entry.vid_first))
        };
        let pages = self.pages.iter().filter(begins).copied().collect();
        Self { pages, ..self }
    }

    /// The part of the input that lies on `device`.
    pub fn on_device(&self, device: DeviceId) -> Self {
        let lies_there = |place: usize| {
            self.table.tablets.get(place).is_some_and(|tablet| tablet.device == device)
        };
        let pages = self.pages.iter().filter(|page| lies_there(page.tablet)).copied().collect();
        let own = self.table.tablets.iter().filter(|tablet| tablet.device == device);
        let page_count = own.flat_map(|tablet| &tablet.heap).map(|heap| heap.pages.len()).sum();
        Self { pages, page_count, ..self.clone() }
    }

    /// The part at `place` of `count` ones of about as many pages, one behind the other.
    pub(crate) fn share(&self, place: usize, count: usize) -> Self {
        let bound = |all: usize, place: usize| all.saturating_mul(place) / count.max(1);
        let bounds = |all: usize| bound(all, place)..bound(all, place.saturating_add(1));
        let pages = self.pages.get(bounds(self.pages.len())).unwrap_or_default().to_vec();
        let page_count = bounds(self.page_count).len();
        Self { pages, page_count, ..self.clone() }
    }

    /// The part of the input that `device` takes, where `takers` says of a device which ones take its pages, page by
    /// page in turns.
    pub(super) fn taken_by(
        &self,
        device: DeviceId,
        takers: &BTreeMap<DeviceId, Vec<DeviceId>>,
    ) -> Self {
        let of_home = |place: usize| {
            let home = self.table.tablets.get(place)?.device;
            takers.get(&home).map(|takers| (home, takers))
        };
        let mut turns: BTreeMap<DeviceId, usize> = BTreeMap::new();
        let is_taken = |page: &&InputPage| {
            let Some((home, takers)) = of_home(page.tablet) else { return false };
            let turn = turns.entry(home).or_default();
            let taker = takers.get(*turn);
            *turn = (*turn + 1) % takers.len().max(1);
            taker == Some(&device)
        };
        let pages = self.pages.iter().filter(is_taken).copied().collect();
        let shares = self.table.tablets.iter().enumerate().filter_map(|(place, tablet)| {
            let (_, takers) = of_home(place).filter(|(_, takers)| takers.contains(&device))?;
            let page_count: usize = tablet.heap.iter().map(|heap| heap.pages.len()).sum();
            Some(page_count.div_ceil(takers.len().max(1)))
        });
        let page_count = shares.sum();
        Self { pages, page_count, ..self.clone() }
    }

    /// The input without the pages that cannot have a row for which `predicate`, over the columns of
    /// `filter`, is true. A predicate that zones say nothing about leaves all.
    pub fn pruned(&self, filter: &Projection, predicate: &Arc<dyn PhysicalExpr>) -> Result<Self> {
        if self.pages.is_empty() {
            return Ok(self.clone());
        }
        let schema = Arc::clone(&filter.schema);
        let pruning = PruningPredicateBuilder::new().with_file_schema(schema);
        let Some(pruning) = pruning.build(Arc::clone(predicate)) else {
            return Ok(self.clone());
        };
        let keep = pruning.prune(&PageZones { input: self, filter })?;
        let pages =
            self.pages.iter().zip(keep).filter_map(|(page, keep)| keep.then_some(*page)).collect();
        Ok(Self { pages, ..self.clone() })
    }

    /// The input with only those pages that have one of `rows`, which `choice` found: the place of a tablet in the
    /// table, and the VID.
    pub fn restricted(self, rows: &[(usize, u64)], choice: IndexChoice) -> Self {
        let mut wanted = BTreeSet::new();
        for (tablet, vid) in rows {
            let found = self.table.tablets.get(*tablet).and_then(|tablet| newest(tablet, *vid));
            if let Some((segment, page, _)) = found {
                wanted.insert((segment.segment, page));
            }
        }
        let before = self.pages.len();
        let left = self.on_pages(&wanted);
        let mut index_filter = PlannedIndexFilter::default();
        for place in 0..self.table.tablets.len() {
            let of_tablet = rows.iter().filter(|(tablet, _)| *tablet == place);
            index_filter.tablets.push((
                place,
                Vec::new(),
                of_tablet.map(|(_, vid)| *vid).collect(),
            ));
        }
        let index_filter = Some(Arc::new(index_filter));
        Self { index: Some((choice, before)), index_filter, ..left }
    }

    /// Whether all of `pages`, by segment and number, are among those left.
    pub fn has_pages(&self, pages: &BTreeSet<(SegmentId, u32)>) -> bool {
        let own = self.pages.iter().filter_map(|page| self.entry(*page));
        let own: BTreeSet<(SegmentId, u32)> =
            own.map(|(segment, entry)| (segment.segment, entry.page.page)).collect();
        pages.is_subset(&own)
    }

    /// The input with only the pages `wanted`, by segment and number, and those that lie on no media.
    #[must_use]
    pub fn on_pages(&self, wanted: &BTreeSet<(SegmentId, u32)>) -> Self {
        let is_wanted = |page: &&InputPage| {
            self.entry(**page).is_some_and(|(segment, entry)| {
                segment.segment.is_shipped() || wanted.contains(&(segment.segment, entry.page.page))
            })
        };
        let pages = self.pages.iter().filter(is_wanted).copied().collect();
        Self { pages, ..self.clone() }
    }

    /// The input with only the rows `vids` of the tablet at `place`, which its scan reads and no others. None: one of
    /// them is on no page left, or on one that is shipped, of which a scan reads all rows.
    #[must_use]
    pub fn of_rows(&self, place: usize, vids: Vec<u64>) -> Option<Self> {
        let tablet = self.table.tablets.get(place)?;
        let mut wanted: BTreeMap<(SegmentId, u32), bool> = BTreeMap::new();
        for vid in &vids {
            let (segment, page, _) = newest(tablet, *vid)?;
            wanted.insert((segment.segment, page), false);
        }
        let is_wanted = |page: &&InputPage| {
            let entry = self.entry(**page).filter(|_| page.tablet == place);
            let key = entry.map(|(segment, entry)| (segment.segment, entry.page.page));
            key.and_then(|key| wanted.get_mut(&key)).is_some_and(|is_left| {
                *is_left = !key.is_some_and(|(segment, _)| segment.is_shipped());
                true
            })
        };
        let pages = self.pages.iter().filter(is_wanted).copied().collect();
        let are_left = wanted.values().all(|is_left| *is_left);
        let tablets = vec![(place, Vec::new(), vids)];
        let index_filter = Some(Arc::new(PlannedIndexFilter { ranges: Vec::new(), tablets }));
        are_left.then(|| Self { pages, index: None, index_filter, ..self.clone() })
    }

    /// The input, whose scan reads `tablets`, the pages of an index in each (by place) and the rows that were found
    /// already, and looks only at rows in `ranges`.
    pub fn filtered(
        self,
        ranges: Vec<KeyRange>,
        tablets: Vec<(usize, Vec<IndexPages>, Vec<u64>)>,
        choice: IndexChoice,
    ) -> Self {
        let before = self.pages.len();
        let index_filter = Some(Arc::new(PlannedIndexFilter { ranges, tablets }));
        Self { index: Some((choice, before)), index_filter, ..self }
    }

    /// Lets the scan ask `index` by the keys of joins above it, unless conditions have chosen an index.
    pub fn offer(&mut self, index: OfferedIndex) {
        if self.index.is_none() {
            self.offered.push(index);
        }
    }

    /// The indexes that the scan may ask by the keys of joins above it.
    pub fn offered(&self) -> &[OfferedIndex] {
        &self.offered
    }

    /// The index filter of the morsels, for the input `number`. `is_near`: the scan reads its pages from local media.
    pub fn index_filters(&self, number: u32, is_near: bool) -> Vec<IndexFilter> {
        let Some(planned) = &self.index_filter else {
            return self.offered.iter().map(|index| self.by_keys(number, index, is_near)).collect();
        };
        let left = self.tablets();
        let part = |(place, runs, rows): &(usize, Vec<IndexPages>, Vec<u64>)| {
            let tablet = self.table.tablets.get(*place)?;
            Some(IndexFilteredPart {
                segments: tablet.indexed_heap().map(|segment| segment.segment).collect(),
                runs: runs.clone(),
                rows: rows.clone(),
                ..IndexFilteredPart::default()
            })
        };
        // Of tablets without pages here, whose index may lie on another device, nothing is asked.
        let tablets = planned.tablets.iter().filter(|(place, ..)| left.contains(place));
        let parts = tablets.filter_map(part).collect();
        vec![IndexFilter { input: number, ranges: planned.ranges.clone(), keys: None, parts }]
    }

    fn by_keys(&self, input: u32, index: &OfferedIndex, is_near: bool) -> IndexFilter {
        let OfferedIndex { definition, rows_per_key, always } = index;
        let part = |place: usize| {
            let tablet = self.table.tablets.get(place)?;
            let index = tablet.index(definition.id)?;
            let hot = tablet.indexed_heap().filter(|segment| segment.class == PageClass::HOT);
            Some(IndexFilteredPart {
                segments: tablet.indexed_heap().map(|segment| segment.segment).collect(),
                runs: index.all_pages(),
                rows: Vec::new(),
                hot: hot.map(|segment| segment.segment).collect(),
                vid_covered: index.vid_covered,
            })
        };
        let parts: Vec<IndexFilteredPart> = self.tablets().into_iter().filter_map(part).collect();
        let runs = parts.iter().flat_map(|part| &part.runs);
        let page_count = runs.map(|run| run.pages.len() as u64).sum();
        let keys = definition.columns.first().map(|column| ScanKeys {
            index: definition.name.clone(),
            column: column.column,
            descending: column.descending,
            nulls_first: column.nulls_first,
            rows_per_key: *rows_per_key,
            page_count,
            thrift: match (always, is_near) {
                (true, _) => Thrift::None,
                (false, true) => Thrift::Work,
                (false, false) => Thrift::Reads,
            },
        });
        IndexFilter { input, ranges: Vec::new(), keys, parts }
    }

    /// The segments of an index that the scan reads, with the device of each.
    pub fn index_segments(&self) -> impl Iterator<Item = (DeviceId, SegmentId)> {
        let left = self.tablets();
        let tablets = self.index_filter.iter().flat_map(|index_filter| &index_filter.tablets);
        let of_ranges = tablets.filter({
            let left = left.clone();
            move |(place, ..)| left.contains(place)
        });
        let of_ranges = of_ranges.flat_map(|(place, runs, _)| {
            let device = self.table.tablets.get(*place).map(|tablet| tablet.device);
            runs.iter().filter_map(move |run| Some((device?, run.segment.segment)))
        });
        let of_keys = left.into_iter().filter_map(|place| self.table.tablets.get(place));
        let of_keys = of_keys.flat_map(|tablet| {
            let indexes = self.offered.iter().filter_map(|o| tablet.index(o.definition.id));
            let runs = indexes.flat_map(|index| index.runs());
            runs.map(|run| (tablet.device, run.segment))
        });
        of_ranges.chain(of_keys)
    }

    /// Of the pages left, the part that is read if no more rows match than an index may have found.
    pub fn share_read(&self) -> f64 {
        match &self.index {
            Some((choice, _)) => {
                (choice.entry_count as f64 / self.pages.len().max(1) as f64).min(1.0)
            }
            None => 1.0,
        }
    }

    /// No more rows than this match.
    pub fn row_count_max(&self) -> u64 {
        match &self.index {
            Some((choice, _)) => {
                let found = (choice.entry_count as u64).saturating_add(self.rows_shipped());
                self.rows_left().min(found)
            }
            None => self.rows_left(),
        }
    }

    /// Pages left.
    pub fn pages_left(&self) -> usize {
        self.pages.len()
    }

    /// Rows on the pages left.
    pub fn rows_left(&self) -> u64 {
        self.entries().map(|(_, entry)| u64::from(entry.page.row_count)).sum()
    }

    /// Rows on those of the pages left that no index leaves out, as they are shipped.
    pub fn rows_shipped(&self) -> u64 {
        let shipped = self.pages.iter().filter_map(|page| self.entry(*page));
        let shipped = shipped.filter(|(segment, _)| segment.segment.is_shipped());
        shipped.map(|(_, entry)| u64::from(entry.page.row_count)).sum()
    }

    /// Bytes of the pages left, all columns.
    pub fn bytes_left(&self) -> u64 {
        self.entries().map(|(_, entry)| entry.byte_count() as u64).sum()
    }

    /// The pages left, with the device that each lies on.
    pub fn entries(&self) -> impl Iterator<Item = (DeviceId, &cleave_store::PageEntry)> {
        self.pages.iter().filter_map(|page| {
            let tablet = self.table.tablets.get(page.tablet)?;
            Some((tablet.device, tablet.heap.get(page.segment)?.pages.get(page.page)?))
        })
    }

    /// About `count` of the pages left, evenly spread, as a filter history knows them.
    pub fn spread_pages(&self, count: usize) -> impl Iterator<Item = PageKey> {
        let every = self.pages.len().div_ceil(count.max(1)).max(1);
        self.pages.iter().step_by(every).filter_map(|page| {
            let (segment, entry) = self.entry(*page)?;
            PageKey::of(&segment.segment_ref(), &entry.page)
        })
    }

    /// The pages left as morsels: one bulk page each, small ones gathered. Those of several devices take turns, so that
    /// a reader of all of them keeps every device busy. Below a top-k, those with the first values come first.
    pub fn morsels(&self) -> Vec<Morsel> {
        let mut by_device: BTreeMap<DeviceId, VecDeque<Morsel>> = BTreeMap::new();
        let mut gathered_bytes = 0;
        let ranks = self.ranks();
        for (index, page) in self.pages.iter().enumerate() {
            let rank = ranks.get(index).copied().unwrap_or_default();
            let Some((segment, entry)) = self.entry(*page) else { continue };
            let Some(tablet) = self.table.tablets.get(page.tablet) else { continue };
            let morsels = by_device.entry(tablet.device).or_default();
            // Long values are read with their page, and may be many times as large.
            let overflow = entry.overflow.iter().map(|page| page.extent.bytes());
            let bytes = entry.byte_count() + overflow.sum::<usize>();
            let place = MorselPage {
                page: entry.page,
                vid_first: entry.vid_first,
                gaps: entry.gaps.clone(),
                overflow: entry.overflow.clone(),
                dead: self.left_out(dead_on(tablet, entry), entry.page.row_count),
            };
            match morsels.back_mut() {
                Some(morsel)
                    if morsel.segment.segment == segment.segment
                        && gathered_bytes + bytes <= MORSEL_BYTES =>
                {
                    morsel.pages.push(place);
                    morsel.number = morsel.number.min(rank);
                    gathered_bytes += bytes;
                }
                _ => {
                    let segment = segment.segment_ref();
                    morsels.push_back(Morsel { number: rank, segment, pages: vec![place] });
                    gathered_bytes = bytes;
                }
            }
        }
        let mut morsels = Vec::new();
        while !by_device.is_empty() {
            by_device.retain(|_, of_device| {
                morsels.extend(of_device.pop_front());
                !of_device.is_empty()
            });
        }
        morsels.sort_by_key(|morsel| morsel.number);
        for (number, morsel) in (0..).zip(&mut morsels) {
            morsel.number = number;
        }
        morsels
    }

    /// The segments of the pages left, with the device of each.
    pub fn segments(&self) -> impl Iterator<Item = (DeviceId, &Arc<SegmentDirectory>)> {
        self.table.heap_segments()
    }

    /// The rows of a page of `row_count` that are not read: `dead` ones, and those behind the first rows.
    fn left_out(&self, dead: DeadRows, row_count: u32) -> DeadRows {
        match (self.first_rows, usize::try_from(row_count)) {
            (Some(first), Ok(row_count)) => dead.with_rows_from(first, row_count),
            _ => dead,
        }
    }

    fn entry(&self, page: InputPage) -> Option<(&Arc<SegmentDirectory>, &cleave_store::PageEntry)> {
        let segment = self.table.tablets.get(page.tablet)?.heap.get(page.segment)?;
        Some((segment, segment.pages.get(page.page)?))
    }
}

/// Slots of the rows of a page that are dead.
fn dead_on(tablet: &TabletState, entry: &cleave_store::PageEntry) -> DeadRows {
    tablet.version_map.dead_rows(entry.vid_stretches())
}

/// Zone maps as DataFusion's pruning asks for them: one container a page.
struct PageZones<'a> {
    input: &'a PlannedInput,
    filter: &'a Projection,
}

impl PageZones<'_> {
    fn arrays(&self, column: &Column) -> Option<cleave_store::ZoneArrays> {
        let index = self.filter.schema.index_of(&column.name).ok()?;
        let ColumnRef::User(id) = self.filter.columns.get(index)? else { return None };
        let pages: Vec<(u32, &[ZoneEntry])> = self
            .input
            .entries()
            .map(|(_, entry)| (entry.page.row_count, entry.zones.as_slice()))
            .collect();
        let data_type = self.filter.schema.field(index).data_type();
        let absent = self.filter.absent.zone(*id, data_type);
        Some(zone_arrays(pages, *id, data_type, absent.as_ref()))
    }
}

impl PruningStatistics for PageZones<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.arrays(column).map(|zones| zones.mins)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.arrays(column).map(|zones| zones.maxs)
    }

    fn num_containers(&self) -> usize {
        self.input.pages.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        self.arrays(column).map(|zones| Arc::new(zones.null_counts) as ArrayRef)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows: UInt64Array =
            self.input.entries().map(|(_, entry)| Some(u64::from(entry.page.row_count))).collect();
        Some(Arc::new(rows))
    }

    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

#[cfg(test)]
mod tests;
