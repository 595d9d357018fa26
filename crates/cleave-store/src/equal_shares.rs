//! Equal shares: batches of rows in, about as many rows of each for every tablet out.
//!
//! Each batch is cut into one block for each tablet. What is left over when it is divided goes to those tablets that
//! have got one row less so far.
//!
//! Invariant: of all rows that were divided, two tablets' numbers differ by one at most.
//! Source: CORD, "round robin".

#![deny(clippy::indexing_slicing)]

use arrow::array::RecordBatch;

/// Divides rows in equal shares. See the [module](self).
#[derive(Debug)]
pub struct EqualShares {
    /// The places of the tablets, in the order in which they get one row more.
    order: Vec<usize>,
    /// How many of them, from the first on, have got one row more than the others.
    ahead: usize,
}

impl EqualShares {
    /// Nothing is divided yet; the first of `order`, the places of the tablets, is the first to get one row more.
    #[must_use]
    pub fn new(order: Vec<usize>) -> Self {
        Self { order, ahead: 0 }
    }

    /// The parts of `rows`, each with the place of its tablet.
    pub fn divide(&mut self, rows: &RecordBatch) -> Vec<(usize, RecordBatch)> {
        let count = self.order.len().max(1);
        let (each, over) = (rows.num_rows() / count, rows.num_rows() % count);
        let mut parts = Vec::with_capacity(count.min(rows.num_rows()));
        let mut from = 0;
        for (at, place) in self.order.iter().enumerate() {
            // Those behind the ones that are ahead are next, and then the first again.
            let turn = (at + count - self.ahead) % count;
            let length = each + usize::from(turn < over);
            if length > 0 {
                parts.push((*place, rows.slice(from, length)));
                from += length;
            }
        }
        self.ahead = (self.ahead + over) % count;
        parts
    }
}

#[cfg(test)]
mod tests;
