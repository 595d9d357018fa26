//! One run: the ring of slots between its partitions and the host, and the end of the run.
//!
//! ```text
//! partitions ─ offer ─▶ ring (slots made and not consumed) ─ SlotSender ─▶ link
//!            ▲ waits while the ring is full                   host: consumed(n) drops slots below n
//! ```
//!
//! Slots stay in the ring until the host has consumed them, so that a repeated execute can send them again (rule 29).
//! Invariants: slot numbers have no gaps; never more than `slot_count` slots are outstanding, and none is added once
//! they have the ring's bytes, so that at most one slot exceeds the memory that the run was admitted with; after the
//! outcome nothing is offered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::{
    CommandHeader, DeviceError, DeviceErrorCause, Execute, Kept, LockSay, RunReport, RunState,
    RunStatus, Slot, SlotPayload,
};
use cleave_fragment::fed_filter::FedFilter;
use cleave_fragment::link::{SlotForm, SlotSender};
use cleave_fragment::row_locks::RowLocks;
use cleave_fragment::strip::Strip;
use cleave_fragment::{MorselList, Stop};
use cleave_media::{Extent, Stopwatch};
use datafusion_execution::TaskContext;
use tokio::sync::{Notify, watch};

use crate::admission::Admitted;
use crate::device_error::of_decoding;
use crate::node::HelpedMorsels;
use crate::run_space::RunSpace;

/// A run that was not released.
#[derive(Debug)]
pub(crate) struct FragmentRun {
    header: CommandHeader,
    slot_count: u64,
    ring_bytes: u64,
    memory_bytes: u64,
    form: SlotForm,
    /// Where it may write.
    space: Arc<RunSpace>,
    /// Started when the run was requested.
    clock: Stopwatch,
    streamed: OnceLock<Streamed>,
    /// The scans that take filters while it runs; gone when nothing works for it any more.
    fed: OnceLock<Weak<FedInputs>>,
    /// The rows that it locks.
    locks: OnceLock<RowLocks>,
    ring: Mutex<Ring>,
    credit: Notify,
    accepted: watch::Sender<Option<Result<SchemaRef, DeviceError>>>,
    cancelled: watch::Sender<bool>,
    /// Raised when the run is cancelled.
    stop: Stop,
    /// The error that the run ends with, unless the host cancelled it.
    why_cancelled: OnceLock<DeviceError>,
    /// True once nothing works for the run any more.
    still: watch::Sender<bool>,
}

/// The morsels that stream through a run.
#[derive(Debug)]
struct Streamed {
    /// The number of their input.
    input: u32,
    morsels: Arc<MorselList>,
    /// Partitions on lent cores that take from them; gone when nothing works for the run any more.
    helped: Weak<HelpedMorsels>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Slots that were made and not consumed, in order, each with its bytes.
    slots: VecDeque<(Slot, u64)>,
    /// The sum of their bytes.
    held_bytes: u64,
    next_number: u64,
    consumed: u64,
    rows: u64,
    slot_bytes: u64,
    sink: Option<SlotSender>,
    /// The memory of the ring, held until the run is released.
    memory: Option<Admitted>,
    outcome: Option<Result<RunReport, DeviceError>>,
    partitions_waiting: u32,
    stall_since: Option<Stopwatch>,
    stall: Duration,
    /// The stalls over time.
    stalls: Strip,
}

/// The inputs of a run whose scans take filters while it goes on.
#[derive(Debug)]
pub(crate) struct FedInputs {
    pub(crate) filters: BTreeMap<u32, Arc<FedFilter>>,
    /// The context in which they are decoded, and whose memory they take.
    pub(crate) task: Arc<TaskContext>,
}

/// The output of a run, for its report.
#[derive(Debug, Clone)]
pub(crate) struct RunOutput {
    pub(crate) rows: u64,
    pub(crate) slots: u64,
    pub(crate) slot_bytes: u64,
    pub(crate) stall: Duration,
    pub(crate) stalls: Strip,
}

impl FragmentRun {
    /// A run of `request` whose slots go to `sink`, and which may write to `space`; `memory_bytes` is its admitted
    /// memory.
    pub(crate) fn new(
        request: &Execute,
        memory_bytes: u64,
        sink: SlotSender,
        space: RunSpace,
    ) -> Self {
        Self {
            header: request.header,
            slot_count: u64::from(request.slot_count),
            ring_bytes: u64::from(request.slot_count) * u64::from(request.slot_bytes),
            memory_bytes,
            form: sink.form(),
            space: Arc::new(space),
            clock: Stopwatch::start(),
            streamed: OnceLock::new(),
            fed: OnceLock::new(),
            locks: OnceLock::new(),
            ring: Mutex::new(Ring { sink: Some(sink), ..Ring::default() }),
            credit: Notify::new(),
            accepted: watch::Sender::new(None),
            cancelled: watch::Sender::new(false),
            stop: Stop::default(),
            why_cancelled: OnceLock::new(),
            still: watch::Sender::new(false),
        }
    }

    /// The header that it was requested with.
    pub(crate) fn header(&self) -> &CommandHeader {
        &self.header
    }

    /// An extent of its own that overlaps one of `extents`, as long as it may write there.
    pub(crate) fn writes_to(&self, extents: &[Extent]) -> Option<Extent> {
        let own = self.space.overlapping(extents);
        // Its reported end is enough: that comes when nothing works for it any more.
        own.filter(|_| !*self.still.borrow() && self.lock().outcome.is_none())
    }

    /// Where it may write.
    pub(crate) fn space(&self) -> &Arc<RunSpace> {
        &self.space
    }

    /// The time since it was requested.
    pub(crate) fn clock(&self) -> &Stopwatch {
        &self.clock
    }

    /// The form of its slots.
    pub(crate) fn form(&self) -> SlotForm {
        self.form
    }

    // ---- from its maker ------------------------------------------------------------------------

    /// Gives the ring its memory.
    pub(crate) fn hold(&self, memory: Option<Admitted>) {
        self.lock().memory = memory;
    }

    /// Sets the streamed morsels, and how lent cores take from them, once.
    pub(crate) fn streams(
        &self,
        input: u32,
        morsels: Arc<MorselList>,
        helped: Option<&Arc<HelpedMorsels>>,
    ) {
        let helped = helped.map(Arc::downgrade).unwrap_or_default();
        // A second call would set the same ones.
        drop(self.streamed.set(Streamed { input, morsels, helped }));
    }

    /// Sets the scans that take filters, once.
    pub(crate) fn takes_filters(&self, fed: &Arc<FedInputs>) {
        drop(self.fed.set(Arc::downgrade(fed)));
    }

    /// Sets what locks its rows, once.
    pub(crate) fn locks_rows(&self, locks: RowLocks) {
        drop(self.locks.set(locks));
    }

    /// Reports that the run was admitted, or why it was not.
    pub(crate) fn accept(&self, outcome: Result<SchemaRef, DeviceError>) {
        if outcome.is_err() {
            self.still.send_replace(true);
        }
        self.accepted.send_replace(Some(outcome));
    }

    /// Waits until the run was admitted or refused.
    pub(crate) async fn accepted(&self) -> Result<SchemaRef, DeviceError> {
        let mut accepted = self.accepted.subscribe();
        match accepted.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            _ => Err(self.cancelled_error()),
        }
    }

    // ---- from its partitions -----------------------------------------------------------------------

    /// Puts one slot of `row_count` rows into the ring, waiting for credit.
    pub(crate) async fn offer(&self, row_count: u64, bytes: u64, payload: SlotPayload) {
        let mut waited = false;
        loop {
            // Registered before the ring is examined, so that no wake-up is missed.
            let credit = self.credit.notified();
            {
                let mut ring = self.lock();
                if ring.has_room(self.slot_count, self.ring_bytes) {
                    if waited {
                        ring.copy_goes_on(self.clock.elapsed());
                    }
                    ring.push(row_count, bytes, payload);
                    return;
                }
                if !waited {
                    waited = true;
                    ring.copy_waits();
                }
            }
            credit.await;
        }
    }

    /// The output so far.
    pub(crate) fn output(&self) -> RunOutput {
        let ring = self.lock();
        RunOutput {
            rows: ring.rows,
            slots: ring.next_number,
            slot_bytes: ring.slot_bytes,
            stall: ring.stall,
            stalls: ring.stalls.clone(),
        }
    }

    /// Ends the run; nothing works for it any more.
    pub(crate) fn finish(&self, outcome: Result<RunReport, DeviceError>) {
        {
            let mut ring = self.lock();
            if let Some(sink) = &ring.sink {
                sink.send(outcome_event(&outcome));
            }
            ring.outcome = Some(outcome);
        }
        self.still.send_replace(true);
    }

    /// Resolves when the run is cancelled.
    pub(crate) async fn cancellation(&self) {
        let mut cancelled = self.cancelled.subscribe();
        // The sender lives as long as `self`.
        let _closed = cancelled.wait_for(|cancelled| *cancelled).await;
    }

    /// The flag that stops its joins and functions.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The outcome of a cancelled run.
    pub(crate) fn cancelled_error(&self) -> DeviceError {
        self.why_cancelled.get().cloned().unwrap_or_else(|| {
            DeviceError::new(
                DeviceErrorCause::Cancelled,
                format!("run {} was cancelled", self.header.run),
            )
        })
    }

    // ---- from the host -------------------------------------------------------------------------

    /// Replaces the listener by `sink`, from slot `first_slot` on.
    pub(crate) fn attach(&self, sink: SlotSender, first_slot: u64) -> Result<(), DeviceError> {
        if sink.form() != self.form {
            return Err(self.refused("was begun over a link of another kind".to_owned()));
        }
        {
            let mut ring = self.lock();
            if first_slot < ring.consumed {
                let consumed = ring.consumed;
                let detail = format!(
                    "cannot repeat slot {first_slot}: those below {consumed} were consumed"
                );
                return Err(self.refused(detail));
            }
            if first_slot > ring.next_number {
                let detail = format!("has not made slot {first_slot} yet");
                return Err(self.refused(detail));
            }
            for (slot, _) in ring.slots.iter().filter(|(slot, _)| slot.number >= first_slot) {
                sink.send(RunEvent::Slot(slot.clone()));
            }
            if let Some(outcome) = &ring.outcome {
                sink.send(outcome_event(outcome));
            }
            self.space.connect(sink.clone());
            if let Some(before) = ring.sink.replace(sink.clone()) {
                let message =
                    format!("run {} was taken over by a repeated execute", self.header.run);
                let error = DeviceError::new(DeviceErrorCause::Cancelled, message);
                before.send(RunEvent::Failed(error));
            }
        }
        if let Some(locks) = self.locks.get() {
            locks.connect(sink);
        }
        self.consumed(first_slot);
        Ok(())
    }

    /// Takes a message about its locks. A run that locks none needs none.
    pub(crate) fn hear(&self, say: LockSay) {
        if let Some(locks) = self.locks.get() {
            locks.hear(say);
        }
    }

    /// The host has consumed the slots below `total`.
    pub(crate) fn consumed(&self, total: u64) {
        {
            let mut ring = self.lock();
            let total = total.min(ring.next_number);
            if total <= ring.consumed {
                return;
            }
            ring.consumed = total;
            while ring.slots.front().is_some_and(|(slot, _)| slot.number < total) {
                let bytes = ring.slots.pop_front().map_or(0, |(_, bytes)| bytes);
                ring.held_bytes = ring.held_bytes.saturating_sub(bytes);
            }
        }
        self.credit.notify_waiters();
    }

    /// Gives back the morsels of `input` behind the first `keep` that were not begun.
    pub(crate) fn revoke(&self, input: u32, keep: u32) -> Result<Kept, DeviceError> {
        let Some(streamed) = self.streamed.get().filter(|streamed| streamed.input == input) else {
            return Err(self.refused(format!("has no input {input} that streams")));
        };
        let lease = streamed.morsels.keep(keep);
        if let Some(helped) = streamed.helped.upgrade() {
            helped.wake();
        }
        let ring = self.lock();
        let now = ring.stall_since.as_ref().map_or(Duration::ZERO, Stopwatch::elapsed);
        Ok(Kept { lease, stall: ring.stall + now })
    }

    /// Adds `filter` to the scan of `input`. A finished run needs none.
    pub(crate) fn feed(
        &self,
        input: u32,
        generation: u64,
        filter: &[u8],
    ) -> Result<(), DeviceError> {
        let Some(fed) = self.fed.get().and_then(Weak::upgrade) else { return Ok(()) };
        let found = fed.filters.get(&input);
        let scan =
            found.ok_or_else(|| self.refused(format!("takes no filters for input {input}")))?;
        scan.take(generation, filter, &fed.task).map_err(|error| of_decoding(&error))
    }

    /// Morsels that it keeps of the streamed input; all if there is none.
    pub(crate) fn kept(&self) -> u32 {
        self.streamed.get().map_or(u32::MAX, |streamed| streamed.morsels.lease().kept)
    }

    /// Morsels of the streamed input that it has not begun and will begin.
    pub(crate) fn queued(&self) -> u64 {
        if *self.cancelled.borrow() || self.lock().outcome.is_some() {
            return 0;
        }
        self.streamed.get().map_or(0, |streamed| u64::from(streamed.morsels.lease().left()))
    }

    /// Cancels the run, without waiting until it has stopped.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
        // Second: a partition that fails because of it belongs to a cancelled run.
        self.stop.raise();
    }

    /// As [`FragmentRun::cancel`], with `why` as the outcome, unless it was cancelled before.
    pub(crate) fn cancel_because(&self, why: DeviceError) {
        if !*self.cancelled.borrow() {
            // The first reason stays.
            drop(self.why_cancelled.set(why));
        }
        self.cancel();
    }

    /// Waits until nothing works for the run any more.
    pub(crate) async fn stand_still(&self) {
        let mut still = self.still.subscribe();
        // The sender lives as long as `self`.
        let _closed = still.wait_for(|still| *still).await;
    }

    /// Frees the memory of a run that has stopped and was released.
    pub(crate) fn let_go(&self) {
        let mut ring = self.lock();
        ring.slots.clear();
        ring.held_bytes = 0;
        ring.memory = None;
    }

    /// Whether nobody listens to the run.
    pub(crate) fn is_detached(&self) -> bool {
        self.lock().sink.as_ref().is_none_or(SlotSender::is_closed)
    }

    /// The run's status.
    pub(crate) fn status(&self) -> RunStatus {
        let accepted = matches!(&*self.accepted.borrow(), Some(Ok(_)));
        let cancelled = *self.cancelled.borrow();
        let ring = self.lock();
        let state = match &ring.outcome {
            Some(Ok(_)) => RunState::Finished,
            Some(Err(error)) if error.cause == DeviceErrorCause::Cancelled => RunState::Cancelled,
            Some(Err(_)) => RunState::Failed,
            None if cancelled => RunState::Cancelled,
            None if !accepted => RunState::Queued,
            None if ring.partitions_waiting > 0 || self.space.is_waited_for() => RunState::Stalled,
            None => RunState::Running,
        };
        RunStatus {
            run: self.header.run,
            state,
            slots: ring.next_number,
            consumed: ring.consumed,
            memory_bytes: self.memory_bytes,
        }
    }

    fn refused(&self, detail: String) -> DeviceError {
        let message = format!("run {} {detail}; begin a new run", self.header.run);
        DeviceError::new(DeviceErrorCause::Refused, message)
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// Whether another slot may be outstanding. An empty ring takes any, so that a large one can be sent at all.
    fn has_room(&self, slot_count: u64, ring_bytes: u64) -> bool {
        self.next_number - self.consumed < slot_count
            && (self.slots.is_empty() || self.held_bytes < ring_bytes)
    }

    fn push(&mut self, row_count: u64, bytes: u64, payload: SlotPayload) {
        let slot = Slot { number: self.next_number, row_count, payload };
        self.next_number += 1;
        self.rows += row_count;
        self.slot_bytes += bytes;
        if let Some(sink) = &self.sink {
            sink.send(RunEvent::Slot(slot.clone()));
        }
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        self.slots.push_back((slot, bytes));
    }

    fn copy_waits(&mut self) {
        self.partitions_waiting += 1;
        if self.partitions_waiting == 1 {
            self.stall_since = Some(Stopwatch::start());
        }
    }

    fn copy_goes_on(&mut self, now: Duration) {
        self.partitions_waiting = self.partitions_waiting.saturating_sub(1);
        if self.partitions_waiting == 0
            && let Some(since) = self.stall_since.take()
        {
            let stalled = since.elapsed();
            self.stall += stalled;
            self.stalls.add_span(now.saturating_sub(stalled), now);
        }
    }
}

fn outcome_event(outcome: &Result<RunReport, DeviceError>) -> RunEvent {
    match outcome {
        Ok(report) => RunEvent::Finished(Box::new(report.clone())),
        Err(error) => RunEvent::Failed(error.clone()),
    }
}

#[cfg(test)]
mod tests;
