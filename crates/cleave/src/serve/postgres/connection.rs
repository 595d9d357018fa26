//! One client's session: its messages in, one after the other, answers out.
//!
//! ```text
//!  Query ─────────────────────────▶ each statement: start, send rows, CommandComplete ─▶ ReadyForQuery
//!  Parse ─▶ Bind ─▶ Describe ─▶ Execute ─▶ …  ─▶ Sync ─▶ ReadyForQuery      (see `extended`)
//! ```
//!
//! Answers are buffered, and sent when no whole message is left to read, or when a query of a batch waits for its
//! answer. After a failure in the extended protocol, the session skips messages up to the next Sync. Rows are sent as
//! they are computed: no more of a result is in memory than what waits to be sent.
//!
//! Statements that come together are one transaction, as in PostgreSQL: those of a Query message with several, and
//! those of the extended protocol up to Sync. A single statement commits by itself, which costs less.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use cleave_host::backends::Listed;
use cleave_host::select::ColumnOrigin;
use cleave_host::statement::properties::{self, Tag};
use cleave_host::statement::{Discard, ParsedStatement, Statement, parse_script_in};
use cleave_host::{ResultRows, Session, Started, TransactionStatus};
use tokio::sync::watch;

use super::block;
use super::complaint::Complaint;
use super::copy::{self, Direction};
use super::extended::{Known, Portal};
use super::greet::{self, Startup};
use super::interrupt::{Phase, Registered, Stop, Watch, late, shutting_down, transaction_too_long};
use super::linger::Linger;
use super::message::{Format, Frontend, Malformed, Target, format_at};
use super::reply::{self, Column};
use super::time_limits::{TimeLimits, idle_too_long};
use super::types::WireType;
use super::values::RowWriter;
use super::wire::{SEND_BYTES, Stream, Wire, WireError};
use crate::serve::Server;
use crate::serve::admission::{Place, Stranger};
use crate::serve::front::Seat;

/// Settings whose changes are reported to clients.
const REPORTED: &[&str] = &[
    "application_name",
    "client_encoding",
    "DateStyle",
    "integer_datetimes",
    "IntervalStyle",
    "server_encoding",
    "server_version",
    "standard_conforming_strings",
    "TimeZone",
];

/// The class of errors by which a client is not let in.
const INVALID_LOG_IN: &str = "28";

/// A session with its client.
pub(crate) struct Connection {
    server: Arc<Server>,
    pub(super) wire: Wire,
    pub(super) session: Session,
    registered: Registered,
    pub(super) listed: Listed,
    phase: watch::Receiver<Phase>,
    linger: Linger,
    /// The watch of the running statement.
    pub(super) watch: Watch,
    pub(super) known: BTreeMap<String, Arc<Known>>,
    /// Boxed, because the unnamed one is replaced by each statement.
    pub(super) portals: BTreeMap<String, Box<Portal>>,
    reported: BTreeMap<&'static str, String>,
    /// The version of the settings that the client knows.
    reported_version: u64,
    /// After a failure of the extended protocol, until Sync.
    is_passing_over: bool,
    time_limits: TimeLimits,
    /// Whether clients needed no password when it was last ready.
    was_open: bool,
}

/// A decoded message; None if its kind is unknown.
type Read = Result<Option<Frontend>, Malformed>;

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    Close,
}

/// Serves one client from its first byte to its last.
pub(crate) async fn serve(
    server: Arc<Server>,
    stream: Box<dyn Stream>,
    seat: &Seat,
    (peer, mut stranger): (Option<SocketAddr>, Stranger),
) {
    let limit = server.limits.authentication;
    let greeted = Box::pin(greeted(Arc::clone(&server), stream, seat, peer));
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(limit, greeted) => greeted,
        () = stranger.sent_away() => return,
    };
    let Ok(Some((connection, _place))) = greeted else { return };
    drop(stranger);
    connection.run().await;
}

/// A session for an authenticated client, and its place among the sessions.
async fn greeted(
    server: Arc<Server>,
    stream: Box<dyn Stream>,
    seat: &Seat,
    peer: Option<SocketAddr>,
) -> Option<(Box<Connection>, Place)> {
    let (mut wire, startup) = greet::open(&server, stream).await.ok().flatten()?;
    let refused = match begin(&server, &mut wire, &startup, seat).await {
        Ok((session, registered, place)) => {
            let client = &session.settings().client;
            let who = (client.user.as_str(), client.acting.session_role);
            let stopper = Arc::clone(&registered.interrupt);
            let backends = server.database.backends();
            let listed = backends.enter(registered.backend, who, peer, stopper);
            listed.counts(session.progress());
            let phase = server.phase.subscribe();
            let watch = Watch::new(&registered.interrupt, &phase, &server.runtime);
            let connection = Box::new(Connection {
                phase,
                linger: Linger::new(&server.speaking),
                time_limits: TimeLimits::new(server.limits.idle),
                watch,
                server,
                wire,
                session,
                registered,
                listed,
                known: BTreeMap::new(),
                portals: BTreeMap::new(),
                reported: BTreeMap::new(),
                reported_version: 0,
                is_passing_over: false,
                was_open: false,
            });
            return Some((connection, place));
        }
        Err(Stop::Failed(complaint)) => complaint,
        Err(Stop::Lost) => return None,
    };
    if refused.sqlstate.starts_with(INVALID_LOG_IN) {
        server.failed_logins.note("postgres", &startup.user, peer.map(|peer| peer.ip()));
    }
    reply::error(&mut wire.output, &refused);
    wire.close().await;
    None
}

async fn begin(
    server: &Arc<Server>,
    wire: &mut Wire,
    startup: &Startup,
    seat: &Seat,
) -> Result<(Session, Registered, Place), Stop> {
    if *server.phase.borrow() != Phase::Serving {
        return Err(Complaint::fatal("57P03", "the database system is shutting down").into());
    }
    let known = greet::authenticate(server, wire, startup).await?;
    wire.trust(server.limits.message_bytes_max);
    let admitted = admit(server, (&startup.user, known), Some(seat))?;
    let Admitted { mut session, registered, place, settings } = admitted;
    let kept = session.kept().keep("messages of a client", 0);
    wire.charge(kept.map_err(|error| Complaint::of(&error, ""))?);
    let warnings = greet::settings(&mut session, &settings, startup)?;
    if startup.only_reads && server.beside.is_none() {
        session.only_read("its client asked for that when it connected");
    }
    reply::authentication(&mut wire.output, 0, &[]);
    for warning in &warnings {
        reply::notice(&mut wire.output, warning);
    }
    Ok((session, registered, place))
}

/// What an authenticated client gets.
pub(crate) struct Admitted {
    /// Its session.
    pub(crate) session: Session,
    /// Its number, by which it can be cancelled.
    pub(crate) registered: Registered,
    /// Its place among the sessions.
    pub(crate) place: Place,
    /// The settings of its role.
    pub(crate) settings: BTreeMap<String, String>,
}

/// Admits `user`, who has these rights, if there is room for a session of his.
pub(crate) fn admit(
    server: &Arc<Server>,
    (user, known): (&str, greet::Known),
    seat: Option<&Seat>,
) -> Result<Admitted, Complaint> {
    let login = server.database.login(user).filter(|_| known == greet::Known::Role);
    let is_superuser =
        known == greet::Known::Superuser || login.as_ref().is_some_and(|login| login.is_superuser);
    let place = server.sessions.enter(is_superuser)?;
    let registered = server.registry.register(user);
    let registered = registered.map_err(|error| Complaint::fatal("XX000", error.to_string()))?;
    let limit = login.as_ref().and_then(|login| login.connection_count_max);
    if limit.is_some_and(|limit| server.registry.count_of(user) > limit) {
        let message = format!("too many connections for role \"{user}\"");
        return Err(Complaint::fatal("53300", message));
    }
    let session = server.session((user, known), registered.backend, seat)?;
    let settings = login.map(|login| login.settings).unwrap_or_default();
    Ok(Admitted { session, registered, place, settings })
}

impl Connection {
    async fn run(mut self: Box<Self>) {
        self.report_settings();
        self.was_open = self.server.is_open();
        let Registered { backend, secret, .. } = self.registered;
        reply::backend_key(&mut self.wire.output, backend, secret);
        self.tell_ready();
        loop {
            let (kind, body) = match self.next_message().await {
                Ok(Ok(message)) => message,
                Ok(Err((kind, complaint))) => {
                    if kind == b'Q' || !self.is_passing_over {
                        self.fail(complaint, kind != b'Q');
                    }
                    continue;
                }
                Err(Stop::Lost) => return,
                Err(Stop::Failed(complaint)) => return self.end(&complaint).await,
            };
            let Some(message) = self.take_at_hand(Frontend::read(kind, body)) else { continue };
            match Box::pin(self.take(kind, message)).await {
                Ok(Next::Continue) => {}
                Ok(Next::Close) | Err(Stop::Lost) => return,
                Err(Stop::Failed(complaint)) => return self.end(&complaint).await,
            }
        }
    }

    /// Ends with a final error.
    async fn end(&mut self, complaint: &Complaint) {
        reply::error(&mut self.wire.output, complaint);
        self.wire.close().await;
    }

    /// The next message, or its kind and why it was passed over; all answers are sent before it.
    async fn next_message(&mut self) -> Result<Result<(u8, Bytes), (u8, Complaint)>, Stop> {
        if *self.phase.borrow() != Phase::Serving {
            return Err(Stop::Failed(shutting_down()));
        }
        match self.wire.buffered() {
            Ok(None) => {}
            Ok(Some(message)) => return Ok(Ok(message)),
            Err(WireError::Refused(kind, complaint)) => return Ok(Err((kind, complaint))),
            Err(error) => return Err(error.into()),
        }
        let idle = self.time_limits.idle(&self.session);
        let transaction = self.time_limits.deadline(&self.session);
        let (wire, linger) = (&mut self.wire, &mut self.linger);
        let read = async {
            wire.flush().await?;
            linger.message(wire).await
        };
        let idle_limit = async {
            match idle {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        // In this order, because a message that has arrived spares all the others.
        tokio::select! {
            biased;
            message = read => Ok(match message {
                Err(WireError::Refused(kind, complaint)) => Err((kind, complaint)),
                message => Ok(message?),
            }),
            _ = self.phase.wait_for(|phase| *phase != Phase::Serving) => {
                Err(Stop::Failed(shutting_down()))
            }
            () = self.registered.interrupt.terminated() => Err(shutting_down().into()),
            () = idle_limit => Err(idle_too_long(&self.session).into()),
            () = late(transaction) => Err(transaction_too_long().into()),
        }
    }

    /// Answers a message that needs no waiting, and returns any other one.
    fn take_at_hand(&mut self, message: Read) -> Option<Read> {
        if self.is_passing_over {
            return Some(message);
        }
        let done = match message {
            Ok(Some(Frontend::Bind(bind))) => match self.known_at_hand(&bind.statement) {
                Some((known, described)) => self.bind_known(bind, known, described),
                None => return Some(Ok(Some(Frontend::Bind(bind)))),
            },
            Ok(Some(Frontend::Describe(Target::Portal(name)))) => {
                match self.describe_portal_at_hand(&name) {
                    true => Ok(()),
                    false => return Some(Ok(Some(Frontend::Describe(Target::Portal(name))))),
                }
            }
            Ok(Some(Frontend::Sync)) if !self.session.is_implicit() => {
                self.end_series();
                Ok(())
            }
            message => return Some(message),
        };
        if let Err(complaint) = done {
            self.fail(complaint, true);
        }
        None
    }

    /// The part of Sync after the commit.
    fn end_series(&mut self) {
        self.is_passing_over = false;
        if self.session.transaction_status() == TransactionStatus::Idle {
            self.portals.clear();
        }
        self.tell_ready();
    }

    /// Answers one message. An error ends the connection.
    async fn take(&mut self, kind: u8, message: Read) -> Result<Next, Stop> {
        let message = match message {
            Ok(Some(message)) => message,
            Ok(None) => {
                let message = format!("invalid frontend message type {kind}");
                return Err(Complaint::fatal("08P01", message).into());
            }
            Err(malformed) => {
                self.fail(Complaint::from(malformed), kind != b'Q');
                return Ok(Next::Continue);
            }
        };
        let done = match message {
            Frontend::Terminate => return Ok(Next::Close),
            Frontend::Query(sql) => {
                self.is_passing_over = false;
                let done = Box::pin(self.query(&sql)).await;
                self.portals.remove("");
                return match done {
                    Err(Stop::Lost) => Err(Stop::Lost),
                    Err(Stop::Failed(complaint)) if is_fatal(&complaint) => Err(complaint.into()),
                    Err(Stop::Failed(complaint)) => {
                        self.fail(complaint, false);
                        Ok(Next::Continue)
                    }
                    Ok(()) => {
                        self.tell_ready();
                        Ok(Next::Continue)
                    }
                };
            }
            Frontend::Sync => {
                if let Err(error) = self.session.end_implicit().await {
                    reply::error(&mut self.wire.output, &Complaint::of(&error, ""));
                }
                self.end_series();
                Ok(())
            }
            // Rest of a COPY that has failed meanwhile.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => Ok(()),
            Frontend::Password(_) => {
                Err(Stop::Failed(Complaint::fatal("08P01", "a password was not asked for")))
            }
            Frontend::FunctionCall => {
                let complaint =
                    Complaint::error("0A000", "function calls by number are not supported");
                self.fail(complaint.hint("call the function in SELECT"), false);
                Ok(())
            }
            Frontend::Execute { .. } if self.is_passing_over => {
                // It was to run within the block, which cannot go on without it.
                self.session.fail_block();
                Ok(())
            }
            _ if self.is_passing_over => Ok(()),
            Frontend::Flush => self.wire.flush().await.map_err(Stop::from),
            extended => self.extended(extended).await,
        };
        match done {
            Ok(()) => Ok(Next::Continue),
            Err(Stop::Failed(complaint)) if !is_fatal(&complaint) => {
                self.fail(complaint, true);
                Ok(Next::Continue)
            }
            Err(stop) => Err(stop),
        }
    }

    async fn extended(&mut self, message: Frontend) -> Result<(), Stop> {
        match message {
            Frontend::Parse { name, sql, types } => Box::pin(self.parse(name, &sql, &types)).await,
            Frontend::Bind(bind) => Box::pin(self.bind(bind)).await,
            Frontend::Describe(target) => Box::pin(self.describe(target)).await,
            Frontend::Execute { portal, row_count_max } => {
                Box::pin(self.execute(&portal, row_count_max)).await
            }
            Frontend::Close(target) => {
                self.close(&target);
                Ok(())
            }
            // `take` has answered all others.
            _ => Ok(()),
        }
    }

    /// Tells the client that it may send the next message, and whether it is in a block.
    fn tell_ready(&mut self) {
        self.time_limits.rests(self.session.transaction_status());
        if self.session.settings_version() != self.reported_version {
            self.report_settings();
        }
        if self.was_open && !self.server.is_open() {
            self.was_open = false;
            reply::notice(&mut self.wire.output, &Complaint::passwords_from_now_on());
        }
        self.listed.rests(self.session.transaction_status());
        reply::ready(&mut self.wire.output, block::state(self.session.transaction_status()));
    }

    /// Reports a failure to the client. In the extended protocol, messages are then skipped up to Sync.
    fn fail(&mut self, complaint: Complaint, is_extended: bool) {
        self.session.fail_block();
        reply::error(&mut self.wire.output, &complaint);
        if is_extended {
            self.is_passing_over = true;
        } else {
            self.tell_ready();
        }
    }

    /// Refuses, in the extended protocol, to tell what is not known yet. Nothing was to be done, so a block goes on,
    /// unless a statement behind it is passed over.
    pub(super) fn refuse_to_tell(&mut self, complaint: &Complaint) {
        if self.session.is_implicit() {
            // Statements that follow are skipped, so those before are undone with them.
            self.session.fail_block();
        }
        reply::error(&mut self.wire.output, complaint);
        self.is_passing_over = true;
    }

    /// Runs the statements of a Query message.
    async fn query(&mut self, sql: &str) -> Result<(), Stop> {
        self.begin_watch();
        self.listed.begins(sql);
        self.session.comes_with(sql);
        if let Some(Started::Rows(rows)) = self.session.start_seen(sql).await {
            let tag = Box::pin(self.send_all(rows, Tag::Counted("SELECT"), sql)).await?;
            reply::complete(&mut self.wire.output, &tag);
            return Ok(());
        }
        let read = self.session.script_memory(sql);
        let _memory = read.map_err(|error| Stop::Failed(Complaint::of(&error, "")))?;
        let statements = parse_script_in(sql, Some(&self.session.settings().client.database))
            .map_err(|error| Stop::Failed(Complaint::of(&error, sql)))?;
        if statements.is_empty() {
            reply::bare(&mut self.wire.output, b'I');
        }
        let count = statements.len();
        for (parsed, number) in statements.into_iter().zip(1..) {
            let tag = parsed.statement.properties().tag;
            if count > 1 && !block::is_border(&parsed.statement) {
                self.session.begin_implicit();
            }
            if matches!(parsed.statement, Statement::Batched) && self.session.awaits_batch() {
                self.watch.flush(&mut self.wire).await?;
            }
            let tag = match Box::pin(self.start(parsed, sql)).await? {
                Started::Rows(rows) => Box::pin(self.send_all(rows, tag, sql)).await?,
                Started::Done { tag } => tag,
            };
            // The last statement's completion is sent only after the commit of all.
            if number == count {
                self.end_implicit(sql).await?;
            }
            reply::complete(&mut self.wire.output, &tag);
        }
        Ok(())
    }

    /// Commits the statements that came together. Once begun it is not cancelled: its outcome would be unknown.
    async fn end_implicit(&mut self, sql: &str) -> Result<(), Stop> {
        let ended = self.session.end_implicit().await;
        ended.map_err(|error| Stop::Failed(Complaint::of(&error, sql)))
    }

    /// Begins to watch a statement.
    pub(super) fn begin_watch(&mut self) {
        self.time_limits.begin(&mut self.watch, &self.session);
    }

    /// Runs a statement up to its rows or its end; COPY with its messages.
    pub(super) async fn start(
        &mut self,
        parsed: ParsedStatement,
        sql: &str,
    ) -> Result<Started, Stop> {
        if let Some(warning) = block::warning(&parsed.statement, self.session.transaction_status())
        {
            reply::notice(&mut self.wire.output, &warning);
        }
        if copy::is_of_a_file(&parsed.statement) && !self.server.limits.serves_files {
            let message = "ALTER SYSTEM, BACKUP, CREATE DEVICE, ALTER DEVICE … REBUILD, and COPY of the server's own \
                           files are not allowed here";
            let hint = "start the server with --allow-files; COPY FROM STDIN and TO STDOUT, as \\copy of psql does, \
                need none";
            return Err(Complaint::error("42501", message).hint(hint).into());
        }
        let (wire, session, watch) = (&mut self.wire, &mut self.session, &mut self.watch);
        match copy::direction(&parsed.statement) {
            Some(Direction::In(cut)) => {
                return Box::pin(copy::copy_in(wire, session, watch, (parsed, cut), sql)).await;
            }
            Some(Direction::Out(cut)) => {
                return Box::pin(copy::copy_out(wire, session, watch, (parsed, cut), sql)).await;
            }
            None => {}
        }
        match &parsed.statement {
            Statement::Deallocate { name: Some(name) } => drop(self.known.remove(name)),
            Statement::Deallocate { name: None } | Statement::Discard(Discard::All) => {
                self.known.clear();
            }
            _ => {}
        }
        let ends = parsed.statement.properties().place == properties::Place::Ends;
        let started = watch.over(wire, sql, session.start(parsed)).await?;
        if ends {
            self.portals.clear();
        }
        Ok(self.elsewhere(started))
    }

    /// Rows that are still to be computed, on threads that serve no client.
    pub(super) fn elsewhere(&self, started: Started) -> Started {
        match started {
            Started::Rows(rows) => Started::Rows(rows.on(&self.server.runtime)),
            done => done,
        }
    }

    /// Reports changed settings to the client.
    fn report_settings(&mut self) {
        self.reported_version = self.session.settings_version();
        self.listed.is_called(&self.session.settings().application_name);
        for name in REPORTED {
            let Ok(value) = self.session.settings().show(name) else { continue };
            if self.reported.get(name) != Some(&value) {
                reply::parameter_status(&mut self.wire.output, name, &value);
                self.reported.insert(name, value);
            }
        }
    }

    /// Sends all rows of a statement as text, after their description, and returns the tag that follows.
    async fn send_all(
        &mut self,
        mut rows: ResultRows,
        tag: Tag,
        sql: &str,
    ) -> Result<String, Stop> {
        let columns = columns(&rows.schema(), &[]);
        reply::row_description(&mut self.wire.output, &columns);
        let mut sent = 0;
        while let Some(batch) = self.next_batch(&mut rows, sql).await? {
            sent += batch.num_rows();
            self.send_batch(&batch, &columns, 0..batch.num_rows()).await?;
        }
        Ok(tag.after_rows(sent))
    }

    /// The next rows of a statement, None after the last.
    pub(super) async fn next_batch(
        &mut self,
        rows: &mut ResultRows,
        sql: &str,
    ) -> Result<Option<RecordBatch>, Stop> {
        match rows.next_at_hand() {
            Some(next) => Ok(next),
            None => self.watch.over(&mut self.wire, sql, rows.next()).await,
        }
    }

    /// Sends the rows `places` of `batch`.
    pub(super) async fn send_batch(
        &mut self,
        batch: &RecordBatch,
        columns: &[Column],
        mut places: std::ops::Range<usize>,
    ) -> Result<(), Stop> {
        let mut sent = self.session.sent_rows();
        while !places.is_empty() {
            {
                let style = self.session.settings().interval_style;
                let mut writer = RowWriter::new(batch, columns, style)?;
                let out = &mut self.wire.output;
                while out.len() < SEND_BYTES
                    && let Some(place) = places.next()
                {
                    writer.write(out, place, &mut |bytes| sent.hold(bytes))?;
                }
            }
            if self.wire.output.len() >= SEND_BYTES {
                self.watch.flush(&mut self.wire).await?;
            }
        }
        Ok(())
    }
}

fn is_fatal(complaint: &Complaint) -> bool {
    complaint.severity == super::complaint::Severity::Fatal
}

/// The columns of a result, in these formats.
pub(super) fn columns(schema: &SchemaRef, formats: &[Format]) -> Vec<Column> {
    let fields = schema.fields().iter().enumerate();
    fields
        .map(|(place, field)| Column {
            name: field.name().clone(),
            wire_type: WireType::of_arrow(field.data_type()),
            format: format_at(formats, place),
            origin: ColumnOrigin::of(field),
        })
        .collect()
}
