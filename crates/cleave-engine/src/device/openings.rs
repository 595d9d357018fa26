//! Which openings of this database may own a device: a few numbers in a file of the database's folder.
//!
//! ```text
//!  DIR/device-<id>.openings   a frame (cleave_store::Format) with the mark "CLVOPENS" around u64*
//! ```
//!
//! A copy of the folder counts the same epochs as the original, and either may be opened. Who opens
//! claims its devices; then the other copy's root may name pages that were given away since. So each
//! copy knows the openings of its own line: an opening is written here before it claims, and the others
//! are forgotten when the device has acknowledged it. A device that another opening owns is refused. The file is a
//! record of one sector: a database whose disk is full claims its devices too.
//!
//! Source: rule 29, "one host at a time".

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cleave_media::files;
use cleave_store::Format;

use cleave_catalog::catalog::DeviceId;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;

const FORMAT: Format = Format { magic: *b"CLVOPENS", name: "list of openings", versions: 1..=1 };

/// The openings that may own one device.
#[derive(Debug)]
pub(super) struct Openings {
    path: PathBuf,
}

impl Openings {
    /// Those of device `id` of the database in `directory`.
    pub(super) fn of(directory: &Path, id: DeviceId) -> Self {
        Self { path: directory.join(format!("device-{id}.openings")) }
    }

    /// The openings, in the order in which they claimed; none before the first claim.
    ///
    /// # Errors
    /// [`StorageError::Damaged`], [`Error::Io`].
    pub(super) fn read(&self) -> Result<Vec<u64>> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("read", &self.path, error)),
        };
        let damaged = |reason: String| StorageError::Damaged { path: self.path.clone(), reason };
        let (_, payload) = FORMAT.open(&bytes).map_err(|error| damaged(error.to_string()))?;
        let (numbers, rest) = payload.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(damaged(format!("it has {} bytes too many", rest.len())).into());
        }
        Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
    }

    /// Makes `openings` durable in place of those before.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn replace(&self, openings: &[u64]) -> Result<()> {
        let payload: Vec<u8> = openings.iter().flat_map(|number| number.to_le_bytes()).collect();
        files::replace_record(&self.path, &FORMAT.seal(&payload))
            .map_err(|error| Error::io("write", &self.path, error))
    }

    /// Forgets them, with a device that is the database's no more. A file that cannot be removed does no
    /// harm: its number is never another device's.
    pub(super) fn remove(&self) {
        drop(files::remove(&self.path));
    }
}

/// Whether device `id` of the database in `directory` may be owned by `opening`.
///
/// # Errors
/// As [`Openings::read`].
pub fn knows_opening(directory: &Path, id: DeviceId, opening: u64) -> Result<bool> {
    Ok(Openings::of(directory, id).read()?.contains(&opening))
}

/// Notes that device `id` of the database in `directory` may be owned by `opening`.
///
/// # Errors
/// As [`Openings::read`].
pub fn note_opening(directory: &Path, id: DeviceId, opening: u64) -> Result<()> {
    let openings = Openings::of(directory, id);
    let mut known = openings.read()?;
    if opening != 0 && !known.contains(&opening) {
        known.push(opening);
        openings.replace(&known)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
