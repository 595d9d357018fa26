//! `to_char`: times, intervals and numbers by a template.
//!
//! Source: PostgreSQL's documentation, "Data Type Formatting Functions".

use std::fmt::Write;
use std::sync::Arc;

use cleave_catalog::value::ValueText;
use cleave_catalog::value::calendar::date_of;
use cleave_fragment::functions::bounded::{RESULT_BYTES_MAX, ResultTooLarge};
use cleave_fragment::functions::infinite::{infinite_rows, without};
use cleave_fragment::functions::{ArgumentFault, row_function};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::utils::take_function_args;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ScalarUDF;

use super::number_template::{Number, NumberTemplate};
use super::template::{Case, DAYS, Field, MONTHS, MONTHS_ROMAN, Part, check_length, parts};

const DAY_US: i64 = 86_400_000_000;
/// Digits of `real` and `double precision` that PostgreSQL shows.
const FLOAT_DIGITS: usize = 6;
const DOUBLE_DIGITS: usize = 15;

pub(super) fn to_char() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| {
        let [value, template] = given else { return None };
        let value = match value {
            DataType::Timestamp(_, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            // PostgreSQL has it for timestamps with time zone only.
            DataType::Date32 | DataType::Date64 => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
            }
            DataType::Time64(_) | DataType::Time32(_) => DataType::Time64(TimeUnit::Microsecond),
            DataType::Interval(_) | DataType::Duration(_) => {
                DataType::Interval(IntervalUnit::MonthDayNano)
            }
            number if number.is_numeric() || number.is_null() => number.clone(),
            _ => return None,
        };
        matches!(template, DataType::Utf8 | DataType::Null).then(|| vec![value, DataType::Utf8])
    };
    row_function(
        "to_char",
        takes,
        |_| DataType::Utf8,
        |args| {
            let [values, templates] = take_function_args("to_char", args)?;
            // Infinite times show nothing.
            written(&without(values, &infinite_rows(values))?, templates)
        },
    )
}

fn written(values: &ArrayRef, templates: &ArrayRef) -> Result<ArrayRef> {
    let templates = templates.as_string::<i32>();
    let source = Source::of(values)?;
    let mut known: Option<(&str, Template)> = None;
    let mut bytes: u64 = 0;
    let mut texts: Vec<Option<String>> = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        if values.is_null(row) || templates.is_null(row) {
            texts.push(None);
            continue;
        }
        let text = templates.value(row);
        let last = texts.last().and_then(Option::as_ref).map_or(0, String::len);
        bytes = bytes.saturating_add(last as u64);
        if bytes > RESULT_BYTES_MAX {
            let function = "to_char".to_owned();
            let error = ResultTooLarge { function, bytes, rows: values.len() };
            return Err(DataFusionError::External(Box::new(error)));
        }
        if known.as_ref().is_none_or(|(known, _)| *known != text) {
            check_length("to_char", text)?;
            let template = match source.is_of_numbers() {
                true => Template::Number(NumberTemplate::new(text)?),
                false => Template::Time(parts(text)),
            };
            known = Some((text, template));
        }
        texts.push(match &known {
            Some((_, Template::Number(template))) => source.write_number(row, template)?,
            // As PostgreSQL.
            Some((_, Template::Time(parts))) if parts.is_empty() && text.is_empty() => None,
            Some((_, Template::Time(parts))) => {
                source.moment(row).map(|moment| moment.write(parts)).transpose()?
            }
            None => None,
        });
    }
    Ok(Arc::new(StringArray::from(texts)))
}

enum Template {
    Time(Vec<Part>),
    Number(NumberTemplate),
}

/// The values, by kind.
enum Source<'a> {
    /// Microseconds since 1970, and whether they have a zone.
    Moments(ArrayRef, bool),
    Times(ArrayRef),
    Intervals(&'a ArrayRef),
    /// With the bounds of their type.
    Whole(ArrayRef, (i64, i64)),
    /// With the digits of their type.
    Doubles(ArrayRef, usize),
    Exact(ValueText<'a>),
}

impl<'a> Source<'a> {
    fn of(values: &'a ArrayRef) -> Result<Self> {
        let int = (i64::from(i32::MIN), i64::from(i32::MAX));
        let bigint = (i64::MIN, i64::MAX);
        Ok(match values.data_type() {
            DataType::Timestamp(_, zone) => {
                Self::Moments(cast(values, &DataType::Int64)?, zone.is_some())
            }
            DataType::Time64(_) => Self::Times(cast(values, &DataType::Int64)?),
            DataType::Interval(_) => Self::Intervals(values),
            DataType::Int8 | DataType::Int16 | DataType::Int32 => {
                Self::Whole(cast(values, &DataType::Int64)?, int)
            }
            DataType::Int64 => Self::Whole(Arc::clone(values), bigint),
            DataType::Float32 => Self::Doubles(cast(values, &DataType::Float64)?, FLOAT_DIGITS),
            DataType::Float64 => Self::Doubles(Arc::clone(values), DOUBLE_DIGITS),
            _ => Self::Exact(ValueText::new(values)?),
        })
    }

    fn is_of_numbers(&self) -> bool {
        matches!(self, Self::Whole(..) | Self::Doubles(..) | Self::Exact(_))
    }

    fn write_number(
        &self,
        row: usize,
        template: &NumberTemplate,
    ) -> Result<Option<String>, ArgumentFault> {
        let mut text = String::new();
        let number = match self {
            Self::Whole(values, bounds) => {
                Number::Whole(values.as_primitive::<Int64Type>().value(row), *bounds)
            }
            Self::Doubles(values, digits) => {
                Number::Double(values.as_primitive::<Float64Type>().value(row), *digits)
            }
            Self::Exact(values) => {
                values.write(row, &mut text);
                Number::Exact(&text)
            }
            Self::Moments(..) | Self::Times(_) | Self::Intervals(_) => return Ok(None),
        };
        template.write(number).map(Some)
    }

    fn moment(&self, row: usize) -> Option<Moment> {
        Some(match self {
            Self::Moments(values, has_zone) => {
                let micros = values.as_primitive::<Int64Type>().value(row);
                let (year, month, day) = date_of(micros.div_euclid(DAY_US));
                let clock = micros.rem_euclid(DAY_US);
                let moment =
                    Moment { year, month, day, has_zone: *has_zone, ..Moment::of_clock(clock) };
                Moment { day_of_year: moment.julian() - julian(year, 1, 1) + 1, ..moment }
            }
            Self::Times(values) => Moment {
                is_interval: true,
                ..Moment::of_clock(values.as_primitive::<Int64Type>().value(row))
            },
            Self::Intervals(values) => {
                let interval = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
                let (months, day) = (i64::from(interval.months), i64::from(interval.days));
                Moment {
                    year: months / 12,
                    month: months % 12,
                    day,
                    day_of_year: months * 30 + day,
                    is_interval: true,
                    ..Moment::of_clock(interval.nanoseconds / 1000)
                }
            }
            Self::Whole(..) | Self::Doubles(..) | Self::Exact(_) => return None,
        })
    }
}

/// The fields of a date and time, or the parts of an interval, each with its own sign.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    /// 0 is 1 BC.
    year: i64,
    month: i64,
    day: i64,
    /// Of an interval its days, with months of thirty.
    day_of_year: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    has_zone: bool,
    is_interval: bool,
}

impl Moment {
    /// So many microseconds of a day or an interval.
    fn of_clock(micros: i64) -> Self {
        let seconds = micros / 1_000_000;
        Self {
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: micros % 1_000_000,
            ..Self::default()
        }
    }

    fn write(&self, parts: &[Part]) -> Result<String, ArgumentFault> {
        let mut out = String::new();
        for part in parts {
            match part {
                Part::Exact => {}
                Part::Text { letter, .. } => out.push(*letter),
                Part::Field { field, case, is_bare, is_translated, ordinal, .. } => {
                    let start = out.len();
                    self.write_field(&mut out, *field, *case, (*is_bare, *is_translated))?;
                    let digits = out.get(start..).unwrap_or_default();
                    if let Some(case) =
                        ordinal.filter(|_| has_ordinal(*field) && !digits.is_empty())
                    {
                        let ending = ordinal_of(digits)?;
                        out.push_str(&cased(ending, case));
                    }
                }
            }
        }
        Ok(out)
    }

    fn write_field(
        &self,
        out: &mut String,
        field: Field,
        case: Case,
        (is_bare, is_translated): (bool, bool),
    ) -> Result<(), ArgumentFault> {
        if self.is_interval && is_of_dates(field) {
            let reason = "invalid format specification for an interval value".to_owned();
            return Err(ArgumentFault::Form { reason });
        }
        let hour12 = if self.hour % 12 == 0 { 12 } else { self.hour % 12 };
        let place = |names: usize| usize::try_from(self.month - 1).ok().filter(|it| *it < names);
        let mut number = |number: i64, width: usize| {
            let width = if is_bare { 0 } else { width + usize::from(number < 0) };
            // Writing to a text cannot fail.
            let _ = write!(out, "{number:0width$}");
        };
        match field {
            // A negative hour has a sign's place by the hour that is not of twelve.
            Field::Hour12 if self.hour < 0 && hour12 > 0 => number(hour12, 3),
            Field::Hour12 => number(hour12, 2),
            Field::Hour24 => number(self.hour, 2),
            Field::Minute => number(self.minute, 2),
            Field::Second => number(self.second, 2),
            Field::Fraction(digits) => {
                let width = usize::from(digits);
                let power = 10_i64.pow(6_u32.saturating_sub(digits.into()));
                let _ = write!(out, "{:0width$}", self.micros / power);
            }
            Field::Millis => {
                let _ = write!(out, "{:03}", self.micros / 1000);
            }
            Field::Micros => {
                let _ = write!(out, "{:06}", self.micros);
            }
            Field::SecondOfDay => number(self.hour * 3600 + self.minute * 60 + self.second, 0),
            Field::Noon(points) => {
                let text = match (self.hour % 24 >= 12, points) {
                    (false, true) => "a.m.",
                    (false, false) => "am",
                    (true, true) => "p.m.",
                    (true, false) => "pm",
                };
                out.push_str(&cased(text, if case == Case::Lower { case } else { Case::Upper }));
            }
            Field::Era(points) => {
                let text = match (self.year <= 0, points) {
                    (true, true) => "b.c.",
                    (true, false) => "bc",
                    (false, true) => "a.d.",
                    (false, false) => "ad",
                };
                out.push_str(&cased(text, if case == Case::Lower { case } else { Case::Upper }));
            }
            Field::YearWithComma => {
                let year = self.shown(self.year);
                let _ = write!(out, "{},{:03}", year / 1000, year % 1000);
            }
            Field::Year(digits) | Field::IsoYear(digits) => {
                let year = match field {
                    Field::IsoYear(_) => self.iso_week().0,
                    _ => self.year,
                };
                let year = self.shown(year);
                let shown = if digits < 4 { year % 10_i64.pow(digits.into()) } else { year };
                // The year's sign decides the width, though its last digits may be zero.
                let width = match digits {
                    1 => 0,
                    _ if is_bare => 0,
                    digits => usize::from(digits) + usize::from(self.shown(self.year) < 0),
                };
                let _ = write!(out, "{shown:0width$}");
            }
            Field::Month => number(self.month, 2),
            Field::Day => {
                let width = if is_bare { 0 } else { 2 };
                let _ = write!(out, "{:0width$}", self.day);
            }
            Field::MonthName | Field::MonthShort => {
                let Some(name) = place(12).and_then(|place| MONTHS.get(place)) else {
                    return Ok(());
                };
                let (name, width) = match field {
                    Field::MonthName => (*name, 9),
                    _ => (name.get(..3).unwrap_or_default(), 0),
                };
                let width = if is_bare || is_translated { 0 } else { width };
                let _ = write!(out, "{:width$}", cased(name, case));
            }
            // Months before the first are counted from December on, and whole years have one too.
            Field::MonthRoman if self.month == 0 && self.year == 0 => {}
            Field::MonthRoman => {
                let month = match self.month {
                    0 if self.year > 0 => 12,
                    0 => 1,
                    month if month < 0 => 13 + month,
                    month => month,
                };
                let place = usize::try_from(month - 1).ok();
                let name = place.and_then(|place| MONTHS_ROMAN.get(place)).copied();
                let width = if is_bare { 0 } else { 4 };
                let _ = write!(out, "{:width$}", cased(name.unwrap_or_default(), case));
            }
            Field::DayName | Field::DayShort => {
                let place = usize::try_from(self.day_of_week()).ok();
                let name = place.and_then(|place| DAYS.get(place)).copied().unwrap_or_default();
                let (name, width) = match field {
                    Field::DayName if is_bare || is_translated => (name, 0),
                    Field::DayName => (name, 9),
                    _ => (name.get(..3).unwrap_or_default(), 0),
                };
                let _ = write!(out, "{:width$}", cased(name, case));
            }
            Field::DayOfYear => {
                let width = if is_bare { 0 } else { 3 };
                let _ = write!(out, "{:0width$}", self.day_of_year);
            }
            Field::IsoDayOfYear => {
                let (year, _) = self.iso_week();
                let width = if is_bare { 0 } else { 3 };
                let _ = write!(out, "{:0width$}", self.julian() - iso_start(year) + 1);
            }
            Field::DayOfWeek => number(self.day_of_week() + 1, 0),
            Field::IsoDayOfWeek => number((self.day_of_week() + 6) % 7 + 1, 0),
            Field::WeekOfMonth => number((self.day - 1) / 7 + 1, 0),
            Field::WeekOfYear => {
                let width = if is_bare { 0 } else { 2 };
                let _ = write!(out, "{:0width$}", (self.day_of_year - 1) / 7 + 1);
            }
            Field::IsoWeek => {
                let width = if is_bare { 0 } else { 2 };
                let _ = write!(out, "{:0width$}", self.iso_week().1);
            }
            Field::Century => {
                let century = match self.year {
                    year if self.is_interval => year / 100,
                    year if year > 0 => (year - 1) / 100 + 1,
                    year => year / 100 - 1,
                };
                number(century, 2);
            }
            Field::Julian => number(self.julian(), 0),
            Field::Quarter if self.month == 0 => {}
            Field::Quarter => number((self.month - 1) / 3 + 1, 0),
            Field::Zone if self.has_zone => out.push_str(&cased("utc", case)),
            Field::Zone | Field::Exact => {}
            Field::Offset if is_bare => out.push_str("+0"),
            Field::ZoneHours | Field::Offset => out.push_str("+00"),
            Field::ZoneMinutes => out.push_str("00"),
        }
        Ok(())
    }

    /// A year as it is written, without a year zero.
    fn shown(&self, year: i64) -> i64 {
        if year <= 0 && !self.is_interval { 1 - year } else { year }
    }

    fn julian(&self) -> i64 {
        julian(self.year, self.month, self.day)
    }

    /// 0 is Sunday.
    fn day_of_week(&self) -> i64 {
        (self.julian() + 1).rem_euclid(7)
    }

    /// Year and week by ISO 8601, the first with four days in the year.
    fn iso_week(&self) -> (i64, i64) {
        let day = self.julian();
        let mut year = self.year;
        if day < iso_start(year) {
            year -= 1;
        } else if (day - iso_start(year)) / 7 >= 51 && day >= iso_start(year + 1) {
            year += 1;
        }
        (year, (day - iso_start(year)) / 7 + 1)
    }
}

/// The Julian day of a date, also of one that no calendar has, as an interval's parts are none.
fn julian(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = match month {
        3.. => (year + 4800, month + 1),
        _ => (year + 4799, month + 13),
    };
    let century = year / 100;
    year * 365 - 32_167 + year / 4 - century + century / 4 + 7834 * month / 256 + day
}

/// The Julian day on which the first week of a year begins.
fn iso_start(year: i64) -> i64 {
    let fourth = julian(year, 1, 4);
    fourth - fourth.rem_euclid(7)
}

/// Whether an interval has no such field.
fn is_of_dates(field: Field) -> bool {
    matches!(
        field,
        Field::Zone
            | Field::ZoneHours
            | Field::ZoneMinutes
            | Field::Offset
            | Field::Era(_)
            | Field::MonthName
            | Field::MonthShort
            | Field::DayName
            | Field::DayShort
            | Field::DayOfWeek
            | Field::IsoDayOfWeek
    )
}

/// Whether `TH` behind a field counts.
fn has_ordinal(field: Field) -> bool {
    let is_name = matches!(
        field,
        Field::MonthRoman | Field::Noon(_) | Field::Zone | Field::ZoneHours | Field::ZoneMinutes
    );
    !is_name && (!is_of_dates(field) || matches!(field, Field::DayOfWeek | Field::IsoDayOfWeek))
}

fn cased(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_ascii_uppercase(),
        Case::Lower => text.to_ascii_lowercase(),
        Case::Title => text.to_owned(),
    }
}

/// The ordinal suffix of a number.
pub(super) fn ordinal_of(number: &str) -> Result<&'static str, ArgumentFault> {
    let mut digits = number.chars().rev();
    match (digits.next(), digits.next()) {
        (Some(last), _) if !last.is_ascii_digit() => {
            Err(ArgumentFault::Malformed { reason: format!("\"{number}\" is not a number") })
        }
        (_, Some('1')) => Ok("th"),
        (Some('1'), _) => Ok("st"),
        (Some('2'), _) => Ok("nd"),
        (Some('3'), _) => Ok("rd"),
        _ => Ok("th"),
    }
}
