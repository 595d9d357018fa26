//! Mutates protobuf messages as trees of fields, without knowing their type.
//!
//! A field whose bytes parse as a message may be one; some mutations descend into it. Lengths are rewritten around
//! every change, so that a decoder reads on behind it.

use cleave_media::SplitMix64;

use crate::mutate::{INPUT_BYTES_MAX, odd_number, pick};

/// Deepest message that is parsed.
const DEPTH_MAX: u32 = 24;
/// Deepest nesting that a mutation makes.
const NESTING_MAX: u64 = 300;

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    number: u64,
    value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(u64),
    Eight([u8; 8]),
    Bytes(Vec<u8>),
    Four([u8; 4]),
}

/// `message` with one mutation; fields of `donor` may be copied into it.
#[must_use]
pub fn mutate(message: &[u8], donor: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    change(message, donor, random, 0)
}

fn change(message: &[u8], donor: &[u8], random: &mut SplitMix64, depth: u32) -> Vec<u8> {
    let Some(mut fields) = read(message).filter(|fields| !fields.is_empty()) else {
        return write(&[field(donor, random).unwrap_or(Field { number: 1, value: odd(random) })]);
    };
    let place = usize::try_from(random.below(fields.len() as u64)).unwrap_or(0);
    let Some(chosen) = fields.get_mut(place) else { return write(&fields) };
    if let Value::Bytes(bytes) = &mut chosen.value
        && depth < DEPTH_MAX
        && random.below(4) != 0
        && read(bytes).is_some_and(|inner| !inner.is_empty())
    {
        *bytes = change(bytes, donor, random, depth + 1);
        return write(&fields);
    }
    match random.below(9) {
        0 | 1 => chosen.value = changed(&chosen.value, random),
        2 => chosen.number = 1 + random.below(40),
        3 => drop(fields.remove(place)),
        4 => {
            let copy = chosen.clone();
            let most = if random.below(10) == 0 { 2000 } else { 3 };
            // At most what fits an input: many repeats of a long field would take hundreds of megabytes.
            let room = INPUT_BYTES_MAX / write(std::slice::from_ref(&copy)).len();
            let count = usize::try_from(1 + random.below(most)).unwrap_or(1).min(room);
            fields.splice(place..place, std::iter::repeat_n(copy, count));
        }
        5 => fields.rotate_left(place),
        6 => {
            let number = chosen.number;
            let mut inner = write(std::slice::from_ref(chosen));
            for _ in 0..random.below(NESTING_MAX) {
                inner = write(&[Field { number, value: Value::Bytes(inner) }]);
            }
            chosen.value = Value::Bytes(inner);
        }
        7 => chosen.value = odd(random),
        _ => {
            if let Some(lent) = field(donor, random) {
                // Under the number of the field it replaces, or under its own.
                let number = if random.below(2) == 0 { chosen.number } else { lent.number };
                *chosen = Field { number, value: lent.value };
            }
        }
    }
    write(&fields)
}

/// Some field of `message`, at any depth.
fn field(message: &[u8], random: &mut SplitMix64) -> Option<Field> {
    let mut found = pick(&read(message)?, random)?.clone();
    while random.below(3) != 0
        && let Value::Bytes(bytes) = &found.value
        && let Some(fields) = read(bytes)
        && let Some(inner) = pick(&fields, random)
    {
        found = inner.clone();
    }
    Some(found)
}

fn odd(random: &mut SplitMix64) -> Value {
    match random.below(4) {
        0 => Value::Bytes(Vec::new()),
        1 => Value::Eight(odd_number(random).to_le_bytes()),
        _ => Value::Number(odd_number(random)),
    }
}

/// A value of the same kind.
fn changed(value: &Value, random: &mut SplitMix64) -> Value {
    match value {
        Value::Number(number) => Value::Number(match random.below(3) {
            0 => number.wrapping_add(random.below(5)).wrapping_sub(2),
            1 => number ^ 1 << random.below(64),
            _ => odd_number(random),
        }),
        Value::Eight(_) => Value::Eight(odd_number(random).to_le_bytes()),
        Value::Four(bytes) => {
            let mut bytes = *bytes;
            if let Some(byte) = bytes.get_mut(usize::try_from(random.below(4)).unwrap_or(0)) {
                *byte ^= 1 << random.below(8);
            }
            Value::Four(bytes)
        }
        Value::Bytes(bytes) => {
            let mut bytes = bytes.clone();
            let place = usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap_or(0);
            match random.below(5) {
                0 => bytes.truncate(place),
                1 => bytes.insert(place, u8::MAX),
                2 => bytes.extend(std::iter::repeat_n(b'x', place.saturating_mul(8).min(1 << 16))),
                3 => drop(bytes.drain(..place)),
                _ => {
                    if let Some(byte) = bytes.get_mut(place) {
                        *byte ^= 1 << random.below(8);
                    }
                }
            }
            Value::Bytes(bytes)
        }
    }
}

/// The fields of `bytes`, if they parse as a message to their end.
fn read(mut bytes: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = read_number(&mut bytes)?;
        let number = key >> 3;
        if number == 0 {
            return None;
        }
        let value = match key & 7 {
            0 => Value::Number(read_number(&mut bytes)?),
            1 => Value::Eight(take(&mut bytes)?),
            2 => {
                let length = usize::try_from(read_number(&mut bytes)?).ok()?;
                let (inner, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Value::Bytes(inner.to_vec())
            }
            5 => Value::Four(take(&mut bytes)?),
            _ => return None,
        };
        fields.push(Field { number, value });
    }
    Some(fields)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = take::<1>(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn write(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Field { number, value } in fields {
        let kind = match value {
            Value::Number(_) => 0,
            Value::Eight(_) => 1,
            Value::Bytes(_) => 2,
            Value::Four(_) => 5,
        };
        write_number(&mut bytes, number << 3 | kind);
        match value {
            Value::Number(number) => write_number(&mut bytes, *number),
            Value::Eight(fixed) => bytes.extend(fixed),
            Value::Bytes(inner) => {
                write_number(&mut bytes, inner.len() as u64);
                bytes.extend(inner);
            }
            Value::Four(fixed) => bytes.extend(fixed),
        }
    }
    bytes
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    //! A parsed message is written back unchanged.

    use cleave_media::SplitMix64;

    use super::{Field, Value, mutate, read, write};
    use crate::mutate::INPUT_BYTES_MAX;

    #[test]
    fn no_change_makes_more_of_a_message_than_an_input_has_room_for() {
        // An input of the fragments once had two thousand repeats of such a field, of which a megabyte was kept.
        let long = Field { number: 1, value: Value::Bytes(vec![0; 48 << 10]) };
        let message = write(&[long]);
        let mut longest = 0;
        for number in 0..3000 {
            longest = longest.max(mutate(&message, &message, &mut SplitMix64::new(number)).len());
        }
        assert!(longest > 4 * message.len(), "no field was copied: {longest}");
        assert!(longest <= INPUT_BYTES_MAX + 2 * message.len(), "{longest}");
    }

    #[test]
    fn fields_come_back_as_they_were() {
        // 1: 150, 2: "testing", 3: { 1: 5 }, fixed ones behind.
        let mut bytes = vec![0x08, 0x96, 0x01, 0x12, 7];
        bytes.extend(b"testing");
        bytes.extend([0x1a, 2, 8, 5, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x2d, 1, 2, 3, 4]);
        let fields = read(&bytes).unwrap();
        assert_eq!(fields.len(), 5);
        assert_eq!(write(&fields), bytes);
        assert!(read(&bytes[..bytes.len() - 1]).is_none());
    }
}
