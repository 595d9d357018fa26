//! A hash join whose build side need not fit in memory.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use datafusion_common::{JoinType, NullEquality, Result, internal_err};
use datafusion_execution::SendableRecordBatchStream;
use datafusion_physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::attempt::{DEPTH_MAX, Divided, Ground, Tried, cannot_divide};
use super::buffered_rows::BufferedRows;
use super::divide::Keys;
use super::given_exec::GivenExec;
use super::produced::Out;
use crate::spill_space::SpillRun;

/// Approximate bytes of a row in the engine's hash table at its lowest load.
const ROW_BYTES: u64 = 40;

/// Rows of both inputs whose keys have hashes in common.
struct Part {
    build: Arc<SpillRun>,
    probe: Arc<SpillRun>,
    /// Whether the build side has one key.
    has_one_key: bool,
    depth: u64,
}

impl Part {
    fn may_be_divided(&self) -> bool {
        !self.has_one_key && self.depth < DEPTH_MAX
    }

    /// Approximate memory that the engine needs to collect its build side.
    fn bytes_needed(&self) -> u64 {
        let bytes = self.build.bytes();
        bytes + bytes / 4 + self.build.row_count() * ROW_BYTES
    }
}

/// A probe side that is still unread, and the build side until it is read.
struct Unread {
    probe: SendableRecordBatchStream,
    held: BufferedRows,
}

/// Joins `left`, the build side, and `right` as `operator` does.
pub(super) async fn run(
    operator: Arc<dyn ExecutionPlan>,
    ground: Ground,
    (mut left, right): (SendableRecordBatchStream, SendableRecordBatchStream),
    out: Out,
) -> Result<()> {
    let Some(join) = operator.downcast_ref::<HashJoinExec>() else {
        return internal_err!("{} is no hash join", operator.name());
    };
    let mut held = BufferedRows::new(&ground.pool, ground.held_bytes());
    let (held, right) = if held.fill(&mut left).await? {
        match in_memory(join, &ground, held, right, &out).await? {
            None => return Ok(()),
            // The build side was read to its end.
            Some(unread) => (unread.held, unread.probe),
        }
    } else {
        (held, right)
    };
    let mut parts = Vec::new();
    let mut to_divide = put_aside(join, &ground, held, left, right).await?;
    // Before the first row: if space or memory runs out now, the host can still answer.
    while let Some(part) = to_divide.pop() {
        match part.may_be_divided() && part.bytes_needed() > ground.memory_bytes as u64 {
            true => to_divide.extend(divide(join, &ground, part).await?),
            false => parts.push(part),
        }
    }
    parts.sort_by_key(Part::bytes_needed);
    while let Some(part) = parts.pop() {
        let inputs = (GivenExec::over(part.build.batches(), None), part.probe.batches());
        let whole = over(join, inputs.0, GivenExec::over(inputs.1, None), None)?;
        if let Tried::TooLarge(error) = ground.attempt(whole, &out).await? {
            if !part.may_be_divided() {
                let (what, row_count) = ("a join's build side", part.build.row_count());
                return Err(cannot_divide(what, row_count, ground.memory_bytes, &error));
            }
            parts.extend(divide(join, &ground, part).await?);
        }
    }
    Ok(())
}

/// Joins with the whole build side in memory; if that does not fit, no row of the probe side was read.
async fn in_memory(
    join: &HashJoinExec,
    ground: &Ground,
    held: BufferedRows,
    probe: SendableRecordBatchStream,
    out: &Out,
) -> Result<Option<Unread>> {
    let build = held.stream(join.left().schema())?;
    // The engine charges them from the first one on.
    held.uncount();
    let schema = probe.schema();
    let unread = Arc::new(Mutex::new(Some(Unread { probe, held })));
    let taken = Arc::clone(&unread);
    let once_built = stream::once(async move { take(&taken).map(|unread| unread.probe) });
    let once_built = once_built.filter_map(futures::future::ready).flatten();
    let probe = Box::pin(RecordBatchStreamAdapter::new(schema, once_built));
    let filter = join.dynamic_expressions_produced().into_iter().next();
    let filter = filter.and_then(|filter| Arc::downcast::<DynamicFilterPhysicalExpr>(filter).ok());
    let probe = GivenExec::over(probe, Some(Arc::clone(join.right())));
    let whole = over(join, GivenExec::over(build, None), probe, filter)?;
    match ground.attempt(whole, out).await? {
        Tried::Done => Ok(None),
        Tried::TooLarge(error) => match take(&unread) {
            Some(unread) => {
                unread.held.count_again();
                Ok(Some(unread))
            }
            None => Err(error),
        },
    }
}

fn take(unread: &Mutex<Option<Unread>>) -> Option<Unread> {
    unread.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The engine's join over other inputs.
fn over(
    join: &HashJoinExec,
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    filter: Option<Arc<DynamicFilterPhysicalExpr>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    // Its collected rows and its filter must not be those of the planned join.
    let join = join.builder().reset_state().recompute_properties();
    let join = join.with_new_children(vec![left, right])?.build()?;
    Ok(match filter {
        Some(filter) => Arc::new(join.with_dynamic_filter_expr(filter)?),
        None => Arc::new(join),
    })
}

async fn put_aside(
    join: &HashJoinExec,
    ground: &Ground,
    mut held: BufferedRows,
    left: SendableRecordBatchStream,
    right: SendableRecordBatchStream,
) -> Result<Vec<Part>> {
    let first: Vec<RecordBatch> = held.take();
    let (of_left, of_right) = keys(join);
    let schema = join.left().schema();
    let build = ground.put_aside(&schema, of_left, 0, first, left).await?;
    let schema = join.right().schema();
    let probe = ground.put_aside(&schema, of_right, 0, Vec::new(), right).await?;
    Ok(parts_of(join, build, probe, 0))
}

async fn divide(join: &HashJoinExec, ground: &Ground, part: Part) -> Result<Vec<Part>> {
    let Part { build, probe, depth, .. } = part;
    let depth = depth + 1;
    let (of_left, of_right) = keys(join);
    let (schema, rows) = (join.left().schema(), build.batches());
    // Its space is freed as soon as its rows are in new parts.
    drop(build);
    let build = ground.put_aside(&schema, of_left, depth, Vec::new(), rows).await?;
    let (schema, rows) = (join.right().schema(), probe.batches());
    drop(probe);
    let probe = ground.put_aside(&schema, of_right, depth, Vec::new(), rows).await?;
    Ok(parts_of(join, build, probe, depth))
}

fn keys(join: &HashJoinExec) -> (Keys, Keys) {
    let nulls_match_nothing = join.null_equality() == NullEquality::NullEqualsNothing;
    let of = |expressions| Keys { expressions, nulls_match_nothing };
    let (left, right) = join.on().iter().cloned().unzip();
    (of(left), of(right))
}

/// The parts that can give rows, the largest last: it is taken first, so that a lack of memory shows before the first
/// row.
fn parts_of(
    join: &HashJoinExec,
    build: Vec<Divided>,
    probe: Vec<Divided>,
    depth: u64,
) -> Vec<Part> {
    let parts = build.into_iter().zip(probe).map(|(build, probe)| Part {
        build: build.run,
        probe: probe.run,
        has_one_key: build.has_one_key,
        depth,
    });
    let mut parts: Vec<Part> = parts.filter(|part| gives_rows(*join.join_type(), part)).collect();
    parts.sort_by_key(Part::bytes_needed);
    parts
}

fn gives_rows(join_type: JoinType, part: &Part) -> bool {
    let (has_left, has_right) = (part.build.row_count() > 0, part.probe.row_count() > 0);
    match join_type {
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => has_left && has_right,
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => has_left,
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => has_right,
        JoinType::Full => has_left || has_right,
    }
}
