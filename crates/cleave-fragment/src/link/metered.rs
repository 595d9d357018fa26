//! A byte stream that counts the bytes crossing it and can limit their rate.
//!
//! It wraps the socket directly, below TLS, so that it counts what is on the wire.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::link::Traffic;
use super::token_bucket::{RateCap, TokenBucket};

/// Bytes that pass at once on a rate-limited stream, so that the rate is even.
const CAPPED_PIECE_BYTES: usize = 64 << 10;

/// Totals of one or several streams.
#[derive(Debug, Default)]
pub struct ByteCounters {
    /// Bytes sent.
    pub sent: AtomicU64,
    /// Bytes received.
    pub received: AtomicU64,
}

impl ByteCounters {
    /// The totals, with those of `commands`.
    pub(crate) fn traffic(&self, commands: &AtomicU64) -> Traffic {
        Traffic {
            sent_bytes: self.sent.load(Ordering::Relaxed),
            received_bytes: self.received.load(Ordering::Relaxed),
            commands: commands.load(Ordering::Relaxed),
        }
    }
}

/// `S` with its traffic counted and limited.
#[derive(Debug)]
pub struct Metered<S> {
    inner: S,
    counters: Arc<ByteCounters>,
    cap: Option<Arc<RateCap>>,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> Metered<S> {
    /// `inner`, counted in `counters` and limited to `cap`.
    pub fn new(inner: S, counters: Arc<ByteCounters>, cap: Option<Arc<RateCap>>) -> Self {
        Self { inner, counters, cap, reading: None, writing: None }
    }
}

/// Ready once the pause for the last bytes is over.
fn poll_pause(pause: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>) -> Poll<()> {
    if let Some(sleep) = pause {
        std::task::ready!(sleep.as_mut().poll(context));
        *pause = None;
    }
    Poll::Ready(())
}

fn pause_for(bucket: &TokenBucket, bytes: usize) -> Option<Pin<Box<Sleep>>> {
    let time = bucket.reserve(bytes as u64);
    (time > Duration::ZERO).then(|| Box::pin(tokio::time::sleep(time)))
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        std::task::ready!(poll_pause(&mut this.reading, context));
        let inner = Pin::new(&mut this.inner);
        let count = if let Some(cap) = &this.cap {
            let piece = buffer.remaining().min(CAPPED_PIECE_BYTES);
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(piece));
            std::task::ready!(inner.poll_read(context, &mut part))?;
            let count = part.filled().len();
            buffer.advance(count);
            this.reading = pause_for(cap.receiving(), count);
            count
        } else {
            let before = buffer.filled().len();
            std::task::ready!(inner.poll_read(context, buffer))?;
            buffer.filled().len() - before
        };
        this.counters.received.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        std::task::ready!(poll_pause(&mut this.writing, context));
        let piece = match &this.cap {
            Some(_) => bytes.get(..CAPPED_PIECE_BYTES).unwrap_or(bytes),
            None => bytes,
        };
        let count = std::task::ready!(Pin::new(&mut this.inner).poll_write(context, piece))?;
        if let Some(cap) = &this.cap {
            this.writing = pause_for(cap.sending(), count);
        }
        this.counters.sent.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Written bytes count as crossed only when their time is over.
        std::task::ready!(poll_pause(&mut this.writing, context));
        Pin::new(&mut this.inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}
