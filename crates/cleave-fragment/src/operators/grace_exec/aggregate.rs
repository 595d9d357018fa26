//! A grouped aggregate whose groups need not fit in memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, internal_err};
use datafusion_execution::SendableRecordBatchStream;
use datafusion_execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateInputMode, AggregateMode};

use super::attempt::{DEPTH_MAX, Divided, Ground, Tried, cannot_divide};
use super::buffered_rows::BufferedRows;
use super::divide::Keys;
use super::given_exec::GivenExec;
use super::produced::Out;
use super::within;
use crate::spill_space::SpillRun;

/// Runs the aggregation `operator` over the rows of `input`.
pub(super) async fn run(
    operator: Arc<dyn ExecutionPlan>,
    ground: Ground,
    input: SendableRecordBatchStream,
    out: Out,
) -> Result<()> {
    let Some(planned) = operator.downcast_ref::<AggregateExec>() else {
        return internal_err!("{} is no aggregate", operator.name());
    };
    // States are divided; an aggregate over rows first makes states of them, in half of the memory.
    let (merging, mut states, bytes_max) = match planned.mode().input_mode() {
        AggregateInputMode::Partial => (Arc::clone(&operator), input, ground.held_bytes()),
        AggregateInputMode::Raw => {
            let (states, merging) = in_two_steps(planned, input)?;
            let half = ground.memory_bytes / 2;
            let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(half));
            let states = states.execute(0, within(&ground.task, &pool))?;
            (merging, states, half.min(ground.held_bytes()))
        }
    };
    let Some(merging) = merging.downcast_ref::<AggregateExec>() else {
        return internal_err!("the second step of an aggregate is none");
    };
    let schema = states.schema();
    let mut held = BufferedRows::new(&ground.pool, bytes_max);
    if held.fill(&mut states).await? {
        let rows = held.stream(Arc::clone(&schema))?;
        if let Tried::Done = ground.attempt(over(merging, rows)?, &out).await? {
            return Ok(());
        }
    }
    let first: Vec<RecordBatch> = held.take();
    let keys = Keys {
        expressions: merging.group_expr().input_exprs(),
        // NULLs are one group.
        nulls_match_nothing: false,
    };
    let divided = ground.put_aside(&schema, keys.clone(), 0, first, states).await?;
    let mut to_divide = in_order(divided, 0);
    let mut parts = Vec::new();
    // Before the first row: if space or memory runs out now, the host can still answer.
    while let Some(part) = to_divide.pop() {
        match part.may_be_divided() && part.bytes_needed() > ground.memory_bytes as u64 {
            true => to_divide.extend(part.divide(&ground, &schema, &keys).await?),
            false => parts.push(part),
        }
    }
    parts.sort_by_key(Part::bytes_needed);
    while let Some(part) = parts.pop() {
        let whole = over(merging, part.run.batches())?;
        if let Tried::TooLarge(error) = ground.attempt(whole, &out).await? {
            if !part.may_be_divided() {
                let (what, row_count) = ("an aggregate's states", part.run.row_count());
                return Err(cannot_divide(what, row_count, ground.memory_bytes, &error));
            }
            parts.extend(part.divide(&ground, &schema, &keys).await?);
        }
    }
    Ok(())
}

/// The aggregate that makes states of `rows`, and the one that merges them as `planned` does.
fn in_two_steps(
    planned: &AggregateExec,
    rows: SendableRecordBatchStream,
) -> Result<(Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>)> {
    let partial = AggregateExec::try_new(
        AggregateMode::Partial,
        planned.group_expr().clone(),
        planned.aggr_expr().to_vec(),
        planned.filter_expr().to_vec(),
        GivenExec::over(rows, None),
        planned.input_schema(),
    )?;
    let (functions, groups) = (partial.aggr_expr().to_vec(), partial.group_expr().as_final());
    let schema = partial.input_schema();
    let states: Arc<dyn ExecutionPlan> = Arc::new(partial);
    let filters = vec![None; functions.len()];
    let merging = AggregateExec::try_new(
        AggregateMode::Final,
        groups,
        functions,
        filters,
        Arc::clone(&states),
        schema,
    )?;
    Ok((states, Arc::new(merging)))
}

/// `merging` over other states.
fn over(
    merging: &AggregateExec,
    states: SendableRecordBatchStream,
) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(AggregateExec::try_new(
        *merging.mode(),
        merging.group_expr().clone(),
        merging.aggr_expr().to_vec(),
        merging.filter_expr().to_vec(),
        GivenExec::over(states, None),
        merging.input_schema(),
    )?))
}

/// Approximate bytes of a group in a hash table besides its state.
const GROUP_BYTES: u64 = 64;

/// States of groups whose keys have hashes in common.
struct Part {
    run: Arc<SpillRun>,
    has_one_key: bool,
    depth: u64,
}

impl Part {
    fn may_be_divided(&self) -> bool {
        !self.has_one_key && self.depth < DEPTH_MAX
    }

    /// Approximate memory that the engine needs to merge them, if no two are of one group.
    fn bytes_needed(&self) -> u64 {
        self.run.bytes() * 2 + self.run.row_count() * GROUP_BYTES
    }

    async fn divide(self, ground: &Ground, schema: &SchemaRef, keys: &Keys) -> Result<Vec<Self>> {
        let (rows, depth) = (self.run.batches(), self.depth + 1);
        // Its space is freed as soon as its rows are in new parts.
        drop(self);
        let smaller = ground.put_aside(schema, keys.clone(), depth, Vec::new(), rows).await?;
        Ok(in_order(smaller, depth))
    }
}

/// Those with rows, the largest last, because the last is taken first.
fn in_order(divided: Vec<Divided>, depth: u64) -> Vec<Part> {
    let parts =
        divided.into_iter().map(|Divided { run, has_one_key }| Part { run, has_one_key, depth });
    let mut parts: Vec<Part> = parts.filter(|part| part.run.row_count() > 0).collect();
    parts.sort_by_key(Part::bytes_needed);
    parts
}
