//! Which tablets a fragment may write to, and what a host believes of a device that has inserted rows: numbers without
//! a gap, and zones of the table's columns.

use std::sync::Arc;

use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::{DeviceId, TableState, TabletState};
use cleave_media::{BlockAddress, Extent};
use cleave_store::{Column, ColumnType, PageEntry, PageRef, TableSchema, TabletId, ZoneEntry};

use super::{check_pages, places_on};

fn schema() -> TableSchema {
    let column = |id: u32| Column {
        id,
        name: format!("c{id}"),
        column_type: ColumnType::Int,
        not_null: false,
        default: None,
        absent: None,
    };
    TableSchema {
        table_id: 1,
        version: 1,
        name: "t".to_owned(),
        columns: vec![column(1), column(4)],
        primary_key: Vec::new(),
    }
}

fn entry(page: u32, vid_first: u64, row_count: u32) -> PageEntry {
    let zone = |column| ZoneEntry { column, null_count: 0, min: None, max: None };
    let extent = Extent { start: BlockAddress(u64::from(page) * 10), block_count: 8 };
    PageEntry {
        page: PageRef { page, extent, row_count, checksum: 1 },
        vid_first,
        gaps: Default::default(),
        overflow: Vec::new(),
        shared: Vec::new(),
        zones: vec![zone(1), zone(4)],
    }
}

#[test]
fn rows_are_numbered_from_the_first_on() {
    let pages = [entry(0, 50, 10), entry(1, 60, 5), entry(2, 65, 1)];
    assert_eq!(check_pages(&schema(), 50, &pages), Ok(()));
    assert_eq!(check_pages(&schema(), 7, &[]), Ok(()));
    for (first, pages) in [
        (51, vec![entry(0, 50, 10)]),
        (50, vec![entry(0, 50, 10), entry(1, 61, 5)]),
        (50, vec![entry(0, 50, 10), entry(1, 59, 5)]),
        (u64::MAX - 3, vec![entry(0, u64::MAX - 3, 10)]),
    ] {
        assert!(check_pages(&schema(), first, &pages).is_err(), "{pages:?}");
    }
}

#[test]
fn a_new_page_shares_nothing_and_has_zones_of_all_columns() {
    let mut shared = entry(0, 50, 10);
    shared.shared = vec![Extent { start: BlockAddress(70), block_count: 1 }];
    let mut fewer = entry(0, 50, 10);
    fewer.zones.pop();
    let mut twisted = entry(0, 50, 10);
    twisted.zones.reverse();
    for page in [shared, fewer, twisted] {
        assert!(check_pages(&schema(), 50, &[page]).is_err());
    }
}

/// A table without rows whose tablets lie on these devices.
fn divided(division: Division, devices: &[u32]) -> TableState {
    let tablet = |(number, device): (u32, &u32)| {
        Arc::new(TabletState::empty(TabletId(number), DeviceId(*device), Vec::new()))
    };
    TableState {
        schema: Arc::new(schema()),
        indexes: Vec::new(),
        tablets: (0..).zip(devices).map(tablet).collect(),
        division,
        damaged: Vec::new(),
        rules: Arc::default(),
        materialized: None,
        is_balanced: false,
    }
}

#[test]
fn rows_go_to_tablets_of_their_device() {
    let in_order = divided(Division::LoadOrder, &[1, 2, 1]);
    let by_hash = |devices: &[u32]| divided(Division::Hash(vec![1]), devices);
    for (table, device, any, own) in [
        (&in_order, 1, Some(vec![0, 2]), Some(vec![0, 2])),
        (&in_order, 2, Some(vec![1]), Some(vec![1])),
        (&in_order, 3, None, None),
        (&by_hash(&[1, 1]), 1, Some(vec![0, 1]), Some(vec![0, 1])),
        // The tablet of a row follows from its values; those of own rows lie there.
        (&by_hash(&[1, 2]), 1, None, Some(vec![0, 1])),
        (&by_hash(&[2]), 1, None, None),
    ] {
        assert_eq!(places_on(table, DeviceId(device), false), any, "{:?}", table.division);
        assert_eq!(places_on(table, DeviceId(device), true), own, "{:?}", table.division);
    }
}
