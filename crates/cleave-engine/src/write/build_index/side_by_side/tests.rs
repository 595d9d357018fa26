//! Tests of which part gets the next worker.

use super::*;

/// How many workers each part has, given its chunks left, once `worker_count` were given out.
fn given(chunks: &[usize], worker_count: usize) -> Vec<usize> {
    let mut parts: Vec<(usize, usize)> = chunks.iter().map(|chunks| (*chunks, 0)).collect();
    for _ in 0..worker_count {
        if let Some(place) = next_part(&parts) {
            parts[place].1 += 1;
        }
    }
    parts.into_iter().map(|(_, workers)| workers).collect()
}

#[test]
fn every_part_has_a_worker_before_one_has_two() {
    assert_eq!(given(&[100], 8), [8]);
    assert_eq!(given(&[100, 100, 100], 8), [3, 3, 2]);
    assert_eq!(given(&[1; 20], 8), [[1; 8].as_slice(), &[0; 12]].concat());
}

#[test]
fn no_worker_is_without_a_chunk() {
    assert_eq!(given(&[0, 2, 100, 1], 8), [0, 2, 5, 1]);
    assert_eq!(given(&[0, 0], 8), [0, 0]);
    assert_eq!(given(&[], 8), [0; 0]);
    // What others have left over.
    assert_eq!(next_part(&[(0, 0), (3, 2), (0, 1)]), Some(1));
    assert_eq!(next_part(&[(0, 0), (2, 2), (0, 1)]), None);
}
