//! `to_date` and `to_timestamp`: read times by a template.
//!
//! 1. [`Read`] takes the fields of a text from left to right. A field that is zero counts as not given, as in
//!    PostgreSQL.
//! 2. [`moment`](Read::moment) makes a day and a time of them: what is not given is the first.
//!
//! Source: PostgreSQL's documentation, "Data Type Formatting Functions", and its `DCH_from_char` and `do_to_timestamp`.

use std::sync::Arc;

use cleave_catalog::value::calendar::{date_of, days_in_month, days_of};
use cleave_fragment::functions::infinite::Infinite;
use cleave_fragment::functions::{ArgumentFault, row_function};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Float64Type, TimeUnit};
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use super::made_times::rounded;
use super::template::{
    DAYS, Field, Kind, MONTHS, MONTHS_ROMAN, Part, check_length, is_blank, is_mark, parts,
};

const DAY_US: i64 = 86_400_000_000;
/// PostgreSQL's bounds: 4713 BC to 294276.
const DAYS_MAX: std::ops::RangeInclusive<i32> = -2_440_588..=2_145_031_948;
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
                i32::try_from(days)
                    .ok()
                    .filter(|days| DAYS_MAX.contains(days))
                    .ok_or(ArgumentFault::TimeOutOfRange { what: "date" })
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
                seconds.iter().map(|own| Ok(own.map(micros_of).transpose()?)).collect()
            }
            args => {
                let [texts, templates] = take_function_args("to_timestamp", args)?;
                read(texts, templates, |read| {
                    let (days, micros) = read.moment()?;
                    let micros = days.checked_mul(DAY_US).and_then(|day| day.checked_add(micros));
                    let digits = u32::from(read.digits.unwrap_or(6));
                    let unit = 10_i64.pow(6_u32.saturating_sub(digits));
                    let micros = micros.and_then(|micros| rounded(micros, unit));
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
    of: impl Fn(&Read<'_>) -> Result<T, ArgumentFault>,
) -> Result<Vec<Option<T>>> {
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
            check_length("to_timestamp", template)?;
            known = Some((template, parts(template)));
        }
        let Some((_, parts)) = &known else { continue };
        values.push(Some(of(&Read::new(texts.value(row), parts)?)?));
    }
    Ok(values)
}

/// The fields read so far.
#[derive(Debug, Default)]
struct Read<'a> {
    text: &'a str,
    mode: Option<Mode>,
    century: i64,
    year: i64,
    /// Digits of the year's field.
    year_digits: u8,
    month: i64,
    day: i64,
    day_of_year: i64,
    /// 1 is Sunday.
    day_of_week: i64,
    week: i64,
    week_of_month: i64,
    julian: i64,
    hour: i64,
    has_hour12: bool,
    is_afternoon: i64,
    minute: i64,
    second: i64,
    millis: i64,
    micros: i64,
    /// Digits of a second that `FF` asks for.
    digits: Option<u8>,
    second_of_day: i64,
    is_before_christ: i64,
    /// The zone's sign, hours and minutes; without a sign there is none.
    zone: (i64, i64, i64),
}

/// How dates are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Gregorian,
    IsoWeeks,
}

/// A field of the template, and what of it is of its own.
#[derive(Clone, Copy)]
struct Place<'a> {
    field: Field,
    name: &'a str,
    /// As many digits are read as there are.
    takes_all: bool,
}

impl<'a> Read<'a> {
    fn new(text: &'a str, parts: &[Part]) -> Result<Self, ArgumentFault> {
        let mut read = Self { text, ..Self::default() };
        let mut rest = text;
        let mut is_exact = false;
        // Blanks that were passed beyond those of the template.
        let mut skipped: i64 = 0;
        let is_blank_at = |text: &str| text.chars().next().is_some_and(is_blank);
        let pass = |text: &mut &'a str| {
            if let Some(first) = text.chars().next() {
                *text = text.get(first.len_utf8()..).unwrap_or_default();
            }
        };
        for (at, part) in parts.iter().enumerate() {
            if rest.is_empty() {
                break;
            }
            let is_field = matches!(part, Part::Field { .. });
            if !is_exact && (is_field || at == 0 && *part != Part::Exact) {
                while is_blank_at(rest) {
                    pass(&mut rest);
                    skipped += 1;
                }
            }
            let (field, name, is_bare, ordinal) = match part {
                Part::Exact => {
                    is_exact = true;
                    continue;
                }
                Part::Text { kind: Kind::Mark | Kind::Blank, .. } => {
                    if is_exact {
                        pass(&mut rest);
                    } else {
                        skipped -= 1;
                        if rest.chars().next().is_some_and(|next| is_blank(next) || is_mark(next)) {
                            pass(&mut rest);
                            skipped += 1;
                        }
                    }
                    continue;
                }
                Part::Text { .. } if !is_exact && skipped > 0 => {
                    skipped -= 1;
                    continue;
                }
                Part::Text { .. } => {
                    pass(&mut rest);
                    continue;
                }
                Part::Field { field, name, is_bare, ordinal, .. } => {
                    (*field, *name, *is_bare, ordinal.is_some())
                }
            };
            let is_digit_next = match parts.get(at + 1) {
                Some(Part::Field { field, .. }) => is_number(*field),
                Some(Part::Text { letter, .. }) => letter.is_ascii_digit(),
                Some(Part::Exact) | None => false,
            };
            let place = Place { field, name, takes_all: is_bare || ordinal || !is_digit_next };
            let before = text.get(..text.len() - rest.len()).unwrap_or_default();
            let is_minus_before = skipped > 0 && before.ends_with('-');
            rest = read.take(place, rest, is_minus_before)?;
            if ordinal && has_ordinal(field) {
                pass(&mut rest);
                pass(&mut rest);
            }
            if !is_exact {
                skipped = 0;
                while is_blank_at(rest) {
                    pass(&mut rest);
                    skipped += 1;
                }
            }
        }
        Ok(read)
    }

    /// Reads the value of a field; returns the rest of the text.
    fn take<'t>(
        &mut self,
        place: Place<'_>,
        text: &'t str,
        is_minus_before: bool,
    ) -> Result<&'t str, ArgumentFault> {
        let Place { field, name, .. } = place;
        self.set_mode(field)?;
        let width = match field {
            Field::Hour12 | Field::Hour24 | Field::ZoneHours | Field::ZoneMinutes => 2,
            Field::Fraction(digits) => digits.into(),
            Field::Millis | Field::IsoDayOfYear => 3,
            Field::Micros => 6,
            Field::IsoDayOfWeek => 1,
            _ => name.len(),
        };
        let digits = |text: &'t str| number_at(text, width, place);
        let into = |slot: &mut i64| {
            let (value, behind) = digits(text)?;
            set(slot, value, place)?;
            Ok(behind)
        };
        let word = |names: &[&str]| word_at(text, names, place);
        match field {
            Field::Hour24 => into(&mut self.hour),
            Field::Hour12 => {
                self.has_hour12 = true;
                into(&mut self.hour)
            }
            Field::Minute => into(&mut self.minute),
            Field::Second => into(&mut self.second),
            Field::Month => into(&mut self.month),
            Field::Day => into(&mut self.day),
            Field::DayOfYear | Field::IsoDayOfYear => into(&mut self.day_of_year),
            Field::DayOfWeek => into(&mut self.day_of_week),
            Field::SecondOfDay => into(&mut self.second_of_day),
            Field::Julian => into(&mut self.julian),
            Field::WeekOfYear | Field::IsoWeek => into(&mut self.week),
            Field::WeekOfMonth => into(&mut self.week_of_month),
            Field::Century => into(&mut self.century),
            // Which day of it is not known.
            Field::Quarter => Ok(digits(text)?.1),
            Field::IsoDayOfWeek => {
                let behind = into(&mut self.day_of_week)?;
                self.day_of_week = self.day_of_week % 7 + 1;
                Ok(behind)
            }
            Field::Millis | Field::Micros | Field::Fraction(_) => {
                if let Field::Fraction(digits) = field {
                    self.digits = Some(digits);
                }
                let is_millis = field == Field::Millis;
                let slot = if is_millis { &mut self.millis } else { &mut self.micros };
                let behind = into(slot)?;
                let length = text.len() - behind.len();
                let missing = if is_millis { 3_usize } else { 6 }.saturating_sub(length.max(1));
                let power = 10_i64.pow(u32::try_from(missing).unwrap_or_default());
                *slot = slot.saturating_mul(power);
                Ok(behind)
            }
            Field::Year(count) | Field::IsoYear(count) => {
                let behind = into(&mut self.year)?;
                if count < 4 && text.len() - behind.len() < 4 {
                    // Of the years around 2020, as in PostgreSQL.
                    self.year += match self.year {
                        ..70 => 2000,
                        70..100 => 1900,
                        100..520 => 2000,
                        520..1000 => 1000,
                        _ => 0,
                    };
                }
                self.year_digits = count;
                Ok(behind)
            }
            Field::YearWithComma => {
                let reason = || "invalid input string for \"Y,YYY\"".to_owned();
                let wrong = || ArgumentFault::Form { reason: reason() };
                let (thousands, behind) = whole_at(text, usize::MAX).ok_or_else(wrong)?;
                let behind = behind.strip_prefix(',').ok_or_else(wrong)?;
                let (years, behind) = whole_at(behind, 3).ok_or_else(wrong)?;
                set(&mut self.year, thousands.saturating_mul(1000).saturating_add(years), place)?;
                self.year_digits = 4;
                Ok(behind)
            }
            Field::MonthName | Field::MonthShort | Field::MonthRoman => {
                let (month, behind) = match field {
                    Field::MonthName => word(&MONTHS)?,
                    Field::MonthShort => word(&short(&MONTHS))?,
                    _ => {
                        let mut names = MONTHS_ROMAN;
                        names.reverse();
                        let (place, behind) = word(&names)?;
                        (11 - place, behind)
                    }
                };
                set(&mut self.month, month + 1, place)?;
                Ok(behind)
            }
            Field::DayName | Field::DayShort => {
                let (day, behind) = match field {
                    Field::DayName => word(&DAYS)?,
                    _ => word(&short(&DAYS))?,
                };
                set(&mut self.day_of_week, day, place)?;
                self.day_of_week += 1;
                Ok(behind)
            }
            Field::Noon(points) => {
                let names = if points { ["a.m.", "p.m."] } else { ["am", "pm"] };
                let (half, behind) = word(&names)?;
                set(&mut self.is_afternoon, half, place)?;
                self.has_hour12 = true;
                Ok(behind)
            }
            Field::Era(points) => {
                let names = if points { ["a.d.", "b.c."] } else { ["ad", "bc"] };
                let (era, behind) = word(&names)?;
                set(&mut self.is_before_christ, era, place)?;
                Ok(behind)
            }
            Field::ZoneHours => {
                let signed = text.strip_prefix(['+', '-', ' ']);
                let is_west = match signed {
                    Some(_) => text.starts_with('-'),
                    None => is_minus_before,
                };
                self.zone.0 = if is_west { -1 } else { 1 };
                let (hours, behind) = digits(signed.unwrap_or(text))?;
                set(&mut self.zone.1, hours, place)?;
                Ok(behind)
            }
            Field::ZoneMinutes => {
                if self.zone.0 == 0 {
                    self.zone.0 = 1;
                }
                into(&mut self.zone.2)
            }
            Field::Zone | Field::Offset | Field::Exact => {
                let reason = format!("formatting field \"{name}\" is only supported in to_char");
                Err(ArgumentFault::Unsupported { reason })
            }
        }
    }

    fn set_mode(&mut self, field: Field) -> Result<(), ArgumentFault> {
        let mode = match field {
            Field::IsoYear(_) | Field::IsoWeek | Field::IsoDayOfWeek | Field::IsoDayOfYear => {
                Mode::IsoWeeks
            }
            Field::Year(_)
            | Field::YearWithComma
            | Field::Month
            | Field::MonthName
            | Field::MonthShort
            | Field::MonthRoman
            | Field::Day
            | Field::DayOfYear
            | Field::DayOfWeek
            | Field::WeekOfYear
            | Field::WeekOfMonth => Mode::Gregorian,
            _ => return Ok(()),
        };
        match *self.mode.get_or_insert(mode) == mode {
            true => Ok(()),
            false => {
                let reason = "invalid combination of date conventions".to_owned();
                Err(ArgumentFault::Form { reason })
            }
        }
    }

    fn out_of_range(&self) -> ArgumentFault {
        let reason = format!("date/time field value out of range: \"{}\"", self.text);
        ArgumentFault::Field { reason }
    }

    /// Days since 1970-01-01 and microseconds of the day, in UTC.
    fn moment(&self) -> Result<(i64, i64), ArgumentFault> {
        let (days, clock) = (self.day()?, self.clock()?);
        let (sign, hours, minutes) = self.zone;
        if !(0..=15).contains(&hours) || !(0..60).contains(&minutes) {
            return Err(self.out_of_range());
        }
        Ok((days, clock - sign * (hours * 60 + minutes) * 60_000_000))
    }

    /// Microseconds of the day.
    fn clock(&self) -> Result<i64, ArgumentFault> {
        let given = |value: i64, other: i64| if value == 0 { other } else { value };
        let mut hour = given(self.hour, self.second_of_day / 3600);
        let minute = given(self.minute, self.second_of_day / 60 % 60);
        let second = given(self.second, self.second_of_day % 60);
        if self.has_hour12 {
            if !(1..=12).contains(&hour) {
                let reason = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                return Err(ArgumentFault::Form { reason });
            }
            hour = hour % 12 + 12 * self.is_afternoon;
        }
        let micros = self.millis.saturating_mul(1000).saturating_add(self.micros);
        let is_clock = (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..1_000_000).contains(&micros);
        match is_clock {
            true => Ok(((hour * 60 + minute) * 60 + second) * 1_000_000 + micros),
            false => Err(self.out_of_range()),
        }
    }

    /// The year, 0 being 1 BC; 0 if none is given.
    fn astronomical_year(&self) -> i64 {
        let is_before_christ = self.is_before_christ == 1;
        let century = if is_before_christ { -self.century } else { self.century };
        match (self.year, century) {
            (0, 0) => 0,
            (0, 0..) => (century - 1) * 100 + 1,
            (0, _) => century * 100 + 1,
            (year, century) if century != 0 && self.year_digits <= 2 => match (year % 100, century)
            {
                (0, 0..) => century * 100,
                (0, _) => century * 100 + 1,
                (year, 0..) => year + (century - 1) * 100,
                (year, _) => (century + 1) * 100 - year + 1,
            },
            (year, _) => {
                let year = if is_before_christ { -year } else { year };
                if year < 0 { year + 1 } else { year }
            }
        }
    }

    /// Days since 1970-01-01.
    fn day(&self) -> Result<i64, ArgumentFault> {
        // Years of the type are far within it, and the days of any of these can be computed.
        const BOUND: i64 = 10_000_000;
        let mut year = self.astronomical_year().clamp(-BOUND, BOUND);
        let (mut month, mut day, mut is_known) = (1, 1, false);
        let mut day_of_year = self.day_of_year;
        let mut set_date = |days: i64| {
            (year, month, day) = date_of(days);
            is_known = true;
        };
        if self.julian != 0 {
            set_date(self.julian - 2_440_588);
        }
        if self.week != 0 {
            match self.mode {
                Some(Mode::IsoWeeks) => {
                    let first = iso_start(self.astronomical_year().clamp(-BOUND, BOUND));
                    // Sunday is the last day of its week.
                    let day = match self.day_of_week {
                        0 => 0,
                        1 => 6,
                        day => day - 2,
                    };
                    set_date(first + (self.week - 1) * 7 + day);
                }
                _ => day_of_year = (self.week - 1) * 7 + 1,
            }
        }
        let given = match self.week_of_month {
            0 => self.day,
            week => (week - 1) * 7 + 1,
        };
        let (mut has_month, mut has_day) = (is_known, is_known);
        if given != 0 {
            (day, has_day) = (given, true);
        }
        if self.month != 0 {
            (month, has_month) = (self.month, true);
        }
        if day_of_year != 0 && (month <= 1 || day <= 1) {
            if year == 0 && self.is_before_christ == 0 {
                let reason = "cannot calculate day of year without year information".to_owned();
                return Err(ArgumentFault::Form { reason });
            }
            let days = match self.mode {
                Some(Mode::IsoWeeks) => iso_start(year) + day_of_year - 1,
                _ => days_of(year, 1, 1) + day_of_year - 1,
            };
            let found = date_of(days);
            match self.mode {
                Some(Mode::IsoWeeks) => (year, month, day) = found,
                // A day that is not of the year is an error below.
                _ if found.0 != year => (month, day) = (13, 32),
                _ => {
                    month = if month <= 1 { found.1 } else { month };
                    day = if day <= 1 { found.2 } else { day };
                }
            }
            (has_month, has_day) = (true, true);
        }
        let is_month = (1..=12).contains(&month);
        let has_year = self.year != 0 || self.century != 0 || is_known;
        let last = match is_month && has_year && has_month && has_day {
            true => days_in_month(year, month),
            false => 31,
        };
        if !is_month || !(1..=last).contains(&day) {
            return Err(self.out_of_range());
        }
        Ok(days_of(year, month, 1) + day - 1)
    }
}

/// The first day of a year's first week, since 1970-01-01.
fn iso_start(year: i64) -> i64 {
    let fourth = days_of(year, 1, 4);
    fourth - (fourth + 3).rem_euclid(7)
}

/// A field may come again with the same value alone.
fn set(slot: &mut i64, value: i64, place: Place<'_>) -> Result<(), ArgumentFault> {
    if *slot != 0 && *slot != value {
        let name = place.name;
        let reason = format!("conflicting values for \"{name}\" field in formatting string");
        return Err(ArgumentFault::Form { reason });
    }
    *slot = value;
    Ok(())
}

fn short(names: &[&'static str]) -> Vec<&'static str> {
    names.iter().map(|name| name.get(..3).unwrap_or(name)).collect()
}

fn word_at<'t>(
    text: &'t str,
    names: &[&str],
    place: Place<'_>,
) -> Result<(i64, &'t str), ArgumentFault> {
    let found = names.iter().enumerate().find_map(|(at, name)| {
        let begin = text.get(..name.len())?;
        let behind = text.get(name.len()..)?;
        begin.eq_ignore_ascii_case(name).then_some((i64::try_from(at).ok()?, behind))
    });
    found.ok_or_else(|| {
        let word = text.split(is_blank).next().unwrap_or_default();
        invalid(word, place)
    })
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

/// Whether `TH` behind a field is passed.
fn has_ordinal(field: Field) -> bool {
    is_number(field) && field != Field::ZoneMinutes
}

/// Blanks, a sign and digits, at most so many characters, as C's `strtol` reads them.
fn whole_at(text: &str, width: usize) -> Option<(i64, &str)> {
    let blanks = text.bytes().take_while(|byte| is_blank(char::from(*byte))).count();
    let signed = text.get(blanks..)?;
    let sign = usize::from(signed.starts_with(['-', '+']));
    let digits = signed.bytes().skip(sign).take_while(u8::is_ascii_digit).count();
    let length = (sign + digits).min(width);
    let number = signed.get(..length)?;
    if number.len() <= sign {
        return None;
    }
    // What is beyond the type is beyond every field.
    let value = number.parse().unwrap_or(i64::MAX);
    Some((value, signed.get(length..)?))
}

fn number_at<'t>(
    text: &'t str,
    width: usize,
    place: Place<'_>,
) -> Result<(i64, &'t str), ArgumentFault> {
    let name = place.name;
    let text = text.trim_start_matches(is_blank);
    let short: String = text.chars().take(width).collect();
    if !place.takes_all && text.chars().count() < width {
        let reason = format!("source string too short for \"{name}\" formatting field");
        return Err(ArgumentFault::Form { reason });
    }
    let width_read = if place.takes_all { usize::MAX } else { width };
    let Some((value, behind)) = whole_at(text, width_read) else {
        return Err(invalid(&short, place));
    };
    if !place.takes_all && text.len() - behind.len() < width {
        return Err(invalid(&short, place));
    }
    match i32::try_from(value) {
        Ok(value) => Ok((value.into(), behind)),
        Err(_) => {
            let reason = format!("value for \"{name}\" in source string is out of range");
            Err(ArgumentFault::Field { reason })
        }
    }
}

fn invalid(text: &str, place: Place<'_>) -> ArgumentFault {
    ArgumentFault::Form { reason: format!("invalid value \"{text}\" for \"{}\"", place.name) }
}
