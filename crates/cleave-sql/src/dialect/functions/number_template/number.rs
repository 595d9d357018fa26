//! The digits of a number, as many as a template has places for.

use cleave_fragment::functions::ArgumentFault;

use super::NumberTemplate;

/// A number as it is stored: its kind decides how many digits count.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Number<'a> {
    /// `smallint`, `integer` and `bigint`, and the least and greatest of the type.
    Whole(i64, (i64, i64)),
    /// `real` and `double precision`, and the count of its decimal digits.
    Double(f64, usize),
    /// The text of a `numeric`.
    Exact(&'a str),
}

/// What the digit places of a template show.
#[derive(Debug, Default)]
pub(super) struct Picture {
    /// Digits, with a point if the template has digits behind it; `#` if they are too many.
    pub(super) digits: String,
    /// `+`, `-`, or a NUL if it has none.
    pub(super) sign: char,
    /// Digit places before the first digit.
    pub(super) blanks: usize,
    /// Digit places before and behind the point.
    pub(super) before: usize,
    pub(super) behind: usize,
}

impl Picture {
    pub(super) fn of(number: Number<'_>, template: &NumberTemplate) -> Result<Self, ArgumentFault> {
        let shift = if template.has_shift { template.shifted } else { 0 };
        let before = template.before + shift;
        let mut behind = template.behind;
        let text = match number {
            Number::Whole(value, (least, most)) => {
                let power = u32::try_from(shift).ok().and_then(|shift| 10_i64.checked_pow(shift));
                let value = match (value, power) {
                    (0, _) => Some(0),
                    (value, power) => power.and_then(|power| value.checked_mul(power)),
                };
                let value = value.filter(|value| (least..=most).contains(value));
                let Some(value) = value else {
                    let name = if most > i64::from(i32::MAX) { "bigint" } else { "integer" };
                    return Err(ArgumentFault::OutOfRange {
                        reason: format!("{name} out of range"),
                    });
                };
                match behind {
                    0 => value.to_string(),
                    _ => format!("{value}.{}", "0".repeat(behind)),
                }
            }
            Number::Double(value, digits) => {
                let power = i32::try_from(shift).unwrap_or(i32::MAX);
                let value = shifted(value, power, digits);
                let whole = double(value.abs(), 0).len();
                behind = match whole >= digits {
                    true => 0,
                    false => behind.min(digits - whole),
                };
                double(value, behind)
            }
            Number::Exact(text) => rounded(text, shift, behind),
        };
        let (digits, sign) = match text.strip_prefix('-') {
            Some(digits) => (digits, '-'),
            None => (text.as_str(), '+'),
        };
        let whole = digits.find('.').unwrap_or(digits.len());
        if whole > before {
            let digits = format!("{}.{}", "#".repeat(before), "#".repeat(behind));
            return Ok(Self { digits, sign, blanks: 0, before, behind });
        }
        Ok(Self { digits: digits.to_owned(), sign, blanks: before - whole, before, behind })
    }
}

/// A power of ten of a double, computed in its own type.
fn shifted(value: f64, power: i32, digits: usize) -> f64 {
    let value = value * 10_f64.powi(power);
    #[expect(clippy::cast_possible_truncation, reason = "a real becomes a real again")]
    let real = || f64::from(value as f32);
    if digits <= 6 { real() } else { value }
}

/// A double with so many digits behind the point, as C writes it.
fn double(value: f64, behind: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    format!("{value:.behind$}")
}

/// The text of a number, times a power of ten and rounded to so many digits behind the point.
fn rounded(text: &str, shift: usize, behind: usize) -> String {
    let (sign, number) = match text.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", text),
    };
    if !number.starts_with(|letter: char| letter.is_ascii_digit()) {
        return text.to_owned();
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let kept = whole.len() + shift + behind;
    let is_up = digits.get(kept).is_some_and(|digit| *digit >= b'5');
    digits.resize(kept, b'0');
    if is_up {
        match digits.iter().rposition(|digit| *digit != b'9') {
            Some(last) => {
                digits.iter_mut().skip(last + 1).for_each(|digit| *digit = b'0');
                digits.iter_mut().skip(last).take(1).for_each(|digit| *digit += 1);
            }
            None => {
                digits.iter_mut().for_each(|digit| *digit = b'0');
                digits.insert(0, b'1');
            }
        }
    }
    // Zero has no sign.
    let sign = if digits.iter().all(|digit| *digit == b'0') { "" } else { sign };
    let text: String = digits.into_iter().map(char::from).collect();
    let (whole, fraction) = text.split_at_checked(text.len() - behind).unwrap_or((&text, ""));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if behind == 0 { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

/// `EEEE`: one digit before the point, and a power of ten.
pub(super) fn powers_of_ten(
    number: Number<'_>,
    before: usize,
    behind: usize,
) -> Result<String, ArgumentFault> {
    let unknown = || format!(" {}.{}", "#".repeat(before), "#".repeat(behind + 4));
    let text = match number {
        Number::Double(value, _) if !value.is_finite() => return Ok(unknown()),
        Number::Double(value, _) => {
            let text = format!("{value:.behind$e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            with_power(digits, power.parse().unwrap_or_default())
        }
        // Exact in a double, whose rounding takes the even digit.
        Number::Whole(value, (_, most)) if most <= i64::from(i32::MAX) => {
            return powers_of_ten(Number::Double(value as f64, 15), before, behind);
        }
        Number::Whole(value, _) => exact_powers(&value.to_string(), behind),
        Number::Exact(text) => {
            match text.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit()) {
                true => exact_powers(text, behind),
                false => return Ok(unknown()),
            }
        }
    };
    Ok(if text.starts_with('-') { text } else { format!(" {text}") })
}

/// As PostgreSQL, which rounds the digits and does not look at the power again: 9.99 has 10.0e+00.
fn exact_powers(text: &str, behind: usize) -> String {
    let (sign, number) = match text.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", text),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let Some(first) = digits.find(|digit| digit != '0') else {
        return with_power(&rounded("0", 0, behind), 0);
    };
    let significant = digits.get(first..).unwrap_or_default();
    let (one, others) = significant.split_at_checked(1).unwrap_or((significant, ""));
    let power = whole.len() as i64 - first as i64 - 1;
    with_power(&rounded(&format!("{sign}{one}.{others}"), 0, behind), power)
}

fn with_power(digits: &str, power: i64) -> String {
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.unsigned_abs())
}

/// `RN`: Roman digits, or `#` beyond them.
pub(super) fn roman(number: Number<'_>) -> Result<String, ArgumentFault> {
    const DIGITS: [(&str, i64); 13] = [
        ("M", 1000),
        ("CM", 900),
        ("D", 500),
        ("CD", 400),
        ("C", 100),
        ("XC", 90),
        ("L", 50),
        ("XL", 40),
        ("X", 10),
        ("IX", 9),
        ("V", 5),
        ("IV", 4),
        ("I", 1),
    ];
    let out_of_range = || ArgumentFault::OutOfRange { reason: "integer out of range".to_owned() };
    let value: i64 = match number {
        Number::Whole(value, _) => value,
        // As C makes an integer of a double.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a double beyond them has no Roman number"
        )]
        Number::Double(value, _) => value.round_ties_even() as i64,
        Number::Exact(text) => {
            let text = rounded(text, 0, 0);
            if !text.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit()) {
                let what = if text == "NaN" { "NaN" } else { "infinity" };
                let reason = format!("cannot convert {what} to integer");
                return Err(ArgumentFault::Unsupported { reason });
            }
            text.parse::<i32>().map_err(|_| out_of_range())?.into()
        }
    };
    if !(1..=3999).contains(&value) {
        return Ok("#".repeat(15));
    }
    let mut rest = value;
    let mut out = String::new();
    for (letters, worth) in DIGITS {
        while rest >= worth {
            out.push_str(letters);
            rest -= worth;
        }
    }
    Ok(out)
}
