//! Entries come out as an index sorts them, whatever order rows come in, and within the fragment's memory.

use arrow::array::{AsArray, Int64Array, StringArray, UInt64Array};
use arrow::datatypes::{Field, Schema, UInt64Type};
use datafusion_common::DataFusionError;
use datafusion_physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::TryStreamExt;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::codec::{decode_fragment, encode_fragment};
use crate::fragment::unread_task_context;
use crate::operators::broadcast_exec::BroadcastExec;

#[derive(Debug)]
struct Rows(Vec<RecordBatch>, SchemaRef);

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.1
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self.0.clone().into_iter().map(Ok);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.1), stream::iter(batches)))
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("kind", DataType::Int64, true),
        Field::new("note", DataType::Utf8, true),
        Field::new("vid", DataType::UInt64, false),
    ]))
}

const DESCENDING: KeyOrder = KeyOrder { descending: true, nulls_first: true };
const ASCENDING: KeyOrder = KeyOrder { descending: false, nulls_first: false };

type Row = (Option<i64>, Option<String>);

/// The entries of `rows`, two a batch, with VIDs from 100 on.
fn entries(rows: &[Row], unique: bool) -> Result<Vec<(Vec<u8>, u64)>> {
    let batch = |(place, rows): (usize, &[Row])| {
        let vids = (0..rows.len()).map(|row| 100 + (2 * place + row) as u64);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0))),
            Arc::new(StringArray::from_iter(rows.iter().map(|row| row.1.as_deref()))),
            Arc::new(UInt64Array::from_iter_values(vids)),
        ];
        RecordBatch::try_new(schema(), columns).unwrap()
    };
    let batches = rows.chunks(2).enumerate().map(batch).collect();
    let part = Arc::new(Rows(batches, schema())) as Arc<dyn PartitionStream>;
    let rows = StreamingTableExec::try_new(schema(), vec![part], None, [], false, None)?;
    let exec = SortKeysExec::new(Arc::new(rows), vec![DESCENDING, ASCENDING], unique)?;
    let stream = exec.execute(0, unread_task_context()?)?;
    let batches: Vec<RecordBatch> = futures::executor::block_on(stream.try_collect())?;
    let pairs = batches.iter().flat_map(|batch| {
        assert_eq!(batch.schema(), entry_schema());
        let keys = batch.column(0).as_binary::<i32>().iter().map(|key| key.unwrap().to_vec());
        keys.zip(batch.column(1).as_primitive::<UInt64Type>().values().iter().copied())
    });
    Ok(pairs.collect())
}

proptest! {
    #[test]
    fn entries_are_those_of_the_index_in_their_order(
        rows in vec((option::of(-3..3_i64), option::of("[ab]{0,9}")), 0..40),
        unique: bool,
    ) {
        let found = entries(&rows, unique).unwrap();
        prop_assert_eq!(found.len(), rows.len());
        prop_assert!(found.is_sorted());
        let columns = [(DataType::Int64, DESCENDING), (DataType::Utf8, ASCENDING)];
        let columns = columns.map(|(data_type, KeyOrder { descending, nulls_first })| {
            KeyColumn { data_type, descending, nulls_first }
        });
        let key = IndexKey::new(columns.to_vec(), unique).unwrap();
        let mut wanted = Vec::new();
        for (vid, (kind, note)) in (100..).zip(&rows) {
            let columns: [ArrayRef; 2] = [
                Arc::new(Int64Array::from(vec![*kind])),
                Arc::new(StringArray::from(vec![note.as_deref()])),
            ];
            wanted.push((key.entries(&columns, [vid]).unwrap().value(0).to_vec(), vid));
        }
        wanted.sort();
        prop_assert_eq!(found, wanted);
    }
}

#[test]
fn many_entries_come_in_several_batches() {
    let rows: Vec<Row> = (0..20_000).map(|row| (Some(row % 977), None)).collect();
    let found = entries(&rows, false).unwrap();
    assert_eq!(found.len(), rows.len());
    assert!(found.is_sorted());
}

#[test]
fn it_crosses_the_link_and_refuses_other_inputs() {
    let rows = || Arc::new(BroadcastExec::new(0, schema())) as Arc<dyn ExecutionPlan>;
    let exec = SortKeysExec::new(rows(), vec![DESCENDING, ASCENDING], true).unwrap();
    let plan = Arc::new(exec) as Arc<dyn ExecutionPlan>;
    let decoded =
        decode_fragment(&encode_fragment(&plan).unwrap(), &unread_task_context().unwrap());
    let decoded = decoded.unwrap();
    let decoded = decoded.downcast_ref::<SortKeysExec>().unwrap();
    assert_eq!((decoded.order(), decoded.is_unique()), (&[DESCENDING, ASCENDING][..], true));
    for order in [vec![], vec![ASCENDING], vec![ASCENDING; 3]] {
        let error = SortKeysExec::new(rows(), order, true).unwrap_err();
        assert!(matches!(error, DataFusionError::Plan(_)), "{error}");
    }
    let without = Schema::new(vec![Field::new("kind", DataType::Int64, true)]);
    let rows = Arc::new(BroadcastExec::new(0, Arc::new(without)));
    assert!(SortKeysExec::new(rows, vec![], true).is_err());
}
