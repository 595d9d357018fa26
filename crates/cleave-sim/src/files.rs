//! The host's files: real ones, in a folder of the run, beside a picture of what a loss of power would leave of them.
//!
//! A file's bytes are durable when [`Files::write_durably`] or [`FileWriter::sync`] returns; its name, and every rename and
//! removal, only when its directory was synced. [`SimFiles::lose_power`] keeps, of what was done to the names of each
//! directory since, the first few steps that the seed says, of what was written in place any sectors, and puts the folder
//! into that state.
//!
//! Invariant: directories are durable once made (their making has tests of its own); the order of steps within
//! one directory is kept, as journalling file systems keep it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cleave_media::files::{FileWriter, Files};

use crate::world::{self, Change};

/// What media writes as one.
const SECTOR_BYTES: usize = 512;

/// See the module's description.
#[derive(Debug)]
pub struct SimFiles {
    directory: PathBuf,
    durable: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
    /// Steps since the last sync, by directory.
    pending: RefCell<BTreeMap<PathBuf, Vec<Step>>>,
    /// What was written in place since the last sync, by file.
    unsynced: RefCell<BTreeMap<PathBuf, Vec<(u64, Vec<u8>)>>>,
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
            unsynced: RefCell::default(),
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
        for (path, writes) in std::mem::take(&mut *self.unsynced.borrow_mut()) {
            let sectors = writes.iter().flat_map(|(offset, bytes)| sectors(*offset, bytes));
            let (all, kept): (usize, usize) = sectors.fold((0, 0), |(all, kept), sector| {
                let is_kept = world::below(2) == 0;
                if is_kept {
                    self.store(&path, sector);
                }
                (all + 1, kept + usize::from(is_kept))
            });
            let name = path.display();
            world::log(format_args!("files: {kept} of {all} unsynced sectors of {name} are kept"));
        }
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

    /// Puts bytes written in place into what is durable of the file that is called `path` now.
    fn store(&self, path: &Path, (offset, bytes): (u64, &[u8])) {
        let mut pending = self.pending.borrow_mut();
        let mut durable = self.durable.borrow_mut();
        let directory = path.parent().unwrap_or(path);
        // Its name may not be durable: it is then what an earlier step made, or under the name it had before.
        let mut name = path.to_owned();
        let mut made = None;
        for step in pending.get_mut(directory).into_iter().flatten().rev() {
            match step {
                Step::Put(put, bytes) if *put == name => {
                    made = Some(bytes);
                    break;
                }
                Step::Rename(from, to) if *to == name => name = from.clone(),
                Step::Put(..) | Step::Rename(..) | Step::Remove(_) => {}
            }
        }
        if let Some(content) = made.or_else(|| durable.get_mut(&name)) {
            let start = usize::try_from(offset).expect("files of a run are small");
            let end = start + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[start..end].copy_from_slice(bytes);
        }
    }

    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let write = |bytes: &[u8]| {
            fs::File::options().write(true).open(path)?.write_all_at(bytes, offset)?;
            let mut unsynced = self.unsynced.borrow_mut();
            unsynced.entry(path.to_owned()).or_default().push((offset, bytes.to_vec()));
            io::Result::Ok(())
        };
        let part = || {
            let length = usize::try_from(world::below(bytes.len() as u64 + 1)).unwrap_or(0);
            drop(write(bytes.get(..length).unwrap_or(bytes)));
        };
        let (length, checksum) = (bytes.len(), crc32c::crc32c(bytes));
        let name = path.display();
        let what = format_args!("write {name} at {offset} ({length} bytes, {checksum:08x})");
        self.change(what, || write(bytes), part)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let sync = || {
            let writes = self.unsynced.borrow_mut().remove(path).unwrap_or_default();
            for (offset, bytes) in writes {
                self.store(path, (offset, &bytes));
            }
            Ok(())
        };
        self.change(format_args!("sync {}", path.display()), sync, || drop(sync()))
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
            let mut unsynced = self.unsynced.borrow_mut();
            match unsynced.remove(from) {
                Some(writes) => drop(unsynced.insert(to.to_owned(), writes)),
                None => drop(unsynced.remove(to)),
            }
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
            self.unsynced.borrow_mut().remove(path);
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
    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        let create = || {
            drop(fs::File::create(path)?);
            self.unsynced.borrow_mut().remove(path);
            if let Some(durable) = self.durable.borrow_mut().get_mut(path) {
                durable.clear();
            }
            self.note(path, Step::Put(path.to_owned(), Vec::new()));
            Ok(())
        };
        self.change(format_args!("create {}", path.display()), create, || drop(create()))?;
        Ok(Box::new(SimFile { path: path.to_owned() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        fs::metadata(path)?;
        Ok(Box::new(SimFile { path: path.to_owned() }))
    }
}

/// A file that is written in place; whose it is, the thread's world knows.
#[derive(Debug)]
struct SimFile {
    path: PathBuf,
}

impl FileWriter for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        world::with(|world| world.host_files().write_at(&self.path, offset, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        world::with(|world| world.host_files().sync(&self.path))
    }
}

/// Bytes cut where sectors end.
fn sectors(offset: u64, bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut cut = Vec::new();
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let within = usize::try_from(at % SECTOR_BYTES as u64).unwrap_or(0);
        let (sector, behind) = rest.split_at(rest.len().min(SECTOR_BYTES - within));
        cut.push((at, sector));
        at += sector.len() as u64;
        rest = behind;
    }
    cut
}
