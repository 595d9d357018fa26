//! Statements over few rows by a range of keys, without a plan ([`range_path`]): SELECT, UPDATE, DELETE and SELECT … FOR UPDATE.
//!
//! 1. [`Session::run_range`] gives the rows of a query, of [prepared](super::prepared) ones and of those in the session's
//!    [`RangeQueries`], which are told apart by all but numbers and strings that WHERE compares with.
//! 2. [`Session::modify_range`] makes rows as [`super::modify`] does, of those that the query for an UPDATE's rows gives.
//! 3. [`Session::lock_range`] locks rows as [`super::locking`] does, without settling anything.
//!
//! Settings that ask for a certain way to run a query (`split`, `stack`, `ndp`, `index_scan`) have it planned.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::types::UInt64Type;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::DataType;
use cleave_media::clock::Stopwatch;
use cleave_plan::split::Split;
use cleave_store::{ColumnType, KeyRange, TableSchema};
use cleave_txn::KeySpan;
use datafusion::sql::sqlparser::ast::{self, VisitMut};

use super::block::{OwnRows, Taken};
use super::checked::check_ended;
use super::foreign_keys::Ending;
use super::held::{LOCKED_ROWS_MAX, unique_indexes};
use super::key_locks::leaves_keys;
use super::lifted::{Constants, Seen, digits};
use super::modify::defaults;
use super::{Outcome, Session, held, identity};
use crate::activity::Act;
use crate::catalog::{CatalogState, TableState};
use crate::delta::Live;
use crate::error::{ConflictKind, Error, Result};
use crate::point_path::{FoundPlace, Sight, column, plain_table};
use crate::range_path::read::{RangeRead, RangeRow};
use crate::range_path::{self, Kept, RangeTemplate, Ranged};
use crate::settings::{Stack, When};
use crate::statement::locking::{LockedTable, Locking, WaitPolicy};
use crate::statement::modify::{Action, Modify, TARGET};
use crate::statement::names::fold;
use crate::statement::parameters;
use crate::statement::{Parameter, Parameters};
use crate::write::conform::Conform;
use crate::write::insert::{TableChange, route};

/// The queries without parameters that a session has seen, each with whether the numbers of rows come behind its columns.
pub(super) type RangeQueries = Seen<(ast::Query, bool), RangeTemplate>;

/// What RETURNING says, planned once.
#[derive(Debug)]
pub(super) struct Returning {
    query: ast::Query,
    kept: Kept,
}

/// An UPDATE or DELETE of the rows in a range.
#[derive(Debug)]
pub(super) struct RangeChange {
    template: RangeTemplate,
}

impl Returning {
    /// What `modify` returns of rows of `table`; None: nothing, or something that is planned each time.
    pub(super) fn of(modify: &Modify, table: &TableState) -> Option<Self> {
        if modify.returning.is_empty() || !range_path::template::are_plain(&modify.returning) {
            return None;
        }
        let returning = range_path::template::expanded(&modify.returning, &table.schema)?;
        let query = Modify { returning, ..modify.clone() }.returning_query().ok()?;
        Some(Self { query: *query, kept: Kept::default() })
    }
}

impl RangeChange {
    /// What `modify`, whose parameters have these types, is on `state`; None: it needs a plan.
    pub(super) fn of(modify: &Modify, types: &[ColumnType], state: &CatalogState) -> Option<Self> {
        if !modify.from.is_empty() || modify.with.is_some() {
            return None;
        }
        let table = state.find_writable_table(&modify.table).ok()?;
        let name = fold(&modify.target_name());
        let query = modify.query(&table.schema).ok()?;
        let template = RangeTemplate::over(&query, (table, &name), TARGET, types, false)?;
        Some(Self { template })
    }

    pub(super) fn holds(&self, state: &CatalogState) -> bool {
        self.template.holds(state)
    }
}

/// A query with parameters in the places of constants that WHERE compares columns with, and their values.
struct Lifted {
    query: ast::Query,
    values: Vec<Parameter>,
}

impl Lifted {
    /// `None`: it has parameters already, or one of its constants is none of its type's.
    fn of(query: &ast::Query, state: &CatalogState) -> Option<Self> {
        if parameters::count(query).ok()? > 0 {
            return None;
        }
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        let [from] = select.from.as_slice() else { return None };
        let (name, qualifier) = plain_table(from)?;
        let schema = &*state.table(&name)?.schema;
        let mut query = query.clone();
        let constants = Constants::default();
        let mut lift = Lift { schema, qualifier: &qualifier, constants };
        if let ast::SetExpr::Select(select) = query.body.as_mut()
            && let Some(condition) = &mut select.selection
        {
            let _ended: ControlFlow<()> = VisitMut::visit(condition, &mut lift);
        }
        if let Some(ast::LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            let counts = limit.iter_mut().chain(offset.iter_mut().map(|offset| &mut offset.value));
            counts.for_each(|count| lift.number(count));
        }
        let values = lift.constants.parameters()?;
        Some(Self { query, values })
    }
}

/// Puts parameters in the places of whole numbers, and of strings that columns are compared with.
struct Lift<'a> {
    schema: &'a TableSchema,
    qualifier: &'a str,
    constants: Constants,
}

impl Lift<'_> {
    /// Strings that a column of texts is compared with.
    fn strings(&mut self, expression: &mut ast::Expr) {
        let is_text = |compared: &ast::Expr| {
            let place = column(compared, self.schema, self.qualifier);
            let own = place.and_then(|place| self.schema.columns.get(place));
            own.is_some_and(|own| {
                matches!(own.column_type, ColumnType::Text | ColumnType::Varchar(_))
            })
        };
        let compared = match expression {
            ast::Expr::BinaryOp { left, op, right } if is_comparison(op) => {
                match (is_text(left), is_text(right)) {
                    (true, false) => vec![right.as_mut()],
                    (false, true) => vec![left.as_mut()],
                    _ => Vec::new(),
                }
            }
            ast::Expr::Between { expr, low, high, .. } if is_text(expr) => {
                vec![&mut **low, &mut **high]
            }
            ast::Expr::InList { expr, list, .. } if is_text(expr) => list.iter_mut().collect(),
            _ => Vec::new(),
        };
        for string in compared {
            let ast::Expr::Value(value) = &*string else { continue };
            let ast::Value::SingleQuotedString(text) = &value.value else { continue };
            let text = text.clone();
            self.constants.put(string, ColumnType::Text, text);
        }
    }

    fn number(&mut self, expression: &mut ast::Expr) {
        if let ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } = &*expression
            && let Some(digits) = digits(expr)
        {
            let text = format!("-{digits}");
            return self.constants.put(expression, ColumnType::BigInt, text);
        }
        self.constants.put_number(expression);
    }
}

impl ast::VisitorMut for Lift<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<()> {
        self.strings(expression);
        self.number(expression);
        ControlFlow::Continue(())
    }
}

fn is_comparison(operator: &ast::BinaryOperator) -> bool {
    use ast::BinaryOperator as Operator;
    matches!(operator, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

impl Session {
    /// Whether statements may go by ranges of keys: nothing asks for a plan.
    pub(super) fn takes_ranges(&self) -> bool {
        let settings = self.in_force();
        settings.look_up_rows > 0
            && settings.index_scan == When::WherePays
            && settings.split == Split::Auto
            && settings.stack == Stack::Ndp
            && settings.ndp
    }

    /// The template of a query without parameters, and its values; `numbered`: the numbers of rows are to come behind its columns.
    /// None: it needs a plan.
    pub(super) fn range_of(
        &mut self,
        query: &ast::Query,
        numbered: bool,
    ) -> Option<(Arc<RangeTemplate>, Parameters)> {
        if !self.takes_ranges() {
            return None;
        }
        let state = self.names();
        let Lifted { query: lifted, values } = Lifted::of(query, &state)?;
        let lifted = (lifted, numbered);
        let template = self.range_queries.get_or_make(
            &lifted,
            |template| template.holds(&state),
            || {
                let types: Vec<ColumnType> = values.iter().map(Parameter::column_type).collect();
                RangeTemplate::of(&lifted.0, &types, &state, numbered).map(Arc::new)
            },
        )?;
        Some((template, Parameters::new(values)))
    }

    /// Runs a query that is `template`; None: it needs a plan with these values.
    pub(super) async fn run_range(
        &mut self,
        template: &RangeTemplate,
        parameters: &Parameters,
    ) -> Result<Option<Outcome>> {
        if !self.takes_ranges() {
            return Ok(None);
        }
        let live = self.live().await?;
        let Some(ranges) = self.ranges(template, parameters, &live.state)? else {
            return Ok(None);
        };
        let sight = Sight::new(live, self.own_changes(template.table_id()));
        let found = self.ranged(&sight, template, (ranges, parameters)).await?;
        Ok(found.map(|Ranged { rows, .. }| Outcome::Rows {
            schema: rows.schema(),
            batches: vec![rows],
        }))
    }

    /// The ranges of keys of `template` with these values, noted as read; None: it needs a plan.
    fn ranges(
        &self,
        template: &RangeTemplate,
        parameters: &Parameters,
        state: &CatalogState,
    ) -> Result<Option<Vec<KeyRange>>> {
        let ranges = match template.holds(state) {
            true => template.bind(parameters),
            false => None,
        };
        if let (Some(ranges), Some(tracked)) = (&ranges, self.tracked()) {
            let space = template.index_id();
            let spans = ranges.iter().map(|range| {
                let KeyRange { from, below } = range.clone();
                KeySpan { space, from, below }
            });
            let spans: Vec<KeySpan> = spans.collect();
            tracked.reads_keys(u64::from(template.table_id()), &spans)?;
        }
        Ok(ranges)
    }

    async fn ranged(
        &self,
        sight: &Sight<'_>,
        template: &RangeTemplate,
        asked: (Vec<KeyRange>, &Parameters),
    ) -> Result<Option<Ranged>> {
        let context = (&self.database, self.in_force());
        let found = Box::pin(range_path::run(context, sight, template, asked)).await?;
        // Of which commits it has seen something is not told row by row.
        self.note_seen(sight.live.log_end);
        if found.is_some() {
            self.database.activity().note(Act::LookUp);
        }
        Ok(found)
    }

    /// EXPLAIN of a query that is `template`, with what it found and how long that took where it is to run; None: it needs a plan.
    pub(super) async fn explain_range(
        &self,
        analyze: bool,
        state: &Arc<CatalogState>,
        (template, parameters): (&RangeTemplate, &Parameters),
    ) -> Result<Option<(String, Option<(usize, Duration)>)>> {
        if !self.takes_ranges() {
            return Ok(None);
        }
        let stopwatch = Stopwatch::start();
        let Some(ranges) = self.ranges(template, parameters, state)? else { return Ok(None) };
        let sight = Sight::new(Live::settled(Arc::clone(state)), None);
        let Some(found) = self.ranged(&sight, template, (ranges, parameters)).await? else {
            return Ok(None);
        };
        let measured = analyze.then(|| (found.rows.num_rows(), stopwatch.elapsed()));
        Ok(Some((template.explain(self.in_force().look_up_rows), measured)))
    }

    /// Runs an UPDATE or DELETE that is `change`; None: it needs a plan with these values.
    pub(super) async fn modify_range(
        &mut self,
        modify: &Modify,
        (change, returning): (&RangeChange, Option<&Returning>),
        parameters: &Parameters,
    ) -> Result<Option<Outcome>> {
        self.check_may_write(modify.name())?;
        if !self.takes_ranges() {
            return Ok(None);
        }
        let template = &change.template;
        self.lock_for_writing(&modify.table).await?;
        loop {
            let live = self.live().await?;
            let Some(ranges) = self.ranges(template, parameters, &live.state)? else {
                return Ok(None);
            };
            let table = Arc::clone(live.state.find_writable_table(&modify.table)?);
            identity::check_update(&table, modify.assignments())?;
            let keeps_keys = leaves_keys(&table, modify.assignments());
            let keeps_references = self.keeps_keys(&table, modify);
            // Keys that go are locked for good, and asked for by foreign keys, where they stand in pages.
            let is_update = matches!(modify.action, Action::Update(_));
            let goes = !keeps_keys && unique_indexes(&table).next().is_some();
            if is_update && (goes || !keeps_references) {
                return Ok(None);
            }
            let sight = Sight::new(live, self.own_changes(template.table_id()));
            let Some(found) = self.ranged(&sight, template, (ranges, parameters)).await? else {
                return Ok(None);
            };
            drop(sight);
            let (mut change, own_ended, rows) = self.changed(&table, modify, &found)?;
            if matches!(modify.action, Action::Delete) {
                self.lock_gone_keys(&table, &rows).await?;
            } else {
                change.keeps_keys = keeps_keys;
            }
            let taken = if keeps_references {
                self.take_plain(change, own_ended).await?
            } else {
                let ending = Ending::Rows { places: &[], before: Some(&rows), after: None };
                let replaced = self.replaced(&table, ending).await?;
                self.take_rows(change, own_ended, replaced).await?
            };
            if let Taken::Again = taken {
                continue;
            }
            let (name, count) = (modify.name(), rows.num_rows());
            return self.returned_rows(modify, (name, count), returning, &rows, parameters).await;
        }
    }

    /// What an UPDATE or DELETE does whose query gave `ranged`.
    fn changed(
        &self,
        table: &TableState,
        modify: &Modify,
        ranged: &Ranged,
    ) -> Result<(TableChange, OwnRows, RecordBatch)> {
        let schema = &table.schema;
        let mut change = TableChange::new(Arc::clone(schema));
        let mut own_ended = OwnRows::new();
        for row in found_rows(ranged, 0)? {
            match row.place {
                FoundPlace::Committed(vid) => {
                    change.ended.entry(row.tablet).or_default().insert(vid);
                }
                FoundPlace::Own(place) => {
                    own_ended.entry(row.tablet).or_default().insert(place);
                }
            }
        }
        let columns: Vec<usize> = (1..ranged.rows.num_columns()).collect();
        let rows = ranged.rows.project(&columns)?;
        let conform = Conform::by_position(schema, &[], schema.columns.len(), self.moment())?;
        let defaults = defaults(modify.assignments(), schema, rows.num_rows());
        let rows = conform.rows_with_defaults(&rows, &defaults)?;
        if matches!(modify.action, Action::Update(_)) && rows.num_rows() > 0 {
            change.rows = route(table, rows.clone())?;
        }
        Ok((change, own_ended, rows))
    }

    /// What a statement that has changed `rows` gives, by the plan that is kept for RETURNING where there is one.
    pub(super) async fn returned_rows(
        &self,
        modify: &Modify,
        (name, count): (&str, usize),
        returning: Option<&Returning>,
        rows: &RecordBatch,
        parameters: &Parameters,
    ) -> Result<Option<Outcome>> {
        if let Some(returning) = returning
            && let Some(outcome) = self.kept_returned(modify, returning, rows, parameters).await?
        {
            return Ok(Some(outcome));
        }
        let returned = match modify.returning.as_slice() {
            [] => None,
            _ => Some((modify.returning_query()?, rows)),
        };
        self.outcome(name, count, returned, parameters).await.map(Some)
    }

    async fn kept_returned(
        &self,
        modify: &Modify,
        returning: &Returning,
        rows: &RecordBatch,
        parameters: &Parameters,
    ) -> Result<Option<Outcome>> {
        let state = self.names();
        let schema = &state.find_writable_table(&modify.table)?.schema;
        let values = range_path::arrays(parameters)?;
        let types: Vec<DataType> = values.iter().map(|value| value.data_type().clone()).collect();
        let context = (&*self.database, self.in_force());
        let slot = (TARGET, &**schema);
        let Some(kept) = returning.kept.plan(context, &returning.query, slot, types).await else {
            return Ok(None);
        };
        let wanted = kept.wanted(0);
        let width = schema.columns.len();
        let own: Vec<usize> = wanted.iter().copied().filter(|place| *place < width).collect();
        let input = range_path::input(&kept, (&rows.project(&own)?, width), &wanted, &values)?;
        let rows = kept.run(vec![input]).await?;
        Ok(Some(Outcome::Rows { schema: rows.schema(), batches: vec![rows] }))
    }

    /// Runs a query with locking clauses, each of whose rows is one of the one table that it locks; None: it needs a plan.
    pub(super) async fn lock_range(
        &mut self,
        locking: &Locking,
        tables: &[LockedTable],
        (template, parameters): (&RangeTemplate, &Parameters),
    ) -> Result<Option<Outcome>> {
        let [locked] = tables else { return Ok(None) };
        let is_here = locked.table == template.table() && locked.wait != WaitPolicy::Skip;
        if !self.takes_ranges() || !is_here || !template.stops {
            return Ok(None);
        }
        self.check_may_write(&locking.name())?;
        loop {
            let live = self.live().await?;
            let Some(ranges) = self.ranges(template, parameters, &live.state)? else {
                return Ok(None);
            };
            let table = Arc::clone(live.state.find_writable_table(&locked.table)?);
            let (ranged, keys) = {
                let sight = Sight::new(live, self.own_changes(template.table_id()));
                let Some(ranged) = self.ranged(&sight, template, (ranges, parameters)).await?
                else {
                    return Ok(None);
                };
                let rows = found_rows(&ranged, ranged.rows.num_columns().saturating_sub(1))?;
                if rows.len() > LOCKED_ROWS_MAX {
                    return Ok(None);
                }
                let committed: Vec<RangeRow> = rows
                    .into_iter()
                    .filter(|row| matches!(row.place, FoundPlace::Committed(_)))
                    .collect();
                let read = RangeRead {
                    database: &self.database,
                    sight: &sight,
                    table: &table,
                    template,
                    stack: self.in_force().stack,
                };
                let mut keys = BTreeSet::new();
                for index in unique_indexes(&table) {
                    let shape = index.shape();
                    let entries =
                        shape.entries(&read.fetch(&committed, &shape.columns).await?, 0)?;
                    let entries = entries.iter().flatten();
                    let whole = entries.filter(|key| !shape.key.has_null(key));
                    keys.extend(whole.map(|key| held::unique_key(&table, index, key)));
                }
                let mut change = TableChange::new(Arc::clone(&table.schema));
                for row in committed {
                    if let FoundPlace::Committed(vid) = row.place {
                        change.ended.entry(row.tablet).or_default().insert(vid);
                    }
                }
                (ranged, (keys, change))
            };
            let (keys, change) = keys;
            for key in keys {
                self.lock_one(key, locked).await?;
            }
            for (place, vids) in &change.ended {
                for vid in vids {
                    self.lock_one(held::row_key(&table, *place, *vid), locked).await?;
                }
            }
            if !self.owns(template.table_id()) {
                let there = match check_ended(&self.database.live(), &change) {
                    Err(Error::Conflict { kind: ConflictKind::Update, .. }) => false,
                    checked => checked.map(|()| true)?,
                };
                if !there && self.reads_snapshot() {
                    return Err(Error::concurrent_update());
                }
                if !there {
                    continue;
                }
            }
            let shown: Vec<usize> = (0..ranged.rows.num_columns().saturating_sub(1)).collect();
            let rows = ranged.rows.project(&shown)?;
            return Ok(Some(Outcome::Rows { schema: rows.schema(), batches: vec![rows] }));
        }
    }
}

/// The rows of the table whose numbers stand in `column`, in the order of the result.
fn found_rows(ranged: &Ranged, column: usize) -> Result<Vec<RangeRow>> {
    let numbers = ranged.rows.columns().get(column);
    let numbers = numbers.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let strange = || Error::unsupported("a statement whose rows are not told");
    let numbers = numbers.ok_or_else(strange)?.values().iter();
    let row = |number: &u64| ranged.found.get(usize::try_from(*number).ok()?).cloned();
    numbers.map(|number| row(number).ok_or_else(strange)).collect()
}
