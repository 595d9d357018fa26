//! Sums, differences and casts of dates and timestamps that support [infinite](super::infinite) ones.
//!
//! [`time_plus`] and [`time_minus`] take an interval, or a time of day; [`date_plus`] and [`date_minus`] take days.
//! [`moments_between`] and [`days_between`] are differences. [`cast_to_time`] has a function for each type to cast to.
//! [`knowing_infinite`] wraps DataFusion's `date_part`; [`date_bin`] is ours, in microseconds. [`frame_place`] is the
//! position of a time in the frames of windows, [`period_end`] the end of a period. [`time_of_interval`] and
//! [`interval_of_time`] are casts.
//!
//! Source: PostgreSQL's `timestamp_pl_interval`, `timestamp_mi`, `date_pli`, `date_mi` and `timestamp_part_common`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, TimestampMicrosecondBuilder,
};
use arrow::compute::kernels::numeric::{add, sub};
use arrow::compute::{DatePart, cast, date_part, try_binary};
use arrow::datatypes::{
    DataType, Date32Type, FieldRef, Float64Type, Int32Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue, not_impl_err};
use datafusion_expr::preimage::PreimageResult;
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use super::infinite::{Infinite, infinite_rows, of_finite, set, time_cast, with, without};
use super::intervals::{INTERVAL, days_and_hours};
use super::row_function::{ArgumentFault, Compute, row_function};
use super::years::before_christ;

const MOMENT: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const TIME_OF_DAY: DataType = DataType::Time64(TimeUnit::Microsecond);
const DAY_US: i64 = 86_400_000_000;
/// The year 243,000, in days since 1970: DataFusion can add to times up to 262,142.
const PLACE_DAYS: i64 = 88_000_000;
/// PostgreSQL's range of dates, from 4714-11-24 BC to 5874897-12-31, as days since 1970.
const DAYS: std::ops::RangeInclusive<i64> = -2_440_588..=2_145_031_948;

fn zoned() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
}

/// A timestamp plus an interval.
pub fn time_plus() -> Arc<ScalarUDF> {
    row_function("time_plus", moment_and_interval, first, |args| moved(args, true))
}

/// A timestamp minus an interval.
pub fn time_minus() -> Arc<ScalarUDF> {
    row_function("time_minus", moment_and_interval, first, |args| moved(args, false))
}

/// A date plus days.
pub fn date_plus() -> Arc<ScalarUDF> {
    row_function("date_plus", date_and_days, first, |args| moved_by_days(args, 1))
}

/// A date minus days.
pub fn date_minus() -> Arc<ScalarUDF> {
    row_function("date_minus", date_and_days, first, |args| moved_by_days(args, -1))
}

/// The difference of two timestamps of one type, in days and hours.
pub fn moments_between() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Timestamp(_, one), DataType::Timestamp(_, other)] => {
            let own =
                |zone: &Option<Arc<str>>| DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            Some(vec![own(one), own(other)])
        }
        _ => None,
    };
    row_function(
        "moments_between",
        takes,
        |_| INTERVAL,
        |args| {
            let [later, earlier] = take_function_args("moments_between", args)?;
            let between = try_binary::<_, _, _, IntervalMonthDayNanoType>(
                later.as_primitive::<TimestampMicrosecondType>(),
                earlier.as_primitive::<TimestampMicrosecondType>(),
                |later, earlier| {
                    let is_infinite = |micros| Infinite::of_micros(micros).is_some();
                    if is_infinite(later) || is_infinite(earlier) {
                        return Err(fault(ArgumentFault::InfiniteTimes { what: "timestamps" }));
                    }
                    let micros = later.checked_sub(earlier);
                    days_and_hours(micros.ok_or_else(|| out_of_range("interval"))?)
                },
            )?;
            Ok(Arc::new(between))
        },
    )
}

/// The days between two dates.
pub fn days_between() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Date32, DataType::Date32] => Some(given.to_vec()),
        _ => None,
    };
    row_function(
        "days_between",
        takes,
        |_| DataType::Int32,
        |args| {
            let [later, earlier] = take_function_args("days_between", args)?;
            let between: Int32Array = try_binary(
                later.as_primitive::<Date32Type>(),
                earlier.as_primitive::<Date32Type>(),
                |later: i32, earlier: i32| {
                    let is_infinite = |days| Infinite::of_days(days).is_some();
                    if is_infinite(later) || is_infinite(earlier) {
                        return Err(fault(ArgumentFault::InfiniteTimes { what: "dates" }));
                    }
                    later.checked_sub(earlier).ok_or_else(|| out_of_range("date"))
                },
            )?;
            Ok(Arc::new(between))
        },
    )
}

/// Whether a date, a timestamp or an interval is finite.
pub fn isfinite() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Date32 | DataType::Interval(_) | DataType::Duration(_)] => Some(given.to_vec()),
        [DataType::Timestamp(_, zone)] => {
            Some(vec![DataType::Timestamp(TimeUnit::Microsecond, zone.clone())])
        }
        _ => None,
    };
    row_function(
        "isfinite",
        takes,
        |_| DataType::Boolean,
        |args| {
            let [times] = take_function_args("isfinite", args)?;
            let mut is_finite = vec![true; times.len()];
            for (row, _) in infinite_rows(times) {
                if let Some(place) = is_finite.get_mut(row) {
                    *place = false;
                }
            }
            Ok(Arc::new(BooleanArray::new(is_finite.into(), times.nulls().cloned())))
        },
    )
}

/// `date_bin(stride, time, origin)`: the start of the bin that a time is in. Without an origin bins are counted from
/// 1970.
pub fn date_bin() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| {
        let [stride, time, origin @ ..] = given else { return None };
        let is_stride = matches!(
            stride,
            DataType::Interval(_) | DataType::Duration(_) | DataType::Utf8 | DataType::Null
        );
        let moment = match time {
            DataType::Timestamp(_, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            DataType::Date32 | DataType::Utf8 | DataType::Null => MOMENT,
            _ => return None,
        };
        let mut types = vec![INTERVAL, moment.clone()];
        types.extend(origin.iter().map(|_| moment.clone()));
        let is_time = |given: &DataType| {
            matches!(
                given,
                DataType::Timestamp(..) | DataType::Date32 | DataType::Utf8 | DataType::Null
            )
        };
        (is_stride && origin.len() < 2 && origin.iter().all(is_time)).then_some(types)
    };
    let gives = |given: &[DataType]| given.get(1).cloned().unwrap_or(MOMENT);
    row_function("date_bin", takes, gives, compute_bin)
}

/// The position of a date or a timestamp in a window whose frames have offsets. DataFusion adds the offsets to it, so
/// infinite ones are placed further away than any offset reaches.
pub fn frame_place() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Date32 | DataType::Timestamp(TimeUnit::Microsecond, _)] => Some(given.to_vec()),
        _ => None,
    };
    row_function("frame_place", takes, first, |args| {
        let [times] = take_function_args("frame_place", args)?;
        let rows = infinite_rows(times);
        let finite = without(times, &rows)?;
        let is_within = match finite.data_type() {
            DataType::Date32 => {
                let days = finite.as_primitive::<Date32Type>();
                days.iter().flatten().all(|days| i64::from(days).abs() < PLACE_DAYS)
            }
            _ => {
                let micros = finite.as_primitive::<TimestampMicrosecondType>();
                let bound = PLACE_DAYS * DAY_US;
                micros.iter().flatten().all(|micros| (-bound..bound).contains(&micros))
            }
        };
        if !is_within {
            return Err(ArgumentFault::TimeOutOfRange { what: "timestamp" }.into());
        }
        let days = |one: Infinite| match one {
            Infinite::Early => -PLACE_DAYS,
            Infinite::Late => PLACE_DAYS,
        };
        Ok(match finite.data_type() {
            DataType::Date32 => {
                set::<Date32Type>(&finite, &rows, |one| i32::try_from(days(one)).ok())
            }
            _ => set::<TimestampMicrosecondType>(&finite, &rows, |one| Some(days(one) * DAY_US)),
        })
    })
}

/// `period_end(start, end)`, whose end may be the length of the period.
pub fn period_end() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Date32, DataType::Interval(_)] => Some(vec![MOMENT, INTERVAL]),
        [DataType::Timestamp(_, zone), DataType::Interval(_)] => {
            let moment = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            Some(vec![moment, INTERVAL])
        }
        [_, _] => Some(given.to_vec()),
        _ => None,
    };
    let gives = |given: &[DataType]| match given {
        [DataType::Date32, DataType::Interval(_)] => MOMENT,
        [start @ DataType::Timestamp(..), DataType::Interval(_)] => start.clone(),
        [_, end] => end.clone(),
        _ => DataType::Null,
    };
    row_function("period_end", takes, gives, |args| match args {
        [start, length] if is_moment(start.data_type()) && *length.data_type() == INTERVAL => {
            moved(args, true)
        }
        [_, end] => Ok(Arc::clone(end)),
        _ => not_impl_err!("period_end of other than two values"),
    })
}

/// The time of day that is left of an interval without its days.
pub fn time_of_interval() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Interval(_)] => Some(vec![INTERVAL]),
        _ => None,
    };
    row_function(
        "time_of_interval",
        takes,
        |_| TIME_OF_DAY,
        |args| {
            let [intervals] = take_function_args("time_of_interval", args)?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            let times = intervals.unary::<_, Time64MicrosecondType>(|interval| {
                (interval.nanoseconds / 1000).rem_euclid(DAY_US)
            });
            Ok(Arc::new(times))
        },
    )
}

/// A time of day as an interval of so many hours.
pub fn interval_of_time() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Time64(_)] => Some(vec![TIME_OF_DAY]),
        _ => None,
    };
    row_function(
        "interval_of_time",
        takes,
        |_| INTERVAL,
        |args| {
            let [times] = take_function_args("interval_of_time", args)?;
            let times = times.as_primitive::<Time64MicrosecondType>();
            let intervals = times.unary::<_, IntervalMonthDayNanoType>(|micros| {
                IntervalMonthDayNano::new(0, 0, micros * 1000)
            });
            Ok(Arc::new(intervals))
        },
    )
}

/// The function that casts to `to`, if that is a date, a timestamp, a time of day, or (from a text) an interval.
pub fn cast_to_time(to: &DataType) -> Option<Arc<ScalarUDF>> {
    casts().into_iter().find(|(own, _)| own == to).map(|(_, function)| function)
}

/// Cast functions, by their target type.
pub(super) fn casts() -> [(DataType, Arc<ScalarUDF>); 5] {
    let of = |name, to: DataType, gives, compute: Compute| {
        (to, row_function(name, time_or_text, gives, compute))
    };
    [
        of("date_of", DataType::Date32, |_| DataType::Date32, |args| one(args, &DataType::Date32)),
        of("moment_of", MOMENT, |_| MOMENT, |args| one(args, &MOMENT)),
        of("zoned_moment_of", zoned(), |_| zoned(), |args| one(args, &zoned())),
        of("time_of_day_of", TIME_OF_DAY, |_| TIME_OF_DAY, |args| one(args, &TIME_OF_DAY)),
        (
            INTERVAL,
            row_function("interval_of_text", text, |_| INTERVAL, |args| one(args, &INTERVAL)),
        ),
    ]
}

/// DataFusion's `date_part` (also `extract`), with support for infinite times.
pub fn part_of_time() -> Arc<ScalarUDF> {
    let inner = datafusion_functions::datetime::date_part();
    Arc::new(ScalarUDF::new_from_impl(KnowsInfinite { inner }))
}

/// Those among DataFusion's `functions` that take a time, with support for infinite ones.
pub fn knowing_infinite(functions: impl Iterator<Item = Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let of = |inner: Arc<ScalarUDF>| {
        (inner.name() == "date_part")
            .then(|| Arc::new(ScalarUDF::new_from_impl(KnowsInfinite { inner })))
    };
    functions.filter_map(of).collect()
}

fn is_moment(own: &DataType) -> bool {
    matches!(own, DataType::Timestamp(TimeUnit::Microsecond, _))
}

fn first(given: &[DataType]) -> DataType {
    given.first().cloned().unwrap_or(DataType::Null)
}

fn time_or_text(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [DataType::Date32 | DataType::Timestamp(..) | DataType::Utf8] => Some(given.to_vec()),
        [DataType::Utf8View | DataType::LargeUtf8] => Some(given.to_vec()),
        _ => None,
    }
}

fn text(given: &[DataType]) -> Option<Vec<DataType>> {
    matches!(given, [own] if own.is_string()).then(|| given.to_vec())
}

pub(super) fn time_or_interval(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [DataType::Utf8 | DataType::Null] => Some(vec![MOMENT]),
        [DataType::Date32 | DataType::Interval(_)] => Some(given.to_vec()),
        [DataType::Duration(_)] => Some(vec![DataType::Duration(TimeUnit::Microsecond)]),
        [DataType::Timestamp(_, zone)] => {
            Some(vec![DataType::Timestamp(TimeUnit::Microsecond, zone.clone())])
        }
        _ => None,
    }
}

/// The part of a time or an interval, which is infinite for an infinite time.
pub(super) fn part_as_double(times: &ArrayRef, part: DatePart) -> Result<ArrayRef> {
    let rows = infinite_rows(times);
    let parts = cast(&date_part(&without(times, &rows)?, part)?, &DataType::Float64)?;
    Ok(set::<Float64Type>(&parts, &rows, |one| Some(one.double())))
}

fn one(args: &[ArrayRef], to: &DataType) -> Result<ArrayRef> {
    let [times] = take_function_args("cast", args)?;
    time_cast(times, to)
}

fn moment_and_interval(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [moment @ DataType::Timestamp(TimeUnit::Microsecond, _), by] => match by {
            DataType::Interval(_) => Some(vec![moment.clone(), INTERVAL]),
            DataType::Time64(_) => Some(vec![moment.clone(), TIME_OF_DAY]),
            DataType::Duration(_) => {
                Some(vec![moment.clone(), DataType::Duration(TimeUnit::Microsecond)])
            }
            _ => None,
        },
        _ => None,
    }
}

fn date_and_days(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [DataType::Date32, days] if days.is_integer() || days.is_null() => {
            Some(vec![DataType::Date32, DataType::Int32])
        }
        _ => None,
    }
}

fn fault(fault: ArgumentFault) -> ArrowError {
    ArrowError::ExternalError(Box::new(fault))
}

fn out_of_range(what: &'static str) -> ArrowError {
    fault(ArgumentFault::TimeOutOfRange { what })
}

fn moved(args: &[ArrayRef], later: bool) -> Result<ArrayRef> {
    let [moments, by] = take_function_args("time_plus", args)?;
    let mut rows = infinite_rows(moments);
    rows.retain(|(row, _)| by.is_valid(*row));
    let finite = without(moments, &infinite_rows(moments))?;
    let by = match by.data_type() {
        DataType::Interval(_) | DataType::Duration(_) => Arc::clone(by),
        _ => cast(&cast(by, &DataType::Int64)?, &DataType::Duration(TimeUnit::Microsecond))?,
    };
    let moved = if later { add(&finite, &by) } else { sub(&finite, &by) };
    let moved = moved.map_err(|_| out_of_range("timestamp"))?;
    Ok(with(moved, &rows))
}

fn compute_bin(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [strides, times, ..] = args else {
        return not_impl_err!("date_bin of one argument");
    };
    let strides = strides.as_primitive::<IntervalMonthDayNanoType>();
    let moments = times.as_primitive::<TimestampMicrosecondType>();
    let origins = args.get(2).map(|origins| origins.as_primitive::<TimestampMicrosecondType>());
    let mut bins = TimestampMicrosecondBuilder::with_capacity(moments.len());
    for row in 0..moments.len() {
        let origin_is_null = origins.is_some_and(|origins| origins.is_null(row));
        if strides.is_null(row) || moments.is_null(row) || origin_is_null {
            bins.append_null();
            continue;
        }
        let origin = origins.map_or(0, |origins| origins.value(row));
        bins.append_value(bin(strides.value(row), moments.value(row), origin)?);
    }
    Ok(Arc::new(bins.finish().with_data_type(times.data_type().clone())))
}

fn bin(stride: IntervalMonthDayNano, moment: i64, origin: i64) -> Result<i64> {
    if Infinite::of_micros(moment).is_some() {
        return Ok(moment);
    }
    let out_of_range = |what| ArgumentFault::TimeOutOfRange { what };
    if Infinite::of_micros(origin).is_some() {
        return Err(out_of_range("origin").into());
    }
    if stride.months != 0 {
        return not_impl_err!(
            "timestamps cannot be binned into intervals containing months or years"
        );
    }
    let micros = i64::from(stride.days)
        .checked_mul(DAY_US)
        .and_then(|days| days.checked_add(stride.nanoseconds / 1000))
        .ok_or_else(|| out_of_range("interval"))?;
    if micros <= 0 {
        return Err(ArgumentFault::Stride.into());
    }
    let since = moment.checked_sub(origin).ok_or_else(|| out_of_range("timestamp"))?;
    Ok(moment.checked_sub(since.rem_euclid(micros)).ok_or_else(|| out_of_range("timestamp"))?)
}

fn moved_by_days(args: &[ArrayRef], sign: i64) -> Result<ArrayRef> {
    let [dates, days] = take_function_args("date_plus", args)?;
    let moved = try_binary::<_, _, _, Date32Type>(
        dates.as_primitive::<Date32Type>(),
        days.as_primitive::<Int32Type>(),
        |date, days| {
            if Infinite::of_days(date).is_some() {
                return Ok(date);
            }
            let moved = i64::from(date) + sign * i64::from(days);
            let moved = Some(moved).filter(|moved| DAYS.contains(moved));
            moved.and_then(|moved| i32::try_from(moved).ok()).ok_or_else(|| out_of_range("date"))
        },
    )?;
    Ok(Arc::new(moved))
}

/// Whether the part is a year, and of a time.
fn is_year(args: &ScalarFunctionArgs) -> bool {
    let [ColumnarValue::Scalar(name), times] = args.args.as_slice() else { return false };
    let name = name.try_as_str().flatten().unwrap_or_default().to_ascii_lowercase();
    let is_named =
        matches!(name.trim_matches(['\'', '"']), "year" | "years" | "y" | "yr" | "yrs" | "isoyear");
    is_named && !matches!(times.data_type(), DataType::Interval(_) | DataType::Duration(_))
}

/// `epoch` of intervals: a year has 365.25 days, other months have 30 each. DataFusion's year has twelve of those.
///
/// Source: PostgreSQL's `interval_part`.
fn seconds_of_interval(args: &ScalarFunctionArgs) -> Result<Option<ColumnarValue>> {
    let [ColumnarValue::Scalar(name), intervals] = args.args.as_slice() else { return Ok(None) };
    let name = name.try_as_str().flatten().unwrap_or_default();
    let is_epoch = name.trim_matches(['\'', '"']).eq_ignore_ascii_case("epoch");
    if !is_epoch || intervals.data_type() != INTERVAL {
        return Ok(None);
    }
    let seconds = |interval: IntervalMonthDayNano| {
        let (years, months) = (interval.months / 12, interval.months % 12);
        let days = i64::from(months) * 30 + i64::from(interval.days);
        // Whole microseconds, so that the sum is rounded once.
        let whole = i128::from(years) * 31_557_600 + i128::from(days) * 86_400;
        (whole * 1_000_000 + i128::from(interval.nanoseconds / 1000)) as f64 / 1e6
    };
    Ok(Some(match intervals {
        ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(interval)) => {
            ColumnarValue::Scalar(ScalarValue::Float64(interval.map(seconds)))
        }
        ColumnarValue::Scalar(_) => return Ok(None),
        ColumnarValue::Array(intervals) => {
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            ColumnarValue::Array(Arc::new(intervals.unary::<_, Float64Type>(seconds)))
        }
    }))
}

/// A function of DataFusion whose second argument is a time.
#[derive(Debug, PartialEq)]
struct KnowsInfinite {
    inner: Arc<ScalarUDF>,
}

impl Eq for KnowsInfinite {}

impl Hash for KnowsInfinite {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl KnowsInfinite {
    /// The part of an infinite time: infinite too, or NULL.
    fn part(&self, args: &ScalarFunctionArgs, parts: ArrayRef) -> Result<ArrayRef> {
        let (Some(name), Some(times)) = (args.args.first(), args.args.get(1)) else {
            return Ok(parts);
        };
        let rows = infinite_rows(&times.to_array(parts.len())?);
        if rows.is_empty() {
            return Ok(parts);
        }
        if *parts.data_type() == DataType::Float64 {
            return Ok(set::<Float64Type>(&parts, &rows, |one| Some(one.double())));
        }
        let ColumnarValue::Scalar(name) = name else { return Ok(parts) };
        let name = name.try_as_str().flatten().unwrap_or_default().to_ascii_lowercase();
        match name.trim_matches(['\'', '"']) {
            "year" | "years" | "y" | "yr" | "yrs" | "isoyear" => {
                let reason = format!("the {name} of an infinite time is no integer");
                Err(ArgumentFault::OutOfRange { reason }.into())
            }
            _ => Ok(parts),
        }
    }
}

impl KnowsInfinite {
    /// The part of a time of day. DataFusion does not know 24:00, the end of the day, which is midnight but for its
    /// hour and its seconds since the day began.
    fn part_of_day(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let row_count = args.number_rows;
        let name = match args.args.first() {
            Some(ColumnarValue::Scalar(name)) => {
                let name = name.try_as_str().flatten().unwrap_or_default().to_ascii_lowercase();
                name.trim_end_matches('s').to_owned()
            }
            _ => String::new(),
        };
        let Some(place) = args.args.get_mut(1) else { return self.inner.invoke_with_args(args) };
        let is_scalar = matches!(place, ColumnarValue::Scalar(_));
        let times = place.to_array(if is_scalar { 1 } else { row_count })?;
        let times = times.as_primitive::<Time64MicrosecondType>();
        if !times.iter().flatten().any(|time| time == DAY_US) {
            return self.inner.invoke_with_args(args);
        }
        let started = times.unary::<_, Time64MicrosecondType>(|time| time % DAY_US);
        *place = ColumnarValue::Array(Arc::new(started));
        args.number_rows = times.len();
        let parts = self.inner.invoke_with_args(args)?.into_array(times.len())?;
        // Of its parts, these alone are not those of midnight.
        let (is_hour, is_epoch) =
            (*parts.data_type() == DataType::Int32 && name == "hour", name == "epoch");
        let is_end = |row: usize| times.is_valid(row) && times.value(row) == DAY_US;
        let parts: ArrayRef = if is_hour {
            let hours = parts.as_primitive::<Int32Type>().iter().enumerate();
            Arc::new(
                hours
                    .map(|(row, hour)| if is_end(row) { Some(24) } else { hour })
                    .collect::<Int32Array>(),
            )
        } else if is_epoch && *parts.data_type() == DataType::Float64 {
            let seconds = parts.as_primitive::<Float64Type>().iter().enumerate();
            let day = (DAY_US / 1_000_000) as f64;
            Arc::new(
                seconds
                    .map(|(row, own)| if is_end(row) { Some(day) } else { own })
                    .collect::<Float64Array>(),
            )
        } else {
            parts
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&parts, 0)?),
            false => ColumnarValue::Array(parts),
        })
    }
}

impl ScalarUDFImpl for KnowsInfinite {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.return_field_from_args(args)?;
        // A part of an infinite time can be NULL though the time is not.
        Ok(Arc::new(field.as_ref().clone().with_nullable(true)))
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn preimage(&self, args: &[Expr], of: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        // DataFusion counts years before Christ otherwise.
        match of.as_literal() {
            Some(ScalarValue::Int32(Some(year))) if *year <= 0 => Ok(PreimageResult::None),
            _ => self.inner.preimage(args, of, info),
        }
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_year = self.name() == "date_part" && is_year(&args);
        let parts = self.parts(args)?;
        if is_year { before_christ(parts) } else { Ok(parts) }
    }
}

impl KnowsInfinite {
    fn parts(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(times) = args.args.get(1) else { return self.inner.invoke_with_args(args) };
        if times.data_type() == TIME_OF_DAY && self.name() == "date_part" {
            return self.part_of_day(args);
        }
        if let Some(seconds) = seconds_of_interval(&args)? {
            return Ok(seconds);
        }
        let is_scalar = match times {
            ColumnarValue::Scalar(value) if Infinite::of_value(value).is_none() => {
                return self.inner.invoke_with_args(args);
            }
            ColumnarValue::Scalar(_) => true,
            ColumnarValue::Array(times) if infinite_rows(times).is_empty() => {
                return self.inner.invoke_with_args(args);
            }
            ColumnarValue::Array(_) => false,
        };
        let rows = if is_scalar { 1 } else { args.number_rows };
        let times = times.to_array(rows)?;
        let result = of_finite(&times, |finite| {
            let mut given = args.clone();
            given.number_rows = rows;
            if let Some(place) = given.args.get_mut(1) {
                *place = ColumnarValue::Array(Arc::clone(finite));
            }
            self.inner.invoke_with_args(given)?.into_array(rows)
        })?;
        let result = match self.name() {
            "date_part" => self.part(&args, result)?,
            _ => result,
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }
}
