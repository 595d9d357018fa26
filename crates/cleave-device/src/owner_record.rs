//! The durable owner of the device: one small file beside the media's identity. A whole block device, which keeps its
//! identity itself, keeps it in the head of the media.
//!
//! ```text
//!  <identity's name>.owner, or    a frame (cleave_store::Format) with the mark "CLVOWNER" around
//!  bytes 512..1024 of the head    database 16 bytes │ epoch u64 │ incarnation u64
//! ```
//!
//! A new record is durable before the claim that it records is answered. In a file it is written to a temporary file,
//! synced, renamed over the old one, and its folder synced; in a head it is one sector, which a device writes whole or
//! not at all. So the old record or the new one is there, whole, at every instant. A record with a wrong checksum is
//! damage, for which the device refuses to start. If the file system has no room for a temporary file, the record is
//! overwritten in place, as in a head: a full device can still be claimed, to be read and emptied.
//!
//! Invariant: the epochs in the file only rise, unless the operator gave the device up or handed it over. Source: rule
//! 29.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cleave_fragment::command::Ownership;
use cleave_media::{DirectFile, MediaError, files};
use cleave_store::{Format, FrameError};

/// The frame of a record.
const FORMAT: Format = Format { magic: *b"CLVOWNER", name: "owner record", versions: 1..=1 };

/// The storage of a device's [`Ownership`].
#[derive(Debug, Clone)]
pub struct OwnerRecord(Place);

#[derive(Debug, Clone)]
enum Place {
    File(PathBuf),
    Head(Arc<DirectFile>),
    Process(Arc<Mutex<Option<Ownership>>>),
}

/// A record that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum OwnerRecordError {
    /// The system failed: see the cause.
    #[error("cannot {action} the owner record {}: {source}", path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The head of the block device failed: see the cause.
    #[error(transparent)]
    Head(#[from] MediaError),
    /// The record is damaged: restore it, or hand the device over, which forgets its owner.
    #[error("{}: {reason}; restore it, or start the device with --hand-over", path.display())]
    Damaged {
        /// The file, or the block device.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
}

impl OwnerRecord {
    /// The record that belongs to the identity kept at `identity`: beside it, as its name with `.owner`.
    #[must_use]
    pub fn beside_identity(identity: &Path) -> Self {
        Self(Place::File(files::with_suffix(identity, ".owner")))
    }

    /// The record of `media`, whose identity is kept at `identity` if it is a file. A whole block device keeps the
    /// record in its own head, because it may go to another machine without that file's folder.
    ///
    /// Builds before this one used a file for block devices too; its content is moved to the head.
    ///
    /// # Errors
    /// Any [`OwnerRecordError`].
    pub fn of_media(media: &Arc<DirectFile>, identity: &Path) -> Result<Self, OwnerRecordError> {
        let beside = Self::beside_identity(identity);
        if media.head().is_none() {
            return Ok(beside);
        }
        let own = Self(Place::Head(Arc::clone(media)));
        if let Some(owner) = beside.read()? {
            let is_unsaid = media.head_record()?.is_some_and(|record| is_blank(&record));
            if is_unsaid {
                own.replace(Some(owner))?;
            }
            beside.replace(None)?;
        }
        Ok(own)
    }

    /// A record that ends with its last clone. It suffices for a device inside the process that holds the database: no
    /// other host can reach it, and nothing that it began outlives it.
    #[must_use]
    pub fn in_process() -> Self {
        Self(Place::Process(Arc::default()))
    }

    /// The owner of the device.
    ///
    /// # Errors
    /// Any [`OwnerRecordError`].
    pub fn read(&self) -> Result<Option<Ownership>, OwnerRecordError> {
        let (path, bytes) = match &self.0 {
            Place::Process(owner) => {
                return Ok(*owner.lock().unwrap_or_else(PoisonError::into_inner));
            }
            Place::Head(media) => {
                let record = media.head_record()?.unwrap_or_default();
                if is_blank(&record) {
                    return Ok(None);
                }
                (media.path(), record)
            }
            Place::File(path) => match fs::read(path) {
                Ok(bytes) => (path.as_path(), bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(source) => return Err(io_error("read", path, source)),
            },
        };
        decode(&bytes).map(Some).map_err(|error| OwnerRecordError::Damaged {
            path: path.to_owned(),
            reason: error.to_string(),
        })
    }

    /// Replaces the record durably by `owner`.
    ///
    /// # Errors
    /// [`OwnerRecordError::Io`], [`OwnerRecordError::Head`]: after a restart either record may be found.
    pub fn replace(&self, owner: Option<Ownership>) -> Result<(), OwnerRecordError> {
        let path = match &self.0 {
            Place::Process(place) => {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = owner;
                return Ok(());
            }
            Place::Head(media) => {
                let record = owner.map(encode).unwrap_or_default();
                return Ok(media.replace_head_record(&record)?);
            }
            Place::File(path) => path,
        };
        let outcome = match owner {
            Some(owner) => files::replace_record(path, &encode(owner)),
            None => remove_durably(path),
        };
        outcome.map_err(|source| io_error("write", path, source))
    }
}

/// Whether a head has no record.
fn is_blank(record: &[u8]) -> bool {
    record.iter().all(|byte| *byte == 0)
}

fn encode(owner: Ownership) -> Vec<u8> {
    let mut payload = owner.database.to_vec();
    payload.extend(owner.epoch.to_le_bytes());
    payload.extend(owner.incarnation.to_le_bytes());
    FORMAT.seal(&payload)
}

fn decode(bytes: &[u8]) -> Result<Ownership, FrameError> {
    let (_, payload) = FORMAT.open(bytes)?;
    let parts = || {
        let (database, rest) = payload.split_first_chunk::<16>()?;
        let (epoch, rest) = rest.split_first_chunk::<8>()?;
        let (incarnation, rest) = rest.split_first_chunk::<8>()?;
        rest.is_empty().then(|| Ownership {
            database: *database,
            epoch: u64::from_le_bytes(*epoch),
            incarnation: u64::from_le_bytes(*incarnation),
        })
    };
    parts().ok_or_else(|| FrameError::Malformed {
        name: FORMAT.name,
        reason: format!("its payload has {} bytes", payload.len()),
    })
}

fn remove_durably(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => files::sync_parent(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> OwnerRecordError {
    OwnerRecordError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
