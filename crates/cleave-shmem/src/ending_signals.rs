//! The signals that ask a process to end, SIGTERM and SIGINT. They are blocked first, before there is another thread,
//! and then one thread waits for them. They share no memory, and are here for the calls that need `unsafe`.

#![expect(unsafe_code, reason = "signals are blocked and awaited by calls of the C library")]

use std::io;
use std::mem::MaybeUninit;

/// Blocks the signals in this thread and in those that it makes: they no longer end the process by themselves.
///
/// # Errors
/// The system's error.
pub fn block_ending_signals() -> io::Result<()> {
    let ending = ending();
    // SAFETY: the set is one, and lives on; the set before it is not asked for.
    outcome(unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ending, std::ptr::null_mut())
    })
}

/// Waits until one of the signals comes, which all threads block.
///
/// # Errors
/// The system's error.
pub fn wait_for_ending_signal() -> io::Result<()> {
    let (ending, mut come): (_, libc::c_int) = (ending(), 0);
    // SAFETY: the set is one; both live on.
    outcome(unsafe { libc::sigwait(&raw const ending, &raw mut come) })
}

fn outcome(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

fn ending() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call writes the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: it was written.
    let mut set = unsafe { set.assume_init() };
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the set is one. There are such signals, so that this does not fail.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}
