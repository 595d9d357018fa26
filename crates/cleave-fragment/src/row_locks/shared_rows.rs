//! The locks of a run in a table that its process shares with the host: no messages, except to tell that it waits.
//!
//! The last waiter that closes a deadlock cycle must have it detected. A transaction of the host sees the shared table
//! and looks for itself; a waiting job tells the host, after it has written into the table that it waits.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use cleave_shmem::{DeviceLocks, Job, JobLock, JobLocks, Row, Waiting};

use super::RowLock;
use super::escalation::Escalation;
use super::hosted_job::{NO_ROOM_WAIT, refusal};
use crate::command::lock_batch::LOCK_ROWS_MAX;
use crate::command::message::RunEvent;
use crate::command::{LockBatch, LockCall, LockRefusal, LockSay};
use crate::link::SlotSender;
use crate::waiting::timeout;

/// Messages whose answers are awaited at once.
const CALLS_MAX: u32 = 64;

/// See the [module](self). Dropping it keeps the locks, which belong to its transaction.
pub struct SharedRows {
    job: JobLocks,
    state: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    sink: Option<SlotSender>,
    /// Messages that report that the job waits.
    calls: u32,
    /// The rows in them that may still be waited for.
    asked: BTreeMap<u32, LockBatch>,
    /// Rows that the job's transaction has locked on the host.
    own: BTreeMap<Row, RowLock>,
    escalation: Escalation,
    refused: Option<LockRefusal>,
    /// Waiters, to be told of a refusal.
    wakers: Vec<Waker>,
}

impl SharedRows {
    /// The locks of the run `job`, which reaches its host through `sink`.
    ///
    /// # Errors
    /// [`LockRefusal`]: the host has taken the job's locks away.
    pub fn begin(
        device: &Arc<DeviceLocks>,
        job: Job,
        sink: SlotSender,
    ) -> Result<Arc<Self>, LockRefusal> {
        let job = device.begin(job).map_err(refusal)?;
        let state = Mutex::new(Said { sink: Some(sink), ..Said::default() });
        Ok(Arc::new(Self { job, state }))
    }

    /// Switches to `sink` as the way to the host. Lost messages are repeated when the next row waits.
    pub fn connect(&self, sink: SlotSender) {
        self.state().sink = Some(sink);
    }

    /// Handles a message of the host: that rows are the transaction's own, or a whole object is, or that the job closes
    /// a deadlock cycle.
    pub fn hear(&self, say: &LockSay) {
        let mut state = self.state();
        match say {
            LockSay::Refused(why) => {
                state.refused.get_or_insert(*why);
            }
            LockSay::Answers(answers) => {
                let Some(asked) = state.asked.remove(&answers.number) else { return };
                for (vid, answer) in asked.vids.iter().zip(&answers.answers) {
                    let lock = RowLock::from(*answer);
                    if matches!(lock, RowLock::Held | RowLock::Changed(_)) {
                        state.own.insert(Row { object: asked.object, vid: *vid }, lock);
                    }
                }
            }
            LockSay::Escalated { object } => state.escalation.cover(*object),
            LockSay::Grants(_) | LockSay::Released => return,
        }
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Locks rows, or queues for them.
    ///
    /// # Errors
    /// [`LockRefusal`].
    pub fn lock(
        self: &Arc<Self>,
        object: u64,
        vids: &[u64],
        waits: bool,
    ) -> Result<WaitingRows, LockRefusal> {
        let mut rows =
            WaitingRows { locks: Arc::clone(self), rows: Vec::new(), queued: Vec::new() };
        {
            let state = self.state();
            if let Some(why) = state.refused {
                return Err(why);
            }
            if state.escalation.covers(object) {
                rows.rows = vec![RowLock::Held; vids.len()];
                return Ok(rows);
            }
        }
        self.job.count_requests(vids.len() as u64);
        for (index, vid) in vids.iter().enumerate() {
            let row = Row { object, vid: *vid };
            let lock = if waits {
                match self.job.lock(row).map_err(refusal)? {
                    JobLock::Held => RowLock::Held,
                    JobLock::Waits(waiting) => {
                        rows.queued.push(Queued { index, row, waiting: Some(waiting) });
                        RowLock::Queued
                    }
                    JobLock::Full => {
                        rows.queued.push(Queued { index, row, waiting: None });
                        RowLock::Queued
                    }
                }
            } else if self.job.try_lock(row).map_err(refusal)? {
                RowLock::Held
            } else {
                RowLock::NotFree
            };
            rows.rows.push(lock);
        }
        if !rows.queued.is_empty() {
            self.say_waits(object, rows.queued.iter().map(|queued| queued.row.vid).collect());
        }
        self.escalate(object);
        Ok(rows)
    }

    /// Asks for the whole of `object` if the job holds most of the table. The answer counts for later rows.
    fn escalate(&self, object: u64) {
        let mut state = self.state();
        let is_due = state.escalation.is_due(self.job.entry_count());
        let sink = state.sink.clone();
        drop(state);
        if let (true, Some(sink)) = (is_due, sink) {
            sink.send(RunEvent::Locks(LockCall::Escalate { object }));
        }
    }

    /// The host looks for deadlock cycles, and for rows that are the transaction's own; if there are very many rows,
    /// among the first of them.
    fn say_waits(&self, object: u64, mut vids: Vec<u64>) {
        vids.truncate(LOCK_ROWS_MAX);
        let mut state = self.state();
        let number = state.calls;
        state.calls = number.wrapping_add(1);
        let sink = state.sink.clone();
        let batch = LockBatch { number, object, waits: true, vids };
        // Old ones have had their answer, or never will.
        state.asked.retain(|asked, _| number.wrapping_sub(*asked) < CALLS_MAX);
        state.asked.insert(number, batch.clone());
        drop(state);
        if let Some(sink) = sink {
            sink.send(RunEvent::Locks(LockCall::Lock(batch)));
        }
    }

    fn state(&self) -> MutexGuard<'_, Said> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRows").field("job", &self.job.job()).finish_non_exhaustive()
    }
}

/// Rows that were requested. Dropping it gives up the queued ones.
pub struct WaitingRows {
    locks: Arc<SharedRows>,
    rows: Vec<RowLock>,
    queued: Vec<Queued>,
}

struct Queued {
    /// The row's position.
    index: usize,
    row: Row,
    /// Its place in the queue; none if there was no room.
    waiting: Option<Waiting>,
}

impl WaitingRows {
    /// The outcome of each row.
    ///
    /// # Errors
    /// [`LockRefusal`].
    pub fn answered(&self) -> Result<Vec<RowLock>, LockRefusal> {
        Ok(self.rows.clone())
    }

    /// The outcome of each row, once none is queued any more.
    ///
    /// # Errors
    /// [`LockRefusal`].
    pub async fn settled(&mut self) -> Result<Vec<RowLock>, LockRefusal> {
        while !self.queued.is_empty() {
            let waits_for_room = self.waits_for_room();
            let polling = poll_fn(|context| self.poll(context));
            if !waits_for_room {
                polling.await?;
            } else if let Some(looked) = timeout(NO_ROOM_WAIT, polling).await {
                looked?;
            }
        }
        Ok(self.rows.clone())
    }

    fn waits_for_room(&self) -> bool {
        self.queued.iter().any(|queued| queued.waiting.is_none())
    }

    /// Ready when none is queued any more, or when one lost its place in the queue.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LockRefusal>> {
        {
            let mut state = self.locks.state();
            if let Some(why) = state.refused {
                return Poll::Ready(Err(why));
            }
            if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                state.wakers.push(context.waker().clone());
            }
        }
        let had_room = !self.waits_for_room();
        let mut queued = std::mem::take(&mut self.queued).into_iter();
        while let Some(mut row) = queued.next() {
            if let Some(own) = self.locks.state().own.get(&row.row).copied() {
                row.leave_line(&self.locks.job);
                if let Some(lock) = self.rows.get_mut(row.index) {
                    *lock = own;
                }
                continue;
            }
            let had_place = row.waiting.is_some();
            let polled = row.poll(&self.locks.job, context.waker());
            if !had_place && row.waiting.is_some() {
                self.locks.say_waits(row.row.object, vec![row.row.vid]);
            }
            match polled {
                Ok(true) => {
                    if let Some(lock) = self.rows.get_mut(row.index) {
                        *lock = RowLock::Held;
                    }
                }
                Ok(false) => self.queued.push(row),
                Err(why) => {
                    self.queued.push(row);
                    self.queued.extend(queued);
                    return Poll::Ready(Err(why));
                }
            }
        }
        if self.queued.is_empty() || (had_room && self.waits_for_room()) {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

impl Queued {
    fn leave_line(&self, job: &JobLocks) {
        if let Some(waiting) = &self.waiting {
            // A row granted just now is kept until the end, and a corrupted entry cannot be left.
            let _left = job.leave_line(waiting);
        }
    }

    /// Whether the job has the row now.
    fn poll(&mut self, job: &JobLocks, waker: &Waker) -> Result<bool, LockRefusal> {
        if self.waiting.is_none() {
            match job.lock(self.row).map_err(refusal)? {
                JobLock::Held => return Ok(true),
                JobLock::Waits(waiting) => self.waiting = Some(waiting),
                JobLock::Full => return Ok(false),
            }
        }
        let Some(waiting) = &mut self.waiting else { return Ok(false) };
        match job.poll_wait(waiting, waker) {
            Poll::Ready(Ok(JobLock::Held)) => {
                job.forget(waiting);
                Ok(true)
            }
            Poll::Ready(Ok(_)) => {
                job.forget(waiting);
                self.waiting = None;
                Ok(false)
            }
            Poll::Ready(Err(error)) => Err(refusal(error)),
            Poll::Pending => Ok(false),
        }
    }
}

impl Drop for WaitingRows {
    fn drop(&mut self) {
        self.queued.iter().for_each(|queued| queued.leave_line(&self.locks.job));
    }
}

impl fmt::Debug for WaitingRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingRows").field("queued", &self.queued.len()).finish_non_exhaustive()
    }
}
