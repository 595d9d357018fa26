//! A leaf that replaces an input of one of DataFusion's operators and emits given rows, once.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};

/// See the [module](self).
pub(super) struct GivenExec {
    properties: Arc<PlanProperties>,
    /// The plan that makes the rows; a join searches it for users of its filter.
    maker: Option<Arc<dyn ExecutionPlan>>,
    /// Of each partition.
    rows: Mutex<Vec<Option<SendableRecordBatchStream>>>,
}

impl GivenExec {
    /// An input of `rows`, which `maker` makes.
    pub(super) fn over(
        rows: SendableRecordBatchStream,
        maker: Option<Arc<dyn ExecutionPlan>>,
    ) -> Arc<dyn ExecutionPlan> {
        Self::of_partitions(rows.schema(), vec![rows], maker)
    }

    /// An input of these partitions.
    pub(super) fn of_partitions(
        schema: SchemaRef,
        rows: Vec<SendableRecordBatchStream>,
        maker: Option<Arc<dyn ExecutionPlan>>,
    ) -> Arc<dyn ExecutionPlan> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(rows.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let rows = Mutex::new(rows.into_iter().map(Some).collect());
        Arc::new(Self { properties: Arc::new(properties), maker, rows })
    }
}

impl fmt::Debug for GivenExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenExec").finish_non_exhaustive()
    }
}

impl DisplayAs for GivenExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GivenExec")
    }
}

impl ExecutionPlan for GivenExec {
    fn name(&self) -> &'static str {
        "GivenExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.maker.iter().collect()
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
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        match rows.get_mut(partition).and_then(Option::take) {
            Some(rows) => Ok(rows),
            None => internal_err!("an input that is given once was read twice"),
        }
    }
}
