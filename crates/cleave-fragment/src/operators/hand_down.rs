//! Hands filters that operators learn while they run down to the scans that can use them: the keys of a join's build
//! side, the bound of a top-k.
//!
//! The pass takes a physical plan and returns the same plan, whose scans hold the filters of the operators above them
//! ([`TableScanExec::dynamic_filters`]). A filter follows its columns down by *position*. DataFusion's own rule looks
//! columns up by name: where an input has two columns of one name, the first gets the other's filter and rows are lost.
//! A filter whose columns cannot be followed is dropped, which never changes rows; of keys of several columns, those
//! that can be followed go on, and the others are [absent](AbsentKeyExpr). A filter that may fail is dropped where an
//! operator on the way removes rows: the error could come from a removed row.

use crate::walk::Walk;
use std::sync::Arc;

use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{JoinType, Result};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion_physical_expr_common::physical_expr::is_volatile;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::coop::CooperativeExec;
use datafusion_physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, PushedDownPredicate,
};
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::repartition::RepartitionExec;
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::union::UnionExec;

use crate::expressions::absent_key::AbsentKeyExpr;
use crate::expressions::total::cannot_fail;
use crate::operators::table_scan_exec::TableScanExec;

/// `plan` with the filters of its operators in its scans. Run it after all rules that move operators.
///
/// # Errors
/// Those of DataFusion, if the plan cannot be rebuilt.
pub fn hand_down_filters(
    plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(hand_down(plan, &[], config)?.plan)
}

struct HandedDown {
    plan: Arc<dyn ExecutionPlan>,
    /// For each filter from above, whether a scan in the plan took it.
    taken: Vec<bool>,
}

/// `plan` with `filters`, which refer to its output, and with those of its own operators.
fn hand_down(
    plan: Arc<dyn ExecutionPlan>,
    filters: &[Arc<dyn PhysicalExpr>],
    config: &ConfigOptions,
) -> Result<HandedDown> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        // A filter would change which rows the limit takes.
        if filters.is_empty() || scan.fetch().is_some() {
            return Ok(HandedDown { plan, taken: vec![false; filters.len()] });
        }
        let scan = scan.clone().with_dynamic_filters(filters.to_vec());
        return Ok(HandedDown { plan: Arc::new(scan), taken: vec![true; filters.len()] });
    }
    let own = plan.gather_filters_for_pushdown(FilterPushdownPhase::Post, Vec::new(), config)?;
    let own = own.self_filters();
    let mut taken = vec![false; filters.len()];
    let mut own_taken = Vec::new();
    let mut inputs = Vec::new();
    let mut changed = false;
    for (place, input) in plan.children().into_iter().enumerate() {
        let (mut numbers, mut below) = (Vec::new(), Vec::new());
        for (number, filter) in filters.iter().enumerate() {
            if let Some(filter) = over_input(filter, plan.as_ref(), place)? {
                numbers.push(number);
                below.push(filter);
            }
        }
        let own = own.get(place).map_or(&[][..], Vec::as_slice);
        below.extend(own.iter().cloned());
        let done = hand_down(Arc::clone(input), &below, config)?;
        let (of_above, of_own) = done.taken.split_at(numbers.len());
        for (number, is_taken) in numbers.iter().zip(of_above) {
            taken[*number] |= is_taken;
        }
        let of_own = own.iter().zip(of_own).filter(|(_, is_taken)| **is_taken);
        own_taken
            .push(of_own.map(|(own, _)| PushedDownPredicate::supported(Arc::clone(own))).collect());
        changed |= !Arc::ptr_eq(input, &done.plan);
        inputs.push(done.plan);
    }
    let plan = if changed { replace_children_if_necessary(plan, inputs)? } else { plan };
    if own.iter().all(Vec::is_empty) {
        return Ok(HandedDown { plan, taken });
    }
    // The operator maintains only filters that a scan uses.
    let told = ChildPushdownResult { parent_filters: Vec::new(), self_filters: own_taken };
    let told = plan.handle_child_pushdown_result(FilterPushdownPhase::Post, told, config)?;
    Ok(HandedDown { plan: told.updated_node.unwrap_or(plan), taken })
}

/// Rewrites `filter` from the output of `plan` to that of its input at `place`; None if it may not or cannot go there.
/// Of a join's keys of several parts, those go that can.
fn over_input(
    filter: &Arc<dyn PhysicalExpr>,
    plan: &dyn ExecutionPlan,
    place: usize,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let Some(input) = plan.children().get(place).copied() else { return Ok(None) };
    let below = match whole_over_input(filter, plan, place)? {
        None => parts_over_input(filter, plan, place)?,
        whole => whole,
    };
    let Some(filter) = below else { return Ok(None) };
    let leaves_out_rows = plan.is::<FilterExec>() || plan.is::<HashJoinExec>();
    let may_go = !leaves_out_rows || cannot_fail(&filter, &input.schema());
    Ok(may_go.then_some(filter))
}

/// `expr` with all of its columns over the input of `plan` at `place`; None if one is not to be had.
fn whole_over_input(
    expr: &Arc<dyn PhysicalExpr>,
    plan: &dyn ExecutionPlan,
    place: usize,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let mut is_whole = true;
    let expr = Arc::clone(expr).transform_down(|expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        // The replacement already refers to the input and must not be rewritten again.
        Ok(match column_over_input(column.index(), plan, place) {
            Some(below) if !is_volatile(&below) => {
                Transformed::new(below, true, TreeNodeRecursion::Jump)
            }
            _ => {
                is_whole = false;
                Transformed::no(expr)
            }
        })
    })?;
    Ok(is_whole.then_some(expr.data))
}

/// `filter`, of several operands, over those that the input of `plan` at `place` has; None if it has none of them.
fn parts_over_input(
    filter: &Arc<dyn PhysicalExpr>,
    plan: &dyn ExecutionPlan,
    place: usize,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    if !filter.is::<DynamicFilterPhysicalExpr>() {
        return Ok(None);
    }
    let (schema, mut any) = (plan.schema(), false);
    let mut operands = Vec::new();
    for operand in filter.children() {
        let below = match operand.is::<AbsentKeyExpr>() {
            true => None,
            false => whole_over_input(operand, plan, place)?,
        };
        any |= below.is_some();
        operands.push(match below {
            Some(below) => below,
            None => AbsentKeyExpr::of(operand.data_type(&schema)?),
        });
    }
    any.then(|| Arc::clone(filter).with_new_children(operands)).transpose()
}

/// The expression over the input at `place` that gives column `output` of `plan`, if every output row with a value
/// comes from input rows with this value, and dropping other input rows drops no other output.
fn column_over_input(
    output: usize,
    plan: &dyn ExecutionPlan,
    place: usize,
) -> Option<Arc<dyn PhysicalExpr>> {
    if plan.fetch().is_some() {
        return None;
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return Some(Arc::clone(&projection.expr().get(output)?.expr));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return join_column(join, output, place);
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return group_column(aggregate, output);
    }
    let input = if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        filter
            .projection()
            .as_ref()
            .map_or(Some(output), |projection| projection.get(output).copied())?
    } else if hands_rows_on(plan) {
        output
    } else {
        return None;
    };
    column(plan.children().get(place)?.as_ref(), input)
}

/// Whether `plan` passes on the rows of its inputs, column by column.
fn hands_rows_on(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<UnionExec>()
        || plan.is::<SortExec>()
}

fn column(plan: &dyn ExecutionPlan, index: usize) -> Option<Arc<dyn PhysicalExpr>> {
    let schema = plan.schema();
    let field = schema.fields().get(index)?;
    Some(Arc::new(Column::new(field.name(), index)))
}

fn join_column(join: &HashJoinExec, output: usize, place: usize) -> Option<Arc<dyn PhysicalExpr>> {
    let output = match &join.projection {
        Some(projection) => *projection.get(output)?,
        None => output,
    };
    let left_width = join.left().schema().fields().len();
    let (from, index) = match join.join_type() {
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => (1, output),
        _ if output < left_width => (0, output),
        // The mark follows the columns of the left side, and belongs to neither input.
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => return None,
        _ => (1, output - left_width),
    };
    // Rows of the other side without a match here are kept with NULLs.
    let leaves_out_nothing_else = match join.join_type() {
        JoinType::Inner => true,
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => from == 0,
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => from == 1,
        JoinType::LeftSemi | JoinType::RightSemi => true,
        JoinType::Full => false,
    };
    if !leaves_out_nothing_else {
        return None;
    }
    let input = if from == 0 { join.left() } else { join.right() };
    if from == place {
        return column(input.as_ref(), index);
    }
    // Of the other side, only rows with keys of the output matter, or match rows of this side whose keys the filter
    // passes. Anti joins would keep more rows of this side, and a NULL-aware one fewer.
    let goes_across =
        [JoinType::Inner, JoinType::Left, JoinType::Right, JoinType::LeftSemi, JoinType::RightSemi];
    if !goes_across.contains(join.join_type()) {
        return None;
    }
    join.on().iter().find_map(|(left, right)| {
        let (here, there) = if from == 0 { (left, right) } else { (right, left) };
        let is_key = here.downcast_ref::<Column>().is_some_and(|key| key.index() == index);
        is_key.then(|| Arc::clone(there))
    })
}

/// A column that all grouping sets group by; an aggregate that returns a row for no input has none.
fn group_column(aggregate: &AggregateExec, output: usize) -> Option<Arc<dyn PhysicalExpr>> {
    let group_by = aggregate.group_expr();
    if group_by.is_true_no_grouping() {
        return None;
    }
    let in_all = group_by.groups().iter().all(|is_null| is_null.get(output) == Some(&false));
    let (expr, _) = group_by.expr().get(output).filter(|_| in_all)?;
    Some(Arc::clone(expr))
}

#[cfg(test)]
mod tests;
