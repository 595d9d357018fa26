//! The last step of a commit: makes it visible to new statements.
//!
//! Invariant: runs under the writer lock, and is called only by the modules beside this one.

use std::sync::{Arc, PoisonError};

use cleave_catalog::catalog::CatalogState;
use tokio::sync::OwnedMutexGuard;

use super::Engine;
use crate::delta::Live;
use crate::storage_engine::catalog_edit::{CatalogEdit, Kind, retired};

impl Engine {
    /// Makes small commits, whose changes are in the delta, what new statements see: all up to `number`.
    pub(super) fn publish_small(&self, number: u64, log_end: u64) {
        {
            let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
            live.number = number;
            live.log_end = log_end;
            self.versions.note_commit();
        }
        self.last_shipped.forget();
    }

    /// Publishes a catalog version, with the commits behind it.
    pub(super) fn publish(&self, live: Live) {
        self.note_published(&live.state);
        let before = {
            let mut now = self.live.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, live)
        };
        self.last_shipped.forget();
        self.flushed.notify_waiters();
        // Drops a whole delta where nobody waits for it.
        drop(before);
    }
}

/// Publishes the catalog version of `edit`, though no manifest has it: the log has what is in it. `number` commits are
/// behind it in its delta, all of which the log has up to `log_end`. Gives the writer lock back, if `edit` has it.
pub(super) fn edit(
    mut edit: CatalogEdit,
    number: u64,
    log_end: u64,
) -> (Arc<CatalogState>, Option<OwnedMutexGuard<()>>) {
    hand_over(&mut edit);
    let CatalogEdit { database, base, next, delta, kind, .. } = edit;
    let retired = retired(&base, &next);
    let state = Arc::new(next);
    database.publish(Live { state: Arc::clone(&state), delta, number, log_end });
    for (device, extents) in retired {
        if let Some(device) = database.device(device) {
            device.retire(state.generation, extents);
        }
    }
    database.keep_version(&state);
    database.note_logged();
    match kind {
        Kind::Published { lock } => (state, Some(lock)),
        Kind::Unlocked | Kind::Private | Kind::Kept => (state, None),
    }
}

/// Moves the space that `edit` has taken to the catalog version, and its keys to memtables.
pub(super) fn hand_over(edit: &mut CatalogEdit) {
    edit.claims.values().for_each(|claim| claim.commit());
    edit.kept.iter().for_each(|(claim, named)| claim.commit_named(named));
    for keys in std::mem::take(&mut edit.keys) {
        keys.publish();
    }
}
