//! The device's span of a run: from its request until nothing works for it any more, with what it has measured.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cleave_fragment::command::{DeviceError, DeviceErrorCause, RunReport};
use cleave_fragment::trace::OpenSpan;

/// The attribute of a run that nobody wants more of.
const GIVEN_UP: &str = "cleave.fragment.given_up";

/// The span of one run; none where nobody traces.
#[derive(Debug, Default)]
pub(super) struct RunSpan(Option<Mutex<Option<OpenSpan>>>);

impl RunSpan {
    /// `span`, of a run on `device`.
    pub(super) fn of(span: Option<OpenSpan>, device: [u8; 16]) -> Self {
        Self(span.map(|mut span| {
            let id: String = device.iter().map(|byte| format!("{byte:02x}")).collect();
            span.set("cleave.device.id", id);
            Mutex::new(Some(span))
        }))
    }

    /// The run has its memory: it has waited until now.
    pub(super) fn was_admitted(&self) {
        if let Some(span) = self.lock().as_deref_mut().and_then(Option::as_mut) {
            let waited = span.elapsed();
            span.set_ms("cleave.fragment.queued_ms", waited);
        }
    }

    /// The run has ended. A second end says nothing.
    pub(super) fn end(&self, outcome: Result<&RunReport, &DeviceError>) {
        let Some(mut span) = self.lock().as_deref_mut().and_then(Option::take) else { return };
        match outcome {
            Ok(report) => {
                span.set_ms("cleave.fragment.run_ms", report.wall);
                span.set_ms("cleave.fragment.cpu_ms", report.cpu);
                span.set_ms("cleave.fragment.stalled_ms", report.stall);
                span.set("cleave.fragment.rows", report.rows);
                span.set("cleave.fragment.rows_scanned", report.rows_scanned);
                span.set("cleave.fragment.morsels", report.morsels);
                span.set("cleave.fragment.pages_read", report.pages_read);
                span.set("cleave.fragment.media_bytes", report.media_bytes);
                span.set("cleave.fragment.slot_bytes", report.slot_bytes);
                span.set("cleave.fragment.peak_memory_bytes", report.peak_memory_bytes);
                span.set("cleave.fragment.partitions", u64::from(report.partitions));
            }
            // As of a run whose host wants no more rows.
            Err(error) if error.cause == DeviceErrorCause::Cancelled => {
                span.set(GIVEN_UP, true);
            }
            Err(error) => {
                // Its text may have constants.
                let kind = format!("{:?}", error.cause);
                span.set("error.type", kind.clone());
                span.fail(kind);
            }
        }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Option<OpenSpan>>> {
        self.0.as_ref().map(|span| span.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for RunSpan {
    /// A run that has not come to its end, as where its device ends, must not look like one that has.
    fn drop(&mut self) {
        if let Some(span) = self.lock().as_deref_mut().and_then(Option::as_mut) {
            span.set(GIVEN_UP, true);
        }
    }
}
