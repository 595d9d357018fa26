//! The union of extents against a plain set of blocks.

use std::collections::BTreeSet;

use cleave_media::BlockAddress;
use proptest::prelude::*;

use super::*;

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

#[test]
fn touching_extents_are_one() {
    let mut reservations = Reservations::default();
    reservations.add(extent(0, 4));
    reservations.add(extent(8, 4));
    assert!(!reservations.contains(extent(2, 8)));
    reservations.add(extent(4, 4));
    assert!(reservations.contains(extent(0, 12)));
    assert!(!reservations.contains(extent(0, 13)));
    assert_eq!(reservations.block_count(), 12);
}

#[test]
fn what_is_kept_is_bounded() {
    let mut reservations = Reservations::default();
    for run in 0..RUNS_MAX as u64 {
        assert!(reservations.has_room(1));
        reservations.add(extent(2 * run, 1));
    }
    assert!(!reservations.has_room(1));
    reservations.add(extent(0, 10));
    assert!(reservations.has_room(4) && !reservations.has_room(6));
}

#[test]
fn the_highest_addresses_do_not_overflow() {
    let mut reservations = Reservations::default();
    reservations.add(extent(u64::MAX, 7));
    reservations.add(extent(u64::MAX - 2, 7));
    assert!(reservations.contains(extent(u64::MAX - 2, 2)));
}

proptest! {
    #[test]
    fn it_is_a_set_of_blocks(
        added in prop::collection::vec((0_u64..200, 0_u32..20), 0..40),
        asked in prop::collection::vec((0_u64..220, 1_u32..20), 0..40),
    ) {
        let mut reservations = Reservations::default();
        let mut blocks = BTreeSet::new();
        for (start, count) in added {
            reservations.add(extent(start, count));
            blocks.extend(start..start + u64::from(count));
        }
        prop_assert_eq!(reservations.block_count(), blocks.len() as u64);
        for (start, count) in asked {
            let expected = (start..start + u64::from(count)).all(|block| blocks.contains(&block));
            prop_assert_eq!(reservations.contains(extent(start, count)), expected);
        }
    }
}
