//! Conditions that compare one value with several lists.
//!
//! DataFusion makes one list of two, by the text of their items, and forgets that the value or an item may be NULL:
//!
//! ```text
//!   x IN (1) AND x IN (2)         ─▶   false, where PostgreSQL has NULL if x is NULL
//!   x IN (a) AND x IN (b)         ─▶   false, also where x = a = b
//!   x IN (1, 2) AND x NOT IN (a)  ─▶   x IN (1, 2)
//! ```
//!
//! [`apart`] hides the value of the second list from that rule, unless both lists have constants alone and what is kept
//! of NULL does not matter: in a condition that only keeps rows for which it is true.

use cleave_fragment::functions::opaque;
use cleave_fragment::walk::{Walk, WalkPlan};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::{Rule, with_rule};

/// DataFusion's rule.
const MERGING: &str = "simplify_expressions";

/// `state`, whose rules merge no lists that mean something else together.
pub(super) fn apart(state: SessionState) -> SessionState {
    with_rule(state, MERGING, |rule| Arc::new(Apart(rule)))
}

#[derive(Debug)]
struct Apart(Rule);

impl OptimizerRule for Apart {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        self.0.rewrite(node_apart(plan)?, config)
    }
}

fn node_apart(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut is_concerned = false;
    plan.each_expression(|expr| {
        let mut lists = 0;
        is_concerned = expr.exists(|part| {
            lists += usize::from(matches!(part, Expr::InList(_)));
            Ok(lists > 1)
        })?;
        Ok(if is_concerned { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !is_concerned {
        return Ok(plan);
    }
    let keeps_true =
        matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::TableScan(_));
    let names = NamePreserver::new(&plan);
    let changed = plan.change_expressions(|expr| {
        // Its members are the columns, and keep their names.
        if matches!(expr, Expr::GroupingSet(_)) {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let mut apart = 0;
        let expr = lists_apart(expr, keeps_true, &mut apart)?;
        Ok(match apart {
            0 => Transformed::no(expr),
            _ => Transformed::yes(name.restore(expr)),
        })
    });
    Ok(changed?.data)
}

/// `expr` with the lists of each condition in it apart; `keeps_true`: NULL counts as false for who asks.
fn lists_apart(expr: Expr, keeps_true: bool, apart: &mut i64) -> Result<Expr> {
    if is_condition(&expr) {
        return Ok(condition_apart(expr, keeps_true, apart)?.0);
    }
    let within = expr.map_children(|part| Ok(Transformed::yes(lists_apart(part, false, apart)?)));
    Ok(within?.data)
}

fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Not(_) => true,
        Expr::BinaryExpr(BinaryExpr { op, .. }) => matches!(op, Operator::And | Operator::Or),
        _ => false,
    }
}

/// A comparison with a list, or with a constant, which DataFusion takes for a list of one.
#[derive(Debug)]
struct Listed {
    value: Expr,
    is_negated: bool,
    /// All items are constants, and none is NULL.
    is_plain: bool,
}

/// The condition, and the lists in it.
fn condition_apart(expr: Expr, keeps_true: bool, apart: &mut i64) -> Result<(Expr, Vec<Listed>)> {
    match expr {
        Expr::Not(inner) => {
            let (inner, mut lists) = condition_apart(*inner, false, apart)?;
            for list in &mut lists {
                list.is_negated = !list.is_negated;
            }
            Ok((Expr::Not(Box::new(inner)), lists))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let (left, mut lists) = condition_apart(*left, keeps_true, apart)?;
            let (mut right, mut more) = condition_apart(*right, keeps_true, apart)?;
            let clash = |one: &Listed, other: &Listed| {
                // These two become the union of both lists, which is right.
                let is_union = match op {
                    Operator::And => one.is_negated && other.is_negated,
                    _ => !one.is_negated && !other.is_negated,
                };
                let is_right = keeps_true && one.is_plain && other.is_plain;
                !is_union && !is_right && one.value == other.value
            };
            for list in &mut more {
                if lists.iter().any(|other| clash(list, other)) {
                    *apart += 1;
                    let hidden = opaque().call(vec![list.value.clone(), lit(*apart)]);
                    right = hide(right, &list.value, &hidden)?;
                    list.value = hidden;
                }
            }
            lists.append(&mut more);
            let (left, right) = (Box::new(left), Box::new(right));
            Ok((Expr::BinaryExpr(BinaryExpr { left, op, right }), lists))
        }
        expr => {
            let lists = listed(&expr).into_iter().collect();
            Ok((lists_apart(expr, false, apart)?, lists))
        }
    }
}

fn listed(expr: &Expr) -> Option<Listed> {
    let is_constant = |item: &Expr| matches!(item, Expr::Literal(value, _) if !value.is_null());
    match expr {
        Expr::InList(list) => Some(Listed {
            value: list.expr.as_ref().clone(),
            is_negated: list.negated,
            is_plain: list.list.iter().all(is_constant),
        }),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            match (left.as_ref(), right.as_ref()) {
                (value @ Expr::Column(_), item @ Expr::Literal(..))
                | (item @ Expr::Literal(..), value @ Expr::Column(_)) => Some(Listed {
                    value: value.clone(),
                    is_negated: false,
                    is_plain: is_constant(item),
                }),
                _ => None,
            }
        }
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
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
                if (*left == *value || *right == *value) =>
            {
                let side = |side: Box<Expr>| if *side == *value { hidden.clone() } else { *side };
                let (left, right) = (Box::new(side(left)), Box::new(side(right)));
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }))
            }
            part => Transformed::no(part),
        })
    });
    Ok(replaced?.data)
}
