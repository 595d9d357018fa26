//! Patterns of LIKE: [`like_escape`] writes one with the backslash as its escape character, the only one that
//! DataFusion knows, and [`like_pattern`] refuses one that ends in it.
//!
//! Source: PostgreSQL's `like_escape` and `MatchText` (like_match.c).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_common::utils::take_function_args;
use datafusion_expr::ScalarUDF;

use super::row_function::{ArgumentFault, row_function};

/// `%` of a pattern for which a match is followed to the end of the pattern; it recurses once for each.
const PERCENTS_MAX: usize = 1000;

const AT_END: ArgumentFault =
    ArgumentFault::Escape { reason: "LIKE pattern must not end with escape character" };

/// `like_escape(pattern, escape)`: the pattern with the backslash for its escape character; none for an empty text.
pub fn like_escape() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [pattern, escape]
            if [pattern, escape].iter().all(|own| own.is_string() || own.is_null()) =>
        {
            Some(vec![DataType::Utf8, DataType::Utf8])
        }
        _ => None,
    };
    row_function(
        "like_escape",
        takes,
        |_| DataType::Utf8,
        |args| {
            let [patterns, escapes] = take_function_args("like_escape", args)?;
            let (patterns, escapes) = (patterns.as_string::<i32>(), escapes.as_string::<i32>());
            let escaped = patterns.iter().zip(escapes).map(|pair| match pair {
                (Some(pattern), Some(escape)) => with_backslash(pattern, escape).map(Some),
                _ => Ok(None),
            });
            Ok(Arc::new(escaped.collect::<Result<StringArray, _>>()?))
        },
    )
}

/// `pattern`, whose escape character is that of `escape`, with the backslash in its place.
///
/// # Errors
/// `escape` has several characters.
pub fn with_backslash(pattern: &str, escape: &str) -> Result<String, ArgumentFault> {
    let mut letters = escape.chars();
    let escape = match (letters.next(), letters.next()) {
        (None, _) => return Ok(pattern.replace('\\', "\\\\")),
        (Some('\\'), None) => return Ok(pattern.to_owned()),
        (Some(escape), None) => escape,
        (Some(_), Some(_)) => {
            return Err(ArgumentFault::Escape { reason: "invalid escape string" });
        }
    };
    let mut written = String::with_capacity(pattern.len());
    let mut is_escaped = false;
    for letter in pattern.chars() {
        if letter == escape && !is_escaped {
            written.push('\\');
            is_escaped = true;
            continue;
        }
        if letter == '\\' && !is_escaped {
            written.push('\\');
        }
        written.push(letter);
        is_escaped = false;
    }
    Ok(written)
}

/// Whether the last character of a pattern is an escape that nothing follows.
pub fn ends_in_escape(pattern: &str) -> bool {
    pattern.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// `like_pattern(pattern, text, is_insensitive)`: the pattern, with an error if it ends in its escape and the match
/// with the text gets there; of a text that is NULL, if it ends so.
pub fn like_pattern() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [pattern, text, DataType::Boolean]
            if [pattern, text].iter().all(|own| own.is_string() || own.is_null()) =>
        {
            Some(given.to_vec())
        }
        _ => None,
    };
    let gives = |given: &[DataType]| given.first().cloned().unwrap_or(DataType::Utf8);
    row_function("like_pattern", takes, gives, |args| {
        let [patterns, texts, insensitive] = take_function_args("like_pattern", args)?;
        check(patterns, texts, insensitive)?;
        Ok(Arc::clone(patterns))
    })
}

fn check(patterns: &ArrayRef, texts: &ArrayRef, insensitive: &ArrayRef) -> Result<()> {
    let plain = |texts: &ArrayRef| cast(texts, &DataType::Utf8);
    let patterns = plain(patterns)?;
    let patterns = patterns.as_string::<i32>();
    let suspects = patterns.iter().enumerate();
    let mut suspects =
        suspects.filter_map(|(row, own)| Some((row, own.filter(|own| ends_in_escape(own))?)));
    let Some(first) = suspects.next() else { return Ok(()) };
    let texts = plain(texts)?;
    let texts = texts.as_string::<i32>();
    let is_insensitive = insensitive.as_boolean().iter().next().flatten() == Some(true);
    for (row, pattern) in std::iter::once(first).chain(suspects) {
        if texts.is_null(row) {
            return Err(AT_END.into());
        }
        let letters = |text: &str| match is_insensitive {
            true => text.to_lowercase().chars().collect::<Vec<char>>(),
            false => text.chars().collect(),
        };
        if pattern.bytes().filter(|byte| *byte == b'%').count() > PERCENTS_MAX {
            return Err(AT_END.into());
        }
        matched(&letters(texts.value(row)), &letters(pattern))?;
    }
    Ok(())
}

/// What comes of comparing a text with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    Yes,
    No,
    /// Nor does any later part of the text match.
    Abort,
}

/// # Errors
/// The match gets to an escape at the end of the pattern.
fn matched(mut text: &[char], mut pattern: &[char]) -> Result<Match, ArgumentFault> {
    while let ([first, text_rest @ ..], [letter, rest @ ..]) = (text, pattern) {
        match letter {
            '%' => {
                pattern = rest;
                loop {
                    match (pattern, text) {
                        (['%', rest @ ..], _) => pattern = rest,
                        (['_', ..], []) => return Ok(Match::Abort),
                        (['_', rest @ ..], [_, behind @ ..]) => (pattern, text) = (rest, behind),
                        _ => break,
                    }
                }
                let wanted = match pattern {
                    [] => return Ok(Match::Yes),
                    ['\\'] => return Err(AT_END),
                    ['\\', wanted, ..] | [wanted, ..] => wanted,
                };
                while let [first, behind @ ..] = text {
                    if first == wanted {
                        let found = matched(text, pattern)?;
                        if found != Match::No {
                            return Ok(found);
                        }
                    }
                    text = behind;
                }
                return Ok(Match::Abort);
            }
            '\\' => match rest {
                [] => return Err(AT_END),
                [wanted, _rest @ ..] if wanted != first => return Ok(Match::No),
                [_, rest @ ..] => (text, pattern) = (text_rest, rest),
            },
            letter if *letter == '_' || letter == first => (text, pattern) = (text_rest, rest),
            _ => return Ok(Match::No),
        }
    }
    if !text.is_empty() {
        return Ok(Match::No);
    }
    Ok(match pattern.iter().all(|letter| *letter == '%') {
        true => Match::Yes,
        false => Match::Abort,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_written_as_backslashes() {
        let written = |pattern, escape| with_backslash(pattern, escape).unwrap();
        assert_eq!(written("abc%%", "%"), "abc\\%");
        assert_eq!(written("a#%c", "#"), "a\\%c");
        assert_eq!(written("a\\c#", "#"), "a\\\\c\\");
        assert_eq!(written("a\\%", ""), "a\\\\%");
        assert_eq!(written("#\\", "#"), "\\\\");
        assert!(with_backslash("a", "##").is_err());
    }

    #[test]
    fn matches_that_get_to_an_escape_at_the_end_are_errors() {
        let of = |text: &str, pattern: &str| {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            matched(&letters(text), &letters(pattern))
        };
        assert!(of("abc", "ab\\").is_err());
        assert!(of("a", "%\\").is_err());
        assert!(of("xaby", "%b\\").is_err());
        assert_eq!(of("x", "ab\\"), Ok(Match::No));
        assert_eq!(of("ab", "ab\\"), Ok(Match::Abort));
        assert_eq!(of("abc", "a%_c"), Ok(Match::Yes));
        assert_eq!(of("abc", "a%_d"), Ok(Match::Abort));
        assert_eq!(of("abc", "a\\bc%"), Ok(Match::Yes));
    }
}
