//! Lays a page out: chunks in, the bytes of the page and the checksum of its header out.
//!
//! A chunk is encoded, copied from another page, or [shared](PlacedChunk::Shared): then the page only names its place.
//! Chunks lie in the order of their columns, each at a multiple of the alignment; bytes between them are zero.

use bytes::Bytes;
use cleave_media::{AlignedBuffer, BLOCK_SIZE};

use crate::error::StoreError;
use crate::page::checksum;
use crate::page::encoding::{EncodedChunk, number};
use crate::page::header::{ChunkEntry, LIGHT_VERSION, PageHeader, PageKind, SHARING_VERSION};
use crate::page_source::{ColumnRef, SegmentRef};

/// A page without its chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageIdentity {
    pub(crate) segment: SegmentRef,
    pub(crate) kind: PageKind,
    pub(crate) page: u32,
    pub(crate) row_count: u32,
}

/// A chunk of a page that is laid out.
#[derive(Debug)]
pub(crate) enum PlacedChunk {
    /// New values.
    Encoded(EncodedChunk),
    /// The bytes of another page's chunk, whose checksum holds.
    Copied(ChunkEntry, Bytes),
    /// A chunk that stays where it is: its entry names the place.
    Shared(ChunkEntry),
}

impl PlacedChunk {
    fn column(&self) -> ColumnRef {
        match self {
            Self::Encoded(chunk) => chunk.column,
            Self::Copied(entry, _) | Self::Shared(entry) => entry.column,
        }
    }

    /// Bytes that it takes in the page.
    fn length(&self) -> usize {
        match self {
            Self::Encoded(chunk) => chunk.length,
            Self::Copied(_, bytes) => bytes.len(),
            Self::Shared(_) => 0,
        }
    }
}

/// Puts chunks into a page, behind their header; returns the page and the header's checksum.
///
/// # Errors
/// [`StoreError::OutOfRange`] for a page of more than 4 GiB.
pub(crate) fn lay_out(
    identity: PageIdentity,
    alignment: usize,
    mut chunks: Vec<PlacedChunk>,
) -> Result<(AlignedBuffer, u32), StoreError> {
    chunks.sort_by_key(PlacedChunk::column);
    let shares = chunks.iter().any(|chunk| matches!(chunk, PlacedChunk::Shared(_)));
    let format_version = if shares { SHARING_VERSION } else { LIGHT_VERSION };
    let header_length = PageHeader::length_for(format_version, chunks.len());
    let mut end = header_length;
    let mut places = Vec::with_capacity(chunks.len());
    for chunk in &chunks {
        let length = chunk.length();
        let place = if length == 0 { 0 } else { end.next_multiple_of(alignment) };
        end = end.max(place + length);
        places.push(place);
    }
    let mut bytes = AlignedBuffer::zeroed(end.next_multiple_of(BLOCK_SIZE));
    let mut entries = Vec::with_capacity(chunks.len());
    for (chunk, place) in chunks.into_iter().zip(places) {
        let target = bytes.get_mut(place..place + chunk.length()).unwrap_or_default();
        let offset = number(place, "offset")?;
        entries.push(match chunk {
            PlacedChunk::Encoded(chunk) => {
                for (at, part) in &chunk.parts {
                    if let Some(target) = target.get_mut(*at..at + part.len()) {
                        target.copy_from_slice(part);
                    }
                }
                ChunkEntry {
                    column: chunk.column,
                    encoding: chunk.encoding,
                    value_type: chunk.value_type,
                    offset,
                    shared: None,
                    length: number(chunk.length, "length")?,
                    null_count: chunk.null_count,
                    overflow_count: chunk.overflow_count,
                    base: chunk.base,
                    checksum: checksum::checksum(target),
                }
            }
            PlacedChunk::Copied(entry, copied) => {
                target.copy_from_slice(&copied);
                ChunkEntry { offset, shared: None, ..entry }
            }
            PlacedChunk::Shared(entry) => entry,
        });
    }
    let PageIdentity { segment, kind, page, row_count } = identity;
    let header = PageHeader {
        format_version,
        kind,
        table_id: segment.table_id,
        segment: segment.segment,
        page,
        schema_version: segment.schema_version,
        row_count,
        header_length: number(header_length, "header length")?,
        block_count: number(bytes.len() / BLOCK_SIZE, "block count")?,
        chunks: entries,
    }
    .encode();
    if let Some(target) = bytes.get_mut(..header.len()) {
        target.copy_from_slice(&header);
    }
    Ok((bytes, checksum::checksum(&header)))
}
