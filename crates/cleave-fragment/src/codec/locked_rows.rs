//! The wire form of a [`LockRowsExec`].

use std::sync::Arc;

use datafusion_common::{DataFusionError, Result};
use datafusion_physical_plan::ExecutionPlan;
use prost::Message;

use crate::operators::lock_rows_exec::{LockRowsExec, LockWaitPolicy, RowsToLock};

/// See the [module](self).
#[derive(Clone, PartialEq, Message)]
pub(super) struct LockRowsNode {
    #[prost(string, tag = "1")]
    table: String,
    #[prost(uint64, tag = "2")]
    object: u64,
    #[prost(uint32, tag = "3")]
    vid: u32,
    #[prost(uint32, tag = "4")]
    policy: u32,
    #[prost(uint64, tag = "5")]
    timeout_ms: u64,
}

pub(super) fn encode(exec: &LockRowsExec) -> Result<LockRowsNode> {
    let RowsToLock { table, object, vid, policy, timeout_ms } = exec.to_lock();
    let vid =
        u32::try_from(*vid).map_err(|_| DataFusionError::Plan("a column beyond 2^32".into()))?;
    Ok(LockRowsNode {
        table: table.clone(),
        object: *object,
        vid,
        policy: policy.code(),
        timeout_ms: *timeout_ms,
    })
}

pub(super) fn decode(
    node: LockRowsNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let LockRowsNode { table, object, vid, policy, timeout_ms } = node;
    let (Some(policy), [rows]) = (LockWaitPolicy::from_code(policy), inputs) else {
        let message = "rows to be locked without a way to wait, or without an input";
        return Err(DataFusionError::Plan(message.into()));
    };
    let vid = usize::try_from(vid).unwrap_or(usize::MAX);
    let to_lock = RowsToLock { table, object, vid, policy, timeout_ms };
    Ok(Arc::new(LockRowsExec::new(Arc::clone(rows), to_lock)?))
}
