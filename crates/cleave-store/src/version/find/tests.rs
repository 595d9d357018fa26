//! Chains over pages of two segments on media in memory.

use std::sync::Arc;

use arrow::array::{Int32Array, RecordBatch};
use futures::executor::block_on;

use super::find_visible;
use crate::error::StoreError;
use crate::ids::{RecId, SegmentId};
use crate::index::fixture::{Shelf, segment_ref};
use crate::page::{CommitColumn, PageClass, SegmentWriter, Versions, VidColumn};
use crate::placement::Placement;
use crate::schema::{Column, ColumnType, TableSchema};
use crate::segment::{SegmentDirectory, SegmentKind};
use crate::version::{Snapshot, VersionMap, VersionRun};

fn record(segment: u32, page: u32, slot: u16) -> RecId {
    RecId::new(SegmentId(segment), page, slot).unwrap()
}

/// Adds a segment of as many rows as `versions` says.
fn add(shelf: &mut Shelf, placement: &mut Placement, segment: u32, rows: i32, versions: Versions) {
    let column = Column {
        id: 1,
        name: "a".into(),
        column_type: ColumnType::Int,
        not_null: true,
        default: None,
        absent: None,
    };
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "t".into(),
        columns: vec![column],
        primary_key: Vec::new(),
    };
    let reference = segment_ref(segment);
    let values = Arc::new(Int32Array::from_iter_values(0..rows));
    let batch = RecordBatch::try_new(schema.arrow(), vec![values]).unwrap();
    let mut writer = SegmentWriter::new(reference, &schema, PageClass::HOT, 0, 0).unwrap();
    let mut pages = writer.push_versions(&batch, versions).unwrap();
    pages.extend(writer.finish().unwrap());
    let mut directory = SegmentDirectory::new(reference, SegmentKind::Heap, PageClass::HOT);
    shelf.store(&mut directory, &pages);
    placement.insert(Arc::new(directory));
}

/// Rows 0 to 9 loaded by commit 3 into segment 1. Segment 2: row 4 updated by commit 5 and again by 8, row 6 deleted
/// by commit 7.
fn database() -> (Shelf, Placement, VersionMap) {
    let (mut shelf, mut placement, mut map) = (Shelf::new(), Placement::new(), VersionMap::new());
    add(&mut shelf, &mut placement, 1, 10, Versions::loaded(0));
    let updates = Versions {
        vid: VidColumn::Each(vec![4, 6, 4]),
        commit: CommitColumn::Each(vec![5, 7, 8]),
        predecessor: Some(vec![
            record(1, 0, 4).bits(),
            record(1, 0, 6).bits(),
            record(2, 0, 0).bits(),
        ]),
        tombstone: Some(vec![false, true, false]),
    };
    add(&mut shelf, &mut placement, 2, 3, updates);
    map.append_run(VersionRun { vid_first: 0, vid_count: 10, segment: SegmentId(1) }).unwrap();
    map.set(4, record(2, 0, 2));
    map.set(6, record(2, 0, 1));
    (shelf, placement, map)
}

#[test]
fn each_snapshot_finds_its_version() {
    let (shelf, placement, map) = database();
    let source = shelf.source();
    let find = |vid, commit| {
        let snapshot = Snapshot { commit };
        let place = block_on(find_visible(&source, &placement, &map, vid, snapshot)).unwrap();
        place.and_then(|place| place.record())
    };
    assert_eq!(find(2, 2), None);
    assert_eq!(find(2, 3), Some(record(1, 0, 2)));
    assert_eq!(find(4, 2), None);
    assert_eq!(find(4, 4), Some(record(1, 0, 4)));
    assert_eq!(find(4, 5), Some(record(2, 0, 0)));
    assert_eq!(find(4, 7), Some(record(2, 0, 0)));
    assert_eq!(find(4, 8), Some(record(2, 0, 2)));
    assert_eq!(find(6, 6), Some(record(1, 0, 6)));
    assert_eq!(find(6, 7), None);
    assert_eq!(find(10, 9), None, "no such row");
}

#[test]
fn a_predecessor_that_is_nowhere_is_an_error() {
    let (shelf, whole, map) = database();
    let mut placement = Placement::new();
    whole
        .segments()
        .filter(|directory| directory.segment != SegmentId(1))
        .for_each(|directory| placement.insert(Arc::clone(directory)));
    let snapshot = Snapshot { commit: 4 };
    let result = block_on(find_visible(&shelf.source(), &placement, &map, 4, snapshot));
    assert!(matches!(result, Err(StoreError::Frame(_))), "{result:?}");
}
