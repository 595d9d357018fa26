//! The setting that says how update fragments keep others from the rows that they change.

use std::fmt;

use super::{Setting, Value, Values};

/// What an update fragment locks. Source: Update NDP, sections 5 and 8 (experiment 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdateLocking {
    /// Each row, in the lock table that host and device share.
    #[default]
    Shared,
    /// The whole table, before the fragment begins.
    Table,
    /// Each row, once the fragment has ended: where another transaction has changed or locked one of them meanwhile,
    /// the statement starts again.
    Optimistic,
}

/// `update_locking`.
pub(super) const UPDATE_LOCKING: Setting = Setting {
    name: "update_locking",
    description: "What update fragments lock: rows as they are read (shared), the table (table) or rows at the end \
                  (optimistic)",
    values: Values::Words(&["shared", "table", "optimistic"]),
    get: |settings| settings.update_locking.to_string(),
    set: |settings, value| {
        settings.update_locking = match value {
            Value::Word(1) => UpdateLocking::Table,
            Value::Word(2) => UpdateLocking::Optimistic,
            _ => UpdateLocking::Shared,
        }
    },
};

impl fmt::Display for UpdateLocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared",
            Self::Table => "table",
            Self::Optimistic => "optimistic",
        })
    }
}
