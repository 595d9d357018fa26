//! Years, and periods of several years, as PostgreSQL counts them: the year before 1 is -1, and so is that century.
//!
//! Source: PostgreSQL's `timestamp_part_common` and `interval_part_common`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array};
use arrow::compute::DatePart;
use arrow::datatypes::{
    DataType, Date32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarUDF};

use super::infinite::{infinite_rows, set, without};
use super::row_function::row_function;
use super::time_arithmetic::{part_as_double, time_or_interval};

const JULIAN_OF_1970: f64 = 2_440_588.0;
const DAY_US: f64 = 86_400_000_000.0;

/// The year of a time or an interval as a double, which may be infinite.
pub fn year_of() -> Arc<ScalarUDF> {
    row_function(
        "year_of",
        time_or_interval,
        |_| DataType::Float64,
        |args| years(args, DatePart::Year),
    )
}

/// The same for the ISO year.
pub fn isoyear_of() -> Arc<ScalarUDF> {
    row_function(
        "isoyear_of",
        time_or_interval,
        |_| DataType::Float64,
        |args| years(args, DatePart::YearISO),
    )
}

/// The number of the decade (10), century (100) or millennium (1000) that a time is in, as a double; of an interval,
/// how many it has.
pub fn period_of_years() -> Arc<ScalarUDF> {
    row_function(
        "period_of_years",
        |given| match given {
            [time, count] if count.is_integer() => {
                let mut types = time_or_interval(std::slice::from_ref(time))?;
                types.push(DataType::Int64);
                Some(types)
            }
            _ => None,
        },
        |_| DataType::Float64,
        |args| {
            let [times, counts] = take_function_args("period_of_years", args)?;
            let of_interval = is_interval(times);
            let years = part_as_double(times, DatePart::Year)?;
            let counts = counts.as_primitive::<Int64Type>();
            let numbers =
                years.as_primitive::<Float64Type>().iter().enumerate().map(|(row, year)| {
                    let count = counts.is_valid(row).then(|| counts.value(row) as f64)?;
                    year.map(
                        |year| {
                            if of_interval { (year / count).trunc() } else { period(year, count) }
                        },
                    )
                });
            Ok(Arc::new(numbers.collect::<Float64Array>()))
        },
    )
}

/// The day of a time, counted from 4714-11-24 BC, with its part that is over; infinite for an infinite time.
pub fn julian_of() -> Arc<ScalarUDF> {
    row_function(
        "julian_of",
        |given| match given {
            [DataType::Interval(_) | DataType::Duration(_)] => None,
            _ => time_or_interval(given),
        },
        |_| DataType::Float64,
        |args| {
            let [times] = take_function_args("julian_of", args)?;
            let infinite = infinite_rows(times);
            let finite = without(times, &infinite)?;
            let days: Float64Array = match finite.as_primitive_opt::<Date32Type>() {
                Some(days) => days.unary(|day| f64::from(day) + JULIAN_OF_1970),
                None => finite
                    .as_primitive::<TimestampMicrosecondType>()
                    .unary(|micros| micros as f64 / DAY_US + JULIAN_OF_1970),
            };
            let days: ArrayRef = Arc::new(days);
            Ok(set::<Float64Type>(&days, &infinite, |one| Some(one.double())))
        },
    )
}

/// The number of the period of `count` years that has the year `year`, of which 0 is 1 BC. Decades begin with years
/// that they divide, and there is one of the number 0; centuries end with them.
fn period(year: f64, count: f64) -> f64 {
    match count {
        10.0 => (year / count).floor(),
        _ if year > 0.0 => (year / count).ceil(),
        _ => ((year - 1.0) / count).floor(),
    }
}

fn years(args: &[ArrayRef], part: DatePart) -> Result<ArrayRef> {
    let [times] = take_function_args("year", args)?;
    let years = part_as_double(times, part)?;
    if is_interval(times) {
        return Ok(years);
    }
    let years = years.as_primitive::<Float64Type>();
    Ok(Arc::new(years.unary::<_, Float64Type>(|year| if year <= 0.0 { year - 1.0 } else { year })))
}

fn is_interval(times: &ArrayRef) -> bool {
    matches!(times.data_type(), DataType::Interval(_) | DataType::Duration(_))
}

/// Years of times, of which 0 is 1 BC, with -1 in its place.
pub(super) fn before_christ(years: ColumnarValue) -> Result<ColumnarValue> {
    Ok(match years {
        ColumnarValue::Scalar(ScalarValue::Int32(Some(year))) if year <= 0 => {
            ColumnarValue::Scalar(ScalarValue::Int32(Some(year - 1)))
        }
        ColumnarValue::Array(years) => match years.as_primitive_opt::<Int32Type>() {
            Some(all) if all.iter().flatten().any(|year| year <= 0) => {
                let moved: Int32Array =
                    all.unary(|year| if year <= 0 { year.wrapping_sub(1) } else { year });
                ColumnarValue::Array(Arc::new(moved))
            }
            _ => ColumnarValue::Array(years),
        },
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::period;

    #[test]
    fn periods_before_christ_are_those_of_postgresql() {
        // 44 BC, 1 BC, 10 BC, 11 BC, 100 BC, 101 BC.
        let years = [-43.0, 0.0, -9.0, -10.0, -99.0, -100.0];
        assert_eq!(years.map(|year| period(year, 10.0)), [-5.0, 0.0, -1.0, -1.0, -10.0, -10.0]);
        assert_eq!(years.map(|year| period(year, 100.0)), [-1.0, -1.0, -1.0, -1.0, -1.0, -2.0]);
        assert_eq!([1.0, 100.0, 101.0].map(|year| period(year, 100.0)), [1.0, 1.0, 2.0]);
    }
}
