//! Rows that a device's jobs lock, too. The jobs are test doubles of fragments: they lock rows in the table shared with
//! the device, in this process or in another one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cleave_media::SplitMix64;
use cleave_shmem::{DeviceLocks, HostLocks, Job, JobLock, JobLocks, Row, SlotFormat, TableShape};

use super::*;
use crate::wal::tests::group::block_on;

mod cycles;
mod modes;
mod process;

/// So few entries that rows share them.
const SMALL: TableShape = TableShape { entry_count: 16, format: SlotFormat::EIGHT };
const DEVICE: u32 = 3;
const OBJECT: u64 = 7;

fn row(vid: u64) -> LockKey {
    LockKey::row_on(DEVICE, OBJECT, vid)
}

fn shared() -> (Arc<Locks>, Arc<HostLocks>, Arc<DeviceLocks>) {
    let (host, device) = HostLocks::embedded(SMALL).unwrap();
    let locks = Locks::new();
    locks.share(DEVICE, &host);
    (locks, host, device)
}

fn begin(host: &HostLocks, device: &Arc<DeviceLocks>) -> JobLocks {
    device.begin(host.assign_job().unwrap()).unwrap()
}

fn job_lock(job: &JobLocks, vid: u64) -> JobLock {
    job.lock(Row { object: OBJECT, vid }).unwrap()
}

fn job_has(job: &JobLocks, vid: u64) -> bool {
    matches!(job_lock(job, vid), JobLock::Held)
}

/// Two rows whose locks are in one entry.
fn neighbours(host: &HostLocks) -> (u64, u64) {
    let ticket = host.join(Row { object: OBJECT, vid: 1 }, |_| false).unwrap().ticket;
    let other = (2..).find(|vid| host.is_at(&ticket, Row { object: OBJECT, vid: *vid })).unwrap();
    host.leave(ticket).unwrap();
    (1, other)
}

#[test]
fn who_comes_to_a_jobs_row_waits_for_it() {
    let (locks, host, device) = shared();
    let mut job = begin(&host, &device);
    assert!(job_has(&job, 1));
    let [a, b, c] = [1, 2, 3].map(owner);
    assert!(!locks.try_lock(&a, row(1), SHARE).unwrap());
    assert_eq!(locks.list(), []);
    let mut first = waiting(locks.request(&a, row(1), SHARE));
    let mut second = waiting(locks.request(&b, row(1), SHARE));
    let mut third = waiting(locks.request(&c, row(1), UPDATE));
    assert!(now(&mut first).is_none() && now(&mut second).is_none());
    job.release().unwrap();
    assert!(matches!(now(&mut first), Some(Ok(()))));
    assert!(matches!(now(&mut second), Some(Ok(()))));
    assert!(now(&mut third).is_none());
    locks.release_all(&a);
    locks.release_all(&b);
    assert!(matches!(now(&mut third), Some(Ok(()))));
    locks.release_all(&c);
    let job = begin(&host, &device);
    assert!(job_has(&job, 1));
}

#[test]
fn a_wait_that_is_dropped_leaves_nothing_in_either_table() {
    let (locks, host, device) = shared();
    let job = begin(&host, &device);
    assert!(job_has(&job, 1));
    let [a, b] = [1, 2].map(owner);
    let first = waiting(locks.request(&a, row(1), UPDATE));
    let mut second = waiting(locks.request(&b, row(1), UPDATE));
    drop(first);
    locks.cancel(&b);
    assert!(matches!(now(&mut second), Some(Err(LockError::Cancelled { .. }))));
    assert_eq!(locks.list(), []);
    assert_eq!(host.contended().unwrap(), []);
    let timed = locks.lock(&a, row(1), UPDATE, Some(Duration::from_millis(5)));
    assert!(matches!(timed, Err(LockError::Timeout { .. })));
    assert_eq!(host.contended().unwrap(), []);
    locks.release_all(&a);
    assert!(matches!(locks.request(&a, row(1), UPDATE), Err(LockError::Ended(_))));
    assert_eq!(host.contended().unwrap(), []);
}

#[test]
fn a_job_that_queued_goes_before_those_of_the_host_that_came_later() {
    let (locks, host, device) = shared();
    let mut job = begin(&host, &device);
    let [a, b, c] = [1, 2, 3].map(owner);
    assert!(granted(locks.request(&a, row(1), SHARE)));
    let JobLock::Waits(waiting_job) = job_lock(&job, 1) else { panic!("the host has it") };
    let mut wait = Box::pin(job.wait(waiting_job));
    let mut is_held = || {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        wait.as_mut().poll(&mut context).is_ready()
    };
    let mut late = waiting(locks.request(&b, row(1), UPDATE));
    assert!(!is_held());
    // Those that hold it already go on.
    assert!(granted(locks.request(&a, row(1), UPDATE)));
    locks.release_all(&a);
    assert!(is_held() && now(&mut late).is_none());
    let mut last = waiting(locks.request(&c, row(1), UPDATE));
    drop(wait);
    job.release().unwrap();
    assert!(matches!(now(&mut late), Some(Ok(()))));
    assert!(now(&mut last).is_none());
    locks.release_all(&b);
    assert!(matches!(now(&mut last), Some(Ok(()))));
}

#[test]
fn a_transaction_does_not_wait_behind_a_job_that_waits_for_it() {
    let (locks, host, device) = shared();
    let (one, other) = neighbours(&host);
    let job = begin(&host, &device);
    let [a, b] = [1, 2].map(owner);
    assert!(granted(locks.request(&a, row(one), UPDATE)));
    assert!(matches!(job_lock(&job, one), JobLock::Waits(_)));
    // Another row of the entry that it has.
    assert!(granted(locks.request(&a, row(other), UPDATE)));
    locks.release_all(&a);
    // Another transaction comes behind the job.
    let mut wait = waiting(locks.request(&b, row(other), UPDATE));
    assert!(now(&mut wait).is_none());
    host.release_job(job.job()).unwrap();
    assert!(matches!(now(&mut wait), Some(Ok(()))));
}

#[test]
fn savepoints_give_rows_back_to_jobs() {
    let (locks, host, device) = shared();
    let a = owner(1);
    assert!(granted(locks.request(&a, row(1), SHARE)));
    let mark = a.mark();
    assert!(granted(locks.request(&a, row(1), UPDATE)));
    assert!(granted(locks.request(&a, row(2), UPDATE)));
    locks.release_to(&a, mark);
    let job = begin(&host, &device);
    assert!(job_has(&job, 2));
    assert!(matches!(job_lock(&job, 1), JobLock::Waits(_)));
}

#[test]
fn what_is_no_row_of_the_device_is_none_of_its_matter() {
    let (locks, host, device) = shared();
    let a = owner(1);
    let keys = [LockKey::table(OBJECT), LockKey::key(OBJECT, 1), LockKey::row(OBJECT, 1)];
    for key in keys.into_iter().chain([LockKey::row_on(DEVICE + 1, OBJECT, 1)]) {
        let mode = if key.kind() == KeyKind::Table { LockMode::Exclusive } else { UPDATE };
        assert!(granted(locks.request(&a, key, mode)));
    }
    assert!(job_has(&begin(&host, &device), 1));
}

#[test]
fn a_device_that_dies_gives_up_its_rows_by_a_fence() {
    let (locks, host, device) = shared();
    let job = begin(&host, &device);
    assert!(job_has(&job, 1));
    let a = owner(1);
    let mut wait = waiting(locks.request(&a, row(1), UPDATE));
    drop(job);
    assert!(now(&mut wait).is_none());
    host.fence();
    assert!(matches!(now(&mut wait), Some(Ok(()))));
}

/// Transactions and jobs over a few rows, where all waits are served: each is alone at its rows, and all is free in the
/// end.
#[test]
fn transactions_and_jobs_exclude_each_other() {
    const ROWS: u64 = 6;
    let (locks, host, device) = shared();
    let next_id = AtomicU64::new(1);
    // Present holders of a row: 1 for a transaction, 1 << 16 for a job.
    let inside: Vec<AtomicU32> = (0..ROWS).map(|_| AtomicU32::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let at = |vid: u64| &inside[usize::try_from(vid).unwrap()];
    thread::scope(|scope| {
        let transactions: Vec<_> = (0..3)
            .map(|seed| {
                let (locks, next_id, at) = (&locks, &next_id, &at);
                scope.spawn(move || {
                    let mut random = SplitMix64::new(seed);
                    for _ in 0..400 {
                        let owner = owner(next_id.fetch_add(1, Ordering::Relaxed));
                        // One row each: cycles through a job end only by its time limit.
                        let vid = random.below(ROWS);
                        let locked = match locks.request(&owner, row(vid), UPDATE).unwrap() {
                            Requested::Granted => Ok(()),
                            Requested::Waiting(wait) if random.below(2) == 0 => wait.block(None),
                            Requested::Waiting(wait) => block_on(wait),
                        };
                        locked.unwrap();
                        assert_eq!(at(vid).fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        assert_eq!(at(vid).fetch_sub(1, Ordering::SeqCst), 1);
                        locks.release_all(&owner);
                    }
                })
            })
            .collect();
        for seed in 10..12 {
            let (host, device, at, is_over) = (&host, &device, &at, &is_over);
            scope.spawn(move || {
                let mut random = SplitMix64::new(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let mut job = begin(host, device);
                    let vid = random.below(ROWS);
                    match job_lock(&job, vid) {
                        JobLock::Held => {}
                        JobLock::Waits(waiting) => {
                            assert!(matches!(block_on(job.wait(waiting)), Ok(JobLock::Held)));
                        }
                        JobLock::Full => panic!("fewer jobs than places"),
                    }
                    assert_eq!(at(vid).fetch_add(1 << 16, Ordering::SeqCst), 0);
                    thread::yield_now();
                    assert_eq!(at(vid).fetch_sub(1 << 16, Ordering::SeqCst), 1 << 16);
                    let id = job.job();
                    job.release().unwrap();
                    host.release_job(id).unwrap();
                    thread::yield_now();
                }
            });
        }
        for transaction in transactions {
            transaction.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(locks.list(), []);
    assert_eq!(host.contended().unwrap(), []);
    assert_eq!(host.figures().spoilt, 0);
    let job = begin(&host, &device);
    assert!((0..ROWS).all(|vid| job_has(&job, vid)));
}
