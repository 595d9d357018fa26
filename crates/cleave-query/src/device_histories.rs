//! What the host knows of the filter histories of devices behind links: of how many pages each has a leaf, as the
//! reports of its last runs have it. So planning asks no device.
//!
//! It is a guess: a device may have evicted what it had, or been started again. The next run's report corrects it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_catalog::catalog::DeviceId;
use cleave_fragment::TableScanExec;
use cleave_fragment::command::RunReport;
use cleave_fragment::filter_history::{Formula, HistoryCounts, LeafKey};
use datafusion::physical_plan::ExecutionPlan;

/// Most leaves that are remembered, of all devices; then all are forgotten.
const LEAVES_MAX: usize = 1024;

/// Pages of which devices know leaves.
#[derive(Default)]
pub(crate) struct DeviceHistories {
    known: Mutex<HashMap<(DeviceId, LeafKey), u64>>,
}

impl DeviceHistories {
    /// Whether nothing is known of any device.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Pages of which `device` knows all leaves of `formulas`.
    pub(crate) fn pages(&self, device: DeviceId, formulas: &[Formula]) -> u64 {
        let known = self.lock();
        let leaves = formulas.iter().flat_map(Formula::leaves);
        let pages = leaves.map(|leaf| known.get(&(device, leaf.key.clone())).copied().unwrap_or(0));
        pages.min().unwrap_or(0)
    }

    /// A run of `plan` on `device` has ended with `report`; `pages` tells the pages that it had of an input.
    pub(crate) fn note_run(
        &self,
        device: DeviceId,
        (plan, report): (&Arc<dyn ExecutionPlan>, &RunReport),
        pages: impl Fn(u32) -> u64,
    ) {
        // In preorder, as the report numbers operators.
        let (mut nodes, mut number) = (vec![plan], 0);
        while let Some(node) = nodes.pop() {
            if let Some(scan) = node.downcast_ref::<TableScanExec>().map(TableScanExec::scan)
                && let Some(formulas) = scan.formulas()
            {
                let metrics = report.operators.iter().filter(|metric| metric.node == number);
                let metrics = metrics.map(|metric| (metric.name.as_str(), metric.value));
                let counts = HistoryCounts::of_metrics(metrics).unwrap_or_default();
                let known = counts.unread + counts.answered + counts.noted;
                self.note(device, &formulas, known, pages(scan.input));
            }
            number += 1;
            nodes.extend(node.children().into_iter().rev());
        }
    }

    /// Of the `page_count` pages of a run, `device` knows all leaves of `formulas` on `known`.
    fn note(&self, device: DeviceId, formulas: &[Formula], known: u64, page_count: u64) {
        let mut all = self.lock();
        for leaf in formulas.iter().flat_map(Formula::leaves) {
            let key = (device, leaf.key.clone());
            let before = all.get(&key).copied().unwrap_or(0);
            // A run over a few pages tells nothing of the others, unless it finds that the device has forgotten some.
            let pages = if known < page_count { known } else { known.max(before) };
            if pages == 0 {
                all.remove(&key);
                continue;
            }
            if before == 0 && all.len() >= LEAVES_MAX {
                all.clear();
            }
            all.insert(key, pages);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(DeviceId, LeafKey), u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DeviceHistories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceHistories").field("leaves", &self.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests;
