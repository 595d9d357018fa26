//! [`OutsideScanExec`] gives the rows of a table from outside the database for which conditions may hold.
//!
//! It is the scan that it wraps, and not an operator above one: no operator comes between the two, and EXPLAIN shows
//! one scan.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use futures::future::ready;
use futures::stream;

use crate::conditions::Conditions;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct OutsideScanExec {
    scan: Arc<dyn ExecutionPlan>,
    conditions: Conditions,
    metrics: ExecutionPlanMetricsSet,
}

impl OutsideScanExec {
    /// The rows of `scan`, which has no input, for which `conditions` may hold.
    pub(super) fn new(scan: Arc<dyn ExecutionPlan>, conditions: Conditions) -> Self {
        Self { scan, conditions, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The conditions by which rows are left out.
    pub(crate) fn conditions(&self) -> &[Arc<dyn PhysicalExpr>] {
        self.conditions.list()
    }
}

impl DisplayAs for OutsideScanExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.scan.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let conditions = &self.conditions;
        write!(f, "OutsideScanExec: columns=[{}], only rows with {conditions}", names.join(", "))
    }
}

impl ExecutionPlan for OutsideScanExec {
    fn name(&self) -> &'static str {
        "OutsideScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.scan.properties()
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
        let conditions = self.conditions.clone();
        let mut left = self.scan.execute(partition, task)?.filter_map(move |batch| {
            let left = batch.and_then(|batch| conditions.left_of(batch));
            let is_empty = left.as_ref().is_ok_and(|left| left.num_rows() == 0);
            ready((!is_empty).then_some(left))
        });
        let left =
            stream::poll_fn(move |context| metrics.record_poll(left.poll_next_unpin(context)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.scan.schema(), left)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
