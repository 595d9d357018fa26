//! The space map: against a plain set of blocks, and on contradictions.

use std::collections::BTreeSet;

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use super::{SpaceError, SpaceMap};
use crate::{BlockAddress, Extent};

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

#[test]
fn holes_between_used_extents_are_found_first() {
    let mut map = SpaceMap::with_used([extent(10, 5), extent(0, 4)]).unwrap();
    assert_eq!((map.high_water(), map.used_blocks()), (15, 9));
    assert_eq!(map.allocate(7), extent(15, 7));
    assert_eq!(map.allocate(6), extent(4, 6));
    assert_eq!(map.allocate(0), extent(22, 1));
}

#[test]
fn overlapping_use_is_refused() {
    assert_eq!(
        SpaceMap::with_used([extent(8, 4), extent(4, 5)]).unwrap_err(),
        SpaceError::Overlap { first: extent(4, 5), second: extent(8, 4) }
    );
    assert!(matches!(SpaceMap::with_used([extent(u64::MAX, 1)]), Err(SpaceError::TooHigh { .. })));
}

#[test]
fn freeing_twice_or_beyond_is_refused_and_changes_nothing() {
    let mut map = SpaceMap::with_used([extent(0, 10)]).unwrap();
    map.free(extent(2, 3)).unwrap();
    for wrong in [extent(2, 3), extent(0, 3), extent(4, 4), extent(8, 4), extent(20, 1)] {
        assert_eq!(map.free(wrong).unwrap_err(), SpaceError::NotUsed { extent: wrong });
    }
    assert_eq!((map.high_water(), map.used_blocks()), (10, 7));
}

#[test]
fn what_is_in_use_is_not_taken() {
    let mut map = SpaceMap::with_used([extent(4, 4), extent(12, 2)]).unwrap();
    for wrong in [extent(3, 2), extent(7, 2), extent(5, 1), extent(8, 5), extent(13, 9)] {
        assert_eq!(map.take(wrong).unwrap_err(), SpaceError::NotFree { extent: wrong });
    }
    let high = extent(u64::MAX, 1);
    assert_eq!(map.take(high).unwrap_err(), SpaceError::TooHigh { extent: high });
    assert_eq!((map.high_water(), map.used_blocks()), (14, 6));
}

proptest! {
    #[test]
    fn taking_what_is_used_makes_the_map_of_it(places in prop::collection::vec((0_u64..60, 1_u32..9), 1..20)) {
        let (mut map, mut used, mut extents) = (SpaceMap::default(), BTreeSet::new(), Vec::new());
        for (start, block_count) in places {
            let extent = extent(start, block_count);
            let blocks = || extent.start.0..extent.end().0;
            prop_assert_eq!(map.take(extent).is_ok(), !blocks().any(|block| used.contains(&block)));
            if !blocks().any(|block| used.contains(&block)) {
                used.extend(blocks());
                extents.push(extent);
            }
        }
        let again = SpaceMap::with_used(extents).unwrap();
        prop_assert_eq!((map.free, map.high_water, map.used_blocks), (again.free, again.high_water, again.used_blocks));
    }

    #[test]
    fn what_is_taken_in_several_maps_is_the_lowest_that_is_free_in_all(
        steps in prop::collection::vec((0_usize..5, 1_u32..9, any::<usize>()), 1..80),
    ) {
        let mut maps =
            [(); 3].map(|()| (SpaceMap::default(), BTreeSet::<u64>::new(), Vec::<Extent>::new()));
        let mut common: Vec<Extent> = Vec::new();
        for (kind, block_count, pick) in steps {
            if let Some((map, used, own)) = maps.get_mut(kind) {
                // One device by itself takes space, or gives some back.
                if pick % 3 == 0 && !own.is_empty() {
                    let old = own.swap_remove(pick % own.len());
                    map.free(old).unwrap();
                    for block in old.start.0..old.end().0 {
                        prop_assert!(used.remove(&block));
                    }
                } else {
                    let new = map.allocate(block_count);
                    used.extend(new.start.0..new.end().0);
                    own.push(new);
                }
            } else if kind == 3 && !common.is_empty() {
                let old = common.swap_remove(pick % common.len());
                for (map, used, _) in &mut maps {
                    map.free(old).unwrap();
                    for block in old.start.0..old.end().0 {
                        prop_assert!(used.remove(&block));
                    }
                }
            } else {
                let is_free = |start: u64| {
                    let mut blocks = start..start + u64::from(block_count);
                    blocks.all(|block| maps.iter().all(|(_, used, _)| !used.contains(&block)))
                };
                let lowest = (0..).find(|start| is_free(*start)).unwrap();
                let mut all: Vec<&mut SpaceMap> = maps.iter_mut().map(|(map, ..)| map).collect();
                let new = SpaceMap::allocate_common(&mut all, block_count);
                prop_assert_eq!(new, extent(lowest, block_count));
                for (_, used, _) in &mut maps {
                    used.extend(new.start.0..new.end().0);
                }
                common.push(new);
            }
            for (map, used, _) in &maps {
                prop_assert_eq!(map.used_blocks(), used.len() as u64);
                prop_assert_eq!(map.high_water(), used.last().map_or(0, |block| block + 1));
            }
        }
    }

    #[test]
    fn agrees_with_a_set_of_blocks(steps in prop::collection::vec((any::<bool>(), 1_u32..9, any::<usize>()), 1..80)) {
        let mut map = SpaceMap::default();
        let mut used = BTreeSet::new();
        let mut extents: Vec<Extent> = Vec::new();
        for (allocates, block_count, pick) in steps {
            if allocates || extents.is_empty() {
                let new = map.allocate(block_count);
                prop_assert_eq!(new.block_count, block_count);
                for block in new.start.0..new.end().0 {
                    prop_assert!(used.insert(block), "block {} was taken twice", block);
                }
                extents.push(new);
            } else {
                let old = extents.swap_remove(pick % extents.len());
                map.free(old).unwrap();
                for block in old.start.0..old.end().0 {
                    prop_assert!(used.remove(&block));
                }
            }
            let high_water = used.last().map_or(0, |block| block + 1);
            prop_assert_eq!(map.high_water(), high_water);
            prop_assert_eq!(map.used_blocks(), used.len() as u64);
        }
        let again = SpaceMap::with_used(extents).unwrap();
        prop_assert_eq!(again.free, map.free);
    }
}
