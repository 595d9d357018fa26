//! Partitions, holders and queues: the state of the lock table and the operations on it.
//!
//! Order of mutexes: a partition (several only by [`Table::all`], ascending), then the waits, then an owner's list,
//! then a request.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use cleave_media::random_bytes;
use cleave_shmem::HostLocks;

use super::deadlock;
use super::jobs::{self, JobOwners, JobWaits, Jobs};
use super::mode::{LockMode, Modes};
use super::shared::{Shared, SharedTables};
use super::wait::Request;
use super::{Held, LockError, LockGroup, LockKey, LockOwner, LockStatus};
use crate::transaction::TransactionId;

const PARTITION_COUNT: usize = 64;

/// The outcome of a request.
pub(crate) enum Grant {
    Granted,
    /// Not granted, and the caller did not want to wait.
    NotFree,
    Queued(Arc<Request>),
}

/// The waiting requests of the owners of each group; several, if they have several threads.
pub(crate) type Waits = HashMap<LockGroup, Vec<Arc<Request>>>;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Table {
    partitions: Vec<Mutex<Partition>>,
    waits: Mutex<Waits>,
    pub(crate) jobs: Jobs,
    hash: KeyHash,
    entry_count_max: usize,
}

#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) entries: HashMap<LockKey, Entry, KeyHash>,
    /// The same in all partitions; read by the owner of a partition's mutex.
    shared: SharedTables,
}

/// One key: its holders and its waiters. There is always a holder, unless a job of the device has the row: then all
/// wait.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Nearly always a single holder.
    first: Holder,
    rest: Option<Box<Rest>>,
    pub(crate) shared: Shared,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) owner: TransactionId,
    pub(crate) group: LockGroup,
    pub(crate) modes: Modes,
}

#[derive(Debug, Default)]
struct Rest {
    holders: Vec<Holder>,
    queue: Vec<Arc<Request>>,
}

impl Table {
    /// A table for about `entry_count_max` keys at most, which the hash divides evenly among the partitions.
    pub(crate) fn new(entry_count_max: usize) -> Self {
        let hash = KeyHash::new();
        let partition = || {
            let (entries, shared) = (HashMap::with_hasher(hash), SharedTables::default());
            Mutex::new(Partition { entries, shared })
        };
        let partitions = std::iter::repeat_with(partition).take(PARTITION_COUNT).collect();
        let (waits, jobs) = (Mutex::default(), Jobs::default());
        Self { partitions, waits, jobs, hash, entry_count_max }
    }

    fn too_many(&self) -> LockError {
        LockError::TooManyInAll { lock_count_max: self.entry_count_max }
    }

    /// Whether a job of `owner`'s transaction has the entry of `key`, a row.
    pub(crate) fn has_row_of_job(
        &self,
        owner: &LockOwner,
        key: &LockKey,
    ) -> Result<bool, LockError> {
        let partition = self.partition(key);
        match partition.shared.of(key) {
            Some(table) => self.jobs.has_row(table, key, owner),
            None => Ok(false),
        }
    }

    /// Grants, refuses or queues a request.
    pub(crate) fn request(
        &self,
        owner: &Arc<LockOwner>,
        (key, mode): (LockKey, LockMode),
        lock_count_max: usize,
        may_wait: bool,
    ) -> Result<Grant, LockError> {
        let mut partition = self.partition(&key);
        let Partition { entries, shared } = &mut *partition;
        let table = shared.of(&key);
        if let Some(table) = table
            && self.jobs.has_row(table, &key, owner)?
        {
            return Ok(Grant::Granted);
        }
        let is_full = entries.len() > self.entry_count_max / PARTITION_COUNT;
        let entry = match entries.entry(key) {
            MapEntry::Vacant(_) if is_full => return Err(self.too_many()),
            MapEntry::Vacant(vacant) => {
                let joined = Shared::join(table, key, owner, may_wait)?;
                let Some(shared) = joined else { return Ok(Grant::NotFree) };
                let is_awaited = shared.is_awaited();
                if !is_awaited && let Err(error) = owner.note(key, mode, lock_count_max) {
                    shared.leave(table);
                    return Err(error);
                }
                let mut first = Holder::new(owner, mode);
                if is_awaited {
                    first.modes = Modes::NONE;
                }
                let entry = vacant.insert(Entry { first, rest: None, shared });
                if !is_awaited {
                    return Ok(Grant::Granted);
                }
                entry
            }
            MapEntry::Occupied(occupied) => occupied.into_mut(),
        };
        let own = entry.modes_of(owner.id);
        if own.cover(mode) {
            return Ok(Grant::Granted);
        }
        let place = entry.place(owner.group);
        if !entry.is_held_back(owner.group, mode, place) {
            owner.note(key, mode, lock_count_max)?;
            entry.hold(owner, mode);
            return Ok(Grant::Granted);
        }
        if !may_wait {
            return Ok(Grant::NotFree);
        }
        let request = Request::new(owner, key, mode);
        let mut waits = self.waits();
        // With the waits locked: an ending owner first sets its end, then looks into them.
        let admitted = owner.held().admit(owner.id, lock_count_max).map(|held| held.waiting += 1);
        if let Err(error) = admitted {
            if entry.is_free()
                && let Some(entry) = entries.remove(&key)
            {
                entry.shared.leave(table);
            }
            return Err(error);
        }
        entry.rest().queue.insert(place, Arc::clone(&request));
        waits.entry(owner.group).or_default().push(Arc::clone(&request));
        if entry.shared.is_awaited() {
            entry.shared.watch(table, &Waker::from(Arc::clone(&request)));
            // The change may have come before the watch.
            entry.look(table, key, &mut waits);
        }
        Ok(Grant::Queued(request))
    }

    /// Breaks the cycle that a request closed by waiting, if it did.
    pub(crate) fn resolve(&self, request: &Arc<Request>) -> Result<(), LockError> {
        if !deadlock::may_be_in_cycle(self, request) {
            return Ok(());
        }
        let mut all = self.all();
        match deadlock::resolve(&mut all, request) {
            Ok(()) => Ok(()),
            Err(deadlock) => {
                let error = LockError::Deadlock(Arc::new(deadlock));
                all.end(request, Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Removes modes from a holder, and grants requests that waited for them.
    pub(crate) fn release(&self, owner: TransactionId, released: &[(LockKey, LockMode)]) {
        for (key, mode) in released {
            let mut partition = self.partition(key);
            let Partition { entries, shared } = &mut *partition;
            let MapEntry::Occupied(mut occupied) = entries.entry(*key) else { continue };
            if occupied.get().rest.is_none() {
                let first = &mut occupied.get_mut().first;
                if first.owner == owner {
                    first.modes = first.modes.without(*mode);
                    if first.modes.is_empty() {
                        occupied.remove().shared.leave(shared.of(key));
                    }
                }
                continue;
            }
            occupied.get_mut().let_go(owner, *mode);
            let waits = self.settle(occupied, shared.of(key));
            drop(partition);
            self.resolve_anew(waits);
        }
    }

    /// Takes a request out of its queue, if it is still there.
    pub(crate) fn withdraw(&self, request: &Arc<Request>) {
        let mut partition = self.partition(&request.key);
        let Partition { entries, shared } = &mut *partition;
        let MapEntry::Occupied(mut occupied) = entries.entry(request.key) else { return };
        if occupied.get_mut().leave(request) {
            forget(&mut self.waits(), request);
            let waits = self.settle(occupied, shared.of(&request.key));
            drop(partition);
            self.resolve_anew(waits);
        }
    }

    /// Grants requests for `key`, if a job has released it.
    pub(crate) fn look(&self, key: LockKey) {
        let mut partition = self.partition(&key);
        let Partition { entries, shared } = &mut *partition;
        let MapEntry::Occupied(mut occupied) = entries.entry(key) else { return };
        let table = shared.of(&key);
        occupied.get_mut().look(table, key, &mut self.waits());
        if occupied.get().is_free() {
            occupied.remove().shared.leave(table);
        }
    }

    /// Makes `table` that of a device.
    pub(crate) fn share(&self, device: u32, table: &Arc<HostLocks>) {
        for partition in &self.partitions {
            lock(partition).shared.put(device, table);
        }
    }

    /// Ends all waits of an owner.
    pub(crate) fn withdraw_all(
        &self,
        owner: &LockOwner,
        error: impl Fn(LockKey, LockMode) -> LockError,
    ) {
        let requests = self.waits().get(&owner.group).cloned().unwrap_or_default();
        for request in requests.into_iter().filter(|request| request.owner.id == owner.id) {
            self.withdraw(&request);
            request.end(Err(error(request.key, request.mode)));
        }
    }

    pub(crate) fn holds(&self, owner: TransactionId, key: LockKey, mode: LockMode) -> bool {
        let partition = self.partition(&key);
        partition.entries.get(&key).is_some_and(|entry| entry.modes_of(owner).cover(mode))
    }

    pub(crate) fn list(&self) -> Vec<LockStatus> {
        let mut found = Vec::new();
        for partition in &self.partitions {
            let partition = lock(partition);
            let mut keys: Vec<&LockKey> = partition.entries.keys().collect();
            keys.sort_unstable();
            for key in keys {
                let Some(entry) = partition.entries.get(key) else { continue };
                let held = entry.holders().flat_map(|holder| {
                    holder.modes.iter().map(move |mode| (holder.owner, holder.group, mode, true))
                });
                let wait =
                    |wait: &Arc<Request>| (wait.owner.id, wait.owner.group, wait.mode, false);
                let awaited = entry.queue().iter().map(wait);
                found.extend(held.chain(awaited).map(|(owner, group, mode, is_granted)| {
                    LockStatus { key: *key, mode, owner, group, is_granted }
                }));
            }
        }
        found.sort_by_key(|status| status.key);
        found
    }

    /// Resolves the cycles that these requests closed: they now wait for a job that came while others of the host had
    /// the row.
    fn resolve_anew(&self, waits: Vec<Arc<Request>>) {
        if self.jobs.is_empty() {
            return;
        }
        for request in waits {
            // The waiters get the outcome.
            let _ended = self.resolve(&request);
        }
    }

    /// Grants what is possible, and drops the entry of a key without a holder. Returns the requests that now wait for a
    /// job, and did not before.
    fn settle(
        &self,
        mut occupied: std::collections::hash_map::OccupiedEntry<'_, LockKey, Entry>,
        table: Option<&HostLocks>,
    ) -> Vec<Arc<Request>> {
        let mut waits_for_job = false;
        if !occupied.get().queue().is_empty() {
            let key = *occupied.key();
            let entry = occupied.get_mut();
            if table.is_some() && entry.holders().next().is_none() && !entry.shared.is_awaited() {
                entry.join_anew(table, key, &mut self.waits());
                waits_for_job = entry.shared.is_awaited();
            }
            for granted in entry.grant() {
                forget(&mut self.waits(), &granted);
                granted.end(Ok(()));
            }
        }
        let waits = if waits_for_job { occupied.get().queue().to_vec() } else { Vec::new() };
        if occupied.get().is_free() {
            occupied.remove().shared.leave(table);
        }
        waits
    }

    pub(crate) fn partition(&self, key: &LockKey) -> MutexGuard<'_, Partition> {
        lock(&self.partitions[self.hash.partition(key)])
    }

    pub(crate) fn waits(&self) -> MutexGuard<'_, Waits> {
        lock(&self.waits)
    }

    /// Locks all partitions.
    pub(crate) fn all(&self) -> All<'_> {
        let partitions = self.partitions.iter().map(lock).collect();
        let (waits, hash) = (self.waits(), self.hash);
        All { partitions, waits, jobs: self.jobs.owners(), job_waits: OnceCell::new(), hash }
    }
}

/// The whole table, locked.
pub(crate) struct All<'a> {
    partitions: Vec<MutexGuard<'a, Partition>>,
    waits: MutexGuard<'a, Waits>,
    /// The transactions of jobs.
    pub(crate) jobs: JobOwners,
    /// The waits of jobs, read on demand.
    job_waits: OnceCell<Vec<JobWaits>>,
    hash: KeyHash,
}

impl All<'_> {
    /// The table of this device.
    pub(crate) fn shared(&self, device: u32) -> Option<&HostLocks> {
        self.partitions.first()?.shared.of_device(device)
    }

    /// All keys, in no order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&LockKey, &Entry)> {
        self.partitions.iter().flat_map(|partition| partition.entries.iter())
    }

    /// The waits of jobs.
    pub(crate) fn job_waits(&self) -> &[JobWaits] {
        self.job_waits.get_or_init(|| jobs::waits(self))
    }

    pub(crate) fn entry(&self, key: &LockKey) -> Option<&Entry> {
        self.partitions.get(self.hash.partition(key))?.entries.get(key)
    }

    /// The waiting requests of a group.
    pub(crate) fn waits_of(&self, group: LockGroup) -> &[Arc<Request>] {
        self.waits.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Moves a request in the queue of its key from one place to another.
    pub(crate) fn reorder(&mut self, key: &LockKey, from: usize, to: usize) {
        self.job_waits.take();
        if let Some(entry) = self.entry_mut(key) {
            let queue = &mut entry.rest().queue;
            if from < queue.len() && to < queue.len() {
                let request = queue.remove(from);
                queue.insert(to, request);
            }
        }
    }

    /// Grants what is possible of `key`.
    pub(crate) fn grant(&mut self, key: &LockKey) {
        self.job_waits.take();
        let granted = self.entry_mut(key).map(Entry::grant).unwrap_or_default();
        for request in granted {
            forget(&mut self.waits, &request);
            request.end(Ok(()));
        }
    }

    /// Removes a request from its queue, with an outcome.
    pub(crate) fn end(&mut self, request: &Arc<Request>, outcome: Result<(), LockError>) {
        if let Some(entry) = self.entry_mut(&request.key)
            && entry.leave(request)
        {
            forget(&mut self.waits, request);
            request.end(outcome);
            self.grant(&request.key);
            self.drop_free(&request.key);
            self.job_waits.take();
        }
    }

    /// Drops the entry of a key that was awaited from a job and has no waiters any more.
    fn drop_free(&mut self, key: &LockKey) {
        let Some(partition) = self.partitions.get_mut(self.hash.partition(key)) else { return };
        let Partition { entries, shared } = &mut **partition;
        if entries.get(key).is_some_and(Entry::is_free)
            && let Some(entry) = entries.remove(key)
        {
            entry.shared.leave(shared.of(key));
        }
    }

    fn entry_mut(&mut self, key: &LockKey) -> Option<&mut Entry> {
        self.partitions.get_mut(self.hash.partition(key))?.entries.get_mut(key)
    }
}

impl Entry {
    pub(crate) fn holders(&self) -> impl Iterator<Item = Holder> {
        let rest = self.rest.iter().flat_map(|rest| rest.holders.iter().copied());
        std::iter::once(self.first).chain(rest).filter(|holder| !holder.modes.is_empty())
    }

    pub(crate) fn queue(&self) -> &[Arc<Request>] {
        self.rest.as_ref().map_or(&[], |rest| &rest.queue)
    }

    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    fn modes_of(&self, owner: TransactionId) -> Modes {
        let mut own = self.holders().filter(|holder| holder.owner == owner);
        own.next().map_or(Modes::NONE, |holder| holder.modes)
    }

    /// The modes held by all owners of a group.
    fn modes_of_group(&self, group: LockGroup) -> Modes {
        let own = self.holders().filter(|holder| holder.group == group);
        own.fold(Modes::NONE, |modes, holder| modes.union(holder.modes))
    }

    /// The position of a request of `group` in the queue: before all that wait for locks of the group, else at the end.
    fn place(&self, group: LockGroup) -> usize {
        let own = self.modes_of_group(group);
        let waits_for_own = |request: &Arc<Request>| {
            request.owner.group != group && own.intersects(Modes::conflicting(request.mode))
        };
        self.queue().iter().position(waits_for_own).unwrap_or(self.queue().len())
    }

    /// Whether a holder, or one of the first `ahead` of the queue, blocks a request.
    fn is_held_back(&self, group: LockGroup, mode: LockMode, ahead: usize) -> bool {
        if self.shared.is_awaited() {
            return true;
        }
        let conflicting = Modes::conflicting(mode);
        let mut holders = self.holders().filter(|holder| holder.group != group);
        let mut waiters = self.queue().iter().take(ahead);
        holders.any(|holder| holder.modes.intersects(conflicting))
            || waiters.any(|wait| wait.owner.group != group && conflicting.has(wait.mode))
    }

    fn hold(&mut self, owner: &LockOwner, mode: LockMode) {
        if self.first.modes.is_empty() {
            self.first = Holder::new(owner, mode);
            return;
        }
        if self.first.owner == owner.id {
            self.first.modes = self.first.modes.with(mode);
            return;
        }
        let holders = &mut self.rest().holders;
        match holders.iter_mut().find(|holder| holder.owner == owner.id) {
            Some(holder) => holder.modes = holder.modes.with(mode),
            None => holders.push(Holder::new(owner, mode)),
        }
    }

    fn let_go(&mut self, owner: TransactionId, mode: LockMode) {
        if self.first.owner == owner {
            self.first.modes = self.first.modes.without(mode);
        } else if let Some(rest) = &mut self.rest
            && let Some(index) = rest.holders.iter().position(|holder| holder.owner == owner)
        {
            let holder = &mut rest.holders[index];
            holder.modes = holder.modes.without(mode);
            if holder.modes.is_empty() {
                rest.holders.swap_remove(index);
            }
        }
        if self.first.modes.is_empty()
            && let Some(other) = self.rest.as_mut().and_then(|rest| rest.holders.pop())
        {
            self.first = other;
        }
    }

    /// Removes a request from the queue; returns whether it was there.
    fn leave(&mut self, request: &Arc<Request>) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        let place = rest.queue.iter().position(|other| Arc::ptr_eq(other, request));
        place.is_some_and(|place| {
            rest.queue.remove(place);
            true
        })
    }

    /// Grants all requests that are not blocked any more, in order, and returns them.
    fn grant(&mut self) -> Vec<Arc<Request>> {
        let mut granted = Vec::new();
        let mut place = 0;
        while let Some(request) = self.queue().get(place).map(Arc::clone) {
            let is_held_back = self.is_held_back(request.owner.group, request.mode, place);
            // A request that was admitted when it started to wait is not refused for the number of its locks.
            let note = || request.owner.note(request.key, request.mode, usize::MAX);
            if is_held_back || note().is_err() {
                place += 1;
                continue;
            }
            self.rest().queue.remove(place);
            self.hold(&request.owner, request.mode);
            granted.push(request);
        }
        if self.rest.as_ref().is_some_and(|rest| rest.holders.is_empty() && rest.queue.is_empty()) {
            self.rest = None;
        }
        granted
    }

    /// Requests the row anew, for the first waiter: behind jobs that queued while others of the host had it.
    fn join_anew(&mut self, table: Option<&HostLocks>, key: LockKey, waits: &mut Waits) {
        let Some(first) = self.queue().first().map(Arc::clone) else { return };
        std::mem::replace(&mut self.shared, Shared::Alone).leave(table);
        match Shared::join(table, key, &first.owner, true) {
            Ok(joined) => self.shared = joined.unwrap_or(Shared::Alone),
            Err(error) => return self.fail(&error, waits),
        }
        if self.shared.is_awaited() {
            let requests: Vec<Arc<Request>> = self.queue().to_vec();
            for request in requests {
                self.shared.watch(table, &Waker::from(request));
            }
            // The change may have come before the watch.
            self.look(table, key, waits);
        }
    }

    /// Grants requests that waited for a job, if the row is the host's now.
    fn look(&mut self, table: Option<&HostLocks>, key: LockKey, waits: &mut Waits) {
        match self.shared.look(table, key) {
            Ok(false) => {}
            Ok(true) => {
                for granted in self.grant() {
                    forget(waits, &granted);
                    granted.end(Ok(()));
                }
            }
            Err(error) => self.fail(&error, waits),
        }
    }

    /// Ends all waits: the table shared with the device is spoilt.
    fn fail(&mut self, error: &LockError, waits: &mut Waits) {
        let requests = self.rest.as_mut().map(|rest| std::mem::take(&mut rest.queue));
        for request in requests.unwrap_or_default() {
            forget(waits, &request);
            request.end(Err(error.clone()));
        }
    }

    fn is_free(&self) -> bool {
        self.first.modes.is_empty() && self.queue().is_empty()
    }
}

impl Holder {
    fn new(owner: &LockOwner, mode: LockMode) -> Self {
        Self { owner: owner.id, group: owner.group, modes: Modes::of(mode) }
    }
}

impl LockOwner {
    /// Adds a granted lock, unless the owner has ended or holds too many.
    fn note(&self, key: LockKey, mode: LockMode, lock_count_max: usize) -> Result<(), LockError> {
        self.held().admit(self.id, lock_count_max)?.granted.push((key, mode));
        Ok(())
    }
}

impl Held {
    /// The owner's state, if one more lock may be granted or awaited.
    fn admit(&mut self, id: TransactionId, lock_count_max: usize) -> Result<&mut Self, LockError> {
        if self.has_ended {
            return Err(LockError::Ended(id));
        }
        if self.granted.len() >= lock_count_max {
            return Err(LockError::TooMany { lock_count_max });
        }
        Ok(self)
    }
}

fn forget(waits: &mut Waits, request: &Arc<Request>) {
    let mut held = request.owner.held();
    held.waiting = held.waiting.saturating_sub(1);
    drop(held);
    if let Some(requests) = waits.get_mut(&request.owner.group) {
        requests.retain(|other| !Arc::ptr_eq(other, request));
        if requests.is_empty() {
            waits.remove(&request.owner.group);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hashes keys, which are numbers already, with two multiplications; seeded, so that rows with equal hashes cannot be
/// chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyHash {
    seed: u64,
}

impl KeyHash {
    fn new() -> Self {
        let seed = random_bytes().map_or(0x9e37_79b9_7f4a_7c15, u64::from_le_bytes);
        Self { seed }
    }

    /// Bits that a map of this partition's size does not use.
    fn partition(&self, key: &LockKey) -> usize {
        usize::try_from(self.hash_one(key) >> 40).unwrap_or_default() % PARTITION_COUNT
    }
}

impl BuildHasher for KeyHash {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.seed)
    }
}

/// See [`KeyHash`].
#[derive(Debug)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        // Both halves, so that every bit of the number moves every bit of the hash.
        let folded = (product ^ (product >> 64)) & u128::from(u64::MAX);
        self.0 = u64::try_from(folded).unwrap_or_default();
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Hash for LockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.object ^ (self.kind as u64) << 56);
        state.write_u64(self.id);
    }
}
