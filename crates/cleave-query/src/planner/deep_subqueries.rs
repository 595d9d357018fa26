//! Runs rules on plans with deeply nested subqueries in linear time.
//!
//! DataFusion checks a subquery together with all subqueries within it, and then each of those again: the time doubles
//! with each level, and twenty nested `IN (SELECT …)` took six seconds. Plans of more than [`DEPTH_MAX`] levels go
//! through [`analysed`] and [`optimised`] instead, which apply the same rules in the same order and check each subquery
//! once.
//!
//! Invariant: a plan is refused here where DataFusion refuses it.

use std::sync::Arc;

use cleave_fragment::result_memory::ResultMemory;
use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan, check_subquery_expr, lit};
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::optimizer::{ApplyOrder, Optimizer, OptimizerConfig};

use super::planning;

/// Levels of subqueries for which DataFusion's own way is no slower.
const DEPTH_MAX: usize = 4;

/// As [`Analyzer::execute_and_check`].
///
/// # Errors
/// Those of the rules, and of the checks.
pub(crate) fn analysed(
    analyzer: &Analyzer,
    plan: LogicalPlan,
    options: &ConfigOptions,
) -> Result<LogicalPlan> {
    ResultMemory::planning(|| all_analysed(analyzer, plan, options))
}

fn all_analysed(
    analyzer: &Analyzer,
    mut plan: LogicalPlan,
    options: &ConfigOptions,
) -> Result<LogicalPlan> {
    if !is_deep(&plan)? || !analyzer.function_rewrites().is_empty() {
        return analyzer.execute_and_check(plan, options, |_, _| {});
    }
    for rule in &analyzer.rules {
        plan = rule.analyze(plan, options).map_err(|error| error.context(rule.name()))?;
    }
    check_subqueries(&plan)?;
    Ok(plan)
}

/// As [`SessionState::optimize`], of a query.
///
/// # Errors
/// Those of the rules, and of the checks.
pub(crate) fn analysed_and_optimised(
    state: &SessionState,
    plan: LogicalPlan,
) -> Result<LogicalPlan> {
    let plan = analysed(state.analyzer(), plan, state.config_options())?;
    optimised(state.optimizer(), plan, state)
}

/// As [`Optimizer::optimize`].
///
/// # Errors
/// Those of the rules, and of the checks.
pub(crate) fn optimised(
    optimizer: &Optimizer,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<LogicalPlan> {
    ResultMemory::planning(|| all_optimised(optimizer, plan, config))
}

fn all_optimised(
    optimizer: &Optimizer,
    mut plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<LogicalPlan> {
    if !is_deep(&plan)? {
        return optimizer.optimize(plan, config, |_, _| {});
    }
    for _ in 0..config.options().optimizer.max_passes {
        let before = plan.clone();
        for rule in &optimizer.rules {
            let schema = Arc::clone(plan.schema());
            let changed = match rule.apply_order() {
                None => rule.rewrite(plan, config),
                Some(ApplyOrder::TopDown) => {
                    plan.transform_down_everywhere(|node| rule.rewrite(node, config))
                }
                Some(ApplyOrder::BottomUp) => {
                    plan.transform_up_everywhere(|node| rule.rewrite(node, config))
                }
            };
            let name = || format!("Optimizer rule '{}' failed", rule.name());
            plan = changed.map_err(|error| error.context(name()))?.data;
            if !plan.schema().logically_equivalent_names_and_types(&schema) {
                return internal_err!("the rule {} changed the columns of a plan", rule.name());
            }
        }
        if plan == before {
            break;
        }
    }
    check_subqueries(&plan)?;
    Ok(plan)
}

fn is_deep(plan: &LogicalPlan) -> Result<bool> {
    Ok(depth_within(plan, DEPTH_MAX + 1)? > DEPTH_MAX)
}

/// Levels of subqueries in `plan`, up to `most`.
fn depth_within(plan: &LogicalPlan, most: usize) -> Result<usize> {
    let mut deepest = 0;
    if most == 0 {
        return Ok(0);
    }
    plan.apply(|node| {
        node.each_expression(|expr| {
            expr.apply(|part| {
                if let Some(inner) = subquery_of(part) {
                    deepest = deepest.max(1 + depth_within(inner, most - 1)?);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(match deepest >= most {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(deepest)
}

/// The plan of the subquery that `expr` is.
fn subquery_of(expr: &Expr) -> Option<&Arc<LogicalPlan>> {
    match expr {
        Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. })
        | Expr::ScalarSubquery(subquery) => Some(&subquery.subquery),
        _ => None,
    }
}

/// Checks each subquery of `plan` as DataFusion does, without those within it, which are checked by themselves.
fn check_subqueries(plan: &LogicalPlan) -> Result<()> {
    plan.schema().check_names()?;
    plan.apply_everywhere(|node| {
        node.each_expression(|expr| {
            expr.apply(|part| {
                if let Some(inner) = subquery_of(part) {
                    planning::check()?;
                    let alone = without_subqueries(LogicalPlan::clone(inner))?;
                    check_subquery_expr(node, &alone, part)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// `plan` with constants in place of its subqueries, which stand for no column of a query around it.
fn without_subqueries(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up(|node| {
        node.change_expressions(|expr| {
            expr.transform_up(|part| {
                Ok(match part {
                    Expr::InSubquery(within) => Transformed::yes(within.expr.is_null()),
                    Expr::SetComparison(within) => Transformed::yes(within.expr.is_null()),
                    Expr::Exists(_) => Transformed::yes(lit(true)),
                    Expr::ScalarSubquery(within) => {
                        let own = within.subquery.schema().fields().first();
                        let own = own.map(|field| field.data_type().clone());
                        let null = own.as_ref().map(TryFrom::try_from).transpose()?;
                        Transformed::yes(Expr::Literal(null.unwrap_or(ScalarValue::Null), None))
                    }
                    part => Transformed::no(part),
                })
            })
        })
    })?;
    Ok(changed.data)
}
