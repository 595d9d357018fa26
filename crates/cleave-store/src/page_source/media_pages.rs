//! Reads pages of local media: page reads in, verified chunks out, with as few media reads as the layout allows.
//!
//! 1. A page of up to eight blocks (hot tables, most overflow pages) is read whole, in one read.
//! 2. Of a larger page the first block is read, then the whole header where it is longer than that.
//! 3. Then the blocks of the requested chunks are read, neighbouring chunks in one read: those of a page version may
//!    lie in earlier versions of the page.
//!
//! Each step is one [`Media::read_many`] for all requested pages, so the media works on as many reads as there are
//! pages and no read waits for another of its step.
//!
//! Chunks that a fragment decodes at once stay in the memory that they were read into. Chunks that go to a host may be
//! cached there one by one, so each chunk of [`MediaPages::read_raw`] has memory of about its own size.
//!
//! Invariant: of a large page only the header, the requested chunks and their last blocks are read. Memory is allocated
//! for no more than a page may have, whatever a reference or a page's first bytes claim before they are verified.
//! Source: `docs/design/rules.md`, rule 18.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cleave_media::{AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, Media};
use futures::future::{self, BoxFuture, FutureExt};

use super::{ColumnRef, PageColumns, PageRead, PageRef, PageSource, RawColumns, SegmentRef};
use crate::error::{Corruption, StoreError};
use crate::page::block_count_max;
use crate::page::header::{PageHeader, corrupt, header_length, joined, parse_header};
use crate::page::overflow::overflow_payload;
use crate::page::version::COPIED_BLOCKS_MAX as WHOLE_BLOCKS_MAX;

/// The page source over local media, used by the device and by tests.
#[derive(Debug, Clone)]
pub struct MediaPages(Arc<dyn Media>);

impl MediaPages {
    /// Pages of this media.
    #[must_use]
    pub fn new(media: Arc<dyn Media>) -> Self {
        Self(media)
    }

    /// Columns of pages, verified, in the order of `reads`.
    ///
    /// # Errors
    /// [`StoreError::Media`], [`StoreError::Corrupt`], [`StoreError::NewerFormat`].
    pub fn read_pages(&self, reads: &[PageRead]) -> Result<Vec<PageColumns>, StoreError> {
        let pages = self.read_parts(reads, |block, place| block.slice(place))?;
        reads
            .iter()
            .zip(pages)
            .map(|(read, (_, header, chunks))| {
                PageColumns::verify_with_header(read, Arc::new(header), chunks)
            })
            .collect()
    }

    /// As [`MediaPages::read_pages`], of one page.
    ///
    /// # Errors
    /// As [`MediaPages::read_pages`].
    pub fn read_page(&self, read: &PageRead) -> Result<PageColumns, StoreError> {
        single(self.read_pages(std::slice::from_ref(read))?)
    }

    /// As [`MediaPages::read_pages`]; chunks do not keep their neighbours in memory, so that they may be kept for long.
    ///
    /// # Errors
    /// As [`MediaPages::read_pages`].
    pub fn read_apart(&self, reads: &[PageRead]) -> Result<Vec<PageColumns>, StoreError> {
        let pages = self.read_parts(reads, apart)?;
        reads
            .iter()
            .zip(pages)
            .map(|(read, (_, header, chunks))| {
                PageColumns::verify_with_header(read, Arc::new(header), chunks)
            })
            .collect()
    }

    /// Columns of pages as bytes for a peer, which verifies them itself; verified here as well, so that damage is
    /// reported by the side that has the media. A chunk does not keep its neighbours in memory.
    ///
    /// # Errors
    /// As [`MediaPages::read_pages`].
    pub fn read_raw_pages(&self, reads: &[PageRead]) -> Result<Vec<RawColumns>, StoreError> {
        let pages = self.read_parts(reads, apart)?;
        reads
            .iter()
            .zip(pages)
            .map(|(read, (start, header, chunks))| {
                for (column, chunk) in read.columns.iter().zip(&chunks) {
                    header.verify_chunk(read, *column, chunk.as_deref())?;
                }
                let length = usize::try_from(header.header_length).unwrap_or(usize::MAX);
                Ok(RawColumns { header: start.slice(..length.min(start.len())), chunks })
            })
            .collect()
    }

    /// As [`MediaPages::read_raw_pages`], of one page.
    ///
    /// # Errors
    /// As [`MediaPages::read_pages`].
    pub fn read_raw(&self, read: &PageRead) -> Result<RawColumns, StoreError> {
        single(self.read_raw_pages(std::slice::from_ref(read))?)
    }

    /// The payload of one overflow page, verified.
    ///
    /// # Errors
    /// As [`MediaPages::read_pages`].
    pub fn read_overflow_page(
        &self,
        segment: &SegmentRef,
        page: &PageRef,
    ) -> Result<Bytes, StoreError> {
        single(self.read_overflow_pages(segment, std::slice::from_ref(page))?)
    }

    /// Payloads of overflow pages of one segment, verified, in the order of `pages`.
    ///
    /// # Errors
    /// As [`MediaPages::read_pages`].
    pub fn read_overflow_pages(
        &self,
        segment: &SegmentRef,
        pages: &[PageRef],
    ) -> Result<Vec<Bytes>, StoreError> {
        for page in pages {
            check_size(segment, page, true)?;
        }
        let places: Vec<Place<'_>> = pages.iter().map(|page| Place::whole(segment, page)).collect();
        let blocks = self.blocks(&places)?;
        pages
            .iter()
            .zip(blocks)
            .map(|(page, bytes)| overflow_payload(segment, page, &bytes))
            .collect()
    }

    /// The parts read of each page: its first bytes, its header, and its chunks. `take` makes a chunk of the blocks
    /// that it was read with and its place in them.
    fn read_parts(
        &self,
        reads: &[PageRead],
        take: impl Fn(&Bytes, Range<usize>) -> Bytes,
    ) -> Result<Vec<PageParts>, StoreError> {
        let starts = self.read_headers(reads)?;
        let mut places = Vec::new();
        let mut counts = Vec::with_capacity(reads.len());
        for (read, (start, header)) in reads.iter().zip(&starts) {
            let runs = runs_of(read, start, header);
            counts.push(runs.len());
            places.extend(runs.into_iter().map(|extent| Place::run(read, extent)));
        }
        let mut blocks = places.iter().map(|place| place.at()).zip(self.blocks(&places)?);
        let mut pages = Vec::with_capacity(reads.len());
        for ((read, (start, header)), count) in reads.iter().zip(starts).zip(counts) {
            let mut parts = vec![(first_byte(read), start.clone())];
            parts.extend(blocks.by_ref().take(count));
            let chunks = chunks_of(read, &parts, &header, &take)?;
            pages.push((start, header, chunks));
        }
        Ok(pages)
    }

    /// The first bytes of each page, all of them for a small one, and its header.
    fn read_headers(&self, reads: &[PageRead]) -> Result<Vec<(Bytes, PageHeader)>, StoreError> {
        let mut firsts = Vec::with_capacity(reads.len());
        for read in reads {
            check_size(&read.segment, &read.page, false)?;
            let block_count = read.page.extent.block_count;
            let whole = block_count <= WHOLE_BLOCKS_MAX;
            firsts.push(Place::first(read, if whole { block_count } else { 1 }));
        }
        let mut starts = self.blocks(&firsts)?;
        // Headers of tables with more than a hundred columns are longer than a block.
        let mut longer = Vec::new();
        let mut places = Vec::new();
        for (read, start) in reads.iter().zip(&mut starts) {
            let length = header_length(start, &read.page)
                .map_err(|reason| corrupt(&read.page, &read.segment, None, reason))?;
            if length > start.len() {
                let block_count = u32::try_from(length.div_ceil(BLOCK_SIZE)).unwrap_or(u32::MAX);
                places.push(Place::first(read, block_count));
                longer.push(start);
            }
        }
        if !places.is_empty() {
            for (start, bytes) in longer.into_iter().zip(self.blocks(&places)?) {
                *start = bytes;
            }
        }
        let headers = reads.iter().zip(starts).map(|(read, start)| {
            let header = parse_header(&start, &read.page, &read.segment)?;
            Ok((start, header))
        });
        headers.collect()
    }

    /// The blocks at each of `places`.
    fn blocks(&self, places: &[Place<'_>]) -> Result<Vec<Bytes>, StoreError> {
        let extents: Vec<Extent> = places.iter().map(|place| place.extent).collect();
        let fault = |place: &Place<'_>, source| StoreError::Media {
            segment: place.segment.segment,
            page: place.page.page,
            source,
        };
        match (self.0.read_many(&extents), places) {
            (Ok(buffers), _) => Ok(buffers.into_iter().map(AlignedBuffer::into_bytes).collect()),
            (Err(source), [place]) => Err(fault(place, source)),
            // One by one, to name the page that is at fault.
            (Err(_), _) => places
                .iter()
                .zip(extents)
                .map(|(place, extent)| {
                    let read = self.0.read(extent).map(AlignedBuffer::into_bytes);
                    read.map_err(|source| fault(place, source))
                })
                .collect(),
        }
    }
}

/// Refuses a reference to a page larger than a page may be, before memory is allocated for it.
fn check_size(segment: &SegmentRef, page: &PageRef, is_overflow: bool) -> Result<(), StoreError> {
    let found = page.extent.block_count;
    if found <= block_count_max(is_overflow) {
        return Ok(());
    }
    let reason =
        Corruption::Field { field: "block count", found: u64::from(found), expected: None };
    Err(corrupt(page, segment, None, reason))
}

/// The first bytes of a page, its header, and the requested chunks.
type PageParts = (Bytes, PageHeader, Vec<Option<Bytes>>);

/// The one answer to one read.
fn single<T>(answers: Vec<T>) -> Result<T, StoreError> {
    answers.into_iter().next().ok_or(StoreError::Mismatch {
        what: "a page read",
        reason: "no answer to one read".to_owned(),
    })
}

/// Blocks that a page is read of.
struct Place<'a> {
    segment: &'a SegmentRef,
    page: &'a PageRef,
    extent: Extent,
}

impl<'a> Place<'a> {
    fn run(read: &'a PageRead, extent: Extent) -> Self {
        Self { segment: &read.segment, page: &read.page, extent }
    }

    /// The first blocks of the page.
    fn first(read: &'a PageRead, block_count: u32) -> Self {
        Self::run(read, Extent { block_count, ..read.page.extent })
    }

    fn whole(segment: &'a SegmentRef, page: &'a PageRef) -> Self {
        Self { segment, page, extent: page.extent }
    }

    /// The first byte, on the media.
    fn at(&self) -> u64 {
        self.extent.start.0.saturating_mul(BLOCK_SIZE as u64)
    }
}

/// The first byte of the page, on the media.
fn first_byte(read: &PageRead) -> u64 {
    read.page.extent.start.0.saturating_mul(BLOCK_SIZE as u64)
}

/// Where the chunk of `column` lies on the media; `None` where the page stores no bytes for it.
fn chunk_place(read: &PageRead, header: &PageHeader, column: ColumnRef) -> Option<Range<u64>> {
    header.entry(column)?.place(read.page.extent.start)
}

/// Blocks of the chunks that `read` asks for and `start` does not hold; neighbours joined.
fn runs_of(read: &PageRead, start: &Bytes, header: &PageHeader) -> Vec<Extent> {
    let block = BLOCK_SIZE as u64;
    let held = first_byte(read)..first_byte(read).saturating_add(start.len() as u64);
    let wanted = read
        .columns
        .iter()
        .filter_map(|column| chunk_place(read, header, *column))
        .filter(|bytes| bytes.start < held.start || bytes.end > held.end)
        .map(|bytes| {
            let (from, to) = (bytes.start / block, bytes.end.div_ceil(block));
            let block_count = u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX);
            Extent { start: BlockAddress(from), block_count }
        });
    joined(wanted.collect())
}

/// The chunks that `read` asks for, out of `parts` of its page, each with the place of its first byte.
fn chunks_of(
    read: &PageRead,
    parts: &[(u64, Bytes)],
    header: &PageHeader,
    take: impl Fn(&Bytes, Range<usize>) -> Bytes,
) -> Result<Vec<Option<Bytes>>, StoreError> {
    let chunk = |column: &ColumnRef| {
        let Some(bytes) = chunk_place(read, header, *column) else {
            return Ok(None);
        };
        let within = |byte: u64, at: u64| usize::try_from(byte.checked_sub(at)?).ok();
        let found = parts.iter().find_map(|(at, part)| {
            let from = within(bytes.start, *at)?;
            let to = within(bytes.end, *at).filter(|to| *to <= part.len())?;
            Some(take(part, from..to))
        });
        let missing = Corruption::Truncated {
            expected: bytes.end.saturating_sub(first_byte(read)),
            found: read.page.extent.bytes() as u64,
        };
        found.map(Some).ok_or_else(|| corrupt(&read.page, &read.segment, Some(*column), missing))
    };
    read.columns.iter().map(chunk).collect()
}

/// The chunk at `place` of `block`, in memory of about its own size: a slice of `block` if that holds little else, as
/// for a column that was read alone, and otherwise a copy.
fn apart(block: &Bytes, place: Range<usize>) -> Bytes {
    let others = block.len().saturating_sub(place.len());
    if others <= place.len() / 8 {
        return block.slice(place);
    }
    Bytes::copy_from_slice(block.get(place).unwrap_or_default())
}

impl PageSource for MediaPages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        future::lazy(move |_| self.read_pages(&reads)).boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        future::lazy(move |_| self.read_overflow_pages(&segment, &pages)).boxed()
    }
}

#[cfg(test)]
mod tests;
