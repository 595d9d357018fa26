//! What is asked of the tokens of a script before the parser crate has them: clauses that it does not know are taken out, or lowered.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Whether `token` is `word`, not in quotes.
pub(super) fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(found)
        if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// Whether `token` is more than white space or a comment.
pub(super) fn is_solid(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

/// Those of `tokens` from the place `first` on that are [solid](is_solid), with their places.
pub(super) fn solid_from(
    tokens: &[TokenWithSpan],
    first: usize,
) -> impl Iterator<Item = (usize, &TokenWithSpan)> {
    tokens.iter().enumerate().skip(first).filter(|(_, token)| is_solid(token))
}
