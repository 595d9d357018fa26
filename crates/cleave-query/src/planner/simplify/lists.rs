//! Conditions that compare one value with several lists.
//!
//! DataFusion makes one list of two, by the text of their items, and forgets that the value or an item may be NULL:
//!
//! ```text
//!   x NOT IN (1) OR x NOT IN (2)  ─▶   true, where PostgreSQL has NULL if x is NULL
//!   x IN (1) AND x IN (2)         ─▶   false, the same
//!   x IN (a) AND x IN (b)         ─▶   false, also where x = a = b
//!   x IN (1, 2) AND x NOT IN (a)  ─▶   x IN (1, 2)
//! ```
//!
//! [`apart`] hides the value of the second list from that rule, unless both lists have constants alone and what is kept
//! of NULL does not matter: in a condition that only keeps rows for which it is true, false for NULL is right.

use cleave_fragment::functions::opaque;
use cleave_fragment::walk::Walk;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, lit};

/// Whether `expr` compares a value with a list, or with a constant, which DataFusion takes for a list of one.
pub(super) fn is_list(expr: &Expr) -> bool {
    matches!(expr, Expr::InList(_)) || of_one(expr).is_some()
}

/// `expr`, whose lists DataFusion does not mix up; `keeps_true`: NULL counts as false for who asks.
pub(super) fn apart(expr: Expr, keeps_true: bool) -> Result<Transformed<Expr>> {
    let mut hidden = 0;
    let (expr, _) = lists_apart(expr, keeps_true, &mut hidden)?;
    Ok(Transformed::new_transformed(expr, hidden > 0))
}

/// A comparison with a list.
#[derive(Debug)]
struct Listed {
    value: Expr,
    /// None: not known once all is simplified.
    is_negated: Option<bool>,
    /// All items are constants, and none is NULL.
    is_plain: bool,
    /// `x = 1` or `x <> 1`, beside no other.
    is_single: bool,
}

/// The expression, and the lists in it.
fn lists_apart(expr: Expr, keeps_true: bool, hidden: &mut i64) -> Result<(Expr, Vec<Listed>)> {
    match expr {
        Expr::Not(inner) => {
            let (inner, mut lists) = lists_apart(*inner, false, hidden)?;
            for list in &mut lists {
                list.is_negated = list.is_negated.map(|is_negated| !is_negated);
            }
            Ok((Expr::Not(Box::new(inner)), lists))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let (left, mut lists) = lists_apart(*left, keeps_true, hidden)?;
            let (right, more) = lists_apart(*right, keeps_true, hidden)?;
            let right = join(&mut lists, more, (Some(op), keeps_true), right, hidden)?;
            let (left, right) = (Box::new(left), Box::new(right));
            Ok((Expr::BinaryExpr(BinaryExpr { left, op, right }), lists))
        }
        // What is within another expression may come beside the rest once that is simplified, as that of a CASE.
        expr => {
            let mut lists = Vec::from_iter(listed(&expr));
            let within = expr.map_children(|part| {
                let (part, mut more) = lists_apart(part, false, hidden)?;
                for list in &mut more {
                    list.is_negated = None;
                }
                Ok(Transformed::yes(join(&mut lists, more, (None, false), part, hidden)?))
            })?;
            Ok((within.data, lists))
        }
    }
}

/// Adds `more`, the lists of `part`, to `lists` beside it, and hides those of them that DataFusion would mix up.
fn join(
    lists: &mut Vec<Listed>,
    mut more: Vec<Listed>,
    (op, keeps_true): (Option<Operator>, bool),
    mut part: Expr,
    hidden: &mut i64,
) -> Result<Expr> {
    for list in &mut more {
        let mut clashes = false;
        for other in lists.iter_mut().filter(|other| other.value == list.value) {
            let signs = [list.is_negated, other.is_negated];
            let are_all = |is_negated: bool| signs == [Some(is_negated); 2];
            let is_union = match op {
                Some(Operator::And) => are_all(true),
                Some(_) => are_all(false),
                None => false,
            };
            if list.is_single || other.is_single {
                list.is_single &= !is_union;
                other.is_single &= !is_union;
                continue;
            }
            // Of `x NOT IN … OR x NOT IN …` DataFusion makes true.
            let is_false_at_least = match op {
                Some(Operator::And) => true,
                Some(_) => signs.contains(&Some(false)),
                None => false,
            };
            let is_right = keeps_true && is_false_at_least && list.is_plain && other.is_plain;
            clashes |= !is_union && !is_right;
        }
        if clashes {
            *hidden += 1;
            let value = opaque().call(vec![list.value.clone(), lit(*hidden)]);
            part = hide(part, &list.value, &value)?;
            list.value = value;
        }
    }
    lists.append(&mut more);
    Ok(part)
}

fn listed(expr: &Expr) -> Option<Listed> {
    let is_constant = |item: &Expr| matches!(item, Expr::Literal(value, _) if !value.is_null());
    if let Expr::InList(list) = expr {
        return Some(Listed {
            value: list.expr.as_ref().clone(),
            is_negated: Some(list.negated),
            is_plain: list.list.iter().all(is_constant),
            is_single: false,
        });
    }
    let (value, op, item) = of_one(expr)?;
    Some(Listed {
        value: value.clone(),
        is_negated: Some(op == Operator::NotEq),
        is_plain: is_constant(item),
        is_single: true,
    })
}

/// The column, the operator and the constant of `x = 1`, which is a list beside another one under OR, or of `x <> 1`.
fn of_one(expr: &Expr) -> Option<(&Expr, Operator, &Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return None };
    if !matches!(op, Operator::Eq | Operator::NotEq) {
        return None;
    }
    match (left.as_ref(), right.as_ref()) {
        (value @ Expr::Column(_), item @ Expr::Literal(..))
        | (item @ Expr::Literal(..), value @ Expr::Column(_)) => Some((value, *op, item)),
        _ => None,
    }
}

/// `condition`, whose lists have `hidden` for `value`.
fn hide(condition: Expr, value: &Expr, hidden: &Expr) -> Result<Expr> {
    let replaced = condition.transform_up(|part| {
        Ok(match part {
            Expr::InList(InList { expr, list, negated }) if *expr == *value => {
                Transformed::yes(Expr::InList(InList::new(Box::new(hidden.clone()), list, negated)))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if matches!(op, Operator::Eq | Operator::NotEq)
                    && (*left == *value || *right == *value) =>
            {
                let side = |side: Box<Expr>| if *side == *value { hidden.clone() } else { *side };
                let (left, right) = (Box::new(side(left)), Box::new(side(right)));
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            part => Transformed::no(part),
        })
    });
    Ok(replaced?.data)
}
