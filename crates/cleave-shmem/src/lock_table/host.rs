//! The host's side: requests of transactions in, shares of the host's slots out.
//!
//! A slot of the host stands for all its requests since the last job that queued: a *share*, counted by entry in private
//! memory. The last of them gives the slot back, and with it the entry to whoever waits behind. A request that comes after a
//! job has queued opens the next share, behind that job, so neither side starves the other.
//!
//! The host's own table, which is exact by row, is the tail: of each request it keeps the [`Ticket`], grants rows in its
//! own order, and lets a transaction go on that is first at its row *and* whose ticket is granted. Two transactions
//! with rows of one entry share its slot and do not hinder each other.
//!
//! The tail's duty: requests for one row queue there in the order in which they joined here, so that joining and queueing
//! are one step. Else one that joined before a job would wait at its row for one that joined after it, and all
//! three for each other.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use super::memory::LockMemory;
use super::queue::{Holder, JobId, Queue};
use super::sync::{Mutex, MutexGuard};
use super::waiters::{Peer, Waiters};
use super::{Bells, Job, LockError, LockFigures, LockTable, Row, Sides, SlotFormat, TakenOut};

/// The host's side of a table.
#[derive(Debug)]
pub struct HostLocks {
    pub(super) table: Arc<LockTable>,
    entries: Box<[Mutex<Shares>]>,
    waiters: Arc<Waiters>,
    sides: Sides,
    jobs: Mutex<Jobs>,
    #[cfg(not(loom))]
    pub(super) bells: Option<super::attach::BellPair>,
}

/// One request of the host, to be given back by [`HostLocks::leave`]; dropped, it keeps its entry from the device. Those
/// of one share of one entry are equal.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a ticket is given back, or its entry stays locked"]
pub struct Ticket {
    entry: u32,
    share: u32,
}

/// A request that was taken.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its ticket is given back, or its entry stays locked"]
pub struct Joined {
    /// What is given back at the transaction's end.
    pub ticket: Ticket,
    /// Whether the host holds the entry now; else [`HostLocks::wait`] says when.
    pub is_granted: bool,
}

/// The host's shares of one entry, in the order of its slots there.
#[derive(Debug, Default)]
struct Shares {
    first: Share,
    /// Shares behind jobs that wait: there are none but under contention.
    later: Option<Box<Later>>,
}

#[derive(Debug, Default)]
struct Later(Vec<Share>);

/// Requests that one slot stands for.
#[derive(Debug, Default, Clone, Copy)]
struct Share {
    number: u32,
    /// None: there is no such share, and the number is the last one's.
    count: u32,
}

#[derive(Debug, Default)]
struct Jobs {
    epoch: u64,
    used: BTreeSet<u16>,
    last: u16,
}

impl Shares {
    fn all(&self) -> impl Iterator<Item = &Share> {
        let later = self.later.iter().flat_map(|later| &later.0);
        Some(&self.first).filter(|share| share.count > 0).into_iter().chain(later)
    }

    fn len(&self) -> usize {
        usize::from(self.first.count > 0) + self.later.as_ref().map_or(0, |later| later.0.len())
    }

    fn last_mut(&mut self) -> &mut Share {
        let later = self.later.as_mut().and_then(|later| later.0.last_mut());
        later.unwrap_or(&mut self.first)
    }

    /// One more request in a share of its own.
    fn open(&mut self) -> u32 {
        let number = self.last_mut().number.wrapping_add(1);
        let share = Share { number, count: 1 };
        if self.first.count == 0 {
            self.first = share;
        } else {
            self.later.get_or_insert_default().0.push(share);
        }
        number
    }

    /// One more request in the last share.
    fn join_last(&mut self) -> u32 {
        let share = self.last_mut();
        share.count = share.count.saturating_add(1);
        share.number
    }

    /// One request less in share `number`: the share's place where that was its last.
    fn leave(&mut self, number: u32) -> Option<usize> {
        let index = self.all().position(|share| share.number == number)?;
        let share = match index.checked_sub(1) {
            None => &mut self.first,
            Some(later) => self.later.as_mut()?.0.get_mut(later)?,
        };
        share.count = share.count.saturating_sub(1);
        (share.count == 0).then_some(index)
    }

    fn remove(&mut self, index: usize) {
        let Some(later) = &mut self.later else { return };
        match index.checked_sub(1) {
            None => self.first = later.0.remove(0),
            Some(index) => drop(later.0.remove(index)),
        }
        if later.0.is_empty() {
            self.later = None;
        }
    }
}

impl HostLocks {
    pub(super) fn new(table: Arc<LockTable>, waiters: Arc<Waiters>, device: Peer) -> Self {
        let entries = (0..table.memory.entry_count()).map(|_| Mutex::default()).collect();
        let sides = Sides { host: Peer::Here(Arc::clone(&waiters)), device };
        Self {
            table,
            entries,
            waiters,
            sides,
            jobs: Mutex::default(),
            #[cfg(not(loom))]
            bells: None,
        }
    }

    fn memory(&self) -> &LockMemory {
        &self.table.memory
    }

    fn format(&self) -> SlotFormat {
        self.table.format
    }

    fn shares(&self, entry: u32) -> MutexGuard<'_, Shares> {
        // As many as entries, whose number is a power of two.
        let index = entry as usize & (self.entries.len() - 1);
        self.entries[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more request of the host for `row`.
    ///
    /// `has_ticket` is asked only where the host has the entry and a job waits behind it, and says whether the transaction
    /// has an equal ticket already: then it shares that slot again, since behind the job it would wait for itself.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn join(
        &self,
        row: Row,
        has_ticket: impl FnOnce(&Ticket) -> bool,
    ) -> Result<Joined, LockError> {
        let place = self.table.place_of(row);
        let host = self.format().host();
        let mut shares = self.shares(place.entry);
        let entry = place.entry;
        let was_free = shares.first.count == 0;
        let (share, is_granted) = if was_free {
            let queue = self.table.put_in(entry, host, |queue| match queue.with_host() {
                Some(with) if queue.host_count() == 0 => Ok(Some(with)),
                _ => Err(self.table.spoilt(entry, queue.bits())),
            })?;
            let is_granted = queue.is_some_and(|queue| queue.head() == Some(Holder::Host));
            (shares.open(), is_granted)
        } else {
            let seen = self.load_with(&shares, entry)?;
            let holds = seen.head() == Some(Holder::Host);
            let first = Ticket { entry, share: shares.first.number };
            if seen.tail() == Some(Holder::Host) {
                (shares.join_last(), holds && shares.len() == 1)
            } else if holds && has_ticket(&first) {
                shares.first.count = shares.first.count.saturating_add(1);
                (first.share, true)
            } else {
                // A job came between, or is coming just now.
                let queue = self.table.change(entry, seen.bits(), |queue| Ok(queue.with_host()))?;
                let share = if queue.is_some() { shares.open() } else { shares.join_last() };
                (share, false)
            }
        };
        drop(shares);
        if !is_granted {
            self.table.count_wait(place);
        }
        self.memory().mark(entry, place.mark, was_free && is_granted);
        Ok(Joined { ticket: Ticket { entry, share }, is_granted })
    }

    /// As [`HostLocks::join`], but only where the host has the entry then, with no job waiting for it: for `NOWAIT` and
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
        let (entry, host) = (place.entry, self.format().host());
        let mut shares = self.shares(entry);
        let was_free = shares.first.count == 0;
        let share = if was_free {
            let queue = self.table.put_in(entry, host, |queue| match queue.host_count() {
                // Emptied meanwhile.
                0 if queue.head().is_none() => Ok(queue.with_host()),
                0 => Ok(None),
                _ => Err(self.table.spoilt(entry, queue.bits())),
            })?;
            queue.map(|_| shares.open())
        } else {
            let seen = self.load_with(&shares, entry)?;
            let first = Ticket { entry, share: shares.first.number };
            let holds = seen.head() == Some(Holder::Host);
            let alone = shares.len() == 1 && seen.tail() == Some(Holder::Host);
            (holds && (alone || has_ticket(&first))).then(|| {
                shares.first.count = shares.first.count.saturating_add(1);
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
                self.table.count_wait(place);
                Ok(None)
            }
        }
    }

    /// The entry, with as many slots of the host as it has shares.
    fn load_with(&self, shares: &Shares, entry: u32) -> Result<Queue, LockError> {
        let queue = self.table.load(entry)?;
        if queue.host_count() != shares.len() {
            return Err(self.table.spoilt(entry, queue.bits()));
        }
        Ok(queue)
    }

    /// Gives a request back, granted or not. The last of its share hands the entry over.
    ///
    /// # Errors
    /// [`LockError::Spoilt`]: given back all the same.
    pub fn leave(&self, ticket: Ticket) -> Result<(), LockError> {
        let Ticket { entry, share } = ticket;
        let mut shares = self.shares(entry);
        let Some(index) = shares.leave(share) else { return Ok(()) };
        let taken = if index == 0 {
            self.table.take_out(entry, self.format().host(), |queue| queue.place_of_host(0))
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
        let shares = self.shares(ticket.entry);
        if shares.first.count == 0 || shares.first.number != ticket.share {
            return Ok(false);
        }
        Ok(self.load_with(&shares, ticket.entry)?.head() == Some(Holder::Host))
    }

    /// Waits until `ticket` is granted. Dropped, it waits no more, and the ticket stays where it is.
    pub fn wait<'a>(&'a self, ticket: &'a Ticket) -> HostWait<'a> {
        HostWait { locks: self, ticket, number: self.waiters.number() }
    }

    /// The jobs before `ticket` in its entry: what it waits for, besides the host's own transactions.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn jobs_before(&self, ticket: &Ticket) -> Result<Vec<JobId>, LockError> {
        let shares = self.shares(ticket.entry);
        let Some(index) = shares.all().position(|share| share.number == ticket.share) else {
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

    /// Every entry that somebody waits for, with all in it, the holder first: for who looks for deadlocks.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn contended(&self) -> Result<Vec<(u32, Vec<Holder>)>, LockError> {
        let mut found = Vec::new();
        for entry in 0..self.memory().entry_count() {
            let holders: Vec<_> = self.table.load(entry)?.holders().collect();
            if holders.len() > 1 {
                found.push((entry, holders));
            }
        }
        Ok(found)
    }

    /// A number for a job that is going to lock; none where as many jobs are under way as slots can tell apart. To be
    /// given back by [`HostLocks::release_job`].
    pub fn assign_job(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.format().host() - 1;
        // As late as can be is a number given again.
        let last = jobs.last;
        let number =
            (last + 1..=most).chain(1..=last).find(|number| !jobs.used.contains(number))?;
        jobs.used.insert(number);
        jobs.last = number;
        Some(Job { id: JobId::new(number)?, epoch: jobs.epoch })
    }

    /// Ends `job`, whose transaction has ended and which locks no more: takes it out of all entries, and hands them over.
    /// Nothing happens where the device was fenced since.
    ///
    /// # Errors
    /// [`LockError::Spoilt`]: one of the entries where nothing could be done; the rest are released.
    pub fn release_job(&self, job: Job) -> Result<(), LockError> {
        // Held to the end: nobody gets the number before all is released.
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

    /// Takes the locks of all jobs away, whatever the device does, and begins a new epoch, which it gives: for a device that
    /// died, or whose runs the host has given up. The host's own shares stay, and are handed what is free now. Entries that
    /// were spoilt are as they should be.
    ///
    /// A job that is on its way into an entry while this runs finds the new epoch when it is there, and leaves.
    pub fn fence(&self) -> u64 {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.epoch += 1;
        jobs.used.clear();
        let epoch = jobs.epoch;
        self.memory().set_epoch(epoch);
        for entry in 0..self.memory().entry_count() {
            let shares = self.shares(entry);
            let left = Queue::of_host(shares.len(), self.format()).bits();
            if self.memory().load(entry) != left {
                self.memory().overwrite(entry, left);
            }
            drop(shares);
            self.waiters.wake(entry);
        }
        drop(jobs);
        // Who waits there learns that it waits for nothing.
        self.sides.device.ring();
        epoch
    }

    /// Looks at every entry that is waited for: to be called when the host's bell was rung.
    pub fn look(&self) {
        for entry in self.waiters.entries() {
            let theirs = |queue: Queue| matches!(queue.head(), Some(Holder::Job(_)));
            if !self.table.load(entry).is_ok_and(theirs) {
                self.waiters.wake(entry);
            }
        }
    }

    /// What was seen here.
    pub fn figures(&self) -> LockFigures {
        self.table.figures()
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
