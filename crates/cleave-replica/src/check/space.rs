//! Checks the space on the devices: which page owns which blocks, and whether free ones are free.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::{CatalogState, DeviceEntry, DeviceId};
use cleave_engine::device::{Device, SpaceStatus};
use cleave_engine::storage_engine::Engine;
use cleave_media::Extent;
use cleave_store::SegmentId;

use super::{CheckReport, Fault, Place};

/// A page's blocks, and whose they are.
struct Owned<'a> {
    extent: Extent,
    table: &'a str,
    segment: SegmentId,
    page: u32,
    /// The device has it: it does not lie on a mirror of which the device is a stale copy.
    is_present: bool,
}

/// The newest catalog version, and how much of each device was in use at that moment.
pub(super) struct Moment {
    /// Held to the end of a check: what it names is not used again before (rule 30).
    pub(super) state: Arc<CatalogState>,
    spaces: Vec<(DeviceId, SpaceStatus)>,
}

/// Takes the catalog version between two statements that write.
pub(super) async fn moment(database: &Engine) -> Moment {
    let _turn = database.writer_lock().await;
    let space = |device: &Arc<Device>| (device.id(), device.space());
    Moment { state: database.catalog(), spaces: database.devices().iter().map(space).collect() }
}

/// Compares the extents of the catalog version with the media and with the map of free space; returns the devices that
/// do not answer. Pages of a mirror are on each of its copies.
pub(super) async fn check(
    database: &Engine,
    moment: &Moment,
    report: &mut CheckReport,
) -> BTreeSet<DeviceId> {
    let mut unreachable = BTreeSet::new();
    let Moment { state, spaces } = moment;
    for device in database.devices().into_iter().filter(|device| !device.is_mirror()) {
        let mut owned = owned(state, device.id());
        owned.sort_by_key(|owned| owned.extent);
        report.counts.blocks +=
            owned.iter().map(|owned| u64::from(owned.extent.block_count)).sum::<u64>();
        let place = |owned: &Owned<'_>| Place {
            table: Some(owned.table.to_owned()),
            segment: Some(owned.segment),
            page: Some(owned.page),
            device: Some(device.name().to_owned()),
            address: Some(owned.extent.start),
            ..Place::default()
        };
        let mut highest: Option<&Owned<'_>> = None;
        let mut overlaps = false;
        for page in &owned {
            if let Some(other) = highest.filter(|other| other.extent.overlaps(page.extent)) {
                overlaps = true;
                let (table, segment, number) = (other.table, other.segment, other.page);
                let fault = format!(
                    "its {} are also those of page {number} of {segment} of table \"{table}\"",
                    page.extent
                );
                report.findings.add(place(page), Fault::Space(fault));
            }
            if highest.is_none_or(|other| other.extent.end() < page.extent.end()) {
                highest = Some(page);
            }
        }
        if owned.is_empty() {
            continue;
        }
        let named: u64 = owned.iter().map(|owned| u64::from(owned.extent.block_count)).sum();
        let space = spaces.iter().find(|(id, _)| *id == device.id()).map(|(_, space)| *space);
        if let Some(space) = space.filter(|_| !overlaps && database.may_write())
            && space.used_blocks < named
        {
            let fault = format!(
                "{named} blocks belong to pages, and only {} are known to be taken: the others may be overwritten",
                space.used_blocks
            );
            let place = Place { device: Some(device.name().to_owned()), ..Place::default() };
            report.findings.add(place, Fault::Space(fault));
        }
        match device.block_count().await {
            Ok(block_count) => {
                let present = owned.iter().filter(|page| page.is_present);
                for page in present.filter(|page| page.extent.end().0 > block_count) {
                    let fault = format!(
                        "its {} lie beyond the media, which has {block_count} blocks",
                        page.extent
                    );
                    report.findings.add(place(page), Fault::Space(fault));
                }
            }
            Err(error) => {
                let place = Place { device: Some(device.name().to_owned()), ..Place::default() };
                report.findings.add(place, Fault::Unreachable(error.to_string()));
                unreachable.insert(device.id());
            }
        }
    }
    unreachable
}

fn owned(state: &CatalogState, device: DeviceId) -> Vec<Owned<'_>> {
    let mut owned = Vec::new();
    let places: BTreeSet<DeviceId> = state.places_on(device).collect();
    for table in state.tables() {
        for tablet in table.tablets.iter().filter(|tablet| places.contains(&tablet.device)) {
            let entry = state.devices.get(&tablet.device).and_then(DeviceEntry::mirror);
            let is_present = entry.is_none_or(|mirror| !mirror.is_stale(device));
            for segment in tablet.segments() {
                for entry in &segment.pages {
                    let overflow = entry.overflow.iter().map(|page| (page.page, page.extent));
                    let own = std::iter::once(&entry.page.extent).chain(&entry.shared);
                    let own = own.map(|extent| (entry.page.page, *extent));
                    owned.extend(own.chain(overflow).map(|(page, extent)| Owned {
                        extent,
                        table: &table.schema.name,
                        segment: segment.segment,
                        page,
                        is_present,
                    }));
                }
            }
        }
    }
    owned
}
