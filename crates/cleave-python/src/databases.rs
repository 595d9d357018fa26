//! The databases that a process has open: a directory in, the one [`Database`] over it out, whatever the number of its
//! sessions.
//!
//! 1. [`Databases::open`] opens a database, or finds it open. It is vacuumed and analysed by itself from then on, as
//!    by a server.
//! 2. [`Databases::close`] gives a session's handle back. The last one checkpoints the database, so that the next
//!    process has nothing to recover.
//!
//! Invariant: opening and closing are done one after the other, so nobody opens a directory that is being closed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cleave_embedded::embedded_device;
use cleave_host::{Database, Error, OpenOptions};
use cleave_media::clock::Stopwatch;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// How long automatic VACUUM waits before it looks again whether it is on.
const VACUUM_PAUSE: Duration = Duration::from_secs(60);
/// How long automatic ANALYZE waits at least.
const ANALYZE_PAUSE: Duration = Duration::from_secs(5);

/// See the module's description.
#[derive(Default)]
pub(crate) struct Databases(Mutex<BTreeMap<PathBuf, Open>>);

/// A database that was opened.
struct Open {
    database: Weak<Database>,
    /// Ended before the last handle is dropped.
    upkeep: JoinSet<()>,
}

/// How a database is opened, if it is not open yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Opening {
    /// Whether one is made where there is none.
    pub(crate) create: bool,
    /// Bytes of the buffer pool; None: the default.
    pub(crate) buffer_pool_bytes: Option<u64>,
    /// Bytes that operators may hold; None: the default.
    pub(crate) query_memory_bytes: Option<u64>,
}

impl Databases {
    /// The database in `directory`.
    pub(crate) async fn open(
        &self,
        directory: &Path,
        opening: Opening,
    ) -> Result<Arc<Database>, Error> {
        let mut open = self.0.lock().await;
        // Two paths of one folder are one database.
        let known = directory.canonicalize().ok();
        if let Some(found) = known.as_ref().and_then(|path| open.get(path))
            && let Some(database) = found.database.upgrade()
        {
            return Ok(database);
        }
        let mut options = OpenOptions::new(embedded_device()).create(opening.create);
        if let Some(bytes) = opening.buffer_pool_bytes {
            options = options.buffer_pool_bytes(bytes);
        }
        if let Some(bytes) = opening.query_memory_bytes {
            options = options.query_memory_bytes(bytes);
        }
        let database = Database::open(directory, options).await?;
        let path = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let weak = Arc::downgrade(&database);
        let mut upkeep = JoinSet::new();
        upkeep.spawn(vacuum_by_itself(Weak::clone(&weak)));
        upkeep.spawn(analyze_by_itself(Weak::clone(&weak)));
        open.insert(path, Open { database: weak, upkeep });
        Ok(database)
    }

    /// Gives a handle back. Errors of the checkpoint are lost: the log has what it would have written.
    pub(crate) async fn close(&self, database: Arc<Database>) {
        let mut open = self.0.lock().await;
        let weak = Arc::downgrade(&database);
        let path = open.iter().find(|(_, found)| Weak::ptr_eq(&found.database, &weak));
        let Some(path) = path.map(|(path, _)| path.clone()) else { return };
        let Some(found) = open.get_mut(&path) else { return };
        // The upkeep holds a handle only while it works.
        if Arc::strong_count(&database) > 1 + found.upkeep.len() {
            // Before the lock is free: else two sessions that close at a time would each see the other's handle.
            drop(database);
            return;
        }
        found.upkeep.shutdown().await;
        if Arc::strong_count(&database) > 1 {
            // Another session is open, and goes on without: none is opened meanwhile.
            found.upkeep.spawn(vacuum_by_itself(Weak::clone(&weak)));
            found.upkeep.spawn(analyze_by_itself(weak));
            drop(database);
            return;
        }
        Box::pin(database.checkpoint()).await.unwrap_or_default();
        drop(database);
        open.remove(&path);
    }
}

/// Vacuums tables that are due, periodically, while the database is open.
async fn vacuum_by_itself(database: Weak<Database>) {
    loop {
        let Some(open) = database.upgrade() else { return };
        let pause = open.autovacuum_settings().pause();
        drop(open);
        tokio::time::sleep(pause.unwrap_or(VACUUM_PAUSE)).await;
        let Some(open) = database.upgrade() else { return };
        if open.autovacuum_settings().pause().is_some() {
            // What failed is due again next time.
            drop(open.autovacuum().await);
        }
    }
}

/// Analyses tables that are due, periodically, for at most a quarter of the time.
async fn analyze_by_itself(database: Weak<Database>) {
    let mut pause = ANALYZE_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(open) = database.upgrade() else { return };
        let stopwatch = Stopwatch::start();
        drop(open.autoanalyze().await);
        pause = ANALYZE_PAUSE.max(3 * stopwatch.elapsed());
    }
}
