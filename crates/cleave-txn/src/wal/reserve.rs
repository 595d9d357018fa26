//! Space put aside for the day on which there is none: for commits that make room.
//!
//! `log/reserve` is a file of zeros. When [`super::Wal::append_urgent`] finds the disk full, it removes the file, and the
//! blocks that this sets free take its record. [`super::Wal::restore_reserve`] makes it again.
//!
//! Invariant: nothing reads the file, and a log without it is whole.

use std::path::{Path, PathBuf};

use cleave_media::files;

use super::LogError;
use super::writer::{LogOptions, Wal};

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
        let path = directory.join("reserve");
        let byte_count = options.reserve_bytes as usize;
        let found = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let is_there = found > 0 && found == byte_count as u64;
        let mut reserve = Self { path, byte_count, is_there };
        // A full disk does not keep the log closed.
        drop(reserve.make());
        reserve
    }

    /// Sets its space free; whether there was any.
    pub(crate) fn release(&mut self) -> bool {
        self.is_there && {
            self.is_there = false;
            files::remove(&self.path).is_ok()
        }
    }

    fn make(&mut self) -> Result<(), LogError> {
        if self.is_there || self.byte_count == 0 {
            return Ok(());
        }
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

impl Wal {
    /// Puts space aside again, for [`Wal::append_urgent`]; nothing to do where it is there.
    ///
    /// # Errors
    /// [`LogError::Io`], for want of space as a rule.
    pub fn restore_reserve(&self) -> Result<(), LogError> {
        self.shared.state().reserve.make()
    }

    /// Whether there is space for [`Wal::append_urgent`] on a full disk.
    #[must_use]
    pub fn has_reserve(&self) -> bool {
        self.shared.state().reserve.is_there
    }
}
