//! Transaction blocks in the protocol: the status of the [`Session`](cleave_host::Session), which owns them, becomes
//! messages.

use cleave_host::TransactionStatus;
use cleave_host::statement::Statement;
use cleave_host::statement::parse::Scope;
use cleave_host::statement::properties::Place;

use super::complaint::{Complaint, Severity};
use super::reply::BlockState;

/// The status in ReadyForQuery.
pub(crate) fn state(status: TransactionStatus) -> BlockState {
    match status {
        TransactionStatus::Idle => BlockState::Idle,
        TransactionStatus::Open => BlockState::Open,
        TransactionStatus::Failed => BlockState::Failed,
    }
}

/// A warning before `statement` runs: it begins a block within one, or ends none.
pub(crate) fn warning(statement: &Statement, status: TransactionStatus) -> Option<Complaint> {
    let (sqlstate, message) = match (statement.properties().place, status) {
        (Place::Begins, TransactionStatus::Open) => {
            ("25001", "there is already a transaction in progress")
        }
        (Place::Ends, TransactionStatus::Idle) => ("25P01", "there is no transaction in progress"),
        (_, TransactionStatus::Idle)
            if matches!(statement, Statement::Set { scope: Scope::Transaction, .. }) =>
        {
            ("25P01", "SET LOCAL can only be used in transaction blocks")
        }
        _ => return None,
    };
    Some(Complaint::new(Severity::Warning, sqlstate, message))
}

/// Whether `statement` begins or ends a block, and so cannot share a transaction with others.
pub(crate) fn is_border(statement: &Statement) -> bool {
    statement.properties().place.is_border()
}

/// Checks that a statement other than the end of a block may be prepared.
///
/// # Errors
/// The error for the client.
pub(crate) fn admit(status: TransactionStatus) -> Result<(), Complaint> {
    match status {
        TransactionStatus::Idle | TransactionStatus::Open => Ok(()),
        TransactionStatus::Failed => Err(Complaint::error(
            "25P02",
            "current transaction is aborted, commands ignored until end of transaction block",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_begun_twice_or_ended_unbegun_are_told_of() {
        let statement =
            |sql| cleave_host::statement::parse_script(sql).unwrap().remove(0).statement;
        let (begin, commit) = (statement("BEGIN"), statement("COMMIT"));
        let told = |statement, status| warning(statement, status).map(|told| told.sqlstate);
        assert_eq!(told(&begin, TransactionStatus::Idle), None);
        assert_eq!(told(&begin, TransactionStatus::Open).as_deref(), Some("25001"));
        assert_eq!(told(&commit, TransactionStatus::Idle).as_deref(), Some("25P01"));
        assert_eq!(told(&commit, TransactionStatus::Failed), None);
        assert_eq!(admit(TransactionStatus::Failed).unwrap_err().sqlstate, "25P02");
    }
}
