//! Rows of a result in, Arrow batches out: each column checks its values and appends them.
//!
//! Invariants: a value has exactly the bytes of its type; a list has the items that it counts, of the type of its
//! column. A batch ends after [`BATCH_ROWS_MAX`] rows or [`BATCH_BYTES_MAX`] bytes. The bytes of a value are counted as
//! what they become, so that short numbers with long texts end it too.
#![expect(clippy::big_endian_bytes, reason = "the protocol's numbers are in network order")]

mod list;

use std::sync::Arc;

use arrow::array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder,
    FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, IntervalMonthDayNanoBuilder, StringBuilder, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{
    DataType, Field, IntervalMonthDayNano, IntervalUnit, Schema, SchemaRef, TimeUnit, i256,
};

use crate::answer::BATCH_ROWS_MAX;
use crate::error::ClientError;
use crate::kind::Kind;
use crate::numeric::{Fit, Numeric, has_at_most};
use crate::wire::Reader;
use list::List;

/// Bytes of values after which a batch ends.
const BATCH_BYTES_MAX: usize = 32 << 20;
/// Days from 1970-01-01, where Arrow's dates begin, to 2000-01-01, where PostgreSQL's do.
const DAYS_TO_2000: i32 = 10_957;
/// The same in microseconds.
const MICROS_TO_2000: i64 = DAYS_TO_2000 as i64 * DAY_MICROS;
/// A day in microseconds.
const DAY_MICROS: i64 = 86_400_000_000;

/// What breaks the protocol, where a description of columns is expected.
pub(crate) const NO_COLUMNS: &str = "a description of columns that is none";

/// A column as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The columns in a RowDescription, with the kinds of their types and modifiers.
pub(crate) fn described(body: &[u8], kind: impl Fn(u32, i32) -> Kind) -> Option<Vec<Described>> {
    let mut reader = Reader::new(body);
    let count = reader.u16()?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let name = reader.text()?.to_owned();
        let (_table, _column) = (reader.u32()?, reader.u16()?);
        let (oid, _size) = (reader.u32()?, reader.u16()?);
        let (modifier, _format) = (reader.i32()?, reader.u16()?);
        columns.push(Described { name, kind: kind(oid, modifier) });
    }
    reader.is_empty().then_some(columns)
}

/// Why a value was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is no value of its type.
    Malformed,
    /// Its column's type has no such value.
    Unfit,
    /// A list of several dimensions.
    Dimensions,
}

impl Fault {
    fn detail(self) -> &'static str {
        match self {
            Self::Malformed => "the server sent what is no value of its type",
            Self::Unfit => {
                "a value does not fit the type that the first rows gave the column; cast it in the statement, to text \
                 or to numeric with a precision"
            }
            Self::Dimensions => "a list of several dimensions; cast it to text in the statement",
        }
    }
}

/// Rows that become a batch.
pub(crate) struct Rows {
    columns: Vec<Column>,
    row_count: usize,
    byte_count: usize,
    /// Once the first rows have decided it.
    schema: Option<SchemaRef>,
}

struct Column {
    name: String,
    values: Values,
}

impl Rows {
    pub(crate) fn new(described: Vec<Described>) -> Self {
        let columns = described
            .into_iter()
            .map(|column| Column { name: column.name, values: Values::new(&column.kind) });
        Self { columns: columns.collect(), row_count: 0, byte_count: 0, schema: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.row_count == 0
    }

    /// Whether a batch is to be made of them.
    pub(crate) fn is_full(&self) -> bool {
        self.row_count >= BATCH_ROWS_MAX || self.byte_count >= BATCH_BYTES_MAX
    }

    /// Appends the row of a DataRow message. None if the message is none.
    pub(crate) fn append(&mut self, row: &[u8]) -> Option<Result<(), ClientError>> {
        let mut reader = Reader::new(row);
        if usize::from(reader.u16()?) != self.columns.len() {
            return None;
        }
        for column in &mut self.columns {
            match column.values.append(reader.sized()?) {
                Ok(bytes) => self.byte_count = self.byte_count.saturating_add(bytes),
                Err(fault) => return Some(Err(column.wrong(fault))),
            }
        }
        self.row_count += 1;
        reader.is_empty().then_some(Ok(()))
    }

    /// The batch of the rows so far; more may follow.
    pub(crate) fn batch(&mut self) -> Result<RecordBatch, ClientError> {
        let schema = self.schema()?;
        let arrays: Vec<ArrayRef> =
            self.columns.iter_mut().map(|column| column.values.finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.row_count));
        (self.row_count, self.byte_count) = (0, 0);
        RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| ClientError::Protocol(error.to_string()))
    }

    /// The schema. The rows so far decide what the server has left open.
    pub(crate) fn schema(&mut self) -> Result<SchemaRef, ClientError> {
        if let Some(schema) = &self.schema {
            return Ok(Arc::clone(schema));
        }
        let mut fields = Vec::with_capacity(self.columns.len());
        for column in &mut self.columns {
            if let Err(fault) = column.values.decide() {
                return Err(column.wrong(fault));
            }
            fields.push(Field::new(&column.name, column.values.data_type(), true));
        }
        let schema = Arc::new(Schema::new(fields));
        self.schema = Some(Arc::clone(&schema));
        Ok(schema)
    }
}

impl Column {
    fn wrong(&self, fault: Fault) -> ClientError {
        ClientError::Value { column: self.name.clone(), detail: fault.detail() }
    }
}

/// The values of a column.
enum Values {
    Bool(BooleanBuilder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Oid(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    /// Numbers of which the first rows will decide the type, in binary.
    Open(Vec<Option<Vec<u8>>>),
    Decimal128(Decimal128Builder, u8, i8),
    Decimal256(Decimal256Builder, u8, i8),
    /// Numbers as text.
    Digits(StringBuilder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    TimestampTz(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Uuid(FixedSizeBinaryBuilder),
    List(Box<List>),
}

impl Values {
    fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Int2 => Self::Int16(Int16Builder::new()),
            Kind::Int4 => Self::Int32(Int32Builder::new()),
            Kind::Int8 => Self::Int64(Int64Builder::new()),
            Kind::Oid => Self::Oid(Int64Builder::new()),
            Kind::Float4 => Self::Float32(Float32Builder::new()),
            Kind::Float8 => Self::Float64(Float64Builder::new()),
            Kind::Numeric(None) => Self::Open(Vec::new()),
            Kind::Numeric(Some((precision, scale))) => Self::decimal(*precision, *scale),
            Kind::Text | Kind::Shown => Self::Text(StringBuilder::new()),
            Kind::Bytea => Self::Bytes(BinaryBuilder::new()),
            Kind::Date => Self::Date(Date32Builder::new()),
            Kind::Time => Self::Time(Time64MicrosecondBuilder::new()),
            Kind::Timestamp => Self::Timestamp(TimestampMicrosecondBuilder::new()),
            Kind::TimestampTz => {
                Self::TimestampTz(TimestampMicrosecondBuilder::new().with_data_type(moment()))
            }
            Kind::Interval => Self::Interval(IntervalMonthDayNanoBuilder::new()),
            Kind::Uuid => Self::Uuid(FixedSizeBinaryBuilder::new(16)),
            Kind::List(item) => Self::List(Box::new(List::new(item))),
        }
    }

    fn decimal(precision: u8, scale: i8) -> Self {
        if precision <= 38 {
            let data_type = DataType::Decimal128(precision, scale);
            Self::Decimal128(Decimal128Builder::new().with_data_type(data_type), precision, scale)
        } else {
            let data_type = DataType::Decimal256(precision, scale);
            Self::Decimal256(Decimal256Builder::new().with_data_type(data_type), precision, scale)
        }
    }

    /// The Arrow type; of numbers, once it is decided.
    fn data_type(&self) -> DataType {
        match self {
            Self::Bool(_) => DataType::Boolean,
            Self::Int16(_) => DataType::Int16,
            Self::Int32(_) => DataType::Int32,
            Self::Int64(_) | Self::Oid(_) => DataType::Int64,
            Self::Float32(_) => DataType::Float32,
            Self::Float64(_) => DataType::Float64,
            Self::Decimal128(_, precision, scale) => DataType::Decimal128(*precision, *scale),
            Self::Decimal256(_, precision, scale) => DataType::Decimal256(*precision, *scale),
            Self::Open(_) | Self::Digits(_) | Self::Text(_) => DataType::Utf8,
            Self::Bytes(_) => DataType::Binary,
            Self::Date(_) => DataType::Date32,
            Self::Time(_) => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz(_) => moment(),
            Self::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Uuid(_) => DataType::FixedSizeBinary(16),
            Self::List(list) => list.data_type(),
        }
    }

    /// Decides the type of numbers by those so far.
    fn decide(&mut self) -> Result<(), Fault> {
        let Self::Open(numbers) = self else { return Ok(()) };
        let numbers = std::mem::take(numbers);
        *self = match Fit::of(numbers.iter().flatten().map(Vec::as_slice)) {
            Fit::Decimal(precision, scale) => Self::decimal(precision, scale),
            Fit::Text => Self::Digits(StringBuilder::new()),
        };
        for number in &numbers {
            self.append(number.as_deref())?;
        }
        Ok(())
    }

    /// Appends a value, None for NULL; returns the bytes that it takes.
    fn append(&mut self, value: Option<&[u8]>) -> Result<usize, Fault> {
        let mut taken = value.map_or(8, |value| value.len().max(8));
        match self {
            Self::Bool(values) => values.append_option(read(value, |bytes| match bytes {
                [0] => Ok(false),
                [1] => Ok(true),
                _ => Err(Fault::Malformed),
            })?),
            Self::Int16(values) => values.append_option(number(value, i16::from_be_bytes)?),
            Self::Int32(values) => values.append_option(number(value, i32::from_be_bytes)?),
            Self::Int64(values) => values.append_option(number(value, i64::from_be_bytes)?),
            Self::Oid(values) => {
                values.append_option(number(value, u32::from_be_bytes)?.map(i64::from));
            }
            Self::Float32(values) => values.append_option(number(value, f32::from_be_bytes)?),
            Self::Float64(values) => values.append_option(number(value, f64::from_be_bytes)?),
            Self::Open(values) => {
                let number = read(value, numeric)?;
                taken += number.map_or(24, Numeric::text_bytes_max) + 24;
                values.push(value.map(<[u8]>::to_vec));
            }
            Self::Decimal128(values, precision, scale) => {
                let number = read(value, |bytes| decimal(bytes, *precision, *scale))?;
                let number = number.map(|number| number.to_i128().ok_or(Fault::Unfit));
                values.append_option(number.transpose()?);
            }
            Self::Decimal256(values, precision, scale) => {
                values.append_option(read(value, |bytes| decimal(bytes, *precision, *scale))?);
            }
            Self::Digits(values) => match read(value, numeric)? {
                Some(number) => {
                    let mut text = String::new();
                    number.write(&mut text);
                    taken += text.len();
                    values.append_value(text);
                }
                None => values.append_null(),
            },
            Self::Text(values) => values.append_option(read(value, |bytes| {
                std::str::from_utf8(bytes).map_err(|_| Fault::Malformed)
            })?),
            Self::Bytes(values) => values.append_option(value),
            Self::Date(values) => values.append_option(read(value, |bytes| {
                let days = i32::from_be_bytes(exact(bytes)?);
                match days {
                    // The infinities, which Cleave stores so too.
                    i32::MIN | i32::MAX => Ok(days),
                    _ => days.checked_add(DAYS_TO_2000).ok_or(Fault::Unfit),
                }
            })?),
            Self::Time(values) => values.append_option(read(value, |bytes| {
                let micros = i64::from_be_bytes(exact(bytes)?);
                let is_time = (0..=DAY_MICROS).contains(&micros);
                if is_time { Ok(micros) } else { Err(Fault::Malformed) }
            })?),
            Self::Timestamp(values) | Self::TimestampTz(values) => {
                values.append_option(read(value, |bytes| {
                    let micros = i64::from_be_bytes(exact(bytes)?);
                    match micros {
                        i64::MIN | i64::MAX => Ok(micros),
                        _ => micros.checked_add(MICROS_TO_2000).ok_or(Fault::Unfit),
                    }
                })?);
            }
            Self::Interval(values) => values.append_option(read(value, interval)?),
            Self::Uuid(values) => match read(value, exact::<16>)? {
                Some(uuid) => values.append_value(uuid).map_err(|_| Fault::Malformed)?,
                None => values.append_null(),
            },
            Self::List(list) => taken += list.append(value)?,
        }
        Ok(taken)
    }

    /// The array of the values so far.
    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(values) => Arc::new(values.finish()),
            Self::Int16(values) => Arc::new(values.finish()),
            Self::Int32(values) => Arc::new(values.finish()),
            Self::Int64(values) | Self::Oid(values) => Arc::new(values.finish()),
            Self::Float32(values) => Arc::new(values.finish()),
            Self::Float64(values) => Arc::new(values.finish()),
            // Decided before.
            Self::Open(values) => Arc::new(arrow::array::StringArray::new_null(values.len())),
            Self::Decimal128(values, ..) => Arc::new(values.finish()),
            Self::Decimal256(values, ..) => Arc::new(values.finish()),
            Self::Digits(values) | Self::Text(values) => Arc::new(values.finish()),
            Self::Bytes(values) => Arc::new(values.finish()),
            Self::Date(values) => Arc::new(values.finish()),
            Self::Time(values) => Arc::new(values.finish()),
            Self::Timestamp(values) | Self::TimestampTz(values) => Arc::new(values.finish()),
            Self::Interval(values) => Arc::new(values.finish()),
            Self::Uuid(values) => Arc::new(values.finish()),
            Self::List(list) => list.finish(),
        }
    }
}

fn moment() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// A value that is not NULL, read by `of`.
fn read<'a, T>(
    value: Option<&'a [u8]>,
    of: impl FnOnce(&'a [u8]) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    value.map(of).transpose()
}

/// A value of as many bytes as its number has.
fn number<const N: usize, T>(
    value: Option<&[u8]>,
    of: impl FnOnce([u8; N]) -> T,
) -> Result<Option<T>, Fault> {
    read(value, |bytes| Ok(of(exact(bytes)?)))
}

fn exact<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Fault> {
    bytes.try_into().map_err(|_| Fault::Malformed)
}

fn numeric(bytes: &[u8]) -> Result<Numeric<'_>, Fault> {
    Numeric::read(bytes).ok_or(Fault::Malformed)
}

fn decimal(bytes: &[u8], precision: u8, scale: i8) -> Result<i256, Fault> {
    let number = numeric(bytes)?.at_scale(scale);
    number.filter(|number| has_at_most(*number, precision)).ok_or(Fault::Unfit)
}

fn interval(bytes: &[u8]) -> Result<IntervalMonthDayNano, Fault> {
    let (micros, rest) = bytes.split_first_chunk::<8>().ok_or(Fault::Malformed)?;
    let (days, months) = rest.split_first_chunk::<4>().ok_or(Fault::Malformed)?;
    let nanos = i64::from_be_bytes(*micros).checked_mul(1000).ok_or(Fault::Unfit)?;
    let (days, months) = (i32::from_be_bytes(*days), i32::from_be_bytes(exact(months)?));
    Ok(IntervalMonthDayNano::new(months, days, nanos))
}

#[cfg(test)]
mod tests;
