//! Several partitions write pages of one segment, side by side.

use std::collections::BTreeSet;

use arrow::array::{Int64Array, UInt64Array};
use arrow::datatypes::Field;
use cleave_store::{PageEntry, SegmentId};
use datafusion_physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::TryStreamExt;

use super::*;
use crate::operators::page_writing::read_written;
use crate::operators::page_writing::testing::{Counting, task_writing_to};
use crate::page_sink::page_numbers;

/// Rows with these VIDs, a batch each.
#[derive(Debug)]
struct Rows(Arc<Schema>, Vec<Vec<u64>>);

impl PartitionStream for Rows {
    fn schema(&self) -> &Arc<Schema> {
        &self.0
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batch = |vids: &Vec<u64>| {
            let ids = Int64Array::from_iter_values(vids.iter().map(|vid| vid.cast_signed()));
            let vids = UInt64Array::from_iter_values(vids.iter().copied());
            Ok(RecordBatch::try_new(Arc::clone(&self.0), vec![Arc::new(ids), Arc::new(vids)])?)
        };
        let batches = self.1.iter().map(batch).collect::<Vec<_>>();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), stream::iter(batches)))
    }
}

/// What each of `partitions` reports, with what the sink has seen.
async fn written(partitions: Vec<Vec<Vec<u64>>>) -> (Vec<Result<Vec<PageEntry>>>, (u64, u32)) {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("vid", DataType::UInt64, false),
    ]));
    let parts = partitions
        .into_iter()
        .map(|batches| Arc::new(Rows(Arc::clone(&schema), batches)) as Arc<dyn PartitionStream>);
    let parts = parts.collect::<Vec<_>>();
    let count = parts.len();
    let rows = StreamingTableExec::try_new(Arc::clone(&schema), parts, None, [], false, None);
    let segment = SegmentRef { table_id: 1, segment: SegmentId(2), schema_version: 1, commit: 3 };
    let written = WrittenSegment { segment, class: PageClass::HOT, columns: vec![1] };
    let exec = WriteRowsExec::new(Arc::new(rows.unwrap()), written).unwrap();
    assert_eq!(exec.properties().output_partitioning().partition_count(), count);
    let sink = Arc::new(Counting::default());
    let task = task_writing_to(&sink);
    let running = (0..count).map(|partition| {
        let rows = exec.execute(partition, Arc::clone(&task)).unwrap();
        async move { Ok(read_written(&rows.try_collect::<Vec<_>>().await?)?) }
    });
    let reported = futures::future::join_all(running).await;
    let seen = sink.seen();
    (reported, seen)
}

#[tokio::test]
async fn each_partition_writes_pages_with_numbers_of_its_own() {
    // Stretches of 8000 VIDs, which the three partitions take in turn; the last has none.
    let stretch = |number: u64| (number * 8000..(number + 1) * 8000).collect::<Vec<u64>>();
    let partition = |first: u64| (0..5).map(|round| stretch(3 * round + first)).collect();
    let partitions: Vec<Vec<Vec<u64>>> = vec![partition(0), partition(1), partition(2), vec![]];
    let (reported, (blocks, finished)) = written(partitions).await;
    assert_eq!(finished, 4);
    let mut numbers = BTreeSet::new();
    let mut places = Vec::new();
    for (partition, pages) in reported.into_iter().enumerate() {
        let pages = pages.unwrap();
        assert_eq!(pages.is_empty(), partition == 3);
        let rows: u64 = pages.iter().map(|entry| u64::from(entry.page.row_count)).sum();
        assert_eq!(rows, if partition == 3 { 0 } else { 40_000 });
        for entry in pages {
            assert!(page_numbers(partition, 4).contains(&entry.page.page));
            assert!(numbers.insert(entry.page.page));
            places.push(entry.page.extent);
        }
    }
    places.sort_unstable();
    let ends: u64 = places.iter().map(|place| u64::from(place.block_count)).sum();
    assert!(places.len() > 6 && ends == blocks, "{places:?}");
}

#[tokio::test]
async fn rows_of_a_partition_that_do_not_ascend_fail_it_alone() {
    let (reported, (_, finished)) =
        written(vec![vec![vec![5, 6], vec![6, 9]], vec![vec![1, 2], vec![3]]]).await;
    let error = reported[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("the row 6 came behind a later one"), "{error}");
    assert_eq!(reported[1].as_ref().unwrap().len(), 1);
    assert_eq!(finished, 1);
}
