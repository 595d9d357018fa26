//! `AT TIME ZONE`: the local time in a zone at an instant, and the instant of a local time in a zone.

use std::sync::Arc;

use cleave_fragment::functions::infinite::of_finite;
use cleave_fragment::functions::{ArgumentFault, row_function};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, StringArray, TimestampMicrosecondArray,
    new_null_array,
};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::temporal_conversions::as_datetime_with_timezone;
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

/// `at_time_zone(time, zone)`.
pub(in crate::dialect) const AT_TIME_ZONE: &str = "at_time_zone";

fn of_zone(zone: Option<Arc<str>>) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone)
}

pub(super) fn at_time_zone() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| {
        let [time, zone] = given else { return None };
        let utc = || Some(Arc::from("UTC"));
        let time = match time {
            DataType::Timestamp(_, None) => of_zone(None),
            // PostgreSQL takes a date, and an untyped literal, for a timestamp with time zone.
            DataType::Timestamp(_, Some(_))
            | DataType::Date32
            | DataType::Utf8
            | DataType::Null => of_zone(utc()),
            _ => return None,
        };
        match zone {
            DataType::Utf8 | DataType::Null => Some(vec![time, DataType::Utf8]),
            DataType::Interval(_) => Some(vec![time, zone.clone()]),
            _ => None,
        }
    };
    let gives = |given: &[DataType]| match given.first() {
        Some(DataType::Timestamp(_, None)) => of_zone(Some(Arc::from("UTC"))),
        _ => of_zone(None),
    };
    row_function(AT_TIME_ZONE, takes, gives, |args| {
        let [times, zones] = take_function_args(AT_TIME_ZONE, args)?;
        let named = match zones.as_primitive_opt::<IntervalMonthDayNanoType>() {
            Some(offsets) => Arc::new(by_offsets(offsets)?),
            None => Arc::clone(zones),
        };
        let zones = named.as_string::<i32>();
        // Rows with the same zone are converted together: mostly there is only one.
        let mut parts: Vec<ArrayRef> = Vec::new();
        let mut start = 0;
        let of = |row: usize| zones.is_valid(row).then(|| zones.value(row));
        for end in 1..=times.len() {
            if end < times.len() && of(end) == of(start) {
                continue;
            }
            let run = times.slice(start, end - start);
            parts.push(of_finite(&run, |run| converted(run, of(start)))?);
            start = end;
        }
        match parts.is_empty() {
            true => converted(times, None),
            false => {
                let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                Ok(concat(&parts)?)
            }
        }
    })
}

/// `moment_beside(time, there, moment)`: the moment of a local time, as far from `moment` as it is from `there`, the
/// local time then.
pub(in crate::dialect) const MOMENT_BESIDE: &str = "moment_beside";

pub(super) fn moment_beside() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Timestamp(..), DataType::Timestamp(..), DataType::Timestamp(..)] => {
            Some(vec![of_zone(None), of_zone(None), of_zone(Some(Arc::from("UTC")))])
        }
        _ => None,
    };
    let gives = |_: &[DataType]| of_zone(Some(Arc::from("UTC")));
    row_function(MOMENT_BESIDE, takes, gives, |args| {
        let [times, there, moments] = take_function_args(MOMENT_BESIDE, args)?;
        let times = times.as_primitive::<TimestampMicrosecondType>().iter();
        let there = there.as_primitive::<TimestampMicrosecondType>().iter();
        let moments = moments.as_primitive::<TimestampMicrosecondType>().iter();
        // Infinite ones are at no distance from each other.
        let beside: TimestampMicrosecondArray = times
            .zip(there)
            .zip(moments)
            .map(|((time, there), moment)| moment?.checked_sub(there?.checked_sub(time?)?))
            .collect();
        Ok(Arc::new(beside.with_timezone("UTC")))
    })
}

fn converted(times: &ArrayRef, zone: Option<&str>) -> Result<ArrayRef> {
    let is_moment = matches!(times.data_type(), DataType::Timestamp(_, Some(_)));
    let result = if is_moment { of_zone(None) } else { of_zone(Some(Arc::from("UTC"))) };
    let Some(zone) = zone else {
        return Ok(new_null_array(&result, times.len()));
    };
    let zone: Tz = known_zone(zone)?.parse()?;
    let times = times.as_primitive::<TimestampMicrosecondType>();
    let converted: TimestampMicrosecondArray = match is_moment {
        true => times.unary_opt(|moment| moment.checked_add(offset_at(moment, zone)?)),
        false => times.unary_opt(|local| moment_of(local, zone)),
    };
    Ok(cast(&converted, &result)?)
}

/// The microseconds by which the local time of `zone` is ahead of UTC at `moment`; `None` for years without a calendar.
fn offset_at(moment: i64, zone: Tz) -> Option<i64> {
    let there = as_datetime_with_timezone::<TimestampMicrosecondType>(moment, zone)?;
    there.naive_local().and_utc().timestamp_micros().checked_sub(moment)
}

/// The moment of a local time of `zone`. Where clocks are put forward, times that do not exist have the offset from
/// before; where they are put back, times that exist twice have the offset from after.
///
/// Source: PostgreSQL's `DetermineTimeZoneOffset`.
fn moment_of(local: i64, zone: Tz) -> Option<i64> {
    const DAY: i64 = 86_400_000_000;
    let before = offset_at(local.checked_sub(DAY)?, zone)?;
    let after = offset_at(local.checked_add(DAY)?, zone)?;
    let (earlier, later) = (local.checked_sub(before)?, local.checked_sub(after)?);
    let holds = |moment: i64, offset: i64| offset_at(moment, zone) == Some(offset);
    let is_later = before == after || holds(later, after);
    Some(if is_later { later } else { earlier })
}

/// Distances from UTC as names of zones, whose sign is the other one.
fn by_offsets(offsets: &IntervalMonthDayNanoArray) -> Result<StringArray, ArgumentFault> {
    let name = |offset: IntervalMonthDayNano| {
        if offset.months != 0 || offset.days != 0 {
            let reason = "interval time zone must not include months or days".to_owned();
            return Err(ArgumentFault::Invalid { reason });
        }
        let minutes = offset.nanoseconds / 60_000_000_000;
        let sign = if minutes < 0 { '+' } else { '-' };
        Ok(format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60))
    };
    offsets.iter().map(|offset| offset.map(name).transpose()).collect()
}

/// The hours from UTC of an abbreviation, which come before zones of that name: those have had other hours.
fn abbreviated(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_uppercase().as_str() {
        "HST" => "-10:00",
        "AKST" => "-09:00",
        "AKDT" | "PST" => "-08:00",
        "PDT" | "MST" => "-07:00",
        "MDT" | "CST" => "-06:00",
        "CDT" | "EST" => "-05:00",
        "EDT" | "AST" => "-04:00",
        "WET" | "GMT" | "UT" | "Z" | "ZULU" => "+00:00",
        "CET" | "MET" | "WEST" | "BST" => "+01:00",
        "CEST" | "MEST" | "EET" | "SAST" => "+02:00",
        "EEST" | "MSK" => "+03:00",
        "PKT" => "+05:00",
        "PHT" | "SGT" | "AWST" => "+08:00",
        "JST" | "KST" => "+09:00",
        "AEST" => "+10:00",
        "AEDT" => "+11:00",
        "NZST" => "+12:00",
        "NZDT" => "+13:00",
        _ => return None,
    })
}

/// A zone by its name in any case, or by hours, which count to the west here as in PostgreSQL.
fn known_zone(zone: &str) -> Result<Arc<str>, ArgumentFault> {
    if let Some(hours) = abbreviated(zone.trim()) {
        return Ok(Arc::from(hours));
    }
    let turned = match zone.trim() {
        west if west.starts_with('+') => west.replacen('+', "-", 1),
        east if east.starts_with('-') => east.replacen('-', "+", 1),
        name => name.to_owned(),
    };
    let titled = || {
        let mut before = ' ';
        let letter = |letter: char| {
            let follows = before.is_ascii_alphabetic();
            before = letter;
            if follows { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() }
        };
        turned.chars().map(letter).collect::<String>()
    };
    let spellings = [turned.clone(), turned.to_ascii_uppercase(), titled()];
    let known = spellings.into_iter().find(|name| name.parse::<Tz>().is_ok());
    known.map(Arc::from).ok_or_else(|| ArgumentFault::Invalid {
        reason: format!("time zone \"{zone}\" not recognized"),
    })
}
