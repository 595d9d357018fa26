//! A leaf that emits rows of runs on other devices: it names an input and emits what the [`FragmentContext`] takes from
//! these runs, as it comes.
//!
//! It stands for a side of a join, or for all that a fragment reads, where these rows go from device to device and not
//! by way of the host. Several partitions share the rows: each takes the batches that it is free for. So the leaf can
//! be read once, as its runs send each row once.
//!
//! Invariant: rows come complete, or the fragment fails. Whoever supplies the rows has checked that they have the
//! columns that the leaf names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::coop::make_cooperative;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::future::BoxFuture;
use futures::stream;

use crate::fragment::FragmentContext;
use crate::operators::leaf::leaf;
use crate::operators::recursion_exec::RecursionExec;

/// Rows of runs on other devices, for all partitions that share them.
pub trait PeerRowSource: Send + Sync + fmt::Debug {
    /// The next rows, whose columns are those of `schema`, for whoever asks first; `None` once all runs have ended. The
    /// first call begins to take rows of all of them.
    ///
    /// # Errors
    /// If a run failed, was lost, or sent something else; whoever asks afterwards gets the same error, since a
    /// partition must not take what has come for all there is. The future may be dropped without losing rows.
    fn next<'a>(&'a self, schema: &'a SchemaRef) -> BoxFuture<'a, Result<Option<RecordBatch>>>;
}

/// Rows of other devices by the number that leaves name.
pub type PeerRowInputs = BTreeMap<u32, Arc<dyn PeerRowSource>>;

/// Emits rows of other devices; see the [module](self).
#[derive(Debug)]
pub struct PeerRowsExec {
    input: u32,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl PeerRowsExec {
    /// The rows of the input `input`, whose columns are those of `schema`.
    pub fn new(input: u32, schema: SchemaRef) -> Self {
        Self::in_partitions(input, schema, 1)
    }

    fn in_partitions(input: u32, schema: SchemaRef, partitions: usize) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let metrics = ExecutionPlanMetricsSet::new();
        Self { input, properties: Arc::new(properties), metrics }
    }

    /// The same rows, shared by so many partitions.
    pub(crate) fn with_partitions(&self, partitions: usize) -> Self {
        Self::in_partitions(self.input, self.schema(), partitions)
    }

    /// The number of the input.
    pub fn input(&self) -> u32 {
        self.input
    }

    /// Checks that each input of peer rows that `context` has is read by one such leaf of `plan`, and no other is.
    ///
    /// # Errors
    /// For an input that is missing, is read twice, in turn or not at all.
    pub fn check(plan: &Arc<dyn ExecutionPlan>, context: &FragmentContext) -> Result<()> {
        let mut read = BTreeSet::new();
        collect_inputs(plan, &mut read, false)?;
        if let Some(missing) = read.iter().find(|input| !context.peer_rows.contains_key(*input)) {
            return Err(not_given(*missing));
        }
        match context.peer_rows.keys().find(|given| !read.contains(*given)) {
            Some(unread) => Err(DataFusionError::Plan(format!(
                "rows of other devices are given as input {unread}, which the fragment does not read"
            ))),
            None => Ok(()),
        }
    }
}

/// Adds the inputs that leaves of `plan` read to `read`.
fn collect_inputs(
    plan: &Arc<dyn ExecutionPlan>,
    read: &mut BTreeSet<u32>,
    repeats: bool,
) -> Result<()> {
    if let Some(leaf) = plan.downcast_ref::<PeerRowsExec>() {
        let input = leaf.input;
        let why = match (repeats, read.insert(input)) {
            (true, _) => "in a recursion",
            (false, false) => "twice",
            (false, true) => return Ok(()),
        };
        return Err(DataFusionError::Plan(format!(
            "the fragment reads input {input}, rows of other devices, {why}; they come once"
        )));
    }
    let repeats = repeats || plan.is::<RecursionExec>();
    plan.children().into_iter().try_for_each(|child| collect_inputs(child, read, repeats))
}

fn not_given(input: u32) -> DataFusionError {
    DataFusionError::Plan(format!(
        "the fragment names input {input}, rows of other devices, which was not given"
    ))
}

impl DisplayAs for PeerRowsExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerRowsExec: rows={} of other devices", self.input)
    }
}

impl ExecutionPlan for PeerRowsExec {
    leaf!("PeerRowsExec");

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let context = FragmentContext::of(&task)?;
        let source = context.peer_rows.get(&self.input).map(Arc::clone);
        let source = source.ok_or_else(|| not_given(self.input))?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let begin = (source, self.schema(), metrics);
        let batches = stream::try_unfold(begin, |(source, schema, metrics)| async move {
            let Some(batch) = source.next(&schema).await? else { return Ok(None) };
            metrics.record_output(batch.num_rows());
            Ok(Some((batch, (source, schema, metrics))))
        });
        let rows = RecordBatchStreamAdapter::new(self.schema(), batches);
        Ok(make_cooperative(Box::pin(rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests;
