//! Sets of rows of one page, in few bytes.

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;

/// Rows of one page: positions from 0 to its number of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowSet {
    /// None of them.
    None,
    /// All of them.
    All,
    /// A few, in ascending order.
    Few(Box<[u16]>),
    /// One bit a row.
    Bits(BooleanBuffer),
}

impl RowSet {
    /// The rows whose bits are set, in the smallest form.
    pub fn of(bits: &BooleanBuffer) -> Self {
        let count = bits.count_set_bits();
        if count == 0 {
            return Self::None;
        }
        if count == bits.len() {
            return Self::All;
        }
        let is_small = count * size_of::<u16>() < bits.len().div_ceil(8);
        let positions = || bits.set_indices().map(|row| u16::try_from(row).ok()).collect();
        match is_small.then(positions).flatten() {
            Some(few) => Self::Few(few),
            None => Self::Bits(copied(bits)),
        }
    }

    /// A bit for each of `row_count` rows.
    pub fn bits(&self, row_count: usize) -> BooleanBuffer {
        match self {
            Self::None => BooleanBuffer::new_unset(row_count),
            Self::All => BooleanBuffer::new_set(row_count),
            Self::Few(rows) => {
                let mut bits = BooleanBufferBuilder::new(row_count);
                bits.append_n(row_count, false);
                let within =
                    rows.iter().map(|row| usize::from(*row)).filter(|row| *row < row_count);
                within.for_each(|row| bits.set_bit(row, true));
                bits.finish()
            }
            Self::Bits(bits) => bits.clone(),
        }
    }

    /// Bytes on the heap.
    fn heap_bytes(&self) -> usize {
        match self {
            Self::None | Self::All => 0,
            Self::Few(rows) => size_of_val(&**rows),
            Self::Bits(bits) => bits.len().div_ceil(8),
        }
    }
}

/// `bits` in a buffer of their own: they may be a slice of a larger one, which would stay with them.
fn copied(bits: &BooleanBuffer) -> BooleanBuffer {
    BooleanBuffer::new(bits.sliced(), 0, bits.len())
}

/// What is known of a leaf on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafRows {
    /// Rows for which it is true.
    pub is_true: RowSet,
    /// Rows for which it is NULL.
    pub is_null: RowSet,
    /// Rows of the page.
    pub row_count: u32,
}

impl LeafRows {
    /// The rows for which the leaf is true, or for which its negation is.
    pub fn rows(&self, is_negated: bool) -> BooleanBuffer {
        let row_count = self.row_count as usize;
        let is_true = self.is_true.bits(row_count);
        match (is_negated, &self.is_null) {
            (false, _) => is_true,
            (true, RowSet::None) => !&is_true,
            (true, null) => !&(&is_true | &null.bits(row_count)),
        }
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.is_true.heap_bytes() + self.is_null.heap_bytes()
    }
}
