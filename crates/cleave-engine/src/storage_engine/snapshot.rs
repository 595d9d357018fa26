//! The snapshot path: what is committed in, a snapshot that one reader holds out. There is no other way to a snapshot.
//!
//! ```text
//!  committed: catalog + delta ─┬─ Newest ──────────▶ both, as they are               look-ups by key, small changes
//!                              ├─ Shipped ─────────▶ pages of the delta in memory    plans, if the delta is small
//!                              ├─ Flushed ─────────▶ … on devices                    other plans, definitions, ANALYZE
//!                              ├─ AsOf ────────────▶ an older version that is kept   statements under as_of
//!                              └─ any + own changes ▶ … in memory, or on pages of    a block that has changed rows
//!                                                     one transaction
//! ```
//!
//! - *Newest* is [`Engine::live`], which waits for nothing and copies nothing; [`Engine::catalog`] is its catalog
//!   version alone, for callers that need definitions and no rows.
//! - *Flushed*, *Shipped* and *AsOf* are the kinds of [`Engine::snapshot`]: a catalog version in whose pages all rows
//!   are, so that plans and fragments need not know of a delta.
//! - [`KeptSnapshot`] is one moment in two forms: as look-ups by key read it, catalog and delta, and as plans read it,
//!   shipped or flushed. A block of REPEATABLE READ or SERIALIZABLE keeps that of its first statement.
//! - *Own changes* are put over any of them by [`Engine::with_own_changes`], for the transaction that made them.
//!
//! The pages of a snapshot are not used again while somebody holds it ([`Engine::reclaim`]).
//!
//! Invariants: a snapshot that is shipped, older or has own changes is only read, and no commit is built on it. Source:
//! `docs/design/versions-and-commit.md` and `docs/design/delta-and-snapshots.md`, rule 21.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, PoisonError};

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use futures::future::{Either, select};

use super::Engine;
use super::catalog_edit::CatalogEdit;
use crate::delta::shipped::{byte_count, with_changes};
use crate::delta::{Delta, Live, Moment};
use crate::write::insert::{TableChange, apply, flush};

/// Which snapshot a reader wants. See the module's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotKind<'a> {
    /// The newest, with all that is committed by now in pages of devices.
    Flushed,
    /// The same for a reader that builds nothing on it: rows that take at most so many bytes in memory are not written
    /// to devices, but [shipped](crate::delta::shipped) with the catalog version.
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
            SnapshotKind::Shipped { bytes_max } => {
                self.snapshot_to_keep(bytes_max).await?.state(self)
            }
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

    /// The newest moment, to be read more than once. Rows of the delta stay where they are while they take at most
    /// `bytes_max` bytes in memory, and are flushed beyond that; 0: always.
    ///
    /// # Errors
    /// Those of the device, where there was something to write.
    pub async fn snapshot_to_keep(self: &Arc<Self>, bytes_max: u64) -> Result<KeptSnapshot> {
        let live = self.live();
        let delta_bytes = if live.number == 0 { 0 } else { live.delta.byte_count() };
        let is_small = live.number == 0 || bytes_max > 0 && delta_bytes <= bytes_max;
        // The table of an offline device is to be blocked, and the committing session to be told.
        match is_small && self.is_whole(&live.state) {
            true if live.number == 0 => Ok(KeptSnapshot::flushed(live.state)),
            true => Ok(KeptSnapshot { live, delta_bytes, planned: OnceLock::new() }),
            false => Ok(KeptSnapshot::flushed(self.newest_flushed().await?)),
        }
    }

    /// `kept` with its delta on pages of devices that nothing else names, for a transaction that builds on it, and
    /// whose look-ups by key read the catalog version alone.
    ///
    /// # Errors
    /// Those of the device; [`StorageError::Stopped`](cleave_catalog::storage_error::StorageError::Stopped).
    pub async fn with_delta_written(
        self: &Arc<Self>,
        kept: &KeptSnapshot,
        settings: &Arc<Settings>,
    ) -> Result<KeptSnapshot> {
        let live = &kept.live;
        let mut edit = CatalogEdit::private(self, Arc::clone(&live.state))?;
        edit.next.commit = live.state.commit + live.number;
        edit.next.log_end = live.log_end;
        for delta in live.delta.contents(live.number)? {
            let id = delta.change.schema.table_id;
            if live.state.tables().any(|table| table.schema.table_id == id) {
                edit = flush(edit, settings, delta).await?;
            }
        }
        Ok(KeptSnapshot::flushed(edit.into_private()))
    }

    /// `base` with `changes`, for the transaction that has made them: on pages in memory, where they take at most
    /// `bytes_max` bytes there, and otherwise on pages of devices that nothing else names, and which are free again
    /// once it is dropped. In the second case nothing of `base` is [shipped](SnapshotKind::Shipped).
    ///
    /// # Errors
    /// As [`apply`]; [`StorageError::Stopped`](cleave_catalog::storage_error::StorageError::Stopped).
    pub async fn with_own_changes(
        self: &Arc<Self>,
        base: &Arc<CatalogState>,
        changes: &[&TableChange],
        settings: &Arc<Settings>,
        bytes_max: u64,
    ) -> Result<Arc<CatalogState>> {
        if bytes_max > 0 && byte_count(changes) <= bytes_max {
            self.activity().note(Act::ShippedOwn);
            return with_changes(base, changes);
        }
        debug_assert!(base.shipped.is_empty(), "keys of shipped rows are in no index");
        let mut edit = CatalogEdit::private(self, Arc::clone(base))?;
        for change in changes {
            edit = apply(edit, settings, change).await?;
        }
        Ok(edit.into_private())
    }

    /// See [`SnapshotKind::Flushed`].
    async fn newest_flushed(self: &Arc<Self>) -> Result<Arc<CatalogState>> {
        self.retry_blocked(&BTreeSet::new()).await;
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
}

/// One moment, which may be kept: what look-ups by key read, and what plans read.
#[derive(Debug)]
pub struct KeptSnapshot {
    live: Live,
    /// Bytes that its delta took in memory when it was taken; others may have added to it since.
    delta_bytes: u64,
    /// What plans read, where rows are shipped, once one has asked.
    planned: OnceLock<Arc<CatalogState>>,
}

impl KeptSnapshot {
    /// All of it is in pages of `state`, and its keys in indexes.
    pub fn flushed(state: Arc<CatalogState>) -> Self {
        Self { live: Live::flushed(state), delta_bytes: 0, planned: OnceLock::new() }
    }

    /// As look-ups by key read it.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Its delta, if that has rows that are in no page.
    pub fn delta(&self) -> Option<&Delta> {
        (self.live.number > 0).then_some(&*self.live.delta)
    }

    /// Whether it has no such rows, or plans may be sent so many bytes of them.
    pub fn ships_within(&self, bytes_max: u64) -> bool {
        self.delta().is_none() || bytes_max > 0 && self.delta_bytes <= bytes_max
    }

    /// As plans read it.
    ///
    /// # Errors
    /// None that a statement is to blame for.
    pub fn state(&self, database: &Engine) -> Result<Arc<CatalogState>> {
        if self.delta().is_none() {
            return Ok(Arc::clone(&self.live.state));
        }
        database.activity().note(Act::ShippedDelta);
        if let Some(state) = self.planned.get() {
            return Ok(Arc::clone(state));
        }
        let is_newest = || Moment::of(&self.live).is_of(&database.live());
        let state = database.last_shipped.state(&self.live, is_newest)?;
        Ok(Arc::clone(self.planned.get_or_init(|| state)))
    }
}
