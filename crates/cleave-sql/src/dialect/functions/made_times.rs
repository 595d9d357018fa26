//! Times and intervals that are made of numbers, and times that are rounded to fewer digits of a second.
//!
//! Source: PostgreSQL's documentation, "Date/Time Functions and Operators", and "Date/Time Types" for the precision.

use std::sync::Arc;

use cleave_fragment::functions::calendar::{days_in_month, days_of};
use cleave_fragment::functions::interval_text::{self, Fields};
use cleave_fragment::functions::{ArgumentFault, row_function};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, IntervalMonthDayNanoArray, PrimitiveArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::dialect::typed_literals::is_text;

const SECOND_US: i64 = 1_000_000;
/// 2000-01-01, from which PostgreSQL counts: the halves of times before it are rounded down.
const EPOCH_US: i64 = 946_684_800 * SECOND_US;

/// `make_time(hour, minute, second)`.
pub(super) fn make_time() -> Arc<ScalarUDF> {
    row_function(
        "make_time",
        |given| numbers(given, 2),
        |_| DataType::Time64(TimeUnit::Microsecond),
        |args| {
            let made = (0..rows(args)).map(|row| {
                let Some(parts) = wholes::<2>(args, 0, row).zip(seconds(args, 2, row)) else {
                    return Ok(None);
                };
                time_of(parts.0, parts.1).map(Some)
            });
            Ok(Arc::new(made.collect::<Result<Time64MicrosecondArray, ArgumentFault>>()?))
        },
    )
}

/// `make_date(year, month, day)`; DataFusion's counts a year 0.
pub(super) fn make_date() -> Arc<ScalarUDF> {
    row_function(
        "make_date",
        |given| {
            let is_it = given.len() == 3 && given.iter().all(|own| is_whole(own) || is_text(own));
            is_it.then(|| vec![DataType::Int64; 3])
        },
        |_| DataType::Date32,
        |args| {
            let made = (0..rows(args)).map(|row| {
                let Some(parts) = wholes::<3>(args, 0, row) else { return Ok(None) };
                let days = day_of(parts, 5_874_897)?;
                let beyond = |_| ArgumentFault::TimeOutOfRange { what: "date" };
                i32::try_from(days).map_err(beyond).map(Some)
            });
            Ok(Arc::new(made.collect::<Result<Date32Array, ArgumentFault>>()?))
        },
    )
}

/// `make_timestamp(year, month, day, hour, minute, second)`.
pub(super) fn make_timestamp() -> Arc<ScalarUDF> {
    row_function(
        "make_timestamp",
        |given| numbers(given, 5),
        |_| DataType::Timestamp(TimeUnit::Microsecond, None),
        |args| {
            let made = (0..rows(args)).map(|row| {
                let (date, time) = (wholes::<3>(args, 0, row), wholes::<2>(args, 3, row));
                let Some(((date, time), second)) = date.zip(time).zip(seconds(args, 5, row)) else {
                    return Ok(None);
                };
                let days = day_of(date, 294_276)?;
                let of_day = time_of(time, second)?;
                let made =
                    days.checked_mul(86_400 * SECOND_US).and_then(|us| us.checked_add(of_day));
                let beyond = || ArgumentFault::TimeOutOfRange { what: "timestamp" };
                made.ok_or_else(beyond).map(Some)
            });
            Ok(Arc::new(made.collect::<Result<TimestampMicrosecondArray, ArgumentFault>>()?))
        },
    )
}

/// `make_interval(years, months, weeks, days, hours, minutes, seconds)`; without the last ones, they are 0.
pub(super) fn make_interval() -> Arc<ScalarUDF> {
    row_function(
        "make_interval",
        |given| {
            let wholes = given.len().min(6);
            let (first, last) = given.split_at(wholes);
            let is_it =
                given.len() <= 7 && first.iter().all(is_whole) && last.iter().all(is_number);
            let mut types = vec![DataType::Int64; wholes];
            types.extend(last.iter().map(|_| DataType::Float64));
            is_it.then_some(types)
        },
        |_| DataType::Interval(IntervalUnit::MonthDayNano),
        |args| {
            let made = (0..rows(args)).map(|row| {
                if args.iter().any(|arg| arg.is_null(row)) {
                    return Ok(None);
                }
                let whole = |place: usize| {
                    args.get(place).map_or(0, |arg| arg.as_primitive::<Int64Type>().value(row))
                };
                let last =
                    args.get(6).map_or(0.0, |arg| arg.as_primitive::<Float64Type>().value(row));
                interval_of(std::array::from_fn(whole), last)
                    .ok_or(ArgumentFault::TimeOutOfRange { what: "interval" })
                    .map(Some)
            });
            Ok(Arc::new(made.collect::<Result<IntervalMonthDayNanoArray, ArgumentFault>>()?))
        },
    )
}

/// What a cast to `timestamp(p)` or `time(p)` does besides the cast.
pub(in crate::dialect) const TO_PRECISION: &str = "round_to_precision";

/// What a cast to an interval of some fields, or of a precision, does.
pub(in crate::dialect) const INTERVAL_WITHIN: &str = "interval_within";

/// `interval_within(value, fields, digits)`: a text or an interval, and what of it the fields have.
pub(super) fn interval_within() -> Arc<ScalarUDF> {
    row_function(
        INTERVAL_WITHIN,
        |given| match given {
            [value, fields, digits] if is_text(fields) && digits.is_integer() => {
                let value = match value {
                    DataType::Interval(_) | DataType::Duration(_) => {
                        DataType::Interval(IntervalUnit::MonthDayNano)
                    }
                    text if is_text(text) || text.is_null() => DataType::Utf8,
                    _ => return None,
                };
                Some(vec![value, DataType::Utf8, DataType::Int64])
            }
            _ => None,
        },
        |_| DataType::Interval(IntervalUnit::MonthDayNano),
        |args| {
            let [values, fields, digits] = take_function_args(INTERVAL_WITHIN, args)?;
            let (names, digits) = (fields.as_string::<i32>(), digits.as_primitive::<Int64Type>());
            let texts = values.as_string_opt::<i32>();
            let intervals = values.as_primitive_opt::<IntervalMonthDayNanoType>();
            let read = (0..values.len()).map(|row| {
                if values.is_null(row) {
                    return Ok(None);
                }
                let fields = Fields::named(names.value(row)).unwrap_or_default();
                let read = match (texts, intervals) {
                    (Some(texts), _) => {
                        let text = texts.value(row);
                        let bad = |fault| ArgumentFault::text(fault, "interval", text);
                        // As PostgreSQL: the fields say how a constant is read, and what is kept of others.
                        interval_text::parse(text).map_err(bad)?
                    }
                    (_, Some(intervals)) => intervals.value(row),
                    _ => return Ok(None),
                };
                let within = fields.within(read, u32::try_from(digits.value(row)).ok());
                within.map(Some).ok_or(ArgumentFault::TimeOutOfRange { what: "interval" })
            });
            let read: Result<IntervalMonthDayNanoArray, ArgumentFault> = read.collect();
            Ok(Arc::new(read?))
        },
    )
}

/// A time, rounded to so many digits behind the point of its seconds.
pub(super) fn to_precision() -> Arc<ScalarUDF> {
    row_function(
        TO_PRECISION,
        |given| match given {
            [
                at @ (DataType::Timestamp(TimeUnit::Microsecond, _)
                | DataType::Time64(TimeUnit::Microsecond)),
                digits,
            ] if digits.is_integer() => Some(vec![at.clone(), DataType::Int64]),
            [DataType::Null, _] => {
                Some(vec![DataType::Timestamp(TimeUnit::Microsecond, None), DataType::Int64])
            }
            _ => None,
        },
        |given| given.first().cloned().unwrap_or(DataType::Null),
        |args| {
            let [times, digits] = take_function_args(TO_PRECISION, args)?;
            let digits = digits.as_primitive::<Int64Type>();
            let unit = |row: usize| {
                let digits = if digits.is_empty() { 0 } else { digits.value(row).clamp(0, 6) };
                10_i64.pow(u32::try_from(6 - digits).unwrap_or_default())
            };
            Ok(match times.data_type() {
                DataType::Time64(_) => each::<Time64MicrosecondType>(times, |at, row| {
                    Some((at + unit(row) / 2) / unit(row) * unit(row))
                }),
                _ => each::<TimestampMicrosecondType>(times, |at, row| rounded(at, unit(row))),
            })
        },
    )
}

/// Rounded by its distance from 2000. Infinite times, which are the smallest and the largest value, stay.
pub(super) fn rounded(at: i64, unit: i64) -> Option<i64> {
    if at == i64::MIN || at == i64::MAX {
        return Some(at);
    }
    let since = at.checked_sub(EPOCH_US)?;
    let whole = (since.abs() + unit / 2) / unit * unit;
    (whole * since.signum()).checked_add(EPOCH_US)
}

fn each<T: ArrowPrimitiveType<Native = i64>>(
    times: &ArrayRef,
    of: impl Fn(i64, usize) -> Option<i64>,
) -> ArrayRef {
    let values = times.as_primitive::<T>();
    let made = (0..values.len())
        .map(|row| values.is_valid(row).then(|| of(values.value(row), row)).flatten());
    let made: PrimitiveArray<T> = made.collect();
    Arc::new(made.with_data_type(times.data_type().clone()))
}

fn is_whole(given: &DataType) -> bool {
    given.is_integer() || given.is_null()
}

fn is_number(given: &DataType) -> bool {
    given.is_numeric() || given.is_null()
}

/// So many whole numbers, and seconds.
fn numbers(given: &[DataType], wholes: usize) -> Option<Vec<DataType>> {
    let (seconds, first) = given.split_last()?;
    let is_it = first.len() == wholes && first.iter().all(is_whole) && is_number(seconds);
    let mut types = vec![DataType::Int64; wholes];
    types.push(DataType::Float64);
    is_it.then_some(types)
}

fn rows(args: &[ArrayRef]) -> usize {
    args.first().map_or(1, |arg| arg.len())
}

fn wholes<const N: usize>(args: &[ArrayRef], from: usize, row: usize) -> Option<[i64; N]> {
    let mut found = [0; N];
    for (place, found) in found.iter_mut().enumerate() {
        let values = args.get(from + place)?;
        *found = values.is_valid(row).then(|| values.as_primitive::<Int64Type>().value(row))?;
    }
    Some(found)
}

fn seconds(args: &[ArrayRef], place: usize, row: usize) -> Option<f64> {
    let values = args.get(place)?;
    values.is_valid(row).then(|| values.as_primitive::<Float64Type>().value(row))
}

/// Days since 1970; years before Christ are negative, and there is no year 0.
fn day_of([year, month, day]: [i64; 3], year_max: i64) -> Result<i64, ArgumentFault> {
    let astronomical = if year < 0 { year + 1 } else { year };
    // Years as in PostgreSQL; what follows is computed from them.
    let is_date = year != 0
        && (-4713..=year_max).contains(&astronomical)
        && (1..=12).contains(&month)
        && (1..=days_in_month(astronomical, month)).contains(&day);
    if !is_date {
        let reason = format!("date field value out of range: {year}-{month:02}-{day:02}");
        return Err(ArgumentFault::Field { reason });
    }
    Ok(days_of(astronomical, month, day))
}

/// Microseconds of the day.
fn time_of([hour, minute]: [i64; 2], second: f64) -> Result<i64, ArgumentFault> {
    let is_it =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second)
            || (hour, minute) == (24, 0) && second == 0.0;
    if !is_it {
        let reason = format!("time field value out of range: {hour}:{minute:02}:{second:02}");
        return Err(ArgumentFault::Field { reason });
    }
    Ok((hour * 60 + minute) * 60 * SECOND_US + microseconds(second).unwrap_or_default())
}

#[expect(clippy::cast_possible_truncation, reason = "a whole number, far below the limit")]
fn microseconds(seconds: f64) -> Option<i64> {
    let us = (seconds * 1e6).round_ties_even();
    // Beyond it a float is no exact number.
    (us.abs() < 9.2e18).then_some(us as i64)
}

fn interval_of(
    [years, months, weeks, days, hours, minutes]: [i64; 6],
    seconds: f64,
) -> Option<IntervalMonthDayNano> {
    let months = years.checked_mul(12)?.checked_add(months)?;
    let days = weeks.checked_mul(7)?.checked_add(days)?;
    let whole = hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60 * SECOND_US)?;
    let us = whole.checked_add(microseconds(seconds)?)?;
    Some(IntervalMonthDayNano {
        months: i32::try_from(months).ok()?,
        days: i32::try_from(days).ok()?,
        nanoseconds: us.checked_mul(1000)?,
    })
}
