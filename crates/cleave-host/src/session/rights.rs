//! Privilege checks: whether a session may run a statement. Every statement is checked before it does anything. A
//! prepared one is checked again when roles, rights or the objects behind its names have changed.
//!
//! 1. [`check_rights`] checks a statement. That of a superuser is checked only for the views of other roles in it.
//! 2. [`Check`] finds the tables, views and sequences that it [names](named) and looks each up in [`Rights`].
//! 3. For a view it also checks what the view's query reads, as the view's owner, whoever asks; functions there are
//!    checked for the caller.
//! 4. A name stands for an id: the one in the catalog version that the statement reads, which may be a snapshot or the
//!    past. The present rights on this id count. The check remembers what each name was [found](Found) to be. When the
//!    statement gets the snapshot that it reads, or locks the table that it changes, [`check_on`] compares; on a
//!    difference the statement is checked again.
//!
//! If a role has privileges only on some columns of a table, each of its columns whose name occurs anywhere in the
//! statement counts as used, and `*` uses all. So a statement may be refused that PostgreSQL allows; none is allowed
//! that PostgreSQL refuses. For the same reason a name counts as a table's even where WITH gives it to a query.
//!
//! Source: PostgreSQL's manual, "Privileges" and "Rules and Privileges"; `docs/design/server-and-security.md`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::rights::{FIRST, Object, Privilege, Rights};
use cleave_catalog::catalog::view::ViewState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_query::select::ReadView;
use cleave_sql::statement::Statement;
use datafusion::sql::sqlparser::ast;

use super::definitions::Defined;
use super::grants::relation;
use super::roles::check_there;
use super::{Session, block};
use check::{Check, Used};

mod check;
pub(super) mod named;

/// The permission to run something, under these rights and as this role.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    rights: Arc<Rights>,
    role: u32,
    /// None: a superuser's, who is not checked.
    asked: Option<Arc<CheckedStatement>>,
}

/// A running statement that was checked.
#[derive(Debug)]
pub(super) struct CheckedStatement {
    statement: Statement,
    found: Found,
}

/// The objects behind the names of a statement, by id and version; None: no object.
#[derive(Debug, Default)]
struct Found {
    names: BTreeMap<String, Option<(u32, u32)>>,
    sequences: BTreeMap<String, Option<u32>>,
    /// The views that it reads, directly or through others.
    views: BTreeMap<u32, u32>,
}

impl Found {
    /// Whether the names stand for the same objects in `state`.
    fn holds(&self, state: &CatalogState) -> bool {
        let is_same = |(name, known): (&String, &Option<(u32, u32)>)| {
            relation(state, name).and_then(|found| found.version()) == *known
        };
        let is_same_sequence = |(name, known): (&String, &Option<u32>)| {
            state.sequences.get(name).map(|sequence| sequence.id) == *known
        };
        let is_same_view = |(id, version): (&u32, &u32)| {
            let materialized = state.materialized_views().map(|(table, _)| &table.schema);
            let mut views = state.views().map(|view| &view.schema).chain(materialized);
            views.any(|schema| (schema.table_id, schema.version) == (*id, *version))
        };
        self.names.iter().all(is_same)
            && self.sequences.iter().all(is_same_sequence)
            && self.views.iter().all(is_same_view)
    }
}

/// As [`Session::view`], regardless of what parts of the statement have read; rows of more than `shipped_bytes_max`
/// bytes are in pages of devices, and their keys in indexes.
pub(super) async fn view_now(session: &mut Session, shipped_bytes_max: u64) -> Result<ReadView> {
    let view = block::view_unasked(session, shipped_bytes_max).await?;
    check_on(session, &view.state)?;
    Ok(view)
}

/// The role to check on `newest`; None: a superuser, who may read whatever the views read.
fn asked_role(settings: &Settings, newest: &CatalogState) -> Option<u32> {
    let (role, rights) = (settings.client.acting.role.unwrap_or(FIRST), &newest.rights);
    (!rights.is_superuser(role) || has_views_of_roles(newest)).then_some(role)
}

/// Whether a view belongs to a role that may not read everything.
fn has_views_of_roles(state: &CatalogState) -> bool {
    let rights = &state.rights;
    let is_of_role = |id: u32| !rights.is_superuser(rights.owner(Object::Relation(id)));
    rights.has_owners() && state.views().any(|view| is_of_role(view.schema.table_id))
}

/// Whether statements of the session need no check, whatever they are.
fn is_unchecked(session: &Session) -> bool {
    session.settings.client.acting.role.is_none() && !has_views_of_roles(&session.names())
}

/// Refuses a statement that the session may not run; `statement` gives it if it has to be checked.
///
/// # Errors
/// [`Error::Invalid`] of [`RoleFault::Rights`](cleave_catalog::error::RoleFault::Rights).
pub(super) async fn check_rights(
    session: &mut Session,
    statement: impl FnOnce() -> Statement,
) -> Result<()> {
    session.asked = None;
    if !is_unchecked(session) {
        let read = read_before_newest(session).await;
        session.asked = asked_about(session, statement, read.as_deref(), &session.names())?;
    }
    Ok(())
}

/// The same for a prepared statement with its earlier permission `allowed`; returns the permission to keep.
///
/// # Errors
/// As [`check_rights`].
pub(super) async fn check_prepared(
    session: &mut Session,
    statement: &Statement,
    allowed: Option<&Allowed>,
) -> Result<Option<Allowed>> {
    session.asked = None;
    if is_unchecked(session) {
        return Ok(None);
    }
    let read = read_before_newest(session).await;
    let anew = check_again(session, statement, allowed, read.as_deref())?;
    session.asked = anew.as_ref().or(allowed).and_then(|allowed| allowed.asked.clone());
    Ok(anew)
}

/// The same while nothing runs yet. `read` is the catalog version that it reads; None: the newest.
///
/// # Errors
/// As [`check_rights`].
pub(super) fn check_again(
    session: &Session,
    statement: &Statement,
    allowed: Option<&Allowed>,
    read: Option<&CatalogState>,
) -> Result<Option<Allowed>> {
    if is_unchecked(session) {
        return Ok(None);
    }
    let role = session.settings.client.acting.role.unwrap_or(FIRST);
    let newest = session.names();
    let is_same = |allowed: &Allowed| {
        allowed.role == role
            && Arc::ptr_eq(&allowed.rights, &newest.rights)
            && read.is_none()
            && allowed.asked.as_ref().is_none_or(|asked| asked.found.holds(&newest))
    };
    if allowed.is_some_and(is_same) {
        return Ok(None);
    }
    let asked = asked_about(session, || statement.clone(), read, &newest)?;
    Ok(Some(Allowed { rights: Arc::clone(&newest.rights), role, asked }))
}

/// Refuses the running statement if its names stand for other objects in `state` than at its check, and it may not use
/// these.
///
/// # Errors
/// As [`check_rights`].
pub(super) fn check_on(session: &Session, state: &CatalogState) -> Result<()> {
    let Some(asked) = session.asked.as_ref().filter(|asked| !asked.found.holds(state)) else {
        return Ok(());
    };
    asked_about(session, || asked.statement.clone(), Some(state), &session.names()).map(drop)
}

/// As [`check_on`], for a definition, where `state` is the catalog before it: it may concern further objects by now.
///
/// # Errors
/// As [`check_rights`].
pub(super) fn check_definition(session: &Session, state: &CatalogState) -> Result<()> {
    let Some(asked) = &session.asked else { return Ok(()) };
    asked_about(session, || asked.statement.clone(), Some(state), &session.names()).map(drop)
}

/// Refuses values of EXECUTE that the session may not compute on `state`, which is the newest.
///
/// # Errors
/// As [`check_rights`].
pub(super) fn check_value(
    session: &Session,
    value: &ast::Expr,
    state: &CatalogState,
) -> Result<()> {
    match asked_role(&session.settings, state) {
        Some(role) => {
            let found = RefCell::default();
            check(session, (state, state), role, &found).values(std::slice::from_ref(value))
        }
        None => Ok(()),
    }
}

/// Whether the session may read all of the table `id` of `state`.
pub(super) fn may_read(
    settings: &Settings,
    defined: &Defined,
    state: &CatalogState,
    id: u32,
) -> bool {
    settings.client.acting.role.is_none_or(|role| {
        state.rights.may(role, Object::Relation(id), Privilege::Select) || defined.is_temporary(id)
    })
}

/// Whether the session may know the number of rows of the table `id` of `state`, as a count of them would tell.
pub(super) fn may_count(
    settings: &Settings,
    defined: &Defined,
    state: &CatalogState,
    id: u32,
) -> bool {
    settings.client.acting.role.is_none_or(|role| {
        state.rights.may_some(role, Object::Relation(id), Privilege::Select)
            || defined.is_temporary(id)
    })
}

/// `error` without values of rows that the session may not read.
pub(super) fn without_values(session: &Session, error: Error) -> Error {
    let Error::Violation { rule, table, constraint, message, detail } = error else {
        return error;
    };
    let state = session.names();
    let may_read = |id: u32| may_read(&session.settings, session.defined(), &state, id);
    let known = state.table(&table);
    let keys = known.into_iter().flat_map(|table| &table.rules.foreign_keys);
    let mut referred = keys.filter(|key| key.name == constraint).map(|key| key.target);
    let is_shown =
        known.is_none_or(|table| may_read(table.schema.table_id)) && referred.all(may_read);
    let detail = if is_shown { detail } else { String::new() };
    Error::Violation { rule, table, constraint, message, detail }
}

/// Refuses what needs `privilege` on `table`, if the session does not have it.
///
/// # Errors
/// As [`check_rights`].
pub(super) fn check_may(session: &Session, privilege: Privilege, table: &str) -> Result<()> {
    let state = session.names();
    match asked_role(&session.settings, &state) {
        Some(role) => {
            let found = RefCell::default();
            let check = check(session, (&state, &state), role, &found);
            check.target(table, privilege, &Used::All)
        }
        None => Ok(()),
    }
}

/// The owner of `view`, who must be allowed to read what its query names.
///
/// # Errors
/// As [`check_rights`].
pub(super) fn check_view(session: &Session, state: &CatalogState, view: &ViewState) -> Result<u32> {
    let owner = state.rights.owner(Object::Relation(view.schema.table_id));
    let found = RefCell::default();
    check(session, (state, state), owner, &found).rows_of(view)?;
    Ok(owner)
}

/// The older catalog version that statements read, if any: the past, or the snapshot of the block.
async fn read_before_newest(session: &Session) -> Option<Arc<CatalogState>> {
    let as_of = &session.in_force().as_of;
    let state = match as_of.is_empty() {
        // The statement itself reports what cannot be read.
        false => session.database.snapshot(SnapshotKind::AsOf(as_of)).await.ok()?,
        true => Arc::clone(&session.block.as_ref()?.snapshot.as_ref()?.live().state),
    };
    Some(session.defined().over(&session.database, state))
}

/// Checks a statement that reads `read`, or else `newest`; None: it is a superuser's.
fn asked_about(
    session: &Session,
    statement: impl FnOnce() -> Statement,
    read: Option<&CatalogState>,
    newest: &CatalogState,
) -> Result<Option<Arc<CheckedStatement>>> {
    let Some(role) = asked_role(&session.settings, newest) else { return Ok(None) };
    let (statement, found) = (statement(), RefCell::default());
    if !statement.properties().without_role {
        check_there(&newest.rights, role)?;
    }
    check(session, (read.unwrap_or(newest), newest), role, &found).statement(&statement)?;
    Ok(Some(Arc::new(CheckedStatement { statement, found: found.into_inner() })))
}

fn check<'a>(
    session: &'a Session,
    (read, newest): (&'a CatalogState, &'a CatalogState),
    role: u32,
    found: &'a RefCell<Found>,
) -> Check<'a> {
    Check { session, read, newest, role, caller: role, view: None, found }
}
