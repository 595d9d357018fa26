//! The bucket on a clock that the test controls.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;

#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl HandClock {
    fn advance(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> i64 {
        0
    }
}

#[test]
fn bytes_take_their_time() {
    let clock = Arc::new(HandClock::default());
    let bucket = TokenBucket::new(1_000_000, Arc::clone(&clock) as Arc<dyn Clock>);
    assert_eq!(bucket.reserve(1_000_000), Duration::from_secs(1));
    assert_eq!(bucket.reserve(500_000), Duration::from_millis(1500));
    clock.advance(Duration::from_millis(1500));
    assert_eq!(bucket.reserve(0), Duration::ZERO);
}

#[test]
fn idle_time_is_worth_one_burst_and_no_more() {
    let clock = Arc::new(HandClock::default());
    let bucket = TokenBucket::new(1_000_000, Arc::clone(&clock) as Arc<dyn Clock>);
    clock.advance(Duration::from_secs(60));
    assert_eq!(bucket.reserve(10_000), Duration::ZERO, "10 ms worth of bytes pass at once");
    assert_eq!(bucket.reserve(10_000), Duration::from_millis(10));
}

#[test]
fn the_largest_figures_do_not_overflow() {
    let bucket = TokenBucket::new(0, Arc::new(HandClock::default()));
    assert_eq!(bucket.reserve(u64::MAX), Duration::from_secs(u64::MAX));
    assert_eq!(bucket.reserve(u64::MAX), Duration::MAX);
}

proptest! {
    #[test]
    fn never_faster_than_the_rate_and_never_slower(
        rate in 1_000_u64..10_000_000_000,
        steps in prop::collection::vec((0_u64..1_000_000, 0_u64..100_000_000), 1..50),
    ) {
        let clock = Arc::new(HandClock::default());
        clock.advance(Duration::from_secs(1));
        let start = clock.now();
        let bucket = TokenBucket::new(rate, Arc::clone(&clock) as Arc<dyn Clock>);
        let mut passed = 0_u128;
        for (bytes, pause) in steps {
            clock.advance(Duration::from_nanos(pause));
            let wait = bucket.reserve(bytes);
            clock.advance(wait);
            passed += u128::from(bytes);
            let elapsed = (clock.now() - start + BURST).as_nanos();
            // A nanosecond may be lost to rounding in every step.
            prop_assert!(passed * 1_000_000_000 <= (elapsed + 50) * u128::from(rate));
            // Without others, bytes never wait longer than they take at this rate.
            prop_assert!(wait.as_nanos() * u128::from(rate) <= u128::from(bytes) * 1_000_000_000);
        }
    }
}
