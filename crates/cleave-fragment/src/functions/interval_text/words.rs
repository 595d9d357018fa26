//! The words of an interval's text.

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number with or without a sign, a fraction, or months behind its years.
    Number,
    /// Hours and minutes.
    Time,
    Word,
}

/// The words from left to right, names in lower case; None: there is something that no interval has. Blanks and marks
/// separate words and mean nothing else, and a sign joins the number behind it.
pub(super) fn words(text: &str) -> Option<Vec<(Kind, String)>> {
    let mut rest = text;
    let mut words = Vec::new();
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_whitespace() || first == '\x0b' {
            rest = rest.get(1..)?;
            continue;
        }
        if matches!(first, '+' | '-') {
            rest = rest.get(1..)?.trim_start_matches(|next: char| next.is_ascii_whitespace());
            let is_number = |next: char| next.is_ascii_digit() || next == '.';
            if !rest.starts_with(is_number) {
                return None;
            }
            let word = taken(&mut rest, |next| is_number(next) || matches!(next, ':' | '-'))?;
            let kind = if word.contains(':') { Kind::Time } else { Kind::Number };
            words.push((kind, format!("{first}{word}")));
        } else if first.is_ascii_digit() {
            let mut word = taken(&mut rest, |next| next.is_ascii_digit())?.to_owned();
            let kind = if rest.starts_with(':') { Kind::Time } else { Kind::Number };
            let mark = rest.chars().next().unwrap_or_default();
            word += match mark {
                ':' => taken(&mut rest, |next| next.is_ascii_digit() || matches!(next, ':' | '.'))?,
                '-' | '/' | '.' => {
                    let is_more = |next: char| next.is_ascii_digit() || next == mark;
                    taken(&mut rest, is_more)?
                }
                _ => "",
            };
            words.push((kind, word));
        } else if first == '.' {
            let mut is_point = true;
            let word =
                taken(&mut rest, |next| next.is_ascii_digit() || std::mem::take(&mut is_point))?;
            words.push((Kind::Number, word.to_owned()));
        } else if first.is_ascii_alphabetic() {
            let word = taken(&mut rest, |next| next.is_ascii_alphabetic())?;
            if rest.starts_with(['-', '/', '.']) {
                return None;
            }
            words.push((Kind::Word, word.to_ascii_lowercase()));
        } else if first.is_ascii_punctuation() {
            rest = rest.get(1..)?;
        } else {
            return None;
        }
    }
    Some(words)
}

/// The beginning of `rest` that is wanted, which it loses.
fn taken<'a>(rest: &mut &'a str, mut is_wanted: impl FnMut(char) -> bool) -> Option<&'a str> {
    let end = rest.find(|next| !is_wanted(next)).unwrap_or(rest.len());
    let (word, behind) = rest.split_at_checked(end)?;
    *rest = behind;
    Some(word)
}
