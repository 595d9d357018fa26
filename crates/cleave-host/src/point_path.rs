//! The point path: a SELECT by primary key, from its syntax tree to its row without any plan.
//!
//! ```text
//!  SELECT columns FROM t WHERE key = constant [AND …]
//!    ─▶ key bytes ─▶ index ─▶ VID ─▶ version map ─▶ page and slot ─▶ one row
//! ```
//!
//! 1. [`PointQuery::detect`] recognises the shape, or leaves the query to the planner. It is strict: a
//!    condition that is not `key column = constant`, a constant that its column's type reads
//!    otherwise than the planner would, an expression in the list, and it is not a point query.
//! 2. [`run`] looks the key up and reads the row's columns.
//!
//! Invariant: what comes out is what the planner's way would give, byte for byte. An index entry counts
//! only if the row that it names is in the statement's version map and has the entry's key (rule 16).

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use cleave_store::{
    ColumnRef, ColumnType, IndexKey, OverflowValues, PageRead, Projection, SegmentDirectory,
    TableSchema, VersionPlace, decode_row, overflow_pages,
};
use datafusion::sql::sqlparser::ast;

use crate::catalog::{CatalogState, TableState, TabletState};
use crate::database::Database;
use crate::error::{Error, NameKind, Result};
use crate::settings::Stack;
use crate::statement::names::{fold, table_name};
use crate::value::ColumnBuilder;

/// A query for the row of one key.
#[derive(Debug, Clone)]
pub struct PointQuery {
    table: String,
    /// Places of the columns in the table, and the names that they get.
    columns: Vec<(usize, String)>,
    key: Vec<u8>,
}

impl PointQuery {
    /// The point query that `query` is on `state`; `None`: it is another one, or there is something
    /// wrong with it, which the planner will say.
    #[must_use]
    pub fn detect(query: &ast::Query, state: &CatalogState) -> Option<Self> {
        let select = plain_select(query)?;
        let [from] = select.from.as_slice() else { return None };
        let (name, qualifier) = plain_table(from)?;
        let table = state.table(&name)?;
        let schema = &table.schema;
        let columns = projected(&select.projection, schema, &qualifier)?;
        let values = key_values(select.selection.as_ref()?, schema, &qualifier)?;
        let key = IndexKey::of_primary_key(schema).ok()??.encode_one(&values).ok()?;
        Some(Self { table: name, columns, key })
    }

    /// What EXPLAIN says.
    #[must_use]
    pub fn explain(&self, state: &CatalogState) -> String {
        let keys = state.table(&self.table).map(|table| {
            let schema = &table.schema;
            let columns = schema.primary_key_indices();
            let names = columns.iter().filter_map(|index| schema.columns.get(*index));
            names.map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
        });
        format!(
            "Point look-up on {} by primary key ({}), on the host, without a plan",
            self.table,
            keys.unwrap_or_default()
        )
    }
}

/// The row of `query`, or no row.
///
/// # Errors
/// Those of the device and of pages.
pub async fn run(
    database: &Arc<Database>,
    state: &Arc<CatalogState>,
    query: &PointQuery,
    stack: Stack,
) -> Result<RecordBatch> {
    let table = state
        .table(&query.table)
        .ok_or_else(|| Error::unknown(NameKind::Table, &query.table, state.table_names()))?;
    for tablet in &table.tablets {
        if let Some(row) = run_tablet(database, table, tablet, query, stack).await? {
            return Ok(row);
        }
    }
    Ok(RecordBatch::new_empty(result_schema(&table.schema, &query.columns)))
}

async fn run_tablet(
    database: &Arc<Database>,
    table: &TableState,
    tablet: &TabletState,
    query: &PointQuery,
    stack: Stack,
) -> Result<Option<RecordBatch>> {
    let schema = &table.schema;
    let pages = database.page_source(tablet.device, stack)?;
    let (Some(index), Some(index_key)) = (tablet.index.as_ref(), IndexKey::of_primary_key(schema)?)
    else {
        return Ok(None);
    };
    let Some(vid) = index.get(tablet, schema, &*pages, &query.key).await? else { return Ok(None) };
    let Some((segment, page, slot)) = newest(tablet, vid) else { return Ok(None) };
    let Some(entry) = segment.page(page) else { return Ok(None) };
    // The columns asked for, then those of the key.
    let key_columns = schema.primary_key_indices();
    let places = query.columns.iter().map(|(place, _)| *place);
    let places: Vec<usize> = places.chain(key_columns.iter().copied()).collect();
    let projection = Projection::of_table(schema, &places);
    let mut wanted: Vec<ColumnRef> = projection.columns.clone();
    wanted.sort_unstable();
    wanted.dedup();
    let read = PageRead { segment: segment.segment_ref(), page: entry.page, columns: wanted };
    let answers = pages.read(vec![read.clone()]).await?;
    let Some(columns) = answers.first() else { return Ok(None) };
    let row_count = usize::try_from(entry.page.row_count).unwrap_or(usize::MAX);
    let selection =
        arrow::buffer::BooleanBuffer::collect_bool(row_count, |row| row == usize::from(slot));
    let needed = overflow_pages(columns, &read, &read.columns, Some(&selection))?;
    let mut overflow = OverflowValues::none();
    let needed: Vec<_> = needed.into_iter().filter_map(|page| entry.overflow_page(page)).collect();
    if !needed.is_empty() {
        let payloads = pages.read_overflow(read.segment, needed.clone()).await?;
        for (page, payload) in needed.iter().zip(payloads) {
            overflow.insert(page.page, payload);
        }
    }
    let row = decode_row(columns, &read, slot, &projection, &overflow)?;
    let (shown, key) = row.columns().split_at(query.columns.len());
    if index_key.encode_one(key)? != query.key {
        return Ok(None);
    }
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
    let result = result_schema(schema, &query.columns);
    Ok(Some(RecordBatch::try_new_with_options(result, shown.to_vec(), &options)?))
}

/// Segment, page and slot of the newest version of `vid`.
fn newest(tablet: &TabletState, vid: u64) -> Option<(&Arc<SegmentDirectory>, u32, u16)> {
    match tablet.version_map.lookup(vid)? {
        VersionPlace::Record(record) => {
            Some((tablet.segment(record.segment())?, record.page(), record.slot()))
        }
        VersionPlace::Segment(segment) => {
            let segment = tablet.segment(segment)?;
            let (entry, slot) = segment.slot_of(vid)?;
            Some((segment, entry.page.page, slot))
        }
    }
}

fn result_schema(schema: &TableSchema, columns: &[(usize, String)]) -> SchemaRef {
    let fields = columns.iter().filter_map(|(place, name)| {
        let column = schema.columns.get(*place)?;
        Some(Field::new(name, column.column_type.arrow(), !column.not_null))
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The SELECT of a query that is nothing but SELECT … FROM … WHERE ….
fn plain_select(query: &ast::Query) -> Option<&ast::Select> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    // Compared with its own remains: a clause that a later parser adds makes it no point query.
    let stripped = ast::Query {
        with: None,
        body: Box::new(ast::SetExpr::Select(Box::new(ast::Select {
            from: Vec::new(),
            projection: Vec::new(),
            selection: None,
            ..ast::Select::clone(select)
        }))),
        ..query.clone()
    };
    (stripped.to_string().trim() == "SELECT" && query.with.is_none()).then_some(select)
}

/// The only table of FROM: its name, and what columns may be qualified with.
fn plain_table(from: &ast::TableWithJoins) -> Option<(String, String)> {
    let ast::TableFactor::Table { name, alias, .. } = &from.relation else { return None };
    let table = table_name(name).ok()?;
    let (alias, expected) = match alias {
        None => (None, name.to_string()),
        Some(alias) if alias.columns.is_empty() => {
            (Some(fold(&alias.name)), format!("{name} {alias}"))
        }
        Some(_) => return None,
    };
    // Anything else that the grammar allows here (joins, hints, samples, versions) would show.
    let written = from.to_string().replace(" AS ", " ");
    if written != expected.replace(" AS ", " ") {
        return None;
    }
    let qualifier = alias.unwrap_or_else(|| table.clone());
    Some((table, qualifier))
}

/// The columns of the select list, all of which must be plain columns or `*`.
fn projected(
    items: &[ast::SelectItem],
    schema: &TableSchema,
    qualifier: &str,
) -> Option<Vec<(usize, String)>> {
    let mut columns = Vec::new();
    for item in items {
        match item {
            ast::SelectItem::UnnamedExpr(expression) => {
                let place = column(expression, schema, qualifier)?;
                columns.push((place, schema.columns.get(place)?.name.clone()));
            }
            ast::SelectItem::ExprWithAlias { expr, alias } => {
                columns.push((column(expr, schema, qualifier)?, fold(alias)));
            }
            ast::SelectItem::Wildcard(_) if item.to_string() == "*" => {
                let all = schema.columns.iter().enumerate();
                columns.extend(all.map(|(place, column)| (place, column.name.clone())));
            }
            _ => return None,
        }
    }
    // Two columns of one name are the planner's to refuse.
    let mut names: Vec<&str> = columns.iter().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    let distinct = names.windows(2).all(|pair| pair.first() != pair.last());
    (distinct && !columns.is_empty()).then_some(columns)
}

/// The place of the column that `expression` names.
fn column(expression: &ast::Expr, schema: &TableSchema, qualifier: &str) -> Option<usize> {
    match expression {
        ast::Expr::Identifier(name) => schema.column_index(&fold(name)),
        ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [table, name] if fold(table) == qualifier => schema.column_index(&fold(name)),
            _ => None,
        },
        _ => None,
    }
}

/// The values of the primary key, in key order, if `condition` gives each exactly once and nothing else.
fn key_values(
    condition: &ast::Expr,
    schema: &TableSchema,
    qualifier: &str,
) -> Option<Vec<ArrayRef>> {
    let key = schema.primary_key_indices();
    let mut values: Vec<Option<ArrayRef>> = vec![None; key.len()];
    let mut left = vec![condition];
    while let Some(condition) = left.pop() {
        match condition {
            ast::Expr::Nested(inner) => left.push(inner),
            ast::Expr::BinaryOp { left: one, op: ast::BinaryOperator::And, right: other } => {
                left.extend([one.as_ref(), other.as_ref()]);
            }
            ast::Expr::BinaryOp { left: one, op: ast::BinaryOperator::Eq, right: other } => {
                let (place, constant) = match column(one, schema, qualifier) {
                    Some(place) => (place, other),
                    None => (column(other, schema, qualifier)?, one),
                };
                let position = key.iter().position(|column| *column == place)?;
                let value = key_value(constant, schema.columns.get(place)?.column_type)?;
                if values.get_mut(position)?.replace(value).is_some() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    values.into_iter().collect()
}

/// `expression` as a value of a key column, where there can be no doubt what it is compared as.
fn key_value(expression: &ast::Expr, column_type: ColumnType) -> Option<ArrayRef> {
    use ColumnType as Type;
    let (text, is_number, negative) = constant(expression)?;
    let text = if negative { format!("-{text}") } else { text.to_owned() };
    let read_as = match (column_type, is_number) {
        (Type::SmallInt | Type::Int | Type::BigInt, true) => column_type,
        // A digit more than the column has compares unequal; reading it would round it away.
        (Type::Numeric { scale, .. }, true) => {
            let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
            let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"-.".contains(&byte));
            (plain && digits <= usize::try_from(scale).ok()?).then_some(column_type)?
        }
        // A length limits what is stored and not what is compared with it.
        (Type::Text | Type::Varchar(_) | Type::Char(_), false) => Type::Text,
        (Type::Uuid | Type::Date, false) => column_type,
        _ => return None,
    };
    let mut builder = ColumnBuilder::new(&read_as, 1);
    builder.append_text(&text).ok()?;
    Some(builder.finish())
}

/// A constant's text, whether it is a number, and whether it has a minus before it.
fn constant(expression: &ast::Expr) -> Option<(&str, bool, bool)> {
    match expression {
        ast::Expr::Nested(inner) => constant(inner),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => match constant(expr)? {
            (text, true, false) => Some((text, true, true)),
            _ => None,
        },
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(text, _) => Some((text, true, false)),
            ast::Value::SingleQuotedString(text) => Some((text, false, false)),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
