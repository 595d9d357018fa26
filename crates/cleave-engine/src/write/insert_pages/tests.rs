//! What a host believes of a device that has inserted rows: numbers without a gap, and zones of the table's columns.

use cleave_media::{BlockAddress, Extent};
use cleave_store::{Column, ColumnType, PageEntry, PageRef, TableSchema, ZoneEntry};

use super::check_pages;

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
