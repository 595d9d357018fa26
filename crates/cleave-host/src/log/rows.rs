//! Rows of a small commit as the log has them: a batch in, a few bytes out, and back.
//!
//! ```text
//!  0       1
//!  ├───────┼───────────┬──────────────────────────┬─────
//!  │ FORM  │ row count │ column: nulls │ values   │ …
//!  │ u8, 1 │ varint    │ u8 [, bitmap] │          │
//! ```
//!
//! Columns are those of the table, in their order, so neither names nor types are written. *Nulls* is 0 where there are none, else 1
//! and a bit for each row, set where there is a value. Of values, those that are not NULL are written: whole numbers, dates, times
//! and decimals as varints in zigzag, text and bytes with their length as a varint before, all else as it lies in memory,
//! little-endian.
//!
//! An Arrow IPC message of one row takes some 500 bytes and 8 µs. Logs of earlier builds have these in the same place: such a
//! message begins with 0xFF. These builds refuse what begins with [`FORM`], since it is no message.
//!
//! Invariant: [`decode`] gives the rows that [`encode`] was given, or says what is wrong; it makes room for no more than the bytes
//! that it was given can fill. Decision 0067.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder,
    PrimitiveBuilder, RecordBatch, RecordBatchOptions, StringBuilder,
};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use bytes::Bytes;
use cleave_fragment::command::slot::{SlotDecoder, encode_batch};

/// What the bytes begin with.
const FORM: u8 = 1;
/// What an Arrow IPC message begins with.
const IPC: u8 = 0xff;
/// Bytes for which there is room at first for each column.
const COLUMN_BYTES: usize = 8;
/// Bytes of an interval.
const INTERVAL_BYTES: usize = 16;

/// The bytes of `rows`.
///
/// # Errors
/// Rows of types that tables do not have, if they cannot be encoded.
pub(super) fn encode(rows: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut out = Vec::with_capacity(rows.num_columns() * COLUMN_BYTES);
    out.push(FORM);
    put_varint(&mut out, rows.num_rows() as u128);
    for column in rows.columns() {
        if !put_column(&mut out, column) {
            return encode_batch(rows);
        }
    }
    Ok(out)
}

/// The rows of these columns that `bytes` are.
///
/// # Errors
/// What is wrong with them.
pub(super) fn decode(bytes: Vec<u8>, schema: &SchemaRef) -> Result<RecordBatch, String> {
    match bytes.first() {
        Some(&FORM) => {}
        Some(&IPC) => {
            let rows = SlotDecoder::new(schema).decode(Bytes::from(bytes));
            let columns = rows.map_err(|error| error.to_string())?.columns().to_vec();
            let rows = RecordBatch::try_new(SchemaRef::clone(schema), columns);
            return rows.map_err(|error| error.to_string());
        }
        form => {
            let form = form.copied().unwrap_or(0);
            return Err(format!(
                "its rows are in form {form}, which this build does not read: use the build that wrote it, or a newer one"
            ));
        }
    }
    let mut reader = Reader { rest: bytes.get(1..).unwrap_or_default() };
    let rows = reader.rows(schema).ok_or("its rows are not those of the table's columns")?;
    if !reader.rest.is_empty() {
        return Err(format!("{} bytes are left behind its rows", reader.rest.len()));
    }
    rows.map_err(|error| error.to_string())
}

/// Appends a column; false: it is of a type that has no form here.
fn put_column(out: &mut Vec<u8>, column: &ArrayRef) -> bool {
    match column.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        None => out.push(0),
        Some(nulls) => {
            out.push(1);
            put_bits(out, nulls.iter());
        }
    }
    let rows = (0..column.len()).filter(|row| column.is_valid(*row));
    match column.data_type() {
        DataType::Int16 => put_whole::<Int16Type>(out, column),
        DataType::Int32 => put_whole::<Int32Type>(out, column),
        DataType::Int64 => put_whole::<Int64Type>(out, column),
        DataType::Date32 => put_whole::<Date32Type>(out, column),
        DataType::Time64(TimeUnit::Microsecond) => put_whole::<Time64MicrosecondType>(out, column),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            put_whole::<TimestampMicrosecondType>(out, column);
        }
        DataType::Decimal128(..) => put_whole::<Decimal128Type>(out, column),
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            rows.for_each(|row| out.extend_from_slice(&values.value(row).to_le_bytes()));
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            rows.for_each(|row| out.extend_from_slice(&values.value(row).to_le_bytes()));
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let values = column.as_primitive::<IntervalMonthDayNanoType>();
            for row in rows {
                let value = values.value(row);
                out.extend_from_slice(&value.months.to_le_bytes());
                out.extend_from_slice(&value.days.to_le_bytes());
                out.extend_from_slice(&value.nanoseconds.to_le_bytes());
            }
        }
        DataType::Boolean => {
            let values = column.as_boolean();
            put_bits(out, rows.map(|row| values.value(row)));
        }
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            rows.for_each(|row| put_bytes(out, values.value(row).as_bytes()));
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            rows.for_each(|row| put_bytes(out, values.value(row)));
        }
        DataType::FixedSizeBinary(_) => {
            let values = column.as_fixed_size_binary();
            rows.for_each(|row| out.extend_from_slice(values.value(row)));
        }
        _ => return false,
    }
    true
}

fn put_whole<T: ArrowPrimitiveType<Native: Into<i128>>>(out: &mut Vec<u8>, column: &ArrayRef) {
    for value in column.as_primitive::<T>().iter().flatten() {
        let value: i128 = value.into();
        put_varint(out, ((value << 1) ^ (value >> 127)).cast_unsigned());
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u128);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, value: u128) {
    // Most are short, and 128 bits are two registers.
    match u64::try_from(value) {
        Ok(mut value) => {
            while value >= 0x80 {
                let [low, ..] = value.to_le_bytes();
                out.push(low | 0x80);
                value >>= 7;
            }
            let [low, ..] = value.to_le_bytes();
            out.push(low);
        }
        Err(_) => put_long_varint(out, value),
    }
}

fn put_long_varint(out: &mut Vec<u8>, mut value: u128) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

/// Eight to a byte, the first one lowest.
fn put_bits(out: &mut Vec<u8>, bits: impl Iterator<Item = bool>) {
    let (mut byte, mut count) = (0_u8, 0_u32);
    for bit in bits {
        byte |= u8::from(bit) << count;
        count += 1;
        if count == 8 {
            out.push(byte);
            (byte, count) = (0, 0);
        }
    }
    if count > 0 {
        out.push(byte);
    }
}

/// What is not read yet. None from any of its functions: the bytes are not what was asked for.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn rows(&mut self, schema: &SchemaRef) -> Option<Result<RecordBatch, ArrowError>> {
        let row_count = usize::try_from(self.varint()?).ok()?;
        let columns = schema.fields().iter().map(|field| self.column(field.data_type(), row_count));
        let columns = columns.collect::<Option<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        Some(RecordBatch::try_new_with_options(SchemaRef::clone(schema), columns, &options))
    }

    fn column(&mut self, data_type: &DataType, row_count: usize) -> Option<ArrayRef> {
        let valid = match self.byte()? {
            // Each value takes a bit at least.
            0 if row_count <= self.rest.len().checked_mul(8)? => vec![true; row_count],
            1 => self.bits(row_count)?,
            _ => return None,
        };
        Some(match data_type {
            DataType::Int16 => self.whole::<Int16Type>(data_type, &valid)?,
            DataType::Int32 => self.whole::<Int32Type>(data_type, &valid)?,
            DataType::Int64 => self.whole::<Int64Type>(data_type, &valid)?,
            DataType::Date32 => self.whole::<Date32Type>(data_type, &valid)?,
            DataType::Time64(TimeUnit::Microsecond) => {
                self.whole::<Time64MicrosecondType>(data_type, &valid)?
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                self.whole::<TimestampMicrosecondType>(data_type, &valid)?
            }
            DataType::Decimal128(..) => self.whole::<Decimal128Type>(data_type, &valid)?,
            DataType::Float32 => self.primitive::<Float32Type>(data_type, &valid, |reader| {
                reader.chunk().map(f32::from_le_bytes)
            })?,
            DataType::Float64 => self.primitive::<Float64Type>(data_type, &valid, |reader| {
                reader.chunk().map(f64::from_le_bytes)
            })?,
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                self.primitive::<IntervalMonthDayNanoType>(data_type, &valid, Self::interval)?
            }
            DataType::Boolean => {
                let count = valid.iter().filter(|valid| **valid).count();
                let mut values = self.bits(count)?.into_iter();
                let mut builder = BooleanBuilder::with_capacity(row_count);
                for is_valid in valid {
                    builder.append_option(if is_valid { Some(values.next()?) } else { None });
                }
                Arc::new(builder.finish())
            }
            DataType::Utf8 => {
                let mut builder = StringBuilder::new();
                for is_valid in valid {
                    builder.append_option(match is_valid {
                        true => Some(std::str::from_utf8(self.sized()?).ok()?),
                        false => None,
                    });
                }
                Arc::new(builder.finish())
            }
            DataType::Binary => {
                let mut builder = BinaryBuilder::new();
                for is_valid in valid {
                    builder.append_option(if is_valid { Some(self.sized()?) } else { None });
                }
                Arc::new(builder.finish())
            }
            DataType::FixedSizeBinary(width) => {
                let byte_count = usize::try_from(*width).ok()?;
                let mut builder = FixedSizeBinaryBuilder::new(*width);
                for is_valid in valid {
                    match is_valid {
                        true => builder.append_value(self.take(byte_count)?).ok()?,
                        false => builder.append_null(),
                    }
                }
                Arc::new(builder.finish())
            }
            _ => return None,
        })
    }

    fn whole<T>(&mut self, data_type: &DataType, valid: &[bool]) -> Option<ArrayRef>
    where
        T: ArrowPrimitiveType<Native: TryFrom<i128>>,
    {
        self.primitive::<T>(data_type, valid, |reader| {
            let value = reader.varint()?;
            let value = (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
            T::Native::try_from(value).ok()
        })
    }

    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        data_type: &DataType,
        valid: &[bool],
        read: impl Fn(&mut Self) -> Option<T::Native>,
    ) -> Option<ArrayRef> {
        let mut builder = PrimitiveBuilder::<T>::with_capacity(valid.len());
        for is_valid in valid {
            builder.append_option(if *is_valid { Some(read(self)?) } else { None });
        }
        Some(Arc::new(builder.finish().with_data_type(data_type.clone())))
    }

    fn interval(&mut self) -> Option<IntervalMonthDayNano> {
        let bytes: [u8; INTERVAL_BYTES] = self.chunk()?;
        let (months, rest) = bytes.split_first_chunk()?;
        let (days, nanoseconds) = rest.split_first_chunk()?;
        Some(IntervalMonthDayNano {
            months: i32::from_le_bytes(*months),
            days: i32::from_le_bytes(*days),
            nanoseconds: i64::from_le_bytes(nanoseconds.try_into().ok()?),
        })
    }

    fn bits(&mut self, count: usize) -> Option<Vec<bool>> {
        let bytes = self.take(count.div_ceil(8))?;
        let bits = bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
        Some(bits.take(count).collect())
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let byte_count = usize::try_from(self.varint()?).ok()?;
        self.take(byte_count)
    }

    fn varint(&mut self) -> Option<u128> {
        let mut value = 0_u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            value |= u128::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*chunk)
    }

    fn take(&mut self, byte_count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(byte_count)?;
        self.rest = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests;
