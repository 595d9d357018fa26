//! The root file: what is in it is the database; replacing it is the commit.
//!
//! ```text
//!  root           a frame (cleave_store::Format) with the mark "CLEAVEDB" around a protobuf Root
//!  segments/<id>  what SegmentDirectory::encode wrote; immutable; its checksum stands in the root
//! ```
//!
//! Writing goes
//! `segments/*` → fsync → `root.new` → fsync → rename over `root` → fsync of the directory, so that
//! at every instant `root` is either the old one or the new one, whole. Files that no root names
//! are left by a crash and removed at the next opening ([`remove_strays`]).
//!
//! Deliberately absent: a log. Each statement that writes is one root replacement (issue 2, part 2).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_media::files;
use cleave_store::{
    Format, FrameError, SegmentDirectory, SegmentId, TableSchema, TabletId, VersionMap,
};
use prost::Message;

use super::division::Division;
use super::index_definition::{IndexColumn, IndexDefinition, PRIMARY_KEY};
use super::{
    CatalogState, DatabaseId, DeviceEntry, DeviceId, DeviceKind, LocalDevice, RemoteDevice,
    TableState, TabletState, proto,
};
use crate::error::{Error, Result};
use crate::index::{IndexShape, TabletIndex};
use crate::storage_error::StorageError;

/// The frame around the root's message; its newest version is what this build writes.
pub const ROOT_FORMAT: Format =
    Format { magic: *b"CLEAVEDB", name: "database root", versions: 3..=4 };

const ROOT: &str = "root";
const ROOT_NEW: &str = "root.new";
const SEGMENTS: &str = "segments";

/// Checksum and length of a sealed segment's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFile {
    /// CRC-32C of the whole file.
    pub checksum: u32,
    /// Length in bytes.
    pub bytes: u64,
}

/// True if `directory` has a root, of whatever kind.
pub fn exists(directory: &Path) -> bool {
    directory.join(ROOT).exists()
}

/// Reads the root and every segment directory that it names.
///
/// # Errors
/// [`StorageError::NotADatabase`] where there is no root or another kind of file; [`StorageError::NewerFormat`];
/// [`StorageError::Damaged`] naming the file that is truncated, altered or missing; [`Error::Io`].
pub fn read(directory: &Path) -> Result<CatalogState> {
    let (state, faults) = read_sound(directory)?;
    match faults.into_iter().next() {
        Some(fault) => Err(fault.error),
        None => Ok(state),
    }
}

/// A part of a root that is damaged, while the root is not.
#[derive(Debug)]
pub(crate) struct PartFault {
    /// The table that it belongs to.
    pub(crate) table: Option<String>,
    /// The segment, where it is one's directory.
    pub(crate) segment: Option<SegmentId>,
    /// What is wrong.
    pub(crate) error: Error,
}

/// As [`read`], but tables with damaged parts are left out, and the parts told.
///
/// # Errors
/// As [`read`], where the root itself is at fault.
pub(crate) fn read_sound(directory: &Path) -> Result<(CatalogState, Vec<PartFault>)> {
    let path = directory.join(ROOT);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Err(StorageError::NotADatabase {
                path: directory.to_owned(),
                reason: "it has no file named \"root\"".to_owned(),
            }
            .into());
        }
        Err(error) => return Err(file_error(&path, "read", error)),
    };
    let (_, message) =
        ROOT_FORMAT.open(&bytes).map_err(|fault| frame_error(fault, directory, &path))?;
    let root = proto::Root::decode(message).map_err(|error| StorageError::Damaged {
        path: path.clone(),
        reason: format!("its content cannot be read: {error}"),
    })?;
    let mut decoder =
        Decoder { directory, path: &path, files: BTreeMap::new(), faults: Vec::new() };
    let state = decoder.state(root)?;
    Ok((state, decoder.faults))
}

/// Reads the file of a segment again, and compares it with what the root says.
///
/// # Errors
/// [`StorageError::Damaged`], [`Error::Io`].
pub(crate) fn verify_segment(
    directory: &Path,
    segment: SegmentId,
    file: SegmentFile,
) -> Result<()> {
    let path = segment_path(directory, segment);
    let bytes = read_segment(&path, file)?;
    SegmentDirectory::decode(&bytes)
        .map(drop)
        .map_err(|error| StorageError::Damaged { path, reason: error.to_string() }.into())
}

/// Replaces the root by `state`. Sealed segments must have been written before.
///
/// # Errors
/// [`Error::Io`] when the old root is certainly still the root; [`ReplaceError::Unknown`] when the
/// rename may or may not have reached the disk: the database must be closed.
pub fn replace(directory: &Path, state: &CatalogState) -> Result<(), ReplaceError> {
    let (new, path) = (directory.join(ROOT_NEW), directory.join(ROOT));
    let bytes = ROOT_FORMAT.seal(&encode(state));
    files::write_durably(&new, &bytes).map_err(|error| {
        // Best effort: the next replacement or the next opening removes it otherwise.
        drop(files::remove(&new));
        ReplaceError::Unchanged(file_error(&new, "write", error))
    })?;
    files::rename(&new, &path)
        .map_err(|error| ReplaceError::Unchanged(file_error(&path, "replace", error)))?;
    files::sync_directory(directory)
        .map_err(|error| ReplaceError::Unknown(file_error(directory, "sync", error)))
}

/// Why a root was not replaced.
#[derive(Debug)]
pub enum ReplaceError {
    /// The old root stands; the statement failed and nothing else.
    Unchanged(Error),
    /// Which root would be read after a crash is not known.
    Unknown(Error),
}

/// Makes `directory`, and above it what is missing, so that a loss of power leaves it where it is.
///
/// # Errors
/// [`Error::Io`].
pub fn create_directory(directory: &Path) -> Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
    files::create_directories(directory).map_err(|error| file_error(directory, "create", error))?;
    for path in missing {
        // The name of each stands in the one above it.
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

/// Writes the directory of a sealed segment, durably but for the entry in `segments/`, which
/// [`sync_segments`] makes durable for any number of them.
///
/// # Errors
/// [`Error::Io`].
pub fn write_segment(directory: &Path, segment: &SegmentDirectory) -> Result<SegmentFile> {
    let bytes = segment.encode();
    let path = segment_path(directory, segment.segment);
    files::write_durably(&path, &bytes).map_err(|error| file_error(&path, "write", error))?;
    Ok(SegmentFile { checksum: crc32c::crc32c(&bytes), bytes: bytes.len() as u64 })
}

/// Makes the names of all segment files durable.
///
/// # Errors
/// [`Error::Io`].
pub fn sync_segments(directory: &Path) -> Result<()> {
    let segments = directory.join(SEGMENTS);
    files::sync_directory(&segments).map_err(|error| file_error(&segments, "sync", error))
}

/// Removes the file of a segment that no root names any more. A file that cannot be removed is
/// left for the next opening.
pub fn remove_segment(directory: &Path, segment: SegmentId) {
    drop(files::remove(&segment_path(directory, segment)));
}

/// Removes what a crash left behind: a `root.new`, and segment files that `state` does not name.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_strays(directory: &Path, state: &CatalogState) -> Result<()> {
    let new = directory.join(ROOT_NEW);
    match files::remove(&new) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(file_error(&new, "remove", error)),
    }
    let segments = directory.join(SEGMENTS);
    let entries = fs::read_dir(&segments).map_err(|error| file_error(&segments, "read", error))?;
    for entry in entries {
        let entry = entry.map_err(|error| file_error(&segments, "read", error))?;
        let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        // A name that is no number is none of ours, and stays.
        if id.is_some_and(|id| !state.files.contains_key(&SegmentId(id))) {
            files::remove(&entry.path())
                .map_err(|error| file_error(&entry.path(), "remove", error))?;
        }
    }
    Ok(())
}

/// True if all that `directory` holds can be what an interrupted creation left.
///
/// # Errors
/// [`Error::Io`].
pub fn is_blank(directory: &Path) -> Result<bool> {
    let ours = |name: &str| {
        [ROOT_NEW, SEGMENTS, "lock"].contains(&name) || name.starts_with("device-0.media")
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
    proto::Root {
        database: state.database.0.to_vec(),
        epoch: state.epoch,
        generation: state.generation,
        commit: state.commit,
        next_table: state.next_table,
        next_segment: state.next_segment,
        next_device: state.next_device,
        devices: state.devices.values().map(encode_device).collect(),
        tables: state.tables.values().map(|table| encode_table(table, state)).collect(),
    }
    .encode_to_vec()
}

fn encode_device(device: &DeviceEntry) -> proto::Device {
    let remote = match &device.kind {
        DeviceKind::Embedded | DeviceKind::Local(_) => None,
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
        DeviceKind::Embedded | DeviceKind::Remote(_) => None,
    };
    proto::Device {
        id: device.id.0,
        name: device.name.clone(),
        identity: device.identity.to_vec(),
        remote,
        local,
    }
}

fn encode_table(table: &TableState, state: &CatalogState) -> proto::Table {
    let place = |segment: &Arc<SegmentDirectory>| match state.files.get(&segment.segment) {
        Some(file) => proto::SegmentPlace {
            segment: segment.segment.0,
            directory: None,
            file_checksum: file.checksum,
            file_bytes: file.bytes,
        },
        None => proto::SegmentPlace {
            segment: segment.segment.0,
            directory: Some(segment.encode()),
            file_checksum: 0,
            file_bytes: 0,
        },
    };
    proto::Table {
        schema: table.schema.encode(),
        tablets: table
            .tablets
            .iter()
            .map(|tablet| proto::Tablet {
                id: tablet.id.0,
                device: tablet.device.0,
                next_vid: tablet.next_vid,
                heap: tablet.heap.iter().map(place).collect(),
                version_map: tablet.version_map.encode(),
                indexes: tablet
                    .indexes
                    .iter()
                    .map(|index| proto::Index {
                        runs: index.runs().map(place).collect(),
                        vid_covered: index.vid_covered,
                    })
                    .collect(),
            })
            .collect(),
        indexes: table.indexes.iter().map(|index| encode_index(index)).collect(),
        hash_columns: match &table.division {
            Division::LoadOrder => Vec::new(),
            Division::Hash(ids) => ids.clone(),
        },
    }
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
    /// Parts that are damaged; the tables that they belong to are left out.
    faults: Vec<PartFault>,
}

impl Decoder<'_> {
    fn state(&mut self, root: proto::Root) -> Result<CatalogState> {
        let database =
            root.database.try_into().map_err(|_| self.damaged("a database id is not 16 bytes"))?;
        let mut devices = BTreeMap::new();
        for device in root.devices {
            let entry = self.device(device)?;
            devices.insert(entry.id, entry);
        }
        let mut tables = BTreeMap::new();
        for table in root.tables {
            let sound = self.faults.len();
            let name = TableSchema::decode(&table.schema).ok().map(|schema| schema.name);
            match self.table(table).and_then(|table| self.placed(table, &devices)) {
                Ok(table) if self.faults.len() == sound => {
                    tables.insert(table.schema.name.clone(), Arc::new(table));
                }
                Ok(_) => {}
                Err(error) => self.faults.push(PartFault { table: None, segment: None, error }),
            }
            for fault in self.faults.iter_mut().skip(sound) {
                fault.table.clone_from(&name);
            }
        }
        Ok(CatalogState {
            database: DatabaseId(database),
            epoch: root.epoch,
            generation: root.generation,
            commit: root.commit,
            next_table: root.next_table,
            next_segment: root.next_segment,
            next_device: root.next_device,
            devices,
            tables,
            files: std::mem::take(&mut self.files),
        })
    }

    /// `table`, all of whose tablets lie on `devices`.
    fn placed(
        &self,
        table: TableState,
        devices: &BTreeMap<DeviceId, DeviceEntry>,
    ) -> Result<TableState> {
        match table.tablets.iter().find(|tablet| !devices.contains_key(&tablet.device)) {
            None => Ok(table),
            Some(tablet) => Err(self.damaged(&format!(
                "table \"{}\" lies on device {}, which it does not list",
                table.schema.name, tablet.device
            ))),
        }
    }

    fn device(&self, device: proto::Device) -> Result<DeviceEntry> {
        let kind = match (device.remote, device.local) {
            (None, None) => DeviceKind::Embedded,
            (None, Some(local)) => DeviceKind::Local(LocalDevice {
                socket: PathBuf::from(local.socket),
                rate_cap: local.rate_cap,
            }),
            (Some(_), Some(_)) => {
                return Err(self.damaged("a device is both on this machine and elsewhere"));
            }
            (Some(remote), None) => DeviceKind::Remote(RemoteDevice {
                host: remote.host,
                port: u16::try_from(remote.port)
                    .map_err(|_| self.damaged(&format!("{} is no port", remote.port)))?,
                token_file: remote.token_file.map(PathBuf::from),
                ca_pem: remote.ca_pem,
                rate_cap: remote.rate_cap,
            }),
        };
        let identity = device
            .identity
            .try_into()
            .map_err(|_| self.damaged("a device's identity is not 16 bytes"))?;
        Ok(DeviceEntry { id: DeviceId(device.id), name: device.name, identity, kind })
    }

    fn table(&mut self, table: proto::Table) -> Result<TableState> {
        let schema = TableSchema::decode(&table.schema)
            .map_err(|error| self.damaged(&format!("a table's schema: {error}")))?;
        let schema = Arc::new(schema);
        let mut shapes: Vec<Arc<IndexShape>> = Vec::with_capacity(table.indexes.len());
        for index in table.indexes {
            let definition = decode_index(index);
            let is_new = shapes.last().is_none_or(|last| last.definition.id < definition.id);
            let is_key = definition.id == PRIMARY_KEY;
            let columns = || definition.columns.iter().map(|column| column.column);
            if !is_new || is_key && !columns().eq(schema.primary_key.iter().copied()) {
                let (name, table) = (&definition.name, &schema.name);
                return Err(self.damaged(&format!("\"{name}\" is no index of \"{table}\"")));
            }
            let shape = IndexShape::new(Arc::new(definition), &schema);
            shapes.push(shape.map_err(|error| self.damaged(&error.to_string()))?);
        }
        let has_key = shapes.first().is_some_and(|first| first.definition.id == PRIMARY_KEY);
        if has_key == schema.primary_key.is_empty() {
            return Err(self.damaged(&format!(
                "table \"{}\" and its indexes do not agree on whether it has a key",
                schema.name
            )));
        }
        let division = match table.hash_columns {
            none if none.is_empty() => Division::LoadOrder,
            ids => Division::Hash(ids),
        };
        division.tablet_key(&schema).map_err(|error| self.damaged(&error.to_string()))?;
        if table.tablets.is_empty() || (0..).zip(&table.tablets).any(|(id, tablet)| tablet.id != id)
        {
            return Err(self.damaged(&format!(
                "the tablets of table \"{}\" are not numbered from 0",
                schema.name
            )));
        }
        let tablets = table
            .tablets
            .into_iter()
            .map(|tablet| self.tablet(tablet, &schema, &shapes).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let indexes = shapes.iter().map(|shape| Arc::clone(&shape.definition)).collect();
        Ok(TableState { schema, indexes, tablets, division })
    }

    fn tablet(
        &mut self,
        tablet: proto::Tablet,
        schema: &TableSchema,
        shapes: &[Arc<IndexShape>],
    ) -> Result<TabletState> {
        let table = schema.table_id;
        let heap = self.segments(tablet.heap, table)?;
        let version_map = VersionMap::decode(&tablet.version_map)
            .map_err(|error| self.damaged(&format!("a version map: {error}")))?;
        if tablet.indexes.len() != shapes.len() {
            return Err(self.damaged(&format!(
                "a tablet of table \"{}\" has {} of its {} indexes",
                schema.name,
                tablet.indexes.len(),
                shapes.len()
            )));
        }
        let mut indexes = Vec::with_capacity(shapes.len());
        for (index, shape) in tablet.indexes.into_iter().zip(shapes) {
            let runs = self.segments(index.runs, table)?;
            let index = TabletIndex::stored(Arc::clone(shape), runs, index.vid_covered)
                .map_err(|error| self.damaged(&error.to_string()))?;
            indexes.push(Arc::new(index));
        }
        Ok(TabletState {
            id: TabletId(tablet.id),
            device: DeviceId(tablet.device),
            next_vid: tablet.next_vid,
            heap,
            version_map: Arc::new(version_map),
            indexes,
        })
    }

    fn segments(
        &mut self,
        places: Vec<proto::SegmentPlace>,
        table: u32,
    ) -> Result<Vec<Arc<SegmentDirectory>>> {
        let mut segments = Vec::with_capacity(places.len());
        for place in places {
            let segment = Some(SegmentId(place.segment));
            match self.segment(place, table) {
                Ok(directory) => segments.push(Arc::new(directory)),
                Err(error) => self.faults.push(PartFault { table: None, segment, error }),
            }
        }
        Ok(segments)
    }

    fn segment(&mut self, place: proto::SegmentPlace, table: u32) -> Result<SegmentDirectory> {
        let id = SegmentId(place.segment);
        let (bytes, path) = match place.directory {
            Some(directory) => (directory, self.path.to_owned()),
            None => {
                let path = segment_path(self.directory, id);
                let file = SegmentFile { checksum: place.file_checksum, bytes: place.file_bytes };
                self.files.insert(id, file);
                (read_segment(&path, file)?, path)
            }
        };
        let damaged =
            |reason: String| Error::from(StorageError::Damaged { path: path.clone(), reason });
        let segment = SegmentDirectory::decode(&bytes)
            .map_err(|error| damaged(format!("the directory of segment {}: {error}", id.0)))?;
        if segment.segment != id || segment.table_id != table {
            return Err(damaged(format!(
                "the directory of segment {} of table {table} is that of segment {} of table {}",
                id.0, segment.segment.0, segment.table_id
            )));
        }
        Ok(segment)
    }

    fn damaged(&self, reason: &str) -> Error {
        StorageError::Damaged { path: self.path.to_owned(), reason: reason.to_owned() }.into()
    }
}

fn decode_index(index: proto::IndexDefinition) -> IndexDefinition {
    let column = |column: proto::IndexColumn| IndexColumn {
        column: column.column,
        descending: column.descending,
        nulls_first: column.nulls_first,
    };
    IndexDefinition {
        id: index.id,
        name: index.name,
        columns: index.columns.into_iter().map(column).collect(),
        unique: index.unique,
        constraint: index.constraint,
    }
}

fn frame_error(fault: FrameError, directory: &Path, path: &Path) -> Error {
    match fault {
        FrameError::NotThisFormat { .. } => StorageError::NotADatabase {
            path: directory.to_owned(),
            reason: "its file \"root\" is not Cleave's".to_owned(),
        },
        FrameError::Version { found, newest, .. } if found > newest => {
            StorageError::NewerFormat { path: directory.to_owned(), found, supported: newest }
        }
        other => StorageError::Damaged { path: path.to_owned(), reason: other.to_string() },
    }
    .into()
}

fn read_segment(path: &Path, expected: SegmentFile) -> Result<Vec<u8>> {
    let damaged = |reason: &str| {
        Error::from(StorageError::Damaged { path: path.to_owned(), reason: reason.to_owned() })
    };
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged("the root names it, but it is missing"));
        }
        Err(error) => return Err(file_error(path, "read", error)),
    };
    if bytes.len() as u64 != expected.bytes {
        return Err(damaged("it does not have the length that the root says"));
    }
    if crc32c::crc32c(&bytes) != expected.checksum {
        return Err(damaged("it fails its checksum"));
    }
    Ok(bytes)
}

fn segment_path(directory: &Path, segment: SegmentId) -> PathBuf {
    directory.join(SEGMENTS).join(segment.0.to_string())
}

fn file_error(path: &Path, action: &'static str, source: io::Error) -> Error {
    Error::io(action, path, source)
}

#[cfg(test)]
mod tests;
