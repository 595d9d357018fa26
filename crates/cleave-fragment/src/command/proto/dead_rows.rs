//! The wire form of a page's dead rows in a morsel: the gaps between them where they are few, else a bit for each row.
//!
//! Invariant: decoding takes no more memory than the message, or the largest row count of a page, whatever it says.

use cleave_store::DeadRows;

use super::{Decoded, MalformedMessage};

/// From one dead row in this many, they are written as bits, which take little more than gaps.
const MANY: usize = 16;
/// Most rows of a page.
pub(super) const ROWS_MAX: u32 = 1 << 16;

/// Gaps, or bits.
pub(super) fn to_proto(dead: &DeadRows) -> (Vec<u32>, Vec<u8>) {
    let Some(bits) = dead.bits() else { return Default::default() };
    if bits.count_set_bits() >= bits.len() / MANY {
        let words = bits.bit_chunks();
        let mut bytes: Vec<u8> = words.iter_padded().flat_map(u64::to_le_bytes).collect();
        bytes.truncate(bits.len().div_ceil(8));
        return (Vec::new(), bytes);
    }
    let mut next = 0;
    let gap = |slot: usize| {
        let gap = u32::try_from(slot.saturating_sub(next)).unwrap_or(u32::MAX);
        next = slot.saturating_add(1);
        gap
    };
    (dead.slots().map(gap).collect(), Vec::new())
}

/// Decodes the result of [`to_proto`] for a page of `row_count` rows.
pub(super) fn from_proto(gaps: &[u32], bits: Vec<u8>, row_count: u32) -> Decoded<DeadRows> {
    let malformed = MalformedMessage::Field("dead rows of a morsel page");
    if gaps.is_empty() && bits.is_empty() {
        return Ok(DeadRows::none());
    }
    let rows = usize::try_from(row_count).ok().filter(|_| row_count <= ROWS_MAX);
    let Some(rows) = rows else { return Err(malformed) };
    if gaps.is_empty() {
        if bits.len() != rows.div_ceil(8) {
            return Err(malformed);
        }
        let words = bits.chunks(8).map(|bytes| {
            bytes.iter().rev().fold(0, |word: u64, byte| word << 8 | u64::from(*byte))
        });
        return Ok(DeadRows::of_words(words.collect(), rows));
    }
    let mut next = 0_u32;
    let mut slots = Vec::with_capacity(gaps.len().min(rows));
    for gap in gaps {
        let slot = next.checked_add(*gap).filter(|slot| *slot < row_count);
        let Some(slot) = slot.filter(|_| bits.is_empty()) else { return Err(malformed) };
        slots.extend(usize::try_from(slot));
        next = slot + 1;
    }
    Ok(DeadRows::of_slots(slots, rows))
}

#[cfg(test)]
mod tests {
    //! Both forms survive encoding; malformed ones are refused.

    use super::*;

    #[test]
    fn few_and_many_come_back_as_they_were() {
        for (slots, row_count) in [
            (vec![], 10),
            (vec![0, 1, 4], 100),
            (vec![0, 1, 4], 5),
            ((0..65_536).step_by(3).collect(), 65_536),
            ((7..900).step_by(40).collect(), 901),
        ] {
            let dead = DeadRows::of_slots(slots, row_count);
            let (gaps, bits) = to_proto(&dead);
            assert!(gaps.is_empty() || bits.is_empty());
            let row_count = u32::try_from(row_count).unwrap();
            assert_eq!(from_proto(&gaps, bits, row_count).unwrap(), dead);
        }
    }

    #[test]
    fn what_no_page_has_is_refused() {
        let refused =
            |gaps: &[u32], bits: &[u8], rows| from_proto(gaps, bits.to_vec(), rows).is_err();
        assert!(
            refused(&[5], &[], 5) && refused(&[0, 4], &[], 5) && refused(&[u32::MAX, 0], &[], 9)
        );
        assert!(refused(&[], &[1], 9) && refused(&[], &[1, 0, 0], 9) && refused(&[0], &[1], 8));
        assert!(refused(&[0], &[], u32::MAX), "memory for rows that no page has");
    }
}
