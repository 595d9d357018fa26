//! Measures the shared lock table: lock and unlock on both sides against a bare pair of 128-bit compare-and-swaps.
//!
//! `cargo run --release -p cleave-shmem --example lock_figures`. One thread, no contention, the same rows in the same
//! order for each, in a table with entries of 16 bytes and in one with entries of 8. A figure is the least of 15, since
//! disturbances only add to it. The bare pairs, of 16 bytes, touch the same entries as the locks of the rows.

#![expect(clippy::disallowed_methods, reason = "a stopwatch is what it is")]

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cleave_shmem::{DeviceLocks, HostLocks, Job, JobLock, Row, SlotFormat, TableShape};
use portable_atomic::AtomicU128;

const REPEATS: usize = 15;
const ROUNDS: u64 = 50;
/// Rows of one transaction, in as many entries: consecutive VIDs are in neighbouring ones.
const ROWS: u64 = 4096;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut out = io::stdout();
    for format in [SlotFormat::EIGHT, SlotFormat::FOUR] {
        if format.is_lock_free() {
            writeln!(out, "entries of {} bytes", format.entry_bytes())?;
            figures(&mut out, TableShape { format, ..TableShape::default() })?;
        }
    }
    Ok(())
}

fn figures(out: &mut io::Stdout, shape: TableShape) -> Outcome<()> {
    let (host, device) = HostLocks::embedded(shape)?;
    let (local_host, _) = HostLocks::create(shape)?;
    let (offer, descriptors) = local_host.offer().ok_or("no offer")?;
    let mut handed = Vec::new();
    for descriptor in descriptors {
        handed.push(descriptor.try_clone_to_owned()?);
    }
    let local_device = DeviceLocks::open(&offer, handed)?;

    writeln!(out, "one row, locked and unlocked in turn")?;
    let bare = least(|| Ok(bare_pairs(1)))?;
    writeln!(out, "  bare pair                 {:>7.1} ns", nanos(bare))?;
    let report = |out: &mut io::Stdout, what: &str, time: Duration, bare: Duration| {
        let ratio = nanos(time) / nanos(bare);
        writeln!(out, "  {what:<25} {:>7.1} ns = {ratio:.2}x", nanos(time))
    };
    report(out, "host, embedded", least(|| host_pairs(&host, 1))?, bare)?;
    report(out, "host, local", least(|| host_pairs(&local_host, 1))?, bare)?;

    writeln!(out, "{ROWS} rows, all locked, then all unlocked; of each")?;
    let bare = least(|| Ok(bare_pairs(ROWS)))?;
    writeln!(out, "  bare pair                 {:>7.1} ns", nanos(bare))?;
    report(out, "host, embedded", least(|| host_pairs(&host, ROWS))?, bare)?;
    report(out, "host, local", least(|| host_pairs(&local_host, ROWS))?, bare)?;
    let job = host.assign_job().ok_or("no job")?;
    report(out, "job, embedded", least(|| job_pairs(&device, job))?, bare)?;
    let job = local_host.assign_job().ok_or("no job")?;
    report(out, "job, local", least(|| job_pairs(&local_device, job))?, bare)?;

    let mut locks = local_device.begin(job)?;
    let held = |row| matches!(locks.lock(row), Ok(JobLock::Held));
    assert!(rows(ROWS).all(held), "nobody else is there");
    let again = least(|| {
        let since = Instant::now();
        for _ in 0..ROUNDS {
            assert!(rows(ROWS).all(held));
        }
        Ok(since.elapsed())
    })?;
    writeln!(out, "  job, a row of an entry that it has  {:>7.1} ns", nanos(again))?;
    locks.release()?;

    writeln!(out, "sweeps over {} entries", shape.entry_count)?;
    let sweep = least(|| {
        let since = Instant::now();
        local_host.release_job(job)?;
        Ok(since.elapsed())
    })?;
    writeln!(out, "  a job's end, by the host  {:>7.1} µs", sweep.as_secs_f64() * 1e6)?;
    let fence = least(|| {
        let since = Instant::now();
        local_host.fence();
        Ok(since.elapsed())
    })?;
    writeln!(out, "  a fence                   {:>7.1} µs", fence.as_secs_f64() * 1e6)?;
    Ok(())
}

fn least(mut measure: impl FnMut() -> Outcome<Duration>) -> Outcome<Duration> {
    let mut times = (0..REPEATS).map(|_| measure()).collect::<Outcome<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times.first().copied().unwrap_or_default())
}

fn nanos(total: Duration) -> f64 {
    total.as_secs_f64() * 1e9 / (ROUNDS * ROWS) as f64
}

fn rows(count: u64) -> impl Iterator<Item = Row> {
    (0..count).map(|vid| Row { object: 7, vid: black_box(vid) })
}

/// Bare pairs on the entries of [`ROWS`] rows, spread alike by groups of four, `at_once` at a time.
fn bare_pairs(at_once: u64) -> Duration {
    let places: Vec<_> = (0..1 << 16).map(|_| AtomicU128::new(0)).collect();
    let change = |vid: u64, from, to| {
        let group = (vid / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
        let place = places.get(usize::try_from(group * 4 + vid % 4).unwrap_or_default());
        place.is_some_and(|it| {
            it.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        })
    };
    let since = Instant::now();
    for _ in 0..ROUNDS * ROWS / at_once {
        for vid in 0..at_once {
            black_box(change(black_box(vid), 0, 1));
        }
        for vid in 0..at_once {
            black_box(change(black_box(vid), 1, 0));
        }
    }
    since.elapsed()
}

fn host_pairs(host: &HostLocks, at_once: u64) -> Outcome<Duration> {
    let mut tickets = Vec::new();
    let since = Instant::now();
    for _ in 0..ROUNDS * ROWS / at_once {
        for row in rows(at_once) {
            let joined = host.join(row, |_| false)?;
            assert!(joined.is_granted, "nobody else is there");
            tickets.push(joined.ticket);
        }
        for ticket in tickets.drain(..) {
            host.leave(ticket)?;
        }
    }
    Ok(since.elapsed())
}

fn job_pairs(device: &Arc<DeviceLocks>, job: Job) -> Outcome<Duration> {
    let mut locks = device.begin(job)?;
    let since = Instant::now();
    for _ in 0..ROUNDS {
        for row in rows(ROWS) {
            assert!(matches!(locks.lock(row), Ok(JobLock::Held)), "nobody else is there");
        }
        locks.release()?;
    }
    Ok(since.elapsed())
}
