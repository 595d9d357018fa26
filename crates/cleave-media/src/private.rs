//! Access rights: keeps files with rows and secrets from other users of the machine.
//!
//! Files and folders are created for their owner alone, whatever the umask says ([`crate::files`]). Existing ones are
//! made private when they are opened ([`make_private`]). A secret that others may read is refused, because it may be
//! known by now ([`read_secret`]).
//!
//! Source: PostgreSQL's `checkDataDir` and `check_ssl_key_file_permissions`.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The permission bits of users other than the owner.
const OTHERS: u32 = 0o077;

/// Removes the rights of others from the folder or file at `path`, which must belong to this process's user. True if
/// others had some.
///
/// A device belongs to the system and is left as it is.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if it belongs to another user; the operating system's error.
pub fn make_private(path: &Path) -> io::Result<bool> {
    let found = fs::metadata(path)?;
    if !found.is_dir() && !found.is_file() {
        return Ok(false);
    }
    if found.uid() != user() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "it has wrong ownership: it is user {}'s, and must be opened by the user that owns it, not by user {}",
                found.uid(),
                user()
            ),
        ));
    }
    take_from_others(&found, |permissions| fs::set_permissions(path, permissions))
}

/// The same for an open file that belongs to this process's user.
pub(crate) fn make_file_private(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    match found.is_file() {
        true => take_from_others(&found, |permissions| file.set_permissions(permissions)).map(drop),
        false => Ok(()),
    }
}

/// Makes all files, folders and sockets that this process creates from now on private to its user.
pub fn keep_to_oneself() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(OTHERS));
}

/// The same for a folder and all that lies in it. True if others had rights on the folder; if they had none, its
/// contents are not examined.
///
/// # Errors
/// As [`make_private`].
pub fn make_tree_private(folder: &Path) -> io::Result<bool> {
    if !make_private(folder)? {
        return Ok(false);
    }
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() || kind.is_file() {
                make_private(&entry.path())?;
            }
            if kind.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(true)
}

/// Reads a secret of text: a token, or a private key.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if others may read or replace it; the operating system's error.
pub fn read_secret(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    // A path that is no regular file is, for example, a pipe made by a shell.
    if found.is_file() {
        check_secret(&found, user())?;
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn check_secret(found: &Metadata, user: u32) -> io::Result<()> {
    let refused = |message: &str| io::Error::new(io::ErrorKind::PermissionDenied, message);
    let mode = found.mode();
    if found.uid() != user && found.uid() != 0 {
        return Err(refused("it must be owned by the user that reads it, or by root"));
    }
    let too_much = if found.uid() == user { OTHERS } else { OTHERS & !0o040 };
    if mode & too_much != 0 {
        return Err(refused(
            "it has group or world access: permissions must be u=rw (0600) or less if it is owned by the user that \
                reads it, or \
             u=rw,g=r (0640) or less if owned by root",
        ));
    }
    Ok(())
}

fn take_from_others(
    found: &Metadata,
    set: impl FnOnce(Permissions) -> io::Result<()>,
) -> io::Result<bool> {
    let mode = found.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(false);
    }
    set(Permissions::from_mode(mode & 0o700))?;
    Ok(true)
}

/// The user that this process acts as.
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn file(folder: &Path, name: &str, mode: u32) -> std::path::PathBuf {
        let path = folder.join(name);
        fs::write(&path, "0123456789abcdef").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn others_lose_their_rights_on_a_folder_and_all_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("log");
        fs::create_dir(&below).unwrap();
        let (one, two) = (file(folder.path(), "root", 0o644), file(&below, "0", 0o660));
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(!make_tree_private(folder.path()).unwrap(), "nobody else comes in");
        assert_eq!(mode(&one), 0o644);
        for path in [folder.path(), &below] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        assert!(make_tree_private(folder.path()).unwrap());
        assert_eq!([folder.path(), &below].map(mode), [0o700; 2]);
        assert_eq!([&one, &two].map(|path| mode(path)), [0o600; 2]);
        assert!(!make_private(&one).unwrap());
    }

    #[test]
    fn secrets_that_others_may_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for allowed in [0o600, 0o400] {
            let path = file(folder.path(), "token", allowed);
            assert_eq!(read_secret(&path).unwrap(), "0123456789abcdef");
            fs::remove_file(path).unwrap();
        }
        for (other, user) in [(0o640, 0), (0o604, 0), (0o610, 0), (0o644, 0), (0o600, 1)] {
            let path = file(folder.path(), "token", other);
            let found = fs::metadata(&path).unwrap();
            let error = check_secret(&found, found.uid() + user);
            // A secret of root's may be readable by a group, and by a user who is not its owner.
            match (found.uid(), user) {
                (0, 1) => error.unwrap(),
                _ => assert_eq!(error.unwrap_err().kind(), io::ErrorKind::PermissionDenied),
            }
            if user == 0 {
                assert!(read_secret(&path).unwrap_err().to_string().contains("0600"));
            }
        }
    }
}
