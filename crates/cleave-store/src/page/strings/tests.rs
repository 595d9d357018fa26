//! Text blocks: values come back whole, in part and one by one, symbols save bytes, and invalid blocks are refused.

use bytes::Bytes;
use cleave_media::SplitMix64;
use proptest::prelude::{any, prop, prop_assert_eq, proptest};

use super::{Compressor, Strings, TextPlan, coded};

fn encoded(values: &[Vec<u8>]) -> Bytes {
    let bytes = values.iter().map(Vec::len).sum();
    let plan = TextPlan::of(values.len(), bytes, |index| &values[index]);
    let mut target = Vec::new();
    plan.encode(values.iter().map(Vec::as_slice), bytes, &mut target);
    Bytes::from(target)
}

fn round_trip(values: &[Vec<u8>]) -> Bytes {
    let bytes = encoded(values);
    let strings = Strings::parse(&bytes, values.len()).unwrap();
    let check = |from: usize, to: usize, (offsets, bytes): (Vec<i32>, Vec<u8>)| {
        let found: Vec<&[u8]> = offsets
            .windows(2)
            .map(|ends| {
                &bytes[usize::try_from(ends[0]).unwrap()..usize::try_from(ends[1]).unwrap()]
            })
            .collect();
        assert!(found == values[from..to]);
    };
    let count = values.len();
    for (from, to) in [(0, count), (count / 3, count / 2), (count, count)] {
        check(from, to, strings.decode(from..to).unwrap());
        check(from, to, strings.gather(&(from..to).collect::<Vec<_>>()).unwrap());
    }
    for index in (0..count).step_by(11) {
        assert_eq!(strings.gather(&[index]).unwrap().1, values[index]);
    }
    bytes
}

/// Texts of words, as people write them.
fn prose(count: usize) -> Vec<Vec<u8>> {
    let words = ["the ", "quick ", "requests ", "sleep ", "furiously ", "among ", "deposits "];
    let mut random = SplitMix64::new(5);
    let mut text = || -> Vec<u8> {
        (0..random.below(9))
            .flat_map(|_| words[usize::try_from(random.below(7)).unwrap()].bytes())
            .collect()
    };
    (0..count).map(|_| text()).collect()
}

#[test]
fn words_shrink_and_come_back() {
    let values = prose(3000);
    let bytes = round_trip(&values);
    assert_eq!(bytes[0], 1, "by symbols");
    assert!(bytes.len() * 3 < values.iter().map(Vec::len).sum());
    assert_eq!(round_trip(&prose(20))[0], 0, "too few to pay for symbols");
    round_trip(&[]);
    round_trip(&[Vec::new()]);
}

#[test]
fn a_part_takes_about_the_room_of_its_bytes() {
    let values = prose(60_000);
    let strings = Strings::parse(&round_trip(&values), values.len()).unwrap();
    for range in [0..8192, 1000..30_000, 50_000..60_000] {
        let (_, bytes) = strings.decode(range.clone()).unwrap();
        let most = bytes.len() * 3 / 2 + super::WINDOW * super::SYMBOL_BYTES;
        assert!(bytes.capacity() <= most, "{range:?}: {} for {}", bytes.capacity(), bytes.len());
    }
}

#[test]
fn values_end_and_escapes_lie_anywhere_in_a_window_of_codes() {
    let mut values = prose(9000);
    let mut random = SplitMix64::new(9);
    for value in &mut values {
        // Bytes that no symbol stands for.
        if random.below(3) == 0 {
            value.push(u8::try_from(128 + random.below(127)).unwrap());
        }
    }
    let bytes = round_trip(&values);
    assert_eq!(bytes[0], 1, "by symbols");
    assert!(bytes.len() > 5 * super::WINDOW);
}

#[test]
fn values_coded_together_have_the_bytes_that_each_has_alone() {
    for count in [0, 1, 2, 3, 4, 5, 700] {
        let mut values = prose(count);
        // Bytes that no symbol stands for, beside many that do.
        values.extend((0..count / 7).map(|at| vec![u8::try_from(at % 251).unwrap(); at % 12]));
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let compressor = Compressor::train(&values);
        let (codes, ends) = coded(&compressor, &values);
        let alone: Vec<Vec<u8>> = values.iter().map(|value| compressor.compress(value)).collect();
        assert_eq!(codes, alone.concat());
        let mut end = 0;
        for (value, found) in alone.iter().zip(&ends) {
            end += value.len() as u64;
            assert_eq!(*found, end);
        }
        assert_eq!(ends.len(), values.len());
    }
}

#[test]
fn noise_stays_as_it_is() {
    let mut random = SplitMix64::new(5);
    let values: Vec<Vec<u8>> =
        (0..2000).map(|_| (0..8).map(|_| random.next_u64().to_le_bytes()[0]).collect()).collect();
    assert_eq!(round_trip(&values)[0], 0);
}

#[test]
fn blocks_that_lie_are_refused() {
    let values = prose(500);
    let bytes = encoded(&values);
    assert!(Strings::parse(&bytes, 499).is_err());
    assert!(Strings::parse(&bytes.slice(..bytes.len() - 1), 500).is_err());
    for at in [0, 2, 8, 12, 16] {
        let mut hurt = bytes.to_vec();
        hurt[at] ^= 0x55;
        assert!(Strings::parse(&Bytes::from(hurt), 500).is_err(), "byte {at}");
    }
}

proptest! {
    #[test]
    fn any_values_come_back(
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..40),
        repeat in 1_usize..30,
    ) {
        let values: Vec<Vec<u8>> =
            std::iter::repeat_n(values, repeat).flatten().collect();
        round_trip(&values);
    }

    #[test]
    fn damaged_blocks_never_panic(at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let values = prose(300);
        let mut bytes = encoded(&values).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(strings) = Strings::parse(&Bytes::from(bytes), 300)
            && let Ok((offsets, _)) = strings.decode(0..300)
        {
            prop_assert_eq!(offsets.len(), 301);
            for index in 0..300 {
                strings.gather(&[index]).unwrap();
            }
        }
    }
}
