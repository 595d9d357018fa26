//! A cursor over named pages against a scan of the run.

use futures::executor::block_on;

use super::PageCursor;
use crate::error::StoreError;
use crate::index::KeyRange;
use crate::index::fixture::{Shelf, segment_ref};

#[test]
fn named_pages_give_what_a_scan_gives_however_many_are_read_at_once() {
    let mut shelf = Shelf::new();
    let keys: Vec<Vec<u8>> = (0..20_000u64).map(|n| format!("{n:08}").into_bytes()).collect();
    let run = shelf.run(7, keys.iter().map(Vec::as_slice).zip(0..)).unwrap();
    let pages: Vec<_> = run.directory().pages.iter().map(|entry| entry.page).collect();
    assert!(pages.len() > 3, "{} pages", pages.len());
    let (source, mut expected) = (shelf.source(), Vec::new());
    let mut scan = run.scan(KeyRange::default());
    while let Some(block) = block_on(scan.next(&source)).unwrap() {
        expected.push(block);
    }
    for at_once in [0, 1, 3, 1000] {
        let mut cursor = PageCursor::new(segment_ref(7), pages.clone(), at_once);
        let mut found = Vec::new();
        while let Some(block) = block_on(cursor.next(&source)).unwrap() {
            found.push(block);
        }
        assert_eq!(found, expected);
        assert!(block_on(cursor.next(&source)).unwrap().is_none());
    }
}

#[test]
fn a_page_of_another_segment_is_noticed() {
    let mut shelf = Shelf::new();
    let run = shelf.run(7, [(b"a".as_slice(), 1)]).unwrap();
    let pages = run.directory().pages.iter().map(|entry| entry.page).collect();
    let mut cursor = PageCursor::new(segment_ref(8), pages, 4);
    let error = block_on(cursor.next(&shelf.source())).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}
