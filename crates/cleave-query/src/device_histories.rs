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
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By device and table, none of them empty.
    pages: HashMap<(DeviceId, u32), HashMap<LeafKey, u64>>,
    /// Leaves of all of them.
    count: usize,
}

impl DeviceHistories {
    /// Whether `device` knows a leaf of the table `table_id`.
    pub(crate) fn may_know(&self, device: DeviceId, table_id: u32) -> bool {
        self.lock().pages.contains_key(&(device, table_id))
    }

    /// Pages of which `device` knows all leaves of `formulas`.
    pub(crate) fn pages(&self, device: DeviceId, formulas: &[Formula]) -> u64 {
        let known = self.lock();
        let leaves = formulas.iter().flat_map(Formula::leaves);
        leaves.map(|leaf| known.pages_of(device, &leaf.key)).min().unwrap_or(0)
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
            if let Some(scan) = node.downcast_ref::<TableScanExec>().map(TableScanExec::scan) {
                let metrics = report.operators.iter().filter(|metric| metric.node == number);
                let metrics = metrics.map(|metric| (metric.name.as_str(), metric.value));
                let counts = HistoryCounts::of_metrics(metrics).unwrap_or_default();
                let known = counts.unread + counts.answered + counts.noted;
                // Most runs are of conditions that come once.
                if (known > 0 || self.may_know(device, scan.table_id))
                    && let Some(formulas) = scan.formulas()
                {
                    self.note(device, &formulas, known, pages(scan.input));
                }
            }
            number += 1;
            nodes.extend(node.children().into_iter().rev());
        }
    }

    /// Of the `page_count` pages of a run, `device` knows all leaves of `formulas` on `known`.
    fn note(&self, device: DeviceId, formulas: &[Formula], known: u64, page_count: u64) {
        let mut all = self.lock();
        for leaf in formulas.iter().flat_map(Formula::leaves) {
            let before = all.pages_of(device, &leaf.key);
            // A run over a few pages tells nothing of the others, unless it finds that the device has forgotten some.
            let pages = if known < page_count { known } else { known.max(before) };
            all.set(device, &leaf.key, pages);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Pages of which `device` knows the leaf `key`.
    fn pages_of(&self, device: DeviceId, key: &LeafKey) -> u64 {
        let of_table = self.pages.get(&(device, key.table_id));
        of_table.and_then(|pages| pages.get(key)).copied().unwrap_or(0)
    }

    fn set(&mut self, device: DeviceId, key: &LeafKey, pages: u64) {
        let of = (device, key.table_id);
        if pages == 0 {
            let Some(of_table) = self.pages.get_mut(&of) else { return };
            self.count -= usize::from(of_table.remove(key).is_some());
            if of_table.is_empty() {
                self.pages.remove(&of);
            }
            return;
        }
        if let Some(known) = self.pages.get_mut(&of).and_then(|of_table| of_table.get_mut(key)) {
            *known = pages;
            return;
        }
        if self.count >= LEAVES_MAX {
            *self = Self::default();
        }
        self.pages.entry(of).or_default().insert(key.clone(), pages);
        self.count += 1;
    }
}

impl fmt::Debug for DeviceHistories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceHistories").field("leaves", &self.lock().count).finish()
    }
}

#[cfg(test)]
mod tests;
