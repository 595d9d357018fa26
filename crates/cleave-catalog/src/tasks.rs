//! Runs blocking work on separate threads, and converts failures of tasks to errors.

use cleave_media::simulation;
use datafusion_common::error::DataFusionError;
use datafusion_common_runtime::SpawnedTask;
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
