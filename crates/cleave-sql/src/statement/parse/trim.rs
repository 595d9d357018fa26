//! `trim(LEADING FROM x)` and `trim(FROM x)`, which the parser crate does not read: tokens in, tokens without that FROM
//! out.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::{is_solid, is_word};

/// Leaves out FROM where nothing stands between it and the side that is trimmed.
pub(super) fn drop_from(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(token, "trim")) {
        return tokens;
    }
    let solid: Vec<usize> = (0..tokens.len()).filter(|place| is_solid(&tokens[*place])).collect();
    let mut left_out: Vec<usize> = Vec::new();
    for around in solid.windows(4) {
        let &[trim, open, third, fourth] = around else { continue };
        if !is_word(&tokens[trim], "trim") || tokens[open].token != Token::LParen {
            continue;
        }
        let is_side =
            ["both", "leading", "trailing"].iter().any(|side| is_word(&tokens[third], side));
        if is_word(&tokens[third], "from") {
            left_out.push(third);
        } else if is_side && is_word(&tokens[fourth], "from") {
            left_out.push(fourth);
        }
    }
    for place in left_out.into_iter().rev() {
        tokens.remove(place);
    }
    tokens
}
