//! The interfaces of a link: [`Link`] is the host's end, [`DeviceService`] the device's, and [`RunStream`] the result
//! of a fragment as it arrives.
//!
//! Credits: a device may have `slot_count` slots outstanding beyond those that the host has consumed, and begins none
//! while the outstanding ones have `slot_count` × `slot_bytes` bytes. [`RunStream`] counts the slots it hands out and
//! tells the device through [`RunControl`]; the device keeps slots that were not consumed, so that a repeated execute
//! can send them again.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use cleave_media::clock::Stopwatch;
use cleave_shmem::DeviceLocks;
use cleave_store::PageCache;
use tokio::sync::{mpsc, watch};

use crate::command::message::RunEvent;
use crate::command::slot::{SlotDecoder, batch_bytes};
use crate::command::{
    Command, DeviceError, DeviceErrorCause, Execute, Reply, RunReport, Slot, SlotPayload, SpaceNeed,
};
use crate::filter_history::FilterHistory;
use crate::link::expected_rows::{check_columns, check_rows, with_nulls};
use crate::link::fragment_span;
use crate::link::metered::ByteCounters;
use crate::link::token_bucket::RateCap;
use crate::row_locks::HostedJob;
use crate::trace::OpenSpan;

/// The host's side of one device.
#[async_trait]
pub trait Link: Send + Sync + fmt::Debug {
    /// Sends a command and waits for the answer. May be repeated after [`LinkError::Lost`].
    async fn call(&self, command: Command) -> Result<Reply, LinkError>;

    /// Starts a run, or attaches to it if it exists; returns when the device has accepted it.
    async fn execute(&self, request: Execute) -> Result<RunStream, LinkError>;

    /// As [`Link::execute`], for a run that locks rows: `job` serves its lock requests.
    async fn execute_locking(
        &self,
        request: Execute,
        job: Arc<HostedJob>,
    ) -> Result<RunStream, LinkError>;

    /// The traffic since the link was made.
    fn traffic(&self) -> Traffic;

    /// Which kind of link this is.
    fn mode(&self) -> AttachMode;

    /// The device's name for display: `embedded`, or its address.
    fn device(&self) -> String;
}

/// A device, as the links see it. Implemented by `cleave-device`.
#[async_trait]
pub trait DeviceService: Send + Sync + fmt::Debug {
    /// Serves one command.
    async fn call(&self, command: Command) -> Result<Reply, DeviceError>;

    /// Starts a run whose slots go to `slots`, or attaches `slots` to the run that exists; returns
    /// the schema of its rows once it is admitted. Later failures go to `slots`.
    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError>;

    /// Serves the commands that never wait and have no answer: fetch, and a release that does not wait for the run to
    /// stop. Others are ignored.
    fn steer(&self, command: Command);

    /// The service for another device that has shown this in place of a token: what a [grant] is good for. None: it
    /// is none.
    ///
    /// [grant]: crate::command::Request::Grant
    fn peer(self: Arc<Self>, _shown: &[u8]) -> Option<Arc<dyn DeviceService>> {
        None
    }

    /// Resolves when whoever was let in is to be served no longer: another device whose grant has ended. Hosts are
    /// served as long as they like.
    async fn until_over(&self) {
        std::future::pending().await
    }

    /// Gives the device a cache for its pages, if it lives in the process of a host that has one. Other devices have
    /// none, and are never asked.
    fn use_cache(&self, cache: Arc<dyn PageCache>) {
        drop(cache);
    }

    /// Gives the device the [filter history](crate::filter_history) of the host, if it lives in its process: both
    /// evaluate conditions on the same pages.
    fn use_history(&self, history: Arc<FilterHistory>) {
        drop(history);
    }
}

/// How a device is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMode {
    /// In the host's own process.
    Embedded,
    /// In another process on this machine, through shared memory.
    Local,
    /// Over TCP.
    Remote,
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "embedded",
            Self::Local => "local",
            Self::Remote => "remote",
        })
    }
}

/// The traffic of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes from host to device: on the wire with all framing, or of payloads where there is none.
    pub sent_bytes: u64,
    /// Bytes from device to host, counted alike.
    pub received_bytes: u64,
    /// Commands and executes sent.
    pub commands: u64,
}

impl Traffic {
    /// The traffic since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
            commands: self.commands.saturating_sub(earlier.commands),
        }
    }
}

/// Why a link gave no answer. Each text says what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The device answered with an error: act on its cause.
    #[error("device {device}: {source}")]
    Device {
        /// The device.
        device: String,
        /// Its error.
        source: DeviceError,
    },
    /// The connection broke while this command was under way: repeat it, or give up the statement.
    #[error(
        "lost the connection to device {address}: {detail}; the next statement tries to reconnect"
    )]
    Lost {
        /// Where.
        address: String,
        /// What was observed.
        detail: String,
    },
    /// No connection: start the device, or correct its address.
    #[error(
        "cannot reach device {address}: {source}; is cleaved running there, and its port or socket open to this host?"
    )]
    Connect {
        /// Where.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The peer is not a Cleave device.
    #[error("{address} is not a Cleave device: {detail}")]
    NotADevice {
        /// Where.
        address: String,
        /// What it sent instead.
        detail: String,
    },
    /// The two sides speak different versions: upgrade the older one.
    #[error(
        "device {address} speaks protocol version {theirs}, this host {ours}; upgrade the older side"
    )]
    Version {
        /// Where.
        address: String,
        /// This side's version.
        ours: u32,
        /// The device's.
        theirs: u32,
    },
    /// Another device answers there now than when the link was made: correct the address.
    #[error(
        "another device answers at {address}: expected {}, found {}",
        Hex(*expected), Hex(*found)
    )]
    OtherDevice {
        /// Where.
        address: String,
        /// The device that answered first.
        expected: [u8; 16],
        /// The device that answers now.
        found: [u8; 16],
    },
    /// The token is not the device's.
    #[error("device {address} refused the token; give the one that its --token-file holds")]
    Unauthenticated {
        /// Where.
        address: String,
    },
    /// The device's certificate is not the pinned one.
    #[error(
        "the certificate of device {address} is not trusted: {detail}; pin the one that its \
         --tls-cert names"
    )]
    Certificate {
        /// Where.
        address: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Another user's process listens at the Unix socket.
    #[error(
        "what listens at {address} belongs to user {user}, who is neither this one nor root; start cleaved as \
         the user of this host"
    )]
    ForeignProcess {
        /// Where.
        address: String,
        /// The user's number.
        user: u32,
    },
    /// The TLS handshake failed.
    #[error("no TLS with device {address}: {detail}")]
    Tls {
        /// Where.
        address: String,
        /// What went wrong, and what to try.
        detail: String,
    },
    /// The peer accepts connections and then sends nothing.
    #[error("device {address} did not answer the handshake within {seconds} s")]
    HandshakeTimeout {
        /// Where.
        address: String,
        /// How long it waited.
        seconds: u64,
    },
    /// Received bytes differ from those sent: repeat; if it recurs, suspect the hardware.
    #[error("{what} from device {device} fails its checksum")]
    Corrupt {
        /// The sender.
        device: String,
        /// What was read.
        what: String,
    },
    /// The device broke the protocol: a defect, or an impostor.
    #[error("device {device} broke the protocol: {detail}")]
    Protocol {
        /// The device.
        device: String,
        /// The violation.
        detail: String,
    },
    /// Too much for one command: ask for it in parts.
    #[error("{what} of {bytes} bytes is more than the {bytes_max} that one command may carry")]
    TooLarge {
        /// What was requested.
        what: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// A token or certificate cannot be used.
    #[error(transparent)]
    Credentials(#[from] super::tls::TlsFileError),
}

impl LinkError {
    /// The device's error, if the device failed.
    pub fn device_error(&self) -> Option<&DeviceError> {
        match self {
            Self::Device { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Whether the device could not be reached at all (SQLSTATE 58030 for what needs it), as opposed
    /// to one that answered.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Connect { .. } | Self::HandshakeTimeout { .. })
    }

    /// Whether the device is reachable but will not run this fragment, for a reason that the host does not share.
    pub fn is_refusal(&self) -> bool {
        if matches!(self, Self::TooLarge { .. }) {
            return true;
        }
        self.device_error().is_some_and(|error| {
            matches!(
                error.cause,
                DeviceErrorCause::Refused
                    | DeviceErrorCause::OutOfMemory
                    | DeviceErrorCause::Unsupported
                    | DeviceErrorCause::Peer
            )
        })
    }
}

/// An identity as hexadecimal digits.
struct Hex([u8; 16]);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How slots are to be handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotForm {
    /// As Arrow IPC bytes, batches gathered up to the slot's size and split above it.
    Encoded,
    /// As the batches that the operators made.
    Batches,
}

/// The sender to which a device passes the events of a run. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SlotSender {
    form: SlotForm,
    // Unbounded here, bounded by the credits.
    events: mpsc::UnboundedSender<RunEvent>,
    /// The host's job that serves the run's lock requests.
    job: Option<Arc<HostedJob>>,
    /// The lock table that the run's host shares with this process. It belongs to the connection, and to runs that
    /// lock in it: a run that nobody hears does not keep a dead host's memory.
    table: Option<Weak<DeviceLocks>>,
    /// Where the host learns what the run needs of space: the newest need, and not a queue of them.
    needs: Option<SpaceNeeds>,
}

/// What a run has last said to need of space. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpaceNeeds(Arc<watch::Sender<Option<SpaceNeed>>>);

impl SpaceNeeds {
    /// For a run of `request`, if that may be extended.
    pub(crate) fn of(request: &Execute) -> Option<Self> {
        request.extensible.then(Self::default)
    }

    /// Notes `need`, unless a later one is known.
    fn note(&self, need: SpaceNeed) {
        self.0.send_if_modified(|known| {
            let is_news = known.is_none_or(|known| known < need);
            if is_news {
                *known = Some(need);
            }
            is_news
        });
    }
}

impl SlotSender {
    /// A sender, and the receiver of its events.
    pub fn channel(form: SlotForm) -> (Self, mpsc::UnboundedReceiver<RunEvent>) {
        let (events, receiver) = mpsc::unbounded_channel();
        (Self { form, events, job: None, table: None, needs: None }, receiver)
    }

    /// The same sender, with `job` serving the run's lock requests.
    #[must_use]
    pub fn locking(self, job: Option<Arc<HostedJob>>) -> Self {
        Self { job, ..self }
    }

    /// The same sender, with `needs` taking what the run needs of space.
    #[must_use]
    pub(crate) fn extending(self, needs: Option<SpaceNeeds>) -> Self {
        Self { needs, ..self }
    }

    /// The same sender, for a run whose host shares `table` with this process.
    #[must_use]
    pub fn sharing(self, table: Option<&Arc<DeviceLocks>>) -> Self {
        Self { table: table.map(Arc::downgrade), ..self }
    }

    /// The lock table that the run's host shares with this process.
    pub fn table(&self) -> Option<Arc<DeviceLocks>> {
        self.table.as_ref().and_then(Weak::upgrade)
    }

    /// How slots are to be handed over.
    pub fn form(&self) -> SlotForm {
        self.form
    }

    /// Sends `event`; false if nobody listens any more.
    pub fn send(&self, event: RunEvent) -> bool {
        match (event, &self.job, &self.needs) {
            (RunEvent::Locks(call), Some(job), _) => {
                job.take(call);
                !self.is_closed()
            }
            (RunEvent::Full(need), _, Some(needs)) => {
                needs.note(need);
                !self.is_closed()
            }
            (event, Some(job), _) => {
                if has_stopped(&event) {
                    job.run_has_stopped();
                }
                self.events.send(event).is_ok()
            }
            (event, _, _) => self.events.send(event).is_ok(),
        }
    }

    /// Whether nobody listens any more.
    pub fn is_closed(&self) -> bool {
        self.events.is_closed()
    }
}

/// Whether nothing works for a run any more that reports `event`. A cancelled run may go on for a moment, or for
/// another listener.
fn has_stopped(event: &RunEvent) -> bool {
    match event {
        RunEvent::Finished(_) => true,
        RunEvent::Failed(error) => error.cause != DeviceErrorCause::Cancelled,
        RunEvent::Slot(_) | RunEvent::Locks(_) | RunEvent::Full(_) | RunEvent::Lost(_) => false,
    }
}

/// How a [`RunStream`] controls its run. Neither call waits.
pub trait RunControl: Send + Sync + fmt::Debug {
    /// The host has consumed this many slots in total.
    fn consumed(&self, slots: u64);
    /// The host wants no more of the run: cancel and release it.
    fn end(&self);
}

/// Ends a run whose execute was cancelled before it was answered, as dropping its stream would.
#[derive(Debug)]
pub(crate) struct EndGuard(pub(crate) Option<Arc<dyn RunControl>>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        if let Some(control) = &self.0 {
            control.end();
        }
    }
}

/// The result of a run as it arrives. Dropping it ends the run, unless it only attaches to an output.
#[derive(Debug)]
pub struct RunStream {
    device: String,
    schema: SchemaRef,
    events: mpsc::UnboundedReceiver<RunEvent>,
    control: Arc<dyn RunControl>,
    decoder: SlotDecoder,
    received: Option<(Arc<ByteCounters>, Option<Arc<RateCap>>)>,
    /// A slot that was received and is being paced.
    paced: Option<RunEvent>,
    /// The slot expected next, which is also the count of those consumed.
    next_slot: u64,
    /// Consumed slots that were reported to the device.
    told: u64,
    /// Slots to consume before the next report.
    tell_every: u64,
    /// Bytes of the consumed slots since the last report.
    untold_bytes: u64,
    /// Bytes to consume before the next report: the device may wait for bytes and not for slots.
    tell_bytes: u64,
    report: Option<Box<RunReport>>,
    ended: bool,
    waited: Duration,
    /// Bytes of the slots handed out, and their rows if all of them came over this stream.
    slot_bytes: u64,
    rows: Option<u64>,
    needs: Option<SpaceNeeds>,
    /// The host's span of the run, until that ends.
    span: Option<Box<OpenSpan>>,
}

/// What a link knows about a run when it makes its [`RunStream`].
#[derive(Debug)]
pub(crate) struct AcceptedRun {
    pub(crate) device: String,
    pub(crate) schema: SchemaRef,
    pub(crate) events: mpsc::UnboundedReceiver<RunEvent>,
    pub(crate) control: Arc<dyn RunControl>,
    pub(crate) first_slot: u64,
    pub(crate) slot_count: u32,
    pub(crate) slot_bytes: u32,
    /// Whether it is attached to: how many slots the run may have outstanding is then its own affair.
    pub(crate) is_attached: bool,
    /// Counts and paces batches that cross no wire.
    pub(crate) received: Option<(Arc<ByteCounters>, Option<Arc<RateCap>>)>,
    /// If it may be extended.
    pub(crate) needs: Option<SpaceNeeds>,
}

impl RunStream {
    pub(crate) fn new(run: AcceptedRun) -> Self {
        Self {
            decoder: SlotDecoder::new(&with_nulls(&run.schema)),
            device: run.device,
            schema: run.schema,
            events: run.events,
            control: run.control,
            received: run.received,
            paced: None,
            next_slot: run.first_slot,
            told: run.first_slot,
            tell_every: if run.is_attached { 1 } else { u64::from(run.slot_count / 4).max(1) },
            untold_bytes: 0,
            tell_bytes: (u64::from(run.slot_count) * u64::from(run.slot_bytes) / 4).max(1),
            report: None,
            ended: false,
            waited: Duration::ZERO,
            slot_bytes: 0,
            rows: (run.first_slot == 0).then_some(0),
            needs: run.needs,
            span: None,
        }
    }

    /// Ends `span` with the run.
    pub(super) fn traced_by(&mut self, span: Box<OpenSpan>) {
        self.span = Some(span);
    }

    /// Ends the run's span, with `error` if that is why.
    fn end_span(&mut self, error: Option<&LinkError>) {
        let Some(mut span) = self.span.take() else { return };
        if let Some(report) = &self.report {
            fragment_span::tell(&mut span, report);
        }
        span.set("cleave.fragment.slots", self.next_slot);
        span.set("cleave.fragment.slot_bytes", self.slot_bytes);
        span.set_ms("cleave.fragment.waited_ms", self.waited);
        if let Some(error) = error {
            fragment_span::fail(&mut span, error);
        }
    }

    /// Requires rows of `schema`, the fragment's: types and NULLs that the device reports are not trusted.
    ///
    /// # Errors
    /// [`LinkError::Protocol`] if the device has accepted the run with other columns.
    pub fn expect_rows(&mut self, schema: SchemaRef) -> Result<(), LinkError> {
        check_columns(&schema, &self.schema).map_err(|detail| self.broken(detail))?;
        self.decoder = SlotDecoder::new(&with_nulls(&schema));
        self.schema = schema;
        Ok(())
    }

    /// Schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next rows; `None` after the last, and then [`RunStream::report`] is there.
    ///
    /// After an error the stream is at its end. After [`LinkError::Lost`] the same execute with `first_slot` set to
    /// [`RunStream::next_slot`] continues where this one stopped. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, LinkError> {
        if self.ended {
            return Ok(None);
        }
        let waiting = Stopwatch::start();
        let event = self.receive().await;
        self.waited += waiting.elapsed();
        let outcome = match event {
            Some(RunEvent::Slot(slot)) => self.take(slot).map(Some),
            Some(RunEvent::Finished(report)) => self.finish(report).map(|()| None),
            Some(RunEvent::Failed(source)) => {
                Err(LinkError::Device { device: self.device.clone(), source })
            }
            Some(RunEvent::Lost(error)) => Err(error),
            Some(RunEvent::Locks(_)) => Err(LinkError::Protocol {
                device: self.device.clone(),
                detail: "a run asked for locks that takes none".to_owned(),
            }),
            Some(RunEvent::Full(_)) => Err(LinkError::Protocol {
                device: self.device.clone(),
                detail: "a run asked for more space that gets none".to_owned(),
            }),
            None => Err(LinkError::Lost {
                address: self.device.clone(),
                detail: "the run was taken over by a repeated execute, or the device was closed"
                    .into(),
            }),
        };
        self.ended = !matches!(outcome, Ok(Some(_)));
        if self.ended {
            self.end_span(outcome.as_ref().err());
        }
        outcome
    }

    /// How the run went; there once [`RunStream::next`] has returned `None`.
    pub fn report(&self) -> Option<&RunReport> {
        self.report.as_deref()
    }

    /// What the run needs of space, as it says that: the newest need. Whoever extends the run by [`Request::Extend`]
    /// watches it; None: the run was begun with `extensible` unset.
    ///
    /// [`Request::Extend`]: crate::command::Request::Extend
    pub fn space_needs(&self) -> Option<watch::Receiver<Option<SpaceNeed>>> {
        self.needs.as_ref().map(|needs| needs.0.subscribe())
    }

    /// Time that the host has waited for slots.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Bytes of the slots that were handed out, as they crossed.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// The number of the slot that comes next.
    pub fn next_slot(&self) -> u64 {
        self.next_slot
    }

    async fn receive(&mut self) -> Option<RunEvent> {
        if self.paced.is_none() {
            let event = self.events.recv().await?;
            let batch_bytes = match &event {
                RunEvent::Slot(Slot { payload: SlotPayload::Batch(batch), .. }) => {
                    batch_bytes(batch)
                }
                _ => 0,
            };
            self.paced = Some(event);
            if let Some((counters, cap)) = &self.received {
                counters.received.fetch_add(batch_bytes, Ordering::Relaxed);
                if let Some(cap) = cap {
                    cap.receive(batch_bytes).await;
                }
            }
        }
        self.paced.take()
    }

    fn take(&mut self, slot: Slot) -> Result<RecordBatch, LinkError> {
        if slot.number != self.next_slot {
            let detail = format!("slot {} came where {} was due", slot.number, self.next_slot);
            return Err(self.broken(detail));
        }
        let (batch, bytes) = match slot.payload {
            SlotPayload::Batch(batch) => {
                let bytes = batch_bytes(&batch);
                (batch, bytes)
            }
            SlotPayload::Encoded(payload) => {
                let bytes = payload.bytes.len() as u64;
                if !payload.is_intact() {
                    let what = format!("slot {}", slot.number);
                    return Err(LinkError::Corrupt { device: self.device.clone(), what });
                }
                let batch = self.decoder.decode(payload.bytes).map_err(|error| {
                    self.broken(format!("slot {} is no Arrow batch: {error}", slot.number))
                })?;
                (batch, bytes)
            }
        };
        if batch.num_rows() as u64 != slot.row_count {
            let (said, found) = (slot.row_count, batch.num_rows());
            let detail = format!("slot {} has {found} rows, and says {said}", slot.number);
            return Err(self.broken(detail));
        }
        let batch = check_rows(&self.schema, &batch)
            .map_err(|detail| self.broken(format!("slot {}: {detail}", slot.number)))?;
        self.next_slot += 1;
        self.rows = self.rows.map(|rows| rows.saturating_add(slot.row_count));
        self.slot_bytes = self.slot_bytes.saturating_add(bytes);
        self.untold_bytes = self.untold_bytes.saturating_add(bytes);
        if self.next_slot - self.told >= self.tell_every || self.untold_bytes >= self.tell_bytes {
            self.control.consumed(self.next_slot);
            self.told = self.next_slot;
            self.untold_bytes = 0;
        }
        Ok(batch)
    }

    fn finish(&mut self, report: Box<RunReport>) -> Result<(), LinkError> {
        if report.slots != self.next_slot {
            let came = self.next_slot;
            return Err(
                self.broken(format!("it made {} slots, of which {came} came", report.slots))
            );
        }
        if let Some(came) = self.rows.filter(|rows| *rows != report.rows) {
            return Err(self.broken(format!("it made {} rows, of which {came} came", report.rows)));
        }
        self.report = Some(report);
        Ok(())
    }

    /// The error of a device that broke the protocol.
    fn broken(&self, detail: String) -> LinkError {
        LinkError::Protocol { device: self.device.clone(), detail }
    }
}

impl Drop for RunStream {
    fn drop(&mut self) {
        if let Some(span) = &mut self.span {
            span.set(fragment_span::GIVEN_UP, true);
        }
        self.end_span(None);
        self.control.end();
    }
}
