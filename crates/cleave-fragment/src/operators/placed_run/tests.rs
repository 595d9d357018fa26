//! The description of a written run survives encoding, and is accepted only whole.

use super::*;

fn page(page: u32) -> PageRef {
    let extent = Extent { start: BlockAddress(u64::from(page) * 16 + 640), block_count: 16 };
    PageRef { page, extent, row_count: 7, checksum: page ^ 0xdead_beef }
}

fn zones(first: &[u8], last: &[u8]) -> Vec<ZoneEntry> {
    let key = |key: &[u8]| Some(ZoneValue::Bytes(key.to_vec()));
    vec![ZoneEntry { column: KEY_COLUMN, null_count: 0, min: key(first), max: key(last) }]
}

fn batches(filter: Option<KeyFilter>) -> Vec<RecordBatch> {
    let mut rows = PlacedRows::default();
    rows.push(&page(0), &zones(b"a", b"b")).unwrap();
    rows.push(&page(1), &zones(b"c", b"")).unwrap();
    let first = rows.take().unwrap();
    rows.push(&page(2), &zones(b"d", b"e")).unwrap();
    rows.end(21, filter);
    assert_eq!(rows.len(), 2);
    vec![first, rows.take().unwrap()]
}

#[test]
fn what_was_placed_is_read() {
    let filter = KeyFilter { kind: 1, bytes: vec![3; 64] };
    for filter in [Some(filter), None] {
        let run = PlacedRun::read(&batches(filter.clone())).unwrap();
        assert_eq!((run.entry_count, &run.filter), (21, &filter));
        let pages: Vec<PageRef> = run.pages.iter().map(|entry| entry.page).collect();
        assert_eq!(pages, [page(0), page(1), page(2)]);
        assert_eq!(run.pages[1].zones, zones(b"c", b""));
    }
}

#[test]
fn a_result_without_its_end_or_with_more_behind_it_is_none() {
    let batches = batches(None);
    let error = PlacedRun::read(&batches[..1]).unwrap_err();
    assert!(error.to_string().contains("no end"), "{error}");
    let turned: Vec<_> = batches.iter().rev().cloned().collect();
    let error = PlacedRun::read(&turned).unwrap_err();
    assert!(error.to_string().contains("behind the last"), "{error}");
    let other = batches[0].project(&[0, 1]).unwrap();
    assert!(matches!(PlacedRun::read(&[other]), Err(ArrowError::SchemaError(_))));
}
