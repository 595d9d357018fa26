//! Takes a backup of an open database, while others go on writing to it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use cleave_catalog::catalog::{CatalogState, DeviceId, manifest, proto};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_engine::storage_engine;
use cleave_engine::storage_engine::catalog_edit;
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::storage_engine::commit::Changes;
use cleave_engine::storage_engine::{EMBEDDED_DEVICE_NAME, Engine};
use cleave_fragment::progress::Progress;
use cleave_media::{Clock, SystemClock};
use cleave_store::SegmentDirectory;
use prost::Message;

use super::backup_manifest::{BackupManifest, BackupSummary};
use super::pages::PageFile;
use super::{BACKUP_MANIFEST, CATALOG, PAGES, STATISTICS, USERS, only_for_owner, prepare_place};

/// Writes a backup of `database`, as it is now, into the folder `target`, which is created, empty, or has what an
/// interrupted backup left. `progress` counts the bytes of its pages.
///
/// # Errors
/// [`StorageError::BackupPlace`]; [`StorageError::DamagedTable`] and [`StorageError::DamagedIndex`] for parts that
/// cannot be read; those of devices; [`Error::Io`]. There is no backup manifest then, and the database is as it was.
pub async fn take(
    database: &Arc<Engine>,
    target: &Path,
    progress: Progress,
) -> Result<BackupSummary> {
    let ours = |name: &str| {
        let kept = [CATALOG, PAGES, STATISTICS, USERS, "backup_manifest.new", "lock"];
        kept.contains(&name)
    };
    let path = target.to_owned();
    if target.join(BACKUP_MANIFEST).exists() {
        let reason = "it holds a backup, which is not written over".to_owned();
        return Err(StorageError::BackupPlace { path, reason }.into());
    }
    prepare_place(target, ours)?;
    let _lock = storage_engine::lock(target).await.map_err(|error| match error.sqlstate() {
        "55006" => {
            let reason = "another backup is being written there".to_owned();
            StorageError::BackupPlace { path, reason }.into()
        }
        _ => error,
    })?;
    // Of which the manifest has the sequences too, as far as they have gone. Held to the end: its pages are not used
    // again.
    let edit = CatalogEdit::begin(database).await?;
    let state = database.commit(Changes::checkpoint(edit)).await?.state;
    let made_at_us = SystemClock.wall();
    database.harden(state.log_end).await?;
    let mut backup_manifest = copied(database, &state, made_at_us, target, &progress).await?;
    copy_files(database, &state, target, &mut backup_manifest)?;
    backup_manifest.write(target)?;
    Ok(backup_manifest.summary())
}

/// Copies the tables of `state` into `target`, whose bytes `progress` counts; returns what completes it to a backup.
///
/// # Errors
/// As [`take`].
pub(super) async fn copied(
    database: &Arc<Engine>,
    state: &CatalogState,
    made_at_us: i64,
    target: &Path,
    progress: &Progress,
) -> Result<BackupManifest> {
    check_whole(state)?;
    let pages = catalog_edit::segments(state).flat_map(|segment| segment.page_refs());
    progress.expect(pages.map(|page| page.extent.bytes() as u64).sum());
    let mut manifest = manifest::message(&CatalogState { files: BTreeMap::new(), ..state.clone() });
    let mut pages = PageFile::create(target, progress.clone())?;
    for (message, table) in manifest.tables.iter_mut().zip(state.tables()) {
        let copied = copy_table(database, message, &mut pages).await;
        copied.map_err(|error| of_table(&table.schema.name, error))?;
    }
    alone(&mut manifest);
    let (block_count, pieces) = pages.finish().await?;
    let mut backup_manifest = BackupManifest {
        database: state.database.0.to_vec(),
        commit: state.commit,
        made_at_us,
        log: database.log().map(|log| log.identity().to_vec()).unwrap_or_default(),
        log_position: state.log_position.max(state.log_end),
        files: Vec::new(),
        block_count,
        pieces,
        table_count: manifest.tables.len() as u64,
    };
    let bytes = manifest::MANIFEST_FORMAT.seal(&manifest.encode_to_vec());
    backup_manifest.add_file(target, &format!("{CATALOG}/manifest"), &bytes)?;
    Ok(backup_manifest)
}

/// Refuses a catalog version with tables or indexes that cannot be read.
fn check_whole(state: &CatalogState) -> Result<()> {
    if let Some(table) = state.damaged_tables().next() {
        return Err(table.error().into());
    }
    for table in state.tables() {
        state.find_table(&table.schema.name)?;
    }
    match state.damaged_indexes().next() {
        Some((table, index)) => Err(index.error(&table.schema.name).into()),
        None => Ok(()),
    }
}

/// Copies the pages of a table, and says in `table` where they are.
async fn copy_table(
    database: &Arc<Engine>,
    table: &mut proto::Table,
    pages: &mut PageFile,
) -> Result<()> {
    for tablet in &mut table.tablets {
        let device = database.attached(DeviceId(tablet.device))?;
        let runs = tablet.indexes.iter_mut().flat_map(|index| &mut index.runs);
        for place in tablet.heap.iter_mut().chain(runs) {
            // As it was encoded a moment ago.
            let Some(bytes) = &place.directory else { continue };
            let segment = SegmentDirectory::decode(bytes).map_err(|error| {
                let path = database.directory().join("manifest");
                StorageError::Damaged { path, reason: error.to_string() }
            })?;
            place.directory = Some(pages.copy(&device, segment).await?.encode());
        }
        tablet.device = DeviceId::EMBEDDED.0;
    }
    Ok(())
}

/// Makes `manifest` that of a database of one device and no log.
fn alone(manifest: &mut proto::Manifest) {
    manifest.devices = vec![proto::Device {
        id: DeviceId::EMBEDDED.0,
        name: EMBEDDED_DEVICE_NAME.to_owned(),
        identity: vec![0; 16],
        remote: None,
        local: None,
        mirror: None,
    }];
    manifest.next_device = 1;
    manifest.log_position = 0;
    if let Some(upkeep) = &mut manifest.upkeep {
        upkeep.archive_directory = None;
        upkeep.log_replicas.clear();
        upkeep.kept.clear();
    }
}

/// Copies what a database has beside its manifest and its pages.
fn copy_files(
    database: &Engine,
    state: &CatalogState,
    target: &Path,
    backup_manifest: &mut BackupManifest,
) -> Result<()> {
    let ids = state.tables().map(|table| table.schema.table_id);
    let names = ids.map(|id| format!("{STATISTICS}/{id}")).chain([USERS.to_owned()]);
    for name in names {
        let path = database.directory().join(&name);
        match std::fs::read(&path) {
            Ok(bytes) => backup_manifest.add_file(target, &name, &bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", &path, error)),
        }
        if name == USERS && target.join(&name).exists() {
            only_for_owner(&target.join(&name), 0o600)?;
        }
    }
    Ok(())
}

fn of_table(table: &str, error: Error) -> Error {
    match error {
        Error::Storage(shared) => match Arc::try_unwrap(shared) {
            Ok(StorageError::Store(source)) => {
                StorageError::Table { table: table.to_owned(), source }.into()
            }
            Ok(other) => other.into(),
            Err(shared) => Error::Storage(shared),
        },
        other => other,
    }
}
