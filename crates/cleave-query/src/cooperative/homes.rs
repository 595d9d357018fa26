//! The homes of a fragment's pages: what it reads of its inputs in, the segments that lie on other devices than the one
//! that runs it out.
//!
//! Where a statement names the devices that compute, one may run a fragment over pages of others. It must know of each
//! segment where it lies. A current copy of a mirror has the pages of that at the same places, as its own. Source: CORD
//! (prescriptive execution).

use std::collections::{BTreeMap, BTreeSet};

use cleave_catalog::catalog::DeviceId;
use cleave_catalog::error::Result;
use cleave_engine::device::Device;
use cleave_fragment::command::PageHome;
use cleave_fragment::link::AttachMode;
use cleave_fragment::{IndexFilter, Morsel};
use cleave_store::SegmentId;

use super::fragment_exec::{FragmentExec, FragmentPart};
use crate::select::{StatementContext, StatementInput};

/// The homes of what `device` is to read elsewhere: of the segments of `morsels` and `index_filters`, which are of
/// `inputs`.
///
/// # Errors
/// For a device that is not attached; a catalog version never names one.
pub(super) fn homes(
    context: &StatementContext,
    device: &Device,
    inputs: &[(u32, StatementInput)],
    (morsels, index_filters): (&[Vec<Morsel>], &[IndexFilter]),
) -> Result<Vec<PageHome>> {
    let places = inputs.iter().flat_map(|(_, input)| {
        let heap = input.input.segments().map(|(home, segment)| (segment.segment, home));
        heap.chain(input.input.index_segments().map(|(home, segment)| (segment, home)))
    });
    let elsewhere = places.filter(|(_, home)| *home != device.id());
    let mut elsewhere: BTreeMap<SegmentId, DeviceId> = elsewhere.collect();
    let others: BTreeSet<DeviceId> = elsewhere.values().copied().collect();
    let mirrors = others.into_iter().filter(|home| is_copy(context, device, *home));
    let mirrors: BTreeSet<DeviceId> = mirrors.collect();
    elsewhere.retain(|_, home| !mirrors.contains(&*home));
    let runs = index_filters.iter().flat_map(|filter| &filter.parts).flat_map(|part| &part.runs);
    let read = morsels.iter().flatten().map(|morsel| morsel.segment.segment);
    let read = read.chain(runs.map(|run| run.segment.segment));
    let mut homes: BTreeMap<DeviceId, BTreeSet<SegmentId>> = BTreeMap::new();
    for segment in read.filter(|segment| !segment.is_shipped()) {
        if let Some(home) = elsewhere.get(&segment) {
            homes.entry(*home).or_default().insert(segment);
        }
    }
    let named = homes.into_iter().map(|(home, segments)| {
        let home = context.database().attached(home)?;
        let segments = segments.into_iter().collect();
        Ok(PageHome { device: home.entry().identity, segments })
    });
    named.collect()
}

/// Whether `device` has the pages of `home`, a mirror.
fn is_copy(context: &StatementContext, device: &Device, home: DeviceId) -> bool {
    context.database().attached(home).is_ok_and(|home| home.has_current_copy(device.id()))
}

impl FragmentPart {
    /// Names of the other devices on which pages of it lie.
    pub(super) fn homes(&self, context: &StatementContext) -> Vec<String> {
        let pages = self.inputs.iter().flat_map(|(_, input)| input.input.entries());
        let homes: BTreeSet<DeviceId> = pages.map(|(home, _)| home).collect();
        let others = homes
            .into_iter()
            .filter(|home| *home != self.device.id() && !is_copy(context, &self.device, *home));
        let named = others.filter_map(|home| context.database().attached(home).ok());
        named.map(|home| home.name().to_owned()).collect()
    }

    /// Whether pages of it lie on a mirror, so that another copy may have what its device has not.
    pub(super) fn is_mirrored(&self, context: &StatementContext) -> bool {
        let mut homes = self.inputs.iter().flat_map(|(_, input)| input.input.devices());
        homes.any(|home| context.database().attached(home).is_ok_and(|home| home.is_mirror()))
    }

    /// Whether its device reads pages of its own alone, and none of a mirror.
    pub(super) fn is_at_home(&self) -> bool {
        let mut pages = self.inputs.iter().flat_map(|(_, input)| input.input.entries());
        pages.all(|(home, _)| home == self.device.id())
    }
}

impl FragmentExec {
    /// The devices that run the fragment, and where pages lie that are not their own.
    pub(crate) fn devices_and_homes(&self) -> String {
        let parts = self.parts.iter().filter(|part| part.on_device);
        let names = parts.map(|part| match part.homes(&self.context).as_slice() {
            [] => part.device.name().to_owned(),
            homes => format!("{} (pages of {})", part.device.name(), homes.join(", ")),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Whether none of these devices is behind a link.
    pub(crate) fn is_in_memory(&self) -> bool {
        let mut parts = self.parts.iter().filter(|part| part.on_device);
        parts.all(|part| part.device.mode() == AttachMode::Embedded)
    }

    /// The devices whose parts the host runs.
    pub(crate) fn names_on_host(&self) -> String {
        let parts = self.parts.iter().filter(|part| !part.on_device);
        parts.map(|part| part.device.name()).collect::<Vec<_>>().join(", ")
    }
}
