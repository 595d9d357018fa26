//! A stopped join evaluates its condition no more, yields to others, and looks as it was planned. One that works for
//! long leaves its thread to others.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use arrow::array::Int64Array;
use arrow::datatypes::Field;
use datafusion_common::config::ConfigOptions;
use datafusion_common::{JoinSide, JoinType, NullEquality};
use datafusion_execution::config::SessionConfig;
use datafusion_expr::{Volatility, create_udf};
use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::displayable;
use datafusion_physical_plan::joins::PartitionMode;
use datafusion_physical_plan::joins::utils::ColumnIndex;
use datafusion_physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::FutureExt;

use super::*;

/// A batch, so many times.
#[derive(Debug)]
struct Numbers(RecordBatch, usize);

impl PartitionStream for Numbers {
    fn schema(&self) -> &Arc<Schema> {
        self.0.schema_ref()
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = stream::iter(std::iter::repeat_n(self.0.clone(), self.1).map(Ok));
        Box::pin(RecordBatchStreamAdapter::new(self.0.schema(), batches))
    }
}

/// The numbers below `count`, as one batch.
fn numbers(count: i64) -> Arc<dyn ExecutionPlan> {
    rows_of(Int64Array::from_iter_values(0..count), 1)
}

fn rows_of(column: Int64Array, times: usize) -> Arc<dyn ExecutionPlan> {
    let schema = Arc::new(Schema::new(vec![Field::new("number", DataType::Int64, false)]));
    let column = Arc::new(column);
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
    let part: Arc<dyn PartitionStream> = Arc::new(Numbers(batch, times));
    let plan = StreamingTableExec::try_new(schema, vec![part], None, [], false, None).unwrap();
    Arc::new(plan)
}

/// A filter that is true for no pair and raises `stop` on its third evaluation; and the number of evaluations.
fn raising(stop: &Stop) -> (JoinFilter, Arc<AtomicUsize>) {
    let (stop, asked) = (stop.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let filter = asking(move || {
        if count.fetch_add(1, Ordering::Relaxed) == 2 {
            stop.raise();
        }
    });
    (filter, asked)
}

/// A filter that is true for no pair and calls `ask` on each evaluation.
fn asking(ask: impl Fn() + Send + Sync + 'static) -> JoinFilter {
    let of_pairs = move |_: &[ColumnarValue]| {
        ask();
        Ok(ColumnarValue::Scalar(ScalarValue::from(false)))
    };
    let (arguments, result) = (vec![DataType::Int64], DataType::Boolean);
    let function =
        create_udf("asking", arguments, result, Volatility::Volatile, Arc::new(of_pairs));
    let schema = numbers(0).schema();
    let number: Arc<dyn PhysicalExpr> = Arc::new(Column::new("number", 0));
    let options = Arc::new(ConfigOptions::default());
    let call = ScalarFunctionExpr::try_new(Arc::new(function), vec![number], &schema, options);
    let columns = vec![ColumnIndex { index: 0, side: JoinSide::Left }];
    JoinFilter::new(Arc::new(call.unwrap()), columns, schema)
}

#[tokio::test]
async fn a_condition_on_pairs_is_asked_no_more() {
    let stop = Stop::default();
    let (filter, asked) = raising(&stop);
    let (left, right) = (numbers(100), numbers(1000));
    let join = NestedLoopJoinExec::try_new(left, right, Some(filter), &JoinType::Inner, None);
    let plan: Arc<dyn ExecutionPlan> = Arc::new(join.unwrap());
    let plan = stoppable_joins(&plan, &stop, Start::AtOnce).unwrap();
    let mut rows = plan.execute(0, Arc::default()).unwrap();
    let error = rows.next().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("nobody wants the rows"), "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn joins_without_a_condition_end_too() {
    let stop = Stop::default();
    let join = NestedLoopJoinExec::try_new(numbers(9), numbers(9), None, &JoinType::LeftSemi, None);
    let plan: Arc<dyn ExecutionPlan> = Arc::new(join.unwrap());
    let plan = stoppable_joins(&plan, &stop, Start::AtOnce).unwrap();
    let run = || plan.execute(0, Arc::default()).unwrap();
    assert_eq!(run().next().await.unwrap().unwrap().num_rows(), 9);
    let plan = Arc::clone(&plan).reset_state().unwrap();
    stop.raise();
    assert!(plan.execute(0, Arc::default()).unwrap().next().await.unwrap().is_err());
}

#[test]
fn a_condition_of_a_join_that_spills_is_an_error_too() {
    let stop = Stop::default();
    let join = Arc::new(by_key(numbers(9), numbers(9), Some(always())));
    let plan = GraceExec::wherever_it_helps(join, &TaskContext::default(), 1).unwrap();
    assert!(plan.is::<GraceExec>());
    let plan = stoppable_joins(&plan, &stop, Start::WhenPolled).unwrap();
    let column = Arc::new(Int64Array::from_iter_values(0..3));
    let batch = RecordBatch::try_new(numbers(0).schema(), vec![column]).unwrap();
    let is_error = || {
        let mut is_error = false;
        let visited = plan.apply_expressions(&mut |expr| {
            is_error |= expr.evaluate(&batch).is_err();
            Ok(TreeNodeRecursion::Continue)
        });
        visited.unwrap();
        is_error
    };
    assert!(!is_error());
    stop.raise();
    assert!(is_error());
}

/// The rows of `join`, which may have threads of its own.
fn on_own_threads(join: Arc<dyn ExecutionPlan>) -> SendableRecordBatchStream {
    let plan = stoppable_joins(&join, &Stop::default(), Start::WhenPolled).unwrap();
    let config = SessionConfig::new().with_extension(Arc::new(OwnThreads));
    plan.execute(0, Arc::new(TaskContext::default().with_session_config(config))).unwrap()
}

#[tokio::test]
async fn a_join_of_many_pairs_leaves_its_thread_to_others() {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(Some(told));
    let filter = asking(move || {
        // The first evaluation waits for this test, whose thread would do it otherwise.
        if let Some(told) = told.lock().unwrap().take() {
            told.recv_timeout(Duration::from_secs(20)).expect("the thread of others");
        }
    });
    let (left, right) = (numbers(5000), numbers(1000));
    let join = NestedLoopJoinExec::try_new(left, right, Some(filter), &JoinType::Left, None);
    let mut rows = on_own_threads(Arc::new(join.unwrap()));
    assert!(rows.next().now_or_never().is_none());
    tell.send(()).unwrap();
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        count += batch.unwrap().num_rows();
    }
    assert_eq!(count, 5000, "no row has a match");
}

#[tokio::test]
async fn a_join_by_key_that_has_taken_long_leaves_its_thread_to_others() {
    let ((tell, told), (_never, nothing)) = (mpsc::channel(), mpsc::channel());
    // The first batch takes long, and the second one waits for this test.
    let waits = Mutex::new(vec![(told, 20_000), (nothing, 200)]);
    let filter = asking(move || {
        if let Some((wait, milliseconds)) = waits.lock().unwrap().pop() {
            let heard = wait.recv_timeout(Duration::from_millis(milliseconds));
            assert_eq!(heard.is_ok(), milliseconds > 200, "the thread of others");
        }
    });
    let twice = rows_of(Int64Array::from_iter_values(0..100), 2);
    let mut rows = on_own_threads(Arc::new(by_key(numbers(100), twice, Some(filter))));
    assert!(rows.next().now_or_never().is_none());
    tell.send(()).unwrap();
    assert!(rows.next().await.is_none());
}

#[tokio::test]
async fn rows_that_come_in_pieces_keep_their_order() {
    // Every second row has a match.
    let right = |row: i64| if row % 2 == 0 { row } else { -row };
    for kind in [
        JoinType::Inner,
        JoinType::Left,
        JoinType::Right,
        JoinType::Full,
        JoinType::LeftSemi,
        JoinType::RightSemi,
        JoinType::RightAnti,
        JoinType::RightMark,
    ] {
        let join = || -> Arc<dyn ExecutionPlan> {
            let right = rows_of(Int64Array::from_iter_values((0..5000).map(right)), 2);
            Arc::new(by_key_as(kind, numbers(20_000), right, Some(always())))
        };
        let plain = join().execute(0, Arc::default()).unwrap();
        let plain: Vec<RecordBatch> = plain.try_collect().await.unwrap();
        let moving: Vec<RecordBatch> = on_own_threads(join()).try_collect().await.unwrap();
        let together = |batches: &[RecordBatch]| {
            arrow::compute::concat_batches(batches[0].schema_ref(), batches).unwrap()
        };
        assert_eq!(together(&moving), together(&plain), "{kind}");
    }
}

/// A join whose matches all give rows never works for long.
#[test]
fn only_joins_that_may_work_for_long_are_watched() {
    let is_watched = |kind, filter| {
        let join = Arc::new(by_key_as(kind, numbers(9), numbers(9), filter));
        StoppableJoinExec::new(join, Stop::default(), Start::AtOnce).unwrap().work.is_some()
    };
    for (kind, expected) in
        [(JoinType::Inner, false), (JoinType::Full, false), (JoinType::RightSemi, true)]
    {
        assert_eq!(is_watched(kind, None), expected, "{kind}");
        assert!(is_watched(kind, Some(always())), "{kind}");
    }
}

/// A join by a key that is the same in all rows of both sides.
fn by_one_key(left: usize, right: usize) -> HashJoinExec {
    let same = |count| rows_of(Int64Array::from(vec![7; count]), 1);
    by_key(same(left), same(right), None)
}

fn by_key(
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    filter: Option<JoinFilter>,
) -> HashJoinExec {
    by_key_as(JoinType::Inner, left, right, filter)
}

fn by_key_as(
    kind: JoinType,
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    filter: Option<JoinFilter>,
) -> HashJoinExec {
    let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("number", 0));
    let on = vec![(Arc::clone(&key), key)];
    let (mode, nulls) = (PartitionMode::CollectLeft, NullEquality::NullEqualsNothing);
    HashJoinExec::try_new(left, right, on, filter, &kind, None, mode, nulls, false).unwrap()
}

#[tokio::test]
async fn others_have_their_turn_between_batches() {
    let of_all: Arc<dyn ExecutionPlan> = Arc::new(CrossJoinExec::new(numbers(5000), numbers(1)));
    let by_key: Arc<dyn ExecutionPlan> = Arc::new(by_one_key(5000, 8000));
    for join in [of_all, by_key] {
        let stop = Stop::default();
        let mut rows = stoppable_joins(&join, &stop, Start::WhenPolled)
            .unwrap()
            .execute(0, Arc::default())
            .unwrap();
        // Runs like a task that never waits.
        let in_one_go = std::iter::from_fn(|| rows.next().now_or_never()).take(5000).count();
        assert!((1..1000).contains(&in_one_go), "{in_one_go} batches");
        tokio::task::yield_now().await;
        assert!(rows.next().await.unwrap().is_ok());
        stop.raise();
        assert!(rows.next().await.unwrap().is_err());
    }
}

/// Counts how often it is read.
#[derive(Debug)]
struct Counted(RecordBatch, Arc<AtomicUsize>);

impl PartitionStream for Counted {
    fn schema(&self) -> &Arc<Schema> {
        self.0.schema_ref()
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        self.1.fetch_add(1, Ordering::Relaxed);
        let batches = stream::iter([Ok(self.0.clone())]);
        Box::pin(RecordBatchStreamAdapter::new(self.0.schema(), batches))
    }
}

/// No rows, ever.
#[derive(Debug)]
struct Never(Arc<Schema>);

impl PartitionStream for Never {
    fn schema(&self) -> &Arc<Schema> {
        &self.0
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), stream::pending()))
    }
}

#[tokio::test]
async fn a_build_side_below_a_probe_side_waits_for_the_build_side_above() {
    let schema = numbers(0).schema();
    let batch = RecordBatch::new_empty(Arc::clone(&schema));
    let over = |parts: Vec<Arc<dyn PartitionStream>>| -> Arc<dyn ExecutionPlan> {
        let plan = StreamingTableExec::try_new(Arc::clone(&schema), parts, None, [], false, None);
        Arc::new(plan.unwrap())
    };
    let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("number", 0));
    let join = |left, right| -> Arc<dyn ExecutionPlan> {
        let on = vec![(Arc::clone(&key), Arc::clone(&key))];
        let (mode, nulls) = (PartitionMode::CollectLeft, NullEquality::NullEqualsNothing);
        let kind = JoinType::Inner;
        let made = HashJoinExec::try_new(left, right, on, None, &kind, None, mode, nulls, false);
        Arc::new(made.unwrap())
    };
    for (start, expected) in [(Start::AtOnce, 2), (Start::WhenPolled, 0)] {
        let count = Arc::new(AtomicUsize::new(0));
        let part =
            || -> Arc<dyn PartitionStream> { Arc::new(Counted(batch.clone(), Arc::clone(&count))) };
        let gathered = Arc::new(CoalescePartitionsExec::new(over(vec![part(), part()])));
        let below = join(gathered, numbers(1));
        let plan = join(over(vec![Arc::new(Never(Arc::clone(&schema)))]), below);
        let plan = stoppable_joins(&plan, &Stop::default(), start).unwrap();
        let mut rows = plan.execute(0, Arc::default()).unwrap();
        for _ in 0..10 {
            assert!(rows.next().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        assert_eq!(count.load(Ordering::Relaxed), expected, "{start:?}");
    }
}

#[test]
fn plans_look_as_before() {
    let stop = Stop::default();
    let (filter, _) = raising(&stop);
    let inner: Arc<dyn ExecutionPlan> = Arc::new(CrossJoinExec::new(numbers(1), numbers(1)));
    let join = NestedLoopJoinExec::try_new(numbers(1), inner, Some(filter), &JoinType::Left, None);
    let plan: Arc<dyn ExecutionPlan> = Arc::new(join.unwrap());
    let stoppable = stoppable_joins(&plan, &stop, Start::AtOnce).unwrap();
    let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(&**plan).indent(true).to_string();
    assert_eq!(shown(&stoppable), shown(&plan));
    assert!(stoppable.is::<NestedLoopJoinExec>() && stoppable.children()[1].is::<CrossJoinExec>());
    assert!(loops(&*stoppable) && loops(&*plan) && !loops(&**plan.children()[1]));
}
