//! The few changes that a host makes to its own files, each of them a step that a crash may fall between.
//!
//! Invariant: a database's files change through these functions alone, so that a simulator
//! ([`crate::simulation`]) can fail each, and forget what was not synced. Reading goes to the file system.

use std::fs::{self, File};
use std::io::{self, Write};
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
}
