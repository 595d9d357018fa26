//! Chunks of one page and a slot in, a batch of one row out.
//!
//! Invariant: the row owns its memory, so keeping it does not keep the page; of text only the one value is
//! checked, not the chunk.

#![deny(clippy::indexing_slicing)]

use arrow::array::RecordBatch;

use super::batch::{Projection, Source, absent, batch, sources};
use crate::error::StoreError;
use crate::page::overflow::OverflowValues;
use crate::page_source::{PageColumns, PageRead};

/// Decodes the columns of `projection` of the version at `slot`.
///
/// # Errors
/// As [`super::decode_batch`]; a slot that the page does not have is a [`StoreError::Mismatch`].
pub fn decode_row(
    page: &PageColumns,
    read: &PageRead,
    slot: u16,
    projection: &Projection,
    overflow: &OverflowValues,
) -> Result<RecordBatch, StoreError> {
    if u32::from(slot) >= page.header.row_count {
        return Err(StoreError::Mismatch {
            what: "reading a row",
            reason: format!("slot {slot} of a page of {} rows", page.header.row_count),
        });
    }
    let mut arrays = Vec::with_capacity(projection.columns.len());
    for source in sources(page, read, projection)? {
        arrays.push(match source {
            Source::Chunk(chunk) => chunk.decode_slot(usize::from(slot), overflow)?,
            Source::Absent(data_type, column) => absent(&data_type, column, 1),
        });
    }
    batch(projection, arrays, 1)
}
