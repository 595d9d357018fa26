//! What a session has begun that goes on while it runs other statements, and after it has ended.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Background {
    /// Each ends with what there is to warn of.
    begun: Vec<JoinHandle<Option<String>>>,
}

impl Background {
    /// Runs `work` on `runtime`, or else on that of the caller.
    pub(super) fn begin(
        &mut self,
        runtime: Option<&Handle>,
        work: impl Future<Output = Option<String>> + Send + 'static,
    ) {
        self.begun.retain(|task| !task.is_finished());
        let runtime = runtime.cloned().unwrap_or_else(Handle::current);
        self.begun.push(runtime.spawn(work));
    }

    /// Waits for all of it, and returns what there is to warn of. What is left when the future is dropped goes on.
    pub(super) async fn finish(&mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        while let Some(task) = self.begun.last_mut() {
            // One that has panicked has ended too.
            warnings.extend(task.await.ok().flatten());
            self.begun.pop();
        }
        warnings
    }
}
