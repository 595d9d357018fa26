//! Look-ups of pages, VIDs and segments.

use std::sync::Arc;

use cleave_media::{BlockAddress, Extent};

use super::Placement;
use crate::ids::SegmentId;
use crate::page::PageClass;
use crate::page_source::{PageRef, SegmentRef};
use crate::segment::{PageEntry, SegmentDirectory, SegmentKind};

/// A segment with pages of these (number, first VID, rows).
fn directory(segment: u32, pages: &[(u32, u64, u32)]) -> Arc<SegmentDirectory> {
    let segment =
        SegmentRef { table_id: 1, segment: SegmentId(segment), schema_version: 1, commit: 1 };
    let mut directory = SegmentDirectory::new(segment, SegmentKind::Heap, PageClass::BULK);
    let place = |page, row_count| PageRef {
        page,
        extent: Extent { start: BlockAddress(u64::from(page) * 8), block_count: 8 },
        row_count,
        checksum: 0,
    };
    directory.pages.extend(pages.iter().map(|(page, vid_first, rows)| PageEntry {
        page: place(*page, *rows),
        vid_first: *vid_first,
        gaps: Default::default(),
        overflow: vec![place(page + 1, 100)],
        shared: Vec::new(),
        zones: Vec::new(),
    }));
    Arc::new(directory)
}

#[test]
fn logical_pages_and_vids_are_found() {
    let directory = directory(1, &[(0, 100, 10), (2, 110, 65_536), (6, 70_000, 5)]);
    assert_eq!(directory.page(2).unwrap().page.row_count, 65_536);
    assert_eq!(directory.page(1), None, "overflow pages are no pages");
    assert_eq!(directory.page(2).unwrap().overflow_page(3).unwrap().page, 3);
    assert_eq!(directory.page(2).unwrap().overflow_page(1), None);
    let slot = |vid| directory.slot_of(vid).map(|(entry, slot)| (entry.page.page, slot));
    assert_eq!(slot(99), None);
    assert_eq!(slot(100), Some((0, 0)));
    assert_eq!(slot(109), Some((0, 9)));
    assert_eq!(slot(110), Some((2, 0)));
    assert_eq!(slot(65_645), Some((2, u16::MAX)));
    assert_eq!(slot(65_646), None, "a gap");
    assert_eq!(slot(70_004), Some((6, 4)));
    assert_eq!(slot(70_005), None);
    assert_eq!(directory.pages[2].vids(), (70_000, 5));
}

#[test]
fn segments_are_found_and_listed_in_order() {
    let mut placement = Placement::new();
    placement.insert(directory(2, &[(0, 900, 3)]));
    placement.insert(directory(1, &[(0, 0, 10), (2, 10, 10)]));
    assert_eq!(placement.segment(SegmentId(2)).unwrap().row_count(), 3);
    assert_eq!(placement.segment(SegmentId(3)), None);
    let numbers: Vec<_> = placement.segments().map(|directory| directory.segment.0).collect();
    assert_eq!(numbers, [1, 2]);
}
