//! A file that takes the place of another when it is complete: exports, which may fail half-way.
//!
//! ```text
//!  create ─▶ write … ─▶ finish:  .cleave-PID-N.part  ─▶ (rename) FILE
//!                └────▶ drop:    .cleave-PID-N.part  is removed, FILE is as it was
//! ```
//!
//! 1. A regular file, or a name that is free, is written as a new file in the same folder. Symbolic links are followed;
//!    a file that is replaced keeps its access rights.
//! 2. Everything else is written in place: pipes, devices and the streams of a process (`/dev/stdout`), a file that has
//!    several names or another owner, one whose folder takes no new files, and one that a link names and that is not
//!    there yet.
//!
//! Invariants: until [`ReplacedFile::finish`] the old file is whole, also after a crash, which leaves the new one
//! beside it. Nothing is synced. A database's own files do not come from here ([`crate::files`]).

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Symbolic links that are followed, as by Linux.
const LINKS_MAX: usize = 40;

/// The number of the next new file of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file that is being written.
#[derive(Debug)]
pub struct ReplacedFile {
    file: File,
    /// None: it is written in place.
    replacement: Option<Replacement>,
}

/// A new file and the name that it gets. Dropping it removes the file.
#[derive(Debug)]
struct Replacement {
    new: PathBuf,
    path: PathBuf,
    is_done: bool,
}

impl ReplacedFile {
    /// A file that gets the name `path` once it is finished. If there is no such file yet, it gets the access rights
    /// `mode`, less those that the umask takes.
    ///
    /// # Errors
    /// The operating system's error, as that of creating or emptying the file itself.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        let old = match path.metadata() {
            Ok(old) if old.is_file() && old.nlink() == 1 => old,
            // The name of a link is taken, though it leads nowhere.
            Err(error)
                if error.kind() == ErrorKind::NotFound && is_name(path) && !path.is_symlink() =>
            {
                let (file, replacement) = beside(path, mode)?;
                return Ok(Self { file, replacement: Some(replacement) });
            }
            Ok(_) | Err(_) => return Self::in_place(path, mode),
        };
        // The system follows no links that another user has put into /tmp: one that was planted since is left to it.
        let is_old = |path: &PathBuf| {
            path.symlink_metadata()
                .is_ok_and(|found| (found.dev(), found.ino()) == (old.dev(), old.ino()))
        };
        let Some(path) = behind_links(path).filter(is_old) else {
            return Self::in_place(path, mode);
        };
        // A file that may not be written is not replaced either.
        drop(File::options().write(true).open(&path)?);
        let (file, replacement) = match beside(&path, mode) {
            Ok(made) => made,
            Err(error) => match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    return Self::in_place(&path, mode);
                }
                _ => return Err(error),
            },
        };
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            return Self::in_place(&path, mode);
        }
        file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        Ok(Self { file, replacement: Some(replacement) })
    }

    fn in_place(path: &Path, mode: u32) -> io::Result<Self> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(mode).open(path)?;
        Ok(Self { file, replacement: None })
    }

    /// The new file, until it has its name; None: it is written in place.
    pub fn part(&self) -> Option<&Path> {
        self.replacement.as_ref().map(|replacement| replacement.new.as_path())
    }

    /// Whether `path` has the name of such a new file.
    #[must_use]
    pub fn is_part(path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let numbers = name.strip_prefix(".cleave-").and_then(|name| name.strip_suffix(".part"));
        let numbers = numbers.and_then(|numbers| numbers.split_once('-'));
        numbers.is_some_and(|(process, number)| {
            process.parse::<u32>().is_ok() && number.parse::<u64>().is_ok()
        })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The operating system's error. The old file is then as it was, unless it is a mount point.
    pub fn finish(self) -> io::Result<()> {
        let Self { file, replacement } = self;
        drop(file);
        replacement.map_or(Ok(()), Replacement::take_place)
    }
}

impl Write for ReplacedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Replacement {
    fn take_place(mut self) -> io::Result<()> {
        match fs::rename(&self.new, &self.path) {
            Ok(()) => {
                self.is_done = true;
                Ok(())
            }
            // The file is a mount point, as containers have them: it keeps its place and gets the bytes.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                fs::copy(&self.new, &self.path).map(|_| ())
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_done {
            // It only takes up space.
            drop(fs::remove_file(&self.new));
        }
    }
}

/// A new file in the folder of `path`.
fn beside(path: &Path, mode: u32) -> io::Result<(File, Replacement)> {
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let new = path.with_file_name(format!(".cleave-{}-{number}.part", std::process::id()));
        match File::options().write(true).create_new(true).mode(mode).open(&new) {
            Ok(file) => {
                let replacement = Replacement { new, path: path.to_owned(), is_done: false };
                return Ok((file, replacement));
            }
            // Of an earlier process with this number, which was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a path ends with the name of a file.
fn is_name(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    path.file_name().is_some_and(|name| bytes.ends_with(name.as_bytes()))
}

/// The name at the end of the symbolic links of a file; None: it is one of a process's streams.
fn behind_links(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if ["/proc", "/dev/fd"].iter().any(|folder| path.starts_with(folder)) {
            return None;
        }
        let Ok(to) = fs::read_link(&path) else { return Some(path) };
        // An absolute one takes the place of the folder.
        path = path.parent()?.join(to);
    }
    None
}
