//! Conditions of a statement on the keys of one table: a syntax tree in; out, the table, the conditions of WHERE on its
//! columns, and the columns of the select list.
//!
//! All statements that run without a plan are recognised here: the look-up by a key (`point_path`), the range of keys
//! (`range_path`), the change of rows by their keys, and DO UPDATE without a plan (both in `session`). Each takes what
//! it can use:
//!
//! 1. [`plain_select`] gives the SELECT of a query that has only the clauses that the path supports.
//! 2. [`OneTable`] is the only table of FROM, or that of an UPDATE or DELETE.
//! 3. [`conjuncts`] splits WHERE, [`OneTable::condition`] reads each part: a column, compared with a [`Constant`].
//!    [`KeyPart`] converts these to values of the column's type, if the type of the comparison is certain.
//! 4. [`OneTable::columns`] reads a list of columns and nothing else.
//!
//! Invariant: recognition is strict. `None` means that the statement is planned. A clause that a later parser adds also
//! leads to `None`, because the query is compared with a copy reduced to the known clauses.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::ArrayRef;
use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::value::ColumnBuilder;
use cleave_store::{ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast;

use crate::statement::modify::Modify;
use crate::statement::names::{fold, table_name};
use crate::statement::parameters::{any_of, place_of};

/// The only table of a statement.
#[derive(Debug)]
pub struct OneTable<'a> {
    /// The table.
    pub table: &'a Arc<TableState>,
    /// The name that qualifies columns.
    pub qualifier: String,
}

/// A condition on one column.
#[derive(Debug)]
pub struct Condition<'a> {
    /// Its place in the table.
    pub column: usize,
    /// The comparison.
    pub test: Test<'a>,
}

/// The comparison of a column.
#[derive(Debug, PartialEq)]
pub enum Test<'a> {
    /// It equals.
    Equal(Constant<'a>),
    /// It equals any of these.
    In(Vec<Constant<'a>>),
    /// It equals any item of this parameter.
    AnyOf(usize),
    /// It is greater, or if true, equal.
    Low(Constant<'a>, bool),
    /// It is less, or if true, equal.
    High(Constant<'a>, bool),
    /// It is not less than the first, nor greater than the second.
    Between(Constant<'a>, Constant<'a>),
}

/// A constant that a column is compared with.
#[derive(Debug, PartialEq)]
pub struct Constant<'a> {
    /// Its value.
    pub given: Given<'a>,
    /// Whether it is written as a number.
    pub is_number: bool,
    /// Whether a minus stands before it.
    pub negative: bool,
}

/// The value that a column is compared with, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given<'a> {
    /// A number, or a string without its quotes.
    Text(Cow<'a, str>),
    /// The value of this parameter, from 0.
    Parameter(usize),
}

/// The value that a key column is compared with.
#[derive(Debug)]
pub struct KeyPart {
    is_number: bool,
    negative: bool,
    column_type: ColumnType,
}

/// The clauses allowed in a query beside its list, FROM and WHERE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clauses {
    /// None.
    Bare,
    /// GROUP BY, HAVING, DISTINCT, ORDER BY, LIMIT and OFFSET.
    Grouped,
}

/// The SELECT of a query that has only these clauses.
pub fn plain_select(query: &ast::Query, clauses: Clauses) -> Option<&ast::Select> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    if query.with.is_some() {
        return None;
    }
    let mut stripped = query.clone();
    let ast::SetExpr::Select(own) = stripped.body.as_mut() else { return None };
    (own.from, own.projection, own.selection) = (Vec::new(), Vec::new(), None);
    if clauses == Clauses::Grouped {
        let is_plainly_grouped = match &own.group_by {
            ast::GroupByExpr::Expressions(_, with) => with.is_empty(),
            ast::GroupByExpr::All(_) => false,
        };
        if !is_plainly_grouped || matches!(own.distinct, Some(ast::Distinct::On(_))) {
            return None;
        }
        own.group_by = ast::GroupByExpr::Expressions(Vec::new(), Vec::new());
        (own.having, own.distinct) = (None, None);
        (stripped.order_by, stripped.limit_clause) = (None, None);
    }
    // Compared with a copy of its known parts: a clause that a later parser adds needs a plan.
    (stripped.to_string().trim() == "SELECT").then_some(select)
}

/// The conditions of a conjunction, in the order of the text.
pub fn conjuncts(condition: Option<&ast::Expr>) -> impl Iterator<Item = &ast::Expr> {
    let mut left: Vec<&ast::Expr> = condition.into_iter().collect();
    std::iter::from_fn(move || {
        loop {
            match left.pop()? {
                ast::Expr::Nested(inner) => left.push(inner),
                ast::Expr::BinaryOp { left: one, op: ast::BinaryOperator::And, right: other } => {
                    left.extend([other.as_ref(), one.as_ref()]);
                }
                other => return Some(other),
            }
        }
    })
}

impl<'a> OneTable<'a> {
    /// The table that is all of FROM.
    pub fn of_from(from: &[ast::TableWithJoins], state: &'a CatalogState) -> Option<Self> {
        match from {
            [only] if only.joins.is_empty() => Self::of_factor(&only.relation, state),
            _ => None,
        }
    }

    /// The table that `factor` is.
    pub fn of_factor(factor: &ast::TableFactor, state: &'a CatalogState) -> Option<Self> {
        let (name, qualifier) = plain_table(factor)?;
        Some(Self { table: state.table(&name)?, qualifier })
    }

    /// The table whose rows `modify` changes, if it reads no other table.
    pub fn of_change(modify: &Modify, state: &'a CatalogState) -> Option<Self> {
        if !modify.from.is_empty() || modify.with.is_some() {
            return None;
        }
        let table = state.find_writable_table(&modify.table).ok()?;
        Some(Self { table, qualifier: fold(&modify.target_name()) })
    }

    /// The schema of the table.
    pub fn schema(&self) -> &'a Arc<TableSchema> {
        &self.table.schema
    }

    /// The place of the column that `expression` names.
    pub fn column(&self, expression: &ast::Expr) -> Option<usize> {
        column(expression, self.schema(), &self.qualifier)
    }

    /// The condition that `whole` puts on one column; None: none that keys can answer.
    pub fn condition<'e>(&self, whole: &'e ast::Expr) -> Option<Condition<'e>> {
        condition(whole, self.schema(), &self.qualifier)
    }

    /// The columns of the select list, all of which must be plain columns or `*`, with their names.
    pub fn columns(&self, items: &[ast::SelectItem]) -> Option<Vec<(usize, String)>> {
        let schema = self.schema();
        let mut columns = Vec::new();
        for item in items {
            match item {
                ast::SelectItem::UnnamedExpr(expression) => {
                    let place = self.column(expression)?;
                    columns.push((place, schema.columns.get(place)?.name.clone()));
                }
                ast::SelectItem::ExprWithAlias { expr, alias } => {
                    columns.push((self.column(expr)?, fold(alias)));
                }
                ast::SelectItem::Wildcard(_) if item.to_string() == "*" => {
                    let all = schema.columns.iter().enumerate();
                    columns.extend(all.map(|(place, column)| (place, column.name.clone())));
                }
                _ => return None,
            }
        }
        // The planner refuses two columns of one name.
        let mut names: Vec<&str> = columns.iter().map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        let distinct = names.windows(2).all(|pair| pair.first() != pair.last());
        (distinct && !columns.is_empty()).then_some(columns)
    }
}

/// Whether a table and its indexes are the same in `state` as when a statement was recognised.
pub fn is_as_before(
    state: &CatalogState,
    schema: &Arc<TableSchema>,
    indexes: &[Arc<IndexDefinition>],
) -> bool {
    state.table(&schema.name).is_some_and(|table| {
        Arc::ptr_eq(&table.schema, schema)
            && table.indexes.len() == indexes.len()
            && table.indexes.iter().zip(indexes).all(|(a, b)| Arc::ptr_eq(a, b))
    })
}

/// The table that `factor` is and nothing else: its name, and the name that qualifies columns.
fn plain_table(factor: &ast::TableFactor) -> Option<(String, String)> {
    let ast::TableFactor::Table { name, alias, .. } = factor else { return None };
    let table = table_name(name).ok()?;
    let (alias, expected) = match alias {
        None => (None, name.to_string()),
        Some(alias) if alias.columns.is_empty() => {
            (Some(fold(&alias.name)), format!("{name} {alias}"))
        }
        Some(_) => return None,
    };
    // Anything else that the grammar allows here (hints, samples, versions) makes a difference.
    let written = factor.to_string().replace(" AS ", " ");
    if written != expected.replace(" AS ", " ") {
        return None;
    }
    let qualifier = alias.unwrap_or_else(|| table.clone());
    Some((table, qualifier))
}

/// The place of the column that `expression` names, alone or behind `qualifier`.
fn column(expression: &ast::Expr, schema: &TableSchema, qualifier: &str) -> Option<usize> {
    match expression {
        ast::Expr::Identifier(name) => schema.column_index(&fold(name)),
        _ => qualified_column(expression, schema, qualifier),
    }
}

/// The place of the column that `expression` names behind `qualifier`.
pub fn qualified_column(
    expression: &ast::Expr,
    schema: &TableSchema,
    qualifier: &str,
) -> Option<usize> {
    let ast::Expr::CompoundIdentifier(parts) = expression else { return None };
    match parts.as_slice() {
        [table, name] if fold(table) == qualifier => schema.column_index(&fold(name)),
        _ => None,
    }
}

fn condition<'a>(
    whole: &'a ast::Expr,
    schema: &TableSchema,
    qualifier: &str,
) -> Option<Condition<'a>> {
    use ast::BinaryOperator as Operator;
    let column = |expression: &ast::Expr| column(expression, schema, qualifier);
    if let Some((compared, place)) = any_of(whole) {
        return Some(Condition { column: column(compared)?, test: Test::AnyOf(place) });
    }
    match whole {
        ast::Expr::BinaryOp { left, op, right } => {
            let (place, value, is_turned) = match column(left) {
                Some(place) => (place, right, false),
                None => (column(right)?, left, true),
            };
            let value = constant(value)?;
            let test = match (op, is_turned) {
                (Operator::Eq, _) => Test::Equal(value),
                (Operator::Gt, false) | (Operator::Lt, true) => Test::Low(value, false),
                (Operator::GtEq, false) | (Operator::LtEq, true) => Test::Low(value, true),
                (Operator::Lt, false) | (Operator::Gt, true) => Test::High(value, false),
                (Operator::LtEq, false) | (Operator::GtEq, true) => Test::High(value, true),
                _ => return None,
            };
            Some(Condition { column: place, test })
        }
        ast::Expr::Between { expr, negated: false, low, high } => {
            let test = Test::Between(constant(low)?, constant(high)?);
            Some(Condition { column: column(expr)?, test })
        }
        ast::Expr::InList { expr, list, negated: false } => {
            let values = list.iter().map(constant).collect::<Option<Vec<_>>>()?;
            Some(Condition { column: column(expr)?, test: Test::In(values) })
        }
        _ => None,
    }
}

/// The constant, or parameter, that `expression` is.
pub fn constant(expression: &ast::Expr) -> Option<Constant<'_>> {
    match expression {
        ast::Expr::Nested(inner) => constant(inner),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => {
            let value = constant(expr)?;
            (value.is_number && !value.negative).then_some(Constant { negative: true, ..value })
        }
        ast::Expr::Value(value) => {
            let (given, is_number) = match &value.value {
                ast::Value::Number(text, _) => (Given::Text(Cow::Borrowed(text)), true),
                ast::Value::SingleQuotedString(text) => (Given::Text(Cow::Borrowed(text)), false),
                ast::Value::Placeholder(_) => {
                    (Given::Parameter(place_of(expression).ok().flatten()?), false)
                }
                _ => return None,
            };
            Some(Constant { given, is_number, negative: false })
        }
        ast::Expr::BinaryOp { .. } => {
            let value = whole_number(expression)?;
            let text = Cow::Owned(value.unsigned_abs().to_string());
            Some(Constant { given: Given::Text(text), is_number: true, negative: value < 0 })
        }
        _ => None,
    }
}

/// The value of sums, differences and products of whole numbers that are written out; None: it is something else, or
/// leaves the type that PostgreSQL computes it in.
fn whole_number(expression: &ast::Expr) -> Option<i64> {
    use ast::BinaryOperator as Operator;
    match expression {
        ast::Expr::BinaryOp { left, op, right } => {
            let (left, right) = (whole_number(left)?, whole_number(right)?);
            let value = match op {
                Operator::Plus => left.checked_add(right)?,
                Operator::Minus => left.checked_sub(right)?,
                Operator::Multiply => left.checked_mul(right)?,
                _ => return None,
            };
            // A `bigint` within the range of `integer` counts as the latter, which is more strict.
            let is_integer = |value: i64| i32::try_from(value).is_ok();
            (is_integer(value) || !is_integer(left) || !is_integer(right)).then_some(value)
        }
        other => {
            let Constant { given: Given::Text(text), is_number: true, negative } = constant(other)?
            else {
                return None;
            };
            let value: i64 = text.parse().ok()?;
            Some(if negative { -value } else { value })
        }
    }
}

/// Whether any value of `parameter` is compared with the column in the column's own order.
fn is_compared_as(column: ColumnType, parameter: ColumnType) -> bool {
    use ColumnType as Type;
    let is_integer = |one: ColumnType| matches!(one, Type::SmallInt | Type::Int | Type::BigInt);
    match column {
        Type::SmallInt | Type::Int | Type::BigInt => is_integer(parameter),
        Type::Numeric { .. } => is_integer(parameter) || matches!(parameter, Type::Numeric { .. }),
        Type::Text | Type::Varchar(_) | Type::Char(_) => parameter == Type::Text,
        other => parameter == other,
    }
}

impl KeyPart {
    /// The constant that a column of this type is compared with; None: only the planner knows its type.
    pub fn of(value: &Constant<'_>, column_type: ColumnType, types: &[ColumnType]) -> Option<Self> {
        if let Given::Parameter(place) = value.given
            && !is_compared_as(column_type, *types.get(place)?)
        {
            return None;
        }
        let is_number = match &value.given {
            Given::Text(_) => value.is_number,
            // By the type of the comparison.
            Given::Parameter(_) => !matches!(
                column_type,
                ColumnType::Text
                    | ColumnType::Varchar(_)
                    | ColumnType::Char(_)
                    | ColumnType::Uuid
                    | ColumnType::Date
            ),
        };
        Some(Self { is_number, negative: value.negative, column_type })
    }

    /// The type of its column.
    pub fn column_type(&self) -> ColumnType {
        self.column_type
    }

    /// `text` as a value of the key column, if the type of the comparison is certain.
    pub fn value(&self, text: &str) -> Option<ArrayRef> {
        use ColumnType as Type;
        let text = if self.negative { Cow::Owned(format!("-{text}")) } else { Cow::Borrowed(text) };
        let read_as = match (self.column_type, self.is_number) {
            (Type::SmallInt | Type::Int | Type::BigInt, true) => self.column_type,
            // A value with more digits than the column compares unequal; reading it would round it.
            (Type::Numeric { scale, .. }, true) => {
                let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
                let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"-.".contains(&byte));
                let fits = plain && digits <= usize::try_from(scale).ok()?;
                fits.then_some(self.column_type)?
            }
            // A length limits stored values and not those compared with them.
            (Type::Text | Type::Varchar(_) | Type::Char(_), false) => Type::Text,
            (Type::Uuid | Type::Date, false) => self.column_type,
            _ => return None,
        };
        let mut builder = ColumnBuilder::new(&read_as, 1);
        builder.append_text(&text).ok()?;
        Some(builder.finish())
    }
}

#[cfg(test)]
mod tests;
