//! How long a session may do nothing, a statement and its waits for locks may take, and a transaction may last.

use super::{Setting, Values};

/// What a server ends that takes longer, in milliseconds; 0: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Timeouts {
    /// `idle_in_transaction_session_timeout`: without a statement, in a transaction block.
    pub idle_in_transaction_ms: u32,
    /// `idle_session_timeout`: without a statement, outside of one.
    pub idle_ms: u32,
    /// `transaction_timeout`: from the first statement of a transaction to its end.
    pub transaction_ms: u32,
}

const MILLISECONDS: Values = Values::Number(0, 2_147_483_647);

pub(super) const IDLE_IN_TRANSACTION: Setting = Setting {
    name: "idle_in_transaction_session_timeout",
    description: "Milliseconds after which a server ends a session that has a transaction open and does nothing; 0: never",
    values: MILLISECONDS,
    get: |settings| settings.timeouts.idle_in_transaction_ms.to_string(),
    set: |settings, value| settings.timeouts.idle_in_transaction_ms = value.number_u32(),
};

pub(super) const IDLE: Setting = Setting {
    name: "idle_session_timeout",
    description: "Milliseconds after which a server ends a session that has no transaction open and does nothing; 0: as \
                  the server's --idle-timeout says",
    values: MILLISECONDS,
    get: |settings| settings.timeouts.idle_ms.to_string(),
    set: |settings, value| settings.timeouts.idle_ms = value.number_u32(),
};

pub(super) const LOCK: Setting = Setting {
    name: "lock_timeout",
    description: "Milliseconds that a statement waits for a lock that another transaction holds; 0: without end",
    values: MILLISECONDS,
    get: |settings| settings.lock_timeout_ms.to_string(),
    set: |settings, value| settings.lock_timeout_ms = value.number(),
};

pub(super) const STATEMENT: Setting = Setting {
    name: "statement_timeout",
    description: "Milliseconds after which a statement is ended; 0: never",
    values: MILLISECONDS,
    get: |settings| settings.statement_timeout_ms.to_string(),
    set: |settings, value| settings.statement_timeout_ms = value.number_u32(),
};

pub(super) const TRANSACTION: Setting = Setting {
    name: "transaction_timeout",
    description: "Milliseconds after which a server ends a session whose transaction is not over; 0: never",
    values: MILLISECONDS,
    get: |settings| settings.timeouts.transaction_ms.to_string(),
    set: |settings, value| settings.timeouts.transaction_ms = value.number_u32(),
};
