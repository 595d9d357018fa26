//! Where statements may stand in a transaction: refuses a misplaced statement before it does anything.
//!
//! [`Statement::properties`](cleave_sql::statement::Statement::properties) says where a statement may stand. Two cases
//! are checked elsewhere: a block that has failed refuses every statement as it begins (`begin_statement`), and a
//! statement that needs an explicit block checks that when it takes it (`open_block`).

use cleave_catalog::error::{Error, Fault, Result};
use cleave_sql::statement::properties::{Effect, Place, Properties};

use super::{Session, block};

/// Refuses a statement that may not stand at the session's present place.
///
/// # Errors
/// [`Fault::NoTransaction`] or [`Fault::ActiveTransaction`]; for a statement that commits by itself in a read-only
/// transaction, and for one that changes anything in a session that only reads, [`Fault::ReadOnlyTransaction`].
pub(super) fn check_place(session: &Session, statement: &Properties<'_>) -> Result<()> {
    if statement.effect == Effect::Changes {
        session.settings().client.check_may_change(statement.name)?;
    }
    let is_in_block = session.block.is_some();
    match statement.place {
        Place::InBlock if !is_in_block => {
            let message = format!("{} can only be used in transaction blocks", statement.name);
            Err(Error::Invalid { message, fault: Fault::NoTransaction, position: None })
        }
        Place::Outside => block::check_outside_block(session, statement.name),
        Place::OutsideReading if is_in_block => block::check_outside_block(session, statement.name),
        _ => Ok(()),
    }
}
