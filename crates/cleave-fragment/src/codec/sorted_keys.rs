//! The wire form of [`SortKeysExec`].

use std::sync::Arc;

use datafusion_common::{DataFusionError, Result};
use datafusion_physical_plan::ExecutionPlan;
use prost::Message;

use crate::operators::sort_keys_exec::{KeyOrder, SortKeysExec};

/// Wire form of a [`SortKeysExec`].
#[derive(Clone, PartialEq, Message)]
pub(super) struct SortKeysNode {
    #[prost(message, repeated, tag = "1")]
    order: Vec<KeyOrderNode>,
    #[prost(bool, tag = "2")]
    unique: bool,
}

/// Wire form of a [`KeyOrder`].
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct KeyOrderNode {
    #[prost(bool, tag = "1")]
    descending: bool,
    #[prost(bool, tag = "2")]
    nulls_first: bool,
}

pub(super) fn encode(exec: &SortKeysExec) -> SortKeysNode {
    let order = exec
        .order()
        .iter()
        .map(|order| KeyOrderNode { descending: order.descending, nulls_first: order.nulls_first });
    SortKeysNode { order: order.collect(), unique: exec.is_unique() }
}

pub(super) fn decode(
    node: SortKeysNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let [rows] = inputs else {
        return Err(DataFusionError::Plan("keys to be sorted without their rows".into()));
    };
    let order = node
        .order
        .into_iter()
        .map(|order| KeyOrder { descending: order.descending, nulls_first: order.nulls_first });
    Ok(Arc::new(SortKeysExec::new(Arc::clone(rows), order.collect(), node.unique)?))
}
