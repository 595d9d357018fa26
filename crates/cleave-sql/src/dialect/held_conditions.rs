//! Keeps conditions without columns above aggregates that give a row for no input.
//!
//! The engine moves a condition below an aggregate if all of its columns are grouped by. `WHERE (SELECT false)` has
//! none, so it would remove the input of `SELECT count(*)`, and not its row. Such a condition is made to name a column
//! of the rows that it is about:
//!
//! ```text
//!   Filter (SELECT …)   ─▶   Filter held_condition((SELECT …), column)
//! ```
//!
//! Constants are folded before they could be moved, and EXISTS and IN become joins.

use std::sync::Arc;

use cleave_fragment::functions::row_function;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Aggregate, Expr, Filter, GroupingSet, LogicalPlan, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

const NAME: &str = "held_condition";

/// The function: its first argument.
pub(super) fn held_condition() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Boolean, _] => Some(given.to_vec()),
        _ => None,
    };
    row_function(
        NAME,
        takes,
        |_| DataType::Boolean,
        |args: &[ArrayRef]| match args {
            [condition, _] => Ok(Arc::clone(condition)),
            _ => internal_err!("{NAME} has a condition and a column"),
        },
    )
}

/// See the module.
#[derive(Debug)]
pub struct HeldConditions;

impl AnalyzerRule for HeldConditions {
    fn name(&self) -> &'static str {
        "held_conditions"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let held = |node| match node {
            LogicalPlan::Filter(filter) => held(filter),
            node => Ok(Transformed::no(node)),
        };
        Ok(plan.transform_up_with_subqueries(held)?.data)
    }
}

fn held(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let column = filter.input.schema().iter().next().map(Column::from);
    let Some(column) =
        column.filter(|_| split_conjunction(&filter.predicate).into_iter().any(has_no_column))
    else {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    };
    if !filter
        .input
        .exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(of) if is_whole(of))))?
    {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let conditions = split_conjunction(&filter.predicate).into_iter().map(|condition| {
        let condition = condition.clone();
        match has_no_column(&condition) {
            true => held_condition().call(vec![condition, Expr::Column(column.clone())]),
            false => condition,
        }
    });
    let Some(predicate) = conjunction(conditions) else {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    };
    Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
}

/// Whether a condition asks a subquery for a value, and names no column.
fn has_no_column(condition: &Expr) -> bool {
    let asks = |expr: &Expr| Ok(matches!(expr, Expr::ScalarSubquery(_)));
    let joins = |expr: &Expr| Ok(matches!(expr, Expr::Exists(_) | Expr::InSubquery(_)));
    condition.column_refs().is_empty()
        && condition.exists(asks).unwrap_or(false)
        && !condition.exists(joins).unwrap_or(true)
}

/// Whether an aggregate gives a row for no input.
fn is_whole(aggregate: &Aggregate) -> bool {
    match aggregate.group_expr.as_slice() {
        [] => true,
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        [Expr::GroupingSet(_)] => true,
        _ => false,
    }
}
