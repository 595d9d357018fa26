//! The range path: statements over few rows by a range of keys, without a plan
//! ([`range_path`](cleave_query::range_path)). It covers SELECT, UPDATE, DELETE and SELECT … FOR UPDATE.
//!
//! 1. [`run_range`] gives the rows of a query: of [prepared](super::prepared) ones, and of those in the session's
//!    [`RangeQueries`]. Queries that differ only in the numbers and strings that WHERE compares with share one entry.
//! 2. [`modify_range`] changes rows as [`super::modify`] does; the query for the rows of an UPDATE gives them.
//! 3. [`lock_range::lock_range`](super::lock_range) locks such rows.
//!
//! Settings that ask for a certain way to run a query (`split`, `stack`, `ndp`, `index_scan`; for a join `join_order`,
//! `join_method`) make it planned.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::types::UInt64Type;
use arrow::array::{AsArray, RecordBatch};
use cleave_catalog::activity::Act;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_catalog::settings::{JoinMethod, JoinOrder, Stack, Transfer, When};
use cleave_engine::delta::Live;
use cleave_engine::write::insert::{TableChange, route};
use cleave_media::clock::Stopwatch;
use cleave_plan::split::Split;
use cleave_query::point_path::{FoundPlace, Sight};
use cleave_query::range_path::read::RangeRow;
use cleave_query::range_path::sources::Sources;
use cleave_query::range_path::{RangeTemplate, Ranged, Reader, Window, run};
use cleave_sql::statement::assigned::check_set;
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::key_predicate::OneTable;
use cleave_sql::statement::modify::{Action, Modify, TARGET, has_nested};
use cleave_sql::statement::parameters;
use cleave_sql::statement::{Parameter, Parameters};
use cleave_store::{ColumnType, KeyRange};
use cleave_txn::KeySpan;
use datafusion::sql::sqlparser::ast;

use super::block::own;
use super::block::{OwnRows, Taken};
use super::foreign_keys::Ending;
use super::foreign_keys::act;
use super::key_locks::leaves_keys;
use super::lifted::{Constants, StatementCache};
use super::modify::defaults;
use super::returning::Returning;
use super::transaction_locks::unique_indexes;
use super::{
    Outcome, Session, block, foreign_keys, identity, key_locks, locking, modify, returning,
};
use cleave_sql::visiting::visit_mut;

/// The queries without parameters that a session has seen, each with whether row numbers are appended to its columns.
pub(super) type RangeQueries = StatementCache<(ast::Query, bool, Vec<ColumnType>), RangeTemplate>;

/// An UPDATE or DELETE of the rows in a range.
#[derive(Debug)]
pub(super) struct RangeChange {
    template: RangeTemplate,
}

impl RangeChange {
    /// The form of `modify` on the catalog version `state` for parameters of these types; None: it needs a plan.
    pub(super) fn of(modify: &Modify, types: &[ColumnType], state: &CatalogState) -> Option<Self> {
        let table = OneTable::of_change(modify, state)?;
        let query = modify.query(table.schema()).ok()?;
        let template = RangeTemplate::over(&query, &table, TARGET, types, false)?;
        Some(Self { template })
    }

    pub(super) fn holds(&self, state: &CatalogState) -> bool {
        self.template.holds(state)
    }

    /// The look-ups as EXPLAIN shows them.
    pub(super) fn explain(&self, rows_max: u32) -> String {
        self.template.explain(rows_max)
    }
}

/// A query with parameters in the places of constants that WHERE compares columns with, and their values.
pub(super) struct Lifted {
    pub(super) query: ast::Query,
    pub(super) values: Vec<Parameter>,
}

impl Lifted {
    /// `None`: it has parameters already, or one of its constants is invalid for its type.
    pub(super) fn of(query: &ast::Query, state: &CatalogState) -> Option<Self> {
        if parameters::count(query).ok()? > 0 {
            return None;
        }
        let (mut lifted, mut constants) = (query.clone(), Constants::default());
        lift(&mut lifted, state, &mut constants)?;
        Some(Self { query: lifted, values: constants.parameters()? })
    }
}

/// Replaces constants of `query` and its subqueries by parameters; None: it reads something else than tables.
fn lift(query: &mut ast::Query, state: &CatalogState, constants: &mut Constants) -> Option<()> {
    let ast::SetExpr::Select(select) = query.body.as_mut() else { return None };
    let from = select.from.clone();
    let sources = Sources::of(&from, state)?;
    let mut compared = Lift::new(state, constants, |expression, constants| {
        put_strings(expression, &sources, constants);
        constants.put_number(expression);
    });
    let mut flow: ControlFlow<()> = visit_mut(&mut select.from, &mut compared);
    if let (true, Some(condition)) = (flow.is_continue(), &mut select.selection) {
        flow = visit_mut(condition, &mut compared);
    }
    if flow.is_continue() {
        // Constants of the select list stay: names and types follow from them.
        let mut listed = Lift::new(state, constants, |_, _| {});
        flow = visit_mut(&mut select.projection, &mut listed);
    }
    if let Some(ast::LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
        let counts = limit.iter_mut().chain(offset.iter_mut().map(|offset| &mut offset.value));
        counts.for_each(|count| constants.put_number(count));
    }
    flow.is_continue().then_some(())
}

/// Visits a query: calls `own` for each expression outside its subqueries, and [`lift`] for each subquery.
pub(super) struct Lift<'a, F> {
    state: &'a CatalogState,
    constants: &'a mut Constants,
    own: F,
    /// The depth of subqueries around the visited node.
    depth: usize,
}

impl<'a, F: FnMut(&mut ast::Expr, &mut Constants)> Lift<'a, F> {
    /// See the type.
    pub(super) fn new(state: &'a CatalogState, constants: &'a mut Constants, own: F) -> Self {
        Self { state, constants, own, depth: 0 }
    }
}

impl<F: FnMut(&mut ast::Expr, &mut Constants)> ast::VisitorMut for Lift<'_, F> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        self.depth += 1;
        if self.depth == 1 && lift(query, self.state, self.constants).is_none() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<()> {
        if self.depth == 0 {
            (self.own)(expression, self.constants);
        }
        ControlFlow::Continue(())
    }
}

/// Replaces strings that a text column is compared with by parameters.
fn put_strings(expression: &mut ast::Expr, sources: &Sources<'_>, constants: &mut Constants) {
    let is_text = |compared: &ast::Expr| {
        let own = sources
            .resolve(compared)
            .and_then(|(table, place)| sources.all().get(table)?.one.schema().columns.get(place));
        own.is_some_and(|own| matches!(own.column_type, ColumnType::Text | ColumnType::Varchar(_)))
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
        constants.put_string(string);
    }
}

fn is_comparison(operator: &ast::BinaryOperator) -> bool {
    use ast::BinaryOperator as Operator;
    matches!(operator, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

impl Reader for Session {
    fn own_changes(&self, table: u32) -> Option<&TableChange> {
        self.own_changes(table)
    }

    fn note_ranges(&self, table: u32, index: u32, ranges: &[KeyRange]) -> Result<()> {
        let Some(tracked) = self.tracked() else { return Ok(()) };
        let span = |range: &KeyRange| {
            let KeyRange { from, below } = range.clone();
            KeySpan { space: index, from, below }
        };
        let spans: Vec<KeySpan> = ranges.iter().map(span).collect();
        Ok(tracked.reads_keys(u64::from(table), &spans)?)
    }
}

/// A reader of a snapshot that includes the session's own changes.
pub(super) struct InState<'a>(pub(super) &'a Session);

impl Reader for InState<'_> {
    fn own_changes(&self, _table: u32) -> Option<&TableChange> {
        None
    }

    fn note_ranges(&self, table: u32, index: u32, ranges: &[KeyRange]) -> Result<()> {
        self.0.note_ranges(table, index, ranges)
    }
}

/// Whether statements may take the range path: no setting asks for a plan.
pub(super) fn takes_ranges(settings: &Settings) -> bool {
    settings.look_up_rows > 0
        && settings.index_scan == When::WherePays
        && settings.split == Split::Auto
        && settings.stack == Stack::Ndp
        && settings.transfer == Transfer::Auto
        && settings.compute_on.is_empty()
        && settings.ndp
}

/// The template of a query without parameters, and its values; `numbered`: row numbers are appended to its columns.
/// None: it needs a plan.
pub(super) fn range_of(
    session: &mut Session,
    query: &ast::Query,
    numbered: bool,
) -> Option<(Arc<RangeTemplate>, Parameters)> {
    if !takes_ranges(session.in_force()) || has_nested(query) {
        return None;
    }
    let state = session.names();
    let Lifted { query: lifted, values } = Lifted::of(query, &state)?;
    // A constant of another type may be compared in another way.
    let types: Vec<ColumnType> = values.iter().map(Parameter::column_type).collect();
    let lifted = (lifted, numbered, types);
    let template = session.range_queries.get_or_make(
        &lifted,
        |template| template.holds(&state),
        || RangeTemplate::of(&lifted.0, &lifted.2, &state, numbered).map(Arc::new),
    )?;
    Some((template, Parameters::new(values)))
}

/// Runs a query that is `template`; None: it needs a plan with these values.
pub(super) async fn run_range(
    session: &mut Session,
    template: &RangeTemplate,
    parameters: &Parameters,
) -> Result<Option<Outcome>> {
    if !takes_ranges(session.in_force()) {
        return Ok(None);
    }
    let live = session.live().await?;
    let Some(ranges) = ranges(session, template, parameters, &live.state)? else {
        return Ok(None);
    };
    let sight = Sight::new(live, session.own_changes(template.table_id()));
    let found = ranged(session, &sight, template, (ranges, parameters), None).await?;
    Ok(found
        .map(|Ranged { rows, .. }| Outcome::Rows { schema: rows.schema(), batches: vec![rows] }))
}

/// The key ranges of `template` with these values, recorded as read; None: it needs a plan.
pub(super) fn ranges(
    session: &Session,
    template: &RangeTemplate,
    parameters: &Parameters,
    state: &CatalogState,
) -> Result<Option<Vec<KeyRange>>> {
    let settings = session.in_force();
    let is_free = template.joined.is_empty()
        || settings.join_order == JoinOrder::Auto && settings.join_method == JoinMethod::Auto;
    let ranges = match is_free && template.holds(state) {
        true => template.bind(parameters),
        false => None,
    };
    if let Some(ranges) = &ranges {
        session.note_ranges(template.table_id(), template.index_id(), ranges)?;
    }
    Ok(ranges)
}

/// The rows of `template` in these ranges, within the window of LIMIT and OFFSET, or within `window`; None: it needs a
/// plan.
pub(super) async fn ranged(
    session: &Session,
    sight: &Sight<'_>,
    template: &RangeTemplate,
    asked: (Vec<KeyRange>, &Parameters),
    window: Option<Window>,
) -> Result<Option<Ranged>> {
    ranged_for(session, session, sight, template, asked, window).await
}

/// As [`ranged`], for a reader of other changes than the session's.
pub(super) async fn ranged_for(
    session: &Session,
    reader: &dyn Reader,
    sight: &Sight<'_>,
    template: &RangeTemplate,
    (ranges, parameters): (Vec<KeyRange>, &Parameters),
    window: Option<Window>,
) -> Result<Option<Ranged>> {
    let Some(window) = window.or_else(|| template.window(parameters)) else { return Ok(None) };
    let context = (session.database.queries(), session.in_force(), reader);
    let asked = (ranges, parameters, window);
    let found = Box::pin(run(context, sight, template, asked)).await?;
    // The commits whose rows it has seen are not reported row by row.
    session.note_seen(sight.live.log_end);
    if found.is_some() {
        session.database.activity().note(Act::LookUp);
    }
    Ok(found)
}

/// EXPLAIN of a query that is `template`; under ANALYZE with the rows found and the time taken. None: it needs a plan.
pub(super) async fn explain_range(
    session: &Session,
    analyze: bool,
    state: &Arc<CatalogState>,
    (template, parameters): (&RangeTemplate, &Parameters),
) -> Result<Option<(String, Option<(usize, Duration)>)>> {
    if !takes_ranges(session.in_force()) {
        return Ok(None);
    }
    let stopwatch = Stopwatch::start();
    let Some(ranges) = ranges(session, template, parameters, state)? else { return Ok(None) };
    let sight = Sight::new(Live::flushed(Arc::clone(state)), None);
    let asked = (ranges, parameters);
    let reader = InState(session);
    let found = ranged_for(session, &reader, &sight, template, asked, None);
    let Some(found) = found.await? else { return Ok(None) };
    let measured = analyze.then(|| (found.rows.num_rows(), stopwatch.elapsed()));
    Ok(Some((template.explain(session.in_force().look_up_rows), measured)))
}

/// EXPLAIN of the look-ups of a change by ranges; None: it needs a plan with these values.
pub(super) fn explain_ranges(
    session: &Session,
    change: &RangeChange,
    parameters: &Parameters,
    state: &Arc<CatalogState>,
) -> Result<Option<String>> {
    let template = &change.template;
    if !takes_ranges(session.in_force()) || ranges(session, template, parameters, state)?.is_none()
    {
        return Ok(None);
    }
    Ok(Some(template.explain(session.in_force().look_up_rows)))
}

/// Runs an UPDATE or DELETE that is `change`; None: it needs a plan with these values.
pub(super) async fn modify_range(
    session: &mut Session,
    modify: &Modify,
    (change, returning): (&RangeChange, Option<&Returning>),
    parameters: &Parameters,
) -> Result<Option<Outcome>> {
    session.check_may_write(modify.name())?;
    if !takes_ranges(session.in_force()) {
        return Ok(None);
    }
    locking::lock_for_writing(session, &modify.table).await?;
    loop {
        let live = session.live().await?;
        let changed = change_range(session, live, modify, change, parameters);
        let rows = match Box::pin(changed).await? {
            None => return Ok(None),
            Some((Taken::Again, _)) => continue,
            Some((Taken::Done, rows)) => rows,
        };
        let (name, count) = (modify.name(), rows.num_rows());
        return returned_rows(session, modify, (name, count), returning, &rows, parameters).await;
    }
}

/// Changes the rows that `live` and the transaction have in the ranges of `change`; returns the rows for RETURNING.
/// None: it needs a plan.
pub(super) async fn change_range(
    session: &mut Session,
    live: Live,
    modify: &Modify,
    change: &RangeChange,
    parameters: &Parameters,
) -> Result<Option<(Taken, RecordBatch)>> {
    let template = &change.template;
    let Some(ranges) = ranges(session, template, parameters, &live.state)? else {
        return Ok(None);
    };
    let table = Arc::clone(live.state.find_writable_table(&modify.table)?);
    identity::check_update(&table, modify.assignments())?;
    let keeps_keys = leaves_keys(&table, modify.assignments());
    let keeps_references = foreign_keys::keeps_keys(session, &table, modify);
    let is_update = matches!(modify.action, Action::Update(_));
    let goes = !keeps_keys && unique_indexes(&table).next().is_some();
    let (found, before) = {
        let sight = Sight::new(live, session.own_changes(template.table_id()));
        let Some(found) = ranged(session, &sight, template, (ranges, parameters), None).await?
        else {
            return Ok(None);
        };
        // Removed keys are locked FOR UPDATE, and foreign keys check them.
        let before = match is_update && (goes || !keeps_references) {
            true => {
                let stack = session.in_force().stack;
                let read = template.read(&session.database, &sight, &table, stack);
                let all: Vec<usize> = (0..table.schema.columns.len()).collect();
                Some(read.fetch(&found_rows(&found, 0)?, &all).await?)
            }
            false => None,
        };
        (found, before)
    };
    let (mut change, own_dead, rows) = changed(session, &table, modify, &found)?;
    act::check_in_snapshot(session, &change)?;
    change.keeps_keys = is_update && keeps_keys;
    let gone = if is_update { before.as_ref() } else { Some(&rows) };
    if let Some(gone) = gone.filter(|_| !change.keeps_keys) {
        key_locks::lock_gone_keys(session, &table, gone, &change).await?;
    }
    let taken = if keeps_references {
        block::take_plain(session, change, own_dead).await?
    } else {
        let after = is_update.then_some(&rows);
        let ending = Ending::Rows { places: None, before: gone, after };
        let replaced = foreign_keys::replaced(session, &table, ending).await?;
        own::take_rows(session, change, own_dead, replaced).await?
    };
    Ok(Some((taken, rows)))
}

/// The change of an UPDATE or DELETE whose query gave `ranged`.
fn changed(
    session: &Session,
    table: &TableState,
    modify: &Modify,
    ranged: &Ranged,
) -> Result<(TableChange, OwnRows, RecordBatch)> {
    let schema = &table.schema;
    let mut change = TableChange::of_read(table);
    let mut own_dead = OwnRows::new();
    for row in found_rows(ranged, 0)? {
        match row.place {
            FoundPlace::Committed(vid) => {
                change.dead.entry(row.tablet).or_default().insert(vid);
            }
            FoundPlace::Own(place) => {
                own_dead.entry(row.tablet).or_default().insert(place);
            }
        }
    }
    let columns: Vec<usize> = (1..ranged.rows.num_columns()).collect();
    let rows = ranged.rows.project(&columns)?;
    let conform = Conform::by_position(schema, &[], schema.columns.len(), session.moment())?;
    let defaults = defaults(modify.assignments(), schema, rows.num_rows());
    check_set(schema, modify.assignments(), |place| Some(rows.columns().get(place)?.data_type()))?;
    let rows = conform.rows_with_defaults(&rows, &defaults)?;
    if matches!(modify.action, Action::Update(_)) && rows.num_rows() > 0 {
        change.rows = route(table, rows.clone())?;
    }
    Ok((change, own_dead, rows))
}

/// The outcome of a statement that has changed `rows`; the plan of RETURNING is a cached one if there is one.
pub(super) async fn returned_rows(
    session: &Session,
    modify: &Modify,
    (name, count): (&str, usize),
    returning: Option<&Returning>,
    rows: &RecordBatch,
    parameters: &Parameters,
) -> Result<Option<Outcome>> {
    if let Some(returning) = returning
        && let Some(outcome) = returning::kept_returned(
            &session.database,
            session.in_force(),
            returning,
            rows,
            parameters,
        )
        .await?
    {
        return Ok(Some(outcome));
    }
    let returned = match modify.returning.as_slice() {
        [] => None,
        _ => Some((modify.returning_query()?, rows)),
    };
    modify::outcome(
        &session.database,
        session.in_force(),
        (name, count),
        returned,
        parameters,
        None,
    )
    .await
    .map(Some)
}

/// The rows of the table whose numbers are in `column`, in the order of the result.
pub(super) fn found_rows(ranged: &Ranged, column: usize) -> Result<Vec<RangeRow>> {
    let numbers = ranged.rows.columns().get(column);
    let numbers = numbers.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let strange = || Error::unsupported("this statement");
    let numbers = numbers.ok_or_else(strange)?.values().iter();
    let row = |number: &u64| ranged.found.get(usize::try_from(*number).ok()?).cloned();
    numbers.map(|number| row(number).ok_or_else(strange)).collect()
}
