//! Colours of SQL that is typed: keywords, string constants and comments.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::completion::KEYWORDS;
use super::statements::{self, Piece};

/// Parameters of the escape sequences that begin a colour: bold blue, green, dim.
const KEYWORD: &str = "1;34";
const STRING: &str = "32";
const COMMENT: &str = "2";

/// The words of keywords, in upper case.
static WORDS: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| KEYWORDS.iter().flat_map(|keyword| keyword.split(' ')).collect());

/// `line` in colours, which stands behind the lines `before` of the same statement.
pub(super) fn highlighted(before: &str, line: &str) -> String {
    let text = format!("{before}{line}");
    let mut shown = String::with_capacity(2 * line.len());
    // Behind a backslash comes no SQL.
    let mut is_command = false;
    for piece in statements::pieces(&text) {
        is_command |= piece.text == "\\";
        // A comment or string may have begun on a line before.
        let own = before.len().saturating_sub(piece.start);
        let Some(own) = piece.text.get(own..).filter(|own| !own.is_empty()) else { continue };
        match colour(piece).filter(|_| !is_command) {
            Some(colour) => shown.push_str(&format!("\x1b[{colour}m{own}\x1b[0m")),
            None => shown.push_str(own),
        }
    }
    shown
}

fn colour(piece: Piece<'_>) -> Option<&'static str> {
    if piece.is_comment {
        return Some(COMMENT);
    }
    match piece.text.as_bytes() {
        [b'\'', ..] | [b'e' | b'E', b'\'', ..] | [b'$', _, ..] => Some(STRING),
        _ => WORDS.contains(piece.text.to_ascii_uppercase().as_str()).then_some(KEYWORD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_has_colours_and_stays_the_same_text() {
        let text = "select E'it''s', \"from\", $$ x $$ FROM t -- not FROM";
        let shown = highlighted("", text);
        for part in [
            "\x1b[1;34mselect\x1b[0m ",
            "\x1b[32mE'it''s'\x1b[0m, \"from\", \x1b[32m$$ x $$\x1b[0m",
            "\x1b[1;34mFROM\x1b[0m t \x1b[2m-- not FROM\x1b[0m",
        ] {
            assert!(shown.contains(part), "{shown:?}");
        }
        // A string that is open, and what is behind a backslash.
        assert_eq!(highlighted("select 'a\n", "b' as"), "\x1b[32mb'\x1b[0m \x1b[1;34mas\x1b[0m");
        assert_eq!(highlighted("", "\\i select.sql"), "\\i select.sql");
        let plain =
            shown.split("\x1b[").map(|part| part.split_once('m').map_or(part, |(_, rest)| rest));
        assert_eq!(plain.skip(1).collect::<String>(), text, "{shown:?}");
    }
}
