//! Serves a device on a socket: accepts connections, and serves the commands and runs of each side by side.
//!
//! ```text
//! Listener ──────▶ TLS ─▶ hello, token ──────────┐
//! LocalListener ─▶ user ─▶ hello ─▶ shared memory ┴─▶ reader ─ one task a command ─▶ writer
//!                                                       └──── one task a run ─ slots ─▶ ┘
//! ```
//!
//! Invariants: nothing of a peer is read before its token, except the token (through shared memory: before the system
//! has confirmed that its user is the same, or root). A peer's mistake costs it its own connection, with a reason where
//! one can still be sent, and affects nobody else. The memory queued for one connection is bounded, whatever the peer
//! sends and however little it reads. Off this machine there is no listener without TLS ([`Listener::bind`]).

mod local;
mod strangers;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::datatypes::Schema;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::peers::shown_grant;
use cleave_fragment::command::proto::answer::{
    encode_error, encode_need, encode_reply, encode_report, encode_slot,
};
use cleave_fragment::command::proto::decoded_size::{command_bytes, execute_bytes};
use cleave_fragment::command::proto::{MalformedMessage, decode_command, decode_execute};
use cleave_fragment::command::slot::encode_schema;
use cleave_fragment::command::wire::{
    Frame, FrameKind, Hello, WireError, read_frame, read_hello_of, write_frame, write_welcome,
};
use cleave_fragment::command::{
    Command, DeviceError, DeviceErrorCause, Execute, ReadItem, Request, RunKey,
};
use cleave_fragment::link::handed_table::HandedTables;
use cleave_fragment::link::metered::{ByteCounters, Metered};
use cleave_fragment::link::token_bucket::RateCap;
use cleave_fragment::link::{
    DeviceIdentity, DeviceService, SlotForm, SlotSender, TlsFileError, Token,
};
use cleave_media::Stopwatch;
use cleave_shmem::DeviceLocks;
use futures::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

pub use local::{LocalListener, LocalOptions};
use strangers::{Origin, Place, Strangers, origin_of};

/// How long a peer may take to show its token, TLS included.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// How often the log reports connections that were closed to make room.
const TURNED_AWAY_EVERY: Duration = Duration::from_secs(10);
/// Connections that may wait to be accepted; the system has a bound of its own.
const BACKLOG_MAX: u32 = 4096;
/// Connections at once that have shown the token; and as many of other devices, which take no host's place.
const CONNECTIONS_MAX: usize = 256;
/// How long a connection stays whose grant has ended: what is asked in this time is answered with the reason.
const OVER_LIMIT: Duration = Duration::from_secs(10);
/// Silence after which a host counts as gone: a host that has nothing to say pings every few seconds.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Bytes that the commands of one connection may have under way, as estimated beforehand; the executes of all
/// connections that wait to be admitted may have as many besides.
const BYTES_UNDER_WAY_MAX: u32 = 128 << 20;
/// The least weight of a command.
const COMMAND_BYTES: u32 = 64 << 10;
/// Most bytes of the head of a command without an answer.
const STEERING_BYTES_MAX: usize = 1024;
/// Pongs and errors of one connection that may wait to be written.
const REMARKS_MAX: usize = 256;

/// Where and how to listen.
#[derive(Clone)]
pub struct ListenOptions {
    /// Address; port 0 takes a free one.
    pub address: SocketAddr,
    /// Certificate and key; without them only this machine may connect.
    pub identity: Option<Arc<DeviceIdentity>>,
    /// The token that a host must show, with or without TLS.
    pub token: Token,
    /// Bytes a second in each direction, all connections together.
    pub rate_cap: Option<u64>,
    /// Told of events that concern an operator: refused peers, broken connections.
    pub log: Log,
}

/// The log for events that concern an operator.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

impl fmt::Debug for ListenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenOptions")
            .field("address", &self.address)
            .field("identity", &self.identity)
            .field("rate_cap", &self.rate_cap)
            .finish_non_exhaustive()
    }
}

/// Why the listener could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address that other machines can reach, without TLS.
    #[error(
        "{address} can be reached from other machines: give --tls-cert and --tls-key, or listen on \
         127.0.0.1"
    )]
    Unprotected {
        /// The address.
        address: SocketAddr,
    },
    /// Another device listens at the Unix socket.
    #[error("{} is in use by another device: give this one another --local", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path of the Unix socket has something else.
    #[error("{} is there and is no socket: give another --local, or move it away", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused the Unix socket.
    #[error("cannot listen on {}: {source}", path.display())]
    BindLocal {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The certificate or key cannot be used.
    #[error(transparent)]
    Credentials(#[from] TlsFileError),
    /// The system refused the socket.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A listening socket, and the device behind it.
pub struct Listener {
    device: Arc<dyn DeviceService>,
    socket: TcpListener,
    address: SocketAddr,
    gate: Gate,
}

/// The checks that every connection passes.
#[derive(Clone)]
struct Gate {
    acceptor: Option<TlsAcceptor>,
    /// None if the system identifies the peer.
    token: Option<Token>,
    cap: Option<Arc<RateCap>>,
    log: Log,
    /// Bytes of executes that wait to be admitted.
    executing: Arc<Semaphore>,
    /// The lock tables of hosts on this machine.
    tables: Arc<HandedTables>,
}

/// What a connection has, once its peer was let in.
struct Granted<'a> {
    /// The counters of its bytes.
    bytes: &'a ByteCounters,
    /// Bytes of executes that wait to be admitted, of all connections of hosts; None: they count among the commands of
    /// the connection.
    executing: Option<&'a Arc<Semaphore>>,
    /// The lock table that its host shares with this process.
    table: Option<Arc<DeviceLocks>>,
}

/// Who was let in.
struct Guest {
    /// The device, or what another device may have of it.
    device: Arc<dyn DeviceService>,
    is_host: bool,
}

/// Places for those who were let in.
#[derive(Clone)]
struct Places {
    hosts: Arc<Semaphore>,
    devices: Arc<Semaphore>,
}

impl Places {
    fn new() -> Self {
        let places = || Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { hosts: places(), devices: places() }
    }

    /// A place for `guest`; an error for the log and for it.
    fn admit(self, guest: &Guest) -> Result<OwnedSemaphorePermit, String> {
        let (places, whose) = match guest.is_host {
            true => (self.hosts, ""),
            false => (self.devices, " of other devices"),
        };
        let place = places.try_acquire_owned();
        place.map_err(|_| format!("{CONNECTIONS_MAX} connections{whose} are open"))
    }
}

/// For executes of all connections of one listener.
fn executing() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(BYTES_UNDER_WAY_MAX as usize))
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.address)
    }
}

impl Listener {
    /// Binds the socket. Nothing is accepted before [`Listener::serve`].
    pub async fn bind(
        device: Arc<dyn DeviceService>,
        options: ListenOptions,
    ) -> Result<Self, ServeError> {
        let address = options.address;
        if options.identity.is_none() && !address.ip().is_loopback() {
            return Err(ServeError::Unprotected { address });
        }
        let acceptor = match &options.identity {
            Some(identity) => Some(TlsAcceptor::from(identity.server_config()?)),
            None => None,
        };
        let failed = |source| ServeError::Bind { address, source };
        let socket = listen(address).map_err(failed)?;
        Ok(Self {
            device,
            address: socket.local_addr().map_err(failed)?,
            socket,
            gate: Gate {
                acceptor,
                token: Some(options.token),
                cap: options.rate_cap.map(RateCap::new),
                log: options.log,
                executing: executing(),
                tables: Arc::default(),
            },
        })
    }

    /// The address, with the port that was taken.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until dropped, which closes all connections.
    pub async fn serve(self) {
        serve_all(self.device, self.gate, self.socket).await;
    }
}

/// Listens with the longest queue that the system allows: if it is full, a host's connection is dropped silently.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server needs it while its old connections wait for their end.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG_MAX)
}

/// A way in for peers.
trait Entrance {
    /// A peer before its handshake.
    type Stranger: Send + 'static;

    /// The next peer, its origin, and its name for the log. Cancel-safe.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stranger, Origin, String)>> + Send;

    /// Serves one; the error is for the log.
    fn serve(
        device: Arc<dyn DeviceService>,
        gate: Gate,
        entry: Entry,
        stranger: Self::Stranger,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// Serves all peers of `entrance` until dropped.
async fn serve_all<E: Entrance>(device: Arc<dyn DeviceService>, gate: Gate, entrance: E) {
    let strangers = Strangers::default();
    let places = Places::new();
    let mut connections = JoinSet::new();
    let mut turned_away = TurnedAwayLog::default();
    loop {
        let accepted = tokio::select! {
            accepted = entrance.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stranger, origin, name) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: others have to close first.
                (gate.log)(&format!("cannot accept a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let wait = strangers.wait_for(origin);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let (door, away, made_room) = strangers.admit(origin);
        let entry = Entry { door, places: places.clone() };
        let (device, own_gate) = (Arc::clone(&device), gate.clone());
        connections.spawn(async move {
            let log = Arc::clone(&own_gate.log);
            let ended = tokio::select! {
                ended = E::serve(device, own_gate, entry, stranger) => ended,
                () = away.told() => Ok(()),
            };
            if let Err(why) = ended {
                log(&format!("{name}: {why}"));
            }
        });
        if made_room {
            turned_away.count(&gate.log);
        }
    }
}

/// Reports connections that were closed to make room, many at once.
#[derive(Default)]
struct TurnedAwayLog {
    count: u64,
    told: Option<Stopwatch>,
}

impl TurnedAwayLog {
    fn count(&mut self, log: &Log) {
        self.count += 1;
        if self.told.as_ref().is_some_and(|told| told.elapsed() < TURNED_AWAY_EVERY) {
            return;
        }
        let count = std::mem::take(&mut self.count);
        self.told = Some(Stopwatch::start());
        log(&format!(
            "turned away {count} connections that had not shown the token, to make room for others"
        ));
    }
}

/// How a peer comes in: through one of the few places for strangers.
struct Entry {
    /// Held until the token was shown.
    door: Place,
    places: Places,
}

impl Entrance for TcpListener {
    type Stranger = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Origin, String)> {
        let (socket, peer) = TcpListener::accept(self).await?;
        Ok((socket, origin_of(peer.ip()), peer.to_string()))
    }

    async fn serve(
        device: Arc<dyn DeviceService>,
        gate: Gate,
        entry: Entry,
        socket: TcpStream,
    ) -> Result<(), String> {
        socket.set_nodelay(true).map_err(|error| error.to_string())?;
        let bytes = Arc::clone(&entry.door.bytes);
        let mut socket = Metered::new(socket, Arc::clone(&bytes), gate.cap.clone());
        let since = Stopwatch::start();
        let granted = Granted { bytes: &bytes, executing: Some(&gate.executing), table: None };
        match &gate.acceptor {
            None => {
                let guest = greet(device, &gate, &since, &mut socket).await?;
                serve_greeted(guest, entry, granted, socket).await
            }
            Some(acceptor) => {
                let mut socket = timeout(GREETING_LIMIT, acceptor.accept(socket))
                    .await
                    .map_err(|_| "no TLS handshake in time".to_owned())?
                    .map_err(|error| format!("no TLS: {error}"))?;
                let guest = greet(device, &gate, &since, &mut socket).await?;
                serve_greeted(guest, entry, granted, socket).await
            }
        }
    }
}

/// Reads the hello and answers it. An error if the peer may not continue.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    device: Arc<dyn DeviceService>,
    gate: &Gate,
    since: &Stopwatch,
    socket: &mut S,
) -> Result<Guest, String> {
    let (mut peer, mut shows_grant) = (None, false);
    let greeting = async {
        let is_known = |shown: &[u8]| match &gate.token {
            Some(token) if !token.matches(shown) => {
                shows_grant = shown_grant(shown).is_some();
                peer = Arc::clone(&device).peer(shown);
                peer.is_some()
            }
            _ => true,
        };
        let hello = read_hello_of(socket, is_known).await?;
        write_welcome(socket, hello.status()).await?;
        Ok::<_, WireError>(hello)
    };
    let hello = timeout(GREETING_LIMIT.saturating_sub(since.elapsed()), greeting)
        .await
        .map_err(|_| "no token in time".to_owned())?
        .map_err(|error| format!("no hello: {error}"))?;
    if hello == Hello::Accepted {
        let is_host = peer.is_none();
        return Ok(Guest { device: peer.unwrap_or(device), is_host });
    }
    // Lets the peer read the answer before the connection is reset while it still sends.
    let _closing = timeout(Duration::from_secs(1), socket.shutdown()).await;
    Err(match hello {
        Hello::WrongToken if shows_grant => {
            "refused: a grant that is over, or none of this device".to_owned()
        }
        Hello::WrongToken => "refused: wrong token".to_owned(),
        Hello::OtherVersion { version } => format!("refused: protocol version {version}"),
        _ => "refused: it does not speak this protocol".to_owned(),
    })
}

/// Serves an authenticated peer; the error is for the log.
async fn serve_greeted<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    guest: Guest,
    entry: Entry,
    granted: Granted<'_>,
    mut socket: S,
) -> Result<(), String> {
    let _place = match entry.places.admit(&guest) {
        Ok(place) => place,
        Err(why) => {
            let goodbye = DeviceError::new(DeviceErrorCause::Refused, why.clone());
            let goodbye = encode_error(FrameKind::Goodbye, 0, &goodbye);
            let saying = async {
                write_frame(&mut socket, &goodbye).await?;
                socket.shutdown().await?;
                Ok::<_, WireError>(())
            };
            let _said = timeout(Duration::from_secs(1), saying).await;
            return Err(format!("refused: {why}"));
        }
    };
    drop(entry.door);
    let Guest { device, is_host } = guest;
    // What other devices ask for must not keep a host's runs out.
    let executing = granted.executing.filter(|_| is_host);
    let granted = Granted { executing, ..granted };
    let (reader, writer) = tokio::io::split(socket);
    let (outbound, frames) = mpsc::unbounded_channel();
    let mut writing = JoinSet::new();
    writing.spawn(write_frames(frames, writer));
    let over = async {
        device.until_over().await;
        tokio::time::sleep(OVER_LIMIT).await;
    };
    let ended = tokio::select! {
        ended = read_frames(Arc::clone(&device), reader, granted, &outbound) => ended,
        () = over => Ok(()),
        // A peer that cannot be answered need not be read.
        Some(written) = writing.join_next() => written.unwrap_or(Ok(())),
    };
    if let Err(error) = &ended {
        let goodbye = DeviceError::new(DeviceErrorCause::Refused, format!("it received {error}"));
        outbound
            .send(Outbound::free(encode_error(FrameKind::Goodbye, 0, &goodbye)))
            .unwrap_or_default();
    }
    // The writer ends when everything is written, unless the peer does not read.
    drop(outbound);
    let _flushed = timeout(Duration::from_secs(1), writing.join_next()).await;
    match ended {
        Err(WireError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
            Err(format!("closed: nothing came for {} s", SILENCE_LIMIT.as_secs()))
        }
        // A host that disconnects is not an error.
        Ok(()) | Err(WireError::Io(_)) => Ok(()),
        Err(error) => Err(format!("closed: it sent {error}")),
    }
}

#[derive(Debug)]
struct Outbound {
    frame: Frame,
    // Released when the frame is written.
    _permit: Option<OwnedSemaphorePermit>,
    /// For a slot: the counter of its run's slots, and its value with this one.
    sent: Option<(SentSlots, u64)>,
}

impl Outbound {
    fn free(frame: Frame) -> Self {
        Self::with(None, frame)
    }

    fn with(permit: Option<OwnedSemaphorePermit>, frame: Frame) -> Self {
        Self { frame, _permit: permit, sent: None }
    }
}

/// Slots of one output of a run that were given to the socket, including those before the first one requested.
type SentSlots = Arc<AtomicU64>;

/// The counts of a connection's runs. A host cannot have consumed what was not sent: without this check, one that
/// claims so would have all slots made and kept for it in memory.
#[derive(Debug, Clone, Default)]
struct SentByRun(Arc<Mutex<BTreeMap<(RunKey, u32), SentSlots>>>);

impl SentByRun {
    /// Begins to count for an output of a run, which continues with slot `first`.
    fn begin(&self, output: (RunKey, u32), first: u64) -> SentSlots {
        let sent = Arc::new(AtomicU64::new(first));
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Counts of ended runs have no other holder.
        counts.retain(|_, sent| Arc::strong_count(sent) > 1);
        counts.insert(output, Arc::clone(&sent));
        sent
    }

    /// `command` with its consumed count limited to the slots sent.
    fn believe(&self, mut command: Command) -> Command {
        if let Request::Fetch { consumed, output } = &mut command.request {
            let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let sent = counts.get(&(command.header.run_key(), *output));
            let sent = sent.map_or(0, |sent| sent.load(Ordering::Relaxed));
            // The largest number closes an output, and says nothing of a run whose rows the host gets.
            if *consumed < u64::MAX {
                *consumed = sent.min(*consumed);
            }
        }
        command
    }
}

async fn write_frames<W: AsyncWrite + Unpin>(
    mut frames: mpsc::UnboundedReceiver<Outbound>,
    writer: W,
) -> Result<(), WireError> {
    let mut writer = BufWriter::with_capacity(64 << 10, writer);
    while let Some(outbound) = frames.recv().await {
        // Before it is written: the host may have consumed it before this thread goes on.
        if let Some((sent, count)) = &outbound.sent {
            sent.fetch_max(*count, Ordering::Relaxed);
        }
        write_frame(&mut writer, &outbound.frame).await?;
        if frames.is_empty() {
            writer.flush().await?;
        }
    }
    writer.shutdown().await?;
    Ok(())
}

/// Reads the next frame, or fails if nothing of it came for `limit`. `received` counts the peer's bytes: a frame may
/// take its time as long as bytes arrive.
async fn read_frame_within<R: AsyncRead + Unpin>(
    reader: &mut R,
    received: &AtomicU64,
    limit: Duration,
) -> Result<Option<Frame>, WireError> {
    let mut reading = std::pin::pin!(read_frame(reader));
    loop {
        let before = received.load(Ordering::Relaxed);
        match timeout(limit, reading.as_mut()).await {
            Ok(read) => return read,
            Err(_) if received.load(Ordering::Relaxed) == before => {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            Err(_) => {}
        }
    }
}

/// Reads commands until the peer disconnects or errs. Its tasks end with it, and release their runs.
async fn read_frames<R: AsyncRead + Unpin>(
    device: Arc<dyn DeviceService>,
    reader: R,
    granted: Granted<'_>,
    outbound: &mpsc::UnboundedSender<Outbound>,
) -> Result<(), WireError> {
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let Granted { bytes, executing, table } = granted;
    let under_way = Arc::new(Semaphore::new(BYTES_UNDER_WAY_MAX as usize));
    let executing = executing.unwrap_or(&under_way);
    let remarks = Arc::new(Semaphore::new(REMARKS_MAX));
    let sent = SentByRun::default();
    let mut tasks = JoinSet::new();
    // Executes that the device has not answered yet: a release that overtook one would find no run.
    let mut starting: BTreeMap<RunKey, oneshot::Receiver<()>> = BTreeMap::new();
    loop {
        // Not in a select: reading is not cancel-safe. Ended tasks are collected as they come.
        let next = read_frame_within(&mut reader, &bytes.received, SILENCE_LIMIT).await?;
        let Some(frame) = next else { return Ok(()) };
        while tasks.try_join_next().is_some() {}
        let request = frame.request;
        let (device, outbound) = (Arc::clone(&device), outbound.clone());
        let refused = match frame.kind {
            FrameKind::Ping => {
                let permit = Arc::clone(&remarks).acquire_owned().await.ok();
                let pong = Frame::of_head(FrameKind::Pong, request, Vec::new());
                outbound.send(Outbound::with(permit, pong)).unwrap_or_default();
                continue;
            }
            FrameKind::Command if request == 0 => match decode_steering(frame) {
                Ok(command) => {
                    let command = sent.believe(command);
                    device.steer(command.clone());
                    if matches!(command.request, Request::Release)
                        && let Some(mut started) = starting.remove(&command.header.run_key())
                        && started.try_recv() == Err(TryRecvError::Empty)
                    {
                        tasks.spawn(async move {
                            // Either way it is answered when the sender is gone.
                            let _answered = started.await;
                            device.steer(command);
                        });
                    }
                    continue;
                }
                Err(error) => error,
            },
            FrameKind::Command => match command_of(frame, &under_way).await {
                Ok((command, permit)) => {
                    let command = sent.believe(command);
                    tasks.spawn(async move {
                        let frame = answer(device, request, command).await;
                        outbound.send(Outbound::with(permit, frame)).unwrap_or_default();
                    });
                    continue;
                }
                Err(error) => error,
            },
            // Separate from the commands: executes wait for memory that only a command may free.
            FrameKind::Execute => match execute_of(frame, executing) {
                Ok((execute, permit)) => {
                    let (answered, started) = oneshot::channel();
                    starting.retain(|_, started| started.try_recv() == Err(TryRecvError::Empty));
                    starting.insert(execute.header.run_key(), started);
                    let (sent, table) = (sent.clone(), table.clone());
                    let run = Starting { permit, answered, sent, table };
                    tasks.spawn(serve_run(device, request, execute, run, outbound));
                    continue;
                }
                Err(error) => error,
            },
            // Frames that only devices send.
            _ => return Err(WireError::Direction),
        };
        let permit = Arc::clone(&remarks).acquire_owned().await.ok();
        let complaint = encode_error(FrameKind::Error, request, &refused);
        outbound.send(Outbound::with(permit, complaint)).unwrap_or_default();
    }
}

fn malformed(error: &MalformedMessage) -> DeviceError {
    DeviceError::new(DeviceErrorCause::Refused, error.to_string())
}

/// A command without an answer: one that controls a run is short.
fn decode_steering(frame: Frame) -> Result<Command, DeviceError> {
    if frame.head.len() > STEERING_BYTES_MAX {
        let message = format!("a command of {} bytes that nobody waits for", frame.head.len());
        return Err(DeviceError::new(DeviceErrorCause::Refused, message));
    }
    decode_command(frame).map_err(|error| malformed(&error))
}

/// The command in `frame`, once there is memory for it and for its answer.
async fn command_of(
    frame: Frame,
    under_way: &Arc<Semaphore>,
) -> Result<(Command, Option<OwnedSemaphorePermit>), DeviceError> {
    let weight = weight_of(&frame)?;
    let mut permit = Arc::clone(under_way).acquire_many_owned(weight).await.ok();
    let command = decode_command(frame).map_err(|error| malformed(&error))?;
    let more = answer_weight(&command).saturating_sub(weight);
    if more > 0
        && let Some(more) = Arc::clone(under_way).acquire_many_owned(more).await.ok()
        && let Some(permit) = &mut permit
    {
        permit.merge(more);
    }
    Ok((command, permit))
}

/// The execute in `frame`, if there is memory for it now: later commands may be needed to free it.
fn execute_of(
    frame: Frame,
    executing: &Arc<Semaphore>,
) -> Result<(Execute, Option<OwnedSemaphorePermit>), DeviceError> {
    let weight = weight_of(&frame)?;
    let permit = Arc::clone(executing).try_acquire_many_owned(weight).map_err(|_| {
        let message = "too many large executes wait to be admitted";
        DeviceError::new(DeviceErrorCause::OutOfMemory, message)
    })?;
    let execute = decode_execute(frame).map_err(|error| malformed(&error))?;
    Ok((execute, Some(permit)))
}

/// Approximate bytes that the request of `frame` keeps in memory until it is answered, computed before it is decoded.
fn weight_of(frame: &Frame) -> Result<u32, DeviceError> {
    let parts = frame.parts.iter().map(|part| part.bytes.len() as u64).sum::<u64>();
    let decoded = match frame.kind {
        FrameKind::Execute => execute_bytes(&frame.head),
        _ => command_bytes(&frame.head),
    };
    let bytes = (parts + frame.head.len() as u64).saturating_add(decoded);
    if bytes > u64::from(BYTES_UNDER_WAY_MAX) {
        let message = format!(
            "a message of {} bytes would take {bytes} in memory, and {BYTES_UNDER_WAY_MAX} are allowed",
            frame.head.len()
        );
        return Err(DeviceError::new(DeviceErrorCause::Refused, message));
    }
    Ok(weight(bytes))
}

/// Approximate bytes that the answer to `command` keeps in memory until it is written.
fn answer_weight(command: &Command) -> u32 {
    let Request::Read(items) = &command.request else { return COMMAND_BYTES };
    let bytes = items.iter().map(ReadItem::byte_count);
    weight(bytes.fold(0, u64::saturating_add))
}

fn weight(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).clamp(COMMAND_BYTES, BYTES_UNDER_WAY_MAX)
}

/// `frame`, or an error in its place if it is too long: a frame that cannot be written would end the connection for all
/// that share it.
fn fitting(frame: Frame) -> Frame {
    match frame.length() {
        Ok(_) => frame,
        Err(error) => encode_error(FrameKind::Error, frame.request, &too_long(&error)),
    }
}

fn too_long(error: &WireError) -> DeviceError {
    DeviceError::new(DeviceErrorCause::Refused, format!("its answer would be {error}"))
}

/// Serves one command. A panic in the device becomes an error reply to this command only.
async fn answer(device: Arc<dyn DeviceService>, request: u64, command: Command) -> Frame {
    let serving = std::panic::AssertUnwindSafe(device.call(command)).catch_unwind();
    match serving.await {
        Ok(Ok(reply)) => fitting(encode_reply(request, reply)),
        Ok(Err(error)) => encode_error(FrameKind::Error, request, &error),
        Err(_panic) => encode_error(FrameKind::Error, request, &internal()),
    }
}

fn internal() -> DeviceError {
    DeviceError::new(DeviceErrorCause::Io, "the device failed internally; its log says how")
}

/// The state of a run until it is accepted or refused.
struct Starting {
    /// For the memory of its execute.
    permit: Option<OwnedSemaphorePermit>,
    /// Gone when the execute is answered.
    answered: oneshot::Sender<()>,
    sent: SentByRun,
    /// The lock table that its host shares with this process.
    table: Option<Arc<DeviceLocks>>,
}

/// Starts a run and sends its slots until it ends.
async fn serve_run(
    device: Arc<dyn DeviceService>,
    request: u64,
    execute: Execute,
    starting: Starting,
    outbound: mpsc::UnboundedSender<Outbound>,
) {
    let (header, first_slot) = (execute.header, execute.first_slot);
    let output = (header.run_key(), execute.output);
    let begins = !execute.attaches;
    let Starting { permit, answered, sent, table } = starting;
    let (slots, mut events) = SlotSender::channel(SlotForm::Encoded);
    let slots = slots.sharing(table.as_ref());
    let executing = std::panic::AssertUnwindSafe(device.execute(execute, slots)).catch_unwind();
    let accepted = executing.await.unwrap_or_else(|_panic| Err(internal()));
    let accepted = accepted.and_then(|schema| {
        let said = accepted_frame(request, &schema);
        if said.is_err() && begins {
            device.steer(Command::new(header, Request::Release));
        }
        said
    });
    let accepted = match accepted {
        Ok(frame) => frame,
        Err(error) => {
            let refusal = encode_error(FrameKind::Error, request, &error);
            outbound.send(Outbound::with(permit, refusal)).unwrap_or_default();
            return;
        }
    };
    let sent = sent.begin(output, first_slot);
    drop(answered);
    if outbound.send(Outbound::with(permit, accepted)).is_err() {
        return;
    }
    while let Some(event) = events.recv().await {
        let (frame, count, is_last) = match event {
            RunEvent::Slot(slot) => {
                let count = slot.number.saturating_add(1);
                (encode_slot(request, slot), Some(count), false)
            }
            RunEvent::Finished(report) => (Some(encode_report(request, *report)), None, true),
            RunEvent::Failed(error) => {
                (Some(encode_error(FrameKind::Error, request, &error)), None, true)
            }
            RunEvent::Locks(call) => {
                (Some(Frame::of_head(FrameKind::Locks, request, call.encode())), None, false)
            }
            RunEvent::Full(need) => (Some(encode_need(request, need)), None, false),
            RunEvent::Lost(_) => (None, None, true),
        };
        if let Some(frame) = frame.map(fitting) {
            let sent = count.map(|count| (Arc::clone(&sent), count));
            if outbound.send(Outbound { sent, ..Outbound::free(frame) }).is_err() {
                return;
            }
        }
        if is_last {
            return;
        }
    }
    let error = DeviceError::new(DeviceErrorCause::Cancelled, "the device let go of the run");
    outbound
        .send(Outbound::free(encode_error(FrameKind::Error, request, &error)))
        .unwrap_or_default();
}

/// Tells that a run was accepted, with the `schema` of its rows.
fn accepted_frame(request: u64, schema: &Schema) -> Result<Frame, DeviceError> {
    let schema = encode_schema(schema)
        .map_err(|error| DeviceError::new(DeviceErrorCause::Execution, error.to_string()))?;
    let frame = Frame::of_head(FrameKind::Accepted, request, schema);
    frame.length().map_err(|error| too_long(&error))?;
    Ok(frame)
}

#[cfg(test)]
mod tests;
