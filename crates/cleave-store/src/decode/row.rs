//! Decodes a few slots of one page into a batch of their rows.
//!
//! Invariant: the rows own their memory, so keeping them does not keep the page. Of plain text only the values of these
//! rows are validated, not the chunk.

#![deny(clippy::indexing_slicing)]

use arrow::array::RecordBatch;

use super::batch::{Projection, Source, batch, sources};
use crate::error::StoreError;
use crate::page::overflow::OverflowValues;
use crate::page_source::{PageColumns, PageRead};

/// Decodes the columns of `projection` of the versions at `slots`, in their order. For few rows: with many,
/// [`super::decode_batch`] is faster.
///
/// # Errors
/// As [`super::decode_batch`]; a slot that the page does not have is a [`StoreError::Mismatch`].
pub fn decode_rows(
    page: &PageColumns,
    read: &PageRead,
    slots: &[u16],
    projection: &Projection,
    overflow: &OverflowValues,
) -> Result<RecordBatch, StoreError> {
    if let Some(slot) = slots.iter().find(|slot| u32::from(**slot) >= page.header.row_count) {
        return Err(StoreError::Mismatch {
            what: "reading a row",
            reason: format!("slot {slot} of a page of {} rows", page.header.row_count),
        });
    }
    let slots: Vec<usize> = slots.iter().copied().map(usize::from).collect();
    let mut arrays = Vec::with_capacity(projection.columns.len());
    for source in sources(page, read, projection)? {
        arrays.push(match source {
            Source::Chunk(chunk) => chunk.decode_slots(&slots, overflow)?,
            Source::Absent(lacking) => lacking.array(slots.len())?,
        });
    }
    batch(projection, arrays, slots.len())
}
