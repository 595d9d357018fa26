//! The operators of a fragment: one partition, no exchanges, limits that its partitions can keep; and the operators
//! above the cut that merge the rows of the partitions.

use std::sync::Arc;

use cleave_fragment::{RecursionExec, streamed_input};
use datafusion_common::Result;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion_physical_plan::sorts::sort::SortExec;

use super::numbered_plan::{is_exchange, is_join, is_stateless, makes_whole_groups};

/// Rows that the consumer of `chain` can take at most; a sort's best rows must all be seen.
pub(super) fn rows_needed(chain: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if chain.is::<SortExec>() {
        return None;
    }
    match chain.downcast_ref::<GlobalLimitExec>() {
        Some(limit) => limit.fetch().map(|fetch| limit.skip() + fetch),
        None if chain.is::<LocalLimitExec>() => None,
        None => chain.fetch(),
    }
}

/// Whether what streams through `plan` is treated row by row.
pub(super) fn streams_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    (is_stateless(plan.as_ref()) || is_exchange(plan.as_ref()) && plan.fetch().is_none())
        && streamed_input(plan.as_ref()).is_none_or(streams_rows)
}

/// Whether what streams into the joins of `plan` is treated row by row. Else several partitions would sort, count or
/// group what each of them has, where the join wants all of it, or wants it in order. A recursion has one partition,
/// and so have groups that are complete.
pub(super) fn joins_rows_that_stream(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.is::<RecursionExec>() || makes_whole_groups(plan.as_ref()) {
        return false;
    }
    let streamed = streamed_input(plan.as_ref());
    match is_join(plan.as_ref()) {
        true => plan.fetch().is_none() && streamed.is_none_or(streams_rows),
        false => streamed.is_none_or(joins_rows_that_stream),
    }
}

/// What limits in a fragment mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limits {
    /// The fragment runs once and skips and counts for the whole statement.
    Exact,
    /// Each partition keeps as many rows as the limit above could take.
    ByCopy,
}

/// The operator `plan` as the device runs it, over `inputs` that it does.
pub(super) fn on_device(
    plan: &Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    limits: Limits,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let [input] = inputs.as_slice() {
        if is_exchange(plan.as_ref()) {
            return Ok(match plan.fetch() {
                Some(fetch) => Arc::new(GlobalLimitExec::new(Arc::clone(input), 0, Some(fetch))),
                None => Arc::clone(input),
            });
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            let sort = SortExec::new(sort.expr().clone(), Arc::clone(input))
                .with_fetch(sort.fetch())
                .with_preserve_partitioning(limits == Limits::ByCopy);
            return Ok(Arc::new(sort));
        }
        if limits == Limits::ByCopy
            && let Some(limit) = plan.downcast_ref::<GlobalLimitExec>()
        {
            return Ok(match limit.fetch() {
                Some(fetch) => {
                    Arc::new(LocalLimitExec::new(Arc::clone(input), limit.skip() + fetch))
                }
                None => Arc::clone(input),
            });
        }
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return join.builder().with_new_children(inputs)?.reset_state().build_exec();
    }
    with_children(Arc::clone(plan), inputs)
}

/// Puts above the fragment what merges the rows of its partitions.
pub(super) fn merge_above(
    chain: &Arc<dyn ExecutionPlan>,
    below: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(sort) = chain.downcast_ref::<SortExec>() {
        let merged = SortExec::new(sort.expr().clone(), below)
            .with_fetch(sort.fetch())
            .with_preserve_partitioning(sort.preserve_partitioning());
        return Ok(Arc::new(merged));
    }
    if let Some(limit) = chain.downcast_ref::<GlobalLimitExec>() {
        let merged = Arc::new(CoalescePartitionsExec::new(below));
        return Ok(Arc::new(GlobalLimitExec::new(merged, limit.skip(), limit.fetch())));
    }
    Ok(below)
}

pub(super) fn with_children(
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    datafusion_physical_plan::execution_plan::replace_children_if_necessary(plan, children)
}
