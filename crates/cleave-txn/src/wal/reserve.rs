//! Reserved disk space, used when the disk is full: for commits that free space.
//!
//! `log/reserve` is a file of zeros. When [`super::Wal::append_urgent`] finds the disk full, it removes the file, and
//! the freed blocks take its record. [`super::Wal::restore_reserve`] makes it again. `log/reserve.incarnation` is a
//! second one, for restarts alone: a crash may follow after the first is used up, and then the database must still
//! open.
//!
//! Invariant: the files are never read, and a log without them is complete.

use std::path::{Path, PathBuf};

use cleave_media::files;

use super::LogError;
use super::retention::Spares;
use super::writer::{LogOptions, Wal};

const NAME: &str = "reserve";
const INCARNATION: &str = "reserve.incarnation";
/// Most bytes that are reserved.
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    byte_count: usize,
    is_there: bool,
}

impl Reserve {
    /// The reserve of the log in `directory`; made if it is missing, and there is room.
    pub(crate) fn find(directory: &Path, options: &LogOptions) -> Self {
        let path = directory.join(NAME);
        let byte_count = options.reserve_bytes as usize;
        let found = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let found = usize::try_from(found).unwrap_or(0);
        let is_there = found > 0 && found >= byte_count && byte_count > 0;
        let byte_count = if is_there { found } else { byte_count };
        let mut reserve = Self { path, byte_count, is_there };
        // A full disk does not keep the log from opening.
        drop(reserve.make(0));
        reserve
    }

    /// Frees its space; returns whether there was any.
    pub(crate) fn release(&mut self) -> bool {
        self.is_there && {
            self.is_there = false;
            files::remove(&self.path).is_ok()
        }
    }

    fn make(&mut self, byte_count_min: usize) -> Result<(), LogError> {
        let has_enough = self.is_there && self.byte_count >= byte_count_min;
        if has_enough || self.byte_count == 0 {
            return Ok(());
        }
        let before = self.byte_count;
        self.byte_count = self.byte_count.max(byte_count_min);
        let made = self.write();
        if made.is_err() && self.is_there {
            // The file is made again, in the space that it had.
            self.byte_count = before;
            return self.write().and(made);
        }
        made
    }

    fn write(&mut self) -> Result<(), LogError> {
        self.is_there = false;
        let zeros = vec![0; self.byte_count];
        let made = files::create(&self.path).and_then(|file| file.write_at(0, &zeros));
        if let Err(error) = made {
            drop(files::remove(&self.path));
            return Err(LogError::io("make", &self.path)(error));
        }
        self.is_there = true;
        Ok(())
    }
}

/// Reserves at least `byte_count` bytes, up to a maximum, in `directory` for the next incarnation.
///
/// # Errors
/// [`LogError::Io`], mostly for lack of space: an earlier reserve is kept.
pub fn reserve_for_start(directory: &Path, byte_count: u64) -> Result<(), LogError> {
    let (path, byte_count) = (directory.join(INCARNATION), byte_count.min(RESERVE_BYTES_MAX));
    let found = std::fs::metadata(&path).map(|metadata| metadata.len());
    let (found, file) = match found {
        Ok(found) if found >= byte_count => return Ok(()),
        Ok(found) => (found, files::open(&path)),
        Err(_) => (0, files::create(&path)),
    };
    let missing = byte_count.saturating_sub(found);
    let zeros = vec![0; usize::try_from(missing).unwrap_or(0)];
    file.and_then(|file| file.write_at(found, &zeros)).map_err(LogError::io("make", &path))
}

/// Frees reserved space in `directory` for the opening of a log on a full disk: first that for restarts, last the
/// blocks of spare segments. Returns whether there was any; more may be left.
///
/// Statements that free space need an open database.
#[must_use]
pub fn release_reserve(directory: &Path) -> bool {
    let spare = || Spares::find(directory).is_ok_and(|mut spares| spares.remove_one());
    [INCARNATION, NAME].iter().any(|name| files::remove(&directory.join(name)).is_ok()) || spare()
}

impl Wal {
    /// Reserves space again, for [`Wal::append_urgent`], at least so many bytes; no effect if it is there.
    ///
    /// # Errors
    /// [`LogError::Io`], mostly for lack of space.
    pub fn restore_reserve(&self, byte_count_min: u64) -> Result<(), LogError> {
        let bytes = usize::try_from(byte_count_min.min(RESERVE_BYTES_MAX)).unwrap_or(0);
        self.shared.state().reserve.make(bytes)
    }

    /// Frees the reserved space for a caller that makes room without the log; returns whether there was any.
    pub fn release_reserve(&self) -> bool {
        self.shared.state().reserve.release()
    }

    /// Whether there is space for [`Wal::append_urgent`] on a full disk.
    #[must_use]
    pub fn has_reserve(&self) -> bool {
        self.shared.state().reserve.is_there
    }
}
