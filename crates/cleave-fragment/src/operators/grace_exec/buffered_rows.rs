//! Keeps batches of an input in memory as long as there is room.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion_common::Result;
use datafusion_common::utils::memory::RecordBatchMemoryCounter;
use datafusion_execution::SendableRecordBatchStream;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::StreamExt;

/// See the [module](self).
pub(super) struct BufferedRows {
    batches: Vec<RecordBatch>,
    counter: RecordBatchMemoryCounter,
    bytes: usize,
    bytes_max: usize,
    memory: MemoryReservation,
}

impl BufferedRows {
    /// Nothing yet, and at most `bytes_max` of `pool`.
    pub(super) fn new(pool: &Arc<dyn MemoryPool>, bytes_max: usize) -> Self {
        Self {
            batches: Vec::new(),
            counter: RecordBatchMemoryCounter::new(),
            bytes: 0,
            bytes_max,
            memory: MemoryConsumer::new("rows held in memory").register(pool),
        }
    }

    /// Reads all of `input` if there is room, and returns whether there was. The batch that exceeded it is kept too.
    pub(super) async fn fill(&mut self, input: &mut SendableRecordBatchStream) -> Result<bool> {
        while let Some(batch) = input.next().await {
            let batch = batch?;
            let bytes = self.counter.count_batch(&batch);
            let fits = self.bytes.saturating_add(bytes) <= self.bytes_max;
            self.bytes = self.bytes.saturating_add(bytes);
            // At most one batch beyond the limit, and it is spilled next.
            self.memory.grow(bytes);
            self.batches.push(batch);
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The batches, which it goes on to hold.
    pub(super) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Stops charging the batches, while another operator charges them.
    pub(super) fn uncount(&self) {
        self.memory.free();
    }

    /// Charges them again.
    pub(super) fn count_again(&self) {
        self.memory.resize(self.bytes);
    }

    /// The batches; from now on the caller charges them.
    pub(super) fn take(&mut self) -> Vec<RecordBatch> {
        self.memory.free();
        self.counter = RecordBatchMemoryCounter::new();
        self.bytes = 0;
        std::mem::take(&mut self.batches)
    }
}
