//! `numeric` in PostgreSQL's binary form: digits of base 10,000, the weight of the first, the sign, and the number of
//! digits that are shown behind the point.
//!
//! A column of Arrow has one scale, and a column of `numeric` without precision may have any. [`Fit::of`] decides by
//! the rows of the first batch:
//!
//! - All have one scale: Decimal128(38, scale), or Decimal256(76, scale) where 38 digits are too few. So it is for
//!   every column of Cleave's servers but quotients.
//! - They have several: Decimal256(76, 38), as Cleave's quotients are.
//! - NaN, infinity, more than 38 digits behind the point or 76 in all: text.
//!
//! A later value that does not fit is an error, never rounded; digits that are zero fit always.
//!
//! Source: PostgreSQL's `numeric_send`.

use arrow::datatypes::i256;

use crate::wire::Reader;

/// Digits of Decimal128, and the scale for values of several scales.
const DIGITS_128: u8 = 38;
/// Digits of Decimal256.
const DIGITS_256: u8 = 76;
/// Decimal digits of a digit of base 10,000.
const GROUP: i32 = 4;

/// A number in binary form, checked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numeric<'a> {
    /// A number.
    Finite {
        /// Digits of base 10,000, two bytes each.
        groups: Reader<'a>,
        /// How many there are.
        count: i32,
        /// The power of 10,000 of the first.
        weight: i32,
        is_negative: bool,
        /// Digits shown behind the point.
        scale: u16,
    },
    /// What is none, as it is written.
    Special(&'static str),
}

impl<'a> Numeric<'a> {
    /// Reads a value; None if it is none.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (count, weight) = (reader.i16()?, reader.i16()?);
        let (sign, scale) = (reader.u16()?, reader.u16()?);
        let groups = reader;
        for _ in 0..count {
            reader.i16().filter(|group| (0..10_000).contains(group))?;
        }
        if count < 0 || !reader.is_empty() || scale > 0x3fff {
            return None;
        }
        let is_negative = match sign {
            0 => false,
            0x4000 => true,
            0xc000 => return Some(Self::Special("NaN")),
            0xd000 => return Some(Self::Special("Infinity")),
            0xf000 => return Some(Self::Special("-Infinity")),
            _ => return None,
        };
        let (count, weight) = (i32::from(count), i32::from(weight));
        Some(Self::Finite { groups, count, weight, is_negative, scale })
    }

    /// The whole number that it is at `scale`; None if it has other digits behind it, or too many.
    pub(crate) fn at_scale(self, scale: i8) -> Option<i256> {
        let Self::Finite { mut groups, count, weight, is_negative, .. } = self else { return None };
        let base = i256::from_i128(10_000);
        let mut value = i256::ZERO;
        while let Some(group) = groups.i16() {
            value = value.checked_mul(base)?.checked_add(i256::from_i128(i128::from(group)))?;
        }
        if value == i256::ZERO {
            return Some(value);
        }
        // Tens by which the last group's ones are above the last digit at `scale`.
        let tens = GROUP * (weight - count + 1) + i32::from(scale);
        let power = i256::from_i128(10).checked_pow(tens.unsigned_abs())?;
        let value = match tens {
            0.. => value.checked_mul(power)?,
            _ if value.checked_rem(power)? == i256::ZERO => value.checked_div(power)?,
            _ => return None,
        };
        if is_negative { value.checked_neg() } else { Some(value) }
    }

    /// Whether it is a whole number of at most so many digits at `scale`.
    fn fits(self, digits: u8, scale: i8) -> bool {
        self.at_scale(scale).is_some_and(|value| has_at_most(value, digits))
    }

    /// The bytes that its text takes, at most: a short value may have a long text.
    pub(crate) fn text_bytes_max(self) -> usize {
        let Self::Finite { weight, scale, .. } = self else { return 9 };
        let whole = usize::try_from(GROUP * (weight.max(0) + 1)).unwrap_or(0);
        whole + usize::from(scale) + 2
    }

    /// Appends its text.
    pub(crate) fn write(self, out: &mut String) {
        let (mut groups, weight, is_negative, scale) = match self {
            Self::Finite { groups, weight, is_negative, scale, .. } => {
                (groups, weight, is_negative, scale)
            }
            Self::Special(text) => return out.push_str(text),
        };
        if is_negative {
            out.push('-');
        }
        let mut digits = String::new();
        // From the group of the ones, or the first one before it, to the last digit that is shown.
        let first = weight.max(0);
        let last = -i32::from(scale.div_ceil(4));
        for power in (last..=first).rev() {
            let group = if power > weight { None } else { groups.i16() };
            match group {
                Some(group) => digits.push_str(&format!("{group:04}")),
                None => digits.push_str("0000"),
            }
        }
        let whole = usize::try_from(GROUP * (first + 1)).unwrap_or(0);
        let (whole, fraction) = digits.split_at_checked(whole).unwrap_or((&digits, ""));
        let whole = whole.trim_start_matches('0');
        out.push_str(if whole.is_empty() { "0" } else { whole });
        if scale > 0 {
            out.push('.');
            out.push_str(fraction.get(..usize::from(scale)).unwrap_or(fraction));
        }
    }
}

/// Whether a number has at most so many digits.
pub(crate) fn has_at_most(value: i256, digits: u8) -> bool {
    let limit = i256::from_i128(10).wrapping_pow(u32::from(digits));
    value > limit.wrapping_neg() && value < limit
}

/// What a column of `numeric` becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Decimal128 or Decimal256 of this precision and scale.
    Decimal(u8, i8),
    /// Utf8.
    Text,
}

impl Fit {
    /// Decides by the values of the first rows.
    pub(crate) fn of<'a>(values: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let numbers = values.filter_map(Numeric::read);
        let scales = numbers.clone().map(|number| match number {
            Numeric::Finite { scale, .. } => Some(scale),
            Numeric::Special(_) => None,
        });
        let scales: Option<Vec<u16>> = scales.collect();
        let Some(scales) = scales else { return Self::Text };
        let (least, most) = (scales.iter().min(), scales.iter().max());
        let (Some(least), Some(most)) = (least, most) else {
            return Self::Decimal(DIGITS_128, 0);
        };
        let Some(scale) = i8::try_from(*most).ok().filter(|scale| *scale <= 38) else {
            return Self::Text;
        };
        let candidates = match least == most {
            true => [(DIGITS_128, scale), (DIGITS_256, scale)],
            false => [(DIGITS_256, 38); 2],
        };
        let fitting = candidates
            .into_iter()
            .find(|(digits, scale)| numbers.clone().all(|number| number.fits(*digits, *scale)));
        fitting.map_or(Self::Text, |(digits, scale)| Self::Decimal(digits, scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value in binary form.
    fn numeric(weight: i16, sign: u16, scale: u16, groups: &[u16]) -> Vec<u8> {
        let count = u16::try_from(groups.len()).unwrap();
        let head = [count, weight.cast_unsigned(), sign, scale];
        let byte = |value: u16| u8::try_from(value).unwrap();
        head.iter().chain(groups).flat_map(|word| [byte(word >> 8), byte(word & 255)]).collect()
    }

    fn text(bytes: &[u8]) -> String {
        let mut text = String::new();
        Numeric::read(bytes).unwrap().write(&mut text);
        text
    }

    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        for (bytes, expected) in [
            (numeric(0, 0, 0, &[]), "0"),
            (numeric(0, 0, 3, &[]), "0.000"),
            (numeric(1, 0x4000, 2, &[12, 3400, 5600]), "-123400.56"),
            (numeric(-1, 0, 6, &[12, 3400]), "0.001234"),
            (numeric(-2, 0, 5, &[1000]), "0.00001"),
            (numeric(2, 0, 0, &[7]), "700000000"),
            (numeric(0, 0xc000, 0, &[]), "NaN"),
        ] {
            assert_eq!(text(&bytes), expected);
            assert!(Numeric::read(&bytes).unwrap().text_bytes_max() >= expected.len());
        }
    }

    #[test]
    fn numbers_keep_all_their_digits_or_do_not_fit() {
        let at = |bytes: &[u8], scale| {
            Numeric::read(bytes).unwrap().at_scale(scale).and_then(i256::to_i128)
        };
        let number = numeric(1, 0x4000, 2, &[12, 3400, 5600]);
        assert_eq!(at(&number, 2), Some(-12_340_056));
        assert_eq!(at(&number, 4), Some(-1_234_005_600));
        assert_eq!(at(&number, 1), None);
        assert_eq!(at(&numeric(2, 0, 0, &[7]), 0), Some(700_000_000));
        assert_eq!(at(&numeric(i16::MAX, 0, 0, &[7]), 0), None);
        assert_eq!(at(&numeric(i16::MIN, 0, 0, &[7]), 38), None);
        assert_eq!(at(&numeric(0, 0xc000, 0, &[]), 0), None);
    }

    #[test]
    fn values_that_lie_are_none() {
        let mut short = numeric(0, 0, 0, &[1, 2]);
        short.pop();
        let mut count = numeric(0, 0, 0, &[1]);
        count[0] = 0x7f;
        let (digit, sign) = (numeric(0, 0, 0, &[10_000]), numeric(0, 1, 0, &[1]));
        let (long, negative) = (numeric(0, 0, 0x4000, &[1]), [0xff; 8].to_vec());
        for bytes in [short, count, digit, sign, long, negative, Vec::new()] {
            assert!(Numeric::read(&bytes).is_none(), "{bytes:?}");
        }
    }

    #[test]
    fn the_first_rows_decide() {
        let of = |values: &[Vec<u8>]| Fit::of(values.iter().map(Vec::as_slice));
        let (cents, thirds) = (numeric(0, 0, 2, &[1, 5000]), numeric(-1, 0, 20, &[3333; 5]));
        let (long, endless) = (numeric(12, 0, 2, &[1]), numeric(30, 0, 2, &[1]));
        assert_eq!(of(&[]), Fit::Decimal(38, 0));
        assert_eq!(of(&[cents.clone(), cents.clone()]), Fit::Decimal(38, 2));
        assert_eq!(of(&[cents.clone(), thirds]), Fit::Decimal(76, 38));
        assert_eq!(of(&[cents.clone(), long]), Fit::Decimal(76, 2));
        assert_eq!(of(&[cents.clone(), endless]), Fit::Text);
        assert_eq!(of(&[cents, numeric(0, 0xc000, 0, &[])]), Fit::Text);
    }
}
