//! Rows of a tablet by their VIDs: for whoever has found them by an index.

use std::collections::BTreeMap;

use arrow::array::{BooleanBufferBuilder, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use cleave_store::{PageRead, PageSource, Projection, SegmentId, decode_rows, overflow_pages};

use super::long_values;
use crate::catalog::TabletState;
use crate::error::{Error, Result};
use crate::point_path::newest;

/// The columns of `projection` of the rows `vids`, in their order; one may come several times.
///
/// # Errors
/// [`Error::Conflict`] for a row that the tablet does not have; those of reading pages.
pub(crate) async fn rows_by_vid(
    tablet: &TabletState,
    pages: &dyn PageSource,
    projection: &Projection,
    vids: &[u64],
) -> Result<RecordBatch> {
    let mut columns = projection.columns.clone();
    columns.sort_unstable();
    columns.dedup();
    let mut places: BTreeMap<(SegmentId, u32), BTreeMap<u16, Vec<usize>>> = BTreeMap::new();
    for (position, vid) in vids.iter().enumerate() {
        let (segment, page, slot) = newest(tablet, *vid).ok_or_else(Error::concurrent_update)?;
        let of_page = places.entry((segment.segment, page)).or_default();
        of_page.entry(slot).or_default().push(position);
    }
    let mut batches = Vec::with_capacity(places.len());
    let mut order = vec![0_u32; vids.len()];
    let mut row = 0;
    for ((segment, page), slots) in places {
        let segment = tablet.segment(segment).ok_or_else(Error::concurrent_update)?;
        let entry = segment.page(page).ok_or_else(Error::concurrent_update)?;
        let (segment, columns) = (segment.segment_ref(), columns.clone());
        let read = PageRead { segment, page: entry.page, columns };
        let answers = pages.read(vec![read.clone()]).await?;
        let Some(stored) = answers.first() else { continue };
        let row_count = usize::try_from(entry.page.row_count).unwrap_or(usize::MAX);
        let mut selection = BooleanBufferBuilder::new(row_count);
        selection.append_n(row_count, false);
        for slot in slots.keys().map(|slot| usize::from(*slot)).filter(|slot| *slot < row_count) {
            selection.set_bit(slot, true);
        }
        let needed = overflow_pages(stored, &read, &read.columns, Some(&selection.finish()))?;
        let overflow = long_values(pages, entry, &read, &needed).await?;
        let wanted: Vec<u16> = slots.keys().copied().collect();
        batches.push(decode_rows(stored, &read, &wanted, projection, &overflow)?);
        for positions in slots.values() {
            for position in positions {
                if let Some(place) = order.get_mut(*position) {
                    *place = row;
                }
            }
            row += 1;
        }
    }
    let rows = concat_batches(&projection.schema, &batches)?;
    Ok(take_record_batch(&rows, &UInt32Array::from(order))?)
}
