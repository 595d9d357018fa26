//! The blocks of a segment as the manifest lists them: those of its pages, in as few extents as possible.

use std::sync::Arc;

use cleave_media::{BlockAddress, Extent};
use cleave_store::SegmentDirectory;

use crate::catalog::proto;

/// The blocks of the pages of `segment`, ascending, neighbours joined.
pub(super) fn joined(segment: &SegmentDirectory) -> Arc<[Extent]> {
    let mut extents: Vec<Extent> = segment.extents().collect();
    extents.sort_unstable();
    let mut joined: Vec<Extent> = Vec::new();
    for extent in extents {
        let last = joined.last_mut().filter(|last| last.end() == extent.start);
        match last.and_then(|last| Some((last.block_count.checked_add(extent.block_count)?, last)))
        {
            Some((block_count, last)) => last.block_count = block_count,
            None => joined.push(extent),
        }
    }
    joined.into()
}

/// The message for a manifest.
pub(in crate::catalog) fn encode(extents: &[Extent]) -> proto::Blocks {
    let mut end = 0;
    let pairs = extents.iter().flat_map(|extent| {
        let gap = extent.start.0.saturating_sub(end);
        end = extent.end().0;
        [gap, u64::from(extent.block_count)]
    });
    proto::Blocks { gaps_and_lengths: pairs.collect() }
}

/// Reads what [`encode`] wrote; None if it is invalid.
pub(in crate::catalog) fn decode(blocks: &proto::Blocks) -> Option<Arc<[Extent]>> {
    let mut end: u64 = 0;
    let mut extents = Vec::with_capacity(blocks.gaps_and_lengths.len() / 2);
    for pair in blocks.gaps_and_lengths.chunks(2) {
        let &[gap, length] = pair else { return None };
        let start = end.checked_add(gap)?;
        let block_count = u32::try_from(length).ok().filter(|count| *count > 0)?;
        end = start.checked_add(length)?;
        extents.push(Extent { start: BlockAddress(start), block_count });
    }
    Some(extents.into())
}
