//! Makes fuzzing inputs from seeds: a number in, bytes out.
//!
//! Invariant: [`input`] depends on its arguments alone, so every input can be made again.

use cleave_media::SplitMix64;

use crate::protobuf;

/// The structure of a target's inputs, so that mutations keep most of it intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Numbers at fixed offsets, and values.
    Flat,
    /// A byte that selects the message, then a protobuf message.
    Message,
    /// A protobuf message.
    BareMessage,
}

/// Longest input: mutations that lengthen beyond it are truncated.
pub const INPUT_BYTES_MAX: usize = 1 << 20;

/// Numbers that often trip decoders.
const ODD_NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    7,
    8,
    63,
    64,
    127,
    255,
    256,
    4095,
    65_535,
    65_536,
    0x7fff_ffff,
    0xffff_ffff,
    u64::MAX,
];

/// The input number `number` of `seeds`.
#[must_use]
pub fn input(seeds: &[Vec<u8>], shape: Shape, number: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(number);
    let mut bytes = pick(seeds, &mut random).cloned().unwrap_or_default();
    if number < seeds.len() as u64 {
        // The first inputs are the unchanged seeds.
        return usize::try_from(number).ok().and_then(|n| seeds.get(n)).cloned().unwrap_or(bytes);
    }
    let changes = 1 + random.below(4);
    for _ in 0..changes {
        let structural = random.below(4) != 0;
        match shape {
            Shape::Message if structural && !bytes.is_empty() => {
                let donor = pick(seeds, &mut random).and_then(|seed| seed.get(1..));
                let message = bytes.split_off(1);
                bytes.extend(protobuf::mutate(&message, donor.unwrap_or_default(), &mut random));
            }
            Shape::BareMessage if structural => {
                let donor = pick(seeds, &mut random).map(Vec::as_slice).unwrap_or_default();
                bytes = protobuf::mutate(&bytes, donor, &mut random);
            }
            _ => change(&mut bytes, seeds, &mut random),
        }
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

/// One of `all`.
pub(crate) fn pick<'a, T>(all: &'a [T], random: &mut SplitMix64) -> Option<&'a T> {
    all.get(usize::try_from(random.below(all.len() as u64)).ok()?)
}

/// A number that is often a boundary case.
pub(crate) fn odd_number(random: &mut SplitMix64) -> u64 {
    let base = pick(&ODD_NUMBERS, random).copied().unwrap_or(0);
    match random.below(4) {
        0 => base.wrapping_add(random.below(3)).wrapping_sub(1),
        1 => random.next_u64() >> random.below(64),
        _ => base,
    }
}

/// An offset in `bytes`; more often in the first 512 bytes, which have the headers.
fn place(bytes: &[u8], random: &mut SplitMix64) -> usize {
    let length = if random.below(2) == 0 { bytes.len().min(512) } else { bytes.len() };
    usize::try_from(random.below(length as u64)).unwrap_or(0)
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut SplitMix64) {
    if bytes.is_empty() {
        bytes.push(0);
    }
    let at = place(bytes, random);
    let end = |width: usize, bytes: &[u8]| at.saturating_add(width).min(bytes.len());
    match random.below(10) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        2..=4 => {
            // A number of 1, 2, 4 or 8 bytes, mostly at its aligned offset.
            let width = 1 << random.below(4);
            let at = at - at % width;
            let number = odd_number(random).to_le_bytes();
            for (byte, new) in bytes.iter_mut().skip(at).take(width).zip(number) {
                *byte = new;
            }
        }
        5 => {
            let end = end(usize::try_from(random.below(64)).unwrap_or(0), bytes);
            let value = if random.below(2) == 0 { 0 } else { u8::MAX };
            bytes.get_mut(at..end).unwrap_or_default().fill(value);
        }
        6 => bytes.truncate(at),
        7 => {
            let end = end(usize::try_from(random.below(256)).unwrap_or(0), bytes);
            bytes.drain(at..end);
        }
        8 => {
            let end = end(usize::try_from(random.below(256)).unwrap_or(0), bytes);
            let copy = bytes.get(at..end).unwrap_or_default().to_vec();
            bytes.splice(at..at, copy);
        }
        _ => {
            // The same offset of another seed.
            let other = pick(seeds, random).map(Vec::as_slice).unwrap_or_default();
            let width = usize::try_from(1 + random.below(512)).unwrap_or(1);
            let donor = other.get(at..at.saturating_add(width).min(other.len()));
            for (byte, new) in bytes.iter_mut().skip(at).zip(donor.unwrap_or_default()) {
                *byte = *new;
            }
        }
    }
}

#[cfg(test)]
mod tests;
