//! What other users of the machine may not read: rows on files, and secrets.
//!
//! Files and folders are made for their owner alone, whatever the umask says ([`crate::files`]). What is there already
//! is made so when it is opened ([`make_private`]); a secret that others may read is refused, for they may have it by
//! now ([`read_secret`]).
//!
//! Source: PostgreSQL's `checkDataDir` and `check_ssl_key_file_permissions`.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The rights of others than the owner.
const OTHERS: u32 = 0o077;

/// Takes the rights of others from the folder or file at `path`, which must be this process's user's. True: others had
/// some.
///
/// A device, which belongs to the system, is left as it is.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] where it is another user's; what the operating system says.
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

/// The same of a file that is open, and ours.
pub(crate) fn make_file_private(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    match found.is_file() {
        true => take_from_others(&found, |permissions| file.set_permissions(permissions)).map(drop),
        false => Ok(()),
    }
}

/// Makes all files, folders and sockets that this process makes from now on its user's alone.
pub fn keep_to_oneself() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(OTHERS));
}

/// The same of a folder and all that lies in it. True: others had rights on the folder; where they had none, what lies
/// in it is not looked at.
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
/// [`io::ErrorKind::PermissionDenied`] where others may read it, or put another one in its place; what the operating
/// system says.
pub fn read_secret(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    // What is no file is a pipe that a shell made, say.
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
            // Root's may be read by a group, and by a user who is not its owner.
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
