//! The wire form of a [`PeerRowsExec`]: the number of its input, and the columns that it expects.
//!
//! Invariant: decoded columns have types that slots carry.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_proto::protobuf;
use prost::Message;

use crate::broadcast::unsendable;
use crate::operators::peer_rows::PeerRowsExec;

/// See the [module](self).
#[derive(Clone, PartialEq, Message)]
pub(super) struct PeerRowsNode {
    #[prost(uint32, tag = "1")]
    input: u32,
    #[prost(message, optional, tag = "2")]
    schema: Option<protobuf::Schema>,
}

pub(super) fn encode(exec: &PeerRowsExec) -> Result<PeerRowsNode> {
    let schema = Some(exec.schema().as_ref().try_into()?);
    Ok(PeerRowsNode { input: exec.input(), schema })
}

pub(super) fn decode(node: PeerRowsNode) -> Result<Arc<dyn ExecutionPlan>> {
    let refused = |what: String| {
        DataFusionError::Plan(format!("fragment refused: rows of other devices {what}"))
    };
    let schema = node.schema.as_ref().ok_or_else(|| refused("without their columns".to_owned()))?;
    let schema: SchemaRef = Arc::new(schema.try_into()?);
    match unsendable(&schema) {
        Some(reason) => Err(refused(format!("whose {reason}"))),
        None => Ok(Arc::new(PeerRowsExec::new(node.input, schema))),
    }
}

#[cfg(test)]
mod tests;
