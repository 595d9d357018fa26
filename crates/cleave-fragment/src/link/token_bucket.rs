//! Limits the rate of a link: bytes in, the delay before they count as crossed out.
//!
//! Invariant: this serves only caps that a user set (demos, quotas, tests). Over any stretch longer than [`BURST`], the
//! bytes that pass are at most the rate times the stretch plus one burst; nothing is delayed beyond what the rate asks
//! for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_media::{Clock, SystemClock};

use crate::waiting::sleep;

/// How far a link that was idle, or whose timer fired late, may exceed its rate.
pub const BURST: Duration = Duration::from_millis(10);

/// A rate limit of one direction.
#[derive(Debug)]
pub struct TokenBucket {
    bytes_per_second: u64,
    clock: Arc<dyn Clock>,
    /// When all reserved bytes will have crossed.
    free_at: Mutex<Duration>,
}

impl TokenBucket {
    /// A bucket that lets `bytes_per_second` pass (at least 1), timed by `clock`.
    pub fn new(bytes_per_second: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            clock,
            free_at: Mutex::new(Duration::ZERO),
        }
    }

    /// Enters `bytes` and returns how long to wait until they have crossed at this rate.
    pub fn reserve(&self, bytes: u64) -> Duration {
        let now = self.clock.now();
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = (*free_at).max(now.saturating_sub(BURST));
        *free_at = begin.saturating_add(self.time_for(bytes));
        free_at.saturating_sub(now)
    }

    fn time_for(&self, bytes: u64) -> Duration {
        let seconds = bytes / self.bytes_per_second;
        let rest = u128::from(bytes % self.bytes_per_second) * 1_000_000_000;
        let nanos = rest / u128::from(self.bytes_per_second);
        Duration::new(seconds, u32::try_from(nanos).unwrap_or(0))
    }
}

/// A rate limit of both directions of a link, each on its own, as in full-duplex Ethernet.
#[derive(Debug)]
pub struct RateCap {
    send: TokenBucket,
    receive: TokenBucket,
}

impl RateCap {
    /// A cap of `bytes_per_second` in each direction.
    pub fn new(bytes_per_second: u64) -> Arc<Self> {
        let bucket = || TokenBucket::new(bytes_per_second, Arc::new(SystemClock));
        Arc::new(Self { send: bucket(), receive: bucket() })
    }

    /// The bucket for sending.
    pub fn sending(&self) -> &TokenBucket {
        &self.send
    }

    /// The bucket for receiving.
    pub fn receiving(&self) -> &TokenBucket {
        &self.receive
    }

    /// Waits until `bytes` sent have crossed.
    pub async fn send(&self, bytes: u64) {
        wait(self.send.reserve(bytes)).await;
    }

    /// Waits until `bytes` received have crossed.
    pub async fn receive(&self, bytes: u64) {
        wait(self.receive.reserve(bytes)).await;
    }
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

#[cfg(test)]
mod tests;
