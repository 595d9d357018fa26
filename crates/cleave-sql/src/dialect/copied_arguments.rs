//! Limits the growth of expressions that DataFusion copies at each level of nesting: `coalesce(x, y)` becomes `CASE
//! WHEN x IS NOT NULL THEN x ELSE y END`, `x BETWEEN a AND b` becomes `x >= a AND x <= b`, and a cast asks its operand
//! twice whether it can be NULL.
//!
//! 1. `coalesce` directly within another is merged into one list of arguments.
//! 2. An expression that would still become [`PARTITIONS_MAX`] expressions, and many times its written size, is refused
//!    (54001). Forty nested calls would be 2^40, which no limit of planning detects in time.

use cleave_fragment::walk::WalkPlan;
use datafusion::common::config::ConfigOptions;
#[expect(clippy::disallowed_types, reason = "a rewriter has no walk that is compiled once")]
use datafusion::common::tree_node::TreeNode;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use cleave_catalog::error::{Error, Fault};

use super::rewrite::{has_expression, rewrite_named};

/// Most expressions that one expression may become, unless it is long itself.
const PARTITIONS_MAX: u64 = 100_000;
/// The limit per written expression, for a long one.
const COPIES_EACH: u64 = 16;

/// See the module.
#[derive(Debug)]
pub struct CopiedArguments;

impl AnalyzerRule for CopiedArguments {
    fn name(&self) -> &'static str {
        "copied_arguments"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_expression(&plan, is_copying)? {
            return Ok(plan);
        }
        let rewritten = plan.transform_up_everywhere(|node| {
            rewrite_named(node, &|expr| expr.rewrite(&mut Counter::default()))
        });
        Ok(rewritten?.data)
    }
}

/// Merges nested `coalesce`, and counts from the leaves up.
#[derive(Default)]
struct Counter {
    /// The counts of each expression that is not part of another yet.
    counts: Vec<Count>,
}

#[derive(Clone, Copy)]
struct Count {
    /// Expressions that were written.
    written: u64,
    /// The number that they become.
    copies: u64,
    /// How many are visited to decide whether it can be NULL; for a function call that is known.
    looks: u64,
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
        let is_cast = asks_twice(&expr);
        let is_copied = |place: usize| match place {
            0 if is_between => true,
            place => is_coalesce && place + 1 < child_count,
        };
        let mut count = Count { written: 1, copies: 1, looks: 1 };
        for (place, child) in children.into_iter().enumerate() {
            count.written = count.written.saturating_add(child.written);
            let copies = if is_copied(place) { 2 } else { 1 };
            count.copies = count.copies.saturating_add(child.copies.saturating_mul(copies));
            let looks = if is_cast { 2 } else { 1 };
            count.looks = count.looks.saturating_add(child.looks.saturating_mul(looks));
        }
        if matches!(expr, Expr::ScalarFunction(_)) && !is_coalesce {
            count.looks = 1;
        }
        let most = count.copies.max(count.looks);
        if most > PARTITIONS_MAX && most / COPIES_EACH > count.written {
            return Err(Error::Invalid {
                message: "calls of COALESCE, BETWEEN or casts nest too deep: each doubles the work of planning; \
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

/// Whether DataFusion copies an operand of `expr`, or asks it twice.
fn is_copying(expr: &Expr) -> bool {
    match expr {
        Expr::Between(_) => true,
        Expr::ScalarFunction(call) => is_coalesce(call),
        _ => asks_twice(expr),
    }
}

/// Whether `expr` is a cast that asks its operand twice.
fn asks_twice(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => !is_simple(&cast.expr),
        Expr::TryCast(cast) => !is_simple(&cast.expr),
        _ => false,
    }
}

/// Whether a cast asks for no more of it than for its type.
fn is_simple(operand: &Expr) -> bool {
    matches!(operand, Expr::Cast(_) | Expr::TryCast(_) | Expr::Column(_) | Expr::Literal(..))
}

fn as_coalesce(expr: &mut Expr) -> Option<&mut ScalarFunction> {
    match expr {
        Expr::ScalarFunction(call) if is_coalesce(call) => Some(call),
        _ => None,
    }
}

fn is_coalesce(call: &ScalarFunction) -> bool {
    call.func.name() == "coalesce"
}
