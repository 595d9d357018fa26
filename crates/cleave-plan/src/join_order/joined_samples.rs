//! A cache of joined samples: a query that is planned again finds the joins of samples made before.
//!
//! Samples change when a table is analysed, and their rows are joined for each join order that is sought. An entry is
//! keyed by the columns themselves, which it holds so that their addresses are not reused, and by the matching rows of
//! the smaller sample.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion_common::Result;
use datafusion_common::arrow::array::ArrayRef;
use datafusion_common::arrow::buffer::BooleanBuffer;

use super::samples::count_matches;

/// Joins in the cache: at most 16 kB each, and the columns of samples that may be in no other use.
const KNOWN_MAX: usize = 64;

/// See the module's description.
#[derive(Debug, Default)]
pub struct JoinedSamples(Mutex<VecDeque<Known>>);

#[derive(Debug)]
struct Known {
    rows: Vec<ArrayRef>,
    among: Vec<ArrayRef>,
    matching: BooleanBuffer,
    matches: Arc<[f64]>,
}

impl JoinedSamples {
    /// For each row of the columns `rows`, how many of those `among` others that are `matching` have the same values.
    ///
    /// # Errors
    /// Columns whose values cannot be compared.
    pub(super) fn matches(
        &self,
        rows: &[&ArrayRef],
        among: &[&ArrayRef],
        matching: &BooleanBuffer,
    ) -> Result<Arc<[f64]>> {
        let is_it = |known: &Known| {
            are_same(&known.rows, rows)
                && are_same(&known.among, among)
                && known.matching == *matching
        };
        if let Some(known) = self.lock().iter().find(|known| is_it(known)) {
            return Ok(Arc::clone(&known.matches));
        }
        let matches = count_matches(rows, among, matching)?;
        let held =
            |columns: &[&ArrayRef]| columns.iter().map(|column| Arc::clone(column)).collect();
        let (rows, among) = (held(rows), held(among));
        let known =
            Known { rows, among, matching: matching.clone(), matches: Arc::clone(&matches) };
        let mut all = self.lock();
        if all.len() == KNOWN_MAX {
            all.pop_front();
        }
        all.push_back(known);
        Ok(matches)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn are_same(known: &[ArrayRef], columns: &[&ArrayRef]) -> bool {
    let is_same = |(known, column): (&ArrayRef, &&ArrayRef)| {
        std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(column))
    };
    known.len() == columns.len() && known.iter().zip(columns).all(is_same)
}

#[cfg(test)]
mod tests {
    //! A cached join is found again, and no other is taken for it.

    use datafusion_common::arrow::array::Int32Array;

    use super::*;

    #[test]
    fn joins_are_found_again_by_their_columns_and_rows() {
        let numbers = |numbers: &[i32]| Arc::new(Int32Array::from(numbers.to_vec())) as ArrayRef;
        let (rows, among, equal) = (numbers(&[1, 2, 3]), numbers(&[3, 1, 1]), numbers(&[3, 1, 1]));
        let (all, last) =
            (BooleanBuffer::new_set(3), BooleanBuffer::collect_bool(3, |row| row == 2));
        let known = JoinedSamples::default();
        let found = |among: &ArrayRef, matching: &BooleanBuffer| {
            known.matches(&[&rows], &[among], matching).unwrap()
        };
        let first = found(&among, &all);
        assert_eq!(*first, [2.0, 0.0, 1.0]);
        assert!(Arc::ptr_eq(&first, &found(&among, &all)));
        assert_eq!(*found(&among, &last), [1.0, 0.0, 0.0]);
        assert!(!Arc::ptr_eq(&first, &found(&equal, &all)), "columns of another sample");
        for _ in 0..KNOWN_MAX {
            drop(found(&numbers(&[1]), &BooleanBuffer::new_set(1)));
        }
        assert!(!Arc::ptr_eq(&first, &found(&among, &all)), "it is long ago");
        assert_eq!(known.lock().len(), KNOWN_MAX);
    }
}
