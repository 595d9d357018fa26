//! The morsels of one scan: a table and its predicate in, the pages that may have matches out.
//!
//! Pages whose zones rule out every row are left out before anything is read or sent, and where an index was asked, all
//! pages but those of the rows that it found; by zones again when a join above the scan has learnt which keys it wants.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_fragment::{Morsel, MorselPage};
use cleave_store::{ColumnRef, Projection, SegmentDirectory, ZoneEntry, zone_arrays};
use datafusion::arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use std::collections::HashSet;

use super::index_choice::IndexChoice;
use crate::catalog::{DeviceId, TableState};
use crate::point_path::newest;

/// Bytes of small pages that are worth one morsel.
const MORSEL_BYTES: usize = 1 << 20;

/// The input of one scan of one statement.
#[derive(Debug, Clone)]
pub struct PlannedInput {
    /// The table as the statement sees it.
    pub table: Arc<TableState>,
    /// Where its pages lie.
    pub devices: BTreeSet<DeviceId>,
    /// The pages left, in VID order.
    pages: Vec<InputPage>,
    /// Pages of the table.
    pub page_count: usize,
    /// The index that left these pages, if one did, and how many there were before.
    pub index: Option<(IndexChoice, usize)>,
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
        let devices = table.tablets.iter().map(|tablet| tablet.device).collect();
        Self { page_count: pages.len(), devices, table, pages, index: None }
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
                wanted.insert((*tablet, segment.segment, page));
            }
        }
        let before = self.pages.len();
        let is_wanted = |page: &InputPage| {
            self.entry(*page).is_some_and(|(segment, entry)| {
                wanted.contains(&(page.tablet, segment.segment, entry.page.page))
            })
        };
        let pages = self.pages.iter().filter(|page| is_wanted(page)).copied().collect();
        Self { pages, index: Some((choice, before)), ..self }
    }

    /// No more rows than this match.
    pub fn row_count_max(&self) -> u64 {
        match &self.index {
            Some((choice, _)) => self.rows_left().min(choice.entry_count as u64),
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

    /// Bytes of the pages left, all columns.
    pub fn bytes_left(&self) -> u64 {
        self.entries().map(|(_, entry)| entry.page.extent.bytes() as u64).sum()
    }

    /// The pages left, with the device that each lies on.
    pub fn entries(&self) -> impl Iterator<Item = (DeviceId, &cleave_store::PageEntry)> {
        self.pages.iter().filter_map(|page| {
            let tablet = self.table.tablets.get(page.tablet)?;
            Some((tablet.device, tablet.heap.get(page.segment)?.pages.get(page.page)?))
        })
    }

    /// The pages left as morsels: one bulk page each, small ones gathered.
    pub fn morsels(&self) -> Vec<Morsel> {
        let mut morsels: Vec<Morsel> = Vec::new();
        let mut gathered_bytes = 0;
        for page in &self.pages {
            let Some((segment, entry)) = self.entry(*page) else { continue };
            // Long values are read with their page, and may be many times as large.
            let overflow = entry.overflow.iter().map(|page| page.extent.bytes());
            let bytes = entry.page.extent.bytes() + overflow.sum::<usize>();
            let place = MorselPage {
                page: entry.page,
                vid_first: entry.vid_first,
                overflow: entry.overflow.clone(),
            };
            match morsels.last_mut() {
                Some(morsel)
                    if morsel.segment.segment == segment.segment
                        && gathered_bytes + bytes <= MORSEL_BYTES =>
                {
                    morsel.pages.push(place);
                    gathered_bytes += bytes;
                }
                _ => {
                    let number = u32::try_from(morsels.len()).unwrap_or(u32::MAX);
                    let segment = segment.segment_ref();
                    morsels.push(Morsel { number, segment, pages: vec![place] });
                    gathered_bytes = bytes;
                }
            }
        }
        morsels
    }

    /// The segments of the pages left, with the device of each.
    pub fn segments(&self) -> impl Iterator<Item = (DeviceId, &Arc<SegmentDirectory>)> {
        self.table
            .tablets
            .iter()
            .flat_map(|tablet| tablet.heap.iter().map(|segment| (tablet.device, segment)))
    }

    fn entry(&self, page: InputPage) -> Option<(&Arc<SegmentDirectory>, &cleave_store::PageEntry)> {
        let segment = self.table.tablets.get(page.tablet)?.heap.get(page.segment)?;
        Some((segment, segment.pages.get(page.page)?))
    }
}

/// Zone maps as the engine's pruning asks for them: one container a page.
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
        Some(zone_arrays(pages, *id, self.filter.schema.field(index).data_type()))
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
