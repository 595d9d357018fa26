//! The few changes that a host makes to its own files, each of them a step that a crash may fall between.
//!
//! Most files are written whole ([`write_durably`]). A log is written in place and synced as it goes ([`FileWriter`]).
//!
//! Invariant: a database's files change through these functions alone, so that a simulator
//! ([`crate::simulation`]) can fail each, and forget what was not synced. Reading goes to the file system.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::simulation;

/// A file system, as far as a host changes it.
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
    /// What the operating system says; any part of the bytes may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written durable, and the file's length with it (fdatasync). Whether its name is durable is the
    /// directory's business.
    ///
    /// # Errors
    /// What the operating system says: what was written since the last sync may be lost, and a sync that is tried again
    /// would not tell.
    fn sync(&self) -> io::Result<()>;
}

/// Makes a file of `bytes`, or replaces what is in it, and syncs it; its name is durable only once its directory is
/// synced.
///
/// # Errors
/// What the operating system says; the file is then not there, or holds anything.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    on_files(|files| files.write_durably(path, bytes))
}

/// Gives the file `from` the name `to`, in one step, in the place of what had that name.
///
/// # Errors
/// What the operating system says; nothing was changed.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    on_files(|files| files.rename(from, to))
}

/// Removes a file.
///
/// # Errors
/// What the operating system says.
pub fn remove(path: &Path) -> io::Result<()> {
    on_files(|files| files.remove(path))
}

/// Makes a directory, and above it what is missing.
///
/// # Errors
/// What the operating system says.
pub fn create_directories(path: &Path) -> io::Result<()> {
    on_files(|files| files.create_directories(path))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// What the operating system says: which names a crash would leave is then not known.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    on_files(|files| files.sync_directory(path))
}

/// Makes an empty file to write in place, or empties what is there.
///
/// # Errors
/// What the operating system says.
pub fn create(path: &Path) -> io::Result<Box<dyn FileWriter>> {
    on_files(|files| files.create(path))
}

/// Opens a file that is there, to write in place.
///
/// # Errors
/// What the operating system says.
pub fn open(path: &Path) -> io::Result<Box<dyn FileWriter>> {
    on_files(|files| files.open(path))
}

fn on_files<T>(change: impl FnOnce(&dyn Files) -> T) -> T {
    match simulation::current() {
        Some(world) => change(world.files()),
        None => change(&SystemFiles),
    }
}

/// The operating system's.
struct SystemFiles;

impl Files for SystemFiles {
    fn write_durably(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
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
        fs::create_dir_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        Ok(Box::new(SystemFile(File::create(path)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        Ok(Box::new(SystemFile(File::options().write(true).open(path)?)))
    }
}

/// A file of the operating system's.
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
