//! `EXCLUDE …` at the end of a window's frame, which the parser crate does not read: it is taken out. `NO OTHERS` is
//! the default. The others become a [mark](Exclusion::mark) in the name of the base window, which
//! [`windows`](super::windows) reads.
//!
//! Source: PostgreSQL's manual, "Window Function Calls".

use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::tokens::{is_solid, is_word, solid_from};
use crate::dialect::Exclusion;
use crate::statement::names::fold;

/// Words with which a window without a base window begins.
const CLAUSES: [&str; 5] = ["PARTITION", "ORDER", "ROWS", "RANGE", "GROUPS"];

/// Takes EXCLUDE out of the frames in `tokens`.
pub(super) fn take_exclude(tokens: &mut Vec<TokenWithSpan>) {
    let mut first = 0;
    while let Some(found) = tokens.iter().skip(first).position(|token| is_word(token, "EXCLUDE")) {
        let place = first + found;
        first = place + 1;
        let Some((exclusion, last)) = excluded(tokens, place) else { continue };
        tokens.drain(place..=last);
        if let Some(exclusion) = exclusion {
            mark(tokens, place, exclusion);
        }
    }
}

/// The exclusion at `place`, if any, and its end; None: the word is something else.
fn excluded(tokens: &[TokenWithSpan], place: usize) -> Option<(Option<Exclusion>, usize)> {
    let before = tokens.get(..place)?;
    let before = before.iter().rfind(|token| is_solid(token))?;
    if !["ROW", "PRECEDING", "FOLLOWING"].iter().any(|word| is_word(before, word)) {
        return None;
    }
    let end_of = |words: &[&str]| {
        let mut next = solid_from(tokens, place + 1);
        let mut last = place;
        for word in words {
            let (found, _) = next.next().filter(|(_, token)| is_word(token, word))?;
            last = found;
        }
        let (_, end) = next.next()?;
        (end.token == Token::RParen).then_some(last)
    };
    if let Some(last) = end_of(&["NO", "OTHERS"]) {
        return Some((None, last));
    }
    Exclusion::ALL.into_iter().find_map(|one| Some((Some(one), end_of(one.words())?)))
}

/// Marks the window whose frame ends before `place`.
fn mark(tokens: &mut Vec<TokenWithSpan>, place: usize, exclusion: Exclusion) {
    let mut open = 0_usize;
    let before = tokens.iter().take(place).enumerate().rev();
    let begins = before.into_iter().find_map(|(index, token)| match token.token {
        Token::LParen if open == 0 => Some(index),
        Token::LParen => {
            open -= 1;
            None
        }
        Token::RParen => {
            open += 1;
            None
        }
        _ => None,
    });
    let Some((next, _)) = begins.and_then(|begins| solid_from(tokens, begins + 1).next()) else {
        return;
    };
    let Some(first) = tokens.get_mut(next) else { return };
    let name = match &first.token {
        Token::Word(word) if word.quote_style.is_some() || !is_clause(word) => {
            let name = Ident { value: word.value.clone(), ..Ident::new("") };
            fold(&Ident { quote_style: word.quote_style, ..name })
        }
        _ => String::new(),
    };
    let is_named = !name.is_empty();
    let value = name + exclusion.mark();
    let word = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
    let marked = TokenWithSpan { token: Token::Word(word), span: first.span };
    match is_named {
        true => *first = marked,
        false => tokens.insert(next, marked),
    }
}

fn is_clause(word: &Word) -> bool {
    CLAUSES.iter().any(|clause| word.value.eq_ignore_ascii_case(clause))
}
