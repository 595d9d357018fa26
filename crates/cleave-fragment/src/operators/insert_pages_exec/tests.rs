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

/// A NOT NULL number, and two texts.
fn inserted() -> InsertedRows {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("code", DataType::Utf8, true),
        Field::new("note", DataType::Utf8, true),
    ]);
    let columns = (1..=3).map(ColumnRef::User).collect();
    InsertedRows {
        segment: SegmentRef { table_id: 7, segment: SegmentId(12), schema_version: 1, commit: 3 },
        class: PageClass::HOT,
        vid_first: 1000,
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
