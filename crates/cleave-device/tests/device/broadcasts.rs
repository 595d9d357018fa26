//! Rows that come along with a fragment, over every link: joined with what streams on the device, or refused for what is wrong.

use std::sync::Arc;

use arrow::array::{Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use cleave_fragment::command::{DeviceErrorCause, Execute, Payload};
use cleave_fragment::{Broadcast, BroadcastExec, BroadcastRows};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::joins::CrossJoinExec;

use crate::bench::{Bench, ROW_COUNT, device_error, memory, options, scan};

fn numbers(count: i32) -> BroadcastRows {
    let schema: SchemaRef =
        Arc::new(Schema::new(vec![Field::new("number", DataType::Int32, true)]));
    let column = Arc::new(Int32Array::from_iter_values(0..count));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
    BroadcastRows::new(schema, vec![batch], None)
}

/// Each of the rows that are sent with each of the table's.
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

async fn benches() -> [Bench; 3] {
    [
        Bench::embedded(memory(), options()).await,
        Bench::local(memory(), options()).await,
        Bench::remote(memory(), options()).await,
    ]
}
