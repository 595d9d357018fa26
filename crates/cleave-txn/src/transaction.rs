//! Transaction ids, for the log and for owners of locks.

use std::fmt;

/// A transaction of a database, from 1; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransactionId(pub u64);

impl TransactionId {
    /// No transaction.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for TransactionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "transaction {}", self.0)
    }
}
