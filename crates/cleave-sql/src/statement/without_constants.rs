//! A statement's text without its constants, by which statements that differ only in them are counted together.
//!
//! ```text
//!  SELECT a FROM t -- of ada        ─▶  SELECT a FROM t WHERE b = $1 AND c IN ($2, ...)
//!  WHERE b = 'x' AND c IN (1, 2, 3);
//! ```
//!
//! Comments go, blanks become one, and a parameter stands for each constant, numbered after those that the text has.
//! Lists of constants behind IN have one, however long they are.
//!
//! Invariant: no text of a literal is left, also where the text is no valid statement. So no password is.
//!
//! Source: PostgreSQL's pg_stat_statements, "query jumbling"; PostgreSQL's manual, "Lexical Structure".

/// Bytes of a text that count, and of what is made of it: what comes later is left out.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// `text` with parameters in the place of constants.
#[must_use]
pub fn without_constants(text: &str) -> String {
    let cut = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or(text);
    let mut writer = Writer::new(cut);
    let mut rest = cut;
    while let Some((token, length)) = token(rest) {
        let (own, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
        writer.write(token, own);
        rest = behind;
    }
    writer.end(cut.len() < text.len())
}

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    /// White space, or a comment.
    Blank,
    Constant,
    /// A name, a key word or a parameter.
    Word,
    /// A single character.
    Sign,
}

/// Where the writer is in a list behind IN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Outside,
    /// Behind the word.
    Announced,
    /// Behind its parenthesis.
    Opened,
    /// Behind constants alone; whether some were left out.
    Constants(bool),
    /// Behind a comma that is not written yet.
    Comma(bool),
}

struct Writer {
    text: String,
    /// The number of the next parameter.
    next: usize,
    has_blank: bool,
    list: List,
}

impl Writer {
    fn new(source: &str) -> Self {
        let next = parameter_max(source) + 1;
        let text = String::with_capacity(source.len());
        Self { text, next, has_blank: false, list: List::Outside }
    }

    fn write(&mut self, token: Token, own: &str) {
        if token == Token::Blank {
            self.has_blank = true;
            return;
        }
        self.list = match (self.list, token, own) {
            (_, Token::Word, own) if own.eq_ignore_ascii_case("in") => {
                self.write_comma();
                List::Announced
            }
            (List::Announced, Token::Sign, "(") => List::Opened,
            (List::Opened, Token::Constant, _) => List::Constants(false),
            (List::Constants(left_out), Token::Sign, ",") => {
                self.list = List::Comma(left_out);
                return;
            }
            (List::Comma(_), Token::Constant, _) => {
                self.list = List::Constants(true);
                self.has_blank = false;
                return;
            }
            (List::Constants(true), Token::Sign, ")") => {
                self.text.push_str(", ...");
                self.has_blank = false;
                List::Outside
            }
            _ => {
                self.write_comma();
                List::Outside
            }
        };
        if std::mem::take(&mut self.has_blank) && !self.text.is_empty() {
            self.text.push(' ');
        }
        match token {
            Token::Constant => {
                self.text.push('$');
                self.text.push_str(&self.next.to_string());
                self.next += 1;
            }
            _ => self.text.push_str(own),
        }
    }

    /// Writes the comma that waits for what comes behind it.
    fn write_comma(&mut self) {
        match self.list {
            List::Comma(true) => self.text.push_str(", ...,"),
            List::Comma(false) => self.text.push(','),
            List::Outside | List::Announced | List::Opened | List::Constants(_) => {}
        }
    }

    fn end(mut self, is_cut: bool) -> String {
        let end = self.text.trim_end_matches([';', ' ']).len();
        // Parameters may be longer than their constants.
        let own = self.text.floor_char_boundary(TEXT_BYTES_MAX).min(end);
        self.text.truncate(own);
        if is_cut || own < end {
            self.text.push('…');
        }
        self.text
    }
}

/// The largest number of a parameter; what stands in a literal, as '$5', is none.
fn parameter_max(source: &str) -> usize {
    let (mut most, mut rest) = (0, if source.contains('$') { source } else { "" });
    while let Some((token, length)) = token(rest) {
        let (own, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
        let number = own.strip_prefix('$').filter(|_| token == Token::Word);
        let number = number.and_then(|digits| digits.parse::<usize>().ok());
        most = most.max(number.filter(|number| *number <= 0xFFFF).unwrap_or(0));
        rest = behind;
    }
    most
}

/// The first token of `rest` and its length; None: there is none left.
fn token(rest: &str) -> Option<(Token, usize)> {
    let bytes = rest.as_bytes();
    let first = rest.chars().next()?;
    let found = match first {
        blank if blank.is_whitespace() => (Token::Blank, length_while(rest, char::is_whitespace)),
        '-' if rest.starts_with("--") => (Token::Blank, rest.find('\n').unwrap_or(rest.len())),
        '/' if rest.starts_with("/*") => (Token::Blank, comment(bytes)),
        '\'' => (Token::Constant, quoted(bytes, 0, b'\'', false)),
        '"' => (Token::Word, quoted(bytes, 0, b'"', false)),
        '$' => match dollar_quoted(rest) {
            Some(length) => (Token::Constant, length),
            None => {
                let digits = length_while(rest.get(1..)?, |letter| letter.is_ascii_digit());
                if digits > 0 { (Token::Word, 1 + digits) } else { (Token::Sign, 1) }
            }
        },
        digit if digit.is_ascii_digit() => (Token::Constant, number(bytes)),
        '.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => (Token::Constant, number(bytes)),
        letter if is_of_word(letter) => word(rest),
        other => (Token::Sign, other.len_utf8()),
    };
    Some(found)
}

/// A word; or a literal that begins with letters, as `E'\n'`, `X'1F'` and `U&'d\0061t'`.
fn word(rest: &str) -> (Token, usize) {
    let length = length_while(rest, |letter| is_of_word(letter) || letter == '$');
    let own = rest.get(..length).unwrap_or_default();
    let behind = rest.get(length..).unwrap_or_default();
    let bytes = rest.as_bytes();
    let is = |name: &str| own.eq_ignore_ascii_case(name);
    if behind.starts_with('\'') && ["e", "b", "x", "n"].into_iter().any(is) {
        return (Token::Constant, quoted(bytes, length, b'\'', is("e")));
    }
    if behind.starts_with("&'") && is("u") {
        return (Token::Constant, quoted(bytes, length + 1, b'\'', false));
    }
    (Token::Word, length)
}

fn is_of_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}

/// Bytes of the characters at the beginning of `rest` that are `of` a kind.
fn length_while(rest: &str, of: impl Fn(char) -> bool) -> usize {
    rest.find(|letter| !of(letter)).unwrap_or(rest.len())
}

/// The end of what `quote` opens at `begin`; a doubled quote does not end it, nor does one that a backslash `escapes`.
fn quoted(bytes: &[u8], begin: usize, quote: u8, escapes: bool) -> usize {
    let mut at = begin + 1;
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        match *byte {
            b'\\' if escapes => at += 2,
            own if own == quote && next == Some(&quote) => at += 2,
            own if own == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a comment, which may hold others.
fn comment(bytes: &[u8]) -> usize {
    let (mut at, mut depth) = (2, 1_usize);
    while depth > 0 {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b'/'), Some(b'*')) => (at, depth) = (at + 2, depth + 1),
            (Some(b'*'), Some(b'/')) => (at, depth) = (at + 2, depth - 1),
            (Some(_), _) => at += 1,
            (None, _) => return bytes.len(),
        }
    }
    at
}

/// The length of a text between dollar signs, as `$tag$…$tag$`; None: it is none.
fn dollar_quoted(rest: &str) -> Option<usize> {
    let behind = rest.get(1..)?;
    let tag = length_while(behind, is_of_word);
    let is_tag = behind.get(tag..)?.starts_with('$')
        && !behind.starts_with(|letter: char| letter.is_ascii_digit());
    let mark = rest.get(..tag + 2).filter(|_| is_tag)?;
    let body = rest.get(mark.len()..)?;
    let end = body.find(mark).map(|found| mark.len() + found + mark.len());
    Some(end.unwrap_or(rest.len()))
}

/// The length of a number, with its exponent; letters behind it are of it.
fn number(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let follows_exponent = at > 0 && matches!(bytes.get(at - 1), Some(b'e' | b'E'));
        let is_sign = matches!(byte, b'+' | b'-') && follows_exponent;
        let is_behind_sign = is_sign && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || is_behind_sign) {
            break;
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn constants_go_and_the_rest_stays() {
        for (text, expected) in [
            ("SELECT 1", "SELECT $1"),
            ("SELECT  a\n\tFROM t ; ", "SELECT a FROM t"),
            (
                "SELECT 'it''s', E'\\'x', $$y'$$, $t$z$$t$, X'1F', U&'d'",
                "SELECT $1, $2, $3, $4, $5, $6",
            ),
            (
                "SELECT a1, \"b 2\", 1.5e-3, .5, 0x1F FROM t2",
                "SELECT a1, \"b 2\", $1, $2, $3 FROM t2",
            ),
            ("SELECT /* a /* b */ 'c' */ 1 -- 'd'\n + 2", "SELECT $1 + $2"),
            ("SELECT a FROM t WHERE a = $2 AND b = 7", "SELECT a FROM t WHERE a = $2 AND b = $3"),
            ("SELECT '$7', $3, $$ $9 $$", "SELECT $4, $3, $5"),
            ("SELECT a IN (1, 2,3) , b in (1)", "SELECT a IN ($1, ...) , b in ($2)"),
            ("SELECT a IN (1, 2, b, 3)", "SELECT a IN ($1, ..., b, $2)"),
            ("SELECT a IN (SELECT 1, 2)", "SELECT a IN (SELECT $1, $2)"),
            ("SELECT a::int4, b = -1", "SELECT a::int4, b = -$1"),
            ("ALTER ROLE ada PASSWORD 'pencil", "ALTER ROLE ada PASSWORD $1"),
            ("SELECT 'é' = ü", "SELECT $1 = ü"),
            ("", ""),
        ] {
            assert_eq!(without_constants(text), expected, "{text}");
        }
        let long = format!("INSERT INTO t VALUES {}", "(1), ".repeat(10_000));
        let short = without_constants(&long);
        assert!(short.starts_with("INSERT INTO t VALUES ($1), ($2), ") && short.ends_with('…'));
        assert!(short.len() <= TEXT_BYTES_MAX + '…'.len_utf8(), "{}", short.len());
    }

    proptest! {
        #[test]
        fn any_text_comes_to_an_end_without_its_literals(
            before in "[a-z(,$/ '\"-]{0,20}", after in "\\PC{0,20}"
        ) {
            drop(without_constants(&format!("{before}{after}")));
            let text = format!("SELECT 'secret' {after}");
            prop_assert!(!without_constants(&text).contains("secret") || after.contains("secret"));
        }
    }
}
