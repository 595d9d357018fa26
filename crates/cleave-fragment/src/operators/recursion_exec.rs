//! A recursive query, `WITH RECURSIVE`: runs its static term once and its recursive term round by round, until a round
//! gives no new row.
//!
//! ```text
//!   RecursionExec: walk
//!     static term ────────────────▶ rows of round 0 ─┐
//!     recursive term                                 │   UNION leaves out rows that were seen before
//!       HashJoinExec                                 ▼
//!         WorkingTableExec: walk ◀── rows of the round before ──▶ output
//!         TableScanExec: link        (the working table)
//! ```
//!
//! 1. [`RecursionExec::in_place_of_the_engines`] replaces DataFusion's operator while a statement is planned. The leaf
//!    that reads the working table is a [`WorkingTableExec`] from the start.
//! 2. Each round has a plan of its own ([`RecursionExec::round`]): the recursive term without the state of the round
//!    before, over the rows of that round. Filters that its joins learn are handed down anew, so that a scan looks up
//!    the keys of this round in an index.
//! 3. Rows are emitted as they come, and kept for the next round.
//!
//! A reference names its recursion; the innermost one of that name that has it in its recursive term is meant, as in
//! SQL. Both terms have one partition, and so has the output.
//!
//! DataFusion's operator was not kept: a join that it resets does not hand its keys down any more, and it links leaf
//! and recursion through a cell that the wire cannot carry.
//!
//! Invariants: the working table and the rows seen are charged to the memory of the task. A round sees the rows of the
//! round before and no others. The operator yields its thread as scans do, and ends between batches once it was
//! stopped, so that a recursion without end can be cancelled.

use crate::walk::Walk;
use std::fmt;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion_common::utils::memory::get_record_batch_memory_size;
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion_physical_plan::aggregates::order::GroupOrdering;
use datafusion_physical_plan::coop::make_cooperative;
use datafusion_physical_plan::execution_plan::{
    Boundedness, EmissionType, SchedulingType, replace_children_if_necessary,
};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion_physical_plan::recursive_query::RecursiveQueryExec;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::StreamExt;
use futures::stream;

use crate::operators::hand_down::hand_down_filters;
use crate::operators::stoppable_join_exec::{Start, Stop, stoppable_joins};
use crate::operators::table_scan_exec::TableScanExec;

mod working_table_exec;

use working_table_exec::WorkingRows;
pub use working_table_exec::WorkingTableExec;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct RecursionExec {
    name: String,
    is_distinct: bool,
    static_term: Arc<dyn ExecutionPlan>,
    recursive_term: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    /// Ends its joins, and the rounds.
    stop: Option<(Stop, Start)>,
    metrics: ExecutionPlanMetricsSet,
}

impl RecursionExec {
    /// The recursion `name`, whose output and working table have the columns of `schema`; `is_distinct` for UNION.
    ///
    /// # Errors
    /// For terms of several partitions or with other columns, and for a reference to columns that `schema` lacks.
    pub fn new(
        name: String,
        schema: SchemaRef,
        [static_term, recursive_term]: [Arc<dyn ExecutionPlan>; 2],
        is_distinct: bool,
    ) -> Result<Self> {
        let bad = |what: String| DataFusionError::Plan(format!("recursion \"{name}\": {what}"));
        for (term, which) in [(&static_term, "static"), (&recursive_term, "recursive")] {
            let partition_count = term.output_partitioning().partition_count();
            if partition_count != 1 {
                return Err(bad(format!("its {which} term has {partition_count} partitions")));
            }
            if !becomes(&term.schema(), &schema) {
                let found = term.schema();
                return Err(bad(format!("its {which} term gives {found} and not {schema}")));
            }
        }
        recursive_term.apply(|node| {
            if let Some(table) = node.downcast_ref::<WorkingTableExec>()
                && table.query_name() == name
                && !table.is_of(&schema)
            {
                let found = table.schema();
                return Err(bad(format!("its working table has {schema} and not {found}")));
            }
            // One of the same name hides this one.
            let hides = node.downcast_ref::<Self>().is_some_and(|other| other.name == name);
            Ok(if hides { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
        })?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(Self {
            name,
            is_distinct,
            static_term,
            recursive_term,
            properties: Arc::new(properties),
            stop: None,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// `plan` with this operator in the place of each of DataFusion's.
    ///
    /// # Errors
    /// As [`RecursionExec::new`].
    pub fn in_place_of_the_engines(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let in_place_of = |node: Arc<dyn ExecutionPlan>| {
            let Some(engines) = node.downcast_ref::<RecursiveQueryExec>() else {
                return Ok(Transformed::no(node));
            };
            let terms = [engines.static_term(), engines.recursive_term()].map(Arc::clone);
            let name = engines.name().to_owned();
            let ours = Self::new(name, engines.schema(), terms, engines.is_distinct())?;
            Ok(Transformed::yes(Arc::new(ours) as Arc<dyn ExecutionPlan>))
        };
        plan.transform_up(in_place_of).data()
    }

    /// The name by which its recursive term refers to it.
    pub fn query_name(&self) -> &str {
        &self.name
    }

    /// Whether rows that were seen before are left out.
    pub fn is_distinct(&self) -> bool {
        self.is_distinct
    }

    /// The same, whose joins and rounds end once `stop` is raised.
    ///
    /// # Errors
    /// DataFusion's, when it rebuilds the plan.
    pub(crate) fn stoppable(&self, stop: &Stop, start: Start) -> Result<Self> {
        // Those of the recursive term are made stoppable in each round: an operator in the place of a join hides the
        // keys that it hands down.
        let static_term = stoppable_joins(&self.static_term, stop, start)?;
        Ok(Self { static_term, stop: Some((stop.clone(), start)), ..self.clone() })
    }

    /// The recursive term over `rows`, as a plan that was never executed.
    fn round(
        &self,
        rows: &Arc<WorkingRows>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = in_round(Arc::clone(&self.recursive_term), &self.name, rows)?;
        let plan = hand_down_filters(plan, options)?;
        match &self.stop {
            Some((stop, start)) => stoppable_joins(&plan, stop, *start),
            None => Ok(plan),
        }
    }
}

/// Whether rows of the columns of `from` are rows of those of `to`, whatever they are called.
fn becomes(from: &SchemaRef, to: &SchemaRef) -> bool {
    from.fields().len() == to.fields().len()
        && from.fields().iter().zip(to.fields()).all(|(from, to)| {
            from.data_type() == to.data_type() && (to.is_nullable() || !from.is_nullable())
        })
}

/// `plan` without the state of a round before, and with `rows` where it refers to the recursion `name`.
fn in_round(
    plan: Arc<dyn ExecutionPlan>,
    name: &str,
    rows: &Arc<WorkingRows>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(table) = plan.downcast_ref::<WorkingTableExec>() {
        return Ok(if table.query_name() == name { Arc::new(table.over(rows)) } else { plan });
    }
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        // Filters of the round before are of joins that are gone.
        let scan = Arc::new(scan.clone().with_dynamic_filters(Vec::new()));
        return scan.reset_state();
    }
    let hides = plan.downcast_ref::<RecursionExec>().is_some_and(|other| other.name == name);
    let mut inputs = Vec::new();
    for (place, input) in plan.children().into_iter().enumerate() {
        let is_hidden = hides && place == 1;
        inputs.push(match is_hidden {
            true => Arc::clone(input),
            false => in_round(Arc::clone(input), name, rows)?,
        });
    }
    replace_children_if_necessary(plan, inputs)?.reset_state()
}

/// Names of the recursions that `plan` refers to and does not have itself, of which its inputs refer to `below`.
pub fn referred_to(plan: &dyn ExecutionPlan, below: Vec<Vec<String>>) -> Vec<String> {
    if let Some(table) = plan.downcast_ref::<WorkingTableExec>() {
        return vec![table.query_name().to_owned()];
    }
    let own = plan.downcast_ref::<RecursionExec>();
    let is_own = |place: usize, name: &str| {
        place == 1 && own.is_some_and(|recursion| recursion.name == name)
    };
    let mut names = Vec::new();
    for (place, below) in below.into_iter().enumerate() {
        names.extend(below.into_iter().filter(|name| !is_own(place, name)));
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// The recursion that `plan` refers to without having it; None: there is none, and it can run.
pub(crate) fn open_reference(plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
    fn names(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
        let below = plan.children().into_iter().map(names).collect();
        referred_to(plan.as_ref(), below)
    }
    names(plan).pop()
}

impl DisplayAs for RecursionExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let union = if self.is_distinct { "UNION" } else { "UNION ALL" };
        write!(f, "RecursionExec: {}, {union}", self.name)
    }
}

impl ExecutionPlan for RecursionExec {
    fn name(&self) -> &'static str {
        "RecursionExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.static_term, &self.recursive_term]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok(terms) = <[Arc<dyn ExecutionPlan>; 2]>::try_from(children) else {
            return internal_err!("a recursion has two terms");
        };
        let (name, schema) = (self.name.clone(), self.schema());
        let changed = Self::new(name, schema, terms, self.is_distinct)?;
        Ok(Arc::new(Self { stop: self.stop.clone(), ..changed }))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("a recursion has no partition {partition}");
        }
        let memory = MemoryConsumer::new("the working table").register(task.memory_pool());
        let running = Running {
            rows: self.static_term.execute(0, Arc::clone(&task))?,
            seen: self.is_distinct.then(|| Seen::new(self.schema(), &task)).transpose()?,
            kept: Vec::new(),
            memory,
            baseline: BaselineMetrics::new(&self.metrics, partition),
            rounds: MetricBuilder::new(&self.metrics).counter("rounds", partition),
            recursion: self.clone(),
            task,
        };
        let rows = stream::try_unfold(running, |mut running| async move {
            let batch = running.next().await?;
            Ok(batch.map(|batch| (batch, running)))
        });
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// A recursion that runs.
struct Running {
    recursion: RecursionExec,
    task: Arc<TaskContext>,
    /// Of the present round.
    rows: SendableRecordBatchStream,
    /// Those of them so far that are new.
    kept: Vec<RecordBatch>,
    /// For these.
    memory: MemoryReservation,
    /// For UNION.
    seen: Option<Seen>,
    baseline: BaselineMetrics,
    rounds: Count,
}

impl Running {
    /// The next new rows.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some((stop, _)) = &self.recursion.stop {
                stop.check()?;
            }
            let Some(batch) = self.rows.next().await.transpose()? else {
                if self.kept.is_empty() {
                    return Ok(None);
                }
                self.begin_round()?;
                continue;
            };
            let _timer = self.baseline.elapsed_compute().timer();
            // A term's columns may have other names.
            let batch = renamed(&batch, &self.recursion.schema())?;
            let batch = match &mut self.seen {
                Some(seen) => seen.new_among(&batch)?,
                None => batch,
            };
            if batch.num_rows() == 0 {
                continue;
            }
            self.memory.try_grow(get_record_batch_memory_size(&batch))?;
            self.kept.push(batch.clone());
            self.baseline.record_output(batch.num_rows());
            return Ok(Some(batch));
        }
    }

    /// Begins a round over the rows of the last one.
    fn begin_round(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.kept);
        let rows = Arc::new(WorkingRows::new(batches, self.memory.take()));
        let plan = self.recursion.round(&rows, self.task.session_config().options())?;
        self.rows = plan.execute(0, Arc::clone(&self.task))?;
        self.rounds.add(1);
        Ok(())
    }
}

/// `batch` with the columns of `schema` in the places of its own.
fn renamed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// The rows of all rounds so far.
struct Seen {
    groups: Box<dyn GroupValues>,
    numbers: Vec<usize>,
    memory: MemoryReservation,
}

impl Seen {
    fn new(schema: SchemaRef, task: &TaskContext) -> Result<Self> {
        let memory = MemoryConsumer::new("the rows of a recursion").register(task.memory_pool());
        let groups = new_group_values(schema, &GroupOrdering::None)?;
        Ok(Self { groups, numbers: Vec::new(), memory })
    }

    /// The rows of `batch` that were not seen before, which count as seen then.
    fn new_among(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut next = self.groups.len();
        self.groups.intern(batch.columns(), &mut self.numbers)?;
        self.memory.try_resize(self.groups.size())?;
        // Groups are numbered as they come: the first row of a new one has the next number.
        let is_new = self.numbers.iter().map(|number| {
            let is_new = *number >= next;
            next += usize::from(is_new);
            is_new
        });
        let is_new = BooleanArray::from(is_new.collect::<Vec<bool>>());
        Ok(filter_record_batch(batch, &is_new)?)
    }
}

#[cfg(test)]
mod tests;
