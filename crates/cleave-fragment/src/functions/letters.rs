//! `upper`, `lower`, `initcap` and `chr` as PostgreSQL has them: each letter becomes one letter, so that `ß`, whose
//! capitals are two, stays as it is; no text has the character 0.
//!
//! Source: PostgreSQL's `str_toupper`, `str_tolower`, `str_initcap` and `chr`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, GenericStringArray, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, Int32Type};
use datafusion_common::Result;
use datafusion_common::utils::take_function_args;
use datafusion_expr::ScalarUDF;

use super::row_function::{ArgumentFault, row_function};

/// The text in capitals.
pub(super) fn upper() -> Arc<ScalarUDF> {
    row_function(
        "upper",
        text,
        |_| DataType::Utf8,
        |args| {
            mapped("upper", args, <[u8]>::make_ascii_uppercase, |text| {
                text.chars().map(capital).collect()
            })
        },
    )
}

/// The text in small letters.
pub fn lower() -> Arc<ScalarUDF> {
    row_function(
        "lower",
        text,
        |_| DataType::Utf8,
        |args| {
            mapped("lower", args, <[u8]>::make_ascii_lowercase, |text| {
                text.chars().map(small).collect()
            })
        },
    )
}

/// The text with a capital at the beginning of each word, which is a run of letters and digits.
pub(super) fn initcap() -> Arc<ScalarUDF> {
    row_function(
        "initcap",
        text,
        |_| DataType::Utf8,
        |args| {
            let [texts] = take_function_args("initcap", args)?;
            let titled: StringArray =
                texts.as_string::<i32>().iter().map(|text| text.map(titled)).collect();
            Ok(Arc::new(titled))
        },
    )
}

/// The character of a number.
pub(super) fn chr() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Utf8 | DataType::Null] => {
            Some(vec![DataType::Int32])
        }
        _ => None,
    };
    row_function(
        "chr",
        takes,
        |_| DataType::Utf8,
        |args| {
            let [numbers] = take_function_args("chr", args)?;
            let numbers = numbers.as_primitive::<Int32Type>();
            let letters = numbers.iter().map(|number| number.map(letter).transpose());
            Ok(Arc::new(letters.collect::<Result<StringArray, ArgumentFault>>()?))
        },
    )
}

fn text(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null] => {
            Some(vec![DataType::Utf8])
        }
        _ => None,
    }
}

/// Each text by `map`; texts of ASCII, which keep their lengths, all at once.
fn mapped(
    name: &str,
    args: &[ArrayRef],
    map_ascii: fn(&mut [u8]),
    map: fn(&str) -> String,
) -> Result<ArrayRef> {
    let [texts] = take_function_args(name, args)?;
    let texts = texts.as_string::<i32>();
    if !texts.is_ascii() {
        let mapped: StringArray = texts.iter().map(|text| text.map(map)).collect();
        return Ok(Arc::new(mapped));
    }
    let (offsets, values, nulls) = texts.clone().into_parts();
    // The array may be a part of another one.
    let (first, last) =
        (offsets.first().copied().unwrap_or(0), offsets.last().copied().unwrap_or(0));
    let (start, end) = (first.as_usize(), last.as_usize());
    let mut bytes = values.get(start..end).unwrap_or_default().to_vec();
    map_ascii(&mut bytes);
    let offsets = OffsetBuffer::new(offsets.iter().map(|offset| offset - first).collect());
    let mapped = GenericStringArray::try_new(offsets, Buffer::from_vec(bytes), nulls)?;
    Ok(Arc::new(mapped))
}

fn capital(letter: char) -> char {
    let mut capitals = letter.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(capital), None) => capital,
        _ => letter,
    }
}

fn small(letter: char) -> char {
    // Of `İ` the dot is left out.
    letter.to_lowercase().next().unwrap_or(letter)
}

fn titled(text: &str) -> String {
    let mut in_word = false;
    let letter = |letter: char| {
        let own = if in_word { small(letter) } else { capital(letter) };
        // Other numbers, as `²`, end a word.
        in_word = letter.is_alphabetic() || letter.is_ascii_digit();
        own
    };
    text.chars().map(letter).collect()
}

fn letter(number: i32) -> Result<String, ArgumentFault> {
    let fault = |reason: &str| Err(ArgumentFault::Character { reason: reason.to_owned() });
    match u32::try_from(number) {
        Err(_) => {
            let reason = "character number must be positive".to_owned();
            Err(ArgumentFault::Invalid { reason })
        }
        Ok(0) => fault("null character not permitted"),
        Ok(number) => match char::from_u32(number) {
            Some(letter) => Ok(letter.to_string()),
            None if number > u32::from(char::MAX) => {
                fault(&format!("requested character too large for encoding: {number}"))
            }
            None => fault(&format!("requested character not valid for encoding: {number}")),
        },
    }
}
