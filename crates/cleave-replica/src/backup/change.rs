//! Commits that the log does not have row by row, definitions and bulk loads: copied whole into the archive as a backup
//! of the tables that they changed, and put back by a restore.
//!
//! ```text
//!  <archive_directory>/<identity of the log>/commit-<number>/   backup_manifest, catalog/manifest and pages,
//!                                                               as a backup has them
//! ```
//!
//! 1. [`copy`] runs within the commit, when its pages are durable and before its manifest is written. It returns a note
//!    that the log gets behind the manifest: which tables there are, and how far ids have been given. A commit that
//!    fails leaves a folder that no note names, and that the next commit of its number overwrites.
//! 2. [`apply`] replaces the tables with these ids in a restored database by those of the copy, page by page.
//!
//! Invariant: a segment has one number for ever, so a restored database numbers its own above all that the archive has
//! ([`Replaced::next_segment`]). Source: `docs/design/delta-and-snapshots.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cleave_catalog::catalog::blocked::BlockedTables;
use cleave_catalog::catalog::{CatalogState, DeviceId, manifest, proto};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::tasks::{blocking, joined};
use cleave_engine::log::{Committed, Replaced};
use cleave_engine::storage_engine::Engine;
use cleave_engine::storage_engine::catalog_edit::{CatalogEdit, segments};
use cleave_engine::storage_engine::commit::Changes;
use cleave_fragment::progress::Progress;
use cleave_media::{BLOCK_SIZE, BlockAddress, Clock, SystemClock, files};
use cleave_store::SegmentDirectory;
use prost::Message;

use super::backup_manifest::{BackupManifest, PIECE_BLOCKS, Pieces, damaged};
use super::prepare_place;
use super::take::copied;

/// Where the copy of a commit lies, in the folder of an archived log.
fn place(log: &Path, commit: u64) -> PathBuf {
    log.join(format!("commit-{commit}"))
}

/// Copies into `log`, the folder of the archived log, what `next` has that `base` has not; returns the note of it.
///
/// # Errors
/// Those of devices; [`Error::Io`]; a table that is damaged.
pub async fn copy(
    database: &Arc<Engine>,
    base: &CatalogState,
    next: &CatalogState,
    log: &Path,
) -> Result<Committed> {
    let is_known = |name: &str, table| base.tables.get(name).is_some_and(|b| Arc::ptr_eq(b, table));
    let tables = next.tables.iter().filter(|(name, table)| !is_known(name, table));
    let tables = tables.map(|(name, table)| (name.clone(), Arc::clone(table))).collect();
    let changed = CatalogState {
        tables,
        damaged: BTreeMap::new(),
        files: BTreeMap::new(),
        blocked: BlockedTables::default(),
        ..next.clone()
    };
    let target = place(log, next.commit);
    match fs::remove_dir_all(&target) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("remove", &target, error)),
    }
    // Where the archive is not mounted, nothing is made in its place.
    if let Some(archive) = log.parent() {
        fs::metadata(archive).map_err(|error| Error::io("find", archive, error))?;
    }
    files::create_directories(log).map_err(|error| Error::io("create", log, error))?;
    prepare_place(&target, |_| false)?;
    let uncounted = Progress::default();
    let copied = copied(database, &changed, SystemClock.wall(), &target, &uncounted).await?;
    copied.write(&target)?;
    files::sync_directory(log).map_err(|error| Error::io("sync", log, error))?;
    let replaced = Replaced {
        tables: next.table_ids().collect(),
        next_table: next.next_table,
        next_segment: next.next_segment,
    };
    Ok(Committed::replaced(base, next.commit, replaced))
}

/// Redoes the commit whose copy lies in `log`: its changed tables as they were then, and exactly the tables that there
/// were.
///
/// # Errors
/// [`StorageError::DamagedBackup`](cleave_catalog::storage_error::StorageError::DamagedBackup) for a copy that is not
/// as it was written; those of the device.
pub(super) async fn apply(
    database: &Arc<Engine>,
    log: &Path,
    commit: u64,
    replaced: &Replaced,
) -> Result<()> {
    let copy = place(log, commit);
    let backup_manifest = Arc::new(BackupManifest::read(&copy)?);
    let bytes = backup_manifest.catalog(&copy)?;
    let wrong = |reason: String| damaged(&copy, &reason);
    let (_, payload) =
        manifest::MANIFEST_FORMAT.open(&bytes).map_err(|error| wrong(error.to_string()))?;
    let mut message = proto::Manifest::decode(payload).map_err(|error| wrong(error.to_string()))?;

    let mut edit = CatalogEdit::begin(database).await?;
    let claim = edit.claim(&database.attached(DeviceId::EMBEDDED)?);
    let block_count = u32::try_from(backup_manifest.block_count);
    let block_count = block_count.map_err(|_| wrong("it has too many pages".to_owned()))?;
    let start = match block_count {
        0 => BlockAddress(0),
        _ => claim.acquire(block_count).await?.start,
    };
    let pieces = Arc::new(Pieces::open(&copy)?);
    for index in 0..backup_manifest.pieces.len() {
        let read = {
            let (copy, backup_manifest, pieces) =
                (copy.clone(), Arc::clone(&backup_manifest), Arc::clone(&pieces));
            move || pieces.read(&copy, &backup_manifest, index)
        };
        let bytes = Bytes::from(joined(blocking(read).await)??);
        debug_assert!(bytes.len().is_multiple_of(BLOCK_SIZE), "whole blocks");
        let at = start.0 + index as u64 * u64::from(PIECE_BLOCKS);
        claim.write(BlockAddress(at), bytes).await?;
    }
    for table in &mut message.tables {
        for tablet in &mut table.tablets {
            let runs = tablet.indexes.iter_mut().flat_map(|index| &mut index.runs);
            for place in tablet.heap.iter_mut().chain(runs) {
                let Some(bytes) = &place.directory else { continue };
                let moved = moved(bytes, start, backup_manifest.block_count).map_err(wrong)?;
                place.directory = Some(moved.encode());
            }
        }
    }
    let copied = manifest::of_message(&copy, message)?;

    let next = &mut edit.next;
    let ids: BTreeSet<u32> = replaced.tables.iter().copied().collect();
    let changed: BTreeSet<u32> = copied.table_ids().collect();
    next.tables.retain(|_, table| {
        let id = table.schema.table_id;
        ids.contains(&id) && !changed.contains(&id)
    });
    // Their directories are others now.
    for segment in segments(&copied) {
        next.files.remove(&segment.segment);
    }
    next.tables.extend(copied.tables);
    (next.views, next.sequences) = (copied.views, copied.sequences);
    next.rights = copied.rights;
    next.comments = copied.comments;
    next.next_table = next.next_table.max(replaced.next_table);
    next.next_segment = next.next_segment.max(replaced.next_segment);
    next.commit = commit.max(next.commit);
    next.upkeep.unlogged_commit = commit;
    database.commit(Changes::checkpoint(edit)).await.map(drop)
}

/// The segment whose directory `bytes` are, of a file of `block_count` blocks that lies at `start` now.
fn moved(bytes: &[u8], start: BlockAddress, block_count: u64) -> Result<SegmentDirectory, String> {
    let mut segment = SegmentDirectory::decode(bytes).map_err(|error| error.to_string())?;
    for entry in &mut segment.pages {
        if !entry.shared.is_empty() {
            return Err("its catalog has a page whose columns lie elsewhere".to_owned());
        }
        for page in std::iter::once(&mut entry.page).chain(&mut entry.overflow) {
            if page.extent.end().0 > block_count {
                return Err("its catalog names pages that it does not have".to_owned());
            }
            page.extent.start.0 += start.0;
        }
    }
    Ok(segment)
}
