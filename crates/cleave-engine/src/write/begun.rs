//! New rows of one tablet, in the batches in which a block's statements inserted them. Joining all of them anew at each
//! statement would take ever longer.
//!
//! Invariant: places count through all batches, in their order; there are few batches, since [`Begun::push`] joins
//! [`FEW`] of about one size, and so each row a few times at most.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};

use cleave_catalog::error::Result;

pub use cleave_fragment::slice_bytes as byte_count;

/// Batches of about one size that are joined.
const FEW: usize = 16;

/// See the module's description.
#[derive(Debug, Clone, Default)]
pub struct Begun {
    batches: Vec<Arc<RecordBatch>>,
}

impl From<RecordBatch> for Begun {
    fn from(rows: RecordBatch) -> Self {
        Self { batches: vec![Arc::new(rows)] }
    }
}

impl Begun {
    /// How many rows these are.
    pub fn row_count(&self) -> usize {
        self.batches().map(RecordBatch::num_rows).sum()
    }

    /// Bytes of memory that they take.
    pub fn byte_count(&self) -> usize {
        self.batches().map(byte_count).sum()
    }

    /// The same of each batch, beside what tells it from others: clones share batches.
    pub fn batch_bytes(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let place = |rows: &Arc<RecordBatch>| Arc::as_ptr(rows).addr();
        self.batches.iter().map(move |rows| (place(rows), byte_count(rows)))
    }

    /// The batches, in the order of their rows.
    pub fn batches(&self) -> impl Iterator<Item = &RecordBatch> {
        self.batches.iter().map(AsRef::as_ref)
    }

    /// The same, each with the place of its first row.
    pub fn placed(&self) -> impl Iterator<Item = (usize, &RecordBatch)> {
        self.batches().scan(0, |next, rows| {
            let first = *next;
            *next += rows.num_rows();
            Some((first, rows))
        })
    }

    /// The batch that the row at `place` is in, and its place there.
    pub fn row(&self, place: usize) -> Option<(&RecordBatch, usize)> {
        let mut placed = self.placed();
        placed.find_map(|(first, rows)| {
            let within = place.checked_sub(first)?;
            (within < rows.num_rows()).then_some((rows, within))
        })
    }

    /// All of them; None: there is no batch.
    ///
    /// # Errors
    /// Of batches of several tables.
    pub fn whole(&self) -> Result<Option<Arc<RecordBatch>>> {
        Ok(match self.batches.as_slice() {
            [] => None,
            [rows] => Some(Arc::clone(rows)),
            [first, ..] => {
                let batches = self.batches();
                Some(Arc::new(concat_batches(first.schema_ref(), batches)?))
            }
        })
    }

    /// Makes one batch of them.
    ///
    /// # Errors
    /// As [`Begun::whole`].
    pub fn join(&mut self) -> Result<()> {
        if self.batches.len() > 1 {
            self.batches = self.whole()?.into_iter().collect();
        }
        Ok(())
    }

    /// Appends `others`.
    ///
    /// # Errors
    /// As [`Begun::whole`].
    pub fn push(&mut self, others: &Self) -> Result<()> {
        self.batches.extend(others.batches.iter().map(Arc::clone));
        let mut width = FEW;
        loop {
            let narrow = self.batches.iter().rev().take_while(|rows| rows.num_rows() < width);
            let count = narrow.count();
            if count < FEW {
                return Ok(());
            }
            let mut last = Self { batches: self.batches.split_off(self.batches.len() - count) };
            last.join()?;
            self.batches.append(&mut last.batches);
            width *= FEW;
        }
    }

    /// Removes the rows at `places`.
    ///
    /// # Errors
    /// None that a statement is to blame for.
    pub fn take_away(&mut self, places: &BTreeSet<usize>) -> Result<()> {
        let mut first = 0;
        for rows in &mut self.batches {
            let count = rows.num_rows();
            if places.range(first..first + count).next().is_some() {
                let kept = (first..first + count).map(|place| Some(!places.contains(&place)));
                *rows = Arc::new(filter_record_batch(rows, &kept.collect::<BooleanArray>())?);
            }
            first += count;
        }
        self.batches.retain(|rows| rows.num_rows() > 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
