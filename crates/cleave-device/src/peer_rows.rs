//! The rows that a run takes from runs of other devices, or of its own: pulled over links, for all partitions together.
//!
//! ```text
//!   run 4 on device b ─ output 0 ─▶ Reader ─┐
//!   run 5 on device c ─ output 0 ─▶ Reader ─┴▶ PeerSource ─▶ PeerRowsExec, partition 0 or 1 or …
//! ```
//!
//! 1. [`PeerSources::new`] finds the links, and reserves memory for the slots that may be under way.
//! 2. When a partition first asks for rows of an input, its [`PeerSource`] attaches to all outputs of that input, and
//!    takes from all at once what comes. Whichever partition asks gets the next batch.
//! 3. A [`Reader`] whose connection is lost attaches again, and goes on with the slot after the last that it got.
//! 4. When the run is over, [`PeerSources::end`] tells the devices whose rows were not all taken that no more are
//!    wanted: others may wait for the same runs.
//!
//! Invariants: rows are those of the columns that the fragment names, checked like a host checks them, and come
//! complete, or the run fails with [`DeviceErrorCause::Peer`] and names the device. The outputs of one run feed one
//! input: those of another input are read later, and the run would wait for that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, Execute, Request,
};
use cleave_fragment::link::{Link, LinkError, RunStream};
use cleave_fragment::waiting::{sleep, timeout};
use cleave_fragment::{PeerRowInputs, PeerRowSource};
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::future::{BoxFuture, join_all};
use futures::stream::{BoxStream, SelectAll, select_all, try_unfold};
use futures::{FutureExt, StreamExt};

use crate::device_error::of_engine;
use crate::peers::{in_words, peer_error};

/// How long a reader waits before each attempt to attach again: a connection that does not come back soon is lost.
const WAITS_MS: [u64; 6] = [0, 50, 100, 200, 400, 800];
/// How long the end of a run waits until other devices know that it wants no more rows.
const END_LIMIT: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct PeerSources {
    by_input: BTreeMap<u32, Arc<PeerSource>>,
    /// For slots that are under way.
    _memory: MemoryReservation,
}

impl PeerSources {
    /// What `request` takes from runs, over the links that `link_to` knows. `own` is the device that it runs on.
    ///
    /// # Errors
    /// [`DeviceErrorCause::Refused`] for an input or an output that is named twice, a run that feeds two inputs, and a
    /// run that would feed itself; [`DeviceErrorCause::OutOfMemory`]; those of `link_to`.
    pub(crate) fn new(
        request: &Execute,
        own: [u8; 16],
        memory: &Arc<dyn MemoryPool>,
        link_to: impl Fn([u8; 16]) -> Result<Arc<dyn Link>, DeviceError>,
    ) -> Result<Self, DeviceError> {
        let memory = MemoryConsumer::new("rows of other devices").register(memory);
        let mut by_input = BTreeMap::new();
        let mut fed = BTreeMap::new();
        let mut named = BTreeSet::new();
        for rows in &request.peer_rows {
            let input = rows.input;
            let streams = u32::try_from(rows.streams.len()).unwrap_or(u32::MAX);
            let slots = ((request.slot_count / streams.max(1)).max(1), request.slot_bytes);
            let bytes = slots.0 as usize * slots.1 as usize;
            let mut producers = Vec::with_capacity(rows.streams.len());
            for stream in &rows.streams {
                let (device, run, output) = (stream.device, stream.run, stream.output);
                if device == own && run == request.header.run {
                    return Err(refused(format!("run {run} would wait for rows of its own")));
                }
                if *fed.entry((device, run)).or_insert(input) != input {
                    return Err(refused(format!("rows of run {run} go to two inputs")));
                }
                if !named.insert((device, run, output)) {
                    return Err(refused(format!("output {output} of run {run} is taken twice")));
                }
                memory.try_grow(bytes).map_err(of_engine)?;
                let header = CommandHeader { run, ..request.header };
                let attach = Execute::attaching(header, output, slots);
                let (link, is_own) = (link_to(device)?, device == own);
                let taken = [const { AtomicU64::new(0) }; 2];
                producers.push(Arc::new(Producer { device, is_own, link, attach, taken }));
            }
            if by_input.insert(input, Arc::new(PeerSource::new(producers))).is_some() {
                return Err(refused(format!("rows of input {input} are named twice")));
            }
        }
        Ok(Self { by_input, _memory: memory })
    }

    /// The rows by input, for the fragment.
    pub(crate) fn inputs(&self) -> PeerRowInputs {
        let source = |source: &Arc<PeerSource>| Arc::clone(source) as Arc<dyn PeerRowSource>;
        self.by_input.iter().map(|(input, own)| (*input, source(own))).collect()
    }

    /// Slots that were taken of runs of other devices so far, and their bytes.
    pub(crate) fn taken(&self) -> (u64, u64) {
        let producers = self.by_input.values().flat_map(|source| &source.producers);
        let others = producers.filter(|producer| !producer.is_own);
        others.fold((0, 0), |(slots, bytes), producer| {
            let [own_slots, own_bytes] = &producer.taken;
            let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
            (slots + of(own_slots), bytes + of(own_bytes))
        })
    }

    /// Ends all readers, and tells the devices whose rows were not all taken that no more are wanted. One that cannot
    /// be told is lost, which its host finds out.
    pub(crate) async fn end(&self) {
        let unread = self.by_input.values().flat_map(|source| source.end());
        let told = unread.map(|producer| async move {
            let fetch = Request::Fetch { consumed: u64::MAX, output: producer.attach.output };
            let command = Command::new(producer.attach.header, fetch);
            drop(timeout(END_LIMIT, producer.link.call(command)).await);
        });
        join_all(told).await;
    }
}

/// The rows of one input.
struct PeerSource {
    producers: Vec<Arc<Producer>>,
    rows: Mutex<Rows>,
    waiting: Arc<WaitingPartitions>,
}

enum Rows {
    /// Nobody has asked yet.
    Unasked,
    Coming(SelectAll<BoxStream<'static, Result<RecordBatch, DeviceError>>>),
    /// All were taken.
    Taken,
    /// There will be no more, though not all were taken: nobody wants them.
    Ended,
    /// There will be no more, and no partition may take what came for all there is.
    Failed(DeviceError),
}

impl PeerSource {
    fn new(producers: Vec<Arc<Producer>>) -> Self {
        Self { producers, rows: Mutex::new(Rows::Unasked), waiting: Arc::default() }
    }

    fn poll_next(
        &self,
        schema: &SchemaRef,
        context: &Context<'_>,
    ) -> Poll<Result<Option<RecordBatch>, DeviceError>> {
        let mut rows = self.lock();
        if matches!(*rows, Rows::Unasked) {
            let readers = self.producers.iter().map(|own| own.rows(Arc::clone(schema)));
            *rows = Rows::Coming(select_all(readers));
        }
        let coming = match &mut *rows {
            Rows::Coming(coming) => coming,
            Rows::Failed(error) => return Poll::Ready(Err(error.clone())),
            Rows::Unasked | Rows::Taken | Rows::Ended => return Poll::Ready(Ok(None)),
        };
        // Before it is asked, so that no wake-up is missed. All that wait are woken: the one that has asked last may
        // want no more by then.
        self.waiting.add(context.waker());
        let waker = Waker::from(Arc::clone(&self.waiting));
        let Poll::Ready(next) = coming.poll_next_unpin(&mut Context::from_waker(&waker)) else {
            return Poll::Pending;
        };
        let over = match &next {
            Some(Ok(_)) => None,
            Some(Err(error)) => Some(std::mem::replace(&mut *rows, Rows::Failed(error.clone()))),
            None => Some(std::mem::replace(&mut *rows, Rows::Taken)),
        };
        drop(rows);
        drop(over);
        // More may have come than these.
        self.waiting.wake_all();
        Poll::Ready(next.transpose())
    }

    /// Ends the readers; returns the producers whose rows were not all taken.
    fn end(&self) -> &[Arc<Producer>] {
        let before = {
            let mut rows = self.lock();
            match &*rows {
                Rows::Taken => return &[],
                _ => std::mem::replace(&mut *rows, Rows::Ended),
            }
        };
        drop(before);
        &self.producers
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerRowSource for PeerSource {
    fn next<'a>(&'a self, schema: &'a SchemaRef) -> BoxFuture<'a, Result<Option<RecordBatch>>> {
        let next = poll_fn(move |context| self.poll_next(schema, context));
        next.map(|next| next.map_err(|error| DataFusionError::External(Box::new(error)))).boxed()
    }
}

impl fmt::Debug for PeerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSource").field("producers", &self.producers).finish_non_exhaustive()
    }
}

/// Partitions that wait for rows.
#[derive(Debug, Default)]
struct WaitingPartitions(Mutex<Vec<Waker>>);

impl WaitingPartitions {
    fn add(&self, waker: &Waker) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|known| known.will_wake(waker)) {
            all.push(waker.clone());
        }
    }

    fn wake_all(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        all.into_iter().for_each(Waker::wake);
    }
}

impl Wake for WaitingPartitions {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

/// A run whose rows are taken.
#[derive(Debug)]
struct Producer {
    device: [u8; 16],
    /// It is the device of the run that takes the rows.
    is_own: bool,
    link: Arc<dyn Link>,
    /// Attaches to its output, from the first slot on.
    attach: Execute,
    /// Slots that were taken, and their bytes.
    taken: [AtomicU64; 2],
}

impl Producer {
    /// Its rows, whose columns must be those of `schema`.
    fn rows(
        self: &Arc<Self>,
        schema: SchemaRef,
    ) -> BoxStream<'static, Result<RecordBatch, DeviceError>> {
        let producer = Arc::clone(self);
        let reader = Reader { producer, schema, stream: None, is_attached: false };
        try_unfold(reader, |mut reader| async move {
            Ok(reader.next().await?.map(|batch| (batch, reader)))
        })
        .boxed()
    }

    fn note_slot(&self, byte_count: u64) {
        let [slots, bytes] = &self.taken;
        slots.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(byte_count, Ordering::Relaxed);
    }

    fn failed(&self, error: &LinkError) -> DeviceError {
        let own = error.device_error();
        // The statement's fault, wherever it happens.
        let is_of_rows = |error: &&DeviceError| {
            matches!(
                error.cause,
                DeviceErrorCause::DivideByZero
                    | DeviceErrorCause::Overflow
                    | DeviceErrorCause::InvalidValue
            )
        };
        if let Some(error) = own.filter(is_of_rows) {
            return error.clone();
        }
        let run = self.attach.header.run;
        let why = in_words(error);
        peer_error(self.device, &format!("rows of its run {run} did not come: {why}"))
    }
}

/// Takes the rows of one run.
struct Reader {
    producer: Arc<Producer>,
    schema: SchemaRef,
    /// The last one that was attached, which knows the slot that comes next.
    stream: Option<RunStream>,
    is_attached: bool,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<RecordBatch>, DeviceError> {
        let mut waits = WAITS_MS.into_iter().map(Duration::from_millis);
        loop {
            let next = match self.stream.as_mut().filter(|_| self.is_attached) {
                Some(stream) => {
                    let before = stream.slot_bytes();
                    let next = stream.next().await;
                    if let Ok(Some(_)) = &next {
                        self.producer.note_slot(stream.slot_bytes().saturating_sub(before));
                    }
                    next.map(Some)
                }
                None => self.attach().await.map(|()| None),
            };
            let error = match next {
                Ok(Some(batch)) => return Ok(batch),
                Ok(None) => continue,
                Err(error) => error,
            };
            self.is_attached = false;
            match waits.next().filter(|_| error.is_unreachable()) {
                Some(wait) => sleep(wait).await,
                None => return Err(self.producer.failed(&error)),
            }
        }
    }

    async fn attach(&mut self) -> Result<(), LinkError> {
        let first_slot = self.stream.as_ref().map_or(0, RunStream::next_slot);
        let request = Execute { first_slot, ..self.producer.attach.clone() };
        let mut stream = self.producer.link.execute(request).await?;
        stream.expect_rows(Arc::clone(&self.schema))?;
        self.stream = Some(stream);
        self.is_attached = true;
        Ok(())
    }
}

fn refused(message: String) -> DeviceError {
    DeviceError::new(DeviceErrorCause::Refused, message)
}

#[cfg(test)]
mod tests;
