//! How a file writes dates, times and numbers, where it does not write them as SQL does: a field's text in, SQL's text
//! out.
//!
//! A [`TimePattern`] is written with the codes of `strftime`: `%d.%m.%Y` reads `31.01.2024`. It accepts numbers without
//! their leading zeros. Whether the day exists is checked where the value is read.
//!
//! Source: POSIX, `strptime`; PostgreSQL's manual, "Date/Time Types", for what is made of it.

use std::fmt::Write as _;

use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::value::error::{Bad, ValueFault};
use cleave_store::ColumnType;

/// How values are written in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ValueForms {
    /// Dates, and the dates of timestamps; None: as SQL writes them.
    pub date: Option<TimePattern>,
    /// Timestamps; None: as `date` says, with a time behind it.
    pub timestamp: Option<TimePattern>,
    /// The sign before the fraction of a number; None: a point.
    pub decimal: Option<u8>,
}

/// The form of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As SQL writes it.
    Plain,
    Date,
    /// A date by the pattern, and a time as SQL writes it.
    DateAndTime,
    Timestamp,
    Number,
}

impl ValueForms {
    /// The form of a column of this type.
    pub(super) fn of(&self, column_type: &ColumnType) -> Form {
        match column_type {
            ColumnType::Date if self.date.is_some() => Form::Date,
            ColumnType::Timestamp | ColumnType::TimestampTz if self.timestamp.is_some() => {
                Form::Timestamp
            }
            ColumnType::Timestamp | ColumnType::TimestampTz if self.date.is_some() => {
                Form::DateAndTime
            }
            ColumnType::Real | ColumnType::Double | ColumnType::Numeric { .. }
                if self.decimal.is_some_and(|sign| sign != b'.') =>
            {
                Form::Number
            }
            _ => Form::Plain,
        }
    }

    /// Writes `text`, a value in this form, as SQL does.
    pub(super) fn write(&self, form: Form, text: &str, sql: &mut String) -> Result<(), Bad> {
        const DATE: &str = "a date as the option DATEFORMAT says";
        const TIMESTAMP: &str = "a timestamp as the option TIMESTAMPFORMAT says";
        const NUMBER: &str = "a number with the DECIMAL_SEPARATOR before its fraction";
        let time = |expected| Bad { fault: ValueFault::MalformedTime, expected };
        sql.clear();
        match (form, &self.date, &self.timestamp) {
            (Form::Date, Some(pattern), _) => {
                let rest = pattern.write(text, sql).ok_or(time(DATE))?;
                if !rest.trim().is_empty() {
                    return Err(time(DATE));
                }
            }
            (Form::DateAndTime, Some(pattern), _) => {
                let rest = pattern.write(text, sql).ok_or(time(DATE))?;
                sql.push_str(rest);
            }
            (Form::Timestamp, _, Some(pattern)) => {
                let rest = pattern.write(text, sql).ok_or(time(TIMESTAMP))?;
                if !rest.trim().is_empty() {
                    return Err(time(TIMESTAMP));
                }
            }
            (Form::Number, ..) => {
                let sign = char::from(self.decimal.unwrap_or(b'.'));
                if text.contains('.') {
                    return Err(Bad::malformed(NUMBER));
                }
                sql.extend(text.chars().map(|own| if own == sign { '.' } else { own }));
            }
            _ => sql.push_str(text),
        }
        Ok(())
    }
}

/// What to expect instead of `text`, which is no value of its type as SQL writes it, where an option could tell its
/// form.
pub(super) fn expected_with_option(
    column_type: &ColumnType,
    text: &str,
    fault: ValueFault,
) -> Option<&'static str> {
    use ValueFault::{Malformed, MalformedTime, TimeOutOfRange};
    // A day that there is not, in the form that is expected.
    let is_year_first =
        text.trim_start().split('-').next().is_some_and(|year| {
            year.len() == 4 && year.bytes().all(|digit| digit.is_ascii_digit())
        });
    if !matches!(fault, Malformed | MalformedTime | TimeOutOfRange)
        || (fault == TimeOutOfRange && is_year_first)
    {
        return None;
    }
    let is_number =
        matches!(column_type, ColumnType::Real | ColumnType::Double | ColumnType::Numeric { .. });
    match column_type {
        ColumnType::Date => Some(
            "a date as YYYY-MM-DD; the option DATEFORMAT says another form, as in DATEFORMAT '%d.%m.%Y'",
        ),
        ColumnType::Timestamp | ColumnType::TimestampTz => Some(
            "a timestamp as YYYY-MM-DD HH:MM:SS; the options DATEFORMAT and TIMESTAMPFORMAT say another form, as in \
             DATEFORMAT '%d.%m.%Y'",
        ),
        _ if is_number && text.contains(',') => Some(
            "a number with a point before its fraction; the option DECIMAL_SEPARATOR says another sign",
        ),
        _ => None,
    }
}

/// The form of a date or timestamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimePattern {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// This character.
    Sign(char),
    /// Any blanks.
    Blanks,
    Year,
    YearOfCentury,
    Month,
    MonthName,
    Day,
    Hour,
    HalfDayHour,
    HalfDay,
    Minute,
    Second,
    Fraction,
    Zone,
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// What was read of a text.
#[derive(Default)]
struct Fields<'a> {
    year: Option<u32>,
    month: Option<u32>,
    day: Option<u32>,
    hour: Option<u32>,
    minute: u32,
    second: u32,
    fraction: &'a str,
    is_afternoon: Option<bool>,
    zone: &'a str,
}

impl TimePattern {
    /// The pattern that `option` has with the value `text`; `with_time`: it may say hours.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a code that there is not, and for a pattern without year, month or day.
    pub fn new(option: &str, text: &str, with_time: bool) -> Result<Self> {
        let fault =
            |message: String| Error::Invalid { message, fault: Fault::Parameter, position: None };
        let mut parts = Vec::new();
        let mut signs = text.chars();
        while let Some(sign) = signs.next() {
            match sign {
                '%' => match signs.next() {
                    Some('Y') => parts.push(Part::Year),
                    Some('y') => parts.push(Part::YearOfCentury),
                    Some('m') => parts.push(Part::Month),
                    Some('b' | 'B') => parts.push(Part::MonthName),
                    Some('d' | 'e') => parts.push(Part::Day),
                    Some('F') => parts.extend([
                        Part::Year,
                        Part::Sign('-'),
                        Part::Month,
                        Part::Sign('-'),
                        Part::Day,
                    ]),
                    Some('%') => parts.push(Part::Sign('%')),
                    Some('H') if with_time => parts.push(Part::Hour),
                    Some('I') if with_time => parts.push(Part::HalfDayHour),
                    Some('p') if with_time => parts.push(Part::HalfDay),
                    Some('M') if with_time => parts.push(Part::Minute),
                    Some('S') if with_time => parts.push(Part::Second),
                    Some('f') if with_time => parts.push(Part::Fraction),
                    Some('z') if with_time => parts.push(Part::Zone),
                    Some('T') if with_time => parts.extend([
                        Part::Hour,
                        Part::Sign(':'),
                        Part::Minute,
                        Part::Sign(':'),
                        Part::Second,
                    ]),
                    other => {
                        let code = other.map(String::from).unwrap_or_default();
                        let known = match with_time {
                            true => "%Y %y %m %b %d %F %H %I %p %M %S %f %z %T %%",
                            false => "%Y %y %m %b %d %F %%",
                        };
                        return Err(fault(format!("{option}: %{code} is none of {known}")));
                    }
                },
                sign if sign.is_whitespace() => parts.push(Part::Blanks),
                sign => parts.push(Part::Sign(sign)),
            }
        }
        let has = |wanted: &[Part]| parts.iter().any(|part| wanted.contains(part));
        let is_whole = has(&[Part::Year, Part::YearOfCentury])
            && has(&[Part::Month, Part::MonthName])
            && has(&[Part::Day]);
        if !is_whole {
            let example = if with_time { "%d.%m.%Y %H:%M:%S" } else { "%d.%m.%Y" };
            return Err(fault(format!(
                "{option}: '{text}' does not say year, month and day; write it as in '{example}'"
            )));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// The pattern as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Appends what `text` says to `sql`, as SQL writes it, and returns what is behind it; None: it is not of this
    /// form.
    fn write<'a>(&self, text: &'a str, sql: &mut String) -> Option<&'a str> {
        let mut fields = Fields::default();
        let mut rest = text.trim_start();
        for part in &self.parts {
            rest = read_part(*part, rest, &mut fields)?;
        }
        let (year, month, day) = (fields.year?, fields.month?, fields.day?);
        // Writing to a String does not fail.
        let _written = write!(sql, "{year:04}-{month:02}-{day:02}");
        if let Some(hour) = fields.hour {
            let hour = match fields.is_afternoon {
                Some(is_afternoon) if (1..=12).contains(&hour) => {
                    hour % 12 + if is_afternoon { 12 } else { 0 }
                }
                Some(_) => return None,
                None => hour,
            };
            let _written = write!(sql, " {hour:02}:{:02}:{:02}", fields.minute, fields.second);
            if !fields.fraction.is_empty() {
                sql.push('.');
                sql.push_str(fields.fraction);
            }
            sql.push_str(fields.zone);
        }
        Some(rest)
    }
}

/// Reads `part` at the start of `text`; returns what is behind it.
fn read_part<'a>(part: Part, text: &'a str, fields: &mut Fields<'a>) -> Option<&'a str> {
    match part {
        Part::Sign(sign) => return text.strip_prefix(sign),
        Part::Blanks => return Some(text.trim_start()),
        Part::MonthName => {
            let length = text.find(|own: char| !own.is_ascii_alphabetic()).unwrap_or(text.len());
            let (name, rest) = text.split_at(length);
            let name = name.to_ascii_lowercase();
            let is_it = |month: &str| month == name || month.get(..3) == Some(name.as_str());
            let place = MONTHS.iter().position(|month| is_it(month))?;
            fields.month = u32::try_from(place + 1).ok();
            return Some(rest);
        }
        Part::HalfDay => {
            let (half, rest) = text.split_at_checked(2)?;
            fields.is_afternoon = match half.to_ascii_lowercase().as_str() {
                "am" => Some(false),
                "pm" => Some(true),
                _ => return None,
            };
            return Some(rest);
        }
        Part::Zone => {
            let is_of_it = |own: char| own.is_ascii_digit() || matches!(own, '+' | '-' | ':');
            let length = match text.starts_with(['Z', 'z']) {
                true => 1,
                false => text.find(|own| !is_of_it(own)).unwrap_or(text.len()),
            };
            let (zone, rest) = text.split_at(length);
            fields.zone = zone;
            return (length > 0).then_some(rest);
        }
        Part::Year
        | Part::YearOfCentury
        | Part::Month
        | Part::Day
        | Part::Hour
        | Part::HalfDayHour
        | Part::Minute
        | Part::Second
        | Part::Fraction => {}
    }
    let digits_max = match part {
        Part::Year => 4,
        Part::Fraction => 9,
        _ => 2,
    };
    // A day may have a blank in the place of its first digit.
    let text = text.trim_start_matches(' ');
    let length = text.bytes().take(digits_max).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(length)?;
    let number = digits.parse::<u32>().ok()?;
    match part {
        Part::Year if length == 4 => fields.year = Some(number),
        Part::YearOfCentury if length == 2 => {
            fields.year = Some(if number < 69 { 2000 + number } else { 1900 + number });
        }
        Part::Month => fields.month = Some(number),
        Part::Day => fields.day = Some(number),
        Part::Hour | Part::HalfDayHour => fields.hour = Some(number),
        Part::Minute => fields.minute = number,
        Part::Second => fields.second = number,
        Part::Fraction => fields.fraction = digits.get(..length.min(6))?,
        _ => return None,
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(pattern: &str, text: &str) -> Option<String> {
        let pattern = TimePattern::new("TIMESTAMPFORMAT", pattern, true).unwrap();
        let forms = ValueForms { timestamp: Some(pattern), ..ValueForms::default() };
        let mut sql = String::new();
        forms.write(Form::Timestamp, text, &mut sql).ok().map(|()| sql)
    }

    #[test]
    fn a_pattern_reads_what_it_says_and_nothing_else() {
        for (pattern, text, expected) in [
            ("%d.%m.%Y", "31.01.2024", Some("2024-01-31")),
            ("%d.%m.%Y", "1.2.2024", Some("2024-02-01")),
            ("%m/%d/%y", "12/31/68", Some("2068-12-31")),
            ("%m/%d/%y", "12/31/69", Some("1969-12-31")),
            ("%e %b %Y", " 3 March 2024", Some("2024-03-03")),
            ("%b %d, %Y", "Mar 13, 2024", Some("2024-03-13")),
            ("%d.%m.%Y %H:%M", "31.01.2024 7:05", Some("2024-01-31 07:05:00")),
            (
                "%FT%T.%f%z",
                "2024-01-31T07:05:09.123456789+02",
                Some("2024-01-31 07:05:09.123456+02"),
            ),
            ("%F %I:%M %p", "2024-01-31 12:05 am", Some("2024-01-31 00:05:00")),
            ("%F %I:%M %p", "2024-01-31 12:05 PM", Some("2024-01-31 12:05:00")),
            ("%F %I:%M %p", "2024-01-31 13:05 PM", None),
            ("%d.%m.%Y", "31.01.24", None),
            ("%d.%m.%Y", "2024-01-31", None),
            ("%d.%m.%Y", "31.01.2024x", None),
            ("%d.%m.%Y", "", None),
            ("%d. %B %Y", "31. Brumaire 2024", None),
            ("%d.%m.%Y", "ü", None),
            ("%F%p", "2024-01-31ü", None),
        ] {
            assert_eq!(timestamp(pattern, text).as_deref(), expected, "{pattern}: {text}");
        }
        for (pattern, part) in [
            ("%Q", "%Q is none of"),
            ("%d.%m", "year, month and day"),
            ("%", "is none of"),
            ("%d.%m.%Y %H", "%H is none of"),
        ] {
            let error = TimePattern::new("DATEFORMAT", pattern, false).unwrap_err().to_string();
            assert!(error.contains(part), "{pattern}: {error}");
        }
    }

    #[test]
    fn a_date_may_have_a_time_behind_it_and_a_number_its_own_sign() {
        let date = TimePattern::new("DATEFORMAT", "%d.%m.%Y", false).ok();
        let forms = ValueForms { date, decimal: Some(b','), ..ValueForms::default() };
        let written = |form: Form, text: &str| {
            let mut sql = String::new();
            forms.write(form, text, &mut sql).ok().map(|()| sql)
        };
        let numeric = ColumnType::Numeric { precision: 10, scale: 2 };
        for (column_type, text, expected) in [
            (ColumnType::Timestamp, "31.01.2024 10:00", Some("2024-01-31 10:00")),
            (ColumnType::Date, "31.01.2024 ", Some("2024-01-31")),
            (ColumnType::Date, "31.01.2024 10:00", None),
            (numeric, "-1,5", Some("-1.5")),
            (numeric, "1.5", None),
            (ColumnType::Int, "1.5", Some("1.5")),
            (ColumnType::Text, "1,5", Some("1,5")),
        ] {
            let form = forms.of(&column_type);
            assert_eq!(written(form, text).as_deref(), expected, "{column_type} {text}");
        }
    }
}
