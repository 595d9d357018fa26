//! Writes a segment front to back: rows in, encoded pages out of one [`SegmentWriter`].
//!
//! 1. [`SegmentWriter::push`] finds how many of the next rows still fit the page (`PageFill`), keeps them as slices of
//!    the caller's batches, and encodes the page once it is full.
//! 2. Encoding joins the slices column by column, moves long values to overflow pages, picks each column's
//!    encoding, and copies the buffers to their places once.
//! 3. [`SegmentWriter::finish`] encodes the remaining rows. [`append_rows`] starts from the rows of an old last page.
//!
//! Invariants: pages come out in the order of their rows, and the overflow pages of a page before it. A logical number
//! is assigned once. Only a page of a single row exceeds the class's bytes. Memory is bounded by one page, the current
//! batch, and 64 MiB of long values (or one longer row).

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::concat;
use arrow::datatypes::{Schema, SchemaRef, UInt64Type};
use cleave_media::BLOCK_SIZE;

use crate::decode::{Projection, decode_batch};
use crate::error::StoreError;
use crate::ids::PAGE_MAX;
use crate::page::columns::{CommitColumn, Layout, ValueType, Versions, VidColumn};
use crate::page::encoding::{self, Effort, EncodedChunk, number};
use crate::page::header::{CHUNK_ALIGNMENT_MIN, Encoding, LIGHT_VERSION, PageHeader};
use crate::page::layout::{PageIdentity, PlacedChunk, lay_out};
use crate::page::overflow::{ENTRY_BYTES, OverflowValues, PAYLOAD_BYTES_MAX};
use crate::page::{EncodedPage, PAGE_BYTES_MAX, PAGE_ROW_COUNT_MAX, PageClass, PageKind};
use crate::page_source::{ColumnRef, PageColumns, PageRead, SegmentRef};
use crate::schema::TableSchema;
use crate::zone_map::ZoneEntry;

/// Most bytes of long values that the rows of one page may have, unless one row has more.
const LONG_BYTES_MAX: u64 = 64 << 20;
/// Longest value: PostgreSQL's limit, and far below the limit of an Arrow offset.
const VALUE_BYTES_MAX: u32 = 1 << 30;

/// Turns rows into the pages of one segment.
#[derive(Debug)]
pub struct SegmentWriter {
    segment: SegmentRef,
    kind: PageKind,
    class: PageClass,
    /// In declared order.
    schema: SchemaRef,
    columns: Vec<UserColumn>,
    /// Logical number of the next heap page if it is not `next_page`: an old page is being rewritten.
    rewritten_page: Option<u32>,
    next_page: u32,
    /// Logical number above those that it may give.
    page_end: u32,
    next_vid: u64,
    pending: Vec<PendingRows>,
    fill: PageFill,
}

/// The last page of a hot segment, read with all columns ([`crate::page::all_columns`]).
#[derive(Debug, Clone, Copy)]
pub struct Tail<'a> {
    /// The read request.
    pub read: &'a PageRead,
    /// Its result.
    pub columns: &'a PageColumns,
}

#[derive(Debug, Clone, Copy)]
struct UserColumn {
    id: u32,
    value_type: ValueType,
}

/// Rows of the page that is not full yet.
#[derive(Debug)]
struct PendingRows {
    batch: RecordBatch,
    versions: Versions,
}

/// Adds rows to a hot segment: the old rows of its last page and `rows` in, pages out.
///
/// If the tail page has room, the first heap page of the result has its logical number and begins with its rows in
/// their slots; it replaces the old page, at a new place. All other pages are numbered from `next_page` on. A tail page
/// with long values is not rewritten, as they would have to be written again: new rows start a new page.
///
/// # Errors
/// [`StoreError::Mismatch`] for rows that do not fit the schema or a tail that was not read with all columns,
/// [`StoreError::Corrupt`] for a tail that does not decode.
pub fn append_rows(
    segment: SegmentRef,
    schema: &TableSchema,
    class: PageClass,
    tail: Option<Tail<'_>>,
    next_page: u32,
    rows: &RecordBatch,
    versions: Versions,
) -> Result<Vec<EncodedPage>, StoreError> {
    let mut writer = SegmentWriter::new(segment, schema, class, next_page, 0)?;
    let mut kept = None;
    if let Some(tail) = tail {
        let header = &tail.columns.header;
        let overflows = header.chunks.iter().any(|chunk| chunk.overflow_count > 0);
        if !overflows && header.row_count < class.row_count_max {
            let old = writer.decode_tail(tail)?;
            writer.rewritten_page = Some(header.page);
            // Rows that fitted once fit again, in one page, unless the class has shrunk, or their version columns were
            // not charged when they were written (those of a bulk load): then the old page stays as it is.
            if !writer.push_versions(&old.batch, old.versions)?.is_empty() {
                writer = SegmentWriter::new(segment, schema, class, next_page, 0)?;
            } else {
                kept = Some(header.row_count);
            }
        }
    }
    let mut pages = writer.push_versions(rows, versions)?;
    pages.extend(writer.finish()?);
    // A tail without room for even one more row came out unchanged.
    let unchanged = kept.zip(pages.first()).is_some_and(|(count, page)| page.row_count == count);
    if unchanged {
        pages.remove(0);
    }
    Ok(pages)
}

impl SegmentWriter {
    /// A writer of heap pages numbered from `first_page` on; rows pushed without versions get VIDs from
    /// `first_vid` on and the segment's commit number.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for a schema of another table or version, or a class that no page can have.
    pub fn new(
        segment: SegmentRef,
        schema: &TableSchema,
        class: PageClass,
        first_page: u32,
        first_vid: u64,
    ) -> Result<Self, StoreError> {
        if (schema.table_id, schema.version) != (segment.table_id, segment.schema_version) {
            return Err(mismatch(format!(
                "{} is of table {} in schema version {}, the rows are of table {} in version {}",
                segment.segment,
                segment.table_id,
                segment.schema_version,
                schema.table_id,
                schema.version
            )));
        }
        let ids: Vec<u32> = schema.columns.iter().map(|column| column.id).collect();
        let writer = Self::of_columns(segment, &schema.arrow(), &ids, class, first_page)?;
        Ok(Self { next_vid: first_vid, ..writer })
    }

    /// A writer of heap pages numbered from `first_page` on, with the columns of `schema`, whose stable ids are `ids`.
    ///
    /// # Errors
    /// As [`SegmentWriter::new`].
    pub fn of_columns(
        segment: SegmentRef,
        schema: &SchemaRef,
        ids: &[u32],
        class: PageClass,
        first_page: u32,
    ) -> Result<Self, StoreError> {
        let alignment = class.chunk_alignment;
        let sound = alignment.is_power_of_two()
            && (CHUNK_ALIGNMENT_MIN..=4096).contains(&alignment)
            && (1..=PAGE_ROW_COUNT_MAX).contains(&class.row_count_max)
            && (4096..=PAGE_BYTES_MAX).contains(&class.page_bytes);
        if !sound {
            return Err(mismatch(format!("pages cannot be of {class:?}")));
        }
        let mut columns = Vec::with_capacity(ids.len());
        for (field, id) in schema.fields().iter().zip(ids) {
            let data_type = field.data_type();
            let value_type = ValueType::from_arrow(data_type)
                .ok_or_else(|| mismatch(format!("pages have no type for {data_type}")))?;
            columns.push(UserColumn { id: *id, value_type });
        }
        let fill = PageFill::empty(columns.len());
        Ok(Self {
            segment,
            kind: PageKind::Heap,
            class,
            schema: SchemaRef::clone(schema),
            columns,
            rewritten_page: None,
            next_page: first_page,
            page_end: PAGE_MAX.saturating_add(1),
            next_vid: 0,
            pending: Vec::new(),
            fill,
        })
    }

    /// The same writer, of pages of another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: PageKind) -> Self {
        self.kind = kind;
        self
    }

    /// The same writer, whose pages have logical numbers below `page_end`: it is full when it has given them.
    #[must_use]
    pub fn with_pages_below(self, page_end: u32) -> Self {
        Self { page_end: page_end.min(self.page_end), ..self }
    }

    /// Logical number that the next new page gets.
    #[must_use]
    pub fn next_page(&self) -> u32 {
        self.next_page
    }

    /// VID that the next row gets when pushed without versions.
    #[must_use]
    pub fn next_vid(&self) -> u64 {
        self.next_vid
    }

    /// Adds rows of one load run; returns the pages that became full.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for columns that are not the schema's, [`StoreError::OutOfRange`] for a value of
    /// more than 1 GiB or a segment that is full.
    pub fn push(&mut self, rows: &RecordBatch) -> Result<Vec<EncodedPage>, StoreError> {
        let first = self.next_vid;
        self.push_versions(rows, Versions::loaded(first))
    }

    /// Adds rows with their version columns; returns the pages that became full.
    ///
    /// # Errors
    /// As [`SegmentWriter::push`], and [`StoreError::Mismatch`] for version columns that do not fit the rows.
    pub fn push_versions(
        &mut self,
        rows: &RecordBatch,
        versions: Versions,
    ) -> Result<Vec<EncodedPage>, StoreError> {
        self.check_types(rows)?;
        versions.check(rows.num_rows())?;
        if let VidColumn::Sequence { first } = versions.vid {
            self.next_vid = first.saturating_add(rows.num_rows() as u64);
        }
        let mut pages = Vec::new();
        let sizes = RowSizes::of(rows, &versions, &self.columns, self.class.inline_bytes_max())?;
        let mut from = 0;
        while from < rows.num_rows() {
            let to = self.fitting(&sizes, from, rows.num_rows());
            if to == from {
                pages.extend(self.encode_pending()?);
                continue;
            }
            self.fill.add(&sizes, from, to);
            self.pending.push(PendingRows {
                batch: rows.slice(from, to - from),
                versions: versions.slice(from, to),
            });
            from = to;
        }
        Ok(pages)
    }

    /// Encodes the rows that are still pending.
    ///
    /// # Errors
    /// As [`SegmentWriter::push`].
    pub fn finish(mut self) -> Result<Vec<EncodedPage>, StoreError> {
        self.encode_pending()
    }

    fn check_types(&self, rows: &RecordBatch) -> Result<(), StoreError> {
        let found = rows.columns().iter().map(|column| column.data_type());
        let expected = self.schema.fields().iter().map(|field| field.data_type());
        if found.clone().eq(expected.clone()) {
            return Ok(());
        }
        Err(StoreError::Mismatch {
            what: "writing rows",
            reason: format!(
                "columns of types {:?} where the table has {:?}",
                found.collect::<Vec<_>>(),
                expected.collect::<Vec<_>>()
            ),
        })
    }

    /// The end of the rows from `from` on that fit the current page: `from` if none does and the page is not empty.
    fn fitting(&self, sizes: &RowSizes<'_>, from: usize, row_count: usize) -> usize {
        let fits = |to: usize| self.fill.fits(sizes, from, to, &self.class);
        if fits(row_count) {
            return row_count;
        }
        // The largest fitting end lies in low..high.
        let (mut low, mut high) = (from, row_count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        if low == from && self.fill.rows == 0 { from + 1 } else { low }
    }

    fn take_page_number(&mut self, count: u32) -> Result<u32, StoreError> {
        let first = self.next_page;
        match first.checked_add(count) {
            Some(next) if next <= self.page_end => {
                self.next_page = next;
                Ok(first)
            }
            _ => Err(StoreError::OutOfRange {
                what: "page",
                value: u64::from(first) + u64::from(count),
                max: u64::from(self.page_end.saturating_sub(1)),
            }),
        }
    }

    /// Encodes the page of the pending rows, its overflow pages first; nothing if there are none.
    fn encode_pending(&mut self) -> Result<Vec<EncodedPage>, StoreError> {
        let pending = std::mem::take(&mut self.pending);
        self.fill = PageFill::empty(self.columns.len());
        let Some((batches, versions)) = join_versions(pending)? else {
            return Ok(Vec::new());
        };
        let row_count = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        let mut pages = Vec::new();
        let mut chunks = Vec::with_capacity(self.columns.len() + 2);
        let mut zones = Vec::with_capacity(self.columns.len());
        let rewritten = self.rewritten_page.take();
        let effort = Effort {
            inline_bytes_max: self.class.inline_bytes_max(),
            light: self.class.has_light_encodings(),
        };
        for (index, column) in self.columns.clone().into_iter().enumerate() {
            let array = join_column(&batches, index)?;
            // An index run knows its first and last key, and sets them uncut.
            if self.kind != PageKind::IndexRun {
                zones.push(ZoneEntry::of(column.id, &array));
            }
            let reference = ColumnRef::User(column.id);
            let (mut chunk, long) = encoding::encode(reference, column.value_type, &array, effort)?;
            if let Some(long) = long {
                let count = number(long.bytes.len().div_ceil(PAYLOAD_BYTES_MAX), "page")?;
                let first = self.take_page_number(count)?;
                chunk.base = u64::from(first) | u64::from(count) << 32;
                pages.extend(long.encode_pages(&self.segment, reference, first)?);
            }
            chunks.push(chunk);
        }
        let overflow_count = number(pages.len(), "page")?;
        let overflow_first = pages.first().map_or(0, |page: &EncodedPage| page.page);
        let page = match rewritten {
            Some(page) => page,
            None => self.take_page_number(1)?,
        };
        // Pages of an index run have VIDs in the order of their keys, which are not taken for a sequence.
        let versions =
            if self.kind == PageKind::IndexRun { versions } else { versions.in_sequence() };
        let vid_first = versions.vid_first().unwrap_or(0);
        chunks.extend(version_chunks(versions, effort)?);
        let identity = PageIdentity {
            segment: self.segment,
            kind: self.kind,
            page,
            row_count: number(row_count, "row count")?,
        };
        let chunks = chunks.into_iter().map(PlacedChunk::Encoded).collect();
        let alignment = encoding::size_of(self.class.chunk_alignment);
        let (bytes, header_checksum) = lay_out(identity, alignment, chunks)?;
        pages.push(EncodedPage {
            page,
            kind: self.kind,
            bytes,
            row_count: identity.row_count,
            checksum: header_checksum,
            vid_first,
            zones,
            overflow_first_count: (overflow_first, overflow_count),
        });
        Ok(pages)
    }

    fn decode_tail(&self, tail: Tail<'_>) -> Result<PendingRows, StoreError> {
        let version_columns = [ColumnRef::Vid, ColumnRef::Commit];
        let user = self.columns.iter().map(|column| ColumnRef::User(column.id));
        let overflow = OverflowValues::none();
        let decoded = |columns: Vec<ColumnRef>, schema: SchemaRef| {
            let projection = Projection::new(schema, columns);
            decode_batch(tail.columns, tail.read, &projection, None, &overflow)
        };
        let batch = decoded(user.collect(), SchemaRef::clone(&self.schema))?;
        let fields = version_columns.map(Projection::version_field);
        let versions = decoded(
            version_columns.to_vec(),
            SchemaRef::new(Schema::new(fields.into_iter().flatten().collect::<Vec<_>>())),
        )?;
        let numbers =
            |index: usize| versions.column(index).as_primitive::<UInt64Type>().values().to_vec();
        // A sequence takes no bytes, and is charged none only while it is known to be one. A single VID is a sequence.
        let vids = tail.columns.header.entry(ColumnRef::Vid);
        let sequence = vids.filter(|entry| match entry.encoding {
            Encoding::Sequence => true,
            Encoding::Constant => tail.columns.header.row_count == 1,
            _ => false,
        });
        let vid = match sequence {
            Some(entry) => VidColumn::Sequence { first: entry.base },
            None => VidColumn::Each(numbers(0)),
        };
        let versions = Versions { vid, commit: CommitColumn::Each(numbers(1)) };
        Ok(PendingRows { batch, versions })
    }
}

/// Contents of the current page so far.
#[derive(Debug)]
struct PageFill {
    rows: u64,
    long_bytes: u64,
    /// VID that keeps the VIDs a sequence; None if they are none already.
    next_vid: Option<u64>,
    /// Whether commit numbers may take bytes.
    commits: bool,
    /// Per user column.
    columns: Vec<ColumnFill>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ColumnFill {
    data_bytes: u64,
    long_count: u64,
    nullable: bool,
}

impl PageFill {
    fn empty(column_count: usize) -> Self {
        Self {
            rows: 0,
            long_bytes: 0,
            next_vid: None,
            commits: false,
            columns: vec![ColumnFill::default(); column_count],
        }
    }

    fn add(&mut self, sizes: &RowSizes<'_>, from: usize, to: usize) {
        self.next_vid = sizes
            .vid(from)
            .filter(|vid| self.rows == 0 || self.next_vid == Some(*vid))
            .and_then(|_| sizes.vid(to));
        self.rows += (to - from) as u64;
        for (fill, size) in self.columns.iter_mut().zip(&sizes.columns) {
            let (inline, long, long_count) = size.bytes.between(from, to);
            fill.data_bytes += inline;
            fill.long_count += long_count;
            fill.nullable |= size.nullable;
            self.long_bytes += long;
        }
        self.commits |= sizes.commits;
    }

    /// Whether the page with these further rows stays within its class. An upper bound: columns may turn out to need no
    /// bytes.
    fn fits(&self, sizes: &RowSizes<'_>, from: usize, to: usize, class: &PageClass) -> bool {
        let rows = self.rows + (to - from) as u64;
        let alignment = u64::from(class.chunk_alignment);
        let mut end = PageHeader::length_for(LIGHT_VERSION, self.columns.len() + 2) as u64;
        let mut long_bytes = self.long_bytes;
        let mut add = |bytes: u64| end = end.next_multiple_of(alignment) + bytes;
        for (fill, size) in self.columns.iter().zip(&sizes.columns) {
            let (inline, long, long_count) = size.bytes.between(from, to);
            long_bytes += long;
            let validity = if fill.nullable || size.nullable { rows.div_ceil(8) } else { 0 };
            let validity = validity.next_multiple_of(64);
            add(validity
                + match size.layout {
                    Layout::Bits => rows.div_ceil(8),
                    Layout::Fixed(width) => rows * width as u64,
                    Layout::Bytes => {
                        let table = (fill.long_count + long_count) * ENTRY_BYTES as u64;
                        ((rows + 1) * 4).next_multiple_of(64)
                            + table.next_multiple_of(64)
                            + fill.data_bytes
                            + inline
                    }
                });
        }
        let vid = sizes.vid(from).filter(|vid| self.rows == 0 || self.next_vid == Some(*vid));
        if vid.is_none() {
            add(rows * 8);
        }
        if self.commits || sizes.commits {
            add(rows * 8);
        }
        let bytes_max = class.bytes_max(end, rows, self.columns.len() as u64);
        rows <= u64::from(class.row_count_max)
            && end.next_multiple_of(BLOCK_SIZE as u64) <= bytes_max
            && long_bytes <= LONG_BYTES_MAX
    }
}

/// Sizes of the rows of a batch in a page.
struct RowSizes<'a> {
    columns: Vec<ColumnSize<'a>>,
    /// VID of row 0, if VIDs are a sequence.
    vid_first: Option<u64>,
    /// Whether commit numbers may take bytes.
    commits: bool,
}

struct ColumnSize<'a> {
    layout: Layout,
    nullable: bool,
    bytes: ByteSizes<'a>,
}

/// Bytes of variable-width values, summed up to each row.
enum ByteSizes<'a> {
    None,
    /// All are short: Arrow's offsets.
    Offsets(&'a [i32]),
    /// Bytes in line, bytes that overflow, and the number of overflowing values.
    Sums(Vec<(u64, u64, u64)>),
}

impl<'a> RowSizes<'a> {
    fn of(
        rows: &'a RecordBatch,
        versions: &Versions,
        columns: &[UserColumn],
        inline_bytes_max: u32,
    ) -> Result<Self, StoreError> {
        let columns = rows.columns().iter().zip(columns).map(|(array, column)| {
            let offsets: Option<&[i32]> = match column.value_type {
                ValueType::Utf8 => Some(array.as_string::<i32>().value_offsets()),
                ValueType::Binary => Some(array.as_binary::<i32>().value_offsets()),
                _ => None,
            };
            Ok(ColumnSize {
                layout: column.value_type.layout(),
                nullable: array.null_count() > 0,
                bytes: offsets.map_or(Ok(ByteSizes::None), |offsets| {
                    ByteSizes::of(array, offsets, inline_bytes_max)
                })?,
            })
        });
        Ok(Self {
            columns: columns.collect::<Result<_, StoreError>>()?,
            vid_first: match versions.vid {
                VidColumn::Sequence { first } => Some(first),
                VidColumn::Each(_) => None,
            },
            commits: matches!(versions.commit, CommitColumn::Each(_)),
        })
    }

    /// VID of a row, if VIDs are a sequence.
    fn vid(&self, row: usize) -> Option<u64> {
        self.vid_first.map(|first| first.wrapping_add(row as u64))
    }
}

impl<'a> ByteSizes<'a> {
    fn of(array: &ArrayRef, offsets: &'a [i32], inline_bytes_max: u32) -> Result<Self, StoreError> {
        let lengths = offsets.iter().zip(offsets.iter().skip(1)).map(|(from, to)| to - from);
        let longest = lengths.clone().max().unwrap_or(0).unsigned_abs();
        if longest > VALUE_BYTES_MAX {
            return Err(StoreError::OutOfRange {
                what: "bytes of a value",
                value: u64::from(longest),
                max: u64::from(VALUE_BYTES_MAX),
            });
        }
        if longest <= inline_bytes_max {
            return Ok(Self::Offsets(offsets));
        }
        let mut sum = (0, 0, 0);
        let mut sums = vec![sum];
        for (row, length) in lengths.enumerate() {
            let length = length.unsigned_abs();
            if length <= inline_bytes_max {
                sum.0 += u64::from(length);
            } else if array.is_valid(row) {
                sum.1 += u64::from(length);
                sum.2 += 1;
            }
            sums.push(sum);
        }
        Ok(Self::Sums(sums))
    }

    /// Bytes in line, bytes that overflow, and the number of overflowing values, of rows `from..to`.
    fn between(&self, from: usize, to: usize) -> (u64, u64, u64) {
        match self {
            Self::None => (0, 0, 0),
            Self::Offsets(offsets) => {
                let at = |row: usize| offsets.get(row).map_or(0, |at| u64::from(at.unsigned_abs()));
                (at(to).saturating_sub(at(from)), 0, 0)
            }
            Self::Sums(sums) => {
                let at = |row: usize| sums.get(row).copied().unwrap_or_default();
                let (low, high) = (at(from), at(to));
                (high.0 - low.0, high.1 - low.1, high.2 - low.2)
            }
        }
    }
}

/// Joins the batches of pending rows and their version columns; None if there are no rows.
fn join_versions(
    pending: Vec<PendingRows>,
) -> Result<Option<(Vec<RecordBatch>, Versions)>, StoreError> {
    let mut batches = Vec::with_capacity(pending.len());
    let mut joined: Option<(usize, Versions)> = None;
    for rows in pending {
        let count = rows.batch.num_rows();
        joined = Some(match joined {
            None => (count, rows.versions),
            Some((before, versions)) => {
                (before + count, versions.extend(before, rows.versions, count)?)
            }
        });
        batches.push(rows.batch);
    }
    Ok(joined.map(|(_, versions)| (batches, versions)))
}

fn join_column(batches: &[RecordBatch], index: usize) -> Result<ArrayRef, StoreError> {
    match batches {
        [one] => Ok(ArrayRef::clone(one.column(index))),
        many => {
            let parts: Vec<&dyn Array> =
                many.iter().map(|batch| batch.column(index).as_ref()).collect();
            Ok(concat(&parts)?)
        }
    }
}

/// The chunks of the version columns.
fn version_chunks(versions: Versions, effort: Effort) -> Result<Vec<EncodedChunk>, StoreError> {
    let numbers = |column, values: Vec<u64>| {
        encoding::encode(column, ValueType::UInt64, &UInt64Array::from(values), effort)
            .map(|(chunk, _)| chunk)
    };
    let without = EncodedChunk::without_bytes;
    Ok(vec![
        match versions.vid {
            VidColumn::Sequence { first } => {
                without(ColumnRef::Vid, ValueType::UInt64, Encoding::Sequence, first)
            }
            VidColumn::Each(vids) => numbers(ColumnRef::Vid, vids)?,
        },
        match versions.commit {
            CommitColumn::Segment => {
                without(ColumnRef::Commit, ValueType::UInt64, Encoding::FromSegment, 0)
            }
            CommitColumn::Each(commits) => numbers(ColumnRef::Commit, commits)?,
        },
    ])
}

fn mismatch(reason: String) -> StoreError {
    StoreError::Mismatch { what: "writing a segment", reason }
}

#[cfg(test)]
mod tests;
