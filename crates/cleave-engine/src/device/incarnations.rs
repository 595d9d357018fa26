//! Which incarnations of this database may own a device: a few numbers in a file of the database's folder.
//!
//! ```text
//!  DIR/device-<id>.incarnations   a frame (cleave_store::Format) with the magic "CLVOPENS" around u64*
//! ```
//!
//! A copied folder counts the same epochs as the original, and either may be opened. The one that is opened claims its
//! devices; the other's manifest may then name pages that were given to other uses since. So each folder knows the
//! incarnations of its own line: an incarnation is written here before it claims, and the others are forgotten when the
//! device has acknowledged it. A device that another incarnation owns is refused. The file is a record of one sector,
//! so that a database whose disk is full claims its devices too.
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

const FORMAT: Format =
    Format { magic: *b"CLVOPENS", name: "list of incarnations", versions: 1..=1 };

/// The incarnations that may own one device.
#[derive(Debug)]
pub(super) struct Incarnations {
    path: PathBuf,
    /// The path at which earlier builds kept them.
    path_before: PathBuf,
}

impl Incarnations {
    /// Those of device `id` of the database in `directory`.
    pub(super) fn of(directory: &Path, id: DeviceId) -> Self {
        Self {
            path: directory.join(format!("device-{id}.incarnations")),
            path_before: directory.join(format!("device-{id}.openings")),
        }
    }

    /// The incarnations, in the order in which they claimed; none before the first claim.
    ///
    /// # Errors
    /// [`StorageError::Damaged`], [`Error::Io`].
    pub(super) fn read(&self) -> Result<Vec<u64>> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::read(&self.path_before),
            read => read,
        };
        let bytes = match bytes {
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

    /// Makes `incarnations` durable in place of those before.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn replace(&self, incarnations: &[u64]) -> Result<()> {
        let payload: Vec<u8> =
            incarnations.iter().flat_map(|number| number.to_le_bytes()).collect();
        files::replace_record(&self.path, &FORMAT.seal(&payload))
            .map_err(|error| Error::io("write", &self.path, error))?;
        drop(files::remove(&self.path_before));
        Ok(())
    }

    /// Forgets them, with a device that is the database's no more. A file that cannot be removed does no
    /// harm: its number is never another device's.
    pub(super) fn remove(&self) {
        drop(files::remove(&self.path));
        drop(files::remove(&self.path_before));
    }
}

/// Whether device `id` of the database in `directory` may be owned by `incarnation`.
///
/// # Errors
/// As [`Incarnations::read`].
pub fn knows_incarnation(directory: &Path, id: DeviceId, incarnation: u64) -> Result<bool> {
    Ok(Incarnations::of(directory, id).read()?.contains(&incarnation))
}

/// Notes that device `id` of the database in `directory` may be owned by `incarnation`.
///
/// # Errors
/// As [`Incarnations::read`].
pub fn note_incarnation(directory: &Path, id: DeviceId, incarnation: u64) -> Result<()> {
    let incarnations = Incarnations::of(directory, id);
    let mut known = incarnations.read()?;
    if incarnation != 0 && !known.contains(&incarnation) {
        known.push(incarnation);
        incarnations.replace(&known)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
