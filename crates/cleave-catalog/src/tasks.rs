//! Work on threads that may be busy or wait, and what became of it.

use cleave_media::simulation;
use datafusion_common::error::DataFusionError;
use datafusion_common_runtime::SpawnedTask;
use tokio::task::JoinError;

use crate::error::{Error, Result};

/// `work` on a thread that may be busy or wait; dropped with the statement if it has not begun.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> SpawnedTask<T> {
    if simulation::is_active() {
        SpawnedTask::spawn(async move { work() })
    } else {
        SpawnedTask::spawn_blocking(work)
    }
}

/// What a task of ours gave, unless it died.
///
/// # Errors
/// One of ours (XX000), with what the task says.
pub fn joined<T>(outcome: Result<T, JoinError>) -> Result<T> {
    outcome.map_err(|error| Error::from(DataFusionError::ExecutionJoin(Box::new(error))))
}
