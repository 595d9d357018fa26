//! Rows of other devices survive the way to bytes and back; hostile descriptions of them are refused.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_physical_plan::{ExecutionPlanProperties, displayable};

use super::super::{FragmentNode, OperatorNode, decode_fragment, encode_fragment};
use super::*;
use crate::fragment::{unread_task_context, with_partitions};

fn leaf(fields: Vec<Field>) -> Arc<dyn ExecutionPlan> {
    Arc::new(PeerRowsExec::new(7, Arc::new(Schema::new(fields))))
}

#[test]
fn rows_of_other_devices_survive_the_way_to_bytes_and_back() {
    let texts = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let plan = leaf(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", texts, true),
        Field::new("price", DataType::Decimal128(10, 2), true),
    ]);
    let plan = with_partitions(plan, 3).unwrap();
    let bytes = encode_fragment(&plan).unwrap();
    let decoded = decode_fragment(&bytes, &unread_task_context().unwrap()).unwrap();
    assert_eq!(decoded.schema(), plan.schema());
    assert_eq!(decoded.downcast_ref::<PeerRowsExec>().unwrap().input(), 7);
    // How many partitions share them is decided where they are read.
    assert_eq!(decoded.output_partitioning().partition_count(), 1);
    let shown = displayable(decoded.as_ref()).indent(false).to_string();
    assert_eq!(shown.trim(), "PeerRowsExec: rows=7 of other devices");
}

#[test]
fn hostile_columns_are_refused() {
    let refusal = |node: PeerRowsNode| decode(node).unwrap_err().to_string();
    let text = refusal(PeerRowsNode { input: 1, schema: None });
    assert!(text.contains("without their columns"), "{text}");
    let wide = leaf(vec![Field::new("wide", DataType::FixedSizeBinary(i32::MAX), true)]);
    let wide = encode(wide.downcast_ref::<PeerRowsExec>().unwrap()).unwrap();
    let text = refusal(wide);
    assert!(text.contains("column \"wide\" has type"), "{text}");
    // Without a schema the node is empty but for its input: it is not taken for another operator.
    let node = PeerRowsNode { input: 1, schema: None };
    let node = FragmentNode { operator: Some(OperatorNode::PeerRows(node)) };
    let decoded = FragmentNode::decode(node.encode_to_vec().as_slice()).unwrap();
    assert_eq!(decoded, node);
}
