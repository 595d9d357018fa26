//! Serves hosts on the same machine: a Unix socket, and shared memory.
//!
//! The socket carries the handshake, hands over the host's lock table and the memory of the stream, and tells at once
//! when the other side is gone. Only its owner and root may connect: the file's mode is 0600, and the system is asked
//! for the peer's user.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_fragment::link::DeviceService;
use cleave_fragment::link::handed_table::{HandedTables, take_over};
use cleave_fragment::link::local_stream::{LocalStream, foreign_user};
use cleave_fragment::link::metered::{ByteCounters, Metered};
use cleave_fragment::link::token_bucket::RateCap;
use cleave_media::Stopwatch;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::{
    Entrance, Entry, GREETING_LIMIT, Gate, Granted, Log, Origin, ServeError, executing, greet,
    serve_all, serve_greeted,
};

/// Where and how to listen on this machine.
#[derive(Clone)]
pub struct LocalOptions {
    /// The Unix socket; a dead device's socket is replaced.
    pub socket: PathBuf,
    /// Bytes a second in each direction, all connections together.
    pub rate_cap: Option<u64>,
    /// Told of events that concern an operator.
    pub log: Log,
}

impl std::fmt::Debug for LocalOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalOptions")
            .field("socket", &self.socket)
            .field("rate_cap", &self.rate_cap)
            .finish_non_exhaustive()
    }
}

/// A listening Unix socket, and the device behind it.
pub struct LocalListener {
    device: Arc<dyn DeviceService>,
    socket: UnixListener,
    path: PathBuf,
    gate: Gate,
}

impl std::fmt::Debug for LocalListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalListener({})", self.path.display())
    }
}

impl LocalListener {
    /// Binds the socket. Nothing is accepted before [`LocalListener::serve`].
    ///
    /// # Errors
    /// [`ServeError::InUse`], [`ServeError::NotASocket`], [`ServeError::BindLocal`].
    pub async fn bind(
        device: Arc<dyn DeviceService>,
        options: LocalOptions,
    ) -> Result<Self, ServeError> {
        let path = options.socket;
        let failed = |source| ServeError::BindLocal { path: path.clone(), source };
        make_way(&path).await?;
        let socket = UnixListener::bind(&path).map_err(failed)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        let cap = options.rate_cap.map(RateCap::new);
        let gate = Gate {
            acceptor: None,
            token: None,
            cap,
            log: options.log,
            executing: executing(),
            tables: Arc::<HandedTables>::default(),
        };
        Ok(Self { device, socket, path, gate })
    }

    /// Serves until dropped, which closes all connections.
    pub async fn serve(self) {
        serve_all(self.device, self.gate, self.socket).await;
    }
}

/// Removes the socket that a dead device left at `path`.
async fn make_way(path: &Path) -> Result<(), ServeError> {
    let failed = |source| ServeError::BindLocal { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ServeError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        // A process that answers, or is too busy to, is alive.
        _ => Err(ServeError::InUse { path: path.to_owned() }),
    }
}

impl Entrance for UnixListener {
    type Stranger = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Origin, String)> {
        let (socket, _) = UnixListener::accept(self).await?;
        let process = socket.peer_cred().ok().and_then(|peer| peer.pid());
        let name = process.map_or_else(|| "a process".to_owned(), |id| format!("process {id}"));
        Ok((socket, None, name))
    }

    async fn serve(
        device: Arc<dyn DeviceService>,
        gate: Gate,
        entry: Entry,
        mut socket: UnixStream,
    ) -> Result<(), String> {
        if let Some(user) = foreign_user(&socket) {
            return Err(format!("refused: it is of user {user}"));
        }
        let since = Stopwatch::start();
        let guest = greet(device, &gate, &since, &mut socket).await?;
        let taking = take_over(&mut socket, &gate.tables);
        let table = timeout(GREETING_LIMIT.saturating_sub(since.elapsed()), taking)
            .await
            .map_err(|_| "it did not offer its lock table in time".to_owned())?
            .map_err(|error| format!("no lock table: {error}"))?
            .unwrap_or_else(|error| {
                (gate.log)(&format!("a host's runs lock rows by batches: {error}"));
                None
            });
        let stream =
            timeout(GREETING_LIMIT.saturating_sub(since.elapsed()), LocalStream::offer(socket))
                .await
                .map_err(|_| "it did not take the shared memory in time".to_owned())?
                .map_err(|error| error.to_string())?;
        let bytes: Arc<ByteCounters> = Arc::default();
        let stream = Metered::new(stream, Arc::clone(&bytes), gate.cap.clone());
        let granted = Granted { bytes: &bytes, executing: Some(&gate.executing), table };
        serve_greeted(guest, entry, granted, stream).await
    }
}
