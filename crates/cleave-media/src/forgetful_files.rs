//! Files that lose unsynced writes: real files in a folder, and a record of what a loss of power would leave of them.
//!
//! ```text
//!   write, rename, remove ──▶ the folder (what programs read)
//!            └─────────────▶ steps of names, sectors of files ──sync──▶ the durable state
//! ```
//!
//! 1. A file's bytes are durable when [`Files::write_durably`] or [`FileWriter::sync`] returns; its name, and every
//!    rename and removal, only after a sync of its directory.
//! 2. [`ForgetfulFiles::lose_power`] keeps the first few unsynced steps of the names in each directory and any of the
//!    unsynced sectors written in place, as the caller's random numbers decide, and puts the folder into that state.
//! 3. [`ForgetfulFiles::limit_space`] (removed files give theirs back) fills the disk, [`ForgetfulFiles::fail_syncs`]
//!    breaks it, and [`ForgetfulFiles::before_syncs`] lets a test act while a sync is under way.
//! 4. A failing sync behaves as on Linux ([`ForgetfulFiles::lose_unsynced`]): some of the sectors are stored, the
//!    others never will be, although they can be read until power is lost, and the next sync succeeds. Only writing
//!    them again stores them.
//!
//! Invariant: directories are durable once made (their creation has tests of its own). The order of steps within one
//! directory is kept, as journalling file systems keep it. For tests and simulations only.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::files::{FileWriter, Files, SECTOR_BYTES};

/// See the module's description. Clones share the files.
#[derive(Debug, Clone, Default)]
pub struct ForgetfulFiles(Arc<Mutex<FilesInner>>);

#[derive(Debug, Default)]
struct FilesInner {
    durable: BTreeMap<PathBuf, Vec<u8>>,
    /// Steps since the last sync, by directory.
    pending: BTreeMap<PathBuf, Vec<Step>>,
    /// Writes in place since the last sync, by file.
    unsynced: BTreeMap<PathBuf, Vec<(u64, Vec<u8>)>>,
    /// Bytes that files may grow by in all; None: no limit.
    space_left: Option<u64>,
    syncs_fail: bool,
    /// Sectors that failing syncs were to store so far; decides which of them are stored.
    failed_sector_count: u64,
    before_syncs: Hook,
}

/// Hook of a test.
#[derive(Clone, Default)]
struct Hook(Option<Arc<dyn Fn() + Send + Sync>>);

#[derive(Debug, Clone)]
enum Step {
    Put(PathBuf, Vec<u8>),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl ForgetfulFiles {
    /// No files yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts all files into a state that a loss of power may leave. `below` gives a random number below its argument;
    /// `told` is called with the decisions.
    ///
    /// # Errors
    /// The operating system's error for the real folder.
    pub fn lose_power(
        &self,
        mut below: impl FnMut(u64) -> u64,
        mut told: impl FnMut(fmt::Arguments<'_>),
    ) -> io::Result<()> {
        let state = &mut *self.state();
        for (path, writes) in std::mem::take(&mut state.unsynced) {
            let (mut all, mut kept) = (0, 0);
            for sector in writes.iter().flat_map(|(offset, bytes)| sectors(*offset, bytes)) {
                all += 1;
                if below(2) == 0 {
                    kept += 1;
                    state.store(&path, sector);
                }
            }
            let name = path.display();
            told(format_args!("{kept} of {all} unsynced sectors of {name} are kept"));
        }
        for (directory, steps) in std::mem::take(&mut state.pending) {
            let kept = usize::try_from(below(steps.len() as u64 + 1)).unwrap_or(0);
            let (all, name) = (steps.len(), directory.display());
            told(format_args!("{kept} of {all} unsynced steps in {name} are kept"));
            steps.iter().take(kept).for_each(|step| step.apply(&mut state.durable));
            for step in &steps {
                for path in step.paths().filter(|path| !state.durable.contains_key(*path)) {
                    drop(fs::remove_file(path));
                }
            }
        }
        state.durable.iter().try_for_each(|(path, bytes)| fs::write(path, bytes))
    }

    /// Loses the folder `directory` with all that is in it, for ever.
    ///
    /// # Errors
    /// Errors of the real folder.
    pub fn lose_folder(&self, directory: &Path) -> io::Result<()> {
        let state = &mut *self.state();
        state.durable.retain(|path, _| !path.starts_with(directory));
        state.pending.retain(|path, _| !path.starts_with(directory));
        state.unsynced.retain(|path, _| !path.starts_with(directory));
        fs::remove_dir_all(directory)
    }

    /// Lets files that are written in place grow by so many bytes more in all, or without limit.
    pub fn limit_space(&self, space_left: Option<u64>) {
        self.state().space_left = space_left;
    }

    /// Whether every sync of a file that is written in place fails from now on, and stores one sector in three.
    pub fn fail_syncs(&self, fail: bool) {
        self.state().syncs_fail = fail;
    }

    /// The effect of a failing sync of the file at `path`: of the writes in place since the last sync it stores the
    /// sectors that `is_stored` names, and takes the others for stored too. They can be read until power is lost.
    pub fn lose_unsynced(&self, path: &Path, is_stored: impl FnMut() -> bool) {
        self.state().lose_unsynced(path, is_stored);
    }

    /// Calls `hook` at the beginning of every sync of a file that is written in place.
    pub fn before_syncs(&self, hook: Arc<dyn Fn() + Send + Sync>) {
        self.state().before_syncs = Hook(Some(hook));
    }

    fn state(&self) -> MutexGuard<'_, FilesInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self, path: &Path) -> Box<dyn FileWriter> {
        Box::new(ForgetfulFile { files: self.clone(), path: path.to_owned() })
    }
}

impl FilesInner {
    fn note(&mut self, path: &Path, step: Step) {
        let directory = path.parent().unwrap_or(path).to_owned();
        self.pending.entry(directory).or_default().push(step);
    }

    fn lose_unsynced(&mut self, path: &Path, mut is_stored: impl FnMut() -> bool) {
        let writes = self.unsynced.remove(path).unwrap_or_default();
        for sector in writes.iter().flat_map(|(offset, bytes)| sectors(*offset, bytes)) {
            if is_stored() {
                self.store(path, sector);
            }
        }
    }

    /// Adds bytes written in place to the durable contents of the file that is called `path` now.
    fn store(&mut self, path: &Path, (offset, bytes): (u64, &[u8])) {
        let directory = path.parent().unwrap_or(path);
        // Its name may not be durable: the durable file is then the result of an earlier step, or has the name of
        // before.
        let mut name = path.to_owned();
        let mut made = None;
        for step in self.pending.get_mut(directory).into_iter().flatten().rev() {
            match step {
                Step::Put(put, bytes) if *put == name => {
                    made = Some(bytes);
                    break;
                }
                Step::Rename(from, to) if *to == name => name.clone_from(from),
                Step::Put(..) | Step::Rename(..) | Step::Remove(_) => {}
            }
        }
        let content = made.or_else(|| self.durable.get_mut(&name));
        let (Some(content), Ok(start)) = (content, usize::try_from(offset)) else { return };
        let end = start.saturating_add(bytes.len());
        if content.len() < end {
            content.resize(end, 0);
        }
        if let Some(place) = content.get_mut(start..end) {
            place.copy_from_slice(bytes);
        }
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

impl Files for ForgetfulFiles {
    fn write_durably(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        fs::write(path, bytes)?;
        let mut state = self.state();
        state.unsynced.remove(path);
        // An existing file is written in place.
        if let Some(durable) = state.durable.get_mut(path) {
            *durable = bytes.to_vec();
        }
        state.note(path, Step::Put(path.to_owned(), bytes.to_vec()));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        let mut state = self.state();
        state.unsynced.remove(to);
        if let Some(writes) = state.unsynced.remove(from) {
            state.unsynced.insert(to.to_owned(), writes);
        }
        state.note(to, Step::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let freed = fs::metadata(path)?.len();
        fs::remove_file(path)?;
        let mut state = self.state();
        state.space_left = state.space_left.map(|left| left.saturating_add(freed));
        state.unsynced.remove(path);
        state.note(path, Step::Remove(path.to_owned()));
        Ok(())
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.state();
        let steps = state.pending.remove(path).unwrap_or_default();
        steps.iter().for_each(|step| step.apply(&mut state.durable));
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        drop(fs::File::create(path)?);
        let mut state = self.state();
        state.unsynced.remove(path);
        if let Some(durable) = state.durable.get_mut(path) {
            durable.clear();
        }
        state.note(path, Step::Put(path.to_owned(), Vec::new()));
        drop(state);
        Ok(self.writer(path))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        fs::metadata(path)?;
        Ok(self.writer(path))
    }
}

/// A file that is written in place.
#[derive(Debug)]
struct ForgetfulFile {
    files: ForgetfulFiles,
    path: PathBuf,
}

impl FileWriter for ForgetfulFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.files.state();
        let file = fs::File::options().write(true).open(&self.path)?;
        let end = offset.saturating_add(bytes.len() as u64);
        let growth = end.saturating_sub(file.metadata()?.len());
        if let Some(left) = &mut state.space_left {
            let Some(rest) = left.checked_sub(growth) else {
                return Err(io::ErrorKind::StorageFull.into());
            };
            *left = rest;
        }
        file.write_all_at(bytes, offset)?;
        let writes = state.unsynced.entry(self.path.clone()).or_default();
        writes.push((offset, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let hook = self.files.state().before_syncs.clone();
        if let Some(hook) = hook.0 {
            hook();
        }
        let mut state = self.files.state();
        if state.syncs_fail {
            let mut count = state.failed_sector_count;
            state.lose_unsynced(&self.path, || {
                count += 1;
                count.is_multiple_of(3)
            });
            state.failed_sector_count = count;
            return Err(io::Error::other("a test asked for it"));
        }
        for (offset, bytes) in state.unsynced.remove(&self.path).unwrap_or_default() {
            state.store(&self.path, (offset, &bytes));
        }
        Ok(())
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// The bytes, split at sector boundaries.
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

#[cfg(test)]
mod tests;
