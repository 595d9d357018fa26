//! Writes values of Arrow arrays as text, as PostgreSQL prints them.
//!
//! Booleans are `t` and `f`; floats the shortest digits that read back the same, with an exponent where PostgreSQL uses
//! one; `numeric` keeps its scale; times drop trailing zeros of their fraction; timestamps with a time zone are in UTC
//! with `+00`; `bytea` is hexadecimal. Arrow types that no table has but a query may return (unsigned, dictionaries,
//! lists, structs, other units) print like their nearest SQL type.
//!
//! Source: PostgreSQL's manual, "Data Types", and its `float8out`, `EncodeDateTime`, `array_out`, `record_out`.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use cleave_fragment::functions::infinite::Infinite;
use cleave_fragment::functions::quotient;

use crate::error::Result;
use crate::value::calendar::date_of;
use crate::value::interval;
use crate::value::interval::IntervalStyle;

const BILLION: i64 = 1_000_000_000;

/// Writes the values of one array.
pub struct ValueText<'a> {
    array: &'a dyn Array,
    /// Including the NULLs among a dictionary's values.
    nulls: Option<NullBuffer>,
    write: WriteValue<'a>,
}

/// Writes the value at an index that is not NULL.
type WriteValue<'a> = Box<dyn Fn(usize, &mut String) + 'a>;

/// The text of one value, None for NULL.
///
/// # Errors
/// As [`ValueText::new`].
pub fn value_text(array: &dyn Array, index: usize) -> Result<Option<String>> {
    let text = ValueText::new(array)?;
    let mut out = String::new();
    Ok(text.write(index, &mut out).then_some(out))
}

macro_rules! displayed {
    ($array:expr, $type:ty) => {{
        let values = $array.as_primitive::<$type>();
        Box::new(move |index: usize, out: &mut String| {
            let _ = write!(out, "{}", values.value(index));
        })
    }};
}

macro_rules! written {
    ($array:expr, $type:ty, $write:expr) => {{
        let values = $array.as_primitive::<$type>();
        Box::new(move |index: usize, out: &mut String| $write(out, values.value(index)))
    }};
}

impl<'a> ValueText<'a> {
    /// A writer of this array's values.
    ///
    /// # Errors
    /// A type that Arrow itself cannot print.
    pub fn new(array: &'a dyn Array) -> Result<Self> {
        Ok(Self { array, nulls: array.logical_nulls(), write: writer(array)? })
    }

    /// The same, with intervals in `style`.
    ///
    /// # Errors
    /// As [`ValueText::new`].
    pub fn styled(array: &'a dyn Array, style: IntervalStyle) -> Result<Self> {
        let is_interval = *array.data_type() == DataType::Interval(IntervalUnit::MonthDayNano);
        if style == IntervalStyle::Postgres || !is_interval {
            return Self::new(array);
        }
        let write: WriteValue<'a> =
            written!(array, IntervalMonthDayNanoType, |out: &mut String, value| {
                interval::write_in(style, out, value);
            });
        Ok(Self { array, nulls: array.logical_nulls(), write })
    }

    /// Appends the value at `index` to `out`. False, and nothing appended, for NULL and past the end.
    pub fn write(&self, index: usize, out: &mut String) -> bool {
        let within = index < self.array.len();
        if !within || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(index)) {
            return false;
        }
        (self.write)(index, out);
        true
    }
}

impl std::fmt::Debug for ValueText<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ValueText").field("array", &self.array).finish_non_exhaustive()
    }
}

fn writer<'a>(array: &'a dyn Array) -> Result<WriteValue<'a>> {
    Ok(match array.data_type() {
        DataType::Int8 => displayed!(array, Int8Type),
        DataType::Int16 => displayed!(array, Int16Type),
        DataType::Int32 => displayed!(array, Int32Type),
        DataType::Int64 => displayed!(array, Int64Type),
        DataType::UInt8 => displayed!(array, UInt8Type),
        DataType::UInt16 => displayed!(array, UInt16Type),
        DataType::UInt32 => displayed!(array, UInt32Type),
        DataType::UInt64 => displayed!(array, UInt64Type),
        DataType::Float16 => displayed!(array, Float16Type),
        DataType::Float32 => written!(array, Float32Type, write_real),
        DataType::Float64 => written!(array, Float64Type, write_double),
        DataType::Decimal128(_, scale) => {
            let scale = *scale;
            written!(array, Decimal128Type, |out: &mut String, value| {
                write_numeric(out, value, scale);
            })
        }
        DataType::Decimal256(precision, scale) => {
            let (precision, scale) = (*precision, *scale);
            written!(array, Decimal256Type, |out: &mut String, value| {
                let (value, scale) = quotient::shown(value, precision, scale);
                write_digits(out, value < i256::ZERO, value.wrapping_abs().to_string(), scale);
            })
        }
        DataType::Boolean => {
            let values = array.as_boolean();
            Box::new(move |index, out| out.push(if values.value(index) { 't' } else { 'f' }))
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            Box::new(move |index, out| out.push_str(values.value(index)))
        }
        DataType::LargeUtf8 => {
            let values = array.as_string::<i64>();
            Box::new(move |index, out| out.push_str(values.value(index)))
        }
        DataType::Utf8View => {
            let values = array.as_string_view();
            Box::new(move |index, out| out.push_str(values.value(index)))
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            Box::new(move |index, out| write_bytes(out, values.value(index)))
        }
        DataType::LargeBinary => {
            let values = array.as_binary::<i64>();
            Box::new(move |index, out| write_bytes(out, values.value(index)))
        }
        DataType::BinaryView => {
            let values = array.as_binary_view();
            Box::new(move |index, out| write_bytes(out, values.value(index)))
        }
        DataType::FixedSizeBinary(16) => {
            let values = array.as_fixed_size_binary();
            Box::new(move |index, out| write_uuid(out, values.value(index)))
        }
        DataType::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            Box::new(move |index, out| write_bytes(out, values.value(index)))
        }
        DataType::Date32 => {
            written!(array, Date32Type, |out: &mut String, days| {
                match Infinite::of_days(days) {
                    Some(infinite) => out.push_str(infinite.text()),
                    None => write_date(out, i64::from(days)),
                }
            })
        }
        DataType::Date64 => {
            written!(array, Date64Type, |out: &mut String, millis: i64| {
                write_date(out, millis.div_euclid(86_400_000));
            })
        }
        DataType::Time32(TimeUnit::Second) => {
            written!(array, Time32SecondType, |out: &mut String, value| {
                write_time(out, i64::from(value), 0);
            })
        }
        DataType::Time32(_) => {
            written!(array, Time32MillisecondType, |out: &mut String, value| {
                write_time_of(out, i64::from(value), 1_000);
            })
        }
        DataType::Time64(TimeUnit::Nanosecond) => {
            written!(array, Time64NanosecondType, |out: &mut String, value| {
                write_time_of(out, value, BILLION);
            })
        }
        DataType::Time64(_) => {
            written!(array, Time64MicrosecondType, |out: &mut String, value| {
                write_time_of(out, value, 1_000_000);
            })
        }
        DataType::Timestamp(unit, zone) => {
            let zone = zone.is_some();
            match unit {
                TimeUnit::Second => {
                    written!(array, TimestampSecondType, |out: &mut String, value| {
                        write_timestamp(out, value, 1, zone);
                    })
                }
                TimeUnit::Millisecond => {
                    written!(array, TimestampMillisecondType, |out: &mut String, value| {
                        write_timestamp(out, value, 1_000, zone);
                    })
                }
                TimeUnit::Microsecond => {
                    written!(array, TimestampMicrosecondType, |out: &mut String, value| {
                        match Infinite::of_micros(value) {
                            Some(infinite) => out.push_str(infinite.text()),
                            None => write_timestamp(out, value, 1_000_000, zone),
                        }
                    })
                }
                TimeUnit::Nanosecond => {
                    written!(array, TimestampNanosecondType, |out: &mut String, value| {
                        write_timestamp(out, value, BILLION, zone);
                    })
                }
            }
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            written!(array, IntervalMonthDayNanoType, interval::write)
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            written!(array, IntervalYearMonthType, |out: &mut String, months| {
                interval::write(out, IntervalMonthDayNano { months, days: 0, nanoseconds: 0 });
            })
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let values = array.as_primitive::<IntervalDayTimeType>();
            Box::new(move |index, out| {
                let value = values.value(index);
                let nanoseconds = i64::from(value.milliseconds) * 1_000_000;
                let (months, days) = (0, value.days);
                interval::write(out, IntervalMonthDayNano { months, days, nanoseconds });
            })
        }
        DataType::Duration(unit) => match unit {
            TimeUnit::Second => written!(array, DurationSecondType, |out: &mut String, value| {
                write_duration(out, value, 1);
            }),
            TimeUnit::Millisecond => {
                written!(array, DurationMillisecondType, |out: &mut String, value| {
                    write_duration(out, value, 1_000);
                })
            }
            TimeUnit::Microsecond => {
                written!(array, DurationMicrosecondType, |out: &mut String, value| {
                    write_duration(out, value, 1_000_000);
                })
            }
            TimeUnit::Nanosecond => {
                written!(array, DurationNanosecondType, |out: &mut String, value| {
                    write_duration(out, value, BILLION);
                })
            }
        },
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let keys = dictionary.normalized_keys();
            let values = writer_or_null(dictionary.values())?;
            Box::new(move |index, out| {
                if let Some(key) = keys.get(index) {
                    values(*key, out);
                }
            })
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.value_offsets();
            let bounds = move |index: usize| {
                let bound = |index: usize| {
                    offsets.get(index).and_then(|end| usize::try_from(*end).ok()).unwrap_or(0)
                };
                (bound(index), bound(index + 1))
            };
            list_writer(lists.values(), bounds)?
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let offsets = lists.value_offsets();
            let bounds = move |index: usize| {
                let bound = |index: usize| {
                    offsets.get(index).and_then(|end| usize::try_from(*end).ok()).unwrap_or(0)
                };
                (bound(index), bound(index + 1))
            };
            list_writer(lists.values(), bounds)?
        }
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            let lists = array.as_fixed_size_list();
            list_writer(lists.values(), move |index| (index * size, (index + 1) * size))?
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns();
            let texts = columns.iter().map(|column| writer(column)).collect::<Result<Vec<_>>>()?;
            Box::new(move |index, out| {
                out.push('(');
                for (position, (column, text)) in columns.iter().zip(&texts).enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    if column.is_valid(index) {
                        let mut value = String::new();
                        text(index, &mut value);
                        write_quoted(
                            out,
                            &value,
                            value.is_empty() || has_mark(&value, "(),"),
                            true,
                        );
                    }
                }
                out.push(')');
            })
        }
        DataType::Null => Box::new(|_, _| {}),
        _ => {
            let options = FormatOptions::default().with_display_error(true);
            let formatter = ArrayFormatter::try_new(array, &options)?;
            let texts: Vec<String> =
                (0..array.len()).map(|index| formatter.value(index).to_string()).collect();
            Box::new(move |index, out| {
                if let Some(text) = texts.get(index) {
                    out.push_str(text);
                }
            })
        }
    })
}

/// As [`writer`], but a NULL among the values writes nothing.
fn writer_or_null(values: &ArrayRef) -> Result<WriteValue<'_>> {
    let text = writer(values)?;
    Ok(Box::new(move |index, out| {
        if index < values.len() && values.is_valid(index) {
            text(index, out);
        }
    }))
}

/// Writes lists as PostgreSQL's arrays: `{1,2,NULL,"a b"}`.
fn list_writer<'a>(
    values: &'a ArrayRef,
    bounds: impl Fn(usize) -> (usize, usize) + 'a,
) -> Result<WriteValue<'a>> {
    let text = writer(values)?;
    let nested = matches!(
        values.data_type(),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)
    );
    Ok(Box::new(move |index, out| {
        let (start, end) = bounds(index);
        out.push('{');
        for element in start..end.min(values.len()) {
            if element > start {
                out.push(',');
            }
            if values.is_null(element) {
                out.push_str("NULL");
                continue;
            }
            let mut value = String::new();
            text(element, &mut value);
            let quoted =
                value.is_empty() || value.eq_ignore_ascii_case("null") || has_mark(&value, "{},");
            write_quoted(out, &value, quoted && !nested, false);
        }
        out.push('}');
    }))
}

fn has_mark(value: &str, marks: &str) -> bool {
    value.contains(|character: char| {
        marks.contains(character)
            || character == '"'
            || character == '\\'
            || character.is_ascii_whitespace()
    })
}

/// Within a record a quote is doubled, within an array it gets a backslash.
fn write_quoted(out: &mut String, value: &str, quoted: bool, double: bool) {
    if !quoted {
        out.push_str(value);
        return;
    }
    out.push('"');
    for character in value.chars() {
        match character {
            '"' if double => out.push('"'),
            '"' | '\\' => out.push('\\'),
            _ => {}
        }
        out.push(character);
    }
    out.push('"');
}

fn write_real(out: &mut String, value: f32) {
    // PostgreSQL writes a `real` with an exponent from 1e+06 on, a `double precision` from 1e+15 on.
    write_float(out, f64::from(value), &format!("{value:e}"), 6);
}

fn write_double(out: &mut String, value: f64) {
    write_float(out, value, &format!("{value:e}"), 15);
}

/// `shortest` is Rust's `1.5e-7`: the fewest digits that read back as the value.
fn write_float(out: &mut String, value: f64, shortest: &str, exponent_max: i32) {
    if value.is_nan() {
        out.push_str("NaN");
        return;
    }
    if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
        return;
    }
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    if unsigned.len() < mantissa.len() {
        out.push('-');
    }
    if !(-4..exponent_max).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{unsigned}e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let digits = || unsigned.chars().filter(char::is_ascii_digit);
    if exponent < 0 {
        out.push_str("0.");
        out.extend((1..-exponent).map(|_| '0'));
        out.extend(digits());
        return;
    }
    let whole_count = usize::try_from(exponent).unwrap_or(0) + 1;
    out.extend(digits().chain(std::iter::repeat('0')).take(whole_count));
    let mut fraction = digits().skip(whole_count).peekable();
    if fraction.peek().is_some() {
        out.push('.');
        out.extend(fraction);
    }
}

fn write_numeric(out: &mut String, value: i128, scale: i8) {
    write_digits(out, value < 0, value.unsigned_abs().to_string(), scale);
}

/// `digits` · 10^-`scale`.
fn write_digits(out: &mut String, is_negative: bool, digits: String, scale: i8) {
    let scale_digits = usize::from(scale.unsigned_abs());
    if is_negative {
        out.push('-');
    }
    if scale <= 0 {
        out.push_str(&digits);
        if digits != "0" {
            out.extend((0..scale_digits).map(|_| '0'));
        }
        return;
    }
    let padding = (scale_digits + 1).saturating_sub(digits.len());
    let digits = "0".repeat(padding) + &digits;
    let (whole, fraction) = digits.split_at(digits.len() - scale_digits);
    let _ = write!(out, "{whole}.{fraction}");
}

/// The year of a date with at least four digits, and whether it is BC.
fn write_day(out: &mut String, days: i64) -> bool {
    let (year, month, day) = date_of(days);
    let before_christ = year <= 0;
    let shown = if before_christ { 1 - year } else { year };
    let _ = write!(out, "{shown:04}-{month:02}-{day:02}");
    before_christ
}

fn write_date(out: &mut String, days: i64) {
    if write_day(out, days) {
        out.push_str(" BC");
    }
}

/// Seconds of a day and billionths; 86,400 seconds are 24:00:00.
fn write_time(out: &mut String, seconds: i64, nanos: i64) {
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let _ = write!(out, "{hour:02}:{minute:02}:{second:02}");
    write_fraction(out, nanos.unsigned_abs());
}

fn write_time_of(out: &mut String, value: i64, per_second: i64) {
    let nanos = value.rem_euclid(per_second) * (BILLION / per_second);
    write_time(out, value.div_euclid(per_second), nanos);
}

fn write_timestamp(out: &mut String, value: i64, per_second: i64, zone: bool) {
    let seconds = value.div_euclid(per_second);
    let nanos = value.rem_euclid(per_second) * (BILLION / per_second);
    let before_christ = write_day(out, seconds.div_euclid(86_400));
    out.push(' ');
    write_time(out, seconds.rem_euclid(86_400), nanos);
    if zone {
        out.push_str("+00");
    }
    if before_christ {
        out.push_str(" BC");
    }
}

/// A duration, as an interval of days and hours.
fn write_duration(out: &mut String, value: i64, per_second: i64) {
    let day = per_second.saturating_mul(86_400);
    let days = i32::try_from(value / day).unwrap_or(i32::MAX);
    let nanoseconds = (value % day).saturating_mul(BILLION / per_second);
    interval::write(out, IntervalMonthDayNano { months: 0, days, nanoseconds });
}

/// Billionths of a second as `.5`, without trailing zeros; zero writes nothing.
pub(crate) fn write_fraction(out: &mut String, nanos: u64) {
    if nanos == 0 {
        return;
    }
    let digits = format!("{nanos:09}");
    let _ = write!(out, ".{}", digits.trim_end_matches('0'));
}

fn write_bytes(out: &mut String, bytes: &[u8]) {
    out.push_str("\\x");
    write_hex(out, bytes);
}

fn write_uuid(out: &mut String, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        write_hex(out, std::slice::from_ref(byte));
    }
}

fn write_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    out.reserve(bytes.len() * 2);
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// A point in time as SQL writes it, in UTC.
pub fn moment(wall_us: i64) -> String {
    let times = arrow::array::TimestampMicrosecondArray::from(vec![wall_us]).with_timezone("UTC");
    let text = value_text(&times, 0).ok().flatten();
    text.unwrap_or_else(|| format!("{wall_us} microseconds after 1970"))
}

#[cfg(test)]
mod tests;
