//! Bit packing: every width comes back by block and one by one, and short bytes are refused.

use bytes::Bytes;
use cleave_media::SplitMix64;

use super::{BLOCK, Packed, mask, pack, packed_length, width_of};

#[test]
fn every_width_comes_back() {
    let mut random = SplitMix64::new(3);
    for width in 0..=64 {
        for count in [1, 255, 256, 257, 1000] {
            let numbers: Vec<u64> = (0..count).map(|_| random.next_u64() & mask(width)).collect();
            let mut bytes = vec![];
            pack(numbers.iter().copied(), width, &mut bytes);
            assert_eq!(bytes.len(), packed_length(count, width));
            bytes.extend([7; 5]);
            let (packed, rest) = Packed::new(&Bytes::from(bytes), count, width).unwrap();
            assert_eq!(rest[..], [7; 5]);
            let (mut wide, mut narrow) = ([0; BLOCK], [0; BLOCK]);
            for (index, number) in numbers.iter().enumerate() {
                if index % BLOCK == 0 {
                    packed.block(index / BLOCK, &mut wide);
                    packed.block_narrow(index / BLOCK, &mut narrow);
                }
                assert_eq!(packed.get(index), *number, "width {width}");
                assert_eq!(wide[index % BLOCK], *number, "width {width}");
                if packed.is_narrow() {
                    assert_eq!(u64::from(narrow[index % BLOCK]), *number, "width {width}");
                }
            }
        }
    }
}

#[test]
fn bytes_that_are_too_few_are_refused() {
    for (count, width, length) in [(1, 1, 31), (257, 3, 191), (1, 65, 10_000)] {
        assert!(Packed::new(&Bytes::from(vec![0; length]), count, width).is_err());
    }
    assert!(Packed::new(&Bytes::new(), 1000, 0).is_ok());
}

#[test]
fn the_width_is_that_of_the_highest_bit() {
    assert_eq!([0, 1, 2, 255, 256, u64::MAX].map(width_of), [0, 1, 2, 8, 9, 64]);
}
