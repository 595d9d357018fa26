//! Aggregates over encoded pages: a partial aggregate that takes whole pages before they are decoded.
//!
//! ```text
//!   DenseAggregateExec          states of the groups of pages that were taken, behind those from below
//!     AggregateExec(Partial)    groups of all other rows
//!       ProjectionExec
//!         TableScanExec ───▶ DenseGroups: pages whose groups are few and whose values are narrow
//! ```
//!
//! 1. [`Program::of`] checks that the aggregate consists of counts, sums and extremes of numbers that fit 64 bits,
//!    grouped by plain columns, over one scan.
//! 2. The scan offers each page, once its rows are selected, to the partition's [`DenseGroups`]. A page is taken if its
//!    groups are codes of dictionaries or small ranges of integers and no step of the program can overflow.
//! 3. All other pages take the usual way through the plan, and so does every row of a plan without a program.
//!
//! Invariant: states leave in the form that the aggregate below gives them, so the final aggregate cannot tell them
//! apart; a page is taken whole or not at all.

mod dense_groups;
mod program;

use crate::walk::Walk;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion_common::{Result, Statistics, internal_err};
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::statistics::StatisticsArgs;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, stream};

use super::table_scan_exec::TableScanExec;
pub(crate) use dense_groups::DenseGroups;
pub use dense_groups::RepeatedStates;
use program::Program;

/// The groups that one partition of a scan fills.
pub(crate) type SharedGroups = Arc<Mutex<DenseGroups>>;

/// See the [module](self).
#[derive(Debug)]
pub struct DenseAggregateExec {
    input: Arc<dyn ExecutionPlan>,
    program: Arc<Program>,
    metrics: ExecutionPlanMetricsSet,
}

impl DenseAggregateExec {
    /// The operator above `input`; `None` if `input` is not a suitable partial aggregate.
    pub fn over(input: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let program = Program::of(input.downcast_ref::<AggregateExec>()?)?;
        let metrics = ExecutionPlanMetricsSet::new();
        Some(Self { input: Arc::clone(input), program: Arc::new(program), metrics })
    }

    /// `plan` with the operator above each suitable aggregate.
    ///
    /// # Errors
    /// Those of rebuilding a plan.
    pub fn wherever_it_helps(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let above = |node: Arc<dyn ExecutionPlan>| {
            Ok(match Self::over(&node) {
                Some(dense) => Transformed::yes(Arc::new(dense) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        };
        plan.transform_up(above).data()
    }

    /// The aggregate below it.
    #[must_use]
    pub fn aggregate(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }
}

impl DisplayAs for DenseAggregateExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DenseAggregateExec")
    }
}

impl ExecutionPlan for DenseAggregateExec {
    fn name(&self) -> &'static str {
        "DenseAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    /// Above an unsuitable input, returns that input.
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else {
            return internal_err!("a dense aggregate has one input, not {}", children.len());
        };
        Ok(match Self::over(input) {
            Some(dense) => Arc::new(dense),
            None => Arc::clone(input),
        })
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(scan) = scan_below(&self.input) else {
            return internal_err!("a dense aggregate without a scan");
        };
        let may_repeat = task.session_config().get_extension::<RepeatedStates>().is_some();
        let memory = MemoryConsumer::new(self.name()).register(task.memory_pool());
        let groups = DenseGroups::new(Arc::clone(&self.program), may_repeat, memory)?;
        let groups: SharedGroups = Arc::new(Mutex::new(groups));
        scan.give_pages_to(partition, Arc::clone(&groups));
        let mut below = Some(self.input.execute(partition, task)?);
        let schema = self.schema();
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let batches = stream::poll_fn(move |cx| {
            // States of pages leave first: each morsel adds those of its pages.
            let lock = || groups.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(finished) = lock().next_finished() {
                return Poll::Ready(Some(Ok(finished)));
            }
            // The aggregate below waits while its scan yields, which it does between morsels.
            let polled = below.as_mut().map(|below| below.poll_next_unpin(cx));
            let mut groups = lock();
            match polled {
                Some(Poll::Ready(Some(batch))) => Poll::Ready(Some(batch)),
                Some(Poll::Pending) => {
                    let finished = groups.next_finished().map(Ok);
                    finished.map_or(Poll::Pending, |batch| Poll::Ready(Some(batch)))
                }
                Some(Poll::Ready(None)) | None => {
                    below = None;
                    let finished = groups.next_finished().map(Ok);
                    Poll::Ready(finished.or_else(|| groups.take_states().transpose()))
                }
            }
        });
        let batches = batches
            .map(move |batch| batch.inspect(|batch| baseline.record_output(batch.num_rows())));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match inputs {
            [input] => Ok(Arc::clone(input)),
            _ => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
        }
    }
}

/// The scan at the bottom of a plan of one branch.
fn scan_below(plan: &Arc<dyn ExecutionPlan>) -> Option<&TableScanExec> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        return Some(scan);
    }
    match plan.children().as_slice() {
        [input] => scan_below(input),
        _ => None,
    }
}
