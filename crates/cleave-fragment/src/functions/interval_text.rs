//! Intervals as texts, by PostgreSQL's input rules: months, days and nanoseconds come out.
//!
//! Read: `1 year 2 mons -3 days +04:05:06.7`, `@ 1 day 2 hours ago`, `1-2`, `3 4:05`, `P1Y2M3DT4H5M6S`. A
//! fraction of a unit goes to the units below it as PostgreSQL does: a month has 30 days, a day 24 hours, and
//! a fraction of a year is rounded to months.
//!
//! Nanoseconds bound an interval's time part to 292 years; PostgreSQL's microseconds reach 292,000.
//!
//! Source: PostgreSQL's manual, "Interval Input".

use std::borrow::Cow;

use arrow::datatypes::IntervalMonthDayNano;

use super::time_text::TimeTextFault::{Malformed, OutOfRange};
use super::time_text::{TimeTextFault, trim};

const BILLION: i128 = 1_000_000_000;
const DAY_NS: i128 = 86_400 * BILLION;

/// The sum of the parts before the check against the bounds of the type.
#[derive(Default)]
struct Sum {
    months: i128,
    days: i128,
    nanos: i128,
}

/// A decimal number as billionths, with its sign. Billionths can hold every digit of a microsecond.
#[derive(Clone, Copy)]
struct Decimal(i128);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Months(i128),
    Days(i128),
    Nanos(i128),
}

/// `interval`.
///
/// # Errors
/// The text is no interval.
pub fn parse(text: &str) -> Result<IntervalMonthDayNano, TimeTextFault> {
    let text = trim(text);
    let mut sum = Sum::default();
    if let Some(designators) = text.strip_prefix(['P', 'p']) {
        sum.add_iso(designators)?;
    } else {
        sum.add_words(text)?;
    }
    sum.checked()
}

impl Sum {
    /// Numbers, units and times between blanks.
    fn add_words(&mut self, text: &str) -> Result<(), TimeTextFault> {
        let mut pending: Option<Decimal> = None;
        let mut any = false;
        let joined = with_signs_joined(text);
        let mut words = joined.split_ascii_whitespace().peekable();
        if words.peek() == Some(&"@") {
            words.next();
        }
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case("ago") {
                if words.peek().is_some() || !any {
                    return Err(Malformed);
                }
                // A number before it without a unit: seconds.
                if let Some(number) = pending.take() {
                    self.add(number, Unit::Nanos(BILLION));
                }
                (self.months, self.days, self.nanos) = (-self.months, -self.days, -self.nanos);
                return Ok(());
            }
            any = true;
            if word.contains(':') {
                // `3 4:05` is three days and a time.
                if let Some(number) = pending.take() {
                    self.add(number, Unit::Days(1));
                }
                self.nanos += clock(word)?;
                continue;
            }
            let unit_start =
                word.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(word.len());
            let (number, unit) = word.split_at(unit_start);
            match (number.is_empty(), unit.is_empty(), pending) {
                // A unit after its number.
                (true, false, Some(number)) => {
                    self.add(number, self::unit(unit)?);
                    pending = None;
                }
                // Number and unit in one word.
                (false, false, None) => self.add(decimal(number)?, self::unit(unit)?),
                // A number, whose unit may follow; `1-2` is years and months.
                (false, true, None) => match year_month(number) {
                    Some(months) => self.months += months,
                    None => pending = Some(decimal(number)?),
                },
                _ => return Err(Malformed),
            }
        }
        if let Some(number) = pending {
            self.add(number, Unit::Nanos(BILLION));
        }
        if any { Ok(()) } else { Err(Malformed) }
    }

    /// The part after the P of ISO 8601's format with designators.
    fn add_iso(&mut self, text: &str) -> Result<(), TimeTextFault> {
        let (date, time) = match text.split_once(['T', 't']) {
            Some((_, "")) => return Err(Malformed),
            Some((date, time)) => (date, time),
            None => (text, ""),
        };
        if date.is_empty() && time.is_empty() {
            return Err(Malformed);
        }
        for (part, in_time) in [(date, false), (time, true)] {
            let mut rest = part;
            while let Some(end) = rest.find(|character: char| character.is_ascii_alphabetic()) {
                let (number, tail) = rest.split_at(end);
                let unit = match (tail.as_bytes().first().map(u8::to_ascii_uppercase), in_time) {
                    (Some(b'Y'), false) => Unit::Months(12),
                    (Some(b'M'), false) => Unit::Months(1),
                    (Some(b'W'), false) => Unit::Days(7),
                    (Some(b'D'), false) => Unit::Days(1),
                    (Some(b'H'), true) => Unit::Nanos(3_600 * BILLION),
                    (Some(b'M'), true) => Unit::Nanos(60 * BILLION),
                    (Some(b'S'), true) => Unit::Nanos(BILLION),
                    _ => return Err(Malformed),
                };
                self.add(decimal(number)?, unit);
                rest = tail.get(1..).unwrap_or_default();
            }
            if !rest.is_empty() {
                return Err(Malformed);
            }
        }
        Ok(())
    }

    fn add(&mut self, number: Decimal, unit: Unit) {
        let (whole, fraction) = (number.0 / BILLION, number.0 % BILLION);
        match unit {
            Unit::Months(months @ 1) => {
                self.months += whole * months;
                let days = fraction * 30;
                self.days += days / BILLION;
                self.nanos += days % BILLION * DAY_NS / BILLION;
            }
            Unit::Months(months) => {
                let part = fraction * months;
                let rounded = (part + part.signum() * BILLION / 2) / BILLION;
                self.months += whole * months + rounded;
            }
            Unit::Days(days) => {
                let part = fraction * days;
                self.days += whole * days + part / BILLION;
                self.nanos += part % BILLION * DAY_NS / BILLION;
            }
            Unit::Nanos(nanos) => self.nanos += number.0 * nanos / BILLION,
        }
    }

    fn checked(&self) -> Result<IntervalMonthDayNano, TimeTextFault> {
        // Rounded to microseconds, PostgreSQL's precision.
        let half = self.nanos.signum() * 500;
        let nanos = (self.nanos + half) / 1_000 * 1_000;
        Ok(IntervalMonthDayNano {
            months: i32::try_from(self.months).map_err(|_| OutOfRange)?,
            days: i32::try_from(self.days).map_err(|_| OutOfRange)?,
            nanoseconds: i64::try_from(nanos).map_err(|_| OutOfRange)?,
        })
    }
}

/// `text`, in which a sign that stands alone joins the number behind it, as in `1 month - 1 day`.
fn with_signs_joined(text: &str) -> Cow<'_, str> {
    let is_sign = |word: &str| matches!(word, "-" | "+");
    if !text.split_ascii_whitespace().any(is_sign) {
        return Cow::Borrowed(text);
    }
    let mut joined = String::with_capacity(text.len());
    for word in text.split_ascii_whitespace() {
        joined.push_str(word);
        if !is_sign(word) {
            joined.push(' ');
        }
    }
    Cow::Owned(joined)
}

/// `[+-]digits[.digits]` with at most 18 digits before the point.
fn decimal(text: &str) -> Result<Decimal, TimeTextFault> {
    let (sign, digits) = signed(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !all_digits || whole.len() + fraction.len() == 0 {
        return Err(Malformed);
    }
    if whole.len() > 18 {
        return Err(OutOfRange);
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| Malformed)? };
    let fraction = fraction
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(9)
        .fold(0_i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    Ok(Decimal(sign * (whole * BILLION + fraction)))
}

fn signed(text: &str) -> (i128, &str) {
    match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// `[+-]years-months` in months.
fn year_month(text: &str) -> Option<i128> {
    let (sign, digits) = signed(text);
    let (years, months) = digits.split_once('-')?;
    let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = |text| Some(text).filter(is_number)?.parse::<u32>().ok().map(i128::from);
    let (years, months) = (number(years)?, number(months)?);
    (months < 12).then_some(sign * (years * 12 + months))
}

/// `[+-]hours:minutes[:seconds[.digits]]` in nanoseconds; hours have no bound of their own.
fn clock(text: &str) -> Result<i128, TimeTextFault> {
    let (sign, rest) = signed(text);
    let mut parts = rest.split(':');
    let mut part = |digit_count_max: usize| -> Result<i128, TimeTextFault> {
        let text = parts.next().ok_or(Malformed)?;
        let fits = !text.is_empty() && text.len() <= digit_count_max;
        if !fits || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Malformed);
        }
        text.parse().map_err(|_| Malformed)
    };
    let hours = part(10)?;
    let minutes = part(2)?;
    let seconds = match parts.next() {
        Some(text) if text.starts_with(|first: char| first.is_ascii_digit()) => decimal(text)?.0,
        Some(_) => return Err(Malformed),
        None => 0,
    };
    if parts.next().is_some() {
        return Err(Malformed);
    }
    if minutes > 59 || seconds >= 60 * BILLION {
        return Err(OutOfRange);
    }
    Ok(sign * ((hours * 60 + minutes) * 60 * BILLION + seconds))
}

fn unit(text: &str) -> Result<Unit, TimeTextFault> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => Unit::Nanos(1_000),
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => Unit::Nanos(1_000_000),
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Nanos(BILLION),
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Nanos(60 * BILLION),
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Nanos(3_600 * BILLION),
        "d" | "day" | "days" => Unit::Days(1),
        "w" | "week" | "weeks" => Unit::Days(7),
        "mon" | "mons" | "month" | "months" => Unit::Months(1),
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Months(12),
        "decade" | "decades" | "dec" | "decs" => Unit::Months(120),
        "c" | "cent" | "century" | "centuries" => Unit::Months(1_200),
        "mil" | "mils" | "millennium" | "millennia" => Unit::Months(12_000),
        _ => return Err(Malformed),
    })
}
