//! The bounds between the ranges of a column that divide a table into tablets: keys in, places of tablets out.
//!
//! ```text
//!              bound 1        bound 2           bound k
//!   tablet 0   │   tablet 1   │   tablet 2  …   │   tablet k, and rows without a value
//! ```
//!
//! A bound belongs to the tablet above it, as the ends of PostgreSQL's `FROM … TO …` do. Bounds are keys, as an index
//! over the column has them: ascending, NULLs last, text in C order, floats with one zero and one NaN. No encoded value
//! is a prefix of another, so a whole entry of an index that begins with the column lies in the tablet of its first
//! value.
//!
//! Invariant: there is at least one bound, each is the key of a value and not of NULL, and they ascend. Rows lie where
//! these bounds say, so a table's bounds never change.
//! Source: rule 9; PostgreSQL's manual, "Table Partitioning".

#![deny(clippy::indexing_slicing)]

use std::ops::RangeInclusive;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use crate::error::StoreError;
use crate::index::KeyRange;
use crate::index::key::{INDEX_KEY_BYTES_MAX, IndexKey, KeyColumn};

/// The first byte of the key of NULL, which no other key begins with.
const NULL_MARK: u8 = u8::MAX;

/// The bounds between the ranges of a column. See the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeBounds {
    keys: Vec<Vec<u8>>,
}

impl RangeBounds {
    /// The key of each of `values`, which are of one column.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`] for a key longer than an index takes, [`StoreError::Mismatch`] for a type without
    /// keys.
    pub fn keys_of(values: &ArrayRef) -> Result<Vec<Vec<u8>>, StoreError> {
        let keys = key_of(values.data_type())?.encode(std::slice::from_ref(values))?;
        Ok(keys.iter().map(|key| key.unwrap_or_default().to_vec()).collect())
    }

    /// The bounds with these keys, of a column of type `data_type`.
    ///
    /// # Errors
    /// [`StoreError`] for no keys, for keys that do not ascend, and for one that is not of a value of the type.
    pub fn of_keys(data_type: &DataType, keys: Vec<Vec<u8>>) -> Result<Self, StoreError> {
        if keys.is_empty() {
            return Err(mismatch("there are none"));
        }
        if keys.windows(2).any(|pair| pair.first() >= pair.last()) {
            return Err(mismatch("they do not ascend"));
        }
        if keys.iter().any(|key| key.len() > INDEX_KEY_BYTES_MAX) {
            return Err(mismatch("one is too long"));
        }
        if keys.iter().any(|key| key.first() == Some(&NULL_MARK)) {
            return Err(mismatch("one is NULL"));
        }
        let bounds = Self { keys };
        bounds.values(data_type)?;
        Ok(bounds)
    }

    /// Their keys, ascending.
    #[must_use]
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// Their values, of a column of type `data_type`.
    ///
    /// # Errors
    /// [`StoreError`] for another type than theirs.
    pub fn values(&self, data_type: &DataType) -> Result<ArrayRef, StoreError> {
        let keys: Vec<&[u8]> = self.keys.iter().map(Vec::as_slice).collect();
        let mut columns = key_of(data_type)?.decode(&keys)?;
        columns.pop().ok_or_else(|| mismatch("they have no column"))
    }

    /// The number of tablets between and beside them.
    #[must_use]
    pub fn tablet_count(&self) -> usize {
        self.keys.len().saturating_add(1)
    }

    /// The place of the tablet of rows with `key`, or of rows whose entry in an index it is.
    #[must_use]
    pub fn tablet(&self, key: &[u8]) -> usize {
        self.keys.partition_point(|bound| bound.as_slice() <= key)
    }

    /// The place of the last tablet that has rows with keys below `key`.
    #[must_use]
    pub fn tablet_below(&self, key: &[u8]) -> usize {
        self.keys.partition_point(|bound| bound.as_slice() < key)
    }

    /// The places of the tablets of rows whose entries in an index that begins with the column, as it is by default,
    /// lie in `range`.
    #[must_use]
    pub fn tablets(&self, range: &KeyRange) -> RangeInclusive<usize> {
        let last = match &range.below {
            Some(below) => self.tablet_below(below),
            None => self.keys.len(),
        };
        self.tablet(&range.from)..=last
    }
}

/// Keys of one column.
fn key_of(data_type: &DataType) -> Result<IndexKey, StoreError> {
    IndexKey::new(vec![KeyColumn::ascending(data_type.clone())], true)
}

fn mismatch(reason: &str) -> StoreError {
    StoreError::Mismatch { what: "bounds of tablets", reason: reason.to_owned() }
}

#[cfg(test)]
mod tests;
