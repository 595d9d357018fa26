//! Runs: written keys are found, damage is detected.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_media::Media;
use futures::executor::block_on;
use proptest::collection::{btree_map, vec};
use proptest::prelude::{any, proptest};
use proptest::{option, prop_assert, prop_assert_eq};

use super::{KeyRange, Run, RunWriter, Walk};
use crate::error::StoreError;
use crate::index::fixture::{Shelf, segment_ref};
use crate::index::{INDEX_KEY_BYTES_MAX, KeyMerge, Memtable, MergeSource};
use crate::segment::{RunProperties, SegmentDirectory, SegmentKind};
use crate::zone_map::ZoneValue;

/// 20,000 even numbers as keys: some ten pages.
fn numbers() -> BTreeMap<Vec<u8>, u64> {
    (0..20_000u64).map(|number| (key(2 * number), number ^ 0x55)).collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

fn run_of(shelf: &mut Shelf, entries: &BTreeMap<Vec<u8>, u64>) -> Run {
    shelf.run(7, entries.iter().map(|(key, vid)| (key.as_slice(), *vid))).unwrap()
}

fn scanned(shelf: &Shelf, run: &Run, range: KeyRange) -> Vec<(Vec<u8>, u64)> {
    let (source, mut cursor, mut all) = (shelf.source(), run.scan(range), Vec::new());
    while let Some(block) = block_on(cursor.next(&source)).unwrap() {
        all.extend(block.iter().map(|(key, vid)| (key.to_vec(), vid)));
    }
    all
}

proptest! {
    #[test]
    fn small_runs_agree_with_a_plain_map(
        entries in btree_map(vec(0u8..3, 0..5), any::<u64>(), 0..50),
        probes in vec(vec(0u8..3, 0..5), 20),
        from in vec(0u8..3, 0..5),
        below in option::of(vec(0u8..3, 0..5)),
    ) {
        let mut shelf = Shelf::new();
        let run = run_of(&mut shelf, &entries);
        let source = shelf.source();
        for probe in &probes {
            let found = block_on(run.get(&source, probe)).unwrap();
            prop_assert_eq!(found, entries.get(probe).copied());
        }
        let expected: Vec<_> = entries
            .iter()
            .filter(|(key, _)| **key >= from && below.as_ref().is_none_or(|below| *key < below))
            .map(|(key, vid)| (key.clone(), *vid))
            .collect();
        let range = KeyRange { from, below };
        let (page_count, entry_count) = run.measure(&range);
        let pages = run.pages_in(&[range.clone(), range.clone()], false);
        prop_assert_eq!(pages.len(), page_count);
        let rows: u64 = pages.iter().map(|page| u64::from(page.row_count)).sum();
        prop_assert!(rows >= expected.len() as u64);
        prop_assert!(entry_count <= expected.len() as u64);
        prop_assert!(page_count > 0 || expected.is_empty());
        for (backward, limit) in [(false, 1), (false, 100), (true, 1), (true, 3), (true, 100)] {
            let walk = Walk { range: &range, backward, limit };
            let is_wanted = |vid: u64| !vid.is_multiple_of(3);
            let mut wanted: Vec<_> =
                expected.iter().filter(|(_, vid)| is_wanted(*vid)).cloned().collect();
            if backward {
                wanted.reverse();
            }
            wanted.truncate(limit);
            let found = block_on(run.walk(&source, &walk, &is_wanted)).unwrap();
            prop_assert_eq!(found.as_ref(), Some(&wanted));
            let mut memtable = Memtable::new();
            entries.iter().for_each(|(key, vid)| memtable.put(key, *vid));
            prop_assert_eq!(memtable.walk(&walk, is_wanted), wanted);
        }
        prop_assert_eq!(scanned(&shelf, &run, range), expected);
        let ends = entries.first_key_value().zip(entries.last_key_value());
        prop_assert_eq!(run.key_range(), ends.map(|(first, last)| (&first.0[..], &last.0[..])));
    }

    #[test]
    fn long_keys_split_pages_and_keep_whole_fences(
        lengths in vec(1usize..INDEX_KEY_BYTES_MAX, 60..200)
    ) {
        let entries: BTreeMap<Vec<u8>, u64> = (0u64..)
            .zip(&lengths)
            .map(|(number, length)| {
                let mut long = b"the same beginning of more than 32 bytes ".to_vec();
                long.extend(key(number));
                long.resize(long.len().max(*length), b'x');
                (long, number)
            })
            .collect();
        let mut shelf = Shelf::new();
        let run = run_of(&mut shelf, &entries);
        prop_assert_eq!(scanned(&shelf, &run, KeyRange::default()).len(), entries.len());
        let (first, last) = run.key_range().unwrap();
        prop_assert!(entries.contains_key(first) && entries.contains_key(last));
        let source = shelf.source();
        for (key, vid) in &entries {
            prop_assert_eq!(block_on(run.get(&source, key)).unwrap(), Some(*vid));
        }
    }
}

#[test]
fn look_ups_over_many_pages() {
    let (mut shelf, entries) = (Shelf::new(), numbers());
    let run = run_of(&mut shelf, &entries);
    assert!(run.directory().pages.len() > 5, "{} pages", run.directory().pages.len());
    assert_eq!(run.entry_count(), 20_000);
    assert!(run.directory().pages.iter().all(|entry| entry.page.extent.block_count <= 16));
    let source = shelf.source();
    let probes: Vec<Vec<u8>> = (0..40_010u64).rev().step_by(97).map(key).collect();
    let probes: Vec<&[u8]> = probes.iter().map(Vec::as_slice).collect();
    let many = block_on(run.get_many(&source, &probes)).unwrap();
    for (probe, found) in probes.iter().zip(many) {
        assert_eq!(found, entries.get(*probe).copied());
        assert_eq!(block_on(run.get(&source, probe)).unwrap(), found);
    }
}

#[test]
fn a_look_up_reads_one_page() {
    let (mut shelf, entries) = (Shelf::new(), numbers());
    let run = run_of(&mut shelf, &entries);
    let source = shelf.source();
    let before = shelf.media.bytes_read();
    block_on(run.get(&source, &key(20_000))).unwrap().unwrap();
    let read = shelf.media.bytes_read() - before;
    // The page, and its first block once more: the header is read before the chunks.
    assert!(read <= (64 << 10) + 4096, "{read} bytes");
    let before = shelf.media.bytes_read();
    assert_eq!(block_on(run.get(&source, b"above all")).unwrap(), None);
    assert_eq!(shelf.media.bytes_read(), before, "fences answer");
    let absent = (0..1000).map(|number| key(2 * number + 1));
    let asked = absent.filter(|key| block_on(run.get(&source, key)).unwrap().is_none()).count();
    assert_eq!(asked, 1000);
    let read = shelf.media.bytes_read() - before;
    assert!(read < 50 * (64 << 10), "the filter answers nearly all: {read} bytes");
}

#[test]
fn scans_begin_between_keys() {
    let (mut shelf, entries) = (Shelf::new(), numbers());
    let run = run_of(&mut shelf, &entries);
    for from in [0, 1, 19_999, 20_000, 39_998, 39_999] {
        let expected: Vec<_> =
            entries.range(key(from)..).map(|(key, vid)| (key.clone(), *vid)).collect();
        assert_eq!(
            scanned(&shelf, &run, KeyRange { from: key(from), below: None }),
            expected,
            "from {from}"
        );
    }
}

#[test]
fn a_duplicate_is_refused_with_its_key() {
    let mut writer = RunWriter::new(segment_ref(1), 0, true).unwrap();
    for number in 0..5_000 {
        writer.push(&key(number), number).unwrap();
    }
    let Err(StoreError::DuplicateKey { first, second, key: duplicate }) =
        writer.push(&key(4_999), 9)
    else {
        panic!("no error");
    };
    assert_eq!((first, second, duplicate), (4_999, 9, key(4_999)));
}

#[test]
fn keys_out_of_order_or_too_long_are_refused() {
    let mut writer = RunWriter::new(segment_ref(1), 0, true).unwrap();
    writer.push(b"b", 1).unwrap();
    assert!(matches!(writer.push(b"a", 2), Err(StoreError::Mismatch { .. })));
    let long = vec![b'c'; INDEX_KEY_BYTES_MAX + 9];
    assert!(matches!(writer.push(&long, 2), Err(StoreError::OutOfRange { .. })));
}

#[test]
fn an_empty_run_has_nothing() {
    let mut shelf = Shelf::new();
    let run = shelf.run(3, []).unwrap();
    assert_eq!(run.key_range(), None);
    assert_eq!(block_on(run.get(&shelf.source(), b"")).unwrap(), None);
    assert!(scanned(&shelf, &run, KeyRange::default()).is_empty());
}

#[test]
fn a_damaged_page_is_named() {
    let (mut shelf, entries) = (Shelf::new(), numbers());
    let run = run_of(&mut shelf, &entries);
    let page = run.directory().pages[2].page;
    let mut bytes = shelf.media.read(page.extent).unwrap();
    bytes[5_000] ^= 4;
    shelf.media.write(page.extent.start, &bytes).unwrap();
    let lost = run.key_range_of(2);
    let source = shelf.source();
    let error = block_on(run.get(&source, &lost)).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { page: 2, .. }), "{error}");
    block_on(run.get(&source, &key(0))).unwrap().unwrap();
}

impl Run {
    /// The first key of the page at this index.
    fn key_range_of(&self, index: usize) -> Vec<u8> {
        super::fences(&self.directory.pages[index]).unwrap().0.to_vec()
    }
}

#[test]
fn directories_that_are_no_runs_are_refused() {
    let (mut shelf, entries) = (Shelf::new(), numbers());
    let sound = run_of(&mut shelf, &entries).directory().as_ref().clone();
    let refused = |change: &dyn Fn(&mut SegmentDirectory)| {
        let mut directory = sound.clone();
        change(&mut directory);
        matches!(Run::new(Arc::new(directory)), Err(StoreError::Frame { .. }))
    };
    assert!(!refused(&|_| ()));
    assert!(refused(&|directory| directory.kind = SegmentKind::Heap));
    assert!(refused(&|directory| directory.pages[1].zones.clear()));
    assert!(refused(&|directory| directory.pages[1].zones[0].max = None));
    assert!(refused(&|directory| directory.pages[1].zones[0].min = Some(ZoneValue::Integer(1))));
    assert!(refused(&|directory| {
        directory.pages[1].zones[0].min = Some(ZoneValue::Bytes(key(0)));
    }));
    assert!(!refused(&|directory| {
        directory.kind = SegmentKind::Index(RunProperties { level: 4, ..Default::default() });
    }));
}

#[test]
fn a_page_that_contradicts_its_fences_is_noticed() {
    let (mut shelf, entries) = (Shelf::new(), numbers());
    let mut directory = run_of(&mut shelf, &entries).directory().as_ref().clone();
    let last = directory.pages.len() - 1;
    directory.pages[last].zones[0].max = Some(ZoneValue::Bytes(b"z".to_vec()));
    let run = Run::new(Arc::new(directory)).unwrap();
    let error = block_on(run.get(&shelf.source(), &key(39_998))).unwrap_err();
    assert!(matches!(error, StoreError::Frame { .. }), "{error}");
}

/// The compiler checks here that the futures are `Send`.
#[test]
fn futures_are_send() {
    fn check(_: &impl Send) {}
    let mut shelf = Shelf::new();
    let run = run_of(&mut shelf, &[(b"k".to_vec(), 1)].into());
    let (source, mut cursor) = (shelf.source(), run.scan(KeyRange::default()));
    let mut merge = KeyMerge::new(vec![MergeSource::Run(run.scan(KeyRange::default()))], true);
    let keys = [b"k".as_slice()];
    let (get, get_many) = (run.get(&source, b"k"), run.get_many(&source, &keys));
    let (scan, merged) = (cursor.next(&source), merge.next(&source));
    check(&get);
    check(&get_many);
    check(&scan);
    check(&merged);
    assert_eq!(block_on(get).unwrap(), Some(1));
    assert_eq!(block_on(get_many).unwrap(), [Some(1)]);
    assert_eq!(block_on(scan).unwrap(), block_on(merged).unwrap());
}

#[test]
fn walks_cross_pages_from_either_end_and_give_up_where_nothing_is_wanted() {
    let mut shelf = Shelf::new();
    let entries = numbers();
    let run = run_of(&mut shelf, &entries);
    let source = shelf.source();
    let all: Vec<_> = entries.iter().map(|(key, vid)| (key.clone(), *vid)).collect();
    let range = KeyRange::default();
    for backward in [false, true] {
        let walk = Walk { range: &range, backward, limit: 15_000 };
        let mut expected = all.clone();
        if backward {
            expected.reverse();
        }
        expected.truncate(15_000);
        assert_eq!(block_on(run.walk(&source, &walk, &|_| true)).unwrap(), Some(expected));
    }
    let walk = Walk { range: &range, backward: true, limit: 1 };
    let first = block_on(run.walk(&source, &walk, &|vid| vid == 0x55)).unwrap();
    assert_eq!(first, Some(vec![(key(0), 0x55)]));
}
