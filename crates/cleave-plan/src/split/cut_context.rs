//! The planner's interface to devices and the buffer pool while it places cuts.

use std::sync::Arc;

use cleave_fragment::TableScanExec;
use datafusion_common::Result;
use datafusion_physical_plan::ExecutionPlan;

use super::{CutWeight, FragmentPlan, ScanDivision, When};
use crate::cost::{AskedColumn, CostStrategy, Limits as CostLimits, ScanWork};
use crate::profile::Profile;

/// A device that runs fragments over pages of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanShare {
    /// Its name.
    pub device: String,
    /// Why it runs no fragments over this scan; `None` if it does.
    pub refusal: Option<String>,
}

/// What the planner asks of devices and the buffer pool.
pub trait CutContext {
    /// Which setting of the session forbids fragments altogether; `None` if none does.
    fn pages_only(&self) -> Option<String> {
        None
    }
    /// Whether `auto` leaves no scan to the host that a device can run.
    fn rows_only(&self) -> bool {
        false
    }
    /// Whether the statement names the devices that run fragments: `auto` then leaves no scan to the host, and one that
    /// they cannot run is an error.
    fn is_prescribed(&self) -> bool {
        false
    }
    /// The devices that run fragments over pages of the scan, at least one: those that hold them, unless the statement
    /// names others.
    fn shares(&self, scan: &TableScanExec) -> Vec<ScanShare>;
    /// How values divide the table of `scan` among these devices, each of which runs fragments over all pages that lie
    /// there and no others; None: they do not, or one device has all rows.
    fn division(&self, _scan: &TableScanExec) -> Option<ScanDivision> {
        None
    }
    /// Different values in `column` of the table of `scan`, all rows.
    fn distinct_count(&self, _scan: &TableScanExec, _column: &str) -> Option<f64> {
        None
    }
    /// What a condition on `column` of the table of `scan` takes.
    fn asked(&self, _scan: &TableScanExec, _column: &str) -> AskedColumn {
        AskedColumn::default()
    }
    /// What would cross the link of each of them for `fragment`, in the same order.
    fn weights(&self, fragment: &FragmentPlan) -> Vec<CutWeight>;
    /// Whether joins above cuts send filters of their keys.
    fn key_filters(&self) -> When {
        When::default()
    }
    /// When columns are fetched above the joins that only carry them.
    fn late_materialisation(&self) -> When {
        When::default()
    }
    /// What `scan` reads; its conditions and the rows that they keep are filled in from the plan.
    fn scan_work(&self, scan: &TableScanExec) -> ScanWork;
    /// Rows expected of each operator of `plan`, in preorder.
    fn rows(&self, plan: &Arc<dyn ExecutionPlan>) -> Vec<f64>;
    /// The figures of host, device and link.
    fn profile(&self) -> Profile;
    /// Whether all that the statement reads lies on a device in the host's own process, with its cores and memory.
    fn shares_host(&self) -> bool {
        false
    }
    /// How candidates are compared.
    fn cost_strategy(&self) -> CostStrategy {
        CostStrategy::default()
    }
    /// What both sides have for this statement.
    fn limits(&self) -> CostLimits;
    /// The plan node that runs `fragment` on its devices.
    fn fragment_exec(&self, fragment: FragmentPlan) -> Result<Arc<dyn ExecutionPlan>>;
}
