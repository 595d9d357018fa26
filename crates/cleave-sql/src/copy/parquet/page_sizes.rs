//! Page headers of a Parquet file in; out, how many rows a batch may have so that it stays small whatever the values.
//!
//! A few bytes of Parquet can stand for a value of gigabytes, or for one dictionary value a million times. The sizes of
//! columns in the metadata may be missing or wrong. So before a row group is read:
//!
//! 1. [`spans`] walks the page headers of each wanted column (Thrift's compact protocol; nothing is decompressed) and
//!    collects rows, size and encoding of each page. The reader later refuses a page that is larger than its header
//!    says.
//! 2. [`longest_entry`] decodes dictionaries, which are pages of known size by then, and finds their longest value.
//! 3. [`rows_per_batch`] takes the greatest number of rows for which no batch, wherever it begins, can exceed
//!    [`BATCH_BYTES_MAX`].
//!
//! Not limited here: DELTA_BYTE_ARRAY, whose values share prefixes; only its lengths would tell.
//!
//! Source: the Parquet format, `parquet.thrift` (PageHeader); Apache Thrift, "Compact protocol".

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parquet::arrow::ProjectionMask;
use parquet::basic::Type as PhysicalType;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

/// Bytes that a batch may have at most, unless a single row has more.
const BATCH_BYTES_MAX: u64 = 32 << 20;
/// Longest page header: its statistics hold values.
const HEADER_BYTES_MAX: usize = 16 << 20;
/// Bytes of a header that are read first.
const HEADER_BYTES_FIRST: usize = 4 << 10;
/// Maximum nesting of Thrift's structures.
const DEPTH_MAX: usize = 8;
/// The same in the metadata of a file.
const METADATA_DEPTH_MAX: usize = 16;
/// Thrift's number of a structure.
const STRUCTURE: u8 = 12;

const DICTIONARY_PAGE: i64 = 2;
const PLAIN_DICTIONARY: i64 = 2;
const RLE_DICTIONARY: i64 = 8;

/// Why a file is not read.
#[derive(Debug)]
pub(super) enum PageFault {
    /// It contradicts itself.
    Damaged(String),
    /// It could not be read.
    Io(std::io::Error),
    /// Its pages do not fit in memory.
    TooLarge {
        /// The column with the largest page.
        column: String,
        /// That page, uncompressed.
        page_bytes: u64,
        /// Bytes that must be in memory at once.
        pages_bytes: u64,
    },
}

/// One data page of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    /// Number of its first row in the row group.
    first_row: u64,
    row_count: u64,
    /// Uncompressed.
    bytes: u64,
}

/// The pages of a column in a row group.
#[derive(Debug, Default)]
struct Spans {
    pages: Vec<Span>,
    /// Bytes in memory for as long as the row group is read.
    dictionary_bytes: u64,
    /// Bytes that each row may take beyond those of its page.
    row_bytes: u64,
    /// The largest page, the dictionary's included.
    page_bytes_max: u64,
    /// Rows of all pages.
    row_count: u64,
    /// A page says that it has other rows than values.
    is_miscounted: bool,
}

/// What the headers of pages say of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchRows {
    /// Rows that a batch may have.
    pub(super) most: usize,
    /// The pages of each column have as many values as their row group has rows, and none says that it has other
    /// rows: pages may be skipped by their headers.
    pub(super) are_counted: bool,
}

/// The fields used of a page's header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PageHeader {
    kind: i64,
    uncompressed_bytes: i64,
    compressed_bytes: i64,
    value_count: i64,
    /// Of the second version.
    row_count: Option<i64>,
    encoding: i64,
}

/// Rows that a batch of any of `groups` may have, at least one and at most `most`.
pub(super) fn rows_per_batch(
    file: &Arc<File>,
    groups: &[&RowGroupMetaData],
    mask: &ProjectionMask,
    most: usize,
    pages_bytes_max: u64,
) -> Result<BatchRows, PageFault> {
    let (mut row_count, mut are_counted) = (most, true);
    for group in groups {
        let columns = group.columns().iter().enumerate();
        let wanted = columns.filter(|(leaf, _)| mask.leaf_included(*leaf));
        let columns: Vec<Spans> =
            wanted.map(|(_, column)| spans(file, column)).collect::<Result<_, _>>()?;
        let group_rows = u64::try_from(group.num_rows()).ok();
        are_counted &= columns
            .iter()
            .all(|column| Some(column.row_count) == group_rows && !column.is_miscounted);
        let at_once = |rows: u64| {
            columns.iter().map(|column| column.bytes_at_once(rows)).fold(0, u64::saturating_add)
        };
        let least = at_once(1);
        if least > pages_bytes_max {
            let named = group.columns().iter().enumerate();
            let named = named.filter(|(leaf, _)| mask.leaf_included(*leaf)).zip(&columns);
            let largest = named.max_by_key(|(_, column)| column.page_bytes_max);
            let (column, page_bytes) = largest
                .map_or((String::new(), 0), |((_, chunk), column)| {
                    (chunk.column_path().string(), column.page_bytes_max)
                });
            return Err(PageFault::TooLarge { column, page_bytes, pages_bytes: least });
        }
        while row_count > 1 && at_once(row_count as u64) > BATCH_BYTES_MAX {
            row_count /= 2;
        }
    }
    Ok(BatchRows { most: row_count.max(1), are_counted })
}

impl Spans {
    /// Most bytes that a batch of `rows` rows may have of this column, wherever it begins.
    fn bytes_at_once(&self, rows: u64) -> u64 {
        let (mut most, mut bytes, mut end) = (0, 0_u64, 0);
        for (begin, page) in self.pages.iter().enumerate() {
            // The batch begins with the page's last row.
            let behind = page.first_row.saturating_add(page.row_count).saturating_add(rows - 1);
            while let Some(last) = self.pages.get(end)
                && (end <= begin || last.first_row < behind)
            {
                bytes = bytes.saturating_add(last.bytes);
                end += 1;
            }
            most = most.max(bytes);
            bytes = bytes.saturating_sub(page.bytes);
        }
        let of_rows = rows.saturating_mul(self.row_bytes);
        most.saturating_add(self.dictionary_bytes).saturating_add(of_rows)
    }
}

/// Walks the pages of one column of a row group.
fn spans(file: &Arc<File>, column: &ColumnChunkMetaData) -> Result<Spans, PageFault> {
    let damaged = || PageFault::Damaged(format!("pages of column {}", column.column_path()));
    let at = |offset: i64| u64::try_from(offset).map_err(|_| damaged());
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let mut position = at(start)?;
    let end = position.checked_add(at(column.compressed_size())?).ok_or_else(damaged)?;
    let value_count = at(column.num_values())?;
    let mut spans = Spans::default();
    if column.column_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY {
        // NULL takes as much as a value.
        spans.row_bytes = u64::try_from(column.column_descr().type_length()).unwrap_or(0);
    }
    let mut row = 0_u64;
    while row < value_count && position < end {
        let (header, length) = read_header(file, position, end)?.ok_or_else(damaged)?;
        let bytes = at(header.uncompressed_bytes)?;
        let body = position.checked_add(length as u64).ok_or_else(damaged)?;
        position = body.checked_add(at(header.compressed_bytes)?).ok_or_else(damaged)?;
        if position > end {
            return Err(damaged());
        }
        spans.page_bytes_max = spans.page_bytes_max.max(bytes);
        if header.kind == DICTIONARY_PAGE {
            spans.dictionary_bytes = bytes;
            continue;
        }
        let row_count = at(header.value_count)?;
        // The crate skips a page by its rows, and reads it by its values.
        spans.is_miscounted |= header.row_count.is_some_and(|rows| rows != header.value_count);
        spans.pages.push(Span { first_row: row, row_count, bytes });
        row = row.saturating_add(row_count);
        if matches!(header.encoding, PLAIN_DICTIONARY | RLE_DICTIONARY) && spans.row_bytes == 0 {
            // Read only where a page may be: its size is known.
            spans.row_bytes = match spans.page_bytes_max <= BATCH_BYTES_MAX {
                true => longest_entry(file, column)?,
                false => spans.page_bytes_max,
            };
        }
    }
    spans.row_count = row;
    Ok(spans)
}

/// The longest value of a column's dictionary, in bytes.
fn longest_entry(file: &Arc<File>, column: &ColumnChunkMetaData) -> Result<u64, PageFault> {
    let fixed = |bytes: u64| Ok(bytes);
    match column.column_type() {
        PhysicalType::BYTE_ARRAY => {}
        _ => return fixed(16),
    }
    let damaged = |error: ParquetError| PageFault::Damaged(error.to_string());
    let row_count = usize::try_from(column.num_values()).unwrap_or(0);
    let mut pages =
        SerializedPageReader::new(Arc::clone(file), column, row_count, None).map_err(damaged)?;
    let Some(Page::DictionaryPage { buf, .. }) = pages.get_next_page().map_err(damaged)? else {
        return fixed(0);
    };
    let mut rest: &[u8] = &buf;
    let mut longest = 0_u64;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        longest = longest.max(u64::from(length));
        let Some(next) = usize::try_from(length).ok().and_then(|length| behind.get(length..))
        else {
            break;
        };
        rest = next;
    }
    Ok(longest.max(16))
}

/// Whether `bytes` are a structure of Thrift, whose lists have the items that they count: the `parquet` crate takes
/// memory for as many row groups as a file claims to have.
pub(super) fn is_structure(bytes: &[u8]) -> bool {
    Thrift { rest: bytes }.skip(STRUCTURE, METADATA_DEPTH_MAX).is_some()
}

/// The header at `position`, and its length; None: there is no valid header.
fn read_header(
    file: &File,
    position: u64,
    end: u64,
) -> Result<Option<(PageHeader, usize)>, PageFault> {
    let left = usize::try_from(end - position).unwrap_or(usize::MAX).min(HEADER_BYTES_MAX);
    let mut size = HEADER_BYTES_FIRST.min(left);
    loop {
        let mut bytes = vec![0; size];
        match file.read_exact_at(&mut bytes, position) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(PageFault::Io(error)),
        }
        let mut thrift = Thrift { rest: &bytes };
        if let Some(header) = thrift.page_header() {
            return Ok(Some((header, size - thrift.rest.len())));
        }
        if size == left {
            return Ok(None);
        }
        size = size.saturating_mul(8).min(left);
    }
}

/// A reader of Thrift's compact protocol. None: the bytes end early, or are invalid.
struct Thrift<'a> {
    rest: &'a [u8],
}

impl Thrift<'_> {
    fn page_header(&mut self) -> Option<PageHeader> {
        let mut header = PageHeader::default();
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (1, 5) => header.kind = self.number()?,
                (2, 5) => header.uncompressed_bytes = self.number()?,
                (3, 5) => header.compressed_bytes = self.number()?,
                // A data page, of either version; the encoding is its second or its fourth field.
                (5, 12) => self.data_page(2, &mut header)?,
                (8, 12) => self.data_page(4, &mut header)?,
                _ => self.skip(kind, DEPTH_MAX)?,
            }
        }
        Some(header)
    }

    fn data_page(&mut self, encoding_field: i64, header: &mut PageHeader) -> Option<()> {
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (1, 5) => header.value_count = self.number()?,
                (3, 5) if encoding_field == 4 => header.row_count = Some(self.number()?),
                (at, 5) if at == encoding_field => header.encoding = self.number()?,
                _ => self.skip(kind, DEPTH_MAX)?,
            }
        }
        Some(())
    }

    /// The type of the next field, whose number goes to `field`; an inner None: the structure ends.
    fn field(&mut self, field: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *field = match byte >> 4 {
            0 => self.number()?,
            delta => field.checked_add(i64::from(delta))?,
        };
        Some(Some(byte & 0x0f))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            1 | 2 => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => self.pass(8)?,
            8 => {
                let length = self.varint()?;
                self.pass(length)?;
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                self.skip_items(count, &[head & 0x0f], depth)?;
            }
            11 => match self.varint()? {
                0 => {}
                count => {
                    let kinds = self.byte()?;
                    self.skip_items(count, &[kinds >> 4, kinds & 0x0f], depth)?;
                }
            },
            12 => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn skip_items(&mut self, count: u64, kinds: &[u8], depth: usize) -> Option<()> {
        for _ in 0..count {
            for kind in kinds {
                match kind {
                    // Within a list a boolean has a byte.
                    1 | 2 => drop(self.byte()?),
                    kind => self.skip(*kind, depth)?,
                }
            }
        }
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn pass(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for place in 0..10 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A zigzag number.
    fn number(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests;
