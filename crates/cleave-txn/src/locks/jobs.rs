//! Jobs of devices in deadlock cycles: the transaction of each job, and the transactions that it waits for.
//!
//! ```text
//!   transaction A ──(tail: entry awaited)──▶ job 3, of transaction B ──(entry: a slot of the host before it)──▶ A
//! ```
//!
//! A job waits in a table shared with its device, for the jobs and host slots before it in an entry. Jobs there are
//! known by their numbers. The tail (the host's table) knows the transactions of the host's slots: those of the keys
//! whose tickets are of that entry and share.
//!
//! The last to join a cycle detects it. A host transaction that starts to wait behind a job sees what the job waits
//! for. A job that starts to wait, wherever it runs, tells the host once the shared table shows it, and the host then
//! looks ([`Locks::job_waits`]).
//!
//! A transaction's own jobs keep no lock from it: a row whose entry one of them has is the transaction's, in every
//! mode.
//!
//! Invariant: a job's waits are read while the host's part is locked, but not the jobs' part: a job that released locks
//! while it waits might be taken for part of a cycle that is already gone. A job holds all its locks to its end, so
//! this does not happen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_shmem::{Holder, HostLocks, JobId};

use super::deadlock::{self, Deadlock};
use super::shared::{Shared, failed, row_of};
use super::table::{All, Entry};
use super::{KeyKind, LockError, LockGroup, LockKey, LockOwner, Locks};
use crate::transaction::TransactionId;

/// An owner, as cycles identify it.
type Owner = (TransactionId, LockGroup);
/// Owners of jobs, by device and job.
pub(crate) type JobOwners = BTreeMap<(u32, JobId), Owner>;

/// The transactions of jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    owners: Mutex<JobOwners>,
    count: AtomicUsize,
}

/// A job that waits for an entry.
#[derive(Debug)]
pub(crate) struct JobWaits {
    pub(crate) transaction: TransactionId,
    pub(crate) group: LockGroup,
    pub(crate) key: LockKey,
    pub(crate) blockers: Vec<Owner>,
}

impl Locks {
    /// Makes the job with this number, of this device, part of `owner`'s transaction, until [`Locks::end_job`].
    pub fn begin_job(&self, device: u32, job: JobId, owner: &LockOwner) {
        let jobs = &self.table.jobs;
        jobs.lock().insert((device, job), (owner.id, owner.group));
        jobs.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends the job: it is in no entry any more.
    pub fn end_job(&self, device: u32, job: JobId) {
        let jobs = &self.table.jobs;
        if jobs.lock().remove(&(device, job)).is_some() {
            jobs.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether jobs may have rows: of a row that one of them has, the keys are not locked.
    #[must_use]
    pub fn has_jobs(&self) -> bool {
        !self.table.jobs.is_empty()
    }

    /// Called when a job starts to wait: ends waits of the host to break the cycles that the job closed. Returns a
    /// cycle that only the job can break, if there is one.
    #[must_use = "a job in a cycle is ended"]
    pub fn job_waits(&self, device: u32, job: JobId) -> Option<Arc<Deadlock>> {
        let (_, group) = self.table.jobs.lock().get(&(device, job)).copied()?;
        let mut all = self.table.all();
        deadlock::resolve_for_job(&mut all, group).err().map(Arc::new)
    }
}

impl Jobs {
    /// Whether there are no jobs, as is mostly the case.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Whether a job of `owner`'s transaction has the entry of `key`, a row: it keeps that to the end of the
    /// transaction, for which the row needs no lock of its own.
    pub(crate) fn has_row(
        &self,
        table: &HostLocks,
        key: &LockKey,
        owner: &LockOwner,
    ) -> Result<bool, LockError> {
        if self.is_empty() {
            return Ok(false);
        }
        let Some(job) = table.job_at(row_of(key)).map_err(failed(*key))? else { return Ok(false) };
        let owners = self.lock();
        Ok(owners.get(&(key.device, job)).is_some_and(|(transaction, _)| *transaction == owner.id))
    }

    pub(crate) fn owners(&self) -> JobOwners {
        if self.is_empty() { JobOwners::new() } else { self.lock().clone() }
    }

    fn lock(&self) -> MutexGuard<'_, JobOwners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The jobs that a waiter for `key` waits for: those before it in the entry.
pub(crate) fn before(all: &All<'_>, key: &LockKey, entry: &Entry) -> Vec<Owner> {
    let Shared::Awaited(ticket, _) = &entry.shared else { return Vec::new() };
    // A spoilt table is reported by the waiters there.
    let jobs = all.shared(key.device).and_then(|table| table.jobs_before(ticket).ok());
    let known = |job| all.jobs.get(&(key.device, job)).copied();
    jobs.into_iter().flatten().filter_map(known).collect()
}

/// The waits of each job.
pub(crate) fn waits(all: &All<'_>) -> Vec<JobWaits> {
    let mut found = Vec::new();
    let mut devices: Vec<u32> = all.jobs.keys().map(|(device, _)| *device).collect();
    devices.dedup();
    for device in devices {
        let contended = all.shared(device).and_then(|table| table.contended().ok());
        let mut contended = contended.unwrap_or_default();
        let known = |holder: &Holder| match holder {
            Holder::Job(job) => all.jobs.contains_key(&(device, *job)),
            Holder::Host => false,
        };
        contended.retain(|(_, holders)| holders.iter().skip(1).any(known));
        if contended.is_empty() {
            continue;
        }
        let hosts = hosts(all, device);
        for (entry, holders) in contended {
            for (place, holder) in holders.iter().enumerate().skip(1) {
                let Holder::Job(job) = holder else { continue };
                let Some((transaction, group)) = all.jobs.get(&(device, *job)).copied() else {
                    continue;
                };
                // An entry that another job of its transaction has is its own: it is about to be told.
                let is_of_own = |holder: &Holder| match holder {
                    Holder::Job(job) => {
                        let owner = all.jobs.get(&(device, *job));
                        owner.is_some_and(|(owner, _)| *owner == transaction)
                    }
                    Holder::Host => false,
                };
                if holders.first().is_some_and(is_of_own) {
                    continue;
                }
                let (mut blockers, mut slots) = (Vec::new(), 0);
                for before in &holders[..place] {
                    match before {
                        Holder::Job(job) => blockers.extend(all.jobs.get(&(device, *job))),
                        Holder::Host => {
                            blockers.extend(hosts.get(&(entry, slots)).into_iter().flatten());
                            slots += 1;
                        }
                    }
                }
                // So is a row that its transaction has locked on the host. What an ended transaction of its session has
                // still, such as the rows of a run that was given up, is about to be released, and no cycle.
                blockers.retain(|(_, blocker)| *blocker != group);
                let key = LockKey::entry(device, entry);
                found.push(JobWaits { transaction, group, key, blockers });
            }
        }
    }
    found
}

/// The owners of the host's slots, by entry and index among the host's: the holders of rows there, and for a row
/// without a holder the first waiter.
fn hosts(all: &All<'_>, device: u32) -> BTreeMap<(u32, usize), Vec<Owner>> {
    let mut found: BTreeMap<(u32, usize), Vec<Owner>> = BTreeMap::new();
    let Some(table) = all.shared(device) else { return found };
    let rows = all.entries().filter(|(key, _)| key.kind == KeyKind::Row && key.device == device);
    for (_, entry) in rows {
        let Some(place) = entry.shared.ticket().and_then(|ticket| table.place_of(ticket)) else {
            continue;
        };
        let owners = found.entry(place).or_default();
        owners.extend(entry.holders().map(|holder| (holder.owner, holder.group)));
        if entry.shared.is_awaited() {
            let first = entry.queue().first();
            owners.extend(first.map(|request| (request.owner.id, request.owner.group)));
        }
    }
    found.values_mut().for_each(|owners| owners.sort_unstable());
    found
}
