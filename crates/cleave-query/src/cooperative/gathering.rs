//! The engines that gather the rows of their storage nodes: of each node one, its *gatherer*, which takes the rows of
//! all engines there and sends the host what it makes of them.
//!
//! ```text
//!   host      merges what comes of n1 and n2
//!   n1, n2      gatherers: n1:b of n1:a and n1:b; n2:c of n2:c
//!   devices       the fragment over the pages of n1:a, of n1:b, of n2:c
//! ```
//!
//! The processor of the node's engines is the node's own, so that its memory and its core are those of one of them. It
//! runs as the consumers of an [exchange](super::exchanges) do, whose rows come of its node alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::DeviceId;
use cleave_engine::device::Device;

use super::fragment_exec::FragmentExec;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Gatherer {
    /// The name of the node.
    pub node: String,
    /// The engine.
    pub device: Arc<Device>,
    /// The engines of the node that send it their rows, of which it is one.
    pub engines: BTreeSet<DeviceId>,
}

/// The nodes and engines of `gatherers`, in words.
pub(super) fn described(gatherers: &[Gatherer]) -> String {
    let of_node = |own: &Gatherer| format!("node={} at {}", own.node, own.device.name());
    gatherers.iter().map(of_node).collect::<Vec<_>>().join(", ")
}

/// Pages that `fragment` reads on `device`.
pub(crate) fn pages_at(fragment: &FragmentExec, device: &Device) -> usize {
    let own = fragment.parts.iter().filter(|part| part.device.id() == device.id());
    own.flat_map(|part| &part.inputs).map(|(_, input)| input.input.pages_left()).sum()
}
