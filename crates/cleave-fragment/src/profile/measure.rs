//! Measures a core's rate for each kernel and operator that fragments are made of.
//!
//! 1. [`measure`] runs each [`Kernel`] for a slice of time on one thread, over the same few rows; then on as many
//!    threads as there are cores, to see what they reach together.
//! 2. A slice is timed by the thread's CPU time, and all slices together tell how much CPU time that thread got while
//!    time passed. The product is the rate of a fragment; a quota that lets a thread run for 1 ms of every 5 affects
//!    all kernels alike. Of the parts of a slice the fastest counts: other load only makes slower, and which kernel it
//!    hits is chance.
//!
//! Invariants: takes about a third of a second and 16 MiB; in a simulation nothing is measured, and the figures are the
//! assumed ones.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use cleave_media::{BlockAddress, Stopwatch, simulation, thread_cpu_time};
use cleave_store::{
    AbsentValues, Column, ColumnRef, ColumnType, OpenColumn, OverflowValues, PageClass,
    PageColumns, PageHeader, PageRead, Pick, RawColumns, SegmentId, SegmentRef, SegmentWriter,
    StoreError, TableSchema, parse_header,
};
use datafusion_common::hash_utils::{RandomState, create_hashes};
use datafusion_common::{DataFusionError, JoinType, NullEquality, Result, ScalarValue};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_expr::Operator;
use datafusion_functions_aggregate::sum::sum_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{BinaryExpr, Column as ColumnExpr, LikeExpr, Literal};
use datafusion_physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion_physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion_physical_plan::{ExecutionPlan, collect};
use futures::executor::block_on;
use tokio::runtime::Handle;

use super::{Figure, Origin, SideProfile};
use crate::command::slot::{SlotDecoder, batch_bytes, encode_batch};
use crate::waiting::spawn_blocking_on;

/// Time for one kernel, which runs at least once in it.
const SLICE: Duration = Duration::from_millis(12);
/// Parts of a slice.
const PARTS: u32 = 4;
/// How long one core works, and then all of them at once.
const TOGETHER: Duration = Duration::from_millis(30);
/// Rows that kernels work on: few enough for a slow core to finish in time.
const ROWS: usize = 8192;
/// Groups, and rows in a join's smaller side.
const KEYS: usize = 1024;
/// Bytes that are copied: more than the nearest caches hold.
const COPY_BYTES: usize = 4 << 20;
const SEGMENT: SegmentRef =
    SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };

/// Measures a side of `cores` cores, each with a thread of `threads`; media are not measured.
pub async fn measure(threads: &Handle, cores: u32, memory_bytes: u64) -> SideProfile {
    if simulation::is_active() {
        return SideProfile::assumed(cores, memory_bytes);
    }
    let mut side = SideProfile::unknown(Origin::Measured, cores, memory_bytes);
    match spawn_blocking_on(threads, measure_alone).await {
        Ok(figures) => {
            for (figure, measured) in figures {
                match measured {
                    Ok(rate) => side.set(figure, rate),
                    Err(error) => side.remarks.push(format!("{}: {error}", figure.name())),
                }
            }
        }
        Err(error) => side.remarks.push(format!("nothing of its cores was measured: {error}")),
    }
    // One after the other, so that other load on the machine affects both alike.
    let (alone, together) = (spin_on(threads, 1).await, spin_on(threads, cores).await);
    if alone > 0.0 && together > 0.0 {
        side.cores_together = (together / alone).clamp(1.0, cores.max(1).into());
    }
    side
}

/// Operations a second of `count` threads at once.
async fn spin_on(threads: &Handle, count: u32) -> f64 {
    let working: Vec<_> = (0..count).map(|_| spawn_blocking_on(threads, spin)).collect();
    let mut rate = 0.0;
    for spun in working {
        rate += spun.await.unwrap_or(0.0);
    }
    rate
}

/// An operation that is repeated and timed.
struct Kernel {
    /// Units of one run.
    units: f64,
    run: Box<dyn FnMut() -> Result<()>>,
}

impl Kernel {
    fn new(units: usize, run: impl FnMut() -> Result<()> + 'static) -> Result<Self> {
        Ok(Self { units: units as f64, run: Box::new(run) })
    }

    /// Units a second of CPU time.
    fn measure(&mut self) -> Result<f64> {
        // The first run finds caches cold, and memory that the process has not mapped yet.
        (self.run)()?;
        let mut best = 0.0_f64;
        for _ in 0..PARTS {
            best = best.max(self.measure_part()?);
        }
        Ok(best)
    }

    fn measure_part(&mut self) -> Result<f64> {
        let (watch, before) = (Stopwatch::start(), thread_cpu_time());
        let mut units = 0.0;
        loop {
            (self.run)()?;
            units += self.units;
            if watch.elapsed() >= SLICE / PARTS {
                let cpu = thread_cpu_time().saturating_sub(before);
                return Ok(units / cpu.as_secs_f64().max(1e-9));
            }
        }
    }
}

/// All kernels, one after the other on this thread.
fn measure_alone() -> Vec<(Figure, Result<f64>)> {
    let (watch, before) = (Stopwatch::start(), thread_cpu_time());
    let rows = Arc::new(Rows::new());
    let mut measured = Vec::new();
    for (figure, make) in KERNELS {
        measured.push((figure, make(&rows).and_then(|mut kernel| kernel.measure())));
    }
    let cpu = thread_cpu_time().saturating_sub(before).as_secs_f64();
    let given = (cpu / watch.elapsed().as_secs_f64()).clamp(0.001, 1.0);
    let rate = |of_cpu: f64| of_cpu * given;
    measured.into_iter().map(|(figure, outcome)| (figure, outcome.map(rate))).collect()
}

type MakeKernel = fn(&Arc<Rows>) -> Result<Kernel>;

const KERNELS: [(Figure, MakeKernel); 13] = [
    (Figure::Copy, copy),
    (Figure::Arithmetic, arithmetic),
    (Figure::Hash, hash),
    (Figure::Compare, compare),
    (Figure::Pattern, pattern),
    (Figure::DecodeInteger, |rows| decode(rows, 0, rows.batch.num_rows())),
    (Figure::DecodeText, |rows| decode(rows, 2, rows.text_bytes)),
    (Figure::JoinBuild, |rows| join(rows, 0, &rows.batch, &rows.few)),
    (Figure::JoinProbe, |rows| join(rows, 1, &rows.few, &rows.batch)),
    (Figure::Aggregate, aggregate),
    (Figure::Sort, sort),
    (Figure::SlotEncode, slot_encode),
    (Figure::SlotDecode, slot_decode),
];

/// The rows that kernels work on: a distinct number each, a number among [`KEYS`], and a text.
struct Rows {
    batch: RecordBatch,
    /// The first [`KEYS`] of them.
    few: RecordBatch,
    text_bytes: usize,
}

impl Rows {
    fn new() -> Self {
        // Pseudo-random over the range, the same everywhere.
        let spread = |row: usize| (row as i64).wrapping_mul(0x9E37_79B9) & 0xF_FFFF;
        let numbers: Int64Array = (0..ROWS).map(|row| Some(spread(row))).collect();
        let keys: Int64Array = (0..ROWS).map(|row| Some((row % KEYS) as i64)).collect();
        let text = |row| format!("entry {} of a table of {} words", spread(row), row % 97);
        let texts: StringArray = (0..ROWS).map(|row| Some(text(row))).collect();
        let text_bytes = texts.values().len();
        let schema = Arc::new(Schema::new(vec![
            Field::new("number", DataType::Int64, true),
            Field::new("key", DataType::Int64, true),
            Field::new("text", DataType::Utf8, true),
        ]));
        let columns: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(keys), Arc::new(texts)];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)
            .unwrap_or_else(|_| RecordBatch::new_empty(schema));
        let few = batch.slice(0, batch.num_rows().min(KEYS));
        Self { batch, few, text_bytes }
    }
}

fn copy(_: &Arc<Rows>) -> Result<Kernel> {
    let (from, mut to) = (vec![1_u8; COPY_BYTES], vec![0_u8; COPY_BYTES]);
    Kernel::new(COPY_BYTES, move || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        Ok(())
    })
}

/// Multiplies and adds; two operations a value.
fn multiply_and_add(values: &mut [f64]) {
    for value in values.iter_mut() {
        *value = *value * 1.000_000_1 + 0.5;
    }
    black_box(values);
}

fn arithmetic(_: &Arc<Rows>) -> Result<Kernel> {
    let mut values = vec![1.0_f64; ROWS];
    Kernel::new(2 * ROWS, move || {
        multiply_and_add(&mut values);
        Ok(())
    })
}

/// Operations a second of wall-clock time, on one of several threads.
fn spin() -> f64 {
    let mut values = vec![1.0_f64; ROWS];
    let watch = Stopwatch::start();
    let mut operations = 0.0;
    while watch.elapsed() < TOGETHER {
        multiply_and_add(&mut values);
        operations += 2.0 * ROWS as f64;
    }
    operations / watch.elapsed().as_secs_f64()
}

fn hash(rows: &Arc<Rows>) -> Result<Kernel> {
    let (rows, state) = (Arc::clone(rows), RandomState::with_seed(1));
    let mut hashes = vec![0; ROWS];
    Kernel::new(ROWS, move || {
        create_hashes(rows.batch.columns().iter().take(1), &state, &mut hashes)?;
        black_box(&mut hashes);
        Ok(())
    })
}

fn column(rows: &Rows, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(ColumnExpr::new(rows.batch.schema().field(index).name(), index))
}

fn literal(value: ScalarValue) -> Arc<dyn PhysicalExpr> {
    Arc::new(Literal::new(value))
}

fn condition(rows: &Arc<Rows>, condition: Arc<dyn PhysicalExpr>) -> Result<Kernel> {
    let rows = Arc::clone(rows);
    Kernel::new(ROWS, move || {
        let answers = condition.evaluate(&rows.batch)?.into_array(ROWS)?;
        let answers = answers.as_any().downcast_ref::<BooleanArray>();
        black_box(answers.map(BooleanArray::true_count));
        Ok(())
    })
}

fn compare(rows: &Arc<Rows>) -> Result<Kernel> {
    let limit = literal(ScalarValue::Int64(Some(0x7_0000)));
    let less = BinaryExpr::new(column(rows, 0), Operator::Lt, limit);
    condition(rows, Arc::new(less))
}

fn pattern(rows: &Arc<Rows>) -> Result<Kernel> {
    let wanted = literal(ScalarValue::Utf8(Some("%of 7% words%".to_owned())));
    let like = LikeExpr::new(false, false, column(rows, 2), wanted);
    condition(rows, Arc::new(like))
}

/// Decodes all of a column of a page, from its verified chunk on.
fn decode(rows: &Arc<Rows>, index: usize, units: usize) -> Result<Kernel> {
    let pages = written(rows, index).map_err(|error| DataFusionError::External(error.into()))?;
    let data_type = rows.batch.schema().field(index).data_type().clone();
    Kernel::new(units, move || {
        for (read, page) in &pages {
            let (none, absent) = (OverflowValues::none(), AbsentValues::default());
            let column = ColumnRef::User(1);
            let opened = OpenColumn::open(page, read, column, &data_type, &absent, &none, None);
            let decoded = opened.and_then(|column| {
                let count = page.header.row_count as usize;
                column.decode(&Pick::new(0..count, None, 1)?)
            });
            black_box(decoded.map_err(|error| DataFusionError::External(error.into()))?);
        }
        Ok(())
    })
}

/// The pages of a table that has this one column.
fn written(rows: &Rows, index: usize) -> Result<Vec<(PageRead, PageColumns)>, StoreError> {
    let values = rows.batch.column(index);
    let is_text = *values.data_type() == DataType::Utf8;
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "measured".to_owned(),
        columns: vec![Column {
            id: 1,
            name: "value".to_owned(),
            column_type: if is_text { ColumnType::Text } else { ColumnType::BigInt },
            not_null: false,
            default: None,
            absent: None,
        }],
        primary_key: Vec::new(),
    };
    let batch = RecordBatch::try_new(schema.arrow(), vec![Arc::clone(values)])
        .map_err(|error| StoreError::Mismatch { what: "measuring", reason: error.to_string() })?;
    let mut writer = SegmentWriter::new(SEGMENT, &schema, PageClass::BULK, 0, 0)?;
    let mut pages = writer.push(&batch)?;
    pages.extend(writer.finish()?);
    let verified = pages.into_iter().map(|page| {
        let place = page.page_ref(BlockAddress(0));
        let bytes = page.bytes.into_bytes();
        let header = parse_header(&bytes, &place, &SEGMENT)?;
        let read = PageRead { segment: SEGMENT, page: place, columns: vec![ColumnRef::User(1)] };
        let chunks = vec![chunk(&header, &bytes)];
        let raw = RawColumns { header: bytes.slice(..header.header_length as usize), chunks };
        let columns = PageColumns::verify(&read, raw)?;
        Ok((read, columns))
    });
    verified.collect()
}

fn chunk(header: &PageHeader, bytes: &Bytes) -> Option<Bytes> {
    let entry = header.entry(ColumnRef::User(1)).filter(|entry| entry.length > 0)?;
    Some(bytes.slice(entry.offset as usize..(entry.offset + entry.length) as usize))
}

/// Rows in memory as the leaf of a plan.
#[derive(Debug)]
struct InMemory(RecordBatch, SchemaRef);

impl PartitionStream for InMemory {
    fn schema(&self) -> &SchemaRef {
        &self.1
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = futures::stream::iter([Ok(self.0.clone())]);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.1), rows))
    }
}

fn leaf(rows: &RecordBatch) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = rows.schema();
    let partition = Arc::new(InMemory(rows.clone(), Arc::clone(&schema)));
    Ok(Arc::new(StreamingTableExec::try_new(schema, vec![partition], None, [], false, None)?))
}

fn run(plan: Arc<dyn ExecutionPlan>) -> Result<()> {
    black_box(block_on(collect(plan, Arc::new(TaskContext::default())))?);
    Ok(())
}

/// Joins on column `key`, each of whose values the build side has once.
fn join(rows: &Arc<Rows>, key: usize, build: &RecordBatch, probe: &RecordBatch) -> Result<Kernel> {
    let (build, probe) = (leaf(build)?, leaf(probe)?);
    let on = vec![(column(rows, key), column(rows, key))];
    Kernel::new(ROWS, move || {
        // A join keeps its hash table, so each run makes a new one.
        run(Arc::new(HashJoinExec::try_new(
            Arc::clone(&build),
            Arc::clone(&probe),
            on.clone(),
            None,
            &JoinType::Inner,
            Some(vec![0, 1]),
            PartitionMode::CollectLeft,
            NullEquality::NullEqualsNothing,
            false,
        )?))
    })
}

fn aggregate(rows: &Arc<Rows>) -> Result<Kernel> {
    let input = leaf(&rows.batch)?;
    let sum = AggregateExprBuilder::new(sum_udaf(), vec![column(rows, 0)])
        .schema(input.schema())
        .alias("sum")
        .build()?;
    let keys = PhysicalGroupBy::new_single(vec![(column(rows, 1), "key".to_owned())]);
    let schema = input.schema();
    let mode = AggregateMode::Single;
    let plan = AggregateExec::try_new(mode, keys, vec![Arc::new(sum)], vec![None], input, schema)?;
    let plan: Arc<dyn ExecutionPlan> = Arc::new(plan);
    Kernel::new(ROWS, move || run(Arc::clone(&plan)))
}

fn sort(rows: &Arc<Rows>) -> Result<Kernel> {
    let order = LexOrdering::new([PhysicalSortExpr::new_default(column(rows, 0))]);
    let Some(order) = order else { return Err(DataFusionError::Internal("no order".into())) };
    let plan: Arc<dyn ExecutionPlan> = Arc::new(SortExec::new(order, leaf(&rows.batch)?));
    Kernel::new(ROWS, move || run(Arc::clone(&plan)))
}

fn slot_encode(rows: &Arc<Rows>) -> Result<Kernel> {
    let bytes = usize::try_from(batch_bytes(&rows.batch)).unwrap_or(0);
    let rows = Arc::clone(rows);
    Kernel::new(bytes, move || {
        // A payload carries its checksum.
        let bytes = encode_batch(&rows.batch)?;
        black_box(crc32c::crc32c(&bytes));
        Ok(())
    })
}

fn slot_decode(rows: &Arc<Rows>) -> Result<Kernel> {
    let decoder = SlotDecoder::new(&rows.batch.schema());
    let bytes = Bytes::from(encode_batch(&rows.batch)?);
    Kernel::new(bytes.len(), move || {
        black_box(crc32c::crc32c(&bytes));
        black_box(decoder.decode(bytes.clone())?);
        Ok(())
    })
}

#[cfg(test)]
mod tests;
