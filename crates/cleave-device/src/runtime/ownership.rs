//! Ownership of the device: claims, and the check that every command passes.
//!
//! 1. A claim ends the commands and runs of older epochs, records the new owner durably, and only then is answered. It
//!    names the incarnation that it follows, so of two hosts that claim at once one succeeds.
//! 2. Every other command enters: its header must name the owner's database, epoch and incarnation. While it works it
//!    holds the ownership, so that a claim waits for it.
//! 3. A reader without a claim belongs to no incarnation, and its header says so with epoch 0. It may read the blocks
//!    of the database at any time, also while another host has it open: a reader verifies what it gets by its own
//!    manifest.
//!
//! Copied folders of one database count the same epochs. The incarnation tells them apart: an epoch belongs to the
//! incarnation that claimed it first, and no command of another one is served in it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cleave_fragment::command::{
    CommandHeader, DeviceError, DeviceErrorCause, LOOKING_EPOCH, Ownership, Reply,
};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use super::{Runtime, refused};
use crate::grants::Grants;
use crate::reservations::Reservations;

/// The database that owns the device.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) ownership: Ownership,
    reservations: Mutex<Reservations>,
    grants: Mutex<Grants>,
}

/// Held by a command while it works.
pub(super) type Entry = OwnedRwLockReadGuard<Option<Owner>>;

impl Owner {
    /// An owner without reservations and grants.
    pub(super) fn new(ownership: Ownership) -> Self {
        let grants = Mutex::new(Grants::of(ownership));
        Self { ownership, reservations: Mutex::default(), grants }
    }

    pub(super) fn lock_reservations(&self) -> MutexGuard<'_, Reservations> {
        self.reservations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// Admits a command of the owner with `header`.
    pub(super) async fn enter(&self, header: &CommandHeader) -> Result<Entry, DeviceError> {
        check_database(header)?;
        let owner = Arc::clone(&self.owner).read_owned().await;
        match owner.as_ref() {
            Some(current) => check_owner(&current.ownership, header)?,
            None => return Err(not_claimed("nobody's".to_owned(), header)),
        }
        Ok(owner)
    }

    /// Admits a command that changes nothing: of the owner, or of a reader.
    pub(super) async fn enter_to_read(&self, header: &CommandHeader) -> Result<Entry, DeviceError> {
        if header.epoch != LOOKING_EPOCH {
            return self.enter(header).await;
        }
        check_database(header)?;
        let owner = Arc::clone(&self.owner).read_owned().await;
        match owner.as_ref().map(|owner| owner.ownership) {
            Some(current) if current.database != header.database => {
                Err(other_database(&current, &header.database))
            }
            _ => Ok(owner),
        }
    }

    /// Makes `header`'s incarnation the owner.
    pub(super) async fn claim(
        &self,
        header: &CommandHeader,
        after: u64,
    ) -> Result<Reply, DeviceError> {
        check_database(header)?;
        if header.incarnation == 0 || header.epoch == LOOKING_EPOCH {
            return Err(refused(
                "a claim needs an incarnation and an epoch other than 0".to_owned(),
            ));
        }
        let claimed = header.ownership();
        let owner = Arc::clone(&self.owner).write_owned().await;
        let current = owner.as_ref().map(|owner| owner.ownership);
        if current == Some(claimed) {
            return Ok(Reply::Done);
        }
        if let Some(current) = &current {
            check_succession(current, &claimed, after)?;
        }
        self.end_all_runs(&superseded(claimed.epoch, None)).await;
        self.hand_to(owner, Some(claimed)).await
    }

    /// Removes the owner of the device, if it is `header`'s incarnation.
    pub(super) async fn give_up(&self, header: &CommandHeader) -> Result<Reply, DeviceError> {
        check_database(header)?;
        let owner = Arc::clone(&self.owner).write_owned().await;
        let Some(current) = owner.as_ref() else { return Ok(Reply::Done) };
        check_owner(&current.ownership, header)?;
        let message = "the database gave the device up";
        self.end_all_runs(&DeviceError::new(DeviceErrorCause::Cancelled, message)).await;
        self.hand_to(owner, None).await
    }

    /// Ends every run for the reason `why` and waits until each has stopped. The caller holds the ownership
    /// exclusively, so that no command is under way. A run stays on its list until then, because the caller may be
    /// cancelled while this waits.
    async fn end_all_runs(&self, why: &DeviceError) {
        let mut runs: Vec<_> = self.lock_runs().values().map(Arc::clone).collect();
        runs.extend(self.lock_ending().iter().filter_map(Weak::upgrade));
        for run in &runs {
            run.cancel_because(why.clone());
        }
        for run in &runs {
            run.stand_still().await;
            run.let_go();
            self.forget_run(run);
        }
    }

    /// Makes `next` the owner, on media and then in memory. Both are done or neither is begun, even if the caller is
    /// cancelled: a record without effect in memory would admit an incarnation that is over.
    async fn hand_to(
        &self,
        mut owner: OwnedRwLockWriteGuard<Option<Owner>>,
        next: Option<Ownership>,
    ) -> Result<Reply, DeviceError> {
        let (record, history) = (self.options.owner.clone(), Arc::clone(&self.history));
        let engine = self.engine.clone();
        self.on_io_thread(move |_| {
            let of = |owner: Option<&Ownership>| owner.map(|owner| owner.database);
            if of(owner.as_ref().map(|owner| &owner.ownership)) != of(next.as_ref()) {
                // It knows pages of another database.
                history.clear();
            }
            record
                .replace(next)
                .map_err(|error| DeviceError::new(DeviceErrorCause::Io, error.to_string()))?;
            *owner = next.map(Owner::new);
            engine.serve(next);
            Ok(Reply::Done)
        })
        .await
    }
}

/// Whether `claimed` may follow `current`, if its host had seen `after`.
fn check_succession(
    current: &Ownership,
    claimed: &Ownership,
    after: u64,
) -> Result<(), DeviceError> {
    if current.database != claimed.database {
        return Err(other_database(current, &claimed.database));
    }
    if claimed.epoch < current.epoch {
        return Err(superseded(current.epoch, Some(claimed.epoch)));
    }
    if claimed.epoch == current.epoch || current.incarnation != after {
        let message = format!(
            "a copy of the database, or a newer incarnation, claimed the device in epoch {} before this \
             one did in epoch {}",
            current.epoch, claimed.epoch,
        );
        return Err(DeviceError::new(DeviceErrorCause::StaleEpoch, message));
    }
    Ok(())
}

fn check_database(header: &CommandHeader) -> Result<(), DeviceError> {
    if header.database == [0; 16] {
        return Err(refused("this command needs a database, and its header names none".to_owned()));
    }
    Ok(())
}

fn check_owner(current: &Ownership, header: &CommandHeader) -> Result<(), DeviceError> {
    if current.database != header.database {
        return Err(other_database(current, &header.database));
    }
    if header.epoch < current.epoch {
        return Err(superseded(current.epoch, Some(header.epoch)));
    }
    if header.epoch > current.epoch {
        return Err(not_claimed(format!("in epoch {}", current.epoch), header));
    }
    if header.incarnation != current.incarnation {
        let message = format!(
            "a copy of the database, or another incarnation of it, has the device, which it claimed in the \
             same epoch {}",
            current.epoch
        );
        return Err(DeviceError::new(DeviceErrorCause::StaleEpoch, message));
    }
    Ok(())
}

fn superseded(current: u64, asked: Option<u64>) -> DeviceError {
    let asked = asked.filter(|asked| *asked != current);
    let over = asked.map_or_else(String::new, |asked| format!("epoch {asked} is over, "));
    let message =
        format!("the database was opened again elsewhere: {over}the device is in {current}");
    DeviceError::new(DeviceErrorCause::StaleEpoch, message)
}

fn other_database(current: &Ownership, asked: &[u8; 16]) -> DeviceError {
    let message = format!(
        "the device serves database {}, and this is {}; attach another device, or start this one \
         with --hand-over, which gives up what it holds",
        hex(&current.database),
        hex(asked),
    );
    DeviceError::new(DeviceErrorCause::OtherDatabase, message)
}

fn not_claimed(state: String, header: &CommandHeader) -> DeviceError {
    let message = format!("the device is {state}, and epoch {} has not claimed it", header.epoch);
    DeviceError::new(DeviceErrorCause::NotClaimed, message)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
