//! No added key is lost, in any size and after a round trip; few others pass; foreign bytes are checked.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn every_key_added_passes(
        numbers in vec(any::<i64>(), 1..400),
        texts in vec("[a-z]{0,20}", 0..50),
        bytes_max in 0_usize..2000,
    ) {
        let mut hashes: Vec<u64> = numbers.iter().map(|number| hash_integer(*number)).collect();
        hashes.extend(texts.iter().map(|text| hash_bytes(text.as_bytes())));
        hashes.extend(hashes.clone().windows(2).map(|pair| hash_both(pair[0], pair[1])));
        let mut filled = BloomFilter::largest();
        hashes.iter().for_each(|hash| filled.add(*hash));
        let crossed = BloomFilter::from_bytes(&filled.clone().shrunk(bytes_max).to_bytes()).unwrap();
        prop_assert!(crossed.bytes() <= bytes_max.max(BLOCK_BYTES));
        for filter in [filled.shrunk(usize::MAX), crossed, BloomFilter::of(&hashes)] {
            prop_assert!(hashes.iter().all(|hash| filter.may_have(*hash)));
        }
    }

    #[test]
    fn foreign_bytes_are_whole_blocks_or_nothing(bytes in vec(any::<u8>(), 0..200), hash in any::<u64>()) {
        let filter = BloomFilter::from_bytes(&bytes);
        let blocks = bytes.len() / BLOCK_BYTES;
        prop_assert_eq!(filter.is_some(), bytes.len() % BLOCK_BYTES == 0 && blocks.is_power_of_two());
        if let Some(filter) = filter {
            let _ = filter.may_have(hash);
            prop_assert_eq!(filter.to_bytes(), bytes);
        }
    }
}

#[test]
fn a_filter_that_was_filled_at_its_largest_shrinks_to_what_its_keys_need() {
    for count in [1, 100, 5_000, 200_000] {
        let mut filter = BloomFilter::largest();
        // Twice, as keys of a join come.
        for key in (0..count).chain(0..count) {
            filter.add(hash_integer(key * 977));
        }
        let filter = filter.shrunk(usize::MAX);
        let bits = filter.bytes() as f64 * 8.0 / count as f64;
        assert!(count < 100 || (9.0..24.0).contains(&bits), "{count}: {bits} bits a key");
        let known = filter.key_count() / count as f64;
        assert!((0.9..1.1).contains(&known), "{count}: {} keys", filter.key_count());
        let others = (0..50_000).map(|key| key * 977 + 1);
        let passed = others.filter(|key| filter.may_have(hash_integer(*key))).count();
        assert!(passed < 1_500, "{count}: {passed} of 50,000");
        let expected = filter.false_share() * 50_000.0;
        assert!((passed as f64 - expected).abs() < 300.0, "{count}: {passed}, not {expected}");
    }
}

#[test]
fn too_many_keys_let_nearly_everything_through_and_say_so() {
    let mut filter = BloomFilter::largest();
    for key in 0..2_000_000 {
        filter.add(hash_integer(key));
    }
    let filter = filter.shrunk(usize::MAX);
    assert_eq!(filter.bytes(), BLOOM_BYTES_MAX);
    let (told, expected) = (filter.false_share(), BloomFilter::expected_false_share(2e6));
    assert!(told > 0.8 && (told - expected).abs() < 0.02, "{told}, not {expected}");
    assert!(BloomFilter::expected_false_share(1000.0) < 0.02);
    assert!(BloomFilter::from_bytes(&vec![0; 2 * BLOOM_BYTES_MAX]).is_none());
}

#[test]
fn hashes_are_the_same_everywhere() {
    let hashes = [hash_integer(0), hash_integer(-1), hash_bytes(b"murder"), hash_both(1, 2)];
    assert_eq!(hashes.map(|hash| hash % 1_000_000), PINNED);
}

/// Hash values that stored filters rely on.
const PINNED: [u64; 4] = [278_450, 722_058, 92_826, 820_937];
