//! Restore: a backup in, a new database out.
//!
//! 1. The folder is marked as one that is being restored: until that file is removed, nothing opens it.
//! 2. The pages are written to the new database's own device, at the places that the backup's catalog names.
//! 3. The manifest comes last, then the marking file is removed.
//!
//! The database has an identity of its own: the original may go on beside it, and devices that are the original's
//! refuse it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cleave_catalog::catalog::{
    CatalogState, DatabaseId, DeviceEntry, DeviceId, DeviceKind, manifest,
};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_catalog::tasks::{blocking, joined};
use cleave_engine::device;
use cleave_engine::device::{Claim, Device, EmbeddedFactory};
use cleave_engine::log;
use cleave_engine::storage_engine;
use cleave_engine::storage_engine::log_keeper::LogKeeper;
use cleave_engine::storage_engine::{
    EMBEDDED_DEVICE_NAME, Engine, OpenOptions, SPILLS, catalog_edit,
};
use cleave_fragment::link::AttachMode;
use cleave_fragment::progress::Progress;
use cleave_media::{BLOCK_SIZE, files};
use cleave_store::SegmentDirectory;

use super::backup_manifest::{BackupManifest, BackupSummary, PIECE_BLOCKS, Pieces, damaged};
use super::replay::{PointInTime, Reached, replay};
use super::{STATISTICS, USERS, make_folder, only_for_owner, prepare_place, sync_folder};

/// The file that marks a database which is not whole yet.
pub const MARK: &str = "restoring";

/// Makes a database of the backup in `backup`. `directory` does not exist, is empty, or has what an interrupted restore
/// left. All tables lie on the new database's own device.
///
/// # Errors
/// [`StorageError::DamagedBackup`], before anything is written where it shows before; [`StorageError::BackupPlace`];
/// those of the device, 53100 where it is too small; [`Error::Io`]. What was written then cannot be opened, and
/// another attempt begins anew.
pub async fn restore(
    backup: &Path,
    directory: &Path,
    options: &OpenOptions,
) -> Result<BackupSummary> {
    restore_counted(backup, directory, options, &Progress::default()).await
}

/// As [`restore`]; `progress` counts the bytes of the pages that are written.
///
/// # Errors
/// As [`restore`].
pub async fn restore_counted(
    backup: &Path,
    directory: &Path,
    options: &OpenOptions,
    progress: &Progress,
) -> Result<BackupSummary> {
    let backup_manifest = Arc::new(BackupManifest::read(backup)?);
    let lock = place(backup, &backup_manifest, directory, options, progress).await?;
    finish(directory)?;
    drop(lock);
    Ok(backup_manifest.summary())
}

/// As [`restore_counted`], and then redoes what an archived log has behind the backup.
///
/// # Errors
/// As [`restore`]; [`StorageError::PointInTime`]; [`StorageError::Log`] for a log that lacks files or is damaged.
pub async fn restore_until(
    backup: &Path,
    directory: &Path,
    options: &OpenOptions,
    wanted: &PointInTime,
    keeper: Arc<dyn LogKeeper>,
    progress: &Progress,
) -> Result<Reached> {
    let backup_manifest = Arc::new(BackupManifest::read(backup)?);
    let wanted = (wanted, 0);
    let (database, reached) =
        replayed(backup, &backup_manifest, directory, options, wanted, keeper, progress).await?;
    // While it has the lock still: nobody begins anew in a folder that is marked, and then is not.
    finish(directory)?;
    drop(database);
    Ok(reached)
}

/// As [`restore_until`], open, and marked still; segments made by it get numbers from `segment_first` on.
///
/// # Errors
/// As [`restore_until`].
pub(super) async fn replayed(
    backup: &Path,
    backup_manifest: &Arc<BackupManifest>,
    directory: &Path,
    options: &OpenOptions,
    (wanted, segment_first): (&PointInTime, u32),
    keeper: Arc<dyn LogKeeper>,
    progress: &Progress,
) -> Result<(Arc<Engine>, Reached)> {
    wanted.until.check(backup_manifest)?;
    // The lock goes on to the database: another restore into the folder is kept out to the end.
    let lock = place(backup, backup_manifest, directory, options, progress).await?;
    let database = Engine::open_locked(directory, lock, options.clone(), keeper).await?;
    let reached = replay(&database, backup_manifest, wanted, segment_first).await?;
    Ok((database, reached))
}

/// Makes the database, which is marked still, and gives its lock.
async fn place(
    backup: &Path,
    backup_manifest: &Arc<BackupManifest>,
    directory: &Path,
    options: &OpenOptions,
    progress: &Progress,
) -> Result<File> {
    let mut state = backup_manifest.state(backup)?;
    let ours = |name: &str| {
        let kept = [MARK, "lock", "log", "manifest", "manifest.new", "segments"];
        let kept = [&kept[..], &[SPILLS, STATISTICS, USERS]].concat();
        let is_media = name.starts_with(&format!("device-{}.media", DeviceId::EMBEDDED));
        is_media || kept.contains(&name)
    };
    let mark = directory.join(MARK);
    let is_begun = mark.exists();
    let holds_database = || manifest::exists(directory) && !(is_begun && mark.exists());
    let refused = || {
        let reason = "it holds a database, which is not written over".to_owned();
        Err(StorageError::BackupPlace { path: directory.to_owned(), reason }.into())
    };
    if holds_database() {
        return refused();
    }
    prepare_place(directory, ours)?;
    let lock = storage_engine::lock(directory).await?;
    // Another restore may have ended while this one waited for it.
    if holds_database() {
        return refused();
    }
    files::write_durably(&mark, b"").map_err(|error| Error::io("write", &mark, error))?;
    sync_folder(directory)?;

    manifest::create_directories(directory)?;
    let embedded = Arc::clone(&options.embedded);
    let entry = embedded_entry(directory, &embedded).await?;
    state.database =
        DatabaseId(cleave_media::random_bytes().map_err(|error| {
            Error::io("draw", Path::new("an id"), std::io::Error::other(error))
        })?);
    (state.epoch, state.generation) = (1, 1);
    state.devices = BTreeMap::from([(DeviceId::EMBEDDED, entry.clone())]);
    {
        let nothing = CatalogState { tables: BTreeMap::new(), ..state.clone() };
        let incarnation = Some(storage_engine::draw_incarnation()?);
        let device = storage_engine::attach(&nothing, incarnation, entry, directory, &embedded)?;
        write_pages(backup, backup_manifest, Arc::new(device), progress).await?;
    }
    let sealed: Vec<Arc<SegmentDirectory>> =
        catalog_edit::segments(&state).filter(|segment| segment.sealed).map(Arc::clone).collect();
    for segment in sealed {
        let file = manifest::write_segment(directory, &segment)?;
        state.files.insert(segment.segment, file);
    }
    manifest::sync_segments(directory)?;
    copy_files(backup, directory, backup_manifest)?;
    state.log_position = log::create(directory)?.resume_from().0;
    storage_engine::write_manifest(directory, &state)?;
    Ok(lock)
}

/// Lets the database be opened.
pub fn finish(directory: &Path) -> Result<()> {
    let mark = directory.join(MARK);
    files::remove(&mark).map_err(|error| Error::io("remove", &mark, error))?;
    sync_folder(directory)
}

/// Refuses a database whose restore is not complete.
///
/// # Errors
/// [`StorageError::NotADatabase`].
pub fn check_restored(directory: &Path) -> Result<()> {
    if !directory.join(MARK).exists() {
        return Ok(());
    }
    let path = directory.to_owned();
    let reason = "a restore into it was not completed, or a failover; run `cleave restore`, or `cleave failover`, \
        again".to_owned();
    Err(StorageError::NotADatabase { path, reason }.into())
}

/// The database's own device, over media that is made if it is not there.
pub async fn embedded_entry(directory: &Path, embedded: &EmbeddedFactory) -> Result<DeviceEntry> {
    let mut entry = DeviceEntry {
        id: DeviceId::EMBEDDED,
        name: EMBEDDED_DEVICE_NAME.to_owned(),
        identity: [0; 16],
        kind: DeviceKind::Embedded,
    };
    let (_, identity) = device::identify(&entry, directory, embedded).await?;
    entry.identity = identity.device;
    Ok(entry)
}

/// Writes all pages, each piece verified before, to the same blocks of an empty device.
async fn write_pages(
    backup: &Path,
    backup_manifest: &Arc<BackupManifest>,
    device: Arc<Device>,
    progress: &Progress,
) -> Result<()> {
    progress.expect(backup_manifest.block_count.saturating_mul(BLOCK_SIZE as u64));
    debug_assert_eq!(device.mode(), AttachMode::Embedded, "the only device of a new database");
    let claim = Arc::new(Claim::new(device));
    let pieces = Arc::new(Pieces::open(backup)?);
    let mut last = None;
    for index in 0..backup_manifest.pieces.len() {
        let read = {
            let (backup, backup_manifest, pieces) =
                (backup.to_owned(), Arc::clone(backup_manifest), Arc::clone(&pieces));
            move || pieces.read(&backup, &backup_manifest, index)
        };
        let bytes = Bytes::from(joined(blocking(read).await)??);
        let block_count = u32::try_from(bytes.len() / BLOCK_SIZE).unwrap_or(PIECE_BLOCKS);
        let extent = claim.acquire(block_count).await?;
        if extent.start.0 != index as u64 * u64::from(PIECE_BLOCKS) {
            return Err(damaged(backup, "its pages cannot be placed as they were"));
        }
        progress.advance(bytes.len() as u64);
        let writing = claim.begin_write(extent.start, bytes);
        // One is written while the next is read.
        if let Some(before) = last.replace(writing) {
            before.ended().await?;
        }
    }
    if let Some(last) = last {
        last.ended().await?;
    }
    claim.sync_written().await?;
    claim.commit();
    Ok(())
}

/// Copies what a database has beside its manifest and its pages.
fn copy_files(backup: &Path, directory: &Path, backup_manifest: &BackupManifest) -> Result<()> {
    let is_copied = |name: &&str| {
        *name == USERS
            || name
                .strip_prefix(STATISTICS)
                .is_some_and(|id| id.strip_prefix('/').is_some_and(|id| id.parse::<u32>().is_ok()))
    };
    for name in backup_manifest.files.iter().map(|file| &*file.name).filter(is_copied) {
        let Some(bytes) = backup_manifest.read_file(backup, name)? else { continue };
        let path = directory.join(name);
        if name != USERS {
            make_folder(&directory.join(STATISTICS))?;
        }
        files::write_durably(&path, &bytes).map_err(|error| Error::io("write", &path, error))?;
        if name == USERS {
            only_for_owner(&path, 0o600)?;
        }
    }
    Ok(())
}
