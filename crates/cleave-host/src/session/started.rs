//! Statements whose rows are streamed: a server sends them on without ever holding the whole result.
//!
//! 1. [`Session::start`] runs a statement up to its first rows ([`ResultRows`]) or its outcome. [`Session::start_seen`]
//!    does the same for a look-up that was seen before, without parsing its text, and [`Session::start_look_up`] for a
//!    prepared one.
//! 2. [`ResultRows::next`] gives the rows, batch by batch. They hold the tablets and pages of the snapshot at which the
//!    statement began, whatever the session does meanwhile. Dropping them stops the query on both sides.
//!
//! If streaming fails, the block in which the statement began has failed: the consumer reports that
//! ([`Session::fail_block`]).
//!
//! A server's threads must not be busy with one client's rows while others wait: [`ResultRows::on`] moves the
//! computation to another runtime.
//!
//! [`Session::columns`] gives the columns of a statement's rows before it runs, as a server needs them.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::advisory_locks::AdvisoryLocks;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_catalog::settings::When;
use cleave_catalog::tasks;
use cleave_engine::write::begun::byte_count;
use cleave_fragment::{Stop, StopOnDrop, wanted};
use cleave_media::{Clock, SystemClock};
use cleave_query::select::{
    DeferredQuery, QueryRequest, ReadView, RunningQuery, describe, run_logged,
};
use cleave_query::statements::{Counting, Shape, StatementEnd};
use cleave_sql::statement::parameters::place_of;
use cleave_sql::statement::parse::Scope;
use cleave_sql::statement::properties::Columns;
use cleave_sql::statement::{Parameters, ParsedStatement, Statement};
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::charge::Charge;
use super::concerned::patiently;
use super::cursors::CursorRows;
use super::{
    Outcome, Session, batch, before, block, counted, locking, look_ups, output, prepared, ranges,
    rights, search_path, shapes, subqueries, summary, under, within,
};
use crate::database::Database;

/// The outcome of a statement so far.
#[derive(Debug)]
pub enum Started {
    /// Rows, to be fetched.
    Rows(ResultRows),
    /// No rows.
    Done {
        /// The command tag, as PostgreSQL words it: "CREATE TABLE", "INSERT 0 3", "COPY 5".
        tag: String,
    },
}

/// Rows of a statement, some of which may not be computed yet.
pub struct ResultRows {
    schema: SchemaRef,
    /// Rows before those of the source.
    ahead: VecDeque<RecordBatch>,
    /// The charge of these.
    charge: Option<Box<Charge>>,
    source: Source,
    /// Ends with the last of them.
    counting: Option<Box<Counting>>,
    /// Dropped with the last of them.
    end: Option<StatementLocks>,
}

/// The advisory locks of a statement outside of a block, which its rows may take; freed as this is dropped.
struct StatementLocks(AdvisoryLocks);

impl Drop for StatementLocks {
    fn drop(&mut self) {
        self.0.end_statement();
    }
}

enum Source {
    /// Rows in memory, with their charge to query memory if that is large.
    Made(VecDeque<RecordBatch>, Option<Charge>),
    Running(Box<RunningQuery>),
    Elsewhere {
        batches: mpsc::Receiver<Result<RecordBatch>>,
        /// Stops the query when it is dropped. The computing runtime drops the task; until it has a free thread for
        /// that, this stops the threads that work on the query.
        _stop: StopOnDrop,
        task: JoinSet<()>,
    },
    Cursor {
        cursor: Arc<Mutex<CursorRows>>,
        /// Number of rows still wanted; None: all.
        left: Option<u64>,
    },
}

/// Bytes of rows that are made and sent without a charge.
const UNCHARGED_BYTES: usize = 64 << 10;
/// Batches that a query on another runtime computes ahead.
const AHEAD: usize = 2;

impl Session {
    /// Runs a statement up to its first rows, or to its end where it has none.
    ///
    /// # Errors
    /// What the statement gives.
    pub fn start(&mut self, parsed: ParsedStatement) -> BoxFuture<'_, Result<Started>> {
        Box::pin(async move {
            let counting = self.begin_counting(&Shape::of(&parsed.text), Some(&parsed.text));
            let started = self.start_uncounted(parsed).await;
            counted::started(counting, started.map(|started| self.with_locks(started)))
        })
    }

    /// `started`, with whose last row its advisory locks end.
    pub(super) fn with_locks(&self, started: Started) -> Started {
        match started {
            Started::Rows(mut rows) if rows.is_running() => {
                rows.end = Some(StatementLocks(self.settings.client.advisory.clone()));
                Started::Rows(rows)
            }
            started => started,
        }
    }

    fn start_uncounted(&mut self, mut parsed: ParsedStatement) -> BoxFuture<'_, Result<Started>> {
        Box::pin(async move {
            let position = parsed.position;
            let started = match parsed.statement {
                Statement::Query(query) => {
                    self.begin_statement()?;
                    let query = self.query_with_exact_names(query, &mut parsed.text)?;
                    set_configs(self, &query, &Parameters::default())?;
                    let hints = std::mem::take(&mut parsed.hints);
                    output::check_hints(None, &hints)?;
                    self.hinted = under(&self.settings, &hints)?;
                    let limit_ms = self.in_force().statement_timeout_ms;
                    let (database, tables) =
                        (Arc::clone(&self.database), self.concerned_by(&query));
                    let started = async {
                        search_path::check_path(self, &parsed.text)?;
                        rights::check_rights(self, || Statement::Query(query.clone())).await?;
                        start_query(self, &query, &parsed.text).await
                    };
                    let started = patiently(&database, tables, Box::pin(started));
                    let started = within(limit_ms, Box::pin(started)).await;
                    let started = self.end_statement(started).await;
                    self.hinted = None;
                    started
                }
                Statement::Batched => {
                    let ends_at = batch::ends_at(self);
                    let started = before(ends_at, Box::pin(batch::next(self))).await;
                    self.end_statement(started).await
                }
                Statement::Fetch(fetch) => {
                    self.begin_statement()?;
                    let started = Box::pin(self.cursors.fetch(&fetch)).await;
                    self.end_statement(started).await
                }
                _ => Box::pin(self.run_hinted(parsed))
                    .await
                    .map(|outcome| charged(&self.database, outcome)),
            };
            started.map_err(|error| error.at(Some(position)))
        })
    }

    /// Starts the one statement of `sql`, if it is a look-up that was seen before.
    pub fn start_seen<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Option<Started>> {
        Box::pin(async move {
            if !block::reads_newest(self.block.as_ref()) {
                return None;
            }
            let began = SystemClock.now();
            let (query, outcome) = look_ups::look_up(self, sql).await?;
            block::note_read(&mut self.block);
            self.count_look_up(query.counted_as(sql), began, &outcome);
            Some(outcome.into())
        })
    }

    /// The outcome of the prepared statement `name`, if it is a look-up by key that does not wait. None also on an
    /// error: it then takes the normal path, whose error has a position.
    pub fn start_look_up(&mut self, name: &str, values: &[Option<&str>]) -> Option<Started> {
        if !block::reads_newest(self.block.as_ref()) {
            return None;
        }
        let began = SystemClock.now();
        let live = look_ups::live_for_look_up(self)?;
        let query = prepared::prepared_look_up(self, name, values, &live.state)?;
        let outcome = look_ups::look_up_at_hand(self, live, &query)?;
        block::note_read(&mut self.block);
        if let Some(shape) = self.prepared.shape(name) {
            self.count_look_up(shape, began, &outcome);
        }
        Some(outcome.into())
    }

    /// The columns of the rows of a statement without parameters; None: it gives no rows, or they are not known before
    /// it runs.
    ///
    /// # Errors
    /// Those of binding it.
    pub fn columns<'a>(
        &'a mut self,
        parsed: &'a ParsedStatement,
    ) -> BoxFuture<'a, Result<Option<SchemaRef>>> {
        Box::pin(async move {
            let parsed = &self.with_exact_names(parsed.clone())?;
            match parsed.statement.properties().columns {
                Columns::Untold => return Ok(None),
                Columns::OfQuery(query) => {
                    let view = ReadView::of_state(self.names());
                    let described =
                        describe(&self.database, self.in_force(), Some(&view), query, Vec::new());
                    return Box::pin(described).await.map(|described| Some(described.schema));
                }
                Columns::OfPrepared(execute) => {
                    return Ok(self.describe(&execute.name).await?.columns.clone());
                }
                Columns::OfCursor(fetch) => return self.cursors.columns(&fetch.name).map(Some),
                Columns::AsItRuns => {}
            }
            if let Statement::Summary(told) = &parsed.statement {
                return Ok(Some(summary::columns(told.with_figures)));
            }
            let mut statement = parsed.statement.clone();
            // It shows the same columns whether or not it runs the explained statement.
            if let Statement::Explain { analyze, .. } = &mut statement {
                *analyze = false;
            }
            let shown = ParsedStatement { statement, ..parsed.clone() };
            Ok(match self.start_uncounted(shown).await? {
                Started::Rows(rows) => Some(rows.schema()),
                Started::Done { .. } => None,
            })
        })
    }
}

/// Sets what `SELECT set_config(name, value, is_local)` sets.
pub(super) fn set_configs(
    session: &mut Session,
    query: &ast::Query,
    values: &Parameters,
) -> Result<()> {
    for (name, value, scope) in assignments(query, values)? {
        session.change_settings(scope, |settings| settings.set(&name, &value))?;
    }
    Ok(())
}

/// Starts a query: by a look-up if it is one, by a plan otherwise.
pub(super) async fn start_query(
    session: &mut Session,
    query: &ast::Query,
    text: &str,
) -> Result<Started> {
    if let Some(outcome) = without_plan(session, query, text).await? {
        return Ok(outcome.into());
    }
    let view = session.view().await?;
    let parameters = &Parameters::default();
    started(
        &session.database,
        session.in_force(),
        QueryRequest { query, parameters, view: Some(&view) },
        text,
    )
    .await
}

/// Runs a query that needs no plan. Before, it waits for those that hold its tables back.
pub(super) async fn without_plan(
    session: &mut Session,
    query: &ast::Query,
    text: &str,
) -> Result<Option<Outcome>> {
    locking::wait_for_tables(session, query).await?;
    if session.in_force().index_scan != When::Never {
        let live = session.live().await?;
        if let Some(point) = session.point_queries.detect(query, text, &live.state)
            && let Some(outcome) = look_ups::run_point_query(session, live, &point).await?
        {
            return Ok(Some(outcome));
        }
    }
    if let Some((template, values)) = ranges::range_of(session, query, false)
        && let Some(outcome) = Box::pin(ranges::run_range(session, &template, &values)).await?
    {
        return Ok(Some(outcome));
    }
    if let Some((nested, values)) = subqueries::nested_of(session, query)
        && let Some(outcome) = Box::pin(subqueries::run_nested(session, &nested, &values)).await?
    {
        return Ok(Some(outcome));
    }
    Box::pin(shapes::run_shape(session, query, text)).await
}

/// The outcome of a statement, with its rows charged until they are sent. They exist already and cannot be refused, so
/// others get less memory.
pub(super) fn charged(database: &Arc<Database>, outcome: Outcome) -> Started {
    let mut started = Started::from(outcome);
    if let Started::Rows(ResultRows { source: Source::Made(batches, charge), .. }) = &mut started {
        let bytes = batches.iter().map(byte_count).sum::<usize>();
        *charge = (bytes > UNCHARGED_BYTES).then(|| Charge::of(database, bytes));
    }
    started
}

/// A planned query, entered in the query log as `text`.
pub(super) async fn started(
    database: &Arc<Database>,
    settings: &Settings,
    asked: QueryRequest<'_>,
    text: &str,
) -> Result<Started> {
    let running = Box::pin(run_logged(database, settings, asked, text)).await?;
    Ok(Started::Rows(ResultRows::running(running)))
}

/// The names, values and durations that a query of `set_config` sets.
fn assignments(query: &ast::Query, values: &Parameters) -> Result<Vec<(String, String, Scope)>> {
    let mut found = Vec::new();
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return Ok(found) };
    if !select.from.is_empty() {
        return Ok(found);
    }
    for item in &select.projection {
        let (ast::SelectItem::UnnamedExpr(ast::Expr::Function(function))
        | ast::SelectItem::ExprWithAlias { expr: ast::Expr::Function(function), .. }) = item
        else {
            continue;
        };
        if !function.name.to_string().eq_ignore_ascii_case("set_config") {
            continue;
        }
        let ast::FunctionArguments::List(list) = &function.args else { continue };
        let mut texts = Vec::new();
        for argument in &list.args {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expression)) = argument else {
                continue;
            };
            texts.push(match (place_of(expression)?, expression) {
                (Some(place), _) => values.get(place)?.text().unwrap_or_default().to_owned(),
                (None, ast::Expr::Value(value)) => match &value.value {
                    ast::Value::SingleQuotedString(text) => text.clone(),
                    ast::Value::Null => String::new(),
                    other => other.to_string(),
                },
                _ => return Err(Error::unsupported("set_config of anything but constants")),
            });
        }
        if let [name, value, rest @ ..] = texts.as_slice() {
            let is_local = |text: &String| text.starts_with(['t', 'T', '1']);
            let scope = match rest.first().is_some_and(is_local) {
                true => Scope::Transaction,
                false => Scope::Session,
            };
            found.push((name.clone(), value.clone(), scope));
        }
    }
    Ok(found)
}

impl Started {
    /// The whole result, in memory.
    ///
    /// # Errors
    /// What the query gives.
    pub fn collect(self) -> BoxFuture<'static, Result<Outcome>> {
        Box::pin(async move {
            let mut rows = match self {
                Self::Done { tag } => return Ok(Outcome::Done { tag }),
                Self::Rows(rows) => rows,
            };
            let mut batches = Vec::new();
            while let Some(batch) = rows.next().await? {
                batches.push(batch);
            }
            Ok(Outcome::Rows { schema: rows.schema, batches })
        })
    }
}

impl From<Outcome> for Started {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Rows { schema, batches } => {
                Self::Rows(ResultRows::of(schema, Source::Made(batches.into(), None)))
            }
            Outcome::Done { tag } => Self::Done { tag },
        }
    }
}

impl ResultRows {
    /// Their columns.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn of(schema: SchemaRef, source: Source) -> Self {
        Self { schema, ahead: VecDeque::new(), charge: None, source, counting: None, end: None }
    }

    /// Whether some of them are yet to be computed.
    fn is_running(&self) -> bool {
        matches!(self.source, Source::Running(_) | Source::Elsewhere { .. })
    }

    /// The same, which end what is `counting` them.
    pub(super) fn counted(self, counting: Counting) -> Self {
        Self { counting: Some(Box::new(counting)), ..self }
    }

    /// Tells who counts them what `next` there is.
    fn note(&mut self, next: &Result<Option<RecordBatch>>) {
        if !matches!(next, Ok(Some(_))) {
            self.end = None;
        }
        match next {
            Ok(Some(batch)) => {
                if let Some(counting) = &mut self.counting {
                    counting.add_rows(batch.num_rows() as u64);
                }
            }
            Ok(None) => {
                if let Some(counting) = self.counting.take() {
                    counting.end(StatementEnd::Done);
                }
            }
            Err(error) => {
                if let Some(counting) = self.counting.take() {
                    counted::fail(*counting, error);
                }
            }
        }
    }

    /// Those of a query that runs.
    pub(super) fn running(running: RunningQuery) -> Self {
        let schema = running.described_schema();
        Self::of(schema, Source::Running(Box::new(running)))
    }

    /// Rows that are made, with their charge.
    pub(super) fn made(schema: SchemaRef, batches: Vec<RecordBatch>, charge: Charge) -> Self {
        Self::of(schema, Source::Made(batches.into(), Some(charge)))
    }

    /// Up to `left` rows of a cursor; None: all that are left.
    pub(super) fn of_cursor(
        schema: SchemaRef,
        cursor: Arc<Mutex<CursorRows>>,
        left: Option<u64>,
    ) -> Self {
        Self::of(schema, Source::Cursor { cursor, left })
    }

    /// The rows of `query`, which the threads of `runtime` begin at once to compute.
    pub(super) fn deferred(query: DeferredQuery, runtime: &Handle) -> Self {
        let schema = query.schema();
        let (give, batches) = mpsc::channel(AHEAD);
        let mut task = JoinSet::new();
        let giving = async move {
            match query.run().await {
                Ok(running) => give_rows(running, &give).await,
                // Nobody may want to know.
                Err(error) => drop(give.send(Err(error)).await),
            }
        };
        // Dropping the task stops its query.
        task.spawn_on(wanted::timed(giving), runtime);
        let source = Source::Elsewhere { batches, _stop: StopOnDrop::from(&Stop::default()), task };
        Self::of(schema, source)
    }

    /// The same, computed by the threads of `runtime`; the caller's thread only waits for them. Rows computed already
    /// stay here.
    #[must_use]
    pub fn on(self, runtime: &Handle) -> Self {
        let Self { schema, ahead, charge, source, counting, end } = self;
        let running = match source {
            Source::Running(running) => running,
            source => return Self { schema, ahead, charge, source, counting, end },
        };
        let is_stopped = running.planned().context.stop().clone();
        let stop = StopOnDrop::from(&is_stopped);
        let (give, batches) = mpsc::channel(AHEAD);
        let mut task = JoinSet::new();
        let giving = async move { give_rows(*running, &give).await };
        let giving = wanted::until(move || is_stopped.is_raised(), giving);
        task.spawn_on(wanted::timed(giving), runtime);
        let source = Source::Elsewhere { batches, _stop: stop, task };
        Self { schema, ahead, charge, source, counting, end }
    }

    /// The same once the first of them are computed, or the error of computing these.
    pub(super) async fn begun(mut self) -> Result<Self> {
        if self.ahead.is_empty() && !matches!(self.source, Source::Made(..)) {
            let first = Box::pin(self.next_uncounted()).await?;
            self.ahead.extend(first);
        }
        Ok(self)
    }

    /// The same behind `batches`, which were taken of it, with their charge.
    pub(super) fn behind(self, batches: Vec<RecordBatch>, charge: Charge) -> Self {
        Self { ahead: batches.into(), charge: Some(Box::new(charge)), ..self }
    }

    /// The next rows, if they are computed already; an inner None: the rows are at their end; an outer None: not
    /// computed yet.
    pub fn next_at_hand(&mut self) -> Option<Option<RecordBatch>> {
        let next = match &mut self.source {
            Source::Made(batches, _) => batches.pop_front(),
            _ => Some(self.ahead.pop_front()?),
        };
        let next = Ok(next);
        self.note(&next);
        next.ok()
    }

    /// The next rows, None after the last. Cancel-safe: if the future is dropped early, the next call gives the rows.
    ///
    /// # Errors
    /// What the query gives.
    #[expect(
        clippy::should_implement_trait,
        reason = "of a stream, as `StreamExt::next`: it gives a future"
    )]
    pub fn next(&mut self) -> BoxFuture<'_, Result<Option<RecordBatch>>> {
        Box::pin(async move {
            let next = self.next_uncounted().await;
            self.note(&next);
            next
        })
    }

    /// The same without telling who counts them: rows that are computed ahead are given later.
    async fn next_uncounted(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.ahead.pop_front() {
            return Ok(Some(batch));
        }
        self.charge = None;
        match &mut self.source {
            Source::Made(batches, _) => Ok(batches.pop_front()),
            Source::Running(running) => running.next().await,
            Source::Elsewhere { batches, task, .. } => match batches.recv().await {
                Some(batch) => batch.map(Some),
                // The channel also closes if the task breaks off: these are then not all rows.
                None => {
                    task.join_next().await.map_or(Ok(()), tasks::joined)?;
                    Ok(None)
                }
            },
            Source::Cursor { cursor, left } => cursor.lock().await.next(left).await,
        }
    }
}

/// Gives the rows of `running` until nobody takes them.
async fn give_rows(mut running: RunningQuery, give: &mpsc::Sender<Result<RecordBatch>>) {
    while let Some(batch) = running.next().await.transpose() {
        let is_last = batch.is_err();
        if give.send(batch).await.is_err() || is_last {
            return;
        }
    }
}

impl std::fmt::Debug for ResultRows {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ResultRows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! A task that breaks off is an error, not the end of its rows.

    use arrow::datatypes::Schema;

    use super::*;

    #[tokio::test]
    async fn rows_whose_task_panics_end_with_an_error() {
        let schema = SchemaRef::new(Schema::empty());
        for panics in [false, true] {
            let (give, batches) = mpsc::channel(AHEAD);
            let mut task = JoinSet::new();
            let batch = RecordBatch::new_empty(SchemaRef::clone(&schema));
            task.spawn(async move {
                give.send(Ok(batch)).await.unwrap();
                assert!(!panics, "a defect");
            });
            let _stop = StopOnDrop::from(&Stop::default());
            let source = Source::Elsewhere { batches, _stop, task };
            let mut rows = ResultRows::of(SchemaRef::clone(&schema), source);
            assert!(rows.next().await.unwrap().is_some());
            let end = rows.next().await;
            match panics {
                true => assert_eq!(end.unwrap_err().sqlstate(), "XX000"),
                false => assert!(end.unwrap().is_none()),
            }
        }
    }
}
