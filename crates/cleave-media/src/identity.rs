//! The identity of media: sixteen random bytes in a small file beside it, read, or drawn and stored. A whole block
//! device has its identity in its own head.
//!
//! A database knows its devices by this identity: without the file, the pages of the media belong to no database. So a
//! new identity is written to a temporary file, synced and renamed, and its directory synced, before it is used.
//!
//! Invariant: an identity that [`MediaIdentity::of_file`] returned is returned again after a loss of power.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::direct_file::sync_parent;
use crate::files::{create_private, with_suffix};
use crate::{DirectFile, MediaError, random_bytes};

/// Identity of media, independent of its path. Displayed as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaIdentity {
    /// The identity.
    pub bytes: [u8; 16],
    /// Whether it was drawn just now.
    pub is_new: bool,
}

impl MediaIdentity {
    /// Default path of the identity of the media at `media`: its name with `.id` appended.
    #[must_use]
    pub fn path_beside(media: &Path) -> PathBuf {
        with_suffix(media, ".id")
    }

    /// The identity in the file at `path`. `None` if there is no file, or an empty one, as an interrupted creation
    /// leaves it: in no other case was none drawn.
    ///
    /// # Errors
    /// [`MediaError::Identity`] for a file that cannot be read, or holds something else.
    pub fn kept(path: &Path) -> Result<Option<Self>, MediaError> {
        let failed = |action: &'static str, source: io::Error| MediaError::Identity {
            action,
            path: path.to_path_buf(),
            source,
        };
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", error)),
        };
        let text = text.trim_ascii();
        if text.is_empty() {
            return Ok(None);
        }
        let bytes = str::from_utf8(text).ok().and_then(from_hex).ok_or_else(|| {
            failed("use", io::Error::other("it does not hold 32 hexadecimal digits"))
        })?;
        Ok(Some(Self { bytes, is_new: false }))
    }

    /// The identity of `media`: on a whole block device in its own head, else as [`Self::of_file`] at `path`.
    ///
    /// # Errors
    /// [`MediaError::Identity`].
    pub fn of_media(media: &DirectFile, path: &Path) -> Result<Self, MediaError> {
        media.head().map_or_else(|| Self::of_file(path), Ok)
    }

    /// The identity in the file at `path`. If there is no file, or an empty one, as an interrupted creation leaves it,
    /// an identity is drawn and stored there.
    ///
    /// One process at a time: the caller holds the lock of the media.
    ///
    /// # Errors
    /// [`MediaError::Identity`], also for a file with other contents, which is left as it is.
    pub fn of_file(path: &Path) -> Result<Self, MediaError> {
        if let Some(kept) = Self::kept(path)? {
            return Ok(kept);
        }
        let identity = Self { bytes: random_bytes()?, is_new: true };
        write_durably(path, &format!("{identity}\n")).map_err(|source| MediaError::Identity {
            action: "write",
            path: path.to_path_buf(),
            source,
        })?;
        Ok(identity)
    }
}

impl fmt::Display for MediaIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn from_hex(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(high << 4 | low),
            _ => None,
        })
        .collect::<Option<_>>()?;
    bytes.try_into().ok()
}

/// Writes a file so that it is whole or missing, whatever happens.
fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    let mut file = create_private(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_parent(path)
}

#[cfg(test)]
mod tests;
