//! `pg_stat_activity`: the sessions of a server. A role that is no superuser sees of others' only that they exist.

use cleave_catalog::backends::BackendStatus;
use cleave_catalog::backends::TransactionStatus;
use cleave_catalog::catalog::rights::FIRST;
use cleave_sql::statement::catalog_tables::{Cell, Row};
use cleave_txn::locks::{KeyKind, LockStatus};

use super::view::{View, number};

/// Stands for a statement that the asker may not see.
const HIDDEN: &str = "<insufficient privilege>";

/// The rows of `pg_stat_activity`.
pub(super) fn rows(view: &View, sessions: &[BackendStatus], locks: &[LockStatus]) -> Vec<Row> {
    sessions.iter().map(|session| row(view, session, locks)).collect()
}

fn row(view: &View, session: &BackendStatus, locks: &[LockStatus]) -> Row {
    let role = i64::from(session.role.unwrap_or(FIRST));
    let mut row: Row = vec![
        ("datid", number::DATABASE.into()),
        ("datname", view.client.database.as_str().into()),
        ("pid", i64::from(session.number).into()),
        ("usesysid", role.into()),
        ("usename", session.user.as_str().into()),
    ];
    if !may_stop(view, session.role) {
        row.push(("query", HIDDEN.into()));
        return row;
    }
    let doing = &session.doing;
    let state = match doing.rests {
        None => "active",
        Some(TransactionStatus::Idle) => "idle",
        Some(TransactionStatus::Open) => "idle in transaction",
        Some(TransactionStatus::Failed) => "idle in transaction (aborted)",
    };
    row.extend([
        ("application_name", doing.application_name.as_str().into()),
        ("client_addr", session.client.map(|client| client.ip().to_string()).into()),
        ("client_port", session.client.map(|client| i64::from(client.port())).into()),
        ("backend_start", session.began.into()),
        ("xact_start", doing.transaction_began.into()),
        ("query_start", doing.query_began.into()),
        ("state_change", doing.changed.into()),
        ("state", state.into()),
        ("query", doing.query.as_str().into()),
        ("backend_type", "client backend".into()),
    ]);
    let waits = |lock: &&LockStatus| !lock.is_granted && lock.group.backend() == session.number;
    if let Some(lock) = locks.iter().find(waits) {
        row.push(("wait_event_type", "Lock".into()));
        row.push(("wait_event", Cell::from(event(lock.key.kind()))));
    } else if doing.rests.is_some() {
        row.push(("wait_event_type", "Client".into()));
        row.push(("wait_event", "ClientRead".into()));
    }
    row
}

fn event(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Table => "relation",
        KeyKind::Row | KeyKind::Entry => "tuple",
        KeyKind::Key => "object",
        KeyKind::Transaction => "transactionid",
        KeyKind::Advisory => "advisory",
    }
}

/// Whether the asker may see, and end, what a session of `role` does: a member of it, and for a superuser's a
/// superuser.
pub(in super::super) fn may_stop(view: &View, role: Option<u32>) -> bool {
    let Some(asking) = view.client.acting.role else { return true };
    let rights = view.newest_rights();
    let of = role.unwrap_or(FIRST);
    rights.is_superuser(asking) || (!rights.is_superuser(of) && rights.is_member(asking, of))
}
