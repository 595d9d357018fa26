//! Backups: an open database in, a folder out that has all of one commit; and that folder in, a database out.
//!
//! ```text
//!  TARGET/backup_manifest   lengths and checksums of all else; written last, so a folder without it is no backup yet
//!  TARGET/catalog/manifest  a manifest with the directories of its segments, which lie one after the other on a device
//!  TARGET/pages             the pages of all devices, block by block, in that order
//!  TARGET/statistics/<id>   the results of ANALYZE; can be lost
//!  TARGET/users             the users of the server
//! ```
//!
//! 1. `take`: holds the newest catalog version, so that no page of it is used again, copies and verifies what it names,
//!    and writes the backup manifest. Writers go on. No log is copied: what is in no manifest yet is in pages of that
//!    version.
//! 2. [`check_backup`]: whether a backup is as it was written.
//! 3. [`restore()`]: a new database of another identity, with all tables on its own device; [`restore_until`]: with
//!    what an [archive](crate::archive) of the log has behind it.
//! 4. [`rebuild`]: tables of a lost device, from a restored database beside the open one.
//!
//! A commit that the log does not have row by row is [copied](change) into the archive in the same form.
//!
//! Invariants: the source is only read; nothing that was there before a backup or a restore is overwritten; an
//! interrupted one says so, and can be begun again in the same place. Source: rule 30; `docs/design/replica.md`.

mod backup_manifest;
pub mod change;
mod pages;
pub mod rebuild;
mod replay;
mod restore;
mod take;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cleave_media::files;

pub use backup_manifest::{BackupSummary, check_backup};
pub use replay::{PointInTime, Reached, Until};
pub use restore::{MARK, check_restored, embedded_entry, finish};
pub use restore::{restore, restore_counted, restore_until};
pub use take::take;

use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;

const BACKUP_MANIFEST: &str = "backup_manifest";
const CATALOG: &str = "catalog";
const PAGES: &str = "pages";
/// The folder of statistics in a backup.
pub(crate) const STATISTICS: &str = "statistics";
pub(crate) const USERS: &str = "users";

/// Makes `directory` a private folder, or takes one that has only files called `ours`.
///
/// # Errors
/// [`StorageError::BackupPlace`] for one that holds anything else; [`Error::Io`].
pub(crate) fn prepare_place(directory: &Path, ours: impl Fn(&str) -> bool) -> Result<()> {
    let refused = |reason: String| {
        Err(StorageError::BackupPlace { path: directory.to_owned(), reason }.into())
    };
    match fs::read_dir(directory) {
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(|error| Error::io("read", directory, error))?;
                let name = entry.file_name();
                if !name.to_str().is_some_and(&ours) {
                    return refused(format!(
                        "it holds \"{}\"; name a folder that is empty or not there yet",
                        name.display()
                    ));
                }
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            cleave_catalog::catalog::manifest::create_directory(directory)?;
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return refused("it is not a folder".to_owned());
        }
        Err(error) => return Err(Error::io("read", directory, error)),
    }
    only_for_owner(directory, 0o700)
}

/// Removes the access of other users to a folder with rows or password verifiers.
pub(crate) fn only_for_owner(path: &Path, mode: u32) -> Result<()> {
    let set = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set.map_err(|error| Error::io("set the permissions of", path, error))
}

/// Makes a folder in another one.
fn make_folder(path: &Path) -> Result<()> {
    files::create_directories(path).map_err(|error| Error::io("create", path, error))
}

/// Makes what was written below `path` durable by its names.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    files::sync_directory(path).map_err(|error| Error::io("sync", path, error))
}
