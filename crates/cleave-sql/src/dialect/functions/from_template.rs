//! `to_date` and `to_timestamp`: read times by a template.
//!
//! Source: PostgreSQL's documentation, "Data Type Formatting Functions", and its `DCH_from_char` and `do_to_timestamp`.

use std::sync::Arc;

use cleave_catalog::value::calendar::{days_in_month, days_of};
use cleave_fragment::functions::infinite::Infinite;
use cleave_fragment::functions::{ArgumentFault, row_function};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Float64Type, TimeUnit};
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use super::template::{Field, MONTHS, Part, parts};

const DAY_US: i64 = 86_400_000_000;
/// PostgreSQL's bounds: 4713 BC to 294276.
const MICROS: std::ops::Range<i64> = -210_866_803_200_000_000..9_223_371_331_200_000_000;

pub(super) fn to_date() -> Arc<ScalarUDF> {
    row_function(
        "to_date",
        text_and_template,
        |_| DataType::Date32,
        |args| {
            let [texts, templates] = take_function_args("to_date", args)?;
            let days = read(texts, templates, |read| {
                let (days, _) = read.moment()?;
                i32::try_from(days).map_err(|_| ArgumentFault::TimeOutOfRange { what: "date" })
            });
            Ok(Arc::new(Date32Array::from(days?)))
        },
    )
}

pub(super) fn to_timestamp() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [seconds] if seconds.is_numeric() || matches!(seconds, DataType::Null | DataType::Utf8) => {
            Some(vec![DataType::Float64])
        }
        given => text_and_template(given),
    };
    let gives = |_: &[DataType]| DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    row_function("to_timestamp", takes, gives, |args| {
        let micros = match args {
            [seconds] => {
                let seconds = seconds.as_primitive::<Float64Type>();
                seconds.iter().map(|seconds| seconds.map(micros_of).transpose()).collect()
            }
            args => {
                let [texts, templates] = take_function_args("to_timestamp", args)?;
                read(texts, templates, |read| {
                    let (days, micros) = read.moment()?;
                    let micros = days.checked_mul(DAY_US).and_then(|day| day.checked_add(micros));
                    micros.filter(|micros| MICROS.contains(micros)).ok_or(OUT_OF_RANGE)
                })
            }
        };
        Ok(Arc::new(TimestampMicrosecondArray::from(micros?).with_timezone("UTC")))
    })
}

const OUT_OF_RANGE: ArgumentFault = ArgumentFault::TimeOutOfRange { what: "timestamp" };

fn text_and_template(given: &[DataType]) -> Option<Vec<DataType>> {
    let is_text = |given: &DataType| matches!(given, DataType::Utf8 | DataType::Null);
    (given.len() == 2 && given.iter().all(is_text)).then(|| vec![DataType::Utf8; 2])
}

#[expect(clippy::cast_possible_truncation, reason = "checked before")]
fn micros_of(seconds: f64) -> Result<i64, ArgumentFault> {
    if seconds.is_nan() {
        return Err(ArgumentFault::NotANumber);
    }
    if seconds.is_infinite() {
        let infinite = if seconds > 0.0 { Infinite::Late } else { Infinite::Early };
        return Ok(infinite.micros());
    }
    let micros = (seconds * 1e6).round_ties_even();
    let is_within = micros >= MICROS.start as f64 && micros < MICROS.end as f64;
    if is_within { Ok(micros as i64) } else { Err(OUT_OF_RANGE) }
}

fn read<T>(
    texts: &ArrayRef,
    templates: &ArrayRef,
    of: impl Fn(&Read) -> Result<T, ArgumentFault>,
) -> Result<Vec<Option<T>>, ArgumentFault> {
    let (texts, templates): (&StringArray, &StringArray) =
        (texts.as_string::<i32>(), templates.as_string::<i32>());
    let mut known: Option<(&str, Vec<Part>)> = None;
    let mut values = Vec::with_capacity(texts.len());
    for row in 0..texts.len() {
        if texts.is_null(row) || templates.is_null(row) {
            values.push(None);
            continue;
        }
        let template = templates.value(row);
        if known.as_ref().is_none_or(|(known, _)| *known != template) {
            known = Some((template, parts(template)));
        }
        let Some((_, parts)) = &known else { continue };
        values.push(Some(of(&Read::new(texts.value(row), parts)?)?));
    }
    Ok(values)
}

/// The fields read so far.
#[derive(Debug, Default)]
struct Read {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    julian: Option<i64>,
    hour: i64,
    has_hour12: bool,
    is_afternoon: Option<bool>,
    minute: i64,
    second: i64,
    micros: i64,
    second_of_day: Option<i64>,
    is_before_christ: bool,
    /// East of UTC.
    zone_minutes: i64,
    is_zone_west: bool,
}

impl Read {
    fn new(text: &str, parts: &[Part]) -> Result<Self, ArgumentFault> {
        let mut read = Self::default();
        let mut rest = text;
        for (place, part) in parts.iter().enumerate() {
            if rest.trim_start().is_empty() {
                break;
            }
            match part {
                Part::Field { field, is_bare, ordinal, .. } => {
                    rest = rest.trim_start();
                    let next = parts.get(place + 1);
                    let is_digits_next =
                        matches!(next, Some(Part::Field { field, .. }) if is_number(*field));
                    let is_exact = is_digits_next && !is_bare;
                    rest = read.take(*field, rest, is_exact)?;
                    if ordinal.is_some() {
                        rest = rest.get(2..).unwrap_or_default();
                    }
                }
                // A character other than a letter matches any other such character, or none. Quoted text matches as
                // many arbitrary characters.
                Part::Text { letter, is_quoted: false } if !letter.is_alphanumeric() => {
                    let is_mark = |letter: char| !letter.is_alphanumeric();
                    let is_sign = |letter: char| letter == '-' || letter == '+';
                    let is_zone_next = matches!(
                        parts.get(place + 1),
                        Some(Part::Field { field: Field::ZoneHours, .. })
                    );
                    if letter.is_whitespace() {
                        rest = rest.trim_start();
                    } else if let Some(first) = rest.chars().next()
                        && is_mark(first)
                        && !(is_zone_next && is_sign(first))
                    {
                        rest = rest.get(first.len_utf8()..).unwrap_or_default();
                    }
                }
                Part::Text { .. } => {
                    let length = rest.chars().next().map_or(0, char::len_utf8);
                    rest = rest.get(length..).unwrap_or_default();
                }
            }
        }
        Ok(read)
    }

    /// Reads the value of a field; returns the rest of the text.
    fn take<'a>(
        &mut self,
        field: Field,
        text: &'a str,
        is_exact: bool,
    ) -> Result<&'a str, ArgumentFault> {
        let width = match field {
            Field::Year(digits) | Field::Fraction(digits) => usize::from(digits),
            Field::DayOfYear => 3,
            Field::SecondOfDay => 5,
            Field::Julian => 7,
            Field::DayOfWeek | Field::IsoDayOfWeek | Field::Quarter | Field::WeekOfMonth => 1,
            _ => 2,
        };
        let number = || number_at(text, is_exact.then_some(width), field);
        match field {
            Field::Hour24 | Field::Hour12 => {
                let (hour, behind) = number()?;
                self.has_hour12 |= field == Field::Hour12;
                self.hour = hour;
                return Ok(behind);
            }
            Field::Minute | Field::Second | Field::Month | Field::Day | Field::DayOfYear => {
                let (value, behind) = number()?;
                match field {
                    Field::Minute => self.minute = value,
                    Field::Second => self.second = value,
                    Field::Month => self.month = Some(value),
                    Field::Day => self.day = Some(value),
                    _ => self.day_of_year = Some(value),
                }
                return Ok(behind);
            }
            Field::SecondOfDay | Field::Julian => {
                let (value, behind) = number()?;
                match field {
                    Field::Julian => self.julian = Some(value - 2_440_588),
                    _ => self.second_of_day = Some(value),
                }
                return Ok(behind);
            }
            Field::Fraction(digits) => {
                let (value, behind) = number_at(text, Some(usize::from(digits)), field)?;
                let read = text.len() - behind.len();
                let missing = u32::try_from(6_usize.saturating_sub(read)).unwrap_or(0);
                self.micros = value * 10_i64.pow(missing);
                return Ok(behind);
            }
            Field::Year(_) | Field::YearWithComma => {
                let (value, behind) = number()?;
                let read = text.len() - behind.len();
                self.year = Some(match (field, read) {
                    (Field::Year(4), _) => value,
                    // Two digits are of the years around 2020, as in PostgreSQL.
                    (_, ..=2) if value < 70 => value + 2000,
                    (_, ..=2) => value + 1900,
                    (_, 3) if value < 520 => value + 2000,
                    (_, 3) => value + 1000,
                    _ => value,
                });
                return Ok(behind);
            }
            _ => {}
        }
        let word = |names: &[&str], least: Option<usize>| {
            let found = names.iter().enumerate().find_map(|(place, name)| {
                let name = least.map_or(*name, |least| name.get(..least).unwrap_or(name));
                let begin = text.get(..name.len())?;
                begin.eq_ignore_ascii_case(name).then(|| (place, text.get(name.len()..)))
            });
            found.map(|(place, behind)| (place, behind.unwrap_or_default()))
        };
        let unknown = || invalid(text, field);
        match field {
            Field::MonthName | Field::MonthShort => {
                let least = (field == Field::MonthShort).then_some(3);
                let (place, behind) = word(&MONTHS, least).ok_or_else(unknown)?;
                self.month = i64::try_from(place + 1).ok();
                Ok(behind)
            }
            Field::DayName | Field::DayShort => {
                let least = (field == Field::DayShort).then_some(3);
                let (_, behind) = word(&super::template::DAYS, least).ok_or_else(unknown)?;
                Ok(behind)
            }
            Field::Noon(_) => {
                let names = ["a.m.", "p.m.", "am", "pm"];
                let (place, behind) = word(&names, None).ok_or_else(unknown)?;
                self.is_afternoon = Some(place % 2 == 1);
                self.has_hour12 = true;
                Ok(behind)
            }
            Field::Era(_) => {
                let names = ["a.d.", "b.c.", "ad", "bc"];
                let (place, behind) = word(&names, None).ok_or_else(unknown)?;
                self.is_before_christ = place % 2 == 1;
                Ok(behind)
            }
            Field::ZoneHours | Field::Offset => {
                self.is_zone_west = text.starts_with('-');
                let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
                let (hours, behind) = number_at(digits, Some(2), field)?;
                self.zone_minutes += hours * 60;
                Ok(behind)
            }
            Field::ZoneMinutes => {
                let (minutes, behind) = number_at(text, Some(2), field)?;
                self.zone_minutes += minutes;
                Ok(behind)
            }
            // They follow from the date.
            Field::DayOfWeek | Field::IsoDayOfWeek | Field::Quarter | Field::WeekOfMonth => {
                Ok(number()?.1)
            }
            other => {
                let reason = format!("formatting field {other:?} is only supported in to_char");
                Err(ArgumentFault::Invalid { reason })
            }
        }
    }

    /// Days since 1970-01-01 and microseconds of the day, in UTC.
    fn moment(&self) -> Result<(i64, i64), ArgumentFault> {
        let out_of_range = ArgumentFault::TimeOutOfRange { what: "date/time field value" };
        let year = match self.year.unwrap_or(1) {
            year if self.is_before_christ && self.year.is_some() => 1 - year,
            // There is no year 0.
            0 => 0,
            year if self.year.is_none() => year - 1,
            year => year,
        };
        let days = match (self.julian, self.day_of_year, self.month, self.day) {
            (Some(julian), ..) => julian,
            (_, Some(day), None, _) => {
                let length = 337 + days_in_month(year, 2);
                if !(1..=length).contains(&day) {
                    return Err(out_of_range);
                }
                days_of(year, 1, 1) + day - 1
            }
            (_, _, month, day) => {
                let (month, day) = (month.unwrap_or(1), day.unwrap_or(1));
                let is_month = (1..=12).contains(&month);
                if !is_month || !(1..=days_in_month(year, month)).contains(&day) {
                    return Err(out_of_range);
                }
                days_of(year, month, day)
            }
        };
        let mut hour = self.hour;
        if self.has_hour12 {
            if !(1..=12).contains(&hour) && self.is_afternoon.is_some() {
                let reason = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                return Err(ArgumentFault::Form { reason });
            }
            hour = match self.is_afternoon {
                Some(true) => hour % 12 + 12,
                _ if hour == 12 => 0,
                _ => hour,
            };
        }
        let is_clock = (0..24).contains(&hour) && self.minute < 60 && self.second < 60;
        if !is_clock {
            return Err(out_of_range);
        }
        let seconds = self.second_of_day.unwrap_or(hour * 3600 + self.minute * 60 + self.second);
        let zone = if self.is_zone_west { self.zone_minutes } else { -self.zone_minutes };
        Ok((days, (seconds + zone * 60) * 1_000_000 + self.micros))
    }
}

/// Whether a field is read as digits.
fn is_number(field: Field) -> bool {
    !matches!(
        field,
        Field::MonthName
            | Field::MonthShort
            | Field::MonthRoman
            | Field::DayName
            | Field::DayShort
            | Field::Noon(_)
            | Field::Era(_)
            | Field::Zone
            | Field::ZoneHours
            | Field::Offset
    )
}

fn number_at(text: &str, width: Option<usize>, field: Field) -> Result<(i64, &str), ArgumentFault> {
    let digits = text.bytes().take(width.unwrap_or(usize::MAX)).take_while(u8::is_ascii_digit);
    let length = digits.count();
    let (digits, behind) = text.split_at_checked(length).unwrap_or((text, ""));
    match digits.parse() {
        Ok(number) => Ok((number, behind)),
        Err(_) => Err(invalid(text, field)),
    }
}

fn invalid(text: &str, field: Field) -> ArgumentFault {
    let begin: String = text.chars().take(12).collect();
    ArgumentFault::Form { reason: format!("invalid value \"{begin}\" for {field:?}") }
}
