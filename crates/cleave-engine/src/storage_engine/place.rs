//! The database's folder: checks whether it may hold a database, and locks it; and how another one is opened beside.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_catalog::catalog::{DeviceId, manifest};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_media::private::make_tree_private;
use rustix::fs::{FlockOperation, flock};

use super::part_notes::remove_parts;
use super::{Engine, OpenOptions, retry_while_in_use};

/// Bytes of the note of who has the lock.
const HOLDER_BYTES_MAX: u64 = 300;

/// The folder in the database's for temporary files of queries.
pub const SPILLS: &str = "spill";

/// Bytes of the buffer pool, and of queries, of a database that is opened beside another one.
const BUFFER_POOL_BYTES_BESIDE: u64 = 16 << 20;
const QUERY_MEMORY_BYTES_BESIDE: u64 = 64 << 20;

/// Whether a database may be made in `directory`; makes the directory if so.
pub(super) fn check_place(directory: &Path, create: bool) -> Result<()> {
    let not_a_database = |reason: &str| {
        Error::from(StorageError::NotADatabase {
            path: directory.to_owned(),
            reason: reason.to_owned(),
        })
    };
    if !directory.exists() {
        if !create {
            return Err(not_a_database("it does not exist"));
        }
        return manifest::create_directory(directory);
    }
    if !directory.is_dir() {
        return Err(not_a_database("it is not a directory"));
    }
    if let Some(what) = what_a_manifest_named(directory)? {
        // Another process that creates the database may have finished meanwhile.
        if manifest::exists(directory) {
            return Ok(());
        }
        return Err(StorageError::Damaged {
            path: directory.join("manifest"),
            reason: format!("it is missing, though {what}; nothing was changed"),
        }
        .into());
    }
    if !create {
        return Err(not_a_database("it has no file named \"manifest\""));
    }
    if !manifest::is_blank(directory)? {
        return Err(not_a_database("it holds other files, and none named \"manifest\""));
    }
    Ok(())
}

/// A file in `directory` that only a database with a manifest has: the creation of one ends with its manifest, and
/// until then leaves `segments/` and the embedded device's media empty.
fn what_a_manifest_named(directory: &Path) -> Result<Option<String>> {
    let media = format!("device-{}.media", DeviceId::EMBEDDED);
    let media_path = directory.join(&media);
    match std::fs::metadata(&media_path) {
        Ok(metadata) if metadata.is_file() && metadata.len() > 0 => {
            return Ok(Some(format!("\"{media}\" holds pages")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("read", &media_path, error)),
    }
    let segments = directory.join("segments");
    let entries = match std::fs::read_dir(&segments) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(Error::io("read", &segments, error)),
    };
    for entry in entries {
        let name = entry.map_err(|error| Error::io("read", &segments, error))?.file_name();
        // A file whose name is no number is foreign.
        if name.to_str().is_some_and(|name| name.parse::<u32>().is_ok()) {
            return Ok(Some("\"segments\" holds those of tables".to_owned()));
        }
    }
    Ok(None)
}

/// The folder for temporary files of queries in `directory`, emptied of what a killed process has left there, and of
/// what its [notes](super::part_notes) name: this one
/// has the lock, and no other one has files there. None: the database is only looked at, or the folder cannot be made,
/// and the system's is used.
pub(super) fn spill_folder(directory: &Path, may_write: bool) -> Option<PathBuf> {
    if !may_write {
        return None;
    }
    let folder = directory.join(SPILLS);
    remove_parts(&folder);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => return None,
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&folder).ok()?;
    Some(folder)
}

impl Engine {
    /// How another database is opened for a while, in a folder beside this one: with little memory.
    pub fn options_beside(&self) -> OpenOptions {
        OpenOptions::new(Arc::clone(&self.embedded))
            .buffer_pool_bytes(BUFFER_POOL_BYTES_BESIDE)
            .query_memory_bytes(QUERY_MEMORY_BYTES_BESIDE)
            .filter_history_bytes(0)
            .device_timeout(self.device_timeout)
    }
}

/// Locks the directory, which from here on is this user's alone. A holder that is just ending is waited for.
pub async fn lock(directory: &Path) -> Result<File> {
    // Others could read rows, and lock the file below.
    make_tree_private(directory).map_err(|error| Error::io("open", directory, error))?;
    let path = directory.join("lock");
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| Error::io("open", &path, error))?;
    retry_while_in_use(|| match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(StorageError::InUse { path: directory.to_owned(), holder: holder(&path) }.into())
        }
        Err(errno) => Err(Error::io("lock", &path, errno.into())),
    })
    .await?;
    // For messages only: without it they do not say who has the lock.
    drop(note_holder(&mut file));
    Ok(file)
}

/// Writes this process and its program into the file that it has locked.
fn note_holder(file: &mut File) -> std::io::Result<()> {
    let program = std::env::current_exe()?;
    let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    file.set_len(0)?;
    writeln!(file, "{} {program}", std::process::id())
}

/// Who has the lock at `path`, as errors append it; empty where it does not say.
fn holder(path: &Path) -> String {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(HOLDER_BYTES_MAX).read_to_string(&mut text));
    let line = text.lines().next().filter(|_| read.is_ok());
    match line.and_then(|line| line.split_once(' ')) {
        Some((process, program)) if process.bytes().all(|digit| digit.is_ascii_digit()) => {
            format!(", {process} ({program})")
        }
        _ => String::new(),
    }
}
