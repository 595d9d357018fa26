//! What the filter histories of host and device spare a scan, for its price.
//!
//! The host looks at a few pages of its own history, which is also the embedded device's. What it knows of other
//! devices is what their [last runs](crate::device_histories) reported; none is asked. Where nothing is kept of the
//! table, nothing is done.
//!
//! A side that has evaluated a condition gets cheaper for it, and the other one does not. So a statement that comes
//! again stays where it was, or moves once, and does not come back.

use cleave_catalog::catalog::DeviceId;
use cleave_fragment::filter_history::{Formula, HistoryMode};
use cleave_fragment::link::AttachMode;
use cleave_fragment::operators::table_scan_exec::TableScan;
use cleave_plan::cost::KnownPages;

use super::{HostCuts, PlannedInput, StatementInput};

/// A scan of fewer pages costs little, whatever is known.
const PAGES_MIN: usize = 4;
/// Pages of which the host's history is asked.
const PAGES_ASKED: usize = 16;
/// What is known of a smaller share of the pages counts as nothing.
const SHARE_MIN: f64 = 0.75;

/// The pages whose conditions each side knows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// The host.
    pub(super) on_host: KnownOn,
    /// The device that knows least.
    pub(super) on_device: KnownOn,
}

/// The same of one side.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownOn {
    /// Share of the pages.
    pub(super) share: f64,
    /// Share of these with a row left; None: not known.
    read: Option<f64>,
}

impl HostCuts {
    /// What is known of the conditions of `scan` on the pages of `planned`, whose parts on devices are `parts`.
    pub(super) fn known_pages(
        &self,
        scan: &TableScan,
        planned: &StatementInput,
        parts: &[(DeviceId, PlannedInput)],
    ) -> Known {
        let input = &planned.input;
        if scan.predicate.is_none()
            || input.index.is_some()
            || input.pages_left() < PAGES_MIN
            || self.context.settings().history_mode() == HistoryMode::Off
        {
            return Known::default();
        }
        let database = self.context.database();
        let (history, devices) = (database.filter_history(), &database.device_histories);
        let is_known_here = history.may_know(scan.table_id);
        let is_known_there = || parts.iter().any(|(id, _)| devices.may_know(*id, scan.table_id));
        if !is_known_here && !is_known_there() {
            return Known::default();
        }
        let Some(formulas) = scan.formulas() else { return Known::default() };
        let on_host = match is_known_here {
            true => {
                let count = history.foresee(&formulas, input.spread_pages(PAGES_ASKED));
                let known = f64::from(count.known);
                let read = (count.known > 0).then(|| f64::from(count.left) / known);
                KnownOn { share: known / f64::from(count.asked.max(1)), read }.if_enough()
            }
            false => KnownOn::default(),
        };
        let of_devices =
            parts.iter().map(|(id, part)| self.known_on(*id, part, &formulas, on_host));
        let least = of_devices.min_by(|one, other| one.share.total_cmp(&other.share));
        Known { on_host, on_device: least.unwrap_or_default() }
    }

    /// What the device `id` knows of `part`.
    fn known_on(
        &self,
        id: DeviceId,
        part: &PlannedInput,
        formulas: &[Formula],
        on_host: KnownOn,
    ) -> KnownOn {
        if self.devices.get(&id).is_some_and(|facts| facts.mode == AttachMode::Embedded) {
            return on_host;
        }
        let pages = self.context.database().device_histories.pages(id, formulas) as f64;
        let share = (pages / part.pages_left().max(1) as f64).min(1.0);
        KnownOn { share, read: None }.if_enough()
    }

    /// What `known` spares of `scan`, which reads `chunk_bytes` where nothing is known.
    pub(super) fn priced(
        &self,
        known: &KnownOn,
        scan: &TableScan,
        planned: &StatementInput,
        chunk_bytes: f64,
    ) -> KnownPages {
        if known.share <= 0.0 {
            return KnownPages::default();
        }
        let input = &planned.input;
        let pages = input.pages_left().max(1) as f64;
        // Rows are taken to lie at random.
        let read = known.read.unwrap_or_else(|| 1.0 - (-planned.row_estimate / pages).exp());
        let (by_row, by_byte) = self.column_bytes(input, &scan.output.columns);
        let output_bytes = input.entries().map(|(_, entry)| {
            let page = &entry.page;
            by_row * f64::from(page.row_count) + by_byte * page.extent.bytes() as f64
        });
        let bytes = (read * output_bytes.sum::<f64>() / chunk_bytes.max(1.0)).min(1.0);
        KnownPages { share: known.share, read, bytes }
    }
}

impl KnownOn {
    fn if_enough(self) -> Self {
        if self.share < SHARE_MIN { Self::default() } else { self }
    }
}
