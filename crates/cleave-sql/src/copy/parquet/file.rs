//! An open Parquet file: its metadata, the statistics of its row groups, and the rows of some of its columns.
//!
//! The `parquet` crate panics on some damaged files, where a length in the metadata turns negative. Reading must not
//! end the process, so such a panic is caught here and becomes an error; the reader is not used after it.
//!
//! A batch has about [`BATCH_BYTES`]. The number of rows comes from the file's statistics of each row group, if the
//! writer recorded the lengths of dictionary-encoded values. Otherwise it is measured: the first batch is small, and if
//! a later one is far from the measure, the reader restarts behind it with another batch size. A query reads batches of
//! its own size ([`ParquetColumns::of_rows`]), which is no larger than that of the first where pages bound it: it
//! seldom restarts. Where pages bound it, a query may also read windows of a row group ([`ParquetFile::windows`]): each
//! is one batch, whatever it holds, and no reader restarts.
//!
//! Decimals that a file has in 32 or 64 bits are handed over as wide: whoever needs few of them makes only these wider.
//!
//! Regardless of a file's statistics, the headers of its pages limit the rows of a batch
//! ([`page_sizes`](super::page_sizes)). A file whose pages do not fit in memory is refused before any is decompressed.
//!
//! Several threads may read one file: each opens it for itself. A file is open only while it is looked at or read,
//! since a statement may name more files than a process may hold open. One that has changed between is refused.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{
    DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DataType, Field, FieldRef, Fields, Schema,
    TimeUnit,
};
use bytes::Bytes;
use cleave_catalog::error::{Error, Result};
use datafusion::error::DataFusionError;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy, RowSelector,
};
use parquet::basic::{Encoding, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::schema::types::TypePtr;

use super::page_index::page_bounds;
use super::page_sizes::{PageFault, is_structure, rows_per_batch};
use crate::copy::memory::InputMemory;

/// Most rows of one batch.
pub const BATCH_ROWS_MAX: usize = 65_536;
/// Rows of the first batch, whose size is measured.
const BATCH_ROWS_FIRST: usize = 1024;
/// The same of a query, where the pages bound the size of any batch.
const BATCH_ROWS_BOUNDED: usize = 8192;
/// Approximate bytes of one batch.
const BATCH_BYTES: usize = 8 << 20;
/// The share of a reader's pages that metadata as it is written may have: in memory it is several times as long.
const METADATA_SHARE: u64 = 8;
/// The end of a file: the length of its metadata, and the format's name.
const END_BYTES: usize = 8;
/// The crate's message, in an error or a panic, for a batch whose text is longer than an array can hold.
const OVERFLOW: &str = "index overflow decoding byte array";

/// A file with its metadata.
#[derive(Debug, Clone)]
pub struct ParquetFile {
    path: PathBuf,
    identity: Identity,
    metadata: ArrowReaderMetadata,
}

/// By what a file is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
    bytes: u64,
    /// When it was changed, in seconds and nanoseconds.
    changed: (i64, i64),
}

/// Least and greatest values of a column in each row group, as far as they are known.
#[derive(Debug, Clone)]
pub struct GroupBounds {
    /// The least.
    pub mins: ArrayRef,
    /// The greatest.
    pub maxes: ArrayRef,
    /// NULLs.
    pub null_counts: UInt64Array,
}

/// Least and greatest values of a column in each page of a row group.
#[derive(Debug, Clone)]
pub struct PageBounds {
    /// The least; NULL where it is not known, and in a page of NULLs.
    pub mins: ArrayRef,
    /// The greatest, likewise.
    pub maxes: ArrayRef,
    /// The first row of each page in the row group: 0, and then always a later one.
    pub first_rows: Vec<usize>,
}

/// Columns that are read together.
#[derive(Debug, Clone)]
pub struct ParquetColumns {
    /// For each, its place in the reader's batches, which have the file's order.
    places: Vec<usize>,
    mask: ProjectionMask,
    /// Rows that a batch has at most.
    batch_rows_max: usize,
    /// Rows of the first batch.
    batch_rows_first: usize,
    /// The pages bound the size of any batch.
    is_bounded: bool,
    /// The pages have as many values as the row groups have rows.
    are_counted: bool,
}

/// Rows of some columns and row groups.
pub struct ParquetRows {
    file: ParquetFile,
    source: Arc<File>,
    columns: ParquetColumns,
    /// The row groups, in their order.
    groups: Vec<usize>,
    /// Only these rows of the row group are read.
    windows: Option<Windows>,
    /// None after the end, and after an error.
    reader: Option<ParquetRecordBatchReader>,
    batch_rows: usize,
    /// Rows returned so far.
    rows_given: usize,
    row_count: usize,
}

/// Stretches of rows of a row group, each of which is one batch.
struct Windows {
    selection: RowSelection,
    /// The rows of those that are not read yet.
    row_counts: VecDeque<usize>,
}

impl ParquetFile {
    /// Opens a file and reads its metadata.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::InputSchema`] for a file that is no Parquet; SQLSTATE 53200 for one whose metadata does
    /// not fit in `memory`.
    pub fn open(path: &Path, memory: InputMemory) -> Result<Self> {
        let (file, identity) = opened(path)?;
        let length = metadata_bytes(&file, identity.bytes);
        let length = length.map_err(|source| Error::io("read", path, source))?.unwrap_or(0);
        let length_max = memory.pages_bytes / METADATA_SHARE;
        if length > length_max {
            return Err(Error::from(DataFusionError::ResourcesExhausted(format!(
                "{}: its metadata has {length} bytes, and {length_max} are allowed: a sixteenth of --query-memory",
                path.display()
            ))));
        }
        let is_whole = has_whole_metadata(&file, identity.bytes, length);
        if !is_whole.map_err(|source| Error::io("read", path, source))? {
            return Err(wrong(path, "the file is damaged: its metadata ends early".to_owned()));
        }
        // The Arrow schema that Arrow's writers embed contains nothing that Cleave needs, and Arrow's reader of it
        // panics if it is damaged.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let placed = Placed(file);
        let load = || in_own_types(ArrowReaderMetadata::load(&placed, options)?);
        let metadata = guarded(path, load)?.map_err(|error| damaged(path, &error))?;
        Ok(Self { path: path.to_owned(), identity, metadata })
    }

    /// The file, opened again.
    fn source(&self) -> Result<Arc<File>> {
        let (file, identity) = opened(&self.path)?;
        if identity != self.identity {
            let message = "the file has changed since its columns were read";
            return Err(wrong(&self.path, message.to_owned()));
        }
        Ok(file)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its columns.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        self.metadata.schema().fields()
    }

    /// Bytes that its metadata takes in memory, about.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        u64::try_from(self.metadata.metadata().memory_size()).unwrap_or(u64::MAX)
    }

    /// Rows of all row groups.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// The rows of each row group.
    pub fn group_rows(&self) -> impl ExactSizeIterator<Item = usize> {
        let groups = self.metadata.metadata().row_groups().iter();
        groups.map(|group| usize::try_from(group.num_rows()).unwrap_or(0))
    }

    /// What the metadata says of the values of the column at `root`; None: nothing that can be used.
    #[must_use]
    pub fn bounds(&self, root: usize) -> Option<GroupBounds> {
        let schema = self.metadata.schema();
        let field = schema.fields().get(root)?;
        let groups = || self.metadata.metadata().row_groups().iter();
        let read = || -> std::result::Result<GroupBounds, ParquetError> {
            let (name, columns) = (field.name(), self.metadata.parquet_schema());
            let converter = StatisticsConverter::try_new(name, schema, columns)?
                .with_missing_null_counts_as_zero(false);
            Ok(GroupBounds {
                mins: converter.row_group_mins(groups())?,
                maxes: converter.row_group_maxes(groups())?,
                null_counts: converter.row_group_null_counts(groups())?,
            })
        };
        guarded(&self.path, read).ok()?.ok()
    }

    /// What the file's index says of the pages of the columns at `roots` in `group`; None: nothing that can be used.
    #[must_use]
    pub fn page_bounds(&self, group: usize, roots: &[usize]) -> Option<Vec<Option<PageBounds>>> {
        let columns = self.metadata.metadata().row_groups().get(group)?.columns();
        let has_index = columns.iter().all(|column| column.offset_index_offset().is_some());
        let file = has_index.then(|| self.source().ok()).flatten()?;
        guarded(&self.path, || page_bounds(&file, &self.metadata, group, roots)).ok()?
    }

    /// The columns at `roots`, to be read in this order from `groups`.
    ///
    /// # Errors
    /// [`Error::InputSchema`] for a file that is damaged or has changed; SQLSTATE 53200 for one whose pages do not fit
    /// in `memory`.
    pub fn columns(
        &self,
        roots: &[usize],
        groups: &[usize],
        memory: InputMemory,
    ) -> Result<ParquetColumns> {
        let mut sorted = roots.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let places = roots.iter().filter_map(|root| sorted.binary_search(root).ok()).collect();
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), roots.iter().copied());
        let file = self.source()?;
        let all = self.metadata.metadata().row_groups();
        let groups: Vec<_> = groups.iter().filter_map(|place| all.get(*place)).collect();
        let by_size = guarded(&self.path, || rows_by_size(&groups, &mask))?;
        let of_pages = guarded(&self.path, || {
            rows_per_batch(&file, &groups, &mask, by_size, memory.pages_bytes)
        })?
        .map_err(|fault| refused(&self.path, fault, memory))?;
        let is_bounded = guarded(&self.path, || are_bounded(&groups, &mask))?;
        Ok(ParquetColumns {
            places,
            mask,
            batch_rows_max: of_pages.most,
            batch_rows_first: BATCH_ROWS_FIRST,
            is_bounded,
            are_counted: of_pages.are_counted,
        })
    }

    /// The rows of `columns` in `groups`.
    ///
    /// # Errors
    /// [`Error::InputSchema`] for a file that is damaged or has changed.
    pub fn rows(&self, columns: ParquetColumns, groups: Vec<usize>) -> Result<ParquetRows> {
        let all: Vec<usize> = self.group_rows().collect();
        let row_count = groups.iter().filter_map(|place| all.get(*place).copied());
        let mut rows = ParquetRows {
            file: self.clone(),
            source: self.source()?,
            batch_rows: columns.batch_rows_max.min(columns.batch_rows_first),
            columns,
            row_count: row_count.fold(0, usize::saturating_add),
            groups,
            windows: None,
            reader: None,
            rows_given: 0,
        };
        rows.begin()?;
        Ok(rows)
    }

    /// The rows of `columns` in `group`, which is divided into windows of `window_rows` rows, at most
    /// [`ParquetColumns::steady_rows`]; the last one may have fewer. Those that are `wanted` come as one batch each. Of
    /// pages without any of their rows only headers are read.
    ///
    /// # Errors
    /// [`Error::InputSchema`] for a file that is damaged or has changed.
    pub fn windows(
        &self,
        columns: ParquetColumns,
        group: usize,
        window_rows: usize,
        wanted: &[bool],
    ) -> Result<ParquetRows> {
        let mut left = self.group_rows().nth(group).unwrap_or(0);
        let (mut selectors, mut row_counts) = (Vec::with_capacity(wanted.len()), VecDeque::new());
        for is_wanted in wanted {
            let row_count = window_rows.min(left);
            left -= row_count;
            selectors.push(match *is_wanted {
                true => RowSelector::select(row_count),
                false => RowSelector::skip(row_count),
            });
            if *is_wanted && row_count > 0 {
                row_counts.push_back(row_count);
            }
        }
        let mut rows = ParquetRows {
            file: self.clone(),
            source: self.source()?,
            batch_rows: window_rows,
            columns,
            row_count: row_counts.iter().copied().fold(0, usize::saturating_add),
            groups: vec![group],
            windows: Some(Windows { selection: RowSelection::from(selectors), row_counts }),
            reader: None,
            rows_given: 0,
        };
        rows.begin()?;
        Ok(rows)
    }
}

impl ParquetColumns {
    /// The same in batches of at most so many rows, from the first on if the file's pages allow it.
    #[must_use]
    pub fn of_rows(mut self, batch_rows: usize) -> Self {
        self.batch_rows_max = self.batch_rows_max.min(batch_rows.max(1));
        if self.is_bounded {
            self.batch_rows_first = BATCH_ROWS_BOUNDED;
        }
        self
    }

    /// Rows that a window may have whatever it holds; None: batches are measured, or pages cannot be skipped.
    #[must_use]
    pub fn steady_rows(&self) -> Option<usize> {
        let is_steady = self.is_bounded && self.are_counted;
        is_steady.then(|| self.batch_rows_max.min(self.batch_rows_first))
    }
}

impl ParquetRows {
    /// Reads on in batches of so many rows, whatever their size.
    #[cfg(test)]
    pub(super) fn in_batches_of(&mut self, batch_rows: usize) -> Result<()> {
        self.batch_rows = batch_rows;
        self.begin()
    }

    /// Continues behind the rows returned so far, in batches of `batch_rows`.
    fn begin(&mut self) -> Result<()> {
        let metadata = &self.file.metadata;
        // Row groups that were read completely are left out, so that none of their bytes are read to be skipped.
        let mut offset = self.rows_given;
        let mut groups = Vec::new();
        for place in &self.groups {
            let group = metadata.metadata().row_groups().get(*place);
            let rows = group.map_or(0, |group| usize::try_from(group.num_rows()).unwrap_or(0));
            if groups.is_empty() && offset >= rows {
                offset -= rows;
            } else {
                groups.push(*place);
            }
        }
        let path = &self.file.path;
        let reader = guarded(path, || {
            let placed = Placed(Arc::clone(&self.source));
            let builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(placed, metadata.clone())
                    .with_projection(self.columns.mask.clone())
                    .with_row_groups(groups)
                    .with_batch_size(self.batch_rows);
            match &self.windows {
                None => builder.with_offset(offset).build(),
                // The other way to leave rows out reads all up to the last row of a batch before it leaves any out.
                Some(windows) => builder
                    .with_row_selection(windows.selection.clone())
                    .with_row_selection_policy(RowSelectionPolicy::Selectors)
                    .build(),
            }
        })?;
        self.reader = Some(reader.map_err(|error| damaged(path, &error))?);
        Ok(())
    }

    /// The next rows, at least one and at most 65,536, and of some 8 MiB: its columns as the file has them, and their
    /// number. None at the end.
    ///
    /// # Errors
    /// [`Error::InputSchema`] for a damaged file.
    pub fn next_columns(&mut self) -> Result<Option<(Vec<ArrayRef>, usize)>> {
        let Some(batch) = self.read()? else { return Ok(None) };
        let columns = self.columns.places.iter().map(|place| {
            batch.columns().get(*place).map(Arc::clone).ok_or_else(|| {
                wrong(&self.file.path, "the file is damaged: a column is missing".to_owned())
            })
        });
        Ok(Some((columns.collect::<Result<Vec<_>>>()?, batch.num_rows())))
    }

    fn read(&mut self) -> Result<Option<RecordBatch>> {
        let batch = loop {
            let Some(mut reader) = self.reader.take() else { return Ok(None) };
            let path = &self.file.path;
            let error = match guarded(path, move || (reader.next(), reader)) {
                Ok((None, _)) if self.rows_given == self.row_count => return Ok(None),
                Ok((None, _)) => {
                    let (given, counted) = (self.rows_given, self.row_count);
                    let message = format!("{given} rows where its metadata counts {counted}");
                    return Err(wrong(path, format!("the file is damaged: it has {message}")));
                }
                Ok((Some(Ok(batch)), reader)) => {
                    self.reader = Some(reader);
                    break batch;
                }
                Ok((Some(Err(error)), _)) => wrong(path, format!("the file is damaged: {error}")),
                Err(error) => error,
            };
            if self.windows.is_some() || !error.to_string().contains(OVERFLOW) {
                return Err(error);
            }
            if self.batch_rows == 1 {
                let row = self.rows_given + 1;
                let message = format!("row {row} has a value of more than 2 GiB, or is damaged");
                return Err(wrong(path, message));
            }
            self.batch_rows = (self.batch_rows / 8).max(1);
            self.begin()?;
        };
        self.rows_given = self.rows_given.saturating_add(batch.num_rows());
        if let Some(windows) = &mut self.windows {
            let counted = windows.row_counts.pop_front();
            if counted != Some(batch.num_rows()) {
                self.reader = None;
                let message = "the file is damaged: a column has fewer rows than its row group";
                return Err(wrong(&self.file.path, message.to_owned()));
            }
            return Ok(Some(batch));
        }
        let bytes = batch.get_array_memory_size();
        let fitting = rows_of(bytes, batch.num_rows()).min(self.columns.batch_rows_max);
        // A restart reads a part of a row group again: it must be worth it.
        let is_far = fitting >= self.batch_rows.saturating_mul(8) || bytes > 4 * BATCH_BYTES;
        let is_more = self.rows_given < self.row_count;
        if is_far && is_more && fitting != self.batch_rows {
            self.batch_rows = fitting;
            self.begin()?;
        }
        Ok(Some(batch))
    }
}

impl std::fmt::Debug for ParquetRows {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ParquetRows")
            .field("path", &self.file.path)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// A file that was opened for one thread: [`ChunkReader::get_bytes`] moves its place.
#[derive(Debug, Clone)]
struct Placed(Arc<File>);

/// What is behind a place of a file.
struct Behind {
    file: Arc<File>,
    place: u64,
}

impl Length for Placed {
    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }
}

impl ChunkReader for Placed {
    type T = std::io::BufReader<Behind>;

    fn get_read(&self, start: u64) -> std::result::Result<Self::T, ParquetError> {
        Ok(std::io::BufReader::new(Behind { file: Arc::clone(&self.0), place: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> std::result::Result<Bytes, ParquetError> {
        // A length that the file cannot have takes no memory.
        let end = u64::try_from(length).ok().and_then(|length| start.checked_add(length));
        if end.is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are beyond its end")));
        }
        // The file's own reader fills new memory as it is; one that names its place would have it zeroed first.
        let mut file: &File = &self.0;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::with_capacity(length);
        let read = file.take(length as u64).read_to_end(&mut bytes)?;
        if read != length {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are beyond its end")));
        }
        Ok(bytes.into())
    }
}

impl Read for Behind {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.place)?;
        self.place += count as u64;
        Ok(count)
    }
}

fn opened(path: &Path) -> Result<(Arc<File>, Identity)> {
    let unopened = |source| Error::io("open", path, source);
    let file = File::open(path).map_err(unopened)?;
    let found = file.metadata().map_err(unopened)?;
    let identity = Identity {
        device: found.dev(),
        number: found.ino(),
        bytes: found.len(),
        changed: (found.mtime(), found.mtime_nsec()),
    };
    Ok((Arc::new(file), identity))
}

/// How long the metadata of a file of so many bytes is; None: it is no Parquet file, which is left to the crate.
fn metadata_bytes(file: &File, bytes: u64) -> std::io::Result<Option<u64>> {
    let Some(behind) = bytes.checked_sub(END_BYTES as u64) else { return Ok(None) };
    let mut end = [0; END_BYTES];
    file.read_exact_at(&mut end, behind)?;
    let [a, b, c, d, name @ ..] = end;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    Ok((name == *b"PAR1" && length <= behind).then_some(length))
}

/// Whether the metadata of a file of so many bytes, which has `length`, is in one piece.
fn has_whole_metadata(file: &File, bytes: u64, length: u64) -> std::io::Result<bool> {
    if length == 0 {
        return Ok(true);
    }
    let start = bytes.saturating_sub(END_BYTES as u64).saturating_sub(length);
    let mut metadata = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut metadata, start)?;
    Ok(is_structure(&metadata))
}

/// The same with columns in other types than the crate takes unless it is told ([`own_type`]).
fn in_own_types(
    read: ArrowReaderMetadata,
) -> std::result::Result<ArrowReaderMetadata, ParquetError> {
    let roots = read.parquet_schema().root_schema().get_fields();
    let fields = read.schema().fields();
    let mut types = roots.iter().zip(fields).map(|(root, field)| own_type(root, field));
    if types.clone().all(|own| own.is_none()) {
        return Ok(read);
    }
    let fields = fields.iter().map(|field| match types.next().flatten() {
        Some(own) => Arc::new(Field::clone(field).with_data_type(own)),
        None => Arc::clone(field),
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(schema);
    ArrowReaderMetadata::try_new(Arc::clone(read.metadata()), options)
}

/// The type in which the column `field` is read where it is not its own. Timestamps of 96 bits are read in
/// microseconds, as SQL has them, because nanoseconds end in the year 2262 and the crate wraps later ones. Decimals of
/// 32 and 64 bits stay as wide: conditions are asked of all of them, and only those that are left are made as wide as
/// SQL has them.
fn own_type(root: &TypePtr, field: &FieldRef) -> Option<DataType> {
    if !root.is_primitive() {
        return None;
    }
    let is_fitting = |digits: u8, scale: i8, most: u8| {
        digits <= most && u8::try_from(scale).is_ok_and(|scale| scale <= digits)
    };
    match (root.get_physical_type(), field.data_type()) {
        (PhysicalType::INT96, DataType::Timestamp(TimeUnit::Nanosecond, None)) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        (PhysicalType::INT32, DataType::Decimal128(digits, scale)) => {
            let fits = is_fitting(*digits, *scale, DECIMAL32_MAX_PRECISION);
            fits.then_some(DataType::Decimal32(*digits, *scale))
        }
        (PhysicalType::INT64, DataType::Decimal128(digits, scale)) => {
            let fits = is_fitting(*digits, *scale, DECIMAL64_MAX_PRECISION);
            fits.then_some(DataType::Decimal64(*digits, *scale))
        }
        _ => None,
    }
}

fn wrong(path: &Path, message: String) -> Error {
    Error::InputSchema { file: path.display().to_string(), message }
}

fn refused(path: &Path, fault: PageFault, memory: InputMemory) -> Error {
    let file = path.display();
    match fault {
        PageFault::Damaged(what) => wrong(path, format!("the file is damaged: {what}")),
        PageFault::Io(source) => Error::io("read", path, source),
        PageFault::TooLarge { column, page_bytes, pages_bytes } => {
            Error::from(DataFusionError::ResourcesExhausted(format!(
                "{file}: to read it takes pages of {pages_bytes} bytes in memory at once, and {} bytes are allowed: \
                    half \
                 of --query-memory; the largest page is one of column \"{column}\", with {page_bytes} bytes. Allow \
                 more, or write the file with smaller pages",
                memory.pages_bytes
            )))
        }
    }
}

/// Rows of a batch, where `row_count` of them take `bytes`.
fn rows_of(bytes: usize, row_count: usize) -> usize {
    let row_bytes = (bytes / row_count.max(1)).max(1);
    (BATCH_BYTES / row_bytes).clamp(1, BATCH_ROWS_MAX)
}

/// Rows of a batch by the sizes of its columns that the file gives.
fn rows_by_size(groups: &[&RowGroupMetaData], mask: &ProjectionMask) -> usize {
    let size = |number: i64| usize::try_from(number).unwrap_or(0);
    let by_group = groups.iter().map(|group| {
        let columns = group.columns().iter().enumerate();
        let wanted = columns.filter(|(leaf, _)| mask.leaf_included(*leaf));
        let bytes = wanted.map(|(_, column)| {
            let values = column.unencoded_byte_array_data_bytes().unwrap_or(0);
            size(column.uncompressed_size().max(values))
        });
        rows_of(bytes.fold(0, usize::saturating_add), size(group.num_rows()))
    });
    by_group.min().unwrap_or(BATCH_ROWS_MAX)
}

/// Whether the pages of the columns bound the size of a batch ([`rows_per_batch`]): those whose values share their
/// beginnings do not.
fn are_bounded(groups: &[&RowGroupMetaData], mask: &ProjectionMask) -> bool {
    let columns = groups.iter().flat_map(|group| group.columns().iter().enumerate());
    let mut wanted = columns.filter(|(leaf, _)| mask.leaf_included(*leaf));
    wanted.all(|(_, column)| {
        let mut encodings = column.encodings();
        column.column_descr().max_rep_level() == 0
            && !encodings.any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY)
    })
}

/// Runs a step of the `parquet` crate and turns its panic into an error.
fn guarded<T>(path: &Path, step: impl FnOnce() -> T) -> Result<T> {
    // Unwinding drops what the step leaves unfinished: none of it is used again.
    catch_unwind(AssertUnwindSafe(step)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("an unknown reason");
        wrong(path, format!("the file is damaged: {text}"))
    })
}

fn damaged(path: &Path, error: &ParquetError) -> Error {
    wrong(path, format!("the file is not a Parquet file, or is damaged: {error}"))
}
