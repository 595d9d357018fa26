//! Gives an operator its input in pieces, so that none of its steps takes long, or makes a batch that no memory holds:
//! a plan in, the same plan out, whose batches are cut where this matters.
//!
//! DataFusion evaluates an expression for a whole batch, and an operator yields its thread between batches alone. A
//! pattern that is compiled for each row, a list that becomes a row for each of its items, or the 4,096 sets of a
//! `CUBE` make seconds and gigabytes of one batch. So, when a plan begins to run, [`in_pieces`] looks at each operator:
//!
//! | operator                                  | its input                                                       |
//! |-------------------------------------------|-----------------------------------------------------------------|
//! | an expression [may take long](takes_long) | few rows first, more while they do not take long                |
//! | the sets of an aggregate                  | so many rows that all sets together see those of a few batches  |
//! | lists that become rows                    | parts of [lists](lists) that become a batch                     |
//! | the right side of a cross join            | so many rows that [`PIECE_BYTES`] hold the copies of a left row |
//! | a window that makes a list of each row    | few rows                                                        |
//! | other windows, aggregates, sorts          | as it is                                                        |
//!
//! Before each piece it is checked whether the rows are still [wanted](wanted::look), and the task yields if it has
//! worked for [`SLICE`].
//!
//! Invariant: the rows are the same in the same order. No reader of plans sees the operator: it looks like its input.

mod charged;
mod lists;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use cleave_media::clock::{Clock, SystemClock};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, Statistics};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, LikeExpr};
use datafusion_physical_expr::window::WindowExpr;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion_physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::metrics::MetricsSet;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::unnest::UnnestExec;
use datafusion_physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, stream};
use tokio::task::yield_now;

use self::lists::Lists;
pub(crate) use self::lists::value_bytes;
use crate::wanted;

/// Work between two looks at whether others wait for the thread.
const SLICE: Duration = Duration::from_millis(10);
/// A piece that takes less has been too small.
const SHORT: Duration = Duration::from_millis(2);
/// Rows of the first piece for an expression that may take long.
const FIRST_ROWS: usize = 16;
/// Rows that all sets of an aggregate see of one piece together.
const SET_ROWS: usize = 1 << 16;
/// Bytes of values that are copied for the rows of one piece.
pub(crate) const PIECE_BYTES: u64 = 8 << 20;

/// `plan`, whose operator gets its inputs in pieces where this matters.
///
/// # Errors
/// DataFusion's, when it rebuilds the plan.
pub(crate) fn in_pieces(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(cut) = cut_of(&*plan) else { return Ok(plan) };
    let plan = charged::many_charged(plan)?;
    let inputs = plan.children().into_iter().map(|input| cut_up(input, cut.clone()));
    let inputs = inputs.collect();
    replace_children_if_necessary(plan, inputs)
}

/// `input`, which comes cut up.
fn cut_up(input: &Arc<dyn ExecutionPlan>, cut: Cut) -> Arc<dyn ExecutionPlan> {
    Arc::new(InPiecesExec { input: Arc::clone(input), cut })
}

/// A cross join's `left` and `right` sides: the right one comes in pieces.
pub(crate) fn sides_in_pieces(
    left: &Arc<dyn ExecutionPlan>,
    right: &Arc<dyn ExecutionPlan>,
) -> Vec<Arc<dyn ExecutionPlan>> {
    let row_bytes = Arc::<AtomicU64>::default();
    let measured = Cut::Measured(Arc::clone(&row_bytes));
    vec![cut_up(left, measured), cut_up(right, Cut::Copied(row_bytes))]
}

/// How the input of an operator is cut.
#[derive(Debug, Clone)]
enum Cut {
    /// Not at all.
    Whole,
    /// By the time that the pieces take.
    ByTime,
    /// Into pieces of so many rows.
    Rows(usize),
    /// By the rows that its lists become.
    Lists(Lists),
    /// Not at all; the bytes of its largest row are noted.
    Measured(Arc<AtomicU64>),
    /// Into pieces for each of whose rows so many bytes are copied.
    Copied(Arc<AtomicU64>),
}

fn cut_of(plan: &dyn ExecutionPlan) -> Option<Cut> {
    let takes_long = |expr: &Arc<dyn PhysicalExpr>, schema: &Schema| takes_long(expr, schema);
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let schema = projection.input().schema();
        let is_long = projection.expr().iter().any(|column| takes_long(&column.expr, &schema));
        return is_long.then_some(Cut::ByTime);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let schema = filter.input().schema();
        return takes_long(filter.predicate(), &schema).then_some(Cut::ByTime);
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let sets = aggregate.group_expr().groups().len();
        if sets > 1 && aggregate.mode().input_mode() == AggregateInputMode::Raw {
            return Some(Cut::Rows((SET_ROWS / sets).max(1)));
        }
        let schema = aggregate.input().schema();
        let keys = aggregate.group_expr().input_exprs();
        let arguments = aggregate.aggr_expr().iter().flat_map(|one| one.expressions());
        let conditions = aggregate.filter_expr().iter().flatten().map(Arc::clone);
        let mut all = keys.into_iter().chain(arguments).chain(conditions);
        let is_long = all.any(|expr| takes_long(&expr, &schema));
        return Some(if is_long { Cut::ByTime } else { Cut::Whole });
    }
    if let Some(unnest) = plan.downcast_ref::<UnnestExec>() {
        return Some(Cut::Lists(Lists::of(unnest)));
    }
    if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
        let of_list = |expr: &Arc<dyn WindowExpr>| {
            expr.field().is_ok_and(|field| field.data_type().is_nested())
                || expr.name().starts_with("string_agg")
        };
        let makes_long = window.window_expr().iter().any(of_list);
        return Some(if makes_long { Cut::Rows(FIRST_ROWS) } else { Cut::Whole });
    }
    let gathers = plan.is::<WindowAggExec>() || plan.is::<SortExec>();
    gathers.then_some(Cut::Whole)
}

/// Whether `expr` may take long for a row: it looks at values of any length, or makes them.
fn takes_long(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let is_long = |expr: &Arc<dyn PhysicalExpr>| {
        expr.data_type(schema).is_ok_and(|kind| has_any_length(&kind))
    };
    if expr.is::<LikeExpr>() {
        return true;
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>()
        && matches!(
            binary.op(),
            Operator::RegexMatch
                | Operator::RegexIMatch
                | Operator::RegexNotMatch
                | Operator::RegexNotIMatch
        )
    {
        return true;
    }
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>()
        && (has_any_length(call.return_type()) || call.args().iter().any(is_long))
    {
        return true;
    }
    expr.children().into_iter().any(|part| takes_long(part, schema))
}

/// Whether values of a type have no largest length.
fn has_any_length(kind: &DataType) -> bool {
    kind.is_string() || kind.is_binary() || kind.is_nested()
}

/// Its input, in pieces; see the [module](self).
#[derive(Debug)]
struct InPiecesExec {
    input: Arc<dyn ExecutionPlan>,
    cut: Cut,
}

impl DisplayAs for InPiecesExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.input.fmt_as(kind, f)
    }
}

impl ExecutionPlan for InPiecesExec {
    fn name(&self) -> &str {
        self.input.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(&*self.input)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.input.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.input.maintains_input_order()
    }

    fn fetch(&self) -> Option<usize> {
        self.input.fetch()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.input.apply_expressions(visit)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.input.dynamic_expressions_produced()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = replace_children_if_necessary(Arc::clone(&self.input), children)?;
        Ok(cut_up(&input, self.cut.clone()))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = Arc::clone(&self.input).reset_state()?;
        Ok(cut_up(&input, self.cut.clone()))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batch_rows = task.session_config().batch_size().max(1);
        let rows = self.input.execute(partition, task)?;
        let schema = rows.schema();
        let piece_rows = match &self.cut {
            Cut::ByTime => FIRST_ROWS,
            Cut::Rows(rows) => *rows,
            _ => usize::MAX,
        };
        let now = SystemClock.now();
        let cut = self.cut.clone();
        let pieces = Pieces {
            rows,
            cut,
            batch_rows,
            piece_rows,
            rest: None,
            given: None,
            before: None,
            waited: now,
        };
        let pieces = stream::unfold(pieces, |mut pieces| async move {
            let piece = pieces.next().await?;
            Some((piece, pieces))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, pieces)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.input.metrics()
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.input.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.input.statistics_from_inputs(inputs, args)
    }
}

/// The rows of a partition, in pieces.
struct Pieces {
    rows: SendableRecordBatchStream,
    cut: Cut,
    /// Rows of a batch, at most.
    batch_rows: usize,
    /// Rows of the next piece, at most.
    piece_rows: usize,
    /// What is left of a batch.
    rest: Option<RecordBatch>,
    /// When the last piece was given, and its rows.
    given: Option<(Duration, usize)>,
    /// The rows of the piece before, and how long it took.
    before: Option<(usize, Duration)>,
    /// When the task has last given way.
    waited: Duration,
}

impl Pieces {
    async fn next(&mut self) -> Option<Result<RecordBatch>> {
        let now = SystemClock.now();
        if let Some((since, rows)) = self.given.take()
            && matches!(self.cut, Cut::ByTime)
        {
            self.took(rows, now.saturating_sub(since));
        }
        if let Err(error) = wanted::look() {
            return Some(Err(error));
        }
        if now.saturating_sub(self.waited) > SLICE {
            yield_now().await;
            self.waited = SystemClock.now();
        }
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => loop {
                let asked = SystemClock.now();
                let batch = match self.rows.next().await? {
                    Ok(batch) => batch,
                    Err(error) => return Some(Err(error)),
                };
                if let Cut::Measured(row_bytes) = &self.cut {
                    row_bytes.fetch_max(lists::largest_row(&batch), Ordering::Relaxed);
                }
                // The input has worked or waited in this time, and gives way by itself.
                let now = SystemClock.now();
                self.waited += now.saturating_sub(asked);
                if batch.num_rows() > 0 {
                    break batch;
                }
            },
        };
        let (piece, rest) = match self.piece_of(&batch) {
            Ok(piece) => piece,
            Err(error) => return Some(Err(error)),
        };
        self.rest = rest;
        self.given = Some((SystemClock.now(), piece.num_rows()));
        Some(Ok(piece))
    }

    /// The first piece of `batch`, and what is left of it.
    fn piece_of(&self, batch: &RecordBatch) -> Result<(RecordBatch, Option<RecordBatch>)> {
        let most = match &self.cut {
            Cut::Lists(lists) => return lists.piece_of(batch, self.batch_rows),
            Cut::Copied(row_bytes) => {
                let row_bytes = row_bytes.load(Ordering::Relaxed).max(1);
                usize::try_from(PIECE_BYTES / row_bytes).unwrap_or(usize::MAX).max(1)
            }
            _ => self.piece_rows,
        };
        let rows = batch.num_rows();
        if rows <= most {
            return Ok((batch.clone(), None));
        }
        Ok((batch.slice(0, most), Some(batch.slice(most, rows - most))))
    }

    /// Notes how long a piece took: the next ones are larger if it was short, and smaller if it was long and most of
    /// its time was that of its rows.
    fn took(&mut self, rows: usize, took: Duration) {
        let before = self.before.replace((rows, took));
        let is_of_call = before.is_some_and(|(other, before)| match rows.cmp(&other) {
            std::cmp::Ordering::Less => took * 4 > before * 3,
            std::cmp::Ordering::Greater => took * 2 < before * 3,
            std::cmp::Ordering::Equal => false,
        });
        if took < SHORT || is_of_call {
            self.piece_rows = self.piece_rows.max(rows).saturating_mul(4).min(self.batch_rows);
        } else if took > 2 * SLICE {
            self.piece_rows = (rows / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests;
