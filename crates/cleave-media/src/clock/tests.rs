//! Clocks: order and units, independent of the speed of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Clock, Stopwatch, SystemClock, process_cpu_time, thread_cpu_time};

/// A clock that advances one second whenever it is read.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn wall(&self) -> i64 {
        0
    }
}

#[test]
fn a_stopwatch_goes_by_its_clock() {
    let stopwatch = Stopwatch::start_by(Arc::new(Ticking::default()));
    assert_eq!(stopwatch.elapsed(), Duration::from_secs(1));
    assert_eq!(stopwatch.elapsed(), Duration::from_secs(2));
}

#[test]
fn system_time_does_not_go_back() {
    let clock = SystemClock;
    assert!(clock.now() <= clock.now());
    let year_2020_us = 1_577_836_800_000_000;
    assert!(clock.wall() > year_2020_us, "microseconds, not seconds");
}

#[test]
fn a_thread_uses_no_more_than_its_process() {
    let before = thread_cpu_time();
    let mut sum = 0_u64;
    for value in 0..2_000_000_u64 {
        sum = std::hint::black_box(sum.wrapping_add(value));
    }
    let thread = thread_cpu_time();
    assert!(before < thread);
    assert!(thread <= process_cpu_time());
}
