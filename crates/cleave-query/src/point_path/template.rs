//! A point query without its constants: a syntax tree in, the look-up for any constants out. A parameter is a constant
//! that comes later.
//!
//! [`PointTemplate::of`] recognises the shape of a query, or leaves it to the planner. [`PointTemplate::bind`] makes
//! the key from constants, and [`Remembered`] saves parsing queries that differ from an earlier one only in their
//! constants.
//!
//! Invariant: a template belongs to the tables and indexes that it was made with. [`PointTemplate::holds`] tells
//! whether they are still there, and is called at each use.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema, SchemaRef};
use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::index::IndexShape;
use cleave_sql::statement::key_predicate::{
    Clauses, Condition, Given, KeyPart, OneTable, Test, conjuncts, is_as_before, plain_select,
};
use cleave_store::{ColumnRef, ColumnType, Projection, TableSchema, TabletKey};
use datafusion::sql::sqlparser::ast;

use super::PointQuery;
use super::spelling::Spelling;
use crate::statements::Shape;

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
    /// Where the values of the key's first columns come from: which constant of the text, and how it is read.
    key: Vec<(usize, KeyPart)>,
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
    /// How statements that spell it are counted, once one was.
    pub(super) counted_as: OnceLock<Shape>,
}

/// Determines the tablet of the rows of a key.
#[derive(Debug)]
struct KeyDivision {
    key: TabletKey,
    /// Where its columns stand among those of the index.
    positions: Vec<usize>,
    tablet_count: u32,
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
        let select = plain_select(query, Clauses::Bare)?;
        let table = OneTable::of_from(&select.from, state)?;
        let columns = table.columns(&select.projection)?;
        Self::of_table(&table, &columns, select.selection.as_ref()?, types)
    }

    /// The template of a query for all columns of the rows of `table` of which `condition` holds.
    pub(super) fn of_rows<'a>(
        table: &OneTable<'_>,
        condition: &'a ast::Expr,
        types: &[ColumnType],
    ) -> Option<(Self, Vec<Given<'a>>)> {
        let all = table.schema().columns.iter().enumerate();
        let all: Vec<_> = all.map(|(place, column)| (place, column.name.clone())).collect();
        Self::of_table(table, &all, condition, types)
    }

    fn of_table<'a>(
        one: &OneTable<'_>,
        columns: &[(usize, String)],
        condition: &'a ast::Expr,
        types: &[ColumnType],
    ) -> Option<(Self, Vec<Given<'a>>)> {
        let (table, schema) = (one.table, one.schema());
        let equal = |whole: &'a ast::Expr| match one.condition(whole)? {
            Condition { column, test: Test::Equal(value) } => Some((column, value)),
            _ => None,
        };
        let values = conjuncts(Some(condition)).map(equal).collect::<Option<Vec<_>>>()?;
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
            key.push((constant, KeyPart::of(value, column_type, types)?));
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
            counted_as: OnceLock::new(),
        };
        Some((template, values.into_iter().map(|(_, value)| value.given).collect()))
    }

    /// The query with these constants; None: one of them is left to the planner.
    pub(super) fn bind(self: &Arc<Self>, constants: &[impl AsRef<str>]) -> Option<PointQuery> {
        let mut values: Vec<ArrayRef> = Vec::with_capacity(self.key.len());
        for (constant, part) in &self.key {
            values.push(part.value(constants.get(*constant)?.as_ref())?);
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
        is_as_before(state, &self.schema, &self.indexes)
    }
}

/// Point queries of a session by their [`Spelling`].
#[derive(Debug, Default)]
pub(super) struct Remembered {
    templates: Mutex<HashMap<String, Arc<PointTemplate>>>,
}

impl Remembered {
    /// The query of `spelling` on `state`, if one like it was remembered.
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
