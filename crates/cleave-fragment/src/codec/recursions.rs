//! The wire form of a [`RecursionExec`] and of the [`WorkingTableExec`] in its recursive term.
//!
//! A reference names its recursion. [`RecursionExec::new`] checks that both have the same columns, and the decoder of
//! the whole fragment that no reference is without its recursion.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_proto::protobuf;
use prost::Message;

use crate::broadcast::unsendable;
use crate::operators::recursion_exec::{RecursionExec, WorkingTableExec};

/// See the [module](self).
#[derive(Clone, PartialEq, Message)]
pub(super) struct RecursionNode {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    schema: Option<protobuf::Schema>,
    #[prost(bool, tag = "3")]
    is_distinct: bool,
}

/// See the [module](self).
#[derive(Clone, PartialEq, Message)]
pub(super) struct WorkingTableNode {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    schema: Option<protobuf::Schema>,
    #[prost(uint32, repeated, tag = "3")]
    columns: Vec<u32>,
}

pub(super) fn encode(exec: &RecursionExec) -> Result<RecursionNode> {
    let schema = Some(exec.schema().as_ref().try_into()?);
    Ok(RecursionNode {
        name: exec.query_name().to_owned(),
        schema,
        is_distinct: exec.is_distinct(),
    })
}

pub(super) fn encode_leaf(exec: &WorkingTableExec) -> Result<WorkingTableNode> {
    let number = |place: &usize| {
        u32::try_from(*place).map_err(|_| DataFusionError::Plan("a column beyond 2^32".into()))
    };
    Ok(WorkingTableNode {
        name: exec.query_name().to_owned(),
        schema: Some(exec.schema().as_ref().try_into()?),
        columns: exec.columns().iter().map(number).collect::<Result<_>>()?,
    })
}

pub(super) fn decode(
    node: RecursionNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = decode_schema(node.schema.as_ref())?;
    let terms = <[Arc<dyn ExecutionPlan>; 2]>::try_from(inputs.to_vec()).map_err(|inputs| {
        let count = inputs.len();
        DataFusionError::Plan(format!("fragment refused: a recursion of {count} terms"))
    })?;
    Ok(Arc::new(RecursionExec::new(node.name, schema, terms, node.is_distinct)?))
}

pub(super) fn decode_leaf(node: WorkingTableNode) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = decode_schema(node.schema.as_ref())?;
    let columns = node.columns.iter().map(|place| usize::try_from(*place).unwrap_or(usize::MAX));
    Ok(Arc::new(WorkingTableExec::new(node.name, columns.collect(), schema)?))
}

fn decode_schema(schema: Option<&protobuf::Schema>) -> Result<SchemaRef> {
    let refused =
        |what: String| DataFusionError::Plan(format!("fragment refused: a recursion {what}"));
    let schema = schema.ok_or_else(|| refused("without its columns".to_owned()))?;
    let schema: SchemaRef = Arc::new(schema.try_into()?);
    match unsendable(&schema) {
        Some(reason) => Err(refused(format!("whose {reason}"))),
        None => Ok(schema),
    }
}
