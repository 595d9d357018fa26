//! Latencies of operations: counts in logarithmic buckets, which threads can add up; any quantile is exact to 1.6 %.

use std::time::Duration;

/// Buckets between two powers of two.
const STEPS: u64 = 64;

/// A histogram of durations, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies {
    counts: Vec<u64>,
    count: u64,
    sum: Duration,
}

impl Latencies {
    /// Adds one.
    pub(crate) fn add(&mut self, taken: Duration) {
        let place = place_of(u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX));
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        self.count += 1;
        self.sum += taken;
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Their mean.
    pub(crate) fn mean(&self) -> Duration {
        self.sum.checked_div(u32::try_from(self.count).unwrap_or(u32::MAX)).unwrap_or_default()
    }

    /// The latency that `share` of them, in thousandths, do not exceed.
    pub(crate) fn quantile(&self, share: u64) -> Duration {
        let wanted = (self.count * share).div_ceil(1000).max(1);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(greatest_of(place));
            }
        }
        Duration::ZERO
    }
}

/// The bucket of a number: the number itself below [`STEPS`], then equally many buckets for each power of two.
fn place_of(number: u64) -> usize {
    let power = number.max(STEPS).ilog2() - STEPS.ilog2();
    let step = number >> power;
    usize::try_from(u64::from(power) * STEPS + step).unwrap_or(usize::MAX)
}

/// The greatest number of a bucket.
fn greatest_of(place: usize) -> u64 {
    let place = place as u64;
    let power = (place / STEPS).saturating_sub(1);
    let step = place - power * STEPS;
    ((step + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_goes_into_it() {
        let mut before = 0;
        for number in (0..10_000).chain((14..60).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit])) {
            let place = place_of(number);
            assert!(greatest_of(place) >= number, "{number}");
            assert!(greatest_of(place) - number <= number / STEPS, "{number}");
            assert!(place >= before, "{number}");
            before = place;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let mut latencies = Latencies::default();
        (1..=100).for_each(|us| latencies.add(Duration::from_micros(us)));
        let near = |share, us: u64| {
            let found = latencies.quantile(share).as_nanos();
            let wanted = u128::from(us) * 1000;
            assert!(found >= wanted && found <= wanted + wanted / 60, "{share}: {found}");
        };
        near(500, 50);
        near(990, 99);
        near(1000, 100);
        assert_eq!(latencies.count(), 100);
        assert_eq!(latencies.mean(), Duration::from_nanos(50_500));
        assert_eq!(Latencies::default().quantile(990), Duration::ZERO);
    }
}
