//! Reads rows of a tablet by their VIDs, as an index returned them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanBufferBuilder, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::interleave;
use cleave_store::segment::PageEntry;
use cleave_store::{
    PageColumns, PageRead, PageSource, Projection, SegmentDirectory, SegmentId, decode_batch,
    decode_rows, opened, overflow_pages,
};

use super::long_values;
use crate::catalog::TabletState;
use crate::error::{Error, Result};

/// Pages that are requested at once.
const PAGE_COUNT: usize = 64;
/// Up to so many rows of a page are decoded one by one.
const FEW: usize = 16;

/// Rows of several batches in an order, each as batch and row.
#[derive(Debug, Default)]
pub struct Scattered {
    /// The batches.
    pub batches: Vec<RecordBatch>,
    /// Batch, and row in it, of each row.
    pub places: Vec<(usize, usize)>,
}

impl Scattered {
    /// The columns of `projection` of the rows `vids`, in their order; one may come several times.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a row that the tablet does not have; those of reading pages.
    pub async fn of_vids(
        tablet: &TabletState,
        pages: &dyn PageSource,
        projection: &Projection,
        vids: &[u64],
    ) -> Result<Self> {
        let mut columns = projection.columns.clone();
        columns.sort_unstable();
        columns.dedup();
        let mut of_pages: BTreeMap<(SegmentId, u32), BTreeMap<u16, Vec<usize>>> = BTreeMap::new();
        for (position, vid) in vids.iter().enumerate() {
            let (segment, page, slot) =
                newest(tablet, *vid).ok_or_else(Error::concurrent_update)?;
            let of_page = of_pages.entry((segment.segment, page)).or_default();
            of_page.entry(slot).or_default().push(position);
        }
        let mut found = Self { batches: Vec::new(), places: vec![(0, 0); vids.len()] };
        let of_pages: Vec<_> = of_pages.into_iter().collect();
        for group in of_pages.chunks(PAGE_COUNT) {
            let mut entries = Vec::with_capacity(group.len());
            let mut reads = Vec::with_capacity(group.len());
            for ((segment, page), _) in group {
                let segment = tablet.segment(*segment).ok_or_else(Error::concurrent_update)?;
                let entry = segment.page(*page).ok_or_else(Error::concurrent_update)?;
                entries.push(entry);
                let (segment, columns) = (segment.segment_ref(), columns.clone());
                reads.push(PageRead { segment, page: entry.page, columns });
            }
            let answers = opened(pages, &reads).await?;
            let long = reads.iter().zip(&answers).filter(|(_, page)| page.is_none());
            let long: Vec<PageRead> = long.map(|(read, _)| read.clone()).collect();
            let mut long = match long.is_empty() {
                true => Vec::new(),
                false => pages.read_scattered(long).await?,
            }
            .into_iter();
            for (((entry, read), page), (_, slots)) in
                entries.iter().zip(&reads).zip(&answers).zip(group)
            {
                let slots_wanted: Vec<u16> = slots.keys().copied().collect();
                let batch = match page {
                    Some(page) => page.rows(&slots_wanted, projection)?,
                    None => {
                        let page = long.next().ok_or_else(Error::concurrent_update)?;
                        long_rows(pages, entry, (read, &page), &slots_wanted, projection).await?
                    }
                };
                for (row, positions) in slots.values().enumerate() {
                    for position in positions {
                        if let Some(place) = found.places.get_mut(*position) {
                            *place = (found.batches.len(), row);
                        }
                    }
                }
                found.batches.push(batch);
            }
        }
        Ok(found)
    }

    /// All rows as one batch with the columns of `projection`.
    ///
    /// # Errors
    /// For batches of other columns.
    pub fn joined(&self, projection: &Projection) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.places.len()));
        let in_order =
            || self.places.iter().copied().eq((0..self.places.len()).map(|row| (0, row)));
        let columns = (0..projection.schema.fields().len()).map(|column| {
            let arrays = self.batches.iter().filter_map(|batch| batch.columns().get(column));
            let arrays: Vec<&ArrayRef> = arrays.collect();
            match arrays.as_slice() {
                [] => {
                    let data_type = projection.schema.field(column).data_type();
                    Ok(arrow::array::new_empty_array(data_type))
                }
                [only] if only.len() == self.places.len() && in_order() => Ok(Arc::clone(*only)),
                arrays => {
                    let arrays: Vec<&dyn Array> = arrays.iter().map(|own| own.as_ref()).collect();
                    Ok::<_, Error>(interleave(&arrays, &self.places)?)
                }
            }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let schema = Arc::clone(&projection.schema);
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}

/// The columns of `projection` of the rows `vids`, in their order; one may come several times.
///
/// # Errors
/// [`Error::Conflict`] for a row that the tablet does not have; those of reading pages.
pub async fn rows_by_vid(
    tablet: &TabletState,
    pages: &dyn PageSource,
    projection: &Projection,
    vids: &[u64],
) -> Result<RecordBatch> {
    Scattered::of_vids(tablet, pages, projection, vids).await?.joined(projection)
}

/// The columns of `projection` of the rows at `slots`, ascending, of the page that `read` names.
///
/// # Errors
/// Errors of reading pages; a slot that the page does not have.
pub async fn rows_of_page(
    pages: &dyn PageSource,
    entry: &PageEntry,
    read: &PageRead,
    slots: &[u16],
    projection: &Projection,
) -> Result<RecordBatch> {
    match opened(pages, std::slice::from_ref(read)).await?.pop().flatten() {
        Some(page) => Ok(page.rows(slots, projection)?),
        None => {
            let pages_read = pages.read_scattered(vec![read.clone()]).await?;
            let page = pages_read.first().ok_or_else(Error::concurrent_update)?;
            long_rows(pages, entry, (read, page), slots, projection).await
        }
    }
}

/// The same of a page with long values.
async fn long_rows(
    pages: &dyn PageSource,
    entry: &PageEntry,
    (read, page): (&PageRead, &PageColumns),
    slots: &[u16],
    projection: &Projection,
) -> Result<RecordBatch> {
    let row_count = usize::try_from(entry.page.row_count).unwrap_or(usize::MAX);
    // For a page with many rows.
    let selection = selection(slots.iter().copied(), row_count);
    let needed = overflow_pages(page, read, &read.columns, Some(&selection))?;
    let overflow = long_values(pages, entry, read, &needed).await?;
    Ok(match slots.len() {
        ..=FEW => decode_rows(page, read, slots, projection, &overflow)?,
        _ => decode_batch(page, read, projection, Some(&selection), &overflow)?,
    })
}

fn selection(slots: impl Iterator<Item = u16>, row_count: usize) -> BooleanBuffer {
    let mut selection = BooleanBufferBuilder::new(row_count);
    selection.append_n(row_count, false);
    for slot in slots.map(usize::from).filter(|slot| *slot < row_count) {
        selection.set_bit(slot, true);
    }
    selection.finish()
}

/// Segment, page and slot of the newest version of `vid`.
pub fn newest(tablet: &TabletState, vid: u64) -> Option<(&Arc<SegmentDirectory>, u32, u16)> {
    let segment = tablet.segment(tablet.version_map.lookup(vid)?)?;
    let (entry, slot) = segment.slot_of(vid)?;
    Some((segment, entry.page.page, slot))
}
