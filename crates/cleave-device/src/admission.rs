//! Admission of runs: the bytes of all runs together stay within the device's memory for fragments.
//!
//! A run that can never fit is refused at once. One that does not fit now waits in a first-come, first-served queue,
//! for a bounded time: a host may be holding one run open until the next one has begun, so an unbounded queue could
//! wait for itself.

use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::command::{DeviceError, DeviceErrorCause};
use cleave_fragment::waiting::timeout;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit.
const GRANULE_BYTES: u64 = 4096;

/// The memory for fragments.
#[derive(Debug)]
pub(crate) struct Admission {
    granules: Arc<Semaphore>,
    total: u32,
    wait: Duration,
}

/// Memory that a run holds until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    _granules: OwnedSemaphorePermit,
}

impl Admitted {
    /// Splits `bytes` off, to be held separately.
    pub(crate) fn split(&mut self, bytes: u64) -> Option<Self> {
        let granules = usize::try_from(bytes.div_ceil(GRANULE_BYTES)).ok()?;
        self._granules.split(granules).map(|granules| Self { _granules: granules })
    }
}

impl Admission {
    /// `total_bytes` for all runs; a run that does not fit waits for at most `wait`.
    pub(crate) fn new(total_bytes: u64, wait: Duration) -> Self {
        let total = u32::try_from(total_bytes / GRANULE_BYTES).unwrap_or(u32::MAX);
        Self { granules: Arc::new(Semaphore::new(total as usize)), total, wait }
    }

    /// Total bytes.
    pub(crate) fn total_bytes(&self) -> u64 {
        u64::from(self.total) * GRANULE_BYTES
    }

    /// Bytes that no run holds.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.granules.available_permits() as u64 * GRANULE_BYTES
    }

    /// Whether `bytes` would be admitted without waiting.
    pub(crate) fn fits_now(&self, bytes: u64) -> bool {
        bytes <= self.free_bytes()
    }

    /// Reserves `bytes`, waiting if necessary.
    pub(crate) async fn admit(&self, bytes: u64) -> Result<Admitted, DeviceError> {
        let granules = u32::try_from(bytes.div_ceil(GRANULE_BYTES)).unwrap_or(u32::MAX);
        if granules > self.total {
            return Err(self.does_not_fit(bytes, "which is more than the device has"));
        }
        let permit = Arc::clone(&self.granules).acquire_many_owned(granules);
        match timeout(self.wait, permit).await {
            Some(Ok(permit)) => Ok(Admitted { _granules: permit }),
            _ => Err(self.does_not_fit(bytes, "and other runs did not end in time")),
        }
    }

    fn does_not_fit(&self, bytes: u64, why: &str) -> DeviceError {
        DeviceError::new(
            DeviceErrorCause::OutOfMemory,
            format!(
                "the fragment asks for {bytes} bytes, {why}: {} of {} bytes for fragments are free",
                self.free_bytes(),
                self.total_bytes(),
            ),
        )
    }
}

#[cfg(test)]
mod tests;
