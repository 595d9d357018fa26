//! Runs clients side by side: each is a thread that runs operation after operation until the time is over.
//!
//! An operation that fails because of isolation (40001, 40P01) is rolled back and retried with the same choices, at
//! most [`TRIES_MAX`] times; its latency counts from the first try. Any other failure ends the benchmark.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleave_media::clock::Stopwatch;

use super::client::{Client, ClientError};
use super::latency::Latencies;
use super::workloads::Workload;
use crate::generate::random::{Draw, mix};

/// Most tries of one operation.
const TRIES_MAX: u32 = 1000;

/// The duration and the seed of a benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course {
    /// The seed of all choices.
    pub(crate) seed: u64,
    /// Time before measurement, not counted.
    pub(crate) warmup: Duration,
    /// Measured time.
    pub(crate) measured: Duration,
}

impl Course {
    /// Operations are counted in steps of so long: a second, or less where only some are measured.
    pub(crate) fn step(&self) -> Duration {
        match self.measured < Duration::from_secs(10) {
            true => Duration::from_millis(100),
            false => Duration::from_secs(1),
        }
    }
}

/// Measurements of one kind of operation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    /// Its name.
    pub(crate) name: &'static str,
    /// Latencies, retries included.
    pub(crate) latencies: Latencies,
    /// Tries beyond the first.
    pub(crate) retries: u64,
    /// How many ended in each [step](Course::step) after the warm-up.
    pub(crate) ended: Vec<u64>,
}

impl Figures {
    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.retries += other.retries;
        if self.ended.len() < other.ended.len() {
            self.ended.resize(other.ended.len(), 0);
        }
        for (count, more) in self.ended.iter_mut().zip(&other.ended) {
            *count += more;
        }
    }

    /// Counts an operation that ended so long after the warm-up.
    fn count(&mut self, after: Duration, step: Duration) {
        let step = step.as_nanos().max(1);
        let place = usize::try_from(after.as_nanos() / step).unwrap_or(usize::MAX);
        // What is measured takes a day at most.
        if place < 1 << 20 {
            if self.ended.len() <= place {
                self.ended.resize(place + 1, 0);
            }
            if let Some(count) = self.ended.get_mut(place) {
                *count += 1;
            }
        }
    }
}

/// A workload, and the clients that run it.
pub(crate) type Crew<'a> = (&'a dyn Workload, Vec<Box<dyn Client>>);

/// Runs all crews at once; returns the figures of each kind of operation, in order.
pub(crate) fn drive<const N: usize>(
    course: &Course,
    crews: [Crew<'_>; N],
) -> Result<Vec<Figures>, ClientError> {
    let stop = AtomicBool::new(false);
    let count = crews.iter().map(|(_, clients)| clients.len()).sum();
    let start = Barrier::new(count);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        let mut number = 0;
        for (workload, clients) in crews {
            let mut of_crew = Vec::new();
            for client in clients {
                let (start, stop) = (&start, &stop);
                let name = format!("client-{number}");
                let thread = std::thread::Builder::new().name(name).stack_size(crate::STACK_BYTES);
                let key = number;
                let spawned = thread.spawn_scoped(scope, move || {
                    let ran = run_client(course, workload, (client, key), start, stop);
                    if ran.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    ran
                });
                of_crew.push(spawned.map_err(|error| ClientError::Connection(error.to_string()))?);
                number += 1;
            }
            running.push((workload, of_crew));
        }
        let mut figures = Vec::new();
        for (workload, of_crew) in running {
            let kinds = workload.operations().iter();
            let mut sums: Vec<Figures> =
                kinds.map(|name| Figures { name, ..Figures::default() }).collect();
            let has_clients = !of_crew.is_empty();
            for thread in of_crew {
                let of_client = thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p))?;
                for (sum, figures) in sums.iter_mut().zip(of_client) {
                    sum.merge(&figures);
                }
            }
            if has_clients {
                figures.extend(sums);
            }
        }
        Ok(figures)
    })
}

fn run_client(
    course: &Course,
    workload: &dyn Workload,
    (mut client, key): (Box<dyn Client>, u64),
    start: &Barrier,
    stop: &AtomicBool,
) -> Result<Vec<Figures>, ClientError> {
    let mut figures = vec![Figures::default(); workload.operations().len()];
    start.wait();
    let begun = Stopwatch::start();
    let end = course.warmup + course.measured;
    for number in 0_u64.. {
        let at = begun.elapsed();
        if at >= end || stop.load(Ordering::Relaxed) {
            break;
        }
        let mut draw = Draw::new(mix(course.seed, key), number);
        let kind = workload.choose(&mut draw, (key, number));
        let mut tries = 1;
        while let Err(error) = workload.perform(kind, client.as_mut(), draw.clone(), (key, number))
        {
            if !error.is_transient() || tries == TRIES_MAX {
                return Err(error);
            }
            tries += 1;
            client.run("ROLLBACK")?;
        }
        if at >= course.warmup
            && let Some(figures) = figures.get_mut(kind)
        {
            let ended = begun.elapsed();
            figures.latencies.add(ended.saturating_sub(at));
            figures.count(ended.saturating_sub(course.warmup), course.step());
            figures.retries += u64::from(tries - 1);
        }
    }
    Ok(figures)
}
