//! The rows of a statement: batches from the runtime in, tuples or a stream of Arrow out.
//!
//! 1. A [`Source`] gives the batches of a query of a database of this process, or of a server's answer.
//! 2. [`Rows::fetch`] makes tuples of some rows, and keeps the rest of their batch.
//! 3. [`Rows::stream`] gives all rows that are left away as one stream. It reads them first, which Ctrl-C interrupts,
//!    or lets its reader drive the query ([`Reader`]).
//!
//! A query runs only as far as its rows are fetched. It reads the snapshot at which it began, whatever its connection
//! does meanwhile. Where it fails on its way, the transaction in which it began has failed. Reading that is stopped may
//! have lost rows, so it gives up those that are left. Given up, or with nobody left to read it, a query stops
//! ([`Source::give_up`]).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatchReader;
use cleave_client::Answer;
use cleave_host::commitment::unless;
use cleave_host::dialect::sql_type;
use cleave_host::error::Fault;
use cleave_host::{Error, ResultRows};
use cleave_media::clock::Stopwatch;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::arrow_stream::{schema_capsule, stream_capsule};
use crate::embedded::Embedded;
use crate::errors::{self, Failure};
use crate::held::{Shared, Stops};
use crate::plain_types::{cast_to, given_schema};
use crate::process::{self, Count, Own, Tick};
use crate::server::Cancel;
use crate::statement_run::{BUSY, StatementRun, busy};
use crate::values;

/// The rows of a statement. See the module's description.
#[pyclass(frozen, module = "cleave._cleave")]
pub(crate) struct Rows {
    /// Its command tag, if it has no rows.
    #[pyo3(get)]
    tag: Option<String>,
    schema: Option<SchemaRef>,
    /// What was read and not given.
    rest: Mutex<Option<RecordBatch>>,
    source: Own<SharedSource>,
    /// How far the query is.
    count: Option<Count>,
    /// What stops its reads.
    stops: Stops,
    /// The statement; None: it is one of a server, which limits its time.
    run: Option<Arc<StatementRun>>,
}

/// A source that readers take turns with.
pub(crate) type SharedSource = Arc<AsyncMutex<Source>>;

/// Where batches come from.
pub(crate) struct Source {
    /// Batches before the others, which were read for another statement.
    ahead: VecDeque<RecordBatch>,
    from: Batches,
    /// Whether somebody has it. One that nobody got belongs to a statement that was interrupted.
    is_given: bool,
    /// The columns of the batches that are given.
    schema: SchemaRef,
}

enum Batches {
    /// A query of a database of this process.
    Embedded(Box<ResultRows>, Begun),
    /// A server's answer, and what stops it.
    Server(Box<Answer>, Cancel),
    /// There are no more, and what came in place of the end.
    Ended(Option<Failure>),
    /// They were given up while somebody may read them.
    GivenUp,
}

/// The session that began a query, which may be closed meanwhile.
pub(crate) struct Begun {
    session: Weak<AsyncMutex<Option<Embedded>>>,
    epoch: u64,
}

/// Name, type, and digits of a column, as `Cursor.description` tells them.
type ColumnOf = (String, String, Option<u8>, Option<i8>);

impl Rows {
    /// The outcome of a statement without rows.
    pub(crate) fn without(tag: String) -> Self {
        let schema = SchemaRef::new(Schema::empty());
        let source = Source::of(Batches::Ended(None), schema);
        let source = Own::new(Arc::new(AsyncMutex::new(source)));
        let (rest, stops) = (Mutex::default(), Stops::default());
        Self { tag: Some(tag), schema: None, rest, source, count: None, stops, run: None }
    }

    /// The rows of a query that a session has begun. `stops` stop its reads.
    pub(crate) fn embedded(
        rows: ResultRows,
        (begun, run): (Begun, Arc<StatementRun>),
        count: Count,
        stops: Stops,
    ) -> Self {
        let schema = given_schema(&rows.schema());
        let from = Batches::Embedded(Box::new(rows), begun);
        let source = Source::of(from, Arc::clone(&schema));
        let rows = Self::of(Arc::new(AsyncMutex::new(source)), schema, (Some(count), stops));
        Self { run: Some(run), ..rows }
    }

    /// The rows of a server.
    pub(crate) fn server(source: SharedSource, schema: SchemaRef, stops: Stops) -> Self {
        if let Ok(mut source) = source.try_lock() {
            source.is_given = true;
        }
        Self::of(source, schema, (None, stops))
    }

    fn of(source: SharedSource, schema: SchemaRef, (count, stops): (Option<Count>, Stops)) -> Self {
        let (schema, source) = (Some(schema), Own::new(source));
        let rest = Mutex::default();
        Self { tag: None, schema, rest, source, count, stops, run: None }
    }

    /// What was read and not given.
    fn take_rest(&self) -> Option<RecordBatch> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The next batch: what is left of the last one, or one that is read now.
    fn next(&self, py: Python<'_>, tick: Option<&Tick<'_>>) -> PyResult<Option<RecordBatch>> {
        let rest = self.take_rest();
        if rest.is_some() {
            return Ok(rest);
        }
        self.check_not_read_here(py)?;
        let source = Arc::clone(self.source.get(py)?);
        let at_hand = match source.try_lock() {
            Ok(mut source) => source.at_hand(),
            Err(_) => None,
        };
        if let Some(batch) = at_hand {
            return batch.map_err(|error| error.exception(py));
        }
        let stop = self.stops.begin();
        let limit = self.run.as_ref().and_then(|run| run.time_left());
        let reading = next_unless(source, Arc::clone(&stop), limit);
        match self.waited(py, process::wait(py, &stop, tick, Box::pin(reading)))? {
            Ok(read) => read.map_err(|error| error.exception(py)),
            Err(()) => Err(errors::stopped(py)),
        }
    }

    /// Refuses to read rows while this thread reads an object for them.
    fn check_not_read_here(&self, py: Python<'_>) -> PyResult<()> {
        match self.run.as_ref().is_some_and(|run| run.is_read_here()) {
            true => Err(busy(py)),
            false => Ok(()),
        }
    }

    /// What `read` gives, whose time counts as the statement's.
    fn spending<T>(&self, read: impl FnOnce() -> T) -> T {
        let begun = Stopwatch::start();
        let outcome = read();
        self.run.iter().for_each(|run| run.spend(begun.elapsed()));
        outcome
    }

    /// All batches that are left.
    fn all(&self, py: Python<'_>, tick: Option<&Tick<'_>>) -> PyResult<VecDeque<RecordBatch>> {
        self.check_not_read_here(py)?;
        let mut batches: VecDeque<RecordBatch> = self.take_rest().into_iter().collect();
        let source = Arc::clone(self.source.get(py)?);
        let stop = self.stops.begin();
        let limit = self.run.as_ref().and_then(|run| run.time_left());
        let reading = all_unless(source, Arc::clone(&stop), limit);
        match self.waited(py, process::wait(py, &stop, tick, Box::pin(reading)))? {
            Ok(read) => batches.extend(read.map_err(|error| error.exception(py))?),
            Err(()) => return Err(errors::stopped(py)),
        }
        Ok(batches)
    }

    /// What a read has given. Where Ctrl-C came, also at its very end, the rows that are left are given up: Python
    /// raises `KeyboardInterrupt` then, and nobody reads on.
    fn waited<T>(&self, py: Python<'_>, waited: PyResult<T>) -> PyResult<T> {
        let waited = waited.and_then(|read| py.check_signals().map(|()| read));
        waited.inspect_err(|_| self.give_up(true))
    }

    /// Gives the rows up that are left, as [`Source::give_up`] does, unless a thread fetches them. In a fork there are
    /// none.
    fn give_up(&self, is_interrupted: bool) {
        drop(self.take_rest());
        if let Some(source) = self.source.here()
            && let Ok(mut source) = source.try_lock()
        {
            source.give_up(is_interrupted);
        }
    }

    fn schema_or_error(&self, py: Python<'_>) -> PyResult<&SchemaRef> {
        self.schema
            .as_ref()
            .ok_or_else(|| errors::made(py, "24000", "the statement has no rows to fetch", None))
    }

    /// What tells Python's code how far the query is.
    fn ticking<'py>(&self, tick: Option<Bound<'py, PyAny>>) -> Option<Tick<'py>> {
        tick.map(|call| Tick { call, count: self.count.clone() })
    }
}

#[pymethods]
impl Rows {
    /// Name, SQL type, precision and scale of each column; None: there are no rows.
    #[getter]
    fn columns(&self) -> Option<Vec<ColumnOf>> {
        let schema = self.schema.as_ref()?;
        let columns = schema.fields().iter().map(|field| {
            let data_type = field.data_type();
            let (precision, scale) = match data_type {
                DataType::Decimal128(precision, scale) => (Some(*precision), Some(*scale)),
                _ => (None, None),
            };
            (field.name().clone(), type_name(data_type), precision, scale)
        });
        Some(columns.collect())
    }

    /// The next rows as tuples: at most `limit`, or all that are left.
    #[pyo3(signature = (limit=None, *, tick=None))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        limit: Option<usize>,
        tick: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.schema_or_error(py)?;
        let tick = self.ticking(tick);
        let list = PyList::empty(py);
        loop {
            py.check_signals().inspect_err(|_| self.give_up(true))?;
            let wanted = limit.map(|limit| limit.saturating_sub(list.len()));
            if wanted == Some(0) {
                return Ok(list);
            }
            let begun = Stopwatch::start();
            let Some(batch) = self.next(py, tick.as_ref())? else { return Ok(list) };
            let count = wanted.map_or(batch.num_rows(), |wanted| wanted.min(batch.num_rows()));
            values::append_rows(&batch.slice(0, count), &list)?;
            self.run.iter().for_each(|run| run.spend(begun.elapsed()));
            if count < batch.num_rows() {
                let rest = batch.slice(count, batch.num_rows() - count);
                *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
            }
        }
    }

    /// A capsule with a stream of all rows that are left. With `whole` they are read now.
    #[pyo3(signature = (whole, *, tick=None))]
    fn stream<'py>(
        &self,
        py: Python<'py>,
        whole: bool,
        tick: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = Arc::clone(self.schema_or_error(py)?);
        let (ahead, source) = if whole {
            let tick = self.ticking(tick);
            (self.spending(|| self.all(py, tick.as_ref()))?, None)
        } else {
            let source = Own::new(Arc::clone(self.source.get(py)?));
            (self.take_rest().into_iter().collect(), Some(source))
        };
        let (stops, run) = (self.stops.clone(), self.run.clone());
        stream_capsule(py, Box::new(Reader { ahead, source, schema, stops, run }))
    }

    /// A capsule with the description of the columns.
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.schema_or_error(py)?)?.map_err(|error| {
            errors::made(py, errors::INTERNAL, &format!("columns of a result: {error}"), None)
        })
    }

    /// Gives the rows up that are left; `interrupted` if Ctrl-C does. Threads that fetch them are stopped; with `wait`
    /// they have stopped then.
    #[pyo3(signature = (*, wait=true, interrupted=false))]
    fn close(&self, py: Python<'_>, wait: bool, interrupted: bool) -> PyResult<()> {
        let Some(source) = self.source.here() else { return Ok(()) };
        let is_read = self.stops.stop();
        self.give_up(interrupted);
        if !is_read || !wait {
            return Ok(());
        }
        let source = Arc::clone(source);
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let giving_up = async move {
            if let Ok(mut source) = unless(source.lock_owned(), stopped.notified()).await {
                source.give_up(false);
            }
        };
        process::wait(py, &stop, None, Box::pin(giving_up))
    }
}

impl Begun {
    /// Of a query that began in `session` at `epoch`.
    pub(crate) fn new(session: &Shared<Embedded>, epoch: u64) -> Self {
        Self { session: Arc::downgrade(session), epoch }
    }

    /// Reports to the session that the query has failed on its way: now, or once the statement has ended that runs in
    /// it. That one may be the reader of the query's rows, and is not waited for.
    fn fail(&self) {
        let Some(session) = self.session.upgrade() else { return };
        let epoch = self.epoch;
        if let Ok(mut held) = session.try_lock() {
            held.iter_mut().for_each(|embedded| embedded.fail(epoch));
            return;
        }
        process::in_background(Box::pin(async move {
            session.lock().await.iter_mut().for_each(|embedded| embedded.fail(epoch));
        }));
    }
}

impl Source {
    /// The rows of a server's answer with these columns.
    pub(crate) fn server(answer: Box<Answer>, schema: &Schema, cancel: Cancel) -> Self {
        let mut source = Self::of(Batches::Server(answer, cancel), given_schema(schema));
        source.is_given = false;
        source
    }

    fn of(from: Batches, schema: SchemaRef) -> Self {
        Self { ahead: VecDeque::new(), from, is_given: true, schema }
    }

    /// The columns.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Reads what is left of a server's answer into memory, so that the server can do something else. What was read is
    /// there also where the future is dropped early.
    pub(crate) async fn buffer(&mut self) {
        let Batches::Server(answer, _) = &mut self.from else { return };
        let failure = loop {
            match answer.next_batch().await {
                Ok(Some(batch)) => self.ahead.push_back(batch),
                Ok(None) => break None,
                Err(error) => break Some(Failure::from(error)),
            }
        };
        self.from = Batches::Ended(failure);
    }

    /// The next batch without waiting: a batch, an inner None at the end, or an outer None.
    fn at_hand(&mut self) -> Option<Result<Option<RecordBatch>, Failure>> {
        if let Some(batch) = self.ahead.pop_front() {
            return Some(given(&batch, &self.schema).map(Some));
        }
        let batch = match &mut self.from {
            Batches::Embedded(rows, _) => rows.next_at_hand()?,
            Batches::Server(..) => return None,
            Batches::Ended(failure) => match failure.take() {
                Some(failure) => return Some(Err(failure)),
                None => None,
            },
            Batches::GivenUp => return Some(Err(given_up().into())),
        };
        if batch.is_none() {
            self.end();
        }
        Some(batch.map(|batch| given(&batch, &self.schema)).transpose())
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        if let Some(batch) = self.at_hand() {
            return batch;
        }
        let batch = match &mut self.from {
            Batches::Embedded(rows, begun) => match rows.next().await {
                Ok(batch) => batch,
                Err(error) => {
                    begun.fail();
                    return Err(error.into());
                }
            },
            Batches::Server(answer, _) => answer.next_batch().await?,
            Batches::Ended(_) | Batches::GivenUp => None,
        };
        if batch.is_none() {
            self.end();
        }
        batch.map(|batch| given(&batch, &self.schema)).transpose()
    }

    /// Notes that all have come.
    fn end(&mut self) {
        drop(Own::new(std::mem::replace(&mut self.from, Batches::Ended(None))));
    }

    /// Gives up what is left, and stops the query that would go on with it. Where its reader `is_interrupted`, its
    /// transaction has failed then; otherwise nothing but the rows is lost.
    fn give_up(&mut self, is_interrupted: bool) {
        self.ahead.clear();
        match std::mem::replace(&mut self.from, Batches::GivenUp) {
            Batches::Embedded(rows, begun) => {
                drop(Own::new(rows));
                if is_interrupted {
                    begun.fail();
                }
            }
            Batches::Server(answer, cancel)
                if !answer.has_come() && (is_interrupted || cancel.loses_rows_alone) =>
            {
                process::in_background(Box::pin(async move {
                    // Until then it holds the connection, so that no later statement is cancelled in its place.
                    answer.stop(&cancel.handle).await;
                }));
            }
            // The next statement skips what the server still sends.
            Batches::Server(answer, _) => drop(Own::new(answer)),
            Batches::Ended(_) | Batches::GivenUp => {}
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.give_up(!self.is_given);
    }
}

/// The next batch of `source`, once nobody else reads it. An outer error: `stop` came first. What is not there within
/// `limit` is given up.
async fn next_unless(
    source: SharedSource,
    stop: Arc<Notify>,
    limit: Option<Duration>,
) -> Result<Result<Option<RecordBatch>, Failure>, ()> {
    let mut source = unless(source.lock_owned(), stop.notified()).await?;
    let next = match limit {
        None => unless(source.next(), stop.notified()).await,
        Some(limit) if limit.is_zero() => Ok(Err(Error::StatementTimeout.into())),
        Some(limit) => {
            let reading = unless(source.next(), stop.notified());
            let read = tokio::time::timeout(limit, reading).await;
            read.unwrap_or_else(|_| Ok(Err(Error::StatementTimeout.into())))
        }
    };
    if matches!(&next, Err(()) | Ok(Err(Failure::Host(Error::StatementTimeout)))) {
        source.give_up(true);
    }
    next
}

/// All batches of `source`, in the same way.
async fn all_unless(
    source: SharedSource,
    stop: Arc<Notify>,
    limit: Option<Duration>,
) -> Result<Result<Vec<RecordBatch>, Failure>, ()> {
    let (mut batches, begun) = (Vec::new(), Stopwatch::start());
    loop {
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        match next_unless(Arc::clone(&source), Arc::clone(&stop), left).await? {
            Ok(Some(batch)) => batches.push(batch),
            Ok(None) => return Ok(Ok(batches)),
            Err(failure) => return Ok(Err(failure)),
        }
    }
}

fn given_up() -> Error {
    Error::Invalid {
        message: "the rows were given up: reading them was stopped, or their cursor was closed"
            .to_owned(),
        fault: Fault::State,
        position: None,
    }
}

/// The rows of `batch` as they are given away.
fn given(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Failure> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast_to(column, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(Error::from)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let given = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
    Ok(given.map_err(Error::from)?)
}

/// The SQL type of values of `data_type`.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => {
            format!("{}[]", type_name(item.data_type()))
        }
        DataType::Dictionary(_, values) => type_name(values),
        DataType::Struct(_) => "record".to_owned(),
        DataType::Null => "text".to_owned(),
        other => sql_type(other).map_or_else(|| other.to_string(), |known| known.sql_name()),
    }
}

/// Rows as a stream that C reads, on any thread.
struct Reader {
    ahead: VecDeque<RecordBatch>,
    /// None: those ahead are all.
    source: Option<Own<SharedSource>>,
    schema: SchemaRef,
    /// What stops it.
    stops: Stops,
    /// The statement; None: it is one of a server.
    run: Option<Arc<StatementRun>>,
}

impl Reader {
    fn read(&mut self) -> Option<Result<RecordBatch, ArrowError>> {
        if let Some(batch) = self.ahead.pop_front() {
            return Some(Ok(batch));
        }
        let Some(source) = self.source.as_ref()?.here().cloned() else {
            return Some(Err(errors::in_stream("the rows are those of another process")));
        };
        if self.run.as_ref().is_some_and(|run| run.is_read_here()) {
            return Some(Err(errors::in_stream(BUSY)));
        }
        let (stop, begun) = (self.stops.begin(), Stopwatch::start());
        let limit = self.run.as_ref().and_then(|run| run.time_left());
        let reading = next_unless(source, Arc::clone(&stop), limit);
        let read = match process::wait_anywhere(&stop, Box::pin(reading)) {
            Ok(Ok(read)) => read.map_err(|error| errors::in_stream(&error.to_string())),
            Ok(Err(())) => Err(errors::in_stream("the query was stopped")),
            Err(message) => Err(errors::in_stream(&message)),
        };
        self.run.iter().for_each(|run| run.spend(begun.elapsed()));
        if !matches!(read, Ok(Some(_))) {
            self.source = None;
        }
        read.transpose()
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // A panic must not reach C.
        catch_unwind(AssertUnwindSafe(|| self.read()))
            .unwrap_or_else(|panic| Some(Err(errors::in_stream(&errors::panic_text(&*panic)))))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
