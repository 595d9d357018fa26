//! The rows of a query that runs once for several readers: a planned query in, its rows to each of its readers out.
//!
//! ```text
//!  reader 0 ──▶ place 2 ┐   kept: [batch 0, batch 1, batch 2]  ◀── RunningQuery
//!  reader 1 ──▶ place 0 ┘          in memory, or in a temporary file
//! ```
//!
//! 1. Nothing runs before a reader asks. A reader that has read all batches so far drives the query itself, up to the
//!    next batch; the others are woken then. So the query goes no further than its furthest reader, and a reader that
//!    never asks, stops early or is dropped holds no other up.
//! 2. Batches are kept as long as the statement, since a reader may begin late, or again. They are charged to the
//!    memory of queries; where that does not suffice, they go to a temporary file, the oldest first.
//! 3. An error of the query is the error of each reader.
//!
//! Invariant: the reader that drives the query holds no lock while it waits. A reader that finds another one driving
//! has registered its waker before, and is woken when that one stops.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

use cleave_catalog::error::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{internal_err, resources_err};
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SpillFile, SpillWriter};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::running::apply_schema;
use super::statement_context::StatementContext;
use super::{PlannedQuery, RunningQuery};

/// A query that runs once. See the module's description.
pub(super) struct SharedRows {
    name: String,
    /// Places of its columns among all that the query has.
    columns: Vec<usize>,
    schema: SchemaRef,
    row_estimate: f64,
    context: Arc<StatementContext>,
    source: Mutex<Source>,
    kept: Mutex<Kept>,
    readers: Arc<Readers>,
}

/// What gives the rows.
enum Source {
    Planned(Box<PlannedQuery>),
    Starting(BoxFuture<'static, Result<RunningQuery>>),
    Running(Box<RunningQuery>),
    Failed,
}

/// The rows so far.
struct Kept {
    batches: Vec<Batch>,
    memory: MemoryReservation,
    file: Option<Aside>,
    runtime: Arc<RuntimeEnv>,
    end: Option<End>,
}

#[derive(Clone)]
enum Batch {
    Here(RecordBatch),
    Aside { offset: u64, byte_count: usize },
}

#[derive(Clone)]
enum End {
    Done,
    Failed(Arc<DataFusionError>),
}

/// A temporary file with batches.
struct Aside {
    reading: Arc<File>,
    writing: Box<dyn SpillWriter>,
    byte_count: u64,
    /// Removes it.
    _file: Arc<dyn SpillFile>,
}

/// Those who wait for the next batch.
#[derive(Default)]
struct Readers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    wakers: Vec<Waker>,
    /// How often all were woken.
    times: u64,
}

impl Readers {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, waker: &Waker) {
        let mut waiting = self.waiting();
        if !waiting.wakers.iter().any(|known| known.will_wake(waker)) {
            waiting.wakers.push(waker.clone());
        }
    }

    fn wake_all(&self) {
        let mut waiting = self.waiting();
        waiting.times += 1;
        let wakers = mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Readers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

impl SharedRows {
    /// The rows of `query`, which WITH calls `name`; `columns` are the places of its columns among all that it was
    /// bound with.
    pub(super) fn new(
        name: String,
        columns: Vec<usize>,
        row_estimate: f64,
        query: PlannedQuery,
    ) -> Arc<Self> {
        let (context, schema) = (Arc::clone(&query.context), query.cuts.plan.schema());
        let runtime = context.database().query_runtime();
        let consumer = MemoryConsumer::new(name.clone()).with_can_spill(true);
        let memory = consumer.register(&runtime.memory_pool);
        let kept = Kept { batches: Vec::new(), memory, file: None, runtime, end: None };
        Arc::new(Self {
            name,
            columns,
            schema,
            row_estimate,
            context,
            source: Mutex::new(Source::Planned(Box::new(query))),
            kept: Mutex::new(kept),
            readers: Arc::default(),
        })
    }

    /// What it is called: its name in WITH, or its tables.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Rows that are expected.
    pub(super) fn row_estimate(&self) -> f64 {
        self.row_estimate
    }

    /// What the query carries.
    pub(super) fn context(&self) -> &Arc<StatementContext> {
        &self.context
    }

    /// Its place of the query's column that was at `column` when it was bound; None: it is not made.
    pub(super) fn place_of(&self, column: usize) -> Option<usize> {
        self.columns.iter().position(|own| *own == column)
    }

    /// The result of `of` for the query, unless it runs on another thread or has failed to begin.
    pub(super) fn with_query<T>(&self, of: impl FnOnce(&PlannedQuery) -> T) -> Option<T> {
        match &*self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            Source::Planned(query) => Some(of(query)),
            Source::Running(running) => Some(of(running.planned())),
            Source::Starting(_) | Source::Failed => None,
        }
    }

    /// Bytes that it has put into a temporary file.
    pub(super) fn spilled_bytes(&self) -> u64 {
        self.kept().file.as_ref().map_or(0, |file| file.byte_count)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The batch at `place`, None after the last; pending until it is there.
    pub(super) fn poll_batch(
        &self,
        place: usize,
        context: &mut Context<'_>,
    ) -> Poll<EngineResult<Option<RecordBatch>>> {
        loop {
            if let Some(found) = self.found(place)? {
                return Poll::Ready(Ok(found));
            }
            self.readers.add(context.waker());
            let mut source = match self.source.try_lock() {
                Ok(source) => source,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // The reader that has it wakes all when it returns it.
                Err(TryLockError::WouldBlock) => return Poll::Pending,
            };
            // It may have come meanwhile.
            if let Some(found) = self.found(place)? {
                return Poll::Ready(Ok(found));
            }
            let times = self.readers.waiting().times;
            let waker = Waker::from(Arc::clone(&self.readers));
            let next = source.poll_next(&mut Context::from_waker(&waker));
            let is_ready = match next {
                Poll::Ready(next) => {
                    self.kept().add(&self.schema, next);
                    true
                }
                Poll::Pending => false,
            };
            drop(source);
            let was_woken = self.readers.waiting().times != times;
            if is_ready || was_woken {
                // Also readers that came while the source was taken.
                self.readers.wake_all();
            }
            if !is_ready {
                if was_woken {
                    context.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
        }
    }

    /// The batch at `place`; an outer None: nothing yet.
    fn found(&self, place: usize) -> EngineResult<Option<Option<RecordBatch>>> {
        let kept = self.kept();
        let (offset, byte_count) = match (kept.batches.get(place), &kept.end) {
            (Some(Batch::Here(batch)), _) => return Ok(Some(Some(batch.clone()))),
            (Some(Batch::Aside { offset, byte_count }), _) => (*offset, *byte_count),
            (None, Some(End::Done)) => return Ok(Some(None)),
            (None, Some(End::Failed(error))) => {
                return Err(DataFusionError::Shared(Arc::clone(error)));
            }
            (None, None) => return Ok(None),
        };
        let Some(file) = &kept.file else { return internal_err!("rows in no file") };
        let reading = Arc::clone(&file.reading);
        drop(kept);
        let mut bytes = vec![0; byte_count];
        reading.read_exact_at(&mut bytes, offset)?;
        let mut batches = StreamReader::try_new(bytes.as_slice(), None)?;
        match batches.next() {
            Some(batch) => Ok(Some(Some(batch?))),
            None => internal_err!("a part of a file without rows"),
        }
    }
}

impl Source {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<RecordBatch>>> {
        loop {
            match self {
                Self::Planned(_) => {
                    let Self::Planned(query) = mem::replace(self, Self::Failed) else { continue };
                    *self = Self::Starting(async move { query.run(false).await }.boxed());
                }
                Self::Starting(starting) => match starting.as_mut().poll(context) {
                    Poll::Ready(Ok(running)) => *self = Self::Running(Box::new(running)),
                    Poll::Ready(Err(error)) => {
                        *self = Self::Failed;
                        return Poll::Ready(Err(error));
                    }
                    Poll::Pending => return Poll::Pending,
                },
                Self::Running(running) => return pin!(running.next()).poll(context),
                Self::Failed => return Poll::Ready(Ok(None)),
            }
        }
    }
}

impl Kept {
    /// Takes what comes next of the query.
    fn add(&mut self, schema: &SchemaRef, next: Result<Option<RecordBatch>>) {
        let kept = match next {
            Ok(None) => {
                self.end = Some(End::Done);
                return;
            }
            Ok(Some(batch)) if batch.num_rows() == 0 => return,
            Ok(Some(batch)) => apply_schema(&batch, schema)
                .map_err(DataFusionError::from)
                .and_then(|batch| self.keep(batch)),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = kept {
            self.end = Some(End::Failed(Arc::new(error)));
        }
    }

    fn keep(&mut self, batch: RecordBatch) -> EngineResult<()> {
        let byte_count = get_record_batch_memory_size(&batch);
        if self.memory.try_grow(byte_count).is_err() {
            self.put_aside()?;
            if self.memory.try_grow(byte_count).is_err() {
                let batch = self.written(&batch)?;
                self.batches.push(batch);
                return Ok(());
            }
        }
        self.batches.push(Batch::Here(batch));
        Ok(())
    }

    /// Puts all that is in memory into the file.
    fn put_aside(&mut self) -> EngineResult<()> {
        for place in 0..self.batches.len() {
            if let Some(Batch::Here(batch)) = self.batches.get(place).cloned() {
                let aside = self.written(&batch)?;
                if let Some(kept) = self.batches.get_mut(place) {
                    *kept = aside;
                }
            }
        }
        self.memory.free();
        Ok(())
    }

    fn written(&mut self, batch: &RecordBatch) -> EngineResult<Batch> {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema())?;
        writer.write(batch)?;
        writer.finish()?;
        drop(writer);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Aside::new(&self.runtime)?),
        };
        file.writing.write_all(&bytes)?;
        file.writing.flush()?;
        let (offset, byte_count) = (file.byte_count, bytes.len());
        file.byte_count += byte_count as u64;
        Ok(Batch::Aside { offset, byte_count })
    }
}

impl Aside {
    fn new(runtime: &RuntimeEnv) -> EngineResult<Self> {
        let file = runtime.disk_manager.create_tmp_file("keeping rows of WITH")?;
        let Some(path) = file.path() else {
            return resources_err!(
                "the rows of a query of WITH need more memory than queries have; --query-memory gives them more"
            );
        };
        let reading = Arc::new(File::open(path)?);
        let writing = file.open_writer()?;
        Ok(Self { reading, writing, byte_count: 0, _file: file })
    }
}

impl fmt::Debug for SharedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRows").field("name", &self.name).finish_non_exhaustive()
    }
}
