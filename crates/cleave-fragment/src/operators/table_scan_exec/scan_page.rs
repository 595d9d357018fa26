//! A page on its way through a scan: chunks in, decoded columns of the remaining rows out.
//!
//! Invariants: a column is opened once for each page, so its text is validated once; only the columns and rows asked
//! for are decoded.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::Schema;
use cleave_store::{
    ColumnRef, Encoding, OpenColumn, OverflowValues, PageColumns, PageRead, Pick, Projection,
    Snapshot, decode_batch, overflow_pages,
};
use datafusion_common::cast::as_uint64_array;
use datafusion_common::{DataFusionError, Result, internal_err};

use super::condition::Condition;
use super::history::KnownRows;
use crate::fragment::FragmentContext;
use crate::morsel::MorselPage;

/// A page on its way through the scan.
pub(crate) struct ScanPage<'a> {
    pub(super) place: Cow<'a, MorselPage>,
    pub(super) read: PageRead,
    pub(super) columns: PageColumns,
    /// Rows that are visible and match; `None` if all.
    pub(crate) selection: Option<BooleanBuffer>,
    /// Conditions from above that its selection already satisfies.
    pub(super) asked: Vec<Arc<Condition>>,
    /// What the filter history knows of it.
    pub(super) known: KnownRows,
    opened: Vec<(ColumnRef, OpenColumn)>,
}

impl<'a> ScanPage<'a> {
    /// A page with the chunks that `read` requested.
    pub(crate) fn new(place: Cow<'a, MorselPage>, read: PageRead, columns: PageColumns) -> Self {
        let (selection, asked, known) = (None, Vec::new(), KnownRows::default());
        Self { place, read, columns, selection, asked, known, opened: Vec::new() }
    }

    /// Rows, including dead ones.
    pub(crate) fn row_count(&self) -> usize {
        self.columns.header.row_count as usize
    }

    /// The VID of slot 0, if VIDs count up from it, but for the gaps that the morsel lists.
    pub(super) fn vid_first(&self) -> Option<u64> {
        let entry = self.columns.header.entry(ColumnRef::Vid)?;
        let vid_first = self.place.vid_first;
        let counts_up = entry.encoding == Encoding::Sequence && entry.base == vid_first;
        let is_as_told = counts_up == self.place.gaps.is_empty();
        is_as_told.then_some(vid_first)
    }

    /// Whether any row is left.
    pub(super) fn has_rows(&self) -> bool {
        self.selection.as_ref().is_none_or(|rows| rows.count_set_bits() > 0)
    }

    /// Opens those of `columns` that are not open yet. `overflow` has the long values of the selected rows.
    pub(crate) fn open(&mut self, columns: &Projection, overflow: &OverflowValues) -> Result<()> {
        for (field, column) in columns.schema.fields().iter().zip(&columns.columns) {
            if self.opened.iter().any(|(opened, _)| opened == column) {
                continue;
            }
            let selection = self.selection.as_ref();
            let opened = OpenColumn::open(
                &self.columns,
                &self.read,
                *column,
                field.data_type(),
                &columns.absent,
                overflow,
                selection,
            );
            self.opened.push((*column, opened.map_err(external)?));
        }
        Ok(())
    }

    /// A column that was opened.
    pub(crate) fn column(&self, column: ColumnRef) -> Result<&OpenColumn> {
        match self.opened.iter().find(|(opened, _)| *opened == column) {
            Some((_, opened)) => Ok(opened),
            None => internal_err!("{column} was not opened"),
        }
    }

    /// The picked values of columns that were opened.
    pub(crate) fn decode(&self, columns: &[ColumnRef], pick: &Pick) -> Result<Vec<ArrayRef>> {
        columns.iter().map(|column| self.column(*column)?.decode(pick).map_err(external)).collect()
    }

    /// Divides the page into ranges, each with at most `batch_size` rows of `kept` (None means all). Ends of the page
    /// without any are in none.
    pub(super) fn ranges(
        &self,
        kept: Option<&BooleanBuffer>,
        batch_size: usize,
    ) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut count = 0;
        for start in (0..self.row_count()).step_by(batch_size) {
            let end = self.row_count().min(start + batch_size);
            let more =
                kept.map_or(end - start, |kept| kept.slice(start, end - start).count_set_bits());
            if more == 0 {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if count + more <= batch_size => {
                    last.end = end;
                    count += more;
                }
                _ => {
                    ranges.push(start..end);
                    count = more;
                }
            }
        }
        ranges
    }

    /// The rows that `snapshot` sees; `None` if all. The morsel lists the dead rows. Whether a row version was created
    /// yet is told by its commit number, unless a catalog version named the page.
    pub(super) fn visible_rows(&self, snapshot: Snapshot) -> Result<Option<BooleanBuffer>> {
        let row_count = self.row_count();
        let entry = |column| self.columns.header.entry(column);
        let filtered = |visible: Option<BooleanBuffer>, rows: BooleanBuffer| match visible {
            Some(visible) => &visible & &rows,
            None => rows,
        };
        let mut visible = self.place.dead.left(row_count);
        match entry(ColumnRef::Commit) {
            _ if snapshot == Snapshot::OF_STATE => {}
            Some(entry) if entry.encoding != Encoding::FromSegment => {
                let commits = self.version_column(ColumnRef::Commit)?;
                let commits = as_uint64_array(&commits)?;
                let seen =
                    BooleanBuffer::collect_bool(row_count, |row| snapshot.sees(commits.value(row)));
                visible = Some(filtered(visible, seen));
            }
            _ if snapshot.sees(self.read.segment.commit) => {}
            _ => visible = Some(BooleanBuffer::new_unset(row_count)),
        }
        Ok(visible)
    }

    fn version_column(&self, column: ColumnRef) -> Result<ArrayRef> {
        let projection = Projection::new(Schema::empty().into(), Vec::new()).with_version(column);
        let overflow = OverflowValues::default();
        let batch = decode_batch(&self.columns, &self.read, &projection, None, &overflow);
        Ok(ArrayRef::clone(batch.map_err(external)?.column(0)))
    }
}

/// The long values of `columns` on `pages`, which are stored on overflow pages.
pub(crate) async fn read_overflow<'a>(
    context: &FragmentContext,
    pages: impl IntoIterator<Item = &'a ScanPage<'a>>,
    columns: &[ColumnRef],
) -> Result<OverflowValues> {
    let mut wanted = Vec::new();
    let mut segment = None;
    for page in pages {
        let rows = page.selection.as_ref();
        for number in overflow_pages(&page.columns, &page.read, columns, rows).map_err(external)? {
            let place = page.place.overflow.iter().find(|overflow| overflow.page == number);
            let place = place.ok_or_else(|| {
                DataFusionError::Internal(format!(
                    "page {} of {} points to overflow page {number}, which the morsel does not have",
                    page.place.page.page, page.read.segment.segment
                ))
            })?;
            segment = Some(page.read.segment);
            if !wanted.contains(place) {
                wanted.push(*place);
            }
        }
    }
    let Some(segment) = segment else { return Ok(OverflowValues::default()) };
    let payloads = context.pages.read_overflow(segment, wanted.clone()).await.map_err(external)?;
    let mut values = OverflowValues::default();
    for (place, payload) in wanted.iter().zip(payloads) {
        values.insert(place.page, payload);
    }
    Ok(values)
}

/// The rows for which `array` is true: NULL is not.
pub(super) fn true_bits(array: &BooleanArray) -> BooleanBuffer {
    if array.null_count() == 0 {
        array.values().clone()
    } else {
        prep_null_mask_filter(array).values().clone()
    }
}

pub(crate) fn external(error: cleave_store::StoreError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
