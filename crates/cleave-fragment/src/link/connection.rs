//! One connection to a device, after its handshake: a writer task, a reader task that dispatches, and a watchdog for
//! silence.
//!
//! ```text
//! callers ─ frames ─▶ writer ─▶ TLS, or a ring ─▶ reader ─▶ waiting callers and runs, by request
//! ```
//!
//! Invariants: a dead connection stays dead; every waiter has been told why ([`Connection::fail`]), and no new one is
//! accepted. No run has more slots here, or more bytes of them, than the host has granted: a device that sends more
//! loses the connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::link::{LinkError, SlotSender};
use super::metered::ByteCounters;
use crate::command::LockCall;
use crate::command::message::{Reply, RunEvent};
use crate::command::proto::MalformedMessage;
use crate::command::proto::answer::{
    decode_error, decode_need, decode_reply, decode_report, decode_slot,
};
use crate::command::slot::decode_schema;
use crate::command::wire::{Frame, FrameKind, WireError, read_frame, write_frame};

/// Bytes of frames that may wait to be written.
const OUTBOUND_BYTES_MAX: usize = 64 << 20;
/// Checks without a sign of life after which the device counts as lost.
const SILENT_LOOKS_MAX: u32 = 4;

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct Connection {
    address: String,
    outbound: mpsc::UnboundedSender<Outbound>,
    outbound_bytes: Arc<Semaphore>,
    waiting: Mutex<WaitingList>,
    /// Pings that are not yet written.
    pings_queued: AtomicU64,
    died: Notify,
    has_table: bool,
}

/// The slots that the device may have sent of a run by now, by number and by bytes: slots that wait here for the host
/// are held in memory.
#[derive(Debug)]
pub(crate) struct Credit {
    /// Slots received, including those before the first one requested.
    received: u64,
    /// Slots that may have come.
    granted: u64,
    /// Bytes of the slots received and not consumed, the oldest first.
    outstanding: VecDeque<u64>,
    /// Their sum; another may come while it is below `bytes_max`.
    bytes: u64,
    bytes_max: u64,
}

impl Credit {
    /// For `slot_count` slots from `first_slot` on, with at most `bytes_max` bytes but for the last of them.
    pub(crate) fn new(first_slot: u64, slot_count: u64, bytes_max: u64) -> Self {
        Self {
            received: first_slot,
            granted: first_slot.saturating_add(slot_count),
            outstanding: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Records a received slot of `bytes`; false if it exceeds the credit.
    fn receive(&mut self, bytes: u64) -> bool {
        if self.received >= self.granted || (self.bytes > 0 && self.bytes >= self.bytes_max) {
            return false;
        }
        self.received += 1;
        self.outstanding.push_back(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        true
    }

    /// The host has consumed the slots below `consumed`.
    fn grant(&mut self, consumed: u64, slot_count: u64) {
        self.granted = self.granted.max(consumed.saturating_add(slot_count));
        while self.received.saturating_sub(self.outstanding.len() as u64) < consumed
            && let Some(bytes) = self.outstanding.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}

#[derive(Debug)]
struct Outbound {
    frame: Frame,
    // Released when the frame is written.
    _bytes: Option<OwnedSemaphorePermit>,
}

#[derive(Debug, Default)]
struct WaitingList {
    requests: BTreeMap<u64, Waiting>,
    /// Why the connection is dead, if it is.
    dead: Option<String>,
}

/// The waiter for a request.
#[derive(Debug)]
enum Waiting {
    Reply(oneshot::Sender<Result<Reply, LinkError>>),
    Run {
        accepted: Option<oneshot::Sender<Result<SchemaRef, LinkError>>>,
        events: SlotSender,
        credit: Credit,
    },
}

impl Connection {
    /// Starts the connection's tasks over `socket` on the current runtime. `bytes` counts what crosses. `has_table`:
    /// the device's process has taken the host's lock table.
    pub(crate) fn start<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        address: String,
        bytes: Arc<ByteCounters>,
        watch_interval: Duration,
        socket: S,
        has_table: bool,
    ) -> Arc<Self> {
        let (outbound, frames) = mpsc::unbounded_channel();
        let connection = Arc::new(Self {
            address,
            outbound,
            outbound_bytes: Arc::new(Semaphore::new(OUTBOUND_BYTES_MAX)),
            waiting: Mutex::default(),
            pings_queued: AtomicU64::new(0),
            died: Notify::new(),
            has_table,
        });
        let (reader, writer) = tokio::io::split(socket);
        let mut tasks = JoinSet::new();
        tasks.spawn(write_frames(Arc::clone(&connection), frames, writer));
        tasks.spawn(watch(Arc::clone(&connection), bytes, watch_interval));
        let death = DeathGuard(Arc::clone(&connection));
        // The reader owns the other two: when it ends, they do.
        let reading = read_frames(Arc::clone(&connection), reader, tasks);
        let _detached = tokio::runtime::Handle::current().spawn(async move {
            tokio::select! {
                () = reading => {}
                () = death.0.died.notified() => {}
            }
        });
        connection
    }

    /// Whether the device's process has taken the host's lock table.
    pub(crate) fn has_table(&self) -> bool {
        self.has_table
    }

    /// Whether the connection is dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.lock().dead.is_some()
    }

    /// Declares the connection dead and tells all waiters.
    pub(crate) fn fail(&self, detail: &str) {
        let requests = {
            let mut waiting = self.lock();
            if waiting.dead.is_none() {
                waiting.dead = Some(detail.to_owned());
            }
            std::mem::take(&mut waiting.requests)
        };
        // Ends the reader and with it the socket.
        self.died.notify_one();
        for (_, waiting) in requests {
            waiting.fail(|| self.lost(detail));
        }
    }

    /// Sends the command in `frame` and waits for its reply.
    pub(crate) async fn call(&self, frame: Frame) -> Result<Reply, LinkError> {
        let (sender, reply) = oneshot::channel();
        let request = frame.request;
        self.enter(request, Waiting::Reply(sender))?;
        let _forget = ForgetGuard { connection: self, request };
        self.send(frame).await?;
        reply.await.unwrap_or_else(|_| Err(self.lost("the link was closed")))
    }

    /// Sends the execute in `frame` and waits until it is accepted; slots go to `events`, at most as
    /// many as `credit` grants.
    pub(crate) async fn execute(
        &self,
        frame: Frame,
        events: SlotSender,
        credit: Credit,
    ) -> Result<SchemaRef, LinkError> {
        let (sender, accepted) = oneshot::channel();
        self.enter(frame.request, Waiting::Run { accepted: Some(sender), events, credit })?;
        self.send(frame).await?;
        accepted.await.unwrap_or_else(|_| Err(self.lost("the link was closed")))
    }

    /// Sends a frame without an answer; false if the connection is dead.
    pub(crate) fn post(&self, frame: Frame) -> bool {
        !self.is_dead() && self.outbound.send(Outbound { frame, _bytes: None }).is_ok()
    }

    /// As [`Connection::post`], for a frame that the device asked for: a device that does not read its answers loses
    /// the connection.
    pub(crate) fn post_within(&self, frame: Frame) {
        let permits = frame.length().unwrap_or(u32::MAX);
        let Ok(bytes) = Arc::clone(&self.outbound_bytes).try_acquire_many_owned(permits) else {
            return self.fail("it does not read what it asked for");
        };
        // Without a connection the device will ask again.
        let _gone = self.outbound.send(Outbound { frame, _bytes: Some(bytes) });
    }

    /// Grants the device of the run that `request` began `slot_count` slots beyond the `consumed` ones.
    pub(crate) fn grant(&self, request: u64, consumed: u64, slot_count: u64) {
        if let Some(Waiting::Run { credit, .. }) = self.lock().requests.get_mut(&request) {
            credit.grant(consumed, slot_count);
        }
    }

    /// Pings the device, unless an earlier ping is not yet written.
    fn ping(&self) {
        if self.pings_queued.load(Ordering::Relaxed) == 0 {
            self.pings_queued.fetch_add(1, Ordering::Relaxed);
            self.post(Frame::of_head(FrameKind::Ping, 0, Vec::new()));
        }
    }

    /// Stops waiting for `request`.
    pub(crate) fn forget(&self, request: u64) {
        self.lock().requests.remove(&request);
    }

    fn enter(&self, request: u64, who: Waiting) -> Result<(), LinkError> {
        let mut waiting = self.lock();
        if let Some(detail) = &waiting.dead {
            return Err(self.lost(detail));
        }
        waiting.requests.insert(request, who);
        Ok(())
    }

    async fn send(&self, frame: Frame) -> Result<(), LinkError> {
        let permits = frame.length().map_err(|_| LinkError::Protocol {
            device: self.address.clone(),
            detail: "a frame that is too long was not stopped before".to_owned(),
        })?;
        let bytes = Arc::clone(&self.outbound_bytes).acquire_many_owned(permits).await;
        let outbound = Outbound { frame, _bytes: bytes.ok() };
        self.outbound.send(outbound).map_err(|_| self.lost("the link was closed"))
    }

    fn lost(&self, detail: &str) -> LinkError {
        LinkError::Lost { address: self.address.clone(), detail: detail.to_owned() }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingList> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an answer to its waiter; an error if it breaks the protocol.
    fn hand_out(&self, frame: Frame) -> Result<(), HandOutError> {
        let request = frame.request;
        match frame.kind {
            FrameKind::Pong => Ok(()),
            FrameKind::Goodbye => Err(HandOutError::Goodbye(decode_error(frame)?.message)),
            FrameKind::Reply => {
                if let Some(Waiting::Reply(sender)) = self.lock().requests.remove(&request) {
                    let reply = decode_reply(frame).map_err(|error| LinkError::Protocol {
                        device: self.address.clone(),
                        detail: error.to_string(),
                    });
                    let _gone = sender.send(reply);
                }
                Ok(())
            }
            FrameKind::Error => {
                let source = decode_error(frame)?;
                if let Some(waiting) = self.lock().requests.remove(&request) {
                    let device = self.address.clone();
                    match waiting {
                        Waiting::Run { accepted: None, events, .. } => {
                            events.send(RunEvent::Failed(source));
                        }
                        other => other.fail(|| LinkError::Device { device, source }),
                    }
                }
                Ok(())
            }
            FrameKind::Accepted => {
                let schema =
                    decode_schema(frame.head).map_err(|_| MalformedMessage::Field("schema"))?;
                if let Some(Waiting::Run { accepted, .. }) = self.lock().requests.get_mut(&request)
                    && let Some(accepted) = accepted.take()
                {
                    let _gone = accepted.send(Ok(schema));
                }
                Ok(())
            }
            FrameKind::Slot => {
                let bytes = frame.parts.iter().map(|part| part.bytes.len() as u64).sum();
                let slot = decode_slot(frame)?;
                if let Some(Waiting::Run { events, credit, .. }) =
                    self.lock().requests.get_mut(&request)
                {
                    if !credit.receive(bytes) {
                        let (granted, bytes_max) = (credit.granted, credit.bytes_max);
                        return Err(HandOutError::Credit { granted, bytes_max });
                    }
                    events.send(RunEvent::Slot(slot));
                }
                Ok(())
            }
            FrameKind::Locks => {
                let call = LockCall::decode(&frame.head)?;
                let run = match self.lock().requests.get(&request) {
                    Some(Waiting::Run { events, .. }) => Some(events.clone()),
                    _ => None,
                };
                // Not while the list is locked: the request is executed here, and may be answered at once.
                if let Some(run) = run {
                    run.send(RunEvent::Locks(call));
                }
                Ok(())
            }
            FrameKind::Full => {
                let need = decode_need(frame)?;
                if let Some(Waiting::Run { events, .. }) = self.lock().requests.get(&request) {
                    events.send(RunEvent::Full(need));
                }
                Ok(())
            }
            FrameKind::Report => {
                let report = decode_report(frame)?;
                if let Some(Waiting::Run { events, .. }) = self.lock().requests.remove(&request) {
                    events.send(RunEvent::Finished(Box::new(report)));
                }
                Ok(())
            }
            FrameKind::Command | FrameKind::Execute | FrameKind::Ping => {
                Err(HandOutError::Malformed(MalformedMessage::Field("direction")))
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum HandOutError {
    #[error(transparent)]
    Malformed(#[from] MalformedMessage),
    #[error("{0}")]
    Goodbye(String),
    #[error(
        "the device sent more than the {granted} slots, or the {bytes_max} bytes at once, that it might"
    )]
    Credit { granted: u64, bytes_max: u64 },
}

impl Waiting {
    fn fail(self, error: impl FnOnce() -> LinkError) {
        match self {
            Self::Reply(sender) => {
                let _gone = sender.send(Err(error()));
            }
            Self::Run { accepted: Some(sender), .. } => {
                let _gone = sender.send(Err(error()));
            }
            Self::Run { accepted: None, events, .. } => {
                events.send(RunEvent::Lost(error()));
            }
        }
    }
}

/// Fails the connection when its reader ends, for whatever reason.
struct DeathGuard(Arc<Connection>);

impl Drop for DeathGuard {
    fn drop(&mut self) {
        self.0.fail("the link was closed");
    }
}

/// Stops waiting when the caller is cancelled.
struct ForgetGuard<'a> {
    connection: &'a Connection,
    request: u64,
}

impl Drop for ForgetGuard<'_> {
    fn drop(&mut self) {
        self.connection.forget(self.request);
    }
}

async fn read_frames<R: AsyncRead + Unpin>(
    connection: Arc<Connection>,
    reader: R,
    _owned: JoinSet<()>,
) {
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    loop {
        let handed = match read_frame(&mut reader).await {
            Ok(Some(frame)) => connection.hand_out(frame).map_err(|error| error.to_string()),
            Ok(None) => Err("the device closed the connection".to_owned()),
            Err(WireError::Io(error)) => Err(error.to_string()),
            Err(error) => Err(format!("the device sent {error}")),
        };
        if let Err(detail) = handed {
            connection.fail(&detail);
            return;
        }
    }
}

async fn write_frames<W: AsyncWrite + Unpin>(
    connection: Arc<Connection>,
    mut frames: mpsc::UnboundedReceiver<Outbound>,
    writer: W,
) {
    let mut writer = BufWriter::with_capacity(64 << 10, writer);
    while let Some(outbound) = frames.recv().await {
        let mut written = write_frame(&mut writer, &outbound.frame).await;
        if written.is_ok() && frames.is_empty() {
            written = writer.flush().await.map_err(WireError::from);
        }
        if outbound.frame.kind == FrameKind::Ping && written.is_ok() {
            written = writer.flush().await.map_err(WireError::from);
            connection.pings_queued.fetch_sub(1, Ordering::Relaxed);
        }
        if let Err(error) = written {
            // The reader may know a better reason: a device that says goodbye closes right after.
            tokio::time::sleep(Duration::from_millis(100)).await;
            connection.fail(&error.to_string());
            return;
        }
    }
}

/// Detects a device that is gone without having closed the connection, as after a power failure, and one that no longer
/// answers; and lets the device detect the same of this host.
///
/// A silent device is pinged. Until the ping is written, outgoing bytes are a sign of life; from then on only incoming
/// ones are.
async fn watch(connection: Arc<Connection>, bytes: Arc<ByteCounters>, interval: Duration) {
    let crossed = || (bytes.sent.load(Ordering::Relaxed), bytes.received.load(Ordering::Relaxed));
    let mut ticks = tokio::time::interval(interval);
    // After a suspend of the machine, missed ticks must not count as silence.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let (mut sent, mut received) = crossed();
    let mut silent_looks = 0;
    loop {
        ticks.tick().await;
        let (sent_now, received_now) = crossed();
        let is_asking = connection.pings_queued.load(Ordering::Relaxed) > 0;
        let is_alive = received_now != received || (is_asking && sent_now != sent);
        (sent, received) = (sent_now, received_now);
        if is_alive {
            silent_looks = 0;
            continue;
        }
        silent_looks += 1;
        if silent_looks > SILENT_LOOKS_MAX {
            let seconds = (interval * SILENT_LOOKS_MAX).as_secs_f64();
            connection.fail(&format!("it did not answer for {seconds} s"));
            return;
        }
        connection.ping();
    }
}

#[cfg(test)]
mod tests;
