//! The wire form of an [`InsertPagesExec`].

use std::sync::Arc;

use cleave_store::{AbsentValues, PageClass, SegmentRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_proto::protobuf;
use prost::Message;

use super::projections::{decode_projection, named_columns};
use crate::operators::insert_pages_exec::{InsertPagesExec, InsertedRows};

/// See the [module](self).
#[derive(Clone, PartialEq, Message)]
pub(super) struct InsertPagesNode {
    #[prost(message, optional, tag = "1")]
    segment: Option<cleave_store::proto::SegmentRef>,
    #[prost(uint32, tag = "2")]
    page_bytes: u32,
    #[prost(uint32, tag = "3")]
    chunk_alignment: u32,
    #[prost(uint32, tag = "4")]
    row_count_max: u32,
    #[prost(uint64, tag = "5")]
    vid_first: u64,
    #[prost(uint32, repeated, tag = "6")]
    columns: Vec<u32>,
    #[prost(message, optional, tag = "7")]
    schema: Option<protobuf::Schema>,
    #[prost(bool, tag = "8")]
    replaces: bool,
}

pub(super) fn encode(exec: &InsertPagesExec) -> Result<InsertPagesNode> {
    let InsertedRows { segment, class, vid_first, columns, replaces } = exec.inserted();
    Ok(InsertPagesNode {
        segment: Some(segment.into()),
        page_bytes: class.page_bytes,
        chunk_alignment: class.chunk_alignment,
        row_count_max: class.row_count_max,
        vid_first: *vid_first,
        columns: named_columns(columns)?,
        schema: Some(columns.schema.as_ref().try_into()?),
        replaces: *replaces,
    })
}

pub(super) fn decode(
    node: InsertPagesNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let (Some(segment), [rows]) = (node.segment.map(SegmentRef::from), inputs) else {
        return Err(DataFusionError::Plan("pages to be inserted without segment or rows".into()));
    };
    let absent = AbsentValues::default();
    let columns = decode_projection("inserted", node.columns, node.schema.as_ref(), &absent)?;
    let inserted = InsertedRows {
        segment,
        class: PageClass {
            page_bytes: node.page_bytes,
            chunk_alignment: node.chunk_alignment,
            row_count_max: node.row_count_max,
        },
        vid_first: node.vid_first,
        columns,
        replaces: node.replaces,
    };
    Ok(Arc::new(InsertPagesExec::new(Arc::clone(rows), inserted)?))
}
