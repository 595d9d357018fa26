//! `date_trunc` with PostgreSQL's units and types: of a date it is a timestamp with time zone, of a time of day an
//! interval. DataFusion's goes through nanoseconds, which end in 2262, and has neither intervals nor periods of several
//! years.
//!
//! Source: PostgreSQL's `timestamp_trunc` and `interval_trunc`, and its names of units.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::calendar::{date_of, days_of};
use super::infinite::of_finite;
use super::row_function::ArgumentFault;

const NAME: &str = "date_trunc";
const DAY_US: i64 = 86_400_000_000;

/// The function; what DataFusion knows of the order of its results holds.
pub fn date_trunc() -> Arc<ScalarUDF> {
    let inner = datafusion_functions::datetime::date_trunc();
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(DateTrunc { inner, signature }))
}

#[derive(Debug, PartialEq)]
struct DateTrunc {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl Eq for DateTrunc {}

impl Hash for DateTrunc {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

/// What times are truncated to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// So many microseconds, a day at most.
    Micros(i64),
    Week,
    /// So many months of a year.
    Months(i64),
    Decade,
    /// So many years, the last of which is a multiple of them.
    Years(i64),
}

impl Unit {
    fn of(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Self::Micros(1),
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Self::Micros(1_000),
            "second" | "seconds" | "s" | "sec" | "secs" => Self::Micros(1_000_000),
            "minute" | "minutes" | "m" | "min" | "mins" => Self::Micros(60_000_000),
            "hour" | "hours" | "h" | "hr" | "hrs" => Self::Micros(3_600_000_000),
            "day" | "days" | "d" => Self::Micros(DAY_US),
            "week" | "weeks" | "w" => Self::Week,
            "month" | "months" | "mon" | "mons" => Self::Months(1),
            "quarter" | "qtr" => Self::Months(3),
            "year" | "years" | "y" | "yr" | "yrs" => Self::Months(12),
            "decade" | "decades" | "dec" | "decs" => Self::Decade,
            "century" | "centuries" | "c" | "cent" => Self::Years(100),
            "millennium" | "millennia" | "mil" | "mils" => Self::Years(1000),
            _ => return None,
        })
    }

    /// The start of the period that `micros` since 1970 are in; None: it is out of range.
    fn start(self, micros: i64) -> Option<i64> {
        let days = micros.div_euclid(DAY_US);
        let (year, month, _) = date_of(days);
        let days = match self {
            Self::Micros(unit) => return micros.checked_sub(micros.rem_euclid(unit)),
            // 1970-01-01 was a Thursday; weeks begin on Mondays.
            Self::Week => days - (days + 3).rem_euclid(7),
            Self::Months(count) => days_of(year, (month - 1) / count * count + 1, 1),
            unit => days_of(unit.first_year(year), 1, 1),
        };
        days.checked_mul(DAY_US)
    }

    /// The first year of the period that `year` is in. Year 0 is 1 BC.
    fn first_year(self, year: i64) -> i64 {
        match self {
            Self::Decade if year > 0 => year / 10 * 10,
            Self::Decade => -((8 - (year - 1)) / 10) * 10,
            Self::Years(count) if year > 0 => (year + count - 1) / count * count - count + 1,
            Self::Years(count) => -((count - 1 - (year - 1)) / count) * count + 1,
            Self::Micros(_) | Self::Week | Self::Months(_) => year,
        }
    }
}

/// Whether a moment that is truncated to the unit in a time zone keeps its distance from UTC: units of less than a day
/// do, so that an hour that comes twice stays what it is.
pub fn keeps_offset(unit: &str) -> bool {
    matches!(Unit::of(unit), Some(Unit::Micros(unit)) if unit < DAY_US)
}

/// An interval with all that is finer than `unit` taken away; None: it has no such unit.
fn cut(interval: IntervalMonthDayNano, unit: Unit) -> Option<IntervalMonthDayNano> {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let whole = |count: i64| {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        IntervalMonthDayNano { months: months / count * count, days: 0, nanoseconds: 0 }
    };
    Some(match unit {
        // Its hours may be more than a day's.
        Unit::Micros(DAY_US) => IntervalMonthDayNano { nanoseconds: 0, ..interval },
        Unit::Micros(unit) => {
            let unit = unit * 1000;
            IntervalMonthDayNano { months, days, nanoseconds: nanoseconds / unit * unit }
        }
        Unit::Week => return None,
        Unit::Months(count) => whole(count),
        Unit::Decade => whole(120),
        Unit::Years(count) => whole(12 * count),
    })
}

/// The type to convert a time to.
fn time_type(given: &DataType) -> Option<DataType> {
    Some(match given {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Date32 => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))),
        DataType::Null | DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        _ => return None,
    })
}

/// The type of the result for times of `time`.
fn result_type(time: DataType) -> DataType {
    match time {
        DataType::Time64(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        other => other,
    }
}

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        NAME
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.get(1).and_then(time_type) {
            Some(own) => Ok(result_type(own)),
            None => plan_err!("{NAME} does not take values of types {arg_types:?}"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types = args.arg_fields.iter().map(|field| field.data_type().clone());
        let own = self.return_type(&types.collect::<Vec<_>>())?;
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(NAME, own, is_nullable)))
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if let [unit, time] = given
            && (unit.is_string() || unit.is_null())
            && let Some(time) = time_type(time)
        {
            return Ok(vec![DataType::Utf8, time]);
        }
        let types: Vec<String> = given.iter().map(DataType::to_string).collect();
        plan_err!("Invalid function {NAME}({})", types.join(", "))
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(unit), times] = args.args.as_slice() else {
            return plan_err!("{NAME} takes the name of a unit and a time");
        };
        let Some(name) = unit.try_as_str().flatten() else {
            let own = result_type(times.data_type());
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(&own)?));
        };
        let Some(unit) = Unit::of(name) else {
            let reason = format!("unit \"{name}\" not recognized");
            return Err(ArgumentFault::Invalid { reason }.into());
        };
        let is_scalar = matches!(times, ColumnarValue::Scalar(_));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let times = times.to_array(rows)?;
        let result = of_finite(&times, |finite| starts(finite, unit))?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }
}

/// The starts of the periods that `times` are in.
fn starts(times: &ArrayRef, unit: Unit) -> Result<ArrayRef> {
    let out_of_range = || {
        let fault = ArgumentFault::TimeOutOfRange { what: "timestamp" };
        ArrowError::ExternalError(Box::new(fault))
    };
    let of_interval = |interval| {
        cut(interval, unit).ok_or_else(|| {
            let reason = "unit \"week\" not supported for type interval".to_owned();
            ArrowError::ExternalError(Box::new(ArgumentFault::Invalid { reason }))
        })
    };
    if let Some(times) = times.as_primitive_opt::<Time64MicrosecondType>() {
        let of_day = |micros: i64| {
            of_interval(IntervalMonthDayNano { months: 0, days: 0, nanoseconds: micros * 1000 })
        };
        return Ok(Arc::new(times.try_unary::<_, IntervalMonthDayNanoType, _>(of_day)?));
    }
    if let Some(intervals) = times.as_primitive_opt::<IntervalMonthDayNanoType>() {
        let cut: IntervalMonthDayNanoArray = intervals.try_unary(of_interval)?;
        return Ok(Arc::new(cut));
    }
    let moments = times.as_primitive::<TimestampMicrosecondType>();
    let start = |micros| unit.start(micros).ok_or_else(out_of_range);
    let starts = moments.try_unary::<_, TimestampMicrosecondType, _>(start)?;
    Ok(Arc::new(starts.with_data_type(times.data_type().clone())))
}

#[cfg(test)]
mod tests {
    use super::Unit;

    #[test]
    fn first_years_of_periods() {
        let century = Unit::of("centuries").unwrap();
        assert_eq!(
            [1, 100, 101, 2000, 2001].map(|year| century.first_year(year)),
            [1, 1, 101, 1901, 2001]
        );
        // Years before the first: 0 is 1 BC.
        assert_eq!([0, -99, -100].map(|year| century.first_year(year)), [-99, -99, -199]);
        assert_eq!(
            [2000, 2019, 1, 0, -1].map(|year| Unit::Decade.first_year(year)),
            [2000, 2010, 0, 0, -10]
        );
        assert_eq!(Unit::of("fortnight"), None);
    }
}
