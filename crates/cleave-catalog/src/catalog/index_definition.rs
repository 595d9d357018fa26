//! The definition of an index: its name, its columns in key order, and whether it is unique.
//!
//! Invariant: the columns exist in the table, at least one. The id is unique within the table; 0 is the primary key,
//! which every table with one has. Tables and indexes share one namespace, as in PostgreSQL.

use cleave_store::{IndexKey, KeyColumn, StoreError, TableSchema};

/// The id of a primary key's index.
pub const PRIMARY_KEY: u32 = 0;

/// One index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Number within the table.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Columns, in key order.
    pub columns: Vec<IndexColumn>,
    /// Rows whose columns are all equal, and none NULL, are refused.
    pub unique: bool,
    /// It belongs to a PRIMARY KEY or UNIQUE constraint of CREATE TABLE, and is dropped with the table only.
    pub constraint: bool,
}

/// One column of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexColumn {
    /// Id of the table's column.
    pub column: u32,
    /// Greatest first.
    pub descending: bool,
    /// NULLs before all values.
    pub nulls_first: bool,
}

impl IndexColumn {
    /// A column with the default order: ascending, NULLs last.
    #[must_use]
    pub fn ascending(column: u32) -> Self {
        Self { column, descending: false, nulls_first: false }
    }
}

impl IndexDefinition {
    /// The index of the primary key of `schema`; None if it has none.
    #[must_use]
    pub fn of_primary_key(schema: &TableSchema, name: String) -> Option<Self> {
        let columns: Vec<_> =
            schema.primary_key.iter().map(|id| IndexColumn::ascending(*id)).collect();
        (!columns.is_empty()).then_some(Self {
            id: PRIMARY_KEY,
            name,
            columns,
            unique: true,
            constraint: true,
        })
    }

    /// Positions of the columns in the table, in key order.
    #[must_use]
    pub fn column_indices(&self, schema: &TableSchema) -> Vec<usize> {
        let position = |id| schema.columns.iter().position(|column| column.id == id);
        self.columns.iter().filter_map(|column| position(column.column)).collect()
    }

    /// Names of the columns, in key order.
    #[must_use]
    pub fn column_names<'a>(&self, schema: &'a TableSchema) -> Vec<&'a str> {
        let columns = self.columns.iter().filter_map(|column| schema.column_by_id(column.column));
        columns.map(|column| column.name.as_str()).collect()
    }

    /// The encoding of its keys.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for columns that the table does not have.
    pub fn key(&self, schema: &TableSchema) -> Result<IndexKey, StoreError> {
        let column = |column: &IndexColumn| {
            let found = schema.column_by_id(column.column).ok_or_else(|| StoreError::Mismatch {
                what: "an index",
                reason: format!("\"{}\" is over column {}", self.name, column.column),
            })?;
            Ok::<_, StoreError>(KeyColumn {
                data_type: found.column_type.arrow(),
                descending: column.descending,
                nulls_first: column.nulls_first,
            })
        };
        let columns = self.columns.iter().map(column).collect::<Result<_, _>>()?;
        IndexKey::new(columns, self.unique)
    }
}

/// A free name for an index of `table` over `columns`, ending in `suffix`; `is_taken` tells used names. Chosen as
/// PostgreSQL does.
pub fn chosen_name(
    table: &str,
    columns: &[&str],
    suffix: &str,
    is_taken: impl Fn(&str) -> bool,
) -> String {
    let mut parts = vec![table];
    parts.extend(columns);
    parts.push(suffix);
    let name = parts.join("_");
    let mut numbered = (1_u64..).map(|number| format!("{name}{number}"));
    if !is_taken(&name) {
        return name;
    }
    numbered.find(|name| !is_taken(name)).unwrap_or(name)
}
