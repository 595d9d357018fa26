//! Runs of spilled batches, and the writer of several runs at once.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use cleave_media::{AlignedBuffer, Extent};
use datafusion_common::{Result, internal_err};
use datafusion_execution::SendableRecordBatchStream;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion_physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::stream;

use super::{SpillSpace, frame};
use crate::command::arrow_message::BARE_ROW_COUNT_MAX;
use crate::command::slot::{SlotDecoder, batch_bytes, encode_batch};

/// Most bytes of rows in a frame.
pub(crate) const FRAME_BYTES: u64 = 256 << 10;
/// Frames of one writer that may be under way to the media.
const WRITES_MAX: usize = 4;

/// Stamps of this process; each frame has another one.
static NEXT_STAMP: AtomicU64 = AtomicU64::new(1);

/// Metrics of an operator's spilling.
#[derive(Debug, Clone)]
pub struct SpillFigures {
    /// Runs that have rows.
    pub runs: Count,
    /// Bytes written, whole blocks.
    pub bytes: Count,
    /// Rows written, counted each time.
    pub rows: Count,
}

impl SpillFigures {
    /// Figures among `metrics`.
    pub fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            runs: MetricBuilder::new(metrics).spill_count(partition),
            bytes: MetricBuilder::new(metrics).spilled_bytes(partition),
            rows: MetricBuilder::new(metrics).spilled_rows(partition),
        }
    }
}

/// Spilled batches; their blocks are freed when it is dropped.
pub struct SpillRun {
    space: Arc<dyn SpillSpace>,
    schema: SchemaRef,
    decoder: SlotDecoder,
    frames: Vec<Frame>,
    row_count: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    place: Extent,
    stamp: u64,
}

impl SpillRun {
    fn new(space: Arc<dyn SpillSpace>, schema: SchemaRef) -> Self {
        let decoder = SlotDecoder::new(&schema);
        Self { space, schema, decoder, frames: Vec::new(), row_count: 0, bytes: 0 }
    }

    /// Rows in it.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Bytes of its rows before they were encoded.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its batches in their order. Frames are read while those before them are processed: the next one, and more of
    /// them as long as they take at most `ahead_bytes` together.
    pub fn batches(self: &Arc<Self>, ahead_bytes: u64) -> SendableRecordBatchStream {
        let mut ahead = Ahead { run: Arc::clone(self), reads: VecDeque::new(), bytes: 0, next: 0 };
        ahead.begin(ahead_bytes);
        let batches = stream::unfold(ahead, move |mut ahead| async move {
            let batch = ahead.next(ahead_bytes).await?;
            Some((batch, ahead))
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }

    fn decode(&self, place: usize, blocks: AlignedBuffer) -> Result<RecordBatch> {
        let Some(Frame { place, stamp }) = self.frames.get(place).copied() else {
            return internal_err!("a frame is read that was never written");
        };
        let body = frame::decode(blocks, stamp, place)?;
        let batch = self.decoder.decode(body)?;
        // The fields' metadata is the schema's, whatever was stored.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let (schema, columns) = (Arc::clone(&self.schema), batch.columns().to_vec());
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}

/// Frames that are read ahead.
struct Ahead {
    run: Arc<SpillRun>,
    /// Each with the frame's index and bytes.
    reads: VecDeque<(usize, u64, BoxFuture<'static, Result<AlignedBuffer>>)>,
    bytes: u64,
    /// The index of the first frame whose read has not begun.
    next: usize,
}

impl Ahead {
    /// Begins reads that fit `bytes_max`, or one.
    fn begin(&mut self, bytes_max: u64) {
        while let Some(frame) = self.run.frames.get(self.next) {
            let bytes = frame.place.bytes() as u64;
            if !self.reads.is_empty() && self.bytes + bytes > bytes_max {
                break;
            }
            self.reads.push_back((self.next, bytes, self.run.space.read(frame.place)));
            self.bytes += bytes;
            self.next += 1;
        }
    }

    /// The next batch; nothing follows an error.
    async fn next(&mut self, bytes_max: u64) -> Option<Result<RecordBatch>> {
        let (index, bytes, read) = self.reads.pop_front()?;
        let outcome = read.await;
        self.bytes -= bytes;
        match &outcome {
            Ok(_) => self.begin(bytes_max),
            Err(_) => self.reads.clear(),
        }
        Some(outcome.and_then(|blocks| self.run.decode(index, blocks)))
    }
}

impl Drop for SpillRun {
    fn drop(&mut self) {
        for frame in &self.frames {
            self.space.give_back(frame.place);
        }
    }
}

impl fmt::Debug for SpillRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillRun")
            .field("row_count", &self.row_count)
            .field("frames", &self.frames.len())
            .finish_non_exhaustive()
    }
}

/// Writes several runs at once, within a given amount of memory.
pub struct RunsWriter {
    parts: Vec<Part>,
    gathered_bytes: u64,
    gathered_bytes_max: u64,
    under_way: VecDeque<UnderWay>,
    figures: SpillFigures,
    /// Reserved for as long as rows are gathered.
    _memory: MemoryReservation,
}

/// One run, and the rows that are not written yet.
struct Part {
    run: SpillRun,
    gathered: Vec<RecordBatch>,
    rows: usize,
    bytes: u64,
}

struct UnderWay {
    part: usize,
    stamp: u64,
    blocks: BoxFuture<'static, Result<Extent>>,
}

impl RunsWriter {
    /// A writer of `count` runs of `schema` in `space`, which takes `memory_bytes` of `pool`: half for rows that it
    /// gathers, half for frames under way.
    pub fn new(
        space: &Arc<dyn SpillSpace>,
        schema: &SchemaRef,
        count: usize,
        (pool, memory_bytes): (&Arc<dyn MemoryPool>, usize),
        figures: SpillFigures,
    ) -> Self {
        let memory = MemoryConsumer::new("rows to be put aside").register(pool);
        // The caller has left as much free, or will free it with the first rows.
        memory.grow(memory_bytes);
        let part = |_| Part {
            run: SpillRun::new(Arc::clone(space), Arc::clone(schema)),
            gathered: Vec::new(),
            rows: 0,
            bytes: 0,
        };
        Self {
            parts: (0..count).map(part).collect(),
            gathered_bytes: 0,
            gathered_bytes_max: memory_bytes as u64 / 2,
            under_way: VecDeque::new(),
            figures,
            _memory: memory,
        }
    }

    /// Adds `batch` to run `part`.
    pub async fn push(&mut self, part: usize, batch: RecordBatch) -> Result<()> {
        let Some(found) = self.parts.get(part).filter(|_| batch.num_rows() > 0) else {
            return Ok(());
        };
        let bytes = batch_bytes(&batch);
        // Rows of NULLs alone have no bytes that would bound them.
        let is_full = found.rows + batch.num_rows() > BARE_ROW_COUNT_MAX;
        if is_full {
            self.begin_write(part).await?;
        }
        let Some(found) = self.parts.get_mut(part) else { return Ok(()) };
        found.rows += batch.num_rows();
        found.bytes += bytes;
        found.run.bytes += bytes;
        found.run.row_count += batch.num_rows() as u64;
        found.gathered.push(batch);
        self.gathered_bytes += bytes;
        if found.bytes >= FRAME_BYTES {
            self.begin_write(part).await?;
        }
        while self.gathered_bytes > self.gathered_bytes_max {
            let sizes = self.parts.iter().enumerate().map(|(place, part)| (part.bytes, place));
            let Some((1.., largest)) = sizes.max() else { break };
            self.begin_write(largest).await?;
        }
        Ok(())
    }

    /// Writes the remaining rows, and returns the runs in order.
    pub async fn finish(mut self) -> Result<Vec<Arc<SpillRun>>> {
        for part in 0..self.parts.len() {
            self.begin_write(part).await?;
        }
        self.settle(0).await?;
        let parts = std::mem::take(&mut self.parts);
        self.figures.runs.add(parts.iter().filter(|part| part.run.row_count > 0).count());
        Ok(parts.into_iter().map(|part| Arc::new(part.run)).collect())
    }

    async fn begin_write(&mut self, place: usize) -> Result<()> {
        let Some(part) = self.parts.get_mut(place) else { return Ok(()) };
        let gathered = std::mem::take(&mut part.gathered);
        part.rows = 0;
        self.gathered_bytes -= std::mem::take(&mut part.bytes);
        let Some(first) = gathered.first() else { return Ok(()) };
        let whole = match gathered.as_slice() {
            [only] => only.clone(),
            several => concat_batches(&first.schema(), several)?,
        };
        drop(gathered);
        let stamp = NEXT_STAMP.fetch_add(1, Ordering::Relaxed);
        let blocks = frame::encode(&encode_batch(&whole)?, stamp);
        self.figures.bytes.add(blocks.len());
        self.figures.rows.add(whole.num_rows());
        let blocks = part.run.space.write(blocks);
        self.under_way.push_back(UnderWay { part: place, stamp, blocks });
        self.settle(WRITES_MAX).await
    }

    /// Waits until at most `count` writes are under way.
    async fn settle(&mut self, count: usize) -> Result<()> {
        while self.under_way.len() > count {
            let Some(UnderWay { part, stamp, blocks }) = self.under_way.pop_front() else { break };
            let place = blocks.await?;
            if let Some(part) = self.parts.get_mut(part) {
                part.run.frames.push(Frame { place, stamp });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RunsWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunsWriter").field("runs", &self.parts.len()).finish_non_exhaustive()
    }
}
