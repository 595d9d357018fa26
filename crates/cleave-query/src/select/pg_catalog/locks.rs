//! `pg_locks`: the locks and waiters of the host's lock table, in PostgreSQL's terms.
//!
//! A lock of a row has the mode of the lock that PostgreSQL takes on a tuple for it, with the tablet's number as its
//! page and its VID as its tuple. The key of a unique index, which PostgreSQL locks otherwise, is an `object` with the
//! key's hash.

use cleave_sql::statement::catalog_tables::Row;
use cleave_txn::locks::{KeyKind, LockStatus};
use cleave_txn::{LockKey, LockMode};

use super::view::{View, table_oid};

/// The rows of `pg_locks`.
pub(super) fn rows(view: &View, locks: &[LockStatus]) -> Vec<Row> {
    locks.iter().map(|status| row(view, status)).collect()
}

fn row(view: &View, status: &LockStatus) -> Row {
    let mut row: Row = vec![
        ("pid", i64::from(status.group.backend()).into()),
        ("virtualtransaction", format!("{}/{}", status.group.backend(), status.owner.0).into()),
        ("mode", mode_name(status.mode).into()),
        ("granted", status.is_granted.into()),
        ("fastpath", false.into()),
    ];
    let key = status.key;
    let relation = |id: u64| {
        let known = view.tables().find(|table| u64::from(table.schema.table_id) == id);
        known.map(|table| table_oid(&table.schema))
    };
    match key.kind() {
        KeyKind::Table => {
            row.extend([
                ("locktype", "relation".into()),
                ("relation", relation(key.object()).into()),
            ]);
        }
        KeyKind::Row => row.extend([
            ("locktype", "tuple".into()),
            ("relation", relation(high(key.object())).into()),
            ("page", low(key.object()).into()),
            ("tuple", key.id().cast_signed().into()),
        ]),
        KeyKind::Key => row.extend([
            ("locktype", "object".into()),
            ("relation", relation(high(key.object())).into()),
            ("objid", low(key.id()).into()),
        ]),
        KeyKind::Transaction => row.extend([
            ("locktype", "transactionid".into()),
            ("transactionid", key.id().cast_signed().into()),
        ]),
        KeyKind::Advisory => row.extend(advisory(key)),
        // No session of the host holds or awaits one.
        KeyKind::Entry => {}
    }
    row
}

fn advisory(key: LockKey) -> Row {
    vec![
        ("locktype", "advisory".into()),
        ("classid", high(key.id()).cast_signed().into()),
        ("objid", low(key.id()).into()),
        ("objsubid", key.object().cast_signed().into()),
    ]
}

fn high(number: u64) -> u64 {
    number >> u32::BITS
}

fn low(number: u64) -> i64 {
    (number & u64::from(u32::MAX)).cast_signed()
}

fn mode_name(mode: LockMode) -> &'static str {
    match mode {
        LockMode::AccessShare | LockMode::ForKeyShare => "AccessShareLock",
        LockMode::RowShare | LockMode::ForShare => "RowShareLock",
        LockMode::RowExclusive => "RowExclusiveLock",
        LockMode::ShareUpdateExclusive => "ShareUpdateExclusiveLock",
        LockMode::Share => "ShareLock",
        LockMode::ShareRowExclusive => "ShareRowExclusiveLock",
        LockMode::Exclusive | LockMode::ForNoKeyUpdate => "ExclusiveLock",
        LockMode::AccessExclusive | LockMode::ForUpdate => "AccessExclusiveLock",
    }
}
