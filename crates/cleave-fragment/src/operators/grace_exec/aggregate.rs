//! A grouped aggregate whose groups need not fit in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, internal_err};
use datafusion_execution::SendableRecordBatchStream;
use datafusion_execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateInputMode, AggregateMode};
use datafusion_physical_plan::memory::MemoryStream;

use super::attempt::{Divided, Ground, Tried};
use super::buffered_rows::BufferedRows;
use super::divide::Keys;
use super::given_exec::GivenExec;
use super::lanes::{Out, locked};
use super::parts::{self, Divisible, Parts};
use super::within;

/// What the lanes of an aggregation share.
pub(super) struct Shared {
    /// States that lanes hold in memory, and whether they are all that they have read.
    held: Mutex<Vec<(Vec<RecordBatch>, bool)>>,
    /// Whether all states have turned out to fit.
    is_done: AtomicBool,
    divisions: Mutex<Vec<Vec<Divided>>>,
    parts: Parts<Part>,
}

impl Shared {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            held: Mutex::default(),
            is_done: AtomicBool::new(false),
            divisions: Mutex::default(),
            parts: Parts::new(),
        })
    }
}

/// Runs the aggregation `operator` over the rows of `input`, which are a lane's share.
pub(super) async fn run(
    operator: Arc<dyn ExecutionPlan>,
    ground: Ground,
    shared: Arc<Shared>,
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
            let half = ground.memory_bytes / 2 / ground.lane.count();
            let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(half));
            let states = states.execute(0, within(&ground.task, &pool))?;
            (merging, states, half.min(ground.held_bytes()))
        }
    };
    let Some(merging) = merging.downcast_ref::<AggregateExec>() else {
        return internal_err!("the second step of an aggregate is none");
    };
    let keys = Keys {
        expressions: merging.group_expr().input_exprs(),
        // NULLs are one group.
        nulls_match_nothing: false,
    };
    let merging = Merging { merging, schema: states.schema(), keys };
    let mut held = BufferedRows::new(&ground.pool, bytes_max);
    let is_all = held.fill(&mut states).await?;
    locked(&shared.held).push((held.batches().to_vec(), is_all));
    if ground.lane.meet().await {
        let of_all = std::mem::take(&mut *locked(&shared.held));
        if of_all.iter().all(|(_, is_all)| *is_all) {
            let states = of_all.into_iter().flat_map(|(states, _)| states).collect();
            let states = MemoryStream::try_new(states, Arc::clone(&merging.schema), None)?;
            let tried = ground.attempt(merging.of(Box::pin(states))?, &out).await?;
            shared.is_done.store(matches!(tried, Tried::Done), Ordering::Relaxed);
        }
    }
    ground.lane.meet().await;
    if shared.is_done.load(Ordering::Relaxed) {
        return Ok(());
    }
    let first: Vec<RecordBatch> = held.take();
    let (schema, keys) = (&merging.schema, merging.keys.clone());
    let division = ground.put_aside(schema, keys, 0, first, states).await?;
    locked(&shared.divisions).push(division);
    if ground.lane.meet().await {
        let divisions = std::mem::take(&mut *locked(&shared.divisions));
        shared.parts.give(with_rows(Divided::all_of(divisions), 0));
    }
    ground.lane.meet().await;
    parts::run(&merging, &ground, &shared.parts, &out).await
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

/// Approximate bytes of a group in a hash table besides its state.
const GROUP_BYTES: u64 = 64;

/// The merging of states.
struct Merging<'a> {
    merging: &'a AggregateExec,
    schema: SchemaRef,
    keys: Keys,
}

impl Merging<'_> {
    /// The same over `states`.
    fn of(&self, states: SendableRecordBatchStream) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(AggregateExec::try_new(
            *self.merging.mode(),
            self.merging.group_expr().clone(),
            self.merging.aggr_expr().to_vec(),
            self.merging.filter_expr().to_vec(),
            GivenExec::over(states, None),
            self.merging.input_schema(),
        )?))
    }
}

/// States of groups whose keys have hashes in common.
pub(super) struct Part {
    states: Divided,
    depth: u64,
}

impl parts::Part for Part {
    /// If no two states are of one group.
    fn bytes_needed(&self) -> u64 {
        self.states.bytes() * 2 + self.states.row_count() * GROUP_BYTES
    }

    fn depth(&self) -> u64 {
        self.depth
    }

    fn has_one_key(&self) -> bool {
        self.states.has_one_key()
    }

    fn row_count(&self) -> u64 {
        self.states.row_count()
    }
}

impl Divisible for Merging<'_> {
    type Part = Part;

    const ROWS: &'static str = "an aggregate's states";

    fn over(&self, part: &Part) -> Result<Arc<dyn ExecutionPlan>> {
        self.of(part.states.batches(&self.schema))
    }

    async fn divide(&self, ground: &Ground, part: Part) -> Result<Vec<Part>> {
        let (states, depth) = (part.states.into_batches(&self.schema), part.depth + 1);
        let keys = self.keys.clone();
        let smaller = ground.put_aside(&self.schema, keys, depth, Vec::new(), states).await?;
        Ok(with_rows(smaller, depth))
    }
}

fn with_rows(divided: Vec<Divided>, depth: u64) -> Vec<Part> {
    let parts = divided.into_iter().filter(|states| states.row_count() > 0);
    parts.map(|states| Part { states, depth }).collect()
}
