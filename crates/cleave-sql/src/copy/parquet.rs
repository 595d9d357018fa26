//! Parquet in and out. Reading checks a file's columns against the table's and casts values where that keeps their
//! meaning. Writing takes the batches of any query.
//!
//! Columns are matched by name. Without COPY's list every column of the file must be one of the table's. With a list,
//! every listed column must be in the file, and others are ignored. Columns that the file lacks get their default. A
//! cast is allowed within a family (whole numbers, numbers, texts, bytes, dates and timestamps) if [`cast_allowed`]
//! says so. A value that does not fit is an error, never a NULL.
//!
//! Parquet has no interval of months, days and nanoseconds: it is written as text, and read back from text. Numerics of
//! 256 bits are written as `numeric(38, 20)`. Text is cut to `character(n)` and checked against `character
//! varying(n)` as COPY from CSV does.
//!
//! [`mod@file`] opens files and reads their columns; this module casts them.
//!
//! Source: the Parquet format's logical types.

pub mod file;
mod page_index;
mod page_sizes;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, RecordBatch, StringArray, new_null_array,
};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Field, Float32Type, Float64Type, Schema, SchemaRef,
};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::suggest::nearest;
use cleave_catalog::value::build::fit;
use cleave_catalog::value::error::Bad;
use cleave_catalog::value::{ColumnBuilder, ValueError, ValueText};
use cleave_fragment::functions::infinite::{InfiniteRows, infinite_rows, with, without};
use cleave_fragment::functions::quotient::QUOTIENT;
use cleave_store::{Column, ColumnType, TableSchema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use self::file::{ParquetFile, ParquetRows};
use crate::copy::columns::InputColumns;
use crate::copy::memory::InputMemory;
use crate::copy::options::ParquetCompression;
use crate::dialect::sql_type;
use crate::statement::moment::Moment;

/// Reads a Parquet file as rows of a table.
pub struct ParquetReader {
    file: ParquetFile,
    rows: ParquetRows,
    columns: InputColumns,
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
        let file = ParquetFile::open(path, memory)?;
        let fields = file.fields().clone();
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
        let groups: Vec<usize> = (0..file.group_rows().len()).collect();
        let rows = file.rows(file.columns(&roots, &groups, memory)?, groups)?;
        Ok(Self { file, rows, columns })
    }

    /// Rows of the file, for progress.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.file.row_count()
    }

    /// The next rows, at least one and at most 65,536, and of some 8 MiB; None at the end.
    ///
    /// # Errors
    /// [`Error::InputSchema`] for a damaged file, [`Error::Value`] for a value that does not fit its column,
    /// [`Error::NotNull`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some((values, row_count)) = self.rows.next_columns()? else { return Ok(None) };
        let given = self.columns.given().zip(&values);
        let given = given.map(|(column, values)| cast_column(values, column));
        let given = given.collect::<Result<Vec<_>>>()?;
        self.columns.batch(given, row_count).map(Some)
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
            .field("path", &self.file.path())
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

/// The type in which a column of a file is read; None: SQL has none, as for structs and maps.
#[must_use]
pub fn column_type_of_file(held: &DataType) -> Option<ColumnType> {
    Some(match held {
        DataType::Dictionary(_, values) => column_type_of_file(values)?,
        DataType::Null => ColumnType::Text,
        DataType::UInt8 => ColumnType::SmallInt,
        DataType::UInt16 => ColumnType::Int,
        DataType::UInt32 => ColumnType::BigInt,
        DataType::UInt64 => ColumnType::Numeric { precision: 20, scale: 0 },
        DataType::Float16 => ColumnType::Real,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            ColumnType::Numeric { precision: *precision, scale: *scale }
        }
        DataType::Date64 => ColumnType::Date,
        DataType::Time32(_) | DataType::Time64(_) => ColumnType::Time,
        DataType::Interval(_) => ColumnType::Interval,
        DataType::LargeBinary | DataType::BinaryView => ColumnType::Bytea,
        DataType::FixedSizeBinary(length) if *length != 16 => ColumnType::Bytea,
        other => sql_type(other)?,
    })
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

/// `values` of a file with the type of `column`.
///
/// # Errors
/// [`Error::Value`] for one that does not fit.
pub fn cast_column(values: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let target = column.column_type.arrow();
    // Such a column has no values, and nothing that counts its NULLs.
    if *values.data_type() == DataType::Null {
        return Ok(new_null_array(&target, values.len()));
    }
    let values = &with_wide_decimals(values)?;
    let fault =
        |error: ValueError| Error::Value { column: column.name.clone(), source: Box::new(error) };
    let parsed = matches!(column.column_type, ColumnType::Interval | ColumnType::Uuid);
    let cast = if *values.data_type() == target {
        Arc::clone(values)
    } else if parsed && !matches!(values.data_type(), DataType::Interval(_)) {
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
        // Mostly nothing is lost, and the counts say so. An infinity may stand for a number that does not fit.
        let may_lack = cast.null_count() != values.null_count() || target == DataType::Float32;
        let is_lost = |index: &usize| values.is_valid(*index) && !kept(values, &cast, *index);
        let lost = may_lack.then(|| (0..values.len()).find(is_lost)).flatten();
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

/// Decimals of 32 or 64 bits in as many bits as SQL has them; others as they are.
fn with_wide_decimals(values: &ArrayRef) -> Result<ArrayRef> {
    let (wide, digits, scale): (Decimal128Array, u8, i8) = match *values.data_type() {
        DataType::Decimal32(digits, scale) => {
            (values.as_primitive::<Decimal32Type>().unary(i128::from), digits, scale)
        }
        DataType::Decimal64(digits, scale) => {
            (values.as_primitive::<Decimal64Type>().unary(i128::from), digits, scale)
        }
        _ => return Ok(Arc::clone(values)),
    };
    Ok(Arc::new(wide.with_precision_and_scale(digits, scale)?))
}

/// `values` with one NaN, as PostgreSQL has it: others have a sign, which orders them, or other bits.
fn with_one_nan(values: ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float32 => {
            let reals = values.as_primitive::<Float32Type>();
            if !reals.values().iter().fold(false, |found, value| found | value.is_nan()) {
                return values;
            }
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value };
            Arc::new(reals.unary::<_, Float32Type>(one))
        }
        DataType::Float64 => {
            let doubles = values.as_primitive::<Float64Type>();
            // Most columns have none: they are looked through, and not copied.
            if !doubles.values().iter().fold(false, |found, value| found | value.is_nan()) {
                return values;
            }
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
        let fields = schema.fields().iter().map(|field| match written_type(field.data_type()) {
            Some(written) => Arc::new(Field::new(field.name(), written, field.is_nullable())),
            None => Arc::clone(field),
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

/// The type of a column in the file, if it is another one.
fn written_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Interval(_) => Some(DataType::Utf8),
        DataType::Decimal256(..) => Some(NARROW_NUMERIC),
        _ => None,
    }
}

/// What numerics of 256 bits are elsewhere: few programs read decimals of more than 38 digits.
pub const NARROW_NUMERIC: DataType = DataType::Decimal128(38, 20);

/// `values` as [`NARROW_NUMERIC`]. A quotient is rounded, as it is anyway.
///
/// # Errors
/// For a number that has more digits before the point, or is no quotient and has more behind it.
pub fn narrow_numerics(values: &ArrayRef) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let narrow = cast_with_options(values, &NARROW_NUMERIC, &options)?;
    let is_whole = |back: &ArrayRef| Ok::<_, Error>(!eq(back, values)?.has_false());
    if *values.data_type() == QUOTIENT || is_whole(&cast(&narrow, values.data_type())?)? {
        return Ok(narrow);
    }
    Err(Error::Invalid {
        message: "a numeric has more than 20 digits behind its point".to_owned(),
        fault: Fault::Range,
        position: None,
    })
}

fn as_written(values: &ArrayRef) -> Result<ArrayRef> {
    let Some(written) = written_type(values.data_type()) else { return Ok(Arc::clone(values)) };
    if written == NARROW_NUMERIC {
        return narrow_numerics(values);
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
