//! `FROM ONLY t`: there is no table inheritance, so ONLY has no effect, and the parser crate does not read it. Tokens
//! in, tokens without it out.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::{is_solid, is_word};

/// Removes ONLY before the name of a table that is read or changed.
pub(super) fn drop_only(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(token, "only")) {
        return tokens;
    }
    let solid: Vec<usize> = (0..tokens.len()).filter(|place| is_solid(&tokens[*place])).collect();
    let is_behind = |place: usize| {
        ["from", "join", "update"].into_iter().any(|word| is_word(&tokens[place], word))
    };
    let is_only = |around: &[usize]| match around {
        [before, only, name] => (is_behind(*before)
            && is_word(&tokens[*only], "only")
            && matches!(tokens[*name].token, Token::Word(_)))
        .then_some(*only),
        _ => None,
    };
    let places: Vec<usize> = solid.windows(3).filter_map(is_only).collect();
    for place in places.into_iter().rev() {
        tokens.remove(place);
    }
    tokens
}
