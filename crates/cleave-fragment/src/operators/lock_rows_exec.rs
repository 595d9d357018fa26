//! Locks the rows that pass: rows with their VIDs in, the locked ones out, as PostgreSQL's LockRows does.
//!
//! ```text
//!   LockRowsExec: title        id │ vid       rows that the run's transaction has locked
//!     TableScanExec: title     id │ vid       rows of its snapshot
//! ```
//!
//! Locks are requested batch by batch. Some batches are under way before the first is granted, so that the input goes
//! on while rows are waited for; they come out in their order. All rows of a batch are queued at once, so the batch
//! waits as long as the row that comes last, and a lock timeout is one of the batch.
//!
//! Invariant: every row that comes out is locked by the transaction of the run, until that ends. It may have changed
//! between the snapshot and the lock: the host, which validates the change, compares it with the newest version.
//!
//! Source: the Update NDP paper, 7: the device runs `SELECT FOR UPDATE`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::DataType;
use datafusion_common::cast::as_uint64_array;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::StreamExt;

use crate::fragment::FragmentContext;
use crate::row_locks::{RowLock, RowLocks};
use crate::waiting::timeout;

/// Batches whose locks are awaited at once.
const BATCHES_AHEAD: usize = 4;

/// What is done at a row that others have locked: PostgreSQL's wait policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWaitPolicy {
    /// Waits for it.
    Block,
    /// Leaves it out: `SKIP LOCKED`.
    Skip,
    /// Fails with [`RowNotFree`]: `NOWAIT`.
    Error,
}

impl LockWaitPolicy {
    const ALL: [Self; 3] = [Self::Block, Self::Skip, Self::Error];

    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Block => 0,
            Self::Skip => 1,
            Self::Error => 2,
        }
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.code() == code)
    }
}

/// A row is locked by another transaction, and the fragment was not to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not obtain lock on row in relation \"{table}\"")]
pub struct RowNotFree {
    /// The table.
    pub table: String,
}

/// Another transaction has had a row for longer than the fragment was to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a fragment waited for a row in relation \"{table}\"")]
pub struct RowLockTimeout {
    /// The table.
    pub table: String,
}

/// The rows to lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsToLock {
    /// Name of the table, for display.
    pub table: String,
    /// The object that row locks name: a tablet of the table.
    pub object: u64,
    /// The column of the input with the VIDs.
    pub vid: usize,
    /// What is done at a row that others have locked.
    pub policy: LockWaitPolicy,
    /// Milliseconds that a row is waited for before it fails with [`RowLockTimeout`]; 0: no limit.
    pub timeout_ms: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub struct LockRowsExec {
    rows: Arc<dyn ExecutionPlan>,
    to_lock: Arc<RowsToLock>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl LockRowsExec {
    /// Locks `rows`.
    ///
    /// # Errors
    /// If the column of VIDs is none.
    pub fn new(rows: Arc<dyn ExecutionPlan>, to_lock: RowsToLock) -> Result<Self> {
        let schema = rows.schema();
        let vid = schema.fields().get(to_lock.vid);
        if vid.is_none_or(|field| *field.data_type() != DataType::UInt64) {
            return Err(DataFusionError::Plan("rows to be locked without their VIDs".into()));
        }
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            rows.output_partitioning().clone(),
            rows.pipeline_behavior(),
            rows.boundedness(),
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { rows, to_lock: Arc::new(to_lock), properties: Arc::new(properties), metrics })
    }

    /// The rows that it locks.
    pub fn to_lock(&self) -> &RowsToLock {
        &self.to_lock
    }
}

impl DisplayAs for LockRowsExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockRowsExec: {}", self.to_lock.table)?;
        match self.to_lock.policy {
            LockWaitPolicy::Block => Ok(()),
            LockWaitPolicy::Skip => write!(f, ", skip locked"),
            LockWaitPolicy::Error => write!(f, ", nowait"),
        }
    }
}

impl ExecutionPlan for LockRowsExec {
    fn name(&self) -> &'static str {
        "LockRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.rows]
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
        let [rows] = children.as_slice() else {
            return internal_err!("rows of one input are locked, not of {}", children.len());
        };
        Ok(Arc::new(Self::new(Arc::clone(rows), RowsToLock::clone(&self.to_lock))?))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.rows.execute(partition, Arc::clone(&task))?;
        let locking = Arc::new(Locking {
            to_lock: Arc::clone(&self.to_lock),
            locks: FragmentContext::of(&task)?.locks()?,
            baseline: BaselineMetrics::new(&self.metrics, partition),
            changed: MetricBuilder::new(&self.metrics).counter("rows_changed", partition),
        });
        let locked = rows
            .map(move |batch| {
                let locking = Arc::clone(&locking);
                async move { locking.lock(batch?).await }
            })
            .buffered(BATCHES_AHEAD);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), locked)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The execution of one partition.
struct Locking {
    to_lock: Arc<RowsToLock>,
    locks: RowLocks,
    baseline: BaselineMetrics,
    /// Locked rows that have changed since the snapshot, as far as the host has told.
    changed: Count,
}

impl Locking {
    /// The rows of `batch` that are locked by now.
    async fn lock(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let RowsToLock { table, object, vid, policy, timeout_ms } = &*self.to_lock;
        let vids = as_uint64_array(batch.column(*vid))?;
        if vids.null_count() > 0 {
            return internal_err!("a row to be locked without its VID");
        }
        let external = |error| DataFusionError::External(Box::new(error));
        let waits = *policy == LockWaitPolicy::Block;
        let mut rows = self.locks.lock(*object, vids.values(), waits).await.map_err(external)?;
        let outcomes = match *timeout_ms {
            0 => rows.settled().await,
            limit_ms => {
                // The way to the host and back is no wait for a row.
                rows.answered().await.map_err(external)?;
                match timeout(Duration::from_millis(limit_ms), rows.settled()).await {
                    Some(outcomes) => outcomes,
                    None => {
                        let late = RowLockTimeout { table: table.clone() };
                        return Err(DataFusionError::External(Box::new(late)));
                    }
                }
            }
        };
        let outcomes = outcomes.map_err(external)?;
        if outcomes.len() != batch.num_rows() {
            return internal_err!(
                "{} rows to be locked, and {} answers",
                batch.num_rows(),
                outcomes.len()
            );
        }
        let is_locked = |lock: &RowLock| matches!(lock, RowLock::Held | RowLock::Changed(_));
        let changed = outcomes.iter().filter(|lock| matches!(lock, RowLock::Changed(_)));
        self.changed.add(changed.count());
        if outcomes.iter().all(is_locked) {
            return Ok(batch.record_output(&self.baseline));
        }
        if *policy == LockWaitPolicy::Error {
            let not_free = RowNotFree { table: table.clone() };
            return Err(DataFusionError::External(Box::new(not_free)));
        }
        let locked: BooleanArray = outcomes.iter().map(|lock| Some(is_locked(lock))).collect();
        Ok(filter_record_batch(&batch, &locked)?.record_output(&self.baseline))
    }
}
