//! How a table is divided into tablets: which rows are together, and which tablets a question is about.
//!
//! Invariant: the tablets of a table are numbered by their place in it, and their number never changes; where it is
//! divided by hash, every row lies in the tablet that [`TabletKey`] says. Source: rule 9; the CORD paper (stripes).

use cleave_store::{StoreError, TableSchema, TabletKey};

use super::index_definition::IndexDefinition;

pub use crate::settings::TABLET_COUNT_MAX;

/// What decides in which tablet a row lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Division {
    /// Nothing that it holds: rows go where the fewest are, as they come.
    LoadOrder,
    /// A hash of these columns, by id.
    Hash(Vec<u32>),
}

impl Division {
    /// Whether rows that are equal in the columns of `index` are always in one tablet.
    #[must_use]
    pub fn holds_together(&self, index: &IndexDefinition) -> bool {
        match self {
            Self::LoadOrder => false,
            Self::Hash(ids) => {
                ids.iter().all(|id| index.columns.iter().any(|column| column.column == *id))
            }
        }
    }

    /// What says in which tablet a row lies, where its values do.
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
