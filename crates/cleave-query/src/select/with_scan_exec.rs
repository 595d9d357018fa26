//! [`WithScanExec`] gives the rows of a query of WITH that runs once ([`SharedRows`]).

use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::common::Statistics;
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
use futures::stream;

use super::shared_rows::SharedRows;

/// See the module's description.
#[derive(Debug)]
pub(super) struct WithScanExec {
    rows: Arc<SharedRows>,
    /// Places of its columns in the rows.
    places: Vec<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl WithScanExec {
    /// The columns at `places` of `rows`, which are those of `schema`.
    pub(super) fn new(rows: Arc<SharedRows>, places: Vec<usize>, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        Self { rows, places, schema, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// What it reads.
    pub(super) fn rows(&self) -> &Arc<SharedRows> {
        &self.rows
    }
}

impl DisplayAs for WithScanExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.rows.name();
        write!(f, "WithScanExec: {}", name.strip_prefix("WITH ").unwrap_or(name))
    }
}

impl ExecutionPlan for WithScanExec {
    fn name(&self) -> &'static str {
        "WithScanExec"
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
        _task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (rows, places) = (Arc::clone(&self.rows), self.places.clone());
        let (schema, mut place) = (Arc::clone(&self.schema), 0);
        let batches = stream::poll_fn(move |context| {
            let next = match rows.poll_batch(place, context) {
                Poll::Ready(next) => next.transpose(),
                Poll::Pending => return Poll::Pending,
            };
            place += 1;
            let next = next.map(|batch| projected(&batch?, &places, &schema));
            metrics.record_poll(Poll::Ready(next))
        });
        let batches = RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches);
        Ok(make_cooperative(Box::pin(batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        let rows = super::table_provider::rows_as_count(self.rows.row_estimate());
        statistics.num_rows = Precision::Inexact(rows);
        Ok(Arc::new(statistics))
    }
}

/// The columns at `places` of `batch` with the types of `schema`: those that the query was bound with. Functions of
/// constants may give numerics with other digits once they are computed.
fn projected(batch: &RecordBatch, places: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let batch_columns = batch.project(places)?;
    let columns = batch_columns.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast_with_options(column, field.data_type(), &options),
    });
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

#[cfg(test)]
mod tests {
    //! Rows with the types that their readers were bound with.

    use datafusion::arrow::array::{Array, ArrayRef, Decimal128Array};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn numerics_have_the_digits_that_their_readers_know() {
        let of = |scale: i8| {
            let field = Field::new("r", DataType::Decimal128(38, scale), true);
            Arc::new(Schema::new(vec![field]))
        };
        let digits = |values: Vec<Option<i128>>, scale: i8| {
            Decimal128Array::from(values).with_precision_and_scale(38, scale).unwrap()
        };
        let column: ArrayRef = Arc::new(digits(vec![Some(15), None], 1));
        let batch = RecordBatch::try_new(of(1), vec![column]).unwrap();
        let read = projected(&batch, &[0], &of(3)).unwrap();
        assert_eq!(read.column(0).to_data(), digits(vec![Some(1500), None], 3).to_data());
        let column: ArrayRef = Arc::new(digits(vec![Some(10_i128.pow(37))], 0));
        let batch = RecordBatch::try_new(of(0), vec![column]).unwrap();
        assert!(projected(&batch, &[0], &of(3)).is_err(), "no value is lost");
    }
}
