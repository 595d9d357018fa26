//! The link to a remote machine: a [`Link`] over which commands and replies are late, lost or served twice.
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
//! Invariant: a host without power sends nothing and receives nothing.

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
use futures::future::{Either, select};
use tokio::sync::watch;

use crate::machine::Machine;
use crate::world::{self, LinkFault};

/// How often a message looks whether its machine still hangs.
const HANG_STEP: Duration = Duration::from_millis(500);
/// The text of a [`DeviceError`] that stands for a lost connection.
const LOST: &str = "simulated: lost";

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
        let way = Arc::new(Way { machine: Arc::clone(machine) });
        let streams = EmbeddedLink::new(Arc::clone(&way) as Arc<dyn DeviceService>, None);
        Ok(Arc::new(Self { way, streams }))
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
        if matches!(error, LinkError::Lost { .. }) {
            // The device may have it: a later connection releases it.
            self.way.steer(Command::new(header, Request::Release));
        }
        error
    }

    fn link_error(&self, error: DeviceError) -> LinkError {
        if error.message == LOST {
            self.way.lost()
        } else {
            LinkError::Device { device: self.device(), source: error }
        }
    }
}

fn address_of(machine: &Machine) -> String {
    format!("{}:1", machine.name())
}

fn lost_on_the_way() -> DeviceError {
    DeviceError::new(DeviceErrorCause::Io, LOST)
}

/// The network between the host and a machine, and the machine's entrance.
struct Way {
    machine: Arc<Machine>,
}

impl Way {
    /// Waits for the travel time of a message.
    ///
    /// # Errors
    /// If the connection breaks meanwhile.
    async fn travel(&self, connection: &mut watch::Receiver<u64>) -> Result<(), DeviceError> {
        let mut delay = Duration::from_micros(10 + world::below(500));
        if world::happens(|rates| rates.long_delay) {
            delay += Duration::from_millis(world::below(2000));
        }
        unless_broken(connection, sleep(delay)).await?;
        while !self.machine.hangs_for().is_zero() {
            // It may go on earlier.
            let moment = self.machine.hangs_for().min(HANG_STEP);
            unless_broken(connection, sleep(moment)).await?;
        }
        if world::with(world::SimWorld::host_has_power) { Ok(()) } else { Err(lost_on_the_way()) }
    }

    /// Breaks the connection of the message under way.
    fn lose(&self, what: &str) -> DeviceError {
        world::log(format_args!("link: {what} is lost"));
        self.machine.break_connections();
        lost_on_the_way()
    }

    /// Cuts the power of the machine that has the message.
    fn die(&self, what: &str) -> DeviceError {
        world::log(format_args!("link: {what} is lost with the machine"));
        self.machine.kill(true);
        lost_on_the_way()
    }

    fn lost(&self) -> LinkError {
        let detail = "the simulation broke it".to_owned();
        LinkError::Lost { address: address_of(&self.machine), detail }
    }

    fn device(&self) -> Result<Arc<cleave_device::Runtime>, DeviceError> {
        self.machine.runtime().ok_or_else(lost_on_the_way)
    }
}

/// The result of `work`, unless the connection breaks first.
async fn unless_broken<T>(
    connection: &mut watch::Receiver<u64>,
    work: impl Future<Output = T>,
) -> Result<T, DeviceError> {
    let (broken, work) = (std::pin::pin!(connection.changed()), std::pin::pin!(work));
    match select(broken, work).await {
        Either::Left(_) => Err(lost_on_the_way()),
        Either::Right((output, _)) => Ok(output),
    }
}

#[async_trait]
impl DeviceService for Way {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        let mut connection = self.machine.connection();
        let name = name_of(&command);
        world::log(format_args!("link: ▶ {name}"));
        let fault = world::with(world::SimWorld::link_command);
        self.travel(&mut connection).await?;
        if fault == Some(LinkFault::Lost) || world::happens(|rates| rates.command_lost) {
            return Err(self.lose(&name));
        }
        if fault == Some(LinkFault::DiesBefore) {
            return Err(self.die(&name));
        }
        if fault == Some(LinkFault::Late) || world::happens(|rates| rates.command_late) {
            let machine = Arc::clone(&self.machine);
            let late = Duration::from_millis(world::below(1500));
            let again = command.clone();
            detached(async move {
                sleep(late).await;
                if let Some(device) = machine.runtime() {
                    machine.log(format_args!("hears late: {}", name_of(&again)));
                    let outcome = device.call(again).await;
                    machine.log(format_args!("answers nobody: {}", outcome_of(&outcome)));
                }
            });
            return Err(self.lose(&name));
        }
        let device = self.device()?;
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
        self.travel(&mut connection).await?;
        if fault == Some(LinkFault::Unheard) || world::happens(|rates| rates.reply_lost) {
            return Err(self.lose(&format!("the reply to {name}")));
        }
        world::log(format_args!("link: ◀ {name}: {}", outcome_of(&reply)));
        reply
    }

    async fn execute(
        &self,
        request: Execute,
        slots: SlotSender,
    ) -> Result<arrow::datatypes::SchemaRef, DeviceError> {
        let mut connection = self.machine.connection();
        // Neither its checksum nor its size: DataFusion numbers filters in flight randomly.
        let name = format!("execute run {}", request.header.run);
        world::log(format_args!("link: ▶ {name}"));
        let fault = world::with(world::SimWorld::link_command);
        self.travel(&mut connection).await?;
        if fault == Some(LinkFault::Lost) || world::happens(|rates| rates.command_lost) {
            return Err(self.lose(&name));
        }
        if fault == Some(LinkFault::DiesBefore) {
            return Err(self.die(&name));
        }
        let device = self.device()?;
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
        self.travel(&mut connection).await?;
        let is_unheard = fault == Some(LinkFault::Unheard);
        if is_unheard || world::happens(|rates| rates.reply_lost) {
            return Err(self.lose(&format!("the answer to {name}")));
        }
        world::log(format_args!("link: ◀ {name}: {}", error_of(accepted.as_ref().err())));
        let schema = accepted?;
        let way = Self { machine: Arc::clone(&self.machine) };
        detached(async move {
            loop {
                let event = unless_broken(&mut connection, events.recv()).await;
                let arrived = match event {
                    Ok(None) => return,
                    Ok(Some(event)) => way.travel(&mut connection).await.map(|()| event),
                    Err(error) => Err(error),
                };
                let arrived = arrived.and_then(|event| {
                    let is_lost = world::happens(|rates| rates.reply_lost);
                    if is_lost { Err(way.lose("a slot")) } else { Ok(event) }
                });
                match arrived {
                    Ok(event) => {
                        world::log(format_args!("link: ◀ {}", event_of(&event)));
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
