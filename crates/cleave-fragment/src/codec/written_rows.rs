//! The wire form of a [`WriteRowsExec`], and of the rows that a merge of runs leaves out.

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

/// Ranges of VIDs as steps: the distance from the end of one to the next, and its length.
pub(super) fn steps_of_gone(gone: &[(u64, u64)]) -> Vec<u64> {
    let ends = std::iter::once(0).chain(gone.iter().map(|(_, end)| *end));
    let steps = ends.zip(gone).flat_map(|(before, (first, end))| {
        [first.saturating_sub(before), end.saturating_sub(*first)]
    });
    steps.collect()
}

/// Decodes the steps of [`steps_of_gone`].
pub(super) fn gone_of_steps(steps: &[u64]) -> Result<Arc<[(u64, u64)]>> {
    let (pairs, rest) = steps.as_chunks::<2>();
    let mut end = 0_u64;
    let stretch = |[step, length]: &[u64; 2]| {
        let first = end.checked_add(*step)?;
        end = first.checked_add(*length)?;
        Some((first, end))
    };
    let gone: Option<Arc<[(u64, u64)]>> = pairs.iter().map(stretch).collect();
    gone.filter(|_| rest.is_empty()).ok_or_else(|| {
        DataFusionError::Plan("rows to be left out of an index that no table has".into())
    })
}
