//! Integer streams: every layout is chosen when it is shortest, comes back, and compares.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use bytes::Bytes;
use proptest::prelude::{any, prop, prop_assert_eq, proptest};

use super::{Integers, encode};
use crate::bloom::{BloomFilter, hash_integer};
use crate::integer_set::{IntegerSet, Kept};

fn encoded(values: &[i64]) -> Bytes {
    let mut bytes = Vec::new();
    encode(values, &mut bytes);
    Bytes::from(bytes)
}

fn all(integers: &Integers, range: std::ops::Range<usize>) -> Vec<i64> {
    let mut values = Vec::new();
    integers.each_block(range.clone(), |block| values.extend_from_slice(block));
    let mut again = Vec::new();
    integers.extend(range, &mut again, |value| value);
    assert_eq!(values, again);
    values
}

/// Checks that values come back in every way; returns the kind of their layout.
fn round_trip(values: &[i64]) -> u8 {
    let mut bytes = encoded(values).to_vec();
    let kind = bytes[0];
    bytes.extend([1, 2, 3]);
    let bytes = Bytes::from(bytes);
    let (integers, rest) = Integers::parse(&bytes, values.len()).unwrap();
    assert_eq!(rest[..], [1, 2, 3]);
    assert_eq!(all(&integers, 0..values.len()), values);
    for from in [1, 255, 256, 300] {
        let to = values.len().min(from + 500);
        if from < to {
            assert_eq!(all(&integers, from..to), values[from..to]);
        }
    }
    for index in (0..values.len()).step_by(7) {
        assert_eq!(integers.get(index), values[index]);
    }
    for (from, one_in) in [(0, 1), (0, 2), (3, 9), (300, 70)] {
        let range = from.min(values.len())..values.len();
        let selected = BooleanBuffer::collect_bool(range.len(), |row| row * 7919 % one_in == 0);
        let mut found = Vec::new();
        integers.extend_selected(range.clone(), &selected, &mut found, |value| value);
        let expected: Vec<i64> = selected.set_indices().map(|row| values[from + row]).collect();
        assert_eq!(found, expected);
    }
    let middle = values.get(values.len() / 2).copied().unwrap_or(0);
    for other in [i128::from(middle), i128::MIN, i128::MAX, 1 << 70, 0, -1] {
        for wanted in [Ordering::is_lt, Ordering::is_eq, Ordering::is_ge, Ordering::is_ne] {
            let expected: Vec<bool> =
                values.iter().map(|value| wanted(i128::from(*value).cmp(&other))).collect();
            assert_eq!(integers.compare(other, wanted).iter().collect::<Vec<_>>(), expected);
        }
    }
    for step in [1, 3, 50] {
        let keys: Vec<i64> = values.iter().step_by(step).copied().collect();
        let (set, _) = IntegerSet::collect(keys.clone());
        let keys: BTreeSet<i64> = keys.into_iter().collect();
        let kept = BooleanBuffer::collect_bool(values.len(), |row| step > 1 || row % 70 < 9);
        let expected: Vec<bool> =
            values.iter().zip(&kept).map(|(value, kept)| kept && keys.contains(value)).collect();
        let found = integers.contained_in(&set, &Kept::of(&kept));
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        let hashes: Vec<u64> = keys.iter().map(|key| hash_integer(*key)).collect();
        let likely = IntegerSet::likely(Arc::new(BloomFilter::of(&hashes)));
        let expected: Vec<bool> =
            values.iter().zip(&kept).map(|(value, kept)| kept && likely.contains(*value)).collect();
        let found = integers.contained_in(&likely, &Kept::of(&kept));
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        assert!(keys.iter().all(|key| likely.contains(*key)));
    }
    kind
}

#[test]
fn each_layout_is_chosen_where_it_is_shortest() {
    let from = |rule: fn(i64) -> i64| (0..5000).map(rule).collect::<Vec<_>>();
    assert_eq!(round_trip(&from(|i| i * 7919 % 4001)), 0, "no order");
    assert_eq!(round_trip(&from(|i| i * 32 + i % 8)), 1, "ascending");
    assert_eq!(round_trip(&from(|i| i64::MAX - i * 3)), 1, "descending");
    assert_eq!(round_trip(&from(|i| i / 700 * 1_000_003)), 2, "runs");
    assert_eq!(round_trip(&from(|i| if i % 2 == 0 { i64::MIN } else { i64::MAX })), 0);
    assert_eq!(round_trip(&[]), 0);
    assert_eq!(round_trip(&[i64::MIN]), 0);
    assert_eq!(round_trip(&[5; 5000]), 0, "a base says it all");
}

#[test]
fn streams_that_lie_are_refused() {
    let values: Vec<i64> = (0..3000).map(|i| i / 600).collect();
    let bytes = encoded(&values);
    assert!(Integers::parse(&bytes, 2999).is_err());
    assert!(Integers::parse(&bytes.slice(..bytes.len() - 1), 3000).is_err());
    assert!(Integers::parse(&Bytes::new(), 0).is_err());
    for at in [0, 2, 4, 16, 20] {
        let mut hurt = bytes.to_vec();
        hurt[at] ^= 0x55;
        assert!(Integers::parse(&Bytes::from(hurt), 3000).is_err(), "byte {at}");
    }
}

proptest! {
    #[test]
    fn any_values_come_back(
        values in prop::collection::vec(any::<i64>(), 0..700),
        shift in 0_u32..64,
        repeat in 1_usize..9,
        sorted in any::<bool>(),
    ) {
        let mut values: Vec<i64> =
            values.iter().flat_map(|value| std::iter::repeat_n(value >> shift, repeat)).collect();
        if sorted {
            values.sort_unstable();
        }
        round_trip(&values);
    }

    #[test]
    fn any_bytes_parse_or_do_not(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600),
        kind in 0_u8..4,
        width in 0_u8..70,
        count in 0_u8..200,
    ) {
        for (place, value) in bytes.iter_mut().zip([kind, width, 0, 0, count, 0, 0, 0]) {
            *place = value;
        }
        let count = usize::from(count);
        if let Ok((integers, _)) = Integers::parse(&Bytes::from(bytes), count) {
            let values = all(&integers, 0..count);
            prop_assert_eq!(values.len(), count);
            for (index, value) in values.iter().enumerate() {
                prop_assert_eq!(integers.get(index), *value);
            }
            prop_assert_eq!(integers.compare(3, Ordering::is_lt).len(), count);
            let all = Kept::of(&BooleanBuffer::new_set(count));
            prop_assert_eq!(integers.contained_in(&IntegerSet::of(&[3]), &all).len(), count);
        }
    }
}
