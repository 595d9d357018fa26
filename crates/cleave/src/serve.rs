//! `cleave serve`: serves a database to PostgreSQL's clients.
//!
//! ```text
//!  TcpListener ─▶ a thread with few clients: greet ─▶ connection loop ─▶ its own Session ─▶ the one Database
//!        ▲                     │ users, TLS, limits
//!        └── SIGTERM, SIGINT: nothing new begins, what runs may end, then it is stopped
//! ```
//! 1. [`options`] checks the command line against itself and the existing users.
//! 2. [`front`] has the threads; [`postgres`] speaks the protocol. [`users`] stores who may connect; [`signals`] end
//!    the server.
//! 3. [`admission`] limits the connections: those not yet authenticated, and sessions. [`failed_logins`] logs who was
//!    not let in.
//! 4. [`http`] answers on a second listener whether it is well, and with its figures. [`console`] is a web page on
//!    another one. [`slow_log`] logs statements that take long. [`traces`] sends spans to a collector.
//! 5. The [address file](cleave_host::address_file) tells other processes where the server listens.
//! 6. [`beside`] serves other processes of its user from a shell, over a Unix socket.
//!
//! Invariants: the server listens where other machines can reach it only with TLS and users. Nobody connects without a
//! password except on this machine, and there only if the server was told so (`--trust`) or the database has never had
//! a password: no statement opens a server. A connection that fails, by its client's fault or ours, ends alone. No
//! password, proof or key is logged.
//!
//! Source: `docs/design/wire-protocol.md` and `docs/design/server-and-security.md`.

pub(crate) mod admission;
pub(crate) mod beside;
pub(crate) mod console;
pub(crate) mod failed_logins;
pub(crate) mod front;
pub(crate) mod http;
pub(crate) mod options;
pub(crate) mod postgres;
mod slow_log;
mod traces;
pub(crate) mod users;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleave_device::{process_log, signals, supervisor};
use cleave_host::address_file::{self, Listens};
use cleave_host::login::LoginSecret;
use cleave_host::{Admits, Client, Database, Session};
use cleave_media::clock::Stopwatch;
use cleave_traces::Traces;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::arguments::Place;
use crate::failure::Failure;
use crate::open;
use admission::{Sessions, Strangers};
use failed_logins::FailedLogins;
use front::{Front, Seat, Thread};
use options::Limits;
pub(crate) use options::ServeOptions;
use postgres::complaint::Complaint;
use postgres::greet::Known;
use postgres::interrupt::{Phase, Registry};
use postgres::linger::Speaking;
use users::Users;

/// Unauthenticated clients beyond the number of sessions: to tell them that there are too many, or to let them cancel a
/// statement.
const SPARE_COUNT: usize = 64;
/// The interval of checks of log replicas: when a device is back that was offline when its replica was given up, the
/// replica ends.
const REPLICAS_PAUSE: Duration = Duration::from_secs(5);
/// The least interval of tries to give stale copies of mirrors what they lack.
const MIRRORS_PAUSE: Duration = Duration::from_secs(5);
/// The least interval of checks for tables that are due for ANALYZE.
const ANALYZE_PAUSE: Duration = Duration::from_secs(10);
/// Failures of ANALYZE, and of moves of tablets, that are remembered, so that they are not logged again.
const TOLD_MAX: usize = 256;

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
    /// Whether other machines can reach it over PostgreSQL's protocol.
    needs_tls: bool,
    /// Whether they can reach it at all.
    is_reachable: bool,
    limits: Limits,
    sessions: Arc<Sessions>,
    strangers: Arc<Strangers>,
    failed_logins: FailedLogins,
    registry: Arc<Registry>,
    phase: watch::Sender<Phase>,
    /// The runtime that computes rows.
    runtime: Handle,
    speaking: Arc<Speaking>,
    /// Whether it was told to ask nobody for a password.
    trusts: bool,
    /// Whether it has asked for passwords; it does so until it ends.
    has_asked: AtomicBool,
    /// Used in place of the database's own, if that could not be written.
    spare_secret: LoginSecret,
    /// It is a shell, which answers processes of its user: why their sessions only read.
    beside: Option<Arc<str>>,
    /// Where its spans go, if it is to trace.
    traces: Option<Arc<Traces>>,
}

/// What is served over HTTP, and the thread for it: whoever watches the server is answered while it computes.
struct Web {
    state: http::HttpState,
    bound: http::Bound,
    thread: Thread,
}

/// A TLS acceptor that prints without its key.
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
    process_log::begin(options.log_format, options.log_level);
    if let Some(file) = &options.config {
        tracing::info!(target: "cleave", "options are those of {}", file.display());
    }
    options.check()?;
    options.check_files()?;
    let signals = signals::Signals::listen()?;
    cleave_media::private::keep_to_oneself();
    let (database, session) = open::open_asked(place, options.create).await?;
    // Its settings were read; every client has a session of its own.
    drop(session);
    let folder = database.directory().to_owned();
    let address = options.address().await?;
    let path = options.users.clone().unwrap_or_else(|| folder.join(users::FILE));
    let known = Users::read(&path).map_err(|error| Failure::Usage(error.to_string()))?;
    let identity = options.identity(&folder)?;
    let has_users = !known.is_empty() || database.has_passwords();
    let http_address = options.http_address().await?;
    let console_address = options.console_address().await?;
    let addresses = [Some(address), http_address, console_address];
    for address in addresses.into_iter().flatten() {
        options::check(address, identity.is_some(), has_users, options.trust)
            .map_err(Failure::Usage)?;
    }
    let tls = identity.map(|identity| identity.server_config()).transpose();
    let tls = tls.map_err(|error| Failure::Usage(error.to_string()))?;
    let spare_secret = LoginSecret::draw();
    let spare_secret = spare_secret.map_err(|error| Failure::Device(error.to_string()))?;
    let limits = options.limits().map_err(Failure::Usage)?;
    let collector = options.collector()?;
    database.statements().keep(options.statement_statistics_max as usize);
    if let Some(milliseconds) = options.log_min_duration_statement {
        let least = Duration::from_millis(u64::from(milliseconds));
        let slow = slow_log::slow_statements(least, options.log_statement_constants);
        // Nobody else asks for them.
        database.statements().tell(slow);
    }
    let database_name = name_of(&folder);
    let limits_of_traces = (options.traces_sample, options.traces_per_second);
    let traces = collector.map(|to| traces::begin(to, limits_of_traces, &database, &database_name));
    let traces = traces.transpose()?;
    let server = Arc::new(Server {
        database_name,
        database,
        settings: place.settings.clone(),
        users: path,
        tls: tls.map(|config| Acceptor(TlsAcceptor::from(config))),
        needs_tls: !address.ip().is_loopback(),
        is_reachable: !addresses.iter().flatten().all(is_near),
        sessions: Sessions::new(limits.session_count_max, limits.reserved_count),
        strangers: Strangers::new(limits.session_count_max + SPARE_COUNT),
        failed_logins: FailedLogins::default(),
        limits,
        registry: Arc::default(),
        phase: watch::Sender::new(Phase::Serving),
        runtime: Handle::current(),
        speaking: Speaking::new(),
        trusts: options.trust,
        has_asked: AtomicBool::new(false),
        spare_secret,
        beside: None,
        traces: traces.clone(),
    });
    let listener = listen(address)?;
    let address = listener.local_addr()?;
    let web = http_address.map(|address| Web::bind(&server, address)).transpose()?;
    let console = console_address.map(|address| Web::bind(&server, address)).transpose()?;
    let is_open = server.asks_nobody(&known).await;
    server.announce(address, is_open, &known);
    if let Some(web) = &web {
        web.announce("health and metrics", "/metrics");
    }
    if let Some(console) = &console {
        console.announce("console", "/");
    }
    let (listens, name) = (Listens::Tcp(address), &server.database_name);
    let announced = address_file::announce(&folder, &listens, name, "cleave serve");
    let announced = announced.map_err(|error| {
        server.log(&format!("cannot tell the shell where this server is: {error}"));
    });
    if let Some(file) = &options.port_file {
        let of_web = [&web, &console].into_iter().flatten().map(|web| web.bound.address);
        let ports = std::iter::once(address).chain(of_web).map(|address| address.port());
        write_ports(file, &ports.collect::<Vec<_>>())?;
    }
    supervisor::tell(supervisor::READY);
    // On a thread of its own: statements may keep all computing threads busy, which then watch no sockets and no
    // timers.
    let stopped = Arc::clone(&server.database);
    let door = Thread::start().map_err(|error| Failure::Device(error.to_string()))?;
    let mut served = JoinSet::new();
    served.spawn_on(
        async move {
            let listener = listener.into_std().and_then(TcpListener::from_std);
            match listener {
                Ok(listener) => {
                    server.accept_until_signal(listener, (web, console), signals).await;
                }
                Err(error) => server.log(&format!("cannot listen: {error}")),
            }
        },
        door.handle(),
    );
    let ended = served.join_next().await;
    // While the database is still open here: a server that opens it next has a file of its own.
    drop(announced);
    if let Some(traces) = traces {
        // For two seconds at most; nothing else is served by now.
        traces.end();
    }
    match ended {
        Some(Err(error)) => Err(Failure::Device(format!("the server ended: {error}"))),
        _ => match tokio::time::timeout(Duration::ZERO, stopped.stopped()).await {
            Ok(why) => Err(Failure::Device(format!(
                "the database was stopped: {why}; start the server again once the disk is well: it opens with all \
                    that was acknowledged"
            ))),
            Err(_) => Ok(()),
        },
    }
}

impl Web {
    fn bind(server: &Arc<Server>, address: SocketAddr) -> Result<Self, Failure> {
        let state = http::HttpState::new(server);
        let state = state.map_err(|error| Failure::Device(error.to_string()))?;
        let listener = listen(address)?.into_std()?;
        let address = listener.local_addr()?;
        let thread = Thread::start().map_err(|error| Failure::Device(error.to_string()))?;
        Ok(Self { state, bound: http::Bound { listener, address }, thread })
    }

    fn announce(&self, what: &str, path: &str) {
        let scheme = if self.bound.is_reachable() { "https" } else { "http" };
        let address = self.bound.address;
        self.state.server.tell(&format!("{what} at {scheme}://{address}{path}"));
    }
}

impl Server {
    fn announce(&self, address: SocketAddr, is_open: bool, users: &Users) {
        let name = &self.database_name;
        let port = address.port();
        self.tell(&format!(
            "serving database \"{name}\" at {address}: psql -h {} -p {port} {name}",
            address.ip()
        ));
        if self.trusts {
            self.tell("--trust: everybody on this machine may connect without a password, as whom he likes");
            return;
        }
        if is_open {
            self.tell(
                "nobody has ever had a password: everybody on this machine may connect without one; \
                 `cleave user add NAME`, or CREATE ROLE with a password, changes that for ever",
            );
            return;
        }
        for (user, said) in users.iter() {
            if !said.is_superuser && self.database.login(user).is_none() {
                self.log(&format!(
                    "user \"{user}\" cannot connect: {} does not say that it is a superuser, and there is no role of \
                        its name; \
                     `cleave user alter {user} --superuser`, or CREATE ROLE \"{user}\" LOGIN, changes that",
                    self.users.display()
                ));
            }
        }
        if users.is_empty() && !self.database.has_passwords() {
            self.log(
                "nobody can connect: passwords are asked for, as there was one once, and nobody has one; \
                 `cleave user add NAME` makes a superuser, --trust asks for none",
            );
        }
    }

    /// Whether clients need no password: see the [module](self). Once one is needed, that does not change.
    async fn asks_nobody(&self, users: &Users) -> bool {
        if self.trusts {
            return true;
        }
        let asks = self.is_reachable
            || users.is_there()
            || self.has_asked.load(Ordering::SeqCst)
            || self.database.login_secret().is_some();
        if !asks {
            return true;
        }
        // So that it holds even without the users file, as after a failover.
        if !self.has_asked.swap(true, Ordering::SeqCst)
            && let Err(error) = self.database.ask_for_passwords().await
        {
            self.log(&format!("cannot note that passwords are asked for: {error}"));
        }
        false
    }

    /// Whether clients have needed no password until now, and may need one later.
    pub(crate) fn is_open(&self) -> bool {
        !self.trusts
            && !self.is_reachable
            && !self.has_asked.load(Ordering::SeqCst)
            && self.database.login_secret().is_none()
    }

    /// The secret from which salts for unknown users are made.
    fn login_secret(&self) -> LoginSecret {
        self.database.login_secret().unwrap_or_else(|| self.spare_secret.clone())
    }

    /// Logs something that the operator should look at.
    pub(crate) fn log(&self, message: &str) {
        tracing::warn!(target: "cleave", "{message}");
    }

    /// Logs what it does.
    fn tell(&self, message: &str) {
        tracing::info!(target: "cleave", "{message}");
    }

    /// A session of `user`, as connection number `backend`, whose client has `seat` to itself or with others; None: its
    /// statements are polled by a thread that does other things, too.
    fn session(
        &self,
        (user, known): (&str, Known),
        backend: i32,
        seat: Option<&Seat>,
    ) -> Result<Session, Complaint> {
        let mut session = self.database.session();
        let database = self.database_name.clone();
        let admits = Some(Admits {
            session_count_max: self.limits.session_count_max,
            reserved_count: self.limits.reserved_count,
        });
        let serves_files = self.limits.serves_files;
        session.set_client(Client { database, backend, admits, serves_files, ..Client::default() });
        match known {
            Known::Superuser => session.log_in_as_superuser(user),
            Known::Role => {
                session.log_in(user).map_err(|error| Complaint::of(&error, "").fatally())?;
            }
        }
        session.compute_on(self.runtime.clone());
        if let Some(seat) = seat {
            session.share_thread(Arc::clone(seat.clients()));
        }
        for (name, value) in &self.settings {
            session.set(name, value).map_err(|error| Complaint::of(&error, ""))?;
        }
        if let Some(why) = &self.beside {
            session.only_read(why);
        }
        Ok(session)
    }

    async fn accept_until_signal(
        self: &Arc<Self>,
        listener: TcpListener,
        (web, console): (Option<Web>, Option<Web>),
        mut signals: signals::Signals,
    ) {
        // Dropped with the listener: its uncommitted work is rolled back.
        let mut upkeep = JoinSet::new();
        upkeep.spawn_on(Arc::clone(self).vacuum_by_itself(), &self.runtime);
        upkeep.spawn_on(Arc::clone(self).analyze_by_itself(), &self.runtime);
        upkeep.spawn_on(Arc::clone(self).look_after_replicas(), &self.runtime);
        upkeep.spawn_on(Arc::clone(self).resync_mirrors(), &self.runtime);
        upkeep.spawn_on(Arc::clone(self).rebalance_by_itself(), &self.runtime);
        upkeep.spawn_on(failed_logins::look_after(Arc::clone(self)), &self.runtime);
        let front = Front::default();
        let mut connections = JoinSet::new();
        // Ended with what it runs when this returns.
        let _web_thread = web.map(|Web { state, bound, thread }| {
            let router = http::router(state.clone());
            connections.spawn_on(http::serve(state, router, bound, "http"), thread.handle());
            thread
        });
        let _console_thread = console.map(|Web { state, bound, thread }| {
            connections.spawn_on(console::serve(state, bound), thread.handle());
            thread
        });
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = signals.next() => break,
                why = self.database.stopped() => {
                    // Recent commits may not be durable, and nothing can be read: a supervisor starts the server again.
                    tracing::error!(target: "cleave", "the database was stopped: {why}");
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
                    let stranger = self.strangers.enter(peer.ip());
                    let seat = match front.seat() {
                        Ok(seat) => seat,
                        Err(error) => {
                            self.log(&format!("cannot serve a connection: {error}"));
                            continue;
                        }
                    };
                    let (server, thread) = (Arc::clone(self), seat.handle().clone());
                    let serve = async move {
                        // The listener's runtime is not the one that will watch it.
                        if let Some(stream) = of_this_runtime(stream) {
                            prepare_stream(&stream);
                            let stream = Box::new(stream);
                            let who = (Some(peer), stranger);
                            postgres::connection::serve(server, stream, &seat, who).await;
                        }
                        drop(seat);
                    };
                    connections.spawn_on(serve, &thread);
                }
                Err(error) => {
                    self.log(&format!("cannot accept a connection: {error}"));
                    // Probably out of descriptors: some are freed with time, and strangers are the first to lose
                    // theirs.
                    self.strangers.make_room();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop((listener, upkeep));
        self.end(connections, signals).await;
        self.failed_logins.tell_left_out();
    }

    /// Vacuums tables that are due, periodically.
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

    /// Analyses tables that are due, periodically, for at most a quarter of the time.
    async fn analyze_by_itself(self: Arc<Self>) {
        let mut pause = ANALYZE_PAUSE;
        let mut told = BTreeSet::new();
        loop {
            tokio::time::sleep(pause).await;
            let stopwatch = Stopwatch::start();
            for (table, error) in self.database.autoanalyze().await {
                let line = format!("cannot analyze \"{table}\": {error}");
                // It is due again next time.
                if told.len() >= TOLD_MAX {
                    told.clear();
                }
                if told.insert(line.clone()) {
                    self.log(&line);
                }
            }
            pause = ANALYZE_PAUSE.max(3 * stopwatch.elapsed());
        }
    }

    /// Does the pending work of log replicas for devices that were offline, periodically.
    async fn look_after_replicas(self: Arc<Self>) {
        let mut told = String::new();
        loop {
            tokio::time::sleep(REPLICAS_PAUSE).await;
            let failure = self.database.look_after_replicas().await.err();
            let failure = failure.map(|error| error.to_string()).unwrap_or_default();
            if failure != told && !failure.is_empty() {
                self.log(&format!("cannot look after log replicas: {failure}"));
            }
            told = failure;
        }
    }

    /// Gives stale copies of mirrors what they lack, periodically. After an error, which may come after all pages have
    /// been read, for at most a quarter of the time.
    async fn resync_mirrors(self: Arc<Self>) {
        let mut told = String::new();
        let mut pause = MIRRORS_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            let stopwatch = Stopwatch::start();
            let failure = self.database.resync_mirrors().await.err();
            pause = MIRRORS_PAUSE;
            if failure.is_some() {
                pause = pause.max(3 * stopwatch.elapsed());
            }
            let failure = failure.map(|error| error.to_string()).unwrap_or_default();
            if failure != told && !failure.is_empty() {
                self.log(&format!("cannot resynchronise mirrors: {failure}"));
            }
            told = failure;
        }
    }

    /// Moves tablets of tables that ask to be balanced, periodically. After an error, which may come after all pages
    /// have been read, for at most a quarter of the time.
    async fn rebalance_by_itself(self: Arc<Self>) {
        let mut told = BTreeSet::new();
        let mut rest = Duration::ZERO;
        loop {
            tokio::time::sleep(self.database.rebalance_settings().pause().max(rest)).await;
            let stopwatch = Stopwatch::start();
            let failures = self.database.rebalance(&|line: &str| self.tell(line)).await;
            rest = if failures.is_empty() { Duration::ZERO } else { 3 * stopwatch.elapsed() };
            for (table, error) in failures {
                let line = format!("cannot balance the tablets of \"{table}\": {error}");
                if told.len() >= TOLD_MAX {
                    told.clear();
                }
                if told.insert(line.clone()) {
                    self.log(&line);
                }
            }
        }
    }

    /// Lets statements end, then stops them; a second signal stops them at once.
    async fn end(&self, mut connections: JoinSet<()>, mut signals: signals::Signals) {
        self.tell("ending: statements that run may end");
        supervisor::tell(supervisor::STOPPING);
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

    /// Stops running statements.
    async fn stop(&self, mut connections: JoinSet<()>) {
        self.tell(&format!("stopping {} connections", connections.len()));
        self.phase.send_replace(Phase::Stopping);
        let all_ended = async {
            while let Some(ended) = connections.join_next().await {
                self.note(ended);
            }
        };
        // Those whose clients do not read are dropped.
        drop(tokio::time::timeout(Duration::from_secs(1), all_ended).await);
        connections.shutdown().await;
    }

    fn note(&self, ended: Result<(), tokio::task::JoinError>) {
        if let Err(error) = ended
            && error.is_panic()
        {
            let message = "a connection ended by a defect of this program; the others go on";
            tracing::error!(target: "cleave", "{message}");
        }
    }
}

/// The same stream, watched by the runtime that calls this.
fn of_this_runtime(stream: TcpStream) -> Option<TcpStream> {
    TcpStream::from_std(stream.into_std().ok()?).ok()
}

/// Sends small messages at once, and notices a vanished machine eventually.
fn prepare_stream(stream: &TcpStream) {
    // If the system refuses, the connection is slower, or is kept longer.
    drop(stream.set_nodelay(true));
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(10));
    drop(socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive));
}

/// The name of a database: its folder's.
fn name_of(folder: &Path) -> String {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = absolute.file_name().and_then(|name| name.to_str());
    name.map_or_else(|| "cleave".to_owned(), str::to_owned)
}

fn is_near(address: &SocketAddr) -> bool {
    address.ip().is_loopback()
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    cleave_device::serve::listen(address).map_err(|error| {
        Failure::Open(cleave_host::Error::io("listen on", Path::new(&address.to_string()), error))
    })
}

/// Writes the ports atomically, one a line.
fn write_ports(path: &Path, ports: &[u16]) -> Result<(), Failure> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let text: String = ports.iter().map(|port| format!("{port}\n")).collect();
    std::fs::write(&part, text).map_err(Failure::file(path))?;
    std::fs::rename(&part, path).map_err(Failure::file(path))
}
