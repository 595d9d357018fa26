//! Answers other processes from a shell that has a database open: PostgreSQL's protocol at a Unix socket, for sessions
//! that only read.
//!
//! ```text
//!  cleave sql DIR, the first ── opens DIR, listens at DIR/shell.socket, says so in DIR/server.address
//!        ▲                         │ whose process? its user's or root's
//!  cleave sql DIR, the second ─────┴─▶ connection loop ─▶ a session that only reads ─▶ the same Database
//! ```
//! A socket's path has room for about a hundred bytes. Where the folder's is longer, or its file system has no sockets,
//! the socket lies in a new folder of the user's runtime directory, or of the one for temporary files.
//!
//! Invariants: only processes of the shell's user, and of root, are answered; both could read the files. No statement
//! of theirs changes anything ([`Session::only_read`](cleave_host::Session::only_read)). The shell does not wait for
//! them: when it ends, they are told, and their statements are stopped.
//!
//! Source: `docs/reference/shell.md`.

use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cleave_host::Database;
use cleave_host::address_file::{self, Announced, Listens};
use cleave_host::login::LoginSecret;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::admission::{Sessions, Strangers};
use super::failed_logins::FailedLogins;
use super::front::{Front, Thread};
use super::options::Limits;
use super::postgres::connection;
use super::postgres::interrupt::Phase;
use super::postgres::linger::Speaking;
use super::{SPARE_COUNT, Server, name_of};

/// The socket in the database's folder.
const SOCKET: &str = "shell.socket";
/// The program, as other processes name it.
const PROGRAM: &str = "cleave sql";
/// Sessions of other processes at a time.
const SESSION_COUNT_MAX: usize = 16;
/// Bytes of a message of theirs.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// How long they may take to begin a session.
const GREETING: Duration = Duration::from_secs(10);
/// How long the shell's end waits until those that do not read are dropped.
const FAREWELL: Duration = Duration::from_millis(200);

/// A shell that answers other processes until this is dropped.
pub(crate) struct Beside {
    server: Arc<Server>,
    answering: JoinSet<()>,
    announced: Announced,
    socket: Socket,
    /// Its thread ends with it, after all that runs there.
    door: Thread,
}

/// The file of a socket, removed when this is dropped.
struct Socket {
    path: PathBuf,
    /// The folder that was made for it.
    _folder: Option<TempDir>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

impl Beside {
    /// Begins to answer processes that want to read `database`.
    ///
    /// # Errors
    /// If there is no place for a socket, or no thread: the shell can go on without.
    pub(crate) fn begin(database: &Arc<Database>) -> io::Result<Self> {
        let folder = database.directory().canonicalize()?;
        let (listener, socket) = listen(&folder)?;
        let spare_secret =
            LoginSecret::draw().map_err(|error| io::Error::other(error.to_string()))?;
        let why = format!("process {} ({PROGRAM}) has the database open", std::process::id());
        let limits = Limits {
            session_count_max: SESSION_COUNT_MAX,
            reserved_count: 0,
            message_bytes_max: MESSAGE_BYTES_MAX,
            authentication: GREETING,
            idle: None,
            grace: Duration::ZERO,
            serves_files: true,
        };
        let server = Arc::new(Server {
            database_name: name_of(&folder),
            database: Arc::clone(database),
            settings: Vec::new(),
            users: PathBuf::new(),
            tls: None,
            needs_tls: false,
            is_reachable: false,
            limits,
            sessions: Sessions::new(SESSION_COUNT_MAX, 0),
            strangers: Strangers::new(SESSION_COUNT_MAX + SPARE_COUNT),
            failed_logins: FailedLogins::default(),
            registry: Arc::default(),
            phase: watch::Sender::new(Phase::Serving),
            runtime: Handle::current(),
            speaking: Speaking::new(),
            trusts: true,
            has_asked: AtomicBool::new(false),
            spare_secret,
            beside: Some(why.into()),
            traces: None,
        });
        // The shell's own thread waits for its user.
        let door = Thread::start()?;
        let mut answering = JoinSet::new();
        answering.spawn_on(Box::pin(answer(Arc::clone(&server), listener)), door.handle());
        let listens = Listens::Unix(socket.path.clone());
        let announced = address_file::announce(&folder, &listens, &server.database_name, PROGRAM)?;
        Ok(Self { server, answering, announced, socket, door })
    }

    /// Ends it: the clients are told, and what they run is stopped.
    pub(crate) async fn end(self) {
        let Self { server, mut answering, announced, socket, door } = self;
        // Nobody comes any more.
        drop((announced, socket));
        server.phase.send_replace(Phase::Stopping);
        while answering.join_next().await.is_some() {}
        drop(door);
    }
}

/// Answers connections until the shell ends.
async fn answer(server: Arc<Server>, listener: UnixListener) {
    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
    let front = Front::default();
    let mut connections = JoinSet::new();
    let mut phase = server.phase.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Probably out of descriptors.
                server.strangers.make_room();
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if !is_of_own_user(&stream) {
            continue;
        }
        let Ok(seat) = front.seat() else { continue };
        let stranger = server.strangers.enter(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let (server, thread) = (Arc::clone(&server), seat.handle().clone());
        let serve = async move {
            // The listener's runtime is not the one that will watch it.
            if let Some(stream) = of_this_runtime(stream) {
                let who = (None, stranger);
                connection::serve(server, Box::new(stream), &seat, who).await;
            }
            drop(seat);
        };
        connections.spawn_on(serve, &thread);
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    drop(tokio::time::timeout(FAREWELL, all_ended).await);
    connections.shutdown().await;
}

fn is_of_own_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

fn of_this_runtime(stream: UnixStream) -> Option<UnixStream> {
    UnixStream::from_std(stream.into_std().ok()?).ok()
}

/// A socket in `folder`, which is this process's, or else in a new folder.
fn listen(folder: &Path) -> io::Result<(UnixListener, Socket)> {
    let path = folder.join(SOCKET);
    // A killed process has left it there.
    drop(fs::remove_file(&path));
    if let Ok(listener) = bind(&path) {
        return Ok((listener, Socket { path, _folder: None }));
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // In another user's, as sudo may leave it, that user could put a socket in the place of this one.
    let own = rustix::process::geteuid().as_raw();
    let is_own = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.uid() == own);
    let runtime = runtime.filter(|path| path.is_absolute() && is_own(path));
    let found = runtime.and_then(|runtime| listen_below(&runtime).ok());
    found.map_or_else(|| listen_below(&std::env::temp_dir()), Ok)
}

/// A socket in a new folder of `parent` that nobody else enters.
fn listen_below(parent: &Path) -> io::Result<(UnixListener, Socket)> {
    let mut maker = tempfile::Builder::new();
    maker.prefix("cleave-").permissions(Permissions::from_mode(0o700));
    let made = maker.tempdir_in(parent)?;
    let path = made.path().canonicalize()?.join(SOCKET);
    let listener = bind(&path)?;
    Ok((listener, Socket { path, _folder: Some(made) }))
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if path.to_str().is_none_or(|path| path.contains('\n')) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path that no line can have"));
    }
    let listener = UnixListener::bind(path)?;
    let prepared = fs::set_permissions(path, Permissions::from_mode(0o600))
        .and_then(|()| listener.set_nonblocking(true));
    if let Err(error) = prepared {
        drop(fs::remove_file(path));
        return Err(error);
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_lies_in_the_folder_or_where_its_path_has_room() {
        let folder = tempfile::tempdir().unwrap();
        let (_listener, socket) = listen(folder.path()).unwrap();
        assert_eq!(socket.path, folder.path().join(SOCKET));
        let mode = fs::metadata(&socket.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let deep = folder.path().join("x".repeat(120));
        fs::create_dir(&deep).unwrap();
        let (_listener, beside) = listen(&deep).unwrap();
        assert!(!beside.path.starts_with(&deep), "{}", beside.path.display());
        let (path, made) = (socket.path.clone(), beside.path.parent().unwrap().to_owned());
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
        drop((socket, beside));
        assert!(!path.exists() && !made.exists());
    }
}
