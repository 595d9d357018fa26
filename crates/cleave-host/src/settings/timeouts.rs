//! How long a session may do nothing, and a transaction last: a server ends what takes longer.

use super::{Setting, Values};

/// In milliseconds; 0: for ever.
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

pub(super) const TRANSACTION: Setting = Setting {
    name: "transaction_timeout",
    description: "Milliseconds after which a server ends a session whose transaction is not over; 0: never",
    values: MILLISECONDS,
    get: |settings| settings.timeouts.transaction_ms.to_string(),
    set: |settings, value| settings.timeouts.transaction_ms = value.number_u32(),
};
