//! The rows of a statement: batches from the runtime in, tuples or a stream of Arrow out.
//!
//! 1. [`Rows::fetch`] makes tuples of some rows, and keeps the rest of their batch.
//! 2. [`Rows::stream`] gives all rows that are left away as one stream. It reads them first, which Ctrl-C interrupts,
//!    or lets its reader drive the query ([`Reader`]).
//!
//! A query runs only as far as its rows are fetched. It reads the snapshot at which it began, whatever its connection
//! does meanwhile. Where it fails on its way, the transaction in which it began has failed.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatchReader;
use cleave_host::commitment::unless;
use cleave_host::dialect::sql_type;
use cleave_host::error::Fault;
use cleave_host::{Error, ResultRows};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::arrow_stream::{schema_capsule, stream_capsule};
use crate::errors;
use crate::plain_types::{cast_to, given_schema};
use crate::process::{self, Own};
use crate::session::WeakEmbedded;
use crate::values;

/// The rows of a statement. See the module's description.
#[pyclass(frozen, module = "cleave._cleave")]
pub(crate) struct Rows {
    /// Its command tag, if it has no rows.
    #[pyo3(get)]
    tag: Option<String>,
    schema: Option<SchemaRef>,
    rest: Mutex<Rest>,
    source: Own<Arc<AsyncMutex<Source>>>,
}

/// What was read and not given.
#[derive(Debug, Default)]
struct Rest {
    batch: Option<RecordBatch>,
}

/// Where batches come from.
pub(crate) struct Source {
    from: Batches,
    /// The columns of the batches that are given.
    schema: SchemaRef,
}

enum Batches {
    /// A query of a database of this process, in the session that began it.
    Embedded(Box<ResultRows>, WeakEmbedded),
    /// Batches in memory.
    Made(VecDeque<RecordBatch>),
    /// They were given up while somebody may read them.
    GivenUp,
}

/// Name, type, and digits of a column, as `Cursor.description` tells them.
type ColumnOf = (String, String, Option<u8>, Option<i8>);

impl Rows {
    /// The outcome of a statement without rows.
    pub(crate) fn without(tag: String) -> Self {
        let schema = SchemaRef::new(Schema::empty());
        let made = Source { from: Batches::Made(VecDeque::new()), schema };
        let source = Own::new(Arc::new(AsyncMutex::new(made)));
        Self { tag: Some(tag), schema: None, rest: Mutex::default(), source }
    }

    /// The rows of a query that `session` has begun.
    pub(crate) fn embedded(rows: ResultRows, session: WeakEmbedded) -> Self {
        let schema = rows.schema();
        Self::of(Batches::Embedded(Box::new(rows), session), &schema)
    }

    fn of(from: Batches, schema: &SchemaRef) -> Self {
        let schema = given_schema(schema);
        let source = Source { from, schema: Arc::clone(&schema) };
        let source = Own::new(Arc::new(AsyncMutex::new(source)));
        Self { tag: None, schema: Some(schema), rest: Mutex::default(), source }
    }

    /// The next batch: what is left of the last one, or one that is read now.
    fn next(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let left = self.rest.lock().unwrap_or_else(PoisonError::into_inner).batch.take();
        if left.is_some() {
            return Ok(left);
        }
        let source = Arc::clone(self.source.get(py)?);
        if let Ok(mut source) = source.try_lock()
            && let Some(batch) = source.at_hand()
        {
            return batch.map_err(|error| errors::exception(py, &error));
        }
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let reading = async move { unless(next_of(source), stopped.notified()).await };
        match process::wait(py, &stop, None, Box::pin(reading))? {
            Ok(read) => read.map_err(|error| errors::exception(py, &error)),
            Err(()) => Err(errors::made(py, errors::STOPPED, "the query was stopped", None)),
        }
    }

    /// All batches that are left.
    fn all(&self, py: Python<'_>) -> PyResult<VecDeque<RecordBatch>> {
        let left = self.rest.lock().unwrap_or_else(PoisonError::into_inner).batch.take();
        let mut batches: VecDeque<RecordBatch> = left.into_iter().collect();
        let source = Arc::clone(self.source.get(py)?);
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let reading = async move {
            let all = async move {
                let mut read = Vec::new();
                while let Some(batch) = next_of(Arc::clone(&source)).await? {
                    read.push(batch);
                }
                Ok::<_, Error>(read)
            };
            unless(all, stopped.notified()).await
        };
        match process::wait(py, &stop, None, Box::pin(reading))? {
            Ok(read) => batches.extend(read.map_err(|error| errors::exception(py, &error))?),
            Err(()) => {
                return Err(errors::made(py, errors::STOPPED, "the query was stopped", None));
            }
        }
        Ok(batches)
    }

    fn schema_or_error(&self, py: Python<'_>) -> PyResult<&SchemaRef> {
        self.schema
            .as_ref()
            .ok_or_else(|| errors::made(py, "24000", "the statement has no rows to fetch", None))
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
    #[pyo3(signature = (limit=None))]
    fn fetch<'py>(&self, py: Python<'py>, limit: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        self.schema_or_error(py)?;
        let list = PyList::empty(py);
        loop {
            let wanted = limit.map(|limit| limit.saturating_sub(list.len()));
            if wanted == Some(0) {
                return Ok(list);
            }
            let Some(batch) = self.next(py)? else { return Ok(list) };
            let count = wanted.map_or(batch.num_rows(), |wanted| wanted.min(batch.num_rows()));
            values::append_rows(&batch.slice(0, count), &list)?;
            if count < batch.num_rows() {
                let left = batch.slice(count, batch.num_rows() - count);
                self.rest.lock().unwrap_or_else(PoisonError::into_inner).batch = Some(left);
            }
        }
    }

    /// A capsule with a stream of all rows that are left. With `whole` they are read now.
    fn stream<'py>(&self, py: Python<'py>, whole: bool) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = Arc::clone(self.schema_or_error(py)?);
        let (ahead, source) = if whole {
            (self.all(py)?, None)
        } else {
            let left = self.rest.lock().unwrap_or_else(PoisonError::into_inner).batch.take();
            let source = Own::new(Arc::clone(self.source.get(py)?));
            (left.into_iter().collect(), Some(source))
        };
        stream_capsule(py, Box::new(Reader { ahead, source, schema }))
    }

    /// A capsule with the description of the columns.
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.schema_or_error(py)?)?.map_err(|error| {
            errors::made(py, errors::INTERNAL, &format!("columns of a result: {error}"), None)
        })
    }

    /// Gives the rows up that are left.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let left = self.rest.lock().unwrap_or_else(PoisonError::into_inner).batch.take();
        drop(left);
        let source = Arc::clone(self.source.get(py)?);
        // A thread that fetches takes them with it.
        if let Ok(mut source) = source.try_lock() {
            let left = std::mem::replace(&mut source.from, Batches::GivenUp);
            drop(Own::new(left));
        }
        Ok(())
    }
}

impl Source {
    /// The next batch without waiting: a batch, an inner None at the end, or an outer None.
    fn at_hand(&mut self) -> Option<Result<Option<RecordBatch>, Error>> {
        let batch = match &mut self.from {
            Batches::Embedded(rows, _) => rows.next_at_hand()?,
            Batches::Made(batches) => batches.pop_front(),
            Batches::GivenUp => return Some(Err(given_up())),
        };
        Some(batch.map(|batch| given(&batch, &self.schema)).transpose())
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        let batch = match &mut self.from {
            Batches::Embedded(rows, session) => match rows.next().await {
                Ok(batch) => batch,
                Err(error) => {
                    session.fail();
                    return Err(error);
                }
            },
            Batches::Made(batches) => batches.pop_front(),
            Batches::GivenUp => return Err(given_up()),
        };
        batch.map(|batch| given(&batch, &self.schema)).transpose()
    }
}

/// The next batch of `source`, once nobody else reads it.
async fn next_of(source: Arc<AsyncMutex<Source>>) -> Result<Option<RecordBatch>, Error> {
    source.lock().await.next().await
}

fn given_up() -> Error {
    Error::Invalid {
        message: "the rows were given up: their cursor or connection was closed".to_owned(),
        fault: Fault::State,
        position: None,
    }
}

/// The rows of `batch` as they are given away.
fn given(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast_to(column, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
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
    source: Option<Own<Arc<AsyncMutex<Source>>>>,
    schema: SchemaRef,
}

impl Reader {
    fn read(&mut self) -> Option<Result<RecordBatch, ArrowError>> {
        if let Some(batch) = self.ahead.pop_front() {
            return Some(Ok(batch));
        }
        let source = Python::try_attach(|py| self.source.as_ref().map(|own| own.get(py).cloned()));
        let source = match source?? {
            Ok(source) => source,
            Err(error) => return Some(Err(errors::in_stream(&error.to_string()))),
        };
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let reading = async move { unless(next_of(source), stopped.notified()).await };
        let read = match process::wait_anywhere(&stop, Box::pin(reading)) {
            Ok(Ok(read)) => read.map_err(|error| errors::in_stream(&error.to_string())),
            Ok(Err(())) => Err(errors::in_stream("the query was stopped")),
            Err(message) => Err(errors::in_stream(&message)),
        };
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
