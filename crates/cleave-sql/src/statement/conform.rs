//! Converts input rows to rows as a table stores them.
//!
//! 1. Columns are found by name or by place; missing ones get their default.
//! 2. Values become the column's type, by PostgreSQL's assignment casts: numbers to numbers, times to times, text to
//!    any type that can read it, anything to text. Numbers are rounded, and never wrap.
//! 3. `character varying(n)`, `character(n)` and NOT NULL are checked.
//!
//! Invariant: a batch that leaves here has exactly the table's Arrow schema, and satisfies every constraint that a
//! single row can break. Source: PostgreSQL's manual, "Value Storage".

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, StringBuilder, new_null_array,
};
use arrow::compute::{cast, interleave};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::value::build::fit;
use cleave_catalog::value::{ColumnBuilder, ValueError, ValueFault, ValueText, value_text};
use cleave_fragment::functions::assignment::{self, Family, Unassigned, assign, length_of};
use cleave_store::{Column, TableSchema};

use crate::statement::defaults::default_array;
use crate::statement::moment::Moment;

/// Makes rows fit one table. See the module's description.
#[derive(Debug, Clone)]
pub struct Conform {
    schema: Arc<TableSchema>,
    arrow: SchemaRef,
    /// For each column of the table, which column of the input fills it.
    sources: Vec<Option<usize>>,
    moment: Moment,
}

impl Conform {
    /// Matches columns of the input to those of the table by name.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for a name that the table does not have, [`Error::Invalid`] for one that comes twice.
    pub fn by_name(
        schema: &Arc<TableSchema>,
        input: &Schema,
        moment: impl Into<Moment>,
    ) -> Result<Self> {
        let names: Vec<&str> = input.fields().iter().map(|field| field.name().as_str()).collect();
        Self::new(schema, &names, moment.into())
    }

    /// Matches columns of the input in the order of `columns`; empty: in the table's order, where the last ones may be
    /// left out.
    ///
    /// # Errors
    /// As [`Conform::by_name`]; [`Error::Invalid`] where there are more or fewer values than columns.
    pub fn by_position(
        schema: &Arc<TableSchema>,
        columns: &[String],
        value_count: usize,
        moment: impl Into<Moment>,
    ) -> Result<Self> {
        let count = match columns.len() {
            0 => schema.columns.len().min(value_count),
            count => count,
        };
        let message = match count.cmp(&value_count) {
            std::cmp::Ordering::Less => "INSERT has more expressions than target columns",
            std::cmp::Ordering::Greater => "INSERT has more target columns than expressions",
            std::cmp::Ordering::Equal if columns.is_empty() => {
                let places = 0..schema.columns.len();
                let sources = places.map(|place| (place < count).then_some(place)).collect();
                let (schema, arrow) = (Arc::clone(schema), schema.arrow());
                let moment = moment.into().of_table(schema.table_id);
                return Ok(Self { schema, arrow, sources, moment });
            }
            std::cmp::Ordering::Equal => {
                let names: Vec<&str> = columns.iter().map(String::as_str).collect();
                return Self::new(schema, &names, moment.into());
            }
        };
        Err(Error::Invalid { message: message.to_owned(), fault: Fault::Statement, position: None })
    }

    fn new(schema: &Arc<TableSchema>, names: &[&str], moment: Moment) -> Result<Self> {
        let mut sources = vec![None; schema.columns.len()];
        for (place, name) in names.iter().enumerate() {
            let source = schema
                .column_index(name)
                .and_then(|index| sources.get_mut(index))
                .ok_or_else(|| {
                    let columns = schema.columns.iter().map(|column| column.name.as_str());
                    Error::unknown_column(&schema.name, name, columns)
                })?;
            if source.replace(place).is_some() {
                return Err(Error::Invalid {
                    message: format!("column \"{name}\" specified more than once"),
                    fault: Fault::DuplicateColumn,
                    position: None,
                });
            }
        }
        let moment = moment.of_table(schema.table_id);
        Ok(Self { schema: Arc::clone(schema), arrow: schema.arrow(), sources, moment })
    }

    /// The same, of a statement that runs at `moment`.
    pub fn at(&self, moment: Moment) -> Self {
        Self { moment: moment.of_table(self.schema.table_id), ..self.clone() }
    }

    /// The table's columns that the input fills, in the input's order, with their places there.
    pub fn targets(&self) -> Vec<(usize, &Column)> {
        let mut targets: Vec<(usize, &Column)> = self
            .sources
            .iter()
            .zip(&self.schema.columns)
            .filter_map(|(source, column)| source.map(|place| (place, column)))
            .collect();
        targets.sort_by_key(|(place, _)| *place);
        targets
    }

    /// The moment of its statement.
    pub fn moment(&self) -> &Moment {
        &self.moment
    }

    /// Gives the column `id` its default, whatever the input has.
    pub fn without(&mut self, id: u32) {
        for (source, column) in self.sources.iter_mut().zip(&self.schema.columns) {
            if column.id == id {
                *source = None;
            }
        }
    }

    /// The rows of `batch` as the table stores them.
    ///
    /// # Errors
    /// [`Error::Value`], [`Error::NotNull`], or [`Error::Invalid`] for a type that does not become the
    /// column's.
    pub fn rows(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.rows_with_defaults(batch, &[])
    }

    /// As [`Conform::rows`]; where one of `defaults`, by the input's columns, is true, the row has the column's default
    /// instead of the input's value.
    pub fn rows_with_defaults(
        &self,
        batch: &RecordBatch,
        defaults: &[Option<BooleanArray>],
    ) -> Result<RecordBatch> {
        self.rows_of_columns(batch.columns(), batch.num_rows(), defaults)
    }

    /// As [`Conform::rows_with_defaults`], for columns with that many rows.
    pub fn rows_of_columns(
        &self,
        input: &[ArrayRef],
        row_count: usize,
        defaults: &[Option<BooleanArray>],
    ) -> Result<RecordBatch> {
        let default = |column, row_count| default_array(column, row_count, &self.moment);
        let mut columns = Vec::with_capacity(self.sources.len());
        for (column, source) in self.schema.columns.iter().zip(&self.sources) {
            let array = match source.and_then(|place| input.get(place)) {
                Some(array) => converted(column, array)?,
                None => default(column, row_count)?,
            };
            let array = match source.and_then(|place| defaults.get(place)) {
                Some(Some(is_default)) => {
                    // Only as many as rows need: no number of a sequence is wasted.
                    let values = default(column, is_default.true_count())?;
                    scattered(is_default, &values, &array)?
                }
                _ => array,
            };
            check_null(&self.schema, column, &array)?;
            columns.push(array);
        }
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(row_count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.arrow), columns, &options)?)
    }
}

/// Puts the new values of an UPDATE into `columns`, which hold one row of the table `schema`: at each place of `values`
/// that value; None: the column's default. All other columns are unchanged, and conform.
///
/// # Errors
/// As [`Conform::rows`]: of the first column that cannot take its value.
pub fn change_row(
    schema: &TableSchema,
    columns: &mut [ArrayRef],
    mut values: Vec<(usize, Option<ArrayRef>)>,
    moment: impl Fn() -> Moment,
) -> Result<()> {
    values.sort_by_key(|(place, _)| *place);
    for (place, value) in values {
        let (Some(column), Some(known)) = (schema.columns.get(place), columns.get_mut(place))
        else {
            continue;
        };
        let value = match value {
            Some(value) => converted(column, &value)?,
            None => default_array(column, 1, &moment().of_table(schema.table_id))?,
        };
        check_null(schema, column, &value)?;
        *known = value;
    }
    Ok(())
}

fn check_null(schema: &TableSchema, column: &Column, array: &ArrayRef) -> Result<()> {
    if column.not_null && array.null_count() > 0 {
        let (table, column) = (schema.name.clone(), column.name.clone());
        return Err(Error::NotNull { table, column });
    }
    Ok(())
}

/// `values` one after the other where `is_default`, else the value in `array`.
fn scattered(is_default: &BooleanArray, values: &ArrayRef, array: &ArrayRef) -> Result<ArrayRef> {
    let mut next = 0;
    let places = is_default.iter().enumerate().map(|(row, is_default)| match is_default {
        Some(true) => {
            next += 1;
            (1, next - 1)
        }
        _ => (0, row),
    });
    let places: Vec<(usize, usize)> = places.collect();
    Ok(interleave(&[array.as_ref(), values.as_ref()], &places)?)
}

/// `array` as values of `column`.
pub fn converted(column: &Column, array: &ArrayRef) -> Result<ArrayRef> {
    let (from, to) = (array.data_type(), column.column_type.arrow());
    let array = match from {
        DataType::Null => return Ok(new_null_array(&to, array.len())),
        DataType::Dictionary(_, values) => &cast(array, values)?,
        DataType::LargeUtf8 | DataType::Utf8View => &cast(array, &DataType::Utf8)?,
        DataType::LargeBinary | DataType::BinaryView => &cast(array, &DataType::Binary)?,
        _ => array,
    };
    let from = array.data_type();
    if *from == to {
        return fitted(column, array);
    }
    match (Family::of(from), Family::of(&to)) {
        (Family::Text, _) => read(column, array.as_string()),
        (_, Family::Text) => fitted(column, &written(array)?),
        (Family::Number, Family::Number) | (Family::Time, Family::Time) => {
            recast(column, array, &to)
        }
        _ => Err(Error::Invalid {
            message: format!(
                "column \"{}\" is of type {} but expression is of type {}",
                column.name,
                column.column_type.sql_name(),
                crate::dialect::type_name(from)
            ),
            fault: Fault::Type,
            position: None,
        }),
    }
}

/// Checks or cuts texts to the column's length; other types pass unchanged.
fn fitted(column: &Column, array: &ArrayRef) -> Result<ArrayRef> {
    let Some(length) = length_of(&column.column_type) else { return Ok(Arc::clone(array)) };
    match assignment::fitted(array, length) {
        Ok(texts) => Ok(texts),
        Err(Unassigned::Row(row)) => {
            let text = array.as_string::<i32>().value(row);
            let fits = fit(&column.column_type, text).map_err(value(column));
            fits.map(|_| Arc::clone(array))
        }
        Err(Unassigned::Other(error)) => Err(error.into()),
    }
}

/// Texts read as values of the column.
fn read(column: &Column, texts: &StringArray) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(&column.column_type, texts.len());
    for text in texts {
        match text {
            Some(text) => builder.append_text(text).map_err(value(column))?,
            None => builder.append_null(),
        }
    }
    Ok(builder.finish())
}

/// Values as text.
fn written(array: &ArrayRef) -> Result<ArrayRef> {
    if let Some(values) = array.as_boolean_opt() {
        // As a cast writes them; `t` and `f` are the output for clients.
        let word = |value| if value { "true" } else { "false" };
        let texts: StringArray = values.iter().map(|value| value.map(word)).collect();
        return Ok(Arc::new(texts));
    }
    let values = ValueText::new(array)?;
    let mut texts = StringBuilder::with_capacity(array.len(), array.len() * 8);
    let mut text = String::new();
    for row in 0..array.len() {
        text.clear();
        if values.write(row, &mut text) {
            texts.append_value(&text);
        } else {
            texts.append_null();
        }
    }
    Ok(Arc::new(texts.finish()))
}

/// Numbers as numbers and times as times; a value that does not fit is an error that shows it.
fn recast(column: &Column, array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let row = match assign(array, to) {
        Ok(values) => return Ok(values),
        Err(Unassigned::Row(row)) => row,
        Err(Unassigned::Other(error)) => return Err(error.into()),
    };
    Err(value(column)(ValueError {
        fault: ValueFault::OutOfRange,
        type_name: column.column_type.sql_name(),
        value: value_text(array, row)?.unwrap_or_default(),
        expected: "a value within the type's range",
    }))
}

fn value(column: &Column) -> impl Fn(ValueError) -> Error {
    let name = column.name.clone();
    move |source| Error::Value { column: name.clone(), source: Box::new(source) }
}

#[cfg(test)]
mod tests;
