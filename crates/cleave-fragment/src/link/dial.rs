//! Connects to a device: TCP, or a Unix socket and shared memory; then the same handshake.
//!
//! ```text
//! Way::Tcp ───▶ TcpStream, counted ─▶ TLS ─▶ hello, welcome ─────────────────▶ Connection
//! Way::Local ─▶ UnixStream ─▶ check its user ─▶ hello, welcome ─▶ lock table ─▶ LocalStream, counted ─▶ Connection
//! ```
//!
//! Invariant: a token is sent over TLS or to this machine only. Over shared memory it is not sent at all: there the
//! system identifies the other side.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cleave_shmem::HostLocks;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::connection::Connection;
use super::handed_table::hand_over;
use super::link::{AttachMode, LinkError};
use super::local::address_of;
use super::local_stream::{LocalStream, foreign_user};
use super::metered::{ByteCounters, Metered};
use super::remote::RemoteAddress;
use super::tls::Token;
use super::token_bucket::RateCap;
use crate::command::wire::{PROTOCOL_VERSION, WelcomeStatus, read_welcome, write_hello};

/// The time limit of a handshake, outside tests.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// The interval of connection checks, outside tests. A device gives up a host that is silent for a minute, so an idle
/// connection sends more often than that.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// How to connect to a device.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    pub(crate) way: Way,
    pub(crate) cap: Option<Arc<RateCap>>,
    pub(crate) bytes: Arc<ByteCounters>,
    /// Time limit for accepting a connection, and then for the handshake.
    pub(crate) handshake_limit: Duration,
    pub(crate) watch_interval: Duration,
}

/// The transport to a device.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// On any machine.
    Tcp { address: RemoteAddress, token: Token, tls: Option<Arc<ClientConfig>> },
    /// On this machine.
    Local {
        socket: PathBuf,
        /// The lock table that the device's process is offered.
        table: Option<Arc<HostLocks>>,
    },
}

impl Dial {
    /// Connects over `way`, limited to `rate_cap` bytes a second in each direction.
    pub(crate) fn new(way: Way, rate_cap: Option<u64>) -> Self {
        Self {
            way,
            cap: rate_cap.map(RateCap::new),
            bytes: Arc::default(),
            handshake_limit: HANDSHAKE_LIMIT,
            watch_interval: WATCH_INTERVAL,
        }
    }

    /// The device's address, for display.
    pub(crate) fn address(&self) -> String {
        match &self.way {
            Way::Tcp { address, .. } => address.to_string(),
            Way::Local { socket, .. } => address_of(socket),
        }
    }

    /// The kind of link this makes.
    pub(crate) fn mode(&self) -> AttachMode {
        match &self.way {
            Way::Tcp { .. } => AttachMode::Remote,
            Way::Local { .. } => AttachMode::Local,
        }
    }

    /// The lock table that the device's process is offered.
    pub(crate) fn table(&self) -> Option<&Arc<HostLocks>> {
        match &self.way {
            Way::Tcp { .. } => None,
            Way::Local { table, .. } => table.as_ref(),
        }
    }

    /// Connects, shakes hands and starts the connection's tasks on the current runtime.
    pub(crate) async fn open(&self) -> Result<Arc<Connection>, LinkError> {
        match &self.way {
            Way::Tcp { address, token, tls } => self.open_tcp(address, token, tls.clone()).await,
            Way::Local { socket, table } => {
                let socket = self.connect(UnixStream::connect(socket)).await?;
                self.within_limit(self.open_local(socket, table.as_deref())).await
            }
        }
    }

    async fn connect<S>(
        &self,
        connecting: impl Future<Output = io::Result<S>>,
    ) -> Result<S, LinkError> {
        timeout(self.handshake_limit, connecting)
            .await
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
            .map_err(|source| LinkError::Connect { address: self.address(), source })
    }

    async fn within_limit(
        &self,
        handshake: impl Future<Output = Result<Arc<Connection>, LinkError>>,
    ) -> Result<Arc<Connection>, LinkError> {
        let (address, seconds) = (self.address(), self.handshake_limit.as_secs());
        timeout(self.handshake_limit, handshake)
            .await
            .unwrap_or(Err(LinkError::HandshakeTimeout { address, seconds }))
    }

    async fn open_tcp(
        &self,
        address: &RemoteAddress,
        token: &Token,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Arc<Connection>, LinkError> {
        let connecting = async {
            let socket = TcpStream::connect((address.host.as_str(), address.port)).await?;
            socket.set_nodelay(true)?;
            Ok(socket)
        };
        let socket = self.connect(connecting).await?;
        if tls.is_none() && !socket.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()) {
            return Err(LinkError::Tls {
                address: self.address(),
                detail: "the token is sent in clear to this machine only; pin the device's \
                         certificate"
                    .to_owned(),
            });
        }
        let mut socket = Metered::new(socket, Arc::clone(&self.bytes), self.cap.clone());
        let handshake = async {
            match tls {
                None => {
                    self.greet(&mut socket, Some(token)).await?;
                    Ok(self.start(socket, false))
                }
                Some(config) => {
                    let mut socket = self.secure(&address.host, config, socket).await?;
                    self.greet(&mut socket, Some(token)).await?;
                    Ok(self.start(socket, false))
                }
            }
        };
        self.within_limit(handshake).await
    }

    async fn open_local(
        &self,
        mut socket: UnixStream,
        table: Option<&HostLocks>,
    ) -> Result<Arc<Connection>, LinkError> {
        if let Some(user) = foreign_user(&socket) {
            return Err(LinkError::ForeignProcess { address: self.address(), user });
        }
        self.greet(&mut socket, None).await?;
        let handed =
            hand_over(&mut socket, table).await.map_err(|error| LinkError::NotADevice {
                address: self.address(),
                detail: format!("it did not answer the offer of the lock table: {error}"),
            })?;
        let stream = LocalStream::accept(socket).await.map_err(|error| LinkError::NotADevice {
            address: self.address(),
            detail: format!("the shared memory that it offered cannot be used: {error}"),
        })?;
        let stream = Metered::new(stream, Arc::clone(&self.bytes), self.cap.clone());
        Ok(self.start(stream, handed))
    }

    fn start<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        &self,
        socket: S,
        has_table: bool,
    ) -> Arc<Connection> {
        let bytes = Arc::clone(&self.bytes);
        Connection::start(self.address(), bytes, self.watch_interval, socket, has_table)
    }

    async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: &mut S,
        token: Option<&Token>,
    ) -> Result<(), LinkError> {
        let address = self.address();
        // A device that refuses may close before all was read; its answer counts.
        let written = write_hello(socket, token).await;
        let answer = read_welcome(socket).await;
        let welcome = match (written, answer) {
            (_, Ok(Ok(welcome))) => welcome,
            (_, Ok(Err(start))) => return Err(self.no_welcome(&start)),
            (Err(error), _) | (_, Err(error)) => {
                let detail = format!("the handshake broke off: {error}");
                return Err(LinkError::NotADevice { address, detail });
            }
        };
        if welcome.version != PROTOCOL_VERSION {
            let (ours, theirs) = (PROTOCOL_VERSION, welcome.version);
            return Err(LinkError::Version { address, ours, theirs });
        }
        match welcome.status {
            Some(WelcomeStatus::Welcome) => Ok(()),
            Some(WelcomeStatus::WrongToken) => Err(LinkError::Unauthenticated { address }),
            other => Err(LinkError::NotADevice {
                address,
                detail: format!("it answered the handshake with {other:?}"),
            }),
        }
    }

    async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        config: Arc<ClientConfig>,
        socket: S,
    ) -> Result<tokio_rustls::client::TlsStream<S>, LinkError> {
        let failed = |detail: String| LinkError::Tls { address: self.address(), detail };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| failed(format!("{host} is no host name")))?;
        TlsConnector::from(config).connect(name, socket).await.map_err(|error| {
            let cause = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
            match cause {
                Some(rustls::Error::InvalidCertificate(why)) => {
                    LinkError::Certificate { address: self.address(), detail: why.to_string() }
                }
                Some(rustls::Error::InvalidMessage(_)) => failed(
                    "what answers there does not speak TLS; start cleaved with --tls-cert and --tls-key"
                        .to_owned(),
                ),
                _ => failed(error.to_string()),
            }
        })
    }

    fn no_welcome(&self, start: &[u8]) -> LinkError {
        const TLS_ALERT: [u8; 2] = [21, 3];
        let address = self.address();
        let without_tls = matches!(&self.way, Way::Tcp { tls: None, .. });
        if without_tls && start.starts_with(&TLS_ALERT) {
            let detail = "it speaks TLS; pin its certificate".to_owned();
            return LinkError::Tls { address, detail };
        }
        let detail = match start {
            [] => "it closed the connection during the handshake".to_owned(),
            _ => format!("it answered the handshake with \"{}\"", start.escape_ascii()),
        };
        LinkError::NotADevice { address, detail }
    }
}
