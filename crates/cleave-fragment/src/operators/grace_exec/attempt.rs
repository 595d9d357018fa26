//! One attempt of DataFusion's operator, and the context that all attempts of one [`GraceExec`](super::GraceExec)
//! share.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::memory_pool::MemoryPool;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::metrics::MetricsSet;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::Share;
use super::divide::{Divider, Hashes, Keys};
use super::lanes::{Lane, Out};
use crate::spill_space::{FRAME_BYTES, RunsWriter, SpillFigures, SpillRun, SpillSpace};

/// Fewest and most parts of one division.
const PARTS: std::ops::RangeInclusive<usize> = 4..=64;
/// Bytes that are gathered for each part before they are written.
const PART_BYTES: usize = 16 << 10;
/// The share of memory for rows that are gathered.
const GATHERED_SHARE: usize = 3;
/// Most bytes that are gathered: more would make frames larger than reading needs.
const GATHERED_BYTES_MAX: usize = 8 << 20;
/// How often a part is divided again. Even few parts each time are in the end more than there are rows.
pub(super) const DEPTH_MAX: u64 = 8;

/// What the parts of one operator share, as one of its lanes has it.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) lane: Lane,
    /// Schema of the operator's output.
    pub(super) schema: SchemaRef,
    pub(super) space: Arc<dyn SpillSpace>,
    /// Most bytes that all lanes may hold at once.
    pub(super) memory_bytes: usize,
    /// That memory.
    pub(super) pool: Arc<dyn MemoryPool>,
    /// The task whose memory attempts use.
    pub(super) task: Arc<TaskContext>,
    pub(super) figures: SpillFigures,
    pub(super) engine_metrics: Arc<Mutex<Vec<MetricsSet>>>,
    #[expect(dead_code, reason = "held until the last row: it is the pool's memory")]
    pub(super) share: Arc<Share>,
}

/// Rows of one input whose keys have hashes in common.
#[derive(Default)]
pub(super) struct Divided {
    /// What each lane has spilled of them, if any.
    runs: Vec<Arc<SpillRun>>,
    hashes: Hashes,
}

impl Divided {
    pub(super) fn row_count(&self) -> u64 {
        self.runs.iter().map(|run| run.row_count()).sum()
    }

    /// Bytes of the rows before they were encoded.
    pub(super) fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes()).sum()
    }

    /// It cannot be divided again.
    pub(super) fn has_one_key(&self) -> bool {
        self.hashes.are_of_one_key()
    }

    /// Its rows.
    pub(super) fn batches(&self, schema: &SchemaRef) -> SendableRecordBatchStream {
        Self { runs: self.runs.clone(), hashes: self.hashes }.into_batches(schema)
    }

    /// Its rows; the space of each run is freed once that is read.
    pub(super) fn into_batches(self, schema: &SchemaRef) -> SendableRecordBatchStream {
        let batches = stream::iter(self.runs).flat_map(|run| run.batches(FRAME_BYTES));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), batches))
    }

    /// The parts of several divisions by the same keys, of which each has as many parts.
    pub(super) fn all_of(divisions: Vec<Vec<Self>>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for division in divisions {
            all.resize_with(all.len().max(division.len()), Self::default);
            for (part, one) in all.iter_mut().zip(division) {
                part.runs.extend(one.runs);
                part.hashes.add(one.hashes);
            }
        }
        all
    }
}

/// How an attempt has ended.
pub(super) enum Tried {
    /// With all its rows.
    Done,
    /// Before its first row, because memory ran out.
    TooLarge(DataFusionError),
}

impl Ground {
    /// Memory of all lanes for gathering rows before they are written.
    fn gathering_bytes(&self) -> usize {
        (self.memory_bytes / GATHERED_SHARE).min(GATHERED_BYTES_MAX)
    }

    /// Most bytes that this lane holds before rows are spilled: gathering must fit besides.
    pub(super) fn held_bytes(&self) -> usize {
        (self.memory_bytes - self.gathering_bytes()) / self.lane.count()
    }

    fn part_count(&self) -> usize {
        let count = self.gathering_bytes() / 2 / PART_BYTES;
        count.clamp(*PARTS.start(), *PARTS.end())
    }

    /// Divides `first` and the rest of the input `rest` by `keys`, and spills it. Two divisions of one operator have as
    /// many parts.
    pub(super) async fn put_aside(
        &self,
        schema: &SchemaRef,
        keys: Keys,
        depth: u64,
        first: Vec<RecordBatch>,
        mut rest: SendableRecordBatchStream,
    ) -> Result<Vec<Divided>> {
        let count = self.part_count();
        let memory = (&self.pool, self.gathering_bytes() / self.lane.count());
        let mut writer = RunsWriter::new(&self.space, schema, count, memory, self.figures.clone());
        let mut divider = Divider::new(keys, count, depth);
        for batch in first {
            push(&mut writer, &mut divider, batch).await?;
        }
        while let Some(batch) = rest.next().await {
            push(&mut writer, &mut divider, batch?).await?;
        }
        drop(rest);
        let parts = writer.finish().await?.into_iter().zip(divider.hashes());
        let parts = parts.map(|(run, hashes)| {
            let runs = if run.row_count() > 0 { vec![run] } else { Vec::new() };
            Divided { runs, hashes }
        });
        Ok(parts.collect())
    }

    /// Runs `plan`, of one partition, and emits its rows.
    pub(super) async fn attempt(&self, plan: Arc<dyn ExecutionPlan>, out: &Out) -> Result<Tried> {
        let rows = plan.execute(0, Arc::clone(&self.task))?;
        let outcome = self.forward(rows, out).await;
        if let Some(metrics) = plan.metrics() {
            self.add_metrics(metrics);
        }
        outcome
    }

    /// Adds the metrics of one of DataFusion's operators.
    pub(super) fn add_metrics(&self, metrics: MetricsSet) {
        self.engine_metrics.lock().unwrap_or_else(PoisonError::into_inner).push(metrics);
    }

    /// Emits `rows`, which one of DataFusion's operators makes.
    pub(super) async fn forward(
        &self,
        mut rows: SendableRecordBatchStream,
        out: &Out,
    ) -> Result<Tried> {
        let mut has_given = false;
        while let Some(batch) = rows.next().await {
            match batch {
                Ok(batch) if batch.num_rows() == 0 => {}
                Ok(batch) => {
                    has_given = true;
                    // Names and metadata are those of the planned operator.
                    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                    let (schema, columns) = (Arc::clone(&self.schema), batch.columns().to_vec());
                    out.push(RecordBatch::try_new_with_options(schema, columns, &options)?).await?;
                }
                Err(error) if !has_given && is_out_of_memory(&error) => {
                    return Ok(Tried::TooLarge(error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Tried::Done)
    }
}

async fn push(writer: &mut RunsWriter, divider: &mut Divider, batch: RecordBatch) -> Result<()> {
    for (part, rows) in divider.divide(&batch)? {
        writer.push(part, rows).await?;
    }
    Ok(())
}

fn is_out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// The error of a part of `row_count` rows of `what` that cannot be made smaller.
pub(super) fn cannot_divide(
    what: &str,
    row_count: u64,
    memory_bytes: usize,
    error: &DataFusionError,
) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!(
        "{row_count} rows of {what} have the same key, and do not fit the {memory_bytes} bytes that the operator \
            has: {}",
        error.find_root().strip_backtrace()
    ))
}
