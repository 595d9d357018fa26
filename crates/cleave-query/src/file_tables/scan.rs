//! [`FileScanExec`] gives the rows of files.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::internal_err;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::csv::CsvFiles;
use super::parquet::{Group, ParquetFiles};
use crate::conditions::Conditions;

/// What is read.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Csv(Arc<CsvFiles>),
    Parquet(Arc<ParquetFiles>),
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct FileScanExec {
    call: String,
    source: Source,
    /// Places of its columns in the files.
    places: Vec<usize>,
    schema: SchemaRef,
    /// Chunks that are parsed at once.
    threads: usize,
    /// Of Parquet: the row groups of each partition.
    groups: Vec<Vec<Group>>,
    /// Of Parquet: how many row groups there are.
    group_count: usize,
    /// By what rows are left out.
    conditions: Conditions,
    rows: Precision<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FileScanExec {
    /// The columns at `places` of text files, which are those of `schema`, of rows for which `conditions` may hold, in
    /// one partition: rows keep their order, and `threads` parse them.
    pub(super) fn of_csv(
        call: &str,
        (files, places): (&Arc<CsvFiles>, Vec<usize>),
        schema: SchemaRef,
        threads: usize,
        conditions: Conditions,
    ) -> Self {
        Self {
            call: call.to_owned(),
            places,
            threads,
            groups: Vec::new(),
            group_count: 0,
            conditions,
            rows: Precision::Inexact(files.row_estimate()),
            source: Source::Csv(Arc::clone(files)),
            properties: properties(&schema, 1),
            schema,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same of the row groups `groups` of Parquet files, in at most so many `partitions`.
    pub(super) fn of_parquet(
        call: &str,
        (files, places): (&Arc<ParquetFiles>, Vec<usize>),
        schema: SchemaRef,
        (groups, partitions): (Vec<Group>, usize),
        conditions: Conditions,
    ) -> Self {
        let group_count = files.groups().len();
        let rows = groups.iter().map(|group| group.rows()).fold(0, usize::saturating_add);
        let is_whole = groups.len() == group_count && conditions.is_empty();
        let groups = divided(groups, rows, partitions);
        Self {
            call: call.to_owned(),
            places,
            threads: 1,
            properties: properties(&schema, groups.len()),
            groups,
            group_count,
            conditions,
            rows: if is_whole { Precision::Exact(rows) } else { Precision::Inexact(rows) },
            source: Source::Parquet(Arc::clone(files)),
            schema,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The call in the statement.
    pub(crate) fn call(&self) -> &str {
        &self.call
    }

    /// Of Parquet: how many row groups are read, and of how many.
    pub(crate) fn row_groups(&self) -> Option<(usize, usize)> {
        match self.source {
            Source::Csv(_) => None,
            Source::Parquet(_) => Some((self.groups.iter().map(Vec::len).sum(), self.group_count)),
        }
    }

    /// The conditions by which rows are left out.
    pub(crate) fn conditions(&self) -> &[Arc<dyn PhysicalExpr>] {
        self.conditions.list()
    }

    /// The rows of a partition, in batches of at most `batch_rows`.
    fn batches(
        &self,
        partition: usize,
        batch_rows: usize,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let schema = Arc::clone(&self.schema);
        let how = (batch_rows, &self.conditions);
        match (&self.source, self.groups.get(partition)) {
            (Source::Csv(files), _) if partition == 0 => {
                Ok(files.batches(&self.places, schema, self.threads, how))
            }
            (Source::Parquet(files), Some(groups)) => {
                Ok(files.batches(&self.places, schema, groups, how))
            }
            _ => internal_err!("a scan of files has no partition {partition}"),
        }
    }
}

/// Row groups with `rows` in all, in at most so many `partitions` of about as many rows, each one stretch; at least one
/// partition, which may be empty.
fn divided(groups: Vec<Group>, rows: usize, partitions: usize) -> Vec<Vec<Group>> {
    let count = partitions.min(groups.len()).max(1);
    let share = rows.div_ceil(count).max(1);
    let mut divided: Vec<Vec<Group>> = vec![Vec::new(); count];
    let mut before = 0_usize;
    for group in groups {
        let place = (before / share).min(count - 1);
        if let Some(own) = divided.get_mut(place) {
            own.push(group);
        }
        before = before.saturating_add(group.rows());
    }
    divided.retain(|own| !own.is_empty());
    if divided.is_empty() {
        divided.push(Vec::new());
    }
    divided
}

fn properties(schema: &SchemaRef, partitions: usize) -> Arc<PlanProperties> {
    let properties = PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(schema)),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative))
}

impl DisplayAs for FileScanExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "FileScanExec: {}, columns=[{}]", self.call, names.join(", "))?;
        if let Some((left, all)) = self.row_groups() {
            write!(f, ", row groups={left} of {all}")?;
        }
        if !self.conditions.is_empty() {
            write!(f, ", only rows with {}", self.conditions)?;
        }
        Ok(())
    }
}

impl ExecutionPlan for FileScanExec {
    fn name(&self) -> &'static str {
        "FileScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut batches = self.batches(partition, task.session_config().batch_size())?;
        let batches =
            stream::poll_fn(move |context| metrics.record_poll(batches.poll_next_unpin(context)));
        let batches = RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches);
        Ok(make_cooperative(Box::pin(batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        // Which partition has which rows does not matter to anybody.
        if args.partition().is_none() {
            statistics.num_rows = self.rows;
        }
        Ok(Arc::new(statistics))
    }
}
