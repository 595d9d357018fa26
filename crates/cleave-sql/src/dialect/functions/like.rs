//! LIKE by steps, for patterns that are long or not known beforehand: DataFusion makes a regular expression of a
//! pattern, which takes as many steps for each character as the pattern has wildcards, and cannot be interrupted.
//!
//! Of all `%` only the last one before a mismatch needs to match more: what was matched before it stays as it is.

use std::sync::Arc;

use cleave_fragment::functions::row_function;
use cleave_fragment::wanted;
use datafusion::arrow::array::{Array, AsArray, BooleanArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use super::patterns::typed;

const NAME: &str = "like_by_steps";

/// Whether a text matches a pattern of LIKE, whose escape character is the backslash.
pub(in crate::dialect) fn like_by_steps() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| typed(given, "tt", 2);
    row_function(
        NAME,
        takes,
        |_| DataType::Boolean,
        |args| {
            let [texts, patterns] = take_function_args(NAME, args)?;
            let rows = (0..texts.len()).map(|row| {
                if texts.is_null(row) || patterns.is_null(row) {
                    return Ok(None);
                }
                let (text, pattern) = (texts.as_string::<i32>(), patterns.as_string::<i32>());
                matches(text.value(row), pattern.value(row).as_bytes()).map(Some)
            });
            Ok(Arc::new(rows.collect::<Result<BooleanArray>>()?))
        },
    )
}

fn matches(text: &str, pattern: &[u8]) -> Result<bool> {
    let bytes = text.as_bytes();
    // The character at a place, by the byte behind it.
    let behind =
        |at: usize| (at + 1..).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
    let (mut at, mut place) = (0, 0);
    // Behind the last `%`, and where the text goes on there.
    let mut last: Option<(usize, usize)> = None;
    loop {
        wanted::check()?;
        let literal = match (pattern.get(place), pattern.get(place + 1)) {
            (Some(b'%'), _) => {
                place += 1;
                last = Some((place, at));
                continue;
            }
            (Some(b'_'), _) if at < bytes.len() => {
                (at, place) = (behind(at), place + 1);
                continue;
            }
            (Some(b'\\'), Some(escaped)) => Some((escaped, place + 2)),
            (Some(b'_') | None, _) => None,
            (Some(one), _) => Some((one, place + 1)),
        };
        match (bytes.get(at), literal) {
            (Some(byte), Some((one, next))) if byte == one => {
                (at, place) = (at + 1, next);
                continue;
            }
            (None, None) if place == pattern.len() => return Ok(true),
            // The rest of the pattern needs a character, and there is none.
            (None, _) => return Ok(false),
            _ => {}
        }
        let Some((from, start)) = last else { return Ok(false) };
        (at, place) = (behind(start), from);
        last = Some((from, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_postgresql() {
        for (text, pattern, expected) in [
            ("", "", true),
            ("", "%", true),
            ("a", "", false),
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "%b", false),
            ("abc", "a_c", true),
            ("abc", "a__c", false),
            ("a\u{e9}c", "a_c", true),
            ("a\u{e9}c", "%\u{e9}%", true),
            ("aab", "%ab", true),
            ("mississippi", "%iss%ip%", true),
            ("mississippi", "%iss%iss%iss%", false),
            ("50%", "50\\%", true),
            ("50x", "50\\%", false),
            ("a_b", "a\\_b", true),
            ("axb", "a\\_b", false),
            ("a\\", "a\\\\", true),
            ("ab", "_%_", true),
            ("a", "_%_", false),
        ] {
            assert_eq!(
                matches(text, pattern.as_bytes()).unwrap(),
                expected,
                "{text} LIKE {pattern}"
            );
        }
    }
}
