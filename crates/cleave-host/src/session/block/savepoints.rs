//! Savepoints of a block: SAVEPOINT, ROLLBACK TO and RELEASE. Each savepoint holds a copy of the block's changes at
//! that point, so their number is limited.

use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::settings::TransactionModes;
use cleave_txn::locks::LockMark;

use super::{Block, ByTable, Deferred, Defined, Outcome, Session, many, open_block, set};

/// Savepoints that a block may have.
const SAVEPOINT_COUNT_MAX: usize = 5000;

/// A savepoint: a copy of what a block had changed and locked, and its modes.
#[derive(Debug)]
pub(super) struct Savepoint {
    name: String,
    pub(super) changes: ByTable,
    defined: Defined,
    pub(super) deferred: Deferred,
    modes: TransactionModes,
    pub(super) mark: LockMark,
}

/// Runs SAVEPOINT.
pub(in crate::session) fn savepoint(session: &mut Session, name: &str) -> Result<Outcome> {
    let block = open_block(&mut session.block, "SAVEPOINT")?;
    check_room(block.savepoints.len())?;
    let (name, mark) = (name.to_owned(), block.locks.mark());
    let (changes, defined) = (block.changes.clone(), block.defined.clone());
    let (deferred, modes) = (block.deferred.clone(), block.modes());
    block.savepoints.push(Savepoint { name, changes, defined, deferred, modes, mark });
    many::charge_block(&session.database, &mut session.block)?;
    Ok(Outcome::done("SAVEPOINT"))
}

/// Runs ROLLBACK TO, also in a block that has failed.
pub(in crate::session) fn rollback_to(session: &mut Session, name: &str) -> Result<Outcome> {
    let block = open_block(&mut session.block, "ROLLBACK TO SAVEPOINT")?;
    let place = block.savepoint(name)?;
    block.savepoints.truncate(place + 1);
    if let Some(savepoint) = block.savepoints.last() {
        block.changes = savepoint.changes.clone();
        block.defined = savepoint.defined.clone();
        block.deferred = savepoint.deferred.clone();
        block.locks.release_to(savepoint.mark);
        let modes = savepoint.modes;
        block.set_modes(modes);
        session.settings.transaction = Some(modes);
    }
    block.own = None;
    block.failed = false;
    block.charge_less();
    session.cursors.undo_to(place);
    set::undo_settings_to_savepoint(session);
    Ok(Outcome::done("ROLLBACK"))
}

/// Runs RELEASE.
pub(in crate::session) fn release(session: &mut Session, name: &str) -> Result<Outcome> {
    let block = open_block(&mut session.block, "RELEASE SAVEPOINT")?;
    let place = block.savepoint(name)?;
    // What a savepoint made read-only is so no longer than the savepoint.
    let read_only = block.savepoints.get(place).map(|savepoint| savepoint.modes.read_only);
    block.savepoints.truncate(place);
    let modes = TransactionModes { read_only: read_only.unwrap_or_default(), ..block.modes() };
    block.set_modes(modes);
    block.settings.release(place);
    session.settings.transaction = Some(modes);
    session.cursors.release(place);
    Ok(Outcome::done("RELEASE"))
}

impl Block {
    /// The place of the latest savepoint of this name.
    fn savepoint(&self, name: &str) -> Result<usize> {
        let found = self.savepoints.iter().rposition(|known| known.name == name);
        found.ok_or_else(|| Error::Invalid {
            message: format!("savepoint \"{name}\" does not exist"),
            fault: Fault::Savepoint,
            position: None,
        })
    }
}

/// Fails if a block with `count` savepoints is at the limit.
///
/// # Errors
/// [`Fault::TooLong`].
fn check_room(count: usize) -> Result<()> {
    if count < SAVEPOINT_COUNT_MAX {
        return Ok(());
    }
    let message = format!(
        "a transaction has at most {SAVEPOINT_COUNT_MAX} savepoints at once; RELEASE those that are done"
    );
    Err(Error::Invalid { message, fault: Fault::TooLong, position: None })
}
