//! The oracle is DataFusion's own operator with unlimited memory: the same rows, however little memory there is.

use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::{DataFusionError, JoinSide, JoinType, NullEquality};
use datafusion_execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion_execution::memory_pool::UnboundedMemoryPool;
use datafusion_execution::runtime_env::RuntimeEnvBuilder;
use datafusion_expr::Operator;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{BinaryExpr, Column};
use datafusion_physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion_physical_plan::aggregates::PhysicalGroupBy;
use datafusion_physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion_physical_plan::memory::MemoryStream;
use futures::TryStreamExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use proptest::prelude::*;

use super::given_exec::GivenExec;
use super::*;
use crate::codec::FragmentFunctions;
use crate::fragment::fragment_task_context;
use crate::morsel::MorselSource;
use crate::row_places::RowPlaces;
use crate::run_tasks::RunTasks;
use crate::spill_space::SpillSpace;
use crate::spill_space::testing::MemorySpace;

const JOIN_TYPES: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

/// Tasks as threads.
#[derive(Debug, Default)]
struct Threads(Mutex<Vec<std::thread::JoinHandle<()>>>);

impl RunTasks for Threads {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let thread = std::thread::Builder::new().spawn(|| block_on(task)).unwrap();
        self.0.lock().unwrap().push(thread);
    }
}

impl Threads {
    fn join(&self) {
        let threads = std::mem::take(&mut *self.0.lock().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// A task with `memory_bytes`, which spills rows into `space`.
fn task(memory_bytes: Option<usize>, space: &Arc<MemorySpace>) -> Arc<TaskContext> {
    task_with(memory_bytes, space, &Arc::default())
}

/// The same, whose lanes are `threads`.
fn task_with(
    memory_bytes: Option<usize>,
    space: &Arc<MemorySpace>,
    threads: &Arc<Threads>,
) -> Arc<TaskContext> {
    let none = std::collections::BTreeMap::<u32, Arc<dyn MorselSource>>::new();
    let unread = crate::fragment::unread_task_context().unwrap();
    let context = FragmentContext {
        pages: Arc::clone(&FragmentContext::of(&unread).unwrap().pages),
        snapshot: cleave_store::Snapshot { commit: 0 },
        inputs: none,
        index_filters: Default::default(),
        indexes: Default::default(),
        peer_rows: Default::default(),
        broadcasts: Default::default(),
        sink: None,
        spill: Some(Arc::clone(space) as Arc<dyn SpillSpace>),
        tasks: Some(Arc::clone(threads) as Arc<dyn RunTasks>),
        locks: None,
        places: RowPlaces::default(),
        read_ahead: 1,
        history: None,
        counters: Arc::default(),
    };
    let pool: Arc<dyn MemoryPool> = match memory_bytes {
        Some(bytes) => Arc::new(GreedyMemoryPool::new(bytes)),
        None => Arc::new(UnboundedMemoryPool::default()),
    };
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(
        DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled),
    );
    fragment_task_context(Arc::new(context), runtime.build_arc().unwrap(), &[]).unwrap()
}

fn schema(side: &str) -> SchemaRef {
    let nullable = |name: &str, of| Field::new(format!("{side}_{name}"), of, true);
    Arc::new(Schema::new(vec![
        nullable("number", DataType::Int32),
        nullable("word", DataType::Utf8),
        nullable("row", DataType::Int32),
    ]))
}

/// Rows of (number, word, row): keys that occur once, often and never, and NULLs.
fn rows(side: &str, count: i32, key: impl Fn(i32) -> Option<i32>) -> Vec<RecordBatch> {
    let batch = |from: i32| {
        let numbers = from..(from + 1000).min(count);
        let keys: Vec<Option<i32>> = numbers.clone().map(&key).collect();
        let words = keys.iter().zip(numbers.clone());
        let words = words.map(|(key, row)| {
            let word = key.map(|key| format!("the word of {}", key % 1000));
            word.filter(|_| row % 97 != 0)
        });
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(keys.clone())),
            Arc::new(words.collect::<StringArray>()),
            Arc::new(Int32Array::from_iter_values(numbers)),
        ];
        RecordBatch::try_new(schema(side), columns).unwrap()
    };
    (0..count).step_by(1000).map(batch).collect()
}

/// A pseudo-random number.
fn mixed(row: i32) -> i32 {
    let mixed = (row as u32).wrapping_mul(2_654_435_761) ^ 0x5bd1_e995;
    (mixed >> 8) as i32
}

fn skewed(row: i32) -> Option<i32> {
    match row % 10 {
        0 => None,
        1 | 2 => Some(row % 5),
        _ => Some(mixed(row) % 4000),
    }
}

/// The rows of `batches` in so many partitions.
fn input(side: &str, batches: &[RecordBatch], partitions: usize) -> Arc<dyn ExecutionPlan> {
    let of = |partition: usize| -> SendableRecordBatchStream {
        let own = batches.iter().skip(partition).step_by(partitions).cloned().collect();
        Box::pin(MemoryStream::try_new(own, schema(side), None).unwrap())
    };
    GivenExec::of_partitions(schema(side), (0..partitions).map(of).collect(), None)
}

fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, index))
}

/// The left row's number is the smaller one.
fn smaller_on_the_left() -> JoinFilter {
    let fields = ["l", "r"].map(|name| Field::new(name, DataType::Int32, true));
    let less = BinaryExpr::new(column("l", 0), Operator::Lt, column("r", 1));
    let columns = [JoinSide::Left, JoinSide::Right].map(|side| ColumnIndex { index: 2, side });
    JoinFilter::new(Arc::new(less), columns.to_vec(), Arc::new(Schema::new(fields.to_vec())))
}

struct Case {
    join_type: JoinType,
    nulls: NullEquality,
    filter: Option<JoinFilter>,
}

impl Case {
    fn plan(&self, left: &[RecordBatch], right: &[RecordBatch]) -> Arc<dyn ExecutionPlan> {
        self.plan_of(input("l", left, 1), input("r", right, 1))
    }

    fn plan_of(
        &self,
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
    ) -> Arc<dyn ExecutionPlan> {
        let on = vec![
            (column("l_number", 0), column("r_number", 0)),
            (column("l_word", 1), column("r_word", 1)),
        ];
        let join = HashJoinExec::try_new(
            left,
            right,
            on,
            self.filter.clone(),
            &self.join_type,
            None,
            PartitionMode::CollectLeft,
            self.nulls,
            false,
        );
        Arc::new(join.unwrap())
    }
}

fn collect(
    plan: &Arc<dyn ExecutionPlan>,
    task: &Arc<TaskContext>,
) -> Result<Vec<RecordBatch>, DataFusionError> {
    block_on(plan.execute(0, Arc::clone(task)).unwrap().try_collect())
}

/// The rows as text, sorted.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut lines = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Vec<_> =
            columns.map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            lines.push(values.join("|"));
        }
    }
    lines.sort_unstable();
    lines
}

/// Runs `plan` with `memory_bytes`: its rows, and the bytes spilled.
fn run_within(
    plan: Arc<dyn ExecutionPlan>,
    memory_bytes: usize,
) -> (Result<Vec<String>, DataFusionError>, usize) {
    run_in_lanes(plan, memory_bytes, 1)
}

fn run_in_lanes(
    plan: Arc<dyn ExecutionPlan>,
    memory_bytes: usize,
    lane_count: usize,
) -> (Result<Vec<String>, DataFusionError>, usize) {
    let (space, threads) = (MemorySpace::new(100_000), Arc::default());
    let task = task_with(Some(memory_bytes), &space, &threads);
    let plan = GraceExec::wherever_it_helps(plan, &task, lane_count).unwrap();
    assert_eq!(plan.name(), "GraceExec");
    let outcome = collect(&plan, &task).map(|batches| lines(&batches));
    if outcome.is_ok() {
        threads.join();
    }
    let spilled = plan.metrics().unwrap().spilled_bytes().unwrap_or_default();
    let figures = plan.metrics().unwrap().aggregate_by_name();
    if let Ok(rows) = &outcome {
        assert_eq!(figures.output_rows(), Some(rows.len()));
    }
    drop(plan);
    assert_eq!(space.used_blocks(), 0, "all was given back");
    assert_eq!(task.memory_pool().reserved(), 0);
    (outcome, spilled)
}

fn oracle(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    lines(&collect(plan, &task(None, &MemorySpace::new(1))).unwrap())
}

#[test]
fn joins_of_all_types_give_the_engines_rows_in_too_little_memory() {
    let left = rows("l", 12_000, skewed);
    let right = rows("r", 9_000, |row| skewed(row).map(|key| key + 3));
    for join_type in JOIN_TYPES {
        for nulls in [NullEquality::NullEqualsNothing, NullEquality::NullEqualsNull] {
            // With the filter, each left row with a frequent key finds few matches: without, there are millions of
            // pairs.
            let case = Case { join_type, nulls, filter: Some(smaller_on_the_left()) };
            let (left, right) = match join_type {
                JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                    (&left[..3], &right[..2])
                }
                _ => (&left[..], &right[..]),
            };
            let expected = oracle(&case.plan(left, right));
            let memory_bytes = if left.len() > 3 { 400 << 10 } else { 100 << 10 };
            let (found, spilled) = run_within(case.plan(left, right), memory_bytes);
            let found = found.unwrap();
            assert!(spilled > 50_000, "{join_type} {nulls:?}: {spilled} bytes");
            assert!(found == expected, "{join_type} {nulls:?}: {} rows", found.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_join_of_any_rows_in_any_memory_gives_the_engines_rows_or_says_that_it_cannot(
        join_type in 0..JOIN_TYPES.len(),
        nulls_are_equal: bool,
        (left, right) in (0..2500, 0..2500),
        (key_count, null_every) in (30..5000, 2..50),
        (memory_bytes, lane_count) in (40_000_usize..400_000, 1_usize..4),
        inputs_are_divided: bool,
    ) {
        let nulls = match nulls_are_equal {
            true => NullEquality::NullEqualsNull,
            false => NullEquality::NullEqualsNothing,
        };
        let key = |row: i32| (row % null_every != 0).then(|| mixed(row) % key_count);
        let (left, right) = (rows("l", left, key), rows("r", right, |row| key(row + 77)));
        let filter = Some(smaller_on_the_left());
        let case = Case { join_type: JOIN_TYPES[join_type], nulls, filter };
        let partitions = if inputs_are_divided { lane_count } else { 1 };
        let plan = case.plan_of(input("l", &left, partitions), input("r", &right, partitions));
        let (found, _) = run_in_lanes(plan, memory_bytes, lane_count);
        match found {
            Ok(found) => prop_assert!(found == oracle(&case.plan(&left, &right))),
            // Equal NULLs are one key.
            Err(error) => {
                let is_memory = matches!(error.find_root(), DataFusionError::ResourcesExhausted(_));
                prop_assert!(is_memory && nulls_are_equal && memory_bytes < 200_000, "{error}");
            }
        }
    }
}

#[test]
fn a_part_that_does_not_fit_is_divided_again() {
    let left = rows("l", 60_000, Some);
    let right = rows("r", 3_000, |row| Some(row * 7));
    let case =
        Case { join_type: JoinType::Full, nulls: NullEquality::NullEqualsNothing, filter: None };
    let expected = oracle(&case.plan(&left, &right));
    let (found, spilled) = run_within(case.plan(&left, &right), 300 << 10);
    assert!(found.unwrap() == expected);
    // All of it was spilled more than once.
    let once: usize = left.iter().chain(&right).map(RecordBatch::get_array_memory_size).sum();
    assert!(spilled > once * 3 / 2, "{spilled} of {once}");
}

#[test]
fn what_fits_is_not_put_aside() {
    let (left, right) = (rows("l", 3_000, Some), rows("r", 9_000, skewed));
    let case =
        Case { join_type: JoinType::Left, nulls: NullEquality::NullEqualsNothing, filter: None };
    let divided = || case.plan_of(input("l", &left, 3), input("r", &right, 3));
    for (plan, lane_count) in [(case.plan(&left, &right), 1), (divided(), 3)] {
        let (found, spilled) = run_in_lanes(plan, 8 << 20, lane_count);
        assert_eq!(found.unwrap(), oracle(&case.plan(&left, &right)));
        assert_eq!(spilled, 0);
    }
}

#[test]
fn a_key_of_too_many_rows_is_an_error_of_memory_before_the_first_row() {
    // Other keys have rows that would come first if parts were not in order of their size.
    let left = rows("l", 30_000, |row| Some(if row % 3 == 0 { row } else { 1 }));
    let right = rows("r", 2_000, Some);
    let case =
        Case { join_type: JoinType::Inner, nulls: NullEquality::NullEqualsNothing, filter: None };
    let space = MemorySpace::new(100_000);
    let task = task(Some(300 << 10), &space);
    let plan = GraceExec::wherever_it_helps(case.plan(&left, &right), &task, 1).unwrap();
    let mut rows = plan.execute(0, Arc::clone(&task)).unwrap();
    let first = block_on(futures::StreamExt::next(&mut rows)).unwrap();
    let error = first.unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    assert!(error.to_string().contains("have the same key"), "{error}");
    assert!(block_on(futures::StreamExt::next(&mut rows)).is_none());
    drop(rows);
    assert_eq!((space.used_blocks(), task.memory_pool().reserved()), (0, 0));
}

#[test]
fn a_join_that_is_given_up_gives_its_space_back() {
    let (left, right) = (rows("l", 30_000, Some), rows("r", 30_000, Some));
    let case =
        Case { join_type: JoinType::Inner, nulls: NullEquality::NullEqualsNothing, filter: None };
    let space = MemorySpace::new(100_000);
    let task = task(Some(600 << 10), &space);
    let plan = GraceExec::wherever_it_helps(case.plan(&left, &right), &task, 1).unwrap();
    let mut rows = plan.execute(0, Arc::clone(&task)).unwrap();
    assert!(block_on(futures::StreamExt::next(&mut rows)).unwrap().unwrap().num_rows() > 0);
    assert!(space.used_blocks() > 0);
    drop(rows);
    assert_eq!((space.used_blocks(), task.memory_pool().reserved()), (0, 0));
}

/// Counts, a sum, an extreme and a count of different values, of each word and number.
fn aggregate(mode: AggregateMode, input: Arc<dyn ExecutionPlan>) -> AggregateExec {
    let schema = input.schema();
    let function = |name: &str, alias: &str, of: Arc<dyn PhysicalExpr>, distinct: bool| {
        let function = Arc::clone(&FragmentFunctions::get().aggregate[name]);
        let builder = AggregateExprBuilder::new(function, vec![of]).schema(Arc::clone(&schema));
        let builder = builder.alias(alias);
        let builder = if distinct { builder.distinct() } else { builder };
        Arc::new(builder.build().unwrap())
    };
    let functions = vec![
        function("count", "rows", column("l_row", 2), false),
        function("max", "last", column("l_row", 2), false),
        function("min", "word", column("l_word", 1), false),
        function("count", "numbers", column("l_number", 0), true),
    ];
    let groups = PhysicalGroupBy::new_single(vec![
        (column("l_word", 1), "word".to_owned()),
        (column("l_number", 0), "number".to_owned()),
    ]);
    let filters = vec![None; functions.len()];
    AggregateExec::try_new(mode, groups, functions, filters, input, schema).unwrap()
}

#[test]
fn aggregates_give_the_engines_groups_in_little_memory() {
    let batches = rows("l", 60_000, |row| match row % 10 {
        0 => None,
        1 | 2 => Some(row % 5),
        _ => Some(mixed(row)),
    });
    let divided = |partitions: usize| -> Arc<dyn ExecutionPlan> {
        Arc::new(aggregate(AggregateMode::Single, input("l", &batches, partitions)))
    };
    let single = || divided(1);
    let merging = || -> Arc<dyn ExecutionPlan> {
        let partial = aggregate(AggregateMode::Partial, input("l", &batches, 1));
        let (functions, schema) = (partial.aggr_expr().to_vec(), partial.input_schema());
        let (groups, filters) = (partial.group_expr().as_final(), vec![None; functions.len()]);
        let states = collect(&(Arc::new(partial) as _), &task(None, &MemorySpace::new(1))).unwrap();
        let rows = MemoryStream::try_new(states.clone(), states[0].schema(), None).unwrap();
        let states = GivenExec::over(Box::pin(rows), None);
        let mode = AggregateMode::Final;
        Arc::new(AggregateExec::try_new(mode, groups, functions, filters, states, schema).unwrap())
    };
    let expected = oracle(&single());
    for plan in [single(), merging()] {
        let (found, spilled) = run_within(plan, 1 << 20);
        let found = found.unwrap();
        assert!(spilled > 1 << 20, "{spilled} bytes");
        assert!(found == expected, "{} groups of {}", found.len(), expected.len());
    }
    for partitions in [1, 3] {
        let (found, spilled) = run_in_lanes(divided(partitions), 2 << 20, 3);
        assert!(found.unwrap() == expected);
        assert!(spilled > 1 << 20, "{spilled} bytes");
        // And where all fit.
        let (found, spilled) = run_in_lanes(divided(partitions), 256 << 20, 3);
        assert!(found.unwrap() == expected);
        assert_eq!(spilled, 0);
    }
}

/// Sorts by word, descending, and by number.
fn sort(batches: &[RecordBatch], partitions: usize) -> Arc<dyn ExecutionPlan> {
    let (descending, nulls_first) = (true, true);
    let order = [
        PhysicalSortExpr::new(column("l_word", 1), SortOptions { descending, nulls_first }),
        PhysicalSortExpr::new_default(column("l_number", 0)),
        PhysicalSortExpr::new_default(column("l_row", 2)),
    ];
    Arc::new(SortExec::new(LexOrdering::new(order).unwrap(), input("l", batches, partitions)))
}

/// The rows as text, as they come.
fn lines_in_order(batches: &[RecordBatch]) -> Vec<String> {
    batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(|row| batch.slice(row, 1)))
        .flat_map(|row| lines(&[row]))
        .collect()
}

/// As [`run_within`], in the rows' order.
fn sort_within(
    batches: &[RecordBatch],
    memory_bytes: usize,
    lane_count: usize,
) -> (Vec<String>, usize, usize) {
    let (space, threads) = (MemorySpace::new(100_000), Arc::default());
    let task = task_with(Some(memory_bytes), &space, &threads);
    let plan = GraceExec::wherever_it_helps(sort(batches, lane_count), &task, lane_count).unwrap();
    let found = lines_in_order(&collect(&plan, &task).unwrap());
    threads.join();
    let metrics = plan.metrics().unwrap();
    assert_eq!(metrics.aggregate_by_name().output_rows(), Some(found.len()));
    let spilled = (metrics.spilled_bytes().unwrap(), metrics.spilled_rows().unwrap());
    drop(plan);
    assert_eq!((space.used_blocks(), task.memory_pool().reserved()), (0, 0));
    (found, spilled.0, spilled.1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn a_sort_in_any_memory_gives_the_engines_order(
        (count, key_count, null_every) in (0..9000, 1..5000, 2..50),
        (memory_bytes, lane_count) in (400_000_usize..4_000_000, 1_usize..4),
    ) {
        let key = |row: i32| (row % null_every != 0).then(|| mixed(row) % key_count);
        let batches = rows("l", count, key);
        let expected = collect(&sort(&batches, 1), &task(None, &MemorySpace::new(1))).unwrap();
        let (found, ..) = sort_within(&batches, memory_bytes, lane_count);
        prop_assert!(found == lines_in_order(&expected));
    }
}

#[test]
fn runs_of_a_sort_are_merged_more_than_once_where_they_are_many() {
    let batches = rows("l", 60_000, skewed);
    let expected = collect(&sort(&batches, 1), &task(None, &MemorySpace::new(1))).unwrap();
    let (found, _, spilled) = sort_within(&batches, 500 << 10, 1);
    assert!(found == lines_in_order(&expected));
    assert!(spilled > 60_000 && spilled < 3 * 60_000, "{spilled} rows");
    let (found, bytes, _) = sort_within(&batches, 256 << 20, 2);
    assert!(found == lines_in_order(&expected));
    assert_eq!(bytes, 0);
}

#[test]
fn a_large_top_k_spills_no_more_rows_than_are_wanted() {
    let batches = rows("l", 150_000, |row| Some(mixed(row)));
    let top = |fetch, partitions| -> Arc<dyn ExecutionPlan> {
        sort(&batches, partitions).with_fetch(Some(fetch)).unwrap()
    };
    let expected = collect(&sort(&batches, 1), &task(None, &MemorySpace::new(1))).unwrap();
    let expected = lines_in_order(&expected);
    for lane_count in [1, 2] {
        let (space, threads) = (MemorySpace::new(100_000), Arc::default());
        let task = task_with(Some(3 << 20), &space, &threads);
        let plan = GraceExec::wherever_it_helps(top(110_000, lane_count), &task, lane_count);
        let plan = plan.unwrap();
        let found = lines_in_order(&collect(&plan, &task).unwrap());
        threads.join();
        assert!(found == expected[..110_000], "{} rows", found.len());
        assert!(plan.metrics().unwrap().spilled_rows().unwrap() > 0);
    }
    assert!(!GraceExec::helps(&top(100, 1)));
}

#[test]
fn what_cannot_be_divided_is_left_alone() {
    let (left, right) = (rows("l", 10, Some), rows("r", 10, Some));
    let case = Case {
        join_type: JoinType::LeftAnti,
        nulls: NullEquality::NullEqualsNothing,
        filter: None,
    };
    assert!(GraceExec::helps(&case.plan(&left, &right)));
    let null_aware = HashJoinExec::try_new(
        input("l", &left, 1),
        input("r", &right, 1),
        vec![(column("l_number", 0), column("r_number", 0))],
        None,
        &JoinType::LeftAnti,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        true,
    );
    let partial = aggregate(AggregateMode::Partial, input("l", &left, 1));
    let plans: [Arc<dyn ExecutionPlan>; 2] = [Arc::new(null_aware.unwrap()), Arc::new(partial)];
    for plan in plans {
        assert!(!GraceExec::helps(&plan), "{}", plan.name());
    }
}
