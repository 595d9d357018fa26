//! The spelling of a statement: its text in, the text without its constants and the constants out.
//!
//! ```text
//!   SELECT a FROM t WHERE id = 17 AND name = 'it''s'
//!     ─▶ frame      SELECT a FROM t WHERE id = # AND name = '
//!     ─▶ constants  17, it's
//! ```
//!
//! Two texts of one frame are the same tokens but for the values of constants, and so the same syntax tree. Texts for
//! which that is not certain (comments, quoted names, escapes, casts, letters beyond ASCII outside of quotes) have no
//! spelling, and are parsed each time.

#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;

/// Longer statements seldom come again by the thousand.
const BYTES_MAX: usize = 4096;

/// See the module's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spelling<'a> {
    /// The text with `#` for each number and `'` for each string.
    pub(super) frame: String,
    /// Numbers as they stand, strings without quotes; in the order of the text.
    pub(super) constants: Vec<Cow<'a, str>>,
}

impl<'a> Spelling<'a> {
    /// The spelling of `text`, one SELECT with or without its semicolon.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_suffix(';').unwrap_or(text);
        let verb = text.get(..6)?;
        if text.len() > BYTES_MAX || !verb.eq_ignore_ascii_case("select") {
            return None;
        }
        let bytes = text.as_bytes();
        let mut frame = String::with_capacity(text.len());
        let mut constants = Vec::new();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let end = match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => end_of(bytes, at, is_word),
                b'0'..=b'9' => end_of_number(bytes, at)?,
                b'\'' => end_of_string(bytes, at)?,
                // A number may begin with a point, a comment with two hyphens.
                b'.' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => return None,
                b'-' if bytes.get(at + 1) == Some(&b'-') => return None,
                b' ' | b'\t' | b'\n' | b'\r' => at + 1,
                b',' | b'.' | b'*' | b'=' | b'(' | b')' | b'-' => at + 1,
                _ => return None,
            };
            match byte {
                b'0'..=b'9' => {
                    frame.push('#');
                    constants.push(Cow::Borrowed(text.get(at..end)?));
                }
                b'\'' => {
                    frame.push('\'');
                    let value = text.get(at + 1..end - 1)?;
                    constants.push(if value.contains('\'') {
                        Cow::Owned(value.replace("''", "'"))
                    } else {
                        Cow::Borrowed(value)
                    });
                }
                _ => frame.push_str(text.get(at..end)?),
            }
            at = end;
        }
        Some(Self { frame, constants })
    }
}

fn is_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

fn end_of(bytes: &[u8], at: usize, belongs: impl Fn(&u8) -> bool) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|byte| !belongs(byte)).unwrap_or(rest.len())
}

/// Behind digits, or digits with a point between; nothing that a number could go on with may follow.
fn end_of_number(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = end_of(bytes, at, u8::is_ascii_digit);
    if bytes.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = end_of(bytes, fraction, u8::is_ascii_digit);
        if end == fraction {
            return None;
        }
    }
    let goes_on = bytes.get(end).is_some_and(|byte| is_word(byte) || *byte == b'.');
    (!goes_on).then_some(end)
}

/// Behind the closing quote. A letter before the opening one would make it a string of another kind.
fn end_of_string(bytes: &[u8], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    if before.is_some_and(|byte| is_word(byte) || *byte == b'\'') {
        return None;
    }
    let mut end = at + 1;
    loop {
        end = end_of(bytes, end, |byte| *byte != b'\'');
        match (bytes.get(end)?, bytes.get(end + 1)) {
            (_, Some(b'\'')) => end += 2,
            _ => return Some(end + 1),
        }
    }
}

#[cfg(test)]
mod tests;
