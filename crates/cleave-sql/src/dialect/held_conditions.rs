//! Keeps conditions without columns above aggregates that give a row for no input.
//!
//! DataFusion moves a condition below an aggregate if all of its columns are grouped by. `WHERE (SELECT false)` has
//! none, so it would remove the input of `SELECT count(*)`, and not its row. Such a condition is made to name the
//! columns of the rows that it is about:
//!
//! ```text
//!   Filter (SELECT …)   ─▶   Filter first_of((SELECT …), column, column)
//! ```
//!
//! Constants are folded before they could be moved, and EXISTS becomes a join.

use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Aggregate, Expr, Filter, GroupingSet, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use super::functions::first_of;
use super::rewrite::has_operator;

/// See the module.
#[derive(Debug)]
pub struct HeldConditions;

impl AnalyzerRule for HeldConditions {
    fn name(&self) -> &'static str {
        "held_conditions"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let concerns = |node: &LogicalPlan| {
            Ok(matches!(node, LogicalPlan::Filter(filter) if names_too_little(filter)))
        };
        if !has_operator(&plan, concerns)? {
            return Ok(plan);
        }
        let held = |node| match node {
            LogicalPlan::Filter(filter) => held(filter),
            node => Ok(Transformed::no(node)),
        };
        Ok(plan.transform_up_everywhere(held)?.data)
    }
}

fn held(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let is_aggregate = |node: &LogicalPlan| {
        Ok(matches!(node, LogicalPlan::Aggregate(aggregate) if is_whole(aggregate)))
    };
    if !names_too_little(&filter) || !filter.input.exists(is_aggregate)? {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    // All columns: those that are constants are gone where the condition is moved through their projection.
    let columns = || filter.input.schema().iter().map(|own| Expr::Column(Column::from(own)));
    let conditions = split_conjunction(&filter.predicate).into_iter().map(|condition| {
        let condition = condition.clone();
        match has_no_column(&condition) {
            true => first_of().call([condition].into_iter().chain(columns()).collect()),
            false => condition,
        }
    });
    let Some(predicate) = conjunction(conditions) else {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    };
    Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
}

/// Whether one of its conditions [names no column](has_no_column).
fn names_too_little(filter: &Filter) -> bool {
    split_conjunction(&filter.predicate).into_iter().any(has_no_column)
}

/// Whether a condition asks a subquery for a value, and names no column.
fn has_no_column(condition: &Expr) -> bool {
    let asks = |expr: &Expr| {
        use Expr::{InSubquery, ScalarSubquery, SetComparison};
        Ok(matches!(expr, ScalarSubquery(_) | InSubquery(_) | SetComparison(_)))
    };
    let joins = |expr: &Expr| Ok(matches!(expr, Expr::Exists(_)));
    condition.exists(asks).unwrap_or(false)
        && condition.column_refs().is_empty()
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
