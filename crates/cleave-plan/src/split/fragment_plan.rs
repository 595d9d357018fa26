//! A fragment as the planner leaves it: operators, scans with the filters that tighten them, and the rows that the host
//! makes for it.

use std::sync::Arc;

use cleave_fragment::TableScanExec;
use datafusion_common::Result;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::ExecutionPlan;

use super::Revisit;
use super::fetch_late::moved;
use super::keys_above::KeysAbove;
use crate::cost::Sharing;

/// A piece of the plan that is to run on a device.
#[derive(Debug, Clone)]
pub struct FragmentPlan {
    /// The operators; their scans name their inputs and have one partition.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The scans in the order in which they are begun: what joins collect first, and last the one that streams. There
    /// is at least one.
    pub scans: Vec<FragmentScan>,
    /// Partitions that the piece had in the host's plan and that its consumers expect.
    pub partition_count: usize,
    /// Whether several partitions of the pipeline may share what streams.
    pub may_run_as_partitions: bool,
    /// Rows after which the consumer needs no more.
    pub fetch: Option<usize>,
    /// For each device that holds pages of the scans, whether it runs the piece over them; else the host does, which
    /// reads these pages. Of several scans there is one device.
    pub on_device: Vec<bool>,
    /// Bytes of a slot in which its rows cross.
    pub slot_bytes: u32,
    /// The rows that the host makes and sends to each of these devices before it begins.
    pub broadcasts: Vec<PlannedBroadcast>,
    /// Rows expected of it, where something was to be priced.
    pub row_estimate: Option<f64>,
    /// The time of each side for it, where both may work on it at the same time ([`may_share`](super::may_share)) and
    /// the statement's limits allow it.
    pub sharing: Option<Sharing>,
    /// The same where they may not, and the host may take it back as a whole before its first row.
    pub recall: Option<Sharing>,
    /// Decides again by actual figures which side runs it: only under `auto`, with one device.
    pub revisit: Option<Revisit>,
}

/// Rows that the host makes for a fragment.
#[derive(Debug, Clone)]
pub struct PlannedBroadcast {
    /// The number by which the fragment names them, of all those of the statement.
    pub input: u32,
    /// The host's plan, of one or several partitions.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Bytes expected, where something was to be priced.
    pub byte_estimate: Option<f64>,
}

/// A scan of a fragment.
#[derive(Debug, Clone)]
pub struct FragmentScan {
    /// The scan.
    pub scan: TableScanExec,
    /// Filters over the scan's output that operators above the cut still tighten.
    pub dynamic_filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Share of the scan's rows that they are expected to keep; `None`: nothing is known of them.
    pub filters_keep: Option<f64>,
    /// Keys of joins above the cut that may go down as filters.
    pub keys_above: Vec<KeysAbove>,
}

impl FragmentScan {
    /// The scan returns only the columns `kept`, among which are all that filters read, and references.
    pub(super) fn refer(&mut self, kept: &[usize]) -> Result<()> {
        let columns = 0..self.scan.scan().output.columns.len();
        let map: Vec<Option<usize>> =
            columns.map(|column| kept.iter().position(|kept| *kept == column)).collect();
        let mut all = Vec::new();
        for filter in self.scan.dynamic_filters() {
            let now = moved(filter, &map)?;
            for outer in &mut self.dynamic_filters {
                if Arc::ptr_eq(outer, filter) {
                    *outer = Arc::clone(&now);
                }
            }
            all.push(now);
        }
        self.scan = self.scan.referring(kept).with_dynamic_filters(all);
        Ok(())
    }

    /// Filters over the scan's output that joins below the cut tighten.
    pub fn inner_filters(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        let is_outer = |filter: &Arc<dyn PhysicalExpr>| {
            self.dynamic_filters.iter().any(|outer| Arc::ptr_eq(outer, filter))
        };
        self.scan.dynamic_filters().iter().filter(|filter| !is_outer(filter)).cloned().collect()
    }
}

impl FragmentPlan {
    /// Names of the tables that it reads, in the order of the scans.
    pub fn tables(&self) -> String {
        let names = self.scans.iter().map(|scan| scan.scan.scan().table.as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    /// All filters that operators above the cut still tighten.
    pub fn dynamic_filters(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        self.scans.iter().flat_map(|scan| &scan.dynamic_filters)
    }
}
