//! Hints: a comment that begins with a plus, such as `/*+ split(h2) index_scan(off) */`, in; settings for one statement
//! out.
//!
//! A hint is a setting that holds for its statement only. Every setting can be one, and the errors are those of SET. A
//! comment may contain several hints, and a statement several such comments. Of two hints for one setting the later
//! counts.

use cleave_catalog::error::{Error, Position, Result};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Whitespace};

use crate::statement::names::position_of;

/// One setting for one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The setting, as written.
    pub name: String,
    /// The value, as written.
    pub value: String,
}

/// The hints of a script, each list with the position of its comment.
///
/// # Errors
/// Those of [`hints_in`].
pub fn hints(tokens: &[TokenWithSpan]) -> Result<Vec<(Location, Vec<Hint>)>> {
    let mut found = Vec::new();
    for token in tokens {
        if let Token::Whitespace(Whitespace::MultiLineComment(comment)) = &token.token {
            let place = token.span.start;
            found.push((place, hints_in(comment, position_of(place))?));
        }
    }
    Ok(found)
}

/// The hints in the text of a comment, without its `/*` and `*/`; none if it does not begin with a plus.
///
/// # Errors
/// [`Error::Syntax`] for what is no list of `name(value)`.
pub fn hints_in(comment: &str, position: Option<Position>) -> Result<Vec<Hint>> {
    let Some(mut rest) = comment.strip_prefix('+').map(str::trim) else { return Ok(Vec::new()) };
    let mut hints = Vec::new();
    while !rest.is_empty() {
        let parts = rest.split_once('(').and_then(|(name, rest)| {
            let (value, rest) = rest.split_once(')')?;
            Some((name.trim(), value.trim(), rest))
        });
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let Some((name, value, after)) = parts.filter(|(name, ..)| is_name(name)) else {
            return Err(Error::Syntax {
                message: "a hint is written as setting(value)".to_owned(),
                near: Some(rest.chars().take(40).collect()),
                position,
            });
        };
        let value = value.strip_prefix('\'').and_then(|v| v.strip_suffix('\'')).unwrap_or(value);
        hints.push(Hint { name: name.to_owned(), value: value.to_owned() });
        rest = after.trim_start_matches(',').trim();
    }
    Ok(hints)
}

#[cfg(test)]
mod tests {
    //! Tests: hints, and errors.

    use super::*;

    fn read(comment: &str) -> Vec<(String, String)> {
        hints_in(comment, None).unwrap().into_iter().map(|hint| (hint.name, hint.value)).collect()
    }

    #[test]
    fn a_plus_makes_a_comment_a_list_of_settings() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read(" + split(h2)"), []);
        assert_eq!(read("+"), []);
        assert_eq!(
            read("+ split(h2+), index_scan( off ) slot_bytes('64 kB')\n"),
            [pair("split", "h2+"), pair("index_scan", "off"), pair("slot_bytes", "64 kB")]
        );
    }

    #[test]
    fn what_is_no_list_is_refused_where_it_stands() {
        for comment in ["+ split", "+ split(h2", "+ (h2)", "+ sp lit(h2)"] {
            let error = hints_in(comment, None).unwrap_err();
            assert!(error.to_string().contains("setting(value)"), "{error}");
        }
    }
}
