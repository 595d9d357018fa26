//! The keys of a foreign key: rows of either table in, entries of the referenced index out.
//!
//! A value is cast to the type of the column that it refers to. A value that changes by the cast, or cannot be cast,
//! refers to no possible row.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::compute::kernels::cmp::not_distinct;
use arrow::datatypes::{Field, Schema};

use cleave_catalog::catalog::rules::ForeignKey;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Result, Rule};
use cleave_catalog::index::IndexShape;
use cleave_catalog::value::value_text;

/// Rows of some columns, identified by the columns' ids.
#[derive(Clone, Copy)]
pub(in crate::session) struct Columns<'a> {
    /// For each column of the batch its id.
    pub(in crate::session) ids: &'a [u32],
    pub(in crate::session) rows: &'a RecordBatch,
}

impl Columns<'_> {
    /// Those with these ids, in this order.
    fn of(&self, ids: &[u32]) -> Arc<[ArrayRef]> {
        let place = |id: &u32| self.ids.iter().position(|known| known == id);
        let columns = ids.iter().filter_map(|id| self.rows.columns().get(place(id)?));
        columns.map(Arc::clone).collect()
    }
}

/// A foreign key and its two tables, which may be the same.
#[derive(Debug, Clone)]
pub(in crate::session) struct Reference {
    /// The referencing table.
    pub(in crate::session) child: Arc<TableState>,
    pub(in crate::session) key: ForeignKey,
    /// The referenced table.
    pub(in crate::session) parent: Arc<TableState>,
    /// The number of that table's index over the columns.
    pub(in crate::session) shape: Arc<IndexShape>,
}

/// The values of one key.
#[derive(Debug, Clone)]
pub(in crate::session) struct KeyRow {
    columns: Arc<[ArrayRef]>,
    row: usize,
}

/// Keys by their entries in the referenced index.
pub(in crate::session) type KeySet = BTreeMap<Vec<u8>, KeyRow>;

/// What a row refers to.
pub(in crate::session) enum Target {
    /// Nothing: it has a NULL.
    Nothing,
    /// No possible row.
    Nowhere(KeyRow),
    /// It has a NULL beside other values, which MATCH FULL forbids.
    Mixed,
    /// The row with this key.
    Key(Vec<u8>, KeyRow),
}

impl KeyRow {
    /// The values as text, NULL as None.
    pub(in crate::session) fn texts(&self) -> Result<Vec<Option<String>>> {
        self.columns.iter().map(|column| value_text(column, self.row)).collect()
    }

    /// The value at `place`, as an array of length one.
    pub(in crate::session) fn value(&self, place: usize) -> Option<ArrayRef> {
        self.columns.get(place).map(|column| column.slice(self.row, 1))
    }

    /// The values, separated by commas.
    fn listed(&self) -> String {
        let texts = self.texts().unwrap_or_default();
        let texts = texts.into_iter().map(|text| text.unwrap_or_else(|| "null".to_owned()));
        texts.collect::<Vec<_>>().join(", ")
    }
}

impl Reference {
    /// `key` of `child`; the other table is `parent`.
    ///
    /// # Errors
    /// Where that does not have the index.
    pub(in crate::session) fn new(
        child: &Arc<TableState>,
        key: &ForeignKey,
        parent: &Arc<TableState>,
    ) -> Result<Self> {
        let index = parent.tablets.first().and_then(|tablet| tablet.index(key.index));
        let index = index.ok_or_else(|| damaged(child, key))?;
        Ok(Self {
            child: Arc::clone(child),
            key: key.clone(),
            parent: Arc::clone(parent),
            shape: Arc::clone(index.shape()),
        })
    }

    /// The keys of `child` in `state`.
    ///
    /// # Errors
    /// As [`Reference::new`].
    pub(in crate::session) fn all_of(
        state: &CatalogState,
        child: &Arc<TableState>,
    ) -> Result<Vec<Self>> {
        let reference = |key: &ForeignKey| {
            let parent = state.table_by_id(key.target).ok_or_else(|| damaged(child, key))?;
            Self::new(child, key, parent)
        };
        child.rules.foreign_keys.iter().map(reference).collect()
    }

    /// What identifies it: the table, and the key's number there.
    pub(in crate::session) fn id(&self) -> (u32, u32) {
        (self.child.schema.table_id, self.key.id)
    }

    /// Whether a table refers to itself.
    pub(in crate::session) fn is_own(&self) -> bool {
        self.key.target == self.child.schema.table_id
    }

    /// What each of `rows`, of the table that has the key, refers to.
    pub(in crate::session) fn targets(&self, rows: Columns<'_>) -> Result<Vec<Target>> {
        let own = rows.of(&self.key.columns);
        let (schema, count) = (self.shape.schema(), rows.rows.num_rows());
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        let mut is_same = vec![true; count];
        for column in &self.shape.definition.columns {
            let place = self.key.target_columns.iter().position(|id| *id == column.column);
            let values = place.and_then(|place| own.get(place));
            let (Some(values), Some(known)) = (values, schema.column_by_id(column.column)) else {
                return Err(damaged(&self.child, &self.key));
            };
            let wanted = known.column_type.arrow();
            let mut there = Arc::clone(values);
            if *values.data_type() != wanted {
                there = cast(values, &wanted)?;
                let back = cast(&there, values.data_type())?;
                let same = not_distinct(&back, values)?;
                for (known, same) in is_same.iter_mut().zip(same.iter()) {
                    *known &= same.unwrap_or(false);
                }
            }
            fields.push(Field::new(&known.name, wanted, true));
            columns.push(there);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let entries = self.shape.entries(&batch, 0)?;
        let target = |(row, is_same): (usize, bool)| {
            let nulls = own.iter().filter(|column| column.is_null(row)).count();
            if nulls > 0 {
                let is_mixed = self.key.match_full && nulls < own.len();
                return if is_mixed { Target::Mixed } else { Target::Nothing };
            }
            let values = KeyRow { columns: Arc::clone(&own), row };
            match is_same && entries.is_valid(row) {
                true => Target::Key(entries.value(row).to_vec(), values),
                false => Target::Nowhere(values),
            }
        };
        Ok(is_same.into_iter().enumerate().map(|(row, same)| target((row, same))).collect())
    }

    /// The key of each of `rows`, of the referenced table; None if it has a NULL: no row refers to that.
    pub(in crate::session) fn keys(
        &self,
        rows: Columns<'_>,
    ) -> Result<Vec<(Option<Vec<u8>>, KeyRow)>> {
        let indexed: Vec<u32> =
            self.shape.definition.columns.iter().map(|column| column.column).collect();
        let fields = indexed.iter().filter_map(|id| self.parent.schema.column_by_id(*id));
        let fields: Vec<Field> = fields
            .map(|column| Field::new(&column.name, column.column_type.arrow(), true))
            .collect();
        let columns = rows.of(&indexed).to_vec();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let entries = self.shape.entries(&batch, 0)?;
        let columns = rows.of(&self.key.target_columns);
        let key = |row: usize| {
            let entry = entries.is_valid(row).then(|| entries.value(row));
            let entry = entry.filter(|entry| !self.shape.key.has_null(entry)).map(<[u8]>::to_vec);
            (entry, KeyRow { columns: Arc::clone(&columns), row })
        };
        Ok((0..rows.rows.num_rows()).map(key).collect())
    }

    /// The error of a row without a referenced row.
    pub(in crate::session) fn absent(&self, values: &KeyRow) -> Error {
        self.not_inserted(format!(
            "Key ({})=({}) is not present in table \"{}\".",
            names(&self.child, &self.key.columns),
            values.listed(),
            self.parent.schema.name
        ))
    }

    /// The error of a row that is partly NULL.
    pub(in crate::session) fn mixed(&self) -> Error {
        let detail = "MATCH FULL does not allow mixing of null and nonnull key values.";
        self.not_inserted(detail.to_owned())
    }

    fn not_inserted(&self, detail: String) -> Error {
        let (name, constraint) = (&self.child.schema.name, &self.key.name);
        Error::Violation {
            rule: Rule::ForeignKey,
            table: name.clone(),
            constraint: constraint.clone(),
            message: format!(
                "insert or update on table \"{name}\" violates foreign key constraint \"{constraint}\""
            ),
            detail,
        }
    }

    /// The error of removing a row that others refer to.
    pub(in crate::session) fn still_there(&self, values: &KeyRow) -> Error {
        let (name, other) = (&self.parent.schema.name, &self.child.schema.name);
        let constraint = &self.key.name;
        Error::Violation {
            rule: Rule::ForeignKey,
            table: other.clone(),
            constraint: constraint.clone(),
            message: format!(
                "update or delete on table \"{name}\" violates foreign key constraint \"{constraint}\" on table \
                    \"{other}\""
            ),
            detail: format!(
                "Key ({})=({}) is still referenced from table \"{other}\".",
                names(&self.parent, &self.key.target_columns),
                values.listed()
            ),
        }
    }
}

/// The names of the columns of `table` with these ids, separated by commas.
fn names(table: &TableState, ids: &[u32]) -> String {
    let columns = ids.iter().filter_map(|id| table.schema.column_by_id(*id));
    columns.map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The error of a key whose referenced table, or its index, cannot be used.
fn damaged(child: &TableState, key: &ForeignKey) -> Error {
    Error::Unsupported {
        what: format!(
            "a change of rows while what foreign key \"{}\" of table \"{}\" refers to is damaged",
            key.name, child.schema.name
        ),
        hint: Some("drop the constraint, or restore the table".to_owned()),
        position: None,
    }
}
