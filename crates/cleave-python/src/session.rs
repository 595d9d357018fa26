//! A connection's session as Python has it: text and values in, [`Rows`] out. Its statements run one after the other,
//! whatever threads they come from.
//!
//! 1. [`connect`] opens a database of this process ([`Embedded`]), or connects to the server or shell that has it open;
//!    [`connect_server`] connects to one of a [`Server`].
//! 2. [`Session::run`] runs statements. [`Session::append`] and [`Session::load_rows`] add rows by COPY's way.
//! 3. [`Session::cancel`] stops what other threads run in it.
//! 4. [`Session::close`] rolls back and gives the database back. One that is dropped closes in the background;
//!    [`finish`] waits for those when the interpreter ends.
//!
//! DB-API's transactions: with `implicit`, a statement that changes rows, or locks them, begins one where none is open.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_host::address_file;
use cleave_host::commitment::unless;
use cleave_host::outside_tables::OutsideTables;
use cleave_host::statement::parse_script;
use cleave_host::{Started, TransactionStatus};
use cleave_media::clock::Stopwatch;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use pyo3::prelude::*;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::arrow_stream::Stream;
use crate::databases::Opening;
use crate::embedded::{Embedded, batches_of};
use crate::errors::{self, Failure};
use crate::held::{Shared, Stops, shared, with_held};
use crate::outside::{self, Outside};
use crate::parameters::{Listed, Target, Value};
use crate::process::{self, Count, Own, Tick};
use crate::rows::{Begun, Rows, Source};
use crate::server::{Answered, Server, csv_of};
use crate::statement_run::{SessionId, StatementRun, busy, waits_for_itself};

/// How long the end of the interpreter waits for connections that close.
const FINISHING: Duration = Duration::from_secs(30);

/// What runs the statements of a connection.
#[derive(Clone)]
enum Backend {
    /// A database of this process, with how far its present statement is.
    Embedded(Shared<Embedded>, Count),
    /// A server.
    Server(Shared<Server>),
}

/// A connection's session. See the module's description.
#[pyclass(frozen, module = "cleave._cleave")]
pub(crate) struct Session {
    /// None: it is closed.
    backend: Mutex<Option<Own<Backend>>>,
    stops: Stops,
}

/// Opens the database in the folder `path`, with these settings, or connects to the process that has it open and
/// answers; None: one that is removed when it is closed. With `read_only` the session only reads.
#[pyfunction]
#[pyo3(signature = (
    path, settings, *, create=true, read_only=false, buffer_pool_bytes=None, query_memory_bytes=None
))]
pub(crate) fn connect(
    py: Python<'_>,
    path: Option<String>,
    settings: Vec<(String, String)>,
    create: bool,
    read_only: bool,
    buffer_pool_bytes: Option<u64>,
    query_memory_bytes: Option<u64>,
) -> PyResult<Session> {
    // Opening needs it.
    process::process(py)?;
    // What is only read is not made: its name may be mistyped.
    let create = create && !read_only;
    let opening = Opening { create, buffer_pool_bytes, query_memory_bytes };
    let open = backend_of(path, settings, opening, read_only);
    Ok(Session::of(opened(py, Box::pin(open))?))
}

/// What runs the statements of a connection to the folder `path`.
async fn backend_of(
    path: Option<String>,
    settings: Vec<(String, String)>,
    opening: Opening,
    read_only: bool,
) -> Result<Backend, Failure> {
    let place = path.clone();
    let place = place.as_deref();
    if let Some(server) = Box::pin(beside(place, &settings, read_only)).await? {
        return Ok(server);
    }
    let open = Box::pin(Embedded::open(path, settings.clone(), opening, read_only));
    let embedded = match open.await {
        Err(error) if error.sqlstate() == errors::IN_USE => {
            // Another process has opened it since, and may answer by now.
            let server = Box::pin(beside(place, &settings, read_only)).await?;
            return server.ok_or(Failure::Host(error));
        }
        opened => opened?,
    };
    let count = embedded.count();
    Ok(Backend::Embedded(shared(embedded), count))
}

/// The process that has the folder `path` open, if one has that answers.
async fn beside(
    path: Option<&str>,
    settings: &[(String, String)],
    read_only: bool,
) -> Result<Option<Backend>, Failure> {
    let Some(found) = path.and_then(|path| address_file::find(Path::new(path))) else {
        return Ok(None);
    };
    let server = Box::pin(Server::beside(&found, settings, read_only)).await?;
    Ok(server.map(|server| Backend::Server(shared(server))))
}

/// Connects to the server of a URL; the session begins with these settings, and with `read_only` only reads.
#[pyfunction]
#[pyo3(signature = (url, settings, *, read_only=false))]
pub(crate) fn connect_server(
    py: Python<'_>,
    url: String,
    settings: Vec<(String, String)>,
    read_only: bool,
) -> PyResult<Session> {
    let server = opened(py, Box::pin(Server::connect(url, settings, read_only)))?;
    Ok(Session::of(Backend::Server(shared(server))))
}

/// Waits until the connections that close in the background have closed, if that takes no more than half a minute.
#[pyfunction]
pub(crate) fn finish(py: Python<'_>) -> PyResult<()> {
    let Some(closing) = process::closing() else { return Ok(()) };
    let work = async move { tokio::time::timeout(FINISHING, closing.write()).await.is_ok() };
    process::wait(py, &Notify::new(), None, Box::pin(work))?;
    Ok(())
}

/// Whether a text is one statement. One that the parser does not know may be one for a server, which refuses several.
#[pyfunction]
pub(crate) fn is_one_statement(py: Python<'_>, sql: String) -> PyResult<bool> {
    // On a thread with a large stack.
    let parse = async move { parse_script(&sql).ok().is_none_or(|found| found.len() == 1) };
    process::wait(py, &Notify::new(), None, Box::pin(parse))
}

/// What `open` opens.
fn opened<T: Send + 'static>(
    py: Python<'_>,
    open: BoxFuture<'static, Result<T, Failure>>,
) -> PyResult<T> {
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let opening = async move { unless(open, stopped.notified()).await };
    match process::wait(py, &stop, None, Box::pin(opening))? {
        Ok(opened) => opened.map_err(|error| error.exception(py)),
        Err(()) => Err(errors::stopped(py)),
    }
}

#[pymethods]
impl Session {
    /// Runs the statements of `sql`, and returns the outcome of the last one. A statement with `parameters` is alone.
    /// `find(name)` gives tables of the caller, for a database of this process; `tick(seconds, begun, all)` is called
    /// while it runs.
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
        match self.backend(py)? {
            Backend::Embedded(session, count) => {
                let tick = ticking(tick, Some(&count));
                let given = (sql, values, implicit);
                run_embedded(py, (&session, &self.stops, count), given, find, tick.as_ref())
            }
            Backend::Server(session) => {
                let tick = ticking(tick, None);
                let session = (&session, &self.stops);
                run_server(py, session, (sql, values, implicit), tick.as_ref())
            }
        }
    }

    /// Adds the rows of the stream in `capsule` to a table, by the names of the columns; returns their number.
    #[pyo3(signature = (table, capsule, *, tick=None))]
    fn append(
        &self,
        py: Python<'_>,
        table: Target,
        capsule: &Bound<'_, PyAny>,
        tick: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let what = format!("rows for {}", table.name);
        let stream = Stream::of_capsule(capsule).map_err(|error| {
            errors::exception(py, &errors::outside_data(format!("{what}: {error}")))
        })?;
        let appended = match self.backend(py)? {
            Backend::Embedded(session, count) => {
                let run = StatementRun::new(SessionId::of(&session));
                let batches = outside::batches(stream, what, run);
                let batches = batches.map_err(|error| errors::exception(py, &error))?;
                let tick = ticking(tick, Some(&count));
                with_held(py, (&session, &self.stops), tick.as_ref(), move |embedded| {
                    Box::pin(async move { Ok(embedded.append(&table, batches).await?) })
                })?
            }
            Backend::Server(session) => {
                let tick = ticking(tick, None);
                let run = StatementRun::new(SessionId::of(&session));
                with_held(py, (&session, &self.stops), tick.as_ref(), move |server| {
                    Box::pin(async move { server.append(&table, stream, run).await })
                })?
            }
        };
        appended.map_err(|error| error.exception(py))
    }

    /// Adds rows of Python's values to columns of a table, as an INSERT of them would; returns their number. `columns`
    /// are names, or the number of the table's first ones. None: it cannot say what types the values become, and
    /// nothing was done.
    #[pyo3(signature = (table, columns, rows, *, implicit=false, tick=None))]
    fn load_rows(
        &self,
        py: Python<'_>,
        table: Target,
        columns: Listed,
        rows: &Bound<'_, PyAny>,
        implicit: bool,
        tick: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Option<u64>> {
        let loaded = match self.backend(py)? {
            Backend::Embedded(session, count) => {
                let tick = ticking(tick, Some(&count));
                let held = (&session, &self.stops);
                load_embedded(py, held, (&table, &columns, rows), implicit, tick.as_ref())?
            }
            Backend::Server(session) => {
                let csv = csv_of(rows, columns.count())?;
                let tick = ticking(tick, None);
                with_held(py, (&session, &self.stops), tick.as_ref(), move |server| {
                    Box::pin(async move { server.load(&table, columns, csv, implicit).await })
                })?
            }
        };
        loaded.map_err(|error| error.exception(py))
    }

    /// Whether a transaction is open ("open"), has failed ("failed"), or there is none ("idle").
    fn status(&self, py: Python<'_>) -> PyResult<&'static str> {
        // It waits for the statement before it, and is not what another thread wants to stop.
        let stops = &Stops::default();
        let status = match self.backend(py)? {
            Backend::Embedded(session, _) => with_held(py, (&session, stops), None, |embedded| {
                let status = match embedded.status() {
                    TransactionStatus::Idle => "idle",
                    TransactionStatus::Open => "open",
                    TransactionStatus::Failed => "failed",
                };
                Box::pin(async move { Ok(status) })
            })?,
            Backend::Server(session) => with_held(py, (&session, stops), None, |server| {
                let status = server.status();
                Box::pin(async move { Ok(status) })
            })?,
        };
        status.map_err(|error| error.exception(py))
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Whether it is one of a server.
    #[getter]
    fn is_server(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(matches!(self.backend(py)?, Backend::Server(_)))
    }

    /// Stops the statements that other threads run in it, and their reads of rows. There may be none.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        // A fork has none, and no right to what tells them.
        self.backend(py)?;
        self.stops.stop();
        Ok(())
    }

    /// Rolls back and closes it, once the statements that run in it have ended; without `wait` that is done in the
    /// background. Again: does nothing.
    #[pyo3(signature = (*, wait=true))]
    fn close(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        if wait && self.backend(py).is_ok_and(|backend| waits_for_itself(backend.id())) {
            return Err(busy(py));
        }
        let backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut own) = backend else { return Ok(()) };
        // In a fork there is nothing to close.
        let Some(backend) = own.take() else { return Ok(()) };
        if !wait {
            process::in_background(Box::pin(backend.close()));
            return Ok(());
        }
        process::wait(py, &Notify::new(), None, Box::pin(backend.close()))
    }
}

impl Session {
    fn of(backend: Backend) -> Self {
        Self { backend: Mutex::new(Some(Own::new(backend))), stops: Stops::default() }
    }

    /// What runs its statements, if it is open.
    fn backend(&self, py: Python<'_>) -> PyResult<Backend> {
        // Python's code does not run while the lock is held.
        let found = {
            let backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
            backend.as_ref().map(|own| own.here().cloned())
        };
        match found {
            Some(Some(backend)) => Ok(backend),
            Some(None) => Err(process::forked(py)),
            None => Err(errors::closed(py)),
        }
    }
}

impl Backend {
    fn id(&self) -> SessionId {
        match self {
            Self::Embedded(session, _) => SessionId::of(session),
            Self::Server(session) => SessionId::of(session),
        }
    }

    /// Closes the session, once the statement that runs in it has ended.
    async fn close(self) {
        match self {
            Self::Embedded(session, _) => {
                let session = session.lock().await.take();
                if let Some(session) = session {
                    Box::pin(session.close()).await;
                }
            }
            // The server rolls back.
            Self::Server(session) => drop(session.lock().await.take()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let backend = self.backend.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut own) = backend
            && let Some(backend) = own.take()
        {
            process::in_background(Box::pin(backend.close()));
        }
    }
}

/// Text, values, and whether a transaction is begun.
type Given = (String, Vec<Value>, bool);

fn run_embedded(
    py: Python<'_>,
    (session, stops, count): (&Shared<Embedded>, &Stops, Count),
    (sql, values, implicit): Given,
    find: Option<Py<PyAny>>,
    tick: Option<&Tick<'_>>,
) -> PyResult<Rows> {
    let run = StatementRun::new(SessionId::of(session));
    let outside = find.map(|find| Arc::new(Outside::new(find, Arc::clone(&run))));
    let (offered, begun) = (outside.clone(), Stopwatch::start());
    let waited = with_held(py, (session, stops), tick, move |embedded| {
        Box::pin(async move {
            let tables = offered.map(|tables| tables as Arc<dyn OutsideTables>);
            let started = embedded.run_with(&sql, &values, implicit, tables).await?;
            Ok((started, embedded.epoch(), embedded.limit_ms()))
        })
    });
    if let Some(outside) = &outside {
        outside.end();
    }
    match waited? {
        Ok((Started::Done { tag }, ..)) => Ok(Rows::without(tag)),
        Ok((Started::Rows(rows), epoch, limit_ms)) => {
            run.start(limit_ms, begun.elapsed());
            let begun = (Begun::new(session, epoch), run);
            Ok(Rows::embedded(rows, begun, count, stops.of_result()))
        }
        Err(error) => {
            // A name of WITH may have been refused too, which is none of the error's.
            let said = error.to_string();
            let refused = outside.and_then(|outside| outside.take_refused(&said));
            let refused = refused.filter(|_| error.sqlstate() == "42P01");
            Err(refused.unwrap_or_else(|| error.exception(py)))
        }
    }
}

/// Adds the values of `rows` to columns of a table. Another session may alter it meanwhile: the values are read anew
/// then, as those of its new columns.
fn load_embedded(
    py: Python<'_>,
    (session, stops): (&Shared<Embedded>, &Stops),
    (table, columns, rows): (&Target, &Listed, &Bound<'_, PyAny>),
    implicit: bool,
    tick: Option<&Tick<'_>>,
) -> PyResult<Result<Option<u64>, Failure>> {
    loop {
        let (name, listed) = (table.clone(), columns.clone());
        let targets = with_held(py, (session, stops), None, move |embedded| {
            Box::pin(async move { Ok(embedded.targets(&name, &listed)) })
        })?;
        let targets = targets.map_err(|error| error.exception(py))?;
        let Some(targets) = targets else { return Ok(Ok(None)) };
        let batches = batches_of(&targets, rows)?;
        let name = table.name.clone();
        let loaded = with_held(py, (session, stops), tick, move |embedded| {
            let batches = stream::iter(batches.into_iter().map(Ok)).boxed();
            Box::pin(
                async move { Ok(embedded.append_as(&name, &targets, batches, implicit).await?) },
            )
        })?;
        if !matches!(loaded, Ok(None)) {
            return Ok(loaded);
        }
    }
}

fn run_server(
    py: Python<'_>,
    (session, stops): (&Shared<Server>, &Stops),
    (sql, values, implicit): Given,
    tick: Option<&Tick<'_>>,
) -> PyResult<Rows> {
    let answered = with_held(py, (session, stops), tick, move |server| {
        Box::pin(async move {
            Ok(match server.run(&sql, &values, implicit).await? {
                Answered::Done(tag) => Err(tag),
                Answered::Rows(answer, schema, cancel) => {
                    let source = Source::server(answer, &schema, cancel);
                    let schema = source.schema();
                    let source = Arc::new(AsyncMutex::new(source));
                    server.note_open(&source);
                    Ok((source, schema))
                }
            })
        })
    })?;
    match answered.map_err(|error| error.exception(py))? {
        Ok((source, schema)) => {
            // Also where Ctrl-C came at its very end.
            py.check_signals()?;
            Ok(Rows::server(source, schema, stops.of_result()))
        }
        Err(tag) => Ok(Rows::without(tag)),
    }
}

/// What tells Python's code how far a statement is.
fn ticking<'py>(tick: Option<Bound<'py, PyAny>>, count: Option<&Count>) -> Option<Tick<'py>> {
    tick.map(|call| Tick { call, count: count.cloned() })
}
