//! The leaf of a recursive term that emits the rows of the round before: its working table, in PostgreSQL's words.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::coop::make_cooperative;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::stream;

use crate::operators::leaf::leaf;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct WorkingTableExec {
    name: String,
    /// Places of its columns among the recursion's.
    columns: Vec<usize>,
    /// None: it stands in a plan, and in no round.
    rows: Option<Arc<WorkingRows>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// The rows of one round, as long as the next one reads them.
#[derive(Debug)]
pub(super) struct WorkingRows {
    batches: Vec<RecordBatch>,
    _memory: MemoryReservation,
}

impl WorkingRows {
    /// `batches`, which keep `memory` reserved.
    pub(super) fn new(batches: Vec<RecordBatch>, memory: MemoryReservation) -> Self {
        Self { batches, _memory: memory }
    }
}

impl WorkingTableExec {
    /// The columns at these places of the recursion `name`, as `schema` has them.
    ///
    /// # Errors
    /// Where these are not as many.
    pub fn new(name: String, columns: Vec<usize>, schema: SchemaRef) -> Result<Self> {
        if columns.len() != schema.fields().len() {
            let (places, fields) = (columns.len(), schema.fields().len());
            let message = format!("{places} places of the {fields} columns of a working table");
            return Err(DataFusionError::Plan(message));
        }
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { name, columns, rows: None, properties, metrics })
    }

    /// The recursion that it refers to.
    pub fn query_name(&self) -> &str {
        &self.name
    }

    /// Places of its columns among the recursion's.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Whether the rows of a recursion with the columns of `schema` have its columns.
    pub(super) fn is_of(&self, schema: &SchemaRef) -> bool {
        let own = self.schema();
        self.columns.iter().zip(own.fields()).all(|(place, own)| {
            schema.fields().get(*place).is_some_and(|of| {
                of.data_type() == own.data_type() && (own.is_nullable() || !of.is_nullable())
            })
        })
    }

    /// The same over `rows`.
    pub(super) fn over(&self, rows: &Arc<WorkingRows>) -> Self {
        Self { rows: Some(Arc::clone(rows)), ..self.clone() }
    }
}

impl DisplayAs for WorkingTableExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        write!(f, "WorkingTableExec: {} [{}]", self.name, names.collect::<Vec<_>>().join(", "))
    }
}

impl ExecutionPlan for WorkingTableExec {
    leaf!("WorkingTableExec");

    fn execute(
        &self,
        partition: usize,
        _task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(rows) = self.rows.as_ref().filter(|_| partition == 0).map(Arc::clone) else {
            return internal_err!("the working table of \"{}\" is read in no round", self.name);
        };
        let (schema, columns) = (self.schema(), self.columns.clone());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = (0..rows.batches.len()).filter_map(move |place| {
            let batch = rows.batches.get(place)?;
            metrics.record_output(batch.num_rows());
            Some(projected(batch, &columns, &schema))
        });
        let rows = RecordBatchStreamAdapter::new(self.schema(), stream::iter(batches));
        Ok(make_cooperative(Box::pin(rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The columns at these places of `batch`, as `schema` has them.
fn projected(batch: &RecordBatch, columns: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
    let projected = batch.project(columns)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = projected.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
