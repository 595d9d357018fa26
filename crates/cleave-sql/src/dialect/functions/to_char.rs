//! `to_char`: times, intervals and numbers by a template.
//!
//! Source: PostgreSQL's documentation, "Data Type Formatting Functions", and its `DCH_to_char`.

use std::fmt::Write;
use std::sync::Arc;

use cleave_catalog::value::ValueText;
use cleave_catalog::value::calendar::{date_of, days_of};
use cleave_fragment::functions::bounded::{RESULT_BYTES_MAX, ResultTooLarge};
use cleave_fragment::functions::infinite::{infinite_rows, without};
use cleave_fragment::functions::{ArgumentFault, row_function};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::utils::take_function_args;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ScalarUDF;

use super::number_template::NumberTemplate;
use super::template::{Case, DAYS, Field, MONTHS, MONTHS_ROMAN, Part, parts};

const DAY_US: i64 = 86_400_000_000;

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
    let kind = values.data_type();
    let is_number = kind.is_numeric() || kind.is_null();
    let moments = moments_of(values)?;
    let numbers = ValueText::new(values)?;
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
            let template = match is_number {
                true => Template::Number(NumberTemplate::new(text)?),
                false => Template::Time(parts(text)),
            };
            known = Some((text, template));
        }
        texts.push(match &known {
            Some((_, Template::Number(template))) => {
                let mut number = String::new();
                numbers.write(row, &mut number);
                Some(template.write(&number))
            }
            Some((_, Template::Time(parts))) => {
                moments.get(row).map(|moment| moment.write(parts)).transpose()?
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

/// The fields of a date and time, or the parts of an interval.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    year: i64,
    month: i64,
    day: i64,
    /// Since 1970-01-01; None of an interval.
    days: Option<i64>,
    /// Microseconds of a day; for an interval any number.
    micros: i64,
    has_zone: bool,
}

fn moments_of(values: &ArrayRef) -> Result<Vec<Moment>> {
    let has_zone = matches!(values.data_type(), DataType::Timestamp(_, Some(_)));
    Ok(match values.data_type() {
        DataType::Timestamp(..) => {
            let micros = cast(values, &DataType::Int64)?;
            let micros = micros.as_primitive::<Int64Type>();
            let moment = |micros: &i64| {
                let days = micros.div_euclid(DAY_US);
                let (year, month, day) = date_of(days);
                let micros = micros.rem_euclid(DAY_US);
                Moment { year, month, day, days: Some(days), micros, has_zone }
            };
            micros.values().iter().map(moment).collect()
        }
        DataType::Time64(_) => {
            let micros = cast(values, &DataType::Int64)?;
            let micros = micros.as_primitive::<Int64Type>();
            micros
                .values()
                .iter()
                .map(|micros| Moment { micros: *micros, ..Moment::default() })
                .collect()
        }
        DataType::Interval(_) => {
            let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
            let moment = |interval: &IntervalMonthDayNano| Moment {
                year: i64::from(interval.months) / 12,
                month: i64::from(interval.months) % 12,
                day: interval.days.into(),
                days: None,
                micros: interval.nanoseconds / 1000,
                has_zone: false,
            };
            intervals.values().iter().map(moment).collect()
        }
        _ => Vec::new(),
    })
}

impl Moment {
    fn write(&self, parts: &[Part]) -> Result<String, ArgumentFault> {
        let mut out = String::new();
        for part in parts {
            match part {
                Part::Text { letter, .. } => out.push(*letter),
                Part::Field { field, case, is_bare, ordinal } => {
                    let start = out.len();
                    self.write_field(&mut out, *field, *case, *is_bare)?;
                    if let Some(case) = ordinal {
                        let ending = ordinal_of(out.get(start..).unwrap_or_default());
                        out.push_str(&cased(ending, *case));
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
        is_bare: bool,
    ) -> Result<(), ArgumentFault> {
        let seconds = self.micros / 1_000_000;
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let fraction = self.micros.unsigned_abs() % 1_000_000;
        let year = if self.year <= 0 && self.days.is_some() { 1 - self.year } else { self.year };
        let mut number = |number: i64, width: usize| {
            let width = if is_bare { 0 } else { width + usize::from(number < 0) };
            // Writing to a text cannot fail.
            let _ = write!(out, "{number:0width$}");
        };
        match field {
            Field::Hour12 => {
                let hour = if hour % 12 == 0 { 12 } else { hour % 12 };
                number(hour, 2);
            }
            Field::Hour24 => number(hour, 2),
            Field::Minute => number(minute, 2),
            Field::Second => number(second, 2),
            Field::Fraction(digits) => {
                let text = format!("{fraction:06}");
                out.push_str(text.get(..usize::from(digits)).unwrap_or_default());
            }
            Field::SecondOfDay => number(seconds, 0),
            Field::Noon(points) => {
                let is_morning = hour % 24 < 12;
                let text = match (is_morning, points) {
                    (true, true) => "a.m.",
                    (true, false) => "am",
                    (false, true) => "p.m.",
                    (false, false) => "pm",
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
                let _ = write!(out, "{},{:03}", year / 1000, year % 1000);
            }
            Field::Year(digits @ 4..) => number(year, digits.into()),
            Field::Year(digits) => number(year % 10_i64.pow(digits.into()), digits.into()),
            Field::IsoYear(digits) => {
                let year = self.iso_week(field)?.0;
                let year = if digits < 4 { year % 10_i64.pow(digits.into()) } else { year };
                number(year, digits.into());
            }
            Field::Month => number(self.month, 2),
            Field::Day => number(self.day, 2),
            Field::MonthName | Field::MonthShort | Field::MonthRoman => {
                let place = usize::try_from(self.month - 1).ok();
                let names = if field == Field::MonthRoman { MONTHS_ROMAN } else { MONTHS };
                // An interval without months has none.
                let Some(name) = place.and_then(|place| names.get(place)) else { return Ok(()) };
                let (name, width) = match field {
                    Field::MonthName => (*name, 9),
                    Field::MonthShort => (name.get(..3).unwrap_or_default(), 0),
                    _ => (*name, 4),
                };
                let case = match (field, case) {
                    (Field::MonthRoman, Case::Title) => Case::Upper,
                    (_, case) => case,
                };
                let width = if is_bare { 0 } else { width };
                let _ = write!(out, "{:width$}", cased(name, case));
            }
            Field::DayName | Field::DayShort => {
                let place = usize::try_from((self.day_number(field)? + 4).rem_euclid(7));
                let name =
                    place.ok().and_then(|place| DAYS.get(place)).copied().unwrap_or_default();
                let (name, width) = match field {
                    Field::DayName if !is_bare => (name, 9),
                    Field::DayName => (name, 0),
                    _ => (name.get(..3).unwrap_or_default(), 0),
                };
                let _ = write!(out, "{:width$}", cased(name, case));
            }
            Field::DayOfYear => number(self.day_of_year(field)?, 3),
            Field::IsoDayOfYear => {
                let (_, week) = self.iso_week(field)?;
                let day = (self.day_number(field)? + 3).rem_euclid(7);
                number((week - 1) * 7 + day + 1, 3);
            }
            Field::DayOfWeek => number((self.day_number(field)? + 4).rem_euclid(7) + 1, 0),
            Field::IsoDayOfWeek => number((self.day_number(field)? + 3).rem_euclid(7) + 1, 0),
            Field::WeekOfMonth => number((self.day - 1) / 7 + 1, 0),
            Field::WeekOfYear => number((self.day_of_year(field)? - 1) / 7 + 1, 2),
            Field::IsoWeek => number(self.iso_week(field)?.1, 2),
            Field::Century => {
                let century = match self.year {
                    year if self.days.is_none() => year / 100,
                    year if year > 0 => (year + 99) / 100,
                    year => -(99 - (year - 1)) / 100,
                };
                number(century, 2);
            }
            Field::Julian => number(self.day_number(field)? + 2_440_588, 0),
            Field::Quarter => number((self.month - 1) / 3 + 1, 0),
            Field::Zone if self.has_zone => out.push_str(&cased("utc", case)),
            Field::Zone => {}
            Field::ZoneHours | Field::Offset => out.push_str("+00"),
            Field::ZoneMinutes => out.push_str("00"),
        }
        Ok(())
    }

    fn day_number(&self, field: Field) -> Result<i64, ArgumentFault> {
        self.days.ok_or_else(|| ArgumentFault::Form {
            reason: format!("invalid format specification for an interval value: {field:?}"),
        })
    }

    fn day_of_year(&self, field: Field) -> Result<i64, ArgumentFault> {
        Ok(self.day_number(field)? - days_of(self.year, 1, 1) + 1)
    }

    /// Year and week by ISO 8601: the week is that of its Thursday.
    fn iso_week(&self, field: Field) -> Result<(i64, i64), ArgumentFault> {
        let days = self.day_number(field)?;
        let thursday = days - (days + 3).rem_euclid(7) + 3;
        let (year, _, _) = date_of(thursday);
        Ok((year, (thursday - days_of(year, 1, 1)) / 7 + 1))
    }
}

fn cased(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_ascii_uppercase(),
        Case::Lower => text.to_ascii_lowercase(),
        Case::Title => text.to_owned(),
    }
}

/// The ordinal suffix of a number.
pub(super) fn ordinal_of(number: &str) -> &'static str {
    let mut digits = number.chars().rev();
    match (digits.next(), digits.next()) {
        (_, Some('1')) => "th",
        (Some('1'), _) => "st",
        (Some('2'), _) => "nd",
        (Some('3'), _) => "rd",
        _ => "th",
    }
}
