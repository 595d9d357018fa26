//! Parses text to one value of a SQL type, by PostgreSQL's input rules.
//!
//! Blanks around a value are ignored for every type but the text types and `bytea`. Numbers round half away
//! from zero to the scale of a `numeric`. Dates and times are read by [`time_text`], as casts read them.
//!
//! Source: PostgreSQL's manual, "Data Types", and its `numeric_in`, `byteain`, `uuid_in`.

use arrow::datatypes::i256;
use cleave_fragment::functions::time_text;
pub use cleave_fragment::functions::time_text::trim;
use cleave_store::NUMERIC_DEFAULT_SCALE;

use crate::value::error::{Bad, ValueFault};

type Parsed<T> = Result<T, Bad>;

const DATE: &str = "a date as YYYY-MM-DD";
const TIME: &str = "a time as HH:MM:SS, with up to six digits after a point";
const TIMESTAMP: &str = "a timestamp as YYYY-MM-DD HH:MM:SS, with up to six digits after a point";
const ZONED: &str = "a timestamp as YYYY-MM-DD HH:MM:SS+00; zones are Z, UTC or an offset";

/// Most digits of a number that is read without a look at how else it could be written.
const PLAIN_DIGITS_MAX: usize = 18;
/// Powers of ten, each of which is also a `double precision`.
const TENS: [u64; PLAIN_DIGITS_MAX + 1] = {
    let mut tens = [1; PLAIN_DIGITS_MAX + 1];
    let mut place = 1;
    while place < tens.len() {
        tens[place] = tens[place - 1] * 10;
        place += 1;
    }
    tens
};
/// Whole numbers up to here are `double precision`, each of them.
const EXACT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;

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

/// `real`: a number that is neither too large nor too small for 32 bits. There is one NaN.
pub fn real(text: &str) -> Parsed<f32> {
    let value: f32 = float(text)?;
    if value.is_nan() {
        return Ok(f32::NAN);
    }
    if value.is_infinite() || value == 0.0 {
        range_of_float(text, value != 0.0)?
    }
    Ok(value)
}

/// `double precision`: a number that is neither too large nor too small for 64 bits.
///
/// Of few digits, both the digits and the power of ten that divides them are exact. So their quotient is the number
/// that is nearest to the text (W. D. Clinger, "How to Read Floating Point Numbers Accurately").
pub fn double(text: &str) -> Parsed<f64> {
    if let Some(Plain { negative, digits, fraction }) = plain(text)
        && digits <= EXACT_MAX
        && let Some(power) = TENS.get(fraction)
    {
        let value = digits as f64 / *power as f64;
        return Ok(if negative { -value } else { value });
    }
    let value: f64 = float(text)?;
    if value.is_nan() {
        return Ok(f64::NAN);
    }
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
    let limit = || match TENS.get(usize::from(precision)) {
        Some(limit) => i128::from(*limit),
        None => 10_i128.checked_pow(u32::from(precision)).unwrap_or(i128::MAX),
    };
    if let Some(Plain { negative, digits, fraction }) = plain(text)
        && let Some(zeros) = usize::try_from(scale).ok().and_then(|all| all.checked_sub(fraction))
        && let Some(power) = TENS.get(zeros)
    {
        let value = i128::from(digits) * i128::from(*power);
        return match value < limit() {
            true => Ok(if negative { -value } else { value }),
            false => Err(RANGE),
        };
    }
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
    if value >= limit() {
        return Err(RANGE);
    }
    Ok(if negative { -value } else { value })
}

/// `numeric` without a precision: the number times ten to the [scale](NUMERIC_DEFAULT_SCALE) of the type, exactly.
pub fn any_numeric(text: &str) -> Parsed<i256> {
    /// Digits before the point, and as many behind it.
    const BEHIND: u32 = NUMERIC_DEFAULT_SCALE.unsigned_abs() as u32;
    const RANGE: Bad =
        Bad::out_of_range("a number with at most 38 digits before its point and 38 behind it");
    let ten = i256::from_i128(10);
    if let Some(Plain { negative, digits, fraction }) = plain(text) {
        let zeros = BEHIND.saturating_sub(u32::try_from(fraction).unwrap_or(BEHIND));
        let value = i256::from_i128(digits.into()).wrapping_mul(ten.wrapping_pow(zeros));
        return Ok(if negative { value.wrapping_neg() } else { value });
    }
    let Decimal { negative, whole, fraction, exponent } = decimal(text)?;
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let Some(first) = digits.iter().position(|digit| *digit != b'0') else { return Ok(i256::ZERO) };
    let last = digits.iter().rposition(|digit| *digit != b'0').unwrap_or(first);
    let place = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
    // The point is behind so many of the digits.
    let point = place(whole.len()).saturating_add(exponent);
    let zeros = point.saturating_add(BEHIND.into()).saturating_sub(place(last + 1));
    if point.saturating_sub(place(first)) > BEHIND.into() || zeros < 0 {
        return Err(RANGE);
    }
    let zeros = usize::try_from(zeros).map_err(|_| RANGE)?;
    let digits = digits.get(first..=last).unwrap_or_default().iter().copied();
    let digits = digits.chain(std::iter::repeat_n(b'0', zeros));
    let value = digits.fold(i256::ZERO, |value, digit| {
        // At most 76 digits.
        value.wrapping_mul(ten).wrapping_add(i256::from_i128(i128::from(digit - b'0')))
    });
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// A number of few digits, without an exponent and without blanks around it.
struct Plain {
    negative: bool,
    /// All of its digits, as a whole number.
    digits: u64,
    /// How many of them are behind the point.
    fraction: usize,
}

/// The parts of `text`, if it is one.
fn plain(text: &str) -> Option<Plain> {
    let (negative, unsigned) = match text.as_bytes() {
        [b'-', unsigned @ ..] => (true, unsigned),
        all => (false, all),
    };
    if unsigned.len() > PLAIN_DIGITS_MAX {
        return None;
    }
    let (mut digits, mut count, mut point) = (0_u64, 0_usize, None);
    for byte in unsigned {
        match byte {
            b'0'..=b'9' => {
                digits = digits * 10 + u64::from(byte - b'0');
                count += 1;
            }
            b'.' if point.is_none() => point = Some(count),
            _ => return None,
        }
    }
    let fraction = count - point.unwrap_or(count);
    (count > 0).then_some(Plain { negative, digits, fraction })
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
    time_text::date(text).map_err(|fault| Bad::of_time(fault, DATE))
}

/// `time without time zone`: microseconds since midnight, 24:00:00 included.
pub fn time(text: &str) -> Parsed<i64> {
    time_text::time(text).map_err(|fault| Bad::of_time(fault, TIME))
}

/// `timestamp without time zone`: microseconds since 1970-01-01T00:00:00. A zone is read and ignored, as in
/// PostgreSQL.
pub fn timestamp(text: &str) -> Parsed<i64> {
    time_text::timestamp(text).map_err(|fault| Bad::of_time(fault, TIMESTAMP))
}

/// `timestamp with time zone`: microseconds since 1970-01-01T00:00:00Z. Without a zone it is UTC.
pub fn timestamp_tz(text: &str) -> Parsed<i64> {
    time_text::timestamp_tz(text).map_err(|fault| Bad::of_time(fault, ZONED))
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

#[cfg(test)]
mod tests;
