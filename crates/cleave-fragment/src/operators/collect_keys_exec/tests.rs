//! Rows pass unchanged; keys count only if all of them came.

use arrow::array::Int64Array;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::exec_err;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_plan::streaming::{PartitionStream, StreamingTableExec};

use super::*;

/// Batches of keys, and whether an error follows them.
#[derive(Debug)]
struct Keys(Arc<Schema>, Vec<RecordBatch>, bool);

impl PartitionStream for Keys {
    fn schema(&self) -> &Arc<Schema> {
        &self.0
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let error = self.2.then(|| exec_err!("no more of them"));
        let batches = self.1.iter().cloned().map(Ok).chain(error).collect::<Vec<_>>();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), stream::iter(batches)))
    }
}

fn key() -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new("key", 0))
}

/// Collects the keys 0 to 999 of two batches, of `partitions` partitions.
fn collecting(fails: bool, partitions: usize) -> Result<(CollectKeysExec, Arc<CollectedKeys>)> {
    let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Int64, true)]));
    let batch = |keys: std::ops::Range<i64>| {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
        RecordBatch::try_new(Arc::clone(&schema), vec![keys]).unwrap()
    };
    let parts = (0..partitions).map(|_| {
        let batches = vec![batch(0..500), batch(500..1000)];
        Arc::new(Keys(Arc::clone(&schema), batches, fails)) as Arc<dyn PartitionStream>
    });
    let parts = parts.collect();
    let input = StreamingTableExec::try_new(Arc::clone(&schema), parts, None, [], false, None)?;
    let collected = Arc::new(CollectedKeys::default());
    let exec = CollectKeysExec::new(Arc::new(input), vec![key()], Arc::clone(&collected))?;
    Ok((exec, collected))
}

async fn rows(exec: &CollectKeysExec) -> Vec<Result<usize>> {
    let stream = exec.execute(0, Arc::new(TaskContext::default())).unwrap();
    stream.map(|batch| batch.map(|batch| batch.num_rows())).collect().await
}

#[tokio::test]
async fn all_keys_are_there_when_the_last_row_has_passed() {
    let (exec, collected) = collecting(false, 1).unwrap();
    assert!(collected.filter(vec![key()], usize::MAX).is_none());
    let counts: Vec<usize> = rows(&exec).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(counts, [500, 500]);
    let filter = collected.filter(vec![key()], usize::MAX).unwrap();
    assert!((900.0..1100.0).contains(&filter.key_count()), "{}", filter.key_count());
    // Filters made of these keys would lose other rows.
    Arc::new(exec).reset_state().unwrap();
    assert!(collected.filter(vec![key()], usize::MAX).is_none());
}

#[tokio::test]
async fn an_error_passes_and_leaves_no_keys() {
    let (exec, collected) = collecting(true, 1).unwrap();
    assert!(rows(&exec).await[2].is_err());
    assert!(collected.filter(vec![key()], usize::MAX).is_none());
}

#[test]
fn keys_of_several_partitions_are_not_collected() {
    assert!(collecting(false, 2).is_err());
}
