//! Counts the fields of a message that may become structures in memory, without decoding it.
//!
//! A field of two bytes can become a structure of a kilobyte, and a decoder allocates all of them before anyone can ask
//! how many there are. So a peer's messages are counted first, without taking memory: every length-delimited field, at
//! every depth. Only the decoder knows which of them are messages; here every one is read as if it were, as far as it
//! parses. So the count is never below the decoder's and seldom far above it.
//!
//! Source: the encoding as <https://protobuf.dev/programming-guides/encoding/> describes it.

#![deny(clippy::indexing_slicing)]

/// Deepest message that is walked, beyond what any decoder walks.
const DEPTH_MAX: usize = 512;

/// Counts length-delimited fields in `message`, at all depths.
pub fn count_fields(message: &[u8]) -> usize {
    let mut count = 0;
    walk(message, 0, &mut count);
    count
}

fn walk(mut bytes: &[u8], depth: usize, count: &mut usize) {
    while let Some(key) = take_varint(&mut bytes) {
        let rest = match (key & 7, key >> 3) {
            (_, 0) => None,
            (0, _) => take_varint(&mut bytes).map(|_| bytes),
            (1, _) => bytes.get(8..),
            (2, _) => {
                let length =
                    take_varint(&mut bytes).and_then(|length| usize::try_from(length).ok());
                let field = length.and_then(|length| bytes.split_at_checked(length));
                field.map(|(field, rest)| {
                    // No byte is read as part of two fields, so the time is linear in the length.
                    *count = count.saturating_add(1);
                    if depth < DEPTH_MAX {
                        walk(field, depth + 1, count);
                    } else {
                        *count = count.saturating_add(field.len() / 2);
                    }
                    rest
                })
            }
            // The content of a group counts as part of its parent: decoders skip groups.
            (3 | 4, _) => Some(bytes),
            (5, _) => bytes.get(4..),
            _ => None,
        };
        match rest {
            Some(rest) => bytes = rest,
            None => return,
        }
    }
}

/// Takes a varint; None if the bytes end within it.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    //! The count covers every field that a decoder would allocate, at any depth and before any garbage.

    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Tree {
        #[prost(uint64, tag = "1")]
        number: u64,
        #[prost(message, repeated, tag = "2")]
        children: Vec<Tree>,
        #[prost(double, tag = "17")]
        weight: f64,
        #[prost(fixed32, tag = "300")]
        sum: u32,
    }

    fn node_count(tree: &Tree) -> usize {
        1 + tree.children.iter().map(node_count).sum::<usize>()
    }

    fn tree() -> impl Strategy<Value = Tree> {
        let leaf = (any::<u64>(), any::<i32>(), any::<u32>()).prop_map(|(number, weight, sum)| {
            Tree { number, children: Vec::new(), weight: weight.into(), sum }
        });
        leaf.prop_recursive(6, 64, 5, |inner| {
            (any::<u64>(), proptest::collection::vec(inner, 0..5))
                .prop_map(|(number, children)| Tree { number, children, ..Tree::default() })
        })
    }

    proptest! {
        #[test]
        fn every_message_is_counted_once(tree in tree()) {
            prop_assert_eq!(count_fields(&tree.encode_to_vec()), node_count(&tree) - 1);
        }

        #[test]
        fn never_fewer_than_are_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(tree) = Tree::decode(bytes.as_slice()) {
                prop_assert!(count_fields(&bytes) + 1 >= node_count(&tree));
            }
        }
    }

    #[test]
    fn what_precedes_damage_is_counted() {
        // Fields of no bytes, then a group that hides more of them, then what is no key.
        let mut bytes = [0x12, 0x00].repeat(1000);
        bytes.push(0x0b);
        bytes.extend([0x12, 0x00].repeat(1000));
        bytes.extend([0x0c, 0x07]);
        assert_eq!(count_fields(&bytes), 2000);
    }

    #[test]
    fn depth_costs_no_stack() {
        let mut bytes = Vec::new();
        for _ in 0..2000 {
            let mut outer = vec![0x12];
            prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
            outer.append(&mut bytes);
            bytes = outer;
        }
        assert!(count_fields(&bytes) > DEPTH_MAX);
    }
}
