//! Waits for rows that can only fail: a transaction that keeps its snapshot (REPEATABLE READ, SERIALIZABLE) cannot
//! change a row that others have changed since. It fails with 40001 when its wait is over, and so at once when that is
//! certain.
//!
//! It is certain when a change of the row is published. The row may be locked all the same: by who changes it next, and
//! stands before in the queue. Before its holder publishes a change nothing is certain, since that may roll back.
//!
//! 1. [`while_rows_stay`] is the wait of a statement that locks rows itself.
//! 2. [`run_while_rows_stay`] runs a fragment, whose job knows which rows its run has waited for
//!    ([`HostedJob::awaited`]). The fragment ends also where it has such a row by then, with all its partitions.
//!
//! Both look now and then, so that no commit has to know who waits for what. Source: Update NDP, on controlled lock
//! violation; PostgreSQL, whose waiters look when the row's holder ends.
//!
//! [`HostedJob::awaited`]: cleave_fragment::row_locks::HostedJob::awaited

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::Result;
use cleave_engine::device::shared_locks::{LockingJob, row_object};
use cleave_engine::storage_engine::commit::validate::{check_dead, check_rewritten};
use cleave_engine::write::insert::TableChange;
use cleave_fragment::waiting::timeout;

use crate::database::Database;

/// Time between two looks.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// Fails once rows have changed since the snapshot.
pub(super) type Stays<'a> = &'a (dyn Fn() -> Result<()> + Sync);

/// The outcome of `wait`, or that of `stay` as soon as that fails.
///
/// # Errors
/// Those of both.
pub(super) async fn while_rows_stay<T>(
    stay: impl Fn() -> Result<()>,
    wait: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut wait = pin!(wait);
    loop {
        match timeout(LOOK_PERIOD, wait.as_mut()).await {
            Some(outcome) => return outcome,
            None => stay()?,
        }
    }
}

/// The outcome of `run`, a run of `job` that locks rows of the tablet at `place` of `table`, in a transaction that
/// reads `kept` alone; without one, it reads what is newest.
///
/// # Errors
/// Those of `run`; [`Error::Conflict`](cleave_catalog::error::Error::Conflict), if a row for which it has waited has
/// changed since.
pub(super) async fn run_while_rows_stay<T>(
    (database, kept): (&Database, Option<Arc<CatalogState>>),
    (table, place): (&TableState, usize),
    job: &LockingJob,
    run: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(kept) = kept else { return run.await };
    let object = row_object(table.schema.table_id, place);
    let stay = || {
        let awaited = job.hosted().awaited();
        let mut change = TableChange::new(Arc::clone(&table.schema));
        let vids = awaited.into_iter().filter(|row| row.object == object).map(|row| row.vid);
        change.dead.entry(place).or_default().extend(vids);
        check_rows(database, &kept, &change)
    };
    while_rows_stay(stay, run).await
}

/// Refuses `change` if others have changed a row that it ends since `kept`.
///
/// # Errors
/// [`Error::Conflict`](cleave_catalog::error::Error::Conflict).
pub(super) fn check_rows(
    database: &Database,
    kept: &CatalogState,
    change: &TableChange,
) -> Result<()> {
    let live = database.live();
    check_dead(&live, change)?;
    check_rewritten(kept, &live, change)
}
