//! The Arrow types that columns have in SQL: any Arrow type in, the one that its values have as a column out.
//!
//! Libraries have several Arrow types for one of SQL (`string_view`, `large_string` and dictionaries for `text`,
//! seconds and nanoseconds for `timestamp`). Operators and functions know one of each, so batches are cast when they
//! come in; what has the type already is not copied. Unsigned integers become the next larger signed type.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;

/// Digits that a number may have.
const PRECISION_MAX: u8 = 38;
/// Digits of the largest unsigned integer.
const UNSIGNED_DIGITS: u8 = 20;

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
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            DataType::Decimal128((*precision).min(PRECISION_MAX), *scale)
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
/// A value that the type of its column does not have.
pub(crate) fn plain_batch(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| {
        cast_to(column, field.data_type())
            .map_err(|error| ArrowError::CastError(format!("column \"{}\": {error}", field.name())))
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// `array` as values of `to`. None wraps or is lost.
pub(crate) fn cast_to(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
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
