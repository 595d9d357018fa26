//! Tasks of a fragment run besides those of its partitions.

use std::fmt;

use futures::future::BoxFuture;

/// Runs tasks on the threads of a run. Whoever ends the run ends them too, and waits for that before the run's memory
/// and space are anybody else's.
pub trait RunTasks: Send + Sync + fmt::Debug {
    /// Runs `task` until it ends or the run does; drops it at once if the run is over.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}
