//! Sets contain their keys and no others, near and far apart, at the ends of the integers too.

use arrow::buffer::BooleanBuffer;
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use super::{IntegerSet, Kept, Members};

fn is_bitmap(set: &IntegerSet) -> bool {
    matches!(set.members, Members::Bitmap(_))
}

#[test]
fn keys_near_each_other_are_bits_and_others_are_hashed() {
    let near: Vec<i64> = (0..100).map(|key| key * 50).collect();
    let far: Vec<i64> = (0..100).map(|key| key * 1_000_003).collect();
    assert!(is_bitmap(&IntegerSet::of(&near)));
    assert!(!is_bitmap(&IntegerSet::of(&far)));
    // A million keys may not take gigabytes.
    let many: Vec<i64> = (0..1 << 20).map(|key| key * 500).collect();
    assert!(!is_bitmap(&IntegerSet::of(&many)));
    let size = IntegerSet::size(0, *many.last().unwrap(), many.len());
    assert!(size <= 32 * many.len(), "{size}");
    for keys in [&near, &far] {
        let set = IntegerSet::of(keys);
        let size = IntegerSet::size(keys[0], keys[99], 100);
        match &set.members {
            Members::Bitmap(words) => assert_eq!(size, words.len() * 8),
            Members::Hashed { filter, slots, .. } => {
                assert_eq!(size, (filter.len() + slots.len()) * 8);
            }
            Members::Likely(_) => panic!("a set of known keys"),
        }
    }
}

#[test]
fn no_key_and_the_last_keys() {
    let none = IntegerSet::of(&[]);
    assert!(![0, 1, -1, i64::MIN, i64::MAX].iter().any(|key| none.contains(*key)));
    assert!(!none.may_meet(i64::MIN, i64::MAX));
    for keys in [&[i64::MIN, i64::MAX][..], &[i64::MAX - 1, i64::MAX], &[i64::MIN], &[0]] {
        let set = IntegerSet::of(keys);
        for key in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
            assert_eq!(set.contains(key), keys.contains(&key), "{key} in {keys:?}");
        }
    }
    let top = IntegerSet::of_bits(i64::MAX - 1, vec![u64::MAX]);
    assert!(top.contains(i64::MAX) && !top.contains(i64::MAX - 2) && top.may_meet(0, i64::MAX));
}

#[test]
fn bounds_that_meet_no_key_are_seen() {
    let set = IntegerSet::of(&[10, 500, 501]);
    let meets = |low, high| set.may_meet(low, high);
    assert!(meets(0, 10) && meets(500, 900) && meets(i64::MIN, i64::MAX));
    assert!(!meets(-5, 9) && !meets(502, 900) && !meets(100, 400));
}

proptest! {
    #[test]
    fn a_set_holds_its_keys_and_no_others(
        keys in prop::collection::vec(any::<i64>(), 0..300),
        shift in 0_u32..60,
        probes in prop::collection::vec(any::<i64>(), 0..300),
        kept in prop::collection::vec(any::<bool>(), 700),
        odds in 1_usize..40,
    ) {
        let keys: Vec<i64> = keys.iter().map(|key| key >> shift).collect();
        let (set, sorted) = IntegerSet::collect(keys.clone());
        prop_assert!(sorted.is_sorted());
        prop_assert_eq!(&IntegerSet::distinct(keys.clone()), &sorted);
        prop_assert_eq!(
            sorted.iter().collect::<std::collections::BTreeSet<_>>(),
            keys.iter().collect::<std::collections::BTreeSet<_>>()
        );
        if let Some(listed) = set.keys() {
            prop_assert_eq!(listed, sorted);
        }
        let near = keys.iter().flat_map(|key| [*key, key.wrapping_add(1), key.wrapping_sub(1)]);
        let values: Vec<i64> = near.chain(probes.iter().map(|probe| probe >> shift)).collect();
        let expected: Vec<bool> = values.iter().map(|value| keys.contains(value)).collect();
        let one_by_one: Vec<bool> = values.iter().map(|value| set.contains(*value)).collect();
        prop_assert_eq!(&one_by_one, &expected);
        let each = set.contains_each(&values, |value| value);
        prop_assert_eq!(each.iter().collect::<Vec<_>>(), expected.clone());
        for first in values.iter().take(30).flat_map(|value| [*value, value.wrapping_sub(40)]) {
            let next = set.among_next(set.place(first));
            for at in 0..64 {
                prop_assert_eq!(next >> at & 1 == 1, set.contains(first.wrapping_add(at)));
            }
        }
        // Few and many rows of a word, rows in the middle of one.
        let count = values.len().min(600);
        let chosen = |row: usize| kept[row] && row.is_multiple_of(odds);
        let kept = BooleanBuffer::collect_bool(700, |row| row >= 5 && chosen(row)).slice(5, count);
        let found = Kept::of(&kept).narrowed(|row, kept| {
            set.among(&values[row..values.len().min(row + 64)], kept, |value| set.place(value))
        });
        let wanted: Vec<bool> = (0..count).map(|row| kept.value(row) && expected[row]).collect();
        prop_assert_eq!(found.iter().collect::<Vec<_>>(), wanted);
    }
}
