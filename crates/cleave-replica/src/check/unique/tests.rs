//! How tablets are grouped so that two groups fit the memory.

use super::*;

#[test]
fn tablets_that_fit_are_compared_at_once_and_others_in_groups() {
    assert_eq!(groups(&[3, 3, 4], 10).as_slice(), std::slice::from_ref(&(0..3)));
    assert_eq!(groups(&[3, 3, 4], 9), [0..1, 1..2, 2..3]);
    assert_eq!(groups(&[1, 1, 1, 1, 1, 1, 1], 6), [0..3, 3..6, 6..7]);
    assert_eq!(groups(&[2, 50, 1, 1], 8), [0..1, 1..2, 2..4]);
    assert_eq!(groups(&[5, 5], 0), [0..1, 1..2], "never less than two tablets");
    for memory_bytes in 0..40 {
        let costs = [4, 1, 7, 2, 2, 9, 1];
        let groups = groups(&costs, memory_bytes);
        let places: Vec<usize> = groups.iter().cloned().flatten().collect();
        assert_eq!(places, (0..costs.len()).collect::<Vec<_>>(), "each is in one group");
    }
}
