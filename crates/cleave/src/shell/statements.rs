//! Splits SQL text into whole statements: where each ends, and whether the last one is finished. A batch is one, from
//! `BATCH BEGIN` to `BATCH END`.
//!
//! It knows just enough of PostgreSQL's lexical rules to find the semicolons that end statements: string constants
//! (also `E'…'` and `$tag$…$tag$`), quoted names, `--` and nested `/* */` comments. The meaning of statements is left
//! to the parser in `cleave-host`. It is asked whether the lines after a statement are its rows: a script contains
//! those of `COPY … FROM STDIN` as `pg_dump` writes them, up to a line `\.`.

use cleave_host::statement::{self as parsed, parse_script};

/// One statement of a text, with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Statement<'a> {
    /// From its first character that is neither white space nor comment to before its semicolon.
    pub(crate) text: &'a str,
    /// The line on which it begins, counted from 1.
    pub(crate) line: usize,
}

/// Splits `text`. The second value is true when the last statement, or a comment after it, is still open.
pub(crate) fn split(text: &str) -> (Vec<Statement<'_>>, bool) {
    let mut statements = Vec::new();
    let mut start: Option<usize> = None;
    // Of the statement within a batch.
    let mut own_start: Option<usize> = None;
    let mut in_batch = false;
    let mut inside_token = false;
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        let token = token(&text[at..]);
        if character == ';' {
            let own = own_start.take().map_or("", |start| &text[start..at]);
            in_batch = match in_batch {
                false => is_of_words(own, ["batch", "begin"]),
                true => !is_of_words(own, ["batch", "end"]),
            };
            if let Some(start) = start.take_if(|_| !in_batch) {
                statements.push(statement(text, start, at));
            }
        } else if !character.is_whitespace() && !token.is_comment {
            start.get_or_insert(at);
            own_start.get_or_insert(at);
        }
        inside_token = !token.is_closed;
        at += token.length;
    }
    let open = start.is_some() || inside_token;
    if let Some(start) = start {
        statements.push(statement(text, start, text.len()));
    }
    (statements, open)
}

/// Whether `text` needs more lines before it can run.
pub(crate) fn is_open(text: &str) -> bool {
    split(text).1
}

/// What a text that needs more lines has begun and not ended, as the prompt shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// A statement without its semicolon.
    Statement,
    /// A string constant.
    Quote,
    /// A quoted name.
    Name,
    /// A string constant between dollar signs.
    Dollar,
    /// A block comment.
    Comment,
    /// A parenthesis.
    Parenthesis,
}

impl Open {
    /// The sign of psql's prompt.
    pub(crate) fn sign(self) -> char {
        match self {
            Open::Statement => '-',
            Open::Quote => '\'',
            Open::Name => '"',
            Open::Dollar => '$',
            Open::Comment => '*',
            Open::Parenthesis => '(',
        }
    }
}

/// What is open at the end of `text`; None if it can run, or has no statement.
pub(crate) fn open_at_end(text: &str) -> Option<Open> {
    let mut depth = 0_usize;
    for piece in pieces(text) {
        if !piece.is_closed {
            return Some(match piece.text.as_bytes() {
                [b'"', ..] => Open::Name,
                [b'$', ..] => Open::Dollar,
                [b'/', ..] => Open::Comment,
                _ => Open::Quote,
            });
        }
        match piece.text {
            ";" => depth = 0,
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let open = if depth > 0 { Open::Parenthesis } else { Open::Statement };
    is_open(text).then_some(open)
}

/// A word, a quoted text, a comment or another single character of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Its first byte in the text.
    pub(crate) start: usize,
    /// The piece.
    pub(crate) text: &'a str,
    /// Whether it is a comment.
    pub(crate) is_comment: bool,
    /// Whether it does not end with the text unfinished.
    pub(crate) is_closed: bool,
}

/// The pieces of a text, which together are all of it.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let Token { length, is_comment, is_closed } = token(rest);
        let piece = Piece { start: at, text: rest.get(..length)?, is_comment, is_closed };
        at += length;
        Some(piece)
    })
}

/// Where the first command of the shell begins in whole lines, a backslash outside of quotes and comments, looked for
/// from `from` on. If there is none, the error says from where to look when more lines are there.
pub(crate) fn command_start(lines: &str, from: usize) -> Result<usize, usize> {
    for piece in pieces(lines.get(from..).unwrap_or_default()) {
        if piece.text == "\\" {
            return Ok(from + piece.start);
        }
        if !piece.is_closed {
            return Err(from + piece.start);
        }
    }
    Err(lines.len())
}

/// Whether a statement reads rows from its client.
pub(crate) fn copies_from_client(text: &str) -> bool {
    is_copy(text, |copy| matches!(copy, parsed::Copy::From { end: parsed::CopyEnd::Client, .. }))
}

/// Whether a statement writes rows to its client.
pub(crate) fn copies_to_client(text: &str) -> bool {
    is_copy(text, |copy| matches!(copy, parsed::Copy::To { end: parsed::CopyEnd::Client, .. }))
}

/// Takes the lines of a script that are rows, and the line `\.` after them, or all remaining ones.
pub(crate) fn take_rows<'a>(lines: &mut impl Iterator<Item = &'a str>) -> String {
    lines.take_while(|line| line.trim_end_matches(['\r', '\n']) != "\\.").collect()
}

/// Whether a statement is a COPY for which `is_meant` is true.
fn is_copy(text: &str, is_meant: impl Fn(&parsed::Copy) -> bool) -> bool {
    // All others are parsed once, when they run.
    let begins_so = text.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
    begins_so
        && parse_script(text).is_ok_and(|statements| {
            statements.iter().any(|statement| match &statement.statement {
                parsed::Statement::Copy(copy) => is_meant(copy.as_ref()),
                _ => false,
            })
        })
}

/// Whether a statement has these words and no others.
fn is_of_words(statement: &str, words: [&str; 2]) -> bool {
    let mut found = statement.split_whitespace();
    let is_next = |word: &str| found.next().is_some_and(|next| next.eq_ignore_ascii_case(word));
    words.into_iter().all(is_next) && found.next().is_none()
}

fn statement(text: &str, start: usize, end: usize) -> Statement<'_> {
    let line = 1 + text[..start].matches('\n').count();
    Statement { text: text[start..end].trim_end(), line }
}

/// The unit in which a semicolon does not end a statement.
struct Token {
    length: usize,
    is_comment: bool,
    is_closed: bool,
}

/// The token at the start of `text`, which is not empty; an unclosed one runs to the end.
fn token(text: &str) -> Token {
    let unclosed = |is_comment| Token { length: text.len(), is_comment, is_closed: false };
    let closed = |length| Token { length, is_comment: false, is_closed: true };
    let quoted = |length: Option<usize>| length.map_or(unclosed(false), closed);
    match text.as_bytes() {
        [b'-', b'-', ..] => {
            let length = text.find('\n').map_or(text.len(), |newline| newline + 1);
            Token { length, is_comment: true, is_closed: true }
        }
        [b'/', b'*', ..] => match block_comment_length(text.as_bytes()) {
            Some(length) => Token { length, is_comment: true, is_closed: true },
            None => unclosed(true),
        },
        [b'\'', ..] => quoted(quoted_length(text.as_bytes(), 1, b'\'', false)),
        [b'e' | b'E', b'\'', ..] => quoted(quoted_length(text.as_bytes(), 2, b'\'', true)),
        [b'"', ..] => quoted(quoted_length(text.as_bytes(), 1, b'"', false)),
        [b'$', ..] => match dollar_tag(text) {
            Some(tag) => {
                let body = &text[tag.len()..];
                quoted(body.find(tag).map(|end| tag.len() + end + tag.len()))
            }
            None => closed(1),
        },
        // A word is one token, so that the last letter of `name'…'` does not begin an escape string.
        _ => match text.find(|c: char| !(c.is_alphanumeric() || c == '_')) {
            Some(0) => closed(text.chars().next().map_or(1, char::len_utf8)),
            Some(length) => closed(length),
            None => closed(text.len()),
        },
    }
}

/// The length from the start of the opening quote, which has `opening` bytes, to behind the closing one.
fn quoted_length(bytes: &[u8], opening: usize, quote: u8, escapes: bool) -> Option<usize> {
    let mut at = opening;
    loop {
        let byte = *bytes.get(at)?;
        let doubled = byte == quote && bytes.get(at + 1) == Some(&quote);
        if doubled || (escapes && byte == b'\\') {
            at += 2;
        } else if byte == quote {
            return Some(at + 1);
        } else {
            at += 1;
        }
    }
}

/// The `$tag$` at the start of `text`, or nothing if the dollar means something else, as in `$1`.
fn dollar_tag(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('$')?;
    let name_length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    let starts_with_digit = rest.starts_with(|c: char| c.is_ascii_digit());
    (rest[name_length..].starts_with('$') && !starts_with_digit).then(|| &text[..name_length + 2])
}

fn block_comment_length(bytes: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        match bytes.get(at..)? {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth.saturating_sub(1), at + 2),
            [] => return None,
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests;
