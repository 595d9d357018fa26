//! Chooses among predictions by what each is expected to gain: predictions in, the place of one out.
//!
//! Each prediction is off by some factor. The least of several is more often one that was priced too low than one that
//! was priced too high (the winner's curse), and the more so the more predictions there are and the farther they are
//! off. So the gain of the best, the logarithm of the host's time over its own, is reduced by as much as the best of so
//! many is expected to be too good, and is taken only where something is left:
//!
//! 1. Predictions within [`SAME`] of each other are of nearly the same work and err together: they count as one.
//! 2. The margin ([`Limits::cut_share_max`](crate::cost::Limits)) is what the best of [`COUNT_ASSUMED`] must promise. A
//!    single candidate must promise [`CERTAIN`] of it, and the rest grows with the expected maximum of as many errors.
//! 3. Of those that are as good as the best, within [`AS_GOOD`], the one is taken whose loss would be least: that with
//!    the fewest seconds of the device that the host cannot take over ([`Offer::bound_s`]).

use super::PricedSplit;

/// Predictions that differ by less than this share are of the same work.
const SAME: f64 = 0.05;
/// A prediction this much above the best is as good as it.
const AS_GOOD: f64 = 0.005;
/// Different predictions among which the margin is measured: splits of the JOB queries.
const COUNT_ASSUMED: usize = 7;
/// The share of the margin that a single candidate must promise too.
const CERTAIN: f64 = 0.9;

/// What the best split must promise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Needed {
    /// The share of the host's time that it may be predicted at.
    pub share_max: f64,
    /// Predictions that differ, of which it is the best.
    pub different_count: usize,
}

/// What the best of `priced`, the host's own first, must promise where the margin of many is `share_max`.
pub fn needed(priced: &[PricedSplit], share_max: f64) -> Needed {
    let cuts = priced.iter().skip(1).filter(|one| one.prediction.fits);
    needed_of(cuts.map(|one| one.prediction.finish).collect(), share_max)
}

/// What is predicted of one split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Offer {
    pub(super) finish_s: f64,
    /// Seconds of the device that nothing takes from it while it runs.
    pub(super) bound_s: f64,
    /// Both sides have the memory for it.
    pub(super) fits: bool,
}

/// The place of the offer to take, of which the first is the host's own, where the best of many must be at most
/// `share_max` of that.
pub(super) fn choose(offers: &[Offer], share_max: f64) -> usize {
    let Some(host) = offers.first() else { return 0 };
    let fitting = || offers.iter().enumerate().skip(1).filter(|(_, offer)| offer.fits);
    let best = fitting().map(|(_, offer)| offer.finish_s).min_by(f64::total_cmp);
    let Some(best_s) = best else { return 0 };
    let finishes = fitting().map(|(_, offer)| offer.finish_s);
    if best_s >= needed_of(finishes.collect(), share_max).share_max * host.finish_s {
        return 0;
    }
    let as_good = fitting().filter(|(_, offer)| offer.finish_s <= best_s * (1.0 + AS_GOOD));
    let order = |(_, one): &(usize, &Offer), (_, other): &(usize, &Offer)| {
        let by_risk = one.bound_s.total_cmp(&other.bound_s);
        by_risk.then(one.finish_s.total_cmp(&other.finish_s))
    };
    as_good.min_by(order).map_or(0, |(place, _)| place)
}

fn needed_of(finishes: Vec<f64>, share_max: f64) -> Needed {
    let different_count = different(finishes);
    Needed { share_max: share_of(share_max, different_count), different_count }
}

/// The share of the host's time that the best of `count` different predictions may have, where it is `share_max` for
/// the best of [`COUNT_ASSUMED`].
fn share_of(share_max: f64, count: usize) -> f64 {
    let curse = expected_most(count) / expected_most(COUNT_ASSUMED);
    share_max.powf(CERTAIN + (1.0 - CERTAIN) * curse.min(1.0))
}

/// Predictions that differ.
fn different(mut finishes: Vec<f64>) -> usize {
    finishes.sort_by(f64::total_cmp);
    let (mut count, mut least) = (0, f64::NEG_INFINITY);
    for finish in finishes {
        if finish > least * (1.0 + SAME) || count == 0 {
            (count, least) = (count + 1, finish);
        }
    }
    count
}

/// How many deviations the largest of `count` normal errors is expected to lie above their mean: Blom's approximation.
fn expected_most(count: usize) -> f64 {
    if count < 2 {
        return 0.0;
    }
    let count = count as f64;
    normal_quantile((count - 0.375) / (count + 0.25))
}

/// The value below which a share of at least one half of a normal distribution lies: Abramowitz and Stegun, 26.2.23,
/// off by 0.0005 at most.
fn normal_quantile(share: f64) -> f64 {
    let t = (-2.0 * (1.0 - share).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

#[cfg(test)]
mod tests {
    //! More candidates must promise more; what is as good is taken by its risk.

    use super::*;

    fn offer(finish_s: f64) -> Offer {
        Offer { finish_s, bound_s: 0.0, fits: true }
    }

    fn offers(finishes: &[f64]) -> Vec<Offer> {
        finishes.iter().copied().map(offer).collect()
    }

    #[test]
    fn the_largest_of_several_errors_is_where_tables_have_it() {
        // Tippett's figures.
        for (count, most) in
            [(1, 0.0), (2, 0.564), (3, 0.846), (5, 1.163), (10, 1.539), (15, 1.736)]
        {
            let found = expected_most(count);
            assert!((found - most).abs() < 0.04, "{count}: {found}, not {most}");
        }
    }

    #[test]
    fn the_best_of_many_must_promise_more_than_the_only_one() {
        // The only cut, at 0.59 of the host's time, is worth it; the best of nine is not.
        assert_eq!(choose(&offers(&[1.0, 0.59]), 0.57), 1);
        let many = [1.0, 0.59, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4];
        assert_eq!(choose(&offers(&many), 0.57), 0);
        // Nine that are the same work are one.
        let same = [1.0, 0.59, 0.591, 0.592, 0.593, 0.594, 0.595, 0.596, 0.597, 0.598];
        assert_eq!(choose(&offers(&same), 0.57), 1);
        let shares: Vec<f64> = (1..=20).map(|count| share_of(0.57, count)).collect();
        assert!(shares.is_sorted_by(|fewer, more| fewer >= more), "{shares:?}");
        assert!((share_of(0.57, COUNT_ASSUMED) - 0.57).abs() < 1e-9);
        assert!((share_of(0.57, 100) - 0.57).abs() < 1e-9, "never more than the margin");
    }

    #[test]
    fn margins_at_the_bounds_stay_there() {
        // Every gain is to be taken, and a margin of everything takes none.
        assert_eq!(choose(&offers(&[1.0, 0.999]), 1.0), 1);
        assert_eq!(choose(&offers(&[1.0, 1.0]), 1.0), 0);
        assert_eq!(choose(&offers(&[1.0, 1e-9]), 0.0), 0);
        assert_eq!(choose(&[], 0.5), 0);
        assert_eq!(choose(&offers(&[1.0]), 0.5), 0);
    }

    #[test]
    fn of_offers_that_are_as_good_the_one_with_the_least_risk_is_taken() {
        let bound = |finish_s, bound_s| Offer { bound_s, ..offer(finish_s) };
        let tie = [offer(1.0), bound(0.3, 0.3), bound(0.301, 0.1), bound(0.4, 0.0)];
        assert_eq!(choose(&tie, 0.57), 2);
        // A clearly sooner one is taken whatever its risk.
        let clear = [offer(1.0), bound(0.3, 0.3), bound(0.35, 0.1)];
        assert_eq!(choose(&clear, 0.57), 1);
        // What does not fit is neither the best nor as good.
        let unfit = [offer(1.0), Offer { fits: false, ..offer(0.1) }, bound(0.3, 0.3)];
        assert_eq!(choose(&unfit, 0.57), 2);
    }
}
