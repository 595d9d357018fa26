//! The file of a table's statistics: a frame around a message.
//!
//! Values are stored by kind, as bounds in a segment's directory are; the kind of a column follows from its type.
//! Invariant: what decodes has finite fractions and values of the columns' types; a column that the table no longer
//! has, or not with this type, is left out. Sampled rows are whole.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit, i256};
use cleave_plan::statistics::KeySample;
use cleave_plan::{ColumnStatistics, RowSample, StoredColumn, TableStatistics};
use cleave_store::{Format, FrameError, TableSchema};
use datafusion_common::ScalarValue;
use prost::Message;

/// The frame; its newest version is what this build writes.
pub const FORMAT: Format =
    Format { magic: *b"CLVSTATS", name: "file of statistics", versions: 1..=1 };

#[derive(Clone, PartialEq, Message)]
struct Table {
    #[prost(uint32, tag = "1")]
    table_id: u32,
    #[prost(uint64, tag = "2")]
    row_count: u64,
    #[prost(uint64, tag = "3")]
    page_count: u64,
    #[prost(uint64, tag = "4")]
    page_bytes: u64,
    #[prost(message, repeated, tag = "5")]
    columns: Vec<Column>,
    #[prost(message, optional, tag = "6")]
    sample: Option<Sample>,
    /// 0 of earlier builds, as the next.
    #[prost(uint64, tag = "7")]
    change_count: u64,
    #[prost(int64, tag = "8")]
    analyzed_us: i64,
    /// 0: all pages were read, as they always were by earlier builds.
    #[prost(uint64, tag = "9")]
    sampled_page_count: u64,
}

/// Some rows, column by column.
#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// Rows of the table when they were drawn.
    #[prost(uint64, tag = "1")]
    row_count_then: u64,
    #[prost(message, repeated, tag = "2")]
    columns: Vec<SampleColumn>,
}

#[derive(Clone, PartialEq, Message)]
struct SampleColumn {
    #[prost(uint32, tag = "1")]
    id: u32,
    /// A row each; one of no kind is NULL.
    #[prost(message, repeated, tag = "2")]
    values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Column {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(uint64, tag = "2")]
    row_count: u64,
    #[prost(uint64, tag = "3")]
    sampled_count: u64,
    #[prost(double, tag = "4")]
    null_fraction: f64,
    #[prost(double, tag = "5")]
    distinct_count: f64,
    #[prost(double, tag = "6")]
    average_width: f64,
    #[prost(message, optional, tag = "7")]
    min: Option<Value>,
    #[prost(message, optional, tag = "8")]
    max: Option<Value>,
    #[prost(message, repeated, tag = "9")]
    common: Vec<Value>,
    #[prost(double, repeated, tag = "10")]
    frequencies: Vec<f64>,
    #[prost(message, repeated, tag = "11")]
    histogram: Vec<Value>,
    /// Absent where values were not counted.
    #[prost(fixed64, optional, tag = "12")]
    key_threshold: Option<u64>,
    #[prost(fixed64, repeated, tag = "13")]
    key_hashes: Vec<u64>,
    #[prost(uint64, repeated, tag = "14")]
    key_counts: Vec<u64>,
    /// Absent where no page was looked at, and of earlier builds.
    #[prost(message, optional, tag = "15")]
    stored: Option<Stored>,
    /// Share of the values that were seen; absent: all.
    #[prost(double, optional, tag = "16")]
    key_seen: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(bool, tag = "1")]
    Boolean(bool),
    /// Dates and times in their Arrow unit.
    #[prost(sint64, tag = "2")]
    Integer(i64),
    /// Unscaled, 16 bytes.
    #[prost(bytes, tag = "3")]
    Decimal(Vec<u8>),
    #[prost(double, tag = "4")]
    Float(f64),
    #[prost(bytes, tag = "5")]
    Bytes(Vec<u8>),
    #[prost(message, tag = "6")]
    Interval(Interval),
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Interval {
    #[prost(sint32, tag = "1")]
    months: i32,
    #[prost(sint32, tag = "2")]
    days: i32,
    #[prost(sint64, tag = "3")]
    nanoseconds: i64,
}

/// How a column lies on pages.
#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(double, tag = "1")]
    row_bytes: f64,
    #[prost(double, tag = "2")]
    page_rows: f64,
    #[prost(double, tag = "3")]
    dictionary_share: f64,
}

pub(super) fn encode(table_id: u32, statistics: &TableStatistics) -> Vec<u8> {
    let columns = statistics.columns.iter().map(|(id, column)| Column {
        id: *id,
        row_count: column.row_count,
        sampled_count: column.sampled_count,
        null_fraction: column.null_fraction,
        distinct_count: column.distinct_count,
        average_width: column.average_width,
        min: column.min.as_ref().and_then(value),
        max: column.max.as_ref().and_then(value),
        common: column.common.iter().filter_map(|(common, _)| value(common)).collect(),
        frequencies: column.common.iter().map(|(_, frequency)| *frequency).collect(),
        histogram: column.histogram.iter().filter_map(value).collect(),
        key_threshold: column.keys.as_ref().map(|keys| keys.threshold()),
        key_hashes: counted(column).map(|(hash, _)| *hash).collect(),
        key_counts: counted(column).map(|(_, count)| *count).collect(),
        stored: column.stored.map(|stored| Stored {
            row_bytes: stored.row_bytes,
            page_rows: stored.page_rows,
            dictionary_share: stored.dictionary_share,
        }),
        key_seen: column.keys.as_ref().map(|keys| keys.seen()).filter(|seen| *seen < 1.0),
    });
    let table = Table {
        table_id,
        row_count: statistics.row_count,
        page_count: statistics.page_count,
        page_bytes: statistics.page_bytes,
        columns: columns.collect(),
        sample: statistics.sample.as_ref().map(sample_message),
        change_count: statistics.change_count,
        analyzed_us: statistics.analyzed_us,
        sampled_page_count: statistics.sampled_page_count,
    };
    FORMAT.seal(&table.encode_to_vec())
}

fn counted(column: &ColumnStatistics) -> impl Iterator<Item = &(u64, u64)> {
    column.keys.iter().flat_map(|keys| keys.counts())
}

fn sample_message(sample: &RowSample) -> Sample {
    let values = |column: &ArrayRef| {
        let scalar = |row| ScalarValue::try_from_array(column, row).ok();
        let rows = 0..column.len();
        rows.map(|row| scalar(row).as_ref().and_then(value).unwrap_or_default()).collect()
    };
    let columns = sample.columns().iter();
    let columns = columns.map(|(id, column)| SampleColumn { id: *id, values: values(column) });
    Sample { row_count_then: sample.row_count_then(), columns: columns.collect() }
}

pub(super) fn decode(bytes: &[u8], schema: &TableSchema) -> Result<TableStatistics, FrameError> {
    let (_, message) = FORMAT.open(bytes)?;
    decode_message(message, schema)
}

/// The statistics of a table of this description, from what stands in the frame.
///
/// # Errors
/// [`FrameError::Malformed`].
pub fn decode_message(message: &[u8], schema: &TableSchema) -> Result<TableStatistics, FrameError> {
    let table = Table::decode(message).map_err(|error| FORMAT.malformed(error.to_string()))?;
    if table.table_id != schema.table_id {
        return Err(FORMAT.malformed(format!("it is of table {}", table.table_id)));
    }
    let mut statistics = TableStatistics {
        row_count: table.row_count,
        page_count: table.page_count,
        page_bytes: table.page_bytes,
        change_count: table.change_count,
        analyzed_us: table.analyzed_us,
        sampled_page_count: table.sampled_page_count,
        ..TableStatistics::default()
    };
    for column in table.columns {
        let Some(known) = schema.column_by_id(column.id) else { continue };
        let id = column.id;
        if let Some(column) = decoded(column, &known.column_type.arrow())? {
            statistics.columns.insert(id, column);
        }
    }
    if let Some(sample) = table.sample {
        statistics.sample = decoded_sample(sample, schema)?;
    }
    Ok(statistics)
}

/// None: no column of it is left.
fn decoded_sample(sample: Sample, schema: &TableSchema) -> Result<Option<RowSample>, FrameError> {
    let mut columns = BTreeMap::new();
    for SampleColumn { id, values } in sample.columns {
        let Some(known) = schema.column_by_id(id) else { continue };
        let data_type = known.column_type.arrow();
        let Ok(null) = ScalarValue::try_new_null(&data_type) else { continue };
        let scalar = |value: Value| match value.kind {
            None => Some(null.clone()),
            Some(_) => scalar(value, &data_type),
        };
        let Some(values) = values.into_iter().map(scalar).collect::<Option<Vec<_>>>() else {
            continue;
        };
        if let Ok(values) = ScalarValue::iter_to_array(values) {
            columns.insert(id, values);
        }
    }
    if columns.is_empty() {
        return Ok(None);
    }
    let sample = RowSample::new(sample.row_count_then, columns);
    sample.map(Some).map_err(|error| FORMAT.malformed(error.to_string()))
}

/// None: the values are of another type.
fn decoded(column: Column, data_type: &DataType) -> Result<Option<ColumnStatistics>, FrameError> {
    let is_fraction = |fraction: &f64| (0.0..=1.0).contains(fraction);
    let is_count = |count: f64| count.is_finite() && count >= 0.0;
    if !is_fraction(&column.null_fraction)
        || !column.frequencies.iter().all(is_fraction)
        || !is_count(column.distinct_count)
        || !is_count(column.average_width)
        || column.frequencies.len() != column.common.len()
        || !column.key_seen.is_none_or(|seen| is_fraction(&seen))
    {
        return Err(FORMAT.malformed(format!("the fractions of column {}", column.id)));
    }
    let stored = column.stored.map(|stored| StoredColumn {
        row_bytes: stored.row_bytes,
        page_rows: stored.page_rows,
        dictionary_share: stored.dictionary_share,
    });
    if stored.is_some_and(|stored| {
        !is_count(stored.row_bytes)
            || !is_count(stored.page_rows)
            || !is_fraction(&stored.dictionary_share)
    }) {
        return Err(FORMAT.malformed(format!("the pages of column {}", column.id)));
    }
    let keys = match column.key_threshold {
        Some(threshold) if column.key_hashes.len() == column.key_counts.len() => {
            let counts = column.key_hashes.into_iter().zip(column.key_counts).collect();
            let keys = KeySample::new(threshold, counts);
            let keys = keys.map_err(|error| FORMAT.malformed(error.to_string()))?;
            Some(Arc::new(keys.of_seen(column.key_seen.unwrap_or(1.0))))
        }
        _ => None,
    };
    let end = |end: Option<Value>| match end {
        None => Some(None),
        Some(end) => scalar(end, data_type).map(Some),
    };
    let all = |values: Vec<Value>| {
        values.into_iter().map(|value| scalar(value, data_type)).collect::<Option<Vec<_>>>()
    };
    let (Some(min), Some(max), Some(common), Some(histogram)) =
        (end(column.min), end(column.max), all(column.common), all(column.histogram))
    else {
        return Ok(None);
    };
    Ok(Some(ColumnStatistics {
        row_count: column.row_count,
        sampled_count: column.sampled_count,
        null_fraction: column.null_fraction,
        distinct_count: column.distinct_count,
        average_width: column.average_width,
        min,
        max,
        common: common.into_iter().zip(column.frequencies).collect(),
        histogram,
        keys,
        stored,
    }))
}

fn value(scalar: &ScalarValue) -> Option<Value> {
    let kind = match scalar {
        ScalarValue::Boolean(Some(value)) => Kind::Boolean(*value),
        ScalarValue::Int16(Some(value)) => Kind::Integer((*value).into()),
        ScalarValue::Int32(Some(value)) | ScalarValue::Date32(Some(value)) => {
            Kind::Integer((*value).into())
        }
        ScalarValue::Int64(Some(value))
        | ScalarValue::Time64Microsecond(Some(value))
        | ScalarValue::TimestampMicrosecond(Some(value), _) => Kind::Integer(*value),
        ScalarValue::Decimal128(Some(value), _, _) => Kind::Decimal(value.to_le_bytes().to_vec()),
        ScalarValue::Decimal256(Some(value), _, _) => Kind::Decimal(value.to_le_bytes().to_vec()),
        ScalarValue::Float32(Some(value)) => Kind::Float((*value).into()),
        ScalarValue::Float64(Some(value)) => Kind::Float(*value),
        ScalarValue::Utf8(Some(text)) => Kind::Bytes(text.as_bytes().to_vec()),
        ScalarValue::Binary(Some(bytes)) | ScalarValue::FixedSizeBinary(_, Some(bytes)) => {
            Kind::Bytes(bytes.clone())
        }
        ScalarValue::IntervalMonthDayNano(Some(value)) => Kind::Interval(Interval {
            months: value.months,
            days: value.days,
            nanoseconds: value.nanoseconds,
        }),
        _ => return None,
    };
    Some(Value { kind: Some(kind) })
}

/// `value` as one of `data_type`; None: it is of another type.
#[expect(clippy::cast_possible_truncation, reason = "a real was made a double, and is one again")]
fn scalar(value: Value, data_type: &DataType) -> Option<ScalarValue> {
    Some(match (value.kind?, data_type) {
        (Kind::Boolean(value), DataType::Boolean) => ScalarValue::Boolean(Some(value)),
        (Kind::Integer(value), DataType::Int16) => ScalarValue::Int16(Some(value.try_into().ok()?)),
        (Kind::Integer(value), DataType::Int32) => ScalarValue::Int32(Some(value.try_into().ok()?)),
        (Kind::Integer(value), DataType::Int64) => ScalarValue::Int64(Some(value)),
        (Kind::Integer(value), DataType::Date32) => {
            ScalarValue::Date32(Some(value.try_into().ok()?))
        }
        (Kind::Integer(value), DataType::Time64(TimeUnit::Microsecond)) => {
            ScalarValue::Time64Microsecond(Some(value))
        }
        (Kind::Integer(value), DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
            ScalarValue::TimestampMicrosecond(Some(value), zone.clone())
        }
        (Kind::Decimal(bytes), DataType::Decimal128(precision, scale)) => {
            let value = i128::from_le_bytes(bytes.try_into().ok()?);
            ScalarValue::Decimal128(Some(value), *precision, *scale)
        }
        (Kind::Decimal(bytes), DataType::Decimal256(precision, scale)) => {
            let value = i256::from_le_bytes(bytes.try_into().ok()?);
            ScalarValue::Decimal256(Some(value), *precision, *scale)
        }
        (Kind::Float(value), DataType::Float32) => ScalarValue::Float32(Some(value as f32)),
        (Kind::Float(value), DataType::Float64) => ScalarValue::Float64(Some(value)),
        (Kind::Bytes(bytes), DataType::Utf8) => {
            ScalarValue::Utf8(Some(String::from_utf8(bytes).ok()?))
        }
        (Kind::Bytes(bytes), DataType::Binary) => ScalarValue::Binary(Some(bytes)),
        (Kind::Bytes(bytes), DataType::FixedSizeBinary(width)) => {
            if usize::try_from(*width) != Ok(bytes.len()) {
                return None;
            }
            ScalarValue::FixedSizeBinary(*width, Some(bytes))
        }
        (Kind::Interval(value), DataType::Interval(IntervalUnit::MonthDayNano)) => {
            let Interval { months, days, nanoseconds } = value;
            let value = IntervalMonthDayNano::new(months, days, nanoseconds);
            ScalarValue::IntervalMonthDayNano(Some(value))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
