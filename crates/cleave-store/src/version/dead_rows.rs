//! The dead rows of one page for a snapshot, as a bit for each slot, and the selection that leaves them out.
//!
//! Clones share the bits, and a page without dead rows has none. Bits come from a [`VersionMap`](super::VersionMap) 64
//! at a time, and go into the selection of a scan as they are, so a scan does not touch dead rows one by one.
//!
//! Invariant: if there are bits, at least one is set, so equal sets are equal values.

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::{BooleanBuffer, Buffer};

/// The rows of one page that are dead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadRows(Option<BooleanBuffer>);

impl DeadRows {
    /// The dead rows of a page that has none.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The dead rows of a page of `row_count` rows: those whose bits are set; slot 0 is the least bit of the first
    /// word.
    #[must_use]
    pub fn of_words(mut words: Vec<u64>, row_count: usize) -> Self {
        words.resize(row_count.div_ceil(64), 0);
        Self::of_bits(BooleanBuffer::new(Buffer::from_vec(words), 0, row_count))
    }

    /// The dead rows of a page of `row_count` rows, at `slots`. Slots beyond the page are ignored.
    pub fn of_slots(slots: impl IntoIterator<Item = usize>, row_count: usize) -> Self {
        let mut bits = BooleanBufferBuilder::new(row_count);
        bits.append_n(row_count, false);
        slots
            .into_iter()
            .filter(|slot| *slot < row_count)
            .for_each(|slot| bits.set_bit(slot, true));
        Self::of_bits(bits.finish())
    }

    /// The dead rows of a page, one bit for each slot.
    #[must_use]
    pub fn of_bits(bits: BooleanBuffer) -> Self {
        Self((bits.count_set_bits() > 0).then_some(bits))
    }

    /// These, and every row of the page, which has `row_count`, from the slot `first` on.
    #[must_use]
    pub fn with_rows_from(self, first: usize, row_count: usize) -> Self {
        if first >= row_count {
            return self;
        }
        let mut bits = BooleanBufferBuilder::new(row_count);
        bits.append_n(first, false);
        bits.append_n(row_count - first, true);
        self.slots().take_while(|slot| *slot < first).for_each(|slot| bits.set_bit(slot, true));
        Self::of_bits(bits.finish())
    }

    /// Whether no row is dead.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Number of dead rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.as_ref().map_or(0, BooleanBuffer::count_set_bits)
    }

    /// The slots of the dead rows, ascending.
    pub fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|bits| bits.set_indices())
    }

    /// A bit for each slot; None: no row is dead.
    #[must_use]
    pub fn bits(&self) -> Option<&BooleanBuffer> {
        self.0.as_ref()
    }

    /// Bytes that it holds in memory.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |bits| bits.len().div_ceil(8))
    }

    /// The rows of the page, which has `row_count`, that are not dead; None: all.
    #[must_use]
    pub fn left(&self, row_count: usize) -> Option<BooleanBuffer> {
        let bits = self.0.as_ref()?;
        if bits.len() == row_count {
            return Some(!bits);
        }
        // The bits may be of a page with more or fewer rows: bits beyond this page name no row.
        let mut left = BooleanBufferBuilder::new(row_count);
        left.append_n(row_count, true);
        bits.set_indices().take_while(|slot| *slot < row_count).for_each(|slot| {
            left.set_bit(slot, false);
        });
        Some(left.finish())
    }
}

#[cfg(test)]
mod tests {
    //! Dead rows given as bits and as slots are equal.

    use super::*;

    #[test]
    fn words_and_slots_tell_the_same() {
        let words = vec![1 | 1 << 63, 0, 1 << 5 | 1 << 60];
        let of_words = DeadRows::of_words(words, 134);
        assert_eq!(of_words, DeadRows::of_slots([0, 63, 133, 134, 900], 134));
        assert_eq!((of_words.count(), of_words.slots().last()), (3, Some(133)));
        let left = of_words.left(134).unwrap();
        assert_eq!((left.count_set_bits(), left.value(63), left.value(64)), (131, false, true));
    }

    #[test]
    fn no_rows_are_none() {
        for none in [
            DeadRows::none(),
            DeadRows::of_words(vec![0; 3], 192),
            DeadRows::of_words(vec![1 << 40], 40),
            DeadRows::of_words(vec![0, u64::MAX], 64),
            DeadRows::of_words(vec![], 65),
            DeadRows::of_slots([7], 7),
        ] {
            assert_eq!(none, DeadRows::none());
            assert!(none.is_empty() && none.left(9).is_none());
        }
    }

    #[test]
    fn rows_from_a_slot_on_are_left_out() {
        let dead = DeadRows::of_slots([1, 8], 10);
        let left =
            |dead: DeadRows| dead.left(10).map(|left| left.set_indices().collect::<Vec<_>>());
        assert_eq!(left(dead.clone().with_rows_from(4, 10)), Some(vec![0, 2, 3]));
        assert_eq!(dead.clone().with_rows_from(10, 10), dead);
        assert_eq!(left(DeadRows::none().with_rows_from(9, 10)), Some((0..9).collect()));
        assert_eq!(left(dead.with_rows_from(0, 10)), Some(vec![]));
    }

    #[test]
    fn a_page_has_the_rows_that_it_has() {
        let dead = DeadRows::of_slots([1, 8], 10);
        assert_eq!(dead.left(4).unwrap().set_indices().collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(dead.left(12).unwrap().count_set_bits(), 10);
    }
}
