//! The file `server.address` in a database's folder: where the server listens that has the database open.
//!
//! Three lines: the address, the name of the database, the server's process. The shell reads it, since no second
//! process can open the database.
//!
//! Invariant: a server holds a lock on its file as long as it lives. So a file without a lock is what a killed server
//! left behind, whoever has the database open by now, and nobody connects to what may listen there instead.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Its name.
const FILE: &str = "server.address";
/// A longer file is none of a server.
const FILE_BYTES_MAX: u64 = 4096;

/// The file of a running server, which is removed when the server ends.
#[derive(Debug)]
pub(super) struct Announced {
    path: PathBuf,
    /// Locked.
    _file: File,
}

/// A running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where this machine reaches it.
    pub(crate) address: SocketAddr,
    /// The name of its database.
    pub(crate) database: String,
}

/// Writes the file of a server at `address` into `folder`, which it has open.
pub(super) fn announce(
    folder: &Path,
    address: SocketAddr,
    database: &str,
) -> std::io::Result<Announced> {
    let path = folder.join(FILE);
    let part = folder.join(format!("{FILE}.part"));
    // A new file each time: an old one may be looked at.
    drop(std::fs::remove_file(&part));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    write!(file, "{address}\n{database}\n{}\n", std::process::id())?;
    std::fs::rename(&part, &path)?;
    Ok(Announced { path, _file: file })
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Without a lock it counts for nothing.
        drop(std::fs::remove_file(&self.path));
    }
}

/// The server that has the database in `folder` open, if there is one.
pub(crate) fn find(folder: &Path) -> Option<Found> {
    let mut file = File::open(folder.join(FILE)).ok()?;
    // Others' files could send a password's proof anywhere; root visits servers of all users.
    let (owner, own) = (file.metadata().ok()?.uid(), rustix::process::geteuid());
    if owner != own.as_raw() && !own.is_root() {
        return None;
    }
    if flock(&file, FlockOperation::NonBlockingLockShared) != Err(rustix::io::Errno::WOULDBLOCK) {
        return None;
    }
    let mut text = String::new();
    (&mut file).take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let mut lines = text.lines();
    let mut address: SocketAddr = lines.next()?.parse().ok()?;
    let database = lines.next()?.to_owned();
    // It listens at all addresses.
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Some(Found { address, database })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_while_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find(folder.path()), None);
        let announced = announce(folder.path(), "0.0.0.0:5432".parse().unwrap(), "films").unwrap();
        let found = find(folder.path()).unwrap();
        assert_eq!(found.address.to_string(), "127.0.0.1:5432");
        assert_eq!(found.database, "films");
        // As a killed server leaves it.
        let text = std::fs::read(folder.path().join(FILE)).unwrap();
        drop(announced);
        assert!(!folder.path().join(FILE).exists());
        std::fs::write(folder.path().join(FILE), text).unwrap();
        assert_eq!(find(folder.path()), None);
    }
}
