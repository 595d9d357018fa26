//! Values in PostgreSQL's binary format: array values are written ([`BinaryWriter`]), values from a client or file are
//! converted to text ([`binary_text`]).
//!
//! It is the format of PostgreSQL's `send` functions: numbers in network order, dates and times from 2000-01-01,
//! `numeric` as digits of base 10,000, lists with their dimension and type before their items. Input is not trusted: a
//! value without the length or the digits of its type is refused.
//!
//! Source: PostgreSQL's `src/backend/utils/adt`, functions `…_send` and `…_recv`, and its `pg_type.dat`.

use std::sync::Arc;

use arrow::array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, FixedSizeBinaryArray, IntervalMonthDayNanoArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, TimeUnit, i256};
use bytes::{Buf, BufMut, BytesMut};
use cleave_fragment::functions::infinite::Infinite;
use cleave_fragment::functions::quotient;
use cleave_store::ColumnType;

use crate::error::{Error, Result};
use crate::value::{list, value_text};

/// Days from 1970-01-01, where Arrow's dates begin, to 2000-01-01, where PostgreSQL's do.
const DAYS_TO_2000: i32 = 10_957;
/// The same in microseconds.
const MICROS_TO_2000: i64 = DAYS_TO_2000 as i64 * 86_400_000_000;

/// A type of single values, as PostgreSQL's clients know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// `boolean`.
    Bool,
    /// `bytea`.
    Bytea,
    /// `bigint`.
    Int8,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `text`, and all types that are sent as text.
    Text,
    /// `oid`: the number of an object, as clients send it.
    Oid,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
    /// `date`.
    Date,
    /// `time`.
    Time,
    /// `timestamp`.
    Timestamp,
    /// `timestamp with time zone`.
    TimestampTz,
    /// `interval`.
    Interval,
    /// `numeric`.
    Numeric,
    /// `uuid`.
    Uuid,
    /// A row: as text only.
    Record,
}

impl Element {
    /// OID, OID of the list type, and size in bytes; -1: it varies.
    fn facts(self) -> (u32, u32, i16) {
        match self {
            Self::Bool => (16, 1000, 1),
            Self::Bytea => (17, 1001, -1),
            Self::Int8 => (20, 1016, 8),
            Self::Int2 => (21, 1005, 2),
            Self::Int4 => (23, 1007, 4),
            Self::Text => (25, 1009, -1),
            Self::Oid => (26, 1028, 4),
            Self::Float4 => (700, 1021, 4),
            Self::Float8 => (701, 1022, 8),
            Self::Date => (1082, 1182, 4),
            Self::Time => (1083, 1183, 8),
            Self::Timestamp => (1114, 1115, 8),
            Self::TimestampTz => (1184, 1185, 8),
            Self::Interval => (1186, 1187, 16),
            Self::Numeric => (1700, 1231, -1),
            Self::Uuid => (2950, 2951, 16),
            Self::Record => (2249, 2287, -1),
        }
    }

    /// Its OID.
    #[must_use]
    pub fn oid(self) -> u32 {
        self.facts().0
    }

    /// The OID of its list type.
    #[must_use]
    pub fn list_oid(self) -> u32 {
        self.facts().1
    }

    /// Its size in bytes; -1: it varies.
    #[must_use]
    pub fn size(self) -> i16 {
        self.facts().2
    }

    /// The item type of the list type with this OID; None for an unknown OID.
    #[must_use]
    pub fn of_list_oid(oid: u32) -> Option<Self> {
        ELEMENTS.iter().copied().find(|element| element.list_oid() == oid)
    }

    /// The type that values of this Arrow type are sent as.
    #[must_use]
    pub fn of_arrow(data_type: &DataType) -> Self {
        element_of(data_type)
    }

    /// The type for values of a column, in both directions.
    #[must_use]
    pub fn of_column(column_type: ColumnType) -> Self {
        element_of_column(column_type)
    }
}

/// All types with a list type.
const ELEMENTS: [Element; 16] = [
    Element::Bool,
    Element::Bytea,
    Element::Int8,
    Element::Int2,
    Element::Int4,
    Element::Text,
    Element::Oid,
    Element::Float4,
    Element::Float8,
    Element::Date,
    Element::Time,
    Element::Timestamp,
    Element::TimestampTz,
    Element::Interval,
    Element::Numeric,
    Element::Uuid,
];

fn element_of(data_type: &DataType) -> Element {
    match data_type {
        DataType::Boolean => Element::Bool,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Element::Int2,
        DataType::UInt16 | DataType::Int32 => Element::Int4,
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => Element::Int8,
        DataType::Float16 | DataType::Float32 => Element::Float4,
        DataType::Float64 => Element::Float8,
        DataType::Decimal128(..) | DataType::Decimal256(..) => Element::Numeric,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Element::Bytea,
        DataType::FixedSizeBinary(16) => Element::Uuid,
        DataType::FixedSizeBinary(_) => Element::Bytea,
        DataType::Date32 | DataType::Date64 => Element::Date,
        DataType::Time32(_) | DataType::Time64(_) => Element::Time,
        DataType::Timestamp(_, None) => Element::Timestamp,
        DataType::Timestamp(_, Some(_)) => Element::TimestampTz,
        DataType::Interval(_) => Element::Interval,
        DataType::Struct(_) => Element::Record,
        DataType::Dictionary(_, value) => element_of(value),
        _ => Element::Text,
    }
}

/// The Arrow type in whose form values of `data_type` are written in binary.
fn plain(data_type: &DataType) -> DataType {
    match element_of(data_type) {
        Element::Int2 => DataType::Int16,
        Element::Int4 => DataType::Int32,
        Element::Int8 => DataType::Int64,
        Element::Float4 => DataType::Float32,
        Element::Date => DataType::Date32,
        Element::Time => DataType::Time64(TimeUnit::Microsecond),
        Element::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        Element::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Element::Interval => DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano),
        Element::Text => DataType::Utf8,
        Element::Bytea => DataType::Binary,
        _ => data_type.clone(),
    }
}

fn element_of_column(column_type: ColumnType) -> Element {
    match column_type {
        ColumnType::SmallInt => Element::Int2,
        ColumnType::Int => Element::Int4,
        ColumnType::BigInt => Element::Int8,
        ColumnType::Real => Element::Float4,
        ColumnType::Double => Element::Float8,
        ColumnType::Numeric { .. } => Element::Numeric,
        ColumnType::Boolean => Element::Bool,
        ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Char(_) => Element::Text,
        ColumnType::Date => Element::Date,
        ColumnType::Time => Element::Time,
        ColumnType::Timestamp => Element::Timestamp,
        ColumnType::TimestampTz => Element::TimestampTz,
        ColumnType::Interval => Element::Interval,
        ColumnType::Bytea => Element::Bytea,
        ColumnType::Uuid => Element::Uuid,
    }
}

/// Writes values of one array in binary.
#[derive(Debug)]
pub struct BinaryWriter {
    array: ArrayRef,
    element: Element,
}

impl BinaryWriter {
    /// A writer of the values of `array`, the column `name`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a type that has no binary form.
    pub fn new(array: &ArrayRef, name: &str) -> Result<Self> {
        let items = match array.data_type() {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                Some(item.data_type())
            }
            _ => None,
        };
        let mut innermost = items.unwrap_or(array.data_type());
        while let DataType::List(item) = innermost {
            innermost = item.data_type();
        }
        let element = Element::of_arrow(innermost);
        let array = match array.data_type() {
            DataType::Dictionary(_, value) => cast(array, &plain(value))?,
            DataType::List(_) => Arc::clone(array),
            other if items.is_none() => cast(array, &plain(other))?,
            _ => return Err(no_binary(name, array.data_type())),
        };
        if element == Element::Record {
            return Err(no_binary(name, array.data_type()));
        }
        Ok(Self { array, element })
    }

    /// Appends the value at `index` with its length, -1 for NULL.
    ///
    /// # Errors
    /// A list whose items have no binary form, or that is longer than 2 GB.
    pub fn write(&self, out: &mut BytesMut, index: usize) -> Result<()> {
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

    fn write_list(&self, out: &mut BytesMut, items: &ArrayRef) -> Result<()> {
        let (mut items, mut lengths) = (Arc::clone(items), vec![items.len()]);
        while let Some(lists) = items.as_list_opt::<i32>() {
            let offsets = lists.value_offsets();
            let mut own = (0..lists.len()).map(|row| lists.value_length(row));
            let length = own.next().unwrap_or(0);
            if lists.null_count() > 0 || own.any(|other| other != length) {
                return Err(no_binary("array", lists.data_type()));
            }
            lengths.push(usize::try_from(length).unwrap_or(0));
            let start = offsets.first().and_then(|start| usize::try_from(*start).ok());
            let count = lengths.iter().product();
            items = lists.values().slice(start.unwrap_or(0), count);
        }
        let items = Self { array: cast(&items, &plain(items.data_type()))?, element: self.element };
        let is_empty = items.array.is_empty();
        let shown = if is_empty { 0 } else { lengths.len() };
        out.put_i32(i32::try_from(shown).unwrap_or(i32::MAX));
        out.put_i32(i32::from(items.array.null_count() > 0));
        out.put_u32(self.element.oid());
        for length in lengths.into_iter().take(shown) {
            out.put_i32(i32::try_from(length).unwrap_or(i32::MAX));
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
                let is_infinite = Infinite::of_days(days).is_some();
                let epoch = if is_infinite { 0 } else { DAYS_TO_2000 };
                out.put_i32(days.saturating_sub(epoch));
            }
            DataType::Time64(_) => {
                out.put_i64(array.as_primitive::<Time64MicrosecondType>().value(index));
            }
            DataType::Timestamp(..) => {
                let micros = array.as_primitive::<TimestampMicrosecondType>().value(index);
                let is_infinite = Infinite::of_micros(micros).is_some();
                let epoch = if is_infinite { 0 } else { MICROS_TO_2000 };
                out.put_i64(micros.saturating_sub(epoch));
            }
            DataType::Interval(_) => {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(index);
                out.put_i64(value.nanoseconds / 1000);
                out.put_i32(value.days);
                out.put_i32(value.months);
            }
            DataType::Decimal128(_, scale) => {
                let value = array.as_primitive::<Decimal128Type>().value(index);
                put_numeric(out, value < 0, value.unsigned_abs().to_string(), *scale);
            }
            DataType::Decimal256(precision, scale) => {
                let value = array.as_primitive::<Decimal256Type>().value(index);
                let (value, scale) = quotient::shown(value, *precision, *scale);
                let digits = value.wrapping_abs().to_string();
                put_numeric(out, value < i256::ZERO, digits, scale);
            }
            // `plain` returns no other type.
            _ => {}
        }
    }
}

fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to || matches!(array.data_type(), DataType::Null) {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(array, to, &options)?)
}

fn no_binary(name: &str, data_type: &DataType) -> Error {
    Error::Unsupported {
        what: format!("column \"{name}\" of type {data_type} in binary"),
        hint: Some("ask for it as text, or cast it".to_owned()),
        position: None,
    }
}

/// Appends `digits` · 10^-`scale` in the format of PostgreSQL's `numeric_send`: count of digits of base 10,000, weight
/// of the first, sign, digits behind the point, digits.
fn put_numeric(out: &mut BytesMut, is_negative: bool, mut digits: String, scale: i8) {
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
    out.put_u16(if is_negative { 0x4000 } else { 0 });
    out.put_u16(u16::try_from(behind).unwrap_or(0));
    for group in shown {
        out.put_i16(*group);
    }
}

/// The text of a binary list, as `{1,NULL,"a b"}`; None if it is no list of this type, or has several dimensions.
#[must_use]
pub fn binary_list_text(element: Element, value: &[u8]) -> Option<String> {
    let mut rest = value;
    let word = |rest: &mut &[u8]| {
        let (word, after) = rest.split_at_checked(4)?;
        *rest = after;
        int4(word)
    };
    let (dimensions, _has_nulls, _item_type) =
        (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
    let mut items = Vec::new();
    match dimensions {
        0 => {}
        1 => {
            let (count, _first) = (word(&mut rest)?, word(&mut rest)?);
            for _ in 0..count {
                let length = word(&mut rest)?;
                if length == -1 {
                    items.push(None);
                    continue;
                }
                let (item, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = after;
                items.push(Some(binary_text(element, item)?));
            }
        }
        _ => return None,
    }
    rest.is_empty().then(|| list::text_of(&items))
}

/// The text of a binary value; None if it is invalid for this type.
#[must_use]
pub fn binary_text(element: Element, value: &[u8]) -> Option<String> {
    let array: ArrayRef = match element {
        Element::Bool => match value {
            [0] => return Some("f".to_owned()),
            [_] => return Some("t".to_owned()),
            _ => return None,
        },
        Element::Int2 => {
            return Some(u16_of(value)?.cast_signed().to_string());
        }
        Element::Int4 => return int4(value).map(|number| number.to_string()),
        Element::Oid => return Some(u32_of(value)?.to_string()),
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
        Element::Date => {
            let days = int4(value)?;
            let infinite = Infinite::of_days(days);
            let epoch = if infinite.is_some() { 0 } else { DAYS_TO_2000 };
            let days = days.checked_add(epoch)?;
            (Infinite::of_days(days) == infinite)
                .then(|| Arc::new(Date32Array::from(vec![days])))?
        }
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

fn u16_of(mut value: &[u8]) -> Option<u16> {
    (value.len() == 2).then(|| value.get_u16())
}

fn u32_of(mut value: &[u8]) -> Option<u32> {
    (value.len() == 4).then(|| value.get_u32())
}

fn int4(value: &[u8]) -> Option<i32> {
    Some(u32_of(value)?.cast_signed())
}

fn int8(value: &[u8]) -> Option<i64> {
    let (mut value, is_long) = (value, value.len() == 8);
    is_long.then(|| value.get_i64())
}

fn timestamp(value: &[u8]) -> Option<TimestampMicrosecondArray> {
    let micros = int8(value)?;
    let infinite = Infinite::of_micros(micros);
    let epoch = if infinite.is_some() { 0 } else { MICROS_TO_2000 };
    let micros = micros.checked_add(epoch)?;
    let is_same = Infinite::of_micros(micros) == infinite;
    is_same.then(|| TimestampMicrosecondArray::from(vec![micros]))
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

/// The text of a value in the format of `numeric_send`.
fn numeric_text(value: &[u8]) -> Option<String> {
    let (words, odd) = value.as_chunks::<2>();
    let mut words = words.iter().map(|word| (&word[..]).get_u16()).chain(std::iter::repeat(0));
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
