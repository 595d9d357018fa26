//! The division of a table into tablets: which tablet a row belongs to, and which tablets a query needs.
//!
//! Invariant: the tablets of a table are numbered by their position in it, and the number never changes. In a table
//! divided by hash, every row lies in the tablet that [`TabletKey`] computes.
//! Source: rule 9; the CORD paper (stripes).

use cleave_store::{StoreError, TableSchema, TabletKey};

use super::index_definition::IndexDefinition;

pub use crate::settings::TABLET_COUNT_MAX;

/// How the tablet of a row is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Division {
    /// Not by its values: new rows go to the tablet with the fewest rows.
    LoadOrder,
    /// A hash of these columns, by id.
    Hash(Vec<u32>),
}

impl Division {
    /// Whether rows with equal values in the columns of `index` are always in one tablet.
    #[must_use]
    pub fn holds_together(&self, index: &IndexDefinition) -> bool {
        match self {
            Self::LoadOrder => false,
            Self::Hash(ids) => {
                ids.iter().all(|id| index.columns.iter().any(|column| column.column == *id))
            }
        }
    }

    /// The function from values to tablets, if the values decide.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for columns that the table does not have.
    pub fn tablet_key(&self, schema: &TableSchema) -> Result<Option<TabletKey>, StoreError> {
        match self {
            Self::LoadOrder => Ok(None),
            Self::Hash(ids) => TabletKey::new(schema, ids).map(Some),
        }
    }

    /// As CREATE TABLE writes it.
    #[must_use]
    pub fn describe(&self, schema: &TableSchema) -> String {
        match self {
            Self::LoadOrder => "load_order".to_owned(),
            Self::Hash(ids) => {
                let columns = ids.iter().filter_map(|id| schema.column_by_id(*id));
                let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
                format!("hash ({})", names.join(", "))
            }
        }
    }
}
