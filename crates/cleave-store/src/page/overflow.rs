//! Long values: values that exceed the in-line limit of a page in, overflow pages out, and back.
//!
//! ```text
//! chunk in the page:  … offsets ┼ (slot u32, length u32) of each long value, ascending ┼ bytes of the short ones
//! overflow pages p, p+1, …:     all long values of this column of this page, one after the other,
//!                               cut every 262,016 bytes
//! ```
//!
//! 1. `split` takes values above the class's limit out of a column; in line they are empty.
//! 2. `encode_pages` cuts them into pages of [`PAGE_BYTES_MAX`]; the chunk's entry has the logical numbers of these.
//! 3. A reader asks [`overflow_pages`] which ones it needs, reads them with `PageSource::read_overflow`, and passes
//!    them to the decoder as [`OverflowValues`].
//!
//! Invariants: an overflow page belongs to one column of one page, so reading a column reads no other's long values.
//! Each has a header and a checksum of its own. All pages of a column but the last are full, so the place of a value
//! follows from the lengths before it.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use arrow::buffer::{BooleanBuffer, Buffer};
use bytes::Bytes;
use cleave_media::{AlignedBuffer, BLOCK_SIZE};

use crate::error::{Corruption, StoreError};
use crate::page::columns::{Layout, ValueType};
use crate::page::encoding::{Chunk, number, size_of};
use crate::page::header::{
    ChunkEntry, Encoding, LIGHT_VERSION, PageHeader, PageKind, corrupt, parse_header,
};
use crate::page::{EncodedPage, checksum};
use crate::page_source::{ColumnRef, PageColumns, PageRead, PageRef, SegmentRef};

/// Bytes of a full overflow page.
pub const PAGE_BYTES_MAX: usize = 64 * BLOCK_SIZE;
/// Bytes of values in a full overflow page.
pub(crate) const PAYLOAD_BYTES_MAX: usize = PAGE_BYTES_MAX - PAYLOAD_OFFSET;
/// Bytes of one entry of the overflow table.
pub(crate) const ENTRY_BYTES: usize = 8;
/// The column in errors about an overflow page that does not say its own.
pub(crate) const CHUNK_COLUMN: ColumnRef = ColumnRef::User(0);

/// Offset of the bytes: behind a header of one chunk.
const PAYLOAD_OFFSET: usize = 128;

/// Payloads of overflow pages that a reader fetched, by logical number.
#[derive(Debug, Clone, Default)]
pub struct OverflowValues {
    pages: BTreeMap<u32, Bytes>,
}

/// The long values of a column, and the rest of it. Made by [`split`].
#[derive(Debug)]
pub(crate) struct LongValues {
    /// Slot and length of each long value.
    pub(crate) entries: Vec<(u32, u32)>,
    /// Offsets and bytes, with empty values in place of the long ones.
    pub(crate) offsets: Vec<i32>,
    pub(crate) inline: Vec<u8>,
    /// The long values, one after the other.
    pub(crate) bytes: Vec<u8>,
}

/// The place of a long value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) slot: usize,
    /// First byte among all long values of the column.
    start: usize,
    length: usize,
}

/// Logical numbers of the overflow pages that `columns` need for the rows of `selection` (None: all), ascending.
/// Empty for nearly every page.
///
/// # Errors
/// [`StoreError::Corrupt`] for an invalid overflow table.
pub fn overflow_pages(
    page: &PageColumns,
    read: &PageRead,
    columns: &[ColumnRef],
    selection: Option<&BooleanBuffer>,
) -> Result<Vec<u32>, StoreError> {
    let mut needed = BTreeSet::new();
    for (column, bytes) in read.columns.iter().zip(&page.chunks) {
        let entry = page.header.entry(*column).filter(|entry| entry.overflow_count > 0);
        let (Some(entry), Some(bytes)) = (entry, bytes) else {
            continue;
        };
        if !columns.contains(column) {
            continue;
        }
        let chunk = Chunk { read, header: &page.header, entry, bytes: Some(bytes) };
        let (first, _) = entry.overflow_pages();
        for span in chunk.spans(bytes)? {
            let wanted = selection
                .is_none_or(|selection| span.slot < selection.len() && selection.value(span.slot));
            if wanted {
                needed.extend(span.page_indices().map(|index| first.saturating_add(index)));
            }
        }
    }
    Ok(needed.into_iter().collect())
}

/// The verified payload of an overflow page: the whole page in, the bytes of its values out, not copied.
///
/// # Errors
/// [`StoreError::Corrupt`] for a damaged page, [`StoreError::NewerFormat`].
pub fn overflow_payload(
    segment: &SegmentRef,
    page: &PageRef,
    bytes: &Bytes,
) -> Result<Bytes, StoreError> {
    let header = parse_header(bytes, page, segment)?;
    let fail = |reason| corrupt(page, segment, None, reason);
    let entry = match header.chunks.first() {
        Some(entry) if header.kind == PageKind::Overflow => entry,
        _ => return Err(fail(Corruption::Field { field: "kind", found: 0, expected: None })),
    };
    let (from, length) = (size_of(entry.offset), size_of(entry.length));
    let to = from.saturating_add(length);
    if to > bytes.len() {
        let (expected, found) = (to as u64, bytes.len() as u64);
        return Err(fail(Corruption::Truncated { expected, found }));
    }
    let payload = bytes.slice(from..to);
    checksum::verify(&payload, entry.checksum)
        .map_err(|reason| corrupt(page, segment, Some(entry.column), reason))?;
    Ok(payload)
}

impl OverflowValues {
    /// For pages without long values.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds the payload of the overflow page with this logical number.
    pub fn insert(&mut self, page: u32, payload: Bytes) {
        self.pages.insert(page, payload);
    }

    /// Adds the bytes of one long value to `value`.
    pub(crate) fn append(
        &self,
        chunk: &Chunk<'_>,
        span: &Span,
        value: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let (first, _) = chunk.entry.overflow_pages();
        let (mut start, end) = (span.start, span.start + span.length);
        for index in span.page_indices() {
            let page = first.saturating_add(index);
            let Some(payload) = self.pages.get(&page) else {
                return Err(StoreError::Mismatch {
                    what: "decoding long values",
                    reason: format!("overflow page {page} of {} is not given", chunk.entry.column),
                });
            };
            let page_start = size_of(index) * PAYLOAD_BYTES_MAX;
            let page_end = page_start + PAYLOAD_BYTES_MAX;
            let part = payload.get(start - page_start..end.min(page_end) - page_start);
            let Some(part) = part else {
                let expected = (end.min(page_end) - page_start) as u64;
                let found = payload.len() as u64;
                return Err(chunk.corrupt(Corruption::Truncated { expected, found }));
            };
            value.extend_from_slice(part);
            start += part.len();
        }
        Ok(())
    }
}

impl FromIterator<(u32, Bytes)> for OverflowValues {
    fn from_iter<I: IntoIterator<Item = (u32, Bytes)>>(pages: I) -> Self {
        Self { pages: pages.into_iter().collect() }
    }
}

impl Span {
    /// The overflow pages of the column that hold parts of the value, counted from its first.
    fn page_indices(&self) -> std::ops::Range<u32> {
        let first = self.start / PAYLOAD_BYTES_MAX;
        let end = (self.start + self.length).div_ceil(PAYLOAD_BYTES_MAX);
        u32::try_from(first).unwrap_or(u32::MAX)..u32::try_from(end).unwrap_or(u32::MAX)
    }
}

/// Takes the values above `inline_bytes_max` out of a column, which has no bytes beneath NULLs; None if there are none.
pub(crate) fn split(
    offsets: &[i32],
    values: &[u8],
    inline_bytes_max: u32,
) -> Result<Option<LongValues>, StoreError> {
    let lengths = || offsets.iter().zip(offsets.iter().skip(1)).map(|(from, to)| to - from);
    let is_long = |length: i32| length.unsigned_abs() > inline_bytes_max;
    if !lengths().any(is_long) {
        return Ok(None);
    }
    let mut long =
        LongValues { entries: Vec::new(), offsets: vec![0], inline: Vec::new(), bytes: Vec::new() };
    let mut inline_length = 0;
    for (slot, (length, start)) in lengths().zip(offsets).enumerate() {
        let from = usize::try_from(*start).unwrap_or(usize::MAX);
        let to = from.saturating_add(size_of(length.unsigned_abs()));
        let value = values.get(from..to).unwrap_or_default();
        if is_long(length) {
            long.entries.push((number(slot, "slot")?, length.unsigned_abs()));
            long.bytes.extend_from_slice(value);
        } else {
            long.inline.extend_from_slice(value);
            inline_length += length;
        }
        long.offsets.push(inline_length);
    }
    Ok(Some(long))
}

impl LongValues {
    /// The overflow table of the chunk.
    pub(crate) fn table(&self) -> Buffer {
        let mut table = Vec::with_capacity(self.entries.len() * ENTRY_BYTES);
        for (slot, length) in &self.entries {
            table.extend_from_slice(&slot.to_le_bytes());
            table.extend_from_slice(&length.to_le_bytes());
        }
        Buffer::from_vec(table)
    }

    /// The overflow pages, numbered from `first_page` on.
    pub(crate) fn encode_pages(
        &self,
        segment: &SegmentRef,
        column: ColumnRef,
        first_page: u32,
    ) -> Result<Vec<EncodedPage>, StoreError> {
        let mut pages = Vec::new();
        for payload in self.bytes.chunks(PAYLOAD_BYTES_MAX) {
            let page = first_page.saturating_add(number(pages.len(), "page")?);
            pages.push(encode_page(segment, column, page, payload)?);
        }
        Ok(pages)
    }
}

fn encode_page(
    segment: &SegmentRef,
    column: ColumnRef,
    page: u32,
    payload: &[u8],
) -> Result<EncodedPage, StoreError> {
    let end = PAYLOAD_OFFSET + payload.len();
    let mut bytes = AlignedBuffer::zeroed(end.next_multiple_of(BLOCK_SIZE));
    let header = PageHeader {
        format_version: LIGHT_VERSION,
        kind: PageKind::Overflow,
        table_id: segment.table_id,
        segment: segment.segment,
        page,
        schema_version: segment.schema_version,
        row_count: 0,
        header_length: number(PageHeader::length_for(LIGHT_VERSION, 1), "header length")?,
        block_count: number(bytes.len() / BLOCK_SIZE, "block count")?,
        chunks: vec![ChunkEntry {
            column,
            encoding: Encoding::Plain,
            value_type: ValueType::Binary,
            shared: None,
            offset: number(PAYLOAD_OFFSET, "offset")?,
            length: number(payload.len(), "length")?,
            null_count: 0,
            overflow_count: 0,
            base: 0,
            checksum: checksum::checksum(payload),
        }],
    }
    .encode();
    for (place, part) in [(0, header.as_slice()), (PAYLOAD_OFFSET, payload)] {
        if let Some(target) = bytes.get_mut(place..place + part.len()) {
            target.copy_from_slice(part);
        }
    }
    Ok(EncodedPage {
        page,
        kind: PageKind::Overflow,
        row_count: 0,
        checksum: checksum::checksum(&header),
        bytes,
        vid_first: 0,
        zones: Vec::new(),
        overflow_first_count: (0, 0),
    })
}

/// Checks the one entry of an overflow page.
pub(crate) fn validate_entry(entry: &ChunkEntry) -> Result<(), Corruption> {
    let plain = matches!(entry.column, ColumnRef::User(_))
        && entry.encoding == Encoding::Plain
        && entry.value_type == ValueType::Binary
        && (entry.null_count, entry.overflow_count, entry.base) == (0, 0, 0);
    if plain && (1..=PAYLOAD_BYTES_MAX).contains(&size_of(entry.length)) {
        Ok(())
    } else {
        Err(Corruption::Field { field: "length", found: u64::from(entry.length), expected: None })
    }
}

/// Checks the overflow fields of a plain entry; the table is checked when it is read.
pub(crate) fn validate_count(entry: &ChunkEntry, row_count: u32) -> Result<(), Corruption> {
    let odd = |found: u64| Corruption::Field { field: "overflow count", found, expected: None };
    let long_types = entry.value_type.layout() == Layout::Bytes;
    let (first, count) = entry.overflow_pages();
    if entry.overflow_count > row_count || (entry.overflow_count > 0 && !long_types) {
        return Err(odd(u64::from(entry.overflow_count)));
    }
    if entry.overflow_count > 0 && (count == 0 || first.checked_add(count).is_none()) {
        return Err(odd(u64::from(count)));
    }
    if entry.overflow_count == 0 && entry.base != 0 {
        return Err(Corruption::Field { field: "base", found: entry.base, expected: Some(0) });
    }
    Ok(())
}

/// Reads and checks the overflow table of a chunk.
pub(crate) fn spans(
    entry: &ChunkEntry,
    table: &[u8],
    row_count: u32,
) -> Result<Vec<Span>, Corruption> {
    let mut spans: Vec<Span> = Vec::with_capacity(size_of(entry.overflow_count.min(row_count)));
    let mut start = 0_usize;
    for bytes in table.chunks_exact(ENTRY_BYTES) {
        let word = |at: usize| {
            let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let (slot, length) = (word(0), word(4));
        let ascends = spans.last().is_none_or(|last| last.slot < size_of(slot));
        if slot >= row_count || !ascends || length == 0 {
            return Err(Corruption::Values(format!(
                "a long value at slot {slot} of {length} bytes is out of order"
            )));
        }
        spans.push(Span { slot: size_of(slot), start, length: size_of(length) });
        start = start.saturating_add(size_of(length));
    }
    let (_, page_count) = entry.overflow_pages();
    if start.div_ceil(PAYLOAD_BYTES_MAX) != size_of(page_count) {
        return Err(Corruption::Values(format!(
            "long values of {start} bytes do not fill {page_count} overflow pages"
        )));
    }
    Ok(spans)
}

#[cfg(test)]
mod tests;
