//! Pages with a matching row: where the host reads the pages of a device behind a link, the device first tells which of
//! them have a row that the scan's condition leaves (block-level filter).
//!
//! ```text
//!  host's scan, condition ─▶ the same scan as a fragment, one row a page ─▶ segment and number of pages with a match
//!                                        the scan's input without the others ◀─┘
//! ```
//!
//! Rows cross the link decoded, pages as they are stored and checked by the host, which then has them in its buffers.
//! So this is the way between the two: fewer pages than all, and no more than the pages that have to be read.
//!
//! 1. [`PageFilter::of`] takes the scans that the cuts leave to the host, and plans the fragments: all of them with
//!    `page_filter = always`; with `on`, and the split chosen by cost, where what the others would take on the link is
//!    expected to be more than asking.
//! 2. [`apply`] runs them before the query, all at once.
//!
//! Invariants: the scan evaluates its condition again, over the same snapshot. A device that is lost, refuses or lies
//! about pages that are not there leaves the input as it is.
//!
//! Source: NDP result sets, section 3 (transfer modes).

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::settings::{Settings, Split, When};
use cleave_fragment::TableScanExec;
use cleave_fragment::link::AttachMode;
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::row_places::referred_page;
use cleave_plan::split::place_cuts;
use cleave_store::{Projection, SegmentId};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::array::types::UInt64Type;
use datafusion::arrow::datatypes::Schema;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::join_all;

use super::host_cuts::HostCuts;
use super::order_and_split::{ComparedOrders, Divided};
use super::running::has_fragment;
use super::stages::has_far;
use super::statement_context::StatementContext;
use super::{PlannedQuery, ResultNames};
use crate::cooperative::whole_fragment::at_root;

/// Asking takes no less, in seconds: a fragment of its own.
const ASKING_S: f64 = 0.002;
/// The link must be expected to be spared so many times what asking takes.
const GAIN_MIN: f64 = 1.5;

/// A scan of the host whose pages a device filters first.
#[derive(Debug)]
pub(super) struct PageFilter {
    /// The table.
    pub(super) table: String,
    /// Its morsel input.
    input: u32,
    /// Seconds on the link that it is expected to spare, and that it is expected to take.
    pub(super) expected_s: (f64, f64),
    /// Pages that the scan may read, and those that were left.
    pub(super) pages: usize,
    pub(super) pages_left: Option<usize>,
    /// What asks; None once it has.
    query: Option<Box<PlannedQuery>>,
}

impl PageFilter {
    /// Those of `plan`, which has its cuts.
    ///
    /// # Errors
    /// Those of asking devices what they are.
    pub(super) async fn of(
        context: &Arc<StatementContext>,
        state: &Arc<SessionState>,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Vec<Self>> {
        let settings = context.settings();
        let is_forced = settings.page_filter == When::Always;
        let is_chosen =
            is_forced || (settings.split_in_force() == Split::Auto && has_far(context.database()));
        if settings.page_filter == When::Never || settings.pages_only().is_some() || !is_chosen {
            return Ok(Vec::new());
        }
        let mut scans = Vec::new();
        scans_of(plan, &mut scans);
        let mut filters = Vec::new();
        for scan in scans {
            filters.extend(Self::of_scan((context, state), scan, is_forced).await?);
        }
        Ok(filters)
    }

    async fn of_scan(
        (context, state): (&Arc<StatementContext>, &Arc<SessionState>),
        scan: &TableScan,
        is_forced: bool,
    ) -> Result<Option<Self>> {
        let planned = context.input(scan.input)?;
        let pages = planned.input.pages_left();
        // An index knows the rows, and a limit reads few pages.
        let is_whole = planned.input.index.is_none() && planned.input.share_read() >= 1.0;
        if scan.predicate.is_none()
            || scan.references != References::None
            || scan.fetch.is_some()
            || !is_whole
            || pages == 0
            || (pages == 1 && !is_forced)
        {
            return Ok(None);
        }
        for id in planned.input.devices() {
            if context.database().attached(id)?.mode() == AttachMode::Embedded && !is_forced {
                return Ok(None);
            }
        }
        let own = context
            .of_part_before(Settings { page_filter: When::Never, ..at_root(context.settings()) });
        let row_estimate = planned.row_estimate;
        let input = own.add_input(planned.input.as_ref().clone(), row_estimate);
        let output = Projection {
            schema: Arc::new(Schema::empty()),
            columns: Vec::new(),
            absent: scan.output.absent.clone(),
        };
        let references = References::Pages;
        let asking = TableScan { output, references, input, ..scan.clone() };
        let asking = Arc::new(TableScanExec::new(asking, 1));
        let cuts = HostCuts::new(Arc::clone(&own), !is_forced).await?;
        let spared_s = cuts.spared_bytes(&asking) / cuts.link_bytes_per_second();
        if !is_forced && spared_s < GAIN_MIN * ASKING_S {
            return Ok(None);
        }
        // Devices that run no fragments.
        let Ok(placed) = place_cuts(asking, Split::Ndp, !is_forced, &cuts) else {
            return Ok(None);
        };
        let priced = placed.priced.iter().find(|priced| priced.split == Split::Ndp);
        let asking_s = priced.map_or(0.0, |priced| priced.prediction.finish);
        let pays = is_forced || (priced.is_some() && spared_s > GAIN_MIN * asking_s);
        if !pays || !has_fragment(&*placed.plan) {
            return Ok(None);
        }
        let profile = cuts.profile_origin();
        let divided = Divided { cuts: placed, profile, orders: ComparedOrders::default() };
        let how = (Arc::clone(state), ResultNames::default());
        let query = PlannedQuery::of_cuts(own, divided, Split::Ndp, how);
        Ok(Some(Self {
            table: scan.table.clone(),
            input: scan.input,
            expected_s: (spared_s, asking_s),
            pages,
            pages_left: None,
            query: Some(Box::new(query)),
        }))
    }

    /// The pages that have a match; None: nothing that can be relied on.
    async fn ask(&mut self) -> Option<BTreeSet<(SegmentId, u32)>> {
        let mut rows = Box::pin(self.query.take()?.run(false)).await.ok()?;
        let mut found = BTreeSet::new();
        while let Some(batch) = rows.next().await.ok()? {
            let references = batch.columns().first()?.as_primitive_opt::<UInt64Type>()?;
            found.extend(references.values().iter().map(|reference| referred_page(*reference)));
            // Each page once: more than there are is no answer.
            if found.len() > self.pages {
                return None;
            }
        }
        Some(found)
    }
}

/// Asks what `filters` ask, and leaves the pages out that have no match.
pub(super) async fn apply(filters: &mut [PageFilter], context: &StatementContext) {
    join_all(filters.iter_mut().map(async |filter| {
        if let Some(pages) = filter.ask().await {
            filter.pages_left = context.leave_pages(filter.input, &pages);
        }
    }))
    .await;
}

/// The scans that the host runs.
fn scans_of<'a>(plan: &'a Arc<dyn ExecutionPlan>, scans: &mut Vec<&'a TableScan>) {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        scans.push(scan.scan());
    }
    for input in plan.children() {
        scans_of(input, scans);
    }
}
