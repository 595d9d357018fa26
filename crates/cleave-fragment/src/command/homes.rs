//! Pages that a fragment reads and that do not lie on the media of the device that runs it.
//!
//! A host names the device on whose media a segment lies, its *home*: of the same node, or one that
//! [`Execute::peers`](super::Execute::peers) says how to reach. The device that runs the fragment reads the pages there
//! that came with the fragment, and no others; one that cannot reach a home refuses the fragment.

use cleave_store::SegmentId;

/// Segments on the media of another device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageHome {
    /// That device.
    pub device: [u8; 16],
    /// The segments, of inputs of the fragment and of the indexes that filter them; each has one home.
    pub segments: Vec<SegmentId>,
}

impl PageHome {
    /// Bytes of memory that a run holds for it.
    pub(super) fn held_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(self.segments.as_slice())
    }
}
