//! Tables of the caller: a name in a statement in, a table over a data frame or an Arrow table of Python out.
//!
//! ```text
//!  name ─▶ find (Python) ─▶ source ─▶ PythonTable ─▶ Scan ─▶ Part, Part, …  (one a thread of the host)
//!                              │                               └── slices of one stream, cast to plain types
//!                              └─ columns, and a stream of those that are wanted
//! ```
//!
//! 1. [`Outside::table`] asks Python's part of the package what a name stands for (`cleave/_frames.py`).
//! 2. A [`Scan`] opens the stream when its first part is read, with the columns of the query only, where the source can
//!    leave out others. A plan that is run again opens another one, which a source that can be read once refuses.
//! 3. The [`Reader`] takes one batch after the other on a thread that may wait for Python's lock. The parts take slices
//!    of it, so that the host's threads share what may be one batch of all rows; a slice copies nothing. Comparisons
//!    with constants leave rows of it out before an operator sees them.
//! 4. [`batches`] gives the same slices to a load.
//!
//! Invariant: the stream's columns are compared with those that the plan was made for; what has changed since is an
//! error.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use cleave_host::Error;
use cleave_host::outside_tables::{OutsideTables, supported_filters, with_fewer_rows};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::future::{BoxFuture, ready};
use futures::stream::{BoxStream, StreamExt, try_unfold};
use pyo3::prelude::*;
use tokio::sync::Mutex as AsyncMutex;

use crate::arrow_stream::{Stream, schema_of_capsule};
use crate::errors;
use crate::plain_types::{plain_batch, plain_schema};
use crate::statement_run::StatementRun;

/// Rows of a slice that goes to a load.
const LOAD_ROWS: usize = 32_768;

/// What the names of one statement stand for.
#[derive(Debug)]
pub(crate) struct Outside {
    /// `find(name)`: a source, or None. Rows outlive the statement that named their tables, and its plan holds this:
    /// what `find` holds, the variables of the caller, may hold the rows, and nothing would ever free them.
    find: Mutex<Option<Py<PyAny>>>,
    /// Names of tables that could not be read, and why.
    refused: Mutex<Vec<(String, PyErr)>>,
    /// The statement.
    run: Arc<StatementRun>,
}

impl Outside {
    pub(crate) fn new(find: Py<PyAny>, run: Arc<StatementRun>) -> Self {
        Self { find: Mutex::new(Some(find)), refused: Mutex::default(), run }
    }

    /// Finds nothing from now on.
    pub(crate) fn end(&self) {
        // What goes with it is Python's code, which runs without the lock.
        let find = self.find.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(find);
    }

    /// Why the table could not be read that an error names, which says `said`.
    pub(crate) fn take_refused(&self, said: &str) -> Option<PyErr> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let found = refused.drain(..).find(|(name, _)| said.contains(&format!("\"{name}\"")));
        found.map(|(_, why)| why)
    }

    fn found(&self, py: Python<'_>, name: &str) -> PyResult<Option<PythonTable>> {
        let find = {
            let find = self.find.lock().unwrap_or_else(PoisonError::into_inner);
            find.as_ref().map(|find| find.clone_ref(py))
        };
        let Some(find) = find else { return Ok(None) };
        let _reading = self.run.reading();
        let source = find.bind(py).call1((name,))?;
        match source.is_none() {
            true => Ok(None),
            false => PythonTable::of(&source, name, Arc::clone(&self.run)).map(Some),
        }
    }
}

impl OutsideTables for Outside {
    fn table(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        match Python::try_attach(|py| self.found(py, name))? {
            Ok(table) => table.map(|table| Arc::new(table) as Arc<dyn TableProvider>),
            Err(refused) => {
                let mut all = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                all.push((name.to_owned(), refused));
                None
            }
        }
    }
}

/// An object of Python as a table.
struct PythonTable {
    object: Arc<Object>,
    /// Its columns as SQL has them.
    schema: SchemaRef,
    /// Its rows, as it says; None: only reading it tells.
    rows: Option<usize>,
}

/// The object.
struct Object {
    name: String,
    source: Py<PyAny>,
    /// Its stream, if that had to be opened to learn its columns.
    opened: Mutex<Option<Stream>>,
    /// The statement that reads it.
    run: Arc<StatementRun>,
}

impl PythonTable {
    fn of(source: &Bound<'_, PyAny>, name: &str, run: Arc<StatementRun>) -> PyResult<Self> {
        let py = source.py();
        let refused = |error: &dyn fmt::Display| {
            errors::made(py, "42804", &format!("\"{name}\" cannot be read: {error}"), None)
        };
        let told = source.call_method0("schema")?;
        let (told, opened) = match told.is_none() {
            false => (schema_of_capsule(&told).map_err(|error| refused(&error))?, None),
            true => {
                let (capsule, _): (Bound<'_, PyAny>, bool) =
                    source.call_method1("stream", (py.None(),))?.extract()?;
                let stream = Stream::of_capsule(&capsule).map_err(|error| refused(&error))?;
                (Arc::clone(stream.schema()), Some(stream))
            }
        };
        let schema = plain_schema(&told).map_err(|error| refused(&error))?;
        // What is no number of rows says nothing.
        let rows = source.call_method0("rows")?.extract::<Option<usize>>().unwrap_or(None);
        let (name, source) = (name.to_owned(), source.clone().unbind());
        let object = Arc::new(Object { name, source, opened: Mutex::new(opened), run });
        Ok(Self { object, schema, rows })
    }

    /// What reads its columns at `columns`.
    fn leaf(
        &self,
        session: &dyn Session,
        columns: Option<&Vec<usize>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema.fields().len()).collect();
        let columns = columns.cloned().unwrap_or_else(all);
        let schema: SchemaRef = Arc::new(self.schema.project(&columns)?);
        let scan = Arc::new(Scan {
            object: Arc::clone(&self.object),
            all: Arc::clone(&self.schema),
            columns,
            schema: Arc::clone(&schema),
            slice_rows: session.config().batch_size(),
            rounds: Mutex::default(),
        });
        let parts = (0..session.config().target_partitions().max(1)).map(|_| {
            let (scan, executed) = (Arc::clone(&scan), AtomicUsize::new(0));
            Arc::new(Part { scan, executed }) as Arc<dyn PartitionStream>
        });
        let leaf = StreamingTableExec::try_new(schema, parts.collect(), None, [], false, None)?;
        Ok(Arc::new(leaf))
    }
}

impl fmt::Debug for PythonTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PythonTable({})", self.object.name)
    }
}

impl TableProvider for PythonTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    /// Its rows, by which joins are ordered. It may have others by the time it is read.
    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Inexact(self.rows?);
        Some(statistics)
    }

    /// Its scan leaves rows out by some conditions, and what is left is looked at above.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        Ok(supported_filters(filters))
    }

    fn scan<'a, 's, 'c, 'e, 'f>(
        &'a self,
        session: &'s dyn Session,
        columns: Option<&'c Vec<usize>>,
        filters: &'e [Expr],
        _limit: Option<usize>,
    ) -> BoxFuture<'f, PlanResult<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        's: 'f,
        'c: 'f,
        'e: 'f,
    {
        let leaf = self.leaf(session, columns);
        Box::pin(ready(leaf.and_then(|leaf| with_fewer_rows(session, filters, leaf))))
    }
}

/// A scan of an object, whose parts share its stream.
struct Scan {
    object: Arc<Object>,
    /// All columns of the table.
    all: SchemaRef,
    /// Those that are read.
    columns: Vec<usize>,
    schema: SchemaRef,
    slice_rows: usize,
    /// The stream of each time that the plan was run.
    rounds: Mutex<Vec<Shared>>,
}

/// A reader that several parts take turns with.
type Shared = Arc<AsyncMutex<Reader>>;

impl Scan {
    /// The reader of the part that runs for the time `round`, from 0.
    fn reader(self: &Arc<Self>, round: usize) -> Shared {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        while rounds.len() <= round {
            // Its parts hold the scan as long as they read.
            let scan = Arc::downgrade(self);
            let open = move || match scan.upgrade() {
                Some(scan) => scan.open(),
                None => Err(Error::unsupported("reading a table after its query")),
            };
            let run = Arc::clone(&self.object.run);
            let reader = Reader::new(Box::new(open), self.slice_rows, run);
            rounds.push(Arc::new(AsyncMutex::new(reader)));
        }
        // It was made above if it was not there.
        match rounds.get(round) {
            Some(reader) => Arc::clone(reader),
            None => Arc::new(AsyncMutex::new(Reader::ended(Arc::clone(&self.object.run)))),
        }
    }

    /// Opens the stream; the places of the scan's columns in it.
    fn open(&self) -> Result<(Stream, Vec<usize>), Error> {
        let name = &self.object.name;
        let opened = self.object.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (stream, is_projected) = match opened {
            Some(stream) => (stream, false),
            None => self.opened_now()?,
        };
        let same_types = |found: &Schema, expected: &Schema| {
            let types = found.fields().iter().map(|field| field.data_type());
            found.fields().len() == expected.fields().len()
                && types.eq(expected.fields().iter().map(|field| field.data_type()))
        };
        let found = plain_schema(stream.schema()).map_err(errors::outside_data)?;
        let places = match is_projected {
            true => (0..self.columns.len()).collect(),
            false => self.columns.clone(),
        };
        let expected = if is_projected { &self.schema } else { &self.all };
        // A query of no column asks for the first one.
        let is_counted = is_projected && self.columns.is_empty();
        match is_counted || same_types(&found, expected) {
            true => Ok((stream, places)),
            false => Err(errors::outside_data(format!(
                "the columns of \"{name}\" have changed while it was read"
            ))),
        }
    }

    fn opened_now(&self) -> Result<(Stream, bool), Error> {
        let name = &self.object.name;
        let wanted = if self.columns.is_empty() { vec![0] } else { self.columns.clone() };
        let opened = Python::try_attach(|py| {
            let given = self.object.source.bind(py).call_method1("stream", (wanted,));
            let given = given.and_then(|given| given.extract::<(Bound<'_, PyAny>, bool)>());
            let (capsule, is_projected) =
                given.map_err(|error| errors::of_python(py, &format!("\"{name}\""), &error))?;
            let stream = Stream::of_capsule(&capsule).map_err(|error| of_stream(name, &error))?;
            Ok::<_, Error>((stream, is_projected))
        });
        opened.unwrap_or_else(|| {
            Err(errors::outside_data(format!("\"{name}\": the interpreter ends")))
        })
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object.name)
    }
}

/// One part of a scan.
struct Part {
    scan: Arc<Scan>,
    /// How often it was run.
    executed: AtomicUsize,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.scan, f)
    }
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.scan.schema
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let reader = self.scan.reader(self.executed.fetch_add(1, Ordering::Relaxed));
        let (scan, schema) = (Arc::clone(&self.scan), Arc::clone(&self.scan.schema));
        let rows = try_unfold(reader, move |reader| {
            let scan = Arc::clone(&scan);
            async move {
                let slice = next_slice(&reader).await;
                let slice = slice.map_err(|fault| fault.of(&scan.object.name))?;
                let Some(slice) = slice else { return Ok(None) };
                let rows = plain_batch(&slice, &scan.schema);
                let rows = rows.map_err(|error| Fault::Stream(error).of(&scan.object.name))?;
                Ok::<_, DataFusionError>(Some((rows, reader)))
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

/// All rows of `stream`, which has the name `name` in errors, for a load.
pub(crate) fn batches(
    stream: Stream,
    name: String,
    run: Arc<StatementRun>,
) -> Result<BoxStream<'static, Result<RecordBatch, Error>>, Error> {
    let plain = plain_schema(stream.schema());
    let plain = plain.map_err(|error| errors::outside_data(format!("{name}: {error}")))?;
    let places = (0..plain.fields().len()).collect();
    let reader = Reader::new(Box::new(move || Ok((stream, places))), LOAD_ROWS, run);
    let reader = Arc::new(AsyncMutex::new(reader));
    let rows = try_unfold((reader, plain, name), |(reader, plain, name)| async move {
        let slice = next_slice(&reader).await;
        let slice = slice.map_err(|fault| Error::from(fault.of(&name)))?;
        let Some(slice) = slice else { return Ok(None) };
        let rows = plain_batch(&slice, &plain).map_err(|error| of_stream(&name, &error))?;
        Ok::<_, Error>(Some((rows, (reader, plain, name))))
    });
    Ok(rows.boxed())
}

/// What opens a stream, with the places of the columns that are wanted of it.
type Open = Box<dyn FnOnce() -> Result<(Stream, Vec<usize>), Error> + Send>;

/// Reads one stream.
struct Reader {
    /// None once it is open.
    open: Option<Open>,
    /// None before it is open, and at its end.
    stream: Option<Stream>,
    places: Vec<usize>,
    slice_rows: usize,
    /// Slices of what was read.
    slices: VecDeque<RecordBatch>,
    /// The statement that reads it.
    run: Arc<StatementRun>,
}

/// Why a stream cannot be read on.
enum Fault {
    /// It says so.
    Stream(ArrowError),
    /// It was not opened.
    Opening(Error),
    /// The thread that reads broke off.
    Task(DataFusionError),
}

impl Fault {
    fn of(self, name: &str) -> DataFusionError {
        match self {
            Self::Stream(error) => errors::within_plan(of_stream(name, &error)),
            Self::Opening(error) => errors::within_plan(error),
            Self::Task(error) => error,
        }
    }
}

impl Reader {
    fn new(open: Open, slice_rows: usize, run: Arc<StatementRun>) -> Self {
        Self { open: Some(open), slice_rows: slice_rows.max(1), ..Self::ended(run) }
    }

    /// One without rows.
    fn ended(run: Arc<StatementRun>) -> Self {
        let (places, slices) = (Vec::new(), VecDeque::new());
        Self { open: None, stream: None, places, slice_rows: 1, slices, run }
    }

    /// Reads until there are rows, or the stream's end, or nobody waits: a stream may have no end, and no rows.
    fn read(&mut self, waits: &Weak<()>) -> Result<(), Fault> {
        let _reading = self.run.reading();
        if let Some(open) = self.open.take() {
            let (stream, places) = open().map_err(Fault::Opening)?;
            (self.stream, self.places) = (Some(stream), places);
        }
        while self.slices.is_empty()
            && waits.strong_count() > 0
            && let Some(stream) = &mut self.stream
        {
            match stream.next() {
                Ok(Some(batch)) => {
                    let batch = batch.project(&self.places).map_err(Fault::Stream)?;
                    self.put(&batch);
                }
                Ok(None) => self.stream = None,
                Err(error) => {
                    self.stream = None;
                    return Err(Fault::Stream(error));
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, batch: &RecordBatch) {
        let mut from = 0;
        while from < batch.num_rows() {
            let count = self.slice_rows.min(batch.num_rows() - from);
            self.slices.push_back(batch.slice(from, count));
            from += count;
        }
    }
}

/// The next slice of what `reader` reads.
async fn next_slice(reader: &Shared) -> Result<Option<RecordBatch>, Fault> {
    let mut reader = Arc::clone(reader).lock_owned().await;
    if let Some(slice) = reader.slices.pop_front() {
        return Ok(Some(slice));
    }
    let waiting = Arc::new(());
    let waits = Arc::downgrade(&waiting);
    // It may wait for Python's lock, and Python's code may take long.
    let reading = SpawnedTask::spawn_blocking(move || {
        reader.read(&waits)?;
        Ok::<_, Fault>(reader.slices.pop_front())
    });
    let read = reading.await;
    drop(waiting);
    read.unwrap_or_else(|error| Err(Fault::Task(DataFusionError::ExecutionJoin(Box::new(error)))))
}

/// The error of a stream.
pub(crate) fn of_stream(name: &str, error: &ArrowError) -> Error {
    if let ArrowError::ExternalError(inner) = error
        && let Some(Error::Invalid { message, fault, .. }) = inner.downcast_ref::<Error>()
    {
        let message = format!("\"{name}\": {message}");
        return Error::Invalid { message, fault: *fault, position: None };
    }
    errors::outside_data(format!("\"{name}\": {error}"))
}
