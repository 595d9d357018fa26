//! Tests of the places that a device says it has written to.

use proptest::prelude::*;

use super::*;

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

/// The first space, and an extension that lies before it.
const SPACE: [Extent; 2] = [
    Extent { start: BlockAddress(100), block_count: 50 },
    Extent { start: BlockAddress(20), block_count: 10 },
];

#[test]
fn pages_lie_in_the_space_of_their_fragment_and_apart_from_each_other() {
    let taken = [extent(20, 4), extent(29, 1), extent(100, 10), extent(110, 40)];
    assert_eq!(check_used(&SPACE, &taken), Ok(()));
    assert_eq!(check_used(&SPACE, &[]), Ok(()));
    for wrong in [extent(99, 1), extent(149, 2), extent(30, 1), extent(u64::MAX, 1), extent(28, 73)]
    {
        let error = check_used(&SPACE, &[wrong]).unwrap_err();
        assert!(error.contains(&wrong.to_string()), "{error}");
    }
    assert!(check_used(&SPACE, &[extent(100, 10), extent(109, 3)]).is_err());
    assert!(check_used(&SPACE, &[extent(100, 1), extent(100, 1)]).is_err());
}

proptest! {
    #[test]
    fn what_is_taken_fits_and_does_not_overlap(
        mut places in prop::collection::vec((15_u64..160, 1_u32..20), 0..6)
    ) {
        places.sort_unstable();
        let used: Vec<_> = places.iter().map(|(start, blocks)| extent(*start, *blocks)).collect();
        let mut blocks: Vec<u64> =
            places.iter().flat_map(|(start, blocks)| *start..start + u64::from(*blocks)).collect();
        let fits = blocks.iter().all(|block| (100..150).contains(block) || (20..30).contains(block));
        let count = blocks.len();
        blocks.sort_unstable();
        blocks.dedup();
        prop_assert_eq!(check_used(&SPACE, &used).is_ok(), fits && blocks.len() == count);
    }
}
