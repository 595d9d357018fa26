//! Chunks of one page in, a record batch out, with projection and selection applied.
//!
//! Invariants: a batch has one row for each slot (or each selected slot), in slot order; a user column that the
//! page does not have, since it was added later, is NULL; a predecessor that the page does not have is 0, a
//! tombstone false. Plain columns share the chunk's memory where nothing is selected.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;

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
}

impl Projection {
    /// The table's columns at these positions, in this order. Positions that it does not have are left out.
    #[must_use]
    pub fn of_table(schema: &TableSchema, indices: &[usize]) -> Self {
        let columns: Vec<_> =
            indices.iter().filter_map(|index| schema.columns.get(*index)).collect();
        let fields: Vec<Field> = columns.iter().map(|column| column.arrow()).collect();
        Self {
            schema: Arc::new(Schema::new(fields)),
            columns: columns.iter().map(|column| ColumnRef::User(column.id)).collect(),
        }
    }

    /// The field of a version column, with a name that no user column can have by accident; None for user columns.
    #[must_use]
    pub fn version_field(column: ColumnRef) -> Option<Field> {
        let name = match column {
            ColumnRef::User(_) => return None,
            ColumnRef::Vid => "\u{1}vid",
            ColumnRef::Commit => "\u{1}commit",
            ColumnRef::Predecessor => "\u{1}predecessor",
            ColumnRef::Tombstone => "\u{1}tombstone",
        };
        let value_type = ValueType::of_version_column(column)?;
        Some(Field::new(name, value_type.arrow(), false))
    }

    /// The same with a version column behind the others; a user column changes nothing.
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
            Source::Absent(data_type, column) => absent(&data_type, column, pick.count()),
        });
    }
    batch(projection, arrays, pick.count())
}

/// Where the values of a projected column come from.
pub(crate) enum Source<'a> {
    /// The page.
    Chunk(Chunk<'a>),
    /// The page has no such column.
    Absent(DataType, ColumnRef),
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
    wanted.map(|(field, column)| source(page, read, *column, field.data_type())).collect()
}

/// The source of a column, its type checked.
pub(crate) fn source<'a>(
    page: &'a PageColumns,
    read: &'a PageRead,
    column: ColumnRef,
    data_type: &DataType,
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
        return Ok(Source::Absent(data_type.clone(), column));
    };
    let found = entry.value_type.arrow();
    if found != *data_type {
        return Err(mismatch(format!(
            "{column} is {found} in the page and {data_type} in the projection"
        )));
    }
    Ok(Source::Chunk(Chunk { read, header: &page.header, entry, bytes }))
}

/// Values of a column that the page does not have.
pub(crate) fn absent(data_type: &DataType, column: ColumnRef, row_count: usize) -> ArrayRef {
    match column {
        ColumnRef::Predecessor => Arc::new(UInt64Array::from_value(0, row_count)),
        ColumnRef::Tombstone => {
            Arc::new(BooleanArray::new(BooleanBuffer::new_unset(row_count), None))
        }
        _ => new_null_array(data_type, row_count),
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

fn mismatch(reason: String) -> StoreError {
    StoreError::Mismatch { what: "decoding a page", reason }
}

#[cfg(test)]
mod tests;
