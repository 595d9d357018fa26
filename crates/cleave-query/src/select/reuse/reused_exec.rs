//! [`ReusedExec`] gives the rows of a [held result](super::HeldResult).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};

use super::HeldResult;

/// See the module's description.
#[derive(Debug)]
pub(in crate::select) struct ReusedExec {
    result: Arc<HeldResult>,
    properties: Arc<PlanProperties>,
}

impl ReusedExec {
    pub(super) fn new(result: Arc<HeldResult>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&result.schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = properties.with_scheduling_type(SchedulingType::Cooperative);
        Self { result, properties: Arc::new(properties) }
    }
}

impl DisplayAs for ReusedExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeldResult { number, made, cost, .. } = &*self.result;
        let (age, saved) = (made.elapsed().as_secs(), cost.as_millis());
        write!(f, "ReusedExec: from result {number}, made {age} s ago, saves {saved} ms")
    }
}

impl ExecutionPlan for ReusedExec {
    fn name(&self) -> &'static str {
        "ReusedExec"
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
        if partition != 0 {
            return internal_err!("a held result has no partition {partition}");
        }
        self.result.uses.fetch_add(1, Ordering::Relaxed);
        let batches = self.result.rows.batches.clone();
        let stream = MemoryStream::try_new(batches, self.schema(), None)?;
        Ok(make_cooperative(Box::pin(stream)))
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.result.schema);
        statistics.num_rows = Precision::Exact(self.result.rows.row_count);
        Ok(Arc::new(statistics))
    }
}
