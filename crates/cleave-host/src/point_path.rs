//! The point path: a SELECT by the key of an index, from its syntax tree to its rows without any plan.
//!
//! ```text
//!  SELECT columns FROM t WHERE key = constant [AND …]
//!    ─▶ key bytes ─▶ index ─▶ VIDs ─▶ version map ─▶ pages and slots ─▶ rows
//! ```
//!
//! 1. [`PointQuery::detect`] recognises the shape, or leaves the query to the planner. It is strict: a
//!    condition that is not `key column = constant`, columns that are not the first ones of some index, a constant
//!    that its column's type reads otherwise than the planner would, an expression in the list, and it is not a
//!    point query.
//! 2. [`run`] looks the key up and reads the columns of its rows, or finds that there are so many rows that a plan is
//!    better.
//!
//! Invariant: what comes out is what the planner's way would give, byte for byte. An index entry counts
//! only if the row that it names is in the statement's version map and has the entry's key (rule 16).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanBufferBuilder, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use cleave_store::{
    ColumnRef, ColumnType, KeyRange, OverflowValues, PageRead, PageSource, Projection,
    SegmentDirectory, SegmentId, TableSchema, VersionPlace, decode_batch, decode_row,
    overflow_pages,
};
use datafusion::sql::sqlparser::ast;

use crate::catalog::index_definition::IndexDefinition;
use crate::catalog::{CatalogState, TableState, TabletState};
use crate::database::Database;
use crate::error::{Error, NameKind, Result};
use crate::index::IndexShape;
use crate::settings::Stack;
use crate::statement::names::{fold, table_name};
use crate::value::ColumnBuilder;

/// Most entries that are looked up here; a plan reads more of them with less work each.
const ENTRY_COUNT_MAX: usize = 256;

/// A query for the rows of one key.
#[derive(Debug, Clone)]
pub struct PointQuery {
    table: String,
    /// Places of the columns in the table, and the names that they get.
    columns: Vec<(usize, String)>,
    index: Arc<IndexDefinition>,
    /// What the entries of the rows begin with.
    prefix: Vec<u8>,
    /// The prefix is a whole search key.
    is_search_key: bool,
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
        let values = equal_values(select.selection.as_ref()?, schema, &qualifier)?;
        let fitting = |index: &&Arc<IndexDefinition>| {
            let first = index.column_indices(schema);
            let first = first.get(..values.len());
            first.is_some_and(|first| first.iter().all(|column| values.contains_key(column)))
        };
        // A unique index that is given whole has one row; else one whose columns are given whole.
        let index = table.indexes.iter().filter(fitting).min_by_key(|index| {
            let is_whole = index.columns.len() == values.len();
            (!(index.unique && is_whole), !is_whole, index.id)
        })?;
        let shape = table.tablets.first()?.index(index.id)?.shape();
        let in_order: Vec<ArrayRef> = shape
            .columns
            .iter()
            .take(values.len())
            .filter_map(|column| values.get(column))
            .map(Arc::clone)
            .collect();
        Some(Self {
            table: name,
            columns,
            prefix: shape.key.prefix(&in_order).ok()?,
            is_search_key: index.columns.len() == values.len(),
            index: Arc::clone(index),
        })
    }

    /// What EXPLAIN says.
    #[must_use]
    pub fn explain(&self, state: &CatalogState) -> String {
        let names = state.table(&self.table).map(|table| self.index.column_names(&table.schema));
        format!(
            "Point look-up on {} by index {} ({}), on the host, without a plan",
            self.table,
            self.index.name,
            names.unwrap_or_default().join(", ")
        )
    }
}

/// The rows of `query`; `None`: there are too many for this way.
///
/// # Errors
/// Those of the device and of pages.
pub async fn run(
    database: &Arc<Database>,
    state: &Arc<CatalogState>,
    query: &PointQuery,
    stack: Stack,
) -> Result<Option<RecordBatch>> {
    let table = state
        .table(&query.table)
        .ok_or_else(|| Error::unknown(NameKind::Table, &query.table, state.table_names()))?;
    let mut batches = Vec::new();
    for tablet in &table.tablets {
        let pages = database.page_source(tablet.device, stack)?;
        let Some(index) = tablet.index(query.index.id) else { return Ok(None) };
        let vids = if query.index.unique && query.is_search_key {
            index.get(tablet, &*pages, &query.prefix).await?.into_iter().collect()
        } else {
            let ranges = [KeyRange::of_prefix(query.prefix.clone())];
            let rows =
                index.rows_in(tablet, &*pages, &ranges, query.is_search_key, ENTRY_COUNT_MAX);
            let Some(vids) = rows.await? else { return Ok(None) };
            vids
        };
        let read = TabletRead { table, tablet, shape: index.shape(), pages: &*pages, query };
        read.rows(vids, &mut batches).await?;
    }
    let schema = result_schema(&table.schema, &query.columns);
    match batches.as_slice() {
        [batch] => Ok(Some(batch.clone())),
        _ => Ok(Some(concat_batches(&schema, &batches)?)),
    }
}

/// A tablet whose rows are read.
struct TabletRead<'a> {
    table: &'a TableState,
    tablet: &'a TabletState,
    shape: &'a IndexShape,
    pages: &'a dyn PageSource,
    query: &'a PointQuery,
}

impl TabletRead<'_> {
    /// Adds the rows `vids`, as far as this state has them, in the order in which the pages lie.
    async fn rows(&self, vids: Vec<u64>, batches: &mut Vec<RecordBatch>) -> Result<()> {
        let mut places: BTreeMap<(SegmentId, u32), Vec<u16>> = BTreeMap::new();
        for vid in vids {
            if let Some((segment, page, slot)) = newest(self.tablet, vid) {
                places.entry((segment.segment, page)).or_default().push(slot);
            }
        }
        for ((segment, page), mut slots) in places {
            slots.sort_unstable();
            if let Some(segment) = self.tablet.segment(segment) {
                batches.extend(self.page_rows(segment, page, &slots).await?);
            }
        }
        Ok(())
    }

    /// The rows in `slots` of a page that have the key.
    async fn page_rows(
        &self,
        segment: &SegmentDirectory,
        page: u32,
        slots: &[u16],
    ) -> Result<Option<RecordBatch>> {
        let Some(entry) = segment.page(page) else { return Ok(None) };
        let (schema, pages) = (&self.table.schema, self.pages);
        // The columns asked for, then those of the key.
        let places = self.query.columns.iter().map(|(place, _)| *place);
        let places: Vec<usize> = places.chain(self.shape.columns.iter().copied()).collect();
        let projection = Projection::of_table(schema, &places);
        let mut wanted: Vec<ColumnRef> = projection.columns.clone();
        wanted.sort_unstable();
        wanted.dedup();
        let read = PageRead { segment: segment.segment_ref(), page: entry.page, columns: wanted };
        let answers = pages.read(vec![read.clone()]).await?;
        let Some(columns) = answers.first() else { return Ok(None) };
        let row_count = usize::try_from(entry.page.row_count).unwrap_or(usize::MAX);
        // Of a page with many rows, so made only where it is asked for.
        let selection = || {
            let mut rows = BooleanBufferBuilder::new(row_count);
            rows.append_n(row_count, false);
            for slot in slots.iter().copied().map(usize::from).filter(|slot| *slot < row_count) {
                rows.set_bit(slot, true);
            }
            rows.finish()
        };
        let needed = if columns.header.has_long_values() {
            overflow_pages(columns, &read, &read.columns, Some(&selection()))?
        } else {
            Vec::new()
        };
        let mut overflow = OverflowValues::none();
        let needed: Vec<_> =
            needed.into_iter().filter_map(|page| entry.overflow_page(page)).collect();
        if !needed.is_empty() {
            let payloads = pages.read_overflow(read.segment, needed.clone()).await?;
            for (page, payload) in needed.iter().zip(payloads) {
                overflow.insert(page.page, payload);
            }
        }
        let rows = match slots {
            [slot] => decode_row(columns, &read, *slot, &projection, &overflow)?,
            _ => decode_batch(columns, &read, &projection, Some(&selection()), &overflow)?,
        };
        let (shown, key) = rows.columns().split_at(self.query.columns.len());
        let keys = self.shape.key.encode(key)?;
        let has_key = BooleanBuffer::collect_bool(keys.len(), |row| {
            keys.value(row).starts_with(&self.query.prefix)
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let result = result_schema(schema, &self.query.columns);
        let batch = RecordBatch::try_new_with_options(result, shown.to_vec(), &options)?;
        if has_key.count_set_bits() == batch.num_rows() {
            return Ok(Some(batch));
        }
        Ok(Some(filter_record_batch(&batch, &has_key.into())?))
    }
}

/// Segment, page and slot of the newest version of `vid`.
pub(crate) fn newest(tablet: &TabletState, vid: u64) -> Option<(&Arc<SegmentDirectory>, u32, u16)> {
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

/// The value of each column that `condition` gives exactly once, if it says nothing else.
fn equal_values(
    condition: &ast::Expr,
    schema: &TableSchema,
    qualifier: &str,
) -> Option<BTreeMap<usize, ArrayRef>> {
    let mut values = BTreeMap::new();
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
                let value = key_value(constant, schema.columns.get(place)?.column_type)?;
                if values.insert(place, value).is_some() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(values)
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
