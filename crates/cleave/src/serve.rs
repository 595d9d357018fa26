//! `cleave serve`: a database in, a server out that PostgreSQL's clients talk to.
//!
//! ```text
//!  TcpListener ─▶ a thread with few clients: greet ─▶ connection loop ─▶ its own Session ─▶ the one Database
//!        ▲                     │ users, TLS, limits
//!        └── SIGTERM, SIGINT: nothing new begins, what runs may end, then it is stopped
//! ```
//!
//! 1. [`options`] checks what the command line says against itself and the users that there are.
//! 2. [`front`] has the threads; [`postgres`] speaks the protocol. [`users`] keeps who may connect, [`signals`] when it is to end.
//!
//! Invariants: nothing listens where other machines can reach it without TLS and users. A connection that fails, by its
//! client's fault or ours, ends alone. No password, proof or key is logged.
//!
//! Source: issue 5, part 5; decision 0053.

pub(crate) mod front;
pub(crate) mod options;
pub(crate) mod postgres;
pub(crate) mod signals;
pub(crate) mod users;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cleave_host::{Client, Database, Session};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::arguments::Place;
use crate::failure::Failure;
use crate::open::{self, Create};
use front::{Front, Seat, Thread};
use options::Limits;
pub(crate) use options::ServeOptions;
use postgres::complaint::Complaint;
use postgres::interrupt::{Phase, Registry};
use postgres::linger::Speaking;

/// Connections beyond the limit that are heard, to be told so, or to cancel a statement.
const SPARE_COUNT: usize = 64;
/// How often copies of the log are looked after: as soon as a device is back that was away when its copy was given up, the copy ends.
const COPIES_PAUSE: Duration = Duration::from_secs(5);

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Server {
    database: Arc<Database>,
    database_name: String,
    /// Settings that every session begins with.
    settings: Vec<(String, String)>,
    /// The file of users.
    users: PathBuf,
    tls: Option<Acceptor>,
    /// Other machines can reach it.
    needs_tls: bool,
    limits: Limits,
    sessions: Arc<Semaphore>,
    registry: Arc<Registry>,
    phase: watch::Sender<Phase>,
    /// What computes rows.
    runtime: Handle,
    speaking: Arc<Speaking>,
    /// Of which salts for users are made whom there are not.
    secret: [u8; 32],
}

/// A TLS acceptor that can be shown without its key.
struct Acceptor(TlsAcceptor);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Acceptor(…)")
    }
}

impl std::ops::Deref for Acceptor {
    type Target = TlsAcceptor;

    fn deref(&self) -> &TlsAcceptor {
        &self.0
    }
}

/// Runs `cleave serve` until a signal ends it.
pub(crate) async fn run(options: &ServeOptions, place: &Place) -> Result<(), Failure> {
    let signals = signals::Signals::listen()?;
    let (database, session) = open::open(place, Create::IfAbsent).await?;
    // Its settings were read; every client has a session of its own.
    drop(session);
    let folder = database.directory().to_owned();
    let address = options.address().await?;
    let path = options.users.clone().unwrap_or_else(|| folder.join(users::FILE));
    let known = users::Users::read(&path).map_err(|error| Failure::Usage(error.to_string()))?;
    let identity = options.identity(&folder)?;
    options::check(address, identity.is_some(), !known.is_empty() || database.has_passwords())
        .map_err(Failure::Usage)?;
    let tls = identity.map(|identity| identity.server_config()).transpose();
    let tls = tls.map_err(|error| Failure::Usage(error.to_string()))?;
    let secret = cleave_media::random_bytes::<32>();
    let secret = secret.map_err(|error| Failure::Device(error.to_string()))?;
    let limits = options.limits();
    let server = Arc::new(Server {
        database_name: name_of(&folder),
        database,
        settings: place.settings.clone(),
        users: path,
        tls: tls.map(|config| Acceptor(TlsAcceptor::from(config))),
        needs_tls: !address.ip().is_loopback(),
        sessions: Arc::new(Semaphore::new(limits.session_count_max)),
        limits,
        registry: Arc::default(),
        phase: watch::Sender::new(Phase::Serving),
        runtime: Handle::current(),
        speaking: Speaking::new(),
        secret,
    });
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| {
        Failure::Open(cleave_host::Error::io("listen on", Path::new(&address.to_string()), error))
    })?;
    let address = listener.local_addr()?;
    server.announce(address, known.is_empty() && !server.database.has_passwords());
    if let Some(file) = &options.port_file {
        write_port(file, address.port())?;
    }
    // By a thread of its own: statements may keep all threads that compute busy, and those watch no sockets and no times then.
    let stopped = Arc::clone(&server.database);
    let door = Thread::start().map_err(|error| Failure::Device(error.to_string()))?;
    let mut served = JoinSet::new();
    served.spawn_on(
        async move {
            let listener = listener.into_std().and_then(TcpListener::from_std);
            match listener {
                Ok(listener) => server.accept_until_signal(listener, signals).await,
                Err(error) => server.log(&format!("cannot listen: {error}")),
            }
        },
        door.handle(),
    );
    match served.join_next().await {
        Some(Err(error)) => Err(Failure::Device(format!("the server ended: {error}"))),
        _ => match tokio::time::timeout(Duration::ZERO, stopped.stopped()).await {
            Ok(why) => Err(Failure::Device(format!(
                "the database was stopped: {why}; start the server again once the disk is well: it opens with all that was acknowledged"
            ))),
            Err(_) => Ok(()),
        },
    }
}

impl Server {
    fn announce(&self, address: SocketAddr, is_open: bool) {
        let name = &self.database_name;
        let port = address.port();
        self.log(&format!(
            "serving database \"{name}\" at {address}: psql -h {} -p {port} {name}",
            address.ip()
        ));
        if is_open {
            self.log(
                "there are no users: everybody on this machine may connect without a password; \
                 `cleave user add NAME`, or CREATE ROLE with a password, changes that",
            );
        }
    }

    /// Says something to whoever runs the server.
    pub(crate) fn log(&self, message: &str) {
        drop(writeln!(std::io::stderr(), "cleave: {message}"));
    }

    /// A session of `user`, as connection number `backend`, whose client has `seat`.
    fn session(&self, user: &str, backend: i32, seat: &Seat) -> Result<Session, Complaint> {
        let mut session = self.database.session();
        let database = self.database_name.clone();
        session.set_client(Client { database, backend, ..Client::default() });
        session.log_in(user).map_err(|error| Complaint::of(&error, "").fatally())?;
        session.compute_on(self.runtime.clone());
        session.share_thread(Arc::clone(seat.clients()));
        for (name, value) in &self.settings {
            session.set(name, value).map_err(|error| Complaint::of(&error, ""))?;
        }
        Ok(session)
    }

    async fn accept_until_signal(
        self: &Arc<Self>,
        listener: TcpListener,
        mut signals: signals::Signals,
    ) {
        // Given up with the listener: what it has not committed is as it was.
        let mut upkeep = JoinSet::new();
        upkeep.spawn_on(Arc::clone(self).vacuum_by_itself(), &self.runtime);
        upkeep.spawn_on(Arc::clone(self).look_after_copies(), &self.runtime);
        let front = Front::default();
        let places = Arc::new(Semaphore::new(self.limits.session_count_max + SPARE_COUNT));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = signals.next() => break,
                why = self.database.stopped() => {
                    // What is committed may never be durable, and cannot be read: a supervisor starts the server again.
                    self.log(&format!("the database was stopped: {why}"));
                    drop((listener, upkeep));
                    return self.stop(connections).await;
                }
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    self.note(ended);
                    continue;
                }
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Where there is no place even to say so, the connection is closed.
                    let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                    let seat = match front.seat() {
                        Ok(seat) => seat,
                        Err(error) => {
                            self.log(&format!("cannot serve a connection: {error}"));
                            continue;
                        }
                    };
                    let (server, thread) = (Arc::clone(self), seat.handle().clone());
                    let serve = async move {
                        // The listener's runtime is not the one that is to watch it.
                        if let Some(stream) = of_this_runtime(stream) {
                            prepare_stream(&stream);
                            let stream = Box::new(stream);
                            postgres::connection::serve(server, stream, &seat, peer).await;
                        }
                        drop((seat, place));
                    };
                    connections.spawn_on(serve, &thread);
                }
                Err(error) => {
                    self.log(&format!("cannot accept a connection: {error}"));
                    // Out of descriptors, say: some are given back with time.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop((listener, upkeep));
        self.end(connections, signals).await;
    }

    /// Vacuums tables that are due, again and again.
    async fn vacuum_by_itself(self: Arc<Self>) {
        loop {
            let pause = self.database.autovacuum_settings().pause();
            tokio::time::sleep(pause.unwrap_or(Duration::from_secs(60))).await;
            if self.database.autovacuum_settings().pause().is_none() {
                continue;
            }
            for (table, error) in self.database.autovacuum().await {
                self.log(&format!("cannot vacuum \"{table}\": {error}"));
            }
        }
    }

    /// Does for copies of the log what waits for devices that were away, again and again.
    async fn look_after_copies(self: Arc<Self>) {
        let mut told = String::new();
        loop {
            tokio::time::sleep(COPIES_PAUSE).await;
            let failure = self.database.look_after_copies().await.err();
            let failure = failure.map(|error| error.to_string()).unwrap_or_default();
            if failure != told && !failure.is_empty() {
                self.log(&format!("cannot look after copies of the log: {failure}"));
            }
            told = failure;
        }
    }

    /// Lets statements end, then stops them; a second signal stops them at once.
    async fn end(&self, mut connections: JoinSet<()>, mut signals: signals::Signals) {
        self.log("ending: statements that run may end");
        self.phase.send_replace(Phase::Draining);
        let all_ended = async |connections: &mut JoinSet<()>| {
            while let Some(ended) = connections.join_next().await {
                self.note(ended);
            }
        };
        tokio::select! {
            () = all_ended(&mut connections) => return,
            () = tokio::time::sleep(self.limits.grace) => {}
            () = signals.next() => {}
        }
        self.stop(connections).await;
    }

    /// Stops what runs.
    async fn stop(&self, mut connections: JoinSet<()>) {
        self.log(&format!("stopping {} connections", connections.len()));
        self.phase.send_replace(Phase::Stopping);
        let all_ended = async {
            while let Some(ended) = connections.join_next().await {
                self.note(ended);
            }
        };
        // Those whose clients take no answer are dropped.
        drop(tokio::time::timeout(Duration::from_secs(1), all_ended).await);
        connections.shutdown().await;
    }

    fn note(&self, ended: Result<(), tokio::task::JoinError>) {
        if let Err(error) = ended
            && error.is_panic()
        {
            self.log("a connection ended by a defect of this program; the others go on");
        }
    }
}

/// The same stream, watched by the runtime that calls this.
fn of_this_runtime(stream: TcpStream) -> Option<TcpStream> {
    TcpStream::from_std(stream.into_std().ok()?).ok()
}

/// Small messages go at once, and a machine that has vanished is noticed some time.
fn prepare_stream(stream: &TcpStream) {
    // Where the system refuses, the connection is slower, or is held for longer.
    drop(stream.set_nodelay(true));
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(10));
    drop(socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive));
}

/// What a database is called: as its folder.
fn name_of(folder: &Path) -> String {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = absolute.file_name().and_then(|name| name.to_str());
    name.map_or_else(|| "cleave".to_owned(), str::to_owned)
}

/// Writes the port so that a reader never sees half of it.
fn write_port(path: &Path, port: u16) -> Result<(), Failure> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, format!("{port}\n")).map_err(Failure::file(path))?;
    std::fs::rename(&part, path).map_err(Failure::file(path))
}
