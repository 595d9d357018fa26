//! The tables that columns of a plan come from, so that both sides of `title.id = cast.title` have a name.
//!
//! A column that is computed has none. Physical plans do not know aliases.

use std::sync::Arc;

use cleave_fragment::{FetchColumnsExec, TableScanExec};
use datafusion::common::JoinType;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;

use super::below_cuts::Sources;

/// The table from which column `place` of `plan` comes as it is.
pub(super) fn table_of(
    plan: &Arc<dyn ExecutionPlan>,
    place: usize,
    sources: &Sources,
) -> Option<String> {
    let (mut plan, mut place) = (Arc::clone(plan), place);
    loop {
        if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
            return Some(scan.scan().table.clone());
        }
        (plan, place) = match sources.below(&plan) {
            Some(below) => (below, place),
            None => step_down(&plan, place)?,
        };
    }
}

/// The input of `plan` that has its column `place`, and its place there.
fn step_down(
    plan: &Arc<dyn ExecutionPlan>,
    place: usize,
) -> Option<(Arc<dyn ExecutionPlan>, usize)> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let column = projection.expr().get(place)?.expr.downcast_ref::<Column>()?.index();
        return Some((Arc::clone(projection.input()), column));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let projection = filter.projection().as_deref();
        return Some((Arc::clone(filter.input()), projected(projection, place)?));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let place = projected(join.projection.as_deref(), place)?;
        return side([join.left(), join.right()], *join.join_type(), place);
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let place = projected(join.projection().as_deref(), place)?;
        return side([join.left(), join.right()], *join.join_type(), place);
    }
    if let Some(join) = plan.downcast_ref::<CrossJoinExec>() {
        return side([join.left(), join.right()], JoinType::Inner, place);
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let (key, _) = aggregate.group_expr().expr().get(place)?;
        let column = key.downcast_ref::<Column>()?.index();
        return Some((Arc::clone(aggregate.input()), column));
    }
    // Puts columns in the place of one.
    if plan.is::<FetchColumnsExec>() {
        return None;
    }
    let children = plan.children();
    let [input] = children.as_slice() else { return None };
    // Others of one input give its rows on; some have more columns, or fewer.
    let is_same = input.schema().fields().len() == plan.schema().fields().len();
    is_same.then(|| (Arc::clone(input), place))
}

fn projected(projection: Option<&[usize]>, place: usize) -> Option<usize> {
    match projection {
        Some(projection) => projection.get(place).copied(),
        None => Some(place),
    }
}

/// The input of a join that has column `place` of its rows.
fn side(
    [left, right]: [&Arc<dyn ExecutionPlan>; 2],
    join_type: JoinType,
    place: usize,
) -> Option<(Arc<dyn ExecutionPlan>, usize)> {
    let left_count = left.schema().fields().len();
    let of_right =
        |place: usize| (place < right.schema().fields().len()).then(|| (Arc::clone(right), place));
    match join_type {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            match place.checked_sub(left_count) {
                Some(place) => of_right(place),
                None => Some((Arc::clone(left), place)),
            }
        }
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            (place < left_count).then(|| (Arc::clone(left), place))
        }
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => of_right(place),
    }
}
