//! Transactions in all row modes, and jobs, each at several rows and in any order: cycles form all the time, and are
//! found.

use std::sync::Mutex;

use super::*;

const ROWS: u64 = 5;
const ROW_MODES: [LockMode; 4] =
    [LockMode::ForKeyShare, LockMode::ForShare, LockMode::ForNoKeyUpdate, LockMode::ForUpdate];

/// Transactions by their modes, and whether a job is there.
type AtRow = (Vec<(u64, LockMode)>, bool);

/// The holders of each row: transactions by their modes, and whether a job.
#[derive(Default)]
struct Inside(Mutex<Vec<AtRow>>);

impl Inside {
    fn enter(&self, vid: u64, id: u64, mode: LockMode) {
        let mut rows = self.0.lock().unwrap();
        let (modes, has_job) = &mut rows[usize::try_from(vid).unwrap()];
        assert!(!*has_job, "a job is there");
        let mut others = modes.iter().filter(|(other, _)| *other != id);
        assert!(!others.any(|(_, other)| other.conflicts_with(mode)), "{mode} beside {modes:?}");
        modes.push((id, mode));
    }

    fn leave(&self, vid: u64, id: u64) {
        let mut rows = self.0.lock().unwrap();
        rows[usize::try_from(vid).unwrap()].0.retain(|(other, _)| *other != id);
    }

    fn enter_job(&self, vid: u64) {
        let mut rows = self.0.lock().unwrap();
        let (modes, has_job) = &mut rows[usize::try_from(vid).unwrap()];
        assert!(modes.is_empty() && !std::mem::replace(has_job, true), "somebody is there");
    }

    fn leave_job(&self, vid: u64) {
        self.0.lock().unwrap()[usize::try_from(vid).unwrap()].1 = false;
    }
}

/// No timer looks for cycles, only the requests that close them: this ends only if each cycle is found at once.
#[test]
fn deadlocks_of_transactions_and_jobs_never_last() {
    let (locks, host, device) = shared();
    let next_id = AtomicU64::new(1);
    let inside = Inside(Mutex::new(vec![Default::default(); usize::try_from(ROWS).unwrap()]));
    let (is_over, deadlocks, by_jobs) =
        (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let transactions: Vec<_> = (0..3)
            .map(|seed| {
                let (locks, next_id, inside, deadlocks) = (&locks, &next_id, &inside, &deadlocks);
                scope.spawn(move || {
                    let mut random = SplitMix64::new(seed);
                    for _ in 0..60 {
                        let id = next_id.fetch_add(1, Ordering::Relaxed);
                        let owner = owner(id);
                        let mut has = Vec::new();
                        for _ in 0..3 {
                            let vid = random.below(ROWS);
                            let mode = ROW_MODES[usize::try_from(random.below(4)).unwrap()];
                            match locks.lock(&owner, row(vid), mode, None) {
                                Ok(()) => {
                                    inside.enter(vid, id, mode);
                                    has.push(vid);
                                    thread::yield_now();
                                }
                                Err(LockError::Deadlock(_)) => {
                                    deadlocks.fetch_add(1, Ordering::Relaxed);
                                    break;
                                }
                                Err(error) => panic!("{error}"),
                            }
                        }
                        has.iter().for_each(|vid| inside.leave(*vid, id));
                        locks.release_all(&owner);
                    }
                })
            })
            .collect();
        for seed in 10..12 {
            let (locks, host, device) = (&locks, &host, &device);
            let (next_id, inside, is_over, by_jobs) = (&next_id, &inside, &is_over, &by_jobs);
            scope.spawn(move || {
                let mut random = SplitMix64::new(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let owner = owner(next_id.fetch_add(1, Ordering::Relaxed));
                    let job = begin(host, device);
                    let id = job.job();
                    locks.begin_job(DEVICE, id.id, &owner);
                    let mut has = Vec::new();
                    for _ in 0..3 {
                        let vid = random.below(ROWS);
                        let held = match job_lock(&job, vid) {
                            JobLock::Held => true,
                            JobLock::Waits(waiting) => {
                                let waits = locks.job_waits(DEVICE, id.id).is_none();
                                waits && matches!(block_on(job.wait(waiting)), Ok(JobLock::Held))
                            }
                            JobLock::Full => false,
                        };
                        if !held {
                            by_jobs.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                        if !has.contains(&vid) {
                            inside.enter_job(vid);
                            has.push(vid);
                        }
                        thread::yield_now();
                    }
                    has.iter().for_each(|vid| inside.leave_job(*vid));
                    host.release_job(id).unwrap();
                    locks.end_job(DEVICE, id.id);
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
}
