//! A socket that blocks its thread as a stream whose futures are ready when they are first polled.
//!
//! Until the session is ready the socket is hurried ([`Hurried`]): one moment holds for all that is read and sent.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 16 << 10;

/// A socket that fails after a moment, unless its [`Haste`] has ended by then.
pub(crate) struct Hurried {
    socket: TcpStream,
    deadline: Instant,
    is_over: Arc<AtomicBool>,
}

/// Ends the hurry of a socket.
pub(crate) struct Haste {
    /// The same one.
    socket: TcpStream,
    is_over: Arc<AtomicBool>,
}

impl Hurried {
    pub(crate) fn until(deadline: Instant, socket: TcpStream) -> std::io::Result<(Self, Haste)> {
        let is_over = Arc::new(AtomicBool::new(false));
        let haste = Haste { socket: socket.try_clone()?, is_over: Arc::clone(&is_over) };
        Ok((Self { socket, deadline, is_over }, haste))
    }

    /// How long an operation that begins now may take; None: as long as it takes.
    fn left(&self) -> std::io::Result<Option<Duration>> {
        match self.is_over.load(Ordering::Relaxed) {
            true => Ok(None),
            false => left_until(self.deadline).map(Some),
        }
    }
}

impl Haste {
    pub(crate) fn end(self) -> std::io::Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        self.socket.set_read_timeout(None)?;
        self.socket.set_write_timeout(None)
    }
}

impl Read for Hurried {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if let Some(left) = self.left()? {
            self.socket.set_read_timeout(Some(left))?;
        }
        done(|| self.socket.read(buffer))
    }
}

impl Write for Hurried {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(left) = self.left()? {
            self.socket.set_write_timeout(Some(left))?;
        }
        done(|| self.socket.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush()
    }
}

/// The time up to `deadline`.
///
/// # Errors
/// [`ErrorKind::TimedOut`] if there is none.
pub(crate) fn left_until(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A stream whose every operation is done, or has failed, when it is first polled.
pub(crate) struct Blocking<S> {
    stream: S,
    /// What is read goes through it, since a reader's buffer is not initialized.
    piece: Box<[u8]>,
}

impl<S> Blocking<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, piece: vec![0; PIECE_BYTES].into_boxed_slice() }
    }
}

impl<S: Read + Unpin> AsyncRead for Blocking<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let Self { stream, piece } = self.get_mut();
        let length = buffer.remaining().min(piece.len());
        let piece = piece.get_mut(..length).unwrap_or_default();
        let count = done(|| stream.read(piece))?;
        buffer.put_slice(piece.get(..count).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: Write + Unpin> AsyncWrite for Blocking<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let stream = &mut self.get_mut().stream;
        Poll::Ready(done(|| stream.write(bytes)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let stream = &mut self.get_mut().stream;
        Poll::Ready(done(|| stream.flush()))
    }

    /// The stream ends when it is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}

/// An operation that no signal interrupts. One that took too long has timed out, which the system calls otherwise.
fn done<T>(mut operation: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match operation() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::TimedOut.into());
            }
            result => return result,
        }
    }
}
