//! Chooses the build side of each join, in place of DataFusion's rule `join_selection`.
//!
//! The join order says what builds and what probes in inner joins (`join_order` of `cleave-plan`): it knows statistics
//! of columns and samples of joins. DataFusion would swap the sides again by the sizes of the tables beneath. Where our
//! search has no choice, the smaller input builds: in joins of other kinds, and in those that stay as written, which
//! `join_reordering` of DataFusion's configuration says.
//!
//! Invariant: a swap changes no column of the result, neither its name nor its place.

use cleave_fragment::walk::Walk;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

/// Who chooses what builds in the inner joins of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InnerJoins {
    /// The search of a join order.
    Ordered,
    /// Nobody before the rule: they stand as they were written.
    AsWritten,
}

#[derive(Debug)]
pub(super) struct BuildSides;

impl PhysicalOptimizerRule for BuildSides {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_ordered = !config.optimizer.join_reordering;
        plan.transform_up(|node| with_build_side(node, is_ordered)).data()
    }

    fn name(&self) -> &'static str {
        "BuildSides"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `node`, if it is a join, with the smaller input as its build side; `is_ordered`: the join order chose those of inner
/// joins.
fn with_build_side(
    node: Arc<dyn ExecutionPlan>,
    is_ordered: bool,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let swapped = if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let is_free = *join.join_type() == JoinType::Inner
            && join.null_equality() == NullEquality::NullEqualsNothing;
        // A null-aware anti join needs its sides as they are.
        let is_fixed = join.null_aware || (is_ordered && is_free);
        if is_fixed || !is_larger(join.left(), join.right())? {
            return Ok(Transformed::no(node));
        }
        join.swap_inputs(PartitionMode::CollectLeft)?
    } else if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
        if is_ordered || !is_larger(join.left(), join.right())? {
            return Ok(Transformed::no(node));
        }
        join.swap_inputs()?
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let is_fixed = is_ordered && *join.join_type() == JoinType::Inner;
        if is_fixed || !is_larger(join.left(), join.right())? {
            return Ok(Transformed::no(node));
        }
        join.swap_inputs()?
    } else {
        return Ok(Transformed::no(node));
    };
    Ok(Transformed::yes(swapped))
}

/// Whether `left` has more bytes than `right`, or more rows where bytes are unknown.
fn is_larger(left: &Arc<dyn ExecutionPlan>, right: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let of = |side: &Arc<dyn ExecutionPlan>| {
        StatisticsContext::new().compute(side.as_ref(), &StatisticsArgs::new())
    };
    let (left, right) = (of(left)?, of(right)?);
    let bytes = (left.total_byte_size.get_value(), right.total_byte_size.get_value());
    let rows = (left.num_rows.get_value(), right.num_rows.get_value());
    Ok(match (bytes, rows) {
        ((Some(left), Some(right)), _) | (_, (Some(left), Some(right))) => left > right,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;

    use super::*;

    /// What builds after the rule, where what is written to build has one row and what probes has none.
    fn building(kind: JoinType, equality: NullEquality, join_reordering: bool) -> String {
        let schema = |name| Arc::new(Schema::new(vec![Field::new(name, DataType::Int32, true)]));
        let one: Arc<dyn ExecutionPlan> = Arc::new(PlaceholderRowExec::new(schema("a")));
        let none: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema("b")));
        let on = vec![(Arc::new(Column::new("a", 0)) as _, Arc::new(Column::new("b", 0)) as _)];
        let mode = PartitionMode::CollectLeft;
        let join = HashJoinExec::try_new(one, none, on, None, &kind, None, mode, equality, false);
        let mut config = ConfigOptions::default();
        config.optimizer.join_reordering = join_reordering;
        let mut plan = BuildSides.optimize(Arc::new(join.unwrap()), &config).unwrap();
        while let [first, ..] = plan.children()[..] {
            plan = Arc::clone(first);
        }
        plan.name().to_owned()
    }

    #[test]
    fn the_join_order_chooses_the_build_side_of_inner_joins_and_sizes_all_others() {
        let (equal, null_too) = (NullEquality::NullEqualsNothing, NullEquality::NullEqualsNull);
        assert_eq!(building(JoinType::Inner, equal, false), "PlaceholderRowExec");
        assert_eq!(building(JoinType::Inner, equal, true), "EmptyExec");
        assert_eq!(building(JoinType::Inner, null_too, false), "EmptyExec");
        assert_eq!(building(JoinType::Left, equal, false), "EmptyExec");
    }

    #[test]
    fn the_engine_has_the_rule_that_is_replaced() {
        use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
        let names: Vec<String> =
            PhysicalOptimizer::new().rules.iter().map(|rule| rule.name().to_owned()).collect();
        assert!(names.iter().any(|name| name == "join_selection"), "{names:?}");
        assert!(names.iter().any(|name| name == "FilterPushdown(Post)"), "{names:?}");
    }
}
