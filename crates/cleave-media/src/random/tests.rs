//! Randomness: the published sequence, the bound, and that two draws differ.

use super::{SplitMix64, random_bytes};

#[test]
fn the_published_sequence() {
    let mut random = SplitMix64::new(1_234_567);
    let drawn: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
    assert_eq!(
        drawn,
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
    );
}

#[test]
fn bounded_draws_reach_all_values_and_no_others() {
    let mut random = SplitMix64::new(0);
    let mut seen = [false; 6];
    for _ in 0..200 {
        let drawn = usize::try_from(random.below(6)).unwrap();
        seen[drawn] = true;
    }
    assert_eq!(seen, [true; 6]);
    assert_eq!(random.below(0), 0);
}

#[test]
fn the_operating_system_does_not_repeat_itself() {
    assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
}
