//! How many savepoints a block may have: each has a copy of what the block had changed by then.

use cleave_catalog::error::{Error, Fault, Result};

/// Savepoints that a block may have.
pub(super) const SAVEPOINT_COUNT_MAX: usize = 5000;

/// Fails if a block with `count` savepoints may have no more.
///
/// # Errors
/// [`Fault::TooLong`].
pub(super) fn check_room(count: usize) -> Result<()> {
    if count < SAVEPOINT_COUNT_MAX {
        return Ok(());
    }
    let message = format!(
        "a transaction has at most {SAVEPOINT_COUNT_MAX} savepoints at once; RELEASE those that are done"
    );
    Err(Error::Invalid { message, fault: Fault::TooLong, position: None })
}
