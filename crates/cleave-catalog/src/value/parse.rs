//! Parses text to one value of a SQL type, by PostgreSQL's input rules.
//!
//! Blanks around a value are ignored for every type but the text types and `bytea`. Numbers round half away
//! from zero to the scale of a `numeric`, times to the microsecond. Dates are read year first (ISO 8601, also
//! `YYYYMMDD` and with slashes), with `BC`, or `infinity`; times on a 24-hour clock; zones as `Z`, `UTC` or an offset.
//!
//! Source: PostgreSQL's manual, "Data Types", and its `numeric_in`, `DecodeDateTime`, `byteain`, `uuid_in`.

use cleave_fragment::functions::infinite::Infinite;

use crate::value::calendar::{days_in_month, days_of};
use crate::value::error::{Bad, ValueFault};

type Parsed<T> = Result<T, Bad>;

const DATE: &str = "a date as YYYY-MM-DD";
const TIME: &str = "a time as HH:MM:SS, with up to six digits after a point";
const TIMESTAMP: &str = "a timestamp as YYYY-MM-DD HH:MM:SS, with up to six digits after a point";
const ZONED: &str = "a timestamp as YYYY-MM-DD HH:MM:SS+00; zones are Z, UTC or an offset";
const DAY_US: i64 = 86_400_000_000;

/// A whole number in decimal digits, within the bounds of `T`.
pub fn integer<T: std::str::FromStr<Err = std::num::ParseIntError>>(
    text: &str,
    expected: &'static str,
) -> Parsed<T> {
    use std::num::IntErrorKind;
    let trimmed = trim(text);
    trimmed.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => Bad::out_of_range(expected),
        _ => Bad::malformed(expected),
    })
}

/// `real`: a number that is neither too large nor too small for 32 bits.
pub fn real(text: &str) -> Parsed<f32> {
    let value: f32 = float(text)?;
    if value.is_infinite() || value == 0.0 {
        range_of_float(text, value != 0.0)?
    }
    Ok(value)
}

/// `double precision`: a number that is neither too large nor too small for 64 bits.
pub fn double(text: &str) -> Parsed<f64> {
    let value: f64 = float(text)?;
    if value.is_infinite() || value == 0.0 {
        range_of_float(text, value != 0.0)?
    }
    Ok(value)
}

fn float<T: std::str::FromStr>(text: &str) -> Parsed<T> {
    trim(text)
        .parse()
        .map_err(|_| Bad::malformed("a number such as -1.5e3, NaN, Infinity or -Infinity"))
}

/// Refuses an infinity that is not spelled out, and a zero that is not written with zeros.
fn range_of_float(text: &str, infinite: bool) -> Parsed<()> {
    let mantissa = trim(text).split(['e', 'E']).next().unwrap_or_default();
    let has_digit = |digit: fn(&u8) -> bool| mantissa.bytes().any(|byte| digit(&byte));
    let overflow = infinite && has_digit(u8::is_ascii_digit);
    let underflow = !infinite && has_digit(|byte| matches!(byte, b'1'..=b'9'));
    if overflow || underflow {
        return Err(Bad::out_of_range("a number within the range of the type"));
    }
    Ok(())
}

/// `numeric(precision, scale)`: the number times ten to the scale, rounded half away from zero.
pub fn numeric(text: &str, precision: u8, scale: i8) -> Parsed<i128> {
    const RANGE: Bad =
        Bad::out_of_range("a number with at most the type's digits before its point");
    let Decimal { negative, whole, fraction, exponent } = decimal(text)?;
    let digits = || whole.bytes().chain(fraction.bytes());
    // Digits up to here are kept; the next one decides the rounding.
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let kept = length(whole).saturating_add(exponent).saturating_add(i64::from(scale));
    let mut value: i128 = 0;
    let mut index: i64 = 0;
    let mut round_up = false;
    for digit in digits() {
        if index >= kept {
            round_up = index == kept && digit >= b'5';
            break;
        }
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(i128::from(digit - b'0')))
            .ok_or(RANGE)?;
        index += 1;
    }
    if value != 0 {
        for _ in index..kept.max(index) {
            value = value.checked_mul(10).ok_or(RANGE)?;
        }
    }
    value = value.checked_add(i128::from(round_up)).ok_or(RANGE)?;
    let limit = 10_i128.checked_pow(u32::from(precision)).unwrap_or(i128::MAX);
    if value >= limit {
        return Err(RANGE);
    }
    Ok(if negative { -value } else { value })
}

/// A number in plain digits, as `numeric` writes it: without an exponent, with every digit behind its point.
pub fn digits_of(text: &str) -> Parsed<String> {
    /// The most digits of PostgreSQL's `numeric` before the point.
    const DIGITS_MAX: usize = 131_072;
    let Decimal { negative, whole, fraction, exponent } = decimal(text)?;
    let zeros = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
    if zeros.saturating_add(whole.len()).saturating_add(fraction.len()) > DIGITS_MAX {
        return Err(Bad::out_of_range("a number of at most 131072 digits"));
    }
    let zeros = "0".repeat(zeros);
    let digits = match exponent {
        ..0 => format!("{zeros}{whole}{fraction}"),
        _ => format!("{whole}{fraction}{zeros}"),
    };
    // The point moves to the right past zeros behind the number, or to the left past those before it.
    let point = if exponent < 0 { whole.len() } else { whole.len() + zeros.len() };
    let (whole, behind) = digits.split_at_checked(point).unwrap_or((digits.as_str(), ""));
    let behind = behind.get(..fraction_length(fraction.len(), exponent)).unwrap_or(behind);
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let is_zero = !digits.bytes().any(|digit| digit != b'0');
    let sign = if negative && !is_zero { "-" } else { "" };
    let point = if behind.is_empty() { "" } else { "." };
    Ok(format!("{sign}{whole}{point}{behind}"))
}

/// Digits behind the point of a number that was written with `length` of them and an exponent.
fn fraction_length(length: usize, exponent: i64) -> usize {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    usize::try_from(length.saturating_sub(exponent)).unwrap_or(0)
}

/// The parts of a number in decimal digits.
struct Decimal<'a> {
    negative: bool,
    /// Digits before the point.
    whole: &'a str,
    /// Digits behind it.
    fraction: &'a str,
    /// By how many places the point moves to the right.
    exponent: i64,
}

fn decimal(text: &str) -> Parsed<Decimal<'_>> {
    let malformed = Bad::malformed("a number such as -12.50");
    let text = trim(text);
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if ["nan", "inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word)) {
        let fault = ValueFault::Unsupported;
        return Err(Bad { fault, expected: "a finite number" });
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        None => (unsigned, 0),
        Some((mantissa, exponent)) => {
            let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(malformed);
            }
            // An exponent with too many digits is replaced by this one: beyond every precision.
            let size = digits.parse::<i64>().unwrap_or(i64::MAX).min(1_000_000);
            (mantissa, if exponent.starts_with('-') { -size } else { size })
        }
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = whole.bytes().chain(fraction.bytes());
    if whole.len() + fraction.len() == 0 || !digits.all(|byte| byte.is_ascii_digit()) {
        return Err(malformed);
    }
    Ok(Decimal { negative, whole, fraction, exponent })
}

/// `boolean`: any unambiguous prefix of true, false, yes, no, and on, off, 1, 0.
pub fn boolean(text: &str) -> Parsed<bool> {
    let text = trim(text);
    let begins = |word: &str| {
        !text.is_empty()
            && word.len() >= text.len()
            && word.as_bytes()[..text.len()].eq_ignore_ascii_case(text.as_bytes())
    };
    if begins("true") || begins("yes") || text.eq_ignore_ascii_case("on") || text == "1" {
        Ok(true)
    } else if begins("false")
        || begins("no")
        || text == "0"
        || text.eq_ignore_ascii_case("off")
        || text.eq_ignore_ascii_case("of")
    {
        Ok(false)
    } else {
        Err(Bad::malformed("true, false, t, f, yes, no, on, off, 1 or 0"))
    }
}

/// `date`: days since 1970-01-01. A time of day and a zone behind it are read and ignored, as in PostgreSQL.
pub fn date(text: &str) -> Parsed<i32> {
    if let Some(infinite) = Infinite::of_text(text) {
        return Ok(infinite.days());
    }
    if trim(text).eq_ignore_ascii_case("epoch") {
        return Ok(0);
    }
    let (days, _, _) = days_time_and_zone(trim(text), DATE)?;
    i32::try_from(days).map_err(|_| Bad::time_out_of_range(DATE))
}

/// `time without time zone`: microseconds since midnight, 24:00:00 included.
pub fn time(text: &str) -> Parsed<i64> {
    let mut scan = Scan::new(trim(text));
    let time = scan.time(TIME)?;
    scan.end(TIME)?;
    if time > DAY_US {
        return Err(Bad::time_out_of_range(TIME));
    }
    Ok(time)
}

/// `timestamp without time zone`: microseconds since 1970-01-01T00:00:00. A zone is read and ignored, as in
/// PostgreSQL.
pub fn timestamp(text: &str) -> Parsed<i64> {
    timestamp_and_zone(text, TIMESTAMP).map(|(timestamp, _)| timestamp)
}

/// `timestamp with time zone`: microseconds since 1970-01-01T00:00:00Z. Without a zone it is UTC.
pub fn timestamp_tz(text: &str) -> Parsed<i64> {
    let (timestamp, zone) = timestamp_and_zone(text, ZONED)?;
    if Infinite::of_micros(timestamp).is_some() {
        return Ok(timestamp);
    }
    timestamp.checked_sub(zone).ok_or(Bad::time_out_of_range(ZONED))
}

fn timestamp_and_zone(text: &str, expected: &'static str) -> Parsed<(i64, i64)> {
    let text = trim(text);
    if text.eq_ignore_ascii_case("epoch") {
        return Ok((0, 0));
    }
    if let Some(infinite) = Infinite::of_text(text) {
        return Ok((infinite.micros(), 0));
    }
    let (days, time, zone) = days_time_and_zone(text, expected)?;
    let timestamp = days.checked_mul(DAY_US).and_then(|start| start.checked_add(time));
    timestamp.map(|timestamp| (timestamp, zone)).ok_or(Bad::time_out_of_range(expected))
}

/// Days since 1970-01-01, microseconds since midnight, and those that the zone is ahead of UTC.
fn days_time_and_zone(text: &str, expected: &'static str) -> Parsed<(i64, i64, i64)> {
    let mut scan = Scan::new(text);
    let (year, month, day) = scan.date(expected)?;
    let mut time = 0;
    let separated = scan.blanks() || scan.take(b'T') || scan.take(b't');
    if separated && scan.peek().is_some_and(|byte| byte.is_ascii_digit()) {
        time = scan.time(expected)?;
        if time > DAY_US {
            return Err(Bad::time_out_of_range(expected));
        }
    }
    let _ = scan.blanks();
    let zone = scan.zone(expected)?;
    let before_christ = scan.before_christ();
    scan.end(expected)?;
    Ok((civil_days(year, month, day, before_christ, expected)?, time, zone))
}

fn civil_days(
    year: i64,
    month: i64,
    day: i64,
    before_christ: bool,
    expected: &'static str,
) -> Parsed<i64> {
    if year == 0 {
        return Err(Bad::time_out_of_range(expected));
    }
    let year = if before_christ { 1 - year } else { year };
    // PostgreSQL's dates end in the year 5874897.
    if !(1..=12).contains(&month)
        || !(1..=days_in_month(year, month)).contains(&day)
        || !(-4712..=5_874_897).contains(&year)
    {
        return Err(Bad::time_out_of_range(expected));
    }
    Ok(days_of(year, month, day))
}

/// `bytea`: `\x` and hexadecimal digits, or PostgreSQL's older escape format (`\\`, `\ooo`).
pub fn bytea(text: &str) -> Parsed<Vec<u8>> {
    const EXPECTED: &str = "\\x and pairs of hexadecimal digits";
    let Some(digits) = text.strip_prefix("\\x") else {
        return escaped_bytes(text);
    };
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    let mut high = None;
    for digit in digits.bytes() {
        match (high, hex_digit(digit)) {
            (None, None) if digit.is_ascii_whitespace() => {}
            (_, None) => return Err(Bad::malformed(EXPECTED)),
            (None, Some(value)) => high = Some(value),
            (Some(first), Some(value)) => {
                bytes.push(first << 4 | value);
                high = None;
            }
        }
    }
    if high.is_some() {
        return Err(Bad::malformed(EXPECTED));
    }
    Ok(bytes)
}

fn escaped_bytes(text: &str) -> Parsed<Vec<u8>> {
    let malformed = Bad::malformed("\\x and hexadecimal digits, or text with \\\\ and \\ooo");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match tail {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => return Err(malformed),
        }
    }
    Ok(bytes)
}

/// `uuid`: 32 hexadecimal digits, a hyphen after any group of four, braces around all.
pub fn uuid(text: &str) -> Parsed<[u8; 16]> {
    let malformed = Bad::malformed("a UUID such as a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
    let text = trim(text);
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let mut bytes = [0_u8; 16];
    let mut count = 0;
    let mut hyphen_allowed = false;
    for digit in text.bytes() {
        if digit == b'-' && hyphen_allowed {
            hyphen_allowed = false;
            continue;
        }
        let value = hex_digit(digit).ok_or(malformed)?;
        let byte = bytes.get_mut(count / 2).ok_or(malformed)?;
        *byte = *byte << 4 | value;
        count += 1;
        hyphen_allowed = count % 4 == 0 && count < 32;
    }
    if count == 32 && !text.ends_with('-') { Ok(bytes) } else { Err(malformed) }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The text without surrounding blanks, as defined by C's `isspace`.
pub fn trim(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_ascii_whitespace() || character == '\x0b')
}

/// A reader of digits and separators from left to right.
pub(crate) struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { rest: text.as_bytes() }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    pub(crate) fn take(&mut self, mark: u8) -> bool {
        match self.rest {
            [first, tail @ ..] if *first == mark => {
                self.rest = tail;
                true
            }
            _ => false,
        }
    }

    fn blanks(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_ascii_start();
        self.rest.len() < before
    }

    pub(crate) fn end(&self, expected: &'static str) -> Parsed<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Bad::no_time(expected)) }
    }

    /// A number of at most `count_max` digits, with its count of digits; None where there is no digit.
    pub(crate) fn digits(&mut self, count_max: usize) -> Option<(i64, usize)> {
        let count =
            self.rest.iter().take(count_max).take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, tail) = self.rest.split_at_checked(count)?;
        let value = digits.iter().fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        self.rest = tail;
        (count > 0).then_some((value, count))
    }

    fn number(&mut self, count_max: usize, expected: &'static str) -> Parsed<i64> {
        self.digits(count_max).map(|(value, _)| value).ok_or(Bad::no_time(expected))
    }

    fn date(&mut self, expected: &'static str) -> Parsed<(i64, i64, i64)> {
        let special = ["now", "today", "tomorrow", "yesterday"];
        if special.iter().any(|word| self.rest.eq_ignore_ascii_case(word.as_bytes())) {
            return Err(Bad { fault: ValueFault::Unsupported, expected });
        }
        let (year, count) = self.digits(8).ok_or(Bad::no_time(expected))?;
        let separator = match self.peek() {
            Some(mark @ (b'-' | b'/')) => mark,
            _ if count == 8 => return Ok((year / 10_000, year / 100 % 100, year % 100)),
            _ => return Err(Bad::no_time(expected)),
        };
        // Fewer digits could also be a day or a month: PostgreSQL would have to guess by DateStyle.
        if !(4..=7).contains(&count) {
            return Err(Bad::no_time(expected));
        }
        self.take(separator);
        let month = self.number(2, expected)?;
        if !self.take(separator) {
            return Err(Bad::no_time(expected));
        }
        let day = self.number(2, expected)?;
        if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(Bad::no_time(expected));
        }
        Ok((year, month, day))
    }

    /// `HH:MM[:SS[.digits]]` in microseconds.
    fn time(&mut self, expected: &'static str) -> Parsed<i64> {
        let hour = self.number(2, expected)?;
        if !self.take(b':') {
            return Err(Bad::no_time(expected));
        }
        let minute = self.number(2, expected)?;
        let mut second = 0;
        let mut fraction = 0;
        if self.take(b':') {
            second = self.number(2, expected)?;
            if self.take(b'.') {
                fraction = self.fraction_us();
            }
        }
        if hour > 24 || minute > 59 || second > 60 {
            return Err(Bad::time_out_of_range(expected));
        }
        Ok(((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction)
    }

    /// Digits after a point as microseconds, rounded; none are zero.
    pub(crate) fn fraction_us(&mut self) -> i64 {
        let mut value = match self.digits(6) {
            Some((digits, count)) => (count..6).fold(digits, |digits, _| digits * 10),
            None => 0,
        };
        value += i64::from(self.peek().is_some_and(|digit| (b'5'..=b'9').contains(&digit)));
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        value
    }

    /// A zone's offset from UTC in microseconds; no zone is UTC.
    fn zone(&mut self, expected: &'static str) -> Parsed<i64> {
        let word = |text: &[u8], word: &str| {
            text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
        };
        for name in ["utc", "gmt", "z"] {
            if word(self.rest, name) {
                self.rest = self.rest.get(name.len()..).unwrap_or_default();
                return Ok(0);
            }
        }
        let sign = match self.peek() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Ok(0),
        };
        self.rest = self.rest.get(1..).unwrap_or_default();
        let (first, count) = self.digits(4).ok_or(Bad::no_time(expected))?;
        let (hour, mut minute) = if count > 2 { (first / 100, first % 100) } else { (first, 0) };
        let mut second = 0;
        if count <= 2 && self.take(b':') {
            minute = self.number(2, expected)?;
            if self.take(b':') {
                second = self.number(2, expected)?;
            }
        }
        if hour > 15 || minute > 59 || second > 59 {
            return Err(Bad::time_out_of_range(expected));
        }
        Ok(sign * ((hour * 60 + minute) * 60 + second) * 1_000_000)
    }

    fn before_christ(&mut self) -> bool {
        let trimmed = self.rest.trim_ascii_start();
        let found = trimmed.eq_ignore_ascii_case(b"bc");
        if found {
            self.rest = &[];
        }
        found
    }
}

#[cfg(test)]
mod tests;
