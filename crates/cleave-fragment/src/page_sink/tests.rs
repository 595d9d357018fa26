//! The page numbers of partitions.

use super::*;

#[test]
fn partitions_have_numbers_of_their_own_in_their_order() {
    assert_eq!(page_numbers(0, 1), 0..PAGE_MAX + 1);
    for count in [1_usize, 2, 3, 7, 256] {
        let ranges: Vec<_> = (0..count).map(|partition| page_numbers(partition, count)).collect();
        assert_eq!(ranges[0].start, 0);
        assert!(ranges.iter().all(|range| range.len() >= 1 << 16), "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
        assert!(ranges[count - 1].end <= PAGE_MAX + 1);
    }
}
