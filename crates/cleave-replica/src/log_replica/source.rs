//! The source of a replica: the bytes of the log's files, and the other files of the folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::log_replicas::LogReplica;
use cleave_catalog::catalog::manifest;
use cleave_catalog::catalog::manifest::{SegmentFile, segment_file_name};
use cleave_catalog::error::{Error, Result};
use cleave_engine::log::directory_of;
use cleave_store::{SegmentDirectory, SegmentId};
use cleave_txn::Lsn;
use cleave_txn::wal::segment::{SEGMENT_HEADER_BYTES, list_segments, segment_path};

use super::layout::{Place, Stamp, whole};

/// The bytes of the log in `database` from `from` to `to`, which is durable; zeros where a file has none.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn log(database: &Path, from: u64, to: u64) -> Result<Vec<u8>> {
    let directory = directory_of(database);
    let starts = list_segments(&directory)?;
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
    for (at, start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).map_or(u64::MAX, |next| next.0);
        let (first, last) = (from.max(start.0), to.min(end));
        if first >= last {
            continue;
        }
        let path = segment_path(&directory, *start);
        let file = File::open(&path).map_err(|error| Error::io("open", &path, error))?;
        let place = |place: u64| usize::try_from(place - from).unwrap_or(usize::MAX);
        let Some(mut wanted) = bytes.get_mut(place(first)..place(last)) else { continue };
        let mut offset = first - start.0;
        while !wanted.is_empty() {
            match file.read_at(wanted, offset) {
                Ok(0) => break,
                Ok(count) => {
                    offset += count as u64;
                    wanted = wanted.split_at_mut(count).1;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", &path, error)),
            }
        }
    }
    Ok(bytes)
}

/// Where the log in `database` begins: behind the header of its first file, which a failover writes anew.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn log_start(database: &Path) -> Result<u64> {
    let first = list_segments(&directory_of(database))?.into_iter().next();
    Ok(first.map_or(u64::MAX, |first| first.0 + SEGMENT_HEADER_BYTES as u64))
}

/// Whether the log in `database` has, where that of `stamp` ends, the same bytes behind the last boundary of a block.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn ends_as(database: &Path, stamp: &Stamp) -> Result<bool> {
    let tail = whole(stamp.log_end);
    let from = tail.max(stamp.log_start).max(log_start(database)?);
    if from >= stamp.log_end {
        return Ok(true);
    }
    let theirs = usize::try_from(from - tail).ok().and_then(|skipped| stamp.tail.get(skipped..));
    Ok(theirs == Some(log(database, from, stamp.log_end)?.as_slice()))
}

/// Where the file of the log begins that has `place`, and its header.
///
/// # Errors
/// [`Error::Io`]; where there is no such file.
pub(super) fn segment_of(database: &Path, place: u64) -> Result<(u64, Vec<u8>)> {
    let directory = directory_of(database);
    let starts = list_segments(&directory)?;
    let missing = || cleave_txn::LogError::Missing { directory: directory.clone(), at: Lsn(place) };
    let start = starts.into_iter().rfind(|start| start.0 <= place).ok_or_else(missing)?;
    let path = segment_path(&directory, start);
    let mut header = vec![0; SEGMENT_HEADER_BYTES];
    let file = File::open(&path).map_err(|error| Error::io("open", &path, error))?;
    file.read_exact_at(&mut header, 0).map_err(|error| Error::io("read", &path, error))?;
    Ok((start.0, header))
}

/// A file of the folder that is to be copied.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Its name there.
    pub(super) name: String,
    /// Its bytes; None: they have this checksum and length, and are read where they are not sent yet.
    pub(super) bytes: Option<Vec<u8>>,
    /// CRC-32C.
    pub(super) checksum: u32,
    /// Length.
    pub(super) length: u64,
}

impl Wanted {
    fn new(name: String, bytes: Vec<u8>) -> Self {
        let (checksum, length) = (crc32c::crc32c(&bytes), bytes.len() as u64);
        Self { name, bytes: Some(bytes), checksum, length }
    }

    /// Its bytes, read now if need be; None: the file cannot be read, and what needs it is damaged.
    pub(super) fn read(&self, database: &Path) -> Option<Vec<u8>> {
        if let Some(bytes) = &self.bytes {
            return Some(bytes.clone());
        }
        let bytes = std::fs::read(database.join(&self.name)).ok()?;
        (crc32c::crc32c(&bytes) == self.checksum).then_some(bytes)
    }
}

/// The files that `state`, which is in the manifest on disk, needs beside the log.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn files(database: &Path, state: &CatalogState) -> Result<Vec<Wanted>> {
    let mut wanted = vec![Wanted::new(super::MANIFEST.to_owned(), manifest::sealed(state))];
    wanted.extend(state.files.iter().map(|(id, file)| Wanted {
        name: segment_name(*id, file.revision),
        bytes: None,
        checksum: file.checksum,
        length: file.bytes,
    }));
    for name in small(state) {
        let path = database.join(&name);
        match std::fs::read(&path) {
            Ok(bytes) => wanted.push(Wanted::new(name, bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", &path, error)),
        }
    }
    Ok(wanted)
}

fn segment_name(id: SegmentId, revision: u32) -> String {
    format!("{}/{}", super::SEGMENTS, segment_file_name(id, revision))
}

/// Names of the other files: who may connect, which incarnations devices know, and what ANALYZE found.
fn small(state: &CatalogState) -> impl Iterator<Item = String> {
    let incarnations = state.devices.keys().map(|id| format!("device-{id}.incarnations"));
    let tables = state.tables().map(|table| table.schema.table_id);
    let statistics = tables.map(|id| format!("{}/{id}", super::STATISTICS));
    std::iter::once(super::USERS.to_owned()).chain(incarnations).chain(statistics)
}

/// Bytes that the files of `next`, which is not committed yet, will have at most, one by one, but for segments' files
/// that `kept` has.
pub(super) fn sizes(
    database: &Path,
    next: &CatalogState,
    kept: &BTreeMap<String, Place>,
) -> Vec<u64> {
    // Directories of segments without a file are within the manifest, and get files with it.
    let mut sizes = vec![manifest::sealed(next).len() as u64 + 4096];
    let new = cleave_engine::storage_engine::catalog_edit::segments(next);
    let has_file = |segment: &SegmentDirectory| {
        let file = next.files.get(&segment.segment);
        file.is_some_and(|file| file.revision == segment.revision)
    };
    let new = new.filter(|segment| segment.sealed && !has_file(segment));
    sizes.extend(new.map(|segment| segment.encode().len() as u64));
    // A host before a failover may have had another file of that name.
    let is_kept = |id: &SegmentId, file: &SegmentFile| {
        let place = kept.get(&segment_name(*id, file.revision));
        place.is_some_and(|place| (place.checksum, place.bytes) == (file.checksum, file.bytes))
    };
    let new = next.files.iter().filter(|(id, file)| !is_kept(id, file));
    sizes.extend(new.map(|(_, file)| file.bytes));
    let length = |name: String| std::fs::metadata(database.join(name)).ok().map(|file| file.len());
    sizes.extend(small(next).filter_map(length).map(|bytes| bytes + 4096));
    let list = (sizes.len() + kept.len()) as u64 * 64 + 4096;
    sizes.push(list);
    sizes
}

/// The replicas that `state` asks for.
pub(super) fn asked(state: &CatalogState) -> impl Iterator<Item = &LogReplica> {
    state.upkeep.log_replicas.iter().filter(|replica| !replica.is_ended)
}
