//! Compares four ways to store a bulk UPDATE of one column of ten: bytes written, and the cost of later reads.
//!
//! ```sh
//! cargo run --release -p cleave-store --example bulk_update             # 2,097,152 rows
//! cargo run --release -p cleave-store --example bulk_update -- 1000000
//! ```
//!
//! | | |
//! |---|---|
//! | `rows` | each changed row dies; a whole new one gets a new VID (`docs/design/versions-and-commit.md`) |
//! | `chains` | a new version under the same VID; a map from VID to the newest; each version has its predecessor |
//! | `chunks` | new chunks of the column; a new header shares the others (`docs/design/pages-and-encodings.md`) |
//! | `deltas` | slot and value pairs beside each page, merged on reading (Kudu's delta files, positional delta trees) |
//!
//! This crate encodes, writes, verifies and decodes the pages. Structures that it lacks (maps of chains, pages that
//! share chunks, merging deltas) are prototyped here. The media is memory, nothing is throttled, and nothing is cached
//! but the opened pages of point reads. Times are CPU times of the one thread, best of 3. The log is not counted. After
//! each update all four ways return the same sums and rows.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a measuring tool that may end at once"
)]

mod chunk_versions;
mod column_deltas;
mod row_versions;
mod table;

use cleave_media::{SplitMix64, thread_cpu_time};

use chunk_versions::ChunkVersions;
use column_deltas::ColumnDeltas;
use row_versions::RowVersions;
use table::{Table, Way, Written};

const POINT_READS: usize = 20_000;
const SCANS: usize = 3;
const UPDATES: usize = 3;

fn main() {
    let rows = std::env::args().nth(1).map_or(32 << 16, |rows| rows.parse().unwrap());
    let table = Table::generate(rows);
    println!("{rows} rows on {} pages, {} kB", table.pages.len(), table.byte_count() / 1000);
    println!(
        "{:20} {:7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "rows changed",
        "way",
        "kB",
        "write ms",
        "entries",
        "index kB",
        "index ms",
        "scan ms",
        "other ms",
        "point us"
    );
    let all: Vec<u32> = (0..rows).collect();
    report(&table, "none", &[]);
    report(&table, "100 %", &[all]);
    for (name, one_in) in [("10 %", 10), ("1 %", 100), ("0.1 %", 1000), ("0.01 %", 10_000)] {
        report(&table, &format!("{name} spread"), &[spread(rows, one_in, 1)]);
        report(&table, &format!("{name} together"), &[together(rows, one_in)]);
    }
    let eight: Vec<Vec<u32>> = (0..8).map(|seed| spread(rows, 100, seed)).collect();
    report(&table, "8 times 1 % spread", &eight);
}

/// One row in `one_in`, at random.
fn spread(rows: u32, one_in: u32, seed: u64) -> Vec<u32> {
    let mut random = SplitMix64::new(seed);
    let step = |place: u32| place * one_in + random.below(u64::from(one_in)) as u32;
    (0..rows / one_in).map(step).collect()
}

/// As many successive rows, like those of one day in a table that is ordered by time.
fn together(rows: u32, one_in: u32) -> Vec<u32> {
    (rows / 3..rows / 3 + rows / one_in).collect()
}

/// Runs the updates in each way and prints a line for it: the bytes written by all, and reads after the last.
fn report(table: &Table, name: &str, updates: &[Vec<u32>]) {
    let changed: usize = updates.iter().map(Vec::len).sum();
    for way in ["rows", "chains", "chunks", "deltas"] {
        let begin = || -> Box<dyn Way + '_> {
            match way {
                "rows" => Box::new(RowVersions::new(table, false)),
                "chains" => Box::new(RowVersions::new(table, true)),
                "chunks" => Box::new(ChunkVersions::new(table)),
                _ => Box::new(ColumnDeltas::new(table)),
            }
        };
        let (mut versions, mut sum) = (begin(), None);
        for _ in 0..UPDATES {
            versions = begin();
            let again = Written::all(updates.iter().map(|rows| versions.update(rows)));
            sum = Some(again.at_best(sum));
        }
        let sum = sum.unwrap_or_default();
        let (changed_ms, prices) = best(|| versions.sum_of_changed());
        let (other_ms, quantities) = best(|| versions.sum_of_other());
        // Every update adds a cent to each of its rows.
        assert_eq!(prices, table.price_sum + changed as i128, "{way}");
        assert_eq!(quantities, table.quantity_sum, "{way}");
        let mut random = SplitMix64::new(7);
        let last = updates.last();
        let asked: Vec<u32> = (0..POINT_READS)
            .map(|_| match last {
                Some(rows) => rows[random.below(rows.len() as u64) as usize],
                None => random.below(table.price_of.len() as u64) as u32,
            })
            .collect();
        let times = |row: u32| {
            updates.iter().filter(|rows| rows.binary_search(&row).is_ok()).count() as i128
        };
        for row in asked.iter().step_by(97) {
            assert_eq!(versions.price(*row), table.price_of[*row as usize] + times(*row), "{way}");
        }
        for row in &asked {
            versions.price(*row);
        }
        let start = thread_cpu_time();
        for row in &asked {
            std::hint::black_box(versions.price(*row));
        }
        let point = (thread_cpu_time() - start).as_secs_f64() * 1e6 / POINT_READS as f64;
        println!(
            "{name:20} {way:7} {:9} {:9.1} {:9} {:9} {:9.1} {changed_ms:9.2} {other_ms:9.2} {point:9.2}",
            sum.bytes / 1000,
            sum.cpu.as_secs_f64() * 1e3,
            sum.entries,
            sum.index_bytes / 1000,
            sum.index_cpu.as_secs_f64() * 1e3,
        );
    }
}

/// CPU milliseconds of the best of a few runs, and their result.
fn best(mut scan: impl FnMut() -> i128) -> (f64, i128) {
    let mut ms = f64::INFINITY;
    let mut answer = 0;
    for _ in 0..SCANS {
        let start = thread_cpu_time();
        answer = scan();
        ms = ms.min((thread_cpu_time() - start).as_secs_f64() * 1e3);
    }
    (ms, answer)
}
