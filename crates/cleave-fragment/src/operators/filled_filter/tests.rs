//! A join gives the same rows as without its filter, and the filter has exactly the keys of the build side.

use arrow::array::{Date32Array, Int16Array, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::{Field, Schema};
use datafusion_common::{JoinType, exec_err};
use datafusion_execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion_execution::runtime_env::RuntimeEnvBuilder;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::split_conjunction;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::{TryStreamExt, stream};
use proptest::prelude::*;

use super::*;
use crate::operators::stoppable_join_exec::{Start, Stop, stoppable_joins};

/// Batches of rows, and whether an error follows them.
#[derive(Debug)]
struct Rows(Arc<Schema>, Vec<RecordBatch>, bool);

impl PartitionStream for Rows {
    fn schema(&self) -> &Arc<Schema> {
        &self.0
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let error = self.2.then(|| exec_err!("no more of them"));
        let batches: Vec<_> = self.1.iter().cloned().map(Ok).chain(error).collect();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), stream::iter(batches)))
    }
}

/// A column `k` of these batches.
fn rows(batches: &[ArrayRef], fails: bool) -> Arc<dyn ExecutionPlan> {
    let data_type = batches.first().unwrap().data_type().clone();
    let schema = Arc::new(Schema::new(vec![Field::new("k", data_type, true)]));
    let batch = |keys: &ArrayRef| {
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(keys)]).unwrap()
    };
    let part: Arc<dyn PartitionStream> =
        Arc::new(Rows(Arc::clone(&schema), batches.iter().map(batch).collect(), fails));
    Arc::new(StreamingTableExec::try_new(schema, vec![part], None, [], false, None).unwrap())
}

fn integers(keys: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(keys.to_vec()))
}

/// A join of `build` and `probe`, which reads the join's filter if `is_read`, as it runs; and the filter.
fn join(
    (build, probe): (Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>),
    join_type: JoinType,
    is_read: bool,
) -> (Arc<dyn ExecutionPlan>, Arc<DynamicFilterPhysicalExpr>) {
    let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
    let filter = Arc::new(DynamicFilterPhysicalExpr::new(vec![Arc::clone(&key)], lit(true)));
    let predicate = if is_read { Arc::clone(&filter) as Arc<dyn PhysicalExpr> } else { lit(true) };
    let probe = Arc::new(FilterExec::try_new(predicate, probe).unwrap());
    let on = vec![(Arc::clone(&key), key)];
    let (mode, nulls) = (PartitionMode::CollectLeft, NullEquality::NullEqualsNothing);
    let join = HashJoinExec::try_new(build, probe, on, None, &join_type, None, mode, nulls, false)
        .unwrap();
    let join: Arc<dyn ExecutionPlan> =
        Arc::new(join.with_dynamic_filter_expr(Arc::clone(&filter)).unwrap());
    (stoppable_joins(&join, &Stop::default(), Start::AtOnce).unwrap(), filter)
}

async fn run(plan: &Arc<dyn ExecutionPlan>, memory_bytes: usize) -> Result<Vec<String>> {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(memory_bytes));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
    let task = Arc::new(TaskContext::default().with_runtime(runtime));
    let batches: Vec<RecordBatch> = plan.execute(0, task)?.try_collect().await?;
    let mut rows = Vec::new();
    for batch in batches {
        rows.extend(
            (0..batch.num_rows()).map(|row| format!("{:?}", batch.slice(row, 1).columns())),
        );
    }
    rows.sort_unstable();
    Ok(rows)
}

/// The keys that `filter` lists now; None if it lists none.
fn keys(filter: &DynamicFilterPhysicalExpr) -> Option<Vec<i64>> {
    let current = filter.current().unwrap();
    let parts = split_conjunction(&current);
    parts.iter().find_map(|part| Some(part.downcast_ref::<KeySetExpr>()?.keys().to_vec()))
}

proptest! {
    #[test]
    fn rows_are_those_without_a_filter_and_keys_those_of_the_build_side(
        build in proptest::collection::vec(proptest::option::of(-40..40_i64), 0..60),
        probe in proptest::collection::vec(proptest::option::of(-60..60_i64), 0..60),
        at in 0..60_usize,
        spread in prop_oneof![Just(1), Just(1_i64 << 52)],
    ) {
        let spread = |keys: &[Option<i64>]| -> Vec<_> {
            keys.iter().map(|key| key.map(|key| key * spread)).collect()
        };
        let (build, probe) = (spread(&build), spread(&probe));
        let (first, last) = build.split_at(at.min(build.len()));
        let batches = [integers(first), integers(last)];
        let mut distinct: Vec<i64> = build.iter().flatten().copied().collect();
        distinct.sort_unstable();
        distinct.dedup();
        for join_type in [
            JoinType::Inner, JoinType::Left, JoinType::LeftSemi, JoinType::LeftAnti, JoinType::RightSemi,
        ] {
            let inputs = || (rows(&batches, false), rows(&[integers(&probe)], false));
            let (filtered, filter) = join(inputs(), join_type, true);
            let (plain, unread) = join(inputs(), join_type, false);
            let (filtered, plain) = futures::executor::block_on(async {
                (run(&filtered, 1 << 30).await.unwrap(), run(&plain, 1 << 30).await.unwrap())
            });
            prop_assert_eq!(filtered, plain, "{}", join_type);
            match distinct.is_empty() {
                true => prop_assert_eq!(filter.current().unwrap().to_string(), "false"),
                false => prop_assert_eq!(keys(&filter), Some(distinct.clone())),
            }
            // Nobody reads it, so nobody fills it.
            prop_assert_eq!(unread.current().unwrap().to_string(), "true");
        }
    }
}

#[tokio::test]
async fn keys_of_every_integer_type_pass() {
    let columns: [ArrayRef; 4] = [
        Arc::new(Int16Array::from(vec![i16::MIN, 7, i16::MAX])),
        Arc::new(Int32Array::from(vec![i32::MIN, 7, i32::MAX])),
        Arc::new(Int64Array::from(vec![i64::MIN, 7, i64::MAX])),
        Arc::new(Date32Array::from(vec![-1, 0, 20_000])),
    ];
    for column in columns {
        let inputs = (rows(&[Arc::clone(&column)], false), rows(&[Arc::clone(&column)], false));
        let (plan, filter) = join(inputs, JoinType::Inner, true);
        assert_eq!(run(&plan, 1 << 30).await.unwrap().len(), 3, "{}", column.data_type());
        assert_eq!(keys(&filter).unwrap().len(), 3, "{}", column.data_type());
    }
}

#[tokio::test]
async fn a_build_side_that_fails_leaves_the_filter_as_it_was() {
    let inputs = (rows(&[integers(&[Some(1)])], true), rows(&[integers(&[Some(2)])], false));
    let (plan, filter) = join(inputs, JoinType::Inner, true);
    run(&plan, 1 << 30).await.unwrap_err();
    assert_eq!(filter.current().unwrap().to_string(), "true");
}

/// The collector alone, with so much memory.
fn filled(batches: &[ArrayRef], memory_bytes: usize) -> (Arc<dyn PhysicalExpr>, usize) {
    let operand: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
    let filter = Arc::new(DynamicFilterPhysicalExpr::new(vec![Arc::clone(&operand)], lit(true)));
    let parts = vec![KeyPart { place: 0, operand, data_type: DataType::Int64 }];
    let sink = FilledFilter { filter: Arc::clone(&filter), parts };
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(memory_bytes));
    let memory = datafusion_execution::memory_pool::MemoryConsumer::new("keys").register(&pool);
    let mut collector = Arc::new(sink).collector(memory).unwrap();
    assert!(batches.iter().all(|batch| collector.add(std::slice::from_ref(batch))));
    collector.finish();
    (filter.current().unwrap(), pool.reserved())
}

#[test]
fn beyond_the_memory_or_the_limits_only_the_bounds_are_filled_in() {
    let batches = |count: i64, distance: i64| -> Vec<ArrayRef> {
        let batch = |from: i64| -> ArrayRef {
            let keys = (from..(from + 8192).min(count)).map(|key| key * distance);
            Arc::new(Int64Array::from_iter_values(keys))
        };
        (0..count).step_by(8192).map(batch).collect()
    };
    let many = batches(200_000, 1000);
    let (current, reserved) = filled(&many, 1 << 30);
    assert!(current.to_string().ends_with("k@0 IN (200000 keys)"), "{current}");
    assert!(reserved > 200_000 * 8, "{reserved}");
    let bounds = "k@0 >= 0 AND k@0 <= 199999000";
    let (current, reserved) = filled(&many, 1 << 20);
    assert_eq!((current.to_string().as_str(), reserved), (bounds, 0));
    // Dense keys in ever the same batches are few.
    let again: Vec<ArrayRef> = (0..100).flat_map(|_| batches(50_000, 1)).collect();
    let (current, reserved) = filled(&again, 8 << 20);
    assert!(current.to_string().ends_with("IN (50000 keys)"), "{current}");
    assert!(reserved < 8 << 20, "{reserved}");
    let (current, reserved) = filled(&batches(8_500_000, 1), 1 << 30);
    assert_eq!((current.to_string().as_str(), reserved), ("k@0 >= 0 AND k@0 <= 8499999", 0));
}
