//! Shared memory as a stream of bytes: two rings, their bells, and a Unix socket whose end tells that a side has died.
//!
//! ```text
//! offer    region bytes u64, with 5 descriptors: the region, then the bells by which
//!          the host is told that it may read │ it may write │ the device that it may read │ it may write
//! ```
//!
//! 1. The device makes region and bells and sends them over the socket ([`LocalStream::offer`]); the host maps
//!    what it got ([`LocalStream::accept`]). Nothing is sent over the socket after that.
//! 2. Both read and write their rings. A side that finds nothing to do looks a few more times, and then sleeps
//!    until its bell is rung.
//! 3. The socket ends when the other side closes the stream or dies, however it dies: what is still in the ring
//!    is read, then the stream is at its end.
//!
//! Invariant: whatever the other side writes into the region, this side reads bytes, an end, or an error. The bytes
//! have the same checksums as over TCP.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use cleave_shmem::{
    Consumer, Doorbell, Producer, Region, RegionError, RingError, RingPair, Side,
    receive_descriptors, send_descriptors,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::task::coop;

/// Bytes of each ring, the most that is under way. Larger rings leave the processor's cache.
const RING_BYTES: usize = 1 << 20;
/// Most bytes of a region that a host maps.
const REGION_BYTES_MAX: u64 = 256 << 20;
/// Polls of an empty ring before its reader sleeps: an answer under way then comes without a system call.
const LOOKS_BEFORE_SLEEP: u32 = 64;

/// A connection through shared memory. See the [module](self).
#[derive(Debug)]
pub struct LocalStream {
    producer: Producer,
    consumer: Consumer,
    /// Rung when there is something to read.
    may_read: AsyncFd<Doorbell>,
    /// Rung when there is room.
    may_write: AsyncFd<Doorbell>,
    /// Tells the other side that it may read.
    they_may_read: Doorbell,
    /// Tells the other side that it may write.
    they_may_write: Doorbell,
    lifeline: UnixStream,
    has_ended: bool,
    looks_left: u32,
}

/// Why the stream could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LocalStreamError {
    /// The socket or the system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// No memory, or memory that cannot be used.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Memory with another layout.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Not a device's offer.
    #[error("{0}")]
    Offer(&'static str),
}

/// The user on the other side of `socket`, if that is neither this process's own nor root.
pub fn foreign_user(socket: &UnixStream) -> Option<u32> {
    let ours = rustix::process::geteuid().as_raw();
    match socket.peer_cred() {
        Ok(peer) if peer.uid() == ours || peer.uid() == 0 => None,
        Ok(peer) => Some(peer.uid()),
        // The system's number for nobody.
        Err(_) => Some(u32::MAX),
    }
}

impl LocalStream {
    /// The device's side: makes the memory and hands it over.
    ///
    /// # Errors
    /// [`LocalStreamError`].
    pub async fn offer(socket: UnixStream) -> Result<Self, LocalStreamError> {
        let pair = RingPair::create(RING_BYTES)?;
        let region = pair.region().descriptor().ok_or(RegionError::Unfit("has no descriptor"))?;
        let (may_read, may_write) = (Doorbell::new()?, Doorbell::new()?);
        let (they_may_read, they_may_write) = (Doorbell::new()?, Doorbell::new()?);
        let handed = [
            region,
            they_may_read.as_fd(),
            they_may_write.as_fd(),
            may_read.as_fd(),
            may_write.as_fd(),
        ];
        let offer = (pair.region().bytes() as u64).to_le_bytes();
        let sent = socket
            .async_io(Interest::WRITABLE, || send_descriptors(socket.as_fd(), &offer, &handed))
            .await?;
        if sent != offer.len() {
            return Err(LocalStreamError::Offer("the socket took half of the offer"));
        }
        let bells = Bells { may_read, may_write, they_may_read, they_may_write };
        Self::new(&pair, Side::Maker, bells, socket)
    }

    /// The host's side: maps what the device offers.
    ///
    /// # Errors
    /// [`LocalStreamError`].
    pub async fn accept(socket: UnixStream) -> Result<Self, LocalStreamError> {
        let mut offer = [0; 8];
        let (count, descriptors) = socket
            .async_io(Interest::READABLE, || receive_descriptors(socket.as_fd(), &mut offer))
            .await?;
        let descriptors: [OwnedFd; 5] = descriptors
            .try_into()
            .ok()
            .filter(|_| count == offer.len())
            .ok_or(LocalStreamError::Offer("it is no offer of shared memory"))?;
        let bytes = u64::from_le_bytes(offer);
        let bytes = usize::try_from(bytes)
            .ok()
            .filter(|_| bytes <= REGION_BYTES_MAX)
            .ok_or(LocalStreamError::Offer("it is larger than any that a device makes"))?;
        let [region, may_read, may_write, they_may_read, they_may_write] = descriptors;
        let pair = RingPair::open(Region::open(region, bytes)?)?;
        let bell = Doorbell::from_descriptor;
        let bells = Bells {
            may_read: bell(may_read)?,
            may_write: bell(may_write)?,
            they_may_read: bell(they_may_read)?,
            they_may_write: bell(they_may_write)?,
        };
        Self::new(&pair, Side::Guest, bells, socket)
    }

    fn new(
        pair: &RingPair,
        side: Side,
        bells: Bells,
        lifeline: UnixStream,
    ) -> Result<Self, LocalStreamError> {
        let (producer, consumer) = pair.ends(side)?;
        Ok(Self {
            producer,
            consumer,
            may_read: watched(bells.may_read)?,
            may_write: watched(bells.may_write)?,
            they_may_read: bells.they_may_read,
            they_may_write: bells.they_may_write,
            lifeline,
            has_ended: false,
            looks_left: 0,
        })
    }

    /// Ready when the other side is gone.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        ready!(Pin::new(&mut self.lifeline).poll_read(context, &mut buffer))
            // A reset is an end, too.
            .unwrap_or_default();
        if buffer.filled().is_empty() {
            self.has_ended = true;
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(spoilt("bytes came over the socket beside the shared memory")))
    }
}

struct Bells {
    may_read: Doorbell,
    may_write: Doorbell,
    they_may_read: Doorbell,
    they_may_write: Doorbell,
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe; a bell owns its descriptor and always names that one"
)]
pub(super) fn watched(bell: Doorbell) -> io::Result<AsyncFd<Doorbell>> {
    AsyncFd::with_interest(bell, Interest::READABLE)
}

/// Ready when `bell` was rung since it was last looked at.
fn poll_bell(bell: &AsyncFd<Doorbell>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    let mut guard = ready!(bell.poll_read_ready(context))?;
    if !bell.get_ref().clear() {
        // A spurious wake-up, or no bell at all: sleeps until the system wakes it.
        guard.clear_ready();
        return bell.poll_read_ready(context).map_ok(|_| ());
    }
    guard.clear_ready();
    Poll::Ready(Ok(()))
}

impl AsyncRead for LocalStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let turn = ready!(coop::poll_proceed(context));
        loop {
            let moved = this.consumer.read(buffer).map_err(spoilt)?;
            if moved.wake {
                this.they_may_write.ring();
            }
            if moved.bytes > 0 {
                this.looks_left = LOOKS_BEFORE_SLEEP;
                turn.made_progress();
                return Poll::Ready(Ok(()));
            }
            if this.has_ended {
                turn.made_progress();
                return Poll::Ready(Ok(()));
            }
            if this.looks_left > 0 {
                // Yields to other tasks of this thread between two polls.
                this.looks_left -= 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !this.consumer.prepare_to_sleep().map_err(spoilt)? {
                continue;
            }
            if let Poll::Ready(rung) = poll_bell(&this.may_read, context) {
                rung?;
                continue;
            }
            ready!(this.poll_end(context))?;
        }
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let turn = ready!(coop::poll_proceed(context));
        loop {
            let mut written = 0;
            while let Some(left) = bytes.get(written..).filter(|left| !left.is_empty()) {
                let moved = this.producer.write(left).map_err(spoilt)?;
                if moved.wake {
                    this.they_may_read.ring();
                }
                written += moved.bytes;
                if moved.bytes == 0 {
                    break;
                }
            }
            if written > 0 || bytes.is_empty() {
                turn.made_progress();
                return Poll::Ready(Ok(written));
            }
            if this.producer.prepare_to_sleep().map_err(spoilt)? {
                // The reading side notices that the other side is gone.
                ready!(poll_bell(&this.may_write, context))?;
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().lifeline).poll_shutdown(context)
    }
}

fn spoilt(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
