//! Zone maps: an Arrow array in, the bounds of its values out; the bounds of many pages in, arrays for pruning out.
//!
//! 1. A page writer asks [`ZoneEntry::of`] for each user column of the page; the entries live in the segment's
//!    directory, so that pruning happens before any I/O.
//! 2. A planner calls [`zone_arrays`] for one column over many pages, and gets one value a page.
//!
//! Invariant: every value of the page that is not NULL lies between min and max, in the order of Arrow's and
//! DataFusion's comparisons. Bounds may be wider than the values (long strings are cut, zeros cover both signs), so
//! they serve pruning and not MIN or MAX. An unknown bound is NULL and prunes nothing; a page with only NULLs has no
//! bounds and says so by its null count. Zones cover all versions on the page (rule 17).
//!
//! Deliberately absent: bounds of `interval` (its order is not PostgreSQL's) and of floats on a page with a NaN (its
//! order differs between implementations).

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Float32Array, Float64Array, PrimitiveArray, StringArray,
    TimestampMicrosecondArray, UInt64Array, new_null_array,
};
use arrow::compute::{
    max, max_binary, max_boolean, max_fixed_size_binary, max_string, min, min_binary, min_boolean,
    min_fixed_size_binary, min_string,
};
use arrow::datatypes::{ArrowNumericType, DataType, TimeUnit, i256};

use crate::proto;

/// Length to which the bounds of strings and bytes are cut.
pub const ZONE_BYTES_MAX: usize = 32;

/// The bounds of one column on one page.
#[derive(Debug, Clone, PartialEq)]
pub struct ZoneEntry {
    /// Column id.
    pub column: u32,
    /// Rows whose value is NULL.
    pub null_count: u32,
    /// No value is less; None: unknown, or there is no value.
    pub min: Option<ZoneValue>,
    /// No value is greater; None: unknown, or there is no value.
    pub max: Option<ZoneValue>,
}

/// A bound. Which variant a column has follows from its type.
#[derive(Debug, Clone, PartialEq)]
pub enum ZoneValue {
    /// `boolean`.
    Boolean(bool),
    /// Integers, and dates and times in their Arrow unit.
    Integer(i64),
    /// Unscaled `numeric`; the scale is the column's.
    Decimal(i128),
    /// `real` and `double precision`; never NaN.
    Float(f64),
    /// Text, `bytea` and `uuid`; unscaled numbers of 256 bits as [`bytes_of`] orders them.
    Bytes(Vec<u8>),
}

/// Bounds and counts of one column over many pages, one row a page: what DataFusion's `PruningStatistics` asks.
#[derive(Debug, Clone)]
pub struct ZoneArrays {
    /// Lower bounds in the column's type; NULL: unknown.
    pub mins: ArrayRef,
    /// Upper bounds in the column's type; NULL: unknown.
    pub maxs: ArrayRef,
    /// NULLs a page; NULL: unknown.
    pub null_counts: UInt64Array,
    /// Rows a page.
    pub row_counts: UInt64Array,
}

impl ZoneEntry {
    /// The bounds of `array`, which is the column `column` of one page. A type without bounds still gets its null
    /// count.
    #[must_use]
    pub fn of(column: u32, array: &dyn Array) -> Self {
        let (min, max) = bounds(array);
        // A page has at most 65,536 rows; a longer array keeps a count that still says "some are NULL".
        let null_count = u32::try_from(array.null_count()).unwrap_or(u32::MAX);
        Self { column, null_count, min, max }
    }

    /// Whether these bounds and NULLs are possible for a page whose values have the bounds `found`.
    #[must_use]
    pub fn covers(&self, found: &Self) -> bool {
        let outside = |own: &Option<ZoneValue>, found: &Option<ZoneValue>, wrong| match (own, found)
        {
            (Some(own), Some(found)) => own.compare(found).is_none_or(|order| order == wrong),
            // An unknown bound excludes nothing; nor does one of a page without values.
            _ => false,
        };
        self.null_count == found.null_count
            && !outside(&self.min, &found.min, Ordering::Greater)
            && !outside(&self.max, &found.max, Ordering::Less)
    }
}

/// Bounds and counts of the column `column` over `pages`, each given by its row count and its entries, as arrays of
/// `data_type`. A page without an entry for the column lacks the column and has the bounds of `absent`. Without an
/// absent value, or with an entry of another type, its bounds are unknown.
#[must_use]
pub fn zone_arrays<'a>(
    pages: impl IntoIterator<Item = (u32, &'a [ZoneEntry])>,
    column: u32,
    data_type: &DataType,
    absent: Option<&ZoneEntry>,
) -> ZoneArrays {
    let (mut mins, mut maxs) = (Vec::new(), Vec::new());
    let (mut null_counts, mut row_counts) = (Vec::new(), Vec::new());
    for (row_count, entries) in pages {
        let entry = entries.iter().find(|entry| entry.column == column).or(absent);
        mins.push(entry.and_then(|entry| entry.min.as_ref()));
        maxs.push(entry.and_then(|entry| entry.max.as_ref()));
        null_counts.push(entry.map(|entry| u64::from(entry.null_count)));
        row_counts.push(u64::from(row_count));
    }
    ZoneArrays {
        mins: bounds_array(&mins, data_type),
        maxs: bounds_array(&maxs, data_type),
        null_counts: UInt64Array::from(null_counts),
        row_counts: UInt64Array::from(row_counts),
    }
}

type Bounds = (Option<ZoneValue>, Option<ZoneValue>);

fn bounds(array: &dyn Array) -> Bounds {
    match array.data_type() {
        DataType::Int16 => integers::<Int16Type>(array),
        DataType::Int32 => integers::<Int32Type>(array),
        DataType::Int64 => integers::<Int64Type>(array),
        DataType::Date32 => integers::<Date32Type>(array),
        DataType::Time64(TimeUnit::Microsecond) => integers::<Time64MicrosecondType>(array),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            integers::<TimestampMicrosecondType>(array)
        }
        DataType::Float32 => floats::<Float32Type>(array),
        DataType::Float64 => floats::<Float64Type>(array),
        DataType::Decimal128(..) => {
            let array = array.as_primitive::<Decimal128Type>();
            (min(array).map(ZoneValue::Decimal), max(array).map(ZoneValue::Decimal))
        }
        DataType::Decimal256(..) => {
            let array = array.as_primitive::<Decimal256Type>();
            let bound = |value| ZoneValue::Bytes(bytes_of(value));
            (min(array).map(bound), max(array).map(bound))
        }
        DataType::Boolean => {
            let array = array.as_boolean();
            (min_boolean(array).map(ZoneValue::Boolean), max_boolean(array).map(ZoneValue::Boolean))
        }
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            let low = min_string(array).map(|text| ZoneValue::Bytes(text_below(text).into()));
            let high = max_string(array).and_then(text_above).map(ZoneValue::Bytes);
            (low, high)
        }
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            (min_binary(array).map(bytes_below), max_binary(array).and_then(bytes_above))
        }
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary();
            (
                min_fixed_size_binary(array).map(bytes_below),
                max_fixed_size_binary(array).and_then(bytes_above),
            )
        }
        _ => (None, None),
    }
}

fn integers<T>(array: &dyn Array) -> Bounds
where
    T: ArrowNumericType,
    T::Native: Into<i64>,
{
    let array = array.as_primitive::<T>();
    let integer = |value: T::Native| ZoneValue::Integer(value.into());
    (min(array).map(integer), max(array).map(integer))
}

fn floats<T>(array: &dyn Array) -> Bounds
where
    T: ArrowNumericType,
    T::Native: Into<f64>,
{
    let array = array.as_primitive::<T>();
    if array.iter().flatten().any(|value| value.into().is_nan()) {
        return (None, None);
    }
    // -0.0 and 0.0 are one value to SQL and two to Arrow's total order: the bounds take in both.
    let low = min(array).map(|value| {
        let value: f64 = value.into();
        ZoneValue::Float(if value == 0.0 { -0.0 } else { value })
    });
    let high = max(array).map(|value| {
        let value: f64 = value.into();
        ZoneValue::Float(if value == 0.0 { 0.0 } else { value })
    });
    (low, high)
}

/// The longest whole-character prefix of at most [`ZONE_BYTES_MAX`] bytes: never above `text`.
fn text_below(text: &str) -> &str {
    text.get(..text.floor_char_boundary(ZONE_BYTES_MAX)).unwrap_or_default()
}

/// A short text that is not below `text`, by code points; None where all of its prefix is the last code point.
fn text_above(text: &str) -> Option<Vec<u8>> {
    let prefix = text_below(text);
    if prefix.len() == text.len() {
        return Some(text.into());
    }
    let mut above: String = prefix.into();
    while let Some(last) = above.pop() {
        let next = match last {
            char::MAX => continue,
            // The code points between are surrogates, which no text holds.
            '\u{D7FF}' => Some('\u{E000}'),
            last => char::from_u32(u32::from(last).saturating_add(1)),
        };
        if let Some(next) = next {
            above.push(next);
            return Some(above.into_bytes());
        }
    }
    None
}

fn bytes_below(bytes: &[u8]) -> ZoneValue {
    ZoneValue::Bytes(bytes.get(..ZONE_BYTES_MAX).unwrap_or(bytes).to_vec())
}

fn bytes_above(bytes: &[u8]) -> Option<ZoneValue> {
    let Some(prefix) = bytes.get(..ZONE_BYTES_MAX).filter(|prefix| prefix.len() < bytes.len())
    else {
        return Some(ZoneValue::Bytes(bytes.to_vec()));
    };
    let mut above = prefix.to_vec();
    while let Some(last) = above.pop() {
        if let Some(next) = last.checked_add(1) {
            above.push(next);
            return Some(ZoneValue::Bytes(above));
        }
    }
    None
}

fn bounds_array(values: &[Option<&ZoneValue>], data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::Int16 => integer_array::<Int16Type>(values),
        DataType::Int32 => integer_array::<Int32Type>(values),
        DataType::Int64 => integer_array::<Int64Type>(values),
        DataType::Date32 => integer_array::<Date32Type>(values),
        DataType::Time64(TimeUnit::Microsecond) => integer_array::<Time64MicrosecondType>(values),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => Arc::new(
            values
                .iter()
                .map(|value| value.and_then(ZoneValue::integer))
                .collect::<TimestampMicrosecondArray>()
                .with_timezone_opt(zone.clone()),
        ),
        DataType::Float32 => Arc::new(
            values.iter().map(|value| value.and_then(ZoneValue::single)).collect::<Float32Array>(),
        ),
        DataType::Float64 => Arc::new(
            values.iter().map(|value| value.and_then(ZoneValue::double)).collect::<Float64Array>(),
        ),
        DataType::Decimal128(precision, scale) => values
            .iter()
            .map(|value| value.and_then(ZoneValue::decimal))
            .collect::<Decimal128Array>()
            .with_precision_and_scale(*precision, *scale)
            .map_or_else(
                |_| new_null_array(data_type, values.len()),
                |array| -> ArrayRef { Arc::new(array) },
            ),
        DataType::Decimal256(precision, scale) => values
            .iter()
            .map(|value| value.and_then(ZoneValue::bytes).and_then(number_of))
            .collect::<Decimal256Array>()
            .with_precision_and_scale(*precision, *scale)
            .map_or_else(
                |_| new_null_array(data_type, values.len()),
                |array| -> ArrayRef { Arc::new(array) },
            ),
        DataType::Boolean => Arc::new(
            values.iter().map(|value| value.and_then(ZoneValue::boolean)).collect::<BooleanArray>(),
        ),
        DataType::Utf8 => Arc::new(
            values.iter().map(|value| value.and_then(ZoneValue::text)).collect::<StringArray>(),
        ),
        DataType::Binary => Arc::new(
            values.iter().map(|value| value.and_then(ZoneValue::bytes)).collect::<BinaryArray>(),
        ),
        DataType::FixedSizeBinary(width) => {
            let width_bytes = usize::try_from(*width).unwrap_or(usize::MAX);
            let bytes = values.iter().map(|value| {
                value.and_then(ZoneValue::bytes).filter(|bytes| bytes.len() == width_bytes)
            });
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, *width).map_or_else(
                |_| new_null_array(data_type, values.len()),
                |array| -> ArrayRef { Arc::new(array) },
            )
        }
        _ => new_null_array(data_type, values.len()),
    }
}

/// A number as bytes in the order of numbers: the most significant one first, the sign bit inverted.
fn bytes_of(value: i256) -> Vec<u8> {
    let mut bytes = value.to_le_bytes();
    if let Some(sign) = bytes.last_mut() {
        *sign ^= 0x80;
    }
    bytes.into_iter().rev().collect()
}

fn number_of(bytes: &[u8]) -> Option<i256> {
    let mut bytes: [u8; 32] = bytes.try_into().ok()?;
    bytes.reverse();
    if let Some(sign) = bytes.last_mut() {
        *sign ^= 0x80;
    }
    Some(i256::from_le_bytes(bytes))
}

fn integer_array<T>(values: &[Option<&ZoneValue>]) -> ArrayRef
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64>,
{
    let native = |value: &ZoneValue| T::Native::try_from(value.integer()?).ok();
    Arc::new(values.iter().map(|value| value.and_then(native)).collect::<PrimitiveArray<T>>())
}

impl ZoneValue {
    /// The order of two bounds of one column; None for bounds of different kinds.
    fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => Some(a.cmp(b)),
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(b)),
            (Self::Decimal(a), Self::Decimal(b)) => Some(a.cmp(b)),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    fn boolean(&self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(*value) } else { None }
    }

    fn integer(&self) -> Option<i64> {
        if let Self::Integer(value) = self { Some(*value) } else { None }
    }

    fn decimal(&self) -> Option<i128> {
        if let Self::Decimal(value) = self { Some(*value) } else { None }
    }

    fn double(&self) -> Option<f64> {
        if let Self::Float(value) = self { Some(*value) } else { None }
    }

    /// The bound as a `real`, if it is one exactly; a rounded bound could cut off a value.
    fn single(&self) -> Option<f32> {
        let value = self.double()?;
        #[expect(clippy::cast_possible_truncation, reason = "checked to be exact just below")]
        let single = value as f32;
        (f64::from(single).to_bits() == value.to_bits()).then_some(single)
    }

    /// The bound as text; invalid text (a damaged directory) is unknown.
    fn text(&self) -> Option<&str> {
        str::from_utf8(self.bytes()?).ok()
    }

    /// The bytes of a text, `bytea` or `uuid` bound.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(value) = self { Some(value) } else { None }
    }
}

impl From<&ZoneEntry> for proto::ZoneEntry {
    fn from(entry: &ZoneEntry) -> Self {
        Self {
            column: entry.column,
            null_count: entry.null_count,
            min: entry.min.as_ref().map(proto::ZoneValue::from),
            max: entry.max.as_ref().map(proto::ZoneValue::from),
        }
    }
}

impl From<proto::ZoneEntry> for ZoneEntry {
    fn from(message: proto::ZoneEntry) -> Self {
        Self {
            column: message.column,
            null_count: message.null_count,
            min: message.min.and_then(ZoneValue::from_message),
            max: message.max.and_then(ZoneValue::from_message),
        }
    }
}

impl From<&ZoneValue> for proto::ZoneValue {
    fn from(value: &ZoneValue) -> Self {
        use proto::ZoneBound;
        let bound = match value {
            ZoneValue::Boolean(value) => ZoneBound::Boolean(*value),
            ZoneValue::Integer(value) => ZoneBound::Integer(*value),
            ZoneValue::Decimal(value) => ZoneBound::Decimal(value.to_le_bytes().to_vec()),
            ZoneValue::Float(value) => ZoneBound::Float(*value),
            ZoneValue::Bytes(value) => ZoneBound::Bytes(value.clone()),
        };
        Self { bound: Some(bound) }
    }
}

impl ZoneValue {
    /// Converts a message; a bound that this build does not know is unknown, which prunes nothing.
    fn from_message(message: proto::ZoneValue) -> Option<Self> {
        use proto::ZoneBound;
        Some(match message.bound? {
            ZoneBound::Boolean(value) => Self::Boolean(value),
            ZoneBound::Integer(value) => Self::Integer(value),
            ZoneBound::Decimal(value) => Self::Decimal(i128::from_le_bytes(value.try_into().ok()?)),
            ZoneBound::Float(value) if value.is_nan() => return None,
            ZoneBound::Float(value) => Self::Float(value),
            ZoneBound::Bytes(value) => Self::Bytes(value),
        })
    }
}

#[cfg(test)]
mod tests;
