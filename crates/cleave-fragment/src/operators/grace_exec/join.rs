//! A hash join whose build side need not fit in memory.

use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{JoinType, NullEquality, Result, internal_err};
use datafusion_execution::SendableRecordBatchStream;
use datafusion_physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::memory::MemoryStream;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::attempt::{Divided, Ground, Tried};
use super::buffered_rows::BufferedRows;
use super::divide::Keys;
use super::given_exec::GivenExec;
use super::lanes::{Out, locked};
use super::parts::{self, Divisible, Parts};

/// Approximate bytes of a row in DataFusion's hash table at its lowest load.
const ROW_BYTES: u64 = 40;

/// Rows of both inputs whose keys have hashes in common.
pub(super) struct Part {
    build: Divided,
    probe: Divided,
    depth: u64,
}

impl parts::Part for Part {
    /// To collect its build side.
    fn bytes_needed(&self) -> u64 {
        let bytes = self.build.bytes();
        bytes + bytes / 4 + self.build.row_count() * ROW_BYTES
    }

    fn depth(&self) -> u64 {
        self.depth
    }

    fn has_one_key(&self) -> bool {
        self.build.has_one_key()
    }

    fn row_count(&self) -> u64 {
        self.build.row_count()
    }
}

/// What the lanes of a join share.
pub(super) struct Shared {
    /// What each lane holds of the build side.
    held: Mutex<Vec<Held>>,
    /// The rows of the join over the whole build side, one partition for each lane; empty: it does not fit.
    joined: Mutex<Vec<Option<SendableRecordBatchStream>>>,
    builds: Mutex<Vec<Vec<Divided>>>,
    probes: Mutex<Vec<Vec<Divided>>>,
    parts: Parts<Part>,
}

/// What a lane holds of the build side, and its share of the probe side.
struct Held {
    lane: usize,
    build: Vec<RecordBatch>,
    is_all: bool,
    probe: Arc<Unread>,
}

/// A share of the probe side, until it is read.
struct Unread {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl Unread {
    fn take(&self) -> Option<SendableRecordBatchStream> {
        locked(&self.rows).take()
    }

    /// Its rows, which are not taken before somebody asks for the first one.
    fn once_asked_for(self: &Arc<Self>) -> SendableRecordBatchStream {
        let (schema, unread) = (Arc::clone(&self.schema), Arc::clone(self));
        let rows = stream::once(async move { unread.take() });
        let rows = rows.filter_map(futures::future::ready).flatten();
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

impl Shared {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            held: Mutex::default(),
            joined: Mutex::default(),
            builds: Mutex::default(),
            probes: Mutex::default(),
            parts: Parts::new(),
        })
    }
}

/// Joins `left`, the build side, and `right` as `operator` does. Both are a lane's shares.
pub(super) async fn run(
    operator: Arc<dyn ExecutionPlan>,
    ground: Ground,
    shared: Arc<Shared>,
    (mut left, right): (SendableRecordBatchStream, SendableRecordBatchStream),
    out: Out,
) -> Result<()> {
    let Some(join) = operator.downcast_ref::<HashJoinExec>() else {
        return internal_err!("{} is no hash join", operator.name());
    };
    let lane = ground.lane.clone();
    let mut held = BufferedRows::new(&ground.pool, ground.held_bytes());
    let is_all = held.fill(&mut left).await?;
    let (schema, rows) = (right.schema(), Mutex::new(Some(right)));
    let probe = Arc::new(Unread { schema, rows });
    locked(&shared.held).push(Held {
        lane: lane.index(),
        build: held.batches().to_vec(),
        is_all,
        probe: Arc::clone(&probe),
    });
    // DataFusion's join charges them from the first one on.
    held.uncount();
    if lane.meet().await {
        let mut of_all = std::mem::take(&mut *locked(&shared.held));
        of_all.sort_by_key(|held| held.lane);
        if of_all.iter().all(|held| held.is_all) {
            *locked(&shared.joined) = in_memory(join, &ground, of_all)?;
        }
    }
    lane.meet().await;
    let joined = locked(&shared.joined).get_mut(lane.index()).and_then(Option::take);
    if let Some(joined) = joined {
        let tried = ground.forward(joined, &out).await?;
        let is_unread = locked(&probe.rows).is_some();
        match tried {
            Tried::Done => return Ok(()),
            // It has failed for all lanes: the build side was not collected.
            Tried::TooLarge(_) if is_unread => {}
            Tried::TooLarge(error) => return Err(error),
        }
    }
    held.count_again();
    let Some(right) = probe.take() else {
        return internal_err!("the probe side of a join was read twice");
    };
    let joining = Joining { join };
    let (of_left, of_right) = joining.keys();
    let first: Vec<RecordBatch> = held.take();
    let schema = join.left().schema();
    let build = ground.put_aside(&schema, of_left, 0, first, left).await?;
    let schema = join.right().schema();
    let probe = ground.put_aside(&schema, of_right, 0, Vec::new(), right).await?;
    locked(&shared.builds).push(build);
    locked(&shared.probes).push(probe);
    if lane.meet().await {
        let build = Divided::all_of(std::mem::take(&mut *locked(&shared.builds)));
        let probe = Divided::all_of(std::mem::take(&mut *locked(&shared.probes)));
        shared.parts.give(joining.parts_of(build, probe, 0));
    }
    lane.meet().await;
    parts::run(&joining, &ground, &shared.parts, &out).await
}

/// The rows of the join with the whole build side in memory, of each lane's share of the probe side. If the build side
/// does not fit, no row of the probe side is read.
fn in_memory(
    join: &HashJoinExec,
    ground: &Ground,
    held: Vec<Held>,
) -> Result<Vec<Option<SendableRecordBatchStream>>> {
    let lane_count = held.len();
    let probes = held.iter().map(|held| held.probe.once_asked_for()).collect();
    let build = held.into_iter().flat_map(|held| held.build).collect();
    let build = MemoryStream::try_new(build, join.left().schema(), None)?;
    let filter = join.dynamic_expressions_produced().into_iter().next();
    let filter = filter.and_then(|filter| Arc::downcast::<DynamicFilterPhysicalExpr>(filter).ok());
    let maker = Some(Arc::clone(join.right()));
    let probe = GivenExec::of_partitions(join.right().schema(), probes, maker);
    let whole = over(join, GivenExec::over(Box::pin(build), None), probe, filter)?;
    let rows = (0..lane_count).map(|lane| whole.execute(lane, Arc::clone(&ground.task)).map(Some));
    let rows = rows.collect::<Result<_>>()?;
    if let Some(metrics) = whole.metrics() {
        ground.add_metrics(metrics);
    }
    Ok(rows)
}

/// DataFusion's join over other inputs.
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

/// The join of parts.
struct Joining<'a> {
    join: &'a HashJoinExec,
}

impl Joining<'_> {
    fn keys(&self) -> (Keys, Keys) {
        let nulls_match_nothing = self.join.null_equality() == NullEquality::NullEqualsNothing;
        let of = |expressions| Keys { expressions, nulls_match_nothing };
        let (left, right) = self.join.on().iter().cloned().unzip();
        (of(left), of(right))
    }

    /// The parts that can give rows.
    fn parts_of(&self, build: Vec<Divided>, probe: Vec<Divided>, depth: u64) -> Vec<Part> {
        let parts = build.into_iter().zip(probe);
        let parts = parts.map(|(build, probe)| Part { build, probe, depth });
        parts.filter(|part| gives_rows(*self.join.join_type(), part)).collect()
    }
}

impl Divisible for Joining<'_> {
    type Part = Part;

    const ROWS: &'static str = "a join's build side";

    fn over(&self, part: &Part) -> Result<Arc<dyn ExecutionPlan>> {
        let build = part.build.batches(&self.join.left().schema());
        let probe = part.probe.batches(&self.join.right().schema());
        over(self.join, GivenExec::over(build, None), GivenExec::over(probe, None), None)
    }

    async fn divide(&self, ground: &Ground, part: Part) -> Result<Vec<Part>> {
        let Part { build, probe, depth } = part;
        let depth = depth + 1;
        let (of_left, of_right) = self.keys();
        let schema = self.join.left().schema();
        let rows = build.into_batches(&schema);
        let build = ground.put_aside(&schema, of_left, depth, Vec::new(), rows).await?;
        let schema = self.join.right().schema();
        let rows = probe.into_batches(&schema);
        let probe = ground.put_aside(&schema, of_right, depth, Vec::new(), rows).await?;
        Ok(self.parts_of(build, probe, depth))
    }
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
