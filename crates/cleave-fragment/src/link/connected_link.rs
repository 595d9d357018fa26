//! A link over a connection of any kind: sends commands and runs, receives answers and slots.
//!
//! All commands and runs of a link share one connection, told apart by their request numbers. The connection's tasks
//! run on a thread of their own, because on the host's workers a link starves; those from a device to others share one
//! ([`ConnectedLink::to_peer`]). A connection that breaks fails everything under way with [`LinkError::Lost`]; the next
//! use opens a new one, and releases the runs that were abandoned with the old.
//!
//! Invariant: every connection begins by identifying the device, and nothing else is sent before the answer. Another
//! device than before is [`LinkError::OtherDevice`]; a device of another build gets no fragments over that connection
//! (rule 2).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use super::attempts::{Attempt, Attempts};
use super::connection::{Connection, Credit};
use super::dial::Dial;
use super::fragment_span;
use super::handed_table::hear_host;
use super::link::{
    AcceptedRun, AttachMode, EndGuard, Link, LinkError, RunControl, RunStream, SlotForm,
    SlotSender, SpaceNeeds, Traffic,
};
use crate::command::message::TRANSFER_BYTES_MAX;
use crate::command::proto::{encode_command, encode_execute};
use crate::command::wire::{FRAME_BYTES_MAX, Frame, WireError};
use crate::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, Execute, Identity, ReadItem, Reply,
    Request,
};
use crate::ending::end_in_background;
use crate::row_locks::HostedJob;

/// Runs whose streams ended while their device could not be told, or may not have heard it. Successive links to one
/// device share a list of them: the next connection releases the runs on it. Releasing a run that is gone succeeds.
/// Beside them it counts the connections that broke, and the attempts to connect that failed.
#[derive(Debug, Clone, Default)]
pub struct AbandonedRuns(Arc<Mutex<RunList>>);

#[derive(Debug, Default)]
struct RunList {
    waiting: Vec<CommandHeader>,
    /// The last runs that the present connection was told to release: it may break before it has sent that.
    told: VecDeque<CommandHeader>,
    /// Connections that broke, as far as it was noticed.
    broken: u64,
    /// Attempts to connect that failed, or that nobody waited for.
    failed: u64,
}

/// More than the runs a device keeps.
const TOLD_COUNT_MAX: usize = 1024;

impl AbandonedRuns {
    fn add(&self, run: CommandHeader) {
        self.lock().waiting.push(run);
    }

    /// The present connection was told to release `run`.
    fn tell(&self, run: CommandHeader) {
        let mut list = self.lock();
        if list.told.len() == TOLD_COUNT_MAX {
            list.told.pop_front();
        }
        list.told.push_back(run);
    }

    /// Another connection replaces the one that was told to release runs.
    fn tell_again(&self) {
        let mut list = self.lock();
        let told = std::mem::take(&mut list.told);
        list.waiting.extend(told);
    }

    /// Takes `run` off the list, because it continues. Returns whether it was there, not yet sent.
    fn resume(&self, run: &CommandHeader) -> bool {
        let mut list = self.lock();
        list.told.retain(|told| told.run_key() != run.run_key());
        let count = list.waiting.len();
        list.waiting.retain(|abandoned| abandoned.run_key() != run.run_key());
        list.waiting.len() < count
    }

    /// How many connections of the links that share it broke, as far as one of them has noticed.
    pub fn broken_count(&self) -> u64 {
        self.lock().broken
    }

    /// How many attempts of the links that share it to connect failed, or were given up.
    pub fn failed_count(&self) -> u64 {
        self.lock().failed
    }

    /// A link has done with `connection`, which was its present one: either it is replaced, or the link ends.
    fn done_with(&self, connection: &Connection, why: &str) {
        // One that its link gives up is alive until here.
        self.lock().broken += u64::from(connection.is_dead());
        connection.fail(why);
    }

    fn take(&self) -> Vec<CommandHeader> {
        std::mem::take(&mut self.lock().waiting)
    }

    fn lock(&self) -> MutexGuard<'_, RunList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A link over a connection; `local` and `remote` make one.
#[derive(Debug)]
pub struct ConnectedLink {
    shared: Arc<Shared>,
    /// Where the connection's tasks run.
    threads: Handle,
    /// The link's own thread, if it has one; taken when the link is dropped.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Shared {
    dial: Dial,
    commands: AtomicU64,
    attempts: Attempts,
    /// Held while a connection is opened, so that only one is.
    opening: tokio::sync::Mutex<()>,
    state: Mutex<LinkInner>,
    abandoned: AbandonedRuns,
}

#[derive(Debug, Default)]
struct LinkInner {
    connection: Option<Arc<Connection>>,
    /// The device that answered on it.
    identity: Option<Identity>,
}

impl ConnectedLink {
    /// A link that connects on first use. `abandoned` is the list of runs that earlier links to the same device
    /// abandoned.
    pub(super) fn new(dial: Dial, abandoned: AbandonedRuns) -> Result<Self, LinkError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("cleave-link")
            .enable_all()
            .build()
            .map_err(|source| LinkError::Connect { address: dial.address(), source })?;
        if let Some(table) = dial.table()
            && let Ok(bell) = hear_host(table)
        {
            let _detached = runtime.spawn(bell);
        }
        let mut link = Self::on(dial, abandoned, runtime.handle().clone());
        link.runtime = Some(runtime);
        Ok(link)
    }

    /// The same, with the connection's tasks on `threads`.
    pub(super) fn on(dial: Dial, abandoned: AbandonedRuns, threads: Handle) -> Self {
        let shared = Arc::new(Shared {
            dial,
            commands: AtomicU64::new(0),
            attempts: Attempts::default(),
            opening: tokio::sync::Mutex::new(()),
            state: Mutex::default(),
            abandoned,
        });
        Self { shared, threads, runtime: None }
    }

    /// The link, after it has connected and released the runs that earlier links abandoned.
    ///
    /// # Errors
    /// The reason why the device does not answer.
    pub async fn connected(self: Arc<Self>) -> Result<Arc<Self>, LinkError> {
        self.connection().await?;
        Ok(self)
    }

    async fn connection(&self) -> Result<Arc<Connection>, LinkError> {
        let connection = self.alive_or_new().await?;
        self.shared.release_abandoned(&connection);
        Ok(connection)
    }

    async fn alive_or_new(&self) -> Result<Arc<Connection>, LinkError> {
        if let Some(connection) = self.shared.alive() {
            return Ok(connection);
        }
        let _opening = self.shared.opening.lock().await;
        if let Some(connection) = self.shared.alive() {
            return Ok(connection);
        }
        let closed =
            || LinkError::Lost { address: self.device(), detail: "the link was closed".to_owned() };
        // On the runtime where its sockets belong. It continues if the caller is cancelled.
        let opening = self.threads.spawn(open_connection(Arc::clone(&self.shared)));
        opening.await.map_err(|_| closed())?
    }

    fn check_size(&self, frame: &Frame, what: &str) -> Result<(), LinkError> {
        match frame.length() {
            Ok(_) => Ok(()),
            Err(WireError::TooLong { length }) => Err(LinkError::TooLarge {
                what: what.to_owned(),
                bytes: length,
                bytes_max: u64::from(FRAME_BYTES_MAX),
            }),
            Err(WireError::HeadTooLong { length, bytes_max }) => Err(LinkError::TooLarge {
                what: what.to_owned(),
                bytes: length,
                bytes_max: u64::from(bytes_max),
            }),
            Err(error) => {
                Err(LinkError::Protocol { device: self.device(), detail: error.to_string() })
            }
        }
    }
}

impl Shared {
    fn alive(&self) -> Option<Arc<Connection>> {
        self.lock().connection.as_ref().filter(|connection| !connection.is_dead()).map(Arc::clone)
    }

    /// Makes `connection`, on which `identity` answered, the current one, unless that is another device
    /// than before.
    fn adopt(&self, connection: &Arc<Connection>, identity: Identity) -> Result<(), LinkError> {
        let before = {
            let mut state = self.lock();
            if let Some(known) = state.identity.as_ref().map(|known| known.device)
                && known != identity.device
            {
                let address = self.dial.address();
                let found = identity.device;
                return Err(LinkError::OtherDevice { address, expected: known, found });
            }
            state.identity = Some(identity);
            self.abandoned.tell_again();
            state.connection.replace(Arc::clone(connection))
        };
        if let Some(before) = before {
            self.abandoned.done_with(&before, "another connection took its place");
        }
        Ok(())
    }

    /// Tells the device to release runs that nobody wants any more.
    fn release_abandoned(&self, connection: &Connection) {
        for run in self.abandoned.take() {
            self.release(connection, run);
        }
    }

    /// Tells the device to release `run`, now or over the next connection.
    fn release(&self, connection: &Connection, run: CommandHeader) {
        if connection.post(encode_command(0, Command::new(run, Request::Release))) {
            self.abandoned.tell(run);
        } else {
            self.abandoned.add(run);
        }
    }

    /// Why the device gets no fragments, if its build is not this one.
    fn refusal_of_fragments(&self) -> Option<LinkError> {
        let state = self.lock();
        let (ours, theirs) = (crate::build_id(), &state.identity.as_ref()?.build);
        if *theirs == ours {
            return None;
        }
        let message = format!("it is another build ({theirs}) than this host ({ours})");
        let source = DeviceError::new(DeviceErrorCause::Unsupported, message);
        Some(LinkError::Device { device: self.dial.address(), source })
    }

    fn lock(&self) -> MutexGuard<'_, LinkInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    /// A connection may have been opened after its link was dropped.
    fn drop(&mut self) {
        let connection = self.lock().connection.take();
        if let Some(connection) = connection {
            self.abandoned.done_with(&connection, "the link was closed");
        }
    }
}

#[async_trait]
impl Link for ConnectedLink {
    async fn call(&self, command: Command) -> Result<Reply, LinkError> {
        check_transfer(&command.request)?;
        let frame = encode_command(self.shared.attempts.next_number(), command);
        self.check_size(&frame, "a command")?;
        let connection = self.connection().await?;
        self.shared.commands.fetch_add(1, Ordering::Relaxed);
        connection.call(frame).await
    }

    async fn execute(&self, request: Execute) -> Result<RunStream, LinkError> {
        self.begin(request, None).await
    }

    async fn execute_locking(
        &self,
        request: Execute,
        job: Arc<HostedJob>,
    ) -> Result<RunStream, LinkError> {
        self.begin(request, Some(job)).await
    }

    fn traffic(&self) -> Traffic {
        self.shared.dial.bytes.traffic(&self.shared.commands)
    }

    fn mode(&self) -> AttachMode {
        self.shared.dial.mode()
    }

    fn device(&self) -> String {
        self.shared.dial.address()
    }
}

impl ConnectedLink {
    async fn begin(
        &self,
        mut request: Execute,
        job: Option<Arc<HostedJob>>,
    ) -> Result<RunStream, LinkError> {
        let span = fragment_span::begin(&mut request, || self.device());
        fragment_span::begun(span, self.begin_run(request, job).await)
    }

    async fn begin_run(
        &self,
        mut request: Execute,
        job: Option<Arc<HostedJob>>,
    ) -> Result<RunStream, LinkError> {
        let (header, first_slot) = (request.header, request.first_slot);
        let output = request.attached_output();
        let (slot_count, slot_bytes) = (request.slot_count, request.slot_bytes);
        let needs = SpaceNeeds::of(&request);
        // Before a connection exists that would release it; back on the list if none is made.
        let resuming = output.is_none().then(|| Resuming::new(&self.shared.abandoned, header));
        let connection = self.connection().await?;
        let locks = job.as_ref().map(|job| job.run_locks(connection.has_table())).transpose();
        request.locks = locks.map_err(|error| LinkError::Device {
            device: self.device(),
            source: DeviceError::new(DeviceErrorCause::Refused, error.to_string()),
        })?;
        let mut frame = encode_execute(0, request);
        self.check_size(&frame, "a fragment with its morsels")?;
        if let Some(refusal) = self.shared.refusal_of_fragments() {
            return Err(refusal);
        }
        if let Some(resuming) = resuming {
            resuming.goes_on();
        }
        let attempt = self.shared.attempts.begin(&header, output);
        frame.request = attempt.number;
        self.shared.commands.fetch_add(1, Ordering::Relaxed);
        if let Some(job) = &job {
            self.connect_job(job, &connection, header);
        }
        let (slots, events) = SlotSender::channel(SlotForm::Encoded);
        let starting = job.as_deref().map(HostedJob::starts);
        let slots = slots.locking(job.clone()).extending(needs.clone());
        let control = Arc::new(ConnectionControl {
            shared: Arc::clone(&self.shared),
            connection: Arc::clone(&connection),
            header,
            attempt,
            slot_count,
        });
        // A caller that is cancelled before the run is accepted ends it, as dropping the stream does.
        let mut end_guard = EndGuard(Some(Arc::clone(&control) as Arc<dyn RunControl>));
        let ring_bytes = u64::from(slot_count) * u64::from(slot_bytes);
        let credit = Credit::new(first_slot, u64::from(slot_count), ring_bytes);
        let accepted = connection.execute(frame, slots, credit).await;
        if let Err(LinkError::Device { .. }) = &accepted {
            // Refused: there is nothing of this attempt to end.
            end_guard.0 = None;
            if let Some(starting) = starting {
                starting.was_refused();
            }
            if self.shared.attempts.withdraw(&header, attempt) && output.is_none() {
                self.shared.release(&connection, header);
            }
        }
        let schema = accepted?;
        end_guard.0 = None;
        Ok(RunStream::new(AcceptedRun {
            device: self.device(),
            schema,
            events,
            control,
            first_slot,
            slot_count,
            slot_bytes,
            is_attached: output.is_some(),
            received: None,
            needs,
        }))
    }

    /// Connects `job` to the run of `header` over `connection`.
    fn connect_job(
        &self,
        job: &Arc<HostedJob>,
        connection: &Arc<Connection>,
        header: CommandHeader,
    ) {
        let weak = Arc::downgrade(connection);
        let pump = job.connect(Arc::new(move |say| {
            if let Some(connection) = weak.upgrade() {
                let command = Command::new(header, Request::Locks(say));
                connection.post_within(encode_command(0, command));
            }
        }));
        let _detached = self.threads.spawn(pump);
    }
}

impl Drop for ConnectedLink {
    fn drop(&mut self) {
        let connection = self.shared.lock().connection.take();
        if let Some(connection) = connection {
            self.shared.abandoned.done_with(&connection, "the link was closed");
        }
        if let Some(runtime) = self.runtime.take() {
            end_in_background(runtime);
        }
    }
}

/// A run that was taken off the list and has not resumed yet.
struct Resuming<'a> {
    abandoned: &'a AbandonedRuns,
    run: Option<CommandHeader>,
}

impl<'a> Resuming<'a> {
    fn new(abandoned: &'a AbandonedRuns, run: CommandHeader) -> Self {
        let run = abandoned.resume(&run).then_some(run);
        Self { abandoned, run }
    }

    /// From here on the holder of its attempt ends it.
    fn goes_on(mut self) {
        self.run = None;
    }
}

impl Drop for Resuming<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.run {
            self.abandoned.add(run);
        }
    }
}

/// Opens a connection, identifies the device, and makes the connection the current one.
async fn open_connection(shared: Arc<Shared>) -> Result<Arc<Connection>, LinkError> {
    let mut dialling = Dialling { counted_by: &shared.abandoned, has_connected: false };
    let connection = shared.dial.open().await?;
    let adopted = match identify(&shared, &connection).await {
        Ok(identity) => shared.adopt(&connection, identity),
        Err(error) => Err(error),
    };
    match adopted {
        Ok(()) => {
            dialling.has_connected = true;
            Ok(connection)
        }
        Err(error) => {
            connection.fail("it was not let in");
            Err(error)
        }
    }
}

/// An attempt to connect. It has failed unless it says otherwise, also where its link was dropped meanwhile.
struct Dialling<'a> {
    counted_by: &'a AbandonedRuns,
    has_connected: bool,
}

impl Drop for Dialling<'_> {
    fn drop(&mut self) {
        if !self.has_connected {
            self.counted_by.lock().failed += 1;
        }
    }
}

/// Asks without naming a database, which changes nothing on the device.
async fn identify(shared: &Shared, connection: &Connection) -> Result<Identity, LinkError> {
    let command = Command::new(CommandHeader::default(), Request::Identify);
    let frame = encode_command(shared.attempts.next_number(), command);
    let (address, limit) = (shared.dial.address(), shared.dial.handshake_limit);
    match timeout(limit, connection.call(frame)).await {
        Ok(Ok(Reply::Identity(identity))) => Ok(identity),
        Ok(Ok(_)) => Err(LinkError::Protocol {
            device: address,
            detail: "it was asked who it is and answered something else".to_owned(),
        }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(LinkError::HandshakeTimeout { address, seconds: limit.as_secs() }),
    }
}

/// Refuses, before it crosses the link, a request that the device would refuse.
fn check_transfer(request: &Request) -> Result<(), LinkError> {
    let (what, bytes) = match request {
        Request::Write(items) => {
            ("a write", items.iter().map(|item| item.payload.bytes.len() as u64).sum::<u64>())
        }
        Request::Read(items) => {
            let blocks = items.iter().map(|item| match item {
                ReadItem::Blocks(extent) => extent.bytes() as u64,
                // The page may be larger than the parts read; the device checks.
                ReadItem::Columns { .. } => 0,
            });
            ("a read", blocks.fold(0, u64::saturating_add))
        }
        _ => return Ok(()),
    };
    if bytes > TRANSFER_BYTES_MAX {
        let what = what.to_owned();
        return Err(LinkError::TooLarge { what, bytes, bytes_max: TRANSFER_BYTES_MAX });
    }
    Ok(())
}

#[derive(Debug)]
struct ConnectionControl {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    header: CommandHeader,
    attempt: Attempt,
    slot_count: u32,
}

impl RunControl for ConnectionControl {
    fn consumed(&self, slots: u64) {
        // Reads of a replaced stream grant no credit to its successor.
        if !self.shared.attempts.speaks(&self.header, self.attempt) {
            return;
        }
        self.connection.grant(self.attempt.number, slots, u64::from(self.slot_count));
        let output = self.attempt.output.unwrap_or_default();
        let fetch = Request::Fetch { consumed: slots, output };
        let command = Command::new(self.header, fetch);
        self.connection.post(encode_command(0, command));
    }

    fn end(&self) {
        self.connection.forget(self.attempt.number);
        let controlled = self.shared.attempts.end(&self.header, self.attempt);
        // Who has attached may come again, and the run belongs to its host.
        if !controlled || self.attempt.output.is_some() {
            return;
        }
        self.shared.release(&self.connection, self.header);
    }
}

#[cfg(test)]
mod tests;
