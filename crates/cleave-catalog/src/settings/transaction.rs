//! Modes of transactions: the defaults for new ones, and those of the present one.

use std::fmt;

use cleave_media::{Clock, SystemClock};

use super::{ISOLATIONS, Isolation, Setting, Value, Values};

/// Start of a statement and of its transaction, in microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Began {
    /// The statement.
    pub statement_us: i64,
    /// The transaction.
    pub transaction_us: i64,
}

impl Began {
    /// For a statement without a transaction block, now.
    pub fn now() -> Self {
        let now_us = SystemClock.wall();
        Self { statement_us: now_us, transaction_us: now_us }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        })
    }
}

/// The modes of the present transaction that are settings, too.
pub const MODES: [&str; 3] =
    ["transaction_deferrable", "transaction_isolation", "transaction_read_only"];

const SWITCH: Values = Values::Words(&["on", "off"]);

fn switch(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

pub(super) const DEFAULT_DEFERRABLE: Setting = Setting {
    name: "default_transaction_deferrable",
    description: "Whether new serializable read-only transactions wait for a safe snapshot: on or off",
    values: SWITCH,
    get: |settings| switch(settings.default_transaction_deferrable),
    set: |settings, value| {
        settings.default_transaction_deferrable = matches!(value, Value::Word(0));
    },
};

pub(super) const DEFAULT_ISOLATION: Setting = Setting {
    name: "default_transaction_isolation",
    description: "Isolation level of new transactions: read committed, repeatable read or serializable",
    values: ISOLATIONS,
    get: |settings| settings.default_transaction_isolation.to_string(),
    set: |settings, value| settings.default_transaction_isolation = value.isolation(),
};

pub(super) const DEFAULT_READ_ONLY: Setting = Setting {
    name: "default_transaction_read_only",
    description: "Whether new transactions are read-only: on or off",
    values: SWITCH,
    get: |settings| switch(settings.default_transaction_read_only),
    set: |settings, value| {
        settings.default_transaction_read_only = matches!(value, Value::Word(0));
    },
};

// The session sets these, if there is a transaction.

pub(super) const DEFERRABLE: Setting = Setting {
    name: "transaction_deferrable",
    description: "Whether the current transaction waits for a safe snapshot, as set by SET TRANSACTION",
    values: SWITCH,
    get: |settings| {
        let present = settings.transaction.map(|present| present.deferrable);
        switch(present.unwrap_or(settings.default_transaction_deferrable))
    },
    set: |_, _| {},
};

pub(super) const ISOLATION: Setting = Setting {
    name: "transaction_isolation",
    description: "Isolation level of the current transaction, as set by SET TRANSACTION",
    values: ISOLATIONS,
    get: |settings| {
        let present = settings.transaction.map(|present| present.isolation);
        present.unwrap_or(settings.default_transaction_isolation).to_string()
    },
    set: |_, _| {},
};

pub(super) const READ_ONLY: Setting = Setting {
    name: "transaction_read_only",
    description: "Whether the current transaction is read-only, as set by SET TRANSACTION: on or off",
    values: SWITCH,
    get: |settings| {
        let present = settings.transaction.map(|present| present.read_only);
        switch(present.unwrap_or(settings.default_transaction_read_only))
    },
    set: |_, _| {},
};
