//! Expressions of which the engine makes several copies as it simplifies: `coalesce(x, y)` becomes
//! `CASE WHEN x IS NOT NULL THEN x ELSE y END`, and `x BETWEEN a AND b` becomes `x >= a AND x <= b`.
//!
//! 1. `coalesce` directly within another is one list of arguments.
//! 2. What would still become more than [`COPIES_MAX`] expressions is refused (54001): forty such calls within each other would
//!    be 2^40, which no bound of planning sees before they are there.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::error::{Error, Fault};

/// Most expressions that one expression may become.
const COPIES_MAX: u64 = 100_000;

/// See the module.
#[derive(Debug)]
pub struct CopiedArguments;

impl AnalyzerRule for CopiedArguments {
    fn name(&self) -> &'static str {
        "copied_arguments"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            node.map_expressions(|expr| {
                let mut counter = Counter::default();
                expr.rewrite(&mut counter)
            })
        });
        Ok(rewritten?.data)
    }
}

/// Takes `coalesce` apart, and counts from the leaves on.
#[derive(Default)]
struct Counter {
    /// What each expression becomes that is not part of another yet.
    counts: Vec<u64>,
}

impl TreeNodeRewriter for Counter {
    type Node = Expr;

    fn f_down(&mut self, mut expr: Expr) -> Result<Transformed<Expr>> {
        let Some(call) = as_coalesce(&mut expr) else { return Ok(Transformed::no(expr)) };
        let mut is_changed = false;
        let mut args = Vec::with_capacity(call.args.len());
        // The first argument is the next to look at.
        let mut waiting: Vec<Expr> = std::mem::take(&mut call.args).into_iter().rev().collect();
        while let Some(mut arg) = waiting.pop() {
            match as_coalesce(&mut arg) {
                Some(inner) => {
                    is_changed = true;
                    waiting.extend(std::mem::take(&mut inner.args).into_iter().rev());
                }
                None => args.push(arg),
            }
        }
        call.args = args;
        Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
    }

    fn f_up(&mut self, mut expr: Expr) -> Result<Transformed<Expr>> {
        let mut child_count = 0_usize;
        expr.apply_children(|_| {
            child_count += 1;
            Ok(TreeNodeRecursion::Continue)
        })?;
        let children = self.counts.split_off(self.counts.len().saturating_sub(child_count));
        let is_coalesce = as_coalesce(&mut expr).is_some();
        let is_between = matches!(expr, Expr::Between(_));
        let copies = |place: usize| match () {
            () if is_coalesce && place + 1 < child_count => 2,
            () if is_between && place == 0 => 2,
            () => 1,
        };
        let of_children = children.iter().enumerate();
        let count = of_children.fold(1_u64, |sum, (place, count)| {
            sum.saturating_add(count.saturating_mul(copies(place)))
        });
        if count > COPIES_MAX {
            return Err(Error::Invalid {
                message: "calls of COALESCE, or BETWEEN, nest too deep: each copies what it is asked of; \
                          put the inner ones into a subquery of FROM"
                    .to_owned(),
                fault: Fault::TooComplex,
                position: None,
            }
            .into());
        }
        self.counts.push(count);
        Ok(Transformed::no(expr))
    }
}

fn as_coalesce(expr: &mut Expr) -> Option<&mut ScalarFunction> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == "coalesce" => Some(call),
        _ => None,
    }
}
