//! A session that blocks its thread: for threads without a runtime, and for measurements, in which a wake-up by another
//! thread would count.
//!
//! ```text
//!  connect ─▶ Client over a Blocking stream ─▶ each future is ready when it is first polled ─▶ wait
//! ```
//! Invariants: nothing of such a session waits for a runtime, apart from its
//! [`CancelHandle`](crate::CancelHandle). Nothing is read while something is sent, so a server's refusal of a COPY is
//! seen after its last row.

use std::io::{ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::address::Address;
use crate::client::Client;
use crate::error::ClientError;
use crate::greeting::{self, Key};
use crate::transport;
use crate::wire::{Connection, Shared};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 16 << 10;

/// Connects to the server at `address`; [`wait`] gives what the session's futures yield.
///
/// # Errors
/// As [`Client::connect`].
pub fn connect(address: Address) -> Result<Client, ClientError> {
    let address = Arc::new(address.with_setting("application_name", "cleave"));
    let shared = Arc::new(Shared::default());
    let (connection, key) = wait(Box::pin(begun(&address, &shared)))?;
    Ok(Client::of_session(address, shared, connection, key))
}

async fn begun(address: &Address, shared: &Arc<Shared>) -> Result<(Connection, Key), ClientError> {
    let (stream, socket) = transport::open_blocking(address).await?;
    let (mut connection, key) = greeting::begin(stream, address, Arc::clone(shared)).await?;
    // From now on a statement takes as long as it takes.
    socket.set_read_timeout(None).map_err(|error| ClientError::Lost(error.to_string()))?;
    connection.set_blocking();
    Ok((connection, key))
}

/// What a future of a session of [`connect`] yields, for which this thread is blocked.
///
/// # Errors
/// Those of the future; [`ClientError::Usage`] for a future of another session.
pub fn wait<T>(future: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    future.now_or_never().unwrap_or_else(|| {
        let message = "only a session that blocks its thread is waited for so";
        Err(ClientError::Usage(message.to_owned()))
    })
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
