//! Page versions: a page and new values of some of its columns in, the page that takes its place out.
//!
//! ```text
//!  page          ┌ header │ a │ b │ c ┐
//!                             ▲       ▲
//!  page version  ┌ header │ b' ┐      │        header names a and c where they lie
//!                    └────────────────┘
//! ```
//!
//! 1. [`copied_columns`] says which other columns have to be copied: none of a page that is read by columns, all of a
//!    small page, which is read whole.
//! 2. [`page_version`] encodes the new values, and lays them out behind a header that names the shared chunks.
//! 3. [`consolidated`] is the reverse: one page with all chunks, for a copy that does not keep the earlier version.
//!
//! Invariants: the rows keep their slots, and with them their RecIDs and VIDs. The header of the version has the
//! checksums of the shared chunks, so the Merkle tree holds although these were not read. A chunk is shared only in
//! whole blocks. A column with long values is never changed: its overflow pages belong to the entry of the page.
//!
//! Source: `docs/design/pages-and-encodings.md`, "Page versions for bulk updates".

use arrow::array::{Array, ArrayRef};
use bytes::Bytes;
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};

use crate::error::StoreError;
use crate::page::encoding::{self, Effort, size_of};
use crate::page::header::{ChunkEntry, PageHeader};
use crate::page::layout::{PageIdentity, PlacedChunk, lay_out};
use crate::page::{EncodedPage, PageClass, ValueType};
use crate::page_source::{ColumnRef, PageColumns, PageRead};
use crate::zone_map::ZoneEntry;

/// A page of at most so many blocks is copied, and shares nothing: its version is read at once as well.
pub(crate) const COPIED_BLOCKS_MAX: u32 = 8;

/// The version of a page, without a place.
#[derive(Debug, Clone, PartialEq)]
pub struct PageVersion {
    /// Its own bytes; the zones are those of the changed columns.
    pub page: EncodedPage,
    /// Blocks of earlier versions that it needs, ascending.
    pub shared: Vec<Extent>,
}

/// New values of one column of a page: one for each slot.
#[derive(Debug, Clone)]
pub struct ChangedColumn {
    /// The column's stable id.
    pub id: u32,
    /// The values, also of dead rows.
    pub values: ArrayRef,
}

/// The columns of the page `header`, of `block_count` blocks, whose bytes a version that changes the columns `changed`
/// copies.
#[must_use]
pub fn copied_columns(header: &PageHeader, changed: &[u32]) -> Vec<ColumnRef> {
    let others = header.chunks.iter().filter(|chunk| chunk.length > 0);
    let others = others.filter(|chunk| !is_changed(chunk, changed));
    match is_shareable(header) {
        true => Vec::new(),
        false => others.map(|chunk| chunk.column).collect(),
    }
}

/// The version of the page that `page` has been read of: with the columns of [`copied_columns`], in any order.
///
/// # Errors
/// [`StoreError::Mismatch`] for values that are not one for each slot, a changed column with long values before or
/// after, or a column to be copied that was not read.
pub fn page_version(
    read: &PageRead,
    page: &PageColumns,
    changed: &[ChangedColumn],
) -> Result<PageVersion, StoreError> {
    let header = &page.header;
    let is_shareable = is_shareable(header);
    let class = if is_shareable || is_aligned(header) { PageClass::BULK } else { PageClass::HOT };
    let effort =
        Effort { inline_bytes_max: class.inline_bytes_max(), light: class.has_light_encodings() };
    let ids: Vec<u32> = changed.iter().map(|column| column.id).collect();
    let mut chunks = Vec::with_capacity(header.chunks.len() + changed.len());
    for entry in header.chunks.iter().filter(|entry| !is_changed(entry, &ids)) {
        chunks.push(match (entry.length, is_shareable) {
            (0, _) => PlacedChunk::Shared(*entry),
            (_, true) => PlacedChunk::Shared(shared(entry, read.page.extent.start)),
            (_, false) => PlacedChunk::Copied(*entry, bytes_of(read, page, entry.column)?),
        });
    }
    let mut zones = Vec::with_capacity(changed.len());
    for column in changed {
        let reference = ColumnRef::User(column.id);
        let long_before = header.entry(reference).is_some_and(|entry| entry.overflow_count > 0);
        let row_count = column.values.len();
        let value_type = ValueType::from_arrow(column.values.data_type())
            .ok_or_else(|| mismatch(format!("no page has {}", column.values.data_type())))?;
        if u32::try_from(row_count) != Ok(header.row_count) {
            let reason = format!("{row_count} values for the {} rows of a page", header.row_count);
            return Err(mismatch(reason));
        }
        let (chunk, long) = encoding::encode(reference, value_type, &column.values, effort)?;
        if long_before || long.is_some() {
            return Err(mismatch(format!("column {} has long values", column.id)));
        }
        zones.push(ZoneEntry::of(column.id, &column.values));
        chunks.push(PlacedChunk::Encoded(chunk));
    }
    let page = laid_out(read, header, class, chunks, zones)?;
    Ok(page)
}

/// The page with all of its chunks, `page` having been read with those that have bytes: for a place that does not keep
/// the earlier versions.
///
/// # Errors
/// [`StoreError::Mismatch`] for a chunk that was not read.
pub fn consolidated(read: &PageRead, page: &PageColumns) -> Result<EncodedPage, StoreError> {
    let header = &page.header;
    let chunks = header.chunks.iter().map(|entry| match entry.length {
        0 => Ok(PlacedChunk::Copied(*entry, Bytes::new())),
        _ => Ok(PlacedChunk::Copied(*entry, bytes_of(read, page, entry.column)?)),
    });
    let chunks = chunks.collect::<Result<Vec<_>, StoreError>>()?;
    Ok(laid_out(read, header, PageClass::BULK, chunks, Vec::new())?.page)
}

fn laid_out(
    read: &PageRead,
    header: &PageHeader,
    class: PageClass,
    chunks: Vec<PlacedChunk>,
    zones: Vec<ZoneEntry>,
) -> Result<PageVersion, StoreError> {
    let shared = chunks.iter().filter_map(|chunk| match chunk {
        PlacedChunk::Shared(entry) => entry.shared_blocks(),
        _ => None,
    });
    let shared = crate::page::header::joined(shared.collect());
    // Entries without bytes are the same either way.
    let chunks = chunks.into_iter().map(|chunk| match chunk {
        PlacedChunk::Shared(entry) if entry.length == 0 => PlacedChunk::Copied(entry, Bytes::new()),
        other => other,
    });
    let identity = PageIdentity {
        segment: read.segment,
        kind: header.kind,
        page: read.page.page,
        row_count: header.row_count,
    };
    let (bytes, checksum) = lay_out(identity, size_of(class.chunk_alignment), chunks.collect())?;
    let page = EncodedPage {
        page: read.page.page,
        kind: header.kind,
        bytes,
        row_count: header.row_count,
        checksum,
        vid_first: 0,
        zones,
        overflow_first_count: (0, 0),
    };
    Ok(PageVersion { page, shared })
}

/// Whether versions of the page may share its chunks.
fn is_shareable(header: &PageHeader) -> bool {
    let is_large = header.block_count > COPIED_BLOCKS_MAX;
    (is_large || !header.shared_extents().is_empty()) && is_aligned(header)
}

/// Whether each chunk of the page lies in blocks of its own.
fn is_aligned(header: &PageHeader) -> bool {
    let in_blocks = |chunk: &ChunkEntry| size_of(chunk.offset).is_multiple_of(BLOCK_SIZE);
    header.chunks.iter().filter(|chunk| chunk.length > 0).all(in_blocks)
}

fn is_changed(chunk: &ChunkEntry, changed: &[u32]) -> bool {
    matches!(chunk.column, ColumnRef::User(id) if changed.contains(&id))
}

/// `entry` of a page at `start`, as the entry of a page elsewhere.
fn shared(entry: &ChunkEntry, start: BlockAddress) -> ChunkEntry {
    let own = || BlockAddress(start.0.saturating_add(u64::from(entry.offset) / BLOCK_SIZE as u64));
    ChunkEntry { offset: 0, shared: Some(entry.shared.unwrap_or_else(own)), ..*entry }
}

fn bytes_of(read: &PageRead, page: &PageColumns, column: ColumnRef) -> Result<Bytes, StoreError> {
    let place = read.columns.iter().position(|of| *of == column);
    let chunk = place.and_then(|place| page.chunks.get(place)).and_then(Option::as_ref);
    chunk.cloned().ok_or_else(|| mismatch(format!("{column} was not read")))
}

fn mismatch(reason: String) -> StoreError {
    StoreError::Mismatch { what: "a page version", reason }
}

#[cfg(test)]
mod tests;
