//! Inspects pages without a trusted reference: bytes in, their own claims out. For tools, not for readers of rows.
//!
//! 1. [`own_reference`] makes the references under which [`parse_header`] would accept the page. They prove nothing:
//!    the checksum is that of the bytes as they are.
//! 2. [`inspect_page`] reads the header under them, and compares the checksum of each chunk with that of its entry.
//!
//! Invariant: bytes of any kind give an answer or a [`Corruption`], never a panic.

#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};

use crate::error::{Corruption, StoreError};
use crate::ids::SegmentId;
use crate::page::checksum;
use crate::page::header::{ChunkEntry, PageHeader, header_length, parse_header};
use crate::page_source::{PageRef, SegmentRef};

/// Where the fields stand in every format (`header.rs`).
const TABLE_ID_AT: usize = 12;
const SEGMENT_AT: usize = 16;
const PAGE_AT: usize = 20;
const SCHEMA_VERSION_AT: usize = 24;
const ROW_COUNT_AT: usize = 28;
const BLOCK_COUNT_AT: usize = 36;

/// An inspected page.
#[derive(Debug, Clone)]
pub struct PageInspection {
    /// Its logical number, place, and the checksum of its header.
    pub page: PageRef,
    /// The segment that it claims; the commit is not in the page.
    pub segment: SegmentRef,
    /// Its table of contents, or the fault of that.
    pub header: Result<PageHeader, Corruption>,
    /// Its chunks, including those without bytes.
    pub chunks: Vec<ChunkInspection>,
}

/// An inspected chunk.
#[derive(Debug, Clone)]
pub struct ChunkInspection {
    /// What the header says of it.
    pub entry: ChunkEntry,
    /// Its bytes, if the page is long enough.
    pub bytes: Option<Bytes>,
    /// What is wrong with them.
    pub fault: Option<Corruption>,
}

/// The references under which a reader would take the page that `bytes` begin with, at `start`.
///
/// # Errors
/// [`Corruption`] where the bytes do not begin as a page does.
pub fn own_reference(
    bytes: &[u8],
    start: BlockAddress,
) -> Result<(PageRef, SegmentRef), Corruption> {
    let field = |at: usize| {
        let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
        let found = bytes
            .ok_or(Corruption::Truncated { expected: (at as u64).saturating_add(4), found: 0 })?;
        Ok(u32::from_le_bytes(*found))
    };
    let mut page = PageRef {
        page: field(PAGE_AT)?,
        extent: Extent { start, block_count: field(BLOCK_COUNT_AT)? },
        row_count: field(ROW_COUNT_AT)?,
        checksum: 0,
    };
    let length = header_length(bytes, &page)?;
    let header = bytes
        .get(..length)
        .ok_or(Corruption::Truncated { expected: length as u64, found: bytes.len() as u64 })?;
    page.checksum = checksum::checksum(header);
    let segment = SegmentRef {
        table_id: field(TABLE_ID_AT)?,
        segment: SegmentId(field(SEGMENT_AT)?),
        schema_version: field(SCHEMA_VERSION_AT)?,
        commit: 0,
    };
    Ok((page, segment))
}

/// Inspects the page at the start of `bytes`, at `start`: all of it, or as much as there is.
///
/// # Errors
/// [`Corruption`] where the bytes do not begin as a page does.
pub fn inspect_page(bytes: &Bytes, start: BlockAddress) -> Result<PageInspection, Corruption> {
    let (page, segment) = own_reference(bytes, start)?;
    let header = parse_header(bytes, &page, &segment).map_err(|error| match error {
        StoreError::Corrupt { reason, .. } => reason,
        StoreError::NewerFormat { found, newest, .. } => Corruption::Field {
            field: "format version",
            found: u64::from(found),
            expected: Some(u64::from(newest)),
        },
        other => Corruption::Values(other.to_string()),
    });
    let chunks = header.iter().flat_map(|header| &header.chunks);
    let chunks = chunks.map(|entry| inspect_chunk(bytes, entry)).collect();
    Ok(PageInspection { page, segment, header, chunks })
}

/// The page with checksums that fit its bytes, header and chunks, and the references to it: as from a faulty writer or
/// a hostile peer. For tests and fuzzers.
///
/// # Errors
/// [`Corruption`] if the header is invalid even so.
pub fn fit_checksums(
    bytes: &[u8],
    start: BlockAddress,
) -> Result<(Bytes, PageRef, SegmentRef), Corruption> {
    let mut bytes = bytes.to_vec();
    let inspection = inspect_page(&Bytes::copy_from_slice(&bytes), start)?;
    let mut header = inspection.header?;
    for (entry, chunk) in header.chunks.iter_mut().zip(&inspection.chunks) {
        entry.checksum = match &chunk.bytes {
            Some(bytes) => checksum::checksum(bytes),
            None => entry.checksum,
        };
    }
    let encoded = header.encode();
    if let Some(place) = bytes.get_mut(..encoded.len()) {
        place.copy_from_slice(&encoded);
    }
    let (page, segment) = own_reference(&bytes, start)?;
    Ok((bytes.into(), page, segment))
}

fn inspect_chunk(page: &Bytes, entry: &ChunkEntry) -> ChunkInspection {
    let from = usize::try_from(entry.offset).unwrap_or(usize::MAX);
    let to = from.saturating_add(usize::try_from(entry.length).unwrap_or(usize::MAX));
    let is_here = entry.length > 0 && entry.shared.is_none() && to <= page.len();
    let bytes = is_here.then(|| page.slice(from..to));
    let fault = match &bytes {
        Some(bytes) => checksum::verify(bytes, entry.checksum).err(),
        // It lies in an earlier version of the page.
        None if entry.shared.is_some() => None,
        None if entry.length > 0 => {
            Some(Corruption::Truncated { expected: to as u64, found: page.len() as u64 })
        }
        None => None,
    };
    ChunkInspection { entry: *entry, bytes, fault }
}

/// Number of blocks that the page at the start of `bytes` claims.
///
/// # Errors
/// [`Corruption`] where the bytes do not begin as a page does.
pub fn own_block_count(bytes: &[u8]) -> Result<u32, Corruption> {
    own_reference(bytes.get(..BLOCK_SIZE).unwrap_or(bytes), BlockAddress(0))
        .map(|(page, _)| page.extent.block_count)
        .or_else(|fault| match fault {
            // A header of several blocks: its own fields lie in the first.
            Corruption::Truncated { .. } => {
                let field = bytes.get(BLOCK_COUNT_AT..).and_then(<[u8]>::first_chunk::<4>);
                field.map(|field| u32::from_le_bytes(*field)).ok_or(fault)
            }
            other => Err(other),
        })
}

#[cfg(test)]
mod tests;
