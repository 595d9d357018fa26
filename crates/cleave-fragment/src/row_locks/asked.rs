//! The device's part of a run that locks rows of a host behind a network: batches of VIDs out, their outcomes in.
//!
//! ```text
//!  lock ─▶ batch n ─▶ (sent) ─ answers ─▶ held, changed, not free: final
//!             ▲                        └▶ queued ─ grant ─▶ final
//!             └ sent again over the next connection, until every row has its final outcome
//! ```
//!
//! Batches follow each other without waiting for answers. The number of rows without a final outcome is limited, which
//! bounds the memory of both sides. A row only advances, from asked over queued to final, so answers and grants may
//! come late, or twice, or in any order.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::RowLock;
use super::hosted_job::ROWS_WAITING_MAX;
use crate::command::lock_batch::LOCK_ROWS_MAX;
use crate::command::message::RunEvent;
use crate::command::{LockAnswers, LockBatch, LockCall, LockGrant, LockRefusal, LockSay};
use crate::link::SlotSender;

/// See the [module](self).
pub struct AskedLocks {
    state: Mutex<PendingLocks>,
    /// Permits for rows without a final outcome.
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct PendingLocks {
    sink: Option<SlotSender>,
    next: u32,
    /// Batches that somebody waits for.
    batches: BTreeMap<u32, Batch>,
    /// Batches below this one were given up, unless their outcomes are final.
    below: u32,
    /// Whether one was given up since the host was last told.
    gave_up: bool,
    refused: Option<LockRefusal>,
    release: Release,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Release {
    #[default]
    No,
    Asked,
    Done,
}

struct Batch {
    asked: LockBatch,
    /// None if not answered.
    rows: Vec<Option<RowLock>>,
    unsettled: usize,
    waker: Option<Waker>,
    /// Returned when all outcomes of the batch are final.
    room: Option<OwnedSemaphorePermit>,
}

impl AskedLocks {
    /// The locks of a run that reaches its host through `sink`.
    #[must_use]
    pub fn new(sink: SlotSender) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(PendingLocks { sink: Some(sink), ..PendingLocks::default() }),
            room: Arc::new(Semaphore::new(ROWS_WAITING_MAX)),
        })
    }

    /// Switches to `sink` as the way to the host, and repeats what may have been lost.
    pub fn connect(&self, sink: SlotSender) {
        let mut state = self.state();
        state.sink = Some(sink);
        if state.below > 0 {
            state.call(LockCall::GiveUp { below: state.below });
        }
        let unsettled = state.batches.values().filter(|batch| batch.unsettled > 0);
        let asked: Vec<LockBatch> = unsettled.map(|batch| batch.asked.clone()).collect();
        asked.into_iter().for_each(|batch| state.call(LockCall::Lock(batch)));
        if state.release == Release::Asked {
            state.call(LockCall::Release);
        }
    }

    /// Requests locks, in as many batches as needed; waits only while very many rows have no final outcome.
    ///
    /// # Errors
    /// [`LockRefusal`].
    pub async fn lock(
        self: &Arc<Self>,
        object: u64,
        vids: &[u64],
        waits: bool,
    ) -> Result<AskedRows, LockRefusal> {
        let mut rows = AskedRows { locks: Arc::clone(self), numbers: Vec::new(), at: 0 };
        for vids in vids.chunks(LOCK_ROWS_MAX) {
            let count = u32::try_from(vids.len()).unwrap_or(u32::MAX);
            // Closed when the run is refused.
            let room = Arc::clone(&self.room).acquire_many_owned(count).await.ok();
            let mut state = self.state();
            if let Some(why) = state.refused {
                return Err(why);
            }
            let number = state.next;
            // So many batches are more than any table has rows.
            state.next = number.checked_add(1).ok_or(LockRefusal::TooMany)?;
            let asked = LockBatch { number, object, waits, vids: vids.to_vec() };
            state.call(LockCall::Lock(asked.clone()));
            let batch = Batch {
                rows: vec![None; vids.len()],
                unsettled: vids.len(),
                waker: None,
                room,
                asked,
            };
            state.batches.insert(number, batch);
            drop(state);
            rows.numbers.push(number);
        }
        Ok(rows)
    }

    /// Releases all locks, and locks no more: for a run whose transaction no longer wants its rows.
    pub fn release(&self) {
        let mut state = self.state();
        state.refuse(LockRefusal::Over);
        if state.release == Release::No {
            state.release = Release::Asked;
            state.call(LockCall::Release);
        }
        drop(state);
        self.room.close();
    }

    /// Whether the host has confirmed the release.
    pub fn is_released(&self) -> bool {
        self.state().release == Release::Done
    }

    /// Handles a message of the host.
    pub fn hear(&self, say: LockSay) {
        let mut state = self.state();
        match say {
            LockSay::Answers(answers) => state.answer(&answers),
            LockSay::Grants(grants) => grants.iter().for_each(|grant| state.grant(grant)),
            LockSay::Refused(why) => state.refuse(why),
            // It was not requested.
            LockSay::Released if state.release == Release::No => state.refuse(LockRefusal::Spoilt),
            LockSay::Released => state.release = Release::Done,
            // The host decides it by itself, and goes on answering batches.
            LockSay::Escalated { .. } => state.refuse(LockRefusal::Spoilt),
        }
        let is_refused = state.refused.is_some();
        drop(state);
        if is_refused {
            self.room.close();
        }
    }

    fn state(&self) -> MutexGuard<'_, PendingLocks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AskedLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let mut debug = f.debug_struct("AskedLocks");
        debug.field("next", &state.next).field("unsettled", &state.batches.len());
        debug.field("refused", &state.refused).finish_non_exhaustive()
    }
}

impl PendingLocks {
    /// Over a lost connection nothing is sent; [`AskedLocks::connect`] repeats it.
    fn call(&self, call: LockCall) {
        if let Some(sink) = &self.sink {
            sink.send(RunEvent::Locks(call));
        }
    }

    fn answer(&mut self, answers: &LockAnswers) {
        if answers.number >= self.next {
            return self.refuse(LockRefusal::Spoilt);
        }
        // A batch without a waiter was finished, or given up.
        let Some(batch) = self.batches.get_mut(&answers.number) else { return };
        if !answers.answer(&batch.asked) {
            return self.refuse(LockRefusal::Spoilt);
        }
        for (row, answer) in batch.rows.iter_mut().zip(&answers.answers) {
            if row.is_none_or(|row| row == RowLock::Queued) {
                let answer = RowLock::from(*answer);
                batch.unsettled -= usize::from(answer != RowLock::Queued);
                *row = Some(answer);
            }
        }
        batch.look();
    }

    fn grant(&mut self, grant: &LockGrant) {
        if grant.number >= self.next {
            return self.refuse(LockRefusal::Spoilt);
        }
        let Some(batch) = self.batches.get_mut(&grant.number) else { return };
        let Some(row) = batch.rows.get_mut(grant.row as usize) else {
            return self.refuse(LockRefusal::Spoilt);
        };
        if row.is_none_or(|row| row == RowLock::Queued) {
            *row = Some(grant.newest.map_or(RowLock::Held, RowLock::Changed));
            batch.unsettled -= 1;
        }
        batch.look();
    }

    /// The first reason stays.
    fn refuse(&mut self, why: LockRefusal) {
        self.refused.get_or_insert(why);
        self.batches.values_mut().for_each(Batch::wake);
    }

    /// Nobody waits for `number` any more.
    fn forget(&mut self, number: u32) {
        let Some(batch) = self.batches.remove(&number) else { return };
        self.gave_up |= batch.unsettled > 0;
        let lowest = self.batches.keys().next().copied().unwrap_or(self.next);
        if self.gave_up && lowest > self.below {
            // All batches before it are finished or no longer wanted.
            self.below = lowest;
            self.gave_up = false;
            self.call(LockCall::GiveUp { below: lowest });
        }
    }
}

impl Batch {
    fn look(&mut self) {
        if self.unsettled == 0 {
            self.room = None;
        }
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Rows that were requested. Dropping it gives up the queued ones.
pub struct AskedRows {
    locks: Arc<AskedLocks>,
    numbers: Vec<u32>,
    /// The first of the batches that may not be in the wanted state yet.
    at: usize,
}

impl AskedRows {
    /// The outcome of each row, once all are known; some may be queued.
    ///
    /// # Errors
    /// [`LockRefusal`].
    pub async fn answered(&mut self) -> Result<Vec<RowLock>, LockRefusal> {
        self.wait_until(|batch| batch.rows.iter().all(Option::is_some)).await
    }

    /// The outcome of each row, once none is queued any more.
    ///
    /// # Errors
    /// [`LockRefusal`].
    pub async fn settled(&mut self) -> Result<Vec<RowLock>, LockRefusal> {
        self.wait_until(|batch| batch.unsettled == 0).await
    }

    async fn wait_until(
        &mut self,
        is_far: impl Fn(&Batch) -> bool,
    ) -> Result<Vec<RowLock>, LockRefusal> {
        self.at = 0;
        poll_fn(|context| {
            let mut state = self.locks.state();
            if let Some(why) = state.refused {
                return Poll::Ready(Err(why));
            }
            while let Some(number) = self.numbers.get(self.at) {
                if let Some(batch) = state.batches.get_mut(number)
                    && !is_far(batch)
                {
                    batch.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
                self.at += 1;
            }
            let batches = self.numbers.iter().filter_map(|number| state.batches.get(number));
            Poll::Ready(Ok(batches
                .flat_map(|batch| batch.rows.iter().flatten().copied())
                .collect()))
        })
        .await
    }
}

impl Drop for AskedRows {
    fn drop(&mut self) {
        let mut state = self.locks.state();
        self.numbers.iter().for_each(|number| state.forget(*number));
    }
}

impl fmt::Debug for AskedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskedRows").field("batches", &self.numbers).finish_non_exhaustive()
    }
}
