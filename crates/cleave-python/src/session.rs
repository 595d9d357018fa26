//! A connection's session: text and values in, [`Rows`] out. Its statements run one after the other, whatever threads
//! they come from.
//!
//! 1. [`connect`] opens a database of this process. [`Session::run`] prepares a statement with values once, and finds
//!    it again by its text and the types of its values.
//! 2. [`Session::append`] and [`Session::load_rows`] add rows by COPY's way.
//! 3. [`Session::close`] rolls back and gives the database back. One that is dropped closes in the background;
//!    [`finish`] waits for those when the interpreter ends.
//!
//! DB-API's transactions: with `implicit`, a statement that changes rows, or locks them, begins one where none is open.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use cleave_host::commitment::unless;
use cleave_host::outside_tables::OutsideTables;
use cleave_host::statement::{Copy, ParsedStatement, Statement, parse_script_in};
use cleave_host::value::ColumnBuilder;
use cleave_host::{
    Changes, Database, Effort, Error, Session as HostSession, Started, TransactionStatus,
};
use cleave_store::{Column, ColumnType};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use pyo3::prelude::*;
use tempfile::TempDir;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::arrow_stream::Stream;
use crate::databases::Opening;
use crate::errors;
use crate::outside::{self, Outside};
use crate::parameters::Value;
use crate::process::{self, Own};
use crate::rows::Rows;

/// Prepared statements that a session has at a time.
const PREPARED_MAX: usize = 100;
/// SQLSTATE of a parameter whose type nothing tells.
const UNKNOWN_TYPE: &str = "42P18";
/// Rows of a batch that is made of Python's values.
const BATCH_ROWS: usize = 8192;
/// Changed rows of a table after which it is analysed, so that the next query is planned with statistics.
const LARGE_CHANGE: u64 = 10_000;
/// How long the end of the interpreter waits for connections that close.
const FINISHING: Duration = Duration::from_secs(30);

/// A session with its database.
pub(crate) struct Embedded {
    session: HostSession,
    database: Arc<Database>,
    /// Names of prepared statements, by types of values and text.
    prepared: BTreeMap<String, String>,
    prepared_count: u64,
    /// What its tables had when it was opened, or when they were last analysed.
    before: Changes,
    /// The folder of a database in memory, removed with it.
    folder: Option<TempDir>,
}

/// None: it is closed.
type SharedEmbedded = Arc<AsyncMutex<Option<Embedded>>>;

/// The session that began a query; it may be closed meanwhile.
pub(crate) struct WeakEmbedded(Weak<AsyncMutex<Option<Embedded>>>);

/// What runs the statements of a connection.
enum Backend {
    /// A database of this process.
    Embedded(SharedEmbedded),
}

/// The columns of an INSERT.
#[derive(FromPyObject)]
enum Listed {
    /// As many of the table's as this, from the first one.
    First(usize),
    /// Those with these names.
    Named(Vec<String>),
}

/// A connection's session. See the module's description.
#[pyclass(frozen, module = "cleave._cleave")]
pub(crate) struct Session {
    /// None: it is closed.
    backend: Mutex<Option<Own<Backend>>>,
}

/// Opens the database in the folder `path`, with these settings; None: one that is removed when it is closed.
#[pyfunction]
#[pyo3(signature = (path, settings, *, create=true, buffer_pool_bytes=None, query_memory_bytes=None))]
pub(crate) fn connect(
    py: Python<'_>,
    path: Option<String>,
    settings: Vec<(String, String)>,
    create: bool,
    buffer_pool_bytes: Option<u64>,
    query_memory_bytes: Option<u64>,
) -> PyResult<Session> {
    let process = process::process(py)?;
    let opening = Opening { create, buffer_pool_bytes, query_memory_bytes };
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let opening = async move {
        let open = Box::pin(async move {
            let (folder, opening) = match path {
                Some(_) => (None, opening),
                None => (Some(new_folder()?), Opening { create: true, ..opening }),
            };
            let place = path.as_deref().map(Path::new);
            let place = place.or(folder.as_ref().map(TempDir::path)).unwrap_or(Path::new(""));
            let database = process.databases.open(place, opening).await?;
            let mut session = database.session();
            for (name, value) in &settings {
                session.set(name, value)?;
            }
            let before = database.changes();
            let (prepared, prepared_count) = (BTreeMap::new(), 0);
            Ok::<_, Error>(Embedded { session, database, prepared, prepared_count, before, folder })
        });
        unless(open, stopped.notified()).await
    };
    match process::wait(py, &stop, None, Box::pin(opening))? {
        Ok(Ok(embedded)) => {
            let backend = Backend::Embedded(Arc::new(AsyncMutex::new(Some(embedded))));
            Ok(Session { backend: Mutex::new(Some(Own::new(backend))) })
        }
        Ok(Err(error)) => Err(errors::exception(py, &error)),
        Err(()) => Err(stopped_error(py)),
    }
}

/// Waits until the connections that close in the background have closed, if that takes no more than half a minute.
#[pyfunction]
pub(crate) fn finish(py: Python<'_>) -> PyResult<()> {
    let Some(closing) = process::closing() else { return Ok(()) };
    let work = async move { tokio::time::timeout(FINISHING, closing.write()).await.is_ok() };
    process::wait(py, &Notify::new(), None, Box::pin(work))?;
    Ok(())
}

fn new_folder() -> Result<TempDir, Error> {
    let folder = tempfile::Builder::new().prefix("cleave-").tempdir();
    folder.map_err(|error| Error::io("make a folder in", &std::env::temp_dir(), error))
}

#[pymethods]
impl Session {
    /// Runs the statements of `sql`, and returns the outcome of the last one. A statement with `parameters` is alone.
    /// `find(name)` gives tables of the caller; `tick(seconds)` is called while it runs.
    #[pyo3(signature = (sql, parameters=None, *, implicit=false, find=None, tick=None))]
    fn run(
        &self,
        py: Python<'_>,
        sql: String,
        parameters: Option<Vec<Bound<'_, PyAny>>>,
        implicit: bool,
        find: Option<Py<PyAny>>,
        tick: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        let values = parameters.unwrap_or_default();
        let values = values.iter().map(Value::of).collect::<PyResult<Vec<_>>>()?;
        let shared = self.embedded(py)?;
        let outside = find.map(|find| Arc::new(Outside::new(find)));
        let offered = outside.clone();
        let started = on_session(py, &shared, tick.as_ref(), move |embedded| {
            Box::pin(async move {
                let tables = offered.map(|tables| tables as Arc<dyn OutsideTables>);
                let has_tables = tables.is_some();
                embedded.session.set_outside_tables(tables);
                let started = embedded.run(&sql, &values, implicit).await;
                if has_tables {
                    embedded.session.set_outside_tables(None);
                }
                started
            })
        })?;
        match started {
            Ok(Started::Done { tag }) => Ok(Rows::without(tag)),
            Ok(Started::Rows(rows)) => {
                Ok(Rows::embedded(rows, WeakEmbedded(Arc::downgrade(&shared))))
            }
            Err(error) => {
                let refused = outside.and_then(|outside| outside.take_refused());
                Err(refused
                    .filter(|_| error.sqlstate() == "42P01")
                    .unwrap_or_else(|| errors::exception(py, &error)))
            }
        }
    }

    /// Adds the rows of the stream in `capsule` to a table, by the names of the columns; returns their number.
    #[pyo3(signature = (table, capsule, *, tick=None))]
    fn append(
        &self,
        py: Python<'_>,
        table: String,
        capsule: &Bound<'_, PyAny>,
        tick: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let what = format!("rows for {table}");
        let stream = Stream::of_capsule(capsule).map_err(|error| {
            errors::exception(py, &errors::outside_data(format!("{what}: {error}")))
        })?;
        let batches = outside::batches(stream, what);
        let batches = batches.map_err(|error| errors::exception(py, &error))?;
        let shared = self.embedded(py)?;
        let appended = on_session(py, &shared, tick.as_ref(), move |embedded| {
            Box::pin(async move { embedded.append(&table, batches).await })
        })?;
        appended.map_err(|error| errors::exception(py, &error))
    }

    /// Adds rows of Python's values to columns of a table, as an INSERT of them would; returns their number. `columns`
    /// are names, or the number of the table's first ones. None: it cannot say what types the values become, and
    /// nothing was done.
    #[pyo3(signature = (table, columns, rows, *, implicit=false, tick=None))]
    fn load_rows(
        &self,
        py: Python<'_>,
        table: String,
        columns: Listed,
        rows: &Bound<'_, PyAny>,
        implicit: bool,
        tick: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Option<u64>> {
        let shared = self.embedded(py)?;
        let (name, listed) = (table.clone(), columns);
        let targets = on_session(py, &shared, None, move |embedded| {
            Box::pin(async move { Ok(targets(&embedded.database, &name, &listed)) })
        })?;
        let Some(targets) = targets.map_err(|error| errors::exception(py, &error))? else {
            return Ok(None);
        };
        let batches = batches_of(&targets, rows)?;
        let appended = on_session(py, &shared, tick.as_ref(), move |embedded| {
            let batches = stream::iter(batches.into_iter().map(Ok)).boxed();
            Box::pin(async move {
                let begins = implicit && embedded.begins();
                if begins {
                    embedded.session.run("BEGIN").await?;
                }
                let appended = embedded.append(&table, batches).await;
                if appended.is_err() && begins {
                    embedded.session.run("ROLLBACK").await?;
                }
                appended
            })
        })?;
        appended.map(Some).map_err(|error| errors::exception(py, &error))
    }

    /// Whether a transaction is open ("open"), has failed ("failed"), or there is none ("idle").
    fn status(&self, py: Python<'_>) -> PyResult<&'static str> {
        let shared = self.embedded(py)?;
        let status = on_session(py, &shared, None, |embedded| {
            let status = embedded.session.transaction_status();
            Box::pin(async move { Ok(status) })
        })?;
        match status.map_err(|error| errors::exception(py, &error))? {
            TransactionStatus::Idle => Ok("idle"),
            TransactionStatus::Open => Ok("open"),
            TransactionStatus::Failed => Ok("failed"),
        }
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Rolls back and closes it, once the statements that run in it have ended. Again: does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut own) = backend else { return Ok(()) };
        // In a fork there is nothing to close.
        let Some(Backend::Embedded(shared)) = own.take() else { return Ok(()) };
        process::wait(py, &Notify::new(), None, Box::pin(close_shared(shared)))
    }
}

impl Session {
    /// The session, if it is open.
    fn embedded(&self, py: Python<'_>) -> PyResult<SharedEmbedded> {
        // Python's code does not run while the lock is held.
        let found = {
            let backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
            backend
                .as_ref()
                .map(|own| own.here().map(|Backend::Embedded(shared)| Arc::clone(shared)))
        };
        match found {
            Some(Some(shared)) => Ok(shared),
            Some(None) => Err(process::forked(py)),
            None => Err(errors::closed(py)),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let backend = self.backend.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut own) = backend
            && let Some(Backend::Embedded(shared)) = own.take()
        {
            process::in_background(Box::pin(close_shared(shared)));
        }
    }
}

impl WeakEmbedded {
    /// Reports that a query which it began has failed on its way: now, or once the statement has ended that runs in it.
    /// That one may be the reader of the query's rows, and is not waited for.
    pub(crate) fn fail(&self) {
        let Some(shared) = self.0.upgrade() else { return };
        if let Ok(mut embedded) = shared.try_lock() {
            fail_block(&mut embedded);
            return;
        }
        process::in_background(Box::pin(async move { fail_block(&mut shared.lock().await) }));
    }
}

fn fail_block(embedded: &mut Option<Embedded>) {
    if let Some(embedded) = embedded {
        embedded.session.fail_block();
    }
}

impl Embedded {
    /// Runs the statements of `sql` up to the first rows of the last one.
    async fn run(&mut self, sql: &str, values: &[Value], implicit: bool) -> Result<Started, Error> {
        if values.is_empty()
            && let Some(started) = self.session.start_seen(sql).await
        {
            return Ok(started);
        }
        if !values.is_empty()
            && let Some(name) = self.prepared.get(&key_of(sql, values))
            && let Some(started) = self.session.start_look_up(name, &texts_of(values))
        {
            return Ok(started);
        }
        let database = self.session.settings().client.database.clone();
        let parsed = parse_script_in(sql, Some(&database));
        let mut statements = parsed.inspect_err(|_| self.session.fail_block())?;
        let Some(last) = statements.pop() else {
            return Ok(Started::Done { tag: String::new() });
        };
        if !values.is_empty() && !statements.is_empty() {
            return Err(Error::unsupported("several statements with parameters"));
        }
        for statement in statements {
            self.run_one(statement, (sql, &[]), implicit).await?.collect().await?;
        }
        self.run_one(last, (sql, values), implicit).await
    }

    /// Runs one statement, with values if there are any, in the transaction that it begins if it has to.
    async fn run_one(
        &mut self,
        parsed: ParsedStatement,
        (sql, values): (&str, &[Value]),
        implicit: bool,
    ) -> Result<Started, Error> {
        let begins = implicit && self.begins() && changes_or_locks(&parsed.statement);
        if begins {
            self.session.run("BEGIN").await?;
        }
        let started = match values.is_empty() {
            true => self.session.start(parsed).await,
            false => self.run_prepared(parsed, sql, values).await,
        };
        if started.is_err() && begins {
            // Nothing is lost, and the caller need not know of it.
            self.session.run("ROLLBACK").await?;
        }
        if let Ok(Started::Done { tag }) = &started
            && row_count_of(tag) >= LARGE_CHANGE
        {
            self.analyze_filled().await;
        }
        started
    }

    /// Whether a statement that needs a transaction begins one.
    fn begins(&self) -> bool {
        self.session.transaction_status() == TransactionStatus::Idle
    }

    async fn run_prepared(
        &mut self,
        parsed: ParsedStatement,
        sql: &str,
        values: &[Value],
    ) -> Result<Started, Error> {
        let (key, texts) = (key_of(sql, values), texts_of(values));
        if let Some(name) = self.prepared.get(&key) {
            match self.session.start_prepared(name, &texts).await {
                // DISCARD or DEALLOCATE has removed it.
                Err(error) if error.sqlstate() == "26000" => {}
                started => return started,
            }
        }
        if self.prepared.len() >= PREPARED_MAX {
            for name in std::mem::take(&mut self.prepared).values() {
                self.session.deallocate(Some(name)).unwrap_or_default();
            }
        }
        self.prepared_count += 1;
        let name = format!("python_{}", self.prepared_count);
        let mut types: Vec<Option<ColumnType>> =
            values.iter().map(|value| value.column_type).collect();
        let mut prepared = self.session.prepare_statement(&name, parsed.clone(), &types).await;
        if prepared.as_ref().is_err_and(|error| error.sqlstate() == UNKNOWN_TYPE) {
            // Nothing tells the type of a text: it is one.
            types.iter_mut().for_each(|known| *known = known.or(Some(ColumnType::Text)));
            prepared = self.session.prepare_statement(&name, parsed, &types).await;
        }
        prepared.inspect_err(|_| self.session.fail_block())?;
        let started = self.session.start_prepared(&name, &texts).await;
        self.prepared.insert(key, name);
        started
    }

    async fn append(
        &mut self,
        table: &str,
        batches: BoxStream<'static, Result<RecordBatch, Error>>,
    ) -> Result<u64, Error> {
        let appended = self.session.append(table, batches).await?;
        if appended >= LARGE_CHANGE {
            self.analyze_filled().await;
        }
        Ok(appended)
    }

    /// Analyses tables of which many rows have changed. What cannot be analysed is left to the upkeep.
    async fn analyze_filled(&mut self) {
        if self.session.transaction_status() != TransactionStatus::Idle {
            return;
        }
        let filled =
            Box::pin(self.database.analyze_filled(&self.before, LARGE_CHANGE, Effort::Quick));
        if !filled.await.is_empty() {
            self.before = self.database.changes();
        }
    }
}

/// Whether a statement changes or locks rows, which a transaction could undo or hold.
fn changes_or_locks(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(_)
        | Statement::Modify(_)
        | Statement::ChangingWith(_)
        | Statement::Locking(_)
        | Statement::LockedParts(_)
        | Statement::LockTable(_) => true,
        Statement::Copy(copy) => matches!(**copy, Copy::From { .. }),
        _ => false,
    }
}

/// The rows that a command tag counts.
fn row_count_of(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// By which a statement is found that was prepared for values of these types.
fn key_of(sql: &str, values: &[Value]) -> String {
    let types = values.iter().map(|value| value.column_type);
    let types = types.map(|known| known.map_or_else(String::new, |known| known.sql_name()));
    format!("{}\n{sql}", types.collect::<Vec<_>>().join(","))
}

fn texts_of(values: &[Value]) -> Vec<Option<&str>> {
    values.iter().map(|value| value.text.as_deref()).collect()
}

/// What `work` gives in the session, once it has ended what it does. Ctrl-C stops it, and its transaction has failed.
fn on_session<T: Send + 'static>(
    py: Python<'_>,
    shared: &SharedEmbedded,
    tick: Option<&Bound<'_, PyAny>>,
    work: impl for<'s> FnOnce(&'s mut Embedded) -> BoxFuture<'s, Result<T, Error>> + Send + 'static,
) -> PyResult<Result<T, Error>> {
    let (stop, shared) = (Arc::new(Notify::new()), Arc::clone(shared));
    let stopped = Arc::clone(&stop);
    let work = async move {
        let waited = unless(shared.lock_owned(), stopped.notified()).await;
        let Ok(mut embedded) = waited else { return Ok(None) };
        let Some(embedded) = embedded.as_mut() else { return Err(()) };
        let outcome = unless(work(embedded), stopped.notified()).await;
        match outcome {
            Ok(outcome) => Ok(Some(outcome)),
            Err(()) => {
                embedded.session.set_outside_tables(None);
                embedded.session.fail_block();
                Ok(None)
            }
        }
    };
    match process::wait(py, &stop, tick, Box::pin(work))? {
        Ok(Some(outcome)) => Ok(outcome),
        Ok(None) => Err(stopped_error(py)),
        Err(()) => Err(errors::closed(py)),
    }
}

fn stopped_error(py: Python<'_>) -> PyErr {
    errors::made(py, errors::STOPPED, "canceling statement due to user request", None)
}

/// Closes a session, once the statement that runs in it has ended.
async fn close_shared(shared: SharedEmbedded) {
    let embedded = shared.lock().await.take();
    let Some(Embedded { mut session, database, folder, .. }) = embedded else { return };
    if session.transaction_status() != TransactionStatus::Idle {
        // An open transaction leaves nothing behind in any case.
        drop(session.run("ROLLBACK").await);
    }
    drop(session.finish_background().await);
    drop(session);
    if let Some(databases) = process::databases() {
        databases.close(database).await;
    }
    drop(folder);
}

/// The columns of a table that values go to; None: it is no plain table, or does not have them.
fn targets(database: &Database, table: &str, listed: &Listed) -> Option<Vec<Column>> {
    let catalog = database.catalog();
    let schema = &catalog.table(table)?.schema;
    match listed {
        Listed::First(count) => schema.columns.get(..*count).map(<[Column]>::to_vec),
        Listed::Named(names) => names.iter().map(|name| schema.column(name).cloned()).collect(),
    }
}

/// Rows of Python's values as batches of these columns.
fn batches_of(targets: &[Column], rows: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let py = rows.py();
    let fields = targets.iter().map(|column| column.arrow().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let new = || -> Vec<ColumnBuilder> {
        let builders = targets.iter();
        builders.map(|column| ColumnBuilder::new(&column.column_type, BATCH_ROWS)).collect()
    };
    let (mut batches, mut builders, mut row_count) = (Vec::new(), new(), 0);
    let finished = |builders: &mut Vec<ColumnBuilder>| {
        let columns = std::mem::replace(builders, new()).into_iter().map(|mut one| one.finish());
        RecordBatch::try_new(Arc::clone(&schema), columns.collect())
            .map_err(|error| errors::exception(py, &Error::from(error)))
    };
    for row in rows.try_iter()? {
        let row = row?;
        let mut given = row.try_iter()?;
        for (column, builder) in targets.iter().zip(&mut builders) {
            let Some(value) = given.next() else { return Err(wrong_count(py, targets.len())) };
            append_value(builder, column, &Value::of(&value?)?)
                .map_err(|error| errors::exception(py, &error))?;
        }
        if given.next().is_some() {
            return Err(wrong_count(py, targets.len()));
        }
        row_count += 1;
        if row_count == BATCH_ROWS {
            batches.push(finished(&mut builders)?);
            row_count = 0;
            py.check_signals()?;
        }
    }
    if row_count > 0 {
        batches.push(finished(&mut builders)?);
    }
    Ok(batches)
}

/// Adds a value to a column, by the rules of an assignment.
fn append_value(builder: &mut ColumnBuilder, column: &Column, value: &Value) -> Result<(), Error> {
    let Some(text) = &value.text else {
        builder.append_null();
        return Ok(());
    };
    let is_whole =
        matches!(column.column_type, ColumnType::SmallInt | ColumnType::Int | ColumnType::BigInt);
    let appended = match value.column_type {
        Some(ColumnType::Double | ColumnType::Numeric { .. }) if is_whole => {
            builder.append_number(text)
        }
        _ => builder.append_text(text),
    };
    appended
        .map_err(|source| Error::Value { column: column.name.clone(), source: Box::new(source) })
}

fn wrong_count(py: Python<'_>, expected: usize) -> PyErr {
    errors::made(py, "07001", &format!("a row does not have {expected} values"), None)
}
