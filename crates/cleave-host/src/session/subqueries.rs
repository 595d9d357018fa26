//! Subqueries over few rows in statements over few rows, without a plan: the result of each becomes the value of a
//! parameter of the outer statement.
//!
//! ```text
//!  UPDATE t SET a = (SELECT max(x) FROM u WHERE id = $1) WHERE id IN (SELECT tid FROM v WHERE id = $1)
//!    ─▶ $2: SELECT max(x) FROM u WHERE id = $1      $3, a list: SELECT tid FROM v WHERE id = $1
//!    ─▶ UPDATE t SET a = $2 WHERE id = ANY ($3)
//! ```
//!
//! 1. [`Nested`] is made of a statement each of whose subqueries is a range of keys ([`RangeTemplate`]); [`taken_out`]
//!    decides which subqueries may be taken out.
//! 2. When it runs, the types of their results decide the form of the outer statement: a range of keys too, or a single
//!    row without a table.
//! 3. The subqueries run, then the outer statement, all on the same [`Live`].
//!
//! A correlated subquery, and one that gives several rows where one is wanted, do not take this path: the planner runs
//! it or reports the error.

mod taken_out;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::{Array, RecordBatch};
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_engine::delta::Live;
use cleave_media::clock::Stopwatch;
use cleave_query::point_path::Sight;
use cleave_query::range_path;
use cleave_query::range_path::template::{are_plain, with_no_columns};
use cleave_query::range_path::{Kept, RangeTemplate, Ranged, Reader, Window};
use cleave_query::select::ResultNames;
use cleave_sql::dialect::sql_type;
use cleave_sql::statement::modify::{Modify, TARGET, has_nested, over_target, returns_nested};
use cleave_sql::statement::{Parameter, Parameters};
use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast;

use super::block::Taken;
use super::lifted::StatementCache;
use super::ranges::{InState, Lifted, RangeChange};
use super::returning::Returning;
use super::{Outcome, Session, locking, ranges};
use crate::database::Database;
use taken_out::{Gives, TakenOut};

/// A statement whose subqueries are looked up before it. See the module's description.
#[derive(Debug)]
pub(super) struct Nested<S, O> {
    subqueries: Vec<Subquery>,
    /// The outer statement, with parameters in place of the subqueries.
    statement: S,
    /// Its form, by the types of all its parameters.
    known: Mutex<StatementCache<Vec<ColumnType>, O>>,
}

/// A query with subqueries, and what its columns are called.
pub(super) type NestedQuery = Nested<(ast::Query, ResultNames), Around>;

/// An UPDATE or DELETE with subqueries.
pub(super) type NestedChange = Nested<Modify, ChangeAround>;

/// The statements with subqueries, and without parameters, that a session has seen.
#[derive(Debug, Default)]
pub(super) struct NestedStatements {
    queries: StatementCache<(ast::Query, Vec<ColumnType>), NestedQuery>,
    changes: StatementCache<(Modify, Vec<ColumnType>), NestedChange>,
}

#[derive(Debug)]
struct Subquery {
    gives: Gives,
    query: ast::Query,
    template: RangeTemplate,
}

/// The form of a query whose subqueries have become parameters.
#[derive(Debug)]
pub(super) enum Around {
    Ranges(Box<RangeTemplate>),
    /// It reads no table: its select list, over one row that consists of the parameters.
    Row {
        query: Box<ast::Query>,
        kept: Kept,
    },
}

/// The same for a statement that changes rows.
#[derive(Debug)]
pub(super) struct ChangeAround {
    range: RangeChange,
    returning: Option<Returning>,
}

impl<S, O> Nested<S, O> {
    /// `statement`, from which the queries `taken` were taken out; None: one of them needs a plan.
    fn new(
        statement: S,
        taken: TakenOut,
        types: &[ColumnType],
        state: &CatalogState,
    ) -> Option<Self> {
        let subqueries = taken.queries.into_iter().map(|(gives, query)| {
            let template = RangeTemplate::of(&query, types, state, false)?;
            Some(Subquery { gives, query, template })
        });
        let subqueries = subqueries.collect::<Option<Vec<_>>>()?;
        let known = Mutex::default();
        (!subqueries.is_empty()).then_some(Self { subqueries, statement, known })
    }

    /// The form of the statement with parameters of these types; None: it needs a plan.
    fn around(
        &self,
        types: Vec<ColumnType>,
        holds: impl FnOnce(&O) -> bool,
        make: impl FnOnce(&S, &[ColumnType]) -> Option<O>,
    ) -> Option<Arc<O>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_make(&types, holds, || make(&self.statement, &types).map(Arc::new))
    }

    fn holds(&self, state: &CatalogState) -> bool {
        self.subqueries.iter().all(|subquery| subquery.template.holds(state))
    }

    /// The subqueries as EXPLAIN shows them.
    fn explain(&self, rows_max: u32) -> String {
        let looked_up = self.subqueries.iter().map(|subquery| {
            let what = subquery.template.explain(rows_max).replacen("Range", "range", 1);
            format!("; before it, a {what}")
        });
        looked_up.collect()
    }
}

impl NestedQuery {
    /// The form of `query` on `state` for parameters of these types; None: it has no subqueries, or needs a plan.
    pub(super) fn of(
        query: &ast::Query,
        types: &[ColumnType],
        state: &CatalogState,
    ) -> Option<Self> {
        let mut around = query.clone();
        let taken = TakenOut::of_query(&mut around, types.len())?;
        let names = ResultNames::take_alone(&mut query.clone()).ok()?;
        Self::new((around, names), taken, types, state)
    }
}

impl Around {
    fn of(query: &ast::Query, types: &[ColumnType], state: &CatalogState) -> Option<Self> {
        if let Some(template) = RangeTemplate::of(query, types, state, false) {
            return Some(Self::Ranges(Box::new(template)));
        }
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        let items: Vec<String> = select.projection.iter().map(ToString::to_string).collect();
        // Any further clause would change the result.
        let is_list = query.to_string() == format!("SELECT {}", items.join(", "));
        if !is_list || !are_plain(&select.projection) {
            return None;
        }
        let name = ast::Ident::with_quote('"', TARGET);
        let query = over_target(&name, select.projection.clone(), Vec::new(), None).ok()?;
        Some(Self::Row { query, kept: Kept::default() })
    }

    fn holds(&self, state: &CatalogState) -> bool {
        match self {
            Self::Ranges(template) => template.holds(state),
            Self::Row { .. } => true,
        }
    }

    /// Whether it is known to need a plan: then its subqueries need not run.
    fn is_given_up(&self) -> bool {
        match self {
            Self::Ranges(template) => template.is_given_up(),
            Self::Row { .. } => false,
        }
    }

    fn explain(&self, rows_max: u32) -> String {
        match self {
            Self::Ranges(template) => template.explain(rows_max),
            Self::Row { .. } => "One row, on the host, without a plan".to_owned(),
        }
    }
}

impl NestedChange {
    /// The form of `modify` on `state` for parameters of these types; None: it has no subqueries, or needs a plan.
    pub(super) fn of(modify: &Modify, types: &[ColumnType], state: &CatalogState) -> Option<Self> {
        if returns_nested(&modify.returning) {
            return None;
        }
        let mut around = modify.clone();
        let taken = TakenOut::of_modify(&mut around, types.len())?;
        Self::new(around, taken, types, state)
    }
}

impl ChangeAround {
    fn of(modify: &Modify, types: &[ColumnType], state: &CatalogState) -> Option<Self> {
        let range = RangeChange::of(modify, types, state)?;
        let table = state.find_writable_table(&modify.table).ok()?;
        let returning = Returning::of(&table.schema, &modify.target_name(), &modify.returning);
        Some(Self { range, returning })
    }
}

impl NestedStatements {
    /// The form of `query` on `state` for parameters of these types.
    fn query(
        &mut self,
        query: ast::Query,
        types: Vec<ColumnType>,
        state: &CatalogState,
    ) -> Option<Arc<NestedQuery>> {
        let of = (query, types);
        let make = || NestedQuery::of(&of.0, &of.1, state).map(Arc::new);
        self.queries.get_or_make(&of, |nested| nested.holds(state), make)
    }

    /// The form of `modify` on `state` for parameters of these types.
    pub(super) fn change(
        &mut self,
        modify: Modify,
        types: Vec<ColumnType>,
        state: &CatalogState,
    ) -> Option<Arc<NestedChange>> {
        let of = (modify, types);
        let make = || NestedChange::of(&of.0, &of.1, state).map(Arc::new);
        self.changes.get_or_make(&of, |nested| nested.holds(state), make)
    }
}

/// The form of a query with subqueries and without parameters, and the values of its constants.
pub(super) fn nested_of(
    session: &mut Session,
    query: &ast::Query,
) -> Option<(Arc<NestedQuery>, Parameters)> {
    if !has_nested(query) || !ranges::takes_ranges(session.in_force()) {
        return None;
    }
    let state = session.names();
    let Lifted { query: lifted, values } = Lifted::of(query, &state)?;
    let types = values.iter().map(Parameter::column_type).collect();
    let nested = session.nested.query(lifted, types, &state)?;
    Some((nested, Parameters::new(values)))
}

/// Runs a query that is `nested`; None: it needs a plan with these values.
pub(super) async fn run_nested(
    session: &mut Session,
    nested: &NestedQuery,
    parameters: &Parameters,
) -> Result<Option<Outcome>> {
    if !ranges::takes_ranges(session.in_force()) {
        return Ok(None);
    }
    let live = session.live().await?;
    let rows = Box::pin(nested_rows(session, &*session, &live, nested, parameters)).await?;
    Ok(rows.map(|(rows, _)| Outcome::Rows { schema: rows.schema(), batches: vec![rows] }))
}

/// The rows of a query that is `nested`, in `live`, and what it is; None: it needs a plan with these values.
async fn nested_rows(
    session: &Session,
    reader: &dyn Reader,
    live: &Live,
    nested: &NestedQuery,
    parameters: &Parameters,
) -> Result<Option<(RecordBatch, Arc<Around>)>> {
    let state = &live.state;
    let Some(types) =
        types_around(&session.database, session.in_force(), nested, parameters, state).await?
    else {
        return Ok(None);
    };
    let given = types.get(parameters.values().len()..).unwrap_or_default().to_vec();
    let around = nested.around(
        types,
        |around| around.holds(state),
        |(query, _), types| Around::of(query, types, state),
    );
    let Some(around) = around.filter(|around| !around.is_given_up()) else { return Ok(None) };
    let values = with_subqueries(session, (reader, live), nested, (parameters, &given));
    let Some(values) = values.await? else { return Ok(None) };
    let rows = match &*around {
        Around::Ranges(template) => {
            let Some(ranges) = ranges::ranges(session, template, &values, state)? else {
                return Ok(None);
            };
            let own = reader.own_changes(template.table_id());
            let sight = Sight::new(live.clone(), own);
            let asked = (ranges, &values);
            let found = ranges::ranged_for(session, reader, &sight, template, asked, None).await?;
            found.map(|Ranged { rows, .. }| rows)
        }
        Around::Row { query, kept } => {
            let types = range_path::types(&values);
            let (context, columns) =
                ((&**session.database.queries(), session.in_force()), with_no_columns());
            let plan = kept.plan(context, query, (TARGET, &columns), types).await;
            let Some(plan) = plan else { return Ok(None) };
            let one = range_path::input(&plan, (Vec::new(), 1, 0), &values)?;
            // The planner reports an expression that fails.
            plan.run(vec![one]).await.ok()
        }
    };
    let Some(rows) = rows else { return Ok(None) };
    let (_, names) = &nested.statement;
    let rows = RecordBatch::try_new_with_options(
        names.apply(&rows.schema()),
        rows.columns().to_vec(),
        &arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows())),
    )?;
    Ok(Some((rows, around)))
}

/// The types of `parameters`, followed by those of the subqueries' results; None: one needs a plan.
async fn types_around<S, O>(
    database: &Arc<Database>,
    settings: &Settings,
    nested: &Nested<S, O>,
    parameters: &Parameters,
    state: &CatalogState,
) -> Result<Option<Vec<ColumnType>>> {
    if !nested.holds(state) {
        return Ok(None);
    }
    let of_values = range_path::types(parameters);
    let mut types: Vec<ColumnType> =
        parameters.values().iter().map(Parameter::column_type).collect();
    for Subquery { gives, template, .. } in &nested.subqueries {
        if *gives == Gives::Existence {
            types.push(ColumnType::Boolean);
            continue;
        }
        let kept = template.kept(database, settings, of_values.clone()).await;
        let Some(kept) = kept else { return Ok(None) };
        let [field] = &kept.schema().fields()[..] else { return Ok(None) };
        // A value of another type would not survive the conversion.
        let own = sql_type(field.data_type()).filter(|own| own.arrow() == *field.data_type());
        let Some(own) = own else { return Ok(None) };
        types.push(own);
    }
    Ok(Some(types))
}

/// The values of `parameters`, followed by the results of the subqueries, which have these types; None: one needs a
/// plan.
async fn with_subqueries<S, O>(
    session: &Session,
    (reader, live): (&dyn Reader, &Live),
    nested: &Nested<S, O>,
    (parameters, types): (&Parameters, &[ColumnType]),
) -> Result<Option<Parameters>> {
    let mut values = parameters.values().to_vec();
    for (Subquery { gives, template, .. }, column_type) in nested.subqueries.iter().zip(types) {
        let (Some(ranges), Some(window)) = (
            ranges::ranges(session, template, parameters, &live.state)?,
            template.window(parameters),
        ) else {
            return Ok(None);
        };
        let sight = Sight::new(live.clone(), reader.own_changes(template.table_id()));
        let window = Some(gives.window(window));
        let asked = (ranges, parameters);
        let found = Box::pin(ranges::ranged_for(session, reader, &sight, template, asked, window));
        let Some(Ranged { rows, .. }) = found.await? else { return Ok(None) };
        let Some(value) = gives.value(&rows, *column_type)? else { return Ok(None) };
        values.push(value);
    }
    Ok(Some(Parameters::new(values)))
}

/// EXPLAIN of a query that is `nested`; under ANALYZE with the rows found and the time taken. None: it needs a plan
/// with these values.
pub(super) async fn explain_nested(
    session: &Session,
    analyze: bool,
    state: &Arc<CatalogState>,
    (nested, parameters): (&NestedQuery, &Parameters),
) -> Result<Option<(String, Option<(usize, Duration)>)>> {
    if !ranges::takes_ranges(session.in_force()) {
        return Ok(None);
    }
    let stopwatch = Stopwatch::start();
    let live = Live::flushed(Arc::clone(state));
    let reader = InState(session);
    let rows = nested_rows(session, &reader, &live, nested, parameters);
    let Some((rows, around)) = Box::pin(rows).await? else { return Ok(None) };
    let measured = analyze.then(|| (rows.num_rows(), stopwatch.elapsed()));
    let rows_max = session.in_force().look_up_rows;
    Ok(Some((around.explain(rows_max) + &nested.explain(rows_max), measured)))
}

/// Runs an UPDATE or DELETE that is `nested`; None: it needs a plan with these values.
pub(super) async fn modify_nested(
    session: &mut Session,
    nested: &NestedChange,
    parameters: &Parameters,
) -> Result<Option<Outcome>> {
    let modify = &nested.statement;
    session.check_may_write(modify.name())?;
    // Parts of WITH read what was there before the first of them.
    if !ranges::takes_ranges(session.in_force()) || session.view_of_parts().is_some() {
        return Ok(None);
    }
    locking::lock_for_writing(session, &modify.table).await?;
    for subquery in &nested.subqueries {
        locking::wait_for_tables(session, &subquery.query).await?;
    }
    loop {
        let live = session.live().await?;
        let around =
            change_around(&session.database, session.in_force(), nested, parameters, &live.state)
                .await?;
        let Some((around, given)) = around else { return Ok(None) };
        let values = with_subqueries(session, (&*session, &live), nested, (parameters, &given));
        let Some(values) = Box::pin(values).await? else { return Ok(None) };
        let changed = ranges::change_range(session, live, modify, &around.range, &values);
        let rows = match Box::pin(changed).await? {
            None => return Ok(None),
            Some((Taken::Again, _)) => continue,
            Some((Taken::Done, rows)) => rows,
        };
        let (done, returning) = ((modify.name(), rows.num_rows()), around.returning.as_ref());
        return ranges::returned_rows(session, modify, done, returning, &rows, &values).await;
    }
}

/// The form of `nested` with these values, and the types of its subqueries' results; None: it needs a plan.
async fn change_around(
    database: &Arc<Database>,
    settings: &Settings,
    nested: &NestedChange,
    parameters: &Parameters,
    state: &CatalogState,
) -> Result<Option<(Arc<ChangeAround>, Vec<ColumnType>)>> {
    let Some(types) = types_around(database, settings, nested, parameters, state).await? else {
        return Ok(None);
    };
    let given = types.get(parameters.values().len()..).unwrap_or_default().to_vec();
    let around = nested.around(
        types,
        |around| around.range.holds(state),
        |modify, types| ChangeAround::of(modify, types, state),
    );
    Ok(around.map(|around| (around, given)))
}

/// EXPLAIN of an UPDATE or DELETE that is `nested`; None: it needs a plan.
pub(super) async fn explain_nested_change(
    session: &Session,
    (nested, parameters): (&NestedChange, &Parameters),
    state: &CatalogState,
) -> Result<Option<String>> {
    if !ranges::takes_ranges(session.in_force()) {
        return Ok(None);
    }
    let around =
        change_around(&session.database, session.in_force(), nested, parameters, state).await?;
    let rows_max = session.in_force().look_up_rows;
    Ok(around.map(|(around, _)| around.range.explain(rows_max) + &nested.explain(rows_max)))
}

impl Gives {
    /// The number of rows of a subquery in `window` that have to be known.
    fn window(self, window: Window) -> Window {
        let enough = match self {
            Self::Existence => 1,
            // A second row is one too many.
            Self::Value => 2,
            Self::List => return window,
        };
        Window { limit: Some(window.limit.map_or(enough, |limit| limit.min(enough))), ..window }
    }

    /// `rows` as a value; None: the planner reports the error.
    fn value(self, rows: &RecordBatch, column_type: ColumnType) -> Result<Option<Parameter>> {
        let column = rows.columns().first();
        match (self, column) {
            (Self::Existence, _) => Parameter::of_boolean(rows.num_rows() > 0).map(Some),
            (Self::List, Some(column)) => Parameter::of_items(column_type, column).map(Some),
            (Self::Value, Some(column)) => match column.len() {
                0 => Ok(Some(Parameter::null(column_type))),
                1 => Parameter::of_value(column_type, column).map(Some),
                _ => Ok(None),
            },
            (_, None) => Ok(None),
        }
    }
}
