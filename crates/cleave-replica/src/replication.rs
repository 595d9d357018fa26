//! What a database keeps of its log elsewhere: the [`archive`], and [log replicas](crate::log_replica) on devices.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::Result;
use cleave_engine::delta::Live;
use cleave_engine::device::Device;
use cleave_engine::storage_engine::catalog_edit::{CatalogEdit, Logged};
use cleave_engine::storage_engine::log_keeper::{LogKeeper, LoggedPage, RecordPages};
use cleave_engine::storage_engine::{Engine, OpenOptions};
use cleave_engine::write::insert::TableChange;
use cleave_fragment::progress::Progress;
use cleave_txn::{LogError, Wal};

use crate::archive::{self, Archive};
use crate::backup::rebuild::Rebuild;
use crate::backup::{self, PointInTime, Reached};
use crate::log_replica::{self, FailedOver, FailoverSource, LogReplicas};

/// See the module's description.
#[derive(Debug, Default)]
pub struct Replication {
    /// How the log is archived.
    pub archive: Archive,
    /// Log replicas on devices.
    pub replicas: Arc<LogReplicas>,
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

/// As [`log_replica::failover::fail_over`]: the database is opened with its archive and its replicas.
///
/// # Errors
/// As above.
pub async fn fail_over(
    directory: &Path,
    from: &FailoverSource,
    options: &OpenOptions,
) -> Result<FailedOver> {
    let keeper = Arc::new(Replication::default());
    Box::pin(log_replica::failover::fail_over(directory, from, options, keeper)).await
}

/// As [`backup::restore_until`]: the database is opened with its archive and its replicas.
///
/// # Errors
/// As above.
pub async fn restore_until(
    from: &Path,
    directory: &Path,
    options: &OpenOptions,
    wanted: &PointInTime,
) -> Result<Reached> {
    restore_until_counted(from, directory, options, wanted, &Progress::default()).await
}

/// As [`restore_until`]; `progress` counts the bytes of the backup's pages that are written.
///
/// # Errors
/// As above.
pub async fn restore_until_counted(
    from: &Path,
    directory: &Path,
    options: &OpenOptions,
    wanted: &PointInTime,
    progress: &Progress,
) -> Result<Reached> {
    let keeper = Arc::new(Replication::default());
    Box::pin(backup::restore_until(from, directory, options, wanted, keeper, progress)).await
}

/// As [`backup::rebuild::rebuild`]: the restored database is opened with its archive and its replicas.
///
/// # Errors
/// As above.
pub async fn rebuild(engine: &Arc<Engine>, wanted: &Rebuild) -> Result<()> {
    let keeper = Arc::new(Replication::default());
    Box::pin(backup::rebuild::rebuild(engine, wanted, keeper)).await
}

#[async_trait]
impl LogKeeper for Replication {
    fn open(&self, engine: &Engine, state: &Arc<CatalogState>) -> Result<()> {
        self.replicas.note_manifest(state);
        self.replicas.open(engine, state)
    }

    fn start_log(&self, log: &Wal, state: &CatalogState) {
        archive::start(log, state);
    }

    async fn start(&self, engine: &Arc<Engine>) {
        self.replicas.start(engine).await;
    }

    fn is_on(&self) -> bool {
        self.replicas.are_on()
    }

    fn log_pages(&self, durable: &CatalogState, pages: &[LoggedPage]) {
        self.replicas.log_pages(durable, pages);
    }

    fn copies_pages(&self, state: &CatalogState) -> bool {
        state.upkeep.archive_directory.is_some()
    }

    fn copy_pages(&self, engine: &Arc<Engine>, record: RecordPages, is_awaited: bool) {
        let folder = engine.log().and_then(|log| archive::folder(log, &engine.catalog()));
        if let Some(folder) = folder {
            self.archive.copies.begin(engine, folder, record, is_awaited);
        }
    }

    fn awaits_pages(&self, end: u64) -> bool {
        self.archive.copies.are_awaited(end)
    }

    async fn pages_copied(&self, engine: &Engine, end: u64, all: bool) -> Result<()> {
        self.archive.copies.ended(engine, end, all).await
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

    async fn prepare_manifest(
        &self,
        engine: &Arc<Engine>,
        edit: &mut CatalogEdit,
        is_checkpoint: bool,
    ) -> Result<()> {
        self.replicas.prepare(engine, edit, is_checkpoint).await
    }

    fn manifest_replaced(&self, engine: &Engine, state: &CatalogState, is_checkpoint: bool) {
        self.replicas.note_manifest(state);
        if !is_checkpoint {
            // Before it is visible, or a commit is made on it.
            self.replicas.want_manifest(state.generation);
        }
        self.replicas.let_go(engine);
    }

    fn log_commit(&self, log: &Wal, state: &CatalogState, logged: &Logged) {
        archive::note(log, state, logged);
    }

    fn first_needed(&self, state: &CatalogState, position: u64) -> u64 {
        self.replicas.first_needed(state, position)
    }

    fn log_truncated(&self, failure: Option<&LogError>) {
        self.archive.note(failure);
    }

    async fn follow(&self, engine: &Arc<Engine>) {
        self.replicas.follow(engine).await;
    }

    fn want(&self, end: u64) {
        self.replicas.want(end);
    }

    async fn reach(&self, engine: &Arc<Engine>, end: u64) -> Result<()> {
        self.replicas.reach(engine, end).await
    }

    async fn device_added(&self, device: &Device, database: [u8; 16]) -> Result<()> {
        log_replica::erase_unnamed(device, database).await
    }
}
