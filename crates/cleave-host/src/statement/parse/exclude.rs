//! `EXCLUDE …` at the end of a window's frame, which the parser crate does not read: `NO OTHERS`, which is what holds
//! without it, is taken out, and the others are refused by name.
//!
//! Source: PostgreSQL's manual, "Window Function Calls".

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::{is_word, solid_from};
use crate::error::{Error, Result};
use crate::statement::names::position_of;

/// What may stand behind EXCLUDE.
const EXCLUDED: [&[&str]; 4] = [&["NO", "OTHERS"], &["CURRENT", "ROW"], &["GROUP"], &["TIES"]];

/// Takes `EXCLUDE NO OTHERS` out of `tokens`.
///
/// # Errors
/// [`Error::Unsupported`] for the other three.
pub(super) fn take_exclude(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let mut first = 0;
    while let Some(found) = tokens.iter().skip(first).position(|token| is_word(token, "EXCLUDE")) {
        let place = first + found;
        first = place + 1;
        let Some((what, last)) = excluded(tokens, place) else { continue };
        if what != "NO OTHERS" {
            let position = tokens.get(place).and_then(|token| position_of(token.span.start));
            let what = format!("EXCLUDE {what} in a window's frame");
            return Err(Error::unsupported(what).at(position));
        }
        tokens.drain(place..=last);
    }
    Ok(())
}

/// What is excluded by the word at `place`, and where that ends; None: the word is something else.
fn excluded(tokens: &[TokenWithSpan], place: usize) -> Option<(String, usize)> {
    let before = tokens.get(..place)?;
    let before = before.iter().rfind(|token| super::tokens::is_solid(token))?;
    if !["ROW", "PRECEDING", "FOLLOWING"].iter().any(|word| is_word(before, word)) {
        return None;
    }
    EXCLUDED.iter().find_map(|words| {
        let mut next = solid_from(tokens, place + 1);
        let mut last = place;
        for word in *words {
            let (found, _) = next.next().filter(|(_, token)| is_word(token, word))?;
            last = found;
        }
        let (_, end) = next.next()?;
        (end.token == Token::RParen).then(|| (words.join(" "), last))
    })
}
