//! The limit on savepoints of a block: each holds a copy of the block's changes at that point.

use cleave_catalog::error::{Error, Fault, Result};

/// Savepoints that a block may have.
pub(super) const SAVEPOINT_COUNT_MAX: usize = 5000;

/// Fails if a block with `count` savepoints is at the limit.
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
