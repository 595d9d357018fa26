//! The manifest file: reads and writes the catalog of a database; replacing the file commits.
//!
//! ```text
//!  manifest       a frame (cleave_store::Format) with the magic "CLEAVEDB" around a protobuf Manifest
//!  segments/<id>  a SegmentDirectory, encoded; immutable; its checksum is in the manifest
//! ```
//!
//! The order of writes is `segments/*` → fsync → `manifest.new` → fsync → rename over `manifest` → fsync of the
//! directory. So at every instant `manifest` is either the old one or the new one, whole. Files of a crash that no
//! manifest names are removed when the database is next opened ([`remove_strays`]).
//!
//! If a file that the manifest names cannot be read, only its table or index becomes a [damaged](super::damage) one:
//! the manifest lists the blocks of each segment, so they stay allocated without the file. A damaged manifest is
//! refused.
//!
//! Changes by small commits are in the log until a later manifest has them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_media::{Extent, files};
use cleave_store::{
    Format, FrameError, SegmentDirectory, SegmentId, TableSchema, TabletId, VersionMap,
};
use prost::Message;

use super::blocked::BlockedTables;
use super::comments::Comments;
use super::damage::{DamagedIndex, DamagedTable, Occupied};
use super::division::Division;
use super::index_definition::{IndexColumn, IndexDefinition, PRIMARY_KEY};
use super::mirror::{self, Mirror};
use super::rights::Rights;
use super::rules::TableRules;
use super::sequence::Sequence;
use super::upkeep::Upkeep;
use super::view::{Materialized, ViewState};
use super::{
    CatalogState, DatabaseId, DeviceEntry, DeviceId, DeviceKind, LocalDevice, RemoteDevice,
    TableState, TabletState, proto,
};
use crate::error::{Error, Result};
use crate::index::{IndexShape, TabletIndex};
use crate::storage_error::{SegmentFault, StorageError};

/// The frame of the manifest's message; this build writes its newest version.
pub const MANIFEST_FORMAT: Format =
    Format { magic: *b"CLEAVEDB", name: "database manifest", versions: 3..=15 };

pub(super) mod blocks;
mod copied;
mod segment_files;

pub use copied::{device_entry, device_message, replace_message, sealed};
use segment_files::segment_path;
pub use segment_files::{
    remove_segment, segment_file_name, segment_of_file, sync_segments, write_segment,
};

const MANIFEST: &str = "manifest";
/// The file's name in earlier builds.
const MANIFEST_BEFORE: &str = "root";
const MANIFEST_NEW: &str = "manifest.new";
const SEGMENTS: &str = "segments";

/// The manifest's entry for a sealed segment's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    /// CRC-32C of the whole file.
    pub checksum: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// The [revision](SegmentDirectory::revision) of the segment, which is part of the file's name.
    pub revision: u32,
    /// The blocks of the segment, ascending, neighbours joined; None: the manifest of an earlier build does not list
    /// them, and the file cannot be read.
    pub extents: Option<Arc<[Extent]>>,
}

/// True if `directory` has a manifest, of whatever kind.
pub fn exists(directory: &Path) -> bool {
    path_of(directory).exists()
}

/// The path of the manifest of `directory`: under its present name, or its name in earlier builds.
#[must_use]
pub fn path_of(directory: &Path) -> PathBuf {
    let (path, before) = (directory.join(MANIFEST), directory.join(MANIFEST_BEFORE));
    if !path.exists() && before.exists() { before } else { path }
}

/// Renames the manifest of an earlier build to its present name. Only by the process that has the lock.
///
/// # Errors
/// [`Error::Io`].
pub fn take_name(directory: &Path) -> Result<()> {
    let (path, found) = (directory.join(MANIFEST), path_of(directory));
    if found == path {
        return Ok(());
    }
    files::rename(&found, &path).map_err(|error| file_error(&found, "rename", error))?;
    files::sync_directory(directory).map_err(|error| file_error(directory, "sync", error))
}

/// Reads the manifest and every segment directory that it names. Tables and indexes with an unreadable segment file
/// become damaged ones.
///
/// # Errors
/// [`StorageError::NotADatabase`] if there is no manifest or another kind of file; [`StorageError::NewerFormat`];
/// [`StorageError::Damaged`] for a manifest that is truncated or altered; [`Error::Io`].
pub fn read(directory: &Path) -> Result<CatalogState> {
    let (state, faults) = read_sound(directory)?;
    match faults.into_iter().next() {
        Some(fault) => Err(fault.error),
        None => Ok(state),
    }
}

/// The catalog of `message`, a manifest in `directory`.
///
/// # Errors
/// As [`read`].
pub fn of_message(directory: &Path, message: proto::Manifest) -> Result<CatalogState> {
    let path = directory.join(MANIFEST);
    let mut decoder =
        Decoder { directory, path: &path, files: BTreeMap::new(), faults: Vec::new() };
    let state = decoder.state(message)?;
    match decoder.faults.into_iter().next() {
        Some(fault) => Err(fault.error),
        None => Ok(state),
    }
}

/// An intact manifest entry of a table with invalid contents.
#[derive(Debug)]
pub struct TableFault {
    /// The name of the table, if that can be read.
    pub table: Option<String>,
    /// The fault.
    pub error: Error,
}

/// As [`read`], but tables with invalid entries are left out, and returned. Not for an incarnation that writes a
/// manifest: it would lose them.
///
/// # Errors
/// As [`read`], if the manifest as a whole is at fault.
pub fn read_sound(directory: &Path) -> Result<(CatalogState, Vec<TableFault>)> {
    let path = path_of(directory);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Err(StorageError::NotADatabase {
                path: directory.to_owned(),
                reason: "it has no file named \"manifest\"".to_owned(),
            }
            .into());
        }
        Err(error) => return Err(file_error(&path, "read", error)),
    };
    let (_, message) =
        MANIFEST_FORMAT.open(&bytes).map_err(|fault| frame_error(fault, directory, &path))?;
    let manifest = proto::Manifest::decode(message).map_err(|error| StorageError::Damaged {
        path: path.clone(),
        reason: format!("its content cannot be read: {error}"),
    })?;
    let mut decoder =
        Decoder { directory, path: &path, files: BTreeMap::new(), faults: Vec::new() };
    let state = decoder.state(manifest)?;
    Ok((state, decoder.faults))
}

/// Reads the file of a segment again, and compares it with its manifest entry.
///
/// # Errors
/// The fault of the file.
pub fn verify_segment(
    directory: &Path,
    segment: SegmentId,
    file: &SegmentFile,
) -> Result<(), SegmentFault> {
    let path = segment_path(directory, segment, file.revision);
    let fault = |reason: String| SegmentFault { segment, path: path.clone(), reason };
    let bytes = read_segment(&path, file).map_err(fault)?;
    SegmentDirectory::decode(&bytes).map(drop).map_err(|error| fault(error.to_string()))
}

/// Replaces the manifest by `state`. Sealed segments must have been written before.
///
/// # Errors
/// [`Error::Io`] if the old manifest is certainly still in place; [`ReplaceError::Unknown`] if the rename may or may
/// not have reached the disk: the database must be closed.
pub fn replace(directory: &Path, state: &CatalogState) -> Result<(), ReplaceError> {
    let (new, path) = (directory.join(MANIFEST_NEW), directory.join(MANIFEST));
    let bytes = MANIFEST_FORMAT.seal(&encode(state));
    files::write_durably(&new, &bytes).map_err(|error| {
        // Best effort: the next replacement or the next incarnation removes it otherwise.
        drop(files::remove(&new));
        ReplaceError::Unchanged(file_error(&new, "write", error))
    })?;
    files::rename(&new, &path)
        .map_err(|error| ReplaceError::Unchanged(file_error(&path, "replace", error)))?;
    files::sync_directory(directory)
        .map_err(|error| ReplaceError::Unknown(file_error(directory, "sync", error)))
}

/// Why a manifest was not replaced.
#[derive(Debug)]
pub enum ReplaceError {
    /// The old manifest is in place; only the statement failed.
    Unchanged(Error),
    /// Either manifest may be found after a crash.
    Unknown(Error),
}

/// Bytes of the manifest in `directory`.
pub fn byte_count(directory: &Path) -> u64 {
    fs::metadata(path_of(directory)).map_or(0, |metadata| metadata.len())
}

/// Makes `directory` and its missing parents, durably.
///
/// # Errors
/// [`Error::Io`].
pub fn create_directory(directory: &Path) -> Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
    files::create_directories(directory).map_err(|error| file_error(directory, "create", error))?;
    for path in missing {
        // The name of each lies in its parent.
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        for synced in [path, above.unwrap_or(Path::new("."))] {
            files::sync_directory(synced).map_err(|error| file_error(synced, "sync", error))?;
        }
    }
    Ok(())
}

/// Makes the directory of segment files.
///
/// # Errors
/// [`Error::Io`].
pub fn create_directories(directory: &Path) -> Result<()> {
    let segments = directory.join(SEGMENTS);
    files::create_directories(&segments).map_err(|error| file_error(&segments, "create", error))?;
    files::sync_directory(directory).map_err(|error| file_error(directory, "sync", error))
}

/// Removes leftovers of a crash: a `manifest.new`, and segment files that `state` does not name.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_strays(directory: &Path, state: &CatalogState) -> Result<()> {
    let new = directory.join(MANIFEST_NEW);
    match files::remove(&new) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(file_error(&new, "remove", error)),
    }
    let segments = directory.join(SEGMENTS);
    let entries = fs::read_dir(&segments).map_err(|error| file_error(&segments, "read", error))?;
    for entry in entries {
        let entry = entry.map_err(|error| file_error(&segments, "read", error))?;
        let found = entry.file_name().to_str().and_then(segment_of_file);
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_named = |(segment, revision): (SegmentId, u32)| {
            state.files.get(&segment).is_some_and(|file| file.revision == revision)
        };
        // Another name is not Cleave's, nor is a folder, and stays.
        if !is_folder && found.is_some_and(|found| !is_named(found)) {
            files::remove(&entry.path())
                .map_err(|error| file_error(&entry.path(), "remove", error))?;
        }
    }
    Ok(())
}

/// True if `directory` holds at most the files of an interrupted creation.
///
/// # Errors
/// [`Error::Io`].
pub fn is_blank(directory: &Path) -> Result<bool> {
    let ours = |name: &str| {
        [MANIFEST_NEW, SEGMENTS, "lock", "log"].contains(&name)
            || name.starts_with("device-0.media")
    };
    for entry in fs::read_dir(directory).map_err(|error| file_error(directory, "read", error))? {
        let entry = entry.map_err(|error| file_error(directory, "read", error))?;
        if !entry.file_name().to_str().is_some_and(ours) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn encode(state: &CatalogState) -> Vec<u8> {
    message(state).encode_to_vec()
}

/// The manifest of `state`: it contains the directories of segments without a file.
pub fn message(state: &CatalogState) -> proto::Manifest {
    let tables = state.tables.values().map(|table| encode_table(table, state));
    let damaged = state.damaged.values().map(|table| table.message.clone());
    let tables = tables.chain(damaged).collect();
    proto::Manifest {
        database: state.database.0.to_vec(),
        epoch: state.epoch,
        generation: state.generation,
        commit: state.commit,
        log_position: state.log_position,
        next_table: state.next_table,
        next_segment: state.next_segment,
        next_device: state.next_device,
        devices: state.devices.values().map(encode_device).collect(),
        tables,
        sequences: state.sequences.values().map(|sequence| sequence.encode()).collect(),
        upkeep: state.upkeep.encode(),
        rights: state.rights.encode(),
        comments: state.comments.encode(),
        views: state.views().map(|view| view.encode()).collect(),
        blocked: state.blocked.encode(),
    }
}

fn encode_device(device: &DeviceEntry) -> proto::Device {
    let remote = match &device.kind {
        DeviceKind::Embedded | DeviceKind::Local(_) | DeviceKind::Mirror(_) => None,
        DeviceKind::Remote(remote) => Some(proto::Remote {
            host: remote.host.clone(),
            port: u32::from(remote.port),
            token_file: remote.token_file.as_ref().map(|path| path.to_string_lossy().into_owned()),
            ca_pem: remote.ca_pem.clone(),
            rate_cap: remote.rate_cap,
        }),
    };
    let local = match &device.kind {
        DeviceKind::Local(local) => Some(proto::Local {
            socket: local.socket.to_string_lossy().into_owned(),
            rate_cap: local.rate_cap,
        }),
        DeviceKind::Embedded | DeviceKind::Remote(_) | DeviceKind::Mirror(_) => None,
    };
    proto::Device {
        id: device.id.0,
        name: device.name.clone(),
        identity: device.identity.to_vec(),
        remote,
        local,
        mirror: device.mirror().map(Mirror::encode),
    }
}

fn encode_table(table: &TableState, state: &CatalogState) -> proto::Table {
    let file = |segment: &SegmentDirectory| {
        let file = state.files.get(&segment.segment);
        file.filter(|file| file.revision == segment.revision)
    };
    let place = |segment: &Arc<SegmentDirectory>| match file(segment) {
        Some(file) => proto::SegmentPlace {
            revision: file.revision,
            segment: segment.segment.0,
            directory: None,
            file_checksum: file.checksum,
            file_bytes: file.bytes,
            blocks: file.extents.as_deref().map(blocks::encode),
        },
        None => proto::SegmentPlace {
            segment: segment.segment.0,
            directory: Some(segment.encode()),
            revision: 0,
            file_checksum: 0,
            file_bytes: 0,
            blocks: None,
        },
    };
    let tablet = |(at, tablet): (usize, &Arc<TabletState>)| {
        let sound = tablet.indexes.iter().map(|index| {
            let runs = index.runs().map(place).collect();
            let part = proto::Index { runs, vid_covered: index.vid_covered };
            (index.definition().id, part)
        });
        let damaged = table.damaged.iter().filter_map(|index| {
            let part = index.parts.get(at)?;
            Some((index.definition.id, part.clone()))
        });
        proto::Tablet {
            id: tablet.id.0,
            device: tablet.device.0,
            next_vid: tablet.next_vid,
            vids_skipped: tablet.vids_skipped,
            heap: tablet.heap.iter().map(place).collect(),
            version_map: tablet.version_map.encode(),
            indexes: by_id(sound.chain(damaged)),
        }
    };
    let sound = table.indexes.iter().chain(table.damaged.iter().map(|index| &index.definition));
    let (hash_columns, ranges) = table.division.encode();
    proto::Table {
        schema: table.schema.encode(),
        tablets: table.tablets.iter().enumerate().map(tablet).collect(),
        indexes: by_id(sound.map(|index| (index.id, encode_index(index)))),
        hash_columns,
        round_robin: table.division == Division::RoundRobin,
        ranges,
        rules: table.rules.encode(),
        materialized: table.materialized.as_ref().map(|query| query.encode()),
        is_balanced: table.is_balanced,
    }
}

/// Indexes, or parts of them, ascending by index id, the order of a manifest.
fn by_id<T>(indexes: impl Iterator<Item = (u32, T)>) -> Vec<T> {
    let mut indexes: Vec<(u32, T)> = indexes.collect();
    indexes.sort_by_key(|(id, _)| *id);
    indexes.into_iter().map(|(_, index)| index).collect()
}

fn encode_index(index: &IndexDefinition) -> proto::IndexDefinition {
    let column = |column: &IndexColumn| proto::IndexColumn {
        column: column.column,
        descending: column.descending,
        nulls_first: column.nulls_first,
    };
    proto::IndexDefinition {
        id: index.id,
        name: index.name.clone(),
        columns: index.columns.iter().map(column).collect(),
        unique: index.unique,
        constraint: index.constraint,
    }
}

/// Turns messages into a state, reading segment files on the way.
struct Decoder<'a> {
    directory: &'a Path,
    path: &'a Path,
    files: BTreeMap<SegmentId, SegmentFile>,
    /// Tables with invalid entries; they are left out.
    faults: Vec<TableFault>,
}

/// A table from a manifest.
enum Decoded {
    Sound(TableState),
    Damaged(Arc<DamagedTable>),
}

/// Segments of a heap or of an index's part, as far as they can be read.
struct Segments {
    directories: Vec<Arc<SegmentDirectory>>,
    faults: Vec<SegmentFault>,
    /// Their space; used if some of them cannot be read.
    space: Occupied,
}

impl Decoder<'_> {
    fn state(&mut self, manifest: proto::Manifest) -> Result<CatalogState> {
        let database = manifest
            .database
            .try_into()
            .map_err(|_| self.damaged("a database id is not 16 bytes"))?;
        let mut devices = BTreeMap::new();
        for device in manifest.devices {
            let entry = self.device(device)?;
            devices.insert(entry.id, entry);
        }
        mirror::check(&devices).map_err(|reason| self.damaged(&reason))?;
        let (mut tables, mut damaged) = (BTreeMap::new(), BTreeMap::new());
        for table in manifest.tables {
            let name = TableSchema::decode(&table.schema).ok().map(|schema| schema.name);
            match self.table(table, &devices) {
                Ok(Decoded::Sound(table)) => {
                    tables.insert(table.schema.name.clone(), Arc::new(table));
                }
                Ok(Decoded::Damaged(table)) => {
                    damaged.insert(table.schema.name.clone(), table);
                }
                Err(error) => self.faults.push(TableFault { table: name, error }),
            }
        }
        let mut sequences = BTreeMap::new();
        for sequence in manifest.sequences {
            let sequence = Sequence::decode(sequence).map_err(|reason| self.damaged(&reason))?;
            sequences.insert(sequence.name.clone(), Arc::new(sequence));
        }
        let mut views = BTreeMap::new();
        for view in manifest.views {
            let view = ViewState::decode(view).map_err(|reason| self.damaged(&reason))?;
            views.insert(view.schema.name.clone(), Arc::new(view));
        }
        let rights = Rights::decode(manifest.rights).map_err(|reason| self.damaged(&reason))?;
        let rights = Arc::new(rights);
        Ok(CatalogState {
            database: DatabaseId(database),
            epoch: manifest.epoch,
            generation: manifest.generation,
            commit: manifest.commit,
            log_position: manifest.log_position,
            log_end: 0,
            next_table: manifest.next_table,
            next_segment: manifest.next_segment,
            next_device: manifest.next_device,
            devices,
            tables,
            damaged,
            sequences,
            files: std::mem::take(&mut self.files),
            upkeep: Upkeep::decode(manifest.upkeep)
                .ok_or_else(|| self.damaged("a log replica is none"))?,
            blocked: BlockedTables::decode(manifest.blocked),
            rights,
            comments: Arc::new(Comments::decode(manifest.comments)),
            views,
            keep: None,
            shipped: Arc::default(),
            referenced: Default::default(),
        })
    }

    fn device(&self, device: proto::Device) -> Result<DeviceEntry> {
        let kind = match (device.remote, device.local, device.mirror) {
            (None, None, None) => DeviceKind::Embedded,
            (None, None, Some(mirror)) => DeviceKind::Mirror(Mirror::decode(&mirror)),
            (None, Some(local), None) => DeviceKind::Local(LocalDevice {
                socket: PathBuf::from(local.socket),
                rate_cap: local.rate_cap,
            }),
            (Some(remote), None, None) => DeviceKind::Remote(RemoteDevice {
                host: remote.host,
                port: u16::try_from(remote.port)
                    .map_err(|_| self.damaged(&format!("{} is no port", remote.port)))?,
                token_file: remote.token_file.map(PathBuf::from),
                ca_pem: remote.ca_pem,
                rate_cap: remote.rate_cap,
            }),
            _ => return Err(self.damaged("a device is both on this machine and elsewhere")),
        };
        let identity = device
            .identity
            .try_into()
            .map_err(|_| self.damaged("a device's identity is not 16 bytes"))?;
        Ok(DeviceEntry { id: DeviceId(device.id), name: device.name, identity, kind })
    }

    /// The table `table`, whose tablets all lie on `devices`. All its files are read, so that all faults are known.
    fn table(
        &mut self,
        table: proto::Table,
        devices: &BTreeMap<DeviceId, DeviceEntry>,
    ) -> Result<Decoded> {
        let schema = TableSchema::decode(&table.schema)
            .map_err(|error| self.damaged(&format!("a table's schema: {error}")))?;
        let schema = Arc::new(schema);
        let rules = Arc::new(TableRules::decode(table.rules.as_ref()));
        let materialized = table.materialized.clone();
        let materialized = materialized.map(|query| Materialized::decode(query, &schema));
        let materialized = materialized.transpose().map_err(|reason| self.damaged(&reason))?;
        let shapes = self.shapes(&table.indexes, &schema)?;
        let division = Division::decode(&table, &schema).map_err(|reason| self.damaged(&reason))?;
        if table.tablets.is_empty() || (0..).zip(&table.tablets).any(|(id, tablet)| tablet.id != id)
        {
            return Err(self.damaged(&format!(
                "the tablets of table \"{}\" are not numbered from 0",
                schema.name
            )));
        }
        let mut tablets = Vec::with_capacity(table.tablets.len());
        for tablet in &table.tablets {
            if !devices.contains_key(&DeviceId(tablet.device)) {
                return Err(self.damaged(&format!(
                    "table \"{}\" lies on device {}, which it does not list",
                    schema.name, tablet.device
                )));
            }
            tablets.push(self.tablet(tablet, &schema, shapes.len())?);
        }
        if tablets.iter().any(|tablet| !tablet.heap.faults.is_empty()) {
            let parts = tablets.into_iter().flat_map(|tablet| {
                std::iter::once(tablet.heap).chain(tablet.indexes.into_iter().map(|part| part.runs))
            });
            let (faults, space): (Vec<_>, Vec<_>) =
                parts.map(|part| (part.faults, part.space)).unzip();
            let faults = faults.into_iter().flatten().collect();
            let table = DamagedTable { schema, faults, message: table, space };
            return Ok(Decoded::Damaged(Arc::new(table)));
        }
        let mut damaged = damaged_indexes(&shapes, &tablets);
        let tablets = tablets.into_iter().zip(table.tablets);
        let tablets = tablets
            .map(|(tablet, message)| self.sound(tablet, message, &shapes, &mut damaged))
            .collect::<Result<_>>()?;
        let is_sound = |index: &&Arc<IndexDefinition>| {
            damaged.iter().all(|damaged| damaged.definition.id != index.id)
        };
        let indexes = shapes.iter().map(|shape| &shape.definition).filter(is_sound);
        let indexes = indexes.map(Arc::clone).collect();
        let damaged = damaged.into_iter().map(Arc::new).collect();
        let materialized = materialized.map(Arc::new);
        let is_balanced = table.is_balanced;
        let table = TableState {
            schema,
            indexes,
            tablets,
            division,
            damaged,
            rules,
            materialized,
            is_balanced,
        };
        Ok(Decoded::Sound(table))
    }

    /// A tablet with a readable heap; its parts of damaged indexes are moved to these.
    fn sound(
        &self,
        tablet: DecodedTablet,
        message: proto::Tablet,
        shapes: &[Arc<IndexShape>],
        damaged: &mut [DamagedIndex],
    ) -> Result<Arc<TabletState>> {
        let mut indexes = Vec::with_capacity(shapes.len());
        let parts = tablet.indexes.into_iter().zip(message.indexes);
        for ((part, message), shape) in parts.zip(shapes) {
            let place = damaged.iter_mut().find(|d| d.definition.id == shape.definition.id);
            let Some(place) = place else {
                let runs = part.runs.directories;
                let index = TabletIndex::stored(Arc::clone(shape), runs, part.vid_covered)
                    .map_err(|error| self.damaged(&error.to_string()))?;
                indexes.push(Arc::new(index));
                continue;
            };
            place.faults.extend(part.runs.faults);
            place.parts.push(message);
            place.space.push(part.runs.space);
        }
        Ok(Arc::new(TabletState {
            id: TabletId(message.id),
            device: DeviceId(message.device),
            next_vid: message.next_vid,
            vids_skipped: message.vids_skipped,
            heap: tablet.heap.directories,
            rewrites: Default::default(),
            version_map: Arc::new(tablet.version_map),
            indexes,
        }))
    }

    /// The indexes of the table `schema`, including that of its primary key, if it has one.
    fn shapes(
        &self,
        indexes: &[proto::IndexDefinition],
        schema: &Arc<TableSchema>,
    ) -> Result<Vec<Arc<IndexShape>>> {
        let mut shapes: Vec<Arc<IndexShape>> = Vec::with_capacity(indexes.len());
        for index in indexes {
            let definition = decode_index(index);
            let is_new = shapes.last().is_none_or(|last| last.definition.id < definition.id);
            let is_key = definition.id == PRIMARY_KEY;
            let columns = || definition.columns.iter().map(|column| column.column);
            if !is_new || is_key && !columns().eq(schema.primary_key.iter().copied()) {
                let (name, table) = (&definition.name, &schema.name);
                return Err(self.damaged(&format!("\"{name}\" is no index of \"{table}\"")));
            }
            let shape = IndexShape::new(Arc::new(definition), schema);
            shapes.push(shape.map_err(|error| self.damaged(&error.to_string()))?);
        }
        let has_key = shapes.first().is_some_and(|first| first.definition.id == PRIMARY_KEY);
        if has_key == schema.primary_key.is_empty() {
            return Err(self.damaged(&format!(
                "table \"{}\" and its indexes do not agree on whether it has a key",
                schema.name
            )));
        }
        Ok(shapes)
    }

    fn tablet(
        &mut self,
        tablet: &proto::Tablet,
        schema: &TableSchema,
        index_count: usize,
    ) -> Result<DecodedTablet> {
        let device = DeviceId(tablet.device);
        let heap = self.segments(&tablet.heap, schema.table_id, device)?;
        let version_map = VersionMap::decode(&tablet.version_map)
            .map_err(|error| self.damaged(&format!("a version map: {error}")))?;
        if tablet.indexes.len() != index_count {
            return Err(self.damaged(&format!(
                "a tablet of table \"{}\" has {} of its {index_count} indexes",
                schema.name,
                tablet.indexes.len(),
            )));
        }
        let mut indexes = Vec::with_capacity(index_count);
        for index in &tablet.indexes {
            let runs = self.segments(&index.runs, schema.table_id, device)?;
            indexes.push(DecodedIndex { runs, vid_covered: index.vid_covered });
        }
        Ok(DecodedTablet { heap, version_map, indexes })
    }

    fn segments(
        &mut self,
        places: &[proto::SegmentPlace],
        table: u32,
        device: DeviceId,
    ) -> Result<Segments> {
        let mut segments = Segments {
            directories: Vec::with_capacity(places.len()),
            faults: Vec::new(),
            space: Occupied { device, extents: Vec::new(), is_known: true },
        };
        for place in places {
            let segment = SegmentId(place.segment);
            let directory = match &place.directory {
                None => self.segment_file(place, table, &mut segments.space)?,
                Some(bytes) => {
                    let directory = decode_segment(bytes, segment, table)
                        .map_err(|reason| self.damaged(&reason))?;
                    segments.space.extents.extend(directory.extents());
                    Ok(directory)
                }
            };
            match directory {
                Ok(directory) => segments.directories.push(Arc::new(directory)),
                Err(fault) => segments.faults.push(fault),
            }
        }
        Ok(segments)
    }

    /// The directory of a segment with a file of its own, or why it cannot be read. Adds the segment's space to
    /// `space`, as far as it is known.
    fn segment_file(
        &mut self,
        place: &proto::SegmentPlace,
        table: u32,
        space: &mut Occupied,
    ) -> Result<Result<SegmentDirectory, SegmentFault>> {
        let segment = SegmentId(place.segment);
        let extents = match &place.blocks {
            None => None,
            Some(blocks) => {
                let none = || self.damaged(&format!("the blocks of {segment} are none"));
                Some(blocks::decode(blocks).ok_or_else(none)?)
            }
        };
        let path = segment_path(self.directory, segment, place.revision);
        let mut file = SegmentFile {
            checksum: place.file_checksum,
            bytes: place.file_bytes,
            revision: place.revision,
            extents,
        };
        let directory = read_segment(&path, &file)
            .and_then(|bytes| decode_segment(&bytes, segment, table))
            .map_err(|reason| SegmentFault { segment, path, reason });
        if let (None, Ok(directory)) = (&file.extents, &directory) {
            file.extents = Some(blocks::joined(directory));
        }
        match &file.extents {
            Some(extents) => space.extents.extend(extents.iter()),
            None => space.is_known = false,
        }
        self.files.insert(segment, file);
        Ok(directory)
    }

    fn damaged(&self, reason: &str) -> Error {
        StorageError::Damaged { path: self.path.to_owned(), reason: reason.to_owned() }.into()
    }
}

/// A tablet from a manifest.
struct DecodedTablet {
    heap: Segments,
    version_map: VersionMap,
    indexes: Vec<DecodedIndex>,
}

/// A tablet's part of an index.
struct DecodedIndex {
    runs: Segments,
    vid_covered: u64,
}

/// The damaged ones of the indexes `shapes`, with an unreadable run in any of `tablets`, without their parts.
fn damaged_indexes(shapes: &[Arc<IndexShape>], tablets: &[DecodedTablet]) -> Vec<DamagedIndex> {
    let is_damaged = |at: usize| {
        let mut parts = tablets.iter().filter_map(|tablet| tablet.indexes.get(at));
        parts.any(|part| !part.runs.faults.is_empty())
    };
    let damaged = shapes.iter().enumerate().filter(|(at, _)| is_damaged(*at));
    let damaged = damaged.map(|(_, shape)| DamagedIndex {
        definition: Arc::clone(&shape.definition),
        faults: Vec::new(),
        parts: Vec::new(),
        space: Vec::new(),
    });
    damaged.collect()
}

/// The directory of `segment`, of the table with the number `table`; or why `bytes` are invalid.
fn decode_segment(
    bytes: &[u8],
    segment: SegmentId,
    table: u32,
) -> Result<SegmentDirectory, String> {
    let directory = SegmentDirectory::decode(bytes)
        .map_err(|error| format!("the directory of segment {}: {error}", segment.0))?;
    if directory.segment != segment || directory.table_id != table {
        return Err(format!(
            "the directory of segment {} of table {table} is that of segment {} of table {}",
            segment.0, directory.segment.0, directory.table_id
        ));
    }
    Ok(directory)
}

fn decode_index(index: &proto::IndexDefinition) -> IndexDefinition {
    let column = |column: &proto::IndexColumn| IndexColumn {
        column: column.column,
        descending: column.descending,
        nulls_first: column.nulls_first,
    };
    IndexDefinition {
        id: index.id,
        name: index.name.clone(),
        columns: index.columns.iter().map(column).collect(),
        unique: index.unique,
        constraint: index.constraint,
    }
}

fn frame_error(fault: FrameError, directory: &Path, path: &Path) -> Error {
    match fault {
        FrameError::NotThisFormat { .. } => StorageError::NotADatabase {
            path: directory.to_owned(),
            reason: "its file \"manifest\" is not Cleave's".to_owned(),
        },
        FrameError::Version { found, newest, .. } if found > newest => {
            StorageError::NewerFormat { path: directory.to_owned(), found, supported: newest }
        }
        other => StorageError::Damaged { path: path.to_owned(), reason: other.to_string() },
    }
    .into()
}

/// The bytes of a segment's file, if they match the manifest, or why they do not.
fn read_segment(path: &Path, expected: &SegmentFile) -> Result<Vec<u8>, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("the manifest names it, but it is missing".to_owned());
        }
        Err(error) => {
            return Err(format!(
                "{error}, which may pass (before all else, open the database again)"
            ));
        }
    };
    if bytes.len() as u64 != expected.bytes {
        return Err("it does not have the length that the manifest says".to_owned());
    }
    if crc32c::crc32c(&bytes) != expected.checksum {
        return Err("it fails its checksum".to_owned());
    }
    Ok(bytes)
}

fn file_error(path: &Path, action: &'static str, source: io::Error) -> Error {
    Error::io(action, path, source)
}

#[cfg(test)]
mod tests;
