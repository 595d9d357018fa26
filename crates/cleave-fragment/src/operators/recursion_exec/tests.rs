//! Walks over graphs in memory: which rows come out, what they are charged, and when a recursion ends. The oracle is a
//! loop over the same links.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{AsArray, Int32Array};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion_common::{JoinType, NullEquality};
use datafusion_execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
use datafusion_execution::runtime_env::RuntimeEnvBuilder;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion_physical_plan::limit::GlobalLimitExec;
use datafusion_physical_plan::projection::ProjectionExec;
use futures::TryStreamExt;
use futures::executor::block_on;
use proptest::prelude::*;

use super::*;
use crate::broadcast::{BroadcastInputs, BroadcastRows};
use crate::fragment::{FragmentContext, fragment_task_context, unread_task_context};
use crate::operators::broadcast_exec::BroadcastExec;

const START: u32 = 0;
const LINKS: u32 = 1;

type Plan = Arc<dyn ExecutionPlan>;

fn columns(names: &[&str]) -> SchemaRef {
    let fields = names.iter().map(|name| Field::new(*name, DataType::Int32, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn table(schema: &SchemaRef, rows: &[[i32; 2]]) -> Arc<BroadcastRows> {
    let column = |place: usize| -> Int32Array { rows.iter().map(|row| row[place]).collect() };
    let batch =
        RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(column(0)), Arc::new(column(1))]);
    Arc::new(BroadcastRows::new(Arc::clone(schema), vec![batch.unwrap()], None))
}

/// A task with so many bytes of memory, over nodes to start from and links.
fn task(memory_bytes: Option<usize>, start: &[i32], links: &[[i32; 2]]) -> Arc<TaskContext> {
    let unread = FragmentContext::of(&unread_task_context().unwrap()).unwrap();
    let start: Vec<[i32; 2]> = start.iter().map(|node| [*node, 0]).collect();
    let broadcasts: BroadcastInputs = BTreeMap::from([
        (START, table(&columns(&["node", "depth"]), &start)),
        (LINKS, table(&columns(&["from", "to"]), links)),
    ]);
    let context = FragmentContext {
        pages: Arc::clone(&unread.pages),
        snapshot: unread.snapshot,
        inputs: BTreeMap::new(),
        index_filters: BTreeMap::new(),
        indexes: BTreeMap::new(),
        peer_rows: Default::default(),
        broadcasts,
        sink: None,
        spill: None,
        tasks: None,
        locks: None,
        read_ahead: 1,
        places: Default::default(),
        history: None,
        counters: Arc::default(),
    };
    let pool: Arc<dyn MemoryPool> = match memory_bytes {
        Some(bytes) => Arc::new(GreedyMemoryPool::new(bytes)),
        None => Arc::new(UnboundedMemoryPool::default()),
    };
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
    fragment_task_context(Arc::new(context), runtime, &[]).unwrap()
}

fn column(name: &str, place: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, place))
}

fn number(value: i32) -> Arc<dyn PhysicalExpr> {
    Arc::new(Literal::new(value.into()))
}

fn binary(
    left: Arc<dyn PhysicalExpr>,
    op: Operator,
    right: Arc<dyn PhysicalExpr>,
) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, op, right))
}

/// `SELECT to, depth + step FROM <name> JOIN links ON from = node WHERE depth < most`.
fn next_nodes(name: &str, step: i32, most: i32) -> Plan {
    let schema = columns(&["node", "depth"]);
    let table = WorkingTableExec::new(name.to_owned(), vec![0, 1], schema).unwrap();
    let near = binary(column("depth", 1), Operator::Lt, number(most));
    let near = FilterExec::try_new(near, Arc::new(table)).unwrap();
    let links = BroadcastExec::new(LINKS, columns(&["from", "to"]));
    let joined = HashJoinExec::try_new(
        Arc::new(near),
        Arc::new(links),
        vec![(column("node", 0), column("from", 0))],
        None,
        &JoinType::Inner,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    );
    let depth = binary(column("depth", 1), Operator::Plus, number(step));
    let list = vec![(column("to", 3), "to".to_owned()), (depth, "deeper".to_owned())];
    Arc::new(ProjectionExec::try_new(list, Arc::new(joined.unwrap())).unwrap())
}

fn recursion(name: &str, terms: [Plan; 2], is_distinct: bool) -> RecursionExec {
    let schema = columns(&["node", "depth"]);
    RecursionExec::new(name.to_owned(), schema, terms, is_distinct).unwrap()
}

fn start() -> Plan {
    Arc::new(BroadcastExec::new(START, columns(&["node", "depth"])))
}

fn walk(step: i32, most: i32, is_distinct: bool) -> RecursionExec {
    recursion("walk", [start(), next_nodes("walk", step, most)], is_distinct)
}

fn run(plan: &dyn ExecutionPlan, task: &Arc<TaskContext>) -> Result<Vec<(i32, i32)>> {
    let rows = plan.execute(0, Arc::clone(task))?;
    let batches: Vec<RecordBatch> = block_on(rows.try_collect())?;
    let rows = batches.iter().flat_map(|batch| {
        let column = |place: usize| batch.column(place).as_primitive::<Int32Type>().values();
        column(0).iter().copied().zip(column(1).iter().copied())
    });
    Ok(rows.collect())
}

/// All walks of at most `most` links, by a loop.
fn walks(start: &[i32], links: &[[i32; 2]], most: i32) -> Vec<(i32, i32)> {
    let mut all = Vec::new();
    let mut round: Vec<i32> = start.to_vec();
    for depth in 0..=most {
        all.extend(round.iter().map(|node| (*node, depth)));
        round = round
            .iter()
            .flat_map(|node| links.iter().filter(|link| link[0] == *node).map(|link| link[1]))
            .collect();
    }
    all.sort_unstable();
    all
}

proptest! {
    #[test]
    fn rounds_go_on_from_the_rows_of_the_round_before(
        start in proptest::collection::vec(0..6_i32, 0..3),
        links in proptest::collection::vec([0..6_i32, 0..6_i32], 0..10),
        most in 0..4_i32,
    ) {
        let task = task(None, &start, &links);
        let mut found = run(&walk(1, most, false), &task).unwrap();
        found.sort_unstable();
        let expected = walks(&start, &links, most);
        prop_assert_eq!(&found, &expected);
        // The rows of UNION are the same, each once.
        let mut found = run(&walk(1, most, true), &task).unwrap();
        found.sort_unstable();
        let expected: Vec<_> = expected.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_union_ends_where_links_go_in_circles(
        start in proptest::collection::vec(0..6_i32, 0..3),
        links in proptest::collection::vec([0..6_i32, 0..6_i32], 0..12),
    ) {
        // The depth stays 0: rows are nodes that can be reached.
        let mut found = run(&walk(0, 1, true), &task(None, &start, &links)).unwrap();
        found.sort_unstable();
        let reached: BTreeSet<_> =
            walks(&start, &links, 6).into_iter().map(|(node, _)| (node, 0)).collect();
        prop_assert_eq!(found, reached.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn it_runs_again_from_the_start_and_counts_its_rounds() {
    let walk = walk(1, 9, false);
    let task = task(None, &[1], &[[1, 2], [2, 3]]);
    for times in 1..=2 {
        assert_eq!(run(&walk, &task).unwrap(), [(1, 0), (2, 1), (3, 2)]);
        let rounds = walk.metrics().unwrap().sum_by_name("rounds").unwrap().as_usize();
        assert_eq!(rounds, 3 * times, "the last one finds nothing");
    }
}

#[test]
fn rows_seen_and_rows_of_a_round_are_charged() {
    let circle = [[1, 2], [2, 1], [1, 1]];
    // The number of walks doubles and more; so does the working table.
    let memory = 1 << 20;
    let error = run(&walk(1, 60, false), &task(Some(memory), &[1], &circle)).unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    // Here each round has two rows, and all of them stay in mind.
    let error = run(&walk(1, i32::MAX, true), &task(Some(memory), &[1], &circle)).unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    // Nothing of that stays charged.
    let task = task(Some(memory), &[1], &circle);
    run(&walk(1, 60, false), &task).unwrap_err();
    assert_eq!(task.memory_pool().reserved(), 0);
}

#[test]
fn a_limit_or_a_stop_ends_a_recursion_without_end() {
    let circle = [[1, 2], [2, 1]];
    let task = task(None, &[1], &circle);
    let endless = walk(0, 1, false);
    let limited = GlobalLimitExec::new(Arc::new(endless.clone()), 0, Some(1000));
    assert_eq!(run(&limited, &task).unwrap().len(), 1000);
    let stop = Stop::default();
    let plan = stoppable_joins(&(Arc::new(endless) as Plan), &stop, Start::WhenPolled).unwrap();
    let rows = plan.execute(0, task).unwrap();
    let stopped = block_on(async {
        let mut rows = rows;
        for _ in 0..100 {
            rows.next().await.unwrap().unwrap();
        }
        stop.raise();
        rows.try_collect::<Vec<_>>().await
    });
    assert!(stopped.unwrap_err().to_string().contains("nobody wants the rows any more"));
}

#[test]
fn the_innermost_recursion_of_a_name_is_meant() {
    let links = [[1, 2], [2, 3], [3, 4]];
    let task = task(None, &[1], &links);
    // Its static term starts from the round of the outer one, its recursive term refers to itself.
    let inner = recursion("walk", [next_nodes("walk", 1, 1), next_nodes("walk", 1, 3)], true);
    let outer = recursion("walk", [start(), Arc::new(inner)], true);
    assert!(open_reference(&(Arc::new(outer.clone()) as Plan)).is_none());
    assert_eq!(run(&outer, &task).unwrap(), [(1, 0), (2, 1), (3, 2), (4, 3)]);
    let name = open_reference(&next_nodes("walk", 1, 1));
    assert_eq!(name.as_deref(), Some("walk"));
    // The static term is no place for a reference to itself.
    let odd = recursion("walk", [next_nodes("walk", 1, 1), next_nodes("walk", 1, 1)], false);
    let odd: Plan = Arc::new(odd);
    assert_eq!(open_reference(&odd).as_deref(), Some("walk"));
    let error = run(odd.as_ref(), &task).unwrap_err().to_string();
    assert!(error.contains("is read in no round"), "{error}");
}

#[test]
fn terms_and_references_with_other_columns_are_refused() {
    let schema = columns(&["node", "depth"]);
    let new = |terms, schema: &SchemaRef| {
        RecursionExec::new("walk".to_owned(), Arc::clone(schema), terms, false)
    };
    let narrow = columns(&["node"]);
    let error = new([start(), next_nodes("walk", 1, 1)], &narrow).unwrap_err().to_string();
    assert!(error.contains("its static term gives"), "{error}");
    let other = Schema::new(vec![
        Field::new("node", DataType::Int32, true),
        Field::new("depth", DataType::Int32, false),
    ]);
    let error = new([start(), next_nodes("walk", 1, 1)], &Arc::new(other)).unwrap_err();
    assert!(error.to_string().contains("its static term gives"), "{error}");
    let far = WorkingTableExec::new("walk".to_owned(), vec![0, 2], Arc::clone(&schema)).unwrap();
    let error = new([start(), Arc::new(far)], &schema).unwrap_err().to_string();
    assert!(error.contains("its working table has"), "{error}");
    WorkingTableExec::new("walk".to_owned(), vec![0], schema).unwrap_err();
}
