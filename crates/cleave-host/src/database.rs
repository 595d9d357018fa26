//! An open database as programs use it: sessions over a [query engine](cleave_query::query_engine), which plans over a
//! [storage engine](cleave_engine::storage_engine).
//!
//! ```text
//!  Database ─▶ QueryEngine ─▶ Engine ─┬─▶ catalog, devices, buffer pool, locks, log
//!     └─▶ replication ◀── told of commits ┘
//! ```
//!
//! Each layer also offers the methods of the layers below it.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_engine::write::resync::resync_stale;
use cleave_fragment::progress::Progress;
use cleave_query::query_engine::QueryEngine;
use cleave_replica::backup;
use cleave_replica::backup::BackupSummary;
use cleave_replica::check;
use cleave_replica::check::{CheckOptions, CheckReport};
use cleave_replica::replication::Replication;
use futures::future::BoxFuture;

use crate::session::{KeptByAll, Session};
use crate::temporary::TemporaryFolder;
pub use cleave_engine::storage_engine::{
    BUFFER_POOL_BYTES_DEFAULT, EMBEDDED_DEVICE_NAME, OpenOptions, QUERY_MEMORY_BYTES_DEFAULT,
};

/// An open database. Dropping the last handle (sessions hold one too) closes it.
pub struct Database {
    queries: Arc<QueryEngine>,
    pub(crate) replication: Arc<Replication>,
    pub(crate) kept: KeptByAll,
}

impl Database {
    /// Opens the database in `directory`, or creates one there if `options` say so. If a segment file is missing or
    /// damaged, only the [table or index](cleave_catalog::catalog::damage) that it belongs to is unusable.
    ///
    /// # Errors
    /// As [`Engine::open`](cleave_engine::storage_engine::Engine::open);
    /// [`StorageError::NotADatabase`](cleave_catalog::storage_error::StorageError::NotADatabase) also where a restore
    /// was not completed.
    pub fn open(directory: &Path, options: OpenOptions) -> BoxFuture<'_, Result<Arc<Self>>> {
        Box::pin(async move {
            let (engine, replication) = Replication::open(directory, options).await?;
            let (queries, kept) = (QueryEngine::new(engine), KeptByAll::default());
            Ok(Arc::new(Self { queries, replication, kept }))
        })
    }

    /// A new folder for a database that is called `:memory:`, which goes when this is dropped. Those that killed
    /// processes of this user have left are removed.
    ///
    /// # Errors
    /// The system's error.
    pub fn temporary_folder() -> std::io::Result<TemporaryFolder> {
        TemporaryFolder::new()
    }

    /// The query engine that plans and runs its queries.
    pub(crate) fn queries(&self) -> &Arc<QueryEngine> {
        &self.queries
    }

    /// A session with default settings.
    pub fn session(self: &Arc<Self>) -> Session {
        Session::new(Arc::clone(self))
    }

    /// Writes a backup of the present database into the folder `target`. Sessions may go on using the database
    /// meanwhile.
    ///
    /// # Errors
    /// [`StorageError::BackupPlace`](cleave_catalog::storage_error::StorageError::BackupPlace) for a folder that holds
    /// anything else; errors of reading and writing.
    pub fn backup<'a>(&'a self, target: &'a Path) -> BoxFuture<'a, Result<BackupSummary>> {
        self.backup_counted(target, Progress::default())
    }

    /// As [`backup`](Self::backup); `progress` counts the bytes of its pages.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub fn backup_counted<'a>(
        &'a self,
        target: &'a Path,
        progress: Progress,
    ) -> BoxFuture<'a, Result<BackupSummary>> {
        Box::pin(backup::take(self, target, progress))
    }

    /// Checks the database at its last commit. Sessions may go on using the database meanwhile.
    ///
    /// # Errors
    /// None of what the check finds.
    pub fn check<'a>(&'a self, options: &'a CheckOptions) -> BoxFuture<'a, Result<CheckReport>> {
        Box::pin(check::check_open(self, options))
    }

    /// Does the work for log replicas that waits for devices that were offline. A server calls it periodically.
    ///
    /// # Errors
    /// Those of a commit; SQLSTATE 55006 after another host has failed the database over.
    pub fn look_after_replicas(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.replication.replicas.look_after(self))
    }

    /// Gives the stale copies of mirrors what they lack, where they answer. A server calls it periodically.
    ///
    /// # Errors
    /// As [`resync_stale`].
    pub fn resync_mirrors(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(resync_stale(self))
    }
}

impl Deref for Database {
    type Target = Arc<QueryEngine>;

    fn deref(&self) -> &Arc<QueryEngine> {
        &self.queries
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("directory", &self.directory()).finish_non_exhaustive()
    }
}
