//! `SET (a, b) = row`: a written-out row gives each column its value. A query runs once for each row that changes; its
//! result comes as one value, which is split afterwards.
//!
//! ```text
//!  UPDATE t SET (b, c) = (SELECT u.x, u.y FROM u WHERE u.a = t.a)
//!    ─▶ SELECT t.VID, t.a, NULL, NULL, (SELECT struct(u.x, u.y) FROM u WHERE u.a = t.a) AS row0 FROM target AS t
//! ```
//!
//! So all values come from the same row of the query, whatever its order. They are NULL if it gives no row.

use std::ops::ControlFlow;

use arrow::array::{ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::compute::{is_null, nullif};
use arrow::datatypes::DataType;
use cleave_catalog::error::{Error, Fault, Result};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr, Visitor};

use super::Assignment;
use crate::statement::catalog_syntax::call;
use crate::statement::names::fold;
use crate::statement::parse::{is_default, parse_query};
use crate::visiting::{Visited, visit};

/// A value of a row that a query gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowValue {
    /// The number of the row among those of the statement.
    pub row: usize,
    /// Which of its values.
    pub place: usize,
}

/// A column, its value, and which value of a row that is.
type Given = (ast::ObjectName, Expr, Option<RowValue>);

/// The assignments of `value` to `names`; `row` is the number of the row, if it comes from a query.
///
/// # Errors
/// [`Error::Invalid`] for a row of more or fewer values; [`Error::Unsupported`] for what is no row.
pub(super) fn row_of(names: Vec<ast::ObjectName>, value: Expr, row: usize) -> Result<Vec<Given>> {
    let count = names.len();
    let values = match value {
        Expr::Nested(value) if matches!(*value, Expr::Subquery(_) | Expr::Nested(_)) => {
            return row_of(names, *value, row);
        }
        // The parser reads VALUES in parentheses as a call, or as a list that begins with one.
        Expr::Nested(value) if matches!(&*value, Expr::Function(own) if is_called(own, "values")) =>
        {
            let Expr::Function(values) = *value else { return Err(other_count()) };
            let values = arguments(values)?;
            if values.iter().any(is_default) {
                return Err(Error::Invalid {
                    message: "DEFAULT is not allowed in this context".to_owned(),
                    fault: Fault::Statement,
                    position: None,
                });
            }
            values
        }
        Expr::Tuple(values) if matches!(values.first(), Some(Expr::Function(own)) if is_called(own, "values")) =>
        {
            let rows: Vec<String> = values.iter().map(ToString::to_string).collect();
            let query = parse_query(rows.join(", "))?;
            return row_of(names, Expr::Subquery(query), row);
        }
        Expr::Tuple(values) => values,
        Expr::Function(function) if is_called(&function, "row") => arguments(function)?,
        Expr::Subquery(mut query) => {
            as_row(&mut query, count)?;
            let value = Expr::Subquery(query);
            let of_row = |place| Some(RowValue { row, place });
            let given = names.into_iter().zip(0..);
            return Ok(given.map(|(name, place)| (name, value.clone(), of_row(place))).collect());
        }
        _ => {
            return Err(Error::unsupported("SET (columns) = of anything but a row or a query"));
        }
    };
    if values.len() != count {
        return Err(other_count());
    }
    Ok(names.into_iter().zip(values).map(|(name, value)| (name, value, None)).collect())
}

/// How many rows of queries there are.
pub fn row_count(assignments: &[Assignment]) -> usize {
    let rows = assignments.iter().filter_map(|assignment| assignment.of_row);
    rows.map(|value| value.row + 1).max().unwrap_or_default()
}

/// The rows of queries, one after the other, each with a name.
pub(super) fn row_items(assignments: &[Assignment]) -> Vec<SelectItem> {
    let firsts = assignments
        .iter()
        .filter(|assignment| assignment.of_row.is_some_and(|value| value.place == 0));
    let items = firsts.zip(0..).filter_map(|(first, row): (_, usize)| {
        let alias = ast::Ident::with_quote('"', format!("\u{1}row{row}"));
        Some(SelectItem::ExprWithAlias { expr: first.value.clone()?, alias })
    });
    items.collect()
}

/// The columns of the table that `schema` describes, which come first in `batch`, with the values of the rows appended
/// to them.
///
/// # Errors
/// [`Error::Invalid`] for rows of more or fewer values.
pub fn with_row_values(
    schema: &TableSchema,
    assignments: &[Assignment],
    batch: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    let count = schema.columns.len();
    let mut columns: Vec<ArrayRef> = batch.columns().iter().take(count).cloned().collect();
    for assignment in assignments {
        let Some(RowValue { row, place }) = assignment.of_row else { continue };
        let column = schema.column_index(&assignment.column);
        let Some(column) = column.and_then(|column| columns.get_mut(column)) else { continue };
        let Some(rows) = batch.columns().get(count + row) else { return Err(other_count()) };
        *column = match rows.data_type() {
            DataType::Null => new_null_array(&DataType::Null, batch.num_rows()),
            DataType::Struct(_) => {
                let values = rows.as_struct().columns();
                nullif(values.get(place).ok_or_else(other_count)?, &is_null(rows)?)?
            }
            _ => return Err(other_count()),
        };
    }
    Ok(columns)
}

/// Combines the columns of `query`, of which there must be that many, into one value.
fn as_row(query: &mut ast::Query, count: usize) -> Result<()> {
    if let SetExpr::Values(values) = &*query.body
        && values.rows.iter().any(|row| row.len() != count)
    {
        return Err(other_count());
    }
    if let SetExpr::Select(select) = &mut *query.body
        && select.projection.iter().all(|item| value_of(item).is_some())
    {
        if select.projection.len() != count {
            return Err(other_count());
        }
        let has_names = select.distinct.is_some()
            || query.order_by.as_ref().is_some_and(|order| names_items(order, select))
            || names_items(&select.group_by, select);
        if !has_names {
            let values = select.projection.iter().filter_map(value_of).cloned().collect();
            select.projection = vec![SelectItem::UnnamedExpr(call("struct", values))];
            return Ok(());
        }
    }
    let names: Vec<String> = (0..count).map(|place| format!("\"c{place}\"")).collect();
    let names = names.join(", ");
    let text = format!("SELECT struct({names}) FROM (SELECT 1) AS \"row\" ({names})");
    let mut around = *parse_query(text)?;
    if let SetExpr::Select(select) = &mut *around.body
        && let Some(ast::TableFactor::Derived { subquery, .. }) =
            select.from.first_mut().map(|from| &mut from.relation)
    {
        std::mem::swap(&mut **subquery, query);
    }
    *query = around;
    Ok(())
}

/// The value of a list item; None: it may be several.
fn value_of(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => {
            Some(value)
        }
        _ => None,
    }
}

/// Whether `part` of a query may refer to items of its list, by number or name.
fn names_items(part: &impl Visited, select: &ast::Select) -> bool {
    struct Names<'a>(&'a ast::Select);
    impl Visitor for Names<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            let is_alias = |name: &ast::Ident| {
                self.0.projection.iter().any(|item| {
                    matches!(item, SelectItem::ExprWithAlias { alias, .. } if fold(alias) == fold(name))
                })
            };
            let names = match expression {
                Expr::Value(value) => matches!(value.value, ast::Value::Number(..)),
                Expr::Identifier(name) => is_alias(name),
                _ => false,
            };
            if names { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    visit(part, &mut Names(select)).is_break()
}

/// Whether a word can be written as a function's name.
fn is_called(function: &ast::Function, word: &str) -> bool {
    matches!(function.name.0.as_slice(), [ast::ObjectNamePart::Identifier(name)]
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case(word))
}

fn arguments(function: ast::Function) -> Result<Vec<Expr>> {
    let ast::FunctionArguments::List(list) = function.args else {
        return Err(Error::unsupported("this form of ROW in SET"));
    };
    let values = list.args.into_iter().map(|argument| match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(value)) => Ok(value),
        _ => Err(Error::unsupported("this form of ROW in SET")),
    });
    values.collect()
}

fn other_count() -> Error {
    Error::Invalid {
        message: "number of columns does not match number of values".to_owned(),
        fault: Fault::Statement,
        position: None,
    }
}
