//! Long chains of AND and OR, as balanced trees: the operands stay in their order, so the value is the same.
//!
//! ```text
//!  ((((a AND b) AND c) AND d) …   ─▶   ((a AND b) AND (c AND d)) …
//! ```
//!
//! DataFusion asks for the type of each link, and finds it by asking all links below: for 3,000 conditions, four
//! million times.

use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, binary_expr};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite::{has_expression, rewrite_named};

/// Links of a chain that is left as it is.
const DEPTH_MAX: usize = 64;

/// See the module. Rules that split a condition put its parts together again by [`balanced_conjunction`].
#[derive(Debug)]
pub struct BalancedChains;

impl AnalyzerRule for BalancedChains {
    fn name(&self) -> &'static str {
        "balanced_chains"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(balanced_plan(plan)?.data)
    }
}

/// All of `conditions`, as a tree that is not deep; None: there are none.
pub fn balanced_conjunction(conditions: impl Iterator<Item = Expr>) -> Option<Expr> {
    let conditions: Vec<_> = conditions.collect();
    (!conditions.is_empty()).then(|| balanced(conditions, Operator::And))
}

fn balanced_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let is_long = |expr: &Expr| chained(expr).is_some_and(|op| is_longer(expr, op, DEPTH_MAX));
    if !has_expression(&plan, is_long)? {
        return Ok(Transformed::no(plan));
    }
    plan.transform_up_everywhere(|node| {
        rewrite_named(node, &|expr| {
            expr.transform_down(|part| match chained(&part) {
                Some(op) if is_longer(&part, op, DEPTH_MAX) => {
                    Ok(Transformed::yes(balanced(operands(part, op), op)))
                }
                _ => Ok(Transformed::no(part)),
            })
        })
    })
}

fn chained(expr: &Expr) -> Option<Operator> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => Some(*op),
        _ => None,
    }
}

/// Whether more than `most` links of `op` lie on the left or on the right side of each other.
fn is_longer(expr: &Expr, op: Operator, most: usize) -> bool {
    let side = |of: fn(&BinaryExpr) -> &Expr| {
        let links = std::iter::successors(Some(expr), |expr| match expr {
            Expr::BinaryExpr(link) if link.op == op => Some(of(link)),
            _ => None,
        });
        links.skip(1).take(most + 1).count() > most
    };
    side(|link| &*link.left) || side(|link| &*link.right)
}

/// The operands of a chain, from left to right.
fn operands(expr: Expr, op: Operator) -> Vec<Expr> {
    let (mut found, mut open) = (Vec::new(), vec![expr]);
    while let Some(expr) = open.pop() {
        match expr {
            Expr::BinaryExpr(link) if link.op == op => {
                open.push(*link.right);
                open.push(*link.left);
            }
            expr => found.push(expr),
        }
    }
    found
}

fn balanced(mut level: Vec<Expr>, op: Operator) -> Expr {
    while level.len() > 1 {
        let mut next = Vec::with_capacity(level.len().div_ceil(2));
        let mut pairs = level.into_iter();
        while let Some(left) = pairs.next() {
            next.push(match pairs.next() {
                Some(right) => binary_expr(left, op, right),
                None => left,
            });
        }
        level = next;
    }
    level.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;

    #[test]
    fn a_balanced_chain_has_the_same_operands_in_the_same_order() {
        let names: Vec<_> = (0..1001).map(|number| col(format!("c{number}"))).collect();
        let chain = names.iter().cloned().reduce(Expr::and).unwrap();
        assert!(is_longer(&chain, Operator::And, DEPTH_MAX));
        let tree = balanced(operands(chain, Operator::And), Operator::And);
        assert!(!is_longer(&tree, Operator::And, 10));
        assert_eq!(operands(tree, Operator::And), names);
    }
}
