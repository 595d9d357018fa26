//! A planner rule: large constants of which an array is made go through [`constant`], which bounds it.
//!
//! An array is made of a column of a result, and of a branch of CASE and its kin. Operators and functions that take a
//! constant as it is keep it, and so do scans, which choose pages by it. A call of a [bounded](is_bounded) function
//! over constants counts as a constant: a large one is [not computed](cleave_fragment::result_memory) before the
//! statement runs.

use cleave_fragment::functions::bounded::is_bounded;
use cleave_fragment::functions::large_constant::{constant, is_large};
use cleave_fragment::walk::{Walk, WalkPlan};
use cleave_sql::dialect::{has_expression, rewrite_named};
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Case, Expr, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Functions that give one of their arguments.
const CHOOSING: [&str; 4] = ["coalesce", "greatest", "least", "nullif"];

/// See the module.
#[derive(Debug)]
pub(super) struct LargeConstants;

impl OptimizerRule for LargeConstants {
    fn name(&self) -> &'static str {
        "large_constants"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !has_expression(&plan, is_constant)? {
            return Ok(Transformed::no(plan));
        }
        plan.transform_up_everywhere(|node| match node {
            // A row of VALUES is computed by itself.
            LogicalPlan::TableScan(_) | LogicalPlan::Values(_) => Ok(Transformed::no(node)),
            LogicalPlan::Projection(_) => rewrite_named(node, &|expr| {
                expr.transform_up(|part| Ok(in_branches(part)))?.transform_data(|expr| {
                    Ok(match expr {
                        Expr::Alias(mut alias) if is_constant(&alias.expr) => {
                            *alias.expr = wrapped(*alias.expr);
                            Transformed::yes(Expr::Alias(alias))
                        }
                        expr if is_constant(&expr) => Transformed::yes(wrapped(expr)),
                        expr => Transformed::no(expr),
                    })
                })
            }),
            node => rewrite_named(node, &|expr| expr.transform_up(|part| Ok(in_branches(part)))),
        })
    }
}

/// Whether `expr` is a constant that may be large.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => is_large(value),
        Expr::ScalarFunction(call) => {
            is_bounded(&call.func) && !expr.any_column_refs() && !expr.is_volatile()
        }
        _ => false,
    }
}

fn wrapped(expr: Expr) -> Expr {
    match is_constant(&expr) {
        true => constant().call(vec![expr]),
        false => expr,
    }
}

/// `expr`, the large constants among whose branches are wrapped.
fn in_branches(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Case(Case { expr, when_then_expr, else_expr })
            if when_then_expr.iter().any(|(_, then)| is_constant(then))
                || else_expr.as_deref().is_some_and(is_constant) =>
        {
            let branches =
                when_then_expr.into_iter().map(|(when, then)| (when, Box::new(wrapped(*then))));
            let else_expr = else_expr.map(|otherwise| Box::new(wrapped(*otherwise)));
            let when_then_expr = branches.collect();
            Transformed::yes(Expr::Case(Case { expr, when_then_expr, else_expr }))
        }
        Expr::ScalarFunction(mut call)
            if CHOOSING.contains(&call.func.name()) && call.args.iter().any(is_constant) =>
        {
            call.args = call.args.into_iter().map(wrapped).collect();
            Transformed::yes(Expr::ScalarFunction(call))
        }
        expr => Transformed::no(expr),
    }
}
