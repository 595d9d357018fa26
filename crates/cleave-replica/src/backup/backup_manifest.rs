//! The backup manifest: the moment of a backup, and the length and checksum of each of its files.
//!
//! Invariant: nothing of a backup is used that does not match its backup manifest, and no more of a file is read than
//! that says.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use cleave_catalog::catalog::{CatalogState, DeviceId, manifest};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_catalog::tasks::{blocking, joined};
use cleave_catalog::value::text::moment;
use cleave_media::{BLOCK_SIZE, files};
use cleave_store::Format;
use prost::Message;

use super::{BACKUP_MANIFEST, CATALOG, PAGES, make_folder, sync_folder};

const FORMAT: Format = Format { magic: *b"CLVBACKP", name: "backup manifest", versions: 1..=1 };

/// Blocks that one checksum of the pages covers: 4 MiB.
pub(super) const PIECE_BLOCKS: u32 = 1024;
/// The same in bytes.
pub(super) const PIECE_BYTES: usize = PIECE_BLOCKS as usize * BLOCK_SIZE;
/// Most bytes of a file that is read whole.
const FILE_BYTES_MAX: u64 = 8 << 30;

/// See the module's description.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BackupManifest {
    /// The database, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) database: Vec<u8>,
    /// Its last commit that is in the backup.
    #[prost(uint64, tag = "2")]
    pub(super) commit: u64,
    /// Wall time before which all that is in the backup was committed.
    #[prost(int64, tag = "3")]
    pub(super) made_at_us: i64,
    /// Identity of the database's log, 16 bytes.
    #[prost(bytes = "vec", tag = "4")]
    pub(super) log: Vec<u8>,
    /// Where in that log the commits begin that are not in the backup.
    #[prost(uint64, tag = "5")]
    pub(super) log_position: u64,
    /// All files but that of the pages.
    #[prost(message, repeated, tag = "6")]
    pub(super) files: Vec<FileEntry>,
    /// Blocks of the pages.
    #[prost(uint64, tag = "7")]
    pub(super) block_count: u64,
    /// CRC-32C of every [`PIECE_BLOCKS`] of them.
    #[prost(fixed32, repeated, tag = "8")]
    pub(super) pieces: Vec<u32>,
    /// Tables.
    #[prost(uint64, tag = "9")]
    pub(super) table_count: u64,
}

/// A file of a backup.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FileEntry {
    /// Its path in the backup.
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Length in bytes.
    #[prost(uint64, tag = "2")]
    pub(super) bytes: u64,
    /// CRC-32C.
    #[prost(fixed32, tag = "3")]
    pub(super) checksum: u32,
}

/// Contents of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupSummary {
    /// The last commit in it.
    pub commit: u64,
    /// Microseconds since 1970: all that it has was committed before, and all that was acknowledged before is in it or
    /// was committed while it was begun.
    pub made_at_us: i64,
    /// Tables.
    pub table_count: u64,
    /// Bytes of pages.
    pub page_bytes: u64,
}

impl BackupSummary {
    /// The moment as SQL writes it, in UTC.
    #[must_use]
    pub fn made_at(&self) -> String {
        moment(self.made_at_us)
    }
}

impl fmt::Display for BackupSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (made_at, megabytes) = (self.made_at(), self.page_bytes as f64 / 1e6);
        let Self { commit, table_count, .. } = self;
        write!(f, "commit {commit} of {made_at}, {table_count} tables, {megabytes:.1} MB of pages")
    }
}

impl BackupManifest {
    /// Reads that of the backup in `backup`.
    ///
    /// # Errors
    /// [`StorageError::DamagedBackup`] where there is none, which was interrupted before its end; [`Error::Io`].
    pub(super) fn read(backup: &Path) -> Result<Self> {
        let path = backup.join(BACKUP_MANIFEST);
        let bytes = match std::fs::read(&path) {
            // As builds before this one called it.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                std::fs::read(backup.join("manifest"))
            }
            read => read,
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                let reason = "it has no file named \"backup_manifest\": it is none, or one that was not completed";
                return Err(damaged(backup, reason));
            }
            Err(error) => return Err(Error::io("read", &path, error)),
        };
        let (_, payload) =
            FORMAT.open(&bytes).map_err(|error| damaged(backup, &error.to_string()))?;
        let backup_manifest =
            Self::decode(payload).map_err(|error| damaged(backup, &error.to_string()))?;
        let piece_count = backup_manifest.block_count.div_ceil(u64::from(PIECE_BLOCKS));
        if backup_manifest.pieces.len() as u64 != piece_count {
            return Err(damaged(
                backup,
                "its backup manifest has too few or too many checksums of pages",
            ));
        }
        Ok(backup_manifest)
    }

    /// Writes it, which makes the folder a backup.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn write(&self, backup: &Path) -> Result<()> {
        let (new, path) = (backup.join("backup_manifest.new"), backup.join(BACKUP_MANIFEST));
        files::write_durably(&new, &FORMAT.seal(&self.encode_to_vec()))
            .map_err(|error| Error::io("write", &new, error))?;
        sync_folder(backup)?;
        files::rename(&new, &path).map_err(|error| Error::io("rename", &new, error))?;
        sync_folder(backup)
    }

    /// Writes a file of the backup, durably but for its name.
    pub(super) fn add_file(&mut self, backup: &Path, name: &str, bytes: &[u8]) -> Result<()> {
        let path = backup.join(name);
        if let Some(folder) = path.parent().filter(|folder| *folder != backup) {
            make_folder(folder)?;
        }
        files::write_durably(&path, bytes).map_err(|error| Error::io("write", &path, error))?;
        path.parent().map_or(Ok(()), sync_folder)?;
        let (bytes, checksum) = (bytes.len() as u64, crc32c::crc32c(bytes));
        self.files.push(FileEntry { name: name.to_owned(), bytes, checksum });
        Ok(())
    }

    /// Reads a file, if the backup has it.
    ///
    /// # Errors
    /// [`StorageError::DamagedBackup`] where it is not what was written; [`Error::Io`].
    pub(super) fn read_file(&self, backup: &Path, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(entry) = self.files.iter().find(|entry| entry.name == name) else {
            return Ok(None);
        };
        let path = backup.join(name);
        let wrong = |reason: &str| Err(damaged(backup, &format!("its file \"{name}\" {reason}")));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return wrong("is missing"),
            Err(error) => return Err(Error::io("open", &path, error)),
        };
        let mut bytes = Vec::new();
        file.take(entry.bytes.min(FILE_BYTES_MAX).saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| Error::io("read", &path, error))?;
        if bytes.len() as u64 != entry.bytes {
            return wrong("does not have the length that the backup manifest says");
        }
        if crc32c::crc32c(&bytes) != entry.checksum {
            return wrong("fails its checksum");
        }
        Ok(Some(bytes))
    }

    /// The manifest of the catalog, under its name of today or that of earlier builds.
    ///
    /// # Errors
    /// As [`Self::read_file`]; [`StorageError::DamagedBackup`] where it has none.
    pub(super) fn catalog(&self, backup: &Path) -> Result<Vec<u8>> {
        for name in ["manifest", "root"] {
            if let Some(bytes) = self.read_file(backup, &format!("{CATALOG}/{name}"))? {
                return Ok(bytes);
            }
        }
        Err(damaged(backup, "its backup manifest names no catalog"))
    }

    /// The catalog.
    ///
    /// # Errors
    /// [`StorageError::DamagedBackup`], and those of reading a manifest.
    pub(super) fn state(&self, backup: &Path) -> Result<CatalogState> {
        self.catalog(backup)?;
        let state = manifest::read(&backup.join(CATALOG))?;
        let ends = state.extents(DeviceId::EMBEDDED).into_iter().map(|extent| extent.end().0);
        if ends.max().unwrap_or(0) > self.block_count {
            return Err(damaged(backup, "its catalog names pages that it does not have"));
        }
        Ok(state)
    }

    /// What it says, for people.
    pub(super) fn summary(&self) -> BackupSummary {
        BackupSummary {
            commit: self.commit,
            made_at_us: self.made_at_us,
            table_count: self.table_count,
            page_bytes: self.block_count.saturating_mul(BLOCK_SIZE as u64),
        }
    }
}

/// The pages of a backup, piece by piece.
#[derive(Debug)]
pub(super) struct Pieces {
    file: File,
}

impl Pieces {
    /// # Errors
    /// [`StorageError::DamagedBackup`], [`Error::Io`].
    pub(super) fn open(backup: &Path) -> Result<Self> {
        let path = backup.join(PAGES);
        match File::open(&path) {
            Ok(file) => Ok(Self { file }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(damaged(backup, "its file \"pages\" is missing"))
            }
            Err(error) => Err(Error::io("open", &path, error)),
        }
    }

    /// Piece `index`, verified.
    ///
    /// # Errors
    /// [`StorageError::DamagedBackup`], [`Error::Io`].
    pub(super) fn read(
        &self,
        backup: &Path,
        backup_manifest: &BackupManifest,
        index: usize,
    ) -> Result<Vec<u8>> {
        let first = index as u64 * u64::from(PIECE_BLOCKS);
        let blocks = backup_manifest.block_count.saturating_sub(first).min(u64::from(PIECE_BLOCKS));
        let mut bytes = vec![0; usize::try_from(blocks).unwrap_or(0) * BLOCK_SIZE];
        let place = first.saturating_mul(BLOCK_SIZE as u64);
        match self.file.read_exact_at(&mut bytes, place) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(damaged(backup, "its file \"pages\" is cut short"));
            }
            Err(error) => return Err(Error::io("read", &backup.join(PAGES), error)),
        }
        if backup_manifest.pieces.get(index) != Some(&crc32c::crc32c(&bytes)) {
            let reason = format!("its file \"pages\" fails its checksum at byte {place}");
            return Err(damaged(backup, &reason));
        }
        Ok(bytes)
    }
}

/// Verifies every byte that the manifest of the backup in `backup` covers.
///
/// # Errors
/// [`StorageError::DamagedBackup`] with the first thing that does not hold; [`Error::Io`].
pub async fn check_backup(backup: &Path) -> Result<BackupSummary> {
    let backup = backup.to_owned();
    let check = move || {
        let backup_manifest = BackupManifest::read(&backup)?;
        let names: BTreeSet<&str> = backup_manifest.files.iter().map(|file| &*file.name).collect();
        names.iter().try_for_each(|name| backup_manifest.read_file(&backup, name).map(drop))?;
        backup_manifest.state(&backup)?;
        let pieces = Pieces::open(&backup)?;
        for index in 0..backup_manifest.pieces.len() {
            pieces.read(&backup, &backup_manifest, index)?;
        }
        Ok(backup_manifest.summary())
    };
    joined(blocking(check).await)?
}

/// A backup that is not what was written.
pub(super) fn damaged(backup: &Path, reason: &str) -> Error {
    let (path, reason) = (backup.to_owned(), reason.to_owned());
    StorageError::DamagedBackup { path, reason }.into()
}
