//! Parquet in and out. Reading checks a file's columns against the table's and casts values where that keeps their
//! meaning. Writing takes the batches of any query.
//!
//! Columns are matched by name. Without COPY's list every column of the file must be one of the table's. With a list,
//! every listed column must be in the file, and others are ignored. Columns that the file lacks get their default. A
//! cast is allowed within a family (whole numbers, numbers, texts, bytes, dates and timestamps) if [`cast_allowed`]
//! says so. A value that does not fit is an error, never a NULL.
//!
//! Parquet has no interval of months, days and nanoseconds: it is written as text, and read back from text. Text is cut
//! to `character(n)` and checked against `character varying(n)` as COPY from CSV does.
//!
//! The `parquet` crate panics on some damaged files, where a length in the metadata turns negative. A load must not end
//! the process, so such a panic is caught here and becomes an error; the reader is not used after it.
//!
//! A batch has about [`BATCH_BYTES`]. The number of rows comes from the file's statistics of each row group, if the
//! writer recorded the lengths of dictionary-encoded values. Otherwise it is measured: the first batch is small, and if
//! a later one is far from the measure, the reader restarts behind it with another batch size.
//!
//! Regardless of a file's statistics, the headers of its pages limit the rows of a batch ([`page_sizes`]). A file whose
//! pages do not fit in memory is refused before any is decompressed.
//!
//! Source: the Parquet format's logical types.

mod page_sizes;

use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema, SchemaRef};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::suggest::nearest;
use cleave_catalog::value::build::fit;
use cleave_catalog::value::error::Bad;
use cleave_catalog::value::{ColumnBuilder, ValueError, ValueText};
use cleave_fragment::functions::infinite::{InfiniteRows, infinite_rows, with, without};
use cleave_store::{Column, ColumnType, TableSchema};
use datafusion::error::DataFusionError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use self::page_sizes::{PageFault, rows_per_batch};
use crate::copy::columns::InputColumns;
use crate::copy::memory::InputMemory;
use crate::copy::options::ParquetCompression;
use crate::statement::moment::Moment;

/// Most rows of one batch.
const BATCH_ROWS_MAX: usize = 65_536;
/// Rows of the first batch, whose size is measured.
const BATCH_ROWS_FIRST: usize = 1024;
/// Approximate bytes of one batch.
const BATCH_BYTES: usize = 8 << 20;
/// The crate's message, in an error or a panic, for a batch whose text is longer than an array can hold.
const OVERFLOW: &str = "index overflow decoding byte array";

/// Reads a Parquet file as rows of a table.
pub struct ParquetReader {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    /// None after the end, and after an error.
    reader: Option<ParquetRecordBatchReader>,
    /// Rows of its batches, and their upper limit from the file.
    batch_rows: usize,
    batch_rows_max: usize,
    /// Rows returned so far.
    rows_given: usize,
    columns: InputColumns,
    /// For each of `columns.given()`, its place in the reader's batches.
    places: Vec<usize>,
    row_count: u64,
}

/// Writes batches of one schema as a Parquet file.
pub struct ParquetWriter<W: Write + Send> {
    file: String,
    writer: ArrowWriter<W>,
    schema: SchemaRef,
    rows_written: u64,
}

impl ParquetReader {
    /// Opens a file and checks its columns. `listed` are the columns of COPY's list, `moment` is the
    /// statement's time in microseconds since 1970-01-01T00:00:00Z, for defaults.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::InputSchema`] for a file that is no Parquet or does not fit the table; SQLSTATE 53200
    /// for one whose pages do not fit in `memory`.
    pub fn open(
        path: &Path,
        table: &TableSchema,
        listed: &[String],
        moment: impl Into<Moment>,
        memory: InputMemory,
    ) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
        // The Arrow schema that Arrow's writers embed contains nothing that Cleave needs, and Arrow's reader of it
        // panics if it is damaged.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = guarded(path, || ArrowReaderMetadata::load(&file, options))?
            .map_err(|error| damaged(path, &error))?;
        let fields = metadata.schema().fields().clone();
        let row_count = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
        let wrong =
            |message: String| Error::InputSchema { file: path.display().to_string(), message };
        let names = || fields.iter().map(|field| field.name().as_str());
        let listed: Vec<String> = match listed {
            [] => fields
                .iter()
                .map(|field| {
                    let known = table.columns.iter().map(|column| column.name.as_str());
                    find(known.clone(), field.name()).map(|(_, name)| name.to_owned()).ok_or_else(|| {
                        let meant = nearest(field.name(), known)
                            .map(|name| format!("; did you mean \"{name}\"?"))
                            .unwrap_or_default();
                        wrong(format!(
                            "column \"{}\" of the file does not exist in table \"{}\"{meant} (a list of columns after \
                             the table's name leaves others out)",
                            field.name(),
                            table.name
                        ))
                    })
                })
                .collect::<Result<_>>()?,
            listed => listed.to_vec(),
        };
        let columns = InputColumns::new(table, &listed, moment)?;
        let mut roots = Vec::with_capacity(listed.len());
        for column in columns.given() {
            let (index, _) = find(names(), &column.name).ok_or_else(|| {
                let meant = nearest(&column.name, names())
                    .map(|name| format!("; did you mean \"{name}\"?"))
                    .unwrap_or_default();
                wrong(format!("it has no column \"{}\"{meant}", column.name))
            })?;
            let held = fields.get(index).map_or(&DataType::Null, |field| field.data_type());
            if !cast_allowed(held, &column.column_type) {
                return Err(wrong(format!(
                    "column \"{}\" holds {held}, which is no {}",
                    column.name, column.column_type
                )));
            }
            roots.push(index);
        }
        // The reader's batches hold the chosen columns in the file's order.
        let places =
            roots.iter().map(|root| roots.iter().filter(|other| *other < root).count()).collect();
        let mask = ProjectionMask::roots(metadata.parquet_schema(), roots);
        let batch_rows_max = guarded(path, || rows_by_size(&metadata, &mask))?;
        let pages = Arc::new(file.try_clone().map_err(|source| Error::io("open", path, source))?);
        let batch_rows_max = guarded(path, || {
            rows_per_batch(&pages, metadata.metadata(), &mask, batch_rows_max, memory.pages_bytes)
        })?
        .map_err(|fault| refused(path, fault, memory))?;
        let mut reader = Self {
            path: path.to_owned(),
            file,
            batch_rows: batch_rows_max.min(BATCH_ROWS_FIRST),
            batch_rows_max,
            metadata,
            mask,
            reader: None,
            rows_given: 0,
            columns,
            places,
            row_count,
        };
        reader.begin()?;
        Ok(reader)
    }

    /// Continues behind the rows returned so far, in batches of `batch_rows`.
    fn begin(&mut self) -> Result<()> {
        let file = self.file.try_clone().map_err(|error| Error::io("open", &self.path, error))?;
        // Row groups that were read completely are left out, so that none of their bytes are read to be skipped.
        let mut offset = self.rows_given;
        let mut groups = Vec::new();
        for (place, group) in self.metadata.metadata().row_groups().iter().enumerate() {
            let rows = usize::try_from(group.num_rows()).unwrap_or(0);
            if groups.is_empty() && offset >= rows {
                offset -= rows;
            } else {
                groups.push(place);
            }
        }
        let reader = guarded(&self.path, || {
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_projection(self.mask.clone())
                .with_row_groups(groups)
                .with_offset(offset)
                .with_batch_size(self.batch_rows)
                .build()
        })?;
        self.reader = Some(reader.map_err(|error| damaged(&self.path, &error))?);
        Ok(())
    }

    /// Rows of the file, for progress.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// The next rows, at least one and at most 65,536, and of some 8 MiB; None at the end.
    ///
    /// # Errors
    /// [`Error::InputSchema`] for a damaged file, [`Error::Value`] for a value that does not fit its column,
    /// [`Error::NotNull`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.read()? else { return Ok(None) };
        let mut given = Vec::with_capacity(self.places.len());
        for (column, place) in self.columns.given().zip(&self.places) {
            let values = batch.columns().get(*place).ok_or_else(|| Error::InputSchema {
                file: self.path.display().to_string(),
                message: "the file is damaged: a column is missing".into(),
            })?;
            given.push(cast_column(values, column)?);
        }
        self.columns.batch(given, batch.num_rows()).map(Some)
    }

    /// The next rows, uncast.
    fn read(&mut self) -> Result<Option<RecordBatch>> {
        let wrong = |path: &Path, message: String| Error::InputSchema {
            file: path.display().to_string(),
            message,
        };
        let batch = loop {
            let Some(mut reader) = self.reader.take() else { return Ok(None) };
            let error = match guarded(&self.path, move || (reader.next(), reader)) {
                Ok((None, _)) => return Ok(None),
                Ok((Some(Ok(batch)), reader)) => {
                    self.reader = Some(reader);
                    break batch;
                }
                Ok((Some(Err(error)), _)) => {
                    wrong(&self.path, format!("the file is damaged: {error}"))
                }
                Err(error) => error,
            };
            if !error.to_string().contains(OVERFLOW) {
                return Err(error);
            }
            if self.batch_rows == 1 {
                let row = self.rows_given + 1;
                let message = format!("row {row} has a value of more than 2 GiB, or is damaged");
                return Err(wrong(&self.path, message));
            }
            self.batch_rows = (self.batch_rows / 8).max(1);
            self.begin()?;
        };
        self.rows_given = self.rows_given.saturating_add(batch.num_rows());
        let bytes = batch.get_array_memory_size();
        let fitting = rows_of(bytes, batch.num_rows()).min(self.batch_rows_max);
        // A restart reads a part of a row group again: it must be worth it.
        let is_far = fitting >= self.batch_rows.saturating_mul(8) || bytes > 4 * BATCH_BYTES;
        let is_more = u64::try_from(self.rows_given).is_ok_and(|given| given < self.row_count);
        if is_far && is_more && fitting != self.batch_rows {
            self.batch_rows = fitting;
            self.begin()?;
        }
        Ok(Some(batch))
    }
}

fn refused(path: &Path, fault: PageFault, memory: InputMemory) -> Error {
    let file = path.display();
    match fault {
        PageFault::Damaged(what) => Error::InputSchema {
            file: file.to_string(),
            message: format!("the file is damaged: {what}"),
        },
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
fn rows_by_size(metadata: &ArrowReaderMetadata, mask: &ProjectionMask) -> usize {
    let size = |number: i64| usize::try_from(number).unwrap_or(0);
    let by_group = metadata.metadata().row_groups().iter().map(|group| {
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

impl Iterator for ParquetReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl std::fmt::Debug for ParquetReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ParquetReader")
            .field("path", &self.path)
            .field("row_count", &self.row_count)
            .finish_non_exhaustive()
    }
}

/// The name in `names` that equals `name`, or equals it but for case; with its place.
fn find<'a>(names: impl Iterator<Item = &'a str> + Clone, name: &str) -> Option<(usize, &'a str)> {
    let mut numbered = names.enumerate();
    numbered
        .clone()
        .find(|(_, candidate)| *candidate == name)
        .or_else(|| numbered.find(|(_, candidate)| candidate.eq_ignore_ascii_case(name)))
}

/// Whether a column of a file may become one of a table: only if every value that fits keeps its meaning.
#[must_use]
pub fn cast_allowed(held: &DataType, column_type: &ColumnType) -> bool {
    use ColumnType as Type;
    let held = match held {
        DataType::Dictionary(_, values) => values.as_ref(),
        other => other,
    };
    let decimal = matches!(
        held,
        DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
    );
    let text = matches!(held, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let bytes = matches!(
        held,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    );
    match column_type {
        _ if *held == DataType::Null => true,
        Type::SmallInt | Type::Int | Type::BigInt => held.is_integer(),
        Type::Real | Type::Double => held.is_integer() || held.is_floating() || decimal,
        Type::Numeric { .. } => held.is_integer() || held.is_floating() || decimal,
        Type::Boolean => *held == DataType::Boolean,
        Type::Text | Type::Varchar(_) | Type::Char(_) => text,
        Type::Date => matches!(held, DataType::Date32 | DataType::Date64),
        Type::Time => matches!(held, DataType::Time32(_) | DataType::Time64(_)),
        Type::Timestamp | Type::TimestampTz => {
            matches!(held, DataType::Timestamp(..) | DataType::Date32)
        }
        Type::Interval => text || matches!(held, DataType::Interval(_)),
        Type::Bytea => bytes,
        Type::Uuid => text || *held == DataType::FixedSizeBinary(16),
    }
}

fn cast_column(values: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let target = column.column_type.arrow();
    let fault =
        |error: ValueError| Error::Value { column: column.name.clone(), source: Box::new(error) };
    let parsed = matches!(column.column_type, ColumnType::Interval | ColumnType::Uuid);
    let cast = if *values.data_type() == target {
        Arc::clone(values)
    } else if parsed && !matches!(values.data_type(), DataType::Null | DataType::Interval(_)) {
        let text = ValueText::new(values)?;
        let mut builder = ColumnBuilder::new(&column.column_type, values.len());
        let mut value = String::new();
        for index in 0..values.len() {
            value.clear();
            if text.write(index, &mut value) {
                builder.append_text(&value).map_err(fault)?;
            } else {
                builder.append_null();
            }
        }
        return Ok(builder.finish());
    } else {
        // A value that does not fit becomes NULL; it is then found and reported with its text.
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let infinite = infinite_times(values, &target);
        let cast = cast_with_options(&without(values, &infinite)?, &target, &options)?;
        let cast = with(cast, &infinite);
        let lost =
            (0..values.len()).find(|index| values.is_valid(*index) && !kept(values, &cast, *index));
        if let Some(index) = lost {
            let mut value = String::new();
            ValueText::new(values)?.write(index, &mut value);
            let bad = Bad::out_of_range("a value within the range of the type");
            return Err(fault(ValueError::new(bad, column.column_type.sql_name(), &value)));
        }
        cast
    };
    let cast = with_one_nan(cast);
    let limited = matches!(column.column_type, ColumnType::Varchar(Some(_)) | ColumnType::Char(_));
    if !limited {
        return Ok(cast);
    }
    let texts = cast.as_string::<i32>();
    let fitted = texts
        .iter()
        .map(|text| text.map(|text| fit(&column.column_type, text)).transpose())
        .collect::<Result<StringArray, _>>()
        .map_err(fault)?;
    Ok(Arc::new(fitted))
}

/// `values` with one NaN, as PostgreSQL has it: others have a sign, which orders them, or other bits.
fn with_one_nan(values: ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float32 => {
            let reals = values.as_primitive::<Float32Type>();
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value };
            Arc::new(reals.unary::<_, Float32Type>(one))
        }
        DataType::Float64 => {
            let doubles = values.as_primitive::<Float64Type>();
            let one = |value: f64| if value.is_nan() { f64::NAN } else { value };
            Arc::new(doubles.unary::<_, Float64Type>(one))
        }
        _ => values,
    }
}

/// Converts infinite dates and timestamps among `values` to those of the other type.
fn infinite_times(values: &ArrayRef, target: &DataType) -> InfiniteRows {
    match target {
        DataType::Date32 | DataType::Timestamp(..) => infinite_rows(values),
        _ => InfiniteRows::new(),
    }
}

/// Whether a cast kept a value: the result is not NULL, and not an infinity made of a finite number.
fn kept(values: &ArrayRef, cast: &ArrayRef, index: usize) -> bool {
    if cast.is_null(index) {
        return false;
    }
    match cast.as_primitive_opt::<Float32Type>() {
        Some(reals) if reals.value(index).is_infinite() => values
            .as_primitive_opt::<Float64Type>()
            .is_some_and(|doubles| doubles.value(index).is_infinite()),
        _ => true,
    }
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
        Error::InputSchema {
            file: path.display().to_string(),
            message: format!("the file is damaged: {text}"),
        }
    })
}

fn damaged(path: &Path, error: &ParquetError) -> Error {
    Error::InputSchema {
        file: path.display().to_string(),
        message: format!("the file is not a Parquet file, or is damaged: {error}"),
    }
}

impl<W: Write + Send> ParquetWriter<W> {
    /// `file` is how messages name the sink.
    ///
    /// # Errors
    /// [`Error::InputSchema`] for a column of a type that Parquet does not have.
    pub fn new(
        sink: W,
        file: &str,
        schema: &SchemaRef,
        compression: ParquetCompression,
    ) -> Result<Self> {
        let compression = match compression {
            ParquetCompression::Uncompressed => Compression::UNCOMPRESSED,
            ParquetCompression::Snappy => Compression::SNAPPY,
            ParquetCompression::Zstd => Compression::ZSTD(ZstdLevel::default()),
            ParquetCompression::Lz4 => Compression::LZ4_RAW,
        };
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by(format!("cleave version {}", env!("CARGO_PKG_VERSION")))
            .build();
        let fields = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Interval(_) => {
                Arc::new(Field::new(field.name(), DataType::Utf8, field.is_nullable()))
            }
            _ => Arc::clone(field),
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let writer = ArrowWriter::try_new(sink, Arc::clone(&schema), Some(properties))
            .map_err(|error| unwritten(file, error))?;
        Ok(Self { file: file.to_owned(), writer, schema, rows_written: 0 })
    }

    /// Writes all rows of a batch.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = batch.columns().iter().map(as_written).collect::<Result<Vec<_>>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.writer.write(&batch).map_err(|error| unwritten(&self.file, error))?;
        self.rows_written += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Writes what is left and the footer, and returns the sink. It does not sync a file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self) -> Result<W> {
        let file = self.file;
        self.writer.into_inner().map_err(|error| unwritten(&file, error))
    }

    /// Rows written so far.
    #[must_use]
    pub fn rows_written(&self) -> u64 {
        self.rows_written
    }
}

impl<W: Write + Send> std::fmt::Debug for ParquetWriter<W> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ParquetWriter")
            .field("file", &self.file)
            .field("rows_written", &self.rows_written)
            .finish_non_exhaustive()
    }
}

fn as_written(values: &ArrayRef) -> Result<ArrayRef> {
    if !matches!(values.data_type(), DataType::Interval(_)) {
        return Ok(Arc::clone(values));
    }
    let text = ValueText::new(values)?;
    let texts: StringArray = (0..values.len())
        .map(|index| {
            let mut value = String::new();
            text.write(index, &mut value).then_some(value)
        })
        .collect();
    Ok(Arc::new(texts))
}

fn unwritten(file: &str, error: ParquetError) -> Error {
    let path = Path::new(file);
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(source) => Error::io("write", path, *source),
            Err(other) => Error::io("write", path, std::io::Error::other(other)),
        },
        ParquetError::NYI(message) => {
            Error::unsupported(format!("a column of this type in Parquet ({message})"))
        }
        other => Error::io("write", path, std::io::Error::other(other)),
    }
}

#[cfg(test)]
mod tests;
