//! The memory budget of one run's operators: a memory pool for DataFusion with a limit, a high-water mark, and errors
//! that give the figures.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion_common::{DataFusionError, Result};
use datafusion_execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};

/// The budget of one run.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl MemoryBudget {
    /// A budget of `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, used_bytes: AtomicUsize::new(0), peak_bytes: AtomicUsize::new(0) }
    }

    /// Its bytes.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// The high-water mark.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    fn saw(&self, used_bytes: usize) {
        self.peak_bytes.fetch_max(used_bytes, Ordering::Relaxed);
    }
}

impl MemoryPool for MemoryBudget {
    fn name(&self) -> &'static str {
        "fragment memory"
    }

    fn grow(&self, _reservation: &MemoryReservation, additional: usize) {
        self.saw(
            self.used_bytes.fetch_add(additional, Ordering::Relaxed).saturating_add(additional),
        );
    }

    fn shrink(&self, _reservation: &MemoryReservation, shrink: usize) {
        self.used_bytes.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let grown =
            |used: usize| used.checked_add(additional).filter(|sum| *sum <= self.limit_bytes);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(before) => {
                self.saw(before.saturating_add(additional));
                Ok(())
            }
            Err(used) => Err(DataFusionError::ResourcesExhausted(format!(
                "{} asks for {additional} bytes more; {used} of the fragment's {} are in use",
                reservation.consumer().name(),
                self.limit_bytes,
            ))),
        }
    }

    fn reserved(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit_bytes)
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {} bytes", self.name(), self.reserved(), self.limit_bytes)
    }
}

#[cfg(test)]
mod tests;
