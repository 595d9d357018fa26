//! The host's files: real ones, in a folder of the run, beside a picture of what a loss of power would leave of them.
//!
//! A file's bytes are durable when [`Files::write_durably`] returns; its name, and every rename and removal, only when
//! its directory was synced. [`SimFiles::lose_power`] keeps, of what was done to the names of each directory since,
//! the first few steps that the seed says, and puts the folder into that state.
//!
//! Invariant: directories are durable once made (their making has tests of its own); the order of steps within
//! one directory is kept, as journalling file systems keep it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cleave_media::files::Files;

use crate::world::{self, Change};

/// See the module's description.
#[derive(Debug)]
pub struct SimFiles {
    directory: PathBuf,
    durable: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
    /// Steps since the last sync, by directory.
    pending: RefCell<BTreeMap<PathBuf, Vec<Step>>>,
}

#[derive(Debug, Clone)]
enum Step {
    Put(PathBuf, Vec<u8>),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl SimFiles {
    /// Files under `directory`, which is empty.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            durable: RefCell::default(),
            pending: RefCell::default(),
        }
    }

    /// Where they lie.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Puts the folder into a state that a loss of power may leave.
    ///
    /// # Panics
    /// Where the real folder cannot be changed.
    pub fn lose_power(&self) {
        let mut durable = self.durable.borrow_mut();
        for (directory, steps) in std::mem::take(&mut *self.pending.borrow_mut()) {
            let kept = usize::try_from(world::below(steps.len() as u64 + 1)).unwrap_or(0);
            world::log(format_args!(
                "files: {kept} of {} unsynced steps in {} are kept",
                steps.len(),
                directory.display()
            ));
            steps.iter().take(kept).for_each(|step| step.apply(&mut durable));
            for step in &steps {
                for path in step.paths().filter(|path| !durable.contains_key(*path)) {
                    drop(fs::remove_file(path));
                }
            }
        }
        for (path, bytes) in durable.iter() {
            fs::write(path, bytes).expect("the run's folder can be written");
        }
    }

    fn note(&self, path: &Path, step: Step) {
        let directory = path.parent().unwrap_or(path).to_owned();
        self.pending.borrow_mut().entry(directory).or_default().push(step);
    }

    /// Lets `real` happen, unless the world says otherwise; `part` is what is left of it when power goes.
    fn change(
        &self,
        what: std::fmt::Arguments<'_>,
        real: impl FnOnce() -> io::Result<()>,
        part: impl FnOnce(),
    ) -> io::Result<()> {
        let change = world::with(world::SimWorld::host_change);
        match change {
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
        world::log(format_args!("files: {what}"));
        real()
    }
}

impl Step {
    fn apply(&self, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
        match self {
            Self::Put(path, bytes) => {
                files.insert(path.clone(), bytes.clone());
            }
            Self::Rename(from, to) => {
                if let Some(bytes) = files.remove(from) {
                    files.insert(to.clone(), bytes);
                }
            }
            Self::Remove(path) => {
                files.remove(path);
            }
        }
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let (first, second) = match self {
            Self::Put(path, _) | Self::Remove(path) => (path, None),
            Self::Rename(from, to) => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }
}

impl Files for SimFiles {
    fn write_durably(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let put = |bytes: &[u8]| {
            fs::write(path, bytes)?;
            // A file that was there already is written in place.
            if let Some(durable) = self.durable.borrow_mut().get_mut(path) {
                *durable = bytes.to_vec();
            }
            self.note(path, Step::Put(path.to_owned(), bytes.to_vec()));
            io::Result::Ok(())
        };
        let part = || {
            let length = usize::try_from(world::below(bytes.len() as u64 + 1)).unwrap_or(0);
            put(bytes.get(..length).unwrap_or(bytes)).expect("the run's folder can be written");
        };
        let checksum = crc32c::crc32c(bytes);
        let what = format_args!("write {} ({} bytes, {checksum:08x})", path.display(), bytes.len());
        self.change(what, || put(bytes), part)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let rename = || {
            fs::rename(from, to)?;
            self.note(to, Step::Rename(from.to_owned(), to.to_owned()));
            Ok(())
        };
        let what = format_args!("rename {} to {}", from.display(), to.display());
        self.change(what, rename, || drop(rename()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !path.exists() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let remove = || {
            fs::remove_file(path)?;
            self.note(path, Step::Remove(path.to_owned()));
            Ok(())
        };
        self.change(format_args!("remove {}", path.display()), remove, || drop(remove()))
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let what = format_args!("make {}", path.display());
        self.change(what, || fs::create_dir_all(path), || {})
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let sync = || {
            let steps = self.pending.borrow_mut().remove(path).unwrap_or_default();
            let mut durable = self.durable.borrow_mut();
            steps.iter().for_each(|step| step.apply(&mut durable));
            Ok(())
        };
        self.change(format_args!("sync {}", path.display()), sync, || drop(sync()))
    }
}
