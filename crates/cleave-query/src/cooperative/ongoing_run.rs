//! Runs on devices that go on: how far a device is with one, for those who look on and those who count progress.
//!
//! 1. An [`OngoingRun`] is noted with the other figures of a run that has begun
//!    ([`FigureLog::begin`](super::figures::FigureLog::begin)).
//! 2. [`OngoingRun::ask`] asks the device, which answers how many morsels it has begun, and for how long it has waited
//!    for the host ([`Request::Revoke`] of none). An answer serves all who ask in the next half second.
//! 3. [`OngoingRun::progress`] is what it has answered by then, laid out over time. Morsels that nobody else counts are
//!    counted as [`Progress`] of the statement.
//!
//! Invariants: a device is asked only about its progress: it keeps all its morsels. It counts for no more of them than
//! it was given, and what was counted stays, whatever it answers. A run that has ended answers nothing; of one that was
//! begun again, the new run does. A device that knows nothing of the run yet, or of no input that streams, may be asked
//! again; a question that is lost with its link is the last. Of what has ended, neither device nor link is held. When
//! something happened between two answers is not known: it is spread evenly over that time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_engine::device::Device;
use cleave_fragment::command::{Command, CommandHeader, Kept, Reply, Request};
use cleave_fragment::link::Link;
use cleave_fragment::progress::Progress;
use cleave_fragment::strip::Strip;
use cleave_media::Stopwatch;

/// Time for which an answer is new: a person sees no more, and a device is not kept busy by questions.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// Parts of the time between two answers.
const PARTS: u32 = 16;

/// See the [module](self); clones are of the same run.
#[derive(Debug, Clone)]
pub struct OngoingRun(Arc<Asked>);

#[derive(Debug)]
struct Asked {
    /// The input that streams.
    input: u32,
    /// Since the run was asked for.
    clock: Stopwatch,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    run: CommandHeader,
    /// Who is asked; None: nothing more is.
    answers: Option<(Arc<Device>, Arc<dyn Link>)>,
    counted: Counted,
    progress: Option<DeviceProgress>,
}

/// What is known of the morsels of one run.
#[derive(Debug)]
struct Counted {
    /// Of the input that streams.
    morsel_count: u32,
    /// None: it is not known yet that there are any.
    begun: Option<u32>,
    /// Counts them; None: others do.
    progress: Option<Progress>,
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
    /// The run `run` on `device`, which is `link`ed, with so many morsels of the input that streams, since `clock`
    /// began. `progress` counts these.
    pub(crate) fn new(
        (device, link): (&Arc<Device>, &Arc<dyn Link>),
        run: CommandHeader,
        (input, morsel_count): (u32, usize),
        progress: Option<Progress>,
        clock: Stopwatch,
    ) -> Self {
        let answers = Some((Arc::clone(device), Arc::clone(link)));
        let morsel_count = u32::try_from(morsel_count).unwrap_or(u32::MAX);
        let counted = Counted { morsel_count, begun: None, progress };
        let known = Known { run, answers, counted, progress: None };
        Self(Arc::new(Asked { input, clock, known: Mutex::new(known) }))
    }

    /// Asks the device how far it is, unless it has just answered. Cancel-safe.
    pub async fn ask(&self) {
        let Asked { input, clock, .. } = &*self.0;
        let (run, answers) = {
            let known = self.known();
            let is_new = |told: &DeviceProgress| clock.elapsed() < told.answered + PAUSE;
            let has_told = known.progress.as_ref().is_some_and(is_new);
            (known.run, known.answers.clone().filter(|_| !has_told))
        };
        let Some((device, link)) = answers else { return };
        let header = CommandHeader { run: run.run, ..device.header() };
        let asked = Request::Revoke { input: *input, keep: u32::MAX };
        let answer = link.call(Command::new(header, asked)).await;
        let mut known = self.known();
        if known.run != run {
            return;
        }
        match answer {
            Ok(Reply::Kept(kept)) => known.note(clock.elapsed(), kept),
            Err(error) if error.device_error().is_some() => {}
            Ok(_) | Err(_) => known.answers = None,
        }
    }

    /// What it has answered; None: nothing yet.
    #[must_use]
    pub fn progress(&self) -> Option<DeviceProgress> {
        self.known().progress.clone()
    }

    /// Whether there is nothing more to ask.
    pub(super) fn is_over(&self) -> bool {
        self.known().answers.is_none()
    }

    /// The run `run` over the same morsels replaces the one before.
    pub(super) fn begins_again(&self, run: CommandHeader) {
        self.known().run = run;
    }

    /// The run has ended, with `kept` morsels done.
    pub(super) fn ended(&self, kept: u32) {
        self.known().counted.hear(kept);
        self.asks_no_more();
    }

    /// Nothing more is asked: the run has ended, one way or the other.
    pub(super) fn asks_no_more(&self) {
        self.known().answers = None;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Notes what the device has answered by `now`.
    fn note(&mut self, now: Duration, Kept { lease, stall }: Kept) {
        let begun = self.counted.hear(lease.begun);
        let kept = lease.kept.min(self.counted.morsel_count).max(begun);
        self.progress.get_or_insert_default().note(now, (begun, kept), stall);
    }
}

impl Counted {
    /// The device says that it has begun so many; returns how many it is believed.
    fn hear(&mut self, begun: u32) -> u32 {
        if let (None, Some(progress)) = (self.begun, &self.progress) {
            progress.expect(u64::from(self.morsel_count));
        }
        let before = self.begun.unwrap_or(0);
        let begun = begun.min(self.morsel_count).max(before);
        if let Some(progress) = &self.progress {
            progress.advance(u64::from(begun - before));
        }
        self.begun = Some(begun);
        begun
    }
}

impl DeviceProgress {
    /// Notes what the device has answered by `now`: morsels begun, no fewer than before, and kept, and its stall.
    fn note(&mut self, now: Duration, (begun, kept): (u32, u32), stall: Duration) {
        let passed = (self.answered, now.max(self.answered));
        spread(&mut self.morsels, passed, u64::from(begun.saturating_sub(self.begun)));
        let waited = stall.saturating_sub(self.stall).min(passed.1 - passed.0);
        spread(&mut self.stalled, passed, u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
        // Answers to two that ask at once may be in any order.
        self.stall = self.stall.max(stall);
        (self.begun, self.kept, self.answered) = (begun, kept, passed.1);
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

    use super::*;

    #[test]
    fn answers_are_spread_over_the_time_between_them() {
        let ms = Duration::from_millis;
        let mut progress = DeviceProgress::default();
        progress.note(ms(1000), (10, 100), ms(0));
        progress.note(ms(2000), (42, 100), ms(500));
        // Late, and of what is known.
        progress.note(ms(2000), (42, 100), ms(400));
        assert_eq!((progress.begun, progress.kept, progress.stall), (42, 100, ms(500)));
        let sum = |strip: &Strip| strip.amounts().iter().sum::<u64>();
        assert_eq!(sum(&progress.morsels), 42);
        assert_eq!(sum(&progress.stalled), 500_000_000);
        let half = usize::try_from(ms(1000).as_nanos() / progress.stalled.width().as_nanos());
        let (before, after) = progress.stalled.amounts().split_at(half.unwrap());
        assert_eq!(before.iter().sum::<u64>(), 0, "it had not waited by then");
        assert!(after.iter().filter(|amount| **amount > 0).count() >= 15, "{after:?}");
    }

    #[test]
    fn no_answer_of_a_device_makes_progress_go_back_or_beyond_all() {
        let progress = Progress::default();
        let of_run = |morsel_count| {
            let progress = Some(progress.clone());
            Counted { morsel_count, begun: None, progress }
        };
        let mut counted = of_run(10);
        assert_eq!(progress.read(), (0, 0));
        for (said, shown) in [(0, 0), (4, 4), (1, 4), (4, 4), (9, 9), (u32::MAX, 10), (0, 10)] {
            assert_eq!(u64::from(counted.hear(said)), shown, "after {said}");
            assert_eq!(progress.read(), (shown, 10), "after {said}");
        }
        // Beside another run of the same statement.
        let mut other = of_run(30);
        other.hear(u32::MAX);
        counted.hear(u32::MAX);
        assert_eq!(progress.read(), (40, 40));
    }
}
