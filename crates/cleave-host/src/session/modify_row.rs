//! UPDATE and DELETE of one row by its key, without a plan. The row is found by the point path and changed by
//! expressions that are compiled once.
//!
//! 1. [`RowChange::of`] recognises a statement whose WHERE gives a whole unique key, and whose SET has only columns,
//!    constants, parameters and operators. Others are left to the planner; those of several rows may be a
//!    [`RangeChange`].
//! 2. [`modify_row`] looks the row up, in the delta and among own rows too, computes the new row, and hands the change
//!    to the transaction. If another transaction changed the row first, it is looked up again.
//!
//! A statement without parameters becomes one with parameters in place of its constants: [`modify_plain`]. A statement
//! with subqueries may become one with their values ([`super::subqueries`]).
//!
//! Invariant: the new row is the one that the planner's path would make. The expressions are bound and rewritten by the
//! same rules ([`compile`]), with each parameter as a column of its type.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::Result;
use cleave_catalog::settings::When;
use cleave_engine::write::insert::{TableChange, route};
use cleave_query::point_path;
use cleave_query::point_path::{Found, FoundPlace, PreparedPoint, Sight};
use cleave_query::range_path;
use cleave_query::select::{Compiled, compile, is_plain_value};
use cleave_sql::statement::assigned::check_set;
use cleave_sql::statement::conform::change_row;
use cleave_sql::statement::key_predicate::OneTable;
use cleave_sql::statement::modify::{Action, Assignment, Modify, has_subqueries, returns_nested};
use cleave_sql::statement::{Parameter, Parameters};
use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast;

use super::block::own;
use super::block::{OwnRows, Taken};
use super::foreign_keys::{Ending, Replaced};
use super::key_locks::has_same_keys;
use super::lifted::{Constants, StatementCache};
use super::ranges::{Lift, RangeChange};
use super::returning::Returning;
use super::subqueries::NestedChange;
use super::{
    Outcome, Session, block, foreign_keys, identity, key_locks, locking, ranges, serializable,
    subqueries,
};
use cleave_sql::visiting::{visit, visit_mut};

/// Sets of parameter types for which compiled expressions are kept: a `numeric` has as many digits as its value.
const COMPILED_MAX: usize = 8;

/// A statement that changes rows by their keys.
#[derive(Debug)]
pub(super) struct KeyedChange {
    /// One row at most.
    row: Option<RowChange>,
    /// Those in ranges.
    range: Option<RangeChange>,
    returning: Option<Returning>,
}

impl KeyedChange {
    /// The form of `modify` on the catalog version `state` for parameters of these types; None: it needs a plan.
    pub(super) fn of(
        modify: &Modify,
        types: &[ColumnType],
        state: &CatalogState,
    ) -> Option<Arc<Self>> {
        // They read what was there before.
        if returns_nested(&modify.returning) {
            return None;
        }
        let row = RowChange::of(modify, types, state);
        let range = RangeChange::of(modify, types, state);
        if row.is_none() && range.is_none() {
            return None;
        }
        let table = state.find_writable_table(&modify.table).ok()?;
        let returning = Returning::of(&table.schema, &modify.target_name(), &modify.returning);
        Some(Arc::new(Self { row, range, returning }))
    }

    fn holds(&self, state: &CatalogState) -> bool {
        self.row.as_ref().is_none_or(|row| row.point.holds(state))
            && self.range.as_ref().is_none_or(|range| range.holds(state))
    }
}

/// A statement that changes one row at most.
#[derive(Debug)]
struct RowChange {
    point: PreparedPoint,
    /// For each column of SET, its place in the table.
    places: Vec<usize>,
    compiled: Mutex<Vec<Arc<Compiled>>>,
}

impl RowChange {
    /// The form of `modify` on the catalog version `state` for parameters of these types; `None`: it needs a plan.
    fn of(modify: &Modify, types: &[ColumnType], state: &CatalogState) -> Option<Self> {
        let table = OneTable::of_change(modify, state)?;
        let point = PreparedPoint::of_rows(&table, modify.selection.as_ref()?, types)?;
        let assignments = modify.assignments();
        if !assignments.iter().all(|set| set.value.as_ref().is_none_or(is_plain_value)) {
            return None;
        }
        let place = |set: &Assignment| table.schema().column_index(&set.column);
        let places = assignments.iter().map(place).collect::<Option<_>>()?;
        Some(Self { point, places, compiled: Mutex::default() })
    }
}

/// The statements without parameters that a session has seen.
pub(super) type RowChanges = StatementCache<Modify, KeyedChange>;

/// A statement with parameters in the places of constants, and their values.
struct Lifted {
    modify: Modify,
    values: Vec<Parameter>,
}

impl Lifted {
    /// `None`: it has parameters already, or one of its constants is invalid for its type.
    fn of(modify: &Modify, state: &CatalogState) -> Option<Self> {
        if has_parameters(modify) {
            return None;
        }
        let (mut lifted, mut constants) = (modify.clone(), Constants::default());
        lifted.position = None;
        let lift = |expression: &mut ast::Expr, constants: &mut Constants| {
            let mut lift = Lift::new(state, constants, |own, constants| constants.put_number(own));
            visit_mut(expression, &mut lift).is_continue().then_some(())
        };
        if let Action::Update(assignments) = &mut lifted.action {
            for set in assignments {
                set.position = None;
                let Some(value) = &mut set.value else { continue };
                // A string that is a value by itself. The type of one beside an operator follows from the other
                // operand.
                if !constants.put_string(value) {
                    lift(value, &mut constants)?;
                }
            }
        }
        if let Some(condition) = &mut lifted.selection {
            lift(condition, &mut constants)?;
        }
        Some(Self { modify: lifted, values: constants.parameters()? })
    }

    fn types(&self) -> Vec<ColumnType> {
        self.values.iter().map(Parameter::column_type).collect()
    }
}

/// Whether there are parameters, which this path does not take.
fn has_parameters(modify: &Modify) -> bool {
    struct Parameters;
    impl ast::Visitor for Parameters {
        type Break = ();

        fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
            match expression {
                ast::Expr::Value(value) if matches!(value.value, ast::Value::Placeholder(_)) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let values = modify.assignments().iter().filter_map(|set| set.value.as_ref());
    let mut values = values.chain(&modify.selection);
    values.any(|value| visit(value, &mut Parameters).is_break())
        || visit(&modify.returning, &mut Parameters).is_break()
}

/// Runs an UPDATE or DELETE without parameters, if it changes one row by its key; None: it needs a plan.
pub(super) async fn modify_plain(
    session: &mut Session,
    modify: &Modify,
) -> Result<Option<Outcome>> {
    if session.view_of_parts().is_some() {
        return Ok(None);
    }
    let state = session.names();
    let Some(lifted) = Lifted::of(modify, &state) else { return Ok(None) };
    if has_subqueries(modify) {
        let types = lifted.types();
        let nested = session.nested.change(lifted.modify, types, &state);
        let (Some(nested), parameters) = (nested, Parameters::new(lifted.values)) else {
            return Ok(None);
        };
        drop(state);
        return Box::pin(subqueries::modify_nested(session, &nested, &parameters)).await;
    }
    let change = session.row_changes.get_or_make(
        &lifted.modify,
        |change| change.holds(&state),
        || KeyedChange::of(&lifted.modify, &lifted.types(), &state),
    );
    let Some(change) = change else { return Ok(None) };
    drop(state);
    let parameters = Parameters::new(lifted.values);
    Box::pin(modify_keyed(session, &lifted.modify, &change, &parameters)).await
}

/// EXPLAIN of an UPDATE or DELETE without a plan; None: it needs one with these values.
pub(super) async fn explain_change(
    session: &Session,
    modify: &Modify,
    parameters: &Parameters,
    state: &Arc<CatalogState>,
) -> Result<Option<String>> {
    // Parts of WITH are planned.
    if session.view_of_parts().is_some() {
        return Ok(None);
    }
    let own;
    let (modify, parameters) = match Lifted::of(modify, state) {
        Some(Lifted { modify, values }) => {
            own = (modify, Parameters::new(values));
            (&own.0, &own.1)
        }
        None => (modify, parameters),
    };
    let types = parameters.values().iter().map(Parameter::column_type).collect::<Vec<_>>();
    let what = |found: String| {
        let verb = if matches!(modify.action, Action::Delete) { "Delete" } else { "Update" };
        let found = found.replacen("Point", "point", 1).replacen("Range", "range", 1);
        Some(format!("{verb} by {found}"))
    };
    if has_subqueries(modify) {
        let Some(nested) = NestedChange::of(modify, &types, state) else { return Ok(None) };
        let explained = subqueries::explain_nested_change(session, (&nested, parameters), state);
        return Ok(Box::pin(explained).await?.and_then(what));
    }
    let Some(change) = KeyedChange::of(modify, &types, state) else { return Ok(None) };
    if let Some(row) = &change.row
        && session.in_force().index_scan != When::Never
        && let Some(query) = row.point.bind(parameters).filter(|query| query.has_one_row())
    {
        return Ok(what(query.explain(state)));
    }
    match &change.range {
        Some(range) => {
            Ok(ranges::explain_ranges(session, range, parameters, state)?.and_then(what))
        }
        None => Ok(None),
    }
}

/// Runs an UPDATE or DELETE that is `change`; None: it needs a plan with these values.
pub(super) async fn modify_keyed(
    session: &mut Session,
    modify: &Modify,
    change: &KeyedChange,
    parameters: &Parameters,
) -> Result<Option<Outcome>> {
    let returning = change.returning.as_ref();
    if let Some(row) = &change.row {
        let outcome = Box::pin(modify_row(session, modify, (row, returning), parameters)).await?;
        if outcome.is_some() {
            return Ok(outcome);
        }
    }
    match &change.range {
        Some(range) => {
            Box::pin(ranges::modify_range(session, modify, (range, returning), parameters)).await
        }
        None => Ok(None),
    }
}

/// Runs an UPDATE or DELETE that is `row`; None: it needs a plan with these values.
async fn modify_row(
    session: &mut Session,
    modify: &Modify,
    (row, returning): (&RowChange, Option<&Returning>),
    parameters: &Parameters,
) -> Result<Option<Outcome>> {
    session.check_may_write(modify.name())?;
    if session.in_force().index_scan == When::Never {
        return Ok(None);
    }
    locking::lock_for_writing(session, &modify.table).await?;
    loop {
        let live = session.live().await?;
        if !row.point.holds(&live.state) {
            return Ok(None);
        }
        let Some(query) = row.point.bind(parameters).filter(|query| query.has_one_row()) else {
            return Ok(None);
        };
        serializable::note_look_up(session.tracked(), &query)?;
        let table = Arc::clone(live.state.find_writable_table(&modify.table)?);
        identity::check_update(&table, modify.assignments())?;
        let sight = Sight::new(live, session.own_changes(query.table_id()));
        let stack = session.in_force().stack;
        let found = point_path::find(&session.database, &sight, &query, stack).await?;
        session.note_seen(sight.log_end());
        let kept = foreign_keys::keeps_keys(session, &table, modify);
        let (count, rows, change, own_dead, replaced) = match found {
            None => return Ok(None),
            Some(None) => {
                let none = RecordBatch::new_empty(table.schema.arrow());
                (0, none, TableChange::new(Arc::clone(&table.schema)), OwnRows::new(), None)
            }
            Some(Some(found)) => {
                let made = row_made(session, &table, modify, (row, parameters), &found).await?;
                let (change, own_dead) = row_change(&table, modify, &made, &found)?;
                if !change.keeps_keys {
                    key_locks::lock_gone_keys(session, &table, &found.batch, &change).await?;
                }
                let replaced = match kept {
                    true => None,
                    false => replaced_row(session, &table, modify, &made, &found).await?,
                };
                (1, made, change, own_dead, replaced)
            }
        };
        let taken = match kept {
            true => block::take_plain(session, change, own_dead).await?,
            false => own::take_rows(session, change, own_dead, replaced).await?,
        };
        if let Taken::Again = taken {
            continue;
        }
        let done = (modify.name(), count);
        return ranges::returned_rows(session, modify, done, returning, &rows, parameters).await;
    }
}

/// What foreign keys need of the row `found`.
async fn replaced_row(
    session: &Session,
    table: &TableState,
    modify: &Modify,
    made: &RecordBatch,
    found: &Found,
) -> Result<Option<Replaced>> {
    let (before, after) =
        (Some(&found.batch), matches!(modify.action, Action::Update(_)).then_some(made));
    foreign_keys::replaced(session, table, Ending::Rows { places: None, before, after }).await
}

/// The row that replaces `found`, or `found` itself for DELETE.
async fn row_made(
    session: &Session,
    table: &TableState,
    modify: &Modify,
    (row, parameters): (&RowChange, &Parameters),
    found: &Found,
) -> Result<RecordBatch> {
    // It has all columns of the table.
    if matches!(modify.action, Action::Delete) {
        return Ok(found.batch.clone());
    }
    let (schema, types) = (&table.schema, range_path::types(parameters));
    let known = {
        let kept = row.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|compiled| compiled.types == types).map(Arc::clone)
    };
    let compiled = match known {
        Some(compiled) => compiled,
        None => {
            let values = modify.assignments().iter().filter_map(|set| set.value.clone());
            let (arrow, name) = (schema.arrow(), modify.target_name());
            let made = compile(
                (&session.database, session.in_force()),
                (&arrow, &name),
                types,
                values.collect(),
            );
            let made = Arc::new(Box::pin(made).await?);
            let mut kept = row.compiled.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() >= COMPILED_MAX {
                kept.clear();
            }
            kept.push(Arc::clone(&made));
            made
        }
    };
    let mut columns = found.batch.columns().to_vec();
    let read = compiled.wanted.iter().map(|place| match columns.get(*place) {
        Some(column) => Ok(Arc::clone(column)),
        None => range_path::value(parameters, place - columns.len()),
    });
    let mut values = compiled.values(read.collect::<Result<_>>()?)?.into_iter();
    let set = modify.assignments().iter().zip(&row.places);
    let set = set.map(|(set, place)| (*place, set.value.as_ref().and_then(|_| values.next())));
    let set: Vec<_> = set.collect();
    let own = |place: usize| {
        let mut values = set.iter().filter(|(own, _)| *own == place);
        values.find_map(|(_, value)| value.as_ref()).map(|value| value.data_type())
    };
    check_set(schema, modify.assignments(), own)?;
    change_row(schema, &mut columns, set, || session.moment())?;
    Ok(RecordBatch::try_new(found.batch.schema(), columns)?)
}

/// The change that replaces the row `found` by `made`.
fn row_change(
    table: &TableState,
    modify: &Modify,
    made: &RecordBatch,
    found: &Found,
) -> Result<(TableChange, OwnRows)> {
    let mut change = TableChange::of_read(table);
    let mut own_dead = OwnRows::new();
    match found.row {
        FoundPlace::Committed(vid) => {
            change.dead.entry(found.tablet).or_default().insert(vid);
        }
        FoundPlace::Own(place) => {
            own_dead.insert(found.tablet, BTreeSet::from([place]));
        }
    }
    if matches!(modify.action, Action::Update(_)) {
        change.rows = route(table, made.clone())?;
        change.keeps_keys = has_same_keys(table, found.batch.columns(), made);
    }
    Ok((change, own_dead))
}
