//! Tests of which segments are rewritten together.

use super::*;

const HOT: Segment =
    Segment { is_worth_it: false, is_small: false, class: PageClass::HOT, bytes: 4 << 20 };

#[test]
fn neighbours_of_one_class_become_one() {
    let worth = Segment { is_worth_it: true, ..HOT };
    let small = Segment { is_small: true, ..HOT };
    let bulk = Segment { class: PageClass::BULK, ..worth };
    assert_eq!(groups(&[worth, worth, HOT, worth]), [vec![0, 1], vec![3]]);
    assert_eq!(groups(&[small, worth, small, HOT, small]), [vec![0, 1, 2]]);
    assert_eq!(groups(&[worth, bulk, bulk]), [vec![0], vec![1, 2]]);
    assert_eq!(groups(&[small, small]), Vec::<Vec<usize>>::new());
    let large = Segment { bytes: GROUP_BYTES_MAX, ..worth };
    assert_eq!(groups(&[large, large]), [vec![0], vec![1]]);
}
