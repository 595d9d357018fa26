//! Times the parts of a transaction: locks and the log.
//!
//! `cargo run --release --package cleave-txn --example transactions [FOLDER]`; the log lies in FOLDER, which should be
//! on the media to be measured, and is removed again.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "it is a program that measures")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use cleave_media::Stopwatch;
use cleave_shmem::{HostLocks, TableShape};
use cleave_txn::{
    LockKey, LockMode, LockOwner, Locks, LogOptions, Lsn, Record, TransactionId, Wal,
};

const ROUNDS: u64 = 1_000_000;

fn main() {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("cleave-log-{}", std::process::id()));
    locks();
    bare(&folder);
    for threads in [1, 2, 4, 8, 16, 32] {
        commits(&folder, threads);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn each(name: &str, count: u64, elapsed: Duration) {
    println!("{name:<44} {:>9.0} ns", elapsed.as_nanos() as f64 / count as f64);
}

/// The host's whole path: its own table, and, for rows that a device shares, the shared one.
fn locks() {
    let shape = TableShape::default();
    let (embedded, _device) = HostLocks::embedded(shape).unwrap();
    let (local, _) = HostLocks::create(shape).unwrap();
    for (name, table) in [("no device", None), ("embedded", Some(embedded)), ("local", Some(local))]
    {
        println!("locks of rows that {name} shares");
        let locks = Locks::new();
        table.iter().for_each(|table| locks.share(0, table));
        let row = |vid| LockKey::row_on(0, 1, vid);
        let watch = Stopwatch::start();
        for id in 1..=ROUNDS {
            let owner = LockOwner::new(TransactionId(id));
            assert!(locks.try_lock(&owner, row(id), LockMode::ForUpdate).unwrap());
            locks.release_all(&owner);
        }
        each("a transaction's only lock, and its release", ROUNDS, watch.elapsed());
        let owner = LockOwner::new(TransactionId(ROUNDS + 1));
        let watch = Stopwatch::start();
        for id in 1..=ROUNDS {
            assert!(locks.try_lock(&owner, row(id), LockMode::ForUpdate).unwrap());
        }
        locks.release_all(&owner);
        each("each of a million locks of one, and its release", ROUNDS, watch.elapsed());
        let owner = LockOwner::new(TransactionId(ROUNDS + 2));
        let watch = Stopwatch::start();
        for _ in 1..=ROUNDS {
            let mark = owner.mark();
            assert!(locks.try_lock(&owner, row(7), LockMode::ForUpdate).unwrap());
            locks.release_to(&owner, mark);
        }
        each("lock and unlock", ROUNDS, watch.elapsed());
    }
}

/// The time of a write and a sync on the bare media.
fn bare(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let path = folder.join("bare");
    let file = cleave_media::files::create(&path).unwrap();
    file.write_at(0, &vec![0; 8 << 20]).unwrap();
    file.sync().unwrap();
    let watch = Stopwatch::start();
    let count = 2000;
    for index in 0..count {
        file.write_at(index * 256, &[1; 256]).unwrap();
        file.sync().unwrap();
    }
    each("a bare write of 256 bytes and its sync", count, watch.elapsed());
}

fn commits(folder: &Path, threads: u64) {
    let directory = folder.join(format!("log-{threads}"));
    let log = Wal::create(&directory, Lsn(0), LogOptions::default()).unwrap();
    let per_thread = 2000;
    let watch = Stopwatch::start();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let log = &log;
            scope.spawn(move || {
                let transaction = TransactionId(thread + 1);
                for _ in 0..per_thread {
                    let record = Record::Commit { transaction, payload: [1; 200].as_slice() };
                    let end = log.append(record).unwrap().end;
                    log.wait_durable(end).unwrap();
                }
            });
        }
    });
    let (count, elapsed) = (threads * per_thread, watch.elapsed());
    let figures = log.figures();
    println!(
        "{threads:>2} threads commit 200 bytes each: {:>8.0} commits/s, {:>6.0} syncs/s, {:.0} bytes a commit",
        count as f64 / elapsed.as_secs_f64(),
        figures.sync_count as f64 / elapsed.as_secs_f64(),
        figures.bytes_written as f64 / count as f64,
    );
}
