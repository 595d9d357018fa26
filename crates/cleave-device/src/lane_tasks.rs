//! Tasks of a run besides its partitions, on the fragment threads.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_fragment::run_tasks::RunTasks;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::run_pages::CpuTime;

/// The tasks of one run. Invariant: once [`Self::end`] has returned, none of them runs, and none begins.
pub(crate) struct LaneTasks {
    /// None: the run is over.
    running: Mutex<Option<JoinSet<()>>>,
    cpu: Arc<CpuTime>,
}

impl LaneTasks {
    /// None yet; their CPU time is added to `cpu`.
    pub(crate) fn new(cpu: Arc<CpuTime>) -> Arc<Self> {
        Arc::new(Self { running: Mutex::new(Some(JoinSet::new())), cpu })
    }

    /// Ends those that still run, and waits until they are gone.
    pub(crate) async fn end(&self) {
        let running = self.lock().take();
        if let Some(mut running) = running {
            running.shutdown().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunTasks for LaneTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Some(running) = self.lock().as_mut() {
            running.spawn(self.cpu.measured(task));
        }
    }
}

impl fmt::Debug for LaneTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneTasks").finish_non_exhaustive()
    }
}
