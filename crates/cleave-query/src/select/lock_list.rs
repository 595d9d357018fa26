//! The rows of the table `cleave.locks`: the locks and waits of the host's lock table, with the sessions that a wait is
//! for.
//!
//! Everybody may read it, as `pg_locks`, which shows the same in PostgreSQL's terms.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::Result;
use cleave_txn::LockStatus;
use cleave_txn::locks::KeyKind;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray,
};

use super::statement_context::StatementContext;

/// Name of the table.
pub(super) const TABLE: &str = "locks";

/// The table's rows.
///
/// # Errors
/// None that a statement is to blame for.
pub(super) fn batch(context: &StatementContext) -> Result<RecordBatch> {
    let locks = context.database().locks().list();
    rows(context.state(), &locks, &locks)
}

/// Rows of those that are `shown` of all `locks`, with the names of tables in `state`.
///
/// # Errors
/// As [`batch`].
pub(super) fn rows(
    state: &CatalogState,
    shown: &[LockStatus],
    locks: &[LockStatus],
) -> Result<RecordBatch> {
    let name = |lock: &LockStatus| {
        let id = match lock.key.kind() {
            KeyKind::Table => lock.key.object(),
            KeyKind::Row | KeyKind::Key => lock.key.object() >> u32::BITS,
            KeyKind::Transaction | KeyKind::Advisory | KeyKind::Entry => return None,
        };
        let mut tables = state.tables();
        let found = tables.find(|table| u64::from(table.schema.table_id) == id)?;
        Some(found.schema.name.clone())
    };
    let kinds = shown.iter().map(|lock| Some(kind_name(lock.key.kind())));
    let modes = shown.iter().map(|lock| Some(lock.mode.to_string()));
    let sessions = shown.iter().map(|lock| lock.group.backend());
    let transactions = shown.iter().map(|lock| lock.owner.0.cast_signed());
    let granted: BooleanArray = shown.iter().map(|lock| Some(lock.is_granted)).collect();
    let blocked = shown.iter().map(|lock| blockers(locks, lock));
    let columns: [(&str, bool, ArrayRef); 7] = [
        ("kind", false, Arc::new(kinds.collect::<StringArray>())),
        ("table_name", true, Arc::new(shown.iter().map(name).collect::<StringArray>())),
        ("mode", false, Arc::new(modes.collect::<StringArray>())),
        ("granted", false, Arc::new(granted)),
        ("pid", false, Arc::new(Int32Array::from_iter_values(sessions))),
        ("transaction", false, Arc::new(Int64Array::from_iter_values(transactions))),
        ("blocked_by", true, Arc::new(blocked.collect::<StringArray>())),
    ];
    let columns = columns.into_iter().map(|(name, nullable, values)| (name, values, nullable));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// The numbers of the sessions that hold what `waiting` waits for; None: it does not wait.
fn blockers(locks: &[LockStatus], waiting: &LockStatus) -> Option<String> {
    if waiting.is_granted {
        return None;
    }
    let holds = |lock: &&LockStatus| {
        lock.is_granted && lock.key == waiting.key && lock.group != waiting.group
    };
    let holders = locks.iter().filter(holds).filter(|lock| lock.mode.conflicts_with(waiting.mode));
    let sessions: BTreeSet<i32> = holders.map(|lock| lock.group.backend()).collect();
    let numbers: Vec<String> = sessions.iter().map(i32::to_string).collect();
    Some(numbers.join(", "))
}

fn kind_name(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Table => "table",
        KeyKind::Row => "row",
        KeyKind::Key => "key",
        KeyKind::Transaction => "transaction",
        KeyKind::Advisory => "advisory",
        KeyKind::Entry => "entry",
    }
}
