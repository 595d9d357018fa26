//! The sorter against a sorted list.

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::KeySorter;

proptest! {
    #[test]
    fn keys_come_out_sorted(mut keys in vec((vec(0u8..3, 0..5), any::<u64>()), 0..60)) {
        let mut sorter = KeySorter::new();
        for (key, vid) in &keys {
            sorter.push(key, *vid);
        }
        prop_assert_eq!(sorter.len(), keys.len());
        prop_assert!(sorter.byte_size() >= keys.len() * 24);
        keys.sort();
        let mut sorted = Vec::new();
        sorter.drain_sorted(|key, vid| { sorted.push((key.to_vec(), vid)); Ok::<_, ()>(()) }).unwrap();
        prop_assert_eq!(sorted, keys);
        prop_assert!(sorter.is_empty());
    }
}

#[test]
fn a_drained_sorter_has_its_whole_budget_again() {
    let mut sorter = KeySorter::new();
    for vid in 0..1000 {
        sorter.push(b"a key", vid);
    }
    assert_eq!(sorter.byte_size(), 1000 * (5 + 32));
    sorter.drain_sorted(|_, _| Ok::<_, ()>(())).unwrap();
    assert_eq!(sorter.byte_size(), 0);
    sorter.push(b"next", 1000);
    assert_eq!(sorter.byte_size(), 4 + 32);
}

#[test]
fn an_error_ends_the_hand_over_and_empties_the_sorter() {
    let mut sorter = KeySorter::new();
    sorter.push(b"b", 1);
    sorter.push(b"a", 2);
    let mut seen = 0;
    let result = sorter.drain_sorted(|_, vid| {
        seen += 1;
        Err(vid)
    });
    assert_eq!((result, seen), (Err(2), 1));
    assert!(sorter.is_empty());
}
