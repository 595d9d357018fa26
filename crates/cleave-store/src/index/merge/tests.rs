//! Merges against one sorted list.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::executor::block_on;
use proptest::collection::{btree_map, vec};
use proptest::prelude::{any, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::{BLOCK_ENTRY_COUNT_MAX, KeyMerge, MergeSource};
use crate::error::StoreError;
use crate::index::fixture::Shelf;
use crate::index::{KeyRange, Memtable};

type Entries = BTreeMap<Vec<u8>, u64>;

/// A merge of runs, with the last of `inputs` as a memtable.
fn merge_of(shelf: &mut Shelf, inputs: &[Entries], unique: bool) -> KeyMerge {
    let mut sources = Vec::new();
    let (memory, runs) = inputs.split_last().unwrap();
    for (segment, entries) in (1u32..).zip(runs) {
        let entries = entries.iter().map(|(key, vid)| (key.as_slice(), *vid));
        sources
            .push(MergeSource::Run(shelf.run(segment, entries).unwrap().scan(KeyRange::default())));
    }
    let mut memtable = Memtable::new();
    for (key, vid) in memory {
        memtable.insert(key, *vid).unwrap();
    }
    sources.push(MergeSource::Memtable(Arc::new(memtable)));
    KeyMerge::new(sources, unique)
}

fn drained(shelf: &Shelf, mut merge: KeyMerge) -> Result<Vec<(Vec<u8>, u64)>, StoreError> {
    let (source, mut all) = (shelf.source(), Vec::new());
    while let Some(block) = block_on(merge.next(&source))? {
        assert!(!block.is_empty() && block.len() <= BLOCK_ENTRY_COUNT_MAX);
        all.extend(block.iter().map(|(key, vid)| (key.to_vec(), vid)));
    }
    assert!(block_on(merge.next(&source))?.is_none(), "the end stays the end");
    Ok(all)
}

proptest! {
    #[test]
    fn merges_agree_with_a_stable_sort(
        inputs in vec(btree_map(vec(0u8..3, 0..4), any::<u64>(), 0..30), 1..5)
    ) {
        let mut shelf = Shelf::new();
        let mut expected: Vec<_> = inputs.iter().flatten().map(|(k, v)| (k.clone(), *v)).collect();
        expected.sort_by(|one, other| one.0.cmp(&other.0));
        let duplicate = expected.windows(2).find(|pair| pair[0].0 == pair[1].0);

        let merge = merge_of(&mut shelf, &inputs, false);
        prop_assert_eq!(drained(&shelf, merge).unwrap(), expected.clone());

        let merge = merge_of(&mut shelf, &inputs, true);
        match (drained(&shelf, merge), duplicate) {
            (Ok(all), None) => prop_assert_eq!(all, expected),
            (Err(StoreError::DuplicateKey { first, second, key }), Some(pair)) => {
                prop_assert_eq!((first, second, &key), (pair[0].1, pair[1].1, &pair[0].0));
            }
            (result, _) => prop_assert!(false, "{result:?} for {duplicate:?}"),
        }
    }
}

#[test]
fn long_inputs_stream() {
    let mut shelf = Shelf::new();
    let key = |number: u64| format!("{number:010}").into_bytes();
    let inputs: Vec<Entries> = (0..4u64)
        .map(|input| (0..9_000).map(|n| (key(n * 4 + input), n * 4 + input)).collect())
        .collect();
    let merge = merge_of(&mut shelf, &inputs, true);
    let all = drained(&shelf, merge).unwrap();
    assert_eq!(all.len(), 36_000);
    assert!(
        all.iter().zip(0..).all(|((found, vid), number)| *vid == number && *found == key(number))
    );
}

#[test]
fn a_merge_of_nothing_is_empty() {
    let shelf = Shelf::new();
    assert!(drained(&shelf, KeyMerge::new(Vec::new(), true)).unwrap().is_empty());
}

#[test]
fn a_failed_merge_is_over() {
    let mut shelf = Shelf::new();
    let same: Entries = [(b"k".to_vec(), 1)].into();
    let mut merge = merge_of(&mut shelf, &[same.clone(), same], true);
    let source = shelf.source();
    block_on(merge.next(&source)).unwrap_err();
    assert!(block_on(merge.next(&source)).unwrap().is_none());
}

#[test]
fn of_equal_keys_the_newest_row_is_left() {
    let entries = |list: &[(&[u8], u64)]| -> Entries {
        list.iter().map(|(key, vid)| (key.to_vec(), *vid)).collect()
    };
    // Longer than a block, so that equal keys lie at its end too.
    let key = |number: u32| format!("{number:08}").into_bytes();
    let count = u32::try_from(BLOCK_ENTRY_COUNT_MAX).unwrap() + 1;
    let long: Entries = (0..count).map(|number| (key(number), u64::from(number))).collect();
    let taken = entries(&[(&key(0), 100_001), (&key(count - 2), 100_003)]);
    let twice = entries(&[(&key(count - 2), 100_002), (&key(count - 1), 100_004)]);
    let mut shelf = Shelf::new();
    let inputs = [taken.clone(), long.clone(), twice.clone()];
    let KeyMerge { inputs, .. } = merge_of(&mut shelf, &inputs, false);
    let merge = KeyMerge::of_newest(inputs.into_iter().map(|input| input.source).collect());
    let mut expected = long;
    expected.extend(twice);
    expected.extend(taken);
    assert_eq!(drained(&shelf, merge).unwrap(), expected.into_iter().collect::<Vec<_>>());
}
