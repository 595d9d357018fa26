//! The link to a remote machine, of a host or of another machine: a [`Link`] over which commands and replies are late,
//! lost or served twice.
//!
//! ```text
//!  call ─▶ wait ─▶ (lost? twice? late?) ─▶ Runtime::call ─▶ wait ─▶ (lost?) ─▶ reply
//!  execute ─▶ the same, and slots wait one by one behind it
//! ```
//!
//! It behaves as the link over TCP does: a connection that breaks fails everything under way with [`LinkError::Lost`],
//! and the next use makes a new one. A command of a lost connection may still reach the device afterwards, which
//! executes it even if nobody gets the reply. Commands under way overtake each other, since each waits by itself; slots
//! of one run do not.
//!
//! Who speaks is the host, to whom the machine's device itself answers, or a `Peer`, to whom what its grant is good for
//! does. Messages between machines may also wait because the network carries none in their direction.
//!
//! Invariant: a host without power, and a device whose process has ended, send nothing and receive nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, Execute, Reply, Request, SlotPayload,
};
use cleave_fragment::link::{
    AttachMode, DeviceService, EmbeddedLink, Link, LinkError, RunStream, SlotForm, SlotSender,
    Traffic,
};
use cleave_fragment::row_locks::HostedJob;
use cleave_fragment::waiting::sleep;
use futures::future::{Either, select, select_all};
use tokio::sync::watch;

use crate::machine::Machine;
use crate::peers::Peer;
use crate::world::{self, LinkFault};

/// How often a message that is held up looks whether it still is.
const HANG_STEP: Duration = Duration::from_millis(500);
/// The text of a [`DeviceError`] that stands for a lost connection.
const LOST: &str = "simulated: lost";
/// That of one which stands for a grant that the device does not have.
const NOT_LET_IN: &str = "simulated: not let in";

/// See the [module](self).
#[derive(Debug)]
pub struct SimLink {
    way: Arc<Way>,
    streams: Arc<EmbeddedLink>,
}

impl SimLink {
    /// A link to `machine`, if that is running.
    ///
    /// # Errors
    /// [`LinkError::Connect`].
    pub fn dial(machine: &Arc<Machine>) -> Result<Arc<dyn Link>, LinkError> {
        world::log("link: dial");
        if machine.runtime().is_none() || !world::with(world::SimWorld::host_has_power) {
            let source = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            return Err(LinkError::Connect { address: address_of(machine), source });
        }
        Ok(Self::over(Way { machine: Arc::clone(machine), from: Speaker::Host }))
    }

    /// A link of `peer` to `machine`, whether or not that is running.
    pub(crate) fn between(peer: Peer, machine: Arc<Machine>) -> Arc<dyn Link> {
        Self::over(Way { machine, from: Speaker::Peer(Arc::new(peer)) })
    }

    fn over(way: Way) -> Arc<dyn Link> {
        let way = Arc::new(way);
        let streams = EmbeddedLink::new(Arc::clone(&way) as Arc<dyn DeviceService>, None);
        Arc::new(Self { way, streams })
    }
}

#[async_trait]
impl Link for SimLink {
    async fn call(&self, command: Command) -> Result<Reply, LinkError> {
        match self.way.call(command).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.link_error(error)),
        }
    }

    async fn execute(&self, request: Execute) -> Result<RunStream, LinkError> {
        let header = request.header;
        self.streams.execute(request).await.map_err(|error| self.failed(header, error))
    }

    async fn execute_locking(
        &self,
        request: Execute,
        job: Arc<HostedJob>,
    ) -> Result<RunStream, LinkError> {
        let header = request.header;
        let begun = self.streams.execute_locking(request, job).await;
        begun.map_err(|error| self.failed(header, error))
    }

    fn traffic(&self) -> Traffic {
        self.streams.traffic()
    }

    fn mode(&self) -> AttachMode {
        AttachMode::Remote
    }

    fn device(&self) -> String {
        address_of(&self.way.machine)
    }
}

impl SimLink {
    fn failed(&self, header: CommandHeader, error: LinkError) -> LinkError {
        let error = match error {
            LinkError::Device { source, .. } => self.link_error(source),
            other => other,
        };
        if matches!((&error, &self.way.from), (LinkError::Lost { .. }, Speaker::Host)) {
            // The device may have it: a later connection releases it.
            self.way.steer(Command::new(header, Request::Release));
        }
        error
    }

    fn link_error(&self, error: DeviceError) -> LinkError {
        match error.message.as_str() {
            LOST => self.way.lost(),
            NOT_LET_IN => LinkError::Unauthenticated { address: self.device() },
            _ => LinkError::Device { device: self.device(), source: error },
        }
    }
}

fn address_of(machine: &Machine) -> String {
    format!("{}:1", machine.name())
}

fn lost_on_the_way() -> DeviceError {
    DeviceError::new(DeviceErrorCause::Io, LOST)
}

/// The network between who speaks and a machine, and the machine's entrance.
#[derive(Clone)]
struct Way {
    machine: Arc<Machine>,
    from: Speaker,
}

#[derive(Clone)]
enum Speaker {
    Host,
    /// The device of another machine.
    Peer(Arc<Peer>),
}

/// To the machine, or from it.
#[derive(Clone, Copy)]
enum Direction {
    There,
    Back,
}

/// The connection that a message is on: it ends when one of the counts of what broke goes up.
struct Connection {
    ends: Vec<watch::Receiver<u64>>,
    counts: Vec<u64>,
}

impl Connection {
    fn of(ends: Vec<watch::Receiver<u64>>) -> Self {
        let counts = ends.iter().map(|end| *end.borrow()).collect();
        Self { ends, counts }
    }

    /// Waits for its end.
    async fn end(&mut self) {
        let ends = self.ends.iter_mut().map(|end| Box::pin(end.changed()));
        drop(select_all(ends).await);
    }
}

impl Way {
    /// The connection that is there now.
    fn connection(&self) -> Connection {
        Connection::of(match &self.from {
            Speaker::Host => vec![self.machine.connection()],
            Speaker::Peer(peer) => {
                vec![self.machine.peer_connections(), peer.machine_connections(), peer.connection()]
            }
        })
    }

    /// Waits for the travel time of a message.
    ///
    /// # Errors
    /// If the connection breaks meanwhile.
    async fn travel(
        &self,
        connection: &mut Connection,
        direction: Direction,
    ) -> Result<(), DeviceError> {
        let mut delay = Duration::from_micros(10 + world::below(500));
        if world::happens(|rates| rates.long_delay) {
            delay += Duration::from_millis(world::below(2000));
        }
        unless_broken(connection, sleep(delay)).await?;
        while !self.held_up_for(direction).is_zero() {
            // It may go on earlier.
            let moment = self.held_up_for(direction).min(HANG_STEP);
            unless_broken(connection, sleep(moment)).await?;
        }
        if self.is_there() { Ok(()) } else { Err(lost_on_the_way()) }
    }

    /// How long messages in `direction` wait from now on.
    fn held_up_for(&self, direction: Direction) -> Duration {
        let hangs = self.machine.hangs_for();
        let Speaker::Peer(peer) = &self.from else { return hangs };
        let (own, other) = (peer.machine().name(), self.machine.name());
        let (from, to) = match direction {
            Direction::There => (own, other),
            Direction::Back => (other, own),
        };
        let cut = world::with(|world| world.cut_for(from, to));
        hangs.max(peer.machine().hangs_for()).max(cut)
    }

    /// Whether who speaks is still there.
    fn is_there(&self) -> bool {
        match &self.from {
            Speaker::Host => world::with(world::SimWorld::host_has_power),
            Speaker::Peer(peer) => peer.is_running(),
        }
    }

    /// The fault of the message that is sent now, if it is one that is to have one.
    fn fault(&self) -> Option<LinkFault> {
        match self.from {
            Speaker::Host => world::with(world::SimWorld::link_command),
            Speaker::Peer(_) => world::with(world::SimWorld::peer_command),
        }
    }

    /// The same of one that is no command: those of devices count, too.
    fn fault_of_message(&self) -> Option<LinkFault> {
        match self.from {
            Speaker::Host => None,
            Speaker::Peer(_) => self.fault(),
        }
    }

    /// Breaks the connection of the message under way.
    fn lose(&self, what: &str) -> DeviceError {
        self.log(format_args!("{what} is lost"));
        match &self.from {
            Speaker::Host => self.machine.break_host_connections(),
            Speaker::Peer(peer) => peer.break_connection(),
        }
        lost_on_the_way()
    }

    /// Cuts the power of the machine that has the message.
    fn die(&self, what: &str) -> DeviceError {
        self.log(format_args!("{what} is lost with the machine"));
        self.machine.kill(true);
        lost_on_the_way()
    }

    fn lost(&self) -> LinkError {
        let detail = "the simulation broke it".to_owned();
        LinkError::Lost { address: address_of(&self.machine), detail }
    }

    /// What serves the messages of the connection whose `counts` these are.
    fn device(&self, counts: &[u64]) -> Result<Arc<dyn DeviceService>, DeviceError> {
        let device = self.machine.runtime().ok_or_else(lost_on_the_way)?;
        let Speaker::Peer(peer) = &self.from else {
            return Ok(device as Arc<dyn DeviceService>);
        };
        let let_in = peer.let_in(counts, device);
        let_in.ok_or_else(|| DeviceError::new(DeviceErrorCause::Unauthenticated, NOT_LET_IN))
    }

    /// Has `command` served after a while, for nobody. A host's command may come to a later process of the device, but
    /// not a grant: only the process that was told knows which ones have ended. One of a peer comes to that process
    /// alone.
    fn serve_late(&self, command: Command, counts: Vec<u64>) {
        let (way, start) = (self.clone(), self.machine.start_number());
        let is_of_process =
            matches!(self.from, Speaker::Peer(_)) || matches!(command.request, Request::Grant(_));
        let late = Duration::from_millis(world::below(1500));
        detached(async move {
            sleep(late).await;
            if is_of_process && way.machine.start_number() != start {
                return;
            }
            if let Ok(device) = way.device(&counts) {
                way.machine.log(format_args!("hears late: {}", name_of(&command)));
                let outcome = device.call(command).await;
                way.machine.log(format_args!("answers nobody: {}", outcome_of(&outcome)));
            }
        });
    }

    /// Lets a listener that is gone attach to an output, in the place of one that may have come since.
    fn attach_late(&self, request: Execute, counts: Vec<u64>) {
        let (way, start) = (self.clone(), self.machine.start_number());
        let late = Duration::from_millis(world::below(1500));
        detached(async move {
            sleep(late).await;
            if way.machine.start_number() == start
                && let Ok(device) = way.device(&counts)
            {
                way.machine.log(format_args!("hears late: execute run {}", request.header.run));
                let (unheard, _) = SlotSender::channel(SlotForm::Encoded);
                drop(device.execute(request, unheard).await);
            }
        });
    }

    /// Sends what needs no answer to another device. It is lost with its connection alone, overtakes others, and may
    /// come twice.
    fn steer_peer(&self, command: Command) {
        let (way, mut connection, fault) = (self.clone(), self.connection(), self.fault());
        detached(async move {
            if way.travel(&mut connection, Direction::There).await.is_err() {
                return;
            }
            let name = name_of(&command);
            let twice = match fault {
                Some(LinkFault::DiesBefore | LinkFault::DiesAfter) => {
                    drop(way.die(&name));
                    return;
                }
                Some(LinkFault::Lost | LinkFault::Unheard | LinkFault::Late) => {
                    drop(way.lose(&name));
                    return;
                }
                _ if world::happens(|rates| rates.command_lost) => {
                    drop(way.lose(&name));
                    return;
                }
                Some(LinkFault::Twice) => true,
                None => world::happens(|rates| rates.command_twice),
            };
            let Ok(device) = way.device(&connection.counts) else { return };
            way.machine.log(format_args!("is steered: {name}"));
            if twice {
                device.steer(command.clone());
            }
            device.steer(command);
        });
    }

    /// Writes into the trace what becomes of a message.
    fn log(&self, what: impl fmt::Display) {
        match &self.from {
            Speaker::Host => world::log(format_args!("link: {what}")),
            Speaker::Peer(peer) => {
                let (from, to) = (peer.machine().name(), self.machine.name());
                world::log(format_args!("{from} to {to}: {what}"));
            }
        }
    }
}

/// The result of `work`, unless the connection breaks first.
async fn unless_broken<T>(
    connection: &mut Connection,
    work: impl Future<Output = T>,
) -> Result<T, DeviceError> {
    let (broken, work) = (std::pin::pin!(connection.end()), std::pin::pin!(work));
    match select(broken, work).await {
        Either::Left(_) => Err(lost_on_the_way()),
        Either::Right((output, _)) => Ok(output),
    }
}

#[async_trait]
impl DeviceService for Way {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        let mut connection = self.connection();
        let name = name_of(&command);
        self.log(format_args!("▶ {name}"));
        let fault = self.fault();
        self.travel(&mut connection, Direction::There).await?;
        if fault == Some(LinkFault::Lost) || world::happens(|rates| rates.command_lost) {
            return Err(self.lose(&name));
        }
        if fault == Some(LinkFault::DiesBefore) {
            return Err(self.die(&name));
        }
        if fault == Some(LinkFault::Late) || world::happens(|rates| rates.command_late) {
            self.serve_late(command, connection.counts.clone());
            return Err(self.lose(&name));
        }
        let device = self.device(&connection.counts)?;
        // On the device, whatever becomes of the connection.
        let twice = fault == Some(LinkFault::Twice) || world::happens(|rates| rates.command_twice);
        let machine = Arc::clone(&self.machine);
        let served = detached(async move {
            if twice {
                machine.log(format_args!("hears twice: {}", name_of(&command)));
                drop(device.call(command.clone()).await);
            }
            device.call(command).await
        });
        let reply = unless_broken(&mut connection, served).await?;
        let reply = reply.unwrap_or_else(|_| Err(lost_on_the_way()));
        if fault == Some(LinkFault::DiesAfter) {
            return Err(self.die(&format!("the reply to {name}")));
        }
        self.travel(&mut connection, Direction::Back).await?;
        if fault == Some(LinkFault::Unheard) || world::happens(|rates| rates.reply_lost) {
            return Err(self.lose(&format!("the reply to {name}")));
        }
        self.log(format_args!("◀ {name}: {}", outcome_of(&reply)));
        if let (Speaker::Peer(_), Ok(Reply::Read(_))) = (&self.from, &reply) {
            world::with(world::SimWorld::note_pages_of_peer);
        }
        reply
    }

    async fn execute(
        &self,
        request: Execute,
        slots: SlotSender,
    ) -> Result<arrow::datatypes::SchemaRef, DeviceError> {
        let mut connection = self.connection();
        // Neither its checksum nor its size: DataFusion numbers filters in flight randomly.
        let name = format!("execute run {}", request.header.run);
        self.log(format_args!("▶ {name}"));
        let fault = self.fault();
        self.travel(&mut connection, Direction::There).await?;
        if fault == Some(LinkFault::Lost) || world::happens(|rates| rates.command_lost) {
            return Err(self.lose(&name));
        }
        if fault == Some(LinkFault::DiesBefore) {
            return Err(self.die(&name));
        }
        if let Speaker::Peer(_) = &self.from
            && (fault == Some(LinkFault::Late) || world::happens(|rates| rates.command_late))
        {
            self.attach_late(request, connection.counts.clone());
            return Err(self.lose(&name));
        }
        let device = self.device(&connection.counts)?;
        let form = if world::below(2) == 0 { SlotForm::Encoded } else { SlotForm::Batches };
        let (sender, mut events) = SlotSender::channel(form);
        let twice = fault == Some(LinkFault::Twice) || world::happens(|rates| rates.command_twice);
        let machine = Arc::clone(&self.machine);
        let accepting = detached(async move {
            if twice {
                machine.log("hears the execute twice");
                let (unheard, _) = SlotSender::channel(form);
                drop(device.execute(request.clone(), unheard).await);
            }
            device.execute(request, sender).await
        });
        let accepted = unless_broken(&mut connection, accepting).await?;
        let accepted = accepted.unwrap_or_else(|_| Err(lost_on_the_way()));
        if fault == Some(LinkFault::DiesAfter) {
            return Err(self.die(&format!("the answer to {name}")));
        }
        self.travel(&mut connection, Direction::Back).await?;
        let is_unheard = fault == Some(LinkFault::Unheard);
        if is_unheard || world::happens(|rates| rates.reply_lost) {
            return Err(self.lose(&format!("the answer to {name}")));
        }
        self.log(format_args!("◀ {name}: {}", error_of(accepted.as_ref().err())));
        let schema = accepted?;
        if let Speaker::Peer(_) = &self.from {
            world::with(world::SimWorld::note_rows_of_peer);
        }
        let way = self.clone();
        detached(async move {
            loop {
                let event = unless_broken(&mut connection, events.recv()).await;
                let arrived = match event {
                    Ok(None) => return,
                    Ok(Some(event)) => {
                        way.travel(&mut connection, Direction::Back).await.map(|()| event)
                    }
                    Err(error) => Err(error),
                };
                let arrived = arrived.and_then(|event| match way.fault_of_message() {
                    Some(LinkFault::DiesBefore | LinkFault::DiesAfter) => Err(way.die("a slot")),
                    Some(LinkFault::Lost | LinkFault::Unheard | LinkFault::Late) => {
                        Err(way.lose("a slot"))
                    }
                    _ if world::happens(|rates| rates.reply_lost) => Err(way.lose("a slot")),
                    // Slots of a connection come once.
                    Some(LinkFault::Twice) | None => Ok(event),
                });
                match arrived {
                    Ok(event) => {
                        way.log(format_args!("◀ {}", event_of(&event)));
                        slots.send(event);
                    }
                    Err(_) => {
                        slots.send(RunEvent::Lost(way.lost()));
                        return;
                    }
                }
            }
        });
        Ok(schema)
    }

    fn steer(&self, command: Command) {
        if let Speaker::Peer(_) = &self.from {
            return self.steer_peer(command);
        }
        // Neither waits for an answer, and a later connection repeats what an earlier one lost.
        let machine = Arc::clone(&self.machine);
        let delay = Duration::from_micros(10 + world::below(2000));
        detached(async move {
            sleep(delay.max(machine.hangs_for())).await;
            if let Some(device) = machine.runtime()
                && world::with(world::SimWorld::host_has_power)
            {
                machine.log(format_args!("is steered: {}", name_of(&command)));
                device.steer(command);
            }
        });
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").finish_non_exhaustive()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is on the network or on the device goes on when its sender is gone"
)]
fn detached<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(work)
}

fn name_of(command: &Command) -> String {
    let header = &command.header;
    let what = match &command.request {
        Request::Identify => "identify".to_owned(),
        Request::Claim { .. } => "claim".to_owned(),
        Request::GiveUp => "give up".to_owned(),
        Request::Read(items) => format!("read of {} items", items.len()),
        Request::Write(items) => {
            let places: Vec<_> = items
                .iter()
                .map(|item| format!("{} {:08x}", item.start.0, item.payload.checksum))
                .collect();
            format!("write at {}", places.join(", "))
        }
        Request::Sync => "sync".to_owned(),
        Request::Reserve { extents } => format!("reserve {extents:?}"),
        Request::Fetch { consumed, output } => {
            format!("fetch {consumed} of output {output} of run {}", header.run)
        }
        Request::Grant(grant) => format!(
            "grant {} of {} extents and {} outputs",
            grant.number,
            grant.extents.len(),
            grant.outputs.len()
        ),
        Request::EndGrant { number } => format!("end of grant {number}"),
        Request::Revoke { input, keep } => {
            format!("revoke all but {keep} of input {input} of run {}", header.run)
        }
        Request::Feed { input, generation, filter } => format!(
            "feed input {input} of run {} filter {generation} of {} bytes",
            header.run,
            filter.len()
        ),
        Request::Extend { number, extents } => {
            format!("extension {number} of run {}: {extents:?}", header.run)
        }
        Request::Locks(say) => format!("of locks of run {}: {say:?}", header.run),
        Request::Cancel => format!("cancel run {}", header.run),
        Request::Release => format!("release run {}", header.run),
        Request::Status => "status".to_owned(),
        Request::Profile { again, .. } => format!("profile, again: {again}"),
    };
    format!("{}.{} {what}", header.epoch, header.sequence)
}

fn outcome_of(outcome: &Result<Reply, DeviceError>) -> String {
    match outcome {
        Ok(Reply::Identity(identity)) => format!("identity, {} blocks", identity.block_count),
        Ok(Reply::Read(payloads)) => {
            let bytes: usize = payloads.iter().map(|payload| payload.byte_count()).sum();
            format!("{} payloads of {bytes} bytes", payloads.len())
        }
        Ok(Reply::Done) => "done".to_owned(),
        Ok(Reply::Kept(kept)) => {
            format!("{} kept, of which {} were begun", kept.lease.kept, kept.lease.begun)
        }
        Ok(Reply::Profile(side)) => format!("profile of {} cores", side.cores),
        Ok(Reply::Status(status)) => {
            format!("status, {} runs, {} blocks", status.runs.len(), status.block_count)
        }
        Err(error) => error_of(Some(error)),
    }
}

fn error_of(error: Option<&DeviceError>) -> String {
    error.map_or_else(|| "accepted".to_owned(), |error| format!("{:?}: {error}", error.cause))
}

fn event_of(event: &RunEvent) -> String {
    match event {
        RunEvent::Slot(slot) => {
            let form = match &slot.payload {
                SlotPayload::Encoded(payload) => format!("encoded {:08x}", payload.checksum),
                SlotPayload::Batch(_) => "batch".to_owned(),
            };
            format!("slot {} of {} rows, {form}", slot.number, slot.row_count)
        }
        // Durations are not traced: the engine measures them in real time.
        RunEvent::Finished(report) => {
            format!("finished: {} rows, {} slots", report.rows, report.slots)
        }
        RunEvent::Failed(error) => format!("failed: {}", error_of(Some(error))),
        RunEvent::Locks(call) => format!("asks for locks: {call:?}"),
        RunEvent::Full(need) => format!("needs space: {need:?}"),
        RunEvent::Lost(error) => format!("lost: {error}"),
    }
}
