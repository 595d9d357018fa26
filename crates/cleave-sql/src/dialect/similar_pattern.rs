//! Patterns of `SIMILAR TO`, translated to regular expressions.
//!
//! `%` and `_` mean the same as in `LIKE`; `| * + ? { } ( ) [ ]` the same as in regular expressions; any other
//! character, `. ^ $` among them, matches itself. The whole text must match.
//!
//! Source: PostgreSQL's documentation, "SIMILAR TO Regular Expressions"; its `similar_escape_internal`.

use datafusion::sql::sqlparser::ast::{self, Expr};

/// The regular expression for a literal pattern; None: it is no literal.
pub(crate) fn similar_pattern(
    pattern: &Expr,
    escape: Option<&ast::ValueWithSpan>,
) -> Option<String> {
    let Expr::Value(pattern) = pattern else { return None };
    let pattern = text(pattern)?;
    let escape = match escape {
        None => Some('\\'),
        Some(escape) => {
            let mut letters = text(escape)?.chars();
            match (letters.next(), letters.next()) {
                (letter, None) => letter,
                _ => return None,
            }
        }
    };
    let mut out = String::from("(?s)^(?:");
    let mut letters = pattern.chars();
    let mut in_brackets = false;
    while let Some(letter) = letters.next() {
        if Some(letter) == escape {
            let letter = letters.next()?;
            // Letters and digits have a meaning behind a backslash.
            if !letter.is_alphanumeric() {
                out.push('\\');
            }
            out.push(letter);
        } else if in_brackets {
            in_brackets = letter != ']';
            if letter == '\\' {
                out.push('\\');
            }
            out.push(letter);
        } else {
            match letter {
                '%' => out.push_str(".*"),
                '_' => out.push('.'),
                '(' => out.push_str("(?:"),
                '.' | '^' | '$' | '\\' => out.extend(['\\', letter]),
                letter => {
                    in_brackets = letter == '[';
                    out.push(letter);
                }
            }
        }
    }
    out.push_str(")$");
    Some(out)
}

fn text(value: &ast::ValueWithSpan) -> Option<&str> {
    match &value.value {
        ast::Value::SingleQuotedString(text) => Some(text),
        _ => None,
    }
}
