//! What a host believes of a device that has changed pages: shared blocks, and the columns of zones.

use arrow::buffer::BooleanBuffer;
use cleave_fragment::ChangedPage;
use cleave_media::{BlockAddress, Extent};
use cleave_store::{PageEntry, PageRef, ZoneEntry};

use super::version_of;

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

fn zone(column: u32, null_count: u32) -> ZoneEntry {
    ZoneEntry { column, null_count, min: None, max: None }
}

fn entry(place: Extent, shared: Vec<Extent>, zones: Vec<ZoneEntry>) -> PageEntry {
    PageEntry {
        page: PageRef { page: 3, extent: place, row_count: 10, checksum: 1 },
        vid_first: 1,
        gaps: Default::default(),
        overflow: Vec::new(),
        shared,
        zones,
    }
}

fn changed(entry: PageEntry) -> ChangedPage {
    ChangedPage { entry, slots: BooleanBuffer::new_set(10) }
}

#[test]
fn a_version_shares_blocks_of_its_page_alone() {
    let old = entry(extent(10, 8), vec![extent(40, 2)], vec![zone(1, 0), zone(2, 0), zone(3, 0)]);
    let shared = vec![extent(12, 3), extent(40, 1)];
    let new = entry(extent(100, 2), shared.clone(), vec![zone(2, 7)]);
    let version = version_of(&old, &[2], changed(new)).unwrap();
    assert_eq!((version.page.extent, &version.shared), (extent(100, 2), &shared));
    assert_eq!(version.zones, [zone(1, 0), zone(2, 7), zone(3, 0)]);
    for shared in
        [vec![extent(9, 2)], vec![extent(17, 2)], vec![extent(41, 2)], vec![extent(70, 1)]]
    {
        let new = entry(extent(100, 2), shared.clone(), vec![zone(2, 7)]);
        assert!(version_of(&old, &[2], changed(new)).is_err(), "{shared:?}");
    }
    // Zones decide which pages a reader leaves out.
    for zones in [vec![], vec![zone(1, 7)], vec![zone(2, 7), zone(2, 7)]] {
        let new = entry(extent(100, 2), Vec::new(), zones.clone());
        assert!(version_of(&old, &[2], changed(new)).is_err(), "{zones:?}");
    }
}
