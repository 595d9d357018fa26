//! Directories: pages are appended by the rules, and a stored directory comes back or is refused.

use arrow::array::types::Int32Type;
use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use cleave_media::{AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::{DIRECTORY, KeyFilter, PageEntry, RunProperties, SegmentDirectory, SegmentKind};
use crate::error::StoreError;
use crate::frame::{Format, FrameError};
use crate::ids::SegmentId;
use crate::page::{EncodedPage, PageClass, PageKind};
use crate::page_source::{PageRef, SegmentRef};
use crate::proto;
use crate::zone_map::{ZoneEntry, ZoneValue};

const SEGMENT: SegmentRef =
    SegmentRef { table_id: 4, segment: SegmentId(9), schema_version: 2, commit: 17 };

fn empty() -> SegmentDirectory {
    SegmentDirectory::new(SEGMENT, SegmentKind::Heap, PageClass::HOT)
}

fn encoded(page: u32, row_count: u32, overflow: (u32, u32)) -> EncodedPage {
    EncodedPage {
        page,
        kind: PageKind::Heap,
        bytes: AlignedBuffer::zeroed(2 * BLOCK_SIZE),
        row_count,
        checksum: page,
        vid_first: u64::from(page) * 100,
        zones: vec![ZoneEntry {
            column: 1,
            null_count: 0,
            min: Some(ZoneValue::Integer(i64::from(page))),
            max: None,
        }],
        overflow_first_count: overflow,
    }
}

fn overflow(page: u32) -> EncodedPage {
    EncodedPage {
        kind: PageKind::Overflow,
        row_count: 0,
        zones: Vec::new(),
        ..encoded(page, 0, (0, 0))
    }
}

/// Appends pages, each at the block of ten times its number plus `shift`.
fn append(
    directory: &mut SegmentDirectory,
    pages: &[EncodedPage],
    shift: u64,
) -> Result<Vec<Extent>, StoreError> {
    let written: Vec<_> =
        pages.iter().map(|page| (page, BlockAddress(u64::from(page.page) * 10 + shift))).collect();
    directory.append(&written)
}

fn extent(start: u64) -> Extent {
    Extent { start: BlockAddress(start), block_count: 2 }
}

fn some_directory() -> impl Strategy<Value = SegmentDirectory> {
    let bound = option::of(vec(any::<u8>(), 0..40).prop_map(ZoneValue::Bytes));
    let page = (1u32..=65_536, any::<u32>(), any::<u32>(), 1u32..=64, 0u32..3, bound);
    let kind = option::of((any::<u32>(), option::of((1u32.., any::<Vec<u8>>()))));
    (vec(page, 0..12), kind, any::<bool>()).prop_map(|(pages, kind, sealed)| {
        let mut directory = empty();
        directory.sealed = sealed;
        if let Some((level, filter)) = kind {
            let filter = filter.map(|(kind, bytes)| KeyFilter { kind, bytes });
            directory.kind = SegmentKind::Index(RunProperties { index_id: 0, level, filter });
        }
        for (row_count, checksum, start, block_count, overflow_count, min) in pages {
            let first = directory.next_page();
            let place = |page| PageRef {
                page,
                extent: Extent { start: BlockAddress(u64::from(start)), block_count },
                row_count,
                checksum,
            };
            directory.pages.push(PageEntry {
                page: place(first + overflow_count),
                vid_first: u64::from(start),
                gaps: Default::default(),
                overflow: (first..first + overflow_count).map(place).collect(),
                shared: Vec::new(),
                zones: vec![ZoneEntry { column: 3, null_count: 1, min, max: None }],
            });
        }
        directory
    })
}

proptest! {
    #[test]
    fn stored_directory_comes_back(directory in some_directory()) {
        prop_assert_eq!(SegmentDirectory::decode(&directory.encode()).unwrap(), directory);
    }

    #[test]
    fn damage_is_noticed(directory in some_directory(), at in any::<usize>(), bit in 0u8..8) {
        let mut bytes = directory.encode();
        let at = at % bytes.len();
        prop_assert!(SegmentDirectory::decode(&bytes[..at]).is_err());
        bytes[at] ^= 1 << bit;
        prop_assert!(SegmentDirectory::decode(&bytes).is_err());
    }

    /// Damage that has a valid checksum, as a faulty writer makes it.
    #[test]
    fn damaged_payloads_never_panic(directory in some_directory(), at in any::<usize>(), bit in 0u8..8) {
        let mut bytes = directory.encode();
        let mut payload = bytes.split_off(crate::frame::FRAME_HEADER_BYTES);
        let at = at % payload.len();
        payload[at] ^= 1 << bit;
        drop(SegmentDirectory::decode(&DIRECTORY.seal(&payload)));
        drop(SegmentDirectory::decode(&DIRECTORY.seal(&payload[..at])));
    }
}

#[test]
fn pages_get_their_overflow_pages() {
    let mut directory = empty();
    let pages = [
        encoded(0, 10, (0, 0)),
        overflow(1),
        overflow(2),
        encoded(3, 10, (1, 2)),
        encoded(4, 1, (0, 0)),
    ];
    assert!(append(&mut directory, &pages, 0).unwrap().is_empty());
    assert_eq!(directory.pages.len(), 3);
    let numbers: Vec<_> = directory.page_refs().map(|page| page.page).collect();
    assert_eq!(numbers, [0, 3, 1, 2, 4]);
    assert_eq!(directory.next_page(), 5);
    assert_eq!(directory.row_count(), 21);
    assert_eq!(directory.extents().next(), Some(extent(0)));
    assert_eq!(SegmentDirectory::decode(&directory.encode()).unwrap(), directory);
    assert_eq!(directory.segment_ref(), SEGMENT);
}

#[test]
fn a_rewritten_tail_replaces_and_retires_the_old_one() {
    let mut directory = empty();
    append(&mut directory, &[encoded(0, 10, (0, 0)), encoded(1, 5, (0, 0))], 0).unwrap();
    // More rows for page 1, with long values, and then a page more.
    let pages = [overflow(2), encoded(1, 9, (2, 1)), encoded(3, 2, (0, 0))];
    let retired = append(&mut directory, &pages, 1_000).unwrap();
    assert_eq!(retired, [extent(10)]);
    let rows: Vec<_> = directory.pages.iter().map(|e| (e.page.page, e.page.row_count)).collect();
    assert_eq!(rows, [(0, 10), (1, 9), (3, 2)]);
    assert_eq!(directory.pages[1].overflow[0].page, 2);
    assert_eq!(directory.next_page(), 4);

    // Rewriting a tail that keeps its overflow page, and one that does not.
    let mut directory = empty();
    append(&mut directory, &[overflow(0), encoded(1, 5, (0, 1))], 0).unwrap();
    assert_eq!(append(&mut directory, &[encoded(1, 6, (0, 1))], 100).unwrap(), [extent(10)]);
    assert_eq!(directory.pages[0].overflow[0].extent, extent(0));
    let retired = append(&mut directory, &[encoded(1, 7, (0, 0))], 200).unwrap();
    assert_eq!(retired, [extent(110), extent(0)]);
}

#[test]
fn pages_that_break_the_rules_are_refused_and_change_nothing() {
    let mut directory = empty();
    append(&mut directory, &[encoded(0, 10, (0, 0)), overflow(1), encoded(2, 3, (1, 1))], 0)
        .unwrap();
    let before = directory.clone();
    let refused = [
        vec![encoded(4, 1, (0, 0)), encoded(3, 1, (0, 0))],
        vec![encoded(0, 10, (0, 0))],
        vec![encoded(1, 10, (0, 0))],
        vec![encoded(3, 0, (0, 0))],
        vec![encoded(3, 65_537, (0, 0))],
        vec![encoded(4, 1, (3, 1))],
        vec![overflow(3), encoded(4, 1, (0, 0))],
        vec![overflow(3)],
        vec![overflow(1), encoded(3, 1, (1, 1))],
        vec![overflow(3), overflow(3), encoded(4, 1, (3, 2))],
        vec![encoded(1 << 24, 1, (0, 0))],
    ];
    for pages in refused {
        let result = append(&mut directory, &pages, 1_000);
        assert!(matches!(result, Err(StoreError::Mismatch { .. })), "{result:?}");
        assert_eq!(directory, before);
    }
    directory.sealed = true;
    append(&mut directory, &[encoded(3, 1, (0, 0))], 0).unwrap_err();
}

#[test]
fn stored_nonsense_is_refused() {
    let mut sound = empty();
    append(&mut sound, &[encoded(0, 10, (0, 0)), encoded(1, 3, (0, 0))], 0).unwrap();
    let refused = |change: &dyn Fn(&mut proto::SegmentDirectory)| {
        let mut message = proto::SegmentDirectory::from(&sound);
        change(&mut message);
        let sealed = DIRECTORY.seal(&prost::Message::encode_to_vec(&message));
        matches!(SegmentDirectory::decode(&sealed), Err(FrameError::Malformed { .. }))
    };
    assert!(!refused(&|_| ()));
    assert!(refused(&|message| message.segment = 0));
    assert!(refused(&|message| message.segment = 1 << 24));
    assert!(refused(&|message| message.pages.swap(0, 1)));
    assert!(refused(&|message| message.pages[1].page = None));
    assert!(refused(&|message| message.pages[1].vid_first = u64::MAX));
    assert!(refused(&|message| message.pages[1].page.as_mut().unwrap().block_count = 0));
    assert!(refused(&|message| message.pages[1].page.as_mut().unwrap().start = u64::MAX));
    assert!(refused(&|message| message.pages[1].page.as_mut().unwrap().row_count = 70_000));
    assert!(refused(&|message| {
        message.pages[1].overflow = vec![message.pages[0].page.unwrap()];
    }));
    // Overflow pages of an entry come after all pages of the entry before it.
    let overflow_of_first = |number: u32, block_count: u32| {
        let page = PageRef { extent: Extent { block_count, ..extent(90) }, ..sound.pages[0].page };
        let page = proto::PageRef::from(&PageRef { page: number, ..page });
        refused(&move |message| {
            message.pages[0].overflow = vec![page];
            message.pages[1].page.as_mut().unwrap().page = 8;
        })
    };
    assert!(!overflow_of_first(7, 64) && overflow_of_first(9, 64));
    // No memory is allocated for pages larger than a page may be.
    assert!(overflow_of_first(7, 65));
    let heap = |block_count: u32| {
        refused(&move |message| message.pages[1].page.as_mut().unwrap().block_count = block_count)
    };
    assert!(!heap(1 << 16) && heap((1 << 16) + 1));
}

#[test]
fn a_newer_version_is_named() {
    let newer = Format { versions: 4..=4, ..DIRECTORY }.seal(b"");
    let refused = SegmentDirectory::decode(&newer).unwrap_err();
    let expected = "this segment directory has format version 4; this build of Cleave reads 1 to 3";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn zones_come_in_page_order() {
    let mut directory = empty();
    append(&mut directory, &[encoded(3, 10, (0, 0)), encoded(5, 4, (0, 0))], 0).unwrap();
    let zones = directory.zone_arrays(1, &DataType::Int32, None);
    assert_eq!(zones.mins.as_primitive::<Int32Type>().values().as_ref(), [3, 5]);
    assert_eq!(zones.maxs.null_count(), 2);
    assert_eq!(zones.row_counts.values().as_ref(), [10, 4]);
}
