//! Hash joins, aggregates and sorts that exceed their memory: DataFusion's operator, run over one part of its rows
//! after the other (Grace hash join; external merge sort).
//!
//! ```text
//!  build ─▶ held ──── all fit ───────────────▶ the join over all ◀─── probe
//!             │ they do not
//!             ├─▶ RunsWriter ─▶ run of part 0 ─▶ the join over 0 ◀─ run of part 0 ◀─ RunsWriter ◀─ probe
//!             └──────┬────────▶ run of part 1 ─▶ the join over 1 ◀─ run of part 1 ◀──────┘
//!         by a hash of the keys                    │ does not fit: divided again, by another hash
//! ```
//!
//! 1. [`GraceExec::wherever_it_helps`] replaces each operator that [`GraceExec::helps`], if the run has a
//!    [`SpillSpace`](crate::SpillSpace), and gives each an equal share of the memory for as long as it runs. So no
//!    operator loses its memory to others after it has emitted rows.
//! 2. [`join`] reads the build side into its share. If that fits, DataFusion's join runs over it as in a plan without
//!    this operator, except for the share.
//! 3. If it does not fit, or DataFusion's hash table does not, both inputs are divided by a hash of the keys and
//!    spilled, and DataFusion joins part by part. A part that is not expected to fit is divided again, all before the
//!    first row; so is one that turns out not to fit.
//! 4. [`aggregate`] does the same for groups. It spills states, not rows: an aggregate that reads rows becomes
//!    DataFusion's partial aggregate, which emits its states when its memory is full, below DataFusion's final one.
//! 5. [`sort`] sorts as many rows as fit at a time, spills each lot as a run, and merges the runs.
//! 6. Each operator runs in several [`lanes`], tasks that read shares of its inputs and divide its memory: they spill
//!    side by side, then each takes [`parts`], the largest first, as many at once as are expected to fit. What is above
//!    an operator sees one partition.
//!
//! Joining, grouping, sorting, merging, hashing and encoding are DataFusion's; dividing, spilling and going on are
//! ours.
//!
//! Invariants: each input is read once. Rows with equal keys are in the same part. A part whose rows all have one key
//! cannot be made smaller and is an out-of-memory error; the largest part comes first, so the error comes before the
//! first row, and the host may run the fragment instead. The operator is never encoded: a fragment names operators, and
//! each side decides how it runs them. A filter that the join hands down stays open if its rows are spilled: DataFusion
//! fills it only when the whole build side is in memory.
//!
//! Deliberately absent: null-aware anti joins, which must see a NULL of the other side wherever it lies; joins that
//! keep an order or a limit; grouping sets, ordered and top-k aggregates; a small top-k; nested-loop joins. They run in
//! the memory that they have. So do partial aggregates, which never need more.

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
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputOrderMode,
    Partitioning, PlanProperties,
};

use crate::fragment::{FragmentContext, streamed_input, with_partitions};
use crate::operators::insert_pages_exec::InsertPagesExec;
use crate::operators::recursion_exec::RecursionExec;
use crate::operators::stoppable_join_exec::{Stop, while_wanted};
use crate::spill_space::SpillFigures;

mod aggregate;
mod attempt;
mod buffered_rows;
mod divide;
mod given_exec;
mod join;
mod lanes;
mod parts;
mod sort;
#[cfg(test)]
mod tests;

use attempt::Ground;
use lanes::Lane;

/// The share of a run's memory that all of these operators have together; the rest is for scans and other operators.
const SHARE_OF_MEMORY: (usize, usize) = (3, 4);
/// The same where pages are written above them, whose rows wait in memory.
const SHARE_BELOW_PAGES: (usize, usize) = (1, 2);
/// The share of each if the run's memory has no limit.
const BYTES_UNLIMITED: usize = 256 << 20;
/// Rows of the largest top-k that is left to DataFusion, which holds them all and hands its bound down to the scan.
const TOP_ROWS_MIN: usize = 100_000;
/// Least memory of a lane.
const LANE_BYTES_MIN: usize = 512 << 10;

/// See the [module](self).
#[derive(Debug)]
pub struct GraceExec {
    /// DataFusion's operator, as planned.
    operator: Arc<dyn ExecutionPlan>,
    /// Those of the operator, with one partition.
    properties: Arc<PlanProperties>,
    memory_bytes: usize,
    lane_count: usize,
    metrics: ExecutionPlanMetricsSet,
    /// Metrics of DataFusion's operators that have run.
    engine_metrics: Arc<Mutex<Vec<MetricsSet>>>,
}

impl GraceExec {
    /// Whether `plan` has an operator that can spill, and none that holds rows all the same: a recursion keeps its
    /// working table in memory, which shares for other operators would only make smaller.
    pub fn helps(plan: &Arc<dyn ExecutionPlan>) -> bool {
        count(plan) > 0 && !has_recursion(plan)
    }

    /// In how many lanes, at most `wanted`, operators that spill run with the memory of `task`: each has enough for
    /// itself.
    pub fn lane_count(plan: &Arc<dyn ExecutionPlan>, task: &TaskContext, wanted: usize) -> usize {
        (memory_of_each(plan, task) / LANE_BYTES_MIN).clamp(1, wanted.max(1))
    }

    /// `plan`, of one partition, with this operator, of `lane_count` lanes, in place of each that it helps. They divide
    /// the memory that `task` has now. A scan that streams into one has a partition for each lane, unless an operator
    /// on the way has to see all rows.
    ///
    /// # Errors
    /// Those of rebuilding a plan.
    pub fn wherever_it_helps(
        plan: Arc<dyn ExecutionPlan>,
        task: &TaskContext,
        lane_count: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let memory_bytes = memory_of_each(&plan, task);
        let in_place_of = |node: Arc<dyn ExecutionPlan>| {
            if !can_spill(node.as_ref()) {
                return Ok(Transformed::no(node));
            }
            let inputs = node.children().into_iter().map(|input| in_lanes(input, lane_count));
            let inputs = inputs.collect::<Result<_>>()?;
            let node = replace_children_if_necessary(node, inputs)?;
            Ok(Transformed::yes(Arc::new(Self::new(node, memory_bytes, lane_count)) as _))
        };
        plan.transform_up(in_place_of).data()
    }

    fn new(operator: Arc<dyn ExecutionPlan>, memory_bytes: usize, lane_count: usize) -> Self {
        let properties = PlanProperties::clone(operator.properties());
        Self {
            properties: Arc::new(
                properties.with_partitioning(Partitioning::UnknownPartitioning(1)),
            ),
            operator,
            memory_bytes,
            lane_count,
            metrics: ExecutionPlanMetricsSet::new(),
            engine_metrics: Arc::default(),
        }
    }

    /// The same, if it is a join with a condition on pairs, which is an error once `stop` is raised.
    ///
    /// # Errors
    /// DataFusion's, when it rebuilds the join.
    pub(crate) fn stoppable(&self, stop: &Stop) -> Result<Option<Self>> {
        let Some(join) = self.operator.downcast_ref::<HashJoinExec>() else { return Ok(None) };
        let Some(filter) = join.filter() else { return Ok(None) };
        let join = join.builder().with_filter(Some(while_wanted(filter, stop))).build_exec()?;
        Ok(Some(Self::new(join, self.memory_bytes, self.lane_count)))
    }

    /// What its lanes share, with the reservation of its share of memory.
    fn grounds(&self, task: &Arc<TaskContext>) -> Result<Vec<Ground>> {
        let memory = MemoryConsumer::new(self.name()).register(task.memory_pool());
        memory.try_grow(self.memory_bytes)?;
        let share = Arc::new(Share { _memory: memory });
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(self.memory_bytes));
        let space = FragmentContext::of(task)?.spill()?;
        let task = within(task, &pool);
        let ground = |lane: Lane| Ground {
            schema: self.schema(),
            space: Arc::clone(&space),
            memory_bytes: self.memory_bytes,
            task: Arc::clone(&task),
            pool: Arc::clone(&pool),
            figures: SpillFigures::new(&self.metrics, lane.index()),
            engine_metrics: Arc::clone(&self.engine_metrics),
            share: Arc::clone(&share),
            lane,
        };
        Ok(Lane::all(self.lane_count).map(ground).collect())
    }
}

/// The memory of each operator of `plan` that can spill, of that which `task` has now.
fn memory_of_each(plan: &Arc<dyn ExecutionPlan>, task: &TaskContext) -> usize {
    let pool = task.memory_pool();
    let MemoryLimit::Finite(limit) = pool.memory_limit() else { return BYTES_UNLIMITED };
    let (part, whole) = match plan.is::<InsertPagesExec>() {
        true => SHARE_BELOW_PAGES,
        false => SHARE_OF_MEMORY,
    };
    limit.saturating_sub(pool.reserved()) / whole * part / count(plan).max(1)
}

/// `input` with a partition for each of `lane_count` lanes, where it may have several.
fn in_lanes(input: &Arc<dyn ExecutionPlan>, lane_count: usize) -> Result<Arc<dyn ExecutionPlan>> {
    if lane_count > 1 && !keeps_one_partition(input) {
        let partitions = u32::try_from(lane_count).unwrap_or(1);
        let copied = with_partitions(Arc::clone(input), partitions)?;
        // An operator that merges its inputs has one partition, whatever lies below it.
        if copied.output_partitioning().partition_count() == lane_count {
            return Ok(copied);
        }
    }
    Ok(Arc::clone(input))
}

/// Whether what streams out of `plan` has one partition, whatever lies below: another operator that spills merges its
/// lanes, an aggregate sees all rows, rows up to a limit are counted, and joins that cannot spill are left as they are.
fn keeps_one_partition(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_final = plan.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
        !matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::PartialReduce)
    });
    is_final
        || plan.is::<GraceExec>()
        || plan.children().len() > 1
        || plan.fetch().is_some()
        || streamed_input(plan.as_ref()).is_some_and(keeps_one_partition)
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
        return sort.fetch().is_none_or(|fetch| fetch > TOP_ROWS_MIN);
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
        &self.properties
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
        Ok(Arc::new(Self::new(operator, self.memory_bytes, self.lane_count)))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let operator = Arc::clone(&self.operator).reset_state()?;
        Ok(Arc::new(Self::new(operator, self.memory_bytes, self.lane_count)))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("an operator that spills has one partition, and not {partition}");
        }
        let grounds = self.grounds(&task)?;
        let tasks = FragmentContext::of(&task)?.tasks.clone();
        // At once, as DataFusion does: operators below get their share before the first row.
        let shares = self.operator.children().into_iter().map(|input| {
            let partitions = 0..input.output_partitioning().partition_count();
            let partitions = partitions.map(|number| input.execute(number, Arc::clone(&task)));
            lanes::shares(partitions.collect::<Result<_>>()?, self.lane_count)
        });
        let shares: Vec<Vec<SendableRecordBatchStream>> = shares.collect::<Result<_>>()?;
        let mut shares = shares.into_iter();
        let Some(first) = shares.next() else {
            return internal_err!("{} has no input", self.operator.name());
        };
        let (operator, of_lanes) = (&self.operator, grounds.into_iter().zip(first));
        if operator.is::<HashJoinExec>() {
            let Some(second) = shares.next() else {
                return internal_err!("a join has two inputs");
            };
            let shared = join::Shared::new();
            let of_lanes = of_lanes.zip(second).map(|((ground, left), right)| {
                let (operator, shared) = (Arc::clone(operator), Arc::clone(&shared));
                move |out| join::run(operator, ground, shared, (left, right), out)
            });
            return lanes::produced(self.schema(), of_lanes, tasks.as_ref());
        }
        if operator.is::<SortExec>() {
            let shared = sort::Shared::new(self.memory_bytes);
            let of_lanes = of_lanes.map(|(ground, input)| {
                let (operator, shared) = (Arc::clone(operator), Arc::clone(&shared));
                move |out| sort::run(operator, ground, shared, input, out)
            });
            return lanes::produced(self.schema(), of_lanes, tasks.as_ref());
        }
        let shared = aggregate::Shared::new();
        let of_lanes = of_lanes.map(|(ground, input)| {
            let (operator, shared) = (Arc::clone(operator), Arc::clone(&shared));
            move |out| aggregate::run(operator, ground, shared, input, out)
        });
        lanes::produced(self.schema(), of_lanes, tasks.as_ref())
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
