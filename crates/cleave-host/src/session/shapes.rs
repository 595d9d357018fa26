//! Statements over small tables that differ only in constants and share a plan ([`ShapePlan`]).
//!
//! 1. [`lift`] replaces constants by parameters, where neither the type nor the name of a column can follow from one:
//!    whole numbers that are computed with or compared with whole numbers, and texts that a text column is compared
//!    with. All others stay.
//! 2. [`Shapes`] remembers what is left. The second statement of a shape is planned for those that come.
//! 3. [`run_shape`] runs the plan over the rows of its tables. LIMIT and OFFSET cut its result.
//!
//! Settings that ask for a certain way to run a query make it planned by itself, as on the [range path](super::ranges).

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::activity::Act;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::Result;
use cleave_catalog::settings::{JoinMethod, JoinOrder};
use cleave_media::clock::Stopwatch;
use cleave_query::cooperative::figures::QueryFigures;
use cleave_query::query_log::QueryEnd;
use cleave_query::range_path::sources::Sources;
use cleave_query::range_path::template::is_plain;
use cleave_query::select::ShapePlan;
use cleave_sql::dialect::is_comparison;
use cleave_sql::statement::{Parameters, parameters};
use cleave_store::{ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};
use rustc_hash::FxBuildHasher;

use super::lifted::{Constants, digits};
use super::ranges::takes_ranges;
use super::{Outcome, Session};

/// Most shapes that a session remembers.
const SHAPES_MAX: usize = 64;
/// Rows of all tables of such a statement.
const ROWS_MAX: u64 = 10_000;
/// Combinations of rows of its tables, which joins may look at.
const COMBINATIONS_MAX: u64 = 10_000_000;
/// Bytes of the text of such a statement: what is remembered of it is as large.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Digits of a number that is certainly an `integer`.
const DIGITS_MAX: usize = 9;
/// Items of a list that become parameters.
const ITEMS_MAX: usize = 16;

/// The shapes of the statements of a session.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    known: Vec<Shape>,
    /// Of the session's settings, by which some constants were read.
    version: u64,
}

#[derive(Debug)]
struct Shape {
    hash: u64,
    query: ast::Query,
    tables: Vec<Arc<TableSchema>>,
    plan: Plan,
}

#[derive(Debug, Clone)]
enum Plan {
    SeenOnce,
    /// It has none.
    Not,
    Made(Arc<ShapePlan>),
}

/// A statement without the constants that are parameters.
struct Lifted {
    query: ast::Query,
    parameters: Parameters,
    /// LIMIT and OFFSET.
    limit: Option<usize>,
    offset: usize,
}

/// The rows of `query`, entered in the query log as `text`; None: it needs a plan of its own.
pub(super) async fn run_shape(
    session: &mut Session,
    query: &ast::Query,
    text: &str,
) -> Result<Option<Outcome>> {
    let settings = session.in_force();
    let is_free = takes_ranges(settings)
        && text.len() <= TEXT_BYTES_MAX
        && (&settings.join_order, &settings.join_method) == (&JoinOrder::Auto, &JoinMethod::Auto);
    if !is_free || session.tracked().is_some() {
        return Ok(None);
    }
    let stopwatch = Stopwatch::start();
    let state = session.names();
    let Some((lifted, tables)) = lift(query, &state) else { return Ok(None) };
    session.shapes.at(session.settings_version);
    let hash = FxBuildHasher.hash_one(&lifted.query);
    let plan = match session.shapes.get(hash, &lifted.query, &tables) {
        Some(Plan::Made(plan)) => plan,
        Some(Plan::Not) => return Ok(None),
        None => {
            let plan = if is_plain(query) { Plan::SeenOnce } else { Plan::Not };
            session.shapes.put(Shape { hash, query: lifted.query, tables, plan });
            return Ok(None);
        }
        Some(Plan::SeenOnce) => {
            let view = session.view().await?;
            let given = (session.database.queries(), session.in_force(), &view);
            let queries = (&lifted.query, query);
            let made = ShapePlan::of(given, queries, &tables, &lifted.parameters).await;
            for (schema, columns) in made.iter().flat_map(ShapePlan::tables) {
                if let Some(table) = view.state.table(&schema.name) {
                    session.database.queries().small_tables.ask(table, columns);
                }
            }
            let plan = made.map_or(Plan::Not, |plan| Plan::Made(Arc::new(plan)));
            session.shapes.put(Shape { hash, query: lifted.query, tables, plan });
            return Ok(None);
        }
    };
    let view = session.view().await?;
    // The statement may read an older version of them than the one that they are named in.
    let read = plan.tables().filter_map(|(schema, _)| view.state.table(&schema.name));
    if !are_small(read.map(|table| &**table)) {
        return Ok(None);
    }
    let asked = (session.database.queries(), session.in_force(), &view);
    let mut inputs = Vec::with_capacity(tables.len());
    for (schema, columns) in plan.tables() {
        // Its own plan words errors, here and below.
        let Ok(table) = view.state.find_table(&schema.name) else { return Ok(None) };
        if !Arc::ptr_eq(&table.schema, schema) {
            return Ok(None);
        }
        let kept = &session.database.queries().small_tables;
        let Ok(Some(rows)) = kept.rows(asked, table, columns).await else { return Ok(None) };
        inputs.push(rows);
    }
    let rows = match Box::pin(plan.run(&lifted.parameters, inputs)).await {
        Ok(Some(rows)) => rows,
        Ok(None) => {
            // It would be run in vain again.
            session.shapes.put(Shape { hash, query: lifted.query, tables, plan: Plan::Not });
            return Ok(None);
        }
        Err(_) => return Ok(None),
    };
    let rows = window(&rows, &lifted);
    let activity = session.database.activity();
    activity.note(Act::Plan);
    activity.note(Act::CachedPlan);
    let log = session.database.query_log();
    if let Some(record) = log.begin(session.in_force(), text) {
        let (elapsed, rows) = (stopwatch.elapsed(), rows.num_rows() as u64);
        record.end(&QueryFigures { elapsed, rows, ..QueryFigures::default() }, QueryEnd::Done);
    }
    Ok(Some(Outcome::Rows { schema: rows.schema(), batches: vec![rows] }))
}

fn window(rows: &RecordBatch, lifted: &Lifted) -> RecordBatch {
    let offset = lifted.offset.min(rows.num_rows());
    let left = rows.num_rows() - offset;
    rows.slice(offset, lifted.limit.unwrap_or(left).min(left))
}

impl Shapes {
    /// Forgets what was made under other settings.
    fn at(&mut self, version: u64) {
        if self.version != version {
            *self = Self { version, known: Vec::new() };
        }
    }

    fn get(&self, hash: u64, query: &ast::Query, tables: &[Arc<TableSchema>]) -> Option<Plan> {
        let is_it = |own: &&Shape| {
            let same =
                |(one, other): (&Arc<TableSchema>, &Arc<TableSchema>)| Arc::ptr_eq(one, other);
            own.hash == hash
                && own.query == *query
                && own.tables.len() == tables.len()
                && own.tables.iter().zip(tables).all(same)
        };
        self.known.iter().find(is_it).map(|own| own.plan.clone())
    }

    fn put(&mut self, shape: Shape) {
        self.known.retain(|own| own.hash != shape.hash || own.query != shape.query);
        if self.known.len() >= SHAPES_MAX {
            // Those that are in use come back.
            self.known.clear();
        }
        self.known.push(shape);
    }
}

/// `query` with parameters in the places of constants, and its tables; None: it reads anything but small tables, or has
/// parameters.
fn lift(query: &ast::Query, state: &CatalogState) -> Option<(Lifted, Vec<Arc<TableSchema>>)> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    if parameters::count(query).ok()? > 0 {
        return None;
    }
    let sources = Sources::of(&select.from, state)?;
    let tables = sources.all().iter().map(|source| source.one.table);
    if !are_small(tables.clone().map(|table| &**table)) {
        return None;
    }
    let tables = tables.map(|table| Arc::clone(&table.schema)).collect();
    let mut lifted = query.clone();
    let (limit, offset) = match lifted.limit_clause.take() {
        None => (None, 0),
        Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            let count = |count: &Expr| digits(count)?.parse::<usize>().ok();
            let limit = match &limit {
                None => None,
                Some(limit) => Some(count(limit)?),
            };
            (limit, offset.as_ref().map_or(Some(0), |offset| count(&offset.value))?)
        }
        Some(_) => return None,
    };
    let ast::SetExpr::Select(own) = lifted.body.as_mut() else { return None };
    let mut lift = Lift { sources: &sources, constants: Constants::default() };
    for item in &mut own.projection {
        if let ast::SelectItem::UnnamedExpr(expression)
        | ast::SelectItem::ExprWithAlias { expr: expression, .. } = item
        {
            lift.value(expression);
        }
    }
    if !own.from.is_empty() {
        own.selection.iter_mut().for_each(|condition| lift.condition(condition));
        for join in own.from.iter_mut().flat_map(|item| &mut item.joins) {
            use ast::JoinOperator as Join;
            if let Join::Join(ast::JoinConstraint::On(condition))
            | Join::Inner(ast::JoinConstraint::On(condition))
            | Join::Left(ast::JoinConstraint::On(condition))
            | Join::LeftOuter(ast::JoinConstraint::On(condition)) = &mut join.join_operator
            {
                lift.condition(condition);
            }
        }
    }
    let parameters = Parameters::new(lift.constants.parameters()?);
    Some((Lifted { query: lifted, parameters, limit, offset }, tables))
}

/// Whether the rows of all tables are few, and those of joins not too many to be joined on a client's thread.
fn are_small<'a>(tables: impl Iterator<Item = &'a TableState>) -> bool {
    let (mut rows, mut combinations) = (0_u64, 1_u64);
    for table in tables {
        rows = rows.saturating_add(table.row_count());
        combinations = combinations.saturating_mul(table.row_count().max(1));
    }
    rows <= ROWS_MAX && combinations <= COMBINATIONS_MAX
}

/// Replaces constants.
struct Lift<'a> {
    sources: &'a Sources<'a>,
    constants: Constants,
}

impl Lift<'_> {
    /// Those of an item of the select list.
    fn value(&mut self, expression: &mut Expr) {
        match expression {
            Expr::Nested(inner) if !self.is_number(inner) => self.value(inner),
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                let ast::FunctionArguments::List(list) = &mut function.args else { return };
                if let ["sum" | "min" | "max"] = [name.as_str()]
                    && let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument))] =
                        list.args.as_mut_slice()
                {
                    self.value(argument);
                }
            }
            number if self.is_number(number) => self.numbers(number),
            _ => {}
        }
    }

    fn condition(&mut self, expression: &mut Expr) {
        match expression {
            Expr::Nested(inner) | Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: inner } => {
                self.condition(inner);
            }
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
                self.condition(left);
                self.condition(right);
            }
            Expr::BinaryOp { left, op, right } if is_comparison(op) => {
                if self.is_number(left) && self.is_number(right) {
                    // Constants alone are computed once, and fail before any row is there.
                    if is_constant(left) && is_constant(right) {
                        return;
                    }
                    self.numbers(left);
                    self.numbers(right);
                } else if self.is_text(left) {
                    self.constants.put_string(right);
                } else if self.is_text(right) {
                    self.constants.put_string(left);
                }
            }
            Expr::Between { expr, low, high, .. } => {
                if self.is_text(expr) {
                    self.constants.put_string(low);
                    self.constants.put_string(high);
                } else if [&*expr, &*low, &*high].iter().all(|own| self.is_number(own))
                    && !is_constant(expr)
                {
                    [expr, low, high].into_iter().for_each(|own| self.numbers(own));
                }
            }
            Expr::InList { expr, list, .. } if list.len() <= ITEMS_MAX => {
                if self.is_text(expr) {
                    for item in list {
                        self.constants.put_string(item);
                    }
                } else if self.is_number(expr)
                    && !is_constant(expr)
                    && list.iter().all(|item| self.is_number(item))
                {
                    list.iter_mut().for_each(|item| self.numbers(item));
                }
            }
            Expr::Like { any: false, expr, pattern, escape_char: None, .. }
            | Expr::ILike { any: false, expr, pattern, escape_char: None, .. }
                if self.is_text(expr) =>
            {
                self.constants.put_string(pattern);
            }
            _ => {}
        }
    }

    /// Whether `expression` is of whole numbers alone.
    fn is_number(&self, expression: &Expr) -> bool {
        use ColumnType as Type;
        match expression {
            Expr::Value(_) => is_integer(expression),
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => matches!(
                self.column_type(expression),
                Some(Type::SmallInt | Type::Int | Type::BigInt)
            ),
            Expr::Nested(inner)
            | Expr::UnaryOp {
                op: ast::UnaryOperator::Minus | ast::UnaryOperator::Plus,
                expr: inner,
            } => self.is_number(inner),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply,
                right,
            } => self.is_number(left) && self.is_number(right),
            _ => false,
        }
    }

    /// Replaces the constants of what [is a number](Self::is_number).
    fn numbers(&mut self, expression: &mut Expr) {
        let has_tables = !self.sources.all().is_empty();
        match expression {
            Expr::Value(_) => {
                if let Some(text) = digits(expression).map(str::to_owned) {
                    self.constants.put(expression, ColumnType::Int, text);
                }
            }
            Expr::BinaryOp { left, right, .. } => {
                // As above.
                if has_tables && is_constant(left) && is_constant(right) {
                    return;
                }
                self.numbers(left);
                self.numbers(right);
            }
            Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => self.numbers(inner),
            _ => {}
        }
    }

    fn is_text(&self, expression: &Expr) -> bool {
        matches!(self.column_type(expression), Some(ColumnType::Text | ColumnType::Varchar(_)))
    }

    fn column_type(&self, expression: &Expr) -> Option<ColumnType> {
        let (table, place) = self.sources.resolve(expression)?;
        let schema = self.sources.all().get(table)?.one.schema();
        schema.columns.get(place).map(|column| column.column_type)
    }
}

/// Whether it is a whole number that is certainly an `integer`.
fn is_integer(expression: &Expr) -> bool {
    digits(expression).is_some_and(|text| (1..=DIGITS_MAX).contains(&text.len()))
}

/// Whether an expression of whole numbers has no column.
fn is_constant(expression: &Expr) -> bool {
    match expression {
        Expr::Value(_) => true,
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_constant(inner),
        Expr::BinaryOp { left, right, .. } => is_constant(left) && is_constant(right),
        _ => false,
    }
}
