//! What went wrong with a device since the database was opened: counts for those who watch it.
//!
//! 1. Fragments that it refused, and runs that were lost: with their link, by a restart, or because what came of them
//!    was damaged. Whether they were made again elsewhere or the statement failed, [`Device::note_run_failure`] counts
//!    them.
//! 2. Connections that broke, and attempts to connect that failed, or took longer than a statement waits. Links
//!    connect again by themselves, so that statements may notice nothing of it: the links count.
//!
//! Invariant: they count only, and decide nothing. What is a statement's fault, such as a division by zero, is not
//! counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cleave_fragment::command::DeviceErrorCause;
use cleave_fragment::link::{Link, LinkError};

use super::Device;

/// The counts, as they grow.
#[derive(Debug, Default)]
pub(super) struct Faults {
    refused: AtomicU64,
    lost: AtomicU64,
    corrupt: AtomicU64,
}

/// What went wrong with a device since the database was opened. A mirror has no links of its own: its copies have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounts {
    /// Fragments that it refused.
    pub fragments_refused: u64,
    /// Runs of fragments that were lost.
    pub fragments_lost: u64,
    /// Messages with rows that failed their checksum.
    pub messages_corrupt: u64,
    /// Connections that broke.
    pub connections_lost: u64,
    /// Attempts to connect that failed.
    pub connects_failed: u64,
}

impl Faults {
    fn note(&self, error: &LinkError) {
        let count = if error.is_refusal() {
            &self.refused
        } else if is_loss(error) {
            &self.lost
        } else {
            return;
        };
        count.fetch_add(1, Ordering::Relaxed);
        if matches!(error, LinkError::Corrupt { .. }) {
            self.corrupt.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether a run that ended with `error` was lost.
fn is_loss(error: &LinkError) -> bool {
    use DeviceErrorCause::{
        Cancelled, Corrupt, Io, NotClaimed, OtherDatabase, StaleEpoch, UnknownRun,
    };
    let is_gone = |cause| {
        matches!(
            cause,
            Cancelled | Corrupt | Io | NotClaimed | OtherDatabase | StaleEpoch | UnknownRun
        )
    };
    match error.device_error() {
        Some(error) => is_gone(error.cause),
        None => matches!(
            error,
            LinkError::Lost { .. } | LinkError::Corrupt { .. } | LinkError::Protocol { .. }
        ),
    }
}

impl Device {
    /// Counts a run here that ended with `error`, or did not begin.
    pub fn note_run_failure(&self, error: &LinkError) {
        self.faults.note(error);
    }

    /// What went wrong with it since the database was opened.
    pub fn fault_counts(&self) -> FaultCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FaultCounts {
            fragments_refused: read(&self.faults.refused),
            fragments_lost: read(&self.faults.lost),
            messages_corrupt: read(&self.faults.corrupt),
            connections_lost: self.abandoned.broken_count(),
            connects_failed: self.abandoned.failed_count(),
        }
    }

    /// Forgets `link` where `error` says that it no longer leads to this incarnation's device.
    pub async fn forget_if_useless(&self, link: &Arc<dyn Link>, error: &LinkError) {
        use DeviceErrorCause::{NotClaimed, OtherDatabase, StaleEpoch};
        let is_ours = error
            .device_error()
            .is_none_or(|error| !matches!(error.cause, NotClaimed | OtherDatabase | StaleEpoch));
        if error.is_unreachable() || !is_ours {
            self.forget(link).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use cleave_fragment::command::DeviceError;

    use super::*;

    #[test]
    fn losses_and_refusals_are_counted_and_no_fault_of_a_statement() {
        let of = |cause| LinkError::Device {
            device: "nas".to_owned(),
            source: DeviceError::new(cause, "no"),
        };
        let lost = || LinkError::Lost { address: "nas:1".to_owned(), detail: "gone".to_owned() };
        let corrupt = LinkError::Corrupt { device: "nas".to_owned(), what: "slot 3".to_owned() };
        let faults = Faults::default();
        for error in [
            of(DeviceErrorCause::OutOfMemory),
            of(DeviceErrorCause::Unsupported),
            of(DeviceErrorCause::UnknownRun),
            lost(),
            corrupt,
            of(DeviceErrorCause::DivideByZero),
            of(DeviceErrorCause::LockTimeout),
        ] {
            faults.note(&error);
        }
        let read = [&faults.refused, &faults.lost, &faults.corrupt];
        assert_eq!(read.map(|count| count.load(Ordering::Relaxed)), [2, 3, 1]);
    }
}
