//! How the devices reach each other on which the pages of a fragment lie: an execute with [homes](super::homes) in, the
//! grants out that its device shows to them.
//!
//! Devices of one node need none. Others read over a link of their own, and a grant lets them: of the pages that the
//! statement's snapshot has on the home, and that this fragment reads, and of no others. A home that cannot be reached
//! so is not listed, so that the device refuses the fragment, and the host runs it.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_engine::device::{Device, DeviceGrant};
use cleave_fragment::command::{Execute, PageHome, Peer, PeerWay};
use cleave_media::Extent;
use cleave_store::SHIPPED_START;
use futures::future::join_all;

use crate::select::{StatementContext, StatementInput};

/// The grants for one run. They end when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct PeerGrants {
    _given: Vec<DeviceGrant>,
}

impl PeerGrants {
    /// Lets `computer` read the pages of `request` that lie at homes of other nodes, which are among those of `inputs`,
    /// and says in the request how they are reached.
    pub(super) async fn give(
        context: &StatementContext,
        computer: &Device,
        inputs: &[(u32, StatementInput)],
        request: &mut Execute,
    ) -> Self {
        if request.homes.is_empty() {
            return Self::default();
        }
        let homes = homes_among(context, inputs);
        let at_homes = request.homes.iter().filter_map(|at_home| {
            let is_it = |home: &&Arc<Device>| home.entry().identity == at_home.device;
            Some((homes.iter().find(is_it)?, at_home))
        });
        let giving = at_homes.map(|(home, at_home)| {
            let extents = extents_at(home, at_home, inputs, request);
            async move {
                if is_of_one_node(home, computer).await {
                    return None;
                }
                // Whatever is wrong, the host will see when it reads there itself.
                let (address, given) = home.grant(computer, extents, Vec::new()).await.ok()??;
                Some((Peer { device: at_home.device, way: PeerWay::Link(address) }, given))
            }
        });
        let given = join_all(giving).await;
        let (peers, given) = given.into_iter().flatten().unzip();
        request.peers = peers;
        Self { _given: given }
    }
}

/// The devices on which pages of `inputs` lie, and of the indexes that filter them.
fn homes_among(context: &StatementContext, inputs: &[(u32, StatementInput)]) -> Vec<Arc<Device>> {
    let ids: BTreeSet<_> = inputs
        .iter()
        .flat_map(|(_, input)| {
            let heap = input.input.entries().map(|(home, _)| home);
            heap.chain(input.input.index_segments().map(|(home, _)| home))
        })
        .collect();
    ids.into_iter().filter_map(|id| context.database().attached(id).ok()).collect()
}

/// Where the pages lie that `request` reads at `home`: of `inputs`, and of the indexes that filter them.
fn extents_at(
    home: &Device,
    at_home: &PageHome,
    inputs: &[(u32, StatementInput)],
    request: &Execute,
) -> Vec<Extent> {
    let entries = inputs.iter().flat_map(|(_, input)| input.input.entries());
    let entries = entries.filter(|(lies_on, _)| *lies_on == home.id());
    let heap = entries.flat_map(|(_, entry)| {
        let overflow = entry.overflow.iter().map(|page| page.extent);
        std::iter::once(entry.page.extent).chain(entry.shared.iter().copied()).chain(overflow)
    });
    let parts = request.index_filters.iter().flat_map(|filter| &filter.parts);
    let runs = parts.flat_map(|part| &part.runs);
    let runs = runs.filter(|run| at_home.segments.contains(&run.segment.segment));
    let index = runs.flat_map(|run| run.pages.iter().map(|page| page.extent));
    heap.chain(index).filter(|extent| extent.start < SHIPPED_START).collect()
}

/// Whether the two are engines of one node, which read each other's media.
pub(super) async fn is_of_one_node(one: &Device, other: &Device) -> bool {
    let (Ok(one), Ok(other)) = (one.identity().await, other.identity().await) else { return false };
    !one.node.is_empty() && one.node == other.node
}
