//! The host's files: real ones, in a folder of the run. They lose unsynced data ([`ForgetfulFiles`]) when the world
//! cuts the host's power, and fail when it says so.
//!
//! Invariant: every change goes through the world ([`SimWorld::host_change`]), and is recorded in its trace.
//!
//! [`SimWorld::host_change`]: crate::world::SimWorld::host_change

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use cleave_media::ForgetfulFiles;
use cleave_media::files::{FileWriter, Files, SECTOR_BYTES};

use crate::world::{self, Change, Disk};

/// See the [module](self).
#[derive(Debug)]
pub struct SimFiles {
    directory: PathBuf,
    files: ForgetfulFiles,
}

impl SimFiles {
    /// Files under `directory`, which is empty.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), files: ForgetfulFiles::new() }
    }

    /// Their folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Puts the folder into a state that a power failure may leave.
    ///
    /// # Panics
    /// If the real folder cannot be changed.
    pub fn lose_power(&self) {
        let told = |what: fmt::Arguments<'_>| world::log(format_args!("files: {what}"));
        let before = bytes_in(&self.directory);
        self.files.lose_power(world::below, told).expect("the run's folder can be written");
        // A removed file takes no space.
        let growth = bytes_in(&self.directory) - before;
        world::with(|world| world.takes_room(Disk::Host, growth.min(0)));
    }
}

impl SimFiles {
    /// Loses the folder `directory`.
    ///
    /// # Panics
    /// As [`SimFiles::lose_power`].
    pub fn lose_folder(&self, directory: &Path) {
        world::log(format_args!("files: {} is lost", directory.display()));
        self.files.lose_folder(directory).expect("the run's folder can be removed");
    }
}

/// Performs the change `real`, unless the world says otherwise; `part` is the rest of it after a power failure or on a
/// full disk. `growth` is the change of the bytes in use.
fn change<T>(
    what: fmt::Arguments<'_>,
    growth: i64,
    real: impl FnOnce() -> io::Result<T>,
    part: impl FnOnce(),
) -> io::Result<T> {
    match world::with(world::SimWorld::host_change) {
        Change::None => return Err(io::Error::other("there is no power")),
        Change::Part => {
            world::log(format_args!("files: {what}: cut off"));
            if world::below(2) == 0 {
                part();
            }
            return Err(io::Error::other("the power went"));
        }
        Change::Whole => {}
    }
    if world::happens(|rates| rates.file_error) {
        world::log(format_args!("files: {what}: fails"));
        return Err(io::Error::other("injected"));
    }
    if !world::with(|world| world.takes_room(Disk::Host, growth)) {
        world::log(format_args!("files: {what}: the disk is full"));
        if world::below(2) == 0 {
            part();
        }
        return Err(io::ErrorKind::StorageFull.into());
    }
    world::log(format_args!("files: {what}"));
    real()
}

/// Bytes of all files in `directory`, and in the folders there.
fn bytes_in(directory: &Path) -> i64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_in(&entry.path()),
        _ => length(&entry.path()),
    });
    bytes.sum()
}

/// Bytes of the file at `path`.
fn length(path: &Path) -> i64 {
    let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The first part of `bytes`, of random length.
fn first_part(bytes: &[u8]) -> &[u8] {
    let length = usize::try_from(world::below(bytes.len() as u64 + 1)).unwrap_or(0);
    bytes.get(..length).unwrap_or(bytes)
}

/// The part of an overwrite that is done: all of one sector, as media writes a sector whole or not at all.
fn part_in_place(offset: u64, bytes: &[u8]) -> &[u8] {
    let sector = SECTOR_BYTES as u64;
    let is_in_one = offset % sector + bytes.len() as u64 <= sector;
    if is_in_one { bytes } else { first_part(bytes) }
}

impl Files for SimFiles {
    fn write_durably(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let write = |bytes: &[u8]| self.files.write_durably(path, bytes);
        let part = || write(first_part(bytes)).expect("the run's folder can be written");
        let checksum = crc32c::crc32c(bytes);
        let what = format_args!("write {} ({} bytes, {checksum:08x})", path.display(), bytes.len());
        change(what, signed(bytes.len()) - length(path), || write(bytes), part)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let rename = || self.files.rename(from, to);
        let what = format_args!("rename {} to {}", from.display(), to.display());
        change(what, -length(to), rename, || drop(rename()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !path.exists() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let remove = || self.files.remove(path);
        let what = format_args!("remove {}", path.display());
        change(what, -length(path), remove, || drop(remove()))
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let what = format_args!("make {}", path.display());
        change(what, 0, || self.files.create_directories(path), || {})
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let sync = || self.files.sync_directory(path);
        change(format_args!("sync {}", path.display()), 0, sync, || drop(sync()))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        let create = || self.files.create(path);
        let what = format_args!("create {}", path.display());
        let file = change(what, -length(path), create, || drop(create()))?;
        Ok(Box::new(SimFile { path: path.to_owned(), file, files: self.files.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        let file = self.files.open(path)?;
        Ok(Box::new(SimFile { path: path.to_owned(), file, files: self.files.clone() }))
    }
}

/// A file that is overwritten in place.
#[derive(Debug)]
struct SimFile {
    path: PathBuf,
    file: Box<dyn FileWriter>,
    files: ForgetfulFiles,
}

impl FileWriter for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let part = || drop(self.file.write_at(offset, part_in_place(offset, bytes)));
        let (count, checksum) = (bytes.len(), crc32c::crc32c(bytes));
        let name = self.path.display();
        let what = format_args!("write {name} at {offset} ({count} bytes, {checksum:08x})");
        let end = i64::try_from(offset).unwrap_or(i64::MAX).saturating_add(signed(bytes.len()));
        let growth = (end - length(&self.path)).max(0);
        change(what, growth, || self.file.write_at(offset, bytes), part)
    }

    fn sync(&self) -> io::Result<()> {
        let what = format_args!("sync {}", self.path.display());
        let synced = change(what, 0, || self.file.sync(), || drop(self.file.sync()));
        // A system reports the failure once, and then takes unstored data for stored.
        synced.inspect_err(|_| self.files.lose_unsynced(&self.path, || world::below(2) == 0))
    }
}
