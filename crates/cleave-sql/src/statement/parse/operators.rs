//! `x OPERATOR(pg_catalog.=) ANY (…)`, which the parser crate does not read: tokens in, tokens with `=` out.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::{is_solid, is_word};

/// Removes the schema of PostgreSQL's own operators before ANY, SOME and ALL.
pub(super) fn lower_before_any(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(token, "operator")) {
        return tokens;
    }
    let solid: Vec<usize> = (0..tokens.len()).filter(|place| is_solid(&tokens[*place])).collect();
    let mut left_out = vec![false; tokens.len()];
    for around in solid.windows(7) {
        let &[word, open, schema, period, operator, close, list] = around else { continue };
        let is = |place: usize, token: &Token| tokens[place].token == *token;
        let is_own = is_word(&tokens[word], "operator")
            && is(open, &Token::LParen)
            && is_word(&tokens[schema], "pg_catalog")
            && is(period, &Token::Period)
            && !matches!(tokens[operator].token, Token::Word(_) | Token::Number(..))
            && is(close, &Token::RParen)
            && ["any", "some", "all"].into_iter().any(|word| is_word(&tokens[list], word));
        if is_own {
            [word, open, schema, period, close]
                .into_iter()
                .for_each(|place| left_out[place] = true);
        }
    }
    let kept = tokens.into_iter().zip(left_out).filter(|(_, is_out)| !is_out);
    kept.map(|(token, _)| token).collect()
}
