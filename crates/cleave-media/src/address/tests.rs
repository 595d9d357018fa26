//! Extents: ends, containment and overlap, at the edges.

use super::{BLOCK_SIZE, BlockAddress, Extent};

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

#[test]
fn containment_includes_the_edges() {
    let outer = extent(10, 5);
    assert!(outer.contains(extent(10, 5)));
    assert!(outer.contains(extent(14, 1)));
    assert!(!outer.contains(extent(14, 2)));
    assert!(!outer.contains(extent(9, 2)));
}

#[test]
fn neighbours_do_not_overlap() {
    assert!(!extent(0, 4).overlaps(extent(4, 4)));
    assert!(extent(0, 5).overlaps(extent(4, 4)));
}

#[test]
fn highest_addresses_saturate() {
    assert_eq!(extent(u64::MAX, 7).end(), BlockAddress(u64::MAX));
    assert_eq!(BlockAddress(u64::MAX).checked_add(1), None);
    assert_eq!(BlockAddress(u64::MAX).byte_offset(), None);
    assert_eq!(extent(3, 2).bytes(), 2 * BLOCK_SIZE);
    assert_eq!(extent(3, 2).to_string(), "blocks 3..5");
}
