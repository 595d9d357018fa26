//! The tablet of a row in a table that is divided by values of some columns: values in, a tablet's number out.
//!
//! ```text
//!                                     ┌─▶ hash, 64 bits ─▶ its high half as a fraction of the tablets
//!   values ─▶ search key (index::key) ┤
//!                                     └─▶ the number of bounds that are not above it
//! ```
//!
//! Invariant: rows lie in the tablets that this module computes, so the result may never change. Rows whose values SQL
//! holds equal are in one tablet: also the two zeros of a float, and two NULLs.
//! Source: rule 9.

#![deny(clippy::indexing_slicing)]

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::Schema;
use arrow::row::RowConverter;

use crate::error::StoreError;
use crate::index::filter::{hash, mixed};
use crate::index::key::{KeyColumn, canonical, has_keys};
use crate::range_bounds::RangeBounds;
use crate::schema::TableSchema;

/// Keeps rows of one tablet spread over all blocks of a Bloom filter, which uses the same half of the same hash.
const SALT: u64 = 0x9e37_79b9_7f4a_7c15;

fn mismatch(reason: String) -> StoreError {
    StoreError::Mismatch { what: "a tablet key", reason }
}

/// The columns by which a table is divided, and how.
#[derive(Debug)]
pub struct TabletKey {
    /// Their positions in the table.
    columns: Vec<usize>,
    converter: RowConverter,
    rule: Rule,
}

/// How a tablet follows from a key.
#[derive(Debug)]
enum Rule {
    Hash,
    Ranges(RangeBounds),
}

impl TabletKey {
    /// By a hash of the columns `ids` of the table `schema`, in this order.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for no columns, or one that the table does not have.
    pub fn new(schema: &TableSchema, ids: &[u32]) -> Result<Self, StoreError> {
        let columns = ids.iter().map(|id| place_of(schema, *id)).collect::<Result<_, _>>()?;
        Self::over(&schema.arrow(), columns)
    }

    /// By a hash of the columns of `schema` at these places, in this order.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for no columns, one that it does not have, or one of a type without keys.
    pub fn over(schema: &Schema, columns: Vec<usize>) -> Result<Self, StoreError> {
        Self::with_rule(schema, columns, Rule::Hash)
    }

    /// By ranges of the column `id` of the table `schema`, between `bounds`, which are of its type.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for a column that the table does not have.
    pub fn of_ranges(
        schema: &TableSchema,
        id: u32,
        bounds: RangeBounds,
    ) -> Result<Self, StoreError> {
        Self::over_ranges(&schema.arrow(), place_of(schema, id)?, bounds)
    }

    /// By ranges of the column of `schema` at `place`, between `bounds`, which are of its type.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for a column that it does not have, or one of a type without keys.
    pub fn over_ranges(
        schema: &Schema,
        place: usize,
        bounds: RangeBounds,
    ) -> Result<Self, StoreError> {
        Self::with_rule(schema, vec![place], Rule::Ranges(bounds))
    }

    fn with_rule(schema: &Schema, columns: Vec<usize>, rule: Rule) -> Result<Self, StoreError> {
        let mut fields = Vec::with_capacity(columns.len());
        for place in &columns {
            let field = schema.fields().get(*place);
            let field = field.ok_or_else(|| mismatch(format!("there is no column {place}")))?;
            if !has_keys(field.data_type()) {
                return Err(mismatch(format!("no key over {}", field.data_type())));
            }
            fields.push(KeyColumn::ascending(field.data_type().clone()).sort_field());
        }
        if columns.is_empty() {
            return Err(mismatch("it has no columns".into()));
        }
        Ok(Self { columns, converter: RowConverter::new(fields)?, rule })
    }

    /// Positions of the columns in the table, in the key's order.
    #[must_use]
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// For each of `rows`, which have all columns of the table, its tablet of `tablet_count`.
    ///
    /// # Errors
    /// [`StoreError::Arrow`](StoreError) for rows of another table.
    pub fn tablets(&self, rows: &RecordBatch, tablet_count: u32) -> Result<Vec<u32>, StoreError> {
        let key = rows.project(&self.columns)?;
        self.tablets_of(key.columns(), tablet_count)
    }

    /// The parts of `rows`, which have all columns of the table, each with its tablet of `tablet_count`. Rows of one
    /// tablet stay in their order.
    ///
    /// # Errors
    /// As [`TabletKey::tablets`].
    pub fn divide(
        &self,
        rows: &RecordBatch,
        tablet_count: usize,
    ) -> Result<Vec<(usize, RecordBatch)>, StoreError> {
        let count = u32::try_from(tablet_count).unwrap_or(u32::MAX);
        let mut places: Vec<Vec<u32>> = vec![Vec::new(); tablet_count];
        for (row, tablet) in (0..).zip(self.tablets(rows, count)?) {
            let tablet = usize::try_from(tablet).ok();
            if let Some(places) = tablet.and_then(|place| places.get_mut(place)) {
                places.push(row);
            }
        }
        let mut parts = Vec::new();
        for (place, of_tablet) in places.into_iter().enumerate() {
            match of_tablet.len() {
                0 => {}
                all if all == rows.num_rows() => parts.push((place, rows.clone())),
                _ => parts.push((place, take_record_batch(rows, &UInt32Array::from(of_tablet))?)),
            }
        }
        Ok(parts)
    }

    /// As [`TabletKey::tablets`], of rows whose key columns, in the key's order, are `values`.
    ///
    /// # Errors
    /// As there, for columns of other types.
    pub fn tablets_of(
        &self,
        values: &[ArrayRef],
        tablet_count: u32,
    ) -> Result<Vec<u32>, StoreError> {
        let values: Vec<ArrayRef> = values.iter().map(canonical).collect();
        let keys = self.converter.convert_columns(&values)?;
        let of_key = |key: &[u8]| match &self.rule {
            Rule::Hash => hashed(key, tablet_count),
            Rule::Ranges(bounds) => {
                let tablet = u32::try_from(bounds.tablet(key)).unwrap_or(u32::MAX);
                tablet.min(tablet_count.saturating_sub(1))
            }
        };
        Ok(keys.iter().map(|key| of_key(key.data())).collect())
    }
}

/// The place of the column `id` in the table `schema`.
fn place_of(schema: &TableSchema, id: u32) -> Result<usize, StoreError> {
    let place = schema.columns.iter().position(|column| column.id == id);
    place.ok_or_else(|| mismatch(format!("\"{}\" has no column {id}", schema.name)))
}

fn hashed(key: &[u8], tablet_count: u32) -> u32 {
    let high = mixed(hash(key) ^ SALT) >> 32;
    let tablet = (high * u64::from(tablet_count)) >> 32;
    u32::try_from(tablet).unwrap_or_default()
}

#[cfg(test)]
mod tests;
