//! The wire form of a [`ChangePagesExec`].

use std::sync::Arc;

use datafusion_common::{DataFusionError, Result};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_proto::protobuf;
use prost::Message;

use super::projections::{
    AbsentNode, decode_absent, decode_projection, encode_absent, named_columns,
};
use crate::operators::change_pages_exec::{ChangePagesExec, ChangedColumns};

/// See the [module](self).
#[derive(Clone, PartialEq, Message)]
pub(super) struct ChangePagesNode {
    #[prost(uint32, tag = "1")]
    input: u32,
    #[prost(uint32, repeated, tag = "2")]
    columns: Vec<u32>,
    #[prost(message, optional, tag = "3")]
    schema: Option<protobuf::Schema>,
    #[prost(message, repeated, tag = "4")]
    absent: Vec<AbsentNode>,
    #[prost(uint32, optional, tag = "5")]
    returned: Option<u32>,
}

pub(super) fn encode(exec: &ChangePagesExec) -> Result<ChangePagesNode> {
    let ChangedColumns { input, columns, returned } = exec.changed();
    Ok(ChangePagesNode {
        input: *input,
        columns: named_columns(columns)?,
        schema: Some(columns.schema.as_ref().try_into()?),
        absent: encode_absent(&[columns]),
        returned: *returned,
    })
}

pub(super) fn decode(
    node: ChangePagesNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let [rows] = inputs else {
        return Err(DataFusionError::Plan("pages to be changed without rows".into()));
    };
    let absent = decode_absent(node.absent);
    let columns = decode_projection("changed", node.columns, node.schema.as_ref(), &absent)?;
    let changed = ChangedColumns { input: node.input, columns, returned: node.returned };
    Ok(Arc::new(ChangePagesExec::new(Arc::clone(rows), changed)?))
}
