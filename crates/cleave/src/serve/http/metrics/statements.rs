//! The figures of statements, by kind: how many, how they ended, how long they took.

use cleave_host::Database;
use cleave_host::statements::{BUCKETS_S, KindTotals};

use super::super::exposition::{Exposition, Kind};

/// Adds the figures of all statements since the database was opened.
pub(super) fn statements(exposition: &mut Exposition, database: &Database) {
    let totals = database.statements().totals();
    let help = "Statements that have ended, by kind and outcome.";
    let mut family = exposition.family("cleave_statements_total", Kind::Counter, help);
    for of_kind in &totals {
        let kind = ("kind", of_kind.kind.name());
        for (outcome, count) in
            [("done", of_kind.done), ("failed", of_kind.failed), ("dropped", of_kind.dropped)]
        {
            family.sample(&[kind, ("outcome", outcome)], count);
        }
    }
    let help = "Time from a statement's text to its last row, in seconds.";
    let mut family = exposition.family("cleave_statement_seconds", Kind::Histogram, help);
    for of_kind in &totals {
        let kind = ("kind", of_kind.kind.name());
        for (bound, count) in BUCKETS_S.iter().zip(of_kind.within) {
            let bound = bound.to_string();
            family.part("_bucket", &[kind, ("le", bound.as_str())], count);
        }
        let count = of_kind.done + of_kind.failed + of_kind.dropped;
        family.part("_bucket", &[kind, ("le", "+Inf")], count);
        family.part("_sum", &[kind], of_kind.elapsed.as_secs_f64());
        family.part("_count", &[kind], count);
    }
    for (name, help, of) in SUMS {
        let mut family = exposition.family(name, Kind::Counter, help);
        for of_kind in &totals {
            family.sample(&[("kind", of_kind.kind.name())], of(of_kind));
        }
    }
    let (count, left) = database.statements().entry_counts();
    let help = "Entries of the table cleave.statements.";
    exposition.one("cleave_statement_entries", Kind::Gauge, help, count);
    let help = "Entries of the table cleave.statements that had to go for others.";
    exposition.one("cleave_statement_entries_left_total", Kind::Counter, help, left);
}

/// How a sum is read.
type ReadSum = fn(&KindTotals) -> f64;

/// Name and meaning of the sums of a kind.
const SUMS: [(&str, &str, ReadSum); 4] = [
    ("cleave_statement_rows_total", "Rows that statements gave or changed.", |of| of.rows as f64),
    (
        "cleave_statement_link_bytes_total",
        "Bytes over links for planned queries, in either direction.",
        |of| of.link_bytes as f64,
    ),
    (
        "cleave_statement_device_cpu_seconds_total",
        "Processor time of fragments of planned queries, in seconds.",
        |of| of.device_cpu.as_secs_f64(),
    ),
    (
        "cleave_fragments_refused_total",
        "Fragments that were to run on a device and that the host ran.",
        |of| of.refused as f64,
    ),
];
