//! The part of a load that goes to one tablet: batches in, pages and keys on the tablet's device out.
//!
//! Encoding, writing and each index have a task of their own, so tablets are written side by side.
//!
//! Invariant: [`TabletLoad::stop`] returns when none of them runs any more.

use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::TabletState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::IndexShape;
use cleave_catalog::settings::Settings;
use cleave_catalog::tasks::{blocking, joined};
use cleave_store::{
    EncodedPage, PageClass, PageEntry, SegmentDirectory, SegmentKind, SegmentRef, SegmentWriter,
    TableSchema, VersionMap,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::segment_ref;
use crate::device::Claim;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::write::key_run::KeyRunWriter;
use crate::write::merge_runs::RunMerger;
use crate::write::segment_sink::{AHEAD_BULK, SegmentSink};

/// Batches that wait for the encoder.
const BATCHES_WAITING: usize = 4;
/// Encoded pages that wait to be written.
const PAGES_WAITING: usize = 2;
/// Blocks that a tablet claims ahead at least: 4 MiB.
const AHEAD_MIN: u32 = 1024;

/// Rows on their way to one tablet.
pub(super) struct TabletLoad {
    pub(super) claim: Arc<Claim>,
    pub(super) merger: RunMerger,
    /// The VID of the first row.
    pub(super) vid_first: u64,
    segment: SegmentRef,
    class: PageClass,
    /// One task each. First, so that a cancelled load ends them before they can take the end of `rows` for that of the
    /// load.
    encoder: JoinSet<Result<()>>,
    sink: JoinSet<Result<SegmentSink>>,
    /// One for each index, in the tablet's order.
    indexes: Vec<IndexLoad>,
    /// `None` once there are no more rows.
    rows: Option<mpsc::Sender<RecordBatch>>,
    pub(super) row_count: u64,
}

/// The keys of one index on their way to a run.
struct IndexLoad {
    /// One task; first, as above.
    run: JoinSet<Result<Option<Arc<SegmentDirectory>>>>,
    shape: Arc<IndexShape>,
    /// Key columns, and the VID of their first row; `None` once there are no more.
    rows: Option<mpsc::Sender<(RecordBatch, u64)>>,
}

impl TabletLoad {
    /// Begins to load rows with VIDs from `vid_first` on into `tablet`, of a table with `tablet_count` of them.
    ///
    /// # Errors
    /// A device that is not attached, no more segments.
    pub(super) fn begin(
        edit: &mut CatalogEdit,
        settings: &Arc<Settings>,
        schema: &Arc<TableSchema>,
        (tablet, vid_first): (&TabletState, u64),
        tablet_count: usize,
    ) -> Result<Self> {
        let database = Arc::clone(edit.database());
        let device = database.attached(tablet.device)?;
        let segment = segment_ref(edit, schema)?;
        let claim = edit.claim(&device);
        let merger = RunMerger::new(&database, &device, settings)?;
        let sharing = tablet.indexes.len().saturating_mul(tablet_count);
        let mut indexes = Vec::with_capacity(tablet.indexes.len());
        for index in &tablet.indexes {
            let run = segment_ref(edit, schema)?;
            let shape = Arc::clone(index.shape());
            let writer = KeyRunWriter::new(Arc::clone(&shape), Arc::clone(&claim), run, sharing);
            let writer = writer.within(database.query_memory_max(), sharing);
            indexes.push(IndexLoad::begin(shape, writer, merger.clone()));
        }
        let class = database.load_pages(tablet_count);
        let writer = SegmentWriter::new(segment, schema, class, 0, vid_first)?;
        let (rows, rows_received) = mpsc::channel(BATCHES_WAITING);
        let (encoded, encoded_received) = mpsc::channel(PAGES_WAITING);
        let ahead = AHEAD_BULK / u32::try_from(tablet_count).unwrap_or(u32::MAX).max(1);
        let sink = SegmentSink::new(Arc::clone(&claim), ahead.max(AHEAD_MIN));
        Ok(Self {
            claim,
            merger,
            vid_first,
            segment,
            class,
            encoder: one_task(encode(writer, rows_received, encoded)),
            sink: one_task(write(sink, encoded_received)),
            indexes,
            rows: Some(rows),
            row_count: 0,
        })
    }

    /// Takes rows.
    ///
    /// # Errors
    /// Those of encoding and writing these or earlier rows; [`Error::DuplicateKey`].
    pub(super) async fn give(&mut self, rows: RecordBatch) -> Result<()> {
        let vid_first = self.vid_first + self.row_count;
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
        // The encoder has stopped, which only an error does before the last row.
        self.finish_pages().await.map(|_| ())
    }

    /// Says that there are no more rows, and waits for nothing.
    pub(super) fn end_rows(&mut self) {
        self.rows = None;
    }

    /// Waits until all rows are encoded and written; returns the heap's new segment.
    ///
    /// # Errors
    /// As [`TabletLoad::give`].
    pub(super) async fn finish_heap(&mut self) -> Result<SegmentDirectory> {
        let mut heap = SegmentDirectory::new(self.segment, SegmentKind::Heap, self.class);
        heap.pages = self.finish_pages().await?;
        heap.sealed = true;
        Ok(heap)
    }

    /// Says that there are no more keys of the index at `place`, and waits for nothing.
    pub(super) fn end_keys(&mut self, place: usize) {
        if let Some(index) = self.indexes.get_mut(place) {
            index.rows = None;
        }
    }

    /// Waits until all keys of the index at `place` are in one run; `None`: there are none.
    ///
    /// # Errors
    /// As [`TabletLoad::give`].
    pub(super) async fn finish_keys(
        &mut self,
        place: usize,
    ) -> Result<Option<Arc<SegmentDirectory>>> {
        match self.indexes.get_mut(place) {
            Some(index) => index.finish().await,
            None => Ok(None),
        }
    }

    /// Ends its tasks, before the load's error is returned: the space that they hold is free by then.
    pub(super) async fn stop(&mut self) {
        self.encoder.shutdown().await;
        self.sink.shutdown().await;
        for index in &mut self.indexes {
            index.run.shutdown().await;
        }
        self.claim.writes_ended().await;
    }

    async fn finish_pages(&mut self) -> Result<Vec<PageEntry>> {
        self.rows = None;
        let encoded = outcome(&mut self.encoder).await;
        // The error of writing pages is why the encoder stopped.
        let sink = outcome(&mut self.sink).await?;
        encoded?;
        sink.finish().await
    }
}

impl IndexLoad {
    fn begin(shape: Arc<IndexShape>, mut writer: KeyRunWriter, merger: RunMerger) -> Self {
        let (rows, mut received) = mpsc::channel::<(RecordBatch, u64)>(BATCHES_WAITING);
        let keys = Arc::clone(&shape);
        // No row of a load is dead.
        let none = VersionMap::new();
        let run = one_task(async move {
            while let Some((rows, vid_first)) = received.recv().await {
                writer.push(&keys.entries(&rows, vid_first)?, vid_first.., &none).await?;
            }
            writer.finish(&merger).await
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
        // The task has stopped, which only an error does before the last row.
        self.finish().await.map(|_| ())
    }

    async fn finish(&mut self) -> Result<Option<Arc<SegmentDirectory>>> {
        self.rows = None;
        outcome(&mut self.run).await
    }
}

fn one_task<T: Send + 'static>(
    task: impl Future<Output = Result<T>> + Send + 'static,
) -> JoinSet<Result<T>> {
    let mut tasks = JoinSet::new();
    tasks.spawn(task);
    tasks
}

/// The result of the only task.
async fn outcome<T: 'static>(task: &mut JoinSet<Result<T>>) -> Result<T> {
    match task.join_next().await {
        Some(outcome) => joined(outcome)?,
        None => {
            let error = std::io::Error::other("it was waited for before");
            Err(Error::io("run", std::path::Path::new("a task of the load"), error))
        }
    }
}

/// Encodes batches until there are no more, or the load is cancelled: batch by batch on a blocking thread.
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
