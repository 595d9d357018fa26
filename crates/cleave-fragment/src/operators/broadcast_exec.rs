//! A leaf that emits broadcast rows: it names a broadcast and emits the rows that the [`FragmentContext`] has under
//! that number, as often as it is executed.
//!
//! It replaces the build side of a join below a cut, if that side is not stored with the streamed side: on the devices
//! to which the rows were sent, and on the host, which has them anyway. It has one partition, however many partitions
//! the streamed side has.

use std::fmt;
use std::sync::Arc;

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
use futures::stream;

use crate::broadcast::BroadcastRows;
use crate::fragment::FragmentContext;
use crate::operators::leaf::leaf;

/// Emits the rows of one broadcast; see the [module](self).
#[derive(Debug)]
pub struct BroadcastExec {
    input: u32,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl BroadcastExec {
    /// The rows of the broadcast `input`, whose columns are those of `schema`.
    pub fn new(input: u32, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let metrics = ExecutionPlanMetricsSet::new();
        Self { input, properties: Arc::new(properties), metrics }
    }

    /// The number of the broadcast.
    pub fn input(&self) -> u32 {
        self.input
    }

    /// Checks that `context` has the rows of each such leaf of `plan`.
    ///
    /// # Errors
    /// For a missing broadcast, or one with other columns.
    pub fn check(plan: &Arc<dyn ExecutionPlan>, context: &FragmentContext) -> Result<()> {
        if let Some(leaf) = plan.downcast_ref::<Self>() {
            leaf.rows(context)?;
        }
        plan.children().into_iter().try_for_each(|child| Self::check(child, context))
    }

    fn rows(&self, context: &FragmentContext) -> Result<Arc<BroadcastRows>> {
        let rows = context.broadcasts.get(&self.input).map(Arc::clone).ok_or_else(|| {
            DataFusionError::Plan(format!(
                "the fragment names broadcast {}, which was not given",
                self.input
            ))
        })?;
        let (given, named) = (rows.schema(), self.schema());
        let are_alike = given.fields().len() == named.fields().len()
            && given.fields().iter().zip(named.fields()).all(|(given, named)| {
                given.data_type() == named.data_type()
                    && (named.is_nullable() || !given.is_nullable())
            });
        if !are_alike {
            return Err(DataFusionError::Plan(format!(
                "broadcast {} has other columns than the fragment names: {given} and not {named}",
                self.input
            )));
        }
        Ok(rows)
    }
}

impl DisplayAs for BroadcastExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BroadcastExec: rows={} of the host", self.input)
    }
}

impl ExecutionPlan for BroadcastExec {
    leaf!("BroadcastExec");

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.rows(FragmentContext::of(&task)?.as_ref())?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = (0..rows.batches().len()).filter_map(move |place| {
            let batch = rows.batches().get(place)?.clone();
            metrics.record_output(batch.num_rows());
            Some(Ok(batch))
        });
        let rows = RecordBatchStreamAdapter::new(self.schema(), stream::iter(batches));
        Ok(make_cooperative(Box::pin(rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
