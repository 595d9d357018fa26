//! Replaces DataFusion's filter push-down by ours, which goes by position ([`cleave_fragment::hand_down`]), its
//! recursions by those that a device can run too ([`RecursionExec`]), and its choice of build sides by [`BuildSides`].
//! [`PushProjections`] keeps its push-down of projections from computing what a condition may not reach.

use std::sync::Arc;

use cleave_fragment::RecursionExec;
use cleave_fragment::expressions::total::cannot_fail;
use cleave_fragment::hand_down::hand_down_filters;
use cleave_fragment::walk::Walk;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::expressions::{BinaryExpr, CaseExpr};
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::projection::remove_unnecessary_projections;

use super::build_sides::BuildSides;

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// `rules` of DataFusion, with ours for build sides and for the push-down of dynamic filters. Static filters are in the
/// scans already; pushing them again, by name too, could only go wrong.
pub(super) fn with_our_rules(rules: &[Rule]) -> Vec<Rule> {
    let kept = rules.iter().filter(|rule| rule.name() != "FilterPushdown");
    let ours = kept.map(|rule| match rule.name() {
        "join_selection" => Arc::new(BuildSides) as Rule,
        "FilterPushdown(Post)" => Arc::new(HandDownFilters) as Rule,
        "ProjectionPushdown" => Arc::new(PushProjections(Arc::clone(rule))) as Rule,
        _ => Arc::clone(rule),
    });
    ours.collect()
}

#[derive(Debug)]
struct HandDownFilters;

impl PhysicalOptimizerRule for HandDownFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_down(without_unordered_limit)?.data;
        hand_down_filters(RecursionExec::in_place_of_the_engines(plan)?, config)
    }

    fn name(&self) -> &'static str {
        "HandDownFilters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A DISTINCT that stops after some groups, of rows that a later rule has ordered, as those of a window are: DataFusion
/// would take it for one of the first groups in an order, which it has none of.
fn without_unordered_limit(
    node: Arc<dyn ExecutionPlan>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let is_it = |aggregate: &&AggregateExec| {
        aggregate.limit_options().is_some_and(|limit| limit.descending().is_none())
            && aggregate.aggr_expr().is_empty()
            && !aggregate.is_unordered_unfiltered_group_by_distinct()
    };
    Ok(match node.downcast_ref::<AggregateExec>().filter(is_it) {
        Some(aggregate) => Transformed::yes(Arc::new(aggregate.with_new_limit_options(None))),
        None => Transformed::no(node),
    })
}

/// DataFusion's push-down of projections, which also computes parts of a nested-loop join's condition below the join,
/// once for each row of a side: in `CASE WHEN a.x = 0 THEN false ELSE 6 / a.x = b.y END` the division too, also of rows
/// that never reach that branch. Where such a part can fail, the conditions stay as they are.
#[derive(Debug)]
struct PushProjections(Rule);

impl PhysicalOptimizerRule for PushProjections {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let may_fail = |node: &Arc<dyn ExecutionPlan>| {
            let filter =
                node.downcast_ref::<NestedLoopJoinExec>().and_then(NestedLoopJoinExec::filter);
            Ok(filter
                .is_some_and(|filter| !can_be_taken_apart(filter.expression(), filter.schema())))
        };
        match plan.exists(may_fail)? {
            true => Ok(plan.transform_down(remove_unnecessary_projections)?.data),
            false => self.0.optimize(plan, config),
        }
    }

    fn name(&self) -> &'static str {
        "PushProjections"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether each part of a condition may be computed for all rows: it cannot fail, or is computed for each anyway.
fn can_be_taken_apart(condition: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    if cannot_fail(condition, schema) {
        return true;
    }
    let is_chosen = condition.downcast_ref::<BinaryExpr>();
    if let Some(binary) =
        is_chosen.filter(|binary| matches!(binary.op(), Operator::And | Operator::Or))
    {
        return can_be_taken_apart(binary.left(), schema) && cannot_fail(binary.right(), schema);
    }
    !condition.is::<CaseExpr>()
        && !has_unread_arguments(condition)
        && condition.children().into_iter().all(|part| can_be_taken_apart(part, schema))
}

/// Whether a function leaves some of its arguments uncomputed.
fn has_unread_arguments(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let function = expression.downcast_ref::<ScalarFunctionExpr>();
    function.is_some_and(|function| function.fun().short_circuits())
}
