//! DO UPDATE without a plan: for SET with only columns, constants, and sums and differences of whole numbers.
//!
//! A sum is computed in 64 bits and must fit the column that it is assigned to. DataFusion would also refuse a sum that
//! does not fit the type of the sum, so a sum of a narrower type than its column's is left to DataFusion.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::compute::kernels::numeric::{add, sub};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_catalog::error::Result;
use cleave_catalog::value::ColumnBuilder;
use cleave_sql::statement::Parameters;
use cleave_sql::statement::conform::converted;
use cleave_sql::statement::key_predicate::qualified_column;
use cleave_sql::statement::modify::Assignment;
use cleave_sql::statement::names::fold;
use cleave_sql::statement::parameters::place_of;
use cleave_store::{Column, ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast;

use super::super::insert::{Constant, append, constant};

/// Pairs of rows: existing rows, input rows, and the statement's name for the former.
pub(super) struct Pairs<'a> {
    pub(super) schema: &'a TableSchema,
    pub(super) name: &'a ast::Ident,
    pub(super) there: &'a RecordBatch,
    pub(super) excluded: &'a RecordBatch,
}

/// The rows as SET makes them; None: it needs DataFusion.
///
/// # Errors
/// A value that its column does not take.
pub(super) fn updated(
    pairs: &Pairs<'_>,
    assignments: &[Assignment],
    parameters: &Parameters,
    now_us: i64,
) -> Result<Option<RecordBatch>> {
    let mut columns = pairs.there.columns().to_vec();
    for assignment in assignments {
        let place = pairs.schema.column_index(&assignment.column);
        let Some((place, column)) =
            place.and_then(|place| Some((place, pairs.schema.columns.get(place)?)))
        else {
            return Ok(None);
        };
        // The default replaces it.
        let Some(value) = &assignment.value else { continue };
        let Some(array) = pairs.value(value, column, parameters, now_us)? else { return Ok(None) };
        if let Some(slot) = columns.get_mut(place) {
            *slot = array;
        }
    }
    let named = pairs.schema.columns.iter().zip(&columns);
    let fields =
        named.map(|(column, array)| Field::new(&column.name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(Some(RecordBatch::try_new(schema, columns)?))
}

impl Pairs<'_> {
    /// The values that `column` is assigned.
    fn value(
        &self,
        expression: &ast::Expr,
        column: &Column,
        parameters: &Parameters,
        now_us: i64,
    ) -> Result<Option<ArrayRef>> {
        if let ast::Expr::Nested(inner) = expression {
            return self.value(inner, column, parameters, now_us);
        }
        if let Some((own, array)) = self.column(expression) {
            let is_same = own.column_type == column.column_type;
            return Ok(is_same.then(|| Arc::clone(array)));
        }
        if let ast::Expr::BinaryOp { left, op, right } = expression {
            let (left, right) = (self.whole(left, parameters)?, self.whole(right, parameters)?);
            let (Some((left_rank, left)), Some((right_rank, right))) = (left, right) else {
                return Ok(None);
            };
            let Some(rank) = rank(column.column_type) else { return Ok(None) };
            if left_rank.max(right_rank) < rank {
                return Ok(None);
            }
            let sum = match op {
                ast::BinaryOperator::Plus => add(&left, &right)?,
                ast::BinaryOperator::Minus => sub(&left, &right)?,
                _ => return Ok(None),
            };
            return converted(column, &sum).map(Some);
        }
        let constant = constant(expression).filter(|constant| *constant != Constant::Now);
        let Some(constant) = constant else { return Ok(None) };
        let mut builder = ColumnBuilder::new(&column.column_type, self.there.num_rows());
        for _ in 0..self.there.num_rows() {
            append(self.schema, &mut builder, column, (&constant, parameters), now_us)?;
        }
        Ok(Some(builder.finish()))
    }

    /// The column of one of the two rows that `expression` is.
    fn column(&self, expression: &ast::Expr) -> Option<(&Column, &ArrayRef)> {
        let place_in = |table: &str| qualified_column(expression, self.schema, table);
        let (rows, place) = match (place_in(&fold(self.name)), place_in("excluded")) {
            (Some(place), None) => (self.there, place),
            (None, Some(place)) => (self.excluded, place),
            _ => return None,
        };
        Some((self.schema.columns.get(place)?, rows.columns().get(place)?))
    }

    /// Whole numbers, and how wide their type is.
    fn whole(
        &self,
        expression: &ast::Expr,
        parameters: &Parameters,
    ) -> Result<Option<(u8, ArrayRef)>> {
        if let Some((column, array)) = self.column(expression) {
            let Some(rank) = rank(column.column_type) else { return Ok(None) };
            return Ok(Some((rank, cast(array, &DataType::Int64)?)));
        }
        let (rank, value) = match (place_of(expression)?, expression) {
            (Some(place), _) => {
                let value = parameters.get(place)?;
                let Some(rank) = rank(value.column_type()) else { return Ok(None) };
                (rank, value.text().map(str::to_owned))
            }
            (None, ast::Expr::Value(value)) => match &value.value {
                ast::Value::Number(digits, _) if digits.parse::<i32>().is_ok() => {
                    (1, Some(digits.clone()))
                }
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let value = value.and_then(|text| text.parse::<i64>().ok());
        let values = std::iter::repeat_n(value, self.there.num_rows());
        Ok(Some((rank, Arc::new(values.collect::<arrow::array::Int64Array>()))))
    }
}

/// How wide a type of whole numbers is.
fn rank(column_type: ColumnType) -> Option<u8> {
    match column_type {
        ColumnType::SmallInt => Some(0),
        ColumnType::Int => Some(1),
        ColumnType::BigInt => Some(2),
        _ => None,
    }
}
