//! Inspection of pages that are whole, damaged, or no pages.

use super::*;
use crate::page::testing::{SEGMENT, TYPES, rows, table};
use crate::{PageClass, SegmentWriter, Versions};

fn page() -> Bytes {
    let schema = table(&TYPES);
    let mut writer = SegmentWriter::new(SEGMENT, &schema, PageClass::HOT, 0, 0).unwrap();
    let batch = rows(&schema, 20, 30, 5);
    let mut pages = writer.push_versions(&batch, Versions::loaded(1)).unwrap();
    pages.extend(writer.finish().unwrap());
    Bytes::copy_from_slice(&pages[0].bytes)
}

#[test]
fn a_whole_page_says_who_it_is_and_has_no_fault() {
    let bytes = page();
    let found = inspect_page(&bytes, BlockAddress(5)).unwrap();
    assert_eq!(found.segment, SegmentRef { commit: 0, ..SEGMENT });
    assert_eq!(found.page.extent.start, BlockAddress(5));
    assert_eq!(found.header.unwrap().row_count, found.page.row_count);
    assert!(found.chunks.len() > TYPES.len());
    assert!(found.chunks.iter().all(|chunk| chunk.fault.is_none()));
    assert_eq!(own_block_count(&bytes).unwrap(), found.page.extent.block_count);
}

#[test]
fn a_changed_chunk_is_told_and_can_be_made_to_fit() {
    let mut bytes = page().to_vec();
    let found = inspect_page(&bytes.clone().into(), BlockAddress(0)).unwrap();
    let place = found.chunks.iter().position(|chunk| chunk.bytes.is_some()).unwrap();
    bytes[usize::try_from(found.chunks[place].entry.offset).unwrap()] ^= 1;
    let hurt = inspect_page(&bytes.clone().into(), BlockAddress(0)).unwrap();
    assert!(matches!(hurt.chunks[place].fault, Some(Corruption::Checksum { .. })));
    let (fitting, page, _) = fit_checksums(&bytes, BlockAddress(0)).unwrap();
    let fitted = inspect_page(&fitting, BlockAddress(0)).unwrap();
    assert!(fitted.chunks.iter().all(|chunk| chunk.fault.is_none()));
    assert_eq!(fitted.page.checksum, page.checksum);
}

#[test]
fn bytes_cut_anywhere_give_an_answer() {
    let whole = page();
    for length in 0..whole.len().min(3000) {
        match inspect_page(&whole.slice(..length), BlockAddress(0)) {
            Ok(found) => assert!(found.header.is_err() || length >= BLOCK_COUNT_AT),
            Err(fault) => drop(fault.to_string()),
        }
    }
    assert!(inspect_page(&Bytes::from(vec![0; 4096]), BlockAddress(0)).is_err());
    assert!(own_block_count(&[0; 20]).is_err());
}
