//! What a database keeps of its log elsewhere: the [`archive`], and [copies](crate::log_copy) on devices.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::Result;
use cleave_engine::delta::Live;
use cleave_engine::device::Device;
use cleave_engine::storage_engine::catalog_edit::{CatalogEdit, Logged};
use cleave_engine::storage_engine::log_keeper::LogKeeper;
use cleave_engine::storage_engine::{Engine, OpenOptions};
use cleave_engine::write::insert::TableChange;
use cleave_txn::{LogError, Wal};

use crate::archive::{self, Archive};
use crate::backup::{self, PointInTime, Reached};
use crate::log_copy::{self, Copies, TakeOver, TakenOver};

/// See the module's description.
#[derive(Debug, Default)]
pub struct Replication {
    /// How the log is archived.
    pub archive: Archive,
    /// Copies of the log on devices.
    pub copies: Arc<Copies>,
}

impl Replication {
    /// Opens the database in `directory`, whose log it keeps.
    ///
    /// # Errors
    /// As [`Engine::open`]; [`StorageError::NotADatabase`](cleave_catalog::storage_error::StorageError::NotADatabase)
    /// where a restore was not completed.
    pub async fn open(directory: &Path, options: OpenOptions) -> Result<(Arc<Engine>, Arc<Self>)> {
        backup::check_restored(directory)?;
        let replication = Arc::new(Self::default());
        let keeper = Arc::clone(&replication) as Arc<dyn LogKeeper>;
        Ok((Engine::open(directory, options, keeper).await?, replication))
    }
}

/// As [`log_copy::takeover::take_over`]: the database is opened with its archive and its copies.
///
/// # Errors
/// As there.
pub async fn take_over(
    directory: &Path,
    from: &TakeOver,
    options: &OpenOptions,
) -> Result<TakenOver> {
    let keeper = Arc::new(Replication::default());
    Box::pin(log_copy::takeover::take_over(directory, from, options, keeper)).await
}

/// As [`backup::restore_until`]: the database is opened with its archive and its copies.
///
/// # Errors
/// As there.
pub async fn restore_until(
    from: &Path,
    directory: &Path,
    options: &OpenOptions,
    wanted: &PointInTime,
) -> Result<Reached> {
    let keeper = Arc::new(Replication::default());
    Box::pin(backup::restore_until(from, directory, options, wanted, keeper)).await
}

#[async_trait]
impl LogKeeper for Replication {
    fn open(&self, engine: &Engine, state: &Arc<CatalogState>) -> Result<()> {
        self.copies.note_root(state);
        self.copies.open(engine, state)
    }

    fn start_log(&self, log: &Wal, state: &CatalogState) {
        archive::start(log, state);
    }

    async fn start(&self, engine: &Arc<Engine>) {
        self.copies.start(engine).await;
    }

    fn is_on(&self) -> bool {
        self.copies.are_on()
    }

    fn copy_rows(&self, live: &Live, changes: &[&TableChange]) -> Result<Logged> {
        archive::copy(live, changes)
    }

    async fn copy_changes(
        &self,
        engine: &Arc<Engine>,
        base: &CatalogState,
        next: &CatalogState,
    ) -> Logged {
        self.archive.copy_whole(engine, base, next).await
    }

    async fn prepare_root(
        &self,
        engine: &Arc<Engine>,
        edit: &mut CatalogEdit,
        is_checkpoint: bool,
    ) -> Result<()> {
        self.copies.prepare(engine, edit, is_checkpoint).await
    }

    fn root_replaced(&self, engine: &Engine, state: &CatalogState, is_checkpoint: bool) {
        self.copies.note_root(state);
        if !is_checkpoint {
            // Before anybody sees it, or commits anything on it.
            self.copies.want_root(state.generation);
        }
        self.copies.let_go(engine);
    }

    fn log_commit(&self, log: &Wal, state: &CatalogState, logged: &Logged) {
        archive::note(log, state, logged);
    }

    fn first_needed(&self, state: &CatalogState, position: u64) -> u64 {
        self.copies.first_needed(state, position)
    }

    fn log_truncated(&self, failure: Option<&LogError>) {
        self.archive.note(failure);
    }

    async fn follow(&self, engine: &Arc<Engine>) {
        self.copies.follow(engine).await;
    }

    fn want(&self, end: u64) {
        self.copies.want(end);
    }

    async fn reach(&self, engine: &Arc<Engine>, end: u64) -> Result<()> {
        self.copies.reach(engine, end).await
    }

    async fn device_added(&self, device: &Device, database: [u8; 16]) -> Result<()> {
        log_copy::erase_unnamed(device, database).await
    }
}
