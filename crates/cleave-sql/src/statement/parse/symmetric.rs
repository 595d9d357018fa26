//! `x BETWEEN SYMMETRIC a AND b`, which the parser crate does not read: tokens are rewritten before it, and its tree is
//! rewritten afterwards. `BETWEEN ASYMMETRIC` is BETWEEN.
//!
//! ```text
//!  x BETWEEN SYMMETRIC a + 1 AND b ─▶ x BETWEEN symmetric(a + 1) AND b
//!                                  ─▶ (x BETWEEN a + 1 AND b OR x BETWEEN b AND a + 1)
//! ```
//!
//! Source: PostgreSQL's manual, "Comparison Functions and Operators": the first bound ends at the first AND outside of
//! parentheses and of CASE.

use std::ops::ControlFlow;

use crate::visiting::{Visited, visit_mut};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, VisitorMut};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// The reserved function around the first bound, which users cannot call.
const SYMMETRIC: &str = "\u{1}symmetric";

/// Marks the first bound behind each BETWEEN SYMMETRIC; returns whether there is one.
pub(super) fn mark_symmetric(tokens: Vec<TokenWithSpan>) -> (Vec<TokenWithSpan>, bool) {
    let is_concerned = |token: &TokenWithSpan| is_symmetric(&token.token).is_some();
    if !tokens.iter().any(is_concerned) {
        return (tokens, false);
    }
    let mut marked = Vec::with_capacity(tokens.len() + 8);
    // Open parentheses and CASEs, and in which of them a bound has begun.
    let (mut open, mut begun): (Vec<Token>, Vec<usize>) = (Vec::new(), Vec::new());
    let (mut follows_between, mut is_marked) = (false, false);
    for token in tokens {
        if matches!(token.token, Token::Whitespace(_)) {
            marked.push(token);
            continue;
        }
        let put = |token: Token, span| TokenWithSpan { token, span };
        let span = token.span;
        if follows_between && let Some(is_symmetric) = is_symmetric(&token.token) {
            follows_between = false;
            if is_symmetric {
                is_marked = true;
                let (value, quote_style) = (SYMMETRIC.to_owned(), Some('"'));
                let keyword = Keyword::NoKeyword;
                marked.push(put(Token::Word(Word { value, quote_style, keyword }), span));
                marked.push(put(Token::LParen, span));
                begun.push(open.len());
            }
            continue;
        }
        let keyword = keyword(&token.token);
        follows_between = keyword == Keyword::BETWEEN;
        match (&token.token, keyword) {
            (Token::SemiColon, _) => (open, begun) = (Vec::new(), Vec::new()),
            (Token::LParen | Token::LBracket, _) | (_, Keyword::CASE) => {
                open.push(token.token.clone());
            }
            (Token::RParen | Token::RBracket, _) | (_, Keyword::END) => {
                open.pop();
            }
            (_, Keyword::AND) if begun.last() == Some(&open.len()) => {
                begun.pop();
                marked.push(put(Token::RParen, span));
            }
            _ => {}
        }
        marked.push(token);
    }
    (marked, is_marked)
}

/// Rewrites the marked bounds to conditions.
pub(super) fn lower_symmetric(part: &mut impl Visited) {
    let flow = visit_mut(part, &mut Lower);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

struct Lower;

impl VisitorMut for Lower {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let Expr::Between { expr, negated, low, high } = expression else {
            return ControlFlow::Continue(());
        };
        let Some(first) = marked(low) else { return ControlFlow::Continue(()) };
        let (negated, second) = (*negated, high.clone());
        let between = |low: &Expr, high: &Expr| {
            let (expr, low, high) = (expr.clone(), nested(low), nested(high));
            nested(&Expr::Between { expr, negated, low, high })
        };
        let (left, right) = (between(first, &second), between(&second, first));
        let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
        *expression = Expr::Nested(Box::new(Expr::BinaryOp { left, op, right }));
        ControlFlow::Continue(())
    }
}

/// The marked bound.
fn marked(bound: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = bound else { return None };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(bound))]
            if name.value == SYMMETRIC =>
        {
            Some(bound)
        }
        _ => None,
    }
}

/// `expression`, in parentheses where it has parts.
fn nested(expression: &Expr) -> Box<Expr> {
    Box::new(match expression {
        Expr::Value(_)
        | Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::Nested(_)
        | Expr::Function(_) => expression.clone(),
        other => Expr::Nested(Box::new(other.clone())),
    })
}

/// Whether a token is SYMMETRIC or ASYMMETRIC; None: neither.
fn is_symmetric(token: &Token) -> Option<bool> {
    let Token::Word(word) = token else { return None };
    if word.quote_style.is_some() {
        return None;
    }
    match word.value.to_ascii_uppercase().as_str() {
        "SYMMETRIC" => Some(true),
        "ASYMMETRIC" => Some(false),
        _ => None,
    }
}

fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

#[cfg(test)]
mod tests {
    use crate::statement::{Statement, parse_script};

    #[test]
    fn bounds_may_stand_in_any_order() {
        let condition = |sql: &str| match parse_script(&format!("SELECT {sql}")).unwrap().remove(0)
        {
            parsed if matches!(parsed.statement, Statement::Query(_)) => {
                let Statement::Query(query) = parsed.statement else { unreachable!() };
                query.to_string().strip_prefix("SELECT ").unwrap().to_owned()
            }
            other => panic!("{other:?}"),
        };
        for (sql, expected) in [
            ("x BETWEEN SYMMETRIC 5 AND 1", "((x BETWEEN 5 AND 1) OR (x BETWEEN 1 AND 5))"),
            (
                "x between symmetric a + 1 AND f(b)",
                "((x BETWEEN (a + 1) AND f(b)) OR (x BETWEEN f(b) AND (a + 1)))",
            ),
            (
                "x NOT BETWEEN SYMMETRIC 5 AND 1",
                "((x NOT BETWEEN 5 AND 1) AND (x NOT BETWEEN 1 AND 5))",
            ),
            ("x BETWEEN ASYMMETRIC 5 AND 1", "x BETWEEN 5 AND 1"),
            (
                "x BETWEEN SYMMETRIC (CASE WHEN a AND b THEN 1 END) AND 3 AND y",
                "((x BETWEEN (CASE WHEN a AND b THEN 1 END) AND 3) OR (x BETWEEN 3 AND (CASE WHEN a AND b THEN 1 \
                    END))) AND y",
            ),
            ("symmetric BETWEEN 1 AND 2", "symmetric BETWEEN 1 AND 2"),
        ] {
            assert_eq!(condition(sql), expected, "{sql}");
        }
        assert!(parse_script("SELECT x BETWEEN SYMMETRIC 1").is_err());
    }
}
