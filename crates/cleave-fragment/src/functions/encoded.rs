//! `encode` and `decode`: bytes as text in hexadecimal, in base64 with lines of 76 letters, or with escapes.
//!
//! Source: PostgreSQL's encode.c.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryBuilder, StringBuilder};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_common::utils::take_function_args;
use datafusion_expr::ScalarUDF;

use super::bounded::check_size;
use super::row_function::{ArgumentFault, row_function};

const LINE_LETTERS: usize = 76;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Hex,
    Base64,
    Escape,
}

impl Format {
    fn of(name: &str) -> Result<Self, ArgumentFault> {
        match name.to_ascii_lowercase().as_str() {
            "hex" => Ok(Self::Hex),
            "base64" => Ok(Self::Base64),
            "escape" => Ok(Self::Escape),
            _ => Err(invalid(format!("unrecognized encoding: \"{name}\""))),
        }
    }
}

fn invalid(reason: String) -> ArgumentFault {
    ArgumentFault::Invalid { reason }
}

fn is_text(own: &DataType) -> bool {
    own.is_string() || own.is_null()
}

/// `encode(bytes, format)`.
pub(super) fn encode() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [bytes, format] if (is_text(bytes) || bytes.is_binary()) && is_text(format) => {
            Some(vec![DataType::Binary, DataType::Utf8])
        }
        _ => None,
    };
    row_function("encode", takes, |_| DataType::Utf8, compute_encode)
}

fn compute_encode(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [values, formats] = take_function_args("encode", args)?;
    let (values, formats) = (values.as_binary::<i32>(), formats.as_string::<i32>());
    // Of escapes, each byte may be four letters.
    let most = 4_u64.saturating_mul(values.value_data().len() as u64);
    check_size("encode", most, values.iter().len())?;
    let mut texts = StringBuilder::new();
    for pair in values.iter().zip(formats) {
        match pair {
            (Some(bytes), Some(format)) => texts.append_value(encoded(bytes, Format::of(format)?)),
            _ => texts.append_null(),
        }
    }
    Ok(Arc::new(texts.finish()))
}

fn encoded(bytes: &[u8], format: Format) -> String {
    match format {
        Format::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Format::Base64 => base64(bytes),
        Format::Escape => bytes.iter().fold(String::new(), |mut text, byte| {
            match byte {
                b'\\' => text.push_str("\\\\"),
                0 | 0x80.. => text.push_str(&format!("\\{byte:03o}")),
                byte => text.push(char::from(*byte)),
            }
            text
        }),
    }
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4 + bytes.len() / 57);
    let mut line = 0;
    for part in bytes.chunks(3) {
        let at = |place: usize| u32::from(part.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4_usize {
            let digit = (bits >> (18 - 6 * place)) & 63;
            let digit = DIGITS.get(digit as usize).copied().unwrap_or(b'=');
            text.push(if place <= part.len() { char::from(digit) } else { '=' });
        }
        line += 4;
        if line == LINE_LETTERS {
            text.push('\n');
            line = 0;
        }
    }
    text
}

/// `decode(text, format)`.
pub(super) fn decode() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [text, format] if is_text(text) && is_text(format) => {
            Some(vec![DataType::Utf8, DataType::Utf8])
        }
        _ => None,
    };
    row_function("decode", takes, |_| DataType::Binary, compute_decode)
}

fn compute_decode(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [texts, formats] = take_function_args("decode", args)?;
    let (texts, formats) = (texts.as_string::<i32>(), formats.as_string::<i32>());
    let mut values = BinaryBuilder::new();
    for pair in texts.iter().zip(formats) {
        match pair {
            (Some(text), Some(format)) => values.append_value(decoded(text, Format::of(format)?)?),
            _ => values.append_null(),
        }
    }
    Ok(Arc::new(values.finish()))
}

/// A text as bytes, as a cast reads it: hexadecimal digits behind `\x`, else with escapes.
pub fn bytes_of_text() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [text] if is_text(text) => Some(vec![DataType::Utf8]),
        _ => None,
    };
    row_function(
        "bytes_of_text",
        takes,
        |_| DataType::Binary,
        |args| {
            let [texts] = take_function_args("bytes_of_text", args)?;
            let mut values = BinaryBuilder::new();
            for text in texts.as_string::<i32>() {
                match text {
                    Some(text) => values.append_value(match text.strip_prefix("\\x") {
                        Some(digits) => of_hex(digits)?,
                        None => of_escapes(text.as_bytes())?,
                    }),
                    None => values.append_null(),
                }
            }
            Ok(Arc::new(values.finish()))
        },
    )
}

fn decoded(text: &str, format: Format) -> Result<Vec<u8>, ArgumentFault> {
    match format {
        Format::Hex => of_hex(text),
        Format::Base64 => of_base64(text),
        Format::Escape => of_escapes(text.as_bytes()),
    }
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

fn of_hex(text: &str) -> Result<Vec<u8>, ArgumentFault> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let digit_of = |letter: char| {
        let digit = letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        digit.ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{letter}\"")))
    };
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if is_blank(letter) {
            continue;
        }
        let high = digit_of(letter)?;
        let Some(low) = letters.next() else {
            return Err(invalid("invalid hexadecimal data: odd number of digits".to_owned()));
        };
        bytes.push(high << 4 | digit_of(low)?);
    }
    Ok(bytes)
}

fn of_base64(text: &str) -> Result<Vec<u8>, ArgumentFault> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count, mut padded_at) = (0_u32, 0, None);
    for letter in text.chars().filter(|letter| !is_blank(*letter)) {
        let digit = match letter {
            '=' => {
                if padded_at.is_none() {
                    if count < 2 {
                        let reason = "unexpected \"=\" while decoding base64 sequence".to_owned();
                        return Err(invalid(reason));
                    }
                    padded_at = Some(count);
                }
                0
            }
            letter => {
                let place = DIGITS.iter().position(|digit| char::from(*digit) == letter);
                let place = place.and_then(|place| u32::try_from(place).ok());
                place.ok_or_else(|| {
                    let what = "found while decoding base64 sequence";
                    invalid(format!("invalid symbol \"{letter}\" {what}"))
                })?
            }
        };
        bits = bits << 6 | digit;
        count += 1;
        if count == 4 {
            // Two digits are one byte, three are two.
            let whole = [bits >> 16, bits >> 8, bits].into_iter();
            let whole = whole.take(padded_at.map_or(3, |digits: usize| digits - 1));
            bytes.extend(whole.filter_map(|byte| u8::try_from(byte & 0xff).ok()));
            (bits, count) = (0, 0);
        }
    }
    match count {
        0 => Ok(bytes),
        _ => Err(invalid("invalid base64 end sequence".to_owned())),
    }
}

fn of_escapes(mut text: &[u8]) -> Result<Vec<u8>, ArgumentFault> {
    let mut bytes = Vec::with_capacity(text.len());
    loop {
        text = match text {
            [] => return Ok(bytes),
            [b'\\', high @ b'0'..=b'3', mid @ b'0'..=b'7', low @ b'0'..=b'7', rest @ ..] => {
                bytes.push((high - b'0') << 6 | (mid - b'0') << 3 | (low - b'0'));
                rest
            }
            [b'\\', b'\\', rest @ ..] => {
                bytes.push(b'\\');
                rest
            }
            [b'\\', ..] => {
                let reason = "invalid input syntax for type bytea".to_owned();
                return Err(ArgumentFault::Malformed { reason });
            }
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back() {
        for length in [0, 1, 2, 3, 56, 57, 58, 200] {
            let bytes: Vec<u8> = (0..length).map(|byte: u8| byte.wrapping_mul(37)).collect();
            for format in [Format::Hex, Format::Base64, Format::Escape] {
                assert_eq!(decoded(&encoded(&bytes, format), format), Ok(bytes.clone()));
            }
        }
        assert_eq!(base64(b"a"), "YQ==");
        assert_eq!(base64(&[0; 57]).len(), 77);
    }
}
