//! The file `server.address` in a database's folder: where the process listens that has the database open.
//!
//! Four lines: the address, the name of the database, the process, and its program. A server's address is that of TCP.
//! A shell's is the path of a Unix socket: it answers other processes of its user, which may only read. They read the
//! file, since no second process can open the database.
//!
//! Invariant: a process holds a lock on its file as long as it lives. So a file without a lock is what a killed process
//! left behind, whoever has the database open by now, and nobody connects to what may listen there instead.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Its name.
const FILE: &str = "server.address";
/// A longer file is none of such a process.
const FILE_BYTES_MAX: u64 = 4096;

/// The file of a process that listens, which is removed when this is dropped.
#[derive(Debug)]
pub struct Announced {
    path: PathBuf,
    /// Locked.
    _file: File,
}

/// Where a process listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listens {
    /// A server, for its users.
    Tcp(SocketAddr),
    /// A shell, for processes of its user, which may only read.
    Unix(PathBuf),
}

/// A process that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where this machine reaches it.
    pub listens: Listens,
    /// The name of its database.
    pub database: String,
    /// Its number.
    pub process: u32,
    /// Its program, as in `cleave sql`.
    pub program: String,
}

impl Found {
    /// The process in messages, as in `process 4711 (cleave sql)`.
    #[must_use]
    pub fn who(&self) -> String {
        format!("process {} ({})", self.process, self.program)
    }

    /// Whether an error of this SQLSTATE says that it is a shell that ends: the database opens then, in a moment.
    #[must_use]
    pub fn is_ending(&self, sqlstate: &str) -> bool {
        matches!(self.listens, Listens::Unix(_))
            && ["08001", "08006", "57P01", "57P03"].contains(&sqlstate)
    }
}

/// Writes the file of this process, which runs `program` and has `folder` open.
///
/// # Errors
/// Those of the system; [`ErrorKind::InvalidInput`] for a path or name that has no place in a line.
pub fn announce(
    folder: &Path,
    listens: &Listens,
    database: &str,
    program: &str,
) -> Result<Announced> {
    let address = match listens {
        Listens::Tcp(address) => address.to_string(),
        Listens::Unix(path) => match path.to_str().filter(|_| path.is_absolute()) {
            Some(path) => path.to_owned(),
            None => return Err(Error::new(ErrorKind::InvalidInput, "a path that is no text")),
        },
    };
    if address.contains('\n') || database.contains('\n') {
        return Err(Error::new(ErrorKind::InvalidInput, "a path of several lines"));
    }
    let path = folder.join(FILE);
    let part = folder.join(format!("{FILE}.part"));
    // A new file each time: an old one may be looked at.
    drop(std::fs::remove_file(&part));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    write!(file, "{address}\n{database}\n{}\n{program}\n", std::process::id())?;
    std::fs::rename(&part, &path)?;
    Ok(Announced { path, _file: file })
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Without a lock it counts for nothing.
        drop(std::fs::remove_file(&self.path));
    }
}

/// The process that has the database in `folder` open and listens, if there is one.
#[must_use]
pub fn find(folder: &Path) -> Option<Found> {
    let mut file = File::open(folder.join(FILE)).ok()?;
    // Others' files could send a password's proof anywhere; root visits processes of all users.
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
    let listens = listens(lines.next()?)?;
    let database = lines.next()?.to_owned();
    let process = lines.next()?.parse().ok()?;
    // An earlier version, which was a server, did not say.
    let program = lines.next().unwrap_or("cleave serve").to_owned();
    Some(Found { listens, database, process, program })
}

fn listens(text: &str) -> Option<Listens> {
    if text.starts_with('/') {
        return Some(Listens::Unix(PathBuf::from(text)));
    }
    let mut address: SocketAddr = text.parse().ok()?;
    // It listens at all addresses.
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Some(Listens::Tcp(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_listens_is_found_while_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find(folder.path()), None);
        let everywhere = Listens::Tcp("0.0.0.0:5432".parse().unwrap());
        let announced = announce(folder.path(), &everywhere, "films", "cleave serve").unwrap();
        let found = find(folder.path()).unwrap();
        assert_eq!(found.listens, Listens::Tcp("127.0.0.1:5432".parse().unwrap()));
        assert_eq!(found.database, "films");
        assert_eq!(found.who(), format!("process {} (cleave serve)", std::process::id()));
        // As a killed process leaves it.
        let text = std::fs::read(folder.path().join(FILE)).unwrap();
        drop(announced);
        assert!(!folder.path().join(FILE).exists());
        std::fs::write(folder.path().join(FILE), text).unwrap();
        assert_eq!(find(folder.path()), None);
        let socket = Listens::Unix(folder.path().join("a b.socket"));
        let _announced = announce(folder.path(), &socket, "films", "cleave sql").unwrap();
        assert_eq!(find(folder.path()).unwrap().listens, socket);
        let lines = Listens::Unix(folder.path().join("a\nb"));
        assert!(announce(folder.path(), &lines, "films", "cleave sql").is_err());
        assert!(announce(folder.path(), &socket, "fi\nlms", "cleave sql").is_err());
    }
}
