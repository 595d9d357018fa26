//! Broadcast rows over every link: joined with streamed rows on the device, or refused if malformed.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use cleave_fragment::command::{DeviceErrorCause, Execute, Payload, Reply, Request};
use cleave_fragment::{Broadcast, BroadcastExec, BroadcastRows};
use datafusion_common::{JoinSide, JoinType};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion_physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec};
use tokio::time::timeout;

use crate::bench::{Bench, MEMORY_BYTES, ROW_COUNT, benches, device_error, memory, options, scan};

fn numbers(count: i32) -> BroadcastRows {
    let schema: SchemaRef =
        Arc::new(Schema::new(vec![Field::new("number", DataType::Int32, true)]));
    let column = Arc::new(Int32Array::from_iter_values(0..count));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
    BroadcastRows::new(schema, vec![batch], None)
}

/// A cross join of the broadcast rows with the table.
fn joined(rows: &BroadcastRows) -> Arc<dyn ExecutionPlan> {
    let sent = Arc::new(BroadcastExec::new(7, Arc::clone(rows.schema())));
    Arc::new(CrossJoinExec::new(sent, scan(None)))
}

#[tokio::test]
async fn rows_that_come_along_are_joined_with_what_streams() {
    for bench in benches().await {
        let morsels = bench.load().await;
        for count in [3, 0, 1] {
            let rows = numbers(count);
            let run = u64::try_from(count).unwrap() + 1;
            let request = Execute {
                broadcasts: vec![rows.encode(7).unwrap()],
                ..bench.request(run, &joined(&rows), &morsels)
            };
            let mut stream = bench.execute(request).await;
            let mut found = 0;
            while let Some(batch) = stream.next().await.unwrap() {
                found += batch.num_rows();
            }
            let table = usize::try_from(ROW_COUNT).unwrap();
            assert_eq!(found, table * rows.row_count(), "{count}");
        }
        bench.reach_idle().await;
    }
}

#[tokio::test]
async fn rows_that_are_not_what_the_fragment_names_are_refused() {
    for bench in benches().await {
        let morsels = bench.load().await;
        let rows = numbers(1000);
        let sent = rows.encode(7).unwrap();
        let good = bench.request(1, &joined(&rows), &morsels);
        let refusal = async |broadcasts: Vec<Broadcast>, memory_bytes: u64| {
            let request = Execute { broadcasts, memory_bytes, ..good.clone() };
            device_error(bench.link.execute(request).await)
        };
        let unsupported = async |broadcasts: Vec<Broadcast>, why: &str| {
            let (cause, message) = refusal(broadcasts, good.memory_bytes).await;
            assert_eq!(cause, DeviceErrorCause::Unsupported, "{message}");
            assert!(message.contains(why), "{message}");
        };
        unsupported(Vec::new(), "broadcast 7, which was not given").await;
        unsupported(vec![sent.clone(), sent.clone()], "broadcast 7 is given twice").await;
        let garbage = vec![Payload::new(Bytes::from_static(b"garbage"))];
        unsupported(vec![Broadcast { pieces: garbage, ..sent.clone() }], "broadcast 7").await;
        let text = Arc::new(StringArray::from(vec!["one"]));
        let schema: SchemaRef =
            Arc::new(Schema::new(vec![Field::new("number", DataType::Utf8, true)]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![text]).unwrap();
        let other = BroadcastRows::new(schema, vec![batch], None).encode(7).unwrap();
        unsupported(vec![other], "has other columns than the fragment names").await;
        let (cause, message) = refusal(vec![sent], 3000).await;
        assert_eq!(cause, DeviceErrorCause::OutOfMemory, "{message}");
        bench.reach_idle().await;
    }
}

#[tokio::test]
async fn a_join_that_looks_at_all_pairs_ends_when_it_is_cancelled() {
    let bench = Bench::embedded(memory(), options()).await;
    let morsels = bench.load().await;
    // The join compares one streamed batch with each of so many rows before it yields its thread: for minutes.
    let rows = numbers(1_000_000);
    let fields = ["number", "id"].map(|name| Field::new(name, DataType::Int32, true));
    let column = |index: usize| -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(fields[index].name(), index))
    };
    let sides = [JoinSide::Left, JoinSide::Right];
    let columns = sides.map(|side| ColumnIndex { index: 0, side }).to_vec();
    let sum = Arc::new(BinaryExpr::new(column(0), Operator::Plus, column(1)));
    let none: Arc<dyn PhysicalExpr> = Arc::new(Literal::new((-1_i32).into()));
    let condition = Arc::new(BinaryExpr::new(sum, Operator::Eq, none));
    let filter = JoinFilter::new(condition, columns, Arc::new(Schema::new(fields.to_vec())));
    let sent = Arc::new(BroadcastExec::new(7, Arc::clone(rows.schema())));
    let join = NestedLoopJoinExec::try_new(sent, scan(None), Some(filter), &JoinType::Inner, None);
    let plan: Arc<dyn ExecutionPlan> = Arc::new(join.unwrap());
    let request = Execute {
        broadcasts: vec![rows.encode(7).unwrap()],
        memory_bytes: MEMORY_BYTES / 2,
        ..bench.request(1, &plan, &morsels)
    };
    let mut stream = bench.execute(request).await;
    assert!(timeout(Duration::from_millis(500), stream.next()).await.is_err(), "it works");
    let cancelled = bench.call_run(1, Request::Cancel);
    let cancelled = timeout(Duration::from_secs(20), cancelled).await;
    assert!(matches!(cancelled, Ok(Ok(Reply::Done))), "{cancelled:?}");
    let ended: Result<_, _> = stream.next().await;
    assert_eq!(device_error(ended).0, DeviceErrorCause::Cancelled);
    drop(stream);
    bench.call_run(1, Request::Release).await.unwrap();
    bench.reach_idle().await;
}
