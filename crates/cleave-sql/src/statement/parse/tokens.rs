//! Checks and rewrites of a script's tokens before the parser crate reads them: clauses that it does not know are taken
//! out, or replaced.

use cleave_catalog::error::{Error, Fault, Result};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::statement::locking::HIDDEN;
use crate::statement::names::position_of;

/// Refuses names with the sign that marks internal names in plans, such as that of the target rows of a statement: a
/// user who could write them would bypass privileges.
///
/// # Errors
/// [`Error::Invalid`].
pub(super) fn refuse_hidden(tokens: &[TokenWithSpan]) -> Result<()> {
    for token in tokens {
        if let Token::Word(word) = &token.token
            && word.value.contains(HIDDEN)
        {
            return Err(Error::Invalid {
                message: "a name cannot contain the control character U+0001".to_owned(),
                fault: Fault::Statement,
                position: position_of(token.span.start),
            });
        }
    }
    Ok(())
}

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
