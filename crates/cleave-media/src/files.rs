//! The operations by which a host changes its own files; a crash may fall between any two of them.
//!
//! Most files are written whole ([`write_durably`]). A log is written in place and synced as it goes ([`FileWriter`]).
//! A record of one sector ([`replace_record`]) can be written on a full disk too, as the start of a database needs.
//!
//! Invariants: a database's files change through these functions alone, so that a simulator ([`crate::simulation`]) can
//! fail each, and lose unsynced writes. Reading goes to the file system. Created files and folders are the owner's
//! alone (files 600, folders 700), whatever the umask says.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::private::make_file_private;
use crate::simulation;

/// Size of a sector, which media writes whole or not at all, in bytes.
pub const SECTOR_BYTES: usize = 512;

/// A file system, limited to the changes that a host makes.
pub trait Files {
    /// See [`write_durably`].
    fn write_durably(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// See [`rename`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// See [`remove`].
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// See [`create_directories`].
    fn create_directories(&self, path: &Path) -> io::Result<()>;
    /// See [`sync_directory`].
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// See [`create`].
    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWriter>>;
    /// See [`open`].
    fn open(&self, path: &Path) -> io::Result<Box<dyn FileWriter>>;
}

/// A file that is written in place, by several threads at once if they write different bytes.
pub trait FileWriter: Debug + Send + Sync {
    /// Writes all of `bytes` at `offset`; the file grows where they end behind its end.
    ///
    /// # Errors
    /// The operating system's error; any part of the bytes may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all writes durable, and the file's length with them (fdatasync). The name of the file is durable only once
    /// its directory is synced.
    ///
    /// # Errors
    /// The operating system's error: writes since the last sync may be lost, and a repeated sync would not report it.
    fn sync(&self) -> io::Result<()>;
}

/// Creates a file of `bytes`, or replaces its contents, and syncs it; its name is durable only once its directory is
/// synced.
///
/// # Errors
/// The operating system's error; the file is then missing, or its contents are undefined.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    on_files(|files| files.write_durably(path, bytes))
}

/// Renames the file `from` to `to`, atomically, replacing a file of that name.
///
/// # Errors
/// The operating system's error; nothing was changed.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    on_files(|files| files.rename(from, to))
}

/// Removes a file.
///
/// # Errors
/// The operating system's error.
pub fn remove(path: &Path) -> io::Result<()> {
    on_files(|files| files.remove(path))
}

/// Creates a directory and its missing parents.
///
/// # Errors
/// The operating system's error.
pub fn create_directories(path: &Path) -> io::Result<()> {
    on_files(|files| files.create_directories(path))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// The operating system's error: the names after a crash are then undefined.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    on_files(|files| files.sync_directory(path))
}

/// Makes the creation or the removal of the name `path` durable.
///
/// # Errors
/// As [`sync_directory`].
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_directory(folder.unwrap_or(Path::new(".")))
}

/// Creates an empty file to write in place, or empties an existing one.
///
/// # Errors
/// The operating system's error.
pub fn create(path: &Path) -> io::Result<Box<dyn FileWriter>> {
    on_files(|files| files.create(path))
}

/// Opens an existing file to write in place.
///
/// # Errors
/// The operating system's error.
pub fn open(path: &Path) -> io::Result<Box<dyn FileWriter>> {
    on_files(|files| files.open(path))
}

/// Replaces the contents of the file at `path` by `record`, durably; a crash leaves the old record or the new one. The
/// file is padded with zeros to a whole sector.
///
/// The record is written to a new file, `path` with `.new` behind it, and renamed. If there is no room for that, a
/// record of one sector is written over the old one.
///
/// # Errors
/// The operating system's error: after a crash either record may be found.
pub fn replace_record(path: &Path, record: &[u8]) -> io::Result<()> {
    let mut bytes = record.to_vec();
    bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
    let new = with_suffix(path, ".new");
    match write_durably(&new, &bytes) {
        Ok(()) => {
            rename(&new, path)?;
            sync_parent(path)
        }
        Err(error) => {
            // A partly written file only takes up space.
            drop(remove(&new));
            if !is_for_room(&error) || bytes.len() != SECTOR_BYTES {
                return Err(error);
            }
            let Ok(file) = open(path) else { return Err(error) };
            file.write_at(0, &bytes)?;
            file.sync()
        }
    }
}

fn is_for_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// `path` with `suffix` appended to its name.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn on_files<T>(change: impl FnOnce(&dyn Files) -> T) -> T {
    match simulation::current() {
        Some(world) => change(world.files()),
        None => change(&SystemFiles),
    }
}

/// Creates an empty file that is its owner's alone, or empties an existing one and makes it so, to be written.
///
/// # Errors
/// The operating system's error.
pub fn create_private(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    make_file_private(&file)?;
    Ok(file)
}

/// The operating system's file system.
struct SystemFiles;

impl Files for SystemFiles {
    fn write_durably(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = create_private(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        Ok(Box::new(SystemFile(create_private(path)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        Ok(Box::new(SystemFile(File::options().write(true).open(path)?)))
    }
}

/// A file of the operating system.
#[derive(Debug)]
struct SystemFile(File);

impl FileWriter for SystemFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests;
