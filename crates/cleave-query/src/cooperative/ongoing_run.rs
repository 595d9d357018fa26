//! Runs on devices that go on: how far a device is with one, for those who look on.
//!
//! 1. An [`OngoingRun`] is noted with the other figures of a run that has begun
//!    ([`FigureLog::begin`](super::figures::FigureLog::begin)).
//! 2. [`OngoingRun::ask`] asks the device, which answers how many morsels it has begun, and for how long it has waited
//!    for the host ([`Request::Revoke`] of none).
//! 3. [`OngoingRun::progress`] is what it has answered by then, laid out over time.
//!
//! Invariants: a device is asked only while somebody looks on, and only about its progress: it keeps all its morsels. A
//! run that has ended, or was begun again, answers nothing. When something happened between two answers is not known:
//! it is spread evenly over that time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_engine::device::Device;
use cleave_fragment::command::{Command, CommandHeader, Kept, Reply, Request};
use cleave_fragment::link::Link;
use cleave_fragment::strip::Strip;
use cleave_media::Stopwatch;

/// Parts of the time between two answers.
const PARTS: u32 = 16;

/// See the [module](self); clones are of the same run.
#[derive(Debug, Clone)]
pub struct OngoingRun {
    device: Arc<Device>,
    link: Arc<dyn Link>,
    run: CommandHeader,
    /// The one that streams.
    input: u32,
    /// Since the run was asked for.
    clock: Stopwatch,
    progress: Arc<Mutex<Option<DeviceProgress>>>,
}

/// How far a device is with a run, as it has last answered.
#[derive(Debug, Clone, Default)]
pub struct DeviceProgress {
    /// Morsels of the streamed input that it has begun.
    pub begun: u32,
    /// Morsels that it has, those included.
    pub kept: u32,
    /// Time that it has waited for the host.
    pub stall: Duration,
    /// When it answered, from when the run was asked for.
    pub answered: Duration,
    /// When it began morsels.
    pub morsels: Strip,
    /// When it waited for the host, in nanoseconds.
    pub stalled: Strip,
}

impl OngoingRun {
    /// The run `run` on `device`, which is `link`ed, with the number of the input that streams, since `clock` began.
    pub(crate) fn new(
        (device, link): (&Arc<Device>, &Arc<dyn Link>),
        run: CommandHeader,
        input: u32,
        clock: Stopwatch,
    ) -> Self {
        let (device, link) = (Arc::clone(device), Arc::clone(link));
        Self { device, link, run, input, clock, progress: Arc::default() }
    }

    /// Asks the device how far it is. Cancel-safe.
    pub async fn ask(&self) {
        let header = CommandHeader { run: self.run.run, ..self.device.header() };
        let asked = Request::Revoke { input: self.input, keep: u32::MAX };
        let answer = self.link.call(Command::new(header, asked)).await;
        if let Ok(Reply::Kept(kept)) = answer {
            let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.get_or_insert_default().note(self.clock.elapsed(), kept);
        }
    }

    /// What it has answered; None: nothing yet.
    #[must_use]
    pub fn progress(&self) -> Option<DeviceProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl DeviceProgress {
    /// Notes what the device has answered by `now`.
    fn note(&mut self, now: Duration, Kept { lease, stall }: Kept) {
        let passed = (self.answered, now.max(self.answered));
        let morsels = lease.begun.saturating_sub(self.begun);
        spread(&mut self.morsels, passed, u64::from(morsels));
        let waited = stall.saturating_sub(self.stall).min(passed.1 - passed.0);
        spread(&mut self.stalled, passed, u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
        // Answers to two that ask at once may be in any order.
        self.begun = self.begun.max(lease.begun);
        self.stall = self.stall.max(stall);
        (self.kept, self.answered) = (lease.kept, passed.1);
    }
}

/// Adds `amount` evenly to the time from `from` to `until`.
fn spread(strip: &mut Strip, (from, until): (Duration, Duration), amount: u64) {
    let step = until.saturating_sub(from) / PARTS;
    let mut at = from;
    for part in 0..u64::from(PARTS) {
        let share = |parts: u64| amount.saturating_mul(parts) / u64::from(PARTS);
        strip.add(at, share(part + 1).saturating_sub(share(part)));
        at = at.saturating_add(step);
    }
}

#[cfg(test)]
mod tests {
    //! What a device has answered is spread over the time in which it happened, and nothing is counted twice.

    use cleave_fragment::Lease;

    use super::*;

    #[test]
    fn answers_are_spread_over_the_time_between_them() {
        let ms = Duration::from_millis;
        let kept = |begun, stall| Kept { lease: Lease { begun, kept: 100 }, stall: ms(stall) };
        let mut progress = DeviceProgress::default();
        progress.note(ms(1000), kept(10, 0));
        progress.note(ms(2000), kept(42, 500));
        // Late, and of what is known.
        progress.note(ms(2000), kept(30, 400));
        assert_eq!((progress.begun, progress.kept, progress.stall), (42, 100, ms(500)));
        let sum = |strip: &Strip| strip.amounts().iter().sum::<u64>();
        assert_eq!(sum(&progress.morsels), 42);
        assert_eq!(sum(&progress.stalled), 500_000_000);
        let half = usize::try_from(ms(1000).as_nanos() / progress.stalled.width().as_nanos());
        let (before, after) = progress.stalled.amounts().split_at(half.unwrap());
        assert_eq!(before.iter().sum::<u64>(), 0, "it had not waited by then");
        assert!(after.iter().filter(|amount| **amount > 0).count() >= 15, "{after:?}");
    }
}
