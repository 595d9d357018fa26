//! Whether both sides may work on one fragment at the same time, each on morsels of its own: an operator tree in, yes
//! or no out.
//!
//! The streaming input is divided; build sides are collected on each side. That gives the same rows where every
//! operator on the stream's way treats its rows alone or makes partial results of them that are merged above the cut.
//! It does not where an operator needs *all* rows of the stream: a join that then hands on rows of its build side, a
//! final aggregate, a limit. Source: rule 12.

use cleave_fragment::{DenseAggregateExec, streamed_input};
use datafusion_common::JoinType;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion_physical_plan::sorts::sort::SortExec;

use super::numbered_plan::{is_exchange, is_join, is_stateless};

/// Whether host and device may share the morsels that stream through `plan`.
pub(super) fn may_share(plan: &dyn ExecutionPlan) -> bool {
    let here = if is_join(plan) {
        may_share_join(plan) && plan.fetch().is_none()
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::PartialReduce)
    } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
        // The best rows of each side are merged above.
        sort.fetch().is_some()
    } else {
        let is_plain = matches!(plan.name(), "TableScanExec" | "FilterExec" | "ProjectionExec");
        let is_known = is_plain || plan.is::<DenseAggregateExec>() || is_exchange(plan);
        is_known && plan.fetch().is_none()
    };
    here && streamed_input(plan).is_none_or(|input| may_share(input.as_ref()))
}

/// Whether the join `plan` gives the same rows where each device joins all that it collects with a part of what
/// streams.
pub(super) fn joins_divided_rows(plan: &dyn ExecutionPlan) -> bool {
    divides_rows(plan)
        && streamed_input(plan).is_none_or(|input| joins_divided_rows(input.as_ref()))
}

/// Whether `node` gives the same rows where each device has all that it collects, and a part of what streams.
pub fn divides_rows(node: &dyn ExecutionPlan) -> bool {
    let is_plain = is_exchange(node) && node.fetch().is_none() || is_stateless(node);
    is_plain && (!is_join(node) || may_share_join(node))
}

/// Whether the join `plan` hands on rows of what it has collected only with rows that stream.
fn may_share_join(plan: &dyn ExecutionPlan) -> bool {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return hands_on_no_collected_row(*join.join_type());
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        return hands_on_no_collected_row(*join.join_type());
    }
    plan.is::<CrossJoinExec>()
}

/// Whether a join of this kind hands on rows of what it has collected, its first input, only with rows that stream.
fn hands_on_no_collected_row(join_type: JoinType) -> bool {
    matches!(
        join_type,
        JoinType::Inner
            | JoinType::Right
            | JoinType::RightSemi
            | JoinType::RightAnti
            | JoinType::RightMark
    )
}
