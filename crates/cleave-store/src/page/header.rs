//! A page's table of contents: the first bytes of a page in, its identity and the places of its chunks out.
//!
//! ```text
//! identity, 48 bytes                                     entry of a chunk, 40 bytes
//!  0 magic "CLVPAGE\n"   24 schema version u32            0 column kind u8   16 length u32
//!  8 format version u16  28 row count u32                 1 encoding u8      20 null count u32
//! 10 kind u8, 11 zero    32 header length u32             2 type tag u8      24 overflow count u32
//! 12 table id u32        36 block count u32               3 precision u8     28 crc32c of the chunk u32
//! 16 segment u32         40 chunk count u32               4 column id u32    32 base u64
//! 20 page u32            44 zero u32                      8 scale i8, 3 zero 40 first block u64
//!                                                        12 offset u32         (from version 3 on)
//! ```
//!
//! `base` is the value of a constant or the first value of a sequence. If values overflowed, it is the first overflow
//! page (low half) and the number of overflow pages (high half). `first block` is where a chunk lies that a [page
//! version](super::version) shares with an earlier version of the page; 0 if it lies in the page itself. Only page
//! versions have format version 3, and entries of 48 bytes.
//!
//! Invariants: [`parse_header`] first checks the checksum of the [`PageRef`], and then validates every field, so a
//! [`PageHeader`] is valid as a whole: entries ascend by column and by offset, chunks lie inside the page and do not
//! overlap (shared ones lie elsewhere), lengths fit types and row count. The header length stays at byte 32 and the
//! version at byte 8 in every later format.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};

use crate::error::{Corruption, StoreError};
use crate::ids::SegmentId;
use crate::page::checksum;
use crate::page::columns::{Layout, ValueType};
use crate::page::encoding::Sections;
use crate::page::{PAGE_BYTES_MAX, PAGE_ROW_COUNT_MAX, overflow};
use crate::page_source::{ColumnRef, PageRead, PageRef, SegmentRef};
use crate::schema::COLUMN_COUNT_MAX;

/// Newest version of the page format that this build reads.
pub const FORMAT_VERSION: u16 = 3;
/// The first version with light encodings, which pages have that share nothing.
pub(crate) const LIGHT_VERSION: u16 = 2;
/// The first version with chunks that lie in an earlier version of the page.
pub(crate) const SHARING_VERSION: u16 = 3;

/// First bytes of every page.
const MAGIC: [u8; 8] = *b"CLVPAGE\n";
/// Bytes before the entries.
const IDENTITY_BYTES: usize = 48;
/// Bytes of one entry.
const ENTRY_BYTES: usize = 40;
/// Bytes of one entry from [`SHARING_VERSION`] on.
const SHARING_ENTRY_BYTES: usize = 48;
/// Every chunk starts at a multiple of this.
pub(crate) const CHUNK_ALIGNMENT_MIN: u32 = 64;

/// A page's table of contents, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageHeader {
    /// Format version.
    pub format_version: u16,
    /// The kind of contents of the page.
    pub kind: PageKind,
    /// The table.
    pub table_id: u32,
    /// The segment.
    pub segment: SegmentId,
    /// Logical number in the segment.
    pub page: u32,
    /// Version of the table's schema that the page is written in.
    pub schema_version: u32,
    /// Rows; 0 in an overflow page.
    pub row_count: u32,
    /// Bytes of the header, entries included.
    pub header_length: u32,
    /// Blocks of the page.
    pub block_count: u32,
    /// Chunks, ascending by column.
    pub chunks: Vec<ChunkEntry>,
}

/// The kind of contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// Versions of a table's rows.
    Heap,
    /// Bytes of long values, of one column of one page.
    Overflow,
    /// Entries of an index, sorted by key.
    IndexRun,
}

/// Place of a column's values in the page, and how to read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    /// The column.
    pub column: ColumnRef,
    /// How its values are stored.
    pub encoding: Encoding,
    /// Their type.
    pub value_type: ValueType,
    /// First byte of the chunk in the page; 0 where it has no bytes, or is shared.
    pub offset: u32,
    /// The first block of a chunk that lies in an earlier version of the page; None: it lies in this one.
    pub shared: Option<BlockAddress>,
    /// Bytes of the chunk.
    pub length: u32,
    /// NULLs.
    pub null_count: u32,
    /// Values that lie in overflow pages.
    pub overflow_count: u32,
    /// Constant, first value, or overflow pages; see the module.
    pub base: u64,
    /// CRC-32C of the chunk.
    pub checksum: u32,
}

/// How a column's values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Arrow's buffers as they are.
    Plain,
    /// All values are equal: NULL, or the bits of `base`. No bytes.
    Constant,
    /// Value of a slot: `base` plus the slot. No bytes.
    Sequence,
    /// Commit numbers only: the segment's. No bytes.
    FromSegment,
    /// Integers, or values stored as such (dates, times, decimals of up to 64 bits), as a stream of integers.
    Integers,
    /// A code for each value, and the distinct values.
    Dictionary,
    /// Text and bytes: offsets as a stream of integers, bytes with or without symbols for frequent parts.
    Strings,
    /// `double precision` with few decimal digits: integers and a power of ten.
    Scaled,
}

impl PageHeader {
    /// The entry of a column; None if the page has no such column.
    #[must_use]
    pub fn entry(&self, column: ColumnRef) -> Option<&ChunkEntry> {
        let at = self.chunks.binary_search_by(|entry| entry.column.cmp(&column)).ok()?;
        self.chunks.get(at)
    }

    /// Whether any value lies in overflow pages.
    #[must_use]
    pub fn has_long_values(&self) -> bool {
        self.chunks.iter().any(|entry| entry.overflow_count > 0)
    }

    /// The blocks of shared chunks, ascending, neighbours joined: what the page needs beside its own extent.
    #[must_use]
    pub fn shared_extents(&self) -> Vec<Extent> {
        joined(self.chunks.iter().filter_map(ChunkEntry::shared_blocks).collect())
    }

    /// Bytes that a header of `chunk_count` entries takes in a version of the format.
    pub(crate) const fn length_for(format_version: u16, chunk_count: usize) -> usize {
        IDENTITY_BYTES + chunk_count * entry_bytes(format_version)
    }

    /// The stored form: exactly the bytes that [`parse_header`] read.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes =
            Vec::with_capacity(Self::length_for(self.format_version, self.chunks.len()));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.format_version.to_le_bytes());
        bytes.extend_from_slice(&[self.kind.tag(), 0]);
        for field in [
            self.table_id,
            self.segment.0,
            self.page,
            self.schema_version,
            self.row_count,
            self.header_length,
            self.block_count,
            // At most 1600 columns and two of versions.
            u32::try_from(self.chunks.len()).unwrap_or(u32::MAX),
            0,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for chunk in &self.chunks {
            let (kind, id) = column_tag(chunk.column);
            let (tag, precision, scale) = chunk.value_type.tag();
            bytes.extend_from_slice(&[kind, chunk.encoding.tag(), tag, precision]);
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&scale.to_le_bytes());
            bytes.extend_from_slice(&[0; 3]);
            for field in
                [chunk.offset, chunk.length, chunk.null_count, chunk.overflow_count, chunk.checksum]
            {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
            bytes.extend_from_slice(&chunk.base.to_le_bytes());
            if self.format_version >= SHARING_VERSION {
                let start = chunk.shared.map_or(0, |start| start.0);
                bytes.extend_from_slice(&start.to_le_bytes());
            }
        }
        bytes
    }

    /// Checks the bytes received for a column of this page: that they are present, or rightly absent, and intact.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] naming the column.
    pub fn verify_chunk(
        &self,
        read: &PageRead,
        column: ColumnRef,
        chunk: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let entry = self.entry(column).filter(|entry| entry.length > 0);
        let expected = entry.map_or(0, |entry| u64::from(entry.length));
        let found = chunk.map_or(0, <[u8]>::len) as u64;
        if expected != found {
            let reason = Corruption::Truncated { expected, found };
            return Err(corrupt(&read.page, &read.segment, Some(column), reason));
        }
        match (entry, chunk) {
            (Some(entry), Some(chunk)) => checksum::verify(chunk, entry.checksum)
                .map_err(|reason| corrupt(&read.page, &read.segment, Some(column), reason)),
            _ => Ok(()),
        }
    }
}

impl ChunkEntry {
    /// Where the bytes of the chunk lie on the media, if its page begins at `page`; None: it has none.
    #[must_use]
    pub fn place(&self, page: BlockAddress) -> Option<Range<u64>> {
        let start = self.shared.unwrap_or(page).0.saturating_mul(BLOCK_SIZE as u64);
        let start = start.saturating_add(u64::from(self.offset));
        (self.length > 0).then(|| start..start.saturating_add(u64::from(self.length)))
    }

    /// The blocks of a shared chunk.
    #[must_use]
    pub fn shared_blocks(&self) -> Option<Extent> {
        let block_count = u32::try_from(u64::from(self.length).div_ceil(BLOCK_SIZE as u64)).ok()?;
        self.shared.map(|start| Extent { start, block_count })
    }

    /// First overflow page and number of overflow pages; (0, 0) if no value overflowed.
    #[must_use]
    pub fn overflow_pages(&self) -> (u32, u32) {
        if self.overflow_count == 0 {
            return (0, 0);
        }
        let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(u32::MAX);
        (half(self.base), half(self.base >> 32))
    }
}

/// Reads and validates the header at the start of `bytes`, which hold the page, or at least all of its header.
///
/// # Errors
/// [`StoreError::Corrupt`] for an invalid header, [`StoreError::NewerFormat`] for one that is valid but for its
/// version.
pub fn parse_header(
    bytes: &[u8],
    expected: &PageRef,
    segment: &SegmentRef,
) -> Result<PageHeader, StoreError> {
    let fail = |reason| corrupt(expected, segment, None, reason);
    let length = header_length(bytes, expected).map_err(fail)?;
    let header_bytes = bytes.get(..length).ok_or_else(|| {
        fail(Corruption::Truncated { expected: length as u64, found: bytes.len() as u64 })
    })?;
    checksum::verify(header_bytes, expected.checksum).map_err(fail)?;
    let mut fields = Fields(header_bytes);
    let _magic = fields.take::<8>().map_err(fail)?;
    let found = u16::from_le_bytes(fields.take().map_err(fail)?);
    if found > FORMAT_VERSION {
        return Err(StoreError::NewerFormat {
            segment: segment.segment,
            page: expected.page,
            found,
            newest: FORMAT_VERSION,
        });
    }
    let header = fields.header(found).map_err(fail)?;
    header.validate_identity(expected, segment).map_err(fail)?;
    header
        .validate_chunks()
        .map_err(|(column, reason)| corrupt(expected, segment, Some(column), reason))?;
    Ok(header)
}

/// Length of the header of the page whose first 48 bytes, at least, are given. Trusts no other field; the result is at
/// most the longest header, whatever the page says.
pub(crate) fn header_length(bytes: &[u8], expected: &PageRef) -> Result<usize, Corruption> {
    let mut fields = Fields(bytes);
    let magic = fields.take::<8>()?;
    if magic != MAGIC {
        return Err(Corruption::Field {
            field: "magic",
            found: u64::from_le_bytes(magic),
            expected: Some(u64::from_le_bytes(MAGIC)),
        });
    }
    let format_version = u16::from_le_bytes(fields.take()?);
    let _until_row_count = fields.take::<22>()?;
    let length = fields.u32()?;
    let is_whole = |entries: usize| {
        // How long the entries of newer versions are is not known.
        format_version > FORMAT_VERSION || entries.is_multiple_of(entry_bytes(format_version))
    };
    // Of a table with the maximum number of columns, and the two version columns.
    let longest = PageHeader::length_for(format_version, COLUMN_COUNT_MAX + 2);
    let bytes_max = expected.extent.bytes().min(longest);
    match usize::try_from(length) {
        Ok(length)
            if (IDENTITY_BYTES..=bytes_max).contains(&length)
                && is_whole(length - IDENTITY_BYTES) =>
        {
            Ok(length)
        }
        _ => Err(Corruption::Field {
            field: "header length",
            found: u64::from(length),
            expected: None,
        }),
    }
}

/// Bytes of one entry in a version of the format.
const fn entry_bytes(format_version: u16) -> usize {
    if format_version >= SHARING_VERSION { SHARING_ENTRY_BYTES } else { ENTRY_BYTES }
}

/// `extents` ascending, neighbours joined, each block once.
pub(crate) fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        let last = joined.last_mut().filter(|last| last.end() >= extent.start);
        let end = last.as_ref().map_or(extent.end(), |last| last.end().max(extent.end()));
        let start = last.as_ref().map_or(extent.start, |last| last.start);
        let block_count = end.0.saturating_sub(start.0);
        match (last, u32::try_from(block_count)) {
            (Some(last), Ok(block_count)) => last.block_count = block_count,
            _ => joined.push(extent),
        }
    }
    joined
}

/// The error of a page that is not what was written.
pub(crate) fn corrupt(
    page: &PageRef,
    segment: &SegmentRef,
    column: Option<ColumnRef>,
    reason: Corruption,
) -> StoreError {
    StoreError::Corrupt {
        segment: segment.segment,
        page: page.page,
        address: page.extent.start,
        column,
        reason,
    }
}

/// Bytes yet to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corruption> {
        let (field, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(Corruption::Truncated { expected: N as u64, found: self.0.len() as u64 })?;
        self.0 = rest;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, Corruption> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    /// What follows the version.
    fn header(&mut self, format_version: u16) -> Result<PageHeader, Corruption> {
        let [kind, zero] = self.take()?;
        must("zero", u64::from(zero), 0)?;
        let kind = PageKind::from_tag(kind).ok_or_else(|| odd("kind", u64::from(kind)))?;
        let mut header = PageHeader {
            format_version,
            kind,
            table_id: self.u32()?,
            segment: SegmentId(self.u32()?),
            page: self.u32()?,
            schema_version: self.u32()?,
            row_count: self.u32()?,
            header_length: self.u32()?,
            block_count: self.u32()?,
            chunks: Vec::new(),
        };
        let chunk_count = self.u32()?;
        must("zero", u64::from(self.u32()?), 0)?;
        let room = self.0.len() / entry_bytes(format_version);
        must("chunk count", u64::from(chunk_count), room as u64)?;
        for _ in 0..room {
            let mut chunk = self.chunk()?;
            if format_version >= SHARING_VERSION {
                let start = u64::from_le_bytes(self.take()?);
                chunk.shared = (start > 0).then_some(BlockAddress(start));
            }
            header.chunks.push(chunk);
        }
        Ok(header)
    }

    fn chunk(&mut self) -> Result<ChunkEntry, Corruption> {
        let [kind, encoding, tag, precision] = self.take()?;
        let id = self.u32()?;
        let column = column_from_tag(kind, id).ok_or_else(|| odd("column", u64::from(kind)))?;
        let scale = i8::from_le_bytes(self.take()?);
        must("zero", u64::from(self.take::<3>()? != [0; 3]), 0)?;
        let encoding =
            Encoding::from_tag(encoding).ok_or_else(|| odd("encoding", u64::from(encoding)))?;
        let value_type = ValueType::from_tag(tag, precision, scale)
            .ok_or_else(|| odd("type", u64::from(tag)))?;
        Ok(ChunkEntry {
            column,
            encoding,
            value_type,
            shared: None,
            offset: self.u32()?,
            length: self.u32()?,
            null_count: self.u32()?,
            overflow_count: self.u32()?,
            checksum: self.u32()?,
            base: u64::from_le_bytes(self.take()?),
        })
    }
}

impl PageHeader {
    fn validate_identity(&self, page: &PageRef, segment: &SegmentRef) -> Result<(), Corruption> {
        if self.format_version == 0 {
            return Err(odd("format version", 0));
        }
        let row_count_max =
            if self.kind == PageKind::Overflow { 0 } else { u64::from(PAGE_ROW_COUNT_MAX) };
        for (field, found, expected) in [
            ("table id", self.table_id, segment.table_id),
            ("segment", self.segment.0, segment.segment.0),
            ("page", self.page, page.page),
            ("schema version", self.schema_version, segment.schema_version),
            ("row count", self.row_count, page.row_count),
            ("block count", self.block_count, page.extent.block_count),
        ] {
            must(field, u64::from(found), u64::from(expected))?;
        }
        if u64::from(self.row_count) > row_count_max {
            return Err(odd("row count", u64::from(self.row_count)));
        }
        Ok(())
    }

    fn validate_chunks(&self) -> Result<(), (ColumnRef, Corruption)> {
        let page_bytes = u64::from(self.block_count) * BLOCK_SIZE as u64;
        let mut free_from = u64::from(self.header_length);
        let mut last = None;
        for chunk in &self.chunks {
            let fail = |reason| (chunk.column, reason);
            if last.is_some_and(|last| last >= chunk.column) {
                return Err(fail(odd("column", 0)));
            }
            last = Some(chunk.column);
            chunk.validate(self).map_err(fail)?;
            if chunk.length == 0 || chunk.shared.is_some() {
                must("offset", u64::from(chunk.offset), 0).map_err(fail)?;
                if chunk.shared.is_some() {
                    chunk.validate_shared().map_err(fail)?;
                }
                continue;
            }
            let (from, to) = (
                u64::from(chunk.offset),
                u64::from(chunk.offset).saturating_add(u64::from(chunk.length)),
            );
            let aligned = chunk.offset.is_multiple_of(CHUNK_ALIGNMENT_MIN);
            if !aligned || from < free_from || to > page_bytes {
                return Err(fail(odd("offset", from)));
            }
            free_from = to;
        }
        let has = |column| self.entry(column).is_some();
        if self.kind == PageKind::Overflow {
            let found = self.chunks.len() as u64;
            must("chunk count", found, 1).map_err(|reason| (overflow::CHUNK_COLUMN, reason))?;
        } else {
            for column in [ColumnRef::Vid, ColumnRef::Commit] {
                must("column", u64::from(has(column)), 1).map_err(|reason| (column, reason))?;
            }
        }
        Ok(())
    }
}

impl ChunkEntry {
    /// Checks the entry by itself; the header checks the places.
    fn validate(&self, header: &PageHeader) -> Result<(), Corruption> {
        if header.kind == PageKind::Overflow {
            return overflow::validate_entry(self);
        }
        if let Some(expected) = ValueType::of_version_column(self.column) {
            must("type", u64::from(self.value_type.tag().0), u64::from(expected.tag().0))?;
            must("null count", u64::from(self.null_count), 0)?;
        } else if self.value_type == ValueType::UInt64 {
            return Err(odd("type", u64::from(self.value_type.tag().0)));
        }
        if self.encoding.is_light() && header.format_version < LIGHT_VERSION {
            return Err(odd("encoding", u64::from(self.encoding.tag())));
        }
        if self.null_count > header.row_count {
            return Err(odd("null count", u64::from(self.null_count)));
        }
        if self.encoding != Encoding::Plain {
            must("overflow count", u64::from(self.overflow_count), 0)?;
            if !self.encoding.is_light() {
                must("length", u64::from(self.length), 0)?;
            }
        }
        match self.encoding {
            Encoding::Plain => {
                Sections::of(self, header.row_count)?;
                overflow::validate_count(self, header.row_count)?;
            }
            Encoding::Constant => self.validate_constant(header.row_count)?,
            Encoding::Sequence => {
                let past_end = self.base.checked_add(u64::from(header.row_count));
                let unsigned = self.value_type == ValueType::UInt64;
                if !self.value_type.counts()
                    || self.null_count != 0
                    || (unsigned && past_end.is_none())
                {
                    return Err(odd("encoding", u64::from(self.encoding.tag())));
                }
            }
            Encoding::FromSegment => {
                if self.column != ColumnRef::Commit {
                    return Err(odd("encoding", u64::from(self.encoding.tag())));
                }
            }
            Encoding::Integers | Encoding::Dictionary | Encoding::Strings | Encoding::Scaled => {
                if self.length == 0 || !self.encoding.stores(self.value_type) {
                    return Err(odd("encoding", u64::from(self.encoding.tag())));
                }
                must("base", self.base, 0)?;
            }
        }
        Ok(())
    }

    /// Checks the place of a shared chunk.
    fn validate_shared(&self) -> Result<(), Corruption> {
        let start = self.shared.map_or(0, |start| start.0);
        let end = self
            .shared_blocks()
            .and_then(|blocks| start.checked_add(u64::from(blocks.block_count)));
        if self.length == 0 || self.length > PAGE_BYTES_MAX || end.is_none() {
            return Err(odd("first block", start));
        }
        Ok(())
    }

    fn validate_constant(&self, row_count: u32) -> Result<(), Corruption> {
        if self.null_count > 0 {
            must("null count", u64::from(self.null_count), u64::from(row_count))?;
            return must("base", self.base, 0);
        }
        let bits = match self.value_type.layout() {
            Layout::Bits => 1,
            Layout::Fixed(2) => 16,
            Layout::Fixed(4) => 32,
            Layout::Fixed(8) => return Ok(()),
            Layout::Fixed(_) | Layout::Bytes => {
                return Err(odd("encoding", u64::from(self.encoding.tag())));
            }
        };
        if self.base >> bits == 0 { Ok(()) } else { Err(odd("base", self.base)) }
    }
}

impl PageKind {
    fn tag(self) -> u8 {
        match self {
            Self::Heap => 1,
            Self::Overflow => 2,
            Self::IndexRun => 3,
        }
    }

    fn from_tag(tag: u8) -> Option<Self> {
        [Self::Heap, Self::Overflow, Self::IndexRun].into_iter().find(|kind| kind.tag() == tag)
    }
}

impl Encoding {
    const ALL: [Self; 8] = [
        Self::Plain,
        Self::Constant,
        Self::Sequence,
        Self::FromSegment,
        Self::Integers,
        Self::Dictionary,
        Self::Strings,
        Self::Scaled,
    ];

    /// Whether a chunk of it has bytes that are not Arrow's.
    pub(crate) fn is_light(self) -> bool {
        matches!(self, Self::Integers | Self::Dictionary | Self::Strings | Self::Scaled)
    }

    /// Whether a light encoding has values of this type.
    fn stores(self, value_type: ValueType) -> bool {
        match self {
            Self::Integers => value_type.is_integral(),
            Self::Dictionary => value_type.layout() != Layout::Bits,
            Self::Strings => value_type.layout() == Layout::Bytes,
            Self::Scaled => value_type == ValueType::Float64,
            Self::Plain | Self::Constant | Self::Sequence | Self::FromSegment => false,
        }
    }

    fn tag(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Constant => 1,
            Self::Sequence => 2,
            Self::FromSegment => 3,
            Self::Integers => 4,
            Self::Dictionary => 5,
            Self::Strings => 6,
            Self::Scaled => 7,
        }
    }

    fn from_tag(tag: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.tag() == tag)
    }
}

fn column_tag(column: ColumnRef) -> (u8, u32) {
    match column {
        ColumnRef::User(id) => (0, id),
        ColumnRef::Vid => (1, 0),
        ColumnRef::Commit => (2, 0),
    }
}

fn column_from_tag(kind: u8, id: u32) -> Option<ColumnRef> {
    match (kind, id) {
        (0, id) => Some(ColumnRef::User(id)),
        (1, 0) => Some(ColumnRef::Vid),
        (2, 0) => Some(ColumnRef::Commit),
        // 3 and 4 were predecessors and tombstones, which no build has written; they are never reused.
        _ => None,
    }
}

/// A field that can have one value only.
fn must(field: &'static str, found: u64, expected: u64) -> Result<(), Corruption> {
    if found == expected {
        Ok(())
    } else {
        Err(Corruption::Field { field, found, expected: Some(expected) })
    }
}

/// An error for a field with a value that no writer writes.
fn odd(field: &'static str, found: u64) -> Corruption {
    Corruption::Field { field, found, expected: None }
}

#[cfg(test)]
mod tests;
