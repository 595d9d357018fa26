//! The only source of time in Cleave's sync crates: monotonic and wall clocks, CPU time, stopwatches.
//!
//! Invariant: nothing else calls the operating system's clocks (`clippy.toml` denies it), so a simulation that provides
//! another [`Clock`] owns time. Wall time serves output for people and SQL's `now()`, never ordering or measuring.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::simulation;

/// A source of time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Time since an arbitrary moment; never goes back.
    fn now(&self) -> Duration;

    /// Microseconds since 1970-01-01T00:00:00Z, as the operating system believes it; may jump.
    fn wall(&self) -> i64;
}

/// The operating system's clocks, or those of the simulation that owns the thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        match simulation::current() {
            Some(world) => world.now(),
            None => duration(clock_gettime(ClockId::Monotonic)),
        }
    }

    fn wall(&self) -> i64 {
        if let Some(world) = simulation::current() {
            return world.wall();
        }
        let time = clock_gettime(ClockId::Realtime);
        time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1000)
    }
}

/// Measures how long something takes.
#[derive(Debug, Clone)]
pub struct Stopwatch {
    clock: Arc<dyn Clock>,
    started: Duration,
}

impl Stopwatch {
    /// Starts now, by the operating system's clock.
    #[must_use]
    pub fn start() -> Self {
        Self::start_by(Arc::new(SystemClock))
    }

    /// Starts now, by `clock`.
    #[must_use]
    pub fn start_by(clock: Arc<dyn Clock>) -> Self {
        let started = clock.now();
        Self { clock, started }
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.now().saturating_sub(self.started)
    }
}

/// CPU time that the calling thread has used since it began, in user and kernel mode.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    cpu_time(ClockId::ThreadCPUTime)
}

/// CPU time that all threads of this process have used since it began, in user and kernel mode.
#[must_use]
pub fn process_cpu_time() -> Duration {
    cpu_time(ClockId::ProcessCPUTime)
}

/// In a simulation nothing takes CPU time.
fn cpu_time(clock: ClockId) -> Duration {
    if simulation::is_active() { Duration::ZERO } else { duration(clock_gettime(clock)) }
}

/// These clocks start at 0 and have nanoseconds below one second.
fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests;
