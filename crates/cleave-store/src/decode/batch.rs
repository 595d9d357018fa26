//! Decodes chunks of one page into a record batch, with projection and selection applied.
//!
//! Invariants: a batch has one row for each slot (or each selected slot), in slot order. A user column that was added
//! after the page was written has the projection's absent value, or is NULL. Plain columns share the chunk's memory if
//! nothing is selected.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;

use crate::absent_value::{AbsentValue, AbsentValues};
use crate::error::{Corruption, StoreError};
use crate::page::columns::ValueType;
use crate::page::encoding::{Chunk, Pick, size_of};
use crate::page::header::{PageKind, corrupt};
use crate::page::overflow::OverflowValues;
use crate::page_source::{ColumnRef, PageColumns, PageRead};
use crate::schema::TableSchema;

/// Which columns to decode, and what the batch calls them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// Schema of the batch: one field for each of `columns`.
    pub schema: SchemaRef,
    /// Columns, in the batch's order.
    pub columns: Vec<ColumnRef>,
    /// Absent values of columns that a page may lack; entries of columns outside the projection have no effect.
    pub absent: AbsentValues,
}

impl Projection {
    /// A projection of these columns, which are NULL where a page lacks them.
    #[must_use]
    pub fn new(schema: SchemaRef, columns: Vec<ColumnRef>) -> Self {
        Self { schema, columns, absent: AbsentValues::default() }
    }

    /// A projection of other columns of the same table.
    #[must_use]
    pub fn others(&self, schema: SchemaRef, columns: Vec<ColumnRef>) -> Self {
        Self { schema, columns, absent: self.absent.clone() }
    }

    /// The table's columns at these positions, in this order. Positions that it does not have are left out.
    #[must_use]
    pub fn of_table(schema: &TableSchema, indices: &[usize]) -> Self {
        let columns: Vec<_> =
            indices.iter().filter_map(|index| schema.columns.get(*index)).collect();
        let fields: Vec<Field> = columns.iter().map(|column| column.arrow()).collect();
        Self {
            schema: Arc::new(Schema::new(fields)),
            columns: columns.iter().map(|column| ColumnRef::User(column.id)).collect(),
            absent: AbsentValues::of_table(schema),
        }
    }

    /// The field of a version column, with a name that no user column can have by accident; None for user columns.
    #[must_use]
    pub fn version_field(column: ColumnRef) -> Option<Field> {
        let name = match column {
            ColumnRef::User(_) => return None,
            ColumnRef::Vid => "\u{1}vid",
            ColumnRef::Commit => "\u{1}commit",
        };
        let value_type = ValueType::of_version_column(column)?;
        Some(Field::new(name, value_type.arrow(), false))
    }

    /// The same with every column nullable, to read all rows of a page: dead rows may date from before a NOT NULL
    /// constraint.
    #[must_use]
    pub fn nullable(mut self) -> Self {
        let fields =
            self.schema.fields().iter().map(|field| Field::clone(field).with_nullable(true));
        self.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        self
    }

    /// The same with a version column appended; a user column changes nothing.
    #[must_use]
    pub fn with_version(mut self, column: ColumnRef) -> Self {
        if let Some(field) = Self::version_field(column) {
            let fields = self.schema.fields().iter().cloned().chain([Arc::new(field)]);
            self.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            self.columns.push(column);
        }
        self
    }
}

/// Decodes the columns of `projection` for all rows of the page, or those that `selection` has set.
///
/// `read` is what `page` answers; it must name every column of the projection.
///
/// # Errors
/// [`StoreError::Corrupt`] where a chunk does not decode, [`StoreError::Mismatch`] where read, projection,
/// selection, overflow pages and page do not fit together.
pub fn decode_batch(
    page: &PageColumns,
    read: &PageRead,
    projection: &Projection,
    selection: Option<&BooleanBuffer>,
    overflow: &OverflowValues,
) -> Result<RecordBatch, StoreError> {
    let row_count = size_of(page.header.row_count);
    if let Some(found) = selection.map(BooleanBuffer::len).filter(|found| *found != row_count) {
        return Err(mismatch(format!("a selection of {found} of {row_count} rows")));
    }
    let pick = Pick::new(0..row_count, selection, projection.columns.len())?;
    let mut arrays = Vec::with_capacity(projection.columns.len());
    for source in sources(page, read, projection)? {
        arrays.push(match source {
            Source::Chunk(chunk) => chunk.open(overflow, selection)?.decode(&pick)?,
            Source::Absent(lacking) => lacking.array(pick.count())?,
        });
    }
    batch(projection, arrays, pick.count())
}

/// Where the values of a projected column come from.
pub(crate) enum Source<'a> {
    /// The page.
    Chunk(Chunk<'a>),
    /// The page has no such column.
    Absent(Lacking),
}

/// A column that the page lacks, with its absent value.
#[derive(Debug)]
pub(crate) struct Lacking {
    column: ColumnRef,
    data_type: DataType,
    value: Option<AbsentValue>,
}

/// The source of each projected column, types checked.
pub(crate) fn sources<'a>(
    page: &'a PageColumns,
    read: &'a PageRead,
    projection: &Projection,
) -> Result<Vec<Source<'a>>, StoreError> {
    if projection.schema.fields().len() != projection.columns.len() {
        return Err(mismatch("a projection with more or fewer fields than columns".into()));
    }
    let wanted = projection.schema.fields().iter().zip(&projection.columns);
    let source = |(field, column): (&Arc<Field>, &ColumnRef)| {
        source(page, read, *column, field.data_type(), &projection.absent)
    };
    wanted.map(source).collect()
}

/// The source of a column, its type checked.
pub(crate) fn source<'a>(
    page: &'a PageColumns,
    read: &'a PageRead,
    column: ColumnRef,
    data_type: &DataType,
    absent: &AbsentValues,
) -> Result<Source<'a>, StoreError> {
    if page.header.kind == PageKind::Overflow {
        let reason = Corruption::Field { field: "kind", found: 0, expected: None };
        return Err(corrupt(&read.page, &read.segment, None, reason));
    }
    let asked = read.columns.iter().position(|asked| *asked == column);
    let bytes: Option<&Bytes> = asked
        .and_then(|asked| page.chunks.get(asked))
        .ok_or_else(|| mismatch(format!("{column} was not read")))?
        .as_ref();
    let Some(entry) = page.header.entry(column) else {
        return Ok(Source::Absent(Lacking::of(column, data_type, absent)));
    };
    let found = entry.value_type.arrow();
    if found != *data_type {
        return Err(mismatch(format!(
            "{column} is {found} in the page and {data_type} in the projection"
        )));
    }
    Ok(Source::Chunk(Chunk { read, header: &page.header, entry, bytes }))
}

impl Lacking {
    /// The source of `column` for pages without it: its value in `absent`, or NULL.
    pub(crate) fn of(column: ColumnRef, data_type: &DataType, absent: &AbsentValues) -> Self {
        let value = match column {
            ColumnRef::User(id) => absent.get(id).cloned(),
            _ => None,
        };
        Self { column, data_type: data_type.clone(), value }
    }

    /// The column's values for so many rows.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] where they have a value of another type.
    pub(crate) fn array(&self, row_count: usize) -> Result<ArrayRef, StoreError> {
        Ok(match (self.column, &self.value) {
            (_, None) => new_null_array(&self.data_type, row_count),
            (column, Some(value)) => value.array(&self.data_type, row_count).ok_or_else(|| {
                mismatch(format!("rows without {column} have what is no {}", self.data_type))
            })?,
        })
    }
}

/// Puts decoded columns together.
pub(crate) fn batch(
    projection: &Projection,
    arrays: Vec<ArrayRef>,
    row_count: usize,
) -> Result<RecordBatch, StoreError> {
    for (field, array) in projection.schema.fields().iter().zip(&arrays) {
        if !field.is_nullable() && array.null_count() > 0 {
            return Err(mismatch(format!("{} is NOT NULL and has NULLs", field.name())));
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(row_count));
    let schema = SchemaRef::clone(&projection.schema);
    Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
}

pub(super) fn mismatch(reason: String) -> StoreError {
    StoreError::Mismatch { what: "decoding a page", reason }
}

#[cfg(test)]
mod tests;
