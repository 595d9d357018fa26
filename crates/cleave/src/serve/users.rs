//! The users file: who may connect, with the data that checks a password without revealing it.
//!
//! ```text
//!  ada:SCRAM-SHA-256$4096:<salt>$<stored key>:<server key>:superuser     one line a user, base64 between the signs
//!  bob:SCRAM-SHA-256$4096:<salt>$<stored key>:<server key>               no superuser: the role bob, if there is one
//! ```
//!
//! A superuser of the file is one whatever roles exist, so no statement makes or unmakes one. Lines without the last
//! field, as earlier versions wrote them, are users who are not superusers.
//!
//! Invariants: the file never holds a password, and only its owner may read it: a file that others may read is refused.
//! If the file exists, passwords are required, even if it is empty.
//!
//! Source: RFC 5802, section 3; PostgreSQL's `pg_authid.rolpassword`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cleave_host::password::{PasswordError, Verifier};
use cleave_media::files;

/// Name of the file in a database's folder.
pub(crate) const FILE: &str = "users";

/// Longest user name, as in PostgreSQL.
const NAME_BYTES_MAX: usize = 63;
/// The mark of a superuser, after the keys.
const SUPERUSER: &str = ":superuser";

/// An unusable users file: correct the named file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    /// It cannot be read or written.
    #[error("cannot {action} the users in {}: {source}", path.display())]
    File {
        /// The failed action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Other users may read it.
    #[error("{} may be read by others than its owner: chmod 600 it", .0.display())]
    Readable(PathBuf),
    /// A malformed line.
    #[error("{}, line {line}: expected NAME:SCRAM-SHA-256$…, as `cleave user add` writes it", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
    /// An invalid user name.
    #[error(
        "a user's name has 1 to {NAME_BYTES_MAX} bytes and no colon, slash, blank or control character"
    )]
    Name,
    /// An unusable password.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// A user that does not exist.
    #[error("there is no user \"{0}\"")]
    Unknown(String),
}

/// The users of a server, by name.
#[derive(Debug, Default)]
pub(crate) struct Users {
    by_name: BTreeMap<String, User>,
    /// Whether the file exists.
    is_there: bool,
}

/// A user in the file.
#[derive(Debug)]
pub(crate) struct User {
    /// The verifier of the password.
    pub(crate) verifier: Verifier,
    /// Whether it is a superuser.
    pub(crate) is_superuser: bool,
}

impl Users {
    /// Reads the file at `path`; a missing file has no users.
    pub(crate) fn read(path: &Path) -> Result<Self, UsersError> {
        let failed = |source| UsersError::File { action: "read", path: path.to_owned(), source };
        let mut file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(failed(error)),
        };
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(UsersError::Readable(path.to_owned()));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let mut by_name = BTreeMap::new();
        for (line, number) in text.lines().zip(1..) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let user = line.split_once(':').and_then(|(name, rest)| {
                check_name(name).ok()?;
                let rest = rest.trim();
                let keys = rest.strip_suffix(SUPERUSER);
                let (keys, is_superuser) = (keys.unwrap_or(rest), keys.is_some());
                Some((name.to_owned(), User { verifier: Verifier::read(keys)?, is_superuser }))
            });
            let (name, user) =
                user.ok_or_else(|| UsersError::Line { path: path.to_owned(), line: number })?;
            by_name.insert(name, user);
        }
        Ok(Self { by_name, is_there: true })
    }

    /// Writes them to `path`, atomically and durably.
    pub(crate) fn write(&self, path: &Path) -> Result<(), UsersError> {
        let mut text = String::new();
        for (name, user) in &self.by_name {
            let mark = if user.is_superuser { SUPERUSER } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}:{}{mark}", user.verifier.text());
        }
        let part = files::with_suffix(path, ".part");
        let write = || {
            // A leftover file could have a wider mode.
            match files::remove(&part) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            files::write_durably(&part, text.as_bytes())?;
            files::rename(&part, path)?;
            files::sync_parent(path)
        };
        write().map_err(|source| UsersError::File {
            action: "write",
            path: path.to_owned(),
            source,
        })
    }

    /// Sets the password of user `name`. Returns true if the user is new; the first one is a superuser.
    pub(crate) fn set(&mut self, name: &str, password: &str) -> Result<bool, UsersError> {
        check_name(name)?;
        let verifier = Verifier::new(password)?;
        let known = self.by_name.get(name).map(|user| user.is_superuser);
        let is_superuser = known.unwrap_or(self.by_name.is_empty());
        self.by_name.insert(name.to_owned(), User { verifier, is_superuser });
        Ok(known.is_none())
    }

    /// Sets whether user `name` is a superuser.
    pub(crate) fn set_superuser(
        &mut self,
        name: &str,
        is_superuser: bool,
    ) -> Result<(), UsersError> {
        let user = self.by_name.get_mut(name);
        user.ok_or_else(|| UsersError::Unknown(name.to_owned()))?.is_superuser = is_superuser;
        Ok(())
    }

    /// Removes user `name`.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), UsersError> {
        let removed = self.by_name.remove(name);
        removed.map(drop).ok_or_else(|| UsersError::Unknown(name.to_owned()))
    }

    /// The entry of user `name`.
    pub(crate) fn user(&self, name: &str) -> Option<&User> {
        self.by_name.get(name)
    }

    /// All users, with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &User)> {
        self.by_name.iter().map(|(name, user)| (name.as_str(), user))
    }

    /// Whether there are no users.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether the file exists, even without users.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there
    }
}

fn check_name(name: &str) -> Result<(), UsersError> {
    let is_odd = |letter: char| {
        letter.is_control() || letter.is_whitespace() || matches!(letter, ':' | '/' | '#')
    };
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(is_odd) {
        true => Ok(()),
        false => Err(UsersError::Name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_back_and_their_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let mut users = Users::read(&path).unwrap();
        assert!(users.is_empty() && !users.is_there());
        assert!(users.set("ada", "pencil").unwrap());
        assert!(!users.set("ada", "crayon").unwrap());
        assert!(users.set("bob", "pencil").unwrap());
        users.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("crayon"), "{text}");
        let back = Users::read(&path).unwrap();
        for name in ["ada", "bob"] {
            let (read, wrote) = (back.user(name).unwrap(), users.user(name).unwrap());
            assert_eq!(read.verifier, wrote.verifier);
            assert_eq!(read.is_superuser, name == "ada", "the first one is, unless told otherwise");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Users::read(&path), Err(UsersError::Readable(_))));
        users.remove("ada").unwrap();
        assert!(users.remove("ada").is_err());
        users.remove("bob").unwrap();
        users.write(&path).unwrap();
        let back = Users::read(&path).unwrap();
        assert!(back.is_empty() && back.is_there(), "it is still there, and private again");
    }

    #[test]
    fn lines_of_earlier_versions_are_those_of_users_who_are_no_superusers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let keys = Verifier::new("pencil").unwrap().text();
        files::write_durably(&path, format!("ada:{keys}\n").as_bytes()).unwrap();
        let mut users = Users::read(&path).unwrap();
        assert!(!users.user("ada").unwrap().is_superuser);
        users.set_superuser("ada", true).unwrap();
        assert!(users.set_superuser("bob", true).is_err());
        users.write(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("ada:{keys}:superuser\n"));
        assert!(Users::read(&path).unwrap().user("ada").unwrap().is_superuser);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::fs::write(&path, "\nada:secret\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = Users::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn odd_names_and_passwords_are_refused() {
        let mut users = Users::default();
        for name in ["", "a:b", "a b", "#a", &"x".repeat(64)] {
            assert!(users.set(name, "pencil").is_err(), "{name}");
        }
        for password in ["", "p\nq", "ä"] {
            assert!(users.set("ada", password).is_err(), "{password}");
        }
    }
}
