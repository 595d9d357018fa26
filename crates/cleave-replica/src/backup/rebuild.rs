//! Rebuild: a backup and the archived log in, the tables of a lost device on its replacement out, while other tables
//! are used.
//!
//! ```text
//!  DIR/rebuild-<device>/   the database as the archived log ends, restored beside the open one; removed at the end
//! ```
//!
//! 1. The backup is restored, and the archived log redone to its end.
//! 2. The lost tablets are [copied](cleave_engine::write::rebuild_tablets) from there to the replacement.
//! 3. One manifest puts them in place.
//!
//! Invariants: the caller keeps writers away from the tables, and has completed the archive since. The backup and the
//! archive are of the log of this database, and the archive has every commit that was made before the rebuild began.
//! What an interrupted rebuild leaves is removed by the next one. The whole database is restored, on the host's disk.
//! Source: `docs/design/delta-and-snapshots.md`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_catalog::tasks::{blocking, joined};
use cleave_engine::device::Device;
use cleave_engine::storage_engine::Engine;
use cleave_engine::storage_engine::log_keeper::LogKeeper;
use cleave_engine::write::rebuild_tablets::{self, reserve_segments};
use cleave_fragment::progress::Progress;

use super::backup_manifest::BackupManifest;
use super::replay::{PointInTime, Until};
use super::restore::replayed;

/// What is rebuilt, and of what.
#[derive(Debug)]
pub struct Rebuild {
    /// The device that is lost.
    pub lost: Arc<Device>,
    /// The tables with tablets there.
    pub tables: Vec<u32>,
    /// Devices that may take them.
    pub targets: Vec<Arc<Device>>,
    /// The folder of a backup.
    pub backup: PathBuf,
    /// The folder that `archive_directory` named.
    pub archive: PathBuf,
    /// What the archive must have.
    pub needed: Needed,
    /// Counts the bytes of the backup that are restored.
    pub progress: Progress,
}

/// How far the commits go that a rebuild must not lose.
#[derive(Debug, Clone, Copy)]
pub struct Needed {
    log_end: u64,
    unlogged_commit: u64,
}

impl Needed {
    /// All commits up to now: taken once the tables have no writers any more, before the archive is completed. Others
    /// go on meanwhile.
    #[must_use]
    pub fn by_now(engine: &Engine) -> Self {
        let log_end = engine.live().log_end;
        Self { log_end, unlogged_commit: engine.catalog().upkeep.unlogged_commit }
    }
}

/// Rebuilds the lost tablets of `wanted`. Others must not write to their tables.
///
/// # Errors
/// [`StorageError::BackupPlace`] for a backup of another database; those of a
/// [restore](super::restore_until) and of the devices; [`StorageError::NotRebuilt`]. The database is as it was, then.
pub async fn rebuild(
    engine: &Arc<Engine>,
    wanted: &Rebuild,
    keeper: Arc<dyn LogKeeper>,
) -> Result<()> {
    let backup_manifest = Arc::new(BackupManifest::read(&wanted.backup)?);
    if engine.log().is_none_or(|log| backup_manifest.log != log.identity()) {
        let path = wanted.backup.clone();
        let reason = "it is a backup of another database".to_owned();
        return Err(StorageError::BackupPlace { path, reason }.into());
    }
    let folder = engine.directory().join(format!("rebuild-{}", wanted.lost.id()));
    remove(&folder).await?;
    let rebuilt = from_folder(engine, wanted, &backup_manifest, &folder, keeper).await;
    // The outcome stands; what is left is removed by the next one.
    drop(remove(&folder).await);
    rebuilt
}

async fn from_folder(
    engine: &Arc<Engine>,
    wanted: &Rebuild,
    backup_manifest: &Arc<BackupManifest>,
    folder: &Path,
    keeper: Arc<dyn LogKeeper>,
) -> Result<()> {
    let (segment_first, segment_end) = reserve_segments(engine)?;
    let end = PointInTime { archive: wanted.archive.clone(), until: Until::End };
    let (restored, reached) = replayed(
        &wanted.backup,
        backup_manifest,
        folder,
        &engine.options_beside(),
        (&end, segment_first),
        keeper,
        &wanted.progress,
    )
    .await?;
    let found = (reached.log_end, restored.catalog().upkeep.unlogged_commit);
    let needed = wanted.needed;
    if found.0 < needed.log_end || found.1 < needed.unlogged_commit {
        let reason = format!(
            "the archive ends at position {} of the log, before the last commits at {}; use an archive that has all of \
                the log since the backup",
            found.0, needed.log_end
        );
        return Err(StorageError::PointInTime { reason }.into());
    }
    if restored.catalog().next_segment > segment_end {
        return Err(StorageError::Exhausted { what: "segments" }.into());
    }
    let mut rebuild =
        rebuild_tablets::Rebuild::new(engine, &restored, &wanted.lost, &wanted.targets);
    for table in &wanted.tables {
        rebuild.copy(*table).await?;
    }
    rebuild.commit(segment_end).await
}

/// Removes a folder with all in it, if it is there.
async fn remove(folder: &Path) -> Result<()> {
    let path = folder.to_owned();
    match joined(blocking(move || fs::remove_dir_all(path)).await)? {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io("remove", folder, error))
        }
        _ => Ok(()),
    }
}
