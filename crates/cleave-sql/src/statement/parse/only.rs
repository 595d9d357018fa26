//! Words without an effect here, or that the parser crate does not read. Tokens in, tokens without them out.
//!
//! - `FROM ONLY t`: there is no table inheritance.
//! - `DROP INDEX CONCURRENTLY`: nothing waits for it.
//! - `ALTER VIEW … RENAME` is `ALTER TABLE … RENAME`.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::{is_solid, is_word, solid_from};

/// Removes the words.
pub(super) fn drop_words(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    drop_only(drop_concurrently(view_as_table(tokens)))
}

/// `ALTER VIEW v RENAME TO w` is read as of a table, as PostgreSQL allows to write it.
fn view_as_table(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let has = |word| tokens.iter().any(|token| is_word(token, word));
    if !has("view") || !has("rename") {
        return tokens;
    }
    let solid: Vec<usize> = solid_from(&tokens, 0).map(|(place, _)| place).collect();
    let is = |place: &usize, word| tokens.get(*place).is_some_and(|token| is_word(token, word));
    let mut places = Vec::new();
    for (start, pair) in solid.windows(2).enumerate() {
        let [alter, view] = pair else { continue };
        let behind = solid.iter().skip(start).take_while(|place| {
            tokens.get(**place).is_some_and(|token| token.token != Token::SemiColon)
        });
        if is(alter, "alter")
            && is(view, "view")
            && behind.into_iter().any(|place| is(place, "rename"))
        {
            places.push(*view);
        }
    }
    for place in places {
        if let Some(token) = tokens.get_mut(place) {
            token.token = Token::make_keyword("TABLE");
        }
    }
    tokens
}

fn drop_concurrently(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(token, "concurrently")) {
        return tokens;
    }
    let solid: Vec<usize> = solid_from(&tokens, 0).map(|(place, _)| place).collect();
    let is_drop = |around: &[usize]| {
        let words = ["drop", "index", "concurrently"];
        let fits = around
            .iter()
            .zip(words)
            .all(|(place, word)| tokens.get(*place).is_some_and(|token| is_word(token, word)));
        around.last().copied().filter(|_| fits)
    };
    let places: Vec<usize> = solid.windows(3).filter_map(is_drop).collect();
    for place in places.into_iter().rev() {
        tokens.remove(place);
    }
    tokens
}

/// Removes ONLY before the name of a table that is read or changed.
fn drop_only(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
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
