//! Pages of local media: page reads in, verified chunks out, with as few media reads as the layout allows.
//!
//! 1. A page of up to eight blocks (hot tables, most overflow pages) is read whole, at once.
//! 2. Of a larger page the first block is read, then the rest of the header where it is longer than that.
//! 3. Then the blocks of the chunks asked for; chunks that are neighbours come in one read.
//!
//! What a fragment decodes at once stays in the memory that it was read to. What goes to a host may be kept there,
//! chunk by chunk, so each chunk of [`MediaPages::read_raw`] has memory of about its own size.
//!
//! Invariant: nothing outside the header, the chunks asked for and their last blocks is read of a large page.
//! Source: `rules.md`, rule 18.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent, Media};
use futures::future::{self, BoxFuture, FutureExt};

use super::{ColumnRef, PageColumns, PageRead, PageRef, PageSource, RawColumns, SegmentRef};
use crate::error::{Corruption, StoreError};
use crate::page::header::{PageHeader, corrupt, header_length, parse_header};
use crate::page::overflow::overflow_payload;

/// Pages of at most so many blocks are read whole.
const WHOLE_BLOCKS_MAX: u32 = 8;

/// The page source over local media: the device's, and a test's.
#[derive(Debug, Clone)]
pub struct MediaPages(Arc<dyn Media>);

impl MediaPages {
    /// Pages of this media.
    #[must_use]
    pub fn new(media: Arc<dyn Media>) -> Self {
        Self(media)
    }

    /// Columns of one page, verified.
    ///
    /// # Errors
    /// [`StoreError::Media`], [`StoreError::Corrupt`], [`StoreError::NewerFormat`].
    pub fn read_page(&self, read: &PageRead) -> Result<PageColumns, StoreError> {
        let (start, header) = self.read_header(&read.segment, &read.page)?;
        let chunks = self.read_chunks(read, &start, &header, |block, place| block.slice(place))?;
        PageColumns::verify_with_header(read, Arc::new(header), chunks)
    }

    /// Columns of one page as bytes for a peer, which verifies them itself; verified here as well, so that damage
    /// is reported where it is. A chunk does not keep its neighbours in memory.
    ///
    /// # Errors
    /// As [`MediaPages::read_page`].
    pub fn read_raw(&self, read: &PageRead) -> Result<RawColumns, StoreError> {
        let (start, header) = self.read_header(&read.segment, &read.page)?;
        let chunks = self.read_chunks(read, &start, &header, apart)?;
        for (column, chunk) in read.columns.iter().zip(&chunks) {
            header.verify_chunk(read, *column, chunk.as_deref())?;
        }
        let length = usize::try_from(header.header_length).unwrap_or(usize::MAX);
        Ok(RawColumns { header: start.slice(..length.min(start.len())), chunks })
    }

    /// The payload of one overflow page, verified.
    ///
    /// # Errors
    /// As [`MediaPages::read_page`].
    pub fn read_overflow_page(
        &self,
        segment: &SegmentRef,
        page: &PageRef,
    ) -> Result<Bytes, StoreError> {
        let bytes = self.blocks(segment, page, 0, page.extent.block_count)?;
        overflow_payload(segment, page, &bytes)
    }

    /// The first bytes of the page, all of them for a small one, and its header.
    fn read_header(
        &self,
        segment: &SegmentRef,
        page: &PageRef,
    ) -> Result<(Bytes, PageHeader), StoreError> {
        let whole = page.extent.block_count <= WHOLE_BLOCKS_MAX;
        let first_count = if whole { page.extent.block_count } else { 1 };
        let mut start = self.blocks(segment, page, 0, first_count)?;
        let length =
            header_length(&start, page).map_err(|reason| corrupt(page, segment, None, reason))?;
        if length > start.len() {
            let block_count = u32::try_from(length.div_ceil(BLOCK_SIZE)).unwrap_or(u32::MAX);
            start = self.blocks(segment, page, 0, block_count)?;
        }
        let header = parse_header(&start, page, segment)?;
        Ok((start, header))
    }

    /// The chunks asked for; `take` makes one of the blocks that it was read with and its place in them.
    fn read_chunks(
        &self,
        read: &PageRead,
        start: &Bytes,
        header: &PageHeader,
        take: impl Fn(&Bytes, Range<usize>) -> Bytes,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let place = |column: &ColumnRef| {
            let entry = header.entry(*column).filter(|entry| entry.length > 0)?;
            let from = usize::try_from(entry.offset).ok()?;
            Some(from..from.saturating_add(usize::try_from(entry.length).ok()?))
        };
        // Blocks of the chunks that are not there yet, neighbours joined.
        let mut wanted: Vec<(usize, usize)> = read
            .columns
            .iter()
            .filter_map(place)
            .filter(|bytes| bytes.end > start.len())
            .map(|bytes| (bytes.start / BLOCK_SIZE, bytes.end.div_ceil(BLOCK_SIZE)))
            .collect();
        wanted.sort_unstable();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (from, to) in wanted {
            match runs.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => runs.push((from, to)),
            }
        }
        let mut blocks: Vec<(usize, Bytes)> = vec![(0, start.clone())];
        for (from, to) in runs {
            let first = u32::try_from(from).unwrap_or(u32::MAX);
            let count = u32::try_from(to - from).unwrap_or(u32::MAX);
            let bytes = self.blocks(&read.segment, &read.page, first, count)?;
            blocks.push((from * BLOCK_SIZE, bytes));
        }
        read.columns
            .iter()
            .map(|column| {
                let Some(bytes) = place(column) else {
                    return Ok(None);
                };
                let found = blocks.iter().find_map(|(at, block)| {
                    let from = bytes.start.checked_sub(*at)?;
                    let to = bytes.end.checked_sub(*at).filter(|to| *to <= block.len())?;
                    Some(take(block, from..to))
                });
                let missing = Corruption::Truncated {
                    expected: bytes.end as u64,
                    found: read.page.extent.bytes() as u64,
                };
                found
                    .map(Some)
                    .ok_or_else(|| corrupt(&read.page, &read.segment, Some(*column), missing))
            })
            .collect()
    }

    /// Blocks of a page, counted from its first.
    fn blocks(
        &self,
        segment: &SegmentRef,
        page: &PageRef,
        first: u32,
        count: u32,
    ) -> Result<Bytes, StoreError> {
        let start = BlockAddress(page.extent.start.0.saturating_add(u64::from(first)));
        let extent = Extent { start, block_count: count };
        match self.0.read(extent) {
            Ok(buffer) => Ok(buffer.into_bytes()),
            Err(source) => {
                Err(StoreError::Media { segment: segment.segment, page: page.page, source })
            }
        }
    }
}

/// The chunk at `place` of `block`, in memory of about its own size: a share of `block` where that holds little else,
/// as for a column that was read alone, and else a copy.
fn apart(block: &Bytes, place: Range<usize>) -> Bytes {
    let others = block.len().saturating_sub(place.len());
    if others <= place.len() / 8 {
        return block.slice(place);
    }
    Bytes::copy_from_slice(block.get(place).unwrap_or_default())
}

impl PageSource for MediaPages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        future::lazy(move |_| reads.iter().map(|read| self.read_page(read)).collect()).boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        future::lazy(move |_| {
            pages.iter().map(|page| self.read_overflow_page(&segment, page)).collect()
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests;
