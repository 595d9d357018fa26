//! The interface of log archive and log replicas: the engine tells a [`LogKeeper`] of each commit that replaces the
//! manifest, in this order, and of nothing else that it does:
//!
//! ```text
//!  copy_rows or copy_changes ─▶ prepare_manifest ─▶ (manifest replaced) ─▶ manifest_replaced
//!    ─▶ (published) ─▶ log_commit ─▶ first_needed ─▶ (log truncated) ─▶ log_truncated ─▶ reach or follow
//! ```
//!
//! A small commit, which the log has, asks it to [`reach`](LogKeeper::reach) before the commit is acknowledged. One of
//! page versions says before its record what that [names](LogKeeper::log_pages).
//!
//! Invariant: nothing is acknowledged before `reach` has returned. Source: `docs/design/replica.md`.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use cleave_catalog::catalog::{CatalogState, DeviceId};
use cleave_catalog::error::Result;
use cleave_media::Extent;
use cleave_store::{PageRef, SegmentRef};
use cleave_txn::{LogError, Wal};

use super::Engine;
use crate::delta::Live;
use crate::device::Device;
use crate::storage_engine::catalog_edit::{CatalogEdit, Logged};
use crate::write::insert::TableChange;

/// See the module's description.
#[async_trait]
pub trait LogKeeper: fmt::Debug + Send + Sync {
    /// Recovery has found `state` in the manifest. No commit is made yet.
    ///
    /// # Errors
    /// [`Error::UnknownName`](cleave_catalog::error::Error::UnknownName) where `state` names a device that is not
    /// attached.
    fn open(&self, engine: &Engine, state: &Arc<CatalogState>) -> Result<()>;

    /// Recovery has read the log, to which commits are appended from now on.
    fn start_log(&self, log: &Wal, state: &CatalogState);

    /// The start is done but for this.
    async fn start(&self, engine: &Arc<Engine>);

    /// Whether a replica must have what is committed, beside this host.
    fn is_on(&self) -> bool;

    /// A record is about to name `pages`, which are durable and in no manifest. It is redone behind the manifest of
    /// `durable` or a later one; until the replicas have one that is later, the pages stay as they are.
    fn log_pages(&self, durable: &CatalogState, pages: &[LoggedPage]);

    /// Whether the contents of pages that a record names are to be [copied](LogKeeper::copy_pages).
    fn copies_pages(&self, state: &CatalogState) -> bool;

    /// The log has a record with `record`'s pages, which are durable on their devices: copies them, and returns at
    /// once. `is_awaited`: commits behind it are acknowledged when the copy is whole.
    fn copy_pages(&self, engine: &Arc<Engine>, record: RecordPages, is_awaited: bool);

    /// Whether commits up to `end` wait for a copy of pages.
    fn awaits_pages(&self, end: u64) -> bool;

    /// Waits for the copies of all records before `end`; those for which commits wait, unless `all`.
    ///
    /// # Errors
    /// [`StorageError::Stopped`](cleave_catalog::storage_error::StorageError::Stopped) where one for which commits wait
    /// has failed.
    async fn pages_copied(&self, engine: &Engine, end: u64, all: bool) -> Result<()>;

    /// Archives `changes` to `live`, which replace the manifest; returns the note of them for the log.
    ///
    /// # Errors
    /// Rows that cannot be encoded.
    fn copy_rows(&self, live: &Live, changes: &[&TableChange]) -> Result<Logged>;

    /// Archives the changes from `base` to `next`, which are in no log; returns the note of them for the log.
    async fn copy_changes(
        &self,
        engine: &Arc<Engine>,
        base: &CatalogState,
        next: &CatalogState,
    ) -> Logged;

    /// Takes the space that `edit`'s catalog version needs elsewhere, before its manifest is written. A checkpoint
    /// changes nothing that the log lacks.
    ///
    /// # Errors
    /// Those of devices; SQLSTATE 53100 where one has no room.
    async fn prepare_manifest(
        &self,
        engine: &Arc<Engine>,
        edit: &mut CatalogEdit,
        is_checkpoint: bool,
    ) -> Result<()>;

    /// The manifest on disk has `state`, which is not visible yet.
    fn manifest_replaced(&self, engine: &Engine, state: &CatalogState, is_checkpoint: bool);

    /// Logs what the commit of `state` has changed, or that the log does not have it. No other record is appended
    /// meanwhile.
    fn log_commit(&self, log: &Wal, state: &CatalogState, logged: &Logged);

    /// Where the log must begin for archive and replicas to go on: at `position`, or before.
    fn first_needed(&self, state: &CatalogState, position: u64) -> u64;

    /// The log was truncated, and what it gave up was archived; or that has failed.
    fn log_truncated(&self, failure: Option<&LogError>);

    /// Sends the last manifest, which has nothing that is not in the log, to the devices that answer.
    async fn follow(&self, engine: &Arc<Engine>);

    /// Requests the log up to `end` of the next call of [`Self::reach`].
    fn want(&self, end: u64);

    /// Waits until all replicas have the log up to `end`, which is durable here, and what else was requested. The
    /// writer lock must be free.
    ///
    /// # Errors
    /// [`StorageError::NotReplicated`](cleave_catalog::storage_error::StorageError::NotReplicated).
    async fn reach(&self, engine: &Arc<Engine>, end: u64) -> Result<()>;

    /// `device` is being attached, which the database may have had before.
    ///
    /// # Errors
    /// Those of the device.
    async fn device_added(&self, device: &Device, database: [u8; 16]) -> Result<()>;
}

/// A page version that a record names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedPage {
    /// The table that it is of.
    pub table: u32,
    /// The place of its tablet.
    pub place: usize,
    /// The device that it lies on.
    pub device: DeviceId,
    /// Its segment.
    pub segment: SegmentRef,
    /// The VID of its first row.
    pub vid_first: u64,
    /// It.
    pub page: PageRef,
    /// What it shares with versions that its transaction has made before, and that no record names.
    pub beside: Vec<Extent>,
}

impl LoggedPage {
    /// The space that the record names with it.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        std::iter::once(self.page.extent).chain(self.beside.iter().copied())
    }
}

/// The page versions that one record names.
#[derive(Debug, Clone)]
pub struct RecordPages {
    /// The place of the record in the log.
    pub at: u64,
    /// The number of the commit.
    pub commit: u64,
    /// They.
    pub pages: Vec<LoggedPage>,
}

/// Keeps nothing: of a database that is only looked at.
#[derive(Debug)]
pub(crate) struct Unkept;

#[async_trait]
impl LogKeeper for Unkept {
    fn open(&self, _engine: &Engine, _state: &Arc<CatalogState>) -> Result<()> {
        Ok(())
    }

    fn start_log(&self, _log: &Wal, _state: &CatalogState) {}

    async fn start(&self, _engine: &Arc<Engine>) {}

    fn is_on(&self) -> bool {
        false
    }

    fn log_pages(&self, _durable: &CatalogState, _pages: &[LoggedPage]) {}

    fn copies_pages(&self, _state: &CatalogState) -> bool {
        false
    }

    fn copy_pages(&self, _engine: &Arc<Engine>, _record: RecordPages, _is_awaited: bool) {}

    fn awaits_pages(&self, _end: u64) -> bool {
        false
    }

    async fn pages_copied(&self, _engine: &Engine, _end: u64, _all: bool) -> Result<()> {
        Ok(())
    }

    fn copy_rows(&self, _live: &Live, _changes: &[&TableChange]) -> Result<Logged> {
        Ok(Logged::Nowhere)
    }

    async fn copy_changes(
        &self,
        _engine: &Arc<Engine>,
        _base: &CatalogState,
        _next: &CatalogState,
    ) -> Logged {
        Logged::Nowhere
    }

    async fn prepare_manifest(
        &self,
        _engine: &Arc<Engine>,
        _edit: &mut CatalogEdit,
        _is_checkpoint: bool,
    ) -> Result<()> {
        Ok(())
    }

    fn manifest_replaced(&self, _engine: &Engine, _state: &CatalogState, _is_checkpoint: bool) {}

    fn log_commit(&self, _log: &Wal, _state: &CatalogState, _logged: &Logged) {}

    fn first_needed(&self, _state: &CatalogState, position: u64) -> u64 {
        position
    }

    fn log_truncated(&self, _failure: Option<&LogError>) {}

    async fn follow(&self, _engine: &Arc<Engine>) {}

    fn want(&self, _end: u64) {}

    async fn reach(&self, _engine: &Arc<Engine>, _end: u64) -> Result<()> {
        Ok(())
    }

    async fn device_added(&self, _device: &Device, _database: [u8; 16]) -> Result<()> {
        Ok(())
    }
}
