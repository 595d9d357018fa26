//! Selects values: values and a bit for each in, those whose bit is set out, in order.
//!
//! If all bits of a word of 64 are set, its values are copied at once; if few are set, one by one. Otherwise every
//! value is written, and the next one overwrites it unless it was selected. So no branch depends on a bit: the
//! processor could not predict branches on mixed bits.

use arrow::buffer::BooleanBuffer;

/// If fewer bits of a word are set than these, each value is looked up.
const FEW: u32 = 16;

/// Appends those of `values` that are `selected`, converted by `convert`, to `target`.
pub(crate) fn push_selected<T: Copy, U: Copy + Default>(
    values: &[T],
    selected: &BooleanBuffer,
    target: &mut Vec<U>,
    convert: impl Fn(T) -> U,
) {
    for (values, word) in values.chunks(64).zip(selected.bit_chunks().iter_padded()) {
        let all = u64::MAX >> (64 - values.len());
        let word = word & all;
        if word == all {
            target.extend(values.iter().map(|value| convert(*value)));
        } else if word.count_ones() < FEW {
            let mut left = word;
            while left != 0 {
                let value = values.get(left.trailing_zeros() as usize);
                target.extend(value.map(|value| convert(*value)));
                left &= left - 1;
            }
        } else {
            let mut kept = [U::default(); 64];
            let mut count = 0;
            for (bit, value) in values.iter().enumerate() {
                kept[count % 64] = convert(*value);
                count += usize::from(word >> bit & 1 == 1);
            }
            target.extend_from_slice(kept.get(..count).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    //! Selection against picking one by one.

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_set_ones_are_left_in_order(
            bits in vec(any::<bool>(), 0..400),
            out_of in 1_usize..40,
            full in any::<bool>(),
            from in 0_usize..70,
        ) {
            // Any bits, or all but a few.
            let bits: Vec<bool> = bits
                .iter()
                .enumerate()
                .map(|(place, bit)| if full { place % out_of > 0 || *bit } else { *bit })
                .collect();
            let from = from.min(bits.len());
            let selected = BooleanBuffer::from(bits.clone()).slice(from, bits.len() - from);
            let values: Vec<u32> = (7..).take(bits.len() - from).collect();
            let mut found = vec![-1_i64];
            push_selected(&values, &selected, &mut found, |value| i64::from(value) * 2);
            let kept = values.iter().zip(&bits[from..]).filter(|(_, bit)| **bit);
            let expected: Vec<i64> =
                [-1].into_iter().chain(kept.map(|(value, _)| i64::from(*value) * 2)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
