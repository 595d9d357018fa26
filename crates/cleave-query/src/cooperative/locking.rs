//! Locking fragments: the query of a `SELECT … FOR UPDATE` in, its rows out, each locked where it lies.
//!
//! The query is planned with one cut at its root, as for an [update fragment](super::changing), and runs with
//! [`LockRowsExec`] at the root of the fragment. The rows cross the link; their locks do not, on a device that shares
//! the lock table.
//!
//! Invariant: it runs on the device or not at all. Each row that comes back is locked by the transaction of the job,
//! and may have changed between snapshot and lock: the host compares it with the newest version. Source: Update NDP,
//! section 7.

use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_engine::device::Device;
use cleave_engine::device::shared_locks::LockingJob;
use cleave_engine::write::change_pages::locked_on_device;
use cleave_fragment::{LockRowsExec, RowsToLock};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

use super::changing::keeps_page_order;
use super::fragment_exec::FragmentExec;
use super::shown_run::ShownRun;
use super::whole_fragment::WholeFragment;
use crate::query_engine::QueryEngine;
use crate::select::QueryRequest;

/// A query whose rows a fragment locks.
pub struct LockingQuery {
    whole: WholeFragment,
    node: FragmentExec,
}

/// Plans `asked`, of whose rows those are locked that `to_lock` says. None: it does not run as one fragment.
///
/// # Errors
/// None of the statement's own: these come from the query that runs then instead.
pub async fn plan_locking(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
    to_lock: impl FnOnce(&SchemaRef) -> Option<RowsToLock>,
) -> Result<Option<LockingQuery>> {
    let Some(whole) = WholeFragment::plan(database, settings, asked).await? else {
        return Ok(None);
    };
    let rows = &whole.fragment().plan;
    // Locked rows are those of the result: nothing above the locks leaves any out.
    if !whole.is_on_device() || !keeps_page_order(rows) {
        return Ok(None);
    }
    let Some(to_lock) = to_lock(&rows.schema()) else { return Ok(None) };
    let Ok(plan) = LockRowsExec::new(Arc::clone(rows), to_lock) else { return Ok(None) };
    let node = whole.with_root(Arc::new(plan));
    Ok(Some(LockingQuery { whole, node }))
}

impl LockingQuery {
    /// Rows that are expected.
    pub fn row_estimate(&self) -> f64 {
        self.whole.planned().row_estimate()
    }

    /// The device of the rows.
    pub fn device(&self) -> &Arc<Device> {
        self.whole.device()
    }

    /// The columns of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.node.device_plan().schema()
    }

    /// The rows, locked for the transaction of `job`. None: the device refuses, a row fails there, or the rows take
    /// more than the memory of queries; the locks that it has taken stay.
    ///
    /// # Errors
    /// Those of the locks, of the link and of the device.
    pub async fn run(&self, job: &Arc<LockingJob>) -> Result<Option<Vec<RecordBatch>>> {
        let task = Arc::new(self.whole.task()?);
        let prepared = WholeFragment::prepared(&self.node, &task).await?;
        if prepared.rows.sent.is_err() {
            return Ok(None);
        }
        let (request, _grants, _) = self.whole.request(&self.node, &prepared, &task).await?;
        let rows = (self.schema(), self.whole.query_memory_max());
        let part = self.whole.part();
        let mut shown = ShownRun::begin(&self.node, part, &request, &prepared);
        let by = (job, Some(shown.witness()));
        let running = Box::pin(locked_on_device(self.device(), request, rows, by));
        let locked = shown.beside(running).await?;
        shown.end(locked.as_deref());
        Ok(locked)
    }
}
