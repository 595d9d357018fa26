//! Sums over all statements of a kind: how many, how they ended, how long they took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cleave_catalog::statement_cost::Cost;

use super::{StatementEnd, StatementKind};

/// Upper bounds of the buckets of times, in seconds.
pub const BUCKETS_S: [f64; 12] =
    [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0];

/// The sums of each kind.
#[derive(Debug, Default)]
pub(super) struct Totals([OfKind; StatementKind::ALL.len()]);

#[derive(Debug, Default)]
struct OfKind {
    done: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    rows: AtomicU64,
    elapsed_us: AtomicU64,
    /// Those within each bound, and not within the one before; longer ones are in none.
    buckets: [AtomicU64; BUCKETS_S.len()],
    link_bytes: AtomicU64,
    device_cpu_us: AtomicU64,
    refused: AtomicU64,
}

/// The sums of one kind at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct KindTotals {
    /// The kind.
    pub kind: StatementKind,
    /// Statements that were done.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that were given up.
    pub dropped: u64,
    /// Rows that they gave or changed.
    pub rows: u64,
    /// Their time.
    pub elapsed: Duration,
    /// Those that took no longer than each of [`BUCKETS_S`].
    pub within: [u64; BUCKETS_S.len()],
    /// Bytes of their planned queries over links.
    pub link_bytes: u64,
    /// Processor time of their fragments.
    pub device_cpu: Duration,
    /// Fragments that were to run on a device and that the host ran.
    pub refused: u64,
}

impl Totals {
    pub(super) fn add(
        &self,
        kind: StatementKind,
        end: StatementEnd<'_>,
        elapsed: Duration,
        rows: u64,
        cost: &Cost,
    ) {
        let Some(own) = self.0.get(kind as usize) else { return };
        let ended = match end {
            StatementEnd::Done => &own.done,
            StatementEnd::Failed(_) => &own.failed,
            StatementEnd::Dropped => &own.dropped,
        };
        let add = |sum: &AtomicU64, value: u64| {
            if value > 0 {
                sum.fetch_add(value, Ordering::Relaxed);
            }
        };
        add(ended, 1);
        add(&own.rows, rows);
        add(&own.elapsed_us, u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
        let seconds = elapsed.as_secs_f64();
        let bounds = BUCKETS_S.iter().zip(&own.buckets);
        if let Some((_, bucket)) = bounds.into_iter().find(|(bound, _)| seconds <= **bound) {
            add(bucket, 1);
        }
        add(&own.link_bytes, cost.link_bytes);
        let device_cpu = Duration::try_from_secs_f64(cost.device_cpu_ms / 1e3).unwrap_or_default();
        add(&own.device_cpu_us, u64::try_from(device_cpu.as_micros()).unwrap_or(u64::MAX));
        add(&own.refused, cost.refused);
    }

    pub(super) fn by_kind(&self) -> Vec<KindTotals> {
        let load = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let of_kind = |(kind, own): (&StatementKind, &OfKind)| {
            let mut within = [0; BUCKETS_S.len()];
            let mut sum = 0_u64;
            for (within, bucket) in within.iter_mut().zip(&own.buckets) {
                sum += load(bucket);
                *within = sum;
            }
            KindTotals {
                kind: *kind,
                done: load(&own.done),
                failed: load(&own.failed),
                dropped: load(&own.dropped),
                rows: load(&own.rows),
                elapsed: Duration::from_micros(load(&own.elapsed_us)),
                within,
                link_bytes: load(&own.link_bytes),
                device_cpu: Duration::from_micros(load(&own.device_cpu_us)),
                refused: load(&own.refused),
            }
        };
        StatementKind::ALL.iter().zip(&self.0).map(of_kind).collect()
    }
}
