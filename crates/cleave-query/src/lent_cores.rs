//! How much other engines of a device's node do of its runs, as the reports of the last ones have it, for the price of
//! the next one.
//!
//! It is a moving average that begins at nothing: a device is predicted to be helped half as much as its first run was.
//! Reports show what siblings are idle for, whoever uses them; so no device is asked what it could lend.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cleave_catalog::catalog::DeviceId;
use cleave_fragment::command::RunReport;

/// Morsels for each own partition of a run that is long enough to be helped; as devices have it.
const MORSELS_TO_LEND: u64 = 4;

/// Shares of the morsels of long runs that others took, by device.
#[derive(Debug, Default)]
pub(crate) struct LentCores {
    shares: Mutex<BTreeMap<DeviceId, f64>>,
}

impl LentCores {
    /// The share of the morsels of a long run of `device` that others are expected to take, below 1.
    pub(crate) fn share(&self, device: DeviceId) -> f64 {
        let shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.get(&device).copied().unwrap_or(0.0)
    }

    /// A run of `device` that others might have helped has ended with `report`.
    pub(crate) fn note_run(&self, device: DeviceId, report: &RunReport) {
        let RunReport { lent, morsels, partitions, .. } = report;
        if *morsels < u64::from((*partitions).max(1)).saturating_mul(MORSELS_TO_LEND) {
            return;
        }
        let seen = *lent as f64 / *morsels as f64;
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.entry(device).or_default();
        *share = f64::midpoint(*share, seen.min(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_long_runs_count() {
        let (lent, device) = (LentCores::default(), DeviceId(3));
        let run = |morsels, lent, partitions| RunReport {
            morsels,
            lent,
            partitions,
            ..RunReport::default()
        };
        lent.note_run(device, &run(3, 2, 1));
        assert!(lent.share(device).abs() < 1e-9, "too short to be helped");
        lent.note_run(device, &run(40, 20, 2));
        assert!((lent.share(device) - 0.25).abs() < 1e-9);
        (0..9).for_each(|_| lent.note_run(device, &run(40, 20, 2)));
        assert!((lent.share(device) - 0.5).abs() < 1e-3);
        assert!(lent.share(DeviceId(4)).abs() < 1e-9);
        (0..9).for_each(|_| lent.note_run(device, &run(40, 0, 2)));
        assert!(lent.share(device) < 1e-3, "they have work of their own");
    }
}
