//! The wire form of a [`WriteRowsExec`].

use std::sync::Arc;

use cleave_store::{PageClass, SegmentRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_plan::ExecutionPlan;
use prost::Message;

use crate::operators::write_rows_exec::{WriteRowsExec, WrittenSegment};

/// See the [module](self).
#[derive(Clone, PartialEq, Message)]
pub(super) struct WriteRowsNode {
    #[prost(message, optional, tag = "1")]
    segment: Option<cleave_store::proto::SegmentRef>,
    #[prost(uint32, repeated, tag = "2")]
    columns: Vec<u32>,
    #[prost(uint32, tag = "3")]
    page_bytes: u32,
    #[prost(uint32, tag = "4")]
    chunk_alignment: u32,
    #[prost(uint32, tag = "5")]
    row_count_max: u32,
}

pub(super) fn encode(exec: &WriteRowsExec) -> WriteRowsNode {
    let WrittenSegment { segment, class, columns } = exec.written();
    WriteRowsNode {
        segment: Some(segment.into()),
        columns: columns.clone(),
        page_bytes: class.page_bytes,
        chunk_alignment: class.chunk_alignment,
        row_count_max: class.row_count_max,
    }
}

pub(super) fn decode(
    node: WriteRowsNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let WriteRowsNode { segment, columns, page_bytes, chunk_alignment, row_count_max } = node;
    let (Some(segment), [rows]) = (segment.map(SegmentRef::from), inputs) else {
        return Err(DataFusionError::Plan("pages to be written without segment or rows".into()));
    };
    let class = PageClass { page_bytes, chunk_alignment, row_count_max };
    let written = WrittenSegment { segment, class, columns };
    Ok(Arc::new(WriteRowsExec::new(Arc::clone(rows), written)?))
}
