//! DataFusion's simplification of expressions, kept from what it gets wrong: some of its rewrites forget NULL, others
//! evaluate a volatile call twice.
//!
//! 1. What would be forgotten is hidden from it: the value of a second list ([`lists`]), and an operand that would
//!    vanish from a chain of `#`. `x ~ '.*'`, which would become `x IS NOT NULL`, becomes `x LIKE '%'`.
//! 2. Calls that are volatile are columns while an expression is simplified ([`volatile`]), and stay where they were if
//!    one would come to stand in two places.
//!
//! Invariant: nothing else in the host simplifies expressions. `tests` compare each simplified form with the plain one.

mod lists;
mod volatile;

use std::sync::Arc;

use cleave_fragment::functions::opaque;
use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, ScalarValue};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, Like, LogicalPlan, Operator, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::{Rule, with_rule};

/// DataFusion's rule.
const SIMPLIFYING: &str = "simplify_expressions";

/// `state`, whose rules simplify an expression to one with the same meaning.
pub(super) fn simplified(state: SessionState) -> SessionState {
    with_rule(state, SIMPLIFYING, |rule| Arc::new(Simplify(rule)))
}

/// The rule alone.
pub(crate) fn rule() -> Rule {
    Arc::new(Simplify(Arc::new(SimplifyExpressions::new())))
}

/// `condition` over rows of `schema`, simplified as in a projection.
///
/// # Errors
/// DataFusion's.
pub(crate) fn simplify(
    condition: Expr,
    schema: &DFSchemaRef,
    config: &dyn OptimizerConfig,
) -> Result<Expr> {
    let hidden = hidden(condition, false)?.data;
    Ok(volatile::Simplifier::new(schema, config, true).simplify(hidden)?.data)
}

/// See the module.
#[derive(Debug)]
struct Simplify(Rule);

impl OptimizerRule for Simplify {
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
        let concerns = Concerns::of(&plan)?;
        let plan = if concerns.is_hidden { node_hidden(plan)? } else { plan };
        match concerns.is_volatile {
            true => volatile::simplify_node(plan, config),
            false => self.0.rewrite(plan, config),
        }
    }
}

/// What of an operator's expressions DataFusion must not see.
#[derive(Debug, Default)]
struct Concerns {
    is_hidden: bool,
    is_volatile: bool,
}

impl Concerns {
    fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut found = Self::default();
        plan.each_expression(|expr| {
            let mut lists = 0;
            expr.apply(|part| {
                lists += usize::from(lists::is_list(part));
                found.is_hidden |= lists > 1 || vanishes(part) || is_any_text(part);
                found.is_volatile |= part.is_volatile_node();
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(found)
    }
}

fn node_hidden(plan: LogicalPlan) -> Result<LogicalPlan> {
    let keeps_true =
        matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::TableScan(_));
    let names = NamePreserver::new(&plan);
    let changed = plan.change_expressions(|expr| {
        // Its members are the columns, and keep their names.
        if matches!(expr, Expr::GroupingSet(_)) {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        Ok(hidden(expr, keeps_true)?.update_data(|expr| name.restore(expr)))
    });
    Ok(changed?.data)
}

/// `expr`, of which DataFusion sees no more than it may; `keeps_true`: NULL counts as false for who asks.
fn hidden(expr: Expr, keeps_true: bool) -> Result<Transformed<Expr>> {
    let hidden = expr.transform_up(|part| {
        Ok(match part {
            part if vanishes(&part) => match part {
                Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                    let right = Box::new(opaque().call(vec![*right, lit(0_i64)]));
                    Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
                }
                part => Transformed::no(part),
            },
            part if is_any_text(&part) => match part {
                Expr::BinaryExpr(BinaryExpr { left, op, .. }) => {
                    let negated = matches!(op, Operator::RegexNotMatch | Operator::RegexNotIMatch);
                    let pattern = Box::new(lit("%"));
                    Transformed::yes(Expr::Like(Like::new(negated, left, pattern, None, false)))
                }
                part => Transformed::no(part),
            },
            part => Transformed::no(part),
        })
    })?;
    let is_changed = hidden.transformed;
    let apart = lists::apart(hidden.data, keeps_true)?;
    Ok(Transformed::new_transformed(apart.data, is_changed || apart.transformed))
}

/// Whether `expr` is `a # b` with an operand of one side in the other, which DataFusion takes for `b # b = 0`.
fn vanishes(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::BitwiseXor, right }) = expr else {
        return false;
    };
    let holds =
        |chain: &Expr, operand: &Expr| chain.exists(|part| Ok(part == operand)).unwrap_or(true);
    holds(left, right) || holds(right, left)
}

/// Whether `expr` is `x ~ '.*'`.
fn is_any_text(expr: &Expr) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    let Expr::BinaryExpr(BinaryExpr { op, right, .. }) = expr else { return false };
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
        && matches!(&**right, Expr::Literal(ScalarValue::Utf8(Some(pattern)), _) if pattern == ".*")
}

#[cfg(test)]
mod tests;
