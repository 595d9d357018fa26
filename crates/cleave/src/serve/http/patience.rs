//! A connection whose reader has to take something of an answer from time to time.
//!
//! 1. [`bound`] limits what the system holds of an answer that is not taken.
//! 2. [`Patient`] passes bytes on. Once nothing could be written for its limit, a write fails, and so the connection
//!    ends: the answer is dropped, and what is still computed for it.
//!
//! Invariants: a reader that takes bytes, however slowly, has the limit again with each part that the system has sent
//! to it. Waiting to read, and having nothing to write, are not limited here.
//!
//! Source: `docs/reference/server.md`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Longest time in which a reader takes nothing.
pub(super) const STALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of an answer that the system may hold.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Those of them that it has not sent. It takes more once half of them are: so much has a slow reader to take in
/// [`STALL_TIME_MAX`].
const UNSENT_BYTES_MAX: u32 = 32 << 10;

/// Limits the bytes that the system holds for the reader of `stream`.
pub(super) fn bound(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    // If the system refuses, it holds more, and a slow reader has less time for each byte.
    drop(socket.set_send_buffer_size(SEND_BYTES_MAX));
    drop(socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX));
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Patient<S> {
    stream: S,
    limit: Duration,
    /// Since a write waits for its reader.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    /// `stream`, of which a write waits for so long at most.
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, stalled: None }
    }

    fn judged(
        &mut self,
        context: &mut Context<'_>,
        wrote: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing");
        stalled.as_mut().poll(context).map(|()| Err(late()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.judged(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    //! A client that asks and never reads loses its connection, and the answer goes with it.

    use std::convert::Infallible;
    use std::sync::Arc;

    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use futures::stream;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::serve::http::answering;

    #[tokio::test]
    async fn an_answer_that_nobody_reads_ends() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let held = Arc::new(());
        let of_answer = Arc::clone(&held);
        let endless = move || {
            let of_answer = Arc::clone(&of_answer);
            let parts = stream::repeat_with(move || {
                assert!(Arc::strong_count(&of_answer) > 1, "it is held");
                Ok::<_, Infallible>(vec![b'.'; 4096])
            });
            std::future::ready(Body::from_stream(parts))
        };
        let router = Router::new().route("/", get(endless));
        let stream = Patient::new(ours, Duration::from_millis(20));
        theirs.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert!(answering(router, stream).await.is_err());
        assert_eq!(Arc::strong_count(&held), 1, "the answer is gone");
    }

    #[tokio::test]
    async fn whoever_reads_goes_on() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Patient::new(ours, Duration::from_secs(600));
        let sent = ours.write_all(&[7; 1000]);
        let taken = async {
            let mut bytes = [0; 1000];
            tokio::io::AsyncReadExt::read_exact(&mut theirs, &mut bytes).await.map(|_| bytes)
        };
        let (sent, taken) = tokio::join!(sent, taken);
        assert!(sent.is_ok() && taken.unwrap() == [7; 1000]);
        assert!(ours.stalled.is_none(), "each part had its own time");
    }
}
