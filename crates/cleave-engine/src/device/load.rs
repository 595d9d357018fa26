//! How busy a device is, and whether it has been late: by these the host chooses among the copies of a mirror.
//!
//! 1. What the host has under way there is counted: reads of pages, and fragments. The device tells how many morsels
//!    wait there with its status, whoever asks for that; this counts for [`TOLD_FOR`].
//! 2. A copy that was late, while another one was asked, is asked last for [`LATE_FOR`].
//! 3. How long its reads take as a rule says how long one is waited for before another copy is asked beside it.
//!
//! All of this is a guess, and changes no row.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_fragment::command::DeviceStatus;
use cleave_fragment::waiting;
use cleave_media::{Clock, SystemClock};

use super::Device;

/// How long the queue counts that a device has told.
const TOLD_FOR: Duration = Duration::from_secs(1);
/// How long a copy that was late is asked last.
const LATE_FOR: Duration = Duration::from_secs(5);
/// The longest and the shortest wait for one copy alone.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(1);
const WAIT_MIN: Duration = Duration::from_millis(100);
/// The wait as a multiple of the time that reads take as a rule.
const WAIT_SHARE: u32 = 8;
/// How many reads count for that, about.
const READ_COUNT: u32 = 8;
/// Pause before a device that is waited for is asked whether it answers at all.
const LOOK_PAUSE: Duration = Duration::from_millis(300);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Load {
    under_way: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The queue, and when it was told.
    queue: Option<(u64, Duration)>,
    late: Option<Duration>,
    /// How long a read takes.
    read: Option<Duration>,
}

/// Something that the host has under way on a device, until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<Load>);

impl Load {
    fn known<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        with(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same `status`, which the device has told just now.
    pub(super) fn told(&self, status: DeviceStatus) -> DeviceStatus {
        let told = (status.queue, SystemClock.now());
        self.known(|known| known.queue = Some(told));
        status
    }

    /// What waits there, or is under way: the less, the sooner it will answer.
    pub(super) fn count(&self) -> u64 {
        let now = SystemClock.now();
        let is_new = |told: &Duration| now.saturating_sub(*told) < TOLD_FOR;
        let queue = self.known(|known| known.queue).filter(|(_, told)| is_new(told));
        let queue = queue.map_or(0, |(queue, _)| queue);
        self.under_way.load(Ordering::Relaxed).saturating_add(queue)
    }

    pub(super) fn note_late(&self) {
        self.known(|known| known.late = Some(SystemClock.now()));
    }

    pub(super) fn is_late(&self) -> bool {
        let now = SystemClock.now();
        self.known(|known| known.late.is_some_and(|late| now.saturating_sub(late) < LATE_FOR))
    }

    /// Notes that pages have come within `time`.
    pub(super) fn note_read(&self, time: Duration) {
        self.known(|known| {
            let before = known.read.unwrap_or(time);
            let sum = before.saturating_mul(READ_COUNT - 1).saturating_add(time);
            known.read = Some(sum / READ_COUNT);
        });
    }

    /// How long pages are waited for there alone.
    pub(super) fn patience(&self) -> Duration {
        let read = self.known(|known| known.read);
        read.map_or(WAIT_MAX, |read| read.saturating_mul(WAIT_SHARE).clamp(WAIT_MIN, WAIT_MAX))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Device {
    /// Notes that the host has something under way there.
    pub fn busy(&self) -> Busy {
        self.load.under_way.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(&self.load))
    }

    /// Ends once the device does not answer at all: for something that takes long without anything being wrong, such
    /// as a fragment. It is not asked at first.
    pub async fn falls_silent(&self) {
        loop {
            waiting::sleep(LOOK_PAUSE).await;
            // One that is lost says so by itself.
            if waiting::timeout(WAIT_MAX, Box::pin(self.status())).await.is_none() {
                self.load.note_late();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! What a device counts for, and how long it is waited for.

    use super::*;

    #[test]
    fn what_is_under_way_counts_and_lateness_passes_on() {
        let load = Arc::new(Load::default());
        load.under_way.fetch_add(2, Ordering::Relaxed);
        let busy = Busy(Arc::clone(&load));
        assert_eq!(load.count(), 2);
        load.known(|known| known.queue = Some((5, SystemClock.now())));
        assert_eq!(load.count(), 7);
        drop(busy);
        let long_ago = SystemClock.now().saturating_sub(TOLD_FOR);
        load.known(|known| known.queue = Some((5, long_ago)));
        assert_eq!(load.count(), 1);
        assert!(!load.is_late());
        load.note_late();
        assert!(load.is_late());
    }

    #[test]
    fn the_wait_follows_the_reads() {
        let load = Load::default();
        assert_eq!(load.patience(), WAIT_MAX);
        load.note_read(Duration::from_millis(25));
        assert_eq!(load.patience(), Duration::from_millis(200));
        load.note_read(Duration::from_secs(60));
        assert_eq!(load.patience(), WAIT_MAX);
        for _ in 0..200 {
            load.note_read(Duration::from_micros(10));
        }
        assert_eq!(load.patience(), WAIT_MIN);
    }
}
