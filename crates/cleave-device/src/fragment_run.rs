//! One run: the rings of slots between its partitions and who reads them, and the end of the run.
//!
//! ```text
//! partitions ─ offer ─▶ ring (slots made and not consumed) ─ SlotSender ─▶ link
//!            ▲ waits while the ring is full                   host: consumed(n) drops slots below n
//! ```
//!
//! The rows of most runs go to the host, in one ring. Those of a run with several [`Outputs`] go to other devices, a
//! ring for each: who runs a fragment over them attaches to it. The host then hears only of the end, and the run waits
//! as long as it takes until somebody attaches.
//!
//! Slots stay in their ring until they were consumed, so that a repeated execute can send them again (rule 29).
//! Invariants: slot numbers have no gaps; never more than `slot_count` slots are outstanding, and none is added once
//! they have the ring's bytes, so that at most one slot exceeds the memory that the run was admitted with; several
//! rings divide both, and the size of a slot where that is too large for it, and each may exceed its part by one slot;
//! after the outcome nothing is offered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use cleave_fragment::command::message::{RunEvent, SLOT_BYTES};
use cleave_fragment::command::{
    CommandHeader, DeviceError, DeviceErrorCause, Execute, Kept, LockSay, Outputs, RunReport,
    RunState, RunStatus, SlotPayload,
};
use cleave_fragment::fed_filter::FedFilter;
use cleave_fragment::link::{SlotForm, SlotSender};
use cleave_fragment::row_locks::RowLocks;
use cleave_fragment::strip::Strip;
use cleave_fragment::trace::OpenSpan;
use cleave_fragment::{MorselList, Stop};
use cleave_media::{Extent, Stopwatch};
use datafusion_execution::TaskContext;
use tokio::sync::{Notify, watch};

use crate::admission::Admitted;
use crate::device_error::of_decoding;
use crate::node::HelpedMorsels;
use crate::run_space::RunSpace;

mod ring;
mod run_span;

use ring::{Limits, Ring};
use run_span::RunSpan;

/// A run that was not released.
#[derive(Debug)]
pub(crate) struct FragmentRun {
    header: CommandHeader,
    outputs: Outputs,
    /// Bytes that a slot should have.
    slot_bytes: u64,
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
    rows: Mutex<Rows>,
    credit: Notify,
    accepted: watch::Sender<Option<Result<SchemaRef, DeviceError>>>,
    cancelled: watch::Sender<bool>,
    /// Raised when the run is cancelled.
    stop: Stop,
    /// The error that the run ends with, unless the host cancelled it.
    why_cancelled: OnceLock<DeviceError>,
    /// True once nothing works for the run any more.
    still: watch::Sender<bool>,
    span: RunSpan,
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

/// What partitions have made.
#[derive(Debug)]
struct Rows {
    /// One for each output.
    rings: Vec<Ring>,
    /// Who began the run; the listener of the only ring, if the rows are the host's.
    host: SlotSender,
    /// The memory of the rings, held until the run is released.
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
        let count = u64::from(request.outputs.count()).max(1);
        let (slots, slot_bytes) = (u64::from(request.slot_count), u64::from(request.slot_bytes));
        let limits =
            Limits { slots: (slots / count).max(1), bytes: (slots * slot_bytes / count).max(1) };
        let mut rings: Vec<Ring> = (0..count).map(|_| Ring::new(limits)).collect();
        let serves_host = request.outputs == Outputs::One;
        if serves_host && let Some(only) = rings.first_mut() {
            only.attach((sink.clone(), Limits::NONE), 0, None);
        }
        let rows = Rows {
            rings,
            host: sink.clone(),
            memory: None,
            outcome: None,
            partitions_waiting: 0,
            stall_since: None,
            stall: Duration::ZERO,
            stalls: Strip::default(),
        };
        Self {
            header: request.header,
            outputs: request.outputs.clone(),
            slot_bytes: slot_bytes
                .min((limits.bytes / limits.slots).max(u64::from(*SLOT_BYTES.start()))),
            memory_bytes,
            // Who will attach is not known, and encoded slots reach everybody.
            form: if serves_host { sink.form() } else { SlotForm::Encoded },
            space: Arc::new(space),
            clock: Stopwatch::start(),
            streamed: OnceLock::new(),
            fed: OnceLock::new(),
            locks: OnceLock::new(),
            rows: Mutex::new(rows),
            credit: Notify::new(),
            accepted: watch::Sender::new(None),
            cancelled: watch::Sender::new(false),
            stop: Stop::default(),
            why_cancelled: OnceLock::new(),
            still: watch::Sender::new(false),
            span: RunSpan::default(),
        }
    }

    /// The same run on `device`, measured by `span` if there is one.
    pub(crate) fn traced_by(self, span: Option<OpenSpan>, device: [u8; 16]) -> Self {
        Self { span: RunSpan::of(span, device), ..self }
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

    /// Where its rows go.
    pub(crate) fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// Bytes that a slot should have.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    // ---- from its maker ------------------------------------------------------------------------

    /// Gives the rings their memory.
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

    /// It has its memory.
    pub(crate) fn was_admitted(&self) {
        self.span.was_admitted();
    }

    /// Reports that the run was admitted, or why it was not.
    pub(crate) fn accept(&self, outcome: Result<SchemaRef, DeviceError>) {
        if let Err(error) = &outcome {
            self.span.end(Err(error));
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

    /// Puts one slot of `row_count` rows into the ring of `output`, waiting for credit.
    pub(crate) async fn offer(
        &self,
        output: usize,
        row_count: u64,
        bytes: u64,
        payload: SlotPayload,
    ) {
        let mut waited = false;
        loop {
            // Registered before the ring is examined, so that no wake-up is missed.
            let credit = self.credit.notified();
            {
                let mut rows = self.lock();
                if rows.rings.get(output).is_none_or(Ring::has_room) {
                    if waited {
                        rows.copy_goes_on(self.clock.elapsed());
                    }
                    if let Some(ring) = rows.rings.get_mut(output) {
                        ring.push(row_count, bytes, payload);
                    }
                    return;
                }
                if !waited {
                    waited = true;
                    rows.copy_waits();
                }
            }
            credit.await;
        }
    }

    /// The output so far, of all rings.
    pub(crate) fn output(&self) -> RunOutput {
        let rows = self.lock();
        let sizes = rows.rings.iter().map(Ring::size);
        let (row_count, slot_bytes) =
            sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        RunOutput {
            rows: row_count,
            slots: rows.made(),
            slot_bytes,
            stall: rows.stall,
            stalls: rows.stalls.clone(),
        }
    }

    /// Ends the run; nothing works for it any more.
    pub(crate) fn finish(&self, outcome: Result<RunReport, DeviceError>) {
        // First: whoever sees the end finds the span.
        self.span.end(outcome.as_ref());
        {
            let mut rows = self.lock();
            for ring in &mut rows.rings {
                ring.send(Some(&outcome));
            }
            if self.outputs != Outputs::One {
                rows.host.send(end_for_host(&outcome));
            }
            rows.outcome = Some(outcome);
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

    /// Replaces the host's listener by `sink`, from slot `first_slot` on.
    pub(crate) fn attach(&self, sink: SlotSender, first_slot: u64) -> Result<(), DeviceError> {
        let serves_host = self.outputs == Outputs::One;
        if serves_host && sink.form() != self.form {
            return Err(self.refused("was begun over a link of another kind".to_owned()));
        }
        {
            let mut rows = self.lock();
            if serves_host {
                rows.attach(0, (sink.clone(), Limits::NONE), first_slot)
                    .map_err(|detail| self.refused(detail))?;
            } else if let Some(outcome) = &rows.outcome {
                sink.send(end_for_host(outcome));
            }
            self.space.connect(sink.clone());
            let before = std::mem::replace(&mut rows.host, sink.clone());
            before.send(RunEvent::Failed(self.taken_over()));
        }
        if let Some(locks) = self.locks.get() {
            locks.connect(sink);
        }
        self.credit.notify_waiters();
        Ok(())
    }

    /// Makes `sink` the listener of the output that `request` attaches to, in place of the one before.
    pub(crate) fn attach_output(
        &self,
        request: &Execute,
        sink: &SlotSender,
    ) -> Result<(), DeviceError> {
        let output = request.output;
        if self.outputs == Outputs::One {
            return Err(self.refused("has no outputs for other devices".to_owned()));
        }
        let slots = u64::from(request.slot_count);
        let limits = Limits { slots, bytes: slots * u64::from(request.slot_bytes) };
        let place = usize::try_from(output).unwrap_or(usize::MAX);
        let attached = self.lock().attach(place, (sink.clone(), limits), request.first_slot);
        let before =
            attached.map_err(|detail| self.refused(format!("{detail} (output {output})")))?;
        if let Some(before) = before {
            before.send(RunEvent::Failed(self.taken_over()));
        }
        self.credit.notify_waiters();
        Ok(())
    }

    /// Takes a message about its locks. A run that locks none needs none.
    pub(crate) fn hear(&self, say: LockSay) {
        if let Some(locks) = self.locks.get() {
            locks.hear(say);
        }
    }

    /// The listener of `output` has consumed the slots below `total`. The largest number says that it wants no more; a
    /// host ends the run instead.
    pub(crate) fn consumed(&self, output: u32, total: u64) {
        let is_news = {
            let mut rows = self.lock();
            let Rows { rings, outcome, .. } = &mut *rows;
            let place = usize::try_from(output).unwrap_or(usize::MAX);
            let Some(ring) = rings.get_mut(place) else { return };
            match total {
                u64::MAX if self.outputs == Outputs::One => return,
                u64::MAX => {
                    ring.close();
                    true
                }
                _ => ring.consume(total, outcome.as_ref()),
            }
        };
        if is_news {
            self.credit.notify_waiters();
        }
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
        let rows = self.lock();
        let now = rows.stall_since.as_ref().map_or(Duration::ZERO, Stopwatch::elapsed);
        Ok(Kept { lease, stall: rows.stall + now })
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
        let mut rows = self.lock();
        rows.rings.iter_mut().for_each(Ring::clear);
        rows.memory = None;
    }

    /// Whether its host does not listen to the run. Whoever reads its outputs may come later, or again.
    pub(crate) fn is_detached(&self) -> bool {
        self.lock().host.is_closed()
    }

    /// The run's status.
    pub(crate) fn status(&self) -> RunStatus {
        let accepted = matches!(&*self.accepted.borrow(), Some(Ok(_)));
        let cancelled = *self.cancelled.borrow();
        let rows = self.lock();
        let state = match &rows.outcome {
            Some(Ok(_)) => RunState::Finished,
            Some(Err(error)) if error.cause == DeviceErrorCause::Cancelled => RunState::Cancelled,
            Some(Err(_)) => RunState::Failed,
            None if cancelled => RunState::Cancelled,
            None if !accepted => RunState::Queued,
            None if rows.partitions_waiting > 0 || self.space.is_waited_for() => RunState::Stalled,
            None => RunState::Running,
        };
        RunStatus {
            run: self.header.run,
            state,
            slots: rows.made(),
            consumed: rows.rings.iter().map(Ring::consumed).sum(),
            memory_bytes: self.memory_bytes,
        }
    }

    fn refused(&self, detail: String) -> DeviceError {
        let message = format!("run {} {detail}; begin a new run", self.header.run);
        DeviceError::new(DeviceErrorCause::Refused, message)
    }

    fn taken_over(&self) -> DeviceError {
        let message = format!("run {} was taken over by a repeated execute", self.header.run);
        DeviceError::new(DeviceErrorCause::Cancelled, message)
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    /// Slots that were made.
    fn made(&self) -> u64 {
        self.rings.iter().map(Ring::made).sum()
    }

    /// Replaces the listener of `output`; returns the one before, or why there can be none.
    fn attach(
        &mut self,
        output: usize,
        listener: (SlotSender, Limits),
        first_slot: u64,
    ) -> Result<Option<SlotSender>, String> {
        let Self { rings, outcome, .. } = self;
        let ring = rings.get_mut(output).ok_or_else(|| "has no such output".to_owned())?;
        if ring.is_closed() {
            return Err("has an output of which its listener wanted no more".to_owned());
        }
        match ring.why_not_from(first_slot) {
            Some(detail) => Err(detail),
            None => Ok(ring.attach(listener, first_slot, outcome.as_ref())),
        }
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

/// The end of a run for a host that gets none of its rows.
fn end_for_host(outcome: &Result<RunReport, DeviceError>) -> RunEvent {
    match outcome {
        // A listener compares what came with what was made for it. The bytes are those of all outputs.
        Ok(report) => {
            RunEvent::Finished(Box::new(RunReport { rows: 0, slots: 0, ..report.clone() }))
        }
        Err(error) => RunEvent::Failed(error.clone()),
    }
}

#[cfg(test)]
mod tests;
