//! Reads rows of heap pages for building index keys: page entries in, batches of some columns out.

use arrow::array::RecordBatch;
use cleave_store::{
    OverflowValues, PageEntry, PageRead, PageSource, Projection, SegmentDirectory, decode_batch,
    overflow_pages,
};

use crate::error::Result;

/// All rows of the pages `entries` of `segment`, with the columns of `projection`: a batch a page, each with the VIDs
/// of its rows.
///
/// # Errors
/// Errors of reading pages.
pub async fn heap_rows(
    pages: &dyn PageSource,
    segment: &SegmentDirectory,
    entries: &[&PageEntry],
    projection: &Projection,
) -> Result<Vec<(Vec<u64>, RecordBatch)>> {
    let mut columns = projection.columns.clone();
    columns.sort_unstable();
    columns.dedup();
    let reads: Vec<PageRead> = entries
        .iter()
        .map(|entry| PageRead {
            segment: segment.segment_ref(),
            page: entry.page,
            columns: columns.clone(),
        })
        .collect();
    let answers = pages.read(reads.clone()).await?;
    let mut batches = Vec::with_capacity(entries.len());
    for ((entry, read), page) in entries.iter().zip(&reads).zip(&answers) {
        let needed = overflow_pages(page, read, &columns, None)?;
        let overflow = long_values(pages, entry, read, &needed).await?;
        let rows = decode_batch(page, read, projection, None, &overflow)?;
        batches.push((entry.row_vids().collect(), rows));
    }
    Ok(batches)
}

/// The values in the overflow pages `numbers` of the page `entry`.
///
/// # Errors
/// Errors of reading pages.
pub async fn long_values(
    pages: &dyn PageSource,
    entry: &PageEntry,
    read: &PageRead,
    numbers: &[u32],
) -> Result<OverflowValues> {
    let mut values = OverflowValues::none();
    let named: Vec<_> = numbers.iter().filter_map(|page| entry.overflow_page(*page)).collect();
    if !named.is_empty() {
        let payloads = pages.read_overflow(read.segment, named.clone()).await?;
        for (page, payload) in named.iter().zip(payloads) {
            values.insert(page.page, payload);
        }
    }
    Ok(values)
}
