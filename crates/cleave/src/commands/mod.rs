//! The commands other than the shell and the demo, one file each.

pub(crate) mod advise;
pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod device;
pub(crate) mod explain;
pub(crate) mod failover;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod load;
pub(crate) mod manual;
mod progress;
pub(crate) mod user;

use std::io::Write;
use std::sync::Arc;

use cleave_host::{Changes, Database, Effort, Error};

/// Analyses the tables that were filled since `before`. A failure is a warning: the rows are there.
async fn analyze_filled(database: &Arc<Database>, before: &Changes) {
    for (table, error) in database.analyze_filled(before, 1, Effort::Quick).await {
        drop(writeln!(std::io::stderr(), "warning: cannot analyze \"{table}\": {error}"));
    }
}

/// Runs `work` on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down cancels a task, and then nobody reads the answer.
            Err(_) => Err(Error::unsupported("work while the program ends")),
        },
    }
}
