//! Where statements may stand in a transaction: refuses those that stand elsewhere before they do anything.
//!
//! What [`Statement::properties`](cleave_sql::statement::Statement::properties) says of a statement holds here, but for
//! two kinds of places: a block that has failed refuses all before they begin (`begin_statement`), and what needs a
//! block that BEGIN has begun asks when it takes it (`open_block`).

use cleave_catalog::error::{Error, Fault, Result};
use cleave_sql::statement::properties::{Place, Properties};

use super::{Session, block};

/// Refuses a statement that may not stand where the session is.
///
/// # Errors
/// [`Fault::NoTransaction`] or [`Fault::ActiveTransaction`]; and of one that commits by itself where one may only read,
/// [`Fault::ReadOnlyTransaction`].
pub(super) fn check_place(session: &Session, statement: &Properties<'_>) -> Result<()> {
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
