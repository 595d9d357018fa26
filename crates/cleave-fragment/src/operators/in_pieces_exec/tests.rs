//! Tests of cutting batches: the same rows come out, in pieces that fit.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion_common::UnnestOptions;
use datafusion_execution::TaskContext;
use datafusion_execution::config::SessionConfig;
use datafusion_physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion_physical_plan::unnest::{ListUnnest, UnnestExec};
use datafusion_physical_plan::{ExecutionPlan, collect};

use super::*;

/// Rows with a list of whole numbers, another one, and a text.
fn rows(lists: [Vec<Option<Vec<Option<i32>>>>; 2], texts: Vec<&str>) -> RecordBatch {
    let [one, other] = lists.map(ListArray::from_iter_primitive::<Int32Type, _, _>);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("one", Arc::new(one)),
        ("other", Arc::new(other)),
        ("text", Arc::new(StringArray::from(texts))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

/// A batch.
#[derive(Debug)]
struct Given(RecordBatch);

impl PartitionStream for Given {
    fn schema(&self) -> &Arc<Schema> {
        self.0.schema_ref()
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = stream::iter([Ok(self.0.clone())]);
        Box::pin(RecordBatchStreamAdapter::new(self.0.schema(), rows))
    }
}

fn unnested(batch: &RecordBatch) -> Arc<dyn ExecutionPlan> {
    let part: Arc<dyn PartitionStream> = Arc::new(Given(batch.clone()));
    let input = StreamingTableExec::try_new(batch.schema(), vec![part], None, [], false, None);
    let fields = [("one", DataType::Int32), ("other", DataType::Int32), ("text", DataType::Utf8)];
    let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec());
    let lists = (0..2).map(|index| ListUnnest { index_in_input_schema: index, depth: 1 }).collect();
    let options = UnnestOptions::default();
    let unnest =
        UnnestExec::new(Arc::new(input.unwrap()), lists, Vec::new(), Arc::new(schema), options);
    Arc::new(unnest.unwrap())
}

async fn all(plan: Arc<dyn ExecutionPlan>, batch_rows: usize) -> (Vec<usize>, RecordBatch) {
    let config = SessionConfig::new().with_batch_size(batch_rows);
    let task = Arc::new(TaskContext::default().with_session_config(config));
    let schema = plan.schema();
    let batches = collect(plan, task).await.unwrap();
    let sizes = batches.iter().map(RecordBatch::num_rows).collect();
    (sizes, arrow::compute::concat_batches(&schema, &batches).unwrap())
}

#[tokio::test]
async fn lists_become_the_same_rows_in_parts() {
    let numbers = |count: i32| Some((0..count).map(|n| (n % 7 != 3).then_some(n)).collect());
    let long = "x".repeat(3000);
    let lists = [
        vec![numbers(10), Some(vec![]), None, numbers(1), numbers(3)],
        vec![numbers(2), None, Some(vec![]), numbers(25), numbers(3)],
    ];
    let batch = rows(lists, vec!["a", "b", "c", "d", &long]);
    let plan = unnested(&batch);
    let (_, expected) = all(Arc::clone(&plan), 8192).await;
    assert!(expected.num_rows() >= 38);
    for batch_rows in [1, 2, 3, 4, 7, 100] {
        let (sizes, given) = all(in_pieces(Arc::clone(&plan)).unwrap(), batch_rows).await;
        assert_eq!(given, expected, "{batch_rows}");
        assert!(sizes.iter().all(|rows| *rows <= batch_rows), "{sizes:?} of {batch_rows}");
    }
    let piece = Lists { columns: vec![0, 1], is_flat: true }.piece_of(&batch.slice(4, 1), 4);
    let (piece, rest) = piece.unwrap();
    let items = |batch: &RecordBatch| batch.column(0).as_list::<i32>().value(0).len();
    assert_eq!((items(&piece), items(&rest.unwrap())), (1, 2), "copies of a long text count");
}

#[test]
fn a_row_is_as_large_as_its_copies() {
    let lists = [vec![Some(vec![Some(1); 1000]), None], vec![None, Some(vec![None; 10])]];
    let batch = rows(lists, vec!["a", "b"]);
    let bytes = lists::largest_row(&batch);
    assert!((4000..5000).contains(&bytes), "{bytes}");
}

#[test]
fn pieces_grow_while_they_are_short_and_where_a_call_itself_takes_long() {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true)]));
    let none = datafusion_physical_plan::EmptyRecordBatchStream::new(Arc::clone(&schema));
    let mut pieces = Pieces {
        rows: Box::pin(none),
        cut: Cut::ByTime,
        batch_rows: 8192,
        piece_rows: FIRST_ROWS,
        rest: None,
        given: None,
        before: None,
        waited: Duration::ZERO,
    };
    let mut run = |of_call: u64, of_row: u64| {
        (pieces.piece_rows, pieces.before) = (FIRST_ROWS, None);
        for _ in 0..20 {
            let rows = pieces.piece_rows;
            pieces.took(rows, Duration::from_micros(of_call + of_row * rows as u64));
        }
        pieces.piece_rows
    };
    assert_eq!(run(10, 0), 8192);
    assert!((1..=8).contains(&run(0, 50_000)), "rows take long");
    assert!(run(300_000, 1) >= 4096, "the call does");
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
    let batch = RecordBatch::try_new(schema, vec![column]).unwrap();
    pieces.piece_rows = 30;
    let (piece, rest) = pieces.piece_of(&batch).unwrap();
    assert_eq!((piece.num_rows(), rest.map(|rest| rest.num_rows())), (30, Some(70)));
}
