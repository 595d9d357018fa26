//! The device's side of the lock table: locks rows for a job, which holds them until it ends.
//!
//! A job has one slot in an entry, for all its rows there and all its threads. Two bits an entry in private memory say
//! what it has requested and what it holds. So a row whose entry is held needs no access to shared memory, every entry
//! is released once, and a slot that names the job without its request is not believed, unless an earlier run of the
//! same job may have left it.
//!
//! ```text
//!            ask                     first slot
//!    none ─────────▶ asked, queued ──────────────▶ held ──▶ none
//!      ▲               │ entry full, given up                ▲ release: all at once, by this side or by the host
//!      └───────────────┘
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll, Waker};

use super::sync::atomic::{AtomicU64, Ordering};
use super::waiters::{Peer, Waiters};
use super::{
    Bells, Conflict, Holder, Job, LockError, LockFigures, LockTable, Of, Place, PutIn, Row, Sides,
};

/// The device's side of a table.
#[derive(Debug)]
pub struct DeviceLocks {
    table: LockTable,
    waiters: Arc<Waiters>,
    sides: Sides,
    #[cfg(not(loom))]
    pub(super) bells: Option<super::attach::BellPair>,
}

/// The locks of one job in a table, for all its threads. Dropped, it keeps its locks: they belong to its transaction,
/// whose end the host knows ([`HostLocks::release_job`](super::HostLocks::release_job)).
#[derive(Debug)]
pub struct JobLocks {
    device: Arc<DeviceLocks>,
    job: Job,
    states: States,
}

/// The outcome of a request.
#[derive(Debug)]
#[must_use = "only what is held may be changed"]
pub enum JobLock {
    /// The job has the row, until it ends.
    Held,
    /// Others have it, and the job is queued: [`JobLocks::wait`].
    Waits(Waiting),
    /// The queue has no room for another job. The job waits in the host's table, as its transaction, which then locks
    /// the row for the host.
    Full,
}

/// A place in the queue.
#[derive(Debug)]
pub struct Waiting {
    place: Place,
    number: u64,
    /// Whether this request queued the job, and not another one of the same job.
    pub(super) is_first: bool,
}

const ASKED: u64 = 1;
const HELD: u64 = 2;
/// [`ASKED`] of each entry of a word.
const ALL_ASKED: u64 = u64::MAX / 3;
const STATE_BITS: u32 = 2;
const STATES_A_WORD: u32 = u64::BITS / STATE_BITS;

/// Two bits an entry.
#[derive(Debug)]
struct States {
    words: Box<[AtomicU64]>,
    /// Entries that were asked for: what the words say, for whom they are too many to be read. Never modelled.
    asked: AtomicU32,
}

impl States {
    fn new(entry_count: u32) -> Self {
        let words = (0..entry_count.div_ceil(STATES_A_WORD)).map(|_| AtomicU64::new(0));
        Self { words: words.collect(), asked: AtomicU32::new(0) }
    }

    #[inline]
    fn word(&self, entry: u32) -> (&AtomicU64, u32) {
        (&self.words[(entry / STATES_A_WORD) as usize], entry % STATES_A_WORD * STATE_BITS)
    }

    /// Sets bits, and returns the previous ones.
    #[inline]
    fn set(&self, entry: u32, state: u64) -> u64 {
        let (word, at) = self.word(entry);
        let before = word.fetch_or(state << at, Ordering::SeqCst) >> at;
        if before & ASKED == 0 && state & ASKED != 0 {
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
        before
    }

    #[inline]
    fn get(&self, entry: u32) -> u64 {
        let (word, at) = self.word(entry);
        word.load(Ordering::SeqCst) >> at
    }

    fn clear(&self, entry: u32) {
        let (word, at) = self.word(entry);
        let before = word.fetch_and(!((ASKED | HELD) << at), Ordering::SeqCst) >> at;
        if before & ASKED != 0 {
            self.asked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Clears the word of this number, and returns its states.
    fn take(&self, word: &AtomicU64) -> u64 {
        let states = word.swap(0, Ordering::SeqCst);
        self.asked.fetch_sub((states & ALL_ASKED).count_ones(), Ordering::Relaxed);
        states
    }
}

impl DeviceLocks {
    /// `device` is where jobs wait, `waiters` those among them that wait here.
    pub(super) fn new(table: LockTable, device: Peer, waiters: Arc<Waiters>, host: Peer) -> Self {
        let sides = Sides { host, device };
        Self {
            table,
            waiters,
            sides,
            #[cfg(not(loom))]
            bells: None,
        }
    }

    /// The locks of `job`, which the host assigned and which was not begun before.
    ///
    /// # Errors
    /// [`LockError::Fenced`] if its epoch has ended, [`LockError::Job`] if slots cannot name it.
    pub fn begin(self: &Arc<Self>, job: Job) -> Result<JobLocks, LockError> {
        if !self.table.format.admits(job.id) {
            return Err(LockError::Job(job.id));
        }
        let states = States::new(self.table.memory.entry_count());
        let locks = JobLocks { device: Arc::clone(self), job, states };
        locks.check_epoch()?;
        Ok(locks)
    }

    /// Checks every entry that has waiters: to be called when the device's bell was rung.
    pub fn look(&self) {
        // Waiters check again and go on waiting, unless they were fenced: then they are in no entry.
        self.waiters.entries().into_iter().for_each(|entry| self.waiters.wake(entry));
    }

    /// The counters of this side.
    pub fn figures(&self) -> LockFigures {
        self.table.figures(Of::Device)
    }
}

impl JobLocks {
    /// The job.
    pub fn job(&self) -> Job {
        self.job
    }

    #[inline]
    fn slot(&self) -> u16 {
        self.job.id.get()
    }

    #[inline]
    fn check_epoch(&self) -> Result<(), LockError> {
        let now = self.device.table.memory.epoch();
        if now != self.job.epoch {
            return Err(LockError::Fenced { ours: self.job.epoch, now });
        }
        Ok(())
    }

    /// Locks `row`, or queues for it.
    ///
    /// # Errors
    /// [`LockError::Spoilt`], [`LockError::Fenced`].
    #[inline]
    pub fn lock(&self, row: Row) -> Result<JobLock, LockError> {
        let place = self.device.table.place_of(row);
        if self.states.get(place.entry) & HELD != 0 {
            self.device.table.memory.mark(place.entry, place.mark, false);
            return Ok(JobLock::Held);
        }
        self.ask(place, true)
    }

    /// As [`JobLocks::lock`], without queueing: whether the job has the row.
    ///
    /// # Errors
    /// [`LockError::Spoilt`], [`LockError::Fenced`].
    pub fn try_lock(&self, row: Row) -> Result<bool, LockError> {
        let place = self.device.table.place_of(row);
        Ok(matches!(self.ask(place, false)?, JobLock::Held))
    }

    /// Requests an entry, for all threads of the job at once: the first one queues, the others wait for it.
    fn ask(&self, place: Place, gets_in_line: bool) -> Result<JobLock, LockError> {
        let Place { entry, mark } = place;
        let table = &self.device.table;
        self.check_epoch()?;
        let before = self.states.set(entry, ASKED);
        if before & HELD != 0 {
            table.memory.mark(entry, mark, false);
            return Ok(JobLock::Held);
        }
        let waits = |is_first| {
            let number = self.device.waiters.number();
            JobLock::Waits(Waiting { place, number, is_first })
        };
        if before & ASKED != 0 {
            table.memory.mark(entry, mark, false);
            return Ok(waits(false));
        }
        let job = self.job.id;
        if self.job.goes_on
            && table.load(entry).is_ok_and(|queue| queue.head() == Some(Holder::Job(job)))
        {
            // An earlier run has locked it, and the job keeps it until it ends.
            self.states.set(entry, HELD);
            table.memory.mark(entry, mark, false);
            self.device.waiters.wake(entry);
            self.check_epoch()?;
            return Ok(JobLock::Held);
        }
        let put = table.put_in(entry, self.slot(), |queue| {
            if queue.place_of(job).is_some() {
                // No thread of this job put it there.
                return Err(table.spoilt(entry, queue.bits()));
            }
            let may = gets_in_line || queue.head().is_none();
            Ok(if may { queue.with_job(job) } else { None })
        });
        let outcome = match put {
            Ok(PutIn::First) => {
                self.states.set(entry, HELD);
                table.memory.mark(entry, mark, true);
                Ok(JobLock::Held)
            }
            Ok(PutIn::Behind) => {
                table.count_conflict(place, Conflict::Wait);
                table.memory.mark(entry, mark, false);
                Ok(waits(true))
            }
            Ok(PutIn::Not) => {
                self.states.clear(entry);
                if gets_in_line {
                    table.count_conflict(place, Conflict::Wait);
                    table.counters().overflows.fetch_add(1, Ordering::Relaxed);
                } else {
                    table.count_conflict(place, Conflict::Refusal);
                }
                Ok(JobLock::Full)
            }
            Err(error) => {
                self.states.clear(entry);
                Err(error)
            }
        };
        // Other threads of this job may wait for the outcome.
        self.device.waiters.wake(entry);
        if matches!(outcome, Ok(JobLock::Held | JobLock::Waits(_))) {
            // A sweep that began before may have passed this entry.
            self.check_epoch().inspect_err(|_| self.withdraw(entry))?;
        }
        outcome
    }

    /// Leaves an entry, whatever its contents: the job has been fenced.
    fn withdraw(&self, entry: u32) {
        let job = self.job.id;
        self.states.clear(entry);
        if let Ok(Some(taken)) =
            self.device.table.take_out(entry, self.slot(), |queue| queue.place_of(job))
        {
            self.device.sides.hand_over(entry, taken);
        }
    }

    /// The state of a place in the queue; `waker` is told of changes. For callers that cannot hold a [`JobWait`]. A
    /// caller that has the lock, or no longer wants it, calls [`JobLocks::forget`] or [`JobLocks::leave_line`].
    ///
    /// # Errors
    /// [`LockError::Spoilt`], [`LockError::Fenced`].
    pub fn poll_wait(
        &self,
        waiting: &mut Waiting,
        waker: &Waker,
    ) -> Poll<Result<JobLock, LockError>> {
        let entry = waiting.place.entry;
        self.device.waiters.register(entry, waiting.number, waker);
        loop {
            let state = self.states.get(entry);
            if state & HELD != 0 {
                return Poll::Ready(self.check_epoch().map(|()| JobLock::Held));
            }
            if state & ASKED == 0 {
                // Another thread of this job had queued, without success or no longer.
                match self.ask(waiting.place, true) {
                    Ok(JobLock::Waits(again)) => waiting.is_first = again.is_first,
                    outcome => return Poll::Ready(outcome),
                }
                continue;
            }
            let place = match self.device.table.load(entry) {
                Ok(queue) => queue.place_of(self.job.id),
                Err(error) => return Poll::Ready(Err(error)),
            };
            // After reading the entry, so that the reading was of this epoch.
            if let Err(error) = self.check_epoch() {
                return Poll::Ready(Err(error));
            }
            return match place {
                Some(0) => {
                    self.states.set(entry, HELD);
                    self.device.waiters.wake(entry);
                    Poll::Ready(Ok(JobLock::Held))
                }
                None if waiting.is_first => {
                    self.states.clear(entry);
                    self.device.waiters.wake(entry);
                    let bits = self.device.table.memory.load(entry);
                    Poll::Ready(Err(self.device.table.spoilt(entry, bits)))
                }
                // Not there: the thread that requests it is about to put it there, or to wake this one.
                Some(_) | None => Poll::Pending,
            };
        }
    }

    /// Waits for a place in the queue to become a lock; [`JobLock::Full`] if another thread of the job left it
    /// meanwhile and no place is free any more. Dropped, it stops waiting, and the place stays.
    pub fn wait(&self, waiting: Waiting) -> JobWait<'_> {
        JobWait { locks: self, waiting }
    }

    /// Stops waiting; the place in the queue stays.
    pub fn forget(&self, waiting: &Waiting) {
        self.device.waiters.forget(waiting.place.entry, waiting.number);
    }

    /// Stops waiting and leaves the queue, unless the place has become a lock meanwhile; returns whether it has. For
    /// all threads of the job: others that wait for the entry request it again.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn leave_line(&self, waiting: &Waiting) -> Result<bool, LockError> {
        let entry = waiting.place.entry;
        let Self { device, job, states } = self;
        self.forget(waiting);
        if states.get(entry) & HELD != 0 {
            return Ok(true);
        }
        if !waiting.is_first {
            return Ok(false);
        }
        let table = &device.table;
        let mut has_it = false;
        let left = table.change(entry, table.memory.load(entry), |queue| {
            let place = queue.place_of(job.id);
            has_it = place == Some(0);
            Ok(place.filter(|place| *place > 0).map(|place| queue.without(place)))
        })?;
        if has_it {
            states.set(entry, HELD);
        } else if left.is_some() {
            states.clear(entry);
        }
        device.waiters.wake(entry);
        Ok(has_it)
    }

    /// How many entries the job has or waits for, and out of how many: above some share, a lock on the whole table is
    /// cheaper.
    pub fn entry_count(&self) -> (u32, u32) {
        (self.states.asked.load(Ordering::Relaxed), self.device.table.memory.entry_count())
    }

    /// Counts `count` requests of rows in the figures of the device's side: many at once, since a count of each would
    /// cost as much as a lock.
    pub fn count_requests(&self, count: u64) {
        self.device.table.counters().requests.fetch_add(count, Ordering::Relaxed);
    }

    /// Releases all entries, each to the next in its queue, and leaves all queues; returns the number of entries. For a
    /// job whose transaction ends on this side; elsewhere the host does it.
    ///
    /// # Errors
    /// [`LockError::Spoilt`]: one of the entries that the job had held and lost; the rest are released.
    /// [`LockError::Fenced`]: all were removed before.
    pub fn release(&mut self) -> Result<u32, LockError> {
        self.check_epoch()?;
        let (table, job) = (&self.device.table, self.job.id);
        let (mut bells, mut count, mut outcome) = (Bells::default(), 0, Ok(()));
        for (index, word) in (0..).zip(&self.states.words) {
            let mut states = self.states.take(word);
            while states != 0 {
                let at = states.trailing_zeros() / STATE_BITS;
                let entry = index * STATES_A_WORD + at;
                states &= !((ASKED | HELD) << (at * STATE_BITS));
                match table.take_out(entry, job.get(), |queue| queue.place_of(job)) {
                    Ok(Some(taken)) => {
                        count += 1;
                        self.device.sides.wake(entry, taken, &mut bells);
                    }
                    Ok(None) => outcome = Err(table.spoilt(entry, table.memory.load(entry))),
                    Err(error) => outcome = Err(error),
                }
            }
        }
        self.device.sides.ring(bells);
        outcome.map(|()| count)
    }
}

/// [`JobLocks::wait`].
#[derive(Debug)]
pub struct JobWait<'a> {
    locks: &'a JobLocks,
    pub(super) waiting: Waiting,
}

impl JobWait<'_> {
    /// Leaves the queue, unless the place has become a lock meanwhile; returns whether it has. For all threads of the
    /// job: others that wait for the entry request it again.
    ///
    /// # Errors
    /// [`LockError::Spoilt`].
    pub fn give_up(self) -> Result<bool, LockError> {
        self.locks.leave_line(&self.waiting)
    }
}

impl Future for JobWait<'_> {
    type Output = Result<JobLock, LockError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.locks.poll_wait(&mut this.waiting, context.waker())
    }
}

impl Drop for JobWait<'_> {
    fn drop(&mut self) {
        self.locks.forget(&self.waiting);
    }
}
