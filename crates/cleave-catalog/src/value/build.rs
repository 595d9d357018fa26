//! Builds typed Arrow columns from text, with one [`ColumnBuilder`] a column.
//!
//! The text types keep every character. `character varying(n)` and `character(n)` refuse more than `n` characters
//! unless the excess is blanks, which are dropped. `character(n)` is stored without its trailing blanks and without
//! padding: unlike PostgreSQL, Cleave does not pad to `n` on output, and comparisons do not ignore blanks. Text sorts
//! by bytes.

use std::sync::Arc;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder,
    PrimitiveArray, StringBuilder,
};
use cleave_fragment::functions::assignment;
use cleave_store::ColumnType;

use crate::value::error::{Bad, ValueError, ValueFault};
use crate::value::{interval, parse};

/// Collects values of one SQL type.
#[derive(Debug)]
pub struct ColumnBuilder {
    column_type: ColumnType,
    values: Values,
}

#[derive(Debug)]
enum Values {
    SmallInt(Numbers<Int16Type>),
    Int(Numbers<Int32Type>),
    BigInt(Numbers<Int64Type>),
    Real(Numbers<Float32Type>),
    Double(Numbers<Float64Type>),
    Numeric(Numbers<Decimal128Type>, u8, i8),
    /// Without a precision.
    AnyNumeric(Numbers<Decimal256Type>),
    Boolean(BooleanBuilder),
    /// With the maximum number of characters, and whether trailing blanks are stripped.
    Text(StringBuilder, usize, bool),
    Date(Numbers<Date32Type>),
    Time(Numbers<Time64MicrosecondType>),
    Timestamp(Numbers<TimestampMicrosecondType>),
    TimestampTz(Numbers<TimestampMicrosecondType>),
    Interval(Numbers<IntervalMonthDayNanoType>),
    Bytea(BinaryBuilder),
    Uuid(FixedSizeBinaryBuilder),
}

impl ColumnBuilder {
    /// An empty column with room for `row_count` values.
    #[must_use]
    pub fn new(column_type: &ColumnType, row_count: usize) -> Self {
        let length = |length: u32| usize::try_from(length).unwrap_or(usize::MAX);
        let text = |count_max: usize, strip: bool| {
            Values::Text(StringBuilder::with_capacity(row_count, row_count * 8), count_max, strip)
        };
        let values = match *column_type {
            ColumnType::SmallInt => Values::SmallInt(Numbers::new(row_count)),
            ColumnType::Int => Values::Int(Numbers::new(row_count)),
            ColumnType::BigInt => Values::BigInt(Numbers::new(row_count)),
            ColumnType::Real => Values::Real(Numbers::new(row_count)),
            ColumnType::Double => Values::Double(Numbers::new(row_count)),
            ColumnType::NUMERIC => Values::AnyNumeric(Numbers::new(row_count)),
            ColumnType::Numeric { precision, scale } => {
                Values::Numeric(Numbers::new(row_count), precision, scale)
            }
            ColumnType::Boolean => Values::Boolean(BooleanBuilder::with_capacity(row_count)),
            ColumnType::Text | ColumnType::Varchar(None) => text(usize::MAX, false),
            ColumnType::Varchar(Some(count)) => text(length(count), false),
            ColumnType::Char(count) => text(length(count), true),
            ColumnType::Date => Values::Date(Numbers::new(row_count)),
            ColumnType::Time => Values::Time(Numbers::new(row_count)),
            ColumnType::Timestamp => Values::Timestamp(Numbers::new(row_count)),
            ColumnType::TimestampTz => Values::TimestampTz(Numbers::new(row_count)),
            ColumnType::Interval => Values::Interval(Numbers::new(row_count)),
            ColumnType::Bytea => {
                Values::Bytea(BinaryBuilder::with_capacity(row_count, row_count * 8))
            }
            ColumnType::Uuid => Values::Uuid(FixedSizeBinaryBuilder::with_capacity(row_count, 16)),
        };
        Self { column_type: *column_type, values }
    }

    /// Appends the value of `text`.
    ///
    /// # Errors
    /// [`ValueError`]; the column is then as before.
    pub fn append_text(&mut self, text: &str) -> Result<(), ValueError> {
        self.append(text).map_err(|bad| ValueError::new(bad, self.column_type.sql_name(), text))
    }

    /// Appends the unquoted number `text`: rounded half away from zero in a column of whole numbers, in plain digits in
    /// one of text. The column must accept numbers.
    ///
    /// # Errors
    /// As [`ColumnBuilder::append_text`].
    pub fn append_number(&mut self, text: &str) -> Result<(), ValueError> {
        let is_plain = || text.bytes().all(|byte| byte.is_ascii_digit());
        let outcome = match &self.values {
            Values::SmallInt(_) | Values::Int(_) | Values::BigInt(_) if !is_plain() => {
                parse::numeric(text, 38, 0).and_then(|whole| self.append(&whole.to_string()))
            }
            Values::Text(..) => parse::digits_of(text).and_then(|digits| self.append(&digits)),
            _ => self.append(text),
        };
        outcome.map_err(|bad| ValueError::new(bad, self.column_type.sql_name(), text))
    }

    fn append(&mut self, text: &str) -> Result<(), Bad> {
        match &mut self.values {
            Values::SmallInt(builder) => {
                builder.append_value(parse::integer(text, "a whole number from -32768 to 32767")?)
            }
            Values::Int(builder) => builder.append_value(parse::integer(
                text,
                "a whole number from -2147483648 to 2147483647",
            )?),
            Values::BigInt(builder) => builder.append_value(parse::integer(
                text,
                "a whole number from -9223372036854775808 to 9223372036854775807",
            )?),
            Values::Real(builder) => builder.append_value(parse::real(text)?),
            Values::Double(builder) => builder.append_value(parse::double(text)?),
            Values::Numeric(builder, precision, scale) => {
                builder.append_value(parse::numeric(text, *precision, *scale)?);
            }
            Values::AnyNumeric(builder) => builder.append_value(parse::any_numeric(text)?),
            Values::Boolean(builder) => builder.append_value(parse::boolean(text)?),
            Values::Text(builder, count_max, strip) => {
                builder.append_value(fitting(text, *count_max, *strip)?);
            }
            Values::Date(builder) => builder.append_value(parse::date(text)?),
            Values::Time(builder) => builder.append_value(parse::time(text)?),
            Values::Timestamp(builder) => builder.append_value(parse::timestamp(text)?),
            Values::TimestampTz(builder) => builder.append_value(parse::timestamp_tz(text)?),
            Values::Interval(builder) => builder.append_value(interval::parse(text)?),
            Values::Bytea(builder) => builder.append_value(parse::bytea(text)?),
            Values::Uuid(builder) => {
                // The builder refuses only values of another length than its own, which is impossible here.
                drop(builder.append_value(parse::uuid(text)?));
            }
        }
        Ok(())
    }

    /// Appends a point in time, in microseconds since 1970-01-01T00:00:00Z; NULL in a column of another type.
    pub fn append_moment(&mut self, micros: i64) {
        match &mut self.values {
            Values::Timestamp(builder) | Values::TimestampTz(builder) => {
                builder.append_value(micros);
            }
            _ => self.append_null(),
        }
    }

    /// Appends NULL.
    pub fn append_null(&mut self) {
        match &mut self.values {
            Values::SmallInt(builder) => builder.append_null(),
            Values::Int(builder) => builder.append_null(),
            Values::BigInt(builder) => builder.append_null(),
            Values::Real(builder) => builder.append_null(),
            Values::Double(builder) => builder.append_null(),
            Values::Numeric(builder, ..) => builder.append_null(),
            Values::AnyNumeric(builder) => builder.append_null(),
            Values::Boolean(builder) => builder.append_null(),
            Values::Text(builder, ..) => builder.append_null(),
            Values::Date(builder) => builder.append_null(),
            Values::Time(builder) => builder.append_null(),
            Values::Timestamp(builder) | Values::TimestampTz(builder) => builder.append_null(),
            Values::Interval(builder) => builder.append_null(),
            Values::Bytea(builder) => builder.append_null(),
            Values::Uuid(builder) => builder.append_null(),
        }
    }

    /// The values so far, of the column type's Arrow type; the builder is empty afterwards.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.values {
            Values::SmallInt(numbers) => Arc::new(numbers.finish()),
            Values::Int(numbers) => Arc::new(numbers.finish()),
            Values::BigInt(numbers) => Arc::new(numbers.finish()),
            Values::Real(numbers) => Arc::new(numbers.finish()),
            Values::Double(numbers) => Arc::new(numbers.finish()),
            Values::Numeric(numbers, ..) => {
                Arc::new(numbers.finish().with_data_type(self.column_type.arrow()))
            }
            Values::AnyNumeric(numbers) => {
                Arc::new(numbers.finish().with_data_type(self.column_type.arrow()))
            }
            Values::Boolean(builder) => Arc::new(builder.finish()),
            Values::Text(builder, ..) => Arc::new(builder.finish()),
            Values::Date(numbers) => Arc::new(numbers.finish()),
            Values::Time(numbers) => Arc::new(numbers.finish()),
            Values::Timestamp(numbers) => Arc::new(numbers.finish()),
            Values::TimestampTz(numbers) => {
                Arc::new(numbers.finish().with_data_type(self.column_type.arrow()))
            }
            Values::Interval(numbers) => Arc::new(numbers.finish()),
            Values::Bytea(builder) => Arc::new(builder.finish()),
            Values::Uuid(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Values of one width. Arrow's own builder uses its general array constructor, which costs more than an array of one
/// value, and there is one for each parameter and each column of a small statement.
#[derive(Debug)]
struct Numbers<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    fn new(row_count: usize) -> Self {
        Self { values: Vec::with_capacity(row_count), nulls: NullBufferBuilder::new(row_count) }
    }

    fn append_value(&mut self, value: T::Native) {
        self.values.push(value);
        self.nulls.append_non_null();
    }

    fn append_null(&mut self) {
        self.values.push(T::Native::default());
        self.nulls.append_null();
    }

    fn finish(&mut self) -> PrimitiveArray<T> {
        PrimitiveArray::new(std::mem::take(&mut self.values).into(), self.nulls.finish())
    }
}

/// The text as a column of at most `count_max` characters stores it; `strip` drops trailing blanks.
fn fitting(text: &str, count_max: usize, strip: bool) -> Result<&str, Bad> {
    let too_long =
        Bad { fault: ValueFault::TooLong, expected: "no more characters than the type's length" };
    assignment::fitting(text, count_max, strip).ok_or(too_long)
}

/// Checks a text against the length of `character varying(n)` or `character(n)` and returns it as stored; for any other
/// type, unchanged.
///
/// # Errors
/// [`ValueError`] if the text is too long.
pub fn fit<'a>(column_type: &ColumnType, text: &'a str) -> Result<&'a str, ValueError> {
    let fits = match assignment::length_of(column_type) {
        Some((count_max, strip)) => fitting(text, count_max, strip),
        None => Ok(text),
    };
    fits.map_err(|bad| ValueError::new(bad, column_type.sql_name(), text))
}

#[cfg(test)]
mod tests;
