//! EXPLAIN: the plan of a statement without running it. EXPLAIN ANALYZE: what the statement did, changes of rows
//! included.
//!
//! A statement that changes rows hands its query to [`Measuring`] after it has run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::When;
use cleave_engine::delta::Live;
use cleave_media::clock::Stopwatch;
use cleave_query::cooperative::figures::FragmentFigures;
use cleave_query::point_path;
use cleave_query::point_path::{PointQuery, Sight};
use cleave_query::range_path::RangeTemplate;
use cleave_query::select;
use cleave_query::select::{ALL_VIDS, ExplainedChange, Measured, QueryRequest, ReadView, Target};
use cleave_sql::statement::modify::Action;
use cleave_sql::statement::parse::Define;
use cleave_sql::statement::{ExplainFormat, Insert, Modify, Parameters, Statement};

use super::prepared::PreparedStatement;
use super::subqueries::NestedQuery;
use super::update_fragment::placement;
use super::{
    Outcome, Session, changing_with, insert, insert_fragment, materialized, modify, modify_row,
    prepared, ranges, replacing_fragment, serializable, subqueries,
};

mod new_table;

use new_table::NewTable;

/// Where the query of a statement that changes rows is put after it has run, or its fragments are.
#[derive(Debug, Clone, Default)]
pub(super) struct Measuring(Arc<Mutex<Ran>>);

#[derive(Debug, Default)]
struct Ran {
    measured: Option<Measured>,
    /// The figures of fragments that have written, in the order in which they ended.
    fragments: Vec<FragmentFigures>,
}

impl Measuring {
    pub(super) fn put(&self, measured: Measured) {
        self.lock().measured = Some(measured);
    }

    /// Fragments of the statement have written.
    pub(super) fn note_fragments(&self, figures: Vec<FragmentFigures>) {
        self.lock().fragments.extend(figures);
    }

    /// Puts what `shown` says of the statement, with figures of the run and of the fragments that were noted.
    pub(super) fn put_change(&self, shown: ExplainedChange, figures: Vec<(String, String)>) {
        let mut ran = self.lock();
        let measured = shown.measured(figures, &ran.fragments);
        ran.measured = Some(measured);
    }

    fn take(&self) -> Option<Measured> {
        self.lock().measured.take()
    }

    fn lock(&self) -> MutexGuard<'_, Ran> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A statement that changes rows.
enum Changes {
    Insert(Box<Insert>),
    Modify(Box<Modify>),
}

impl Changes {
    fn of(statement: &Statement) -> Option<Self> {
        match statement {
            Statement::Insert(insert) => Some(Self::Insert(Box::new(Insert::clone(insert)))),
            Statement::Modify(modify) => Some(Self::Modify(modify.clone())),
            _ => None,
        }
    }

    /// The change, for EXPLAIN above the plan of its rows.
    fn planned(&self) -> String {
        match self {
            Self::Insert(insert) => format!("Insert into {}", insert.table),
            Self::Modify(modify) => match modify.action {
                Action::Delete => format!("Delete from {}", modify.table),
                Action::Update(_) => format!("Update of {}", modify.table),
            },
        }
    }

    /// The report of a change of that many rows.
    fn done(&self, count: usize) -> String {
        let rows = if count == 1 { "row" } else { "rows" };
        match self {
            Self::Insert(insert) => format!("Insert of {count} {rows} into {}", insert.table),
            Self::Modify(modify) => match modify.action {
                Action::Delete => format!("Delete of {count} {rows} of {}", modify.table),
                Action::Update(_) => format!("Update of {count} {rows} of {}", modify.table),
            },
        }
    }
}

/// The forms of a query without a plan, each with its values: a look-up, a range, or one with looked-up subqueries.
pub(super) type LookUps = (
    Option<PointQuery>,
    Option<(Arc<RangeTemplate>, Parameters)>,
    Option<(Arc<NestedQuery>, Parameters)>,
);

/// What EXPLAIN of `statement` explains: a statement without the locks that it would take.
pub(super) fn explained(analyze: bool, statement: Statement) -> Result<Statement> {
    match statement {
        Statement::LockedParts(_) if analyze => Err(Error::unsupported(
            "EXPLAIN ANALYZE of a statement with a locking clause, which would lock rows,",
        )),
        Statement::LockedParts(parts) => Ok(*parts.plain),
        other => Ok(other),
    }
}

/// Runs EXPLAIN.
pub(super) async fn run(
    session: &mut Session,
    analyze: bool,
    format: ExplainFormat,
    statement: Statement,
) -> Result<Outcome> {
    let statement = explained(analyze, statement)?;
    if let Statement::ChangingWith(with) = &statement {
        check_not_run(analyze)?;
        let none = Parameters::default();
        return Box::pin(changing_with::explain_changing_with(session, with, &none, format)).await;
    }
    if let Statement::Execute(execute) = statement {
        let prepared = prepared::prepared_now(session, &execute.name).await?;
        let parameters = prepared::values_of(session, &prepared, &execute).await?;
        let prepared = prepared.with_files(&parameters)?;
        return Box::pin(run_prepared(session, analyze, format, (&prepared, &parameters))).await;
    }
    if analyze && let Some(changes) = Changes::of(&statement) {
        return Box::pin(explain_run(session, changes, None, format)).await;
    }
    if let Statement::Define(define) = &statement
        && let Define::Refresh(refresh) = &**define
    {
        let what = Box::pin(materialized::explain(session, refresh)).await?;
        let (schema, batches) = select::explain_look_up(what, None, format)?;
        return Ok(Outcome::Rows { schema, batches });
    }
    if let Some(new) = NewTable::of(&statement) {
        let none = Parameters::default();
        return Box::pin(new_table::explain(session, (&new, &none), analyze, format)).await;
    }
    let range = match &statement {
        Statement::Query(query) => ranges::range_of(session, query, false),
        _ => None,
    };
    let nested = match &statement {
        Statement::Query(query) => subqueries::nested_of(session, query),
        _ => None,
    };
    let point_in = |state: &CatalogState| match &statement {
        Statement::Query(query) => PointQuery::detect(query, state),
        Statement::Locking(locking) => PointQuery::detect(&locking.query, state),
        _ => None,
    };
    let is_planned = match &statement {
        Statement::Query(_) => {
            range.is_none() && nested.is_none() && point_in(&session.names()).is_none()
        }
        other => is_planned(session, other, &Parameters::default()).await?,
    };
    // Fragments that change pages read what is in pages.
    let ships = match &statement {
        Statement::Modify(modify) => {
            let may_write = placement::is_considered(session, modify)
                || replacing_fragment::is_considered(session, modify);
            is_planned && !may_write
        }
        _ => is_planned,
    };
    let view = view_of(session, ships).await?;
    let point = match is_planned {
        true => None,
        false => point_in(&view.state),
    };
    let asked = (statement, &Parameters::default(), &view);
    explain_with(session, analyze, format, asked, (point, range, nested)).await
}

/// Runs EXPLAIN of a prepared statement with values for its parameters.
pub(super) async fn run_prepared(
    session: &mut Session,
    analyze: bool,
    format: ExplainFormat,
    (prepared, parameters): (&PreparedStatement, &Parameters),
) -> Result<Outcome> {
    if analyze && let Some(changes) = Changes::of(prepared.statement()) {
        let by_prepared = Some((prepared, parameters));
        return Box::pin(explain_run(session, changes, by_prepared, format)).await;
    }
    if let Some(new) = NewTable::of(prepared.statement()) {
        return Box::pin(new_table::explain(session, (&new, parameters), analyze, format)).await;
    }
    let may_be_looked_up = prepared.range().is_some()
        || prepared.nested().is_some()
        || prepared.point_query(parameters, &session.names()).is_some();
    let is_planned = match prepared.statement() {
        Statement::Query(_) => !may_be_looked_up,
        other => is_planned(session, other, parameters).await?,
    };
    let view = view_of(session, is_planned).await?;
    let point = prepared.point_query(parameters, &view.state).filter(|_| may_be_looked_up);
    let statement = prepared.statement().clone();
    if let Statement::ChangingWith(with) = &statement {
        check_not_run(analyze)?;
        return Box::pin(changing_with::explain_changing_with(session, with, parameters, format))
            .await;
    }
    let asked = (statement, parameters, &view);
    let range = prepared.range().map(|range| (Arc::clone(range), parameters.clone()));
    let nested = prepared.nested().map(|nested| (Arc::clone(nested), parameters.clone()));
    explain_with(session, analyze, format, asked, (point, range, nested)).await
}

/// Whether a statement other than a query is planned for sure.
async fn is_planned(
    session: &Session,
    statement: &Statement,
    parameters: &Parameters,
) -> Result<bool> {
    match statement {
        Statement::Insert(_) => Ok(true),
        Statement::Modify(modify) => {
            let state = session.names();
            let by_keys = modify_row::explain_change(session, modify, parameters, &state);
            Ok(Box::pin(by_keys).await?.is_none())
        }
        _ => Ok(false),
    }
}

/// What EXPLAIN of a statement reads: one without a plan is looked up in indexes.
async fn view_of(session: &mut Session, is_planned: bool) -> Result<ReadView> {
    match is_planned {
        true => session.view().await,
        false => session.view_with_keys().await,
    }
}

/// EXPLAIN of a statement with values for its parameters; `point` is its look-up, if it has one.
pub(super) async fn explain_with(
    session: &Session,
    analyze: bool,
    format: ExplainFormat,
    (statement, parameters, view): (Statement, &Parameters, &ReadView),
    (point, range, nested): LookUps,
) -> Result<Outcome> {
    let (mut target, mut change) = (None, None);
    let changes = Changes::of(&statement);
    // A statement that changes rows has run by now, under ANALYZE.
    let query = match statement {
        Statement::Query(query) => query,
        Statement::Insert(insert) => {
            let schema = insert::insert_target(session, &insert)?;
            let written_out = match format {
                ExplainFormat::Fragment => None,
                _ => insert::explain_insert(&insert, &schema),
            };
            if let Some(what) = written_out {
                let (schema, batches) = select::explain_look_up(what, None, format)?;
                return Ok(Outcome::Rows { schema, batches });
            }
            let by_fragment = insert_fragment::explained(session, view, (&insert, parameters));
            match Box::pin(by_fragment).await? {
                Some(shown) if !shown.fragments.is_empty() => {
                    let (schema, batches) = shown.shown(format)?;
                    return Ok(Outcome::Rows { schema, batches });
                }
                by_rows => change = by_rows,
            }
            let Some(query) = insert.source else {
                let what = "EXPLAIN (FORMAT FRAGMENT) of INSERT ... DEFAULT VALUES";
                return Err(Error::unsupported(what));
            };
            query
        }
        Statement::Modify(modify) => {
            let table = view.state.find_writable_table(&modify.table);
            let table = table.map_err(|error| error.at(modify.position))?;
            let by_keys = match format {
                ExplainFormat::Fragment => None,
                _ => {
                    Box::pin(modify_row::explain_change(session, &modify, parameters, &view.state))
                        .await?
                }
            };
            if let Some(what) = by_keys {
                let (schema, batches) = select::explain_look_up(what, None, format)?;
                return Ok(Outcome::Rows { schema, batches });
            }
            let asked = (&*modify, parameters);
            let by_fragments = placement::explained(session, view, table, asked);
            match Box::pin(by_fragments).await? {
                Some(shown) if !shown.fragments.is_empty() => {
                    let (schema, batches) = shown.shown(format)?;
                    return Ok(Outcome::Rows { schema, batches });
                }
                by_rows => change = by_rows,
            }
            let replaced = replacing_fragment::explained(session, view, table, asked);
            match Box::pin(replaced).await? {
                Some(shown) if !shown.fragments.is_empty() => {
                    let (schema, batches) = shown.shown(format)?;
                    return Ok(Outcome::Rows { schema, batches });
                }
                by_rows => change = change.or(by_rows),
            }
            target = Some(Target { table: modify.table.clone(), tablet: 0, vids: ALL_VIDS });
            modify
                .query_of(&table.schema, modify::needed_columns(session, table, &modify).as_ref())?
        }
        Statement::Locking(locking) if analyze => {
            let what = format!("EXPLAIN ANALYZE of {}, which would lock rows,", locking.name());
            return Err(Error::unsupported(what));
        }
        Statement::Locking(locking) => locking.query,
        _ => return Err(Error::unsupported("EXPLAIN of this statement")),
    };
    // FRAGMENT asks for what a plan would send.
    if let Some(point) = point.filter(|_| format != ExplainFormat::Fragment) {
        let explained =
            Box::pin(explain_look_up(session, analyze, format, &point, &view.state)).await?;
        if let Some(explained) = explained {
            return Ok(explained);
        }
    }
    if let Some((range, values)) = range.filter(|_| format != ExplainFormat::Fragment) {
        let by = (&*range, &values);
        let explained = Box::pin(ranges::explain_range(session, analyze, &view.state, by)).await?;
        if let Some((what, measured)) = explained {
            let (schema, batches) = select::explain_look_up(what, measured, format)?;
            return Ok(Outcome::Rows { schema, batches });
        }
    }
    if let Some((nested, values)) = nested.filter(|_| format != ExplainFormat::Fragment) {
        let by = (&*nested, &values);
        let explained =
            Box::pin(subqueries::explain_nested(session, analyze, &view.state, by)).await?;
        if let Some((what, measured)) = explained {
            let (schema, batches) = select::explain_look_up(what, measured, format)?;
            return Ok(Outcome::Rows { schema, batches });
        }
    }
    let change = changes.map(|changes| ExplainedChange {
        what: changes.planned(),
        fragments: Vec::new(),
        placement: change.map(|by_rows| by_rows.placement).unwrap_or_default(),
    });
    let view = ReadView { target, ..view.clone() };
    let asked = QueryRequest { query: &query, parameters, view: Some(&view) };
    let settings = session.in_force();
    let explained = select::explain(&session.database, settings, asked, analyze, format, change);
    let (schema, batches) = Box::pin(explained).await?;
    Ok(Outcome::Rows { schema, batches })
}

/// EXPLAIN of a query that is looked up; None: it is planned. With ANALYZE the path that it takes is known.
async fn explain_look_up(
    session: &Session,
    analyze: bool,
    format: ExplainFormat,
    point: &PointQuery,
    state: &Arc<CatalogState>,
) -> Result<Option<Outcome>> {
    if session.in_force().index_scan == When::Never {
        return Ok(None);
    }
    let mut measured = None;
    if analyze {
        let stopwatch = Stopwatch::start();
        // The snapshot includes own changes.
        serializable::note_look_up(session.tracked(), point)?;
        let sight = Sight::new(Live::flushed(Arc::clone(state)), None);
        let stack = session.in_force().stack;
        let Some(rows) = point_path::run(&session.database, &sight, point, stack).await? else {
            return Ok(None);
        };
        measured = Some((rows.num_rows(), stopwatch.elapsed()));
    }
    let (schema, batches) = select::explain_look_up(point.explain(state), measured, format)?;
    Ok(Some(Outcome::Rows { schema, batches }))
}

/// Runs a statement that changes rows, prepared or not, and reports what it did.
async fn explain_run(
    session: &mut Session,
    changes: Changes,
    prepared: Option<(&PreparedStatement, &Parameters)>,
    format: ExplainFormat,
) -> Result<Outcome> {
    let none = Parameters::default();
    let parameters = prepared.map_or(&none, |(_, parameters)| parameters);
    let state = session.names();
    let without_plan = match &changes {
        Changes::Insert(insert) => {
            let schema = insert::insert_target(session, insert)?;
            insert::explain_insert(insert, &schema)
        }
        Changes::Modify(modify) => {
            Box::pin(modify_row::explain_change(session, modify, parameters, &state)).await?
        }
    };
    drop(state);
    let measuring = Measuring::default();
    session.measuring = Some(measuring.clone());
    let stopwatch = Stopwatch::start();
    let outcome = match (&changes, prepared) {
        (_, Some((prepared, parameters))) => {
            Box::pin(prepared::run_prepared(session, prepared, parameters)).await?.collect().await
        }
        (Changes::Insert(insert), None) => {
            Box::pin(insert::run(session, insert, None, parameters)).await
        }
        (Changes::Modify(modify), None) => {
            match Box::pin(modify_row::modify_plain(session, modify)).await? {
                Some(outcome) => Ok(outcome),
                None => Box::pin(modify::run(session, modify, parameters)).await,
            }
        }
    };
    session.measuring = None;
    let elapsed = stopwatch.elapsed();
    let count = match outcome? {
        Outcome::Rows { batches, .. } => batches.iter().map(|batch| batch.num_rows()).sum(),
        Outcome::Done { tag } => {
            tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default()
        }
    };
    let (schema, batches) = match (measuring.take(), without_plan) {
        (Some(measured), _) => {
            measured.within(elapsed).shown(changes.done(count), Some(count), format)?
        }
        (None, what) => {
            let what = what.unwrap_or_else(|| changes.done(count));
            select::explain_look_up(what, Some((count, elapsed)), format)?
        }
    };
    Ok(Outcome::Rows { schema, batches })
}

/// Refuses EXPLAIN ANALYZE of data-modifying parts of WITH, which it would show as one plan.
fn check_not_run(analyze: bool) -> Result<()> {
    match analyze {
        true => Err(Error::unsupported("EXPLAIN ANALYZE of WITH that changes rows")),
        false => Ok(()),
    }
}
