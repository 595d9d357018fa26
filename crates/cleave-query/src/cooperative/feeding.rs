//! Sends filters to a running fragment: filters that operators above the cut tighten in, commands to the device out.
//!
//! A top-k that merges rows of a fragment, or of a join above it, knows with each batch better which rows it will not
//! keep. Each time rows are asked for, [`Feeding::look`] compares generations, and where one has changed and nothing is
//! under way, sends the present state of all filters of that scan. So at most one command is on its way, and nobody
//! waits for it.
//!
//! Invariant: a filter that is lost, late or refused changes no rows (rule 4), so the outcome is not examined.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cleave_fragment::TableScanExec;
use cleave_fragment::command::{Command, CommandHeader, Request};
use cleave_fragment::expressions::key_set::compact_keys;
use cleave_fragment::fed_filter::{FILTER_BYTES_MAX, encode_filter};
use cleave_fragment::link::Link;
use cleave_plan::split::FragmentScan;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_expr_common::physical_expr::{
    snapshot_generation, snapshot_physical_expr,
};
use datafusion::physical_plan::ExecutionPlan;
use tokio::task::JoinSet;

use cleave_engine::device::Device;

/// The filters that follow one run; see the [module](self).
pub(super) struct Feeding {
    device: Arc<Device>,
    link: Arc<dyn Link>,
    run: CommandHeader,
    scans: Vec<OpenFilters>,
    /// Commands under way; they end with this.
    under_way: JoinSet<()>,
    sent: Arc<AtomicU64>,
}

/// The filters above a scan of a fragment that tighten while it runs.
#[derive(Debug, Clone)]
pub(super) struct OpenFilters {
    scan: TableScanExec,
    pub(super) filters: Vec<Arc<dyn PhysicalExpr>>,
    /// The generation sent last, with the fragment at first.
    generation: u64,
}

impl OpenFilters {
    /// Those of `scan` that are not complete; None where all are. Their present form must be read afterwards: later
    /// changes are sent.
    pub(super) fn of(scan: &FragmentScan) -> Option<Self> {
        let is_open = |filter: &&Arc<dyn PhysicalExpr>| {
            matches!(DynamicFilterTracking::classify(filter), DynamicFilterTracking::Watching(_))
        };
        let filters: Vec<_> = scan.dynamic_filters.iter().filter(is_open).cloned().collect();
        let has_limit = scan.scan.fetch().is_some();
        let generation = generation(&filters);
        let open = Self { scan: scan.scan.clone(), filters, generation };
        (!open.filters.is_empty() && !has_limit).then_some(open)
    }

    /// The input that the scan reads.
    pub(super) fn input(&self) -> u32 {
        self.scan.scan().input
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let now = |filter| compact_keys(snapshot_physical_expr(Arc::clone(filter))?);
        encode_filter(&self.scan, self.filters.iter().map(now).collect::<Result<Vec<_>>>()?)
    }
}

impl Feeding {
    /// For `run` on `device`, whose scans have `open` filters above them.
    pub(super) fn new(
        device: Arc<Device>,
        link: Arc<dyn Link>,
        run: CommandHeader,
        open: &[OpenFilters],
    ) -> Self {
        let sent = Arc::new(AtomicU64::new(0));
        Self { device, link, run, scans: open.to_vec(), under_way: JoinSet::new(), sent }
    }

    /// Another run of the same fragment replaces the one before, and has got none of what was sent.
    pub(super) fn follow(&mut self, run: CommandHeader) {
        self.run = run;
        self.scans.iter_mut().for_each(|scan| scan.generation = 0);
    }

    /// Sends what has changed, unless something is under way.
    pub(super) fn look(&mut self) {
        while self.under_way.try_join_next().is_some() {}
        if !self.under_way.is_empty() {
            return;
        }
        for fed in &mut self.scans {
            // Read first: should a filter change meanwhile, it is looked at once more.
            let now = generation(&fed.filters);
            if now == fed.generation {
                continue;
            }
            fed.generation = now;
            let Ok(filter) = fed.encode() else { continue };
            if filter.len() > FILTER_BYTES_MAX {
                continue;
            }
            let input = fed.input();
            let request = Request::Feed { input, generation: now, filter: filter.into() };
            let header = CommandHeader { run: self.run.run, ..self.device.header() };
            let (link, sent) = (Arc::clone(&self.link), Arc::clone(&self.sent));
            self.under_way.spawn(async move {
                if link.call(Command::new(header, request)).await.is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    /// Filters that the device has taken.
    pub(super) fn sent_count(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Rises whenever one of `filters` changes.
fn generation(filters: &[Arc<dyn PhysicalExpr>]) -> u64 {
    filters.iter().map(snapshot_generation).fold(0, u64::wrapping_add)
}
