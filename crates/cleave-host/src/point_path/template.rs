//! A point query without its constants: a syntax tree in, what to look up for any constants out. A parameter is a
//! constant that comes later.
//!
//! [`PointTemplate::of`] recognises the shape of a query, or leaves it to the planner. [`PointTemplate::bind`] makes
//! the key of constants, and [`Remembered`] spares the parser queries that differ from one before by nothing but these.
//!
//! Invariant: a template is of the tables and indexes that it was made with. [`PointTemplate::holds`] tells whether
//! they are still there; what is remembered is asked each time.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema, SchemaRef};
use cleave_store::{ColumnRef, ColumnType, Projection, TableSchema, TabletKey};
use datafusion::sql::sqlparser::ast;

use super::PointQuery;
use super::spelling::Spelling;
use crate::catalog::index_definition::IndexDefinition;
use crate::catalog::{CatalogState, TableState};
use crate::index::IndexShape;
use crate::statement::names::{fold, table_name};
use crate::statement::parameters::place_of;
use crate::value::ColumnBuilder;

/// Most templates that are remembered.
const REMEMBERED_MAX: usize = 256;

/// See the module's description.
#[derive(Debug)]
pub(super) struct PointTemplate {
    schema: Arc<TableSchema>,
    /// All indexes of the table, of which the best was chosen.
    indexes: Vec<Arc<IndexDefinition>>,
    pub(super) index: Arc<IndexDefinition>,
    pub(super) shape: Arc<IndexShape>,
    /// Where the values of the key's first columns come from.
    key: Vec<KeyPart>,
    division: Option<KeyDivision>,
    /// The columns of the result.
    pub(super) result: SchemaRef,
    /// Their places in the table.
    pub(super) places: Vec<usize>,
    /// The columns of the result, then those of the key that are not among them; if there are none of these, its schema
    /// is that of the result.
    pub(super) projection: Projection,
    /// Where in it those of the key are.
    pub(super) key_columns: Vec<usize>,
    /// The same, each once.
    pub(super) wanted: Vec<ColumnRef>,
}

/// What says in which tablet the rows of a key are.
#[derive(Debug)]
struct KeyDivision {
    key: TabletKey,
    /// Where its columns stand among those of the index.
    positions: Vec<usize>,
    tablet_count: u32,
}

/// What a key column is compared with.
#[derive(Debug)]
pub(crate) struct KeyPart {
    /// Which constant of the text.
    constant: usize,
    is_number: bool,
    negative: bool,
    column_type: ColumnType,
}

/// What a column is compared with, as far as the text tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given<'a> {
    /// A number, or a string without its quotes.
    Text(&'a str),
    /// The value of this parameter, from 0.
    Parameter(usize),
}

/// A constant that a column is compared with.
pub(crate) struct Constant<'a> {
    /// Its value.
    pub(crate) given: Given<'a>,
    /// Whether it is written as a number.
    pub(crate) is_number: bool,
    /// Whether a minus stands before it.
    pub(crate) negative: bool,
}

impl KeyDivision {
    /// How the tablet follows from values of `columns`, by place in the table; an inner `None`: they do not say.
    fn of(table: &TableState, columns: &[usize]) -> Option<Option<Self>> {
        let [_, _, ..] = table.tablets.as_slice() else { return Some(None) };
        let Some(key) = table.division.tablet_key(&table.schema).ok()? else { return Some(None) };
        let position = |place: &usize| columns.iter().position(|column| column == place);
        let positions: Option<Vec<usize>> = key.columns().iter().map(position).collect();
        let tablet_count = u32::try_from(table.tablets.len()).ok()?;
        Some(positions.map(|positions| Self { key, positions, tablet_count }))
    }

    /// The place of the tablet with the rows of an index that begin with `values`.
    fn tablet(&self, values: &[ArrayRef]) -> Option<usize> {
        let own: Vec<ArrayRef> =
            self.positions.iter().filter_map(|position| values.get(*position)).cloned().collect();
        let tablets = self.key.tablets_of(&own, self.tablet_count).ok()?;
        usize::try_from(*tablets.first()?).ok()
    }
}

impl PointTemplate {
    /// The template of `query`, whose parameters have these types, and its constants in the order of the text.
    pub(super) fn of<'a>(
        query: &'a ast::Query,
        types: &[ColumnType],
        state: &CatalogState,
    ) -> Option<(Self, Vec<Given<'a>>)> {
        let select = plain_select(query)?;
        let [from] = select.from.as_slice() else { return None };
        let (name, qualifier) = plain_table(from)?;
        let table = state.table(&name)?;
        let columns = projected(&select.projection, &table.schema, &qualifier)?;
        Self::of_table(table, &columns, (select.selection.as_ref()?, &qualifier), types)
    }

    /// The template of a query for all columns of the rows of `table`, which the condition calls `qualifier`.
    pub(super) fn of_rows<'a>(
        table: &TableState,
        condition: (&'a ast::Expr, &str),
        types: &[ColumnType],
    ) -> Option<(Self, Vec<Given<'a>>)> {
        let all = table.schema.columns.iter().enumerate();
        let all: Vec<_> = all.map(|(place, column)| (place, column.name.clone())).collect();
        Self::of_table(table, &all, condition, types)
    }

    fn of_table<'a>(
        table: &TableState,
        columns: &[(usize, String)],
        (condition, qualifier): (&'a ast::Expr, &str),
        types: &[ColumnType],
    ) -> Option<(Self, Vec<Given<'a>>)> {
        let schema = &table.schema;
        let values = equal_constants(condition, schema, qualifier)?;
        let places: BTreeMap<usize, usize> =
            values.iter().enumerate().map(|(constant, (place, _))| (*place, constant)).collect();
        if places.len() < values.len() {
            return None;
        }
        let fitting = |index: &&Arc<IndexDefinition>| {
            let first = index.column_indices(schema);
            let first = first.get(..values.len());
            first.is_some_and(|first| first.iter().all(|column| places.contains_key(column)))
        };
        // A unique index that is given whole has one row; else one whose columns are given whole.
        let index = table.indexes.iter().filter(fitting).min_by_key(|index| {
            let is_whole = index.columns.len() == values.len();
            (!(index.unique && is_whole), !is_whole, index.id)
        })?;
        let shape = Arc::clone(table.tablets.first()?.index(index.id)?.shape());
        let mut key = Vec::with_capacity(values.len());
        for column in shape.columns.iter().take(values.len()) {
            let constant = *places.get(column)?;
            let (_, value) = values.get(constant)?;
            let column_type = schema.columns.get(*column)?.column_type;
            key.push(KeyPart::of(constant, value, column_type, types)?);
        }
        let shown = columns.iter().map(|(place, _)| *place);
        let places: Vec<usize> = shown.collect();
        let mut read = places.clone();
        let key_columns = shape.columns.iter().map(|column| {
            let known = read.iter().position(|known| known == column);
            known.unwrap_or_else(|| {
                read.push(*column);
                read.len() - 1
            })
        });
        let key_columns = key_columns.collect();
        let (result, mut projection) =
            (result_schema(schema, columns), Projection::of_table(schema, &read));
        if projection.schema == result {
            projection.schema = Arc::clone(&result);
        }
        let mut wanted = projection.columns.clone();
        wanted.sort_unstable();
        wanted.dedup();
        let division = KeyDivision::of(table, shape.columns.get(..values.len())?)?;
        let template = Self {
            division,
            schema: Arc::clone(schema),
            indexes: table.indexes.clone(),
            index: Arc::clone(index),
            shape,
            key,
            result,
            places,
            projection,
            key_columns,
            wanted,
        };
        Some((template, values.into_iter().map(|(_, value)| value.given).collect()))
    }

    /// The query that it is with these constants; None: the planner knows what one of them means here.
    pub(super) fn bind(self: &Arc<Self>, constants: &[impl AsRef<str>]) -> Option<PointQuery> {
        let mut values: Vec<ArrayRef> = Vec::with_capacity(self.key.len());
        for part in &self.key {
            values.push(part.value(constants.get(part.constant)?.as_ref())?);
        }
        let prefix = self.shape.key.prefix(&values).ok()?;
        let tablet = match &self.division {
            Some(division) => Some(division.tablet(&values)?),
            None => None,
        };
        Some(PointQuery { template: Arc::clone(self), prefix, tablet })
    }

    /// The id of the table.
    pub(super) fn table_id(&self) -> u32 {
        self.schema.table_id
    }

    /// The name of the table.
    pub(super) fn table(&self) -> &str {
        &self.schema.name
    }

    /// Every search key begins with the columns that are given; true: these are all.
    pub(super) fn is_search_key(&self) -> bool {
        self.index.columns.len() == self.key.len()
    }

    /// Whether there can be one row at most.
    pub(super) fn has_one_row(&self) -> bool {
        self.index.unique && self.is_search_key()
    }

    /// Whether table and indexes are in `state` as they were.
    pub(super) fn holds(&self, state: &CatalogState) -> bool {
        let is_same = |table: &TableState| {
            Arc::ptr_eq(&table.schema, &self.schema)
                && table.indexes.len() == self.indexes.len()
                && table.indexes.iter().zip(&self.indexes).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        state.table(self.table()).is_some_and(|table| is_same(table))
    }
}

/// Point queries of a session by their [`Spelling`].
#[derive(Debug, Default)]
pub(super) struct Remembered {
    templates: Mutex<HashMap<String, Arc<PointTemplate>>>,
}

impl Remembered {
    /// The query that `spelling` is on `state`, if one like it was remembered.
    pub(super) fn query(
        &self,
        spelling: &Spelling<'_>,
        state: &CatalogState,
    ) -> Option<PointQuery> {
        let template = self.templates().get(&spelling.frame).map(Arc::clone)?;
        if template.holds(state) {
            return template.bind(&spelling.constants);
        }
        self.templates().remove(&spelling.frame);
        None
    }

    /// Remembers a query that has this spelling and these constants.
    pub(super) fn put(
        &self,
        spelling: &Spelling<'_>,
        template: &Arc<PointTemplate>,
        constants: &[&str],
    ) {
        // The parser's constants are the text's, one for one, or the text was misread here.
        if !spelling.constants.iter().map(Cow::as_ref).eq(constants.iter().copied()) {
            return;
        }
        let mut templates = self.templates();
        if templates.len() >= REMEMBERED_MAX {
            // Those that are in use come back at once.
            templates.clear();
        }
        templates.insert(spelling.frame.clone(), Arc::clone(template));
    }

    fn templates(&self) -> MutexGuard<'_, HashMap<String, Arc<PointTemplate>>> {
        self.templates.lock().unwrap_or_else(PoisonError::into_inner)
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
pub(crate) fn plain_table(from: &ast::TableWithJoins) -> Option<(String, String)> {
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
pub(crate) fn column(
    expression: &ast::Expr,
    schema: &TableSchema,
    qualifier: &str,
) -> Option<usize> {
    match expression {
        ast::Expr::Identifier(name) => schema.column_index(&fold(name)),
        ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [table, name] if fold(table) == qualifier => schema.column_index(&fold(name)),
            _ => None,
        },
        _ => None,
    }
}

/// The place of each column that `condition` compares with a constant, and the constant, in the order of the text, if
/// it says nothing else.
fn equal_constants<'a>(
    condition: &'a ast::Expr,
    schema: &TableSchema,
    qualifier: &str,
) -> Option<Vec<(usize, Constant<'a>)>> {
    let mut values = Vec::new();
    let mut left = vec![condition];
    while let Some(condition) = left.pop() {
        match condition {
            ast::Expr::Nested(inner) => left.push(inner),
            ast::Expr::BinaryOp { left: one, op: ast::BinaryOperator::And, right: other } => {
                left.extend([other.as_ref(), one.as_ref()]);
            }
            ast::Expr::BinaryOp { left: one, op: ast::BinaryOperator::Eq, right: other } => {
                let (place, value) = match column(one, schema, qualifier) {
                    Some(place) => (place, other),
                    None => (column(other, schema, qualifier)?, one),
                };
                values.push((place, constant(value)?));
            }
            _ => return None,
        }
    }
    Some(values)
}

/// Whether a value of `parameter` is compared with the column by the column's own order, whatever it is.
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
    /// The `constant` that a column of this type is compared with; None: the planner knows as what.
    pub(crate) fn of(
        constant: usize,
        value: &Constant<'_>,
        column_type: ColumnType,
        types: &[ColumnType],
    ) -> Option<Self> {
        if let Given::Parameter(place) = value.given
            && !is_compared_as(column_type, *types.get(place)?)
        {
            return None;
        }
        let is_number = match value.given {
            Given::Text(_) => value.is_number,
            // By what it is compared as.
            Given::Parameter(_) => !matches!(
                column_type,
                ColumnType::Text
                    | ColumnType::Varchar(_)
                    | ColumnType::Char(_)
                    | ColumnType::Uuid
                    | ColumnType::Date
            ),
        };
        Some(Self { constant, is_number, negative: value.negative, column_type })
    }

    /// The type of its column.
    pub(crate) fn column_type(&self) -> ColumnType {
        self.column_type
    }

    /// `text` as a value of the key column, where there can be no doubt what it is compared as.
    pub(crate) fn value(&self, text: &str) -> Option<ArrayRef> {
        use ColumnType as Type;
        let text = if self.negative { Cow::Owned(format!("-{text}")) } else { Cow::Borrowed(text) };
        let read_as = match (self.column_type, self.is_number) {
            (Type::SmallInt | Type::Int | Type::BigInt, true) => self.column_type,
            // A digit more than the column has compares unequal; reading it would round it away.
            (Type::Numeric { scale, .. }, true) => {
                let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
                let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"-.".contains(&byte));
                let fits = plain && digits <= usize::try_from(scale).ok()?;
                fits.then_some(self.column_type)?
            }
            // A length limits what is stored and not what is compared with it.
            (Type::Text | Type::Varchar(_) | Type::Char(_), false) => Type::Text,
            (Type::Uuid | Type::Date, false) => self.column_type,
            _ => return None,
        };
        let mut builder = ColumnBuilder::new(&read_as, 1);
        builder.append_text(&text).ok()?;
        Some(builder.finish())
    }
}

/// The constant, or parameter, that `expression` is.
pub(crate) fn constant(expression: &ast::Expr) -> Option<Constant<'_>> {
    match expression {
        ast::Expr::Nested(inner) => constant(inner),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => {
            let value = constant(expr)?;
            (value.is_number && !value.negative).then_some(Constant { negative: true, ..value })
        }
        ast::Expr::Value(value) => {
            let (given, is_number) = match &value.value {
                ast::Value::Number(text, _) => (Given::Text(text), true),
                ast::Value::SingleQuotedString(text) => (Given::Text(text), false),
                ast::Value::Placeholder(_) => {
                    (Given::Parameter(place_of(expression).ok().flatten()?), false)
                }
                _ => return None,
            };
            Some(Constant { given, is_number, negative: false })
        }
        _ => None,
    }
}
