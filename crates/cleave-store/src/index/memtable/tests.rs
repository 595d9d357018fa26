//! Memtables against a plain map, and their stored form.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::{option, prop_assert, prop_assert_eq};

use super::{KeyRange, Memtable};
use crate::error::StoreError;

proptest! {
    #[test]
    fn agrees_with_a_plain_map(
        steps in vec((vec(0u8..3, 0..4), option::of(any::<u64>())), 0..80), probe in vec(0u8..3, 0..4)
    ) {
        let (mut memtable, mut plain) = (Memtable::new(), BTreeMap::new());
        for (key, step) in steps {
            match step {
                Some(vid) if plain.contains_key(&key) => {
                    prop_assert!(memtable.insert(&key, vid).is_err());
                }
                Some(vid) => {
                    memtable.insert(&key, vid).unwrap();
                    plain.insert(key, vid);
                }
                None => prop_assert_eq!(memtable.remove(&key), plain.remove(&key)),
            }
        }
        prop_assert_eq!(memtable.len(), plain.len());
        prop_assert_eq!(memtable.get(&probe), plain.get(&probe).copied());
        let from: Vec<_> = memtable.iter_from(Some(&probe)).map(|(key, _)| key.to_vec()).collect();
        let expected: Vec<_> = plain.range(probe.clone()..).map(|(key, _)| key.clone()).collect();
        prop_assert_eq!(from, expected);
        let bytes: usize = plain.keys().map(Vec::len).sum();
        prop_assert_eq!(memtable.byte_size(), plain.len() * super::ENTRY_BYTES + bytes);
        prop_assert_eq!(Memtable::decode(&memtable.encode()).unwrap(), memtable);
    }

    #[test]
    fn damage_is_noticed(keys in vec(any::<[u8; 4]>(), 0..10), at in any::<usize>(), bit in 0u8..8) {
        let mut memtable = Memtable::new();
        for key in keys {
            memtable.insert(&key, 1).ok();
        }
        let mut bytes = memtable.encode();
        let at = at % bytes.len();
        prop_assert!(Memtable::decode(&bytes[..at]).is_err());
        bytes[at] ^= 1 << bit;
        prop_assert!(Memtable::decode(&bytes).is_err());
    }

    #[test]
    fn foreign_payloads_never_panic(payload in any::<Vec<u8>>()) {
        drop(Memtable::decode(&super::MEMTABLE.seal(&payload)));
    }
}

#[test]
fn a_second_key_names_both_rows() {
    let mut memtable = Memtable::new();
    memtable.insert(b"k", 4).unwrap();
    let Err(StoreError::DuplicateKey { first, second, key }) = memtable.insert(b"k", 9) else {
        panic!("no error");
    };
    assert_eq!((first, second, key.as_slice()), (4, 9, b"k".as_slice()));
    assert_eq!(memtable.get(b"k"), Some(4));
}

#[test]
fn a_key_that_was_taken_over_keeps_its_older_rows() {
    let mut memtable = Memtable::new();
    for (key, vid) in [(b"a", 1), (b"b", 2), (b"a", 7), (b"a", 5), (b"a", 7)] {
        memtable.put(key, vid);
    }
    assert_eq!(memtable.get(b"a"), Some(7));
    assert_eq!(memtable.rows_of(b"a").collect::<Vec<_>>(), [7, 5, 1]);
    assert_eq!(memtable.iter_from(None).map(|(_, vid)| vid).collect::<Vec<_>>(), [7, 2]);
    let all = KeyRange::default();
    let mut vids: Vec<u64> = memtable.vids_in(&all).collect();
    vids.sort_unstable();
    assert_eq!(vids, [1, 2, 5, 7]);
    assert_eq!(memtable.before(7).rows_of(b"a").collect::<Vec<_>>(), [5, 1]);
    assert_eq!(memtable.before(1), Memtable::new());
    memtable.remove(b"a");
    memtable.remove(b"b");
    assert_eq!((memtable.byte_size(), memtable.rows_of(b"a").count()), (0, 0));
}
