//! Build sides of a fragment's joins that the host makes: the host's plans in, rows that travel with the fragment out.
//!
//! All of the plans run at once, when the fragment's first row is asked for; their own cuts are fragments of their own,
//! which are over before this one begins. The rows are held once, charged to the statement's memory as a join's on the
//! host are, and encoded once for all devices. The host's own part of the fragment reads them as they are.
//!
//! Invariant: rows of more than `broadcast_bytes` are not sent. Then the host runs the fragment, over the same rows.

use std::sync::Arc;

use cleave_fragment::command::slot::batch_bytes;
use cleave_fragment::{Broadcast, BroadcastInputs, BroadcastRows};
use cleave_plan::split::PlannedBroadcast;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, Shared, try_join_all};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct SentRows {
    /// As operators on the host read them.
    pub(super) inputs: BroadcastInputs,
    /// As they travel, or why they do not.
    pub(super) sent: Result<Vec<Broadcast>, String>,
    /// Bytes of all of them.
    pub(super) byte_count: u64,
}

/// The rows being made, for all waiting parts.
pub(super) type Gathering = Shared<BoxFuture<'static, Result<Arc<SentRows>, Arc<DataFusionError>>>>;

impl SentRows {
    /// Begins to make the rows of `planned`, of which at most `bytes_max` are sent.
    pub(super) fn gather(
        planned: Vec<PlannedBroadcast>,
        bytes_max: u64,
        task: Arc<TaskContext>,
    ) -> Gathering {
        let gathered = async move {
            let made = try_join_all(planned.iter().map(|one| rows_of(one, &task))).await?;
            Self::of(made, bytes_max).map(Arc::new)
        };
        gathered.map(|rows| rows.map_err(Arc::new)).boxed().shared()
    }

    fn of(made: Vec<(u32, BroadcastRows)>, bytes_max: u64) -> Result<Self> {
        let batches = made.iter().flat_map(|(_, rows)| rows.batches());
        let byte_count: u64 = batches.map(batch_bytes).sum();
        let sent = if byte_count > bytes_max {
            Err(format!(
                "rows to broadcast have {byte_count} bytes, and broadcast_bytes allows {bytes_max}"
            ))
        } else {
            Ok(made.iter().map(|(input, rows)| rows.encode(*input)).collect::<Result<_, _>>()?)
        };
        let inputs = made.into_iter().map(|(input, rows)| (input, Arc::new(rows))).collect();
        Ok(Self { inputs, sent, byte_count })
    }

    /// Number of rows.
    pub(super) fn row_count(&self) -> usize {
        self.inputs.values().map(|rows| rows.row_count()).sum()
    }
}

/// All rows of `planned`.
async fn rows_of(
    planned: &PlannedBroadcast,
    task: &Arc<TaskContext>,
) -> Result<(u32, BroadcastRows)> {
    let memory = MemoryConsumer::new("rows to broadcast").register(task.memory_pool());
    let mut stream = execute_stream(Arc::clone(&planned.plan), Arc::clone(task))?;
    let mut batches: Vec<RecordBatch> = Vec::new();
    while let Some(batch) = stream.next().await.transpose()? {
        if batch.num_rows() > 0 {
            memory.try_grow(get_record_batch_memory_size(&batch))?;
            batches.push(batch);
        }
    }
    let rows = BroadcastRows::new(planned.plan.schema(), batches, Some(memory));
    Ok((planned.input, rows))
}
