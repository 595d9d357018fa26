//! Runs blocking work on separate threads, and converts failures of tasks to errors. [`carry_statements`] has
//! DataFusion's tasks work for the statement that spawned them.

use std::any::Any;

use cleave_fragment::result_memory::for_same_statement;
use cleave_media::simulation;
use datafusion_common::error::DataFusionError;
use datafusion_common_runtime::{JoinSetTracer, SpawnedTask, set_join_set_tracer};
use futures::future::BoxFuture;
use tokio::task::JoinError;

use crate::error::{Error, Result};

/// Runs `work` on a thread that may block; dropped with the statement if it has not begun.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> SpawnedTask<T> {
    if simulation::is_active() {
        SpawnedTask::spawn(async move { work() })
    } else {
        SpawnedTask::spawn_blocking(work)
    }
}

/// The result of a task, unless it panicked or was aborted.
///
/// # Errors
/// An internal error (XX000), with the task's message.
pub fn joined<T>(outcome: Result<T, JoinError>) -> Result<T> {
    outcome.map_err(|error| Error::from(DataFusionError::ExecutionJoin(Box::new(error))))
}

/// Has each task that DataFusion spawns know of the statement that it works for: whether its rows are still wanted, and
/// the memory to which its functions charge their results.
pub fn carry_statements() {
    // Set already by another database of the process.
    let _set_before = set_join_set_tracer(&Carrier);
}

type Outcome = Box<dyn Any + Send>;

struct Carrier;

impl JoinSetTracer for Carrier {
    fn trace_future(&self, work: BoxFuture<'static, Outcome>) -> BoxFuture<'static, Outcome> {
        for_same_statement(work)
    }

    fn trace_block(
        &self,
        work: Box<dyn FnOnce() -> Outcome + Send>,
    ) -> Box<dyn FnOnce() -> Outcome + Send> {
        // Reads and writes of spilled rows, which call no function. A join on a thread of its own is carried already.
        work
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cleave_fragment::result_memory::ResultMemory;
    use cleave_fragment::wanted;
    use datafusion_execution::memory_pool::{MemoryPool, UnboundedMemoryPool};

    use super::*;

    #[tokio::test]
    async fn a_task_charges_its_statement_and_stops_with_it() {
        carry_statements();
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let task = async {
            let stops = (0..1000).any(|_| wanted::check().is_err());
            (ResultMemory::current().is_some(), stops)
        };
        let spawned = async { SpawnedTask::spawn(task).join().await.unwrap() };
        let memory = ResultMemory::of(&pool);
        assert_eq!(memory.over(wanted::until(|| true, spawned)).await, (true, true));
    }
}
