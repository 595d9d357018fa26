//! Fragments that replace rows: the query for the rows that an UPDATE changes in, the pages with their new versions and
//! the rows that end out.
//!
//! ```text
//!   UPDATE item SET id = id + 1 WHERE kind = 3
//!     ─▶ the query: SELECT vid, id + 1, kind, price FROM item WHERE kind = 3      planned, one cut at its root
//!     ─▶ the rows that change: ChangePagesExec over it, which writes nothing     each row once, and the rows that end
//!     ─▶ the fragment: InsertPagesExec over that                                 runs on the device of the tablet
//! ```
//!
//! Where a column of an index changes, or a page has long values, a page cannot have a version. The rows get new VIDs
//! then, as rows that the host updates do, and no reader of an index sees a difference. It runs on the device or not at
//! all.
//!
//! Source: Update NDP, section 4 (rows or columns).

use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_engine::device::{Claim, Device};
use cleave_engine::write::change_pages::Reported;
use cleave_engine::write::insert_pages::{Destination, InsertedPages, PageTarget};
use cleave_fragment::{
    ChangePagesExec, ChangedColumns, ChangedPage, InsertPagesExec, read_changed, read_replaced,
    read_written,
};
use cleave_media::BLOCK_SIZE;
use cleave_plan::PlanEstimates;
use cleave_store::{Projection, TableSchema};
use datafusion::physical_plan::ExecutionPlan;

use super::changing::{CheckedRows, conformed};
use super::figures::FragmentFigures;
use super::inserting::{BLOCKS_MAX, inserted_rows, no_target, whole};
use super::update_cost::{BulkChange, UpdateCost};
use super::whole_fragment::WholeFragment;
use crate::query_engine::QueryEngine;
use crate::select::QueryRequest;

/// Blocks beyond what is expected.
const SLACK_BLOCKS: u64 = 64;

/// A statement that replaces rows of a table with one tablet, as a fragment.
pub struct ReplacingQuery {
    whole: WholeFragment,
    /// Its rows, with the report of those that end.
    rows: Arc<dyn ExecutionPlan>,
    table: Arc<TableSchema>,
}

/// What the fragment reports.
pub struct Replaced {
    /// The new rows.
    pub inserted: InsertedPages,
    /// The pages with rows that end.
    pub ended: Vec<ChangedPage>,
}

/// Plans the query `asked` for VIDs and new rows of `table`, all of whose columns `checked` has. None: it does not run
/// as one fragment on a device.
///
/// # Errors
/// None of the statement's own: these come from the query that runs then instead.
pub async fn plan_replacing(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
    (table, checked): (&Arc<TableSchema>, &CheckedRows),
) -> Result<Option<ReplacingQuery>> {
    let whole = WholeFragment::over_target(database, settings, asked).await?;
    let Some(whole) = whole.filter(WholeFragment::is_on_device) else { return Ok(None) };
    let fragment = whole.fragment();
    let Some(streamed) = fragment.scans.last() else { return Ok(None) };
    let Some((rows, _)) = conformed(&fragment.plan, checked)? else { return Ok(None) };
    // The VID comes first.
    let returned = u32::try_from(rows.schema().fields().len().saturating_sub(1)).ok();
    let input = streamed.scan.scan().input;
    let ending = ChangedColumns { input, columns: Projection::of_table(table, &[]), returned };
    let Ok(rows) = ChangePagesExec::new(rows, ending) else { return Ok(None) };
    let made = ReplacingQuery { whole, rows: Arc::new(rows), table: Arc::clone(table) };
    Ok(made.root(&no_target(table)).is_ok().then_some(made))
}

impl ReplacingQuery {
    /// Rows that are expected to change.
    pub fn row_estimate(&self) -> f64 {
        self.whole.planned().row_estimate()
    }

    /// The device of the tablet.
    pub fn device(&self) -> &Arc<Device> {
        self.whole.device()
    }

    /// What the planner knows of the rows.
    pub fn estimates(&self) -> PlanEstimates {
        self.whole.planned().context.estimates()
    }

    /// The figures of its runs on the device since they were asked for last.
    pub fn take_figures(&self) -> Vec<FragmentFigures> {
        self.whole.take_figures()
    }

    /// The fragment, for EXPLAIN.
    ///
    /// # Errors
    /// Those of making it.
    pub fn shown(&self) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.whole.with_root(self.root(&no_target(&self.table))?)))
    }

    /// What it costs to change the rows in either way. Figures of the device that are not known are assumed.
    ///
    /// # Errors
    /// Those of a device that is not attached.
    pub async fn cost(&self) -> Result<UpdateCost> {
        Ok(UpdateCost::of_replaced(&self.bulk_change(), &self.whole.profile().await?))
    }

    fn bulk_change(&self) -> BulkChange {
        let inputs = &self.whole.part().inputs;
        let Some((_, input)) = inputs.last() else { return BulkChange::default() };
        let (rows_read, bytes_read) = (input.input.rows_left(), input.input.bytes_left());
        BulkChange {
            rows: self.row_estimate().min(rows_read as f64),
            rows_read: rows_read as f64,
            pages_read: input.input.pages_left() as f64,
            bytes_read: bytes_read as f64,
            // Both ways read whole rows.
            held_share: 1.0,
            column_share: 1.0,
            indexes: input.input.table.indexes.len(),
            returned_share: 0.0,
        }
    }

    /// Runs the fragment, which writes what `target` says into space of `claim`. None: the device refuses it or a
    /// value; the statement is to make its rows itself.
    ///
    /// # Errors
    /// Those of the statement's expressions, of the link and of the device.
    pub async fn run(&self, claim: &Arc<Claim>, target: PageTarget) -> Result<Option<Replaced>> {
        let node = self.whole.with_root(self.root(&target)?);
        let task = Arc::new(self.whole.task()?);
        let prepared = WholeFragment::prepared(&node, &task).await?;
        let BulkChange { rows, rows_read, pages_read, bytes_read, .. } = self.bulk_change();
        let expected = bytes_read * rows / rows_read.max(1.0) / BLOCK_SIZE as f64;
        // Each page that is read may be reported, and reports are bounded by the space.
        let blocks = whole(expected.min(BLOCKS_MAX)) + whole(pages_read) + SLACK_BLOCKS;
        let reported =
            self.whole.on_device((&node, &prepared), (claim, None), |_| blocks, &task).await?;
        let Some(Reported { rows, space }) = reported else { return Ok(None) };
        let strange = |reason: String| self.device().strange_payload(&reason);
        let read = read_replaced(&rows)
            .and_then(|(ended, written)| Ok((read_changed(&ended)?, read_written(&written)?)));
        let (ended, pages) = read.map_err(|error| strange(error.to_string()))?;
        let old: u64 = ended.iter().map(|page| page.slots.count_set_bits() as u64).sum();
        let new: u64 = pages.iter().map(|page| u64::from(page.page.row_count)).sum();
        if old != new {
            return Err(strange(format!("it replaces {old} rows by {new}")));
        }
        let (device, claim) = (Arc::clone(self.device()), Arc::clone(claim));
        let to = Destination { device, claim, target };
        Ok(Some(Replaced { inserted: InsertedPages { to, pages: vec![pages], space }, ended }))
    }

    fn root(&self, target: &PageTarget) -> Result<Arc<dyn ExecutionPlan>> {
        let inserted = inserted_rows(&self.table, target, true);
        Ok(Arc::new(InsertPagesExec::new(Arc::clone(&self.rows), inserted)?))
    }
}
