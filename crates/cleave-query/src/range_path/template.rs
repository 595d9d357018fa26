//! The template of a range-path statement, without values: a syntax tree in; out, the index, the prefix of its keys,
//! the order, the number of rows, and the query that runs over them.
//!
//! 1. [`RangeTemplate::of`] takes the conditions of WHERE as [`key_predicate`](cleave_sql::statement::key_predicate)
//!    reads them, chooses the index whose keys they bound most, and checks whether its order is that of ORDER BY.
//! 2. [`RangeTemplate::bind`] makes ranges of keys from values, [`RangeTemplate::window`] LIMIT and OFFSET.
//! 3. [`RangeTemplate::kept`] is the plan for these types of values, made on first use.
//!
//! A statement may contain only expressions with the same result for the same values (`plain`), since constant-folded
//! results are cached with the plan.

mod joins;
mod plain;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::index::IndexShape;
use cleave_catalog::settings::{Settings, Stack};
use cleave_catalog::value::ColumnBuilder;
use cleave_sql::statement::Parameters;
use cleave_sql::statement::key_predicate::{
    Condition, Constant, Given, KeyPart, OneTable, Test, conjuncts, is_as_before,
};
use cleave_sql::statement::modify::VID;
use cleave_sql::statement::names::fold;
use cleave_sql::statement::parameters::{any_of, place_of};
use cleave_store::{ColumnType, KeyRange, TableSchema, after_prefix};
use datafusion::sql::sqlparser::ast;

use super::joined::Joined;
use super::read::RangeRead;
use super::sources::{self, Sources};
use crate::point_path::Sight;
use crate::query_engine::QueryEngine;
use crate::select::{CachedPlan, keep};
use plain::plain;
pub use plain::{are_plain, is_plain};

/// Sets of types of parameters for which plans are kept: a `numeric` has as many digits as its value.
const KEPT_MAX: usize = 8;
/// Most ranges of one statement.
const RANGES_MAX: usize = 256;
/// Plans of one query, by the types of its parameters.
#[derive(Debug, Default)]
pub struct Kept {
    plans: Mutex<Vec<Arc<CachedPlan>>>,
    /// It cannot be planned so.
    is_given_up: AtomicBool,
}

/// See the module's description.
#[derive(Debug)]
pub struct RangeTemplate {
    schema: Arc<TableSchema>,
    /// All indexes of the table, of which the best was chosen.
    indexes: Vec<Arc<IndexDefinition>>,
    shape: Arc<IndexShape>,
    parts: Vec<Part>,
    /// The greatest keys first.
    pub backward: bool,
    /// Each row of the table gives one row of the result or none, so that enough of the latter need no more of the
    /// former.
    pub stops: bool,
    /// All rows in the ranges are in the result.
    pub(crate) is_exact: bool,
    limit: Option<Count>,
    offset: Option<Count>,
    /// The query to plan, and its alias of the table.
    query: ast::Query,
    slot: String,
    /// The columns that its rows have in memory.
    columns: SchemaRef,
    kept: Kept,
    /// Place of the table's first column among these.
    pub first: usize,
    /// Tables whose rows are looked up for each row, one after the other.
    pub joined: Vec<Joined>,
}

/// LIMIT and OFFSET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Rows at most.
    pub limit: Option<usize>,
    /// Rows that are left out before.
    pub offset: usize,
}

#[derive(Debug)]
enum Count {
    Number(usize),
    Parameter(usize),
}

/// What the conditions say of a key column.
#[derive(Debug)]
enum Part {
    Equal(Operand),
    In(Vec<Operand>),
    /// Any item of this parameter.
    AnyOf(usize, KeyPart),
    /// The columns behind are not bound.
    Range {
        low: Option<Bound>,
        high: Option<Bound>,
        descending: bool,
    },
}

#[derive(Debug)]
struct Bound {
    value: Operand,
    is_inclusive: bool,
}

/// What a key column is compared with.
#[derive(Debug)]
pub(super) struct Operand {
    given: Source,
    part: KeyPart,
}

#[derive(Debug)]
enum Source {
    Text(String),
    Parameter(usize),
}

/// What is made of conditions for one index.
struct Match {
    parts: Vec<Part>,
    /// Which conditions they are.
    used: Vec<usize>,
    /// Whether the entries come in the order of ORDER BY, and if so, from which end.
    order: Option<bool>,
}

/// A column of ORDER BY.
struct OrderColumn {
    column: usize,
    descending: bool,
    nulls_first: bool,
}

impl Window {
    /// Rows that are enough.
    pub fn wanted(&self) -> Option<usize> {
        self.limit.map(|limit| limit.saturating_add(self.offset))
    }
}

impl Operand {
    fn of(value: &Constant<'_>, column_type: ColumnType, types: &[ColumnType]) -> Option<Self> {
        let part = KeyPart::of(value, column_type, types)?;
        let given = match &value.given {
            Given::Text(text) => Source::Text(text.clone().into_owned()),
            Given::Parameter(place) => Source::Parameter(*place),
        };
        Some(Self { given, part })
    }

    /// Whether it is NULL, which equals nothing.
    fn is_null(&self, parameters: &Parameters) -> bool {
        let Source::Parameter(place) = self.given else { return false };
        let parameter = parameters.values().get(place);
        parameter.is_some_and(|own| own.text().is_none() && own.items().is_none())
    }

    /// The value; None: it is left to the planner.
    pub(super) fn value(&self, parameters: &Parameters) -> Option<ArrayRef> {
        match &self.given {
            Source::Text(text) => self.part.value(text),
            Source::Parameter(place) => {
                let parameter = parameters.values().get(*place)?;
                item_value(&self.part, parameter.text()?)
            }
        }
    }
}

/// The value of a parameter, or of an item of one.
fn item_value(part: &KeyPart, text: &str) -> Option<ArrayRef> {
    use ColumnType as Type;
    let own = part.column_type();
    // Of the column's own type, which has one way to write it.
    if matches!(own, Type::Boolean | Type::Time | Type::Timestamp | Type::TimestampTz) {
        let mut builder = ColumnBuilder::new(&own, 1);
        builder.append_text(text).ok()?;
        return Some(builder.finish());
    }
    part.value(text)
}

impl RangeTemplate {
    /// The template of `query` on `state`, whose parameters have these types; `numbered`: the numbers of the rows are
    /// to come behind its columns. None: it needs a plan.
    pub fn of(
        query: &ast::Query,
        types: &[ColumnType],
        state: &CatalogState,
        numbered: bool,
    ) -> Option<Self> {
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        let tables = Sources::of(&select.from, state)?;
        match tables.all() {
            [sources::Source { one, .. }] => {
                Self::over(query, one, one.schema().name.as_str(), types, numbered)
            }
            _ if numbered => None,
            _ => joins::of(query, &tables, types),
        }
    }

    /// As [`RangeTemplate::of`], of a query over one table which FROM calls `slot`.
    pub fn over(
        query: &ast::Query,
        one: &OneTable<'_>,
        slot: &str,
        types: &[ColumnType],
        numbered: bool,
    ) -> Option<Self> {
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        let has_aggregates = plain(query)?;
        let (table, schema) = (one.table, one.schema());
        let conjuncts: Vec<&ast::Expr> = conjuncts(select.selection.as_ref()).collect();
        let conditions: Vec<Option<Condition<'_>>> =
            conjuncts.iter().map(|whole| one.condition(whole)).collect();
        let is_grouped = has_aggregates
            || select.having.is_some()
            || select.distinct.is_some()
            || !matches!(&select.group_by, ast::GroupByExpr::Expressions(by, with) if by.is_empty() && with.is_empty());
        let order = match (&query.order_by, is_grouped) {
            (None, _) => Some(Vec::new()),
            (Some(_), true) => None,
            (Some(order), false) => order_columns(order, select, one),
        };
        let (limit, offset) = counts(query.limit_clause.as_ref())?;
        let is_sorted = query.order_by.is_some();
        let asked = (conditions.as_slice(), order.as_deref().map(|order| (order, is_sorted)));
        let (_, shape, Match { parts, used, order }) = Match::best(table, asked, types)?;
        let is_ordered = order.is_some() && !is_grouped;
        let is_exact = used.len() == conjuncts.len();
        // Without conditions on keys, only the first rows in their order are few.
        let is_first_rows =
            is_ordered && query.order_by.is_some() && limit.is_some() && conjuncts.is_empty();
        if parts.is_empty() && !is_first_rows {
            return None;
        }
        let mut kept = query.clone();
        kept.limit_clause = None;
        if is_ordered {
            kept.order_by = None;
        }
        let lists: Vec<usize> = conjuncts
            .iter()
            .enumerate()
            .filter(|(_, whole)| any_of(whole).is_some())
            .map(|(place, _)| place)
            .collect();
        if !lists.iter().all(|place| used.contains(place)) {
            return None;
        }
        let says_all = is_exact && says_all(&parts, &shape, schema);
        let is_left = |(place, _): &(usize, _)| !says_all && !lists.contains(place);
        let left = conjuncts.iter().enumerate().filter(is_left);
        let selection = left.map(|(_, whole)| ast::Expr::clone(whole)).reduce(|one, other| {
            let [left, right] =
                [one, other].map(|side| Box::new(ast::Expr::Nested(Box::new(side))));
            ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right }
        });
        if let ast::SetExpr::Select(select) = kept.body.as_mut() {
            select.selection = selection;
            select.projection = expanded(&select.projection, schema)?;
            if numbered {
                let alias = ast::Ident::with_quote('"', VID);
                let item = ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(alias));
                select.projection.push(item);
            }
        }
        Some(Self {
            schema: Arc::clone(schema),
            indexes: table.indexes.clone(),
            shape,
            parts,
            backward: order.unwrap_or(false),
            stops: !is_grouped && (is_ordered || query.order_by.is_none()),
            is_exact,
            limit,
            offset,
            query: kept,
            slot: slot.to_owned(),
            columns: with_numbers(schema),
            kept: Kept::default(),
            first: 0,
            joined: Vec::new(),
        })
    }

    /// The table.
    pub fn table(&self) -> &str {
        &self.schema.name
    }

    /// The table's id.
    pub fn table_id(&self) -> u32 {
        self.schema.table_id
    }

    /// How many columns its rows have in memory that are those of tables.
    pub fn width(&self) -> usize {
        self.columns.fields().len() - 1
    }

    /// The index's id.
    pub fn index_id(&self) -> u32 {
        self.shape.definition.id
    }

    /// Whether each range is that of one search key.
    pub fn is_search_key(&self) -> bool {
        self.parts.len() == self.shape.columns.len()
            && self.parts.iter().all(|part| !matches!(part, Part::Range { .. }))
    }

    /// What reads rows of its table.
    pub fn read<'a>(
        &self,
        database: &'a Arc<QueryEngine>,
        sight: &'a Sight<'a>,
        table: &'a TableState,
        stack: Stack,
    ) -> RangeRead<'a> {
        let (index, is_search_key) = (self.index_id(), self.is_search_key());
        let backward = self.backward;
        RangeRead { database, sight, table, index, is_search_key, backward, stack }
    }

    /// Whether table and indexes are in `state` as they were.
    pub fn holds(&self, state: &CatalogState) -> bool {
        is_as_before(state, &self.schema, &self.indexes)
            && self.joined.iter().all(|joined| joined.holds(state))
    }

    /// What EXPLAIN says.
    pub fn explain(&self, rows_max: u32) -> String {
        let names = self.shape.definition.column_names(&self.schema).join(", ");
        let name = &self.shape.definition.name;
        let backward = if self.backward { ", backwards" } else { "" };
        let joined: String = self.joined.iter().map(Joined::explain).collect();
        format!(
            "Range look-up on {} by index {name} ({names}){backward}{joined}, on the host, without a plan up to \
                {rows_max} rows, with \
             one beyond",
            self.table()
        )
    }

    /// The ranges of keys for these values, in the order in which rows are to come; None: one of them is left to the
    /// planner.
    pub fn bind(&self, parameters: &Parameters) -> Option<Vec<KeyRange>> {
        let mut prefixes: Vec<Vec<ArrayRef>> = vec![Vec::new()];
        let mut last = None;
        for part in &self.parts {
            let values: Vec<ArrayRef> = match part {
                Part::Equal(operand) if operand.is_null(parameters) => Vec::new(),
                Part::Equal(operand) => vec![operand.value(parameters)?],
                Part::In(operands) => {
                    let there = operands.iter().filter(|own| !own.is_null(parameters));
                    there.map(|own| own.value(parameters)).collect::<Option<_>>()?
                }
                Part::AnyOf(place, part) => {
                    let items = parameters.values().get(*place)?.items()?.iter().flatten();
                    items.map(|item| item_value(part, item)).collect::<Option<_>>()?
                }
                Part::Range { low, high, .. }
                    if [low, high].iter().any(|bound| {
                        bound.as_ref().is_some_and(|bound| bound.value.is_null(parameters))
                    }) =>
                {
                    Vec::new()
                }
                Part::Range { low, high, descending } => {
                    last = Some((low, high, *descending));
                    break;
                }
            };
            if prefixes.len().saturating_mul(values.len()) > RANGES_MAX {
                return None;
            }
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| {
                    values.iter().map(|value| {
                        prefix.iter().chain([value]).map(Arc::clone).collect::<Vec<_>>()
                    })
                })
                .collect();
        }
        let mut ranges = Vec::with_capacity(prefixes.len());
        for prefix in &prefixes {
            let begin = self.shape.key.prefix(prefix).ok()?;
            let Some((low, high, descending)) = last else {
                ranges.push(KeyRange::of_prefix(begin));
                continue;
            };
            // Where the greatest come first, greater keys lie before.
            let (first, behind) = if descending { (high, low) } else { (low, high) };
            let key = |bound: &Option<Bound>| match bound {
                None => Some(None),
                Some(bound) => {
                    let value = bound.value.value(parameters)?;
                    let values: Vec<ArrayRef> =
                        prefix.iter().chain([&value]).map(Arc::clone).collect();
                    Some(Some((self.shape.key.prefix(&values).ok()?, bound.is_inclusive)))
                }
            };
            let from = match key(first)? {
                None => begin.clone(),
                Some((key, true)) => key,
                Some((key, false)) => match after_prefix(&key) {
                    Some(after) => after,
                    None => continue,
                },
            };
            let below = match key(behind)? {
                None if begin.is_empty() => None,
                None => after_prefix(&begin),
                Some((key, true)) => after_prefix(&key),
                Some((key, false)) => Some(key),
            };
            ranges.push(KeyRange { from, below });
        }
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by(|one, other| one.from.cmp(&other.from));
        ranges.dedup();
        if self.backward {
            ranges.reverse();
        }
        Some(ranges)
    }

    /// LIMIT and OFFSET with these values; None: one is invalid, which the planner reports.
    pub fn window(&self, parameters: &Parameters) -> Option<Window> {
        let count = |count: &Count| match count {
            Count::Number(count) => Some(*count),
            Count::Parameter(place) => parameters.values().get(*place)?.text()?.parse().ok(),
        };
        let limit = match &self.limit {
            None => None,
            Some(limit) => Some(count(limit)?),
        };
        let offset = self.offset.as_ref().map_or(Some(0), count)?;
        Some(Window { limit, offset })
    }

    /// Whether it was found that there is no plan.
    pub fn is_given_up(&self) -> bool {
        self.kept.is_given_up.load(Ordering::Relaxed)
    }

    /// The plan for parameters of these types; None: there is none.
    pub async fn kept(
        &self,
        database: &QueryEngine,
        settings: &Settings,
        types: Vec<DataType>,
    ) -> Option<Arc<CachedPlan>> {
        let slot = (self.slot.as_str(), &self.columns);
        self.kept.plan((database, settings), &self.query, slot, types).await
    }
}

impl Kept {
    /// The plan of `query` over one table of these columns; None: there is none.
    pub async fn plan(
        &self,
        (database, settings): (&QueryEngine, &Settings),
        query: &ast::Query,
        (slot, columns): (&str, &SchemaRef),
        types: Vec<DataType>,
    ) -> Option<Arc<CachedPlan>> {
        if self.is_given_up.load(Ordering::Relaxed) {
            return None;
        }
        let known = {
            let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
            plans.iter().find(|kept| kept.types == types).map(Arc::clone)
        };
        if known.is_some() {
            return known;
        }
        let tables = [(slot, Arc::clone(columns))];
        // The planner reports its errors.
        let made = Box::pin(keep((database, settings), query.clone(), &tables, types)).await;
        let Ok(Some(made)) = made else {
            self.is_given_up.store(true, Ordering::Relaxed);
            return None;
        };
        let made = Arc::new(made);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= KEPT_MAX {
            plans.clear();
        }
        plans.push(Arc::clone(&made));
        Some(made)
    }
}

/// Whether the ranges that `parts` make have no other rows in them than those of which all conditions hold that they
/// were made of: a range that is open on one side has NULLs in it, and some values that are equal have other keys.
fn says_all(parts: &[Part], shape: &IndexShape, schema: &TableSchema) -> bool {
    parts.iter().zip(&shape.columns).all(|(part, place)| {
        schema.columns.get(*place).is_some_and(|column| {
            let is_exact = !matches!(
                column.column_type,
                ColumnType::Real | ColumnType::Double | ColumnType::Char(_)
            );
            is_exact && (column.not_null || !matches!(part, Part::Range { .. }))
        })
    })
}

/// The table's columns, with the numbers of rows behind.
pub fn with_numbers(schema: &TableSchema) -> SchemaRef {
    let own = schema.arrow();
    let number = Arc::new(Field::new(VID, DataType::UInt64, false));
    Arc::new(Schema::new(own.fields().iter().map(Arc::clone).chain([number]).collect::<Vec<_>>()))
}

/// The same of no table.
pub fn with_no_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(VID, DataType::UInt64, false)]))
}

/// How few rows a match is likely to have: whether it is a whole unique key; columns that are given, and those with a
/// range; whether entries come in the order of ORDER BY.
type Worth = (bool, usize, usize, bool);

/// The columns of ORDER BY, and whether the query has one.
type Order<'a> = (&'a [OrderColumn], bool);

impl Match {
    /// The best index of `table` for the conditions, and ORDER BY, of which is known whether there is one.
    fn best(
        table: &TableState,
        (conditions, order): (&[Option<Condition<'_>>], Option<Order<'_>>),
        types: &[ColumnType],
    ) -> Option<(Worth, Arc<IndexShape>, Self)> {
        let mut best: Option<(Worth, Arc<IndexShape>, Self)> = None;
        for definition in &table.indexes {
            let shape = Arc::clone(table.tablets.first()?.index(definition.id)?.shape());
            let asked = (conditions, order.map(|(order, _)| order));
            let Some(found) = Self::of(&shape, &table.schema, asked, types) else { continue };
            let equal = found.parts.iter().filter(|part| !matches!(part, Part::Range { .. }));
            let equal = equal.count();
            let is_whole = equal == shape.columns.len() && shape.definition.unique;
            let is_ordered = found.order.is_some() && order.is_some_and(|(_, is_sorted)| is_sorted);
            let worth = (is_whole, equal, found.parts.len(), is_ordered);
            if best.as_ref().is_none_or(|(known, ..)| *known < worth) {
                best = Some((worth, shape, found));
            }
        }
        best
    }

    /// What the conditions say of the keys of an index; None: nothing that helps.
    fn of(
        shape: &IndexShape,
        schema: &TableSchema,
        (conditions, order): (&[Option<Condition<'_>>], Option<&[OrderColumn]>),
        types: &[ColumnType],
    ) -> Option<Self> {
        let (mut parts, mut used) = (Vec::new(), Vec::new());
        for (place, own) in shape.columns.iter().zip(&shape.definition.columns) {
            let column_type = schema.columns.get(*place)?.column_type;
            let operand = |value: &Constant<'_>| Operand::of(value, column_type, types);
            let mut of_column: Vec<(usize, &Test<'_>)> = Vec::new();
            for (number, condition) in conditions.iter().enumerate() {
                if let Some(condition) = condition.as_ref().filter(|own| own.column == *place) {
                    of_column.push((number, &condition.test));
                }
            }
            let equal = of_column.iter().find_map(|(number, test)| match test {
                Test::Equal(value) => Some((*number, Part::Equal(operand(value)?))),
                Test::In(values) => {
                    let values = values.iter().map(operand).collect::<Option<Vec<_>>>()?;
                    Some((*number, Part::In(values)))
                }
                Test::AnyOf(parameter) => {
                    let given = Given::Parameter(*parameter);
                    let value = Constant { given, is_number: false, negative: false };
                    let part = KeyPart::of(&value, column_type, types)?;
                    Some((*number, Part::AnyOf(*parameter, part)))
                }
                _ => None,
            });
            if let Some((number, part)) = equal {
                parts.push(part);
                used.push(number);
                continue;
            }
            let (mut low, mut high) = (None, None);
            for (number, test) in of_column {
                let (from, to) = match test {
                    Test::Low(value, is_inclusive) => (Some((value, *is_inclusive)), None),
                    Test::High(value, is_inclusive) => (None, Some((value, *is_inclusive))),
                    Test::Between(from, to) => (Some((from, true)), Some((to, true))),
                    _ => continue,
                };
                let bound = |(value, is_inclusive): (&Constant<'_>, bool)| {
                    Some(Bound { value: operand(value)?, is_inclusive })
                };
                // Of several one bounds the range, and all are asked of the rows.
                let is_first =
                    (low.is_none() || from.is_none()) && (high.is_none() || to.is_none());
                let (from, to) = (from.map(bound), to.map(bound));
                if is_first && ![&from, &to].iter().any(|own| matches!(own, Some(None))) {
                    low = low.or(from.flatten());
                    high = high.or(to.flatten());
                    used.push(number);
                }
            }
            if low.is_some() || high.is_some() {
                parts.push(Part::Range { low, high, descending: own.descending });
            }
            break;
        }
        let order = order.and_then(|order| order_of(shape, schema, &parts, order));
        Some(Self { parts, used, order })
    }
}

/// Whether entries with these first parts come in this order: from the end, if true.
fn order_of(
    shape: &IndexShape,
    schema: &TableSchema,
    parts: &[Part],
    order: &[OrderColumn],
) -> Option<bool> {
    let mut backward = None;
    let mut own = shape.columns.iter().zip(&shape.definition.columns).enumerate().peekable();
    let is_fixed = |at: usize| matches!(parts.get(at), Some(Part::Equal(_)));
    for wanted in order {
        let fixed = shape.columns.iter().position(|column| *column == wanted.column);
        if fixed.is_some_and(is_fixed) {
            continue;
        }
        while own.peek().is_some_and(|(at, _)| is_fixed(*at)) {
            own.next();
        }
        let (at, (column, key)) = own.next()?;
        if *column != wanted.column {
            return None;
        }
        let turned = key.descending != wanted.descending;
        if *backward.get_or_insert(turned) != turned {
            return None;
        }
        let has_nulls = !schema.columns.get(*column)?.not_null && parts.get(at).is_none();
        if has_nulls && (key.nulls_first != turned) != wanted.nulls_first {
            return None;
        }
    }
    Some(backward.unwrap_or(false))
}

/// The columns of ORDER BY, where it has nothing but columns of the table.
fn order_columns(
    order: &ast::OrderBy,
    select: &ast::Select,
    one: &OneTable<'_>,
) -> Option<Vec<OrderColumn>> {
    let ast::OrderByKind::Expressions(expressions) = &order.kind else { return None };
    if order.interpolate.is_some() {
        return None;
    }
    let mut columns = Vec::with_capacity(expressions.len());
    for by in expressions {
        // A name of the list goes before one of the table.
        let named = select.projection.iter().find_map(|item| match (item, &by.expr) {
            (ast::SelectItem::ExprWithAlias { expr, alias }, ast::Expr::Identifier(name))
                if fold(alias) == fold(name) =>
            {
                Some(expr)
            }
            _ => None,
        });
        let place = one.column(named.unwrap_or(&by.expr))?;
        let descending = by.options.asc == Some(false);
        let nulls_first = by.options.nulls_first.unwrap_or(descending);
        if by.with_fill.is_some() {
            return None;
        }
        columns.push(OrderColumn { column: place, descending, nulls_first });
    }
    Some(columns)
}

/// LIMIT and OFFSET; None: written in another way than as numbers and parameters.
fn counts(clause: Option<&ast::LimitClause>) -> Option<(Option<Count>, Option<Count>)> {
    let count = |expression: &ast::Expr| match (place_of(expression).ok()?, expression) {
        (Some(place), _) => Some(Count::Parameter(place)),
        (None, ast::Expr::Value(value)) => match &value.value {
            ast::Value::Number(digits, _) => digits.parse().ok().map(Count::Number),
            _ => None,
        },
        _ => None,
    };
    match clause {
        None => Some((None, None)),
        Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            let limit = match limit {
                None => None,
                Some(limit) => Some(count(limit)?),
            };
            let offset = match offset {
                None => None,
                Some(offset) => Some(count(&offset.value)?),
            };
            Some((limit, offset))
        }
        Some(_) => None,
    }
}

/// The list with the table's columns in the place of `*`, which would have those of parameters too.
pub fn expanded(items: &[ast::SelectItem], schema: &TableSchema) -> Option<Vec<ast::SelectItem>> {
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        match item {
            ast::SelectItem::Wildcard(_) if item.to_string() == "*" => {
                all.extend(schema.columns.iter().map(|column| {
                    let name = ast::Ident::with_quote('"', &column.name);
                    ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(name))
                }));
            }
            ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. } => {
                all.push(item.clone());
            }
            _ => return None,
        }
    }
    Some(all)
}
