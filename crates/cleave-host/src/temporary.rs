//! Folders of databases that are called `:memory:`, which go with the process that made them.
//!
//! ```text
//!  TMPDIR/cleave-XXXXXX/owner     the folder's own name; locked while the process lives
//!                      /memory    the database
//! ```
//! A killed process leaves its folder behind. The next one of the same user that makes such a folder removes it.
//!
//! Invariants: nothing else is ever removed. What is removed is a folder of this user that nobody else may enter, that
//! has such a file with its own name in it, as neither another folder nor a copy has, and of which nobody holds the
//! lock of that file or of the database. The locks are taken before and held meanwhile. A file without the name yet
//! belongs to a process that is just making it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

/// How the names of such folders begin.
const PREFIX: &str = "cleave-";
/// The file that says whose a folder is.
const OWNER: &str = "owner";
/// The folder of the database.
const DATABASE: &str = "memory";
/// The file that a process locks that has a database open.
const DATABASE_LOCK: &str = "lock";
/// A longer file is no [`OWNER`].
const NAME_BYTES_MAX: u64 = 255;

/// A folder for a database, which goes when this is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    database: PathBuf,
    /// Removed before its owner's lock is free.
    folder: TempDir,
    _owner: File,
}

/// The locks of a folder whose process is gone.
struct Seized {
    _owner: File,
    _database: Option<File>,
}

impl TemporaryFolder {
    /// A new one. The first of a process removes those that killed processes have left.
    pub(crate) fn new() -> io::Result<Self> {
        static HAS_LOOKED: AtomicBool = AtomicBool::new(false);
        let made = Self::new_in(&std::env::temp_dir())?;
        if !HAS_LOOKED.swap(true, Ordering::Relaxed) {
            made.remove_orphans();
        }
        Ok(made)
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(PREFIX).permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir_in(parent)?;
        let owner = folder.path().join(OWNER);
        let mut owner = File::options().write(true).create_new(true).mode(0o600).open(owner)?;
        owner.lock()?;
        owner.write_all(name_of(folder.path()))?;
        let database = folder.path().join(DATABASE);
        DirBuilder::new().mode(0o700).create(&database)?;
        Ok(Self { database, folder, _owner: owner })
    }

    /// The folder of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.database
    }

    /// Removes folders beside this one whose processes are gone. What cannot be removed stays.
    fn remove_orphans(&self) {
        let own = self.folder.path();
        let Ok(user) = fs::symlink_metadata(own).map(|found| found.uid()) else { return };
        let Some(Ok(entries)) = own.parent().map(fs::read_dir) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            if name_of(&path).starts_with(PREFIX.as_bytes())
                && let Some(seized) = Seized::of(&path, user)
            {
                drop(fs::remove_dir_all(&path));
                drop(seized);
            }
        }
    }
}

impl Seized {
    /// The locks of the folder at `path`; None: it is none of `user` that may be removed.
    fn of(path: &Path, user: u32) -> Option<Self> {
        let is_private = |found: &Metadata| found.uid() == user && found.mode() & 0o077 == 0;
        fs::symlink_metadata(path).ok().filter(|found| found.is_dir() && is_private(found))?;
        let owner = locked(&path.join(OWNER))?;
        let mut name = Vec::new();
        (&owner).take(NAME_BYTES_MAX).read_to_end(&mut name).ok()?;
        if name != name_of(path) {
            return None;
        }
        let lock = path.join(DATABASE).join(DATABASE_LOCK);
        let database = match fs::symlink_metadata(&lock) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            _ => Some(locked(&lock)?),
        };
        Some(Self { _owner: owner, _database: database })
    }
}

/// The file at `path`, if nobody else has locked it.
fn locked(path: &Path) -> Option<File> {
    fs::symlink_metadata(path).ok().filter(Metadata::is_file)?;
    let file = File::open(path).ok()?;
    file.try_lock().ok()?;
    Some(file)
}

fn name_of(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_else(|| OsStr::new("")).as_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as a killed process leaves it: nobody has its lock.
    fn orphan(parent: &Path) -> PathBuf {
        let TemporaryFolder { folder, .. } = TemporaryFolder::new_in(parent).unwrap();
        folder.keep()
    }

    #[test]
    fn only_folders_of_processes_that_are_gone_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let living = TemporaryFolder::new_in(place.path()).unwrap();
        let gone = [orphan(place.path()), orphan(place.path())];
        // A lock that was never held, as of a process that was killed before it had opened its database.
        File::create(gone[0].join(DATABASE).join(DATABASE_LOCK)).unwrap();
        // Those that look similar, each in one way.
        let copied = place.path().join("cleave-copied");
        fs::rename(orphan(place.path()), &copied).unwrap();
        let opened = orphan(place.path());
        let lock = File::create(opened.join(DATABASE).join(DATABASE_LOCK)).unwrap();
        lock.lock().unwrap();
        let shared = orphan(place.path());
        fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();
        let begun = orphan(place.path());
        File::create(begun.join(OWNER)).unwrap();
        let films = place.path().join("cleave-films");
        fs::create_dir(&films).unwrap();
        let linked = place.path().join("cleave-linked");
        std::os::unix::fs::symlink(&gone[1], &linked).unwrap();

        TemporaryFolder::new_in(place.path()).unwrap().remove_orphans();
        assert!(gone.iter().all(|path| !path.exists()), "{gone:?}");
        for left in [living.path(), &copied, &opened, &shared, &begun, &films] {
            assert!(left.exists(), "{left:?}");
        }
        assert!(linked.is_symlink());
    }
}
