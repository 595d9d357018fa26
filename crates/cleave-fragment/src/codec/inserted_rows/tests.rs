//! A message that divides rows by what makes no sense is refused.

use arrow::array::{ArrayRef, Int32Array, Int64Array};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_store::{ColumnRef, SegmentId};

use super::*;
use crate::operators::broadcast_exec::BroadcastExec;

/// Rows of a number and a text for two targets, by ranges of the number.
fn node() -> (InsertPagesNode, Arc<dyn ExecutionPlan>) {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("note", DataType::Utf8, true),
    ]));
    let rows: Arc<dyn ExecutionPlan> = Arc::new(BroadcastExec::new(2, Arc::clone(&schema)));
    let target = |segment| InsertTarget {
        segment: SegmentRef {
            table_id: 7,
            segment: SegmentId(segment),
            schema_version: 1,
            commit: 3,
        },
        vid_first: 1,
    };
    let columns = vec![ColumnRef::User(1), ColumnRef::User(2)];
    let bounds = RangeBounds::of_keys(&DataType::Int64, keys(&[10])).unwrap();
    let inserted = InsertedRows {
        targets: vec![target(1), target(2)],
        division: RowDivision::Ranges(0, bounds),
        class: PageClass::BULK,
        columns: Projection::new(schema, columns),
        replaces: false,
    };
    let exec = InsertPagesExec::new(Arc::clone(&rows), inserted).unwrap();
    (encode(&exec).unwrap(), rows)
}

fn keys(values: &[i64]) -> Vec<Vec<u8>> {
    let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RangeBounds::keys_of(&values).unwrap()
}

#[test]
fn what_divides_rows_makes_sense() {
    let (node, rows) = node();
    let decoded = |node: InsertPagesNode| decode(node, &[Arc::clone(&rows)]);
    assert!(decoded(node.clone()).is_ok());
    let of_other_type: ArrayRef = Arc::new(Int32Array::from(vec![10]));
    for strange in [
        InsertPagesNode { equal_shares: true, ..node.clone() },
        InsertPagesNode { key: Vec::new(), ..node.clone() },
        InsertPagesNode { key: vec![0, 0], ..node.clone() },
        InsertPagesNode { key: vec![1], ..node.clone() },
        InsertPagesNode { key: vec![2], ..node.clone() },
        InsertPagesNode { bounds: keys(&[10, 20]), ..node.clone() },
        InsertPagesNode { bounds: keys(&[20, 10]), ..node.clone() },
        InsertPagesNode { bounds: vec![Vec::new()], ..node.clone() },
        InsertPagesNode { bounds: vec![vec![u8::MAX; 9]], ..node.clone() },
        InsertPagesNode { bounds: RangeBounds::keys_of(&of_other_type).unwrap(), ..node.clone() },
        InsertPagesNode { more_targets: Vec::new(), ..node },
    ] {
        assert!(decoded(strange.clone()).is_err(), "{strange:?}");
    }
}
