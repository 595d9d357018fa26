//! What a value of a text file loses when it is read as one of a type: a column's type and a text in, whether all of it
//! is kept out.
//!
//! COPY reads values as SQL's casts do, which drop a zone that the type does not have, and take `1/2/2024` for the
//! second of January. The columns of a file that no table describes are read more strictly ([`Reading`]): what would
//! be lost or guessed is an error.
//!
//! Nothing here says that the text is a value of the type: whoever parses it does.

use cleave_catalog::value::error::{Bad, ValueFault};
use cleave_catalog::value::parse;
use cleave_store::ColumnType;

/// Digits that a double keeps, whatever they are.
const DOUBLE_DIGITS: usize = 15;
/// Digits by which doubles are told apart.
const DOUBLE_DIGITS_MAX: usize = 17;
/// Digits of a fraction of a second.
const FRACTION_DIGITS: usize = 6;
/// Length of a date that begins with its year.
const DATE_LENGTH: usize = 10;

/// How a column of a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As SQL's casts do.
    AsCast,
    /// The statement gives the type: what the type does not have is no part of a value, and nothing is guessed.
    Given,
    /// The type was inferred: a value comes back as it was written.
    Inferred,
}

/// What is wrong with `text`, which SQL can read as a value of `column_type`; `is_as_sql`: it is in the file as SQL
/// writes it.
pub(super) fn check(
    reading: Reading,
    column_type: &ColumnType,
    text: &str,
    is_as_sql: bool,
) -> Result<(), Bad> {
    let is_kept = match reading {
        Reading::AsCast => true,
        Reading::Given => !is_cut_or_guessed(column_type, text),
        Reading::Inferred => comes_back(column_type, text, is_as_sql),
    };
    if is_kept {
        return Ok(());
    }
    let time = |expected| Bad { fault: ValueFault::MalformedTime, expected };
    let is_dated = || is_year_first(text.trim());
    Err(match column_type {
        ColumnType::BigInt => {
            Bad::malformed("a whole number without a sign or zeros before it that would be lost")
        }
        ColumnType::Double => Bad::malformed(
            "a number that double precision has exactly as it is written, with no zeros or plus sign before it",
        ),
        ColumnType::Boolean => Bad::malformed("true or false"),
        ColumnType::Time => time("a time of day without a zone, which the type does not have"),
        ColumnType::Timestamp if is_dated() && zone_of(text) != Zone::None => time(
            "a timestamp without a zone, which the type does not have: timestamp with time zone does",
        ),
        ColumnType::TimestampTz if is_dated() && zone_of(text) == Zone::None => {
            time("a timestamp with its zone")
        }
        ColumnType::Timestamp | ColumnType::TimestampTz if is_dated() => {
            time("a timestamp with at most six digits behind its seconds")
        }
        ColumnType::Timestamp | ColumnType::TimestampTz => time(
            "a timestamp as YYYY-MM-DD HH:MM:SS; the options DATEFORMAT and TIMESTAMPFORMAT say another form",
        ),
        _ => time(
            "a date as YYYY-MM-DD; the option DATEFORMAT says another form, as in DATEFORMAT '%d.%m.%Y'",
        ),
    })
}

/// Whether `text`, if it is a value of `column_type`, says nothing that the value does not.
pub(super) fn comes_back(column_type: &ColumnType, text: &str, is_as_sql: bool) -> bool {
    let text = text.trim();
    let has_time = || text.contains(':');
    match column_type {
        ColumnType::Boolean => {
            text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
        }
        ColumnType::BigInt => !is_code(text) && text != "-0",
        ColumnType::Double => is_special(text) || is_exact_double(text),
        ColumnType::Date => {
            is_infinity(text)
                || is_year_first(text) && !has_time() && (!is_as_sql || text.len() == DATE_LENGTH)
        }
        ColumnType::Timestamp => {
            let is_whole = || match has_time() {
                true => zone_of(text) == Zone::None && has_short_fraction(text),
                false => text.len() == DATE_LENGTH,
            };
            is_infinity(text) || is_year_first(text) && is_whole()
        }
        ColumnType::TimestampTz => {
            let is_whole = || has_time() && zone_of(text) != Zone::None && has_short_fraction(text);
            is_infinity(text) || is_year_first(text) && is_whole()
        }
        _ => true,
    }
}

/// Whether a value of a type that the statement gives would lose its zone, or is a date of which nothing tells the day
/// from the month.
fn is_cut_or_guessed(column_type: &ColumnType, text: &str) -> bool {
    match column_type {
        ColumnType::Time => zone_of(text) == Zone::Offset,
        ColumnType::Timestamp => is_ambiguous(text) || zone_of(text) == Zone::Offset,
        ColumnType::Date | ColumnType::TimestampTz => is_ambiguous(text),
        _ => false,
    }
}

/// The zone behind a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zone {
    None,
    /// Hours from UTC.
    Offset,
    /// `Z`, or a name.
    Named,
}

fn zone_of(text: &str) -> Zone {
    let Some((_, time)) = text.trim().split_once(':') else { return Zone::None };
    let half = time.len().checked_sub(2).and_then(|at| time.split_at_checked(at));
    let time = match half {
        Some((time, half))
            if half.eq_ignore_ascii_case("am") || half.eq_ignore_ascii_case("pm") =>
        {
            time
        }
        _ => time,
    };
    if time.contains(char::is_alphabetic) {
        Zone::Named
    } else if time.contains(['+', '-']) {
        Zone::Offset
    } else {
        Zone::None
    }
}

/// Whether a timestamp has no more digits behind its seconds than are kept.
fn has_short_fraction(text: &str) -> bool {
    let fraction = text.split_once(':').and_then(|(_, time)| time.split_once('.'));
    let Some((_, fraction)) = fraction else { return true };
    let digits = fraction.bytes().take_while(u8::is_ascii_digit);
    digits.skip(FRACTION_DIGITS).all(|digit| digit == b'0')
}

/// Whether a date begins with its year, and hyphens part it.
fn is_year_first(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits == 4 && bytes.get(4) == Some(&b'-') && bytes.get(7) == Some(&b'-')
}

/// Whether a date is written in numbers of which the first is no year.
fn is_ambiguous(text: &str) -> bool {
    let mut parts = text.trim().split(|sign: char| !sign.is_ascii_digit());
    let first = parts.next().map_or(0, str::len);
    (1..=2).contains(&first)
        && text.trim().as_bytes().get(first).is_some_and(|sign| b"/-. ".contains(sign))
        && parts.next().is_some_and(|second| !second.is_empty())
}

/// Whether a number has signs before its first digit that tell nothing of it: it is a code, as of a post office or a
/// telephone.
fn is_code(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.starts_with('+')
        || digits.starts_with('0') && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit)
}

/// Whether this is what programs write for numbers that are none, or are infinite.
pub(super) fn is_special(text: &str) -> bool {
    let word = text.strip_prefix(['-', '+']).unwrap_or(text);
    matches!(word, "inf" | "Inf" | "INF" | "infinity" | "Infinity" | "INFINITY")
        || matches!(text, "nan" | "NaN" | "NAN")
}

fn is_infinity(text: &str) -> bool {
    matches!(text, "infinity" | "-infinity")
}

/// Whether a number is a double with all digits that are written.
fn is_exact_double(text: &str) -> bool {
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || b".-+eE".contains(byte);
    if is_code(text) || !text.as_bytes().iter().all(is_of_number) {
        return false;
    }
    if text.len() <= DOUBLE_DIGITS {
        return true;
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_start_matches('0').trim_end_matches('0');
    if digits.len() <= DOUBLE_DIGITS {
        return true;
    }
    if digits.len() > DOUBLE_DIGITS_MAX {
        return false;
    }
    let Ok(value) = parse::double(text) else { return false };
    let behind = digits.len() - 1;
    let written = format!("{:.behind$e}", value.abs());
    let written = written.split('e').next().unwrap_or_default();
    written.bytes().filter(u8::is_ascii_digit).eq(digits.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_lost_does_not_come_back() {
        use ColumnType::{BigInt, Boolean, Date, Double, Timestamp, TimestampTz};
        let kept: &[(ColumnType, &[&str])] = &[
            (Boolean, &["true", "FALSE"]),
            (BigInt, &["0", "-7", " 12 "]),
            (Double, &["0.5", "-0", ".5", "1e5", "NaN", "-inf", "Infinity", "0.10000000000000001"]),
            (Double, &["9007199254740992", "123456789012345.6", "1.00000000000000000000"]),
            (Date, &["2024-01-31", "-infinity"]),
            (Timestamp, &["2024-01-31", "2024-01-31T10:00", "2024-01-31 10:00:00.123456000"]),
            (Timestamp, &["2024-01-31 10:00 PM", "infinity"]),
            (TimestampTz, &["2024-01-31 10:00+02", "2024-01-31T10:00:00Z"]),
        ];
        for (column_type, texts) in kept {
            for text in *texts {
                assert!(comes_back(column_type, text, true), "{column_type} {text}");
            }
        }
        let lost: &[(ColumnType, &[&str])] = &[
            (Boolean, &["t", "1", "yes"]),
            (BigInt, &["007", "+7", "-0", "-012"]),
            (
                Double,
                &["007.5", "+1.5", "Nan", "1_000", "9007199254740993", "0.123456789012345678"],
            ),
            (Date, &["1/2/2024", "2024-01-31 10:00", "31.01.2024", "2024-01-31Z"]),
            (Timestamp, &["2024-01-31 10:00+02", "2024-01-31 10:00 EST", "1/2/2024 10:00"]),
            (Timestamp, &["2024-01-31 10:00:00.1234567"]),
            (TimestampTz, &["2024-01-31 10:00", "1/2/2024 10:00+02"]),
        ];
        for (column_type, texts) in lost {
            for text in *texts {
                assert!(!comes_back(column_type, text, true), "{column_type} {text}");
            }
        }
    }

    #[test]
    fn a_given_type_takes_what_it_has_and_guesses_nothing() {
        use ColumnType::{Date, Int, Time, Timestamp, TimestampTz};
        for (column_type, text, is_fine) in [
            (Int, "007", true),
            (Date, "2024-01-31", true),
            (Date, "20240131", true),
            (Date, "31-Jan-2024", true),
            (Timestamp, "31-January-2024 10:00", true),
            (Date, "1/2/2024", false),
            (Date, " 01.02.2024", false),
            (Timestamp, "2024-01-31T10:00:00Z", true),
            (Timestamp, "2024-01-31 10:00+02", false),
            (Timestamp, "1-2-2024 10:00", false),
            (TimestampTz, "2024-01-31 10:00+02", true),
            (Time, "10:00", true),
            (Time, "10:00 PM", true),
            (Time, "10:00+02", false),
            (Time, "10:00:00-05:30", false),
        ] {
            let checked = check(Reading::Given, &column_type, text, true);
            assert_eq!(checked.is_ok(), is_fine, "{column_type} {text}");
            assert!(check(Reading::AsCast, &column_type, text, true).is_ok());
        }
    }
}
