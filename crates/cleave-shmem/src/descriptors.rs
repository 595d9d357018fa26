//! Sends file descriptors over a Unix socket: the only way in which a process can share its memory with another one.

#![expect(unsafe_code, reason = "control messages are laid out by hand")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Descriptors that one message may carry.
const COUNT_MAX: usize = 8;

/// Room for a control message of [`COUNT_MAX`] descriptors, aligned as its header must be.
#[repr(C, align(16))]
struct Control([u8; 128]);

/// Sends `bytes` (at least one) together with `descriptors` (1 to 8).
///
/// # Errors
/// The system's error; [`io::ErrorKind::WouldBlock`] if the socket is non-blocking and has no room.
pub fn send_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    if descriptors.is_empty() || descriptors.len() > COUNT_MAX || bytes.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let size = u32::try_from(size_of_val(descriptors)).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = empty_message(&mut part, &mut control);
    // SAFETY: arithmetic on a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: `message` has room for one header.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: arithmetic on a number.
    let length = unsafe { libc::CMSG_LEN(size) };
    // SAFETY: `header` points into `control`, which has room for it, is aligned for it, and whose zeros are a header.
    let filled = unsafe { &mut *header };
    // Not as a whole: some C libraries have padding between the fields, with a name.
    filled.cmsg_len = length as _;
    filled.cmsg_level = libc::SOL_SOCKET;
    filled.cmsg_type = libc::SCM_RIGHTS;
    for (index, descriptor) in descriptors.iter().enumerate() {
        // SAFETY: the header is in `control`, and so is what follows it.
        let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
        // SAFETY: `control` has room for `COUNT_MAX` descriptors behind the header.
        let place = unsafe { data.add(index) };
        // SAFETY: as above; the place may not be aligned.
        unsafe { place.write_unaligned(descriptor.as_raw_fd()) };
    }
    // SAFETY: `message` points at `part` and `control`, which live on; the call only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives up to `bytes.len()` bytes, and the descriptors that came with them. An empty result is the end of the
/// stream.
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidData`] for more descriptors than a message may carry.
pub fn receive_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = empty_message(&mut part, &mut control);
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: `message` points at `part` and `control`, which live on and may be written.
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let descriptors = descriptors_of(&message);
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
    }
    Ok((received, descriptors))
}

/// Takes ownership of the descriptors that the system put into the control message: open ones, of this process alone.
fn descriptors_of(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the system filled the control message and set its length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: the walk stays in the control message; its headers are aligned.
    while let Some(header) = unsafe { next.as_ref() } {
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: arithmetic on a number.
            let header_bytes = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = number(header.cmsg_len).saturating_sub(header_bytes) / size_of::<RawFd>();
            // SAFETY: the header is in the control message, and so is what follows it.
            let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
            for index in 0..count {
                // SAFETY: the header's length covers `count` descriptors.
                let place = unsafe { data.add(index) };
                // SAFETY: as above; the place may not be aligned.
                let descriptor = unsafe { place.read_unaligned() };
                // SAFETY: the system opened it for this process.
                found.push(unsafe { OwnedFd::from_raw_fd(descriptor) });
            }
        }
        // SAFETY: `header` is one of the message's.
        next = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    found
}

/// A length, whose type differs between C libraries.
fn number(length: impl TryInto<usize>) -> usize {
    length.try_into().unwrap_or(0)
}

/// A message of `part`, with `control` as its control message, of no length yet.
fn empty_message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a structure of numbers and pointers, for which zeroes are a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control.0).cast();
    message
}

#[cfg(all(test, not(miri)))]
mod tests;
