//! The extended protocol: prepared statements, and portals that are run in pieces.
//!
//! 1. Parse: a query or INSERT becomes a prepared statement of the session, which knows the types of its parameters;
//!    any other statement is kept as it was read ([`Known`]).
//! 2. Bind: values become text by those types, and a [`Portal`].
//! 3. Describe: parameters and columns of a statement; columns of a portal. Columns that the values of parameters tell
//!    are refused behind the parameters: clients go on with that ([`Connection::refuse_to_tell`]).
//! 4. Execute: up to a given number of rows; if there are more, the portal is suspended and the next Execute continues
//!    it, on its original snapshot.
//!
//! A portal lives until Sync, or within a transaction block to its end. The columns of a statement without parameters
//! may only be known when it runs (SHOW): describing its portal then starts it. Those of one whose parameters name
//! files are known with their values: describing the portal plans it, or starts it if it is a query and Execute
//! follows. Drivers describe a statement once and read the rows of later runs by that: a run that has other columns,
//! since a table or file has changed, is refused unless it is described itself ([`Told`]).
//!
//! Source: PostgreSQL's manual, "Extended Query".

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, SchemaRef};
use bytes::BytesMut;
use cleave_host::statement::properties::{Columns, Tag};
use cleave_host::statement::type_tree::asks_for_types;
use cleave_host::statement::{ParsedStatement, Statement, parse_script_in};
use cleave_host::value::binary::Element;
use cleave_host::{BEGUN_QUERY_BYTES, Described, Error, Kept, ResultRows, Started};

use super::block;
use super::complaint::Complaint;
use super::connection::{Connection, columns};
use super::interrupt::Stop;
use super::message::{Bind, Format, Target, format_at};
use super::reply::{self, Column};
use super::types::{WireType, declared, parameter};
use super::values::parameter_text;

/// Most statements, and most portals, that one session may keep.
const KEPT_COUNT_MAX: usize = 10_000;
/// Bytes of a statement without parameters, besides what is made of its text.
const STATEMENT_BYTES: usize = 4 << 10;
/// What is made of a text takes so many times as much.
const TEXT_TIMES: usize = 10;
/// Bytes of a portal besides its values.
const PORTAL_BYTES: usize = 1 << 10;
/// Values of fewer bytes are not charged to the one portal without a name.
const UNCHARGED_BYTES: usize = 64 << 10;

/// A statement that a client has parsed.
#[derive(Debug)]
pub(crate) enum Known {
    /// No statement: only blanks and comments.
    Empty,
    /// One that the session has prepared.
    Prepared {
        /// Its text.
        sql: String,
        /// The types that the client has declared for its first parameters.
        declared: Vec<u32>,
        /// Its command tag.
        tag: Tag,
        /// It is a query: it may start before it is to run.
        is_query: bool,
        /// The columns that the client was told last.
        told: Arc<Told>,
    },
    /// One without parameters.
    Plain {
        /// The statement.
        parsed: Box<ParsedStatement>,
        /// Its text.
        sql: String,
        /// What the session keeps for it.
        _kept: Kept,
    },
}

/// The columns of a statement that a client was told last; None: it has not asked, or there are none.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<Option<SchemaRef>>);

/// A statement with its values, which may have started.
pub(crate) struct Portal {
    /// The statement's name.
    statement: String,
    known: Arc<Known>,
    /// Its description, if the session has prepared it: when it got its values, or with them.
    described: Option<Arc<Described>>,
    values: Vec<Option<String>>,
    formats: Vec<Format>,
    /// The columns that were described to the client.
    told: Vec<Column>,
    state: Phase,
    /// What the session keeps for it; None: little, of the portal without a name.
    kept: Option<Kept>,
    /// The same for its query, once that has begun.
    begun: Option<Kept>,
}

enum Phase {
    /// It has not started.
    Bound,
    /// It returns rows.
    Rows(Box<PortalRows>),
    /// It is done, and returned no rows.
    Done(String),
    /// It was run to its end.
    Ended,
}

struct PortalRows {
    rows: ResultRows,
    columns: Vec<Column>,
    /// Computed rows that are not yet sent, from this position on.
    batch: Option<(RecordBatch, usize)>,
}

impl Connection {
    /// Parse.
    pub(super) async fn parse(
        &mut self,
        name: String,
        sql: &str,
        types: &[u32],
    ) -> Result<(), Stop> {
        let wrong = |error| Stop::Failed(Complaint::of(&error, sql));
        if !name.is_empty() && self.known.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Complaint::error("42P05", message).into());
        }
        if self.known.len() >= KEPT_COUNT_MAX {
            return Err(too_many("prepared statements").into());
        }
        let database = &self.session.settings().client.database;
        let _memory = self.session.script_memory(sql).map_err(wrong)?;
        let mut statements = parse_script_in(sql, Some(database)).map_err(wrong)?;
        let parsed = statements.pop();
        if !statements.is_empty() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(Complaint::error("42601", message).into());
        }
        let known = match parsed {
            None => Known::Empty,
            Some(parsed) if parsed.statement.properties().takes_parameters => {
                block::admit(self.session.transaction_status())?;
                let tag = parsed.statement.properties().tag;
                let is_query = matches!(parsed.statement, Statement::Query(_));
                let typed = types.iter().zip(1..).map(|(oid, number)| declared(number, *oid));
                let declared = match types {
                    [] if asks_for_types(sql) => vec![Element::Oid.list_oid()],
                    types => types.to_vec(),
                };
                let types = typed.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
                self.begin_watch();
                let prepared = self.session.prepare_statement(&name, parsed, &types);
                self.watch.over(&mut self.wire, sql, Box::pin(prepared)).await?;
                let (sql, told) = (sql.to_owned(), Arc::default());
                Known::Prepared { sql, declared, tag, is_query, told }
            }
            Some(parsed) => {
                let bytes = STATEMENT_BYTES.saturating_add(sql.len().saturating_mul(TEXT_TIMES));
                let kept = self.keep("statements of a client", bytes)?;
                Known::Plain { parsed: Box::new(parsed), sql: sql.to_owned(), _kept: kept }
            }
        };
        self.known.insert(name, Arc::new(known));
        reply::bare(&mut self.wire.output, b'1');
        Ok(())
    }

    fn known(&self, name: &str) -> Result<Arc<Known>, Complaint> {
        self.known.get(name).cloned().ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                _ => format!("prepared statement \"{name}\" does not exist"),
            };
            Complaint::error("26000", message)
        })
    }

    /// The session's description of a statement that it has prepared.
    async fn described(&mut self, name: &str, sql: &str) -> Result<Arc<Described>, Stop> {
        if let Some(described) = self.session.described_at_hand(name) {
            return Ok(described);
        }
        self.begin_watch();
        let described = self.session.describe(name);
        self.watch.over(&mut self.wire, sql, described).await
    }

    /// Bind.
    pub(super) async fn bind(&mut self, bind: Bind) -> Result<(), Stop> {
        let known = self.known(&bind.statement)?;
        let described = match &*known {
            Known::Prepared { sql, .. } => Some(self.described(&bind.statement, sql).await?),
            Known::Empty | Known::Plain { .. } => None,
        };
        self.bind_known(bind, known, described).map_err(Stop::from)
    }

    /// A known statement, with its description if the session has prepared it and has one; None if that must be
    /// computed, or there is no such statement.
    pub(super) fn known_at_hand(&self, name: &str) -> Option<(Arc<Known>, Option<Arc<Described>>)> {
        let known = self.known.get(name)?;
        let described = match &**known {
            Known::Prepared { .. } => Some(self.session.described_at_hand(name)?),
            Known::Empty | Known::Plain { .. } => None,
        };
        Some((Arc::clone(known), described))
    }

    /// Bind of a known statement.
    pub(super) fn bind_known(
        &mut self,
        bind: Bind,
        known: Arc<Known>,
        described: Option<Arc<Described>>,
    ) -> Result<(), Complaint> {
        let Bind { portal, statement, formats, values, results } = bind;
        let types = described.as_ref().map_or(&[][..], |described| &described.parameters);
        let oids: &[u32] = match &*known {
            Known::Prepared { declared, .. } => declared,
            Known::Empty | Known::Plain { .. } => &[],
        };
        if values.len() != types.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                values.len(),
                types.len()
            );
            return Err(Complaint::error("08P01", message));
        }
        if formats.len() > 1 && formats.len() != values.len() {
            let message = format!(
                "bind message has {} parameter formats but {} parameters",
                formats.len(),
                values.len()
            );
            return Err(Complaint::error("08P01", message));
        }
        let read = values.iter().zip(types).enumerate().map(|(place, (value, column_type))| {
            let oid = oids.get(place).copied().unwrap_or(0);
            let is_list =
                described.as_ref().is_some_and(|described| described.lists.contains(&place));
            let told = parameter(place + 1, oid, *column_type, is_list);
            let (_, element) = told.map_err(|error| Complaint::of(&error, ""))?;
            let text = |value| {
                parameter_text(place + 1, (element, is_list), format_at(&formats, place), value)
            };
            value.as_ref().map(text).transpose()
        });
        let values = read.collect::<Result<Vec<_>, Complaint>>()?;
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            let message = format!("cursor \"{portal}\" already exists");
            return Err(Complaint::error("42P03", message));
        }
        if self.portals.len() >= KEPT_COUNT_MAX {
            return Err(too_many("portals"));
        }
        if portal.is_empty() {
            // The one before has its end here.
            self.portals.remove("");
        }
        let of_values: usize = values.iter().flatten().map(String::len).sum();
        let kept = match portal.is_empty() && of_values <= UNCHARGED_BYTES {
            true => None,
            false => Some(self.keep("portals", of_values + PORTAL_BYTES)?),
        };
        let (formats, state) = (results, Phase::Bound);
        let told = Vec::new();
        let bound =
            Portal { statement, known, described, values, formats, told, state, kept, begun: None };
        self.portals.insert(portal, Box::new(bound));
        reply::bare(&mut self.wire.output, b'2');
        Ok(())
    }

    /// Describe.
    pub(super) async fn describe(&mut self, target: Target) -> Result<(), Stop> {
        match target {
            Target::Statement(name) => self.describe_statement(&name).await,
            // An SQL cursor is a portal too.
            Target::Portal(name)
                if !self.portals.contains_key(&name)
                    && let Some(schema) = self.session.cursor_columns(&name) =>
            {
                reply::row_description(&mut self.wire.output, &columns(&schema, &[]));
                Ok(())
            }
            Target::Portal(name) if self.describe_portal_at_hand(&name) => Ok(()),
            Target::Portal(name) => {
                let mut portal = self.take_portal(&name)?;
                let told = self.describe_portal(&mut portal).await;
                self.portals.insert(name, portal);
                told
            }
        }
    }

    async fn describe_statement(&mut self, name: &str) -> Result<(), Stop> {
        let (parameters, schema): (Vec<u32>, _) = match &*self.known(name)? {
            Known::Empty => (Vec::new(), None),
            Known::Prepared { sql, declared, told: last, .. } => {
                let described = self.described(name, sql).await?;
                let declared = declared.iter().copied().chain(std::iter::repeat(0));
                let told = described.parameters.iter().zip(declared).enumerate();
                let oids = told.map(|(place, (known, oid))| {
                    let is_list = described.lists.contains(&place);
                    parameter(place + 1, oid, *known, is_list).map(|(oid, _)| oid)
                });
                let oids = oids.collect::<Result<Vec<_>, _>>();
                let oids = oids.map_err(|error| Complaint::of(&error, sql))?;
                if described.is_told_late {
                    // NoData would say that it has no rows.
                    reply::parameter_description(&mut self.wire.output, &oids);
                    self.refuse_to_tell(&Complaint::of(&untold(), sql));
                    return Ok(());
                }
                last.put(described.columns.as_ref());
                (oids, described.columns.clone())
            }
            Known::Plain { parsed, sql, .. } => {
                self.begin_watch();
                let columns = self.session.columns(parsed);
                (Vec::new(), self.watch.over(&mut self.wire, sql, columns).await?)
            }
        };
        let out = &mut self.wire.output;
        reply::parameter_description(out, &parameters);
        match schema {
            Some(schema) => reply::row_description(out, &columns(&schema, &[])),
            None => reply::bare(out, b'n'),
        }
        Ok(())
    }

    /// Describes the portal `name`, if its columns are known; returns whether they are.
    pub(super) fn describe_portal_at_hand(&mut self, name: &str) -> bool {
        let Some(portal) = self.portals.get_mut(name) else { return false };
        let is_known = matches!(portal.state, Phase::Bound)
            && portal.described.as_ref().is_some_and(|own| !own.is_told_late);
        if is_known {
            portal.tell(&mut self.wire.output);
        }
        is_known
    }

    async fn describe_portal(&mut self, portal: &mut Portal) -> Result<(), Stop> {
        let is_bound = matches!(portal.state, Phase::Bound);
        if is_bound && self.is_told_late(&portal.known, portal.described.as_deref()).await? {
            self.begin_watch();
            if let Known::Prepared { sql, is_query, .. } = &*portal.known
                && !(*is_query && self.wire.is_next(b'E'))
            {
                let values: Vec<_> = portal.values.iter().map(Option::as_deref).collect();
                let described = self.session.describe_with(&portal.statement, &values);
                portal.described = Some(self.watch.over(&mut self.wire, sql, described).await?);
                portal.tell(&mut self.wire.output);
                return Ok(());
            }
            self.begin(portal).await?;
            if let (Known::Prepared { told, .. }, Phase::Rows(rows)) =
                (&*portal.known, &portal.state)
            {
                told.put(Some(&rows.rows.schema()));
            }
        } else if let (Known::Plain { parsed, sql, .. }, Phase::Bound) =
            (&*portal.known, &portal.state)
            && !block::is_border(&parsed.statement)
        {
            self.begin_watch();
            let shown = self.session.columns(parsed);
            if self.watch.over(&mut self.wire, sql, shown).await?.is_some() {
                self.begin(portal).await?;
            }
        }
        let out = &mut self.wire.output;
        match &portal.state {
            Phase::Rows(rows) => reply::row_description(out, &rows.columns),
            _ => reply::bare(out, b'n'),
        }
        Ok(())
    }

    /// Whether the values of parameters, which name files, tell the columns of a statement, or of the prepared one that
    /// it runs.
    async fn is_told_late(
        &mut self,
        known: &Known,
        described: Option<&Described>,
    ) -> Result<bool, Stop> {
        if let Known::Plain { parsed, sql, .. } = known
            && let Columns::OfPrepared(execute) = parsed.statement.properties().columns
        {
            return Ok(self.described(&execute.name, sql).await?.is_told_late);
        }
        Ok(described.is_some_and(|own| own.is_told_late))
    }

    /// Keeps `bytes` of `what` for the client.
    fn keep(&self, what: &'static str, bytes: usize) -> Result<Kept, Complaint> {
        self.session.kept().keep(what, bytes).map_err(|error| Complaint::of(&error, ""))
    }

    fn take_portal(&mut self, name: &str) -> Result<Box<Portal>, Complaint> {
        self.portals
            .remove(name)
            .ok_or_else(|| Complaint::error("34000", format!("portal \"{name}\" does not exist")))
    }

    /// Starts the statement of a portal.
    async fn begin(&mut self, portal: &mut Portal) -> Result<(), Stop> {
        let is_border = match &*portal.known {
            Known::Plain { parsed, .. } => block::is_border(&parsed.statement),
            Known::Empty => true,
            Known::Prepared { .. } => false,
        };
        // A statement directly followed by Sync is alone, if nothing came before it, unless it changes rows and may be
        // refused after it has run.
        if !is_border && (portal.is_judged_late() || !self.wire.is_next(b'S')) {
            self.session.begin_implicit();
        }
        if let Known::Prepared { sql, .. } | Known::Plain { sql, .. } = &*portal.known {
            self.session.comes_with(sql);
        }
        let started = match &*portal.known {
            Known::Empty => return Ok(()),
            Known::Prepared { sql, .. } => {
                let values: Vec<Option<&str>> =
                    portal.values.iter().map(Option::as_deref).collect();
                match self.session.start_look_up(&portal.statement, &values) {
                    Some(started) => started,
                    None => {
                        let started = self.session.start_prepared(&portal.statement, &values);
                        let started = Box::pin(started);
                        let started = self.watch.over(&mut self.wire, sql, started).await?;
                        self.elsewhere(started)
                    }
                }
            }
            Known::Plain { parsed, sql, .. } => {
                Box::pin(self.start(ParsedStatement::clone(parsed), sql)).await?
            }
        };
        if let (Started::Rows(_), Some(_)) = (&started, &portal.kept) {
            portal.begun = Some(self.keep("portals", BEGUN_QUERY_BYTES)?);
        }
        portal.state = match started {
            Started::Done { tag } => Phase::Done(tag),
            Started::Rows(rows) => {
                let schema = rows.schema();
                let columns = match std::mem::take(&mut portal.told) {
                    told if are_columns_of(&told, &schema) => told,
                    _ => columns(&schema, &portal.formats),
                };
                Phase::Rows(Box::new(PortalRows { rows, columns, batch: None }))
            }
        };
        Ok(())
    }

    /// Execute.
    pub(super) async fn execute(&mut self, name: &str, row_count_max: u32) -> Result<(), Stop> {
        let mut portal = self.take_portal(name)?;
        let done = self.execute_portal(&mut portal, row_count_max).await;
        // The end of a block ends its portals, possibly including this one.
        if done.is_ok() && !matches!(portal.state, Phase::Bound) {
            self.portals.insert(name.to_owned(), portal);
        }
        done
    }

    async fn execute_portal(
        &mut self,
        portal: &mut Portal,
        row_count_max: u32,
    ) -> Result<(), Stop> {
        self.begin_watch();
        if let Known::Empty = *portal.known {
            reply::bare(&mut self.wire.output, b'I');
            return Ok(());
        }
        if let Known::Plain { sql, .. } | Known::Prepared { sql, .. } = &*portal.known {
            self.listed.begins(sql);
        }
        if let Phase::Bound = portal.state {
            // What changes rows has done so once it has begun.
            if portal.told.is_empty()
                && let Known::Prepared { told, .. } = &*portal.known
                && let Some(columns) =
                    portal.described.as_ref().and_then(|own| own.columns.as_ref())
            {
                told.check(columns)?;
            }
            self.begin(portal).await?;
            if let (Known::Prepared { told, .. }, Phase::Rows(rows)) =
                (&*portal.known, &portal.state)
                && let Some(own) = portal.described.as_ref().filter(|own| own.is_told_late)
            {
                let now = rows.rows.schema();
                match &own.columns {
                    // The portal itself was described.
                    Some(columns) => check_told(Some(columns), &now)?,
                    None => told.check(&now)?,
                }
            }
        }
        let (tag, sql) = match &*portal.known {
            Known::Plain { parsed, sql, .. } => (parsed.statement.properties().tag, sql.as_str()),
            Known::Prepared { sql, tag, .. } => (*tag, sql.as_str()),
            Known::Empty => (Tag::Counted("SELECT"), ""),
        };
        match &mut portal.state {
            Phase::Rows(rows) => {
                let limit = usize::try_from(row_count_max).ok().filter(|limit| *limit > 0);
                let (sent, is_end) = self.send_some(rows, limit, sql).await?;
                if is_end {
                    reply::complete(&mut self.wire.output, &tag.after_rows(sent));
                } else {
                    reply::bare(&mut self.wire.output, b's');
                }
            }
            Phase::Done(done) => {
                reply::complete(&mut self.wire.output, done);
                portal.state = Phase::Ended;
            }
            Phase::Bound | Phase::Ended => {
                let message = format!("portal \"{}\" cannot be run anymore", portal.statement);
                return Err(Complaint::error("55000", message).into());
            }
        }
        Ok(())
    }

    /// Sends up to `limit` rows; returns how many, and whether that was the end.
    async fn send_some(
        &mut self,
        portal: &mut PortalRows,
        limit: Option<usize>,
        sql: &str,
    ) -> Result<(usize, bool), Stop> {
        let mut sent = 0;
        loop {
            if limit.is_some_and(|limit| sent >= limit) {
                return Ok((sent, false));
            }
            let (batch, start) = match portal.batch.take() {
                Some(rest) => rest,
                None => match self.next_batch(&mut portal.rows, sql).await? {
                    Some(batch) => (batch, 0),
                    None => return Ok((sent, true)),
                },
            };
            let room = limit.map_or(usize::MAX, |limit| limit - sent);
            let end = batch.num_rows().min(start.saturating_add(room));
            self.send_batch(&batch, &portal.columns, start..end).await?;
            sent += end - start;
            if end < batch.num_rows() {
                portal.batch = Some((batch, end));
            }
        }
    }

    /// Close.
    pub(super) fn close(&mut self, target: &Target) {
        match target {
            Target::Portal(name) => drop(self.portals.remove(name)),
            Target::Statement(name) => {
                let known = self.known.remove(name);
                if known.is_some_and(|known| matches!(*known, Known::Prepared { .. })) {
                    // A statement deallocated by SQL is gone already.
                    drop(self.session.deallocate(Some(name)));
                }
                self.portals.retain(|_, portal| portal.statement != *name);
            }
        }
        reply::bare(&mut self.wire.output, b'3');
    }
}

impl Portal {
    /// Whether its columns are known when it has changed rows, and are compared with those that the client was told.
    fn is_judged_late(&self) -> bool {
        let is_told_late = self.described.as_ref().is_some_and(|own| own.is_told_late);
        is_told_late && matches!(*self.known, Known::Prepared { is_query: false, .. })
    }

    /// Tells the client the columns of its description.
    fn tell(&mut self, out: &mut BytesMut) {
        let schema = self.described.as_ref().and_then(|own| own.columns.as_ref());
        if let Known::Prepared { told, .. } = &*self.known {
            told.put(schema);
        }
        match schema {
            Some(schema) => {
                self.told = columns(schema, &self.formats);
                reply::row_description(out, &self.told);
            }
            None => reply::bare(out, b'n'),
        }
    }
}

impl Told {
    fn put(&self, columns: Option<&SchemaRef>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = columns.cloned();
    }

    /// As [`check_told`], of a run that was not described itself.
    fn check(&self, now: &SchemaRef) -> Result<(), Complaint> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        check_told(told.as_ref(), now)
    }
}

/// Refuses a run that has other columns than the client was told: it would read the rows by these.
fn check_told(told: Option<&SchemaRef>, now: &SchemaRef) -> Result<(), Complaint> {
    let is_same = |(told, now): (&FieldRef, &FieldRef)| {
        let of = |field: &FieldRef| WireType::of_arrow(field.data_type());
        told.name() == now.name() && of(told) == of(now)
    };
    let are_same = |told: &SchemaRef| {
        let (told, now) = (told.fields(), now.fields());
        told.len() == now.len() && told.iter().zip(now).all(is_same)
    };
    match told.is_none_or(|told| Arc::ptr_eq(told, now) || are_same(told)) {
        true => Ok(()),
        false => Err(Complaint::error("0A000", "cached plan must not change result type")
            .hint("describe the statement or its portal again, or prepare it anew")),
    }
}

/// The refusal to tell columns that depend on values.
fn untold() -> Error {
    Error::Unsupported {
        what: "describing a statement whose parameters name files, before they have values,"
            .to_owned(),
        hint: Some("describe the portal, once they are bound".to_owned()),
        position: None,
    }
}

/// Whether these are the columns of `schema`.
fn are_columns_of(columns: &[Column], schema: &SchemaRef) -> bool {
    let is_same = |(column, field): (&Column, &FieldRef)| {
        column.name == *field.name() && column.wire_type == WireType::of_arrow(field.data_type())
    };
    let fields = schema.fields();
    columns.len() == fields.len() && columns.iter().zip(fields).all(is_same)
}

fn too_many(what: &str) -> Complaint {
    let message = format!("a session keeps at most {KEPT_COUNT_MAX} {what}");
    Complaint::error("54000", message).hint("close those that are done")
}
