//! Makes the entries of an index from rows: key columns and VIDs in, keys with their rows in ascending order out.
//!
//! ```text
//!   WriteRunExec: table=7, run=12
//!     SortKeysExec: kind DESC, id        key │ vid
//!       TableScanExec: kind, id, vid     columns of the index in key order, then the VID
//! ```
//!
//! The host builds a large index by several such fragments, each over as many rows as fit, and has their runs merged
//! ([`MergeRunsExec`](super::merge_runs_exec::MergeRunsExec)). So neither rows nor keys cross the link.
//!
//! Invariants: all entries are in memory, out of the fragment's budget; beyond it the fragment fails, and the host
//! builds the run. Equal keys come out side by side, and [`WriteRunExec`](super::write_run_exec::WriteRunExec) refuses
//! the second. Source: Update NDP, section 5 (deltas of secondary indexes); `docs/design/indexes.md`.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, RecordBatch, UInt64Builder};
use arrow::datatypes::{DataType, SchemaRef};
use cleave_store::{IndexKey, KeyColumn, KeySorter};
use datafusion_common::cast::as_uint64_array;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, plan_err};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt, stream};

use super::merge_runs_exec::entry_schema;
use super::table_scan_exec::scan_page::external;

/// Entries of one batch of the result.
const BATCH_ENTRIES: usize = 8192;
/// What the entries take while they are sorted, as a multiple of their bytes: a growing buffer, and sorted batches.
const COPIES: usize = 3;

/// How the columns of an index are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyOrder {
    /// The greatest value first.
    pub descending: bool,
    /// NULLs before all values.
    pub nulls_first: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct SortKeysExec {
    rows: Arc<dyn ExecutionPlan>,
    order: Vec<KeyOrder>,
    key: Arc<IndexKey>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SortKeysExec {
    /// The entries of `rows` in an index that is `unique` or not: their first columns, one for each of `order`, are
    /// those of the index, and the last one has the VIDs.
    ///
    /// # Errors
    /// For an input with other columns or several partitions, or with columns that no index has.
    pub fn new(rows: Arc<dyn ExecutionPlan>, order: Vec<KeyOrder>, unique: bool) -> Result<Self> {
        let schema = rows.schema();
        let types: Vec<&DataType> = schema.fields().iter().map(|field| field.data_type()).collect();
        let Some((DataType::UInt64, of_key)) = types.split_last() else {
            return plan_err!("rows of an index come without their VIDs: {schema}");
        };
        if of_key.is_empty() || of_key.len() != order.len() {
            return plan_err!("{} columns are sorted as {} of an index", of_key.len(), order.len());
        }
        let partitions = rows.properties().output_partitioning().partition_count();
        if partitions != 1 {
            return plan_err!("a run is sorted from one stream, and not from {partitions}");
        }
        let columns = of_key.iter().zip(&order).map(|(data_type, order)| KeyColumn {
            data_type: (*data_type).clone(),
            descending: order.descending,
            nulls_first: order.nulls_first,
        });
        let key = IndexKey::new(columns.collect(), unique).map_err(external)?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(entry_schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { rows, order, key: Arc::new(key), properties: Arc::new(properties), metrics })
    }

    /// How the columns are sorted.
    pub fn order(&self) -> &[KeyOrder] {
        &self.order
    }

    /// Whether the index is unique: only NULLs are told apart by their rows.
    pub fn is_unique(&self) -> bool {
        self.key.is_unique()
    }
}

/// The entries being gathered.
struct Sorting {
    rows: SendableRecordBatchStream,
    key: Arc<IndexKey>,
    sorter: KeySorter,
    memory: MemoryReservation,
    baseline: BaselineMetrics,
}

impl Sorting {
    /// All entries in their order.
    async fn sorted(mut self) -> Result<Vec<RecordBatch>> {
        while let Some(batch) = self.rows.next().await.transpose()? {
            let _timer = self.baseline.elapsed_compute().timer();
            let Some((vids, columns)) = batch.columns().split_last() else { continue };
            let vids = as_uint64_array(vids)?;
            let keys = self.key.entries(columns, vids.values().iter().copied());
            for (key, vid) in keys.map_err(external)?.iter().zip(vids.values()) {
                self.sorter.push(key.unwrap_or_default(), *vid);
            }
            self.memory.try_resize(self.sorter.byte_size().saturating_mul(COPIES))?;
        }
        let _timer = self.baseline.elapsed_compute().timer();
        let mut batches = Vec::with_capacity(self.sorter.len().div_ceil(BATCH_ENTRIES));
        let (mut keys, mut vids) = (BinaryBuilder::new(), UInt64Builder::new());
        let batch = |keys: &mut BinaryBuilder, vids: &mut UInt64Builder| {
            let columns: Vec<ArrayRef> = vec![Arc::new(keys.finish()), Arc::new(vids.finish())];
            RecordBatch::try_new(entry_schema(), columns)
        };
        let mut count = 0;
        self.sorter.drain_sorted(|key, vid| -> Result<()> {
            keys.append_value(key);
            vids.append_value(vid);
            count += 1;
            if count == BATCH_ENTRIES {
                batches.push(batch(&mut keys, &mut vids)?);
                count = 0;
            }
            Ok(())
        })?;
        if count > 0 {
            batches.push(batch(&mut keys, &mut vids)?);
        }
        Ok(batches.into_iter().map(|batch| batch.record_output(&self.baseline)).collect())
    }
}

impl DisplayAs for SortKeysExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.rows.schema();
        let columns = schema.fields().iter().zip(&self.order).map(|(field, order)| {
            let descending = if order.descending { " DESC" } else { "" };
            format!("{}{descending}", field.name())
        });
        write!(f, "SortKeysExec: {}", columns.collect::<Vec<_>>().join(", "))
    }
}

impl ExecutionPlan for SortKeysExec {
    fn name(&self) -> &'static str {
        "SortKeysExec"
    }

    fn schema(&self) -> SchemaRef {
        entry_schema()
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
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(rows), None) => {
                Ok(Arc::new(Self::new(rows, self.order.clone(), self.is_unique())?))
            }
            _ => plan_err!("keys are sorted from one input"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new("sorting the keys of an index");
        let sorting = Sorting {
            memory: memory.register(task.memory_pool()),
            rows: self.rows.execute(partition, task)?,
            key: Arc::clone(&self.key),
            sorter: KeySorter::new(),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = stream::once(sorting.sorted()).flat_map(|sorted| {
            let (batches, failure) = match sorted {
                Ok(batches) => (batches, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            stream::iter(batches.into_iter().map(Ok).chain(failure.map(Err)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(entry_schema(), Box::pin(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests;
