//! Sessions that only look on: the statements that the page shows system tables by.
//!
//! Each runs in a session of the user, so a table shows what it shows him. These sessions have no number: they are no
//! connections, others do not see them, and they are neither in the query log nor among the counted statements.
//!
//! What a page is shown each second, [`SEEN`], it is also shown [without a statement](Looks::seen) that would have to
//! be planned: the same rows, of what is in memory.

use std::sync::Arc;
use std::time::Duration;

use cleave_host::select::pg_catalog::SeenSessions;
use cleave_host::statement::parse_script_in;
use cleave_host::{ResultRows, Session, Started};
use serde_json::{Value, json};

use super::pieces::Pieces;
use super::results::{Limits, Rows};
use crate::serve::Server;
use crate::serve::http::login::Visitor;
use crate::serve::postgres::complaint::Complaint;

/// Longest time of such a statement.
const TIME_MAX: Duration = Duration::from_secs(30);

/// The statements, by name.
const VIEWS: [(&str, &str); 15] = [
    ("activity", "SELECT what, count FROM cleave.activity"),
    ("device_locks", "SELECT * FROM cleave.device_locks"),
    ("devices", "SELECT * FROM cleave.devices ORDER BY name"),
    ("filter_history", "SELECT * FROM cleave.filter_history"),
    ("fragments", "SELECT * FROM cleave.fragments"),
    (
        "locks",
        "SELECT l.pid, l.locktype, l.relation, c.relname AS table_name, l.page, l.tuple, l.transactionid, l.classid, \
                l.objid, l.mode, l.granted \
         FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation ORDER BY l.granted, l.pid",
    ),
    (
        "names",
        "SELECT table_name, column_name FROM information_schema.columns \
         WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY table_name, ordinal_position",
    ),
    ("query_log", "SELECT * FROM cleave.query_log ORDER BY began DESC LIMIT 200"),
    ("result_sets", "SELECT * FROM cleave.result_sets"),
    (
        "sessions",
        "SELECT pid, usename, application_name, client_addr, state, wait_event_type, wait_event, backend_start, \
                xact_start, query_start, state_change, query \
         FROM pg_stat_activity ORDER BY pid",
    ),
    ("settings", "SHOW ALL"),
    ("statements", "SELECT * FROM cleave.statements ORDER BY total_ms DESC LIMIT 500"),
    (
        "tables",
        "SELECT relname, n_live_tup, n_dead_tup, n_mod_since_analyze, last_vacuum, last_autovacuum, last_analyze, \
                last_autoanalyze FROM pg_stat_user_tables ORDER BY relname",
    ),
    ("tablets", "SELECT * FROM cleave.tablets ORDER BY table_name, tablet"),
    (
        "waits",
        "SELECT pid, kind, table_name, mode, blocked_by FROM cleave.locks WHERE NOT granted ORDER BY pid",
    ),
];

/// Of these tables a page can be shown the rows without a statement: their names, with the columns that it is shown.
const SEEN: [(&str, &[&str]); 3] = [
    (
        "locks",
        &[
            "pid",
            "locktype",
            "relation",
            "table_name",
            "page",
            "tuple",
            "transactionid",
            "classid",
            "objid",
            "mode",
            "granted",
        ],
    ),
    (
        "sessions",
        &[
            "pid",
            "usename",
            "application_name",
            "client_addr",
            "state",
            "wait_event_type",
            "wait_event",
            "backend_start",
            "xact_start",
            "query_start",
            "state_change",
            "query",
        ],
    ),
    ("waits", &["pid", "kind", "table_name", "mode", "blocked_by"]),
];

/// A session of a user that only looks on.
pub(super) struct Looks {
    server: Arc<Server>,
    session: Session,
}

impl Looks {
    /// Such a session of `visitor`.
    ///
    /// # Errors
    /// The user may not log in any more.
    pub(super) fn open(server: &Arc<Server>, visitor: &Visitor) -> Result<Self, Complaint> {
        let mut session = server.session((&visitor.user, visitor.known), 0, None)?;
        let quiet = session.set("query_log", "off");
        quiet.map_err(|error| Complaint::of(&error, ""))?;
        session.look_on();
        Ok(Self { server: Arc::clone(server), session })
    }

    /// The rows of the table called `name`; None: there is none of that name.
    pub(super) async fn view(&mut self, name: &str) -> Option<Result<Pieces, Complaint>> {
        let (_, sql) = VIEWS.iter().find(|(known, _)| *known == name)?;
        Some(self.read(sql).await)
    }

    /// The same of one of [`SEEN`], made of what was `seen`.
    pub(super) async fn seen(
        &mut self,
        name: &str,
        seen: &SeenSessions,
    ) -> Option<Result<Value, Complaint>> {
        let (_, columns) = SEEN.iter().find(|(known, _)| *known == name)?;
        // A statement says what became of a user who was dropped.
        if !SeenSessions::knows(&self.server.database, &self.session.settings().client) {
            let viewed = self.view(name).await?;
            return Some(viewed.map(|rows| rows.value()));
        }
        let made = self.rows_of(name, columns, seen);
        Some(made.map_err(|error| Complaint::of(&error, "")))
    }

    fn rows_of(
        &self,
        name: &str,
        columns: &[&str],
        seen: &SeenSessions,
    ) -> cleave_host::Result<Value> {
        let (database, settings) = (&self.server.database, self.session.settings());
        let limits = Limits::OF_VIEW;
        let all = match name {
            "locks" => {
                // One more than fit says that there are more.
                seen.locks(database, &settings.client, limits.row_count_max + 1)?
            }
            "sessions" => seen.sessions(database, &settings.client)?,
            _ => seen.waits(database)?,
        };
        let schema = all.schema();
        let places: Vec<_> = columns.iter().filter_map(|name| schema.index_of(name).ok()).collect();
        let batch = all.project(&places)?;
        let mut rows = Rows::new(&batch.schema(), limits, self.session.kept())?;
        rows.take(&batch, settings.interval_style)?;
        Ok(rows.into_json(None)?.value())
    }

    /// Cancels the statement of the session of this number, or ends that; whether there is one.
    pub(super) async fn stop(&mut self, pid: i32, terminates: bool) -> Result<bool, Complaint> {
        let function = if terminates { "pg_terminate_backend" } else { "pg_cancel_backend" };
        let result = self.read(&format!("SELECT {function}({pid})")).await?;
        Ok(Rows::first_text(&result.value()).is_some_and(|text| text.starts_with('t')))
    }

    /// The rows of `sql`, one statement.
    async fn read(&mut self, sql: &str) -> Result<Pieces, Complaint> {
        let failed = |error: cleave_host::Error| Complaint::of(&error, sql);
        let client = &self.session.settings().client;
        let parsed = parse_script_in(sql, Some(&client.database)).map_err(failed)?.pop();
        let parsed = parsed.ok_or_else(|| Complaint::error("42601", "there is no statement"))?;
        let style = self.session.settings().interval_style;
        let runtime = self.server.runtime.clone();
        let memory = Arc::clone(self.session.kept());
        let session = &mut self.session;
        let reading = Box::pin(async move {
            let mut rows: ResultRows = match session.start(parsed).await? {
                Started::Rows(rows) => rows.on(&runtime),
                Started::Done { tag } => return Pieces::of(&json!({ "tag": tag }), &memory),
            };
            let mut taken = Rows::new(&rows.schema(), Limits::OF_VIEW, &memory)?;
            while !taken.is_full()
                && let Some(batch) = rows.next().await?
            {
                taken.take(&batch, style)?;
            }
            taken.into_json(None)
        });
        match tokio::time::timeout(TIME_MAX, reading).await {
            Ok(read) => read.map_err(failed),
            Err(_) => {
                Err(Complaint::error("57014", "canceling statement due to statement timeout"))
            }
        }
    }
}
