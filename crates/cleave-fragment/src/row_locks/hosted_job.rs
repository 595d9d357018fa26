//! The host's part of a run that locks rows: [`LockCall`]s in, [`LockSay`]s out, and the locks themselves where the
//! device shares no memory.
//!
//! ```text
//!  take(call) ─▶ JobLocks::lock, row by row ─▶ held: answer │ in line: parked under (batch, row), with a waker
//!                                                                    │ handed over: the waker puts it on the list
//!                                      grants ◀─ pump, a task of the link ◀┘
//! ```
//!
//! Wakers only list the rows that they woke: they are called by the transaction that releases a row, which may be
//! holding a partition of the host's table.
//!
//! Repetition: a row that is requested again is already held, or already parked under the same name; a batch below
//! those given up is skipped; an ended job answers so to everything. So the state is the same, however often and late
//! calls come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use cleave_shmem::{DeviceLocks, HostLocks, Job, JobLock, JobLocks, LockError, Row, Waiting};
use cleave_store::RecId;
use tokio::sync::Notify;

use super::escalation::Escalation;
use crate::command::{
    LockAnswer, LockAnswers, LockBatch, LockCall, LockGrant, LockRefusal, LockSay, RunLocks,
};
use crate::waiting::timeout;

/// Most rows of one job that may wait.
pub(super) const ROWS_WAITING_MAX: usize = 1 << 16;
/// Most rows that are remembered as waited for.
const AWAITED_MAX: usize = 1 << 12;
/// How long a row waits before it tries again to queue in an entry that was full: as many other jobs are queued as an
/// entry has room for.
pub(super) const NO_ROOM_WAIT: Duration = Duration::from_millis(2);

/// The host's view of the transaction that a job is part of.
pub trait JobTransaction: Send + Sync + fmt::Debug {
    /// The newest version of a row that the job has just locked, if it is not the one of its snapshot.
    fn newest(&self, row: Row) -> Option<RecId>;

    /// Locks a row in the host's entry as one of the job's transaction, if nobody conflicts: the transaction may hold
    /// others of that entry, or this one. Returns whether it did.
    fn lock_own(&self, row: Row) -> bool;

    /// Locks all rows of `object` for the job's transaction, if no other transaction has locked any of them, or waits
    /// for one. Returns whether it did; it does not wait.
    fn lock_object(&self, object: u64) -> bool;

    /// Called when the job waits: looks for deadlock cycles, and breaks those in which a transaction of the host can be
    /// the victim. Returns whether there is one that only the job can break, by ending.
    fn closes_cycle(&self) -> bool;
}

/// Sends messages to the device of the run, as far as there is a connection. It does not wait.
pub type Outlet = Arc<dyn Fn(LockSay) + Send + Sync>;

/// Who takes a job's locks.
#[derive(Debug, Clone, Copy)]
pub enum Served<'a> {
    /// The host, in this side of the table, for a device that shares no memory with it.
    ByHost(&'a Arc<DeviceLocks>),
    /// The device, if it has the table; else the host, in this side. The link knows: [`HostedJob::run_locks`].
    ByDevice(&'a Arc<DeviceLocks>),
}

/// See the [module](self). Dropping it ends it.
pub struct HostedJob {
    host: Arc<HostLocks>,
    device: Arc<DeviceLocks>,
    job: Job,
    transaction: Arc<dyn JobTransaction>,
    state: Mutex<JobInner>,
    ready: Arc<Ready>,
}

struct JobInner {
    /// The device's side of the table, if the host takes the locks.
    side: Option<JobLocks>,
    /// How the run locks, once a link has decided.
    locks: Option<RunLocks>,
    /// Whether something may work for the run on the device.
    is_running: bool,
    /// Whether a run of it has stopped.
    has_run: bool,
    escalation: Escalation,
    /// Queued rows, by batch and position in it.
    parked: BTreeMap<Name, Parked>,
    /// Rows for which the present run has waited, or waits.
    awaited: VecDeque<Row>,
    /// Batches below this number are skipped.
    below: u32,
    ended: Option<LockRefusal>,
    /// Whether the job's number was released.
    is_over: bool,
    outlet: Option<Outlet>,
    /// How often an outlet was set.
    connections: u64,
}

/// A row of a batch.
type Name = (u32, u32);

struct Parked {
    row: Row,
    /// Its place in the queue; none if there was no room.
    waiting: Option<Waiting>,
    waker: Waker,
}

/// The rows that were woken.
#[derive(Debug, Default)]
struct Ready {
    rows: Mutex<BTreeSet<Name>>,
    changed: Notify,
}

struct RowWaker {
    ready: Arc<Ready>,
    name: Name,
}

impl Wake for RowWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.ready.rows).insert(self.name);
        self.ready.changed.notify_one();
    }
}

impl HostedJob {
    /// A job of `transaction`, in the table that `host` is a side of. Returns None if as many jobs are running as the
    /// table can tell apart.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn begin(
        host: &Arc<HostLocks>,
        served: Served<'_>,
        transaction: Arc<dyn JobTransaction>,
    ) -> Result<Option<Arc<Self>>, LockError> {
        let Some(job) = host.assign_job() else { return Ok(None) };
        let (device, side, locks) = match served {
            Served::ByDevice(device) => (device, None, None),
            Served::ByHost(device) => match device.begin(job) {
                Ok(side) => (device, Some(side), Some(RunLocks::Batches)),
                Err(error) => {
                    host.release_job(job)?;
                    return Err(error);
                }
            },
        };
        let state = JobInner {
            side,
            locks,
            is_running: false,
            has_run: false,
            escalation: Escalation::default(),
            parked: BTreeMap::new(),
            awaited: VecDeque::new(),
            below: 0,
            ended: None,
            is_over: false,
            outlet: None,
            connections: 0,
        };
        Ok(Some(Arc::new(Self {
            host: Arc::clone(host),
            device: Arc::clone(device),
            job,
            transaction,
            state: Mutex::new(state),
            ready: Arc::default(),
        })))
    }

    /// Its number in the table.
    pub fn job(&self) -> Job {
        self.job
    }

    /// The device's side of its table in this process.
    pub fn device(&self) -> &Arc<DeviceLocks> {
        &self.device
    }

    /// How the run locks that a link is about to begin, on a device that `has_table` or has not. The first answer
    /// stays, since the run may go on over another connection.
    ///
    /// # Errors
    /// [`LockError::Fenced`] if the host has taken its locks away.
    pub fn run_locks(&self, has_table: bool) -> Result<RunLocks, LockError> {
        let mut state = self.state();
        match state.locks {
            Some(RunLocks::Shared(job)) => {
                return Ok(RunLocks::Shared(Job { goes_on: state.has_run, ..job }));
            }
            Some(RunLocks::Batches) => return Ok(RunLocks::Batches),
            None => {}
        }
        let locks = if has_table {
            RunLocks::Shared(Job { goes_on: state.has_run, ..self.job })
        } else {
            state.side = Some(self.device.begin(self.job)?);
            RunLocks::Batches
        };
        state.locks = Some(locks);
        Ok(locks)
    }

    /// A link sends the run to the device: from now on something may work for it there.
    pub(crate) fn starts(&self) -> Starting<'_> {
        let before = std::mem::replace(&mut self.state().is_running, true);
        Starting { job: self, is_first: !before }
    }

    /// The device has reported that nothing works for the run any more.
    pub fn run_has_stopped(&self) {
        let mut state = self.state();
        state.is_running = false;
        // Another run counts its batches anew.
        state.has_run = true;
        state.below = 0;
        state.parked.clear();
        state.awaited.clear();
    }

    /// Whether another run may go on with its locks: none works for it, and it was not refused.
    pub fn may_go_on(&self) -> bool {
        let state = self.state();
        !state.is_running && state.ended.is_none() && self.host.is_current(self.job)
    }

    /// Whether the job has all locks that it was granted: they were not taken away with those of the device's other
    /// jobs. To be asked when the run has ended, before its changes count.
    pub fn has_its_locks(&self) -> bool {
        self.host.is_current(self.job)
    }

    /// Rows for which the present run has waited, or waits: the last ones, if they are many.
    pub fn awaited(&self) -> Vec<Row> {
        self.state().awaited.iter().copied().collect()
    }

    /// Why the job locks no more, if the host has refused it.
    pub fn refusal(&self) -> Option<LockRefusal> {
        self.state().ended
    }

    /// From now on messages go to `outlet`. The caller runs the returned future as long as the connection lasts: it
    /// pushes grants, and ends with the job, or when another connection replaces this one.
    pub fn connect(self: &Arc<Self>, outlet: Outlet) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state();
        state.outlet = Some(outlet);
        state.connections += 1;
        let connection = state.connections;
        drop(state);
        // The previous pump finds that it is over.
        self.ready.changed.notify_one();
        pump(Arc::downgrade(self), Arc::clone(&self.ready), connection)
    }

    /// Handles a message of the device.
    pub fn take(&self, call: LockCall) {
        let mut state = self.state();
        let parked_before = state.parked.len();
        let is_request = matches!(call, LockCall::Lock(_));
        let say = match (state.ended, call) {
            (Some(_), LockCall::Release) => Some(LockSay::Released),
            (Some(why), _) => Some(LockSay::Refused(why)),
            (None, LockCall::Lock(batch)) => self.lock_batch(&mut state, &batch),
            (None, LockCall::Escalate { object }) => {
                self.escalate(&mut state, object).then_some(LockSay::Escalated { object })
            }
            (None, LockCall::GiveUp { below }) => {
                state.give_up(below).err().map(|why| state.refuse(why))
            }
            (None, LockCall::Release) => {
                state.end(LockRefusal::Over);
                // Locks that the host took away are released, too.
                let _fenced = state.side.as_mut().map(JobLocks::release);
                Some(LockSay::Released)
            }
        };
        // A device that locks by itself sends rows that wait.
        let waits = is_request && (state.side.is_none() || state.parked.len() > parked_before);
        let mut say = say;
        let outlet = state.outlet.clone();
        drop(state);
        // The table says that the job waits before anybody looks for deadlock cycles.
        if waits && self.transaction.closes_cycle() {
            say = Some(self.state().refuse(LockRefusal::Deadlock));
        }
        if let (Some(say), Some(outlet)) = (say, outlet) {
            outlet(say);
        }
    }

    /// Ends the job, whose transaction has ended: releases its locks and its number. Later requests are refused.
    ///
    /// A run that locks in shared memory and that the device has not reported to have stopped, such as a run of a lost
    /// device, may lock on: then the locks of all the device's jobs are taken away.
    pub fn end(&self) {
        let mut state = self.state();
        state.end(LockRefusal::Over);
        let is_over = std::mem::replace(&mut state.is_over, true);
        let locks_on = state.is_running && matches!(state.locks, Some(RunLocks::Shared(_)));
        drop(state);
        self.ready.changed.notify_one();
        if is_over {
            // The number may belong to another job by now.
            return;
        }
        if locks_on && self.host.is_current(self.job) {
            self.host.fence();
            return;
        }
        // A corrupted entry is found by the next job that asks for it.
        let _spoilt = self.host.release_job(self.job);
    }

    fn lock_batch(&self, state: &mut JobInner, batch: &LockBatch) -> Option<LockSay> {
        if batch.number < state.below {
            return None;
        }
        let mut answers = Vec::with_capacity(batch.vids.len());
        if state.escalation.covers(batch.object) {
            let rows = batch.vids.iter().map(|vid| Row { object: batch.object, vid: *vid });
            answers.extend(rows.map(|row| self.held(row)));
            return Some(LockSay::Answers(LockAnswers { number: batch.number, answers }));
        }
        if let Some(side) = &state.side {
            side.count_requests(batch.vids.len() as u64);
        }
        for (row, vid) in (0..).zip(&batch.vids) {
            let (name, row) = ((batch.number, row), Row { object: batch.object, vid: *vid });
            let own = || self.transaction.lock_own(row);
            let answer = match state.lock_row(name, row, batch.waits, own, &self.ready) {
                Ok(Some(true)) => self.held(row),
                Ok(Some(false)) => LockAnswer::NotFree,
                Ok(None) => LockAnswer::Queued,
                Err(why) => return Some(state.refuse(why)),
            };
            answers.push(answer);
        }
        if let Some(side) = &state.side
            && state.escalation.is_due(side.entry_count())
        {
            // The answer counts for later batches.
            self.escalate(state, batch.object);
        }
        Some(LockSay::Answers(LockAnswers { number: batch.number, answers }))
    }

    /// Whether all rows of `object` are the job's transaction's, from now on at the latest.
    fn escalate(&self, state: &mut JobInner, object: u64) -> bool {
        if !state.escalation.covers(object) {
            if !self.transaction.lock_object(object) {
                return false;
            }
            state.escalation.cover(object);
        }
        true
    }

    fn held(&self, row: Row) -> LockAnswer {
        self.transaction.newest(row).map_or(LockAnswer::Granted, LockAnswer::Conflict)
    }

    /// Pushes grants of the woken rows over the connection of that number. Returns whether rows wait for room; None if
    /// it is over.
    fn push_grants(&self, connection: u64) -> Option<bool> {
        let mut state = self.state();
        if state.ended.is_some() || state.connections != connection {
            // The pump that replaced it looks itself.
            self.ready.changed.notify_one();
            return None;
        }
        let woken = std::mem::take(&mut *lock(&self.ready.rows));
        let mut granted = Vec::new();
        let (mut refused, mut waits_anew) = (None, false);
        for name in woken.into_iter().chain(state.without_room()) {
            match state.look(name) {
                Ok(Some(row)) => granted.push((name, row)),
                // It may have queued again, behind others than before.
                Ok(None) => waits_anew |= state.parked.contains_key(&name),
                Err(why) => refused = Some(why),
            }
        }
        let waits_for_room = state.parked.values().any(|parked| parked.waiting.is_none());
        let refusal = refused.map(|why| state.refuse(why));
        let outlet = state.outlet.clone();
        drop(state);
        let refusal = if refusal.is_none() && waits_anew && self.transaction.closes_cycle() {
            Some(self.state().refuse(LockRefusal::Deadlock))
        } else {
            refusal
        };
        let Some(outlet) = outlet else { return Some(waits_for_room) };
        let grant = |((number, row), place): (Name, Row)| LockGrant {
            number,
            row,
            newest: self.transaction.newest(place),
        };
        let grants: Vec<LockGrant> = granted.into_iter().map(grant).collect();
        for grants in grants.chunks(crate::command::lock_batch::LOCK_ROWS_MAX) {
            outlet(LockSay::Grants(grants.to_vec()));
        }
        if let Some(refusal) = refusal {
            outlet(refusal);
        }
        Some(waits_for_room)
    }

    fn state(&self) -> MutexGuard<'_, JobInner> {
        lock(&self.state)
    }
}

impl Drop for HostedJob {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for HostedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedJob").field("job", &self.job).finish_non_exhaustive()
    }
}

/// A run that is being sent to its device.
pub(crate) struct Starting<'a> {
    job: &'a HostedJob,
    is_first: bool,
}

impl Starting<'_> {
    /// The device has refused it: it does not exist, unless an earlier attempt began it.
    pub(crate) fn was_refused(self) {
        if self.is_first {
            self.job.run_has_stopped();
        }
    }
}

impl JobInner {
    /// Whether the job has locked the row; None if it is queued. A device that locks by itself queues there.
    fn lock_row(
        &mut self,
        name: Name,
        row: Row,
        waits: bool,
        own: impl FnOnce() -> bool,
        ready: &Arc<Ready>,
    ) -> Result<Option<bool>, LockRefusal> {
        if !self.parked.is_empty() && self.parked.contains_key(&name) {
            return Ok(None);
        }
        let Some(side) = &self.side else {
            let is_own = own();
            if !is_own {
                self.note_awaited(row);
            }
            return Ok(is_own.then_some(true));
        };
        // Rows that its transaction has locked on the host are not waited for.
        if side.try_lock(row).map_err(refusal)? || own() {
            return Ok(Some(true));
        }
        if !waits {
            return Ok(Some(false));
        }
        let waiting = match side.lock(row).map_err(refusal)? {
            JobLock::Held => return Ok(Some(true)),
            JobLock::Waits(waiting) => Some(waiting),
            JobLock::Full => None,
        };
        if self.parked.len() >= ROWS_WAITING_MAX {
            return Err(LockRefusal::TooMany);
        }
        let waker = Waker::from(Arc::new(RowWaker { ready: Arc::clone(ready), name }));
        self.parked.insert(name, Parked { row, waiting, waker });
        self.note_awaited(row);
        // It may have come before the waker.
        let has_it = self.look(name)?.is_some();
        if self.parked.get(&name).is_some_and(|parked| parked.waiting.is_none()) {
            // The pump looks for room from time to time.
            ready.changed.notify_one();
        }
        Ok(has_it.then_some(true))
    }

    /// The row, if the job has it now.
    fn look(&mut self, name: Name) -> Result<Option<Row>, LockRefusal> {
        let (Some(side), Some(parked)) = (&self.side, self.parked.get_mut(&name)) else {
            return Ok(None);
        };
        let lock = match &mut parked.waiting {
            Some(waiting) => side.poll_wait(waiting, &parked.waker),
            None => Poll::Ready(side.lock(parked.row)),
        };
        match lock {
            Poll::Pending => {}
            Poll::Ready(Ok(JobLock::Held)) => return Ok(self.unpark(name)),
            Poll::Ready(Ok(JobLock::Full)) => {
                if let Some(waiting) = parked.waiting.take() {
                    side.forget(&waiting);
                }
            }
            Poll::Ready(Ok(JobLock::Waits(mut waiting))) => {
                let lock = side.poll_wait(&mut waiting, &parked.waker);
                parked.waiting = Some(waiting);
                match lock {
                    Poll::Ready(Ok(JobLock::Held)) => return Ok(self.unpark(name)),
                    Poll::Ready(Err(error)) => return Err(refusal(error)),
                    // Examined again when the pump looks for room.
                    Poll::Ready(Ok(_)) | Poll::Pending => {}
                }
            }
            Poll::Ready(Err(error)) => return Err(refusal(error)),
        }
        Ok(None)
    }

    fn note_awaited(&mut self, row: Row) {
        if self.awaited.len() >= AWAITED_MAX {
            self.awaited.pop_front();
        }
        self.awaited.push_back(row);
    }

    fn unpark(&mut self, name: Name) -> Option<Row> {
        let parked = self.parked.remove(&name)?;
        if let (Some(side), Some(waiting)) = (&self.side, &parked.waiting) {
            side.forget(waiting);
        }
        Some(parked.row)
    }

    /// Rows that wait for room.
    fn without_room(&self) -> Vec<Name> {
        let without = self.parked.iter().filter(|(_, parked)| parked.waiting.is_none());
        without.map(|(name, _)| *name).collect()
    }

    /// Rows of batches below this number wait no more.
    fn give_up(&mut self, below: u32) -> Result<(), LockRefusal> {
        self.below = self.below.max(below);
        let kept = self.parked.split_off(&(self.below, 0));
        let given_up = std::mem::replace(&mut self.parked, kept);
        let Some(side) = &self.side else { return Ok(()) };
        for waiting in given_up.into_values().filter_map(|parked| parked.waiting) {
            // A row that was granted just now is kept until the end.
            side.leave_line(&waiting).map_err(refusal)?;
        }
        Ok(())
    }

    /// The job locks no more, for this reason.
    fn refuse(&mut self, why: LockRefusal) -> LockSay {
        self.end(why);
        LockSay::Refused(why)
    }

    /// As [`JobInner::refuse`]; the first reason stays.
    fn end(&mut self, why: LockRefusal) {
        // A corrupted entry cannot be left.
        let _left = self.give_up(u32::MAX);
        self.ended.get_or_insert(why);
    }
}

pub(super) fn refusal(error: LockError) -> LockRefusal {
    match error {
        LockError::Fenced { .. } => LockRefusal::Over,
        LockError::Spoilt { .. } | LockError::Job(_) => LockRefusal::Spoilt,
    }
}

async fn pump(job: Weak<HostedJob>, ready: Arc<Ready>, connection: u64) {
    let mut waits_for_room = false;
    loop {
        let woken = ready.changed.notified();
        if waits_for_room {
            let _woken = timeout(NO_ROOM_WAIT, woken).await;
        } else {
            woken.await;
        }
        let Some(job) = job.upgrade() else { return };
        let Some(waits) = job.push_grants(connection) else { return };
        waits_for_room = waits;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
