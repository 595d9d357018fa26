//! Intervals as texts, by PostgreSQL's input rules: months, days and nanoseconds come out.
//!
//! Read: `1 year 2 mons -3 days +04:05:06.7`, `@ 1 day 2 hours ago`, `1-2`, `3 4:05`, `P1Y2M3DT4H5M6S`,
//! `P0001-02-03T04:05:06`. A fraction of a unit goes to the units below it as PostgreSQL does: a month has 30 days, a
//! day 24 hours, and a fraction of a year is rounded to months.
//!
//! The fields of a type (`INTERVAL DAY TO MINUTE`, [`Fields`]) decide what a number without a unit is, and what of the
//! value is kept.
//!
//! Nanoseconds bound an interval's time part to 292 years; PostgreSQL's microseconds reach 292,000.
//!
//! Source: PostgreSQL's manual, "Interval Input", and the order in which its `DecodeInterval` looks at the words.

use arrow::datatypes::IntervalMonthDayNano;

use super::time_text::TimeTextFault;
use super::time_text::TimeTextFault::{Malformed, OutOfRange};

mod iso;
mod words;

use words::{Kind, words};

const BILLION: i128 = 1_000_000_000;
const DAY_NS: i128 = 86_400 * BILLION;

/// The fields of an interval's type; by default all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fields(u8);

/// Their names, the greatest first.
const FIELDS: [&str; 6] = ["year", "month", "day", "hour", "minute", "second"];

impl Fields {
    /// `YEAR`, `DAY TO SECOND` and so on; None: there are no such fields. An empty text is all fields.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        let words: Vec<String> =
            text.split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
        let place = |word: &String| FIELDS.iter().position(|name| name == word);
        let (first, last) = match words.as_slice() {
            [] => return Some(Self(0)),
            [field] => (place(field)?, place(field)?),
            [first, to, last] if to == "to" => (place(first)?, place(last)?),
            _ => return None,
        };
        // Years and months are not mixed with days and what is shorter.
        let is_one_kind = first == last || first < last && (last == 1) == (first == 0);
        is_one_kind.then(|| Self((first..=last).fold(0, |mask, field| mask | 1 << field)))
    }

    fn last(self) -> Option<usize> {
        (0..FIELDS.len()).rev().find(|field| self.0 & 1 << field != 0)
    }

    /// The unit of a number without one: the last field.
    fn unit(self) -> Unit {
        match self.last() {
            Some(0) => Unit::Months(12),
            Some(1) => Unit::Months(1),
            Some(2) => Unit::Days(1),
            Some(3) => Unit::Nanos(3_600 * BILLION),
            Some(4) => Unit::Nanos(60 * BILLION),
            _ => Unit::Nanos(BILLION),
        }
    }

    fn is_minutes_to_seconds(self) -> bool {
        self.0 == 0b11_0000
    }

    /// What of an interval is within these fields, and so many digits behind the point of its seconds.
    #[must_use]
    pub fn within(
        self,
        interval: IntervalMonthDayNano,
        digits: Option<u32>,
    ) -> Option<IntervalMonthDayNano> {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        let cut = |unit: i64| nanoseconds - nanoseconds % unit;
        let kept = match self.last() {
            Some(0) => IntervalMonthDayNano::new(months - months % 12, 0, 0),
            Some(1) => IntervalMonthDayNano::new(months, 0, 0),
            Some(2) => IntervalMonthDayNano::new(months, days, 0),
            Some(3) => IntervalMonthDayNano::new(months, days, cut(HOUR_NS)),
            Some(4) => IntervalMonthDayNano::new(months, days, cut(HOUR_NS / 60)),
            _ => interval,
        };
        let Some(unit) = digits.filter(|digits| *digits < 6).map(|digits| 10_i64.pow(9 - digits))
        else {
            return Some(kept);
        };
        let half = kept.nanoseconds.signum() * (unit / 2);
        let nanos = kept.nanoseconds.checked_add(half)?;
        Some(IntervalMonthDayNano::new(kept.months, kept.days, nanos - nanos % unit))
    }
}

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
    parse_in(text, Fields::default(), false)
}

/// An interval of a type with `fields`. As the SQL standard has it, a minus before the first field alone `is_of_all`.
///
/// # Errors
/// The text is no interval.
pub fn parse_in(
    text: &str,
    fields: Fields,
    is_of_all: bool,
) -> Result<IntervalMonthDayNano, TimeTextFault> {
    match Sum::of_words(text, fields, is_of_all) {
        Err(Malformed) => Sum::of_iso(text)?.checked(),
        sum => sum?.checked(),
    }
}

impl Sum {
    /// Numbers, units and times, from the last to the first: a unit stands behind its number.
    fn of_words(text: &str, fields: Fields, is_of_all: bool) -> Result<Self, TimeTextFault> {
        let words = words(text).ok_or(Malformed)?;
        let is_signed = |word: &str| word.starts_with(['-', '+']);
        let is_negative = is_of_all
            && words.first().is_some_and(|(_, word)| word.starts_with('-'))
            && !words.iter().skip(1).any(|(_, word)| is_signed(word));
        let mut sum = Self::default();
        let mut unit: Option<Unit> = None;
        let (mut is_before, mut is_behind_ago) = (false, false);
        let mut seen = 0;
        for (kind, word) in words.iter().rev() {
            match kind {
                Kind::Word => {
                    is_behind_ago = *word == "ago";
                    is_before |= is_behind_ago;
                    unit = match self::unit(word) {
                        None if !is_behind_ago => return Err(Malformed),
                        found => found,
                    };
                }
                Kind::Time => {
                    let nanos = clock(word, fields)?;
                    // As in PostgreSQL, fractions of units behind it are lost.
                    sum.nanos = if is_negative { -nanos.abs() } else { nanos };
                    see(&mut seen, TIME | HOUR | MINUTE)?;
                    // `3 4:05` is three days and a time.
                    unit = Some(Unit::Days(1));
                    is_behind_ago = false;
                }
                Kind::Number => {
                    if let Some(months) = year_month(word)? {
                        sum.months += if is_negative { -months.abs() } else { months };
                        see(&mut seen, MONTH)?;
                        unit = Some(Unit::Months(1));
                    } else {
                        let own = match unit {
                            None if is_behind_ago => return Err(Malformed),
                            None => fields.unit(),
                            Some(unit) => unit,
                        };
                        // As PostgreSQL.
                        let Decimal(number) = match word.strip_prefix(['-', '+']) {
                            Some(digits) if digits.starts_with('.') => return Err(Malformed),
                            _ => decimal(word)?,
                        };
                        let number = if is_negative { -number.abs() } else { number };
                        sum.add(Decimal(number), own);
                        see(&mut seen, field_of(own, Decimal(number)))?;
                        // As a time, hours have days before them.
                        let is_hours = own == Unit::Nanos(3_600 * BILLION);
                        unit = Some(if is_hours { Unit::Days(1) } else { own });
                    }
                }
            }
        }
        if seen == 0 {
            return Err(Malformed);
        }
        if is_before {
            sum = Self { months: -sum.months, days: -sum.days, nanos: -sum.nanos };
        }
        Ok(sum)
    }

    fn add(&mut self, number: Decimal, unit: Unit) {
        let (whole, fraction) = (number.0 / BILLION, number.0 % BILLION);
        match unit {
            Unit::Months(months @ 1) => {
                self.months += whole * months;
                let days = fraction * 30;
                self.days += days / BILLION;
                self.nanos += in_micros(days % BILLION * DAY_NS / BILLION);
            }
            Unit::Months(months) => {
                self.months += whole * months + rounded(fraction * months, BILLION);
            }
            Unit::Days(days) => {
                let part = fraction * days;
                self.days += whole * days + part / BILLION;
                self.nanos += in_micros(part % BILLION * DAY_NS / BILLION);
            }
            Unit::Nanos(nanos) => self.nanos += in_micros(number.0 * nanos / BILLION),
        }
    }

    fn checked(&self) -> Result<IntervalMonthDayNano, TimeTextFault> {
        let nanos = self.nanos;
        Ok(IntervalMonthDayNano {
            months: i32::try_from(self.months).map_err(|_| OutOfRange)?,
            days: i32::try_from(self.days).map_err(|_| OutOfRange)?,
            nanoseconds: i64::try_from(nanos).map_err(|_| OutOfRange)?,
        })
    }
}

/// Nanoseconds rounded to microseconds, PostgreSQL's precision: half of one is none.
fn in_micros(nanos: i128) -> i128 {
    (nanos + nanos.signum() * 499) / 1_000 * 1_000
}

/// A quotient, half of one rounded to even.
fn rounded(value: i128, by: i128) -> i128 {
    let (whole, rest) = (value / by, (value % by).abs() * 2);
    let is_up = rest > by || rest == by && whole % 2 != 0;
    whole + if is_up { value.signum() } else { 0 }
}

const MONTH: u32 = 1;
const MINUTE: u32 = 1 << 1;
const HOUR: u32 = 1 << 2;
const SECOND: u32 = 1 << 3;
/// Seconds, with their thousandths and millionths.
const TIME: u32 = SECOND | 1 << 4 | 1 << 5;

/// The bits of a number's field, none of which may come twice.
fn field_of(unit: Unit, Decimal(number): Decimal) -> u32 {
    match unit {
        Unit::Nanos(1_000) => 1 << 4,
        Unit::Nanos(1_000_000) => 1 << 5,
        Unit::Nanos(BILLION) if number % BILLION == 0 => SECOND,
        Unit::Nanos(BILLION) => TIME,
        Unit::Nanos(nanos) if nanos == 60 * BILLION => MINUTE,
        Unit::Nanos(_) => HOUR,
        Unit::Days(1) => 1 << 6,
        Unit::Days(_) => 1 << 7,
        Unit::Months(1) => MONTH,
        Unit::Months(12) => 1 << 8,
        Unit::Months(120) => 1 << 9,
        Unit::Months(1_200) => 1 << 10,
        Unit::Months(_) => 1 << 11,
    }
}

fn see(seen: &mut u32, found: u32) -> Result<(), TimeTextFault> {
    if *seen & found != 0 {
        return Err(Malformed);
    }
    *seen |= found;
    Ok(())
}

/// `[+-]digits[.digits]` with at most 18 digits before the point.
fn decimal(text: &str) -> Result<Decimal, TimeTextFault> {
    let (sign, digits) = signed(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !all_digits || whole.len() + fraction.len() == 0 {
        return Err(Malformed);
    }
    let whole = whole.trim_start_matches('0');
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

/// `[+-]years-months` in months; None: it has no such form.
fn year_month(text: &str) -> Result<Option<i128>, TimeTextFault> {
    let (sign, digits) = signed(text);
    let Some((years, months)) = digits.split_once('-') else { return Ok(None) };
    let number = |text: &str| match text.is_empty() || text.len() > 10 {
        true => Err(Malformed),
        false => text.parse::<u64>().map(i128::from).map_err(|_| Malformed),
    };
    let (years, months) = (number(years)?, number(months)?);
    match months < 12 {
        true => Ok(Some(sign * (years * 12 + months))),
        false => Err(OutOfRange),
    }
}

/// `[+-]hours:minutes[:seconds[.digits]]` in nanoseconds; hours have no bound of their own. Two parts are minutes and
/// seconds if the fields say so, or the second has a fraction.
fn clock(text: &str, fields: Fields) -> Result<i128, TimeTextFault> {
    let (sign, rest) = signed(text);
    let parts: Vec<&str> = rest.split(':').collect();
    let whole = |text: &str| -> Result<i128, TimeTextFault> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match is_number {
            true if text.len() > 18 => Err(OutOfRange),
            true => text.parse().map_err(|_| Malformed),
            false => Err(Malformed),
        }
    };
    let seconds = |text: &str| match text.starts_with(|first: char| first.is_ascii_digit()) {
        true => decimal(text).map(|number| number.0),
        false => Err(Malformed),
    };
    let (hours, minutes, seconds) = match parts.as_slice() {
        [minute, second] if fields.is_minutes_to_seconds() || second.contains('.') => {
            (0, whole(minute)?, seconds(second)?)
        }
        [hour, minute] => (whole(hour)?, whole(minute)?, 0),
        [hour, minute, second] => (whole(hour)?, whole(minute)?, seconds(second)?),
        _ => return Err(Malformed),
    };
    if minutes > 59 || seconds > 60 * BILLION {
        return Err(OutOfRange);
    }
    let seconds = rounded(seconds, 1_000) * 1_000;
    Ok(sign * ((hours * 60 + minutes) * 60 * BILLION + seconds))
}

fn unit(text: &str) -> Option<Unit> {
    Some(match text {
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
        _ => return None,
    })
}
