//! What those see of a run who look on, where the host waits for several runs at once: when it waited for any of them,
//! and what came of this one. Waits in, a [`HostTimeline`] out.
//!
//! Invariant: a run that has ended is not waited for any more.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use cleave_media::Stopwatch;

use super::figures::{HostTimeline, LiveTimeline};

/// See the [module](self).
pub(super) struct ShownWait {
    timeline: LiveTimeline,
    /// Since the run was asked for.
    clock: Stopwatch,
    /// Since when the host waits.
    since: Duration,
    /// Bytes of slots that are in the timeline.
    slot_bytes: u64,
    has_ended: bool,
}

impl ShownWait {
    /// That of a run which is going to be asked for.
    pub(super) fn begin() -> Self {
        Self {
            timeline: LiveTimeline::default(),
            clock: Stopwatch::start(),
            since: Duration::ZERO,
            slot_bytes: 0,
            has_ended: false,
        }
    }

    /// What it is up to the last event.
    pub(super) fn timeline(&self) -> &LiveTimeline {
        &self.timeline
    }

    /// The host begins to wait.
    pub(super) fn waits(&mut self) {
        self.since = self.clock.elapsed();
    }

    /// It has waited until now, for this run or another one.
    pub(super) fn has_waited(&self) {
        if !self.has_ended {
            self.seen().waited.add_span(self.since, self.clock.elapsed());
        }
    }

    /// So many rows have come, with which it has given so many bytes of slots in all.
    pub(super) fn came(&mut self, rows: usize, slot_bytes: u64) {
        let came = slot_bytes.saturating_sub(std::mem::replace(&mut self.slot_bytes, slot_bytes));
        let now = self.clock.elapsed();
        let mut seen = self.seen();
        seen.arrived.add(now, came);
        seen.rows += rows as u64;
    }

    /// The run has ended; returns all that was seen of it.
    pub(super) fn ended(&mut self) -> HostTimeline {
        self.has_ended = true;
        self.seen().clone()
    }

    fn seen(&self) -> MutexGuard<'_, HostTimeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
