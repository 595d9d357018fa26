//! The Arrow types that columns have in SQL: any Arrow type in, the one that its values have as a column out.
//!
//! Libraries have several Arrow types for one of SQL (`string_view`, `large_string` and dictionaries for `text`,
//! seconds and nanoseconds for `timestamp`). Operators and functions know one of each, so batches are cast when they
//! come in; what has the type already is not copied. Unsigned integers become the next larger signed type. Decimals of
//! more than 38 digits lose those behind the point that 38 have no place for.
//!
//! The other way round, libraries get numerics of 256 bits as `numeric(38, 20)`: [`library_schema`].
//!
//! A column may be marked as one in which NaN says that there is no value, as in pandas: it becomes NULL here, where
//! all threads convert their own slices.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type, IntervalUnit, Schema, SchemaRef,
    TimeUnit,
};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;
use cleave_host::Error;
use cleave_host::copy::parquet::{NARROW_NUMERIC, narrow_numerics};
use cleave_host::error::Fault;

/// Digits that a number may have.
const PRECISION_MAX: u8 = 38;
/// Digits behind the point that a number of more digits does not lose, as of a quotient that is stored.
const SCALE_MIN: i8 = 20;
/// Digits of the largest unsigned integer.
const UNSIGNED_DIGITS: u8 = 20;
/// What is in the metadata of a column whose NaN are NULL; `cleave/_frames.py` puts it there.
const NAN_IS_NULL: (&str, &str) = ("cleave.nan", "null");

/// The columns of `schema` as SQL has them; the first that it cannot have is an error.
pub(crate) fn plain_schema(schema: &Schema) -> Result<SchemaRef, String> {
    let fields = schema.fields().iter().map(|field| {
        let (name, from) = (field.name(), field.data_type());
        match plain_type(from).filter(|to| from == to || can_cast_types(from, to)) {
            Some(to) => Ok(Field::new(name, to, true)),
            None => Err(format!("column \"{name}\" has the type {from}, which SQL does not have")),
        }
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>, _>>()?)))
}

/// The type that values of `data_type` have as a column; None: SQL has none for them.
fn plain_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::FixedSizeBinary(16) => data_type.clone(),
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            DataType::Utf8
        }
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(UNSIGNED_DIGITS, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, *scale),
        DataType::Decimal256(precision, scale) => {
            let cut = i8::try_from(precision.saturating_sub(PRECISION_MAX)).unwrap_or(i8::MAX);
            let scale = scale.saturating_sub(cut).max((*scale).min(SCALE_MIN));
            DataType::Decimal128((*precision).min(PRECISION_MAX), scale)
        }
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(_, Some(_)) => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
        }
        DataType::Duration(_) | DataType::Interval(_) => {
            DataType::Interval(IntervalUnit::MonthDayNano)
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Dictionary(_, values) => plain_type(values)?,
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type())?,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => {
            let item = Field::new("item", plain_type(item.data_type())?, true);
            DataType::List(Arc::new(item))
        }
        DataType::Struct(_) | DataType::Union(..) | DataType::Map(..) => return None,
    })
}

/// The rows of `batch` with the columns of `schema`, in its order.
///
/// # Errors
/// A value that the type of its column does not have; an external one for text with a zero byte.
pub(crate) fn plain_batch(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let plain = cast_batch(batch, schema)?;
    match plain.columns().iter().any(has_zero) {
        true => Err(ArrowError::ExternalError(Box::new(zero_byte()))),
        false => Ok(plain),
    }
}

/// That text has a zero byte.
pub(crate) fn zero_byte() -> Error {
    Error::Invalid {
        message: "invalid byte sequence for encoding \"UTF8\": 0x00".to_owned(),
        fault: Fault::Encoding,
        position: None,
    }
}

/// Whether a text of `array`, or of its lists, has a zero byte.
fn has_zero(array: &ArrayRef) -> bool {
    match array.data_type() {
        DataType::Utf8 => {
            let texts = array.as_string::<i32>();
            let bytes = range_of(texts.value_offsets());
            let bytes = bytes.and_then(|range| texts.value_data().get(range));
            // What is NULL may have any bytes.
            bytes.is_some_and(|bytes| bytes.contains(&0))
                && texts.iter().flatten().any(|text| text.contains('\0'))
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            // A slice has the items of the whole.
            range_of(lists.value_offsets())
                .is_some_and(|range| has_zero(&lists.values().slice(range.start, range.len())))
        }
        _ => false,
    }
}

/// What lies between the first and the last of these offsets.
fn range_of(offsets: &[i32]) -> Option<Range<usize>> {
    let (first, last) = (*offsets.first()?, *offsets.last()?);
    Some(usize::try_from(first).ok()?..usize::try_from(last).ok()?)
}

/// The rows of `batch` with the columns of `schema`, in its order; text as it is.
///
/// # Errors
/// A value that the type of its column does not have.
pub(crate) fn cast_batch(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let given = batch.schema_ref().fields().iter().zip(batch.columns());
    let columns = schema.fields().iter().zip(given).map(|(field, (given, column))| {
        cast_to(&with_nulls(column, given), field.data_type())
            .map_err(|error| ArrowError::CastError(format!("column \"{}\": {error}", field.name())))
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// A column with NULL for each NaN, if its field is marked so.
fn with_nulls(column: &ArrayRef, field: &Field) -> ArrayRef {
    let (name, value) = NAN_IS_NULL;
    let is_marked = field.metadata().get(name).is_some_and(|said| said == value);
    match column.data_type() {
        DataType::Float32 if is_marked => without_nan::<Float32Type>(column, f32::is_nan),
        DataType::Float64 if is_marked => without_nan::<Float64Type>(column, f64::is_nan),
        _ => Arc::clone(column),
    }
}

fn without_nan<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    is_nan: impl Fn(T::Native) -> bool,
) -> ArrayRef {
    let Some(numbers) = column.as_primitive_opt::<T>() else { return Arc::clone(column) };
    let values = numbers.values();
    // Most have none. A loop that does not end early vectorises.
    if !values.iter().fold(false, |found, value| found | is_nan(*value)) {
        return Arc::clone(column);
    }
    let is_number = |row: usize| values.get(row).is_some_and(|value| !is_nan(*value));
    let are_numbers = NullBuffer::new(BooleanBuffer::collect_bool(values.len(), is_number));
    let nulls = NullBuffer::union(numbers.nulls(), Some(&are_numbers));
    Arc::new(PrimitiveArray::<T>::new(values.clone(), nulls))
}

/// `array` as values of `to`. None wraps or is lost.
pub(crate) fn cast_to(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    if *to == NARROW_NUMERIC && matches!(array.data_type(), DataType::Decimal256(..)) {
        return narrow_numerics(array).map_err(|error| ArrowError::ExternalError(Box::new(error)));
    }
    cast_with_options(
        array,
        to,
        &CastOptions { safe: false, format_options: FormatOptions::default() },
    )
}

/// The columns of a result as they are given away: with these names, and without what the database notes of them.
pub(crate) fn given_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| Field::new(field.name(), field.data_type().clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The columns of a result for libraries, of which some have no decimals of more than 38 digits.
pub(crate) fn library_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter();
    let fields =
        fields.map(|field| field.as_ref().clone().with_data_type(library_type(field.data_type())));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn library_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal256(..) => NARROW_NUMERIC,
        DataType::List(item) => {
            let item_type = library_type(item.data_type());
            DataType::List(Arc::new(item.as_ref().clone().with_data_type(item_type)))
        }
        other => other.clone(),
    }
}
