//! Morsels: small pages are gathered by the bytes that reading them takes.

use cleave_catalog::catalog::TabletState;
use cleave_catalog::catalog::division::Division;
use cleave_media::{BlockAddress, Extent};
use cleave_store::{
    Column, ColumnType, PageClass, PageEntry, PageRef, SegmentId, SegmentKind, SegmentRef,
    TableSchema, TabletId, VersionMap,
};

use super::*;

/// A table of three pages of 16 KiB, each with long values in `overflow_blocks` blocks.
fn input(overflow_blocks: u32) -> PlannedInput {
    let place = |page: u32, start: u64, block_count: u32| PageRef {
        page,
        extent: Extent { start: BlockAddress(start), block_count },
        row_count: 10,
        checksum: 0,
    };
    let reference = SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 0 };
    let mut segment = SegmentDirectory::new(reference, SegmentKind::Heap, PageClass::HOT);
    segment.pages = (0..3_u32)
        .map(|page| {
            let start = u64::from(page) * 1000;
            let long = (overflow_blocks > 0).then(|| place(100 + page, start + 4, overflow_blocks));
            PageEntry {
                page: place(page, start, 4),
                vid_first: 1 + u64::from(page) * 10,
                gaps: Default::default(),
                overflow: long.into_iter().collect(),
                shared: Vec::new(),
                zones: Vec::new(),
            }
        })
        .collect();
    let column = Column {
        id: 1,
        name: "body".to_owned(),
        column_type: ColumnType::Text,
        not_null: false,
        default: None,
        absent: None,
    };
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "t".to_owned(),
        columns: vec![column],
        primary_key: Vec::new(),
    };
    let tablet = TabletState {
        id: TabletId(0),
        device: DeviceId(0),
        next_vid: 31,
        vids_skipped: 0,
        heap: vec![Arc::new(segment)],
        rewrites: Default::default(),
        version_map: Arc::new(VersionMap::new()),
        indexes: Vec::new(),
    };
    let (schema, tablets) = (Arc::new(schema), vec![Arc::new(tablet)]);
    let table = TableState {
        schema,
        indexes: Vec::new(),
        tablets,
        division: Division::LoadOrder,
        damaged: Vec::new(),
        rules: Arc::default(),
        materialized: None,
        is_balanced: false,
    };
    PlannedInput::new(Arc::new(table))
}

#[test]
fn long_values_count_for_a_morsel() {
    let pages = |overflow_blocks| -> Vec<usize> {
        input(overflow_blocks).morsels().iter().map(|morsel| morsel.pages.len()).collect()
    };
    assert_eq!(pages(0), [3]);
    assert_eq!(pages(100), [2, 1], "416 KiB each");
    assert_eq!(pages(200), [1, 1, 1], "816 KiB each");
}

#[test]
fn devices_take_pages_in_turns() {
    let (input, takers) = (input(0), [(DeviceId(0), vec![DeviceId(4), DeviceId(2)])]);
    let takers = BTreeMap::from(takers);
    let taken = |device: u32| -> (Vec<u64>, usize) {
        let part = input.taken_by(DeviceId(device), &takers);
        (part.entries().map(|(_, entry)| entry.vid_first).collect(), part.page_count)
    };
    assert_eq!(taken(4), (vec![1, 21], 2));
    assert_eq!(taken(2), (vec![11], 2));
    assert_eq!(taken(0), (Vec::new(), 0));
}
