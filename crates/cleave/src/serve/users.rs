//! Who may connect: the file of users, each with what a server needs to check a password and not to know it.
//!
//! ```text
//!  ada:SCRAM-SHA-256$4096:<salt>$<stored key>:<server key>        one line a user, base64 between the signs
//! ```
//!
//! Invariant: the file never holds a password, and only its owner may read it: one that others may read is refused.
//!
//! Source: RFC 5802, section 3; PostgreSQL's `pg_authid.rolpassword`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cleave_host::password::{PasswordError, Verifier};

/// Name of the file in a database's folder.
pub(crate) const FILE: &str = "users";

/// Longest name of a user, as PostgreSQL has it.
const NAME_BYTES_MAX: usize = 63;

/// A file of users that cannot be used: see what it names.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    /// It cannot be read or written.
    #[error("cannot {action} the users in {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others than its owner may read it.
    #[error("{} may be read by others than its owner: chmod 600 it", .0.display())]
    Readable(PathBuf),
    /// A line that is none of a user's.
    #[error("{}, line {line}: expected NAME:SCRAM-SHA-256$…, as `cleave user add` writes it", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
    /// A name that a user cannot have.
    #[error(
        "a user's name has 1 to {NAME_BYTES_MAX} bytes and no colon, slash, blank or control character"
    )]
    Name,
    /// A password that cannot be used.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// A user that there is not.
    #[error("there is no user \"{0}\"")]
    Unknown(String),
}

/// The users of a server, by name.
#[derive(Debug, Default)]
pub(crate) struct Users {
    by_name: BTreeMap<String, Verifier>,
}

impl Users {
    /// Reads the file at `path`; one that is not there has no users.
    pub(crate) fn read(path: &Path) -> Result<Self, UsersError> {
        let failed = |source| UsersError::File { action: "read", path: path.to_owned(), source };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(failed(error)),
        };
        let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(UsersError::Readable(path.to_owned()));
        }
        let mut by_name = BTreeMap::new();
        for (line, number) in text.lines().zip(1..) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let user = line.split_once(':').and_then(|(name, verifier)| {
                check_name(name).ok()?;
                Some((name.to_owned(), Verifier::read(verifier.trim())?))
            });
            let (name, verifier) =
                user.ok_or_else(|| UsersError::Line { path: path.to_owned(), line: number })?;
            by_name.insert(name, verifier);
        }
        Ok(Self { by_name })
    }

    /// Writes them to `path`, whole or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<(), UsersError> {
        let mut text = String::new();
        for (name, verifier) in &self.by_name {
            // A string takes all that is written to it.
            let _ = writeln!(text, "{name}:{}", verifier.text());
        }
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let write = || {
            let mut options = std::fs::OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&part)?;
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&part, path)?;
            // Until then a loss of power may bring a user back who was removed.
            cleave_media::files::sync_parent(path)
        };
        write().map_err(|source| UsersError::File {
            action: "write",
            path: path.to_owned(),
            source,
        })
    }

    /// Gives user `name` this password. True: the user is new.
    pub(crate) fn set(&mut self, name: &str, password: &str) -> Result<bool, UsersError> {
        check_name(name)?;
        Ok(self.by_name.insert(name.to_owned(), Verifier::new(password)?).is_none())
    }

    /// Takes user `name` away.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), UsersError> {
        let removed = self.by_name.remove(name);
        removed.map(drop).ok_or_else(|| UsersError::Unknown(name.to_owned()))
    }

    /// What is kept of the password of `name`.
    pub(crate) fn verifier(&self, name: &str) -> Option<&Verifier> {
        self.by_name.get(name)
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
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
        assert!(users.is_empty());
        assert!(users.set("ada", "pencil").unwrap());
        assert!(!users.set("ada", "crayon").unwrap());
        users.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("crayon"), "{text}");
        let back = Users::read(&path).unwrap();
        assert_eq!(back.verifier("ada"), users.verifier("ada"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Users::read(&path), Err(UsersError::Readable(_))));
        users.remove("ada").unwrap();
        assert!(users.remove("ada").is_err());
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
