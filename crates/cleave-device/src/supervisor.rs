//! Tells the supervisor that started this process how it is: systemd's protocol for units of `Type=notify`.
//!
//! A datagram to the socket that `NOTIFY_SOCKET` names says it, as in `READY=1`. Without that variable nobody asks, and
//! nothing is done. What cannot be sent is lost: the supervisor decides what it makes of silence.
//!
//! Source: systemd's manual, sd_notify(3).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The process serves.
pub const READY: &str = "READY=1";
/// The process ends.
pub const STOPPING: &str = "STOPPING=1";

/// Tells the supervisor this `state`, if there is one.
pub fn tell(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        // Nobody else would know what to do about it.
        let _told = send(&socket, state);
    }
}

fn send(socket: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_as_one_datagram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), READY).unwrap();
        let mut told = [0; 64];
        let length = supervisor.recv(&mut told).unwrap();
        assert_eq!(&told[..length], b"READY=1");
        drop(supervisor);
        assert!(send(path.as_os_str(), STOPPING).is_err());
    }
}
