//! Rows are numbered and written, and what a column or a check refuses fails the fragment.

use arrow::array::{ArrayRef, BooleanArray, Int64Array, StringArray};
use arrow::datatypes::{Field, Schema};
use cleave_store::{PageEntry, SegmentId};
use datafusion_common::DataFusionError;
use datafusion_physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::TryStreamExt;

use super::*;
use crate::codec::{decode_fragment, encode_fragment};
use crate::fragment::unread_task_context;
use crate::operators::broadcast_exec::BroadcastExec;
use crate::operators::new_values::{RefusedRow, RefusedValue};
use crate::operators::page_writing::read_written;
use crate::operators::page_writing::testing::{Counting, task_writing_to};

#[derive(Debug)]
struct Rows(RecordBatch, usize);

impl PartitionStream for Rows {
    fn schema(&self) -> &Arc<Schema> {
        self.0.schema_ref()
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = std::iter::repeat_n(self.0.clone(), self.1).map(Ok);
        Box::pin(RecordBatchStreamAdapter::new(self.0.schema(), stream::iter(batches)))
    }
}

fn target(segment: u32, vid_first: u64) -> InsertTarget {
    let segment = SegmentId(segment);
    InsertTarget {
        segment: SegmentRef { table_id: 7, segment, schema_version: 1, commit: 3 },
        vid_first,
    }
}

/// A NOT NULL number, and two texts.
fn inserted() -> InsertedRows {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("code", DataType::Utf8, true),
        Field::new("note", DataType::Utf8, true),
    ]);
    let columns = (1..=3).map(ColumnRef::User).collect();
    InsertedRows {
        targets: vec![target(12, 1000)],
        division: RowDivision::LoadOrder,
        class: PageClass::HOT,
        columns: Projection::new(Arc::new(schema), columns),
        replaces: false,
    }
}

fn batch(id: Option<i64>, code: &str, note: &str, kept: Option<bool>) -> RecordBatch {
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from(vec![Some(1), id]))),
        ("code", Arc::new(StringArray::from(vec![None, Some(code)]))),
        ("note", Arc::new(StringArray::from(vec![None, Some(note)]))),
        ("check", Arc::new(BooleanArray::from(vec![Some(true), kept]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .unwrap()
}

async fn written(rows: RecordBatch, times: usize) -> Result<(Vec<PageEntry>, u64)> {
    let schema = rows.schema();
    let part = Arc::new(Rows(rows, times)) as Arc<dyn PartitionStream>;
    let rows = StreamingTableExec::try_new(schema, vec![part], None, [], false, None)?;
    let exec = InsertPagesExec::new(Arc::new(rows), inserted())?;
    let sink = Arc::new(Counting::default());
    let rows = exec.execute(0, task_writing_to(&sink))?;
    let pages = read_written(&rows.try_collect::<Vec<_>>().await?)?;
    let (blocks, finished) = sink.seen();
    assert_eq!(finished, 1);
    Ok((pages, blocks))
}

#[tokio::test]
async fn rows_are_numbered_as_they_come_and_long_values_written_with_them() {
    let long = "long value ".repeat(5000);
    for (note, overflows) in [("short", false), (long.as_str(), true)] {
        let (pages, blocks) = written(batch(Some(2), "abcde", note, None), 4000).await.unwrap();
        let mut vid = 1000;
        for entry in &pages {
            assert_eq!(entry.vid_first, vid);
            assert_eq!(!entry.overflow.is_empty(), overflows);
            assert!(entry.zones.iter().map(|zone| zone.column).eq([1, 2, 3]));
            vid += u64::from(entry.page.row_count);
        }
        assert_eq!(vid, 9000);
        assert!(pages.len() > 1);
        let parts = pages.iter().flat_map(PageEntry::page_refs);
        assert_eq!(parts.map(|part| u64::from(part.extent.block_count)).sum::<u64>(), blocks);
    }
}

#[tokio::test]
async fn what_columns_and_checks_refuse_fails_the_fragment() {
    let error = written(batch(None, "a", "note", Some(true)), 2).await.unwrap_err();
    let DataFusionError::External(error) = error else { panic!("{error}") };
    assert_eq!(error.downcast_ref(), Some(&RefusedValue { column: 1 }));
    let error = written(batch(Some(2), "a", "note", Some(false)), 2).await.unwrap_err();
    let DataFusionError::External(error) = error else { panic!("{error}") };
    assert!(error.is::<RefusedRow>());
}

#[test]
fn it_crosses_a_link_as_a_root_alone() {
    let schema = batch(None, "", "", None).schema();
    let rows = || Arc::new(BroadcastExec::new(2, Arc::clone(&schema))) as Arc<dyn ExecutionPlan>;
    let exec: Arc<dyn ExecutionPlan> = Arc::new(InsertPagesExec::new(rows(), inserted()).unwrap());
    let task = unread_task_context().unwrap();
    let back = decode_fragment(&encode_fragment(&exec).unwrap(), &task).unwrap();
    assert_eq!(back.downcast_ref::<InsertPagesExec>().unwrap().inserted(), &inserted());
    // Rows of other columns.
    let mut others = inserted();
    others.columns = Projection::new(others.columns.schema, others.columns.columns[..2].to_vec());
    assert!(InsertPagesExec::new(rows(), others).is_err());
    assert!(InsertPagesExec::new(Arc::clone(&exec), inserted()).is_err());
}

/// Each row goes to the segment of its tablet, where rows are numbered as they come.
#[tokio::test]
async fn rows_are_divided_among_the_tablets_of_a_table() {
    let divided = || InsertedRows {
        targets: vec![target(12, 1000), target(13, 5), target(14, 0)],
        division: RowDivision::Hash(vec![0]),
        ..inserted()
    };
    let ids = Int64Array::from_iter_values(0..3000);
    let key = TabletKey::over(&divided().columns.schema, vec![0]).unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; 3000]));
    let columns: [(&str, ArrayRef); 3] =
        [("id", Arc::new(ids)), ("code", Arc::clone(&texts)), ("note", texts)];
    let rows =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)));
    let rows = rows.unwrap();
    let mut wanted = [0_u64; 3];
    key.tablets(&rows, 3).unwrap().iter().for_each(|tablet| wanted[*tablet as usize] += 2);
    let part = Arc::new(Rows(rows.clone(), 2)) as Arc<dyn PartitionStream>;
    let source =
        StreamingTableExec::try_new(rows.schema(), vec![part], None, [], false, None).unwrap();
    let source = Arc::new(source) as Arc<dyn ExecutionPlan>;
    let exec = InsertPagesExec::new(Arc::clone(&source), divided()).unwrap();
    let sink = Arc::new(Counting::default());
    let told = exec.execute(0, task_writing_to(&sink)).unwrap();
    let told = told.try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(sink.seen().1, 1);
    let pages = read_inserted(&told, 3).unwrap();
    for ((pages, wanted), first) in pages.iter().zip(wanted).zip([1000, 5, 0]) {
        let mut vid = first;
        for entry in pages {
            assert_eq!(entry.vid_first, vid);
            vid += u64::from(entry.page.row_count);
        }
        assert_eq!(vid, first + wanted);
        assert!(wanted > 1000, "{wanted}");
    }
    assert!(read_inserted(&told, 2).is_err());
    // It crosses a link so; and rows can be divided by nothing else.
    let task = unread_task_context().unwrap();
    let schema = rows.schema();
    let broadcast = Arc::new(BroadcastExec::new(2, schema)) as Arc<dyn ExecutionPlan>;
    let exec: Arc<dyn ExecutionPlan> =
        Arc::new(InsertPagesExec::new(Arc::clone(&broadcast), divided()).unwrap());
    let back = decode_fragment(&encode_fragment(&exec).unwrap(), &task).unwrap();
    assert_eq!(back.downcast_ref::<InsertPagesExec>().unwrap().inserted(), &divided());
    for strange in [
        InsertedRows { division: RowDivision::Hash(vec![3]), ..divided() },
        InsertedRows { replaces: true, ..divided() },
        InsertedRows { targets: Vec::new(), ..divided() },
        InsertedRows { targets: vec![target(12, 0), target(12, 9)], ..divided() },
    ] {
        assert!(InsertPagesExec::new(Arc::clone(&broadcast), strange).is_err());
    }
}

/// Each partition numbers the rows of its own tablets, and nobody else's.
#[tokio::test]
async fn in_load_order_partitions_write_to_tablets_of_their_own() {
    let in_order = |count| InsertedRows {
        targets: [target(12, 1000), target(13, 5), target(14, 0)][..count].to_vec(),
        ..inserted()
    };
    let rows = batch(Some(2), "abcde", "note", None);
    let parts = |count| {
        let part = |times| Arc::new(Rows(rows.clone(), times)) as Arc<dyn PartitionStream>;
        let parts = (1..=count).map(|number| part(1000 * number)).collect();
        let source = StreamingTableExec::try_new(rows.schema(), parts, None, [], false, None);
        Arc::new(source.unwrap()) as Arc<dyn ExecutionPlan>
    };
    let exec = InsertPagesExec::new(parts(2), in_order(3)).unwrap();
    assert_eq!(exec.properties().output_partitioning().partition_count(), 2);
    let sink = Arc::new(Counting::default());
    let mut told = Vec::new();
    for partition in 0..2 {
        let own = exec.execute(partition, task_writing_to(&sink)).unwrap();
        told.extend(own.try_collect::<Vec<_>>().await.unwrap());
    }
    assert_eq!(sink.seen().1, 2);
    let pages = read_inserted(&told, 3).unwrap();
    let counts: Vec<u64> = pages
        .iter()
        .zip([1000, 5, 0])
        .map(|(pages, first)| {
            let mut vid = first;
            for entry in pages {
                assert_eq!(entry.vid_first, vid);
                vid += u64::from(entry.page.row_count);
            }
            vid - first
        })
        .collect();
    // The second partition has the second target alone.
    assert_eq!(counts[1], 4000);
    assert_eq!(counts[0] + counts[2], 2000);
    for (partitions, strange) in [
        (2, in_order(1)),
        (2, InsertedRows { division: RowDivision::Hash(vec![0]), ..in_order(3) }),
        (3, in_order(2)),
    ] {
        assert!(InsertPagesExec::new(parts(partitions), strange).is_err());
    }
}

/// A thousand rows for each of three targets, divided so; the numbers of rows that they get.
async fn shares(division: RowDivision) -> Vec<u64> {
    let targets = vec![target(12, 1000), target(13, 5), target(14, 0)];
    let divided = InsertedRows { targets, division, ..inserted() };
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; 3000]));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3000));
    let columns = [("id", ids), ("code", Arc::clone(&texts)), ("note", texts)];
    let rows =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)));
    let rows = rows.unwrap();
    let schema = rows.schema();
    let broadcast = Arc::new(BroadcastExec::new(2, Arc::clone(&schema))) as Arc<dyn ExecutionPlan>;
    let exec = InsertPagesExec::new(broadcast, divided.clone()).unwrap();
    let exec: Arc<dyn ExecutionPlan> = Arc::new(exec);
    let task = unread_task_context().unwrap();
    let back = decode_fragment(&encode_fragment(&exec).unwrap(), &task).unwrap();
    assert_eq!(back.downcast_ref::<InsertPagesExec>().unwrap().inserted(), &divided);

    let part = Arc::new(Rows(rows, 1)) as Arc<dyn PartitionStream>;
    let source = StreamingTableExec::try_new(schema, vec![part], None, [], false, None).unwrap();
    let exec = InsertPagesExec::new(Arc::new(source), divided).unwrap();
    let sink = Arc::new(Counting::default());
    let told = exec.execute(0, task_writing_to(&sink)).unwrap();
    let told = told.try_collect::<Vec<_>>().await.unwrap();
    let rows_of = |pages: &Vec<PageEntry>| -> u64 {
        pages.iter().map(|entry| u64::from(entry.page.row_count)).sum()
    };
    read_inserted(&told, 3).unwrap().iter().map(rows_of).collect()
}

fn bounds(values: Vec<i64>) -> RangeBounds {
    let values: ArrayRef = Arc::new(Int64Array::from(values));
    RangeBounds::of_keys(&DataType::Int64, RangeBounds::keys_of(&values).unwrap()).unwrap()
}

#[tokio::test]
async fn rows_are_divided_by_ranges_and_in_equal_shares() {
    assert_eq!(shares(RowDivision::Ranges(0, bounds(vec![10, 2500]))).await, [10, 2490, 500]);
    assert_eq!(shares(RowDivision::EqualShares).await, [1000, 1000, 1000]);
    let schema = batch(None, "", "", None).schema();
    let rows = Arc::new(BroadcastExec::new(2, schema)) as Arc<dyn ExecutionPlan>;
    let targets = vec![target(12, 1000), target(13, 5), target(14, 0)];
    for division in [
        RowDivision::Ranges(0, bounds(vec![10])),
        RowDivision::Ranges(0, bounds(vec![10, 20, 30])),
        RowDivision::Ranges(3, bounds(vec![10, 20])),
    ] {
        let strange = InsertedRows { targets: targets.clone(), division, ..inserted() };
        assert!(InsertPagesExec::new(Arc::clone(&rows), strange).is_err());
    }
}

#[test]
fn in_load_order_each_tablet_gets_a_stretch_in_turn() {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..200_000));
    let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let shown = |before, rows: &RecordBatch| -> Vec<(usize, usize)> {
        in_turn(before, rows, 2).iter().map(|(to, part)| (*to, part.num_rows())).collect()
    };
    assert_eq!(shown(0, &rows), [(0, 65_536), (1, 65_536), (0, 65_536), (1, 3392)]);
    assert_eq!(shown(200_000, &rows.slice(0, 100_000)), [(1, 62_144), (0, 37_856)]);
    assert_eq!(shown(65_530, &rows.slice(0, 6)), [(0, 6)]);
}
