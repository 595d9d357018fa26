//! Referential actions: statements on the referencing table, as a user would write them, on the newest snapshot and the
//! transaction's changes. If an index finds the rows and they are few, such a statement needs no plan, like any other
//! over a [range of keys](RangeChange).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::rules::KeyAction;
use cleave_catalog::error::{Error, Result};
use cleave_engine::delta::Live;
use cleave_engine::write::insert::TableChange;
use cleave_query::point_path::Sight;
use cleave_query::range_path::RangeTemplate;
use cleave_query::select;
use cleave_query::select::QueryRequest;
use cleave_sql::statement::modify::Modify;
use cleave_sql::statement::names::in_quotes;
use cleave_sql::statement::parameters::parameter_type;
use cleave_sql::statement::parse::parse_query;
use cleave_sql::statement::{Parameter, Parameters, Statement, parse_script};
use cleave_store::ColumnType;
use cleave_txn::LockMode;

use super::super::Session;
use super::super::block::Taken;
use super::super::lifted::StatementCache;
use super::super::ranges::RangeChange;
use super::keys::{Columns, Target};
use super::look_up;
use super::look_up::{KEYS_MAX, has_index};
use super::{Gone, KeyRow, KeySet, Reference};
use crate::session::block::own;
use crate::session::{foreign_keys, locking, modify, ranges};

/// Keys of one column in one statement.
const KEYS_AT_ONCE: usize = 500;

/// The same for several columns, whose conditions nest.
const WIDE_KEYS_AT_ONCE: usize = 30;

/// The range path statements that a session has used for foreign keys, by their texts and the types of their values.
#[derive(Debug, Default)]
pub(in crate::session) struct Followed {
    changes: StatementCache<(String, Vec<ColumnType>), (Modify, RangeChange)>,
    queries: StatementCache<(String, Vec<ColumnType>), RangeTemplate>,
}

/// Runs the action of a foreign key for rows whose key was removed.
pub(super) async fn act(session: &mut Session, gone: Gone) -> Result<()> {
    let Gone { reference, keys, moved } = gone;
    let key = &reference.key;
    let action = if moved.is_some() { key.on_update } else { key.on_delete };
    if action != KeyAction::NoAction {
        let old = moved.iter().flatten().map(|(old, _)| old);
        let old: Vec<&KeyRow> = keys.values().chain(old).collect();
        if !look_up::may_be_referred(session, &reference, &old).await? {
            return Ok(());
        }
    }
    match (action, moved) {
        (KeyAction::NoAction, _) => {
            session.references.open.of(&reference).gone.extend(keys);
        }
        (KeyAction::Restrict, _) => {
            if let Some(key) = referred(session, &reference, &keys).await? {
                return Err(reference.still_there(&key));
            }
        }
        (KeyAction::Cascade, Some(moved)) => {
            for moved in moved.chunks(moved_at_once(&reference, &moved)?) {
                let (text, values) = match moved {
                    [(old, new)] => moving_one(&reference, (old, new))?,
                    moved => (moving(&reference, moved)?, Parameters::default()),
                };
                change_children(session, &reference, &text, values).await?;
            }
        }
        (KeyAction::Cascade, None) => {
            let all: Vec<&KeyRow> = keys.values().collect();
            for keys in all.chunks(at_once(&reference, all.len())) {
                let (condition, values) = condition(&reference, keys)?;
                let text = format!("DELETE FROM {} AS c WHERE {condition}", child(&reference));
                change_children(session, &reference, &text, values).await?;
            }
        }
        (KeyAction::SetNull | KeyAction::SetDefault, moved) => {
            let value = if action == KeyAction::SetNull { "NULL" } else { "DEFAULT" };
            let columns = match key.set_columns.as_slice() {
                own if moved.is_none() && !own.is_empty() => own,
                _ => &key.columns,
            };
            let set: Vec<String> =
                columns.iter().map(|id| format!("{} = {value}", column(&reference, *id))).collect();
            let all: Vec<&KeyRow> = keys.values().collect();
            for keys in all.chunks(at_once(&reference, all.len())) {
                let (condition, values) = condition(&reference, keys)?;
                let (name, set) = (child(&reference), set.join(", "));
                let text = format!("UPDATE {name} AS c SET {set} WHERE {condition}");
                change_children(session, &reference, &text, values).await?;
            }
            // If the default is the removed key.
            session.references.open.of(&reference).gone.extend(keys);
        }
    }
    Ok(())
}

/// Changes rows as the statement `text` says.
async fn change_children(
    session: &mut Session,
    reference: &Reference,
    text: &str,
    values: Parameters,
) -> Result<()> {
    if !has_child(session, reference, LockMode::RowExclusive).await?
        || change_few_children(session, text, &values).await?
    {
        return Ok(());
    }
    let modify = changing(text)?;
    while let Taken::Again = change_once(session, &modify, &values).await? {}
    Ok(())
}

/// The same by the range path; false: it needs a plan.
async fn change_few_children(
    session: &mut Session,
    text: &str,
    values: &Parameters,
) -> Result<bool> {
    if !ranges::takes_ranges(session.in_force()) {
        return Ok(false);
    }
    let types: Vec<ColumnType> = values.values().iter().map(Parameter::column_type).collect();
    let state = session.names();
    let followed = (text.to_owned(), types);
    let known = session.followed.changes.get_or_make(
        &followed,
        |(_, range)| range.holds(&state),
        || {
            let modify = changing(text).ok()?;
            let range = RangeChange::of(&modify, &followed.1, &state)?;
            Some(Arc::new((modify, range)))
        },
    );
    drop(state);
    let Some(known) = known else { return Ok(false) };
    let (modify, range) = &*known;
    loop {
        let live = newest_live(session).await?;
        match Box::pin(ranges::change_range(session, live, modify, range, values)).await? {
            None => return Ok(false),
            Some((Taken::Again, _)) => {}
            Some((Taken::Done, _)) => return Ok(true),
        }
    }
}

/// What a look-up of referencing rows reads, as [`foreign_keys::newest_view`] does: the newest snapshot, without the
/// transaction's changes.
async fn newest_live(session: &mut Session) -> Result<Live> {
    if !session.reads_snapshot() {
        return session.live().await;
    }
    let mut live = session.database.live();
    live.state = session.defined().over_newest(&session.database, live.state).await?;
    Ok(live)
}

async fn change_once(session: &mut Session, modify: &Modify, values: &Parameters) -> Result<Taken> {
    let (view, base) = foreign_keys::newest_view(session).await?;
    let table = Arc::clone(view.state.find_writable_table(&modify.table)?);
    let made = modify::made(session, &view, &table, modify, values).await?;
    if made.count == 0 {
        return Ok(Taken::Done);
    }
    let mut committed = made.change.clone();
    let of_base = base.find_writable_table(&modify.table)?;
    for (place, vids) in &mut committed.dead {
        // Places beyond the end of the committed rows are own rows.
        let next = of_base.tablets.get(*place).map_or(0, |tablet| tablet.next_vid);
        drop(vids.split_off(next));
    }
    check_in_snapshot(session, &committed)?;
    modify::lock_keys_of(session, &view, &table, modify, &made).await?;
    let ending = made.ending(modify, &view);
    Box::pin(own::take_over(session, &base, &table, made.change.clone(), ending)).await
}

/// Refuses to change committed rows that are not in the snapshot.
pub(in crate::session) fn check_in_snapshot(session: &Session, change: &TableChange) -> Result<()> {
    let snapshot = session.block.as_ref().and_then(|block| block.snapshot.as_ref());
    let id = change.schema.table_id;
    let Some(snapshot) = snapshot.filter(|_| !session.owns(id)) else { return Ok(()) };
    let live = snapshot.live();
    let table = live.state.table_by_id(id).ok_or_else(Error::concurrent_update)?;
    for (place, vids) in &change.dead {
        let seen = table.tablets.get(*place);
        let is_seen = |vid: u64| {
            seen.is_some_and(|seen| live.delta.lives(id, *place, seen, vid, live.number))
        };
        if !vids.iter().all(is_seen) {
            return Err(Error::concurrent_update());
        }
    }
    Ok(())
}

/// Locks the referencing table; returns whether it still exists.
///
/// # Errors
/// Where a temporary table has its name.
async fn has_child(session: &mut Session, reference: &Reference, mode: LockMode) -> Result<bool> {
    let schema = &reference.child.schema;
    if !session.owns(schema.table_id) {
        locking::lock_table(session, &reference.child, mode, false).await?;
    }
    let names = session.names();
    if names.table(&schema.name).is_some_and(|table| table.schema.table_id == schema.table_id) {
        return Ok(true);
    }
    match session.database.catalog().table_by_id(schema.table_id) {
        Some(_) => Err(super::load::hidden(&schema.name)),
        None => Ok(false),
    }
}

/// One of `keys` that a row refers to, in the newest state with what the transaction has done.
pub(super) async fn referred(
    session: &mut Session,
    reference: &Reference,
    keys: &KeySet,
) -> Result<Option<KeyRow>> {
    let all: Vec<&KeyRow> = keys.values().collect();
    if all.is_empty()
        || !look_up::may_be_referred(session, reference, &all).await?
        || !has_child(session, reference, LockMode::RowShare).await?
    {
        return Ok(None);
    }
    for some in all.chunks(at_once(reference, all.len())) {
        let columns: Vec<String> =
            reference.key.columns.iter().map(|id| column(reference, *id)).collect();
        let (condition, parameters) = condition(reference, some)?;
        let (columns, name) = (columns.join(", "), child(reference));
        let text = format!("SELECT {columns} FROM {name} AS c WHERE {condition} LIMIT 1");
        if let Some(found) = few_referring(session, &text, &parameters).await? {
            match first_of(reference, &found, keys)? {
                Some(key) => return Ok(Some(key)),
                None => continue,
            }
        }
        let (view, _) = foreign_keys::newest_view(session).await?;
        let query = parse_query(text)?;
        let asked = QueryRequest { query: &query, parameters: &parameters, view: Some(&view) };
        let mut running =
            Box::pin(select::run_query(&session.database, session.in_force(), asked)).await?;
        while let Some(batch) = running.next().await? {
            if let Some(key) = first_of(reference, &batch, keys)? {
                return Ok(Some(key));
            }
        }
    }
    Ok(None)
}

/// The rows of the query `text` by the range path; None: it needs a plan.
async fn few_referring(
    session: &mut Session,
    text: &str,
    values: &Parameters,
) -> Result<Option<RecordBatch>> {
    if !ranges::takes_ranges(session.in_force()) {
        return Ok(None);
    }
    let types: Vec<ColumnType> = values.values().iter().map(Parameter::column_type).collect();
    let live = newest_live(session).await?;
    let asked = (text.to_owned(), types);
    let template = session.followed.queries.get_or_make(
        &asked,
        |template| template.holds(&live.state),
        || {
            let query = parse_query(text.to_owned()).ok()?;
            RangeTemplate::of(&query, &asked.1, &live.state, false).map(Arc::new)
        },
    );
    let Some(template) = template else { return Ok(None) };
    let Some(ranges) = ranges::ranges(session, &template, values, &live.state)? else {
        return Ok(None);
    };
    let sight = Sight::new(live, session.own_changes(template.table_id()));
    let found = Box::pin(ranges::ranged(session, &sight, &template, (ranges, values), None));
    Ok(found.await?.map(|found| found.rows))
}

/// The one of `keys` that the first of `rows` refers to.
fn first_of(reference: &Reference, rows: &RecordBatch, keys: &KeySet) -> Result<Option<KeyRow>> {
    let rows = Columns { ids: &reference.key.columns, rows };
    Ok(match reference.targets(rows)?.into_iter().next() {
        Some(Target::Key(entry, values)) => Some(keys.get(&entry).cloned().unwrap_or(values)),
        _ => None,
    })
}

/// The action of a foreign key, as a statement.
fn changing(text: &str) -> Result<Modify> {
    match parse_script(text)?.pop().map(|parsed| parsed.statement) {
        Some(Statement::Modify(modify)) => Ok(*modify),
        _ => Err(Error::unsupported("what a foreign key does to such rows")),
    }
}

/// How many of `count` keys go into one statement.
fn at_once(reference: &Reference, count: usize) -> usize {
    match reference.key.columns.len() {
        1 => KEYS_AT_ONCE,
        // Each is then looked up.
        _ if count <= KEYS_MAX && has_index(reference) => 1,
        _ => WIDE_KEYS_AT_ONCE,
    }
}

/// How many changed keys go into one statement: a few, or one where a row would otherwise be moved twice.
fn moved_at_once(reference: &Reference, moved: &[(KeyRow, KeyRow)]) -> Result<usize> {
    if moved.len() > KEYS_MAX || !has_index(reference) {
        return Ok(KEYS_AT_ONCE);
    }
    let mut old = BTreeSet::new();
    for (key, _) in moved {
        old.insert(key.texts()?);
    }
    for (_, key) in moved {
        if old.contains(&key.texts()?) {
            return Ok(KEYS_AT_ONCE);
        }
    }
    Ok(1)
}

/// The referencing table, as SQL writes it.
fn child(reference: &Reference) -> String {
    in_quotes(&reference.child.schema.name)
}

/// A column of it, as SQL writes it.
fn column(reference: &Reference, id: u32) -> String {
    let column = reference.child.schema.column_by_id(id);
    in_quotes(column.map_or("", |column| &column.name))
}

/// `c.a IN ($1, $2)`, or `(c.a = $1 AND c.b = $2) OR …`: rows that refer to `keys`; and the values.
fn condition(reference: &Reference, keys: &[&KeyRow]) -> Result<(String, Parameters)> {
    let names = reference.key.columns.iter().map(|id| format!("c.{}", column(reference, *id)));
    let names: Vec<String> = names.collect();
    let mut values = Vec::with_capacity(keys.len() * names.len());
    for key in keys {
        values.extend(parameters(reference, key)?);
    }
    let mut numbers = 1..=values.len();
    let condition = if let [name] = names.as_slice() {
        match values.len() {
            1 => format!("{name} = $1"),
            _ => {
                let numbers: Vec<String> = numbers.map(|number| format!("${number}")).collect();
                format!("{name} IN ({})", numbers.join(", "))
            }
        }
    } else {
        let alternatives = keys.iter().map(|_| {
            let own = names.iter().zip(numbers.by_ref());
            let parts: Vec<String> =
                own.map(|(name, place)| format!("{name} = ${place}")).collect();
            format!("({})", parts.join(" AND "))
        });
        alternatives.collect::<Vec<_>>().join(" OR ")
    };
    Ok((condition, Parameters::new(values)))
}

/// The values of a key, with the types of the columns that are referred to.
fn parameters(reference: &Reference, key: &KeyRow) -> Result<Vec<Parameter>> {
    let types = reference.key.target_columns.iter().map(|id| {
        let column = reference.parent.schema.column_by_id(*id);
        parameter_type(column.map_or(ColumnType::Text, |column| column.column_type))
    });
    let values = key.texts()?.into_iter().zip(types).zip(1..);
    let read = values.map(|((text, own), number)| {
        let value = Parameter::read(own, text.as_deref());
        value.map_err(|source| Error::Parameter { number, source: Box::new(source) })
    });
    read.collect()
}

/// The values of a key as SQL writes them, with the types of the columns that are referred to.
fn literals(reference: &Reference, key: &KeyRow) -> Result<Vec<String>> {
    let types = reference.key.target_columns.iter().map(|id| {
        let column = reference.parent.schema.column_by_id(*id);
        column.map_or_else(|| "text".to_owned(), |column| column.column_type.sql_name())
    });
    let literal = |(text, own): (Option<String>, String)| match text {
        Some(text) => format!("'{}'::{own}", text.replace('\'', "''")),
        None => format!("NULL::{own}"),
    };
    Ok(key.texts()?.into_iter().zip(types).map(literal).collect())
}

/// The statement that gives rows the new key of their only old one; and the values.
fn moving_one(
    reference: &Reference,
    (old, new): (&KeyRow, &KeyRow),
) -> Result<(String, Parameters)> {
    let (condition, _) = condition(reference, &[old])?;
    let mut values = parameters(reference, old)?;
    let ids = reference.key.columns.iter().zip(values.len() + 1..);
    let set: Vec<String> =
        ids.map(|(id, place)| format!("{} = ${place}", column(reference, *id))).collect();
    values.extend(parameters(reference, new)?);
    let (name, set) = (child(reference), set.join(", "));
    let text = format!("UPDATE {name} AS c SET {set} WHERE {condition}");
    Ok((text, Parameters::new(values)))
}

/// The statement that gives rows the new key of theirs.
fn moving(reference: &Reference, moved: &[(KeyRow, KeyRow)]) -> Result<String> {
    let columns: Vec<String> =
        reference.key.columns.iter().map(|id| column(reference, *id)).collect();
    let mut rows = Vec::with_capacity(moved.len());
    for (old, new) in moved {
        let mut values = literals(reference, old)?;
        values.extend(literals(reference, new)?);
        rows.push(format!("({})", values.join(", ")));
    }
    let numbered = |prefix: &str| -> Vec<String> {
        (0..columns.len()).map(|number| format!("{prefix}{number}")).collect()
    };
    let (old, new) = (numbered("o"), numbered("n"));
    let set = columns.iter().zip(&new).map(|(column, new)| format!("{column} = v.{new}"));
    let equal = columns.iter().zip(&old).map(|(column, old)| format!("c.{column} = v.{old}"));
    Ok(format!(
        "UPDATE {} AS c SET {} FROM (VALUES {}) AS v ({}, {}) WHERE {}",
        child(reference),
        set.collect::<Vec<_>>().join(", "),
        rows.join(", "),
        old.join(", "),
        new.join(", "),
        equal.collect::<Vec<_>>().join(" AND ")
    ))
}
