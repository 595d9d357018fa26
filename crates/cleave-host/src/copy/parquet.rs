//! Parquet in and out: a file's columns checked against the table's and cast where no value can change its
//! meaning; any query's batches written.
//!
//! Columns are matched by name. Without COPY's list every column of the file must be one of the table's; with
//! it, every listed column must be in the file, and others are left alone. What the file does not have gets its
//! default. A cast is allowed within a family (whole numbers, numbers, texts, bytes, dates and timestamps) if
//! [`cast_allowed`] says so, and a value that does not fit is an error, never a NULL.
//!
//! Parquet has no interval of months, days and nanoseconds: it is written as text, and read back from text.
//! Text is cut to `character(n)` and checked against `character varying(n)` as COPY from CSV does.
//!
//! The `parquet` crate panics on some damaged files, where a length in the metadata turns negative. A load must
//! not end the process, so such a panic is caught here and becomes an error; the reader is not used after it.
//!
//! Source: issue 2, part 4 and "Bad input"; the Parquet format's logical types.

use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema, SchemaRef};
use cleave_store::{Column, ColumnType, TableSchema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::copy::columns::InputColumns;
use crate::copy::options::ParquetCompression;
use crate::error::{Error, Result};
use crate::suggest::nearest;
use crate::value::build::fit;
use crate::value::error::Bad;
use crate::value::{ColumnBuilder, ValueError, ValueText};

/// Rows of one batch.
const BATCH_ROWS: usize = 65_536;

/// Reads a Parquet file as rows of a table.
pub struct ParquetReader {
    path: PathBuf,
    /// None after the end, and after a panic.
    reader: Option<ParquetRecordBatchReader>,
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
    /// Opens a file and checks its columns. `listed` are the columns of COPY's list, `now_us` is the
    /// statement's time in microseconds since 1970-01-01T00:00:00Z, for defaults.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::InputSchema`] for a file that is no Parquet or does not fit the table.
    pub fn open(path: &Path, table: &TableSchema, listed: &[String], now_us: i64) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
        // The Arrow schema that writers of Arrow embed says nothing that Cleave needs, and Arrow's reader of
        // it panics where it is damaged.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder =
            guarded(path, || ParquetRecordBatchReaderBuilder::try_new_with_options(file, options))?
                .map_err(|error| damaged(path, &error))?;
        let fields = builder.schema().fields().clone();
        let row_count = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
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
                            "column \"{}\" is none of table \"{}\"{meant} (a list of columns after \
                             the table's name leaves others out)",
                            field.name(),
                            table.name
                        ))
                    })
                })
                .collect::<Result<_>>()?,
            listed => listed.to_vec(),
        };
        let columns = InputColumns::new(table, &listed, now_us)?;
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
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let reader =
            guarded(path, || builder.with_projection(mask).with_batch_size(BATCH_ROWS).build())?
                .map_err(|error| damaged(path, &error))?;
        let reader = Some(reader);
        Ok(Self { path: path.to_owned(), reader, columns, places, row_count })
    }

    /// Rows of the file, for progress.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// The next rows, at most 65,536 and at least one; None at the end.
    ///
    /// # Errors
    /// [`Error::InputSchema`] for a damaged file, [`Error::Value`] for a value that does not fit its column,
    /// [`Error::NotNull`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some(mut reader) = self.reader.take() else {
            return Ok(None);
        };
        let (batch, reader) = guarded(&self.path, move || (reader.next(), reader))?;
        let Some(batch) = batch else {
            return Ok(None);
        };
        self.reader = Some(reader);
        let batch = batch.map_err(|error| Error::InputSchema {
            file: self.path.display().to_string(),
            message: format!("the file is damaged: {error}"),
        })?;
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

/// A name of `names` that is `name`, or is it but for case; with its place.
fn find<'a>(names: impl Iterator<Item = &'a str> + Clone, name: &str) -> Option<(usize, &'a str)> {
    let mut numbered = names.enumerate();
    numbered
        .clone()
        .find(|(_, candidate)| *candidate == name)
        .or_else(|| numbered.find(|(_, candidate)| candidate.eq_ignore_ascii_case(name)))
}

/// Whether a column of a file may become one of a table: only where every value that fits keeps its meaning.
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
        // A value that does not fit becomes NULL, which is then found and refused with its text.
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let cast = cast_with_options(values, &target, &options)?;
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

/// Whether a cast kept a value: it is no NULL, and no infinity that was a finite number.
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
    // What the step leaves half done is dropped by the unwinding: nothing of it is seen again.
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
        message: format!("the file is no Parquet, or damaged: {error}"),
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
