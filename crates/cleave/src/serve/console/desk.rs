//! The desk of a visit: the session in which the user's statements run, one request after the other.
//!
//! It is a session of the server like any other: `pg_stat_activity` shows it, others can cancel and end it, it has a
//! place among the sessions, and its settings and transactions last from one request to the next.
//!
//! Invariants: a statement that its browser does not wait for any more is [interrupted](super::awaited). Limits of the
//! server and of the session's settings on idle time and on transactions hold as for any other session
//! ([`Visits::look_after`]). Whoever had a desk that has ended is told so before he gets another one: he may believe
//! that his transaction is still open.
//!
//! [`Visits::look_after`]: super::visits::Visits::look_after

use std::sync::Arc;

use cleave_host::backends::{Listed, Stopper};
use cleave_host::statement::properties::Place as TransactionPlace;
use cleave_host::statement::{ParsedStatement, Statement, parse_script_in};
use cleave_host::{Error, ResultRows, Session, Started, TransactionStatus};
use futures::FutureExt;
use serde_json::json;
use tokio::time::Instant;

use super::pieces::Pieces;
use super::results::{Limits, Rows};
use crate::serve::Server;
use crate::serve::admission::Place;
use crate::serve::http::login::Visitor;
use crate::serve::postgres::block::{is_border, warning};
use crate::serve::postgres::complaint::{Complaint, Severity};
use crate::serve::postgres::connection::{Admitted, admit};
use crate::serve::postgres::copy;
use crate::serve::postgres::interrupt::{
    Phase, Registered, Stop, Watch, shutting_down, transaction_too_long,
};
use crate::serve::postgres::time_limits::{TimeLimits, idle_too_long};

/// What sessions of the console call themselves.
const APPLICATION_NAME: &str = "cleave console";
/// Statements of a script: all of their results are in one answer.
const STATEMENT_COUNT_MAX: usize = 1000;

/// See the [module](self).
pub(super) struct Desk {
    server: Arc<Server>,
    session: Session,
    listed: Listed,
    watch: Watch,
    registered: Registered,
    time_limits: TimeLimits,
    rests_since: Instant,
    /// A statement runs, or has ended by a defect.
    is_busy: bool,
    /// What to tell the user of the statements that run.
    notices: Vec<String>,
    _place: Place,
}

/// What became of a script.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// The results of its statements, up to the first that failed.
    pub(super) results: Vec<Pieces>,
    /// What the user should know of them.
    pub(super) notices: Vec<String>,
    /// Why it failed.
    pub(super) complaint: Option<Complaint>,
}

impl Desk {
    /// A new session of `visitor`.
    ///
    /// # Errors
    /// There is no room, or the user may not log in any more.
    pub(super) fn open(server: &Arc<Server>, visitor: &Visitor) -> Result<Self, Complaint> {
        if *server.phase.borrow() != Phase::Serving {
            return Err(Complaint::fatal("57P03", "the database system is shutting down"));
        }
        let admitted = admit(server, (&visitor.user, visitor.known), None)?;
        let Admitted { mut session, registered, place, settings } = admitted;
        for (name, value) in &settings {
            // A role that could not connect could not repair it.
            drop(session.set(name, value));
        }
        let named = session.set("application_name", APPLICATION_NAME);
        named.map_err(|error| Complaint::of(&error, ""))?;
        let who = (visitor.user.as_str(), session.settings().client.acting.session_role);
        let stopper = Arc::clone(&registered.interrupt);
        let backends = server.database.backends();
        let listed = backends.enter(registered.backend, who, None, stopper);
        listed.counts(session.progress());
        listed.is_called(APPLICATION_NAME);
        let watch = Watch::new(&registered.interrupt, &server.phase.subscribe(), &server.runtime);
        Ok(Self {
            server: Arc::clone(server),
            session,
            listed,
            watch,
            registered,
            time_limits: TimeLimits::new(server.limits.idle),
            rests_since: Instant::now(),
            is_busy: false,
            notices: Vec::new(),
            _place: place,
        })
    }

    /// The session's number.
    pub(super) fn backend(&self) -> i32 {
        self.registered.backend
    }

    /// Ends what it runs.
    pub(super) fn stopper(&self) -> Arc<dyn Stopper> {
        Arc::clone(&self.registered.interrupt) as Arc<dyn Stopper>
    }

    /// Why it is to end, if it is: somebody has ended it, or its time is over.
    pub(super) fn why_over(&self) -> Option<Complaint> {
        let is_ended = self.registered.interrupt.terminated().now_or_never().is_some();
        if is_ended || *self.server.phase.borrow() != Phase::Serving {
            return Some(shutting_down());
        }
        if self.time_limits.deadline(&self.session).is_some_and(|end| Instant::now() > end) {
            return Some(transaction_too_long());
        }
        let max = self.time_limits.idle(&self.session)?;
        (self.rests_since.elapsed() > max).then(|| idle_too_long(&self.session))
    }

    /// The state of the session's transaction, as the page has it.
    pub(super) fn transaction(&self) -> &'static str {
        match self.session.transaction_status() {
            TransactionStatus::Idle => "idle",
            TransactionStatus::Open => "open",
            TransactionStatus::Failed => "failed",
        }
    }

    /// Begins the statements of `sql`: whoever interrupts the desk from now on interrupts those.
    pub(super) fn begin(&mut self, sql: &str) {
        self.put_away();
        self.is_busy = true;
        self.time_limits.begin(&mut self.watch, &self.session);
        self.listed.begins(sql);
        self.notices.clear();
    }

    /// Runs the statements of `sql`, which have [begun](Desk::begin), one after the other, up to the first that fails.
    /// Those of one script are one transaction, as those of one message are, and share the bytes of `limits`.
    pub(super) async fn run(&mut self, sql: &str, limits: Limits) -> Done {
        let mut results = Vec::new();
        let ran = Box::pin(self.run_all(sql, limits, &mut results)).await;
        let complaint = match ran {
            Ok(()) => None,
            Err(Stop::Failed(complaint)) => Some(complaint),
            Err(Stop::Lost) => Some(Complaint::error("08006", "the client is gone")),
        };
        if complaint.is_some() {
            self.session.fail_block();
        }
        self.is_busy = false;
        let status = self.session.transaction_status();
        self.time_limits.rests(status);
        self.listed.rests(status);
        self.listed.is_called(&self.session.settings().application_name);
        self.rests_since = Instant::now();
        Done { results, notices: std::mem::take(&mut self.notices), complaint }
    }

    /// Ends a statement that has ended by a defect. Nothing may run.
    pub(super) fn put_away(&mut self) {
        if std::mem::replace(&mut self.is_busy, false) {
            self.session.fail_block();
            self.listed.rests(self.session.transaction_status());
            self.rests_since = Instant::now();
        }
    }

    /// Whether nothing more can be run in it after `complaint`.
    pub(super) fn ends_with(complaint: &Complaint) -> bool {
        complaint.severity == Severity::Fatal
    }

    async fn run_all(
        &mut self,
        sql: &str,
        mut limits: Limits,
        results: &mut Vec<Pieces>,
    ) -> Result<(), Stop> {
        let failed = |error: Error| Stop::Failed(Complaint::of(&error, sql));
        let statements = parsed(&self.session, sql)?;
        let count = statements.len();
        if count > STATEMENT_COUNT_MAX {
            let message = format!(
                "{count} statements: the console runs {STATEMENT_COUNT_MAX} of a script at most"
            );
            return Err(Complaint::error("54000", message).into());
        }
        for (parsed, number) in statements.into_iter().zip(1..) {
            let tag = parsed.statement.properties().tag;
            if count > 1 && !is_border(&parsed.statement) {
                self.session.begin_implicit();
            }
            let result = match Box::pin(self.start(parsed, sql)).await? {
                Started::Done { tag } => {
                    Pieces::of(&json!({ "tag": tag }), self.session.kept()).map_err(failed)?
                }
                Started::Rows(rows) => {
                    let rows = Box::pin(self.rows(rows, sql, limits)).await?;
                    limits = limits.after(&rows);
                    // Of rows that were left out, nobody knows how many there are.
                    let tag = (!rows.is_full()).then(|| tag.after_rows(rows.count()));
                    rows.into_json(tag.as_deref()).map_err(failed)?
                }
            };
            if number == count {
                let ended = self.session.end_implicit().await;
                ended.map_err(failed)?;
            }
            results.push(result);
        }
        Ok(())
    }

    async fn start(&mut self, parsed: ParsedStatement, sql: &str) -> Result<Started, Stop> {
        self.check(&parsed.statement)?;
        if let Some(warning) = warning(&parsed.statement, self.session.transaction_status()) {
            self.notices.push(warning.message);
        }
        let ends = parsed.statement.properties().place == TransactionPlace::Ends;
        let nobody_goes = std::future::pending();
        let (session, watch) = (&mut self.session, &mut self.watch);
        let started = watch.over_unless(nobody_goes, sql, session.start(parsed)).await?;
        if ends {
            self.time_limits.transaction_ended();
        }
        Ok(match started {
            Started::Rows(rows) => Started::Rows(rows.on(&self.server.runtime)),
            done @ Started::Done { .. } => done,
        })
    }

    /// Refuses what needs more than a page.
    fn check(&self, statement: &Statement) -> Result<(), Stop> {
        if copy::is_of_a_file(statement) && !self.server.limits.serves_files {
            let message = "ALTER SYSTEM, BACKUP, CREATE DEVICE, ALTER DEVICE … REBUILD, and COPY of the server's own \
                           files are not allowed here";
            let hint = "start the server with --allow-files";
            return Err(Complaint::error("42501", message).hint(hint).into());
        }
        if copy::direction(statement).is_some() {
            let message = "COPY FROM STDIN and TO STDOUT are not supported in the console";
            return Err(Complaint::error("0A000", message).hint("use \\copy of a shell").into());
        }
        Ok(())
    }

    async fn rows(
        &mut self,
        mut rows: ResultRows,
        sql: &str,
        limits: Limits,
    ) -> Result<Rows, Stop> {
        let style = self.session.settings().interval_style;
        let failed = |error: Error| Stop::Failed(Complaint::of(&error, sql));
        let taken = Rows::new(&rows.schema(), limits, self.session.kept());
        let mut taken = taken.map_err(failed)?;
        while !taken.is_full() {
            let nobody_goes = std::future::pending();
            let batch = match rows.next_at_hand() {
                Some(batch) => batch,
                None => self.watch.over_unless(nobody_goes, sql, rows.next()).await?,
            };
            let Some(batch) = batch else { break };
            taken.take(&batch, style).map_err(failed)?;
        }
        Ok(taken)
    }

    /// EXPLAIN of the one statement of `sql`, with figures of a run and under a split if asked for; how many
    /// characters stand before `sql` in it.
    ///
    /// # Errors
    /// `sql` is none or several statements, or no statement, or the split cannot be one.
    pub(super) fn explained(
        &self,
        sql: &str,
        analyze: bool,
        split: Option<&str>,
    ) -> Result<(String, usize), Complaint> {
        let statements = match parsed(&self.session, sql) {
            Ok(statements) => statements,
            Err(Stop::Failed(complaint)) => return Err(complaint),
            Err(Stop::Lost) => return Err(Complaint::error("08006", "the client is gone")),
        };
        if statements.len() != 1 {
            let message = format!("{} statements, where one can be explained", statements.len());
            return Err(Complaint::error("42601", message));
        }
        // What could end the hint, or be another one, is no name of a split.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "+*_-:.,".contains(letter);
        let hint = match split {
            None => String::new(),
            Some(split) if split.len() <= 64 && split.chars().all(is_plain) => {
                format!("/*+ split({split}) */ ")
            }
            Some(_) => return Err(Complaint::error("22023", "there is no such split")),
        };
        let options = if analyze { "ANALYZE, FORMAT JSON" } else { "FORMAT JSON" };
        let head = format!("EXPLAIN ({options}) {hint}");
        let length = head.chars().count();
        Ok((head + sql, length))
    }
}

fn parsed(session: &Session, sql: &str) -> Result<Vec<ParsedStatement>, Stop> {
    let parsed = parse_script_in(sql, Some(&session.settings().client.database));
    parsed.map_err(|error| Stop::Failed(Complaint::of(&error, sql)))
}
