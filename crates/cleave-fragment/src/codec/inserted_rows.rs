//! The wire form of an [`InsertPagesExec`].

use std::sync::Arc;

use cleave_store::{AbsentValues, PageClass, Projection, RangeBounds, SegmentRef};
use datafusion_common::{DataFusionError, Result, plan_err};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_proto::protobuf;
use prost::Message;

use super::projections::{decode_projection, named_columns};
use crate::operators::insert_pages_exec::{
    InsertPagesExec, InsertTarget, InsertedRows, RowDivision,
};
use crate::operators::table_scan_exec::scan_page::external;

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
    /// Places of the columns that divide the rows among the targets.
    #[prost(uint32, repeated, tag = "10")]
    key: Vec<u32>,
    /// The rows are divided in equal shares.
    #[prost(bool, tag = "11")]
    equal_shares: bool,
    /// The keys between the ranges of the only column of `key`; none: a hash of its columns decides.
    #[prost(bytes = "vec", repeated, tag = "12")]
    bounds: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TargetNode {
    #[prost(message, optional, tag = "1")]
    segment: Option<cleave_store::proto::SegmentRef>,
    #[prost(uint64, tag = "2")]
    vid_first: u64,
}

pub(super) fn encode(exec: &InsertPagesExec) -> Result<InsertPagesNode> {
    let InsertedRows { targets, division, class, columns, replaces } = exec.inserted();
    let Some((InsertTarget { segment, vid_first }, more)) = targets.split_first() else {
        return Err(DataFusionError::Plan("pages to be inserted have no segment".into()));
    };
    let more = more.iter().map(|target| TargetNode {
        segment: Some((&target.segment).into()),
        vid_first: target.vid_first,
    });
    let (key, bounds) = match division {
        RowDivision::LoadOrder | RowDivision::EqualShares => (Vec::new(), Vec::new()),
        RowDivision::Hash(places) => (places.clone(), Vec::new()),
        RowDivision::Ranges(place, bounds) => (vec![*place], bounds.keys().to_vec()),
    };
    let key = key.into_iter().map(u32::try_from).collect::<Result<_, _>>();
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
        equal_shares: *division == RowDivision::EqualShares,
        bounds,
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
    let division = division((node.key, node.equal_shares, node.bounds), &columns)?;
    let inserted = InsertedRows {
        targets,
        division,
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

/// How the rows with these `columns` are divided.
fn division(
    (key, equal_shares, bounds): (Vec<u32>, bool, Vec<Vec<u8>>),
    columns: &Projection,
) -> Result<RowDivision> {
    let key: Vec<usize> = key.into_iter().map(|place| place as usize).collect();
    match (key.first().copied(), equal_shares, bounds.is_empty()) {
        (None, false, true) => Ok(RowDivision::LoadOrder),
        (None, true, true) => Ok(RowDivision::EqualShares),
        (Some(_), false, true) => Ok(RowDivision::Hash(key)),
        (Some(place), false, false) if key.len() == 1 => {
            let Some(field) = columns.schema.fields().get(place) else {
                return plan_err!("rows to be inserted are divided by column {place}");
            };
            let bounds = RangeBounds::of_keys(field.data_type(), bounds).map_err(external)?;
            Ok(RowDivision::Ranges(place, bounds))
        }
        _ => plan_err!("rows to be inserted are divided in two ways"),
    }
}

#[cfg(test)]
mod tests;
