//! Functions of times and intervals with PostgreSQL's results.
//!
//! [`age`] counts years, months and days by the calendar. [`justify_hours`], [`justify_days`] and [`justify_interval`]
//! carry 24 hours to a day and 30 days to a month. [`interval_times`] and [`interval_divided`] carry fractions the
//! other way. [`interval_span`] is the value that intervals compare by, also in [`longest`] and [`shortest`].
//!
//! DataFusion's difference of two times is a duration; it is taken for an interval of days and hours.
//!
//! Source: PostgreSQL's `timestamp_age`, `interval_justify_…`, `interval_mul`, `interval_div` and `interval_cmp_value`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, DurationMicrosecondArray, IntervalMonthDayNanoArray,
};
use arrow::compute::{cast, try_binary, unary};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DurationMicrosecondType, Float64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use datafusion_common::Result;
use datafusion_common::utils::take_function_args;
use datafusion_expr::ScalarUDF;

use super::calendar::{date_of, days_in_month};
use super::infinite::{Infinite, infinite_rows, without};
use super::row_function::{ArgumentFault, row_function};

pub(super) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const DAY_NS: i64 = 86_400_000_000_000;
const DAY_US: i64 = 86_400_000_000;
const DAYS_PER_MONTH: i64 = 30;

/// Carries hours to days.
pub fn justify_hours() -> Arc<ScalarUDF> {
    row_function("justify_hours", one_interval, |_| INTERVAL, |args| justified(args, hours_carried))
}

/// Carries days to months.
pub fn justify_days() -> Arc<ScalarUDF> {
    row_function("justify_days", one_interval, |_| INTERVAL, |args| justified(args, days_carried))
}

/// Carries both, so that all parts have one sign.
pub fn justify_interval() -> Arc<ScalarUDF> {
    row_function(
        "justify_interval",
        one_interval,
        |_| INTERVAL,
        |args| justified(args, all_carried),
    )
}

/// `age(later, earlier)`.
pub fn age() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [later, earlier] if is_time(later) && is_time(earlier) => {
            Some(vec![MICROSECONDS, MICROSECONDS])
        }
        _ => None,
    };
    row_function("age", takes, |_| INTERVAL, compute_age)
}

/// An interval multiplied by a number.
pub fn interval_times() -> Arc<ScalarUDF> {
    row_function(
        "interval_times",
        interval_and_number,
        |_| INTERVAL,
        |args| scaled_by(args, |factor| Ok(Factor::Times(factor))),
    )
}

/// An interval divided by a number.
pub fn interval_divided() -> Arc<ScalarUDF> {
    row_function(
        "interval_divided",
        interval_and_number,
        |_| INTERVAL,
        |args| {
            scaled_by(args, |divisor| match divisor {
                0.0 => Err(ArrowError::DivideByZero),
                divisor => Ok(Factor::By(divisor)),
            })
        },
    )
}

/// The nanoseconds of an interval, with months of 30 days and days of 24 hours.
pub fn interval_span() -> Arc<ScalarUDF> {
    let gives = |_: &[DataType]| DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
    row_function("interval_span", one_interval, gives, |args| {
        let [intervals] = take_function_args("interval_span", args)?;
        let intervals = of_days(intervals)?;
        let spans: Decimal128Array = unary(&intervals, span);
        Ok(Arc::new(spans.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?))
    })
}

/// The longest of some intervals, the first of equal ones: `greatest`. NULL if all are.
pub fn longest() -> Arc<ScalarUDF> {
    row_function(
        "longest",
        some_intervals,
        |_| INTERVAL,
        |args| picked(args, |own, best| own > best),
    )
}

/// The shortest of some intervals: `least`.
pub fn shortest() -> Arc<ScalarUDF> {
    row_function(
        "shortest",
        some_intervals,
        |_| INTERVAL,
        |args| picked(args, |own, best| own < best),
    )
}

fn some_intervals(given: &[DataType]) -> Option<Vec<DataType>> {
    (!given.is_empty()).then(|| vec![INTERVAL; given.len()])
}

/// For each row the interval whose length is `better` than those of all before it.
fn picked(args: &[ArrayRef], better: fn(i128, i128) -> bool) -> Result<ArrayRef> {
    let given: Vec<&IntervalMonthDayNanoArray> =
        args.iter().map(|arg| arg.as_primitive::<IntervalMonthDayNanoType>()).collect();
    let rows = given.first().map_or(0, |first| first.len());
    let best_of = |row: usize| {
        let values = given.iter().filter(|column| column.is_valid(row));
        values
            .map(|column| column.value(row))
            .reduce(|best, own| if better(span(own), span(best)) { own } else { best })
    };
    let picked: IntervalMonthDayNanoArray = (0..rows).map(best_of).collect();
    Ok(Arc::new(picked))
}

/// The length of an interval, in nanoseconds.
pub fn span(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * i128::from(DAYS_PER_MONTH) + i128::from(interval.days);
    days * i128::from(DAY_NS) + i128::from(interval.nanoseconds)
}

/// The seconds within the minute of a time or interval, with their fraction.
pub fn seconds_of() -> Arc<ScalarUDF> {
    row_function(
        "seconds_of",
        one_time,
        |_| DataType::Decimal128(8, 6),
        |args| part_of_minute(args, 6),
    )
}

/// The same in thousandths.
pub fn milliseconds_of() -> Arc<ScalarUDF> {
    row_function(
        "milliseconds_of",
        one_time,
        |_| DataType::Decimal128(8, 3),
        |args| part_of_minute(args, 3),
    )
}

fn is_interval(given: &DataType) -> bool {
    matches!(given, DataType::Interval(_) | DataType::Duration(_) | DataType::Null | DataType::Utf8)
}

fn is_time(given: &DataType) -> bool {
    matches!(given, DataType::Timestamp(..) | DataType::Date32 | DataType::Null | DataType::Utf8)
}

/// The type that an argument is converted to, if it is an interval.
fn interval_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Duration(_) => Some(DataType::Duration(TimeUnit::Microsecond)),
        given => is_interval(given).then_some(INTERVAL),
    }
}

fn one_interval(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [given] => Some(vec![interval_type(given)?]),
        _ => None,
    }
}

fn interval_and_number(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [interval, number] if number.is_numeric() || number.is_null() => {
            Some(vec![interval_type(interval)?, DataType::Float64])
        }
        _ => None,
    }
}

fn one_time(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [DataType::Time64(_) | DataType::Time32(_)] => {
            Some(vec![DataType::Time64(TimeUnit::Microsecond)])
        }
        [given] if is_time(given) => Some(vec![MICROSECONDS]),
        [given] => Some(vec![interval_type(given)?]),
        _ => None,
    }
}

/// Intervals unchanged, and durations as days and hours.
fn of_days(array: &ArrayRef) -> Result<IntervalMonthDayNanoArray> {
    match array.data_type() {
        DataType::Duration(_) => {
            let durations: &DurationMicrosecondArray =
                array.as_primitive::<DurationMicrosecondType>();
            Ok(durations.try_unary::<_, IntervalMonthDayNanoType, _>(days_and_hours)?)
        }
        _ => Ok(array.as_primitive::<IntervalMonthDayNanoType>().clone()),
    }
}

/// So many microseconds as days and hours.
pub(super) fn days_and_hours(micros: i64) -> Result<IntervalMonthDayNano, ArrowError> {
    let days = i32::try_from(micros / DAY_US).map_err(|_| out_of_range())?;
    Ok(IntervalMonthDayNano::new(0, days, micros % DAY_US * 1000))
}

fn out_of_range() -> ArrowError {
    let fault = ArgumentFault::TimeOutOfRange { what: "interval" };
    ArrowError::ExternalError(Box::new(fault))
}

/// An interval whose parts may exceed those of the type.
#[derive(Debug, Clone, Copy)]
struct Parts {
    months: i64,
    days: i64,
    nanos: i64,
}

impl Parts {
    fn of(interval: IntervalMonthDayNano) -> Self {
        Self {
            months: interval.months.into(),
            days: interval.days.into(),
            nanos: interval.nanoseconds,
        }
    }

    fn interval(self) -> Result<IntervalMonthDayNano, ArrowError> {
        let part = |part: i64| i32::try_from(part).map_err(|_| out_of_range());
        Ok(IntervalMonthDayNano::new(part(self.months)?, part(self.days)?, self.nanos))
    }

    fn hours_to_days(&mut self) {
        self.days += self.nanos / DAY_NS;
        self.nanos %= DAY_NS;
    }

    fn days_to_months(&mut self) {
        self.months += self.days / DAYS_PER_MONTH;
        self.days %= DAYS_PER_MONTH;
    }

    /// Gives days and hours the same sign.
    fn align_hours(&mut self) {
        if self.days > 0 && self.nanos < 0 {
            self.nanos += DAY_NS;
            self.days -= 1;
        } else if self.days < 0 && self.nanos > 0 {
            self.nanos -= DAY_NS;
            self.days += 1;
        }
    }
}

fn justified(args: &[ArrayRef], carry: fn(&mut Parts)) -> Result<ArrayRef> {
    let [intervals] = take_function_args("justify", args)?;
    let justified =
        of_days(intervals)?.try_unary::<_, IntervalMonthDayNanoType, _>(|interval| {
            let mut parts = Parts::of(interval);
            carry(&mut parts);
            parts.interval()
        })?;
    Ok(Arc::new(justified))
}

fn hours_carried(parts: &mut Parts) {
    parts.hours_to_days();
    parts.align_hours();
}

fn days_carried(parts: &mut Parts) {
    parts.days_to_months();
    if parts.months > 0 && parts.days < 0 {
        parts.days += DAYS_PER_MONTH;
        parts.months -= 1;
    } else if parts.months < 0 && parts.days > 0 {
        parts.days -= DAYS_PER_MONTH;
        parts.months += 1;
    }
}

fn all_carried(parts: &mut Parts) {
    parts.hours_to_days();
    parts.days_to_months();
    if parts.months > 0 && (parts.days < 0 || (parts.days == 0 && parts.nanos < 0)) {
        parts.days += DAYS_PER_MONTH;
        parts.months -= 1;
    } else if parts.months < 0 && (parts.days > 0 || (parts.days == 0 && parts.nanos > 0)) {
        parts.days -= DAYS_PER_MONTH;
        parts.months += 1;
    }
    parts.align_hours();
}

fn compute_age(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [later, earlier] = take_function_args("age", args)?;
    let (later, earlier) = (
        later.as_primitive::<TimestampMicrosecondType>(),
        earlier.as_primitive::<TimestampMicrosecondType>(),
    );
    let ages =
        try_binary::<_, _, _, IntervalMonthDayNanoType>(later, earlier, |later, earlier| {
            if Infinite::of_micros(later).is_some() || Infinite::of_micros(earlier).is_some() {
                let fault = ArgumentFault::TimeOutOfRange { what: "timestamp" };
                return Err(ArrowError::ExternalError(Box::new(fault)));
            }
            // With the other sign it is the same.
            match later >= earlier {
                true => age_of(later, earlier).interval(),
                false => {
                    let Parts { months, days, nanos } = age_of(earlier, later);
                    Parts { months: -months, days: -days, nanos: -nanos }.interval()
                }
            }
        })?;
    Ok(Arc::new(ages))
}

/// The calendar difference of two timestamps; borrowed months have the length of the earlier one's.
fn age_of(later: i64, earlier: i64) -> Parts {
    let day_and_time = |moment: i64| (moment.div_euclid(DAY_US), moment.rem_euclid(DAY_US));
    let ((later_day, later_time), (earlier_day, earlier_time)) =
        (day_and_time(later), day_and_time(earlier));
    let (later, earlier) = (date_of(later_day), date_of(earlier_day));
    let mut micros = later_time - earlier_time;
    let mut days = later.2 - earlier.2;
    let mut months = (later.0 - earlier.0) * 12 + later.1 - earlier.1;
    if micros < 0 {
        micros += DAY_US;
        days -= 1;
    }
    while days < 0 {
        days += days_in_month(earlier.0, earlier.1);
        months -= 1;
    }
    Parts { months, days, nanos: micros * 1000 }
}

/// The factor that an interval is scaled by.
#[derive(Debug, Clone, Copy)]
enum Factor {
    Times(f64),
    By(f64),
}

impl Factor {
    fn of(self, part: f64) -> f64 {
        match self {
            Self::Times(factor) => part * factor,
            Self::By(divisor) => part / divisor,
        }
    }
}

fn scaled_by(
    args: &[ArrayRef],
    factor: impl Fn(f64) -> Result<Factor, ArrowError>,
) -> Result<ArrayRef> {
    let [intervals, numbers] = take_function_args("interval", args)?;
    let intervals = of_days(intervals)?;
    let numbers = numbers.as_primitive::<Float64Type>();
    let scaled = try_binary::<_, _, _, IntervalMonthDayNanoType>(
        &intervals,
        numbers,
        |interval, number| scaled(interval, factor(number)?),
    )?;
    Ok(Arc::new(scaled))
}

/// `interval` divided by a number that is not zero.
///
/// # Errors
/// If a part exceeds those of the type.
pub(super) fn divided(
    interval: IntervalMonthDayNano,
    by: f64,
) -> Result<IntervalMonthDayNano, ArrowError> {
    scaled(interval, Factor::By(by))
}

/// A fraction of a month is carried to days and one of a day to hours, in microseconds.
fn scaled(interval: IntervalMonthDayNano, by: Factor) -> Result<IntervalMonthDayNano, ArrowError> {
    let to_micro = |seconds: f64| (seconds * 1e6).round_ties_even() / 1e6;
    let day_seconds = 86_400.0;
    let (months, days) = (f64::from(interval.months), f64::from(interval.days));
    let whole_months = by.of(months).trunc();
    let whole_days = by.of(days).trunc();
    let month_rest = (by.of(months) - whole_months) * 30.0;
    let month_rest = to_micro(month_rest);
    let mut seconds =
        to_micro((by.of(days) - whole_days + month_rest - month_rest.trunc()) * day_seconds);
    let mut all_days = whole_days + month_rest.trunc();
    // Rounding may have produced a whole day.
    if seconds.abs() >= day_seconds {
        all_days += (seconds / day_seconds).trunc();
        seconds -= (seconds / day_seconds).trunc() * day_seconds;
    }
    let micros = by.of(interval.nanoseconds as f64 / 1e3) + seconds * 1e6;
    let micros = micros.round_ties_even();
    let is_within = |part: f64, bound: f64| part.is_finite() && part.abs() <= bound;
    if !is_within(whole_months, i32::MAX.into())
        || !is_within(all_days, i32::MAX.into())
        || !is_within(micros, 9.2e15)
    {
        return Err(out_of_range());
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked before")]
    let interval =
        IntervalMonthDayNano::new(whole_months as i32, all_days as i32, micros as i64 * 1000);
    Ok(interval)
}

/// Seconds within the minute with `scale` decimals.
fn part_of_minute(args: &[ArrayRef], scale: i8) -> Result<ArrayRef> {
    const MINUTE_US: i64 = 60_000_000;
    let [times] = take_function_args("seconds_of", args)?;
    let micros = match times.data_type() {
        DataType::Interval(_) | DataType::Duration(_) => {
            let of_days = of_days(times)?;
            let parts: Decimal128Array =
                unary(&of_days, |interval| i128::from(interval.nanoseconds / 1000 % MINUTE_US));
            parts
        }
        _ => {
            // Those of infinite times are NULL.
            let micros = cast(&without(times, &infinite_rows(times))?, &DataType::Int64)?;
            let micros = micros.as_primitive::<arrow::datatypes::Int64Type>();
            unary::<_, _, Decimal128Type>(micros, |micros| i128::from(micros.rem_euclid(MINUTE_US)))
        }
    };
    let exact = micros.with_precision_and_scale(8, 6)?;
    if scale == 6 {
        return Ok(Arc::new(exact));
    }
    // The same digits with the point further right.
    Ok(Arc::new(exact.with_precision_and_scale(8, 3)?))
}
