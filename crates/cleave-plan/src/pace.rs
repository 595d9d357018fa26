//! Decides how many of a run's morsels the host should take, and when: the pace of both sides in, a step out.
//!
//! Both sides are to be done at the same time. Each side's seconds a morsel are the predicted ones, corrected by
//! measurement: the prediction weighs as much as one morsel, and is biased against the host ([`DOUBT`]), for the host
//! cannot give back what it has taken. The time of a device before its first morsel, for build sides above all, is no
//! part of its pace.
//!
//! 1. *Before the host has begun*, it has to read the build sides; it begins where the device would still be at work
//!    well after that.
//! 2. *Then* it takes a lease of a few morsels from the end, never more than its share of what is left, and asks again
//!    when they are given out. So the slower side loses work, whichever it is. Its partitions read ahead: what it has
//!    taken and not done counts as its work too, or it would be at that when the device is done.
//! 3. A device that waits for the host or for the link does not need help: nothing is taken from it.
//! 4. A device reads and sends the pages that the host takes, which costs it work too: a device with a share of a core
//!    may lose more by that than the host wins. So the host first watches the device at work alone, and takes nothing
//!    more where both together are not faster.
//! 5. *A run that cannot be divided* is taken as a whole or not at all ([`Pace::recall`]): the host then begins at the
//!    first morsel, so all of its own time must be less than what the device has left, by the same doubts.
//!
//! [`Part`] says which morsels are the host's by what the device has answered. What devices of other nodes take of
//! these is decided in [`leases`]. Statements decide by this code, and so does the simulation of many devices (`cleave
//! simulate`), without other nodes.
//!
//! Invariant: pure figures, no clock and no I/O. Source: rule 11; `docs/design/split-and-cost.md`.

use std::ops::Range;
use std::time::Duration;

use cleave_fragment::Lease;

use crate::cost::Sharing;

pub mod leases;

/// Work of one lease of the host: short beside what a wrong estimate costs, long beside a round trip.
const LEASE_S: f64 = 0.03;
/// The host begins where the device has at least so many times as much left as the host needs before it is of help.
const WORTH: f64 = 1.5;
/// Predictions are off by a factor of two often enough: the device may be so much faster and the host so much slower.
const DOUBT: f64 = 2.0;
/// A single morsel is taken where that ends sooner by at least this share.
const SOONER: f64 = 0.9;
/// A device that has waited for this share of the time needs no help.
const STALLED: f64 = 0.3;
/// The host takes part where, by the paces, it would do at least this share of the work: less is not worth what its
/// reads cost the device.
const LEAST_SHARE: f64 = 0.2;
/// Morsels by which the device shows its pace alone, at least, and one in so many of all.
const ALONE_MIN: u32 = 4;
const ALONE_SHARE: u32 = 8;
/// It is compared after the time in which the device alone would begin so many more.
const BESIDE_MIN: f64 = 4.0;
/// With fewer morsels than this left nobody waits for that.
const WATCHED_MIN: f64 = 16.0;
/// The host goes on where both do at least so many times as much as the device did alone.
const HELPS: f64 = 1.1;
/// How long the host waits before it looks again, at least and at most.
const PAUSE_S: (f64, f64) = (0.002, 0.05);
/// How long the host waits for others that have morsels which it has taken, at least and at most.
const PATIENCE_S: (f64, f64) = (0.05, 600.0);

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Take so many morsels, from the end.
    Take(u32),
    /// Look again after this time.
    Wait(Duration),
    /// There is nothing left that was not begun.
    Over,
}

/// The observations of a run so far.
#[derive(Debug, Clone, Copy)]
pub struct Observed {
    /// The morsels left to the device, as last reported.
    pub lease: Lease,
    /// Seconds since the run was accepted.
    pub elapsed_s: f64,
    /// Morsels that the device had begun when it was first seen to have begun any, and the seconds since then.
    pub streams: Option<(u32, f64)>,
    /// Of these, what the device has waited for slots to be consumed since it was last asked, as a share.
    pub stalled: f64,
    /// Morsels that the host has done.
    pub host_done: f64,
    /// Morsels that it has taken and not done.
    pub host_pending: f64,
    /// Seconds during which the host was at work on those that it has taken.
    pub host_s: f64,
    /// Morsels that the device had begun when the host, which has taken in what joins collect, began its first one, and
    /// the seconds since then.
    pub host_began: Option<(u32, f64)>,
}

/// The host's view of its part in a run: which morsels are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// What the device has, as it last answered; it may have begun more by now.
    pub lease: Lease,
}

impl Part {
    /// Of a run over `morsel_count` morsels, all of which the device has.
    pub fn new(morsel_count: u32) -> Self {
        Self { lease: Lease { begun: 0, kept: morsel_count } }
    }

    /// The device has answered: the morsels that are the host's now, from and below which place.
    pub fn answered(&mut self, answer: Lease) -> Range<u32> {
        let before = self.lease.kept;
        // A late answer names more than the device has by now.
        self.lease.kept = before.min(answer.kept);
        self.lease.begun = self.lease.begun.max(answer.begun).min(self.lease.kept);
        self.lease.kept..before
    }

    /// The device's run is gone and has given no rows: the host gets all its morsels.
    pub fn lost(&mut self) -> Range<u32> {
        let kept = self.lease.kept;
        self.lease = Lease::default();
        0..kept
    }
}

/// The predicted pace of both sides.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    sharing: Sharing,
    /// Predicted seconds a morsel.
    device_s: f64,
    host_s: f64,
    /// Take whatever there is, at once, whether or not it pays: for tests.
    always: bool,
}

impl Pace {
    /// For a run over `morsel_count` morsels, of all that `sharing` speaks of.
    pub fn new(sharing: Sharing, morsel_count: usize, always: bool) -> Self {
        let count = (morsel_count as f64).max(1.0);
        let each = |seconds: f64| (seconds / count).max(1e-6);
        Self { device_s: each(sharing.device_s), host_s: each(sharing.host_s), sharing, always }
    }

    /// What the host should do now.
    pub fn step(&self, seen: &Observed) -> Step {
        let left = f64::from(seen.lease.kept.saturating_sub(seen.lease.begun));
        if left == 0.0 {
            return Step::Over;
        }
        if self.always {
            return Step::Take(1);
        }
        let begun = f64::from(seen.lease.begun);
        let (device_s, device_left_s) = self.device_left(seen, left);
        let host_s = (seen.host_s + self.host_s * DOUBT) / (seen.host_done + 1.0);
        let build_s = if seen.host_began.is_some() { 0.0 } else { self.sharing.host_before_s };
        let host_before_s = build_s + seen.host_pending * host_s;
        if seen.stalled > STALLED {
            return wait(device_left_s / 4.0);
        }
        // Where the prediction leaves nothing to the host, the run itself has to show that it is slower.
        let is_worth = self.sharing.host_share() > 0.0 || begun > 0.0;
        let is_late = seen.host_began.is_none() && device_left_s < WORTH * (host_before_s + host_s);
        let is_little = device_s < LEAST_SHARE * (device_s + host_s);
        if (seen.host_began.is_none() && !is_worth) || is_late || is_little || !helps(seen) {
            return wait(device_left_s / 4.0);
        }
        if self.watches(seen, left) {
            return wait(device_s);
        }
        let share = (device_left_s - host_before_s) / (device_s + host_s);
        if share < 1.0 {
            let is_sooner = host_before_s + host_s < SOONER * device_left_s;
            return if is_sooner { Step::Take(1) } else { wait(device_left_s / 2.0) };
        }
        let lease = (LEASE_S / host_s).ceil().max(1.0);
        #[expect(clippy::cast_possible_truncation, reason = "no more than what is left, a u32")]
        let count = share.min(lease).min(left) as u32;
        Step::Take(count)
    }

    /// How long the host would take for so many morsels, as it was predicted; None: it does not ask what pays.
    pub fn host_time(&self, morsel_count: usize) -> Option<Duration> {
        let seconds = self.sharing.host_before_s + self.host_s * morsel_count as f64;
        let seconds = seconds.clamp(PATIENCE_S.0, PATIENCE_S.1);
        (!self.always).then(|| Duration::from_secs_f64(seconds))
    }

    /// Whether the host still waits for the device to show its pace alone: not longer than that should take.
    fn watches(&self, seen: &Observed, left: f64) -> bool {
        let waited_s = (0, seen.elapsed_s - self.sharing.device_before_s);
        let (first, at_work_s) = seen.streams.unwrap_or(waited_s);
        let begun = seen.lease.begun.saturating_sub(first);
        // A host that is expected to be faster helps sooner than longer watching would tell.
        let enough = match self.host_s < self.device_s {
            true => ALONE_MIN,
            false => ALONE_MIN.max(seen.lease.kept / ALONE_SHARE),
        };
        seen.host_began.is_none()
            && begun < enough
            && left >= WATCHED_MIN
            && at_work_s < DOUBT * f64::from(enough) * self.device_s
    }

    /// Whether the host should run all of it from the beginning, while no row of the device's was given out: it takes
    /// all that the device has, or waits and looks again.
    pub fn recall(&self, seen: &Observed) -> Step {
        let left = f64::from(seen.lease.kept.saturating_sub(seen.lease.begun));
        if left == 0.0 {
            return Step::Over;
        }
        let (device_s, device_left_s) = self.device_left(seen, left);
        // Half of it, as a factor, may be more work than was expected, which the host has too.
        let doubt = DOUBT.max((device_s / self.device_s).sqrt());
        let host_s = self.sharing.host_before_s + self.sharing.host_s * doubt;
        if self.always || device_left_s > WORTH * host_s {
            return Step::Take(seen.lease.kept);
        }
        wait(device_left_s / 4.0)
    }

    /// The device's seconds a morsel, and for all that it has not begun of its `left` morsels.
    fn device_left(&self, seen: &Observed, left: f64) -> (f64, f64) {
        let (begun_first, at_work_s) = seen.streams.unwrap_or_default();
        let begun_since = f64::from(seen.lease.begun.saturating_sub(begun_first));
        let device_s = (at_work_s + self.device_s / DOUBT) / (begun_since + 1.0);
        // What takes longer than predicted is expected to take as long again as it is late.
        let is_before = seen.lease.begun == 0;
        let before_s = (self.sharing.device_before_s - seen.elapsed_s).abs();
        (device_s, left * device_s + if is_before { before_s } else { 0.0 })
    }
}

/// Whether both together have done more than the device did alone, as far as that can be told.
fn helps(seen: &Observed) -> bool {
    let (Some((first, since_first_s)), Some((then, beside_s))) = (seen.streams, seen.host_began)
    else {
        return true;
    };
    let alone = then.saturating_sub(first);
    if alone < ALONE_MIN || seen.host_done < 1.0 {
        return true;
    }
    // Morsels are counted whole: half a one may be missing at either end.
    let alone = f64::from(alone) - 0.5;
    let times = beside_s / (since_first_s - beside_s).max(f64::MIN_POSITIVE);
    let both = f64::from(seen.lease.begun.saturating_sub(then)) + seen.host_done + 0.5;
    alone * times < BESIDE_MIN || both >= HELPS * alone * times
}

/// Look again after so many seconds, within bounds.
fn wait(seconds: f64) -> Step {
    Step::Wait(Duration::from_secs_f64(seconds.clamp(PAUSE_S.0, PAUSE_S.1)))
}

#[cfg(test)]
mod tests {
    //! Both sides end together, and nothing is taken where it would not pay.

    use super::*;

    fn sharing(device_s: f64, host_s: f64) -> Sharing {
        Sharing { host_s, device_s, morsels: 100.0, ..Sharing::default() }
    }

    fn seen(begun: u32, kept: u32, elapsed_s: f64) -> Observed {
        Observed {
            lease: Lease { begun, kept },
            elapsed_s,
            streams: (begun > 0).then_some((0, elapsed_s)),
            stalled: 0.0,
            host_done: 0.0,
            host_pending: 0.0,
            host_s: 0.0,
            host_began: None,
        }
    }

    /// Runs both sides at their true pace, seconds a morsel, one worker each; how long it takes. The host reads so many
    /// morsels ahead of the one that it is at, and each costs the device `page_s`.
    fn run(pace: Pace, count: u32, (device_s, host_s): (f64, f64), ahead: u32, page_s: f64) -> f64 {
        let mut lease = Lease { begun: 0, kept: count };
        let (mut device_free_s, mut asks_s, mut now_s): (f64, f64, f64) = (0.0, 0.0, 0.0);
        let (mut taken, mut given_out, mut done) = (0_u32, 0_u32, 0_u32);
        // When the morsel that the host is at is done, and its work so far.
        let (mut host_free_s, mut host_work_s) = (f64::INFINITY, 0.0);
        let mut host_began = None;
        for _ in 0..1_000_000 {
            while device_free_s <= now_s && lease.take(lease.begun).is_some() {
                device_free_s = now_s + device_s;
            }
            if host_free_s <= now_s {
                done += 1;
                host_work_s += host_s;
                host_free_s = if done < given_out { now_s + host_s } else { f64::INFINITY };
                asks_s = asks_s.min(now_s);
            }
            if asks_s <= now_s && given_out - done > ahead {
                asks_s = f64::INFINITY;
            } else if asks_s <= now_s && given_out < taken {
                given_out += 1;
                host_began.get_or_insert((lease.begun, now_s));
                device_free_s = device_free_s.max(now_s) + page_s;
                host_free_s = host_free_s.min(now_s + host_s);
            } else if asks_s <= now_s {
                let at_work_s =
                    if host_free_s.is_finite() { now_s + host_s - host_free_s } else { 0.0 };
                let known = Observed {
                    host_done: f64::from(done),
                    host_pending: f64::from(taken - done),
                    host_s: host_work_s + at_work_s,
                    host_began: host_began.map(|(begun, at)| (begun, now_s - at)),
                    ..seen(lease.begun, lease.kept, now_s)
                };
                match pace.step(&known) {
                    Step::Take(more) => {
                        let before = lease.kept;
                        lease.keep(before.saturating_sub(more));
                        taken += before - lease.kept;
                        continue;
                    }
                    Step::Wait(pause) => asks_s = now_s + pause.as_secs_f64(),
                    Step::Over => asks_s = f64::INFINITY,
                }
            }
            let device_next = if lease.begun < lease.kept { device_free_s } else { f64::INFINITY };
            let next = device_next.min(asks_s).min(host_free_s);
            if !next.is_finite() {
                break;
            }
            now_s = next;
        }
        assert_eq!((lease.begun, done), (lease.kept, count - lease.kept), "all are done, once");
        now_s.max(device_free_s)
    }

    #[test]
    fn both_sides_end_together_whatever_was_predicted() {
        for true_s in [(0.02, 0.005), (0.005, 0.02), (0.01, 0.01), (0.05, 0.004)] {
            let (device_s, host_s) = true_s;
            // A share of the host of no more than a fifth is left to the device.
            let host_rate = if host_s < 4.0 * device_s { 1.0 / host_s } else { 0.0 };
            let best = 200.0 / (1.0 / device_s + host_rate);
            for (wrong, ahead) in [0.1, 1.0, 10.0].into_iter().flat_map(|w| [(w, 0), (w, 3)]) {
                let predicted = sharing(200.0 * device_s * wrong, 200.0 * host_s);
                let took = run(Pace::new(predicted, 200, false), 200, true_s, ahead, 0.0);
                assert!(
                    took <= 1.15 * best + 0.05,
                    "device {device_s}, host {host_s}, off by {wrong}, {ahead} ahead: {took} s, at best {best} s"
                );
            }
        }
    }

    #[test]
    fn what_the_host_reads_ahead_does_not_make_a_short_run_longer() {
        // Four morsels are under way on the host at any time, and it may only be of a little help.
        let predicted = sharing(30.0 * 0.005, 30.0 * 0.008);
        for host_s in [0.008, 0.016, 0.03] {
            let took = run(Pace::new(predicted, 30, false), 30, (0.005, host_s), 3, 0.0);
            assert!(took <= 30.0 * 0.005 * 1.1, "host {host_s}: {took} s, the device alone 0.15 s");
        }
    }

    #[test]
    fn a_device_that_loses_more_by_sending_pages_than_the_host_wins_is_left_alone() {
        for (host_s, page_s) in [(0.01, 0.003), (0.01, 0.006), (0.004, 0.006)] {
            let predicted = sharing(200.0 * 0.003, 200.0 * host_s);
            let took = run(Pace::new(predicted, 200, false), 200, (0.003, host_s), 3, page_s);
            assert!(
                took <= 0.6 * 1.1,
                "host {host_s}, {page_s} a page: {took} s, the device alone 0.6 s"
            );
        }
    }

    #[test]
    fn what_a_device_does_before_its_first_morsel_is_not_its_pace() {
        // Build sides took ten times as long as predicted; each morsel takes what was predicted.
        let pace = Pace::new(Sharing { device_before_s: 0.1, ..sharing(1.0, 2.0) }, 100, false);
        let late = Observed { streams: Some((1, 0.1)), ..seen(11, 100, 1.1) };
        let alone = Observed { streams: Some((1, 0.1)), ..seen(11, 100, 0.2) };
        assert_eq!(pace.step(&late), pace.step(&alone));
    }

    #[test]
    fn a_run_that_is_nearly_done_is_left_alone() {
        let pace = Pace::new(sharing(0.1, 1.0), 10, false);
        assert!(matches!(pace.step(&seen(8, 10, 0.08)), Step::Wait(_)));
        assert_eq!(pace.step(&seen(10, 10, 0.1)), Step::Over);
    }

    #[test]
    fn what_joins_collect_must_pay_too() {
        let costly = Sharing { host_before_s: 1.0, ..sharing(1.0, 0.1) };
        assert!(matches!(Pace::new(costly, 100, false).step(&seen(10, 100, 0.1)), Step::Wait(_)));
        let cheap = Sharing { host_before_s: 0.01, ..sharing(1.0, 0.1) };
        assert!(matches!(Pace::new(cheap, 100, false).step(&seen(10, 100, 0.1)), Step::Take(_)));
    }

    #[test]
    fn a_device_that_is_late_before_its_first_morsel_is_helped() {
        // The build sides were predicted to take 10 ms; the rest alone would not be worth the host's own.
        let predicted = Sharing { device_before_s: 0.01, host_before_s: 0.1, ..sharing(0.1, 0.1) };
        let pace = Pace::new(predicted, 100, false);
        assert!(matches!(pace.step(&seen(0, 100, 0.02)), Step::Wait(_)));
        assert!(matches!(pace.step(&seen(0, 100, 0.3)), Step::Take(_)));
    }

    #[test]
    fn a_run_that_cannot_be_divided_is_recalled_as_a_whole_where_it_is_far_too_slow() {
        let pace = Pace::new(sharing(0.1, 0.1), 100, false);
        // A third of the pace predicted: the device may still be done before the host would be.
        assert!(matches!(pace.recall(&seen(10, 100, 0.03)), Step::Wait(_)));
        // A tenth of it, and slower.
        assert_eq!(pace.recall(&seen(10, 100, 0.1)), Step::Take(100));
        // Not for the little that is left.
        assert!(matches!(pace.recall(&seen(80, 100, 0.8)), Step::Wait(_)));
        assert_eq!(pace.recall(&seen(100, 100, 10.0)), Step::Over);
        // Never by predictions alone.
        let wrong = Pace::new(sharing(0.5, 0.1), 100, false);
        assert!(matches!(wrong.recall(&seen(0, 100, 0.0)), Step::Wait(_)));
        assert_eq!(Pace::new(sharing(0.1, 0.1), 100, true).recall(&seen(0, 9, 0.0)), Step::Take(9));
    }

    #[test]
    fn a_device_that_waits_for_the_host_needs_no_help() {
        let pace = Pace::new(sharing(1.0, 0.1), 100, false);
        let waiting = Observed { stalled: 0.5, ..seen(10, 100, 0.1) };
        assert!(matches!(pace.step(&waiting), Step::Wait(_)));
        assert_eq!(Pace::new(sharing(1.0, 0.1), 100, true).step(&waiting), Step::Take(1));
    }
}
