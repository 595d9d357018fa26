//! A query of one row without tables (`SELECT 1 + 2`): its bound plan in, its physical plan out, without the rules that
//! it does not need.
//!
//! Such a query has one projection over one empty row. Of DataFusion's rules only those of the analyser and the
//! simplification of expressions concern it: no operator can be moved, split or cut. Both planners leave it early.

use cleave_fragment::walk::Walk;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan, Projection};
use datafusion::optimizer::Optimizer;
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::table_provider::is_subquery;
use crate::planner::deep_subqueries::{analysed, analysed_and_optimised, optimised};
use crate::planner::simplify;

/// As [`SessionState::optimize`].
///
/// # Errors
/// Those of the rules.
pub(super) fn optimize(state: &SessionState, bound: &LogicalPlan) -> Result<LogicalPlan> {
    if row_of(bound).is_none() {
        return analysed_and_optimised(state, bound.clone());
    }
    let options = state.config().options();
    let analysed = analysed(state.analyzer(), bound.clone(), options)?;
    let rules = Optimizer::with_rules(vec![simplify::rule()]);
    match row_of(&analysed) {
        Some(_) => optimised(&rules, analysed, state),
        None => optimised(state.optimizer(), analysed, state),
    }
}

/// The physical plan of `optimised`; None: it is no query of this kind.
///
/// # Errors
/// Those of DataFusion's expressions.
pub(super) fn physical(
    state: &SessionState,
    optimised: &LogicalPlan,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(projection) = row_of(optimised) else { return Ok(None) };
    let input = projection.input.schema();
    let props = state.execution_props();
    let mut expressions = Vec::with_capacity(projection.expr.len());
    for (expr, field) in projection.expr.iter().zip(projection.schema.fields()) {
        let expr = create_physical_expr(expr, input, props, &Default::default())?;
        expressions.push(ProjectionExpr { expr, alias: field.name().clone() });
    }
    let row = Arc::new(PlaceholderRowExec::new(Arc::clone(input.inner())));
    Ok(Some(Arc::new(ProjectionExec::try_new(expressions, row)?)))
}

/// The projection of a query of one row without tables, subqueries and functions that wait, which need an operator.
fn row_of(plan: &LogicalPlan) -> Option<&Projection> {
    let LogicalPlan::Projection(projection) = plan else { return None };
    let LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) =
        &*projection.input
    else {
        return None;
    };
    let waits = |node: &Expr| match node {
        Expr::ScalarFunction(call) => call.func.as_async().is_some(),
        _ => false,
    };
    let needs_more = |expr: &Expr| {
        let found = expr.exists(|node| Ok(is_subquery(node) || waits(node)));
        found.unwrap_or(true)
    };
    (!projection.expr.iter().any(needs_more)).then_some(projection)
}
