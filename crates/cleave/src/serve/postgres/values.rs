//! Values on the wire: rows of a batch in, DataRow messages out ([`RowWriter`]); values of a client in, their text out
//! ([`parameter_text`]).
//!
//! As text a value is what the database prints. In binary it is what PostgreSQL's `send` functions write: numbers in
//! network order, dates and times from 2000-01-01, `numeric` as digits of base 10,000.
//!
//! Source: PostgreSQL's `src/backend/utils/adt`, functions `…_send` and `…_recv`.

use std::sync::Arc;

use arrow::array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, FixedSizeBinaryArray, IntervalMonthDayNanoArray,
    RecordBatch, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use bytes::{BufMut, Bytes, BytesMut};
use cleave_host::Error;
use cleave_host::value::{ValueText, value_text};

use super::complaint::Complaint;
use super::message::{Format, network_u16, network_u32};
use super::reply::Column;
use super::types::{Element, WireType, plain};

/// Days from 1970-01-01, where Arrow's dates begin, to 2000-01-01, where PostgreSQL's do.
const DAYS_TO_2000: i32 = 10_957;
/// The same in microseconds.
const MICROS_TO_2000: i64 = DAYS_TO_2000 as i64 * 86_400_000_000;

/// Writes rows of one batch.
pub(crate) struct RowWriter<'a> {
    columns: Vec<ColumnWriter<'a>>,
    scratch: String,
}

enum ColumnWriter<'a> {
    Text(ValueText<'a>),
    Binary(BinaryWriter),
}

/// Writes values of one array in binary.
struct BinaryWriter {
    array: ArrayRef,
    element: Element,
}

impl<'a> RowWriter<'a> {
    /// A writer of the rows of `batch` as `columns` say.
    pub(crate) fn new(batch: &'a RecordBatch, columns: &[Column]) -> Result<Self, Complaint> {
        let writers = batch.columns().iter().zip(columns).map(|(array, column)| {
            Ok(match column.format {
                Format::Text => ColumnWriter::Text(ValueText::new(array).map_err(internal)?),
                Format::Binary => ColumnWriter::Binary(BinaryWriter::new(array, &column.name)?),
            })
        });
        Ok(Self { columns: writers.collect::<Result<_, Complaint>>()?, scratch: String::new() })
    }

    /// Appends the row at `index`.
    pub(crate) fn write(&mut self, out: &mut BytesMut, index: usize) -> Result<(), Complaint> {
        let start = out.len();
        out.put_u8(b'D');
        out.put_u32(0);
        out.put_u16(u16::try_from(self.columns.len()).unwrap_or(u16::MAX));
        for column in &self.columns {
            match column {
                ColumnWriter::Text(text) => {
                    self.scratch.clear();
                    if text.write(index, &mut self.scratch) {
                        put_sized(out, self.scratch.as_bytes())?;
                    } else {
                        out.put_i32(-1);
                    }
                }
                ColumnWriter::Binary(binary) => binary.write(out, index)?,
            }
        }
        let length = u32::try_from(out.len() - start - 1);
        let length = length.ok().filter(|length| *length <= i32::MAX.cast_unsigned());
        let Some(length) = length else {
            out.truncate(start);
            return Err(Complaint::error(
                "54000",
                "a row is longer than 2 GB, which no message holds",
            ));
        };
        if let Some(mut place) = out.get_mut(start + 1..start + 5) {
            place.put_u32(length);
        }
        Ok(())
    }
}

fn internal(error: Error) -> Complaint {
    Complaint::of(&error, "")
}

fn put_sized(out: &mut BytesMut, bytes: &[u8]) -> Result<(), Complaint> {
    let length = i32::try_from(bytes.len())
        .map_err(|_| Complaint::error("54000", "a value is longer than 2 GB"))?;
    out.put_i32(length);
    out.put_slice(bytes);
    Ok(())
}

impl BinaryWriter {
    fn new(array: &ArrayRef, name: &str) -> Result<Self, Complaint> {
        let wire_type = WireType::of_arrow(array.data_type());
        let array = match array.data_type() {
            DataType::Dictionary(_, value) => cast(array, &plain(value))?,
            DataType::List(_) => Arc::clone(array),
            other if !wire_type.is_list => cast(array, &plain(other))?,
            _ => return Err(no_binary(name, array.data_type())),
        };
        if wire_type.element == Element::Record {
            return Err(no_binary(name, array.data_type()));
        }
        Ok(Self { array, element: wire_type.element })
    }

    /// Appends the value at `index` with its length, -1 for NULL.
    fn write(&self, out: &mut BytesMut, index: usize) -> Result<(), Complaint> {
        if self.array.is_null(index) || *self.array.data_type() == DataType::Null {
            out.put_i32(-1);
            return Ok(());
        }
        let start = out.len();
        out.put_u32(0);
        match self.array.as_list_opt::<i32>() {
            Some(list) => self.write_list(out, &list.value(index))?,
            None => self.write_value(out, index),
        }
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        if let Some(mut place) = out.get_mut(start..start + 4) {
            place.put_u32(length);
        }
        Ok(())
    }

    fn write_list(&self, out: &mut BytesMut, items: &ArrayRef) -> Result<(), Complaint> {
        let items = Self { array: cast(items, &plain(items.data_type()))?, element: self.element };
        let count = i32::try_from(items.array.len()).unwrap_or(i32::MAX);
        out.put_i32(i32::from(count > 0));
        out.put_i32(i32::from(items.array.null_count() > 0));
        out.put_u32(self.element.oid());
        if count > 0 {
            out.put_i32(count);
            out.put_i32(1);
        }
        (0..items.array.len()).try_for_each(|index| items.write(out, index))
    }

    fn write_value(&self, out: &mut BytesMut, index: usize) {
        let array = &self.array;
        match array.data_type() {
            DataType::Boolean => out.put_u8(u8::from(array.as_boolean().value(index))),
            DataType::Int16 => out.put_i16(array.as_primitive::<Int16Type>().value(index)),
            DataType::Int32 => out.put_i32(array.as_primitive::<Int32Type>().value(index)),
            DataType::Int64 => out.put_i64(array.as_primitive::<Int64Type>().value(index)),
            DataType::Float32 => out.put_f32(array.as_primitive::<Float32Type>().value(index)),
            DataType::Float64 => out.put_f64(array.as_primitive::<Float64Type>().value(index)),
            DataType::Utf8 => out.put_slice(array.as_string::<i32>().value(index).as_bytes()),
            DataType::Binary => out.put_slice(array.as_binary::<i32>().value(index)),
            DataType::FixedSizeBinary(_) => {
                out.put_slice(array.as_fixed_size_binary().value(index));
            }
            DataType::Date32 => {
                let days = array.as_primitive::<Date32Type>().value(index);
                out.put_i32(days.saturating_sub(DAYS_TO_2000));
            }
            DataType::Time64(_) => {
                out.put_i64(array.as_primitive::<Time64MicrosecondType>().value(index));
            }
            DataType::Timestamp(..) => {
                let micros = array.as_primitive::<TimestampMicrosecondType>().value(index);
                out.put_i64(micros.saturating_sub(MICROS_TO_2000));
            }
            DataType::Interval(_) => {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(index);
                out.put_i64(value.nanoseconds / 1000);
                out.put_i32(value.days);
                out.put_i32(value.months);
            }
            DataType::Decimal128(_, scale) => {
                let value = array.as_primitive::<Decimal128Type>().value(index);
                put_numeric(out, value, *scale);
            }
            // `plain` leaves nothing else.
            _ => {}
        }
    }
}

fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Complaint> {
    if array.data_type() == to || matches!(array.data_type(), DataType::Null) {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, to, &options).map_err(|error| internal(error.into()))
}

fn no_binary(name: &str, data_type: &DataType) -> Complaint {
    let message = format!("column \"{name}\" of type {data_type} has no binary format here");
    Complaint::error("0A000", message).hint("ask for it as text, or cast it")
}

/// Appends `value` · 10^-`scale` as PostgreSQL's `numeric_send` does: count of digits of base 10,000, weight of the
/// first, sign, digits behind the point, digits.
fn put_numeric(out: &mut BytesMut, value: i128, scale: i8) {
    let mut digits = value.unsigned_abs().to_string();
    for _ in scale..0 {
        digits.push('0');
    }
    let behind = usize::try_from(scale).unwrap_or(0);
    while digits.len() <= behind {
        digits.insert(0, '0');
    }
    let (whole, fraction) = digits.split_at(digits.len() - behind);
    let whole_groups = whole.len().div_ceil(4);
    let padded = format!("{whole:0>width$}", width = whole_groups * 4);
    let padded = format!("{padded}{fraction:0<width$}", width = behind.div_ceil(4) * 4);
    let groups: Vec<i16> = padded
        .as_bytes()
        .chunks(4)
        .map(|group| group.iter().fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0')))
        .collect();
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let trailing = groups.iter().rev().take_while(|group| **group == 0).count();
    let shown = groups.get(leading..groups.len().saturating_sub(trailing)).unwrap_or_default();
    let weight = i16::try_from(whole_groups).unwrap_or(0) - 1 - i16::try_from(leading).unwrap_or(0);
    out.put_i16(i16::try_from(shown.len()).unwrap_or(0));
    out.put_i16(if shown.is_empty() { 0 } else { weight });
    out.put_u16(if value < 0 { 0x4000 } else { 0 });
    out.put_u16(u16::try_from(behind).unwrap_or(0));
    for group in shown {
        out.put_i16(*group);
    }
}

/// The text of a value as a client sends it for parameter `number`.
pub(crate) fn parameter_text(
    number: usize,
    element: Element,
    format: Format,
    value: &Bytes,
) -> Result<String, Complaint> {
    if format == Format::Binary && element != Element::Text {
        return binary_text(element, value).ok_or_else(|| {
            let message = format!("incorrect binary data format in bind parameter {number}");
            Complaint::error("22P03", message)
        });
    }
    match String::from_utf8(value.to_vec()) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => {
            let message =
                format!("invalid byte sequence for encoding \"UTF8\" in bind parameter {number}");
            Err(Complaint::error("22021", message))
        }
    }
}

/// The text of a value in binary; None: it is none of this type.
fn binary_text(element: Element, value: &[u8]) -> Option<String> {
    let array: ArrayRef = match element {
        Element::Bool => match value {
            [0] => return Some("f".to_owned()),
            [_] => return Some("t".to_owned()),
            _ => return None,
        },
        Element::Int2 => {
            return Some(network_u16(value.try_into().ok()?).cast_signed().to_string());
        }
        Element::Int4 => return int4(value).map(|number| number.to_string()),
        Element::Oid => return Some(network_u32(value.try_into().ok()?).to_string()),
        Element::Int8 => return int8(value).map(|number| number.to_string()),
        Element::Float4 => {
            return Some(float(f32::from_bits(int4(value)?.cast_unsigned()).into(), true));
        }
        Element::Float8 => return Some(float(f64::from_bits(int8(value)?.cast_unsigned()), false)),
        Element::Bytea => {
            let digits = value.iter().map(|byte| format!("{byte:02x}"));
            return Some(std::iter::once("\\x".to_owned()).chain(digits).collect());
        }
        Element::Numeric => return numeric_text(value),
        Element::Text | Element::Record => return String::from_utf8(value.to_vec()).ok(),
        Element::Date => Arc::new(Date32Array::from(vec![int4(value)?.checked_add(DAYS_TO_2000)?])),
        Element::Time => {
            let micros = int8(value).filter(|micros| (0..=86_400_000_000).contains(micros))?;
            Arc::new(Time64MicrosecondArray::from(vec![micros]))
        }
        Element::Timestamp => Arc::new(timestamp(value)?),
        Element::TimestampTz => Arc::new(timestamp(value)?.with_timezone("UTC")),
        Element::Interval => {
            let (micros, rest) = value.split_at_checked(8)?;
            let (days, months) = rest.split_at_checked(4)?;
            let nanos = int8(micros)?.checked_mul(1000)?;
            let interval = IntervalMonthDayNano::new(int4(months)?, int4(days)?, nanos);
            Arc::new(IntervalMonthDayNanoArray::from(vec![interval]))
        }
        Element::Uuid => {
            Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(value)).ok()?)
        }
    };
    if element == Element::Uuid && value.len() != 16 {
        return None;
    }
    value_text(&array, 0).ok().flatten()
}

fn int4(value: &[u8]) -> Option<i32> {
    Some(network_u32(value.try_into().ok()?).cast_signed())
}

fn int8(value: &[u8]) -> Option<i64> {
    let (high, low) = value.split_at_checked(4)?;
    let [high, low] = [high, low].map(|half| half.try_into().ok().map(network_u32));
    Some((u64::from(high?) << 32 | u64::from(low?)).cast_signed())
}

fn timestamp(value: &[u8]) -> Option<TimestampMicrosecondArray> {
    Some(TimestampMicrosecondArray::from(vec![int8(value)?.checked_add(MICROS_TO_2000)?]))
}

fn float(value: f64, is_single: bool) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        #[expect(clippy::cast_possible_truncation, reason = "it was a single one")]
        _ if is_single => (value as f32).to_string(),
        _ => value.to_string(),
    }
}

/// The text of what `numeric_send` writes.
fn numeric_text(value: &[u8]) -> Option<String> {
    let (words, odd) = value.as_chunks::<2>();
    let mut words = words.iter().map(|word| network_u16(*word)).chain(std::iter::repeat(0));
    let count = usize::from(words.next()?);
    let weight = i32::from(words.next()?.cast_signed());
    let sign = words.next()?;
    let behind = usize::from(words.next()?);
    if !odd.is_empty() || value.len() != 8 + 2 * count || behind > 16_383 {
        return None;
    }
    let sign = match sign {
        0 => "",
        0x4000 => "-",
        0xc000 => return Some("NaN".to_owned()),
        _ => return None,
    };
    let groups: Vec<u16> = words.take(count).collect();
    if groups.iter().any(|group| *group > 9999) || !(-5000..5000).contains(&weight) {
        return None;
    }
    let group = |place: i32| {
        let place = usize::try_from(place).ok();
        place.and_then(|place| groups.get(place)).copied().unwrap_or(0)
    };
    let whole: String = (0..=weight).map(|place| format!("{:04}", group(place))).collect();
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let group_count = i32::try_from(behind.div_ceil(4)).ok()?;
    let fraction: String =
        (1..=group_count).map(|behind| format!("{:04}", group(weight + behind))).collect();
    let fraction = fraction.get(..behind)?;
    let point = if behind > 0 { "." } else { "" };
    Some(format!("{sign}{whole}{point}{fraction}"))
}

#[cfg(test)]
mod tests;
