//! Partitions share the rows of other devices, and a fragment reads each input once.

use std::collections::VecDeque;
use std::sync::Mutex;

use arrow::array::{AsArray, Int32Array};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_physical_plan::joins::CrossJoinExec;
use futures::future::ready;
use futures::{FutureExt, StreamExt};

use super::*;
use crate::fragment::{fragment_task_context, unread_context, with_partitions};
use crate::operators::recursion_exec::WorkingTableExec;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int32, false)]))
}

/// Rows that have come already, and then perhaps an error.
#[derive(Debug)]
struct Come {
    batches: Mutex<VecDeque<RecordBatch>>,
    fails: bool,
}

impl PeerRowSource for Come {
    fn next<'a>(&'a self, asked: &'a SchemaRef) -> BoxFuture<'a, Result<Option<RecordBatch>>> {
        assert_eq!(asked, &schema());
        let batch = self.batches.lock().unwrap().pop_front();
        let next = match batch {
            None if self.fails => Err(DataFusionError::Execution("it is gone".to_owned())),
            batch => Ok(batch),
        };
        ready(next).boxed()
    }
}

fn context(inputs: &[u32], fails: bool) -> FragmentContext {
    let source = || {
        let batches = (0..4).map(|first| {
            let ids = Int32Array::from_iter_values(first * 10..first * 10 + 10);
            RecordBatch::try_new(schema(), vec![Arc::new(ids)]).unwrap()
        });
        Arc::new(Come { batches: Mutex::new(batches.collect()), fails }) as Arc<dyn PeerRowSource>
    };
    let peer_rows = inputs.iter().map(|input| (*input, source())).collect();
    FragmentContext { peer_rows, ..unread_context() }
}

fn task(context: FragmentContext) -> Arc<TaskContext> {
    fragment_task_context(Arc::new(context), Arc::new(RuntimeEnv::default()), &[]).unwrap()
}

fn leaf(input: u32) -> Arc<dyn ExecutionPlan> {
    Arc::new(PeerRowsExec::new(input, schema()))
}

#[test]
fn each_row_comes_to_one_partition() {
    let plan = with_partitions(leaf(3), 3).unwrap();
    assert_eq!(plan.properties().output_partitioning().partition_count(), 3);
    let task = task(context(&[3], false));
    let mut streams: Vec<_> =
        (0..3).map(|partition| plan.execute(partition, Arc::clone(&task)).unwrap()).collect();
    let mut found = Vec::new();
    let mut began = 0;
    futures::executor::block_on(async {
        for stream in &mut streams {
            let batch = stream.next().await.unwrap().unwrap();
            began += 1;
            found.extend(batch.column(0).as_primitive::<Int32Type>().values().to_vec());
        }
        for stream in &mut streams {
            while let Some(batch) = stream.next().await {
                let batch = batch.unwrap();
                found.extend(batch.column(0).as_primitive::<Int32Type>().values().to_vec());
            }
        }
    });
    found.sort_unstable();
    assert_eq!((began, found), (3, (0..40).collect::<Vec<i32>>()));
    let rows = plan.metrics().and_then(|metrics| metrics.output_rows());
    assert_eq!(rows, Some(40));
}

#[test]
fn rows_that_do_not_come_fail_the_fragment() {
    let mut stream = leaf(3).execute(0, task(context(&[3], true))).unwrap();
    let last = futures::executor::block_on(async {
        for _ in 0..4 {
            assert!(stream.next().await.unwrap().is_ok());
        }
        stream.next().await.unwrap()
    });
    assert!(last.unwrap_err().to_string().contains("it is gone"));
}

#[test]
fn each_input_is_read_once() {
    let refused = |plan: &Arc<dyn ExecutionPlan>, given: &[u32], why: &str| {
        let error = PeerRowsExec::check(plan, &context(given, false)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    let both: Arc<dyn ExecutionPlan> = Arc::new(CrossJoinExec::new(leaf(1), leaf(2)));
    PeerRowsExec::check(&both, &context(&[1, 2], false)).unwrap();
    refused(&both, &[1], "input 2, rows of other devices, which was not given");
    refused(&both, &[1, 2, 3], "input 3, which the fragment does not read");
    let twice: Arc<dyn ExecutionPlan> = Arc::new(CrossJoinExec::new(leaf(1), leaf(1)));
    refused(&twice, &[1], "input 1, rows of other devices, twice");
    let working = WorkingTableExec::new("r".to_owned(), vec![0], schema()).unwrap();
    let terms = [leaf(1), Arc::new(working) as Arc<dyn ExecutionPlan>];
    let recursion = RecursionExec::new("r".to_owned(), schema(), terms, false).unwrap();
    refused(&(Arc::new(recursion) as Arc<dyn ExecutionPlan>), &[1], "in a recursion");
    let missing = leaf(5).execute(0, task(context(&[1], false)));
    assert!(missing.err().unwrap().to_string().contains("input 5"));
}
