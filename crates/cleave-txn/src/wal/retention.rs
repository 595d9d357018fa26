//! Retires segments that a checkpoint no longer needs: archives them, and keeps their files for reuse.
//!
//! 1. [`Wal::truncate_before`] takes the segments that lie wholly before a place that no recovery needs any more.
//! 2. With [`super::LogOptions::archive`], each is copied there first: `<name>.new`, synced, renamed, the folder
//!    synced. If the copy fails, the segment stays, and the next call tries again.
//! 3. It becomes a spare, whose blocks exist, up to [`super::LogOptions::spare_segment_count`]; more are removed.
//!
//! Invariant: the segment that records are appended to, and the parts of open transactions, are never touched. The old
//! contents of a spare do not verify in its new place ([`super::record`]).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cleave_media::files::{self, FileWriter};

use super::LogError;
use super::record::Lsn;
use super::segment::{Segment, list_segments, segment_path};
use super::writer::Wal;

const SPARE: &str = "spare";

/// Spare files.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    paths: Vec<PathBuf>,
    number: u64,
}

impl Spares {
    /// The spare files in `directory`.
    pub(crate) fn find(directory: &Path) -> Result<Self, LogError> {
        let mut found = Self::default();
        let io = || LogError::io("list", directory);
        for entry in std::fs::read_dir(directory).map_err(io())? {
            let path = entry.map_err(io())?.path();
            if path.extension().is_some_and(|extension| extension == SPARE) {
                let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
                found.number = found.number.max(number.unwrap_or(0));
                found.paths.push(path);
            }
        }
        found.paths.sort();
        Ok(found)
    }

    /// A file at `path`, and how many of its bytes are allocated: a spare one if there is any.
    pub(crate) fn take_as(
        &mut self,
        path: &Path,
        capacity: u32,
    ) -> Result<(Box<dyn FileWriter>, u64), LogError> {
        while let Some(spare) = self.paths.pop() {
            let byte_count = std::fs::metadata(&spare).map_or(0, |metadata| metadata.len());
            if files::rename(&spare, path).is_ok() {
                let writer = files::open(path).map_err(LogError::io("open", path))?;
                return Ok((writer, byte_count.min(u64::from(capacity))));
            }
        }
        let writer = files::create(path).map_err(|source| match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                LogError::Full { path: path.to_owned(), byte_count: 0, source }
            }
            _ => LogError::io("create", path)(source),
        })?;
        Ok((writer, 0))
    }

    /// Removes a spare and frees its blocks; returns whether there was any.
    pub(crate) fn remove_one(&mut self) -> bool {
        self.paths.pop().is_some_and(|spare| files::remove(&spare).is_ok())
    }

    /// Keeps the file of a segment for later, or removes it.
    fn put(&mut self, path: &Path, count_max: usize) -> Result<(), LogError> {
        if self.paths.len() >= count_max {
            return files::remove(path).map_err(LogError::io("remove", path));
        }
        self.number += 1;
        let spare = path.with_file_name(format!("{}.{SPARE}", self.number));
        files::rename(path, &spare).map_err(LogError::io("rename", path))?;
        self.paths.push(spare);
        Ok(())
    }
}

impl Wal {
    /// Retires the whole segments before `place`, from which, according to a durable manifest, recovery starts
    /// ([`Wal::resume_from`]). Returns the number of bytes.
    ///
    /// # Errors
    /// [`LogError::Io`]: segments that could not be archived or removed are still there.
    pub fn truncate_before(&self, place: Lsn) -> Result<u64, LogError> {
        let place = place.min(self.resume_from()).min(self.durable_end());
        let directory = &self.shared.directory;
        let starts = list_segments(directory)?;
        let mut given_up = 0;
        for pair in starts.windows(2) {
            let [start, next] = pair else { continue };
            // At the start of the next one its header need not be written, and its file may not be durable.
            if *next >= place {
                break;
            }
            let path = segment_path(directory, *start);
            if let Some(archive) = self.archive_folder() {
                archive_segment(directory, *start, self.durable_end(), &archive)?;
                self.note_archived(*next);
            }
            let mut state = self.shared.state();
            state.spares.put(&path, self.shared.options.spare_segment_count)?;
            given_up += next.0 - start.0;
        }
        Ok(given_up)
    }

    /// Copies every segment with durable records into the archive, including the one that records are appended to, as
    /// far as it is durable; a later copy of that one replaces it. No effect without [`super::LogOptions::archive`].
    ///
    /// # Errors
    /// [`LogError::Io`]; [`LogError::Failed`].
    pub fn archive(&self) -> Result<(), LogError> {
        let Some(archive) = self.archive_folder() else { return Ok(()) };
        let end = self.end();
        self.copy_to(&archive, Lsn(0))?;
        self.note_archived(end);
        Ok(())
    }

    /// Changes the archive folder ([`super::LogOptions::archive`]).
    pub fn set_archive(&self, archive: Option<PathBuf>) {
        self.shared.state().archive = archive;
    }

    /// The archive has everything before it, as copied since the log was opened.
    #[must_use]
    pub fn archived_end(&self) -> Lsn {
        self.shared.state().archived_end
    }

    fn archive_folder(&self) -> Option<PathBuf> {
        self.shared.state().archive.clone()
    }

    fn note_archived(&self, end: Lsn) {
        let mut state = self.shared.state();
        state.archived_end = state.archived_end.max(end);
    }

    /// Copies into `folder` all records appended so far and behind `from`, in whole segments, while others append. The
    /// result is a log, up to the end of this one at some moment after the call.
    ///
    /// # Errors
    /// As [`Wal::archive`].
    pub fn copy_to(&self, folder: &Path, from: Lsn) -> Result<(), LogError> {
        self.flush()?;
        self.copy_durable_to(folder, from)
    }

    /// The same of the records that are durable so far: later ones may never become durable, and after a crash this log
    /// may continue with other ones.
    pub(crate) fn copy_durable_to(&self, folder: &Path, from: Lsn) -> Result<(), LogError> {
        let (directory, end) = (&self.shared.directory, self.durable_end());
        let starts = list_segments(directory)?;
        let first = starts.partition_point(|start| *start < from).saturating_sub(1);
        let mut wanted = starts.iter().skip(first).take_while(|start| **start < end);
        wanted.try_for_each(|start| archive_segment(directory, *start, end, folder))
    }
}

/// Copies one segment up to `end`, unless the archive has all of it. The archive's parent folder must exist: if it is
/// not mounted, nothing is made in its place.
fn archive_segment(directory: &Path, start: Lsn, end: Lsn, archive: &Path) -> Result<(), LogError> {
    let Some(mut segment) = Segment::read(directory, start)? else { return Ok(()) };
    segment.bytes.truncate(usize::try_from(end.0.saturating_sub(start.0)).unwrap_or(usize::MAX));
    let copy = segment_path(archive, start);
    let sync_names = || files::sync_directory(archive).map_err(LogError::io("sync", archive));
    if std::fs::read(&copy).is_ok_and(|bytes| bytes == segment.bytes) {
        // The copy was synced before it got its name. Whether the name is durable is not known: the sync for it may
        // have failed.
        return sync_names();
    }
    let new = copy.with_extension("new");
    if let Some(above) = archive.parent() {
        std::fs::metadata(above).map_err(LogError::io("find the archive", above))?;
    }
    files::create_directories(archive).map_err(LogError::io("create", archive))?;
    files::write_durably(&new, &segment.bytes).map_err(LogError::io("write", &new))?;
    let copied = std::fs::read(&new).map_err(LogError::io("read", &new))?;
    if copied != segment.bytes {
        let other = std::io::Error::other("it does not have what was written to it");
        return Err(LogError::io("archive the log in", &new)(other));
    }
    files::rename(&new, &copy).map_err(LogError::io("rename", &new))?;
    sync_names()
}
