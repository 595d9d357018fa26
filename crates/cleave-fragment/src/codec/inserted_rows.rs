//! The wire form of an [`InsertPagesExec`].

use std::sync::Arc;

use cleave_store::{AbsentValues, PageClass, SegmentRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_proto::protobuf;
use prost::Message;

use super::projections::{decode_projection, named_columns};
use crate::operators::insert_pages_exec::{InsertPagesExec, InsertTarget, InsertedRows};

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
    /// Of the targets behind the first: `segment` and `vid_first`.
    #[prost(message, repeated, tag = "9")]
    more_targets: Vec<TargetNode>,
    #[prost(uint32, repeated, tag = "10")]
    key: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TargetNode {
    #[prost(message, optional, tag = "1")]
    segment: Option<cleave_store::proto::SegmentRef>,
    #[prost(uint64, tag = "2")]
    vid_first: u64,
}

pub(super) fn encode(exec: &InsertPagesExec) -> Result<InsertPagesNode> {
    let InsertedRows { targets, key, class, columns, replaces } = exec.inserted();
    let Some((InsertTarget { segment, vid_first }, more)) = targets.split_first() else {
        return Err(DataFusionError::Plan("pages to be inserted have no segment".into()));
    };
    let more = more.iter().map(|target| TargetNode {
        segment: Some((&target.segment).into()),
        vid_first: target.vid_first,
    });
    let key = key.iter().map(|place| u32::try_from(*place)).collect::<Result<_, _>>();
    Ok(InsertPagesNode {
        segment: Some(segment.into()),
        page_bytes: class.page_bytes,
        chunk_alignment: class.chunk_alignment,
        row_count_max: class.row_count_max,
        vid_first: *vid_first,
        columns: named_columns(columns)?,
        schema: Some(columns.schema.as_ref().try_into()?),
        replaces: *replaces,
        more_targets: more.collect(),
        key: key.map_err(|error| DataFusionError::External(Box::new(error)))?,
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
    let mut targets = vec![InsertTarget { segment, vid_first: node.vid_first }];
    for TargetNode { segment, vid_first } in node.more_targets {
        let Some(segment) = segment.map(SegmentRef::from) else {
            return Err(DataFusionError::Plan("pages to be inserted without a segment".into()));
        };
        targets.push(InsertTarget { segment, vid_first });
    }
    let key = node.key.into_iter().map(|place| place as usize).collect();
    let inserted = InsertedRows {
        targets,
        key,
        class: PageClass {
            page_bytes: node.page_bytes,
            chunk_alignment: node.chunk_alignment,
            row_count_max: node.row_count_max,
        },
        columns,
        replaces: node.replaces,
    };
    Ok(Arc::new(InsertPagesExec::new(Arc::clone(rows), inserted)?))
}
