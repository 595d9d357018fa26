//! It holds what a plain set of the same VIDs holds, in little memory.

use std::collections::BTreeSet;

use super::*;

/// VIDs in no order: near each other, far from each other, and twice.
fn scattered(count: u64) -> Vec<u64> {
    let mut state = 7_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..count)
        .map(|number| match number % 3 {
            0 => next() % 20_000,
            1 => (1 << 40) + next() % 300_000,
            _ => next() << 13,
        })
        .collect()
}

#[test]
fn it_holds_what_was_put_in() {
    for count in [0, 1, 64, 65, 500, 40_000] {
        let vids = scattered(count);
        let (mut set, mut known) = (VidSet::default(), BTreeSet::new());
        for vid in &vids {
            assert_eq!(set.insert(*vid), known.insert(*vid), "{vid} of {count}");
        }
        assert_eq!((set.len(), set.is_empty()), (known.len(), known.is_empty()));
        assert!(set.iter().eq(known.iter().copied()), "{count}");
        assert!(vids.iter().all(|vid| set.contains(*vid)));
        assert!(!set.contains(u64::MAX) && !set.contains((1 << 39) + 1));
        for at in [0, 1, 9_999, 65_536, 1 << 40, (1 << 40) + 65_536, u64::MAX] {
            assert!(set.below(at).iter().eq(known.range(..at).copied()), "{count} below {at}");
            assert!(set.from(at).eq(known.range(at..).copied()), "{count} from {at}");
            let mut kept = set.clone();
            let behind = kept.split_off(at);
            assert_eq!((kept.len() + behind.len(), &kept), (set.len(), &set.below(at)));
            kept.merge(&behind);
            assert_eq!(kept, set);
        }
    }
}

#[test]
fn a_clone_is_not_changed_by_what_comes_later() {
    let mut set: VidSet = scattered(10_000).into_iter().collect();
    let (before, count) = (set.clone(), set.len());
    set.extend(0..200_000);
    assert_eq!(before.len(), count);
    assert!(set.len() > count);
}

#[test]
fn a_row_takes_two_bytes_at_most_where_there_are_many() {
    let dense: VidSet = (0..8_000_000).collect();
    assert!(dense.byte_count() < 1_100_000, "{}", dense.byte_count());
    let sparse: VidSet = (0..1_000_000).map(|number| number * 50).collect();
    assert!(sparse.byte_count() < 5_000_000, "{}", sparse.byte_count());
}
