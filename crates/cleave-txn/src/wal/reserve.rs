//! Space put aside for the day on which there is none: for commits that make room.
//!
//! `log/reserve` is a file of zeros. When [`super::Wal::append_urgent`] finds the disk full, it removes the file, and
//! the blocks that this sets free take its record. [`super::Wal::restore_reserve`] makes it again.
//! `log/reserve.start` is another one, for restarts alone: what has used the first up may be followed by a crash,
//! and then the database must open.
//!
//! Invariant: nothing reads the files, and a log without them is whole.

use std::path::{Path, PathBuf};

use cleave_media::files;

use super::LogError;
use super::retention::Spares;
use super::writer::{LogOptions, Wal};

const NAME: &str = "reserve";
const START: &str = "reserve.start";
/// What builds before this one called that.
const START_BEFORE: &str = "reserve.opening";
/// The most that is put aside.
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    byte_count: usize,
    is_there: bool,
}

impl Reserve {
    /// That of the log in `directory`; made if it is not there, and there is room.
    pub(crate) fn find(directory: &Path, options: &LogOptions) -> Self {
        let path = directory.join(NAME);
        let byte_count = options.reserve_bytes as usize;
        let found = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let found = usize::try_from(found).unwrap_or(0);
        let is_there = found > 0 && found >= byte_count && byte_count > 0;
        let byte_count = if is_there { found } else { byte_count };
        let mut reserve = Self { path, byte_count, is_there };
        // A full disk does not keep the log closed.
        drop(reserve.make(0));
        reserve
    }

    /// Sets its space free; whether there was any.
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
            // What it was is made again, in the space that it had.
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

/// Puts at least `byte_count` bytes, of which there is a most, aside in `directory` for the next incarnation.
///
/// # Errors
/// [`LogError::Io`], for want of space as a rule: what was put aside before is still there.
pub fn reserve_for_start(directory: &Path, byte_count: u64) -> Result<(), LogError> {
    drop(files::remove(&directory.join(START_BEFORE)));
    let (path, byte_count) = (directory.join(START), byte_count.min(RESERVE_BYTES_MAX));
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

/// Gives space that is put aside in `directory` to whoever must open a log on a full disk, first what is for restarts;
/// last the blocks of segments that were kept to be used again. Whether there was any; more may be left.
///
/// What makes room can be said only to a database that is open.
#[must_use]
pub fn release_reserve(directory: &Path) -> bool {
    let spare = || Spares::find(directory).is_ok_and(|mut spares| spares.remove_one());
    [START_BEFORE, START, NAME].iter().any(|name| files::remove(&directory.join(name)).is_ok())
        || spare()
}

impl Wal {
    /// Puts space aside again, for [`Wal::append_urgent`], at least so many bytes; nothing to do where it is there.
    ///
    /// # Errors
    /// [`LogError::Io`], for want of space as a rule.
    pub fn restore_reserve(&self, byte_count_min: u64) -> Result<(), LogError> {
        let bytes = usize::try_from(byte_count_min.min(RESERVE_BYTES_MAX)).unwrap_or(0);
        self.shared.state().reserve.make(bytes)
    }

    /// Gives the space that was put aside to whoever makes room otherwise than by the log; whether there was any.
    pub fn release_reserve(&self) -> bool {
        self.shared.state().reserve.release()
    }

    /// Whether there is space for [`Wal::append_urgent`] on a full disk.
    #[must_use]
    pub fn has_reserve(&self) -> bool {
        self.shared.state().reserve.is_there
    }
}
