//! A bulk load: a stream of batches in, one sealed segment and one run for each index out, all or nothing.
//!
//! ```text
//!  batches ─▶ Conform ─┬─▶ (thread) SegmentWriter ─▶ SegmentSink ─▶ device
//!                      ├─▶ (task) IndexLoad: keys ─▶ KeyRunWriter ─▶ SegmentSink ─▶ device
//!                      └─▶ … one for each index
//! ```
//!
//! Encoding has a thread of its own, and each index a task of its own, beside the task that reads and checks rows, and
//! the writes that are under way. Memory is bounded by a page, a few batches, the writes under way and the keys
//! that are sorted at once, whatever the length of the stream.
//!
//! Invariant: nothing is visible before the commit, and a load that ends early gives back its space.
//! The turn to write is held from the first batch to the commit.

use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_store::{
    EncodedPage, KeyRange, MergeSource, PageClass, PageEntry, Run, SegmentDirectory, SegmentKind,
    SegmentRef, SegmentWriter, TableSchema, VersionRun,
};
use datafusion::common::runtime::SpawnedTask;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::compact::compact;
use super::conform::Conform;
use super::key_run::KeyRunWriter;
use super::segment_sink::{AHEAD_BULK, SegmentSink};
use crate::catalog::commit::Transaction;
use crate::catalog::{TableState, TabletState};
use crate::database::Database;
use crate::engine::blocking;
use crate::error::{Error, Fault, Result};
use crate::host_pages::HostPages;
use crate::index::{IndexShape, TabletIndex};
use crate::settings::Stack;

/// Batches that wait for the encoder.
const BATCHES_WAITING: usize = 4;
/// Encoded pages that wait to be written.
const PAGES_WAITING: usize = 2;

/// Loads `batches` into `table`; see [`Session::load`](crate::Session::load).
///
/// # Errors
/// As there.
pub(crate) async fn load(
    database: &Arc<Database>,
    table: &str,
    mut batches: BoxStream<'_, Result<RecordBatch>>,
    progress: Option<&(dyn Fn(u64) + Send + Sync)>,
    now_us: i64,
) -> Result<u64> {
    let transaction = Transaction::begin(database).await?;
    let schema = Arc::clone(&transaction.table(table)?.schema);
    let mut load = BulkLoad::begin(transaction, &schema).await?;
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        let rows = Conform::by_name(&schema, &batch.schema(), now_us)?.rows(&batch)?;
        load.push(rows).await?;
        if let Some(progress) = progress {
            progress(load.row_count());
        }
    }
    load.commit().await
}

/// A load under way.
pub(crate) struct BulkLoad {
    transaction: Transaction,
    table: Arc<TableState>,
    tablet: Arc<TabletState>,
    segment: SegmentRef,
    pages: Arc<HostPages>,
    /// `None` once all rows have been given away.
    rows: Option<mpsc::Sender<RecordBatch>>,
    encoder: SpawnedTask<Result<()>>,
    sink: SpawnedTask<Result<SegmentSink>>,
    /// One for each index, in the tablet's order.
    indexes: Vec<IndexLoad>,
    row_count: u64,
}

/// The keys of one index on their way to a run.
struct IndexLoad {
    /// One task. First, so that a load that is given up ends it before it can take the end of `rows` for that of the load.
    run: JoinSet<Result<Option<Arc<SegmentDirectory>>>>,
    shape: Arc<IndexShape>,
    /// Key columns, and the VID of their first row; `None` once there are no more.
    rows: Option<mpsc::Sender<(RecordBatch, u64)>>,
}

impl BulkLoad {
    /// Begins to load into `table`, of which `schema` is what the rows were made for.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the table is another one by now.
    pub(crate) async fn begin(
        mut transaction: Transaction,
        schema: &Arc<TableSchema>,
    ) -> Result<Self> {
        let (table, tablet) = target(&transaction, schema)?;
        let database = Arc::clone(transaction.database());
        let device = database.attached(tablet.device)?;
        let pages = database.host_pages(tablet.device, Stack::Native)?;
        let segment = segment_ref(&mut transaction, schema)?;
        let claim = transaction.claim(&device);
        let mut indexes = Vec::with_capacity(tablet.indexes.len());
        for index in &tablet.indexes {
            let run = segment_ref(&mut transaction, schema)?;
            let shape = Arc::clone(index.shape());
            let sharing = tablet.indexes.len();
            let writer = KeyRunWriter::new(Arc::clone(&shape), Arc::clone(&claim), run, sharing);
            indexes.push(IndexLoad::begin(shape, writer, Arc::clone(&pages)));
        }
        let writer = SegmentWriter::new(segment, schema, PageClass::BULK, 0, tablet.next_vid)?;
        let (rows, rows_received) = mpsc::channel(BATCHES_WAITING);
        let (encoded, encoded_received) = mpsc::channel(PAGES_WAITING);
        let sink = SegmentSink::new(claim, AHEAD_BULK);
        Ok(Self {
            table,
            tablet,
            segment,
            pages,
            rows: Some(rows),
            encoder: SpawnedTask::spawn(encode(writer, rows_received, encoded)),
            sink: SpawnedTask::spawn(write(sink, encoded_received)),
            indexes,
            row_count: 0,
            transaction,
        })
    }

    /// Rows taken so far.
    pub(crate) fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Takes rows that conform to the table.
    ///
    /// # Errors
    /// Those of encoding and writing these or earlier rows; [`Error::DuplicateKey`].
    pub(crate) async fn push(&mut self, rows: RecordBatch) -> Result<()> {
        let given = self.give(rows).await;
        if given.is_err() {
            stop(&mut self.indexes).await;
        }
        given
    }

    async fn give(&mut self, rows: RecordBatch) -> Result<()> {
        let vid_first = self.tablet.next_vid + self.row_count;
        for index in &mut self.indexes {
            index.push(&rows, vid_first).await?;
        }
        self.row_count += rows.num_rows() as u64;
        let given = match &self.rows {
            Some(sender) => sender.send(rows).await.is_ok(),
            None => false,
        };
        if given {
            return Ok(());
        }
        // The encoder has ended, and only an error ends it before the rows do.
        self.finish_heap().await.map(|_| ())
    }

    /// Commits what was taken; returns how many rows that were.
    ///
    /// # Errors
    /// As [`BulkLoad::push`]; and those of the commit.
    pub(crate) async fn commit(mut self) -> Result<u64> {
        let entries = match self.finish_heap().await {
            Ok(entries) => entries,
            Err(error) => {
                stop(&mut self.indexes).await;
                return Err(error);
            }
        };
        if self.row_count == 0 {
            return Ok(0);
        }
        let mut directory = SegmentDirectory::new(self.segment, SegmentKind::Heap, PageClass::BULK);
        directory.pages = entries;
        directory.sealed = true;
        let mut indexes = Vec::with_capacity(self.indexes.len());
        let mut loads = std::mem::take(&mut self.indexes);
        for place in 0..loads.len() {
            match self.index(place, &mut loads).await {
                Ok(index) => indexes.push(index),
                Err(error) => {
                    stop(&mut loads).await;
                    return Err(error);
                }
            }
        }
        let mut tablet = TabletState::clone(&self.tablet);
        if let Some(last) = tablet.heap.last_mut() {
            // Only the last segment may be open, and this one is behind it.
            Arc::make_mut(last).sealed = true;
        }
        tablet.heap.push(Arc::new(directory));
        Arc::make_mut(&mut tablet.version_map).append_run(VersionRun {
            vid_first: tablet.next_vid,
            vid_count: self.row_count,
            segment: self.segment.segment,
        })?;
        tablet.next_vid += self.row_count;
        tablet.indexes = indexes;
        let table =
            TableState { tablets: vec![Arc::new(tablet)], ..TableState::clone(&self.table) };
        self.transaction.put_table(table);
        self.transaction.commit().await?;
        Ok(self.row_count)
    }

    /// Waits until all rows given away are encoded and written.
    async fn finish_heap(&mut self) -> Result<Vec<PageEntry>> {
        self.rows = None;
        let encoded = joined((&mut self.encoder).await)?;
        // What kept the pages from being written is why the encoder stopped.
        let sink = joined((&mut self.sink).await)??;
        encoded?;
        sink.finish().await
    }

    /// The index at `place` with the keys of this load.
    async fn index(&mut self, place: usize, loads: &mut [IndexLoad]) -> Result<Arc<TabletIndex>> {
        let found = self.tablet.indexes.get(place).map(Arc::clone).zip(loads.get_mut(place));
        let (index, load) = found.ok_or_else(|| made_anew(&self.table.schema.name))?;
        let run = load.finish().await?;
        let Some(run) = run else { return Ok(index) };
        let (shape, pages) = (Arc::clone(index.shape()), &*self.pages);
        let new = Run::new(Arc::clone(&run))?;
        if let Some((first, last)) = new.key_range().filter(|_| shape.definition.unique) {
            let mut sources = index.overlapping(&self.tablet, pages, first, last).await?;
            if !sources.is_empty() {
                sources.push(MergeSource::Run(new.scan(KeyRange::default())));
                shape.check_unique(sources, pages).await?;
            }
        }
        let mut runs: Vec<_> = index.runs().map(Arc::clone).collect();
        runs.push(run);
        let runs = compact(&mut self.transaction, &self.tablet, &index, runs, pages).await?;
        Ok(Arc::new(index.with_runs(runs)?))
    }
}

impl IndexLoad {
    fn begin(shape: Arc<IndexShape>, mut writer: KeyRunWriter, pages: Arc<HostPages>) -> Self {
        let (rows, mut received) = mpsc::channel::<(RecordBatch, u64)>(BATCHES_WAITING);
        let keys = Arc::clone(&shape);
        let mut run = JoinSet::new();
        run.spawn(async move {
            while let Some((rows, vid_first)) = received.recv().await {
                writer.push(&keys.entries(&rows, vid_first)?, vid_first).await?;
            }
            writer.finish(&*pages).await
        });
        Self { shape, rows: Some(rows), run }
    }

    async fn push(&mut self, rows: &RecordBatch, vid_first: u64) -> Result<()> {
        let keys = self.shape.key_rows(rows)?;
        let given = match &self.rows {
            Some(sender) => sender.send((keys, vid_first)).await.is_ok(),
            None => false,
        };
        if given {
            return Ok(());
        }
        // The task has ended, and only an error ends it before the rows do.
        self.finish().await.map(|_| ())
    }

    async fn finish(&mut self) -> Result<Option<Arc<SegmentDirectory>>> {
        self.rows = None;
        match self.run.join_next().await {
            Some(outcome) => joined(outcome)?,
            None => Ok(None),
        }
    }
}

/// Ends the tasks of a load that failed, before its error is told: the space that they hold is free by then.
async fn stop(indexes: &mut [IndexLoad]) {
    for index in indexes {
        index.run.shutdown().await;
    }
}

/// The table that `schema` describes, and the tablet that new rows go to.
///
/// # Errors
/// [`Error::UnknownName`], or [`Error::Invalid`] where the table is another one by now.
pub(crate) fn target(
    transaction: &Transaction,
    schema: &TableSchema,
) -> Result<(Arc<TableState>, Arc<TabletState>)> {
    let table = transaction.table(&schema.name)?;
    let same = table.schema.table_id == schema.table_id && table.schema.version == schema.version;
    match table.tablets.first() {
        Some(tablet) if same => {
            let tablet = Arc::clone(tablet);
            Ok((table, tablet))
        }
        _ => Err(made_anew(&schema.name)),
    }
}

/// The error of a statement whose table is another one by now.
pub(crate) fn made_anew(table: &str) -> Error {
    Error::Invalid {
        message: format!("table \"{table}\" was made anew while the statement ran"),
        fault: Fault::State,
        position: None,
    }
}

/// A new segment of the table that `schema` describes, written by this transaction alone.
///
/// # Errors
/// [`StorageError::Exhausted`](crate::storage_error::StorageError::Exhausted).
pub(crate) fn segment_ref(
    transaction: &mut Transaction,
    schema: &TableSchema,
) -> Result<SegmentRef> {
    Ok(SegmentRef {
        table_id: schema.table_id,
        segment: transaction.segment_id()?,
        schema_version: schema.version,
        commit: transaction.commit_number(),
    })
}

/// Encodes batches until there are no more, or nobody wants their pages: batch by batch on a thread that may be busy.
async fn encode(
    mut writer: SegmentWriter,
    mut rows: mpsc::Receiver<RecordBatch>,
    encoded: mpsc::Sender<EncodedPage>,
) -> Result<()> {
    while let Some(batch) = rows.recv().await {
        let push = move || {
            let pages = writer.push(&batch);
            (writer, pages)
        };
        let (back, pages) = joined(blocking(push).await)?;
        writer = back;
        for page in pages? {
            if encoded.send(page).await.is_err() {
                return Ok(());
            }
        }
    }
    for page in joined(blocking(move || writer.finish()).await)?? {
        if encoded.send(page).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Writes encoded pages until there are no more.
async fn write(
    mut sink: SegmentSink,
    mut encoded: mpsc::Receiver<EncodedPage>,
) -> Result<SegmentSink> {
    while let Some(page) = encoded.recv().await {
        sink.push(page).await?;
    }
    Ok(sink)
}

/// What a task of ours gave, unless it died.
pub(crate) fn joined<T>(outcome: Result<T, JoinError>) -> Result<T> {
    outcome.map_err(|error| {
        Error::io("run", std::path::Path::new("a task of the load"), std::io::Error::other(error))
    })
}
