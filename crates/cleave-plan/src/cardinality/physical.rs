//! Estimates the rows of every node of a physical plan from those of the join order.
//!
//! A node is followed down to its leaves: a node that joins the same leaves as a part of the join tree is expected to
//! give the same rows ([`PlanEstimates`]). Everything else follows from its inputs: joins by the distinct values of
//! their keys, of which the larger number counts, aggregates by those of their groups.
//!
//! A recursion is taken to run [`ROUNDS`] rounds, and its working table to have as many times the rows of the static
//! term on average: PostgreSQL's assumption (`recursive_worktable_factor`).
//!
//! Rows of a scan that keys of a join above leave out at run time are not considered: a scan's rows are those of its
//! own conditions.

use std::sync::Arc;

use cleave_fragment::{DenseAggregateExec, RecursionExec, TableScanExec, WorkingTableExec};
use datafusion_common::JoinType;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion_physical_plan::union::UnionExec;

use super::{LeafKey, PlanEstimates, RANGE, ROW_COUNT_UNKNOWN, distinct_values_max};

/// Rows that a filter above joins or aggregates keeps.
const FILTER_KEEPS: f64 = 0.2;
/// Groups that an aggregate makes of so many rows, where nothing tells.
const ROWS_PER_GROUP: f64 = 10.0;
/// The least share that a join without matches keeps.
const UNMATCHED_LEAST: f64 = 0.1;

/// Rounds that a recursion is taken to run.
pub(crate) const ROUNDS: f64 = 10.0;

/// Finds the plan below a node that does not show it as a child.
pub type Below<'a> = dyn Fn(&Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> + 'a;

/// The rows expected of each node of `plan`, in preorder.
pub fn estimate_rows(plan: &Arc<dyn ExecutionPlan>, known: &PlanEstimates) -> Vec<f64> {
    estimate_rows_with(plan, known, &|_| None)
}

/// As [`estimate_rows`]; the nodes that `below` finds below one, such as those of a fragment, come behind it in the
/// place of its inputs.
pub fn estimate_rows_with(
    plan: &Arc<dyn ExecutionPlan>,
    known: &PlanEstimates,
    below: &Below<'_>,
) -> Vec<f64> {
    let mut rows = Vec::new();
    estimate(plan, known, below, &mut Vec::new(), &mut rows);
    rows
}

/// The estimate of a node's output.
#[derive(Clone)]
struct Output {
    rows: f64,
    /// The leaves that it joins, and nothing else.
    leaves: Option<Vec<LeafKey>>,
    /// Different values of each column.
    distinct_counts: Vec<Option<f64>>,
}

impl Output {
    fn of(rows: f64, plan: &Arc<dyn ExecutionPlan>) -> Self {
        let distinct_counts = vec![None; plan.schema().fields().len()];
        Self { rows, leaves: None, distinct_counts }
    }

    /// Distinct values of `expr`, at most as many as rows.
    fn distinct_count(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<f64> {
        let of_column = |index: usize| self.distinct_counts.get(index).copied().flatten();
        let bound = distinct_values_max(expr, &of_column)?;
        // What is computed has fewer values than its bound, more often than not.
        let most = if expr.is::<Column>() { self.rows } else { self.rows / ROWS_PER_GROUP };
        Some(bound.min(most).max(1.0))
    }

    fn at_most(mut self, fetch: Option<usize>) -> Self {
        if let Some(fetch) = fetch {
            self.rows = self.rows.min(fetch as f64);
            self.leaves = None;
        }
        self
    }

    fn projected(mut self, projection: Option<&[usize]>) -> Self {
        if let Some(projection) = projection {
            let of = |place: &usize| self.distinct_counts.get(*place).copied().flatten();
            self.distinct_counts = projection.iter().map(of).collect();
        }
        self
    }
}

/// A recursion whose recursive term is looked at: its name, and the rows of its static term.
type Recursion = (String, f64);

/// Puts the rows of `plan` and of all nodes below it into `rows`; it lies in the recursive terms of `within`.
fn estimate(
    plan: &Arc<dyn ExecutionPlan>,
    known: &PlanEstimates,
    below: &Below<'_>,
    within: &mut Vec<Recursion>,
    rows: &mut Vec<f64>,
) -> Output {
    let place = rows.len();
    rows.push(0.0);
    let hidden = below(plan).map(|hidden| estimate(&hidden, known, below, within, rows));
    let output = match hidden {
        Some(hidden) => hidden,
        None if plan.is::<WorkingTableExec>() => of_working_table(plan, within),
        None => {
            let recursion = plan.downcast_ref::<RecursionExec>();
            let mut inputs: Vec<Output> = Vec::new();
            for child in plan.children() {
                let first = recursion.zip(inputs.first());
                let is_again = first.is_some();
                within.extend(first.map(|(own, first)| (own.query_name().to_owned(), first.rows)));
                inputs.push(estimate(child, known, below, within, rows));
                if is_again {
                    within.pop();
                }
            }
            of_node(plan, inputs, known)
        }
    };
    let output = output.at_most(plan.fetch());
    if let Some(own) = rows.get_mut(place) {
        *own = output.rows;
    }
    output
}

fn of_node(
    plan: &Arc<dyn ExecutionPlan>,
    mut inputs: Vec<Output>,
    known: &PlanEstimates,
) -> Output {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        return of_scan(plan, scan, known);
    }
    if let ([first, again], true) = (inputs.as_slice(), plan.is::<RecursionExec>()) {
        return Output::of(first.rows + ROUNDS * again.rows, plan);
    }
    if inputs.len() == 2
        && let (Some(right), Some(left)) = (inputs.pop(), inputs.pop())
    {
        if let Some(joined) = of_join(plan, &left, &right, known) {
            return joined;
        }
        inputs = vec![left, right];
    }
    if plan.downcast_ref::<UnionExec>().is_some() {
        return Output::of(inputs.iter().map(|input| input.rows).sum(), plan);
    }
    let [input] = inputs.as_slice() else { return by_the_engine(plan) };
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return of_aggregate(plan, aggregate, input);
    }
    if plan.downcast_ref::<DenseAggregateExec>().is_some() {
        return input.clone();
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let rows = (input.rows * FILTER_KEEPS).max(1.0);
        let output = Output { rows, leaves: None, ..input.clone() };
        return output.projected(filter.projection().as_deref());
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let counts = projection.expr().iter().map(|of| input.distinct_count(&of.expr));
        return Output { distinct_counts: counts.collect(), ..input.clone() };
    }
    // Exchanges, sorts, limits, windows: as many rows as came in, and the columns first that came in.
    let mut output = input.clone();
    output.distinct_counts.resize(plan.schema().fields().len(), None);
    output
}

/// The rows of a recursion that one of its rounds starts from.
fn of_working_table(plan: &Arc<dyn ExecutionPlan>, within: &[Recursion]) -> Output {
    let table = plan.downcast_ref::<WorkingTableExec>();
    let name = table.map(WorkingTableExec::query_name).unwrap_or_default();
    let recursion = within.iter().rev().find(|(recursion, _)| recursion == name);
    Output::of(recursion.map_or(ROW_COUNT_UNKNOWN, |(_, first)| ROUNDS * first), plan)
}

fn of_scan(plan: &Arc<dyn ExecutionPlan>, scan: &TableScanExec, known: &PlanEstimates) -> Output {
    let mut output = by_the_engine(plan);
    if let Some((key, rows)) = known.scan(scan.scan().input) {
        output.rows = *rows;
        output.leaves = Some(vec![key.clone()]);
    }
    output.at_most(scan.scan().fetch)
}

/// The node's own estimate.
fn by_the_engine(plan: &Arc<dyn ExecutionPlan>) -> Output {
    let mut output = Output::of(ROW_COUNT_UNKNOWN, plan);
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    let Ok(statistics) = statistics else { return output };
    if let Some(rows) = statistics.num_rows.get_value() {
        output.rows = *rows as f64;
    }
    let counts = statistics.column_statistics.iter().zip(&mut output.distinct_counts);
    for (column, count) in counts {
        *count = column.distinct_count.get_value().map(|known| *known as f64);
    }
    output
}

/// None: it is no join.
fn of_join(
    plan: &Arc<dyn ExecutionPlan>,
    left: &Output,
    right: &Output,
    known: &PlanEstimates,
) -> Option<Output> {
    let (join_type, on, has_filter, projection) =
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let projection = join.projection.as_deref();
            (*join.join_type(), join.on(), join.filter().is_some(), projection)
        } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
            let projection = join.projection().as_deref();
            (*join.join_type(), [].as_slice(), join.filter().is_some(), projection)
        } else {
            plan.downcast_ref::<CrossJoinExec>()?;
            (JoinType::Inner, [].as_slice(), false, None)
        };
    let leaves = match (&left.leaves, &right.leaves) {
        (Some(left), Some(right)) if join_type == JoinType::Inner => {
            Some([left.as_slice(), right.as_slice()].concat())
        }
        _ => None,
    };
    let sides: Vec<(f64, f64)> = on
        .iter()
        .map(|(one, other)| {
            let of = |side: &Output, expr| side.distinct_count(expr).unwrap_or(side.rows).max(1.0);
            (of(left, one), of(right, other))
        })
        .collect();
    let assumed = leaves.clone().and_then(|leaves| known.join(leaves));
    let matching = assumed.unwrap_or_else(|| {
        let mut counts: Vec<f64> = sides.iter().map(|(one, other)| one.max(*other)).collect();
        counts.sort_by(|a, b| b.total_cmp(a));
        let mut rows = left.rows * right.rows * if has_filter { RANGE } else { 1.0 };
        // The first counts in full, the others by their root: they are seldom independent.
        for (place, count) in counts.iter().enumerate() {
            rows /= if place == 0 { *count } else { count.sqrt() };
        }
        rows
    });
    // Of the side with more different keys, those that the other side has are taken to match.
    let share = |own: fn(&(f64, f64)) -> f64, other: fn(&(f64, f64)) -> f64| {
        let shares = sides.iter().map(|side| (other(side) / own(side)).min(1.0));
        shares.fold(1.0, f64::min)
    };
    let left_share = share(|side| side.0, |side| side.1);
    let right_share = share(|side| side.1, |side| side.0);
    let rows = match join_type {
        JoinType::Inner => matching,
        JoinType::Left => matching.max(left.rows),
        JoinType::Right => matching.max(right.rows),
        JoinType::Full => matching.max(left.rows).max(right.rows),
        JoinType::LeftSemi => left.rows * left_share,
        JoinType::RightSemi => right.rows * right_share,
        JoinType::LeftAnti => left.rows * (1.0 - left_share).max(UNMATCHED_LEAST),
        JoinType::RightAnti => right.rows * (1.0 - right_share).max(UNMATCHED_LEAST),
        JoinType::LeftMark => left.rows,
        JoinType::RightMark => right.rows,
    };
    let (left, right) = (&left.distinct_counts, &right.distinct_counts);
    let mut distinct_counts = match join_type {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left.clone(),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right.clone(),
        _ => [left.as_slice(), right.as_slice()].concat(),
    };
    if projection.is_none() {
        distinct_counts.resize(plan.schema().fields().len(), None);
    }
    Some(Output { rows: rows.max(1.0), leaves, distinct_counts }.projected(projection))
}

fn of_aggregate(
    plan: &Arc<dyn ExecutionPlan>,
    aggregate: &AggregateExec,
    input: &Output,
) -> Output {
    let keys = aggregate.group_expr().expr();
    let mut output = Output::of(1.0, plan);
    if keys.is_empty() {
        return output;
    }
    let counts: Vec<Option<f64>> =
        keys.iter().map(|(key, _)| input.distinct_count(key).map(|count| count + 1.0)).collect();
    let groups: Option<f64> = counts.iter().copied().product();
    output.rows = groups.unwrap_or(input.rows / ROWS_PER_GROUP).min(input.rows).max(1.0);
    output.distinct_counts = counts;
    output.distinct_counts.resize(plan.schema().fields().len(), None);
    output
}

#[cfg(test)]
mod tests;
