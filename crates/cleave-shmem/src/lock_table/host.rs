//! The host's side of the lock table: requests of transactions in, shares of the host's slots out.
//!
//! A slot of the host stands for all its requests since the last job queued: a *share*, counted by entry in private
//! memory. The last request of a share releases the slot, and the entry goes to the next in the queue. A request that
//! comes after a job has queued opens the next share, behind that job, so neither side starves the other.
//!
//! The host's own lock table, which is exact by row, is the tail of the queue: it keeps the [`Ticket`] of each request,
//! grants rows in its own order, and lets a transaction proceed that is first at its row *and* whose ticket is granted.
//! Two transactions with different rows of one entry share its slot and do not block each other.
//!
//! The tail's obligation: requests for one row stand in it in the order in which they joined here. Either joining and
//! queueing are one step, or only the first at its row joins. Otherwise one that joined before a job could wait at its
//! row for one that joined after the job, a deadlock of all three.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use super::memory::LockMemory;
use super::queue::{Holder, JobId, Queue};
use super::shares::{EntryShares, Shares};
use super::sync::Mutex;
use super::waiters::{Peer, Waiters};
use super::{
    Bells, Conflict, Job, LockError, LockFigures, LockTable, Of, Place, PutIn, Row, Sides,
    SlotFormat, TakenOut,
};

/// The host's side of a table.
#[derive(Debug)]
pub struct HostLocks {
    pub(super) table: LockTable,
    shares: EntryShares,
    waiters: Arc<Waiters>,
    sides: Sides,
    jobs: Mutex<Jobs>,
    /// Requests, counted apart for groups of entries: one counter would be a cache line that all threads write.
    requests: [Requests; REQUEST_COUNTERS],
    #[cfg(not(loom))]
    pub(super) bells: Option<super::attach::BellPair>,
}

/// A counter with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Requests(AtomicU64);

const REQUEST_COUNTERS: usize = 16;
/// Entries of a cache line, which one counter counts.
const ENTRIES_A_LINE: u32 = 4;

/// One request of the host, to be returned by [`HostLocks::leave`]; dropped, it keeps its entry from the device.
/// Tickets of one share of one entry are equal.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a ticket is given back, or its entry stays locked"]
pub struct Ticket {
    entry: u32,
    share: u32,
}

/// A granted or queued request.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its ticket is given back, or its entry stays locked"]
pub struct Joined {
    /// To be returned at the transaction's end.
    pub ticket: Ticket,
    /// Whether the host holds the entry now; otherwise [`HostLocks::wait`] waits for it.
    pub is_granted: bool,
}

#[derive(Debug, Default)]
struct Jobs {
    epoch: u64,
    used: BTreeSet<u16>,
    last: u16,
}

impl HostLocks {
    pub(super) fn new(table: LockTable, waiters: Arc<Waiters>, device: Peer) -> Self {
        let shares = EntryShares::new(table.memory.entry_count());
        let sides = Sides { host: Peer::here(&waiters), device };
        Self {
            table,
            shares,
            waiters,
            sides,
            jobs: Mutex::default(),
            requests: Default::default(),
            #[cfg(not(loom))]
            bells: None,
        }
    }

    #[inline]
    fn memory(&self) -> &LockMemory {
        &self.table.memory
    }

    #[inline]
    fn format(&self) -> SlotFormat {
        self.table.format
    }

    /// Adds a request of the host for `row`.
    ///
    /// `has_ticket` is called only if the host has the entry and a job waits behind it. It says whether the transaction
    /// has an equal ticket already: then it shares that slot again, because behind the job it would wait for itself.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    #[inline]
    pub fn join(
        &self,
        row: Row,
        has_ticket: impl FnOnce(&Ticket) -> bool,
    ) -> Result<Joined, LockError> {
        let place = self.table.place_of(row);
        let Place { entry, mark } = place;
        self.count_request(entry);
        let puts = || self.memory().exchange(entry, 0, self.table.host.into()).is_ok();
        if let Some(share) = self.shares.open_first(entry, puts) {
            self.memory().mark(entry, mark, true);
            return Ok(Joined { ticket: Ticket { entry, share }, is_granted: true });
        }
        self.join_others(place, has_ticket)
    }

    /// As [`HostLocks::join`], for an entry with other users, now or a moment ago.
    fn join_others(
        &self,
        place: Place,
        has_ticket: impl FnOnce(&Ticket) -> bool,
    ) -> Result<Joined, LockError> {
        let Place { entry, mark } = place;
        let host = self.table.host;
        let mut shares = self.shares.of(entry);
        let was_free = shares.is_empty();
        let (share, is_granted) = if was_free {
            let put = self.table.put_in(entry, host, |queue| match queue.with_host() {
                Some(with) if queue.host_count() == 0 => Ok(Some(with)),
                _ => Err(self.table.spoilt(entry, queue.bits())),
            })?;
            (shares.open(), put == PutIn::First)
        } else {
            let seen = self.load_with(&shares, entry)?;
            let holds = seen.head() == Some(Holder::Host);
            let first = Ticket { entry, share: shares.first().unwrap_or_default() };
            if seen.tail() == Some(Holder::Host) {
                (shares.join_last(), holds && shares.len() == 1)
            } else if holds && has_ticket(&first) {
                shares.join_first();
                (first.share, true)
            } else {
                // A job queued meanwhile, or is about to.
                let queue = self.table.change(entry, seen.bits(), |queue| Ok(queue.with_host()))?;
                let share = if queue.is_some() { shares.open() } else { shares.join_last() };
                (share, false)
            }
        };
        drop(shares);
        if !is_granted {
            self.table.count_conflict(place, Conflict::Wait);
        }
        self.memory().mark(entry, mark, was_free && is_granted);
        Ok(Joined { ticket: Ticket { entry, share }, is_granted })
    }

    /// As [`HostLocks::join`], but only if the host has the entry then, with no job waiting for it: for `NOWAIT` and
    /// `SKIP LOCKED`.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn try_join(
        &self,
        row: Row,
        has_ticket: impl FnOnce(&Ticket) -> bool,
    ) -> Result<Option<Ticket>, LockError> {
        let place = self.table.place_of(row);
        let (entry, host) = (place.entry, self.table.host);
        self.count_request(entry);
        let mut shares = self.shares.of(entry);
        let was_free = shares.is_empty();
        let share = if was_free {
            let put = self.table.put_in(entry, host, |queue| match queue.host_count() {
                // Emptied meanwhile.
                0 if queue.head().is_none() => Ok(queue.with_host()),
                0 => Ok(None),
                _ => Err(self.table.spoilt(entry, queue.bits())),
            })?;
            (put == PutIn::First).then(|| shares.open())
        } else {
            let seen = self.load_with(&shares, entry)?;
            let first = Ticket { entry, share: shares.first().unwrap_or_default() };
            let holds = seen.head() == Some(Holder::Host);
            let alone = shares.len() == 1 && seen.tail() == Some(Holder::Host);
            (holds && (alone || has_ticket(&first))).then(|| {
                shares.join_first();
                first.share
            })
        };
        drop(shares);
        match share {
            Some(share) => {
                self.memory().mark(entry, place.mark, was_free);
                Ok(Some(Ticket { entry, share }))
            }
            None => {
                self.table.count_conflict(place, Conflict::Refusal);
                Ok(None)
            }
        }
    }

    /// The entry, checked to have as many slots of the host as it has shares.
    fn load_with(&self, shares: &Shares, entry: u32) -> Result<Queue, LockError> {
        let queue = self.table.load(entry)?;
        if queue.host_count() != shares.len() {
            return Err(self.table.spoilt(entry, queue.bits()));
        }
        Ok(queue)
    }

    /// Returns a request, granted or not. The last of its share hands the entry over.
    ///
    /// # Errors
    /// [`LockError::Spoilt`]: the request is returned all the same.
    #[inline]
    pub fn leave(&self, ticket: Ticket) -> Result<(), LockError> {
        let Ticket { entry, share } = ticket;
        let takes = || self.memory().exchange(entry, self.table.host.into(), 0).is_ok();
        if self.shares.end_only(entry, share, takes) {
            return Ok(());
        }
        self.leave_others(entry, share)
    }

    /// As [`HostLocks::leave`], for an entry with other users, now or soon.
    fn leave_others(&self, entry: u32, share: u32) -> Result<(), LockError> {
        let mut shares = self.shares.of(entry);
        let Some(index) = shares.leave(share) else { return Ok(()) };
        let taken = if index == 0 {
            self.table.take_out(entry, self.table.host, |queue| queue.place_of_host(0))
        } else {
            self.table
                .change(entry, self.memory().load(entry), |queue| {
                    Ok(queue.place_of_host(index).map(|place| queue.without(place)))
                })
                .map(|changed| changed.map(|queue| TakenOut { place: 1, head: queue.head() }))
        };
        shares.remove(index);
        drop(shares);
        match taken? {
            Some(taken) => {
                self.sides.hand_over(entry, taken);
                Ok(())
            }
            None => Err(self.table.spoilt(entry, self.memory().load(entry))),
        }
    }

    /// Whether the host holds the entry for `ticket`'s share.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn is_granted(&self, ticket: &Ticket) -> Result<bool, LockError> {
        let shares = self.shares.of(ticket.entry);
        if shares.first() != Some(ticket.share) {
            return Ok(false);
        }
        Ok(self.load_with(&shares, ticket.entry)?.head() == Some(Holder::Host))
    }

    /// Waits until `ticket` is granted. Dropped, it stops waiting, and the ticket stays.
    pub fn wait<'a>(&'a self, ticket: &'a Ticket) -> HostWait<'a> {
        HostWait { locks: self, ticket, number: self.waiters.number() }
    }

    /// Wakes `waker` on each change of the entry of `ticket`, until [`HostLocks::unwatch`] with the returned number.
    /// For callers that cannot hold a [`HostWait`]. The caller checks the entry afterwards.
    #[must_use = "whoever watches looks away again"]
    pub fn watch(&self, ticket: &Ticket, waker: &Waker) -> u64 {
        let number = self.waiters.number();
        self.waiters.register(ticket.entry, number, waker);
        number
    }

    /// Stops waking the wakers of these numbers.
    pub fn unwatch(&self, ticket: &Ticket, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.waiters.forget(ticket.entry, *number));
    }

    /// Whether the lock of `row` is in the entry of `ticket`.
    #[must_use]
    pub fn is_at(&self, ticket: &Ticket, row: Row) -> bool {
        self.table.place_of(row).entry == ticket.entry
    }

    /// The job that has the entry of `row`, if a job has it.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn job_at(&self, row: Row) -> Result<Option<JobId>, LockError> {
        match self.table.load(self.table.place_of(row).entry)?.head() {
            Some(Holder::Job(job)) => Ok(Some(job)),
            Some(Holder::Host) | None => Ok(None),
        }
    }

    /// The place of `ticket`: its entry, and the index of its share among the host's slots there. None if it was
    /// returned.
    #[must_use]
    pub fn place_of(&self, ticket: &Ticket) -> Option<(u32, usize)> {
        Some((ticket.entry, self.shares.of(ticket.entry).index_of(ticket.share)?))
    }

    /// The jobs before `ticket` in its entry: it waits for these, besides the host's own transactions.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn jobs_before(&self, ticket: &Ticket) -> Result<Vec<JobId>, LockError> {
        let shares = self.shares.of(ticket.entry);
        let Some(index) = shares.index_of(ticket.share) else {
            return Ok(Vec::new());
        };
        let queue = self.load_with(&shares, ticket.entry)?;
        let place = queue.place_of_host(index).unwrap_or_default() as usize;
        let jobs = queue.holders().take(place).filter_map(|holder| match holder {
            Holder::Job(job) => Some(job),
            Holder::Host => None,
        });
        Ok(jobs.collect())
    }

    /// Every entry that has waiters, with all its users, the holder first: for deadlock detection.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn contended(&self) -> Result<Vec<(u32, Vec<Holder>)>, LockError> {
        let mut found = Vec::new();
        for entry in 0..self.memory().entry_count() {
            let bits = self.memory().load(entry);
            // As nearly all are.
            if bits == 0 {
                continue;
            }
            let queue = self.table.sound(entry, bits)?;
            if queue.length() > 1 {
                found.push((entry, queue.holders().collect()));
            }
        }
        Ok(found)
    }

    /// A number for a job that is going to lock; none if no number is free. To be returned by
    /// [`HostLocks::release_job`].
    pub fn assign_job(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.table.host - 1;
        // A number is reused as late as possible.
        let last = jobs.last;
        let number =
            (last + 1..=most).chain(1..=last).find(|number| !jobs.used.contains(number))?;
        jobs.used.insert(number);
        jobs.last = number;
        Some(Job { id: JobId::new(number)?, epoch: jobs.epoch, goes_on: false })
    }

    /// Ends `job`, whose transaction has ended and which takes no more locks: removes it from all entries, and hands
    /// them over. No effect if the device was fenced since.
    ///
    /// # Errors
    /// [`LockError::Spoilt`]: one of the entries that could not be changed; the rest are released.
    pub fn release_job(&self, job: Job) -> Result<(), LockError> {
        // Held to the end: the number is not reused before all is released.
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.epoch != job.epoch {
            return Ok(());
        }
        let mut bells = Bells::default();
        let mut outcome = Ok(());
        for entry in 0..self.memory().entry_count() {
            if self.memory().load(entry) == 0 {
                continue;
            }
            match self.table.take_out(entry, job.id.get(), |queue| queue.place_of(job.id)) {
                Ok(Some(taken)) => self.sides.wake(entry, taken, &mut bells),
                Ok(None) => {}
                Err(error) => outcome = Err(error),
            }
        }
        jobs.used.remove(&job.id.get());
        drop(jobs);
        self.sides.ring(bells);
        outcome
    }

    /// Removes the locks of all jobs, whatever the device does, and begins and returns a new epoch: for a device that
    /// died, or whose runs the host has given up. The host's own shares stay, and get the entries that become free.
    /// Spoilt entries are repaired.
    ///
    /// A job that enters an entry meanwhile finds the new epoch there, and leaves.
    pub fn fence(&self) -> u64 {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.epoch += 1;
        jobs.used.clear();
        let epoch = jobs.epoch;
        self.memory().set_epoch(epoch);
        for entry in 0..self.memory().entry_count() {
            let shares = self.shares.of(entry);
            let left = Queue::of_host(shares.len(), self.format()).bits();
            if self.memory().load(entry) != left {
                self.memory().overwrite(entry, left);
            }
            drop(shares);
            self.waiters.wake(entry);
        }
        drop(jobs);
        // Waiters there learn that they wait for nothing.
        self.sides.device.look();
        epoch
    }

    /// Compares every entry with the requests and jobs that this side knows of, and [fences](Self::fence) the device if
    /// one is not as these have left it: for a device that is connected again. Returns the first such entry.
    pub fn repair(&self) -> Option<u32> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        self.memory().set_epoch(jobs.epoch);
        let is_known = |holder: Holder| match holder {
            Holder::Host => true,
            Holder::Job(job) => jobs.used.contains(&job.get()),
        };
        let is_wrong = |entry: &u32| {
            if self.shares.is_free(*entry) && self.memory().load(*entry) == 0 {
                return false;
            }
            let shares = self.shares.of(*entry);
            let sound = self.load_with(&shares, *entry);
            !sound.is_ok_and(|queue| queue.holders().all(is_known))
        };
        let wrong = (0..self.memory().entry_count()).find(is_wrong);
        drop(jobs);
        if wrong.is_some() {
            self.fence();
        }
        wrong
    }

    /// Whether `job` still has its locks: the host has not taken them away, nor released them.
    pub fn is_current(&self, job: Job) -> bool {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.epoch == job.epoch && jobs.used.contains(&job.id.get())
    }

    /// Checks every entry that has waiters in this process: to be called when the host's bell was rung.
    pub fn look(&self) {
        self.sides.device.look_here();
        for entry in self.waiters.entries() {
            let theirs = |queue: Queue| matches!(queue.head(), Some(Holder::Job(_)));
            if !self.table.load(entry).is_ok_and(theirs) {
                self.waiters.wake(entry);
            }
        }
    }

    #[inline]
    fn count_request(&self, entry: u32) {
        let place = (entry / ENTRIES_A_LINE) as usize % REQUEST_COUNTERS;
        if let Some(requests) = self.requests.get(place) {
            requests.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counters of the host's own requests.
    pub fn figures(&self) -> LockFigures {
        let requests = self.requests.iter().map(|requests| requests.0.load(Ordering::Relaxed));
        LockFigures { requests: requests.sum(), ..self.table.figures(Of::Host) }
    }

    /// The counters of the device's jobs, as far as their process tells the truth.
    pub fn figures_of_jobs(&self) -> LockFigures {
        self.table.figures(Of::Device)
    }
}

/// [`HostLocks::wait`].
#[derive(Debug)]
pub struct HostWait<'a> {
    locks: &'a HostLocks,
    ticket: &'a Ticket,
    number: u64,
}

impl Future for HostWait<'_> {
    type Output = Result<(), LockError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.locks.waiters.register(self.ticket.entry, self.number, context.waker());
        match self.locks.is_granted(self.ticket) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for HostWait<'_> {
    fn drop(&mut self) {
        self.locks.waiters.forget(self.ticket.entry, self.number);
    }
}
