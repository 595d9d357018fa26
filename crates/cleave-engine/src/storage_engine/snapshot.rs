//! The snapshot path: what is committed in, a snapshot that one reader holds out. There is no other way to a snapshot.
//!
//! ```text
//!  committed: catalog + delta ─┬─ Newest ──────────▶ both, as they are               look-ups by key, small changes
//!                              ├─ Flushed ─────────▶ pages of the delta are written  plans that build on it, ANALYZE
//!                              ├─ Shipped ─────────▶ … are in memory, if few         plans that only read
//!                              ├─ AsOf ────────────▶ an older version that is kept   statements under as_of
//!                              └─ any + own changes ▶ … on pages of one transaction  a block that has changed rows
//! ```
//!
//! - *Newest* is [`Engine::live`], which waits for nothing and copies nothing; [`Engine::catalog`] is its catalog
//!   version alone, for callers that need definitions and no rows.
//! - *Flushed*, *Shipped* and *AsOf* are the kinds of [`Engine::snapshot`]: a catalog version in whose pages all rows
//!   are, so that plans and fragments need not know of a delta. A block of REPEATABLE READ or SERIALIZABLE keeps the
//!   one of its first statement.
//! - *Own changes* are put over any of them by [`Engine::with_own_changes`], for the transaction that made them.
//!
//! The pages of a snapshot are not used again while somebody holds it ([`Engine::reclaim`]).
//!
//! Invariants: a snapshot that is shipped, older or has own changes is only read, and no commit is built on it. Source:
//! `docs/design/versions-and-commit.md` and `docs/design/delta-and-snapshots.md`, rule 21.

use std::sync::{Arc, PoisonError};

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use futures::future::{Either, select};

use super::Engine;
use super::catalog_edit::CatalogEdit;
use crate::delta::Live;
use crate::write::insert::{TableChange, apply};

/// Which snapshot a reader wants. See the module's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotKind<'a> {
    /// The newest, with all that is committed by now in pages of devices.
    Flushed,
    /// The same for a statement that only reads: rows that take at most so many bytes in memory are not written to
    /// devices, but [shipped](crate::delta::shipped) with the catalog version.
    Shipped {
        /// 0: never.
        bytes_max: u64,
    },
    /// The version that held at a time, a `timestamp with time zone`.
    AsOf(&'a str),
}

impl Engine {
    /// A catalog version in whose pages all rows are.
    ///
    /// # Errors
    /// Those of the device, where there was something to write;
    /// [`Error::Invalid`](cleave_catalog::error::Error::Invalid) (22023) for a time that is not kept, or not a time.
    pub async fn snapshot(self: &Arc<Self>, kind: SnapshotKind<'_>) -> Result<Arc<CatalogState>> {
        match kind {
            SnapshotKind::Flushed => self.newest_flushed().await,
            SnapshotKind::Shipped { bytes_max } => self.newest_shipped(bytes_max).await,
            SnapshotKind::AsOf(time) => {
                // It is kept, too, from the last commit on.
                let newest = self.newest_flushed().await?;
                self.versions.as_of(&newest, time)
            }
        }
    }

    /// All that is committed.
    pub fn live(&self) -> Live {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The present tables, and their pages, in which the last small commits may not be yet. Hold it for as long as
    /// pages that it names are read.
    pub fn catalog(&self) -> Arc<CatalogState> {
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner).state)
    }

    /// `base` with `changes`, for the transaction that has made them: on pages that nothing else names, and which are
    /// free again once it is dropped.
    ///
    /// # Errors
    /// As [`apply`]; [`StorageError::Stopped`](cleave_catalog::storage_error::StorageError::Stopped).
    pub async fn with_own_changes(
        self: &Arc<Self>,
        base: &Arc<CatalogState>,
        changes: &[&TableChange],
        settings: &Arc<Settings>,
    ) -> Result<Arc<CatalogState>> {
        let mut edit = CatalogEdit::private(self, Arc::clone(base))?;
        for change in changes {
            edit = apply(edit, settings, change).await?;
        }
        Ok(edit.into_private())
    }

    /// See [`SnapshotKind::Flushed`].
    async fn newest_flushed(self: &Arc<Self>) -> Result<Arc<CatalogState>> {
        self.retry_blocked("").await;
        let mut wanted = None;
        loop {
            let told = self.flushed.notified();
            let live = self.live();
            let wanted = *wanted.get_or_insert(live.state.commit + live.number);
            if live.delta.is_flushed() || live.state.commit >= wanted {
                return Ok(live.state);
            }
            // A large write that has the writer lock has flushed first, and is not waited for; nor is a flush for
            // others.
            let flushing = Box::pin(self.flush_now());
            match select(std::pin::pin!(told), flushing).await {
                Either::Left(_) => {}
                Either::Right((flushed, _)) => flushed?,
            }
        }
    }

    /// See [`SnapshotKind::Shipped`].
    async fn newest_shipped(self: &Arc<Self>, bytes_max: u64) -> Result<Arc<CatalogState>> {
        let live = self.live();
        let is_small = bytes_max > 0 && live.delta.is_within(bytes_max);
        // The table of an offline device is to be blocked, and the committing session to be told.
        if live.delta.is_flushed() || !is_small || !self.is_whole(&live.state) {
            return self.newest_flushed().await;
        }
        self.activity().note(Act::ShippedDelta);
        self.last_shipped.state(&live)
    }
}
