//! Comparisons with each value of a list that is written out, where DataFusion knows none, or the list has no type:
//!
//! ```text
//!  x = ANY ('{1,2}')           ─▶  x IN ('1', '2')
//!  x <> ALL ('{1,2}')          ─▶  x NOT IN ('1', '2')
//!  x < ANY ('{1,2}')           ─▶  x < '1' OR x < '2'
//!  x LIKE ANY (ARRAY[a, b])    ─▶  x LIKE a OR x LIKE b
//!  x NOT LIKE ALL (ARRAY[a, b]) ─▶  x NOT LIKE a AND x NOT LIKE b
//!  x ~ ANY (ARRAY[a, b])       ─▶  x ~ a OR x ~ b
//! ```
//!
//! Literals in quotes take the type of `x` then. `x` comes several times, so that it must have one value for a row.

use std::ops::ControlFlow;

use cleave_catalog::value::list;
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, FunctionArg, FunctionArgExpr};

use super::regular_expressions::literal_text;
use crate::visiting::visit_expressions;

/// Most comparisons that one becomes. A longer list stays as it is, and DataFusion refuses it.
const CHAIN_ITEMS_MAX: usize = 500;

/// Functions that do something, or give another value each time.
const VOLATILE: [&str; 9] = [
    // The list of a comparison, to the parser.
    "all",
    "clock_timestamp",
    "currval",
    "gen_random_uuid",
    "lastval",
    "nextval",
    "random",
    "set_config",
    "setval",
];

/// Rewrites `expression`, if it is such a comparison.
pub(super) fn lower_list_comparison(expression: &mut Expr) {
    use BinaryOperator as Op;
    let lowered = match &*expression {
        Expr::AnyOp { left, compare_op: Op::Eq, right, .. } => {
            of_text(right).map(|list| is_in(left, list, false))
        }
        Expr::AllOp { left, compare_op: Op::NotEq, right } => {
            of_text(right).map(|list| is_in(left, list, true))
        }
        Expr::AnyOp { left, compare_op, right, .. } => items(right, compare_op)
            .and_then(|list| chain(left, &Compares::By(compare_op), list, false)),
        Expr::AllOp { left, compare_op, right } => items(right, compare_op)
            .and_then(|list| chain(left, &Compares::By(compare_op), list, true)),
        like @ (Expr::Like { expr, pattern, .. } | Expr::ILike { expr, pattern, .. }) => {
            patterns(like, pattern)
                .and_then(|(list, is_all)| chain(expr, &Compares::Like(like), list, is_all))
        }
        _ => None,
    };
    if let Some(lowered) = lowered {
        *expression = lowered;
    }
}

/// What compares an operand with an item.
enum Compares<'a> {
    By(&'a BinaryOperator),
    /// This LIKE, with the item as its pattern.
    Like(&'a Expr),
}

impl Compares<'_> {
    fn compare(&self, left: &Expr, item: Expr) -> Expr {
        match self {
            Self::By(op) => Expr::BinaryOp {
                left: Box::new(left.clone()),
                op: (*op).clone(),
                right: Box::new(item),
            },
            Self::Like(like) => {
                let mut like = (*like).clone();
                if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } =
                    &mut like
                {
                    (*any, **pattern) = (false, item);
                }
                like
            }
        }
    }
}

fn is_in(left: &Expr, list: Vec<Expr>, negated: bool) -> Expr {
    if list.is_empty() {
        return Expr::value(ast::Value::Boolean(negated));
    }
    let expr = Box::new(left.clone());
    Expr::Nested(Box::new(Expr::InList { expr, list, negated }))
}

/// `left` compared with each item, joined by AND if `is_all`, else by OR.
fn chain(left: &Expr, compares: &Compares<'_>, list: Vec<Expr>, is_all: bool) -> Option<Expr> {
    if list.len() > CHAIN_ITEMS_MAX || list.len() > 1 && !is_repeatable(left) {
        return None;
    }
    let op = if is_all { BinaryOperator::And } else { BinaryOperator::Or };
    let mut joined: Vec<Expr> = list.into_iter().map(|item| compares.compare(left, item)).collect();
    // In pairs, so that the tree is as flat as it can be.
    while joined.len() > 1 {
        let mut pairs = Vec::with_capacity(joined.len().div_ceil(2));
        let mut rest = joined.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => {
                    let (left, right) = (Box::new(left), Box::new(right));
                    let pair = Expr::BinaryOp { left, op: op.clone(), right };
                    Expr::Nested(Box::new(pair))
                }
                None => left,
            });
        }
        joined = pairs;
    }
    let joined = joined.pop().unwrap_or_else(|| Expr::value(ast::Value::Boolean(is_all)));
    Some(Expr::Nested(Box::new(joined)))
}

/// The items of the list on the right of `operator`: of a literal in quotes, or of a list beside an operator that
/// DataFusion does not apply to lists.
fn items(right: &Expr, operator: &BinaryOperator) -> Option<Vec<Expr>> {
    use BinaryOperator as Op;
    let is_pattern = matches!(
        operator,
        Op::PGRegexMatch
            | Op::PGRegexIMatch
            | Op::PGRegexNotMatch
            | Op::PGRegexNotIMatch
            | Op::PGLikeMatch
            | Op::PGILikeMatch
            | Op::PGNotLikeMatch
            | Op::PGNotILikeMatch
    );
    of_text(right).or_else(|| is_pattern.then(|| of_array(right)).flatten())
}

/// The patterns of `LIKE ANY (list)`, or of `LIKE ALL (list)`, which the parser reads as a function, and which it is.
fn patterns(like: &Expr, pattern: &Expr) -> Option<(Vec<Expr>, bool)> {
    if let Expr::Like { any: true, .. } | Expr::ILike { any: true, .. } = like {
        return Some((of_text(pattern).or_else(|| of_array(pattern))?, false));
    }
    let Expr::Function(function) = pattern else { return None };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(list))] = list.args.as_slice() else {
        return None;
    };
    let is_all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
    is_all.then(|| of_text(list).or_else(|| of_array(list))).flatten().map(|list| (list, true))
}

/// The items of `'{a,b}'`.
fn of_text(list: &Expr) -> Option<Vec<Expr>> {
    match list {
        Expr::Nested(inner) => of_text(inner),
        Expr::Value(value) => {
            let items = list::items(literal_text(&value.value)?).ok()?.into_iter();
            let literal = |text: Option<String>| {
                Expr::value(text.map_or(ast::Value::Null, ast::Value::SingleQuotedString))
            };
            Some(items.map(literal).collect())
        }
        _ => None,
    }
}

/// The items of `ARRAY[a, b]`.
fn of_array(list: &Expr) -> Option<Vec<Expr>> {
    match list {
        Expr::Nested(inner) => of_array(inner),
        Expr::Cast { expr, data_type: ast::DataType::Array(_), .. } => of_array(expr),
        Expr::Array(array) => Some(array.elem.clone()),
        _ => None,
    }
}

/// Whether `expression` has one value for a row, however often it is computed, and no query of its own.
pub(super) fn is_repeatable(expression: &Expr) -> bool {
    let flow = visit_expressions(expression, |part| {
        let is_single = match part {
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => true,
            // Each would become as many again.
            Expr::AnyOp { .. }
            | Expr::AllOp { .. }
            | Expr::Like { any: true, .. }
            | Expr::ILike { any: true, .. } => true,
            Expr::Function(function) => {
                let name = function.name.0.last().and_then(|name| name.as_ident());
                name.is_none_or(|name| {
                    let name = name.value.to_lowercase();
                    VOLATILE.contains(&name.as_str()) || name.starts_with("pg_")
                })
            }
            _ => false,
        };
        if is_single { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    flow.is_continue()
}
