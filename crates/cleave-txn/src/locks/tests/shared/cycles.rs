//! Deadlock cycles through jobs, closed by either side.

use super::*;

fn job_of(
    locks: &Locks,
    host: &HostLocks,
    device: &Arc<DeviceLocks>,
    owner: &LockOwner,
) -> JobLocks {
    let job = begin(host, device);
    locks.begin_job(DEVICE, job.job().id, owner);
    job
}

fn job_waits(job: &JobLocks, vid: u64) -> bool {
    matches!(job_lock(job, vid), JobLock::Waits(_))
}

fn is_deadlock<T>(outcome: Option<Result<T, LockError>>) -> bool {
    matches!(outcome, Some(Err(LockError::Deadlock(_))))
}

#[test]
fn a_transaction_that_closes_a_ring_is_told_at_once() {
    let (locks, host, device) = shared();
    let [a, b] = [1, 2].map(owner);
    let job = job_of(&locks, &host, &device, &b);
    assert!(granted(locks.request(&a, row(1), UPDATE)));
    assert!(job_has(&job, 2) && job_waits(&job, 1));
    assert!(locks.job_waits(DEVICE, job.job().id).is_none(), "no cycle yet");
    let error = locks.request(&a, row(2), UPDATE).unwrap_err();
    let LockError::Deadlock(deadlock) = error else { panic!("{error}") };
    let text = deadlock.to_string();
    assert!(
        text.contains("row 2 of table 7") && text.contains("of the locks of device 3"),
        "{text}"
    );
    locks.release_all(&a);
    assert!(job_has_now(&job, 1));
}

/// Two locks of the host lead to the job: it waits for a row, and its transaction has the table.
#[test]
fn a_transaction_that_waits_for_the_table_of_a_waiting_job_is_told() {
    let (locks, host, device) = shared();
    let [a, b] = [1, 2].map(owner);
    let table = LockKey::table(7);
    let job = job_of(&locks, &host, &device, &b);
    assert!(granted(locks.request(&b, table, LockMode::ShareUpdateExclusive)));
    assert!(granted(locks.request(&a, table, LockMode::RowExclusive)));
    assert!(granted(locks.request(&a, row(1), UPDATE)));
    assert!(job_waits(&job, 1));
    assert!(locks.job_waits(DEVICE, job.job().id).is_none(), "no cycle yet");
    assert!(is_deadlock(Some(locks.request(&a, table, LockMode::Exclusive))));
    locks.release_all(&a);
    assert!(job_has_now(&job, 1));
}

/// Whether the job gets the lock after waiting.
fn job_has_now(job: &JobLocks, vid: u64) -> bool {
    match job_lock(job, vid) {
        JobLock::Held => true,
        JobLock::Waits(waiting) => matches!(block_on(job.wait(waiting)), Ok(JobLock::Held)),
        JobLock::Full => false,
    }
}

#[test]
fn a_job_that_closes_a_ring_goes_on_and_the_transaction_leaves() {
    let (locks, host, device) = shared();
    let [a, b, c] = [1, 2, 3].map(owner);
    let job = job_of(&locks, &host, &device, &b);
    assert!(granted(locks.request(&a, row(1), UPDATE)) && job_has(&job, 2));
    let mut wait = waiting(locks.request(&a, row(2), UPDATE));
    let mut bystander = waiting(locks.request(&c, row(2), UPDATE));
    assert!(job_waits(&job, 1));
    assert!(now(&mut wait).is_none());
    assert!(locks.job_waits(DEVICE, job.job().id).is_none(), "the transaction leaves");
    assert!(is_deadlock(now(&mut wait)));
    assert!(now(&mut bystander).is_none());
    locks.release_all(&a);
    assert!(job_has_now(&job, 1));
    host.release_job(job.job()).unwrap();
    locks.end_job(DEVICE, job.job().id);
    assert!(matches!(now(&mut bystander), Some(Ok(()))));
}

#[test]
fn a_deadlock_of_jobs_alone_ends_the_one_that_closed_it() {
    let (locks, host, device) = shared();
    let [a, b] = [1, 2].map(owner);
    let first = job_of(&locks, &host, &device, &a);
    let second = job_of(&locks, &host, &device, &b);
    assert!(job_has(&first, 1) && job_has(&second, 2) && job_waits(&first, 2));
    assert!(locks.job_waits(DEVICE, first.job().id).is_none());
    assert!(job_waits(&second, 1));
    let deadlock = locks.job_waits(DEVICE, second.job().id).unwrap();
    assert_eq!(deadlock.edges.len(), 2);
}

#[test]
fn a_ring_leads_through_tables_rows_and_jobs() {
    let (locks, host, device) = shared();
    let [a, b, c] = [1, 2, 3].map(owner);
    let job = job_of(&locks, &host, &device, &b);
    let table = LockKey::table(OBJECT);
    assert!(granted(locks.request(&a, table, LockMode::Exclusive)));
    assert!(granted(locks.request(&c, row(3), UPDATE)));
    assert!(job_has(&job, 2) && job_waits(&job, 3));
    // c waits for a, the job for c; and a for the job.
    let mut wait = waiting(locks.request(&c, table, LockMode::RowExclusive));
    assert!(locks.job_waits(DEVICE, job.job().id).is_none());
    assert!(now(&mut wait).is_none());
    assert!(is_deadlock(Some(locks.request(&a, row(2), UPDATE))));
}

#[test]
fn waiting_for_a_job_that_waits_for_others_is_no_ring() {
    let (locks, host, device) = shared();
    let [a, b, c] = [1, 2, 3].map(owner);
    let job = job_of(&locks, &host, &device, &b);
    assert!(granted(locks.request(&a, row(1), UPDATE)));
    assert!(job_has(&job, 2) && job_waits(&job, 1));
    let mut wait = waiting(locks.request(&c, row(2), UPDATE));
    assert!(locks.job_waits(DEVICE, job.job().id).is_none());
    assert!(now(&mut wait).is_none());
    locks.release_all(&a);
    assert!(job_has_now(&job, 1));
    host.release_job(job.job()).unwrap();
    assert!(matches!(now(&mut wait), Some(Ok(()))));
}

#[test]
fn a_job_that_waits_for_its_own_transaction_is_told() {
    let (locks, host, device) = shared();
    let (one, other) = neighbours(&host);
    let [a, b] = [1, 2].map(owner);
    assert!(granted(locks.request(&a, row(one), UPDATE)));
    let job = job_of(&locks, &host, &device, &a);
    // It has a row of the entry: it gets the other one in the same way.
    assert!(locks.try_lock(&a, row(other), UPDATE).unwrap());
    locks.release_all(&a);
    assert!(granted(locks.request(&b, row(one), UPDATE)));
    assert!(job_waits(&job, one));
    assert!(locks.job_waits(DEVICE, job.job().id).is_none());
}

/// The device has not stopped the run of a statement that was given up when the session's next one asks for its rows.
#[test]
fn a_job_that_waits_for_the_last_transaction_of_its_session_is_in_no_cycle() {
    let (locks, host, device) = shared();
    let group = LockGroup::new(1);
    let [before, next] = [1, 2].map(|id| LockOwner::in_group(TransactionId(id), group));
    let other = owner(3);
    let given_up = job_of(&locks, &host, &device, &before);
    let job = job_of(&locks, &host, &device, &next);
    assert!(job_has(&given_up, 1) && job_waits(&job, 1));
    assert!(locks.job_waits(DEVICE, job.job().id).is_none());
    // Through what is left a cycle is still found.
    assert!(job_has(&job, 2) && granted(locks.request(&other, row(3), UPDATE)));
    assert!(job_waits(&given_up, 3));
    assert!(locks.job_waits(DEVICE, given_up.job().id).is_none());
    assert!(is_deadlock(Some(locks.request(&other, row(2), UPDATE))));
    host.release_job(given_up.job()).unwrap();
    assert!(job_has_now(&job, 1));
}
