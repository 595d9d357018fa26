//! A device on a socket: connections in, commands and runs served side by side.
//!
//! ```text
//! listener ─▶ TLS ─▶ hello, token ─▶ reader ─ one task a command ─▶ writer
//!                                       └──── one task a run ─ slots ─▶ ┘
//! ```
//!
//! Invariants: nothing is read of a peer before it has shown the token, except the token. What a peer
//! does wrong costs it its own connection, with a word of why where it can still be said, and nobody
//! else's. Off this machine there is no listener without TLS ([`Listener::bind`]).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::proto::answer::{
    encode_error, encode_reply, encode_report, encode_slot,
};
use cleave_fragment::command::proto::{MalformedMessage, decode_command, decode_execute};
use cleave_fragment::command::slot::encode_schema;
use cleave_fragment::command::wire::{
    Frame, FrameKind, Hello, WireError, read_frame, read_hello, write_frame, write_welcome,
};
use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, Execute, ReadItem, Request,
};
use cleave_fragment::link::metered::Metered;
use cleave_fragment::link::token_bucket::RateCap;
use cleave_fragment::link::{
    DeviceIdentity, DeviceService, SlotForm, SlotSender, TlsFileError, Token,
};
use futures::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How long a peer may take to show its token.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Connections at once.
const CONNECTIONS_MAX: usize = 256;
/// Bytes that the commands of one connection may have under way, as far as can be told beforehand.
const BYTES_UNDER_WAY_MAX: u32 = 64 << 20;
/// What a command counts for at least.
const COMMAND_BYTES: u32 = 64 << 10;

/// Where and how to listen.
#[derive(Clone)]
pub struct ListenOptions {
    /// Address; port 0 takes a free one.
    pub address: SocketAddr,
    /// Certificate and key; without them only this machine may connect.
    pub identity: Option<Arc<DeviceIdentity>>,
    /// What a host must show, TLS or not.
    pub token: Token,
    /// Bytes a second in each direction, all connections together.
    pub rate_cap: Option<u64>,
    /// Told of what an operator should know: refused peers, broken connections.
    pub log: Log,
}

/// Where a device says what an operator should know.
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

/// Why there is no listener.
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
    /// The certificate or key cannot be used.
    #[error(transparent)]
    Credentials(#[from] TlsFileError),
    /// The system gave no socket.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A socket that listens, and the device behind it.
pub struct Listener {
    device: Arc<dyn DeviceService>,
    socket: TcpListener,
    address: SocketAddr,
    gate: Gate,
}

/// What every connection passes.
#[derive(Clone)]
struct Gate {
    acceptor: Option<TlsAcceptor>,
    token: Token,
    cap: Option<Arc<RateCap>>,
    log: Log,
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
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Self {
            device,
            address: socket.local_addr().map_err(failed)?,
            socket,
            gate: Gate {
                acceptor,
                token: options.token,
                cap: options.rate_cap.map(RateCap::new),
                log: options.log,
            },
        })
    }

    /// The address, with the port that was taken.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until dropped, which closes all connections.
    pub async fn serve(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: others have to close first.
                    (self.gate.log)(&format!("cannot accept a connection: {error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                (self.gate.log)(&format!("{peer} refused: {CONNECTIONS_MAX} connections are open"));
                continue;
            };
            let (device, gate) = (Arc::clone(&self.device), self.gate.clone());
            connections.spawn(async move {
                let _place = place;
                if let Err(why) = serve_connection(device, &gate, socket).await {
                    (gate.log)(&format!("{peer}: {why}"));
                }
            });
        }
    }
}

/// Serves one connection; the error is for the log.
async fn serve_connection(
    device: Arc<dyn DeviceService>,
    gate: &Gate,
    socket: TcpStream,
) -> Result<(), String> {
    socket.set_nodelay(true).map_err(|error| error.to_string())?;
    let socket = Metered::new(socket, Arc::default(), gate.cap.clone());
    match &gate.acceptor {
        None => serve_socket(device, gate, socket).await,
        Some(acceptor) => {
            let socket = timeout(HANDSHAKE_LIMIT, acceptor.accept(socket))
                .await
                .map_err(|_| "no TLS handshake in time".to_owned())?
                .map_err(|error| format!("no TLS: {error}"))?;
            serve_socket(device, gate, socket).await
        }
    }
}

async fn serve_socket<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    device: Arc<dyn DeviceService>,
    gate: &Gate,
    mut socket: S,
) -> Result<(), String> {
    let greeting = async {
        let hello = read_hello(&mut socket, &gate.token).await?;
        write_welcome(&mut socket, hello.status()).await?;
        Ok::<_, WireError>(hello)
    };
    let hello = timeout(HANDSHAKE_LIMIT, greeting)
        .await
        .map_err(|_| "no token in time".to_owned())?
        .map_err(|error| format!("no hello: {error}"))?;
    if hello != Hello::Accepted {
        // Lets the peer read the answer before the connection is reset over what it still sends.
        let _closing = timeout(Duration::from_secs(1), socket.shutdown()).await;
        return Err(match hello {
            Hello::WrongToken => "refused: wrong token".to_owned(),
            Hello::OtherVersion { version } => format!("refused: protocol version {version}"),
            _ => "refused: it does not speak this protocol".to_owned(),
        });
    }
    let (reader, writer) = tokio::io::split(socket);
    let (outbound, frames) = mpsc::unbounded_channel();
    let mut writing = JoinSet::new();
    writing.spawn(write_frames(frames, writer));
    let ended = read_frames(device, reader, &outbound).await;
    if let Err(error) = &ended {
        let goodbye = DeviceError::new(DeviceErrorCause::Refused, format!("it received {error}"));
        outbound
            .send(Outbound::free(encode_error(FrameKind::Goodbye, 0, &goodbye)))
            .unwrap_or_default();
    }
    // The writer ends when all that was to be said is said, unless the peer does not listen.
    drop(outbound);
    let _flushed = timeout(Duration::from_secs(1), writing.join_next()).await;
    match ended {
        // A host that goes away is nothing to report.
        Ok(()) | Err(WireError::Io(_)) => Ok(()),
        Err(error) => Err(format!("closed: it sent {error}")),
    }
}

#[derive(Debug)]
struct Outbound {
    frame: Frame,
    // Returned when the frame is written.
    _bytes: Option<OwnedSemaphorePermit>,
}

impl Outbound {
    fn free(frame: Frame) -> Self {
        Self { frame, _bytes: None }
    }
}

async fn write_frames<W: AsyncWrite + Unpin>(
    mut frames: mpsc::UnboundedReceiver<Outbound>,
    writer: W,
) -> Result<(), WireError> {
    let mut writer = BufWriter::with_capacity(64 << 10, writer);
    while let Some(outbound) = frames.recv().await {
        write_frame(&mut writer, &outbound.frame).await?;
        if frames.is_empty() {
            writer.flush().await?;
        }
    }
    writer.shutdown().await?;
    Ok(())
}

/// Reads commands until the peer goes or errs. Its tasks end with it.
async fn read_frames<R: AsyncRead + Unpin>(
    device: Arc<dyn DeviceService>,
    reader: R,
    outbound: &mpsc::UnboundedSender<Outbound>,
) -> Result<(), WireError> {
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let under_way = Arc::new(Semaphore::new(BYTES_UNDER_WAY_MAX as usize));
    let mut tasks = JoinSet::new();
    // Executes that the device has not answered yet: a release that overtook one would find no run.
    let mut starting: BTreeMap<RunKey, oneshot::Receiver<()>> = BTreeMap::new();
    loop {
        // Not in a select: reading is not cancel-safe. Ended tasks are collected as they come.
        let Some(frame) = read_frame(&mut reader).await? else { return Ok(()) };
        while tasks.try_join_next().is_some() {}
        let request = frame.request;
        let (device, outbound) = (Arc::clone(&device), outbound.clone());
        match frame.kind {
            FrameKind::Ping => {
                let pong = Frame::of_head(FrameKind::Pong, request, Vec::new());
                outbound.send(Outbound::free(pong)).unwrap_or_default();
            }
            FrameKind::Command => match decode_command(frame) {
                Ok(command) if request == 0 => {
                    device.steer(command.clone());
                    if matches!(command.request, Request::Release)
                        && let Some(mut started) = starting.remove(&run_key(&command.header))
                        && started.try_recv() == Err(TryRecvError::Empty)
                    {
                        tasks.spawn(async move {
                            // Answered either way when the sender is gone.
                            let _answered = started.await;
                            device.steer(command);
                        });
                    }
                }
                Ok(command) => {
                    let weight = weight_of(&command);
                    let permit = Arc::clone(&under_way).acquire_many_owned(weight).await.ok();
                    tasks.spawn(async move {
                        let frame = answer(device, request, command).await;
                        outbound.send(Outbound { frame, _bytes: permit }).unwrap_or_default();
                    });
                }
                Err(error) => {
                    outbound.send(Outbound::free(malformed(request, &error))).unwrap_or_default();
                }
            },
            FrameKind::Execute => match decode_execute(frame) {
                Ok(execute) => {
                    let (answered, started) = oneshot::channel();
                    starting.retain(|_, started| started.try_recv() == Err(TryRecvError::Empty));
                    starting.insert(run_key(&execute.header), started);
                    tasks.spawn(serve_run(device, request, execute, answered, outbound));
                }
                Err(error) => {
                    outbound.send(Outbound::free(malformed(request, &error))).unwrap_or_default();
                }
            },
            // What only devices say.
            _ => return Err(WireError::Direction),
        }
    }
}

type RunKey = ([u8; 16], u64, u64);

fn run_key(header: &CommandHeader) -> RunKey {
    (header.database, header.epoch, header.run)
}

fn malformed(request: u64, error: &MalformedMessage) -> Frame {
    let error = DeviceError::new(DeviceErrorCause::Refused, error.to_string());
    encode_error(FrameKind::Error, request, &error)
}

/// About the bytes that `command` keeps in memory until it is answered.
fn weight_of(command: &Command) -> u32 {
    let bytes = match &command.request {
        Request::Read(items) => items
            .iter()
            .map(|item| match item {
                ReadItem::Blocks(extent) => extent.bytes() as u64,
                ReadItem::Columns { page, .. } => page.extent.bytes() as u64,
            })
            .fold(0, u64::saturating_add),
        Request::Write(items) => items.iter().map(|item| item.payload.bytes.len() as u64).sum(),
        _ => 0,
    };
    u32::try_from(bytes).unwrap_or(u32::MAX).clamp(COMMAND_BYTES, BYTES_UNDER_WAY_MAX)
}

/// Serves one command. A panic in the device is the answer to this command and nothing more.
async fn answer(device: Arc<dyn DeviceService>, request: u64, command: Command) -> Frame {
    let serving = std::panic::AssertUnwindSafe(device.call(command)).catch_unwind();
    match serving.await {
        Ok(Ok(reply)) => encode_reply(request, reply),
        Ok(Err(error)) => encode_error(FrameKind::Error, request, &error),
        Err(_panic) => encode_error(FrameKind::Error, request, &internal()),
    }
}

fn internal() -> DeviceError {
    DeviceError::new(DeviceErrorCause::Io, "the device failed internally; its log says how")
}

/// Starts a run and passes on what it makes until it ends.
async fn serve_run(
    device: Arc<dyn DeviceService>,
    request: u64,
    execute: Execute,
    answered: oneshot::Sender<()>,
    outbound: mpsc::UnboundedSender<Outbound>,
) {
    let (slots, mut events) = SlotSender::channel(SlotForm::Encoded);
    let starting = std::panic::AssertUnwindSafe(device.execute(execute, slots)).catch_unwind();
    let accepted = starting.await.unwrap_or_else(|_panic| Err(internal()));
    drop(answered);
    let first = match accepted {
        Ok(schema) => match encode_schema(&schema) {
            Ok(schema) => Frame::of_head(FrameKind::Accepted, request, schema),
            Err(error) => {
                let error = DeviceError::new(DeviceErrorCause::Execution, error.to_string());
                encode_error(FrameKind::Error, request, &error)
            }
        },
        Err(error) => encode_error(FrameKind::Error, request, &error),
    };
    if outbound.send(Outbound::free(first)).is_err() {
        return;
    }
    while let Some(event) = events.recv().await {
        let (frame, is_last) = match event {
            RunEvent::Slot(slot) => (encode_slot(request, slot), false),
            RunEvent::Finished(report) => (Some(encode_report(request, *report)), true),
            RunEvent::Failed(error) => {
                (Some(encode_error(FrameKind::Error, request, &error)), true)
            }
            RunEvent::Lost(_) => (None, true),
        };
        if let Some(frame) = frame
            && outbound.send(Outbound::free(frame)).is_err()
        {
            return;
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
