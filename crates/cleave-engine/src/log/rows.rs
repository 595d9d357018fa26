//! The encoding of rows in log records: a batch in, a few bytes out, and back.
//!
//! ```text
//!  0       1
//!  ├───────┼───────────┬──────────────────────────┬─────
//!  │ FORM  │ row count │ column: nulls │ values   │ …
//!  │ u8, 1 │ varint    │ u8 [, bitmap] │          │
//! ```
//!
//! Columns are those of the table, in their order, so neither names nor types are written. *Nulls* is 0 where there are
//! none, else 1 and a bit for each row, set where there is a value. Of values, those that are not NULL are written:
//! whole numbers, dates, times and decimals of 128 bits as varints in zigzag, text and bytes with their length as a
//! varint before, all else as it lies in memory, little-endian.
//!
//! An Arrow IPC message of one row takes some 500 bytes and 8 µs. Logs of earlier builds have these in the same place:
//! such a message begins with 0xFF. Those builds refuse what begins with [`FORM`], since it is no message.
//!
//! Invariant: a [`RowsBuilder`] returns the rows that [`encode`] was given, or an error. See
//! `docs/design/versions-and-commit.md`.

#![deny(clippy::indexing_slicing)]

mod builder;

use arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use arrow::error::ArrowError;
use cleave_fragment::command::slot::encode_batch;

pub(super) use self::builder::RowsBuilder;

/// What the bytes begin with.
const FORM: u8 = 1;
/// What an Arrow IPC message begins with.
const IPC: u8 = 0xff;
/// Bytes for which there is room at first for each column.
const COLUMN_BYTES: usize = 8;

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
        DataType::Decimal256(..) => {
            let values = column.as_primitive::<Decimal256Type>();
            rows.for_each(|row| out.extend_from_slice(&values.value(row).to_le_bytes()));
        }
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

#[cfg(test)]
mod tests;
