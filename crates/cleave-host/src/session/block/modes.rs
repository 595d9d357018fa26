//! Transaction modes: what BEGIN, SET TRANSACTION and settings say about isolation level, read-only and deferrable.

use cleave_catalog::error::{Fault, Result};
use cleave_catalog::settings::{Settings, TransactionModes};
use cleave_sql::statement::parse::{Modes, Scope};

use super::{Block, Session, begin, commit, open_block, rollback, state};
use crate::session::Outcome;

/// The modes of a transaction that begins now with the modes `modes` in its statement.
pub(super) fn modes_with(settings: &Settings, modes: Modes) -> TransactionModes {
    TransactionModes {
        isolation: modes.isolation.unwrap_or(settings.default_transaction_isolation),
        read_only: settings.client.only_reads.is_some()
            || modes.read_only.unwrap_or(settings.default_transaction_read_only),
        deferrable: modes.deferrable.unwrap_or(settings.default_transaction_deferrable),
    }
}

impl Block {
    /// Its modes.
    pub(super) fn modes(&self) -> TransactionModes {
        let Self { isolation, read_only, deferrable, .. } = *self;
        TransactionModes { isolation, read_only, deferrable }
    }

    /// Gives it these modes.
    pub(super) fn set_modes(&mut self, modes: TransactionModes) {
        let TransactionModes { isolation, read_only, deferrable } = modes;
        (self.isolation, self.read_only, self.deferrable) = (isolation, read_only, deferrable);
    }
}

/// Runs COMMIT AND CHAIN or ROLLBACK AND CHAIN: a block with the same modes follows, unless COMMIT fails.
pub(in crate::session) async fn chain(session: &mut Session, commits: bool) -> Result<Outcome> {
    let what = if commits { "COMMIT AND CHAIN" } else { "ROLLBACK AND CHAIN" };
    let block = open_block(&mut session.block, what)?;
    let TransactionModes { isolation, read_only, deferrable } = block.modes();
    let modes = Modes {
        isolation: Some(isolation),
        read_only: Some(read_only),
        deferrable: Some(deferrable),
    };
    let ended = if commits { commit(session).await? } else { rollback(session) };
    begin(session, modes)?;
    Ok(ended)
}

/// Runs SET TRANSACTION.
pub(in crate::session) fn set_transaction(session: &mut Session, modes: Modes) -> Result<Outcome> {
    let Some(block) = &mut session.block else {
        return Err(state(
            Fault::NoTransaction,
            "SET TRANSACTION can only be used in transaction blocks",
        ));
    };
    let refused = |message: &str| Err(state(Fault::ActiveTransaction, message));
    let is_within = block.savepoint_count() > 0;
    if let Some(isolation) = modes.isolation.filter(|isolation| *isolation != block.isolation) {
        if block.has_read {
            return refused("SET TRANSACTION ISOLATION LEVEL must be called before any query");
        }
        if is_within {
            return refused(
                "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction",
            );
        }
        block.isolation = isolation;
    }
    if block.read_only && modes.read_only == Some(false) {
        if is_within {
            return refused(
                "cannot set transaction read-write mode inside a read-only transaction",
            );
        }
        if block.has_read {
            return refused("transaction read-write mode must be set before any query");
        }
    }
    if modes.deferrable.is_some() {
        if is_within {
            return refused(
                "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction",
            );
        }
        if block.has_read && modes.deferrable != Some(block.deferrable) {
            return refused("SET TRANSACTION [NOT] DEFERRABLE must be called before any query");
        }
    }
    block.read_only =
        session.settings.client.only_reads.is_some() || modes.read_only.unwrap_or(block.read_only);
    block.deferrable = modes.deferrable.unwrap_or(block.deferrable);
    session.settings.transaction = Some(block.modes());
    Ok(Outcome::done("SET"))
}

/// Runs SET SESSION CHARACTERISTICS AS TRANSACTION.
pub(in crate::session) fn set_characteristics(
    session: &mut Session,
    modes: Modes,
) -> Result<Outcome> {
    session.change_settings(Scope::Session, |settings| {
        let known = settings.default_transaction_isolation;
        settings.default_transaction_isolation = modes.isolation.unwrap_or(known);
        let known = settings.default_transaction_read_only;
        settings.default_transaction_read_only = modes.read_only.unwrap_or(known);
        let known = settings.default_transaction_deferrable;
        settings.default_transaction_deferrable = modes.deferrable.unwrap_or(known);
        Ok(())
    })?;
    Ok(Outcome::done("SET"))
}

/// Runs `SET transaction_isolation` and the like, which outside of a block apply to the statement itself.
pub(in crate::session) fn set_mode(
    session: &mut Session,
    name: &str,
    value: Option<&str>,
) -> Result<Outcome> {
    let Some(value) = value else {
        let message = format!("parameter \"{name}\" cannot be reset");
        return Err(state(Fault::Statement, &message));
    };
    let mut settings = Settings::default();
    settings.set(&format!("default_{name}"), value)?;
    let modes = match name {
        "transaction_isolation" => {
            let isolation = Some(settings.default_transaction_isolation);
            Modes { isolation, ..Modes::default() }
        }
        "transaction_read_only" => {
            let read_only = Some(settings.default_transaction_read_only);
            Modes { read_only, ..Modes::default() }
        }
        _ => {
            let deferrable = Some(settings.default_transaction_deferrable);
            Modes { deferrable, ..Modes::default() }
        }
    };
    match session.block {
        Some(_) => set_transaction(session, modes),
        None => Ok(Outcome::done("SET")),
    }
}
