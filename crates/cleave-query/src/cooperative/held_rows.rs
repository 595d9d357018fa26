//! The rows of a run that are not given out before it has ended: another run would have other ones, so that they could
//! not be left out if this one were lost.
//!
//! ```text
//!  device ═ slot ═ slot ═ report     held until here ─▶ rows
//!  device ═ slot ╳ lost              forgotten: the run is made again from the start
//! ```
//!
//! These are partial states, above all. An aggregate gives its rows when all of its input was read, so that holding
//! them delays nothing but what the host makes of the first of them.
//!
//! Invariant: no more rows or bytes than [`HeldMax`] says are held, nor more than the memory of queries has
//! room for. A run that has more gives them out as they come, and the statement ends with it if it is lost then.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::EmissionType;

use super::given_rows::has_same_rows;

/// Most rows that are held of one run.
const ROWS_MAX: usize = 1 << 18;
/// Most bytes that are held of one run.
const BYTES_MAX: usize = 64 << 20;

/// How much is held at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldMax {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// See the module's description.
pub(super) struct HeldRows {
    batches: VecDeque<RecordBatch>,
    row_count: usize,
    byte_count: usize,
    most: HeldMax,
    memory: MemoryReservation,
    /// They are given out.
    is_released: bool,
}

impl HeldRows {
    /// For a run of `plan`, in memory of `pool`; None: it has the same rows when it is made again, or gives rows long
    /// before its end.
    pub(super) fn of_run(plan: &dyn ExecutionPlan, pool: &Arc<dyn MemoryPool>) -> Option<Self> {
        let comes_at_the_end = plan.properties().emission_type == EmissionType::Final;
        let most = HeldMax { rows: ROWS_MAX, bytes: BYTES_MAX };
        (comes_at_the_end && !has_same_rows(plan)).then(|| Self::new(most, pool))
    }

    /// Holds so much, in memory of `pool`.
    pub(super) fn new(most: HeldMax, pool: &Arc<dyn MemoryPool>) -> Self {
        Self {
            batches: VecDeque::new(),
            row_count: 0,
            byte_count: 0,
            most,
            memory: MemoryConsumer::new("rows of a fragment").register(pool),
            is_released: false,
        }
    }

    /// Holds `batch`, or releases all where there is no room for it.
    pub(super) fn push(&mut self, batch: RecordBatch) {
        let byte_count = get_record_batch_memory_size(&batch);
        self.row_count = self.row_count.saturating_add(batch.num_rows());
        self.byte_count = self.byte_count.saturating_add(byte_count);
        self.batches.push_back(batch);
        if self.row_count > self.most.rows
            || self.byte_count > self.most.bytes
            || self.memory.try_grow(byte_count).is_err()
        {
            self.release();
        }
    }

    /// Lets the rows be given out.
    pub(super) fn release(&mut self) {
        self.is_released = true;
    }

    /// Whether the rows are given out, those that come as well.
    pub(super) fn is_released(&self) -> bool {
        self.is_released
    }

    /// The next rows to give out, if they may be.
    pub(super) fn next(&mut self) -> Option<RecordBatch> {
        if !self.is_released {
            return None;
        }
        let batch = self.batches.pop_front();
        if self.batches.is_empty() {
            self.memory.free();
        }
        batch
    }
}

impl fmt::Debug for HeldRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldRows")
            .field("row_count", &self.row_count)
            .field("is_released", &self.is_released)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! Rows that are held to the end, and those that are too many for it.

    use datafusion::arrow::array::Int32Array;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;

    fn batch(row_count: usize) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("v", DataType::Int32, true)]);
        let values = Arc::new(Int32Array::from(vec![1; row_count]));
        RecordBatch::try_new(Arc::new(schema), vec![values]).unwrap()
    }

    fn with_room(pool_bytes: usize) -> (HeldRows, Arc<dyn MemoryPool>) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(pool_bytes));
        let most = HeldMax { rows: ROWS_MAX, bytes: BYTES_MAX };
        (HeldRows::new(most, &pool), pool)
    }

    #[test]
    fn rows_are_held_until_they_are_released() {
        let (mut held, pool) = with_room(1 << 20);
        held.push(batch(3));
        held.push(batch(2));
        assert_eq!(held.next(), None);
        assert!(pool.reserved() > 0);
        held.release();
        assert_eq!(held.next(), Some(batch(3)));
        assert_eq!(held.next(), Some(batch(2)));
        assert_eq!(held.next(), None);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn more_rows_than_are_held_are_given_out() {
        let (mut many, _pool) = with_room(1 << 30);
        many.push(batch(ROWS_MAX));
        assert!(!many.is_released());
        many.push(batch(1));
        assert!(many.is_released());
        assert_eq!(many.next(), Some(batch(ROWS_MAX)));
        // Where queries have no room for them, likewise.
        let (mut crowded, _pool) = with_room(8);
        crowded.push(batch(100));
        assert!(crowded.is_released());
        assert_eq!(crowded.next(), Some(batch(100)));
    }
}
