//! Wakes the other side: an eventfd, a counter of the system that becomes readable when it is rung.
//!
//! A side rings only when the ring says that the other one sleeps, so two busy sides make no system call. A needless
//! ring is harmless: the woken side finds nothing and sleeps again.

#![expect(
    unsafe_code,
    reason = "the counter is made by a call that the standard library does not have"
)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A bell: one side waits until its descriptor is readable, the other rings.
#[derive(Debug)]
pub struct Doorbell(File);

impl Doorbell {
    /// A new bell.
    ///
    /// # Errors
    /// The system's error, for example that too many files are open.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call touches no memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above made it, and nobody else has it.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// The bell that a peer made. It is set to non-blocking, whatever the peer made.
    ///
    /// # Errors
    /// The system's error.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is open; the call touches no memory.
        let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) };
        if flags < 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = flags | libc::O_NONBLOCK;
        // SAFETY: the descriptor is open; the call touches no memory.
        if unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFL, flags) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(File::from(descriptor)))
    }

    /// The same bell, once more.
    ///
    /// # Errors
    /// The system's error, for example that too many files are open.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Wakes the waiter.
    pub fn ring(&self) {
        // Fails if the counter is full: then it was rung already.
        drop((&self.0).write(&1_u64.to_le_bytes()));
    }

    /// Waits until it is rung, or for `milliseconds`; returns whether it was rung, and clears it.
    pub fn wait(&self, milliseconds: Option<u32>) -> bool {
        let limit = milliseconds.map_or(-1, |limit| libc::c_int::try_from(limit).unwrap_or(-1));
        let mut asked = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which lives on; the descriptor is open. A signal is as nothing that was rung.
        unsafe { libc::poll(&raw mut asked, 1, limit) };
        self.clear()
    }

    /// Clears it; returns whether it was rung.
    pub fn clear(&self) -> bool {
        (&self.0).read(&mut [0; 8]).is_ok_and(|count| count == 8)
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
