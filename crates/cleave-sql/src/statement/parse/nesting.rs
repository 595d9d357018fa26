//! Limits the nesting of a statement: removes double parentheses, balances long chains of AND and OR, and refuses what
//! is still too deep.
//!
//! ```text
//!  (((a)))               ─▶ (a)
//!  a OR b OR c OR d …    ─▶ ((a OR b) OR (c OR d)) OR …       as deep as the logarithm of their number
//!  ((a AND b) AND c) …   ─▶ the same
//! ```
//!
//! The parser and the walks over its tree and DataFusion's trees grow their stack as needed. Dropping, comparing and
//! writing a tree, and evaluating an expression, recurse once per level on the thread's own stack. [`LEVELS_MAX`] is
//! the limit for a thread of 2 MiB.
//!
//! AND and OR are associative, also with NULL, and their operands keep their order.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, VisitorMut};

use crate::visiting::{Visited, visit_mut};
use cleave_catalog::error::{Error, Fault, Result};

/// Most levels that the parser goes down.
pub(super) const PARSED_LEVELS_MAX: usize = 5000;

/// Maximum number of remaining levels; an operator counts as one.
pub(super) const LEVELS_MAX: usize = 2000;

/// Levels of any other expression: its evaluation takes more stack than an operator.
const EXPRESSION: usize = 10;
/// Levels of a query: rules of DataFusion recurse through it with large frames.
const QUERY: usize = 40;

/// Shallower chains stay as they are.
const CHAIN_MIN: usize = 16;

/// Makes `part` shallow.
///
/// # Errors
/// [`Fault::TooComplex`].
pub fn flatten(part: &mut impl Visited) -> Result<()> {
    match visit_mut(part, &mut Flatten { levels: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(too_deep(LEVELS_MAX)),
    }
}

/// A statement that nests deeper than `levels`.
pub(super) fn too_deep(levels: usize) -> Error {
    Error::Invalid {
        message: format!("the statement nests deeper than {levels} levels"),
        fault: Fault::TooComplex,
        position: None,
    }
}

struct Flatten {
    levels: usize,
}

impl Flatten {
    fn enter(&mut self, levels: usize) -> ControlFlow<()> {
        self.levels += levels;
        if self.levels > LEVELS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn leave(&mut self, levels: usize) -> ControlFlow<()> {
        self.levels = self.levels.saturating_sub(levels);
        ControlFlow::Continue(())
    }
}

impl VisitorMut for Flatten {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.enter(QUERY)
    }

    fn post_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.leave(QUERY)
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        strip(expression);
        balance(expression);
        self.enter(levels_of(expression))
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        self.leave(levels_of(expression))
    }
}

fn levels_of(expression: &Expr) -> usize {
    match expression {
        Expr::Nested(_) => 0,
        Expr::BinaryOp { .. } => 1,
        _ => EXPRESSION,
    }
}

/// Removes parentheses around parentheses.
fn strip(expression: &mut Expr) {
    while let Expr::Nested(inner) = expression
        && matches!(**inner, Expr::Nested(_))
    {
        let inner = std::mem::replace(inner.as_mut(), nothing());
        *expression = inner;
    }
}

/// Balances a chain of AND or of OR.
fn balance(expression: &mut Expr) {
    let op = match expression {
        Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => op.clone(),
        _ => return,
    };
    if depth_of(expression, &op) <= CHAIN_MIN {
        return;
    }
    let mut operands = Vec::new();
    let mut left_over = vec![std::mem::replace(expression, nothing())];
    while let Some(mut next) = left_over.pop() {
        strip(&mut next);
        match next {
            Expr::BinaryOp { left, op: own, right } if own == op => {
                left_over.extend([*right, *left]);
            }
            Expr::Nested(inner) if is_chain(&inner, &op) => left_over.push(*inner),
            other => operands.push(other),
        }
    }
    while operands.len() > 1 {
        let mut pairs = Vec::with_capacity(operands.len().div_ceil(2));
        let mut one_by_one = operands.into_iter();
        while let Some(left) = one_by_one.next() {
            pairs.push(match one_by_one.next() {
                Some(right) => {
                    let (left, right) = (Box::new(left), Box::new(right));
                    Expr::BinaryOp { left, op: op.clone(), right }
                }
                None => left,
            });
        }
        operands = pairs;
    }
    *expression = operands.pop().unwrap_or_else(nothing);
}

fn is_chain(expression: &Expr, op: &BinaryOperator) -> bool {
    matches!(expression, Expr::BinaryOp { op: own, .. } if own == op)
}

/// The depth of `op` within itself.
fn depth_of(expression: &Expr, op: &BinaryOperator) -> usize {
    let (mut deepest, mut left_over) = (0, vec![(expression, 0)]);
    while let Some((next, depth)) = left_over.pop() {
        match next {
            Expr::BinaryOp { left, op: own, right } if own == op => {
                left_over.extend([(&**right, depth + 1), (&**left, depth + 1)]);
                deepest = deepest.max(depth + 1);
            }
            Expr::Nested(inner) if matches!(**inner, Expr::Nested(_)) || is_chain(inner, op) => {
                left_over.push((inner, depth));
            }
            _ => {}
        }
    }
    deepest
}

/// A placeholder for a moved-out expression.
fn nothing() -> Expr {
    Expr::value(ast::Value::Null)
}
