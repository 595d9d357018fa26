//! Statements with data-modifying parts of WITH ([`ChangingWith`]): the parts run one after the other, in one
//! transaction and on one view.
//!
//! 1. All tables whose rows change are locked, then the statement takes its view and keeps it. [`Session::view`] gives
//!    that view until all parts are done, so a part sees the changes of another one only through its RETURNING rows.
//! 2. Each part hands its change to the transaction. A row that an earlier part has deleted is skipped by later parts:
//!    it is neither counted nor returned.
//! 3. Foreign keys are checked when all parts are done.
//! 4. If another transaction changed a row first, READ COMMITTED undoes the parts and runs all of them again on a later
//!    view, with their locks.
//!
//! Refused, because the rows would differ from PostgreSQL's: DO UPDATE and locking clauses on a table of which an
//! earlier part has changed rows; and a second part that changes rows which the block has inserted, in a table of which
//! an earlier part deleted such rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{ConflictKind, Error, Result};
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::vid_set::VidSet;
use cleave_query::select;
use cleave_query::select::{QueryRequest, ReadView};
use cleave_sql::statement::changing_with::{ChangingWith, Part};
use cleave_sql::statement::locked_parts::GivenRows;
use cleave_sql::statement::parameters::StatementText;
use cleave_sql::statement::{ExplainFormat, Parameters, Statement};
use cleave_store::ColumnType;

use super::block::OwnRows;
use super::foreign_keys::deferred;
use super::prepared::{PreparedStatement, Source};
use super::{Outcome, Session, explain, insert, locked_parts, locking, modify, prepared, started};

/// What the parts of a statement read, and what they have done.
#[derive(Debug)]
pub(super) struct Parts {
    view: ReadView,
    /// The snapshot that the view is based on.
    base: Arc<CatalogState>,
    /// Dead rows of the view, by table and tablet, without rows that the block has inserted.
    dead: BTreeMap<(u32, usize), VidSet>,
    /// Tables of which rows have changed.
    changed: BTreeSet<u32>,
    /// Tables in which the parts have deleted rows that the block had inserted.
    own_dead: BTreeSet<u32>,
    /// The tables that more than one part changes.
    shared: BTreeSet<u32>,
}

impl Session {
    /// What the parts of the running statement read, and the snapshot that it is based on; None: it has no parts.
    pub(super) fn view_of_parts(&self) -> Option<(&ReadView, &Arc<CatalogState>)> {
        self.parts.as_ref().map(|parts| (&parts.view, &parts.base))
    }

    /// Whether the running statement is to read one view, whatever others commit: its block keeps a snapshot, or it is
    /// a part of a statement that does.
    pub(super) fn keeps_view(&self) -> bool {
        self.reads_snapshot() || self.parts.is_some()
    }
}

/// Whether another part of the statement changes rows of `table` too. Each finds the rows that the other has replaced,
/// which page versions do not tell.
pub(super) fn is_shared_by_parts(parts: Option<&Parts>, table: u32) -> bool {
    parts.is_some_and(|parts| parts.shared.contains(&table))
}

/// Rows of a tablet that were deleted by earlier parts of the statement, up to `next`.
pub(super) fn dead_by_parts(parts: Option<&Parts>, table: u32, place: usize, next: u64) -> VidSet {
    let dead = parts.and_then(|parts| parts.dead.get(&(table, place)));
    dead.map(|dead| dead.below(next)).unwrap_or_default()
}

/// Notes a change that a part makes.
pub(super) fn note_change_of_part(
    parts: &mut Option<Box<Parts>>,
    change: &TableChange,
    own_dead: &OwnRows,
) {
    let Some(parts) = parts else { return };
    let table = change.schema.table_id;
    parts.changed.insert(table);
    if own_dead.values().any(|rows| !rows.is_empty()) {
        parts.own_dead.insert(table);
    }
    for (place, vids) in &change.dead {
        parts.dead.entry((table, *place)).or_default().merge(vids);
    }
}

/// Refuses to stream changes to rows of `table` after an earlier part has changed some: it would not recognise them.
pub(super) fn check_own_of_part(parts: Option<&Parts>, table: u32) -> Result<()> {
    match parts {
        Some(parts) if parts.own_dead.contains(&table) => Err(Error::unsupported(
            "WITH in which two parts change rows of one table that this transaction inserted",
        )),
        _ => Ok(()),
    }
}

/// Refuses `what` behind a part that has changed rows, of `table` if it is about that one.
pub(super) fn check_unchanged_by_parts(
    parts: Option<&Parts>,
    table: Option<u32>,
    what: &str,
) -> Result<()> {
    let Some(parts) = parts else { return Ok(()) };
    let is_changed = match table {
        Some(table) => parts.changed.contains(&table),
        None => !parts.changed.is_empty(),
    };
    match is_changed {
        true => Err(Error::unsupported(format!("{what} behind a part of WITH that changes rows"))),
        false => Ok(()),
    }
}

/// Runs such a statement, whose text is `text`, in its block.
pub(super) async fn run_changing_with(
    session: &mut Session,
    with: &ChangingWith,
    parameters: &Parameters,
    text: &str,
) -> Result<Outcome> {
    session.check_may_write("WITH that changes rows")?;
    for part in with.parts.iter().chain([&with.main]) {
        lock_for_part(session, &part.statement).await?;
    }
    loop {
        let before = session.block.as_ref().map(|block| block.taken());
        let view = session.view().await?;
        session.parts = Some(Box::new(parts_of(session, view, with)));
        let outcome = Box::pin(run_parts_of(session, with, parameters, text)).await;
        session.parts = None;
        let outcome = match outcome {
            Ok(outcome) => Box::pin(deferred::ask_now(session)).await.map(|()| outcome),
            Err(error) => Err(error),
        };
        match outcome {
            Err(Error::Conflict { kind: ConflictKind::Update, .. })
                if !session.reads_snapshot() =>
            {
                if let (Some(block), Some(before)) = (&mut session.block, before) {
                    block.put_back(before);
                }
            }
            outcome => return outcome,
        }
    }
}

/// The parts of `with`, which reads `view`, before the first of them runs.
fn parts_of(session: &Session, view: ReadView, with: &ChangingWith) -> Parts {
    let base = Arc::clone(session.committed(&view));
    let (mut all, mut shared) = (BTreeSet::new(), BTreeSet::new());
    for part in with.parts.iter().chain([&with.main]) {
        let target = part.statement.properties().writes;
        let table = target.and_then(|target| view.state.find_writable_table(target.table).ok());
        if let Some(id) = table.map(|table| table.schema.table_id)
            && !all.insert(id)
        {
            shared.insert(id);
        }
    }
    let (dead, changed, own_dead) = Default::default();
    Parts { view, base, dead, changed, own_dead, shared }
}

async fn lock_for_part(session: &mut Session, statement: &Statement) -> Result<()> {
    let Some(target) = statement.properties().writes else { return Ok(()) };
    let locked = locking::lock_for_writing(session, target.table).await;
    locked.map(drop).map_err(|error| error.at(target.position))
}

async fn run_parts_of(
    session: &mut Session,
    with: &ChangingWith,
    parameters: &Parameters,
    text: &str,
) -> Result<Outcome> {
    let mut given = parameters.clone();
    for number in &with.before {
        run_numbered(session, with, *number, &mut given).await?;
    }
    let outcome = Box::pin(run_part(session, &with.main.statement, &given, text)).await?;
    for number in &with.after {
        run_numbered(session, with, *number, &mut given).await?;
    }
    Ok(outcome)
}

async fn run_numbered(
    session: &mut Session,
    with: &ChangingWith,
    number: usize,
    given: &mut Parameters,
) -> Result<()> {
    let Some(part) = with.parts.get(number) else { return Ok(()) };
    let outcome = Box::pin(run_part(session, &part.statement, given, "")).await?;
    if let Outcome::Rows { schema, batches } = outcome {
        given.rows.put_part(number, concat_batches(&schema, &batches)?);
    }
    Ok(())
}

async fn run_part(
    session: &mut Session,
    statement: &Statement,
    given: &Parameters,
    text: &str,
) -> Result<Outcome> {
    match statement {
        Statement::Insert(insert) => Box::pin(insert::run(session, insert, None, given)).await,
        Statement::Modify(modify) => Box::pin(modify::run(session, modify, given)).await,
        Statement::LockedParts(parts) => {
            Box::pin(locked_parts::run_locked_parts(session, parts, given, text)).await
        }
        Statement::Locking(locking) => {
            Box::pin(locking::run(session, locking, given, (&|_| None, None))).await
        }
        Statement::Query(query) => {
            locking::wait_for_tables(session, query).await?;
            let view = session.view().await?;
            let asked = QueryRequest { query, parameters: given, view: Some(&view) };
            started::started(&session.database, session.in_force(), asked, text)
                .await?
                .collect()
                .await
        }
        _ => Err(Error::unsupported("this part of WITH")),
    }
}

/// The description of such a statement without values: of its parts one after the other, and the columns of the last
/// one.
pub(super) async fn describe_changing_with(
    session: &Session,
    with: &ChangingWith,
    source: &Source,
) -> Result<PreparedStatement> {
    let parts = || with.parts.iter().chain([&with.main]);
    let count = parts().flat_map(|part| part.parameters.last()).max().map_or(0, |last| last + 1);
    let mut types = source.declared.clone();
    types.resize(count.max(types.len()), None);
    let (mut given, mut tables, mut lists) = (GivenRows::default(), Vec::new(), BTreeSet::new());
    let mut columns = None;
    for (number, part) in in_order(with, &[&with.before, &with.after]) {
        // Parameters of other parts may have any type here.
        let known = types.iter().enumerate().map(|(place, known)| {
            known.or_else(|| (!part.parameters.contains(&place)).then_some(ColumnType::Text))
        });
        let declared = known.collect();
        let source = Source { statement: part.statement.clone(), declared, ..source.clone() };
        let described = Box::pin(prepared::describe_over(session, source, &given)).await?;
        for place in &part.parameters {
            if let Some(known) = types.get_mut(*place) {
                *known = described.described.parameters.get(*place).copied();
            }
        }
        lists.extend(described.described.lists.iter().copied());
        columns.clone_from(&described.described.columns);
        tables.extend(described.tables);
        if let (Some(number), Some(columns)) = (number, &columns) {
            given.put_part(number, RecordBatch::new_empty(Arc::clone(columns)));
        }
    }
    let types: Vec<ColumnType> =
        types.into_iter().map(|known| known.unwrap_or(ColumnType::Text)).collect();
    Ok(PreparedStatement::planned(source.clone(), (types, lists, columns), tables))
}

/// EXPLAIN of such a statement, which changes nothing: each part in order of execution, with no rows from the others.
pub(super) async fn explain_changing_with(
    session: &mut Session,
    with: &ChangingWith,
    parameters: &Parameters,
    format: ExplainFormat,
) -> Result<Outcome> {
    if !matches!(format, ExplainFormat::Text | ExplainFormat::Verbose) {
        return Err(Error::unsupported("EXPLAIN (FORMAT) of WITH that changes rows"));
    }
    let view = session.view().await?;
    session.parts = Some(Box::new(parts_of(session, view.clone(), with)));
    let outcome = Box::pin(explain_parts(session, with, parameters, &view, format)).await;
    session.parts = None;
    outcome
}

async fn explain_parts(
    session: &Session,
    with: &ChangingWith,
    parameters: &Parameters,
    view: &ReadView,
    format: ExplainFormat,
) -> Result<Outcome> {
    let types: Vec<_> = parameters.values().iter().map(|value| Some(value.column_type())).collect();
    let mut given = parameters.clone();
    let mut order = in_order(with, &[&with.before]);
    order.extend(
        with.after.iter().filter_map(|number| Some((Some(*number), with.parts.get(*number)?))),
    );
    let (mut all, mut shown) = (Vec::new(), None);
    for (number, part) in order {
        let what = match number {
            Some(number) => format!("Part {} of WITH", number + 1),
            None => "Statement".to_owned(),
        };
        let (schema, heading) = select::explain_look_up(what, None, format)?;
        all.extend(heading);
        shown = Some(schema);
        let statement = match &part.statement {
            Statement::LockedParts(parts) => (*parts.plain).clone(),
            other => other.clone(),
        };
        let asked = (statement.clone(), &given, view);
        let explained = explain::explain_with(session, false, format, asked, (None, None, None));
        if let Outcome::Rows { batches, .. } = Box::pin(explained).await? {
            all.extend(batches);
        }
        let Some(number) = number else { continue };
        let source = Source {
            statement,
            text: StatementText::of(""),
            hints: Vec::new(),
            declared: types.clone(),
        };
        let described = Box::pin(prepared::describe_over(session, source, &given.rows)).await?;
        if let Some(columns) = &described.described.columns {
            given.rows.put_part(number, RecordBatch::new_empty(Arc::clone(columns)));
        }
    }
    match shown {
        Some(schema) => Ok(Outcome::Rows { schema, batches: all }),
        None => Err(Error::unsupported("EXPLAIN of this statement")),
    }
}

/// The parts with these numbers, one list after the other, each with its number, and the main statement.
fn in_order<'a>(with: &'a ChangingWith, lists: &[&[usize]]) -> Vec<(Option<usize>, &'a Part)> {
    let numbers = lists.iter().flat_map(|list| list.iter());
    let parts = numbers.filter_map(|number| Some((Some(*number), with.parts.get(*number)?)));
    parts.chain([(None, &with.main)]).collect()
}
