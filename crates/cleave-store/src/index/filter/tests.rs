//! Filters: no key that was added is lost, few others pass.

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::prop_assert;

use super::{BLOCKED, FILTER_KEYS_MAX, FilterBuilder, HASHES_MAX};
use crate::segment::KeyFilter;

fn filter<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> Option<KeyFilter> {
    let mut builder = FilterBuilder::default();
    keys.into_iter().for_each(|key| builder.add(key));
    builder.finish()
}

proptest! {
    #[test]
    fn every_key_added_passes(keys in vec(vec(any::<u8>(), 0..40), 1..200)) {
        let filter = filter(keys.iter().map(Vec::as_slice)).unwrap();
        for key in &keys {
            prop_assert!(filter.may_have(key));
        }
    }

    #[test]
    fn foreign_bytes_never_panic(bytes in vec(any::<u8>(), 0..100), kind in 0u32..3, key in vec(any::<u8>(), 0..9)) {
        let filter = KeyFilter { kind, bytes };
        let passes = filter.may_have(&key);
        prop_assert!(passes || kind == BLOCKED && filter.bytes.len() >= 32);
    }
}

#[test]
fn few_keys_pass_that_were_not_added() {
    let keys: Vec<[u8; 5]> = (0..100_000u32).map(int_key).collect();
    let filter = filter(keys.iter().map(<[u8; 5]>::as_slice)).unwrap();
    assert_eq!(filter.bytes.len(), 125_024, "10 bits a key, in blocks of 32 bytes");
    let passed = (100_000..200_000).filter(|number| filter.may_have(&int_key(*number))).count();
    assert!(passed < 2_000, "{passed} of 100,000");
}

#[test]
fn a_filter_of_many_keys_has_the_size_and_the_answers_of_its_keys() {
    for (count, bytes) in
        [(HASHES_MAX + 1, 327_680), (400_000, 655_360), (FILTER_KEYS_MAX, 1_310_720)]
    {
        let count = u32::try_from(count).unwrap();
        let mut builder = FilterBuilder::default();
        for number in 0..count {
            builder.add(&int_key(number));
            assert!(builder.hashes.len() <= HASHES_MAX, "memory is bounded at {number}");
        }
        let filter = builder.finish().unwrap();
        assert_eq!(filter.bytes.len(), bytes, "{count} keys");
        assert!((0..count).all(|number| filter.may_have(&int_key(number))), "{count} keys");
        let others = u32::MAX - 100_000..u32::MAX;
        let passed = others.filter(|number| filter.may_have(&int_key(*number))).count();
        assert!(passed < 2_000, "{passed} of 100,000 with {count} keys");
    }
}

#[test]
fn no_keys_and_too_many_have_no_filter() {
    assert_eq!(filter([]), None);
    let mut builder = FilterBuilder::default();
    for number in 0..u32::try_from(FILTER_KEYS_MAX).unwrap() {
        builder.add(&int_key(number));
        builder.add(&int_key(number));
    }
    assert_eq!(builder.key_count, FILTER_KEYS_MAX, "equal keys in a row count once");
    builder.add(&int_key(u32::MAX));
    assert_eq!(builder.finish(), None);
}

fn int_key(number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.swap_bytes().to_le_bytes();
    [1, a, b, c, d]
}
