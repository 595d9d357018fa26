//! Decides how many morsels of a run a device of another node takes at a time: what a lease costs there in, a step out.
//!
//! A lease is a run of its own on that device: it makes build sides once more, reads the pages over a link to their
//! home, and gives its rows when it has ended. So leases are few and large at first: each is half of what the device
//! could do until the others are done, so that an error of a factor of two in the prediction delays nothing.
//!
//! 1. [`LeaseCost::predicted`] is what both devices and both links were measured to do.
//! 2. Nothing is taken before the run has shown its own pace, nor where the device would do little of it.
//! 3. What leases took corrects the prediction, which weighs as much as one morsel.
//! 4. The home sends the pages, which costs it work. Where all together do not do more in the time of a lease than was
//!    done before, the device takes no more of this run.
//!
//! Invariant: pure figures, no clock and no I/O.

use super::{ALONE_MIN, DOUBT, HELPS, LEAST_SHARE, Observed, Pace, STALLED, Step, WORTH, wait};
use crate::cost::Sharing;
use crate::profile::{Figure, Profile, SideProfile};

/// Fewest morsels of a lease: one alone is not worth its messages.
const LEAST: f64 = 2.0;
/// Messages of a lease, one after the other: what the device is at, the grant, the request, the end.
const ROUND_TRIPS: f64 = 4.0;
/// By these figures cores of two devices are compared.
const OF_CORES: [Figure; 4] =
    [Figure::DecodeInteger, Figure::DecodeText, Figure::Compare, Figure::Aggregate];

/// The seconds of a lease.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeaseCost {
    /// Until its first morsel.
    pub before_s: f64,
    /// And for each morsel.
    pub morsel_s: f64,
}

/// What a lease moves over links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeaseBytes {
    /// Pages of the whole stream, as far as can be told without what was predicted.
    pub pages: f64,
    /// What comes with each lease: the plan, rows that are broadcast, pages that lie on no media.
    pub messages: f64,
}

/// How much a device of another node takes of one run.
#[derive(Debug, Clone, Copy)]
pub struct LeasePace {
    cost: LeaseCost,
    /// Morsels done, and the seconds for these without what comes before the first one of a lease.
    done: f64,
    morsels_s: f64,
    /// Most morsels of a lease.
    most: u32,
    /// Take whatever there is, whether or not it pays: for tests.
    always: bool,
    is_over: bool,
}

impl LeaseCost {
    /// A lease that costs nothing: where even that does not pay, nothing has to be predicted.
    pub const NONE: Self = Self { before_s: 0.0, morsel_s: 0.0 };

    /// For a run over `morsel_count` morsels at `home`, of all that `sharing` speaks of, as the device of `taker` would
    /// do it.
    pub fn predicted(
        sharing: &Sharing,
        morsel_count: usize,
        bytes: LeaseBytes,
        (home, taker): (&Profile, &Profile),
    ) -> Self {
        let home_rate = home.link.bytes_per_second.max(1.0);
        let taker_rate = taker.link.bytes_per_second.max(1.0);
        // Nobody measures the link between them. It is no faster than those of both.
        let between = home_rate.min(taker_rate);
        let slower = power(&home.device) / power(&taker.device);
        let pages_s = (sharing.pages_link_s * home_rate).max(bytes.pages) / between;
        let rows_s = sharing.rows_link_s * home_rate / taker_rate;
        let trips_s = ROUND_TRIPS * home.link.round_trip_s.max(taker.link.round_trip_s);
        Self {
            before_s: trips_s + bytes.messages / taker_rate + sharing.device_before_s * slower,
            morsel_s: (sharing.device_s * slower + pages_s + rows_s) / morsel_count.max(1) as f64,
        }
    }
}

/// The work of all cores of `side` together in a second, as a multiple of a usual core's.
fn power(side: &SideProfile) -> f64 {
    let usual = SideProfile::assumed(1, 0);
    let shares = OF_CORES.map(|figure| side.rate(figure) / usual.rate(figure).max(1.0));
    let share = shares.iter().sum::<f64>() / shares.len() as f64;
    (share * side.cores_together).max(1e-6)
}

impl LeasePace {
    /// At the cost that was predicted, or whatever it is.
    pub fn new(cost: Option<LeaseCost>) -> Self {
        Self {
            cost: cost.unwrap_or(LeaseCost::NONE),
            done: 0.0,
            morsels_s: 0.0,
            most: u32::MAX,
            always: cost.is_none(),
            is_over: false,
        }
    }

    /// What the device should do now, of a run whose home and host have `pace`.
    pub fn step(&self, pace: &Pace, seen: &Observed) -> Step {
        let left = f64::from(seen.lease.left());
        if self.is_over || left == 0.0 {
            return Step::Over;
        }
        if self.always {
            return Step::Take(self.most.min(2));
        }
        let (device_s, device_left_s) = pace.device_left(seen, left);
        let first = seen.streams.map_or(0, |(first, _)| first);
        let is_unknown = seen.lease.begun.saturating_sub(first) < ALONE_MIN;
        if is_unknown || seen.stalled > STALLED {
            return wait(device_left_s / 4.0);
        }
        // The host's part of the work goes on.
        let host_rate = if seen.host_s > 0.0 { seen.host_done / seen.host_s } else { 0.0 };
        let others_s = 1.0 / (1.0 / device_s + host_rate);
        let left_s = left * others_s;
        let morsel_s = self.morsel_s();
        let before_s = self.cost.before_s;
        let share = (left_s - before_s) / (others_s + morsel_s);
        let is_little = others_s < LEAST_SHARE * (others_s + morsel_s);
        let is_late = left_s < WORTH * (before_s + LEAST * morsel_s);
        if is_little || is_late || share < LEAST {
            return wait(left_s / 4.0);
        }
        let count = (share / DOUBT).max(LEAST).min(left).min(f64::from(self.most));
        #[expect(clippy::cast_possible_truncation, reason = "no more than what is left, a u32")]
        let count = count as u32;
        Step::Take(count.max(1))
    }

    /// A lease of `count` morsels has ended after `took_s` seconds. `before` and `after` it, so much was seen of the
    /// others.
    pub fn took(&mut self, count: usize, took_s: f64, before: &Observed, after: &Observed) {
        let count = count as f64;
        self.done += count;
        self.morsels_s += (took_s - self.cost.before_s).max(0.0);
        let Some((first, since_s)) = before.streams else { return };
        let done = |seen: &Observed| f64::from(seen.lease.begun) + seen.host_done;
        let alone = done(before) - f64::from(first);
        let is_at_work = after.lease.left() > 0;
        if self.always || !is_at_work || alone < f64::from(ALONE_MIN) || since_s <= 0.0 {
            return;
        }
        let meanwhile = alone / since_s * took_s;
        let together = (done(after) - done(before)).max(0.0) + count;
        self.is_over = together < HELPS * meanwhile;
    }

    /// A lease of `count` morsels had more rows than are held: the next ones are smaller.
    pub fn had_too_many_rows(&mut self, count: usize) {
        self.most = u32::try_from(count / 2).unwrap_or(u32::MAX);
        self.is_over |= self.most == 0;
    }

    fn morsel_s(&self) -> f64 {
        (self.morsels_s + self.cost.morsel_s * DOUBT) / (self.done + 1.0)
    }
}

#[cfg(test)]
mod tests {
    //! Leases that end before the others do, and none where they would not help.

    use cleave_fragment::Lease;

    use super::*;

    fn sharing() -> Sharing {
        Sharing { host_s: 10.0, device_s: 1.0, morsels: 100.0, ..Sharing::default() }
    }

    fn pace() -> Pace {
        Pace::new(sharing(), 100, false)
    }

    fn seen(begun: u32, kept: u32) -> Observed {
        let elapsed_s = f64::from(begun) * 0.01;
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

    fn taker(before_s: f64, morsel_s: f64) -> LeasePace {
        LeasePace::new(Some(LeaseCost { before_s, morsel_s }))
    }

    #[test]
    fn a_lease_ends_before_the_others_do() {
        for (before_s, morsel_s) in [(0.0, 0.01), (0.1, 0.01), (0.0, 0.015), (0.0, 0.001)] {
            let step = taker(before_s, morsel_s).step(&pace(), &seen(20, 100));
            let Step::Take(count) = step else { panic!("{before_s}, {morsel_s}: {step:?}") };
            let (own_s, others_s) = (f64::from(count) * morsel_s, f64::from(80 - count) * 0.01);
            assert!(before_s + own_s <= others_s, "{before_s}, {morsel_s}: {count}");
        }
    }

    #[test]
    fn nothing_is_leased_where_it_would_not_pay() {
        let is_wait = |step: Step| matches!(step, Step::Wait(_));
        // The pace is not known, the device is too slow, its build sides take too long, little is left.
        assert!(is_wait(taker(0.0, 0.01).step(&pace(), &seen(0, 100))));
        assert!(is_wait(taker(0.0, 0.1).step(&pace(), &seen(20, 100))));
        assert!(is_wait(taker(1.0, 0.01).step(&pace(), &seen(20, 100))));
        assert!(is_wait(taker(0.0, 0.01).step(&pace(), &seen(97, 100))));
        let stalled = Observed { stalled: 0.5, ..seen(20, 100) };
        assert!(is_wait(taker(0.0, 0.01).step(&pace(), &stalled)));
        assert_eq!(taker(0.0, 0.01).step(&pace(), &seen(100, 100)), Step::Over);
        let free = LeasePace::new(Some(LeaseCost::NONE));
        assert!(is_wait(free.step(&pace(), &seen(2, 100))));
        assert!(is_wait(free.step(&pace(), &seen(99, 100))));
        assert!(matches!(free.step(&pace(), &seen(20, 100)), Step::Take(_)));
        // Without a question, at once.
        assert_eq!(LeasePace::new(None).step(&pace(), &seen(0, 100)), Step::Take(2));
    }

    #[test]
    fn a_device_that_costs_the_home_more_than_it_does_takes_no_more() {
        let mut helps = taker(0.0, 0.01);
        helps.took(10, 0.1, &seen(20, 90), &seen(28, 90));
        assert!(matches!(helps.step(&pace(), &seen(28, 90)), Step::Take(_)));
        let mut hinders = taker(0.0, 0.01);
        hinders.took(10, 0.4, &seen(20, 90), &seen(45, 90));
        assert_eq!(hinders.step(&pace(), &seen(45, 90)), Step::Over);
    }

    #[test]
    fn leases_with_too_many_rows_become_smaller_until_there_is_none() {
        let mut takes = LeasePace::new(None);
        takes.had_too_many_rows(2);
        assert_eq!(takes.step(&pace(), &seen(0, 100)), Step::Take(1));
        takes.had_too_many_rows(1);
        assert_eq!(takes.step(&pace(), &seen(0, 100)), Step::Over);
    }

    #[test]
    fn pages_cross_the_slower_of_both_links() {
        let fast = Profile::assumed();
        let mut slow = Profile::assumed();
        slow.link.bytes_per_second /= 10.0;
        let bytes = LeaseBytes { pages: 1e8, messages: 0.0 };
        let cost = |home, taker| LeaseCost::predicted(&sharing(), 100, bytes, (home, taker));
        let near = cost(&fast, &fast);
        for far in [cost(&slow, &fast), cost(&fast, &slow)] {
            assert!(far.morsel_s > 4.0 * near.morsel_s, "{far:?} and {near:?}");
        }
        // What the device itself takes is in it.
        assert!(near.morsel_s > 0.01);
    }
}
