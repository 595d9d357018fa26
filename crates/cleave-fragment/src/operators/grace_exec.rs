//! Hash joins, aggregates and sorts that exceed their memory: DataFusion's operator, run over one part of its rows
//! after the other (Grace hash join; external merge sort).
//!
//! ```text
//!  build ─▶ held ──── all fit ───────────────▶ engine's join over all ◀─── probe
//!             │ they do not
//!             ├─▶ RunsWriter ─▶ run of part 0 ─▶ engine's join over 0 ◀─ run of part 0 ◀─ RunsWriter ◀─ probe
//!             └──────┬────────▶ run of part 1 ─▶ engine's join over 1 ◀─ run of part 1 ◀──────┘
//!         by a hash of the keys                    │ does not fit: divided again, by another hash
//! ```
//!
//! 1. [`GraceExec::wherever_it_helps`] replaces each operator that [`GraceExec::helps`], if the run has a
//!    [`SpillSpace`](crate::SpillSpace), and gives each an equal share of the memory for as long as it runs. So no
//!    operator loses its memory to others after it has emitted rows.
//! 2. [`join`] reads the build side into its share. If that fits, the engine's join runs over it as in a plan without
//!    this operator, except for the share.
//! 3. If it does not fit, or the engine's hash table does not, both inputs are divided by a hash of the keys and
//!    spilled, and the engine joins part by part. A part that is not expected to fit is divided again, all before the
//!    first row; so is one that turns out not to fit.
//! 4. [`aggregate`] does the same for groups. It spills states, not rows: an aggregate that reads rows becomes the
//!    engine's partial aggregate, which emits its states when its memory is full, below the engine's final one.
//! 5. [`sort`] sorts as many rows as fit at a time, spills each lot as a run, and merges the runs.
//!
//! Joining, grouping, sorting, merging, hashing and encoding are DataFusion's; dividing, spilling and going on are
//! ours.
//!
//! Invariants: each input is read once. Rows with equal keys are in the same part. A part whose rows all have one key
//! cannot be made smaller and is an out-of-memory error; the largest part comes first, so the error comes before the
//! first row, and the host may run the fragment instead. The operator is never encoded: a fragment names operators, and
//! each side decides how it runs them. A filter that the join hands down stays open if its rows are spilled: the engine
//! fills it only when the whole build side is in memory.
//!
//! Deliberately absent: null-aware anti joins, which must see a NULL of the other side wherever it lies; joins that
//! keep an order or a limit; grouping sets, ordered and top-k aggregates; nested-loop joins. They run in the memory
//! that they have. So do partial aggregates, which never need more. Parts are not joined in parallel.

use crate::walk::Walk;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion_common::{Result, Statistics, internal_err};
use datafusion_execution::config::SessionConfig;
use datafusion_execution::memory_pool::{
    GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion_physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::statistics::StatisticsArgs;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties,
};

use crate::fragment::FragmentContext;
use crate::operators::insert_pages_exec::InsertPagesExec;
use crate::operators::recursion_exec::RecursionExec;
use crate::spill_space::SpillFigures;

mod aggregate;
mod attempt;
mod buffered_rows;
mod divide;
mod given_exec;
mod join;
mod produced;
mod sort;
#[cfg(test)]
mod tests;

use attempt::Ground;

/// The share of a run's memory that all of these operators have together; the rest is for scans and other operators.
const SHARE_OF_MEMORY: (usize, usize) = (3, 4);
/// The same where pages are written above them, whose rows wait in memory.
const SHARE_BELOW_PAGES: (usize, usize) = (1, 2);
/// The share of each if the run's memory has no limit.
const BYTES_UNLIMITED: usize = 256 << 20;

/// See the [module](self).
#[derive(Debug)]
pub struct GraceExec {
    /// The engine's operator, as planned.
    operator: Arc<dyn ExecutionPlan>,
    memory_bytes: usize,
    metrics: ExecutionPlanMetricsSet,
    /// Metrics of the engine's operators that have run.
    engine_metrics: Arc<Mutex<Vec<MetricsSet>>>,
}

impl GraceExec {
    /// Whether `plan` has an operator that can spill, and none that holds rows all the same: a recursion keeps its
    /// working table in memory, which shares for other operators would only make smaller.
    pub fn helps(plan: &Arc<dyn ExecutionPlan>) -> bool {
        count(plan) > 0 && !has_recursion(plan)
    }

    /// `plan`, of one partition, with this operator in place of each that it helps. They divide the memory that `task`
    /// has now.
    ///
    /// # Errors
    /// Those of rebuilding a plan.
    pub fn wherever_it_helps(
        plan: Arc<dyn ExecutionPlan>,
        task: &TaskContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let count = count(&plan);
        if count == 0 {
            return Ok(plan);
        }
        let pool = task.memory_pool();
        let memory_bytes = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => {
                let (part, whole) = match plan.is::<InsertPagesExec>() {
                    true => SHARE_BELOW_PAGES,
                    false => SHARE_OF_MEMORY,
                };
                limit.saturating_sub(pool.reserved()) / whole * part / count
            }
            _ => BYTES_UNLIMITED,
        };
        let in_place_of = |node: Arc<dyn ExecutionPlan>| {
            Ok(match can_spill(node.as_ref()) {
                true => Transformed::yes(Arc::new(Self::new(node, memory_bytes)) as _),
                false => Transformed::no(node),
            })
        };
        plan.transform_up(in_place_of).data()
    }

    fn new(operator: Arc<dyn ExecutionPlan>, memory_bytes: usize) -> Self {
        Self {
            operator,
            memory_bytes,
            metrics: ExecutionPlanMetricsSet::new(),
            engine_metrics: Arc::default(),
        }
    }

    /// What its parts share, with the reservation of its share of memory.
    fn ground(&self, task: &Arc<TaskContext>) -> Result<Ground> {
        let memory = MemoryConsumer::new(self.name()).register(task.memory_pool());
        memory.try_grow(self.memory_bytes)?;
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(self.memory_bytes));
        Ok(Ground {
            schema: self.schema(),
            space: FragmentContext::of(task)?.spill()?,
            memory_bytes: self.memory_bytes,
            task: within(task, &pool),
            pool,
            figures: SpillFigures::new(&self.metrics, 0),
            engine_metrics: Arc::clone(&self.engine_metrics),
            share: Arc::new(Share { _memory: memory }),
        })
    }
}

/// The memory of one of these operators, as long as its rows are wanted.
#[derive(Debug)]
pub(super) struct Share {
    _memory: MemoryReservation,
}

/// `task` with memory from `pool`.
fn within(task: &TaskContext, pool: &Arc<dyn MemoryPool>) -> Arc<TaskContext> {
    let runtime =
        RuntimeEnv { memory_pool: Arc::clone(pool), ..RuntimeEnv::clone(&task.runtime_env()) };
    changed(task, task.session_config().clone(), Arc::new(runtime))
}

/// `task` whose operators emit batches of `rows`.
fn with_batch_size(task: &TaskContext, rows: usize) -> Arc<TaskContext> {
    changed(task, task.session_config().clone().with_batch_size(rows), task.runtime_env())
}

fn changed(
    task: &TaskContext,
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        task.task_id(),
        task.session_id(),
        config,
        task.scalar_functions().clone(),
        task.higher_order_functions().clone(),
        task.aggregate_functions().clone(),
        task.window_functions().clone(),
        runtime,
    ))
}

fn has_recursion(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RecursionExec>() || plan.children().into_iter().any(has_recursion)
}

fn count(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let below: usize = plan.children().into_iter().map(count).sum();
    below + usize::from(can_spill(plan.as_ref()))
}

/// Whether `node` gives the same rows, a join or an aggregate in any order, if it runs over part of its rows at a time.
fn can_spill(node: &dyn ExecutionPlan) -> bool {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return *join.partition_mode() == PartitionMode::CollectLeft
            && !join.null_aware
            && join.fetch().is_none()
            && join.properties().output_ordering().is_none();
    }
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        // A top-k holds few rows.
        return sort.fetch().is_none();
    }
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return false };
    let groups = aggregate.group_expr();
    *aggregate.mode() != AggregateMode::Partial
        && *aggregate.mode() != AggregateMode::PartialReduce
        && groups.is_single()
        && !groups.is_true_no_grouping()
        && aggregate.limit_options().is_none()
        && *aggregate.input_order_mode() == InputOrderMode::Linear
        && aggregate.aggr_expr().iter().all(|function| function.order_bys().is_empty())
}

impl DisplayAs for GraceExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraceExec: ")?;
        self.operator.fmt_as(kind, f)
    }
}

impl ExecutionPlan for GraceExec {
    fn name(&self) -> &'static str {
        "GraceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.operator.properties()
    }

    /// Those of the planned operator, so that metrics belong to the planned nodes.
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.operator.children()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.operator.apply_expressions(visit)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.operator.dynamic_expressions_produced()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let operator = replace_children_if_necessary(Arc::clone(&self.operator), children)?;
        Ok(Arc::new(Self::new(operator, self.memory_bytes)))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let operator = Arc::clone(&self.operator).reset_state()?;
        Ok(Arc::new(Self::new(operator, self.memory_bytes)))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let partition_count = self.properties().output_partitioning().partition_count();
        if partition != 0 || partition_count != 1 {
            return internal_err!(
                "an operator that puts rows aside has {partition_count} partitions"
            );
        }
        let ground = self.ground(&task)?;
        let inputs = self.operator.children().into_iter();
        // At once, as the engine does: operators below get their share before the first row.
        let inputs = inputs.map(|input| input.execute(0, Arc::clone(&task)));
        let inputs: Vec<SendableRecordBatchStream> = inputs.collect::<Result<_>>()?;
        let mut inputs = inputs.into_iter();
        if self.operator.is::<HashJoinExec>() {
            let (Some(left), Some(right)) = (inputs.next(), inputs.next()) else {
                return internal_err!("a join has two inputs");
            };
            let operator = Arc::clone(&self.operator);
            return Ok(produced::produced(self.schema(), |out| {
                join::run(operator, ground, (left, right), out)
            }));
        }
        let Some(input) = inputs.next() else {
            return internal_err!("{} has no input", self.operator.name());
        };
        let operator = Arc::clone(&self.operator);
        if operator.is::<SortExec>() {
            return Ok(produced::produced(self.schema(), |out| {
                sort::run(operator, ground, input, out)
            }));
        }
        Ok(produced::produced(self.schema(), |out| aggregate::run(operator, ground, input, out)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut all = self.metrics.clone_inner();
        let engine = self.engine_metrics.lock().unwrap_or_else(PoisonError::into_inner);
        for metric in engine.iter().flat_map(MetricsSet::iter) {
            all.push(Arc::clone(metric));
        }
        Some(all)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.operator.statistics_from_inputs(inputs, args)
    }
}
