//! Makes joins cancellable: a plan in, the same plan out, whose joins yield their thread and end once nobody wants
//! their rows.
//!
//! DataFusion's nested-loop join compares a batch of one side with all of the other before it yields its thread, and an
//! operator that gathers rows above a join takes all that the join makes of one batch. A dropped task goes on until
//! then, which may be hours.
//!
//! 1. [`stoppable_joins`] puts a [`StoppableJoinExec`] in the place of each join, just before the plan runs.
//! 2. Between batches, the join yields its thread as scans do, and ends if it was [stopped](Stop).
//! 3. A condition on pairs is evaluated for a batch of pairs at a time, and is an error once the join was stopped
//!    ([`while_wanted`]), also where a join runs [part by part](GraceExec).
//! 4. On the host, a nested-loop join, or a hash join whose matches may give no rows, goes on on a thread of its own if
//!    it works for long between batches ([`own_thread`]), so that the runtime's workers are free to stop it.
//!
//! Other operators get their input [in pieces](in_pieces) where one of their steps could take long.
//!
//! A hash join whose filter [we can fill](FilledFilter) from integer keys runs without a filter of its own.
//!
//! Where a plan has no part on another side, joins also [start when they are polled](Start::WhenPolled), from the root
//! on: the inputs of a join whose rows come last then know the keys of those that come first. An input that is gathered
//! from several partitions starts as soon as it is executed otherwise, and reads what these keys would leave out.
//!
//! Invariant: readers of the plan see the joins as they were planned, and as many nodes. The operator is never encoded:
//! the side that runs a fragment adds it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, ScalarValue, Statistics, exec_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Literal;
use datafusion_physical_plan::coop::make_cooperative;
use datafusion_physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_physical_plan::joins::utils::JoinFilter;
use datafusion_physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use datafusion_physical_plan::metrics::MetricsSet;
use datafusion_physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

use crate::operators::filled_filter::FilledFilter;
use crate::operators::grace_exec::GraceExec;
use crate::operators::in_pieces_exec::{in_pieces, sides_in_pieces};
use crate::operators::recursion_exec::RecursionExec;

mod own_thread;
mod packed_sides;

pub use own_thread::OwnThreads;
use own_thread::{How, Moving, Work, may_move};

/// Tells a running plan that nobody wants its rows any more; clones refer to the same plan.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops the plan.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the plan was stopped.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Checks whether to go on.
    ///
    /// # Errors
    /// If the plan was stopped.
    pub fn check(&self) -> Result<()> {
        match self.is_raised() {
            true => exec_err!("nobody wants the rows any more"),
            false => Ok(()),
        }
    }
}

/// Raises a [`Stop`] when it is dropped: held by the consumer of the rows, on a thread that no join keeps busy.
#[derive(Debug)]
pub struct StopOnDrop(Stop);

impl From<&Stop> for StopOnDrop {
    fn from(stop: &Stop) -> Self {
        Self(stop.clone())
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// When the inputs of joins start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// All at once. A fragment somewhere in the plan is to run beside the rest.
    AtOnce,
    /// Once somebody wants rows of the join.
    WhenPolled,
}

/// Makes the joins of `plan`, and its recursions, end once `stop` is raised, and start as `start` says.
///
/// # Errors
/// DataFusion's, when it rebuilds the plan.
pub fn stoppable_joins(
    plan: &Arc<dyn ExecutionPlan>,
    stop: &Stop,
    start: Start,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(recursion) = plan.downcast_ref::<RecursionExec>() {
        return Ok(Arc::new(recursion.stoppable(stop, start)?));
    }
    let inputs = plan.children().into_iter().map(|input| stoppable_joins(input, stop, start));
    let plan = replace_children_if_necessary(Arc::clone(plan), inputs.collect::<Result<_>>()?)?;
    if let Some(in_parts) = plan.downcast_ref::<GraceExec>() {
        return match in_parts.stoppable(stop)? {
            Some(stoppable) => Ok(Arc::new(stoppable)),
            None => Ok(plan),
        };
    }
    let is_join =
        plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>() || plan.is::<HashJoinExec>();
    match is_join {
        true => Ok(Arc::new(StoppableJoinExec::new(plan, stop.clone(), start)?)),
        false => in_pieces(plan),
    }
}

/// Whether a join of `plan` compares all pairs of rows.
pub fn loops(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<NestedLoopJoinExec>() || plan.children().into_iter().any(|input| loops(&**input))
}

/// A cancellable join; see the [module](self).
#[derive(Debug)]
pub struct StoppableJoinExec {
    /// The join for display.
    planned: Arc<dyn ExecutionPlan>,
    /// The join that runs.
    join: Arc<dyn ExecutionPlan>,
    /// Of a join that may work for long between batches.
    work: Option<Arc<Work>>,
    stop: Stop,
    start: Start,
}

impl StoppableJoinExec {
    fn new(planned: Arc<dyn ExecutionPlan>, stop: Stop, start: Start) -> Result<Self> {
        let while_wanted = |filter: &JoinFilter| while_wanted(filter, &stop);
        let (join, how) = if let Some(join) = planned.downcast_ref::<NestedLoopJoinExec>() {
            let filter = join.filter().map_or_else(|| while_wanted(&always()), while_wanted);
            let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter)).build()?;
            (Arc::new(join) as Arc<dyn ExecutionPlan>, Some(How::OF_ALL_PAIRS))
        } else if let Some(join) = planned.downcast_ref::<HashJoinExec>() {
            let filter = join.filter().map(while_wanted);
            let join = join.builder().with_filter(filter).build()?;
            let how = How::of_hash_join(&join);
            let filled = FilledFilter::below(&join)?;
            (filled.unwrap_or_else(|| Arc::new(join)), how)
        } else if let [left, right] = planned.children()[..] {
            // A cross join, which copies a left row for each right one.
            let sides = sides_in_pieces(left, right);
            (replace_children_if_necessary(Arc::clone(&planned), sides)?, None)
        } else {
            (Arc::clone(&planned), None)
        };
        let (join, work) = match how {
            Some(how) => {
                let (join, work) = Work::of(join, how)?;
                (join, Some(work))
            }
            None => (join, None),
        };
        let join = packed_sides::packed(join)?;
        Ok(Self { planned, join, work, stop, start })
    }
}

/// `filter` as an error once `stop` is raised.
pub(crate) fn while_wanted(filter: &JoinFilter, stop: &Stop) -> JoinFilter {
    JoinFilter::new(
        WhileWanted::of(filter.expression(), stop),
        filter.column_indices().to_vec(),
        Arc::clone(filter.schema()),
    )
}

/// A condition that holds for all pairs.
fn always() -> JoinFilter {
    let always: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(ScalarValue::from(true)));
    JoinFilter::new(always, Vec::new(), Arc::new(Schema::empty()))
}

impl DisplayAs for StoppableJoinExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.planned.fmt_as(kind, f)
    }
}

impl ExecutionPlan for StoppableJoinExec {
    fn name(&self) -> &str {
        self.planned.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(&*self.planned)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.planned.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planned.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.planned.maintains_input_order()
    }

    fn fetch(&self) -> Option<usize> {
        self.planned.fetch()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.planned.apply_expressions(visit)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.planned.dynamic_expressions_produced()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planned = replace_children_if_necessary(Arc::clone(&self.planned), children)?;
        Ok(Arc::new(Self::new(planned, self.stop.clone(), self.start)?))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let planned = Arc::clone(&self.planned).reset_state()?;
        Ok(Arc::new(Self::new(planned, self.stop.clone(), self.start)?))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (schema, stop) = (self.join.schema(), self.stop.clone());
        let work = self.work.as_ref().filter(|_| may_move(&task));
        let rows = match self.start {
            Start::AtOnce => self.join.execute(partition, task)?,
            Start::WhenPolled => {
                let join = Arc::clone(&self.join);
                let rows = stream::once(async move { join.execute(partition, task) }).try_flatten();
                Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows))
            }
        };
        let rows: SendableRecordBatchStream = match work {
            Some(work) => Box::pin(Moving::new(rows, work, partition)),
            None => rows,
        };
        let rows = rows.map(move |batch| stop.check().and(batch));
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, rows))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.join.metrics()
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.planned.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.planned.statistics_from_inputs(inputs, args)
    }
}

/// The value of `of` for each row, or an error once the plan was stopped.
#[derive(Debug, Clone)]
struct WhileWanted {
    of: Arc<dyn PhysicalExpr>,
    stop: Stop,
}

impl WhileWanted {
    fn of(of: &Arc<dyn PhysicalExpr>, stop: &Stop) -> Arc<dyn PhysicalExpr> {
        Arc::new(Self { of: Arc::clone(of), stop: stop.clone() })
    }
}

impl PartialEq for WhileWanted {
    fn eq(&self, other: &Self) -> bool {
        *self.of == *other.of && Arc::ptr_eq(&self.stop.0, &other.stop.0)
    }
}

impl Eq for WhileWanted {}

impl Hash for WhileWanted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of.hash(state);
    }
}

impl fmt::Display for WhileWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of.fmt(f)
    }
}

impl PhysicalExpr for WhileWanted {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.of.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.of.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.stop.check()?;
        self.of.evaluate(batch)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.of.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.of]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match children.as_slice() {
            [of] => Ok(Self::of(of, &self.stop)),
            _ => exec_err!("{} expressions in the place of one", children.len()),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests;
