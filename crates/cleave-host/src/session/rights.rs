//! Whether a session may do what a statement says: asked of every statement before it does anything, and of a prepared
//! one whenever roles, rights or what its names stand for are others than when it was asked last.
//!
//! 1. [`check_rights`] takes a statement. A session that acts as a superuser is not asked.
//! 2. [`Check`] finds the tables, views and sequences that it [names](named) and asks [`Rights`] for each.
//! 3. Of a view it asks further, what its query reads, as the view's owner; functions there are the caller's.
//! 4. A name stands for an id: that which it has in the state that the statement reads, be that a snapshot or of the
//!    past. The rights of this id count as they are now. What a name was [found](Found) to be is remembered, and
//!    [`check_on`] looks, when the statement gets the state that it reads or locks the table that it changes, whether
//!    that is still so; where it is not, the statement is asked about once more.
//!
//! Where a role has privileges on some columns of a table alone, each column of a name that stands anywhere in the
//! statement counts as used, and all of them do where it says `*`. So a statement may be refused that PostgreSQL lets
//! through; none is let through that PostgreSQL refuses. For the same reason a name counts as a table's also where WITH
//! gives it to a query.
//!
//! Source: PostgreSQL's manual, "Privileges" and "Rules and Privileges"; `docs/design/server-and-security.md`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::rights::{Object, Privilege, Rights};
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
mod named;

/// That a session may do something, under these rights and as this role.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    rights: Arc<Rights>,
    role: u32,
    /// None: a superuser's, who is not asked.
    asked: Option<Arc<Asked>>,
}

/// A statement that was asked about, while it runs.
#[derive(Debug)]
pub(super) struct Asked {
    statement: Statement,
    found: Found,
}

/// What the names of a statement were found to be, by id and version; None: nothing.
#[derive(Debug, Default)]
struct Found {
    names: BTreeMap<String, Option<(u32, u32)>>,
    sequences: BTreeMap<String, Option<u32>>,
    /// The views that it reads, also by way of others.
    views: BTreeMap<u32, u32>,
}

impl Found {
    /// Whether it is the same in `state`.
    fn holds(&self, state: &CatalogState) -> bool {
        let is_same = |(name, known): (&String, &Option<(u32, u32)>)| {
            relation(state, name).and_then(|found| found.version()) == *known
        };
        let is_same_sequence = |(name, known): (&String, &Option<u32>)| {
            state.sequences.get(name).map(|sequence| sequence.id) == *known
        };
        let is_same_view = |(id, version): (&u32, &u32)| {
            let mut views = state.views().map(|view| &view.schema);
            views.any(|schema| (schema.table_id, schema.version) == (*id, *version))
        };
        self.names.iter().all(is_same)
            && self.sequences.iter().all(is_same_sequence)
            && self.views.iter().all(is_same_view)
    }
}

/// As [`Session::view`], whatever parts of the statement have read.
pub(super) async fn view_now(session: &mut Session) -> Result<ReadView> {
    let view = block::view_unasked(session).await?;
    check_on(session, &view.state)?;
    Ok(view)
}

/// The role that is to be asked about; None: a superuser.
fn asked_role(settings: &Settings, rights: &Rights) -> Option<u32> {
    settings.client.acting.role.filter(|role| !rights.is_superuser(*role))
}

/// Refuses a statement that the session may not run; `statement` gives it where it is asked about.
///
/// # Errors
/// [`Error::Invalid`] of [`RoleFault::Rights`](cleave_catalog::error::RoleFault::Rights).
pub(super) async fn check_rights(
    session: &mut Session,
    statement: impl FnOnce() -> Statement,
) -> Result<()> {
    session.asked = None;
    if session.settings.client.acting.role.is_some() {
        let read = read_before_newest(session).await;
        session.asked = asked_about(session, statement, read.as_deref(), &session.names())?;
    }
    Ok(())
}

/// The same of a prepared statement that was `allowed` before; what is to be remembered of it.
///
/// # Errors
/// As [`check_rights`].
pub(super) async fn check_prepared(
    session: &mut Session,
    statement: &Statement,
    allowed: Option<&Allowed>,
) -> Result<Option<Allowed>> {
    session.asked = None;
    if session.settings.client.acting.role.is_none() {
        return Ok(None);
    }
    let read = read_before_newest(session).await;
    let anew = check_again(session, statement, allowed, read.as_deref())?;
    session.asked = anew.as_ref().or(allowed).and_then(|allowed| allowed.asked.clone());
    Ok(anew)
}

/// The same where nothing runs yet. `read` is what it reads; None: the newest.
///
/// # Errors
/// As [`check_rights`].
pub(super) fn check_again(
    session: &Session,
    statement: &Statement,
    allowed: Option<&Allowed>,
    read: Option<&CatalogState>,
) -> Result<Option<Allowed>> {
    let Some(role) = session.settings.client.acting.role else { return Ok(None) };
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

/// Refuses the statement that runs where its names stand for something in `state` that they did not stand for when
/// it was asked about, and that it may not use.
///
/// # Errors
/// As [`check_rights`].
pub(super) fn check_on(session: &Session, state: &CatalogState) -> Result<()> {
    let Some(asked) = session.asked.as_ref().filter(|asked| !asked.found.holds(state)) else {
        return Ok(());
    };
    asked_about(session, || asked.statement.clone(), Some(state), &session.names()).map(drop)
}

/// As [`check_on`], of a definition, which `state` is before it: what it is about beside its names may be more by now.
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
    match asked_role(&session.settings, &state.rights) {
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

/// Whether the session may know how many rows the table `id` of `state` has, as who counts them does.
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

/// `error` without the values of rows that the session may not read.
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

/// Refuses what needs `privilege` on `table`, where the session has it not.
///
/// # Errors
/// As [`check_rights`].
pub(super) fn check_may(session: &Session, privilege: Privilege, table: &str) -> Result<()> {
    let state = session.names();
    match asked_role(&session.settings, &state.rights) {
        Some(role) => {
            let found = RefCell::default();
            let check = check(session, (&state, &state), role, &found);
            check.target(table, privilege, &Used::All)
        }
        None => Ok(()),
    }
}

/// What statements read before the newest: the past, or the snapshot of the block.
async fn read_before_newest(session: &Session) -> Option<Arc<CatalogState>> {
    let as_of = &session.in_force().as_of;
    let state = match as_of.is_empty() {
        // Of what cannot be read the statement itself tells.
        false => session.database.snapshot(SnapshotKind::AsOf(as_of)).await.ok()?,
        true => Arc::clone(session.block.as_ref()?.snapshot.as_ref()?),
    };
    Some(session.defined().over(&session.database, state))
}

/// Asks about a statement that reads `read`, or else `newest`; None: it is a superuser's.
fn asked_about(
    session: &Session,
    statement: impl FnOnce() -> Statement,
    read: Option<&CatalogState>,
    newest: &CatalogState,
) -> Result<Option<Arc<Asked>>> {
    let Some(role) = asked_role(&session.settings, &newest.rights) else { return Ok(None) };
    let (statement, found) = (statement(), RefCell::default());
    if !statement.properties().without_role {
        check_there(&newest.rights, role)?;
    }
    check(session, (read.unwrap_or(newest), newest), role, &found).statement(&statement)?;
    Ok(Some(Arc::new(Asked { statement, found: found.into_inner() })))
}

fn check<'a>(
    session: &'a Session,
    (read, newest): (&'a CatalogState, &'a CatalogState),
    role: u32,
    found: &'a RefCell<Found>,
) -> Check<'a> {
    Check { session, read, newest, role, caller: role, view: None, found }
}
