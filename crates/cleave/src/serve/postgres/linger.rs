//! Polls for the next message for a moment before the thread sleeps until it comes.
//!
//! A client that has its answer mostly sends its next request at once. By then its server's thread sleeps, on a
//! processor that may be idle too, and waking both takes several times as long as the statement in a virtual machine.
//! So a connection polls for [`LINGER`] first. It polls only while it is the only active connection, since polling
//! takes the processor from other connections and their clients; and only where it helps: for a client that mostly
//! pauses longer it stops sooner.
//!
//! Source: `docs/design/server-and-security.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bytes::Bytes;
use tokio::time::{Duration, Instant};

use super::wire::{Wire, WireError};

/// How long a connection polls before it sleeps: about the time of waking two threads.
const LINGER: Duration = Duration::from_micros(100);
/// A connection is the only one if no other has spoken for this long.
const ALONE: Duration = Duration::from_millis(5);
/// After polling in vain, a connection sleeps for at most so many messages before it polls again.
const PASSED_MAX: u32 = 63;

/// The connection of a server that speaks.
#[derive(Debug)]
pub(crate) struct Speaking {
    began: Instant,
    /// The number of the next connection.
    next: AtomicU64,
    /// The one that has spoken last.
    last: AtomicU64,
    /// Since when it alone has spoken, in microseconds since the server began.
    since_us: AtomicU64,
}

impl Speaking {
    /// No connection has spoken yet.
    pub(crate) fn new() -> Arc<Self> {
        let (next, last, since_us) = (AtomicU64::new(1), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { began: Instant::now(), next, last, since_us })
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn note(&self, connection: u64) {
        // Mostly it is the same, and no shared cache line is written.
        if self.last.load(Ordering::Relaxed) != connection {
            self.last.store(connection, Ordering::Relaxed);
            self.since_us.store(self.now_us(), Ordering::Relaxed);
        }
    }

    fn is_alone(&self, connection: u64) -> bool {
        let since = Duration::from_micros(self.since_us.load(Ordering::Relaxed));
        self.last.load(Ordering::Relaxed) == connection
            && Duration::from_micros(self.now_us()).saturating_sub(since) > ALONE
    }
}

/// How a connection waits for its messages.
#[derive(Debug)]
pub(crate) struct Linger {
    speaking: Arc<Speaking>,
    /// The connection's number.
    connection: u64,
    /// For how many messages it sleeps before it polls again, and did when it last polled in vain.
    passing: (u32, u32),
}

impl Linger {
    /// For one more of the `speaking` connections.
    pub(crate) fn new(speaking: &Arc<Speaking>) -> Self {
        let connection = speaking.next.fetch_add(1, Ordering::Relaxed);
        Self { speaking: Arc::clone(speaking), connection, passing: (0, 0) }
    }

    /// The next message on `wire`.
    pub(crate) async fn message(&mut self, wire: &mut Wire) -> Result<(u8, Bytes), WireError> {
        let message = match self.look(wire).await {
            Some(message) => message,
            None => wire.message().await,
        };
        self.speaking.note(self.connection);
        message
    }

    /// The next message, if it comes within a moment; slow clients are hardly polled for.
    async fn look(&mut self, wire: &mut Wire) -> Option<Result<(u8, Bytes), WireError>> {
        let (left, passed) = self.passing;
        if left > 0 {
            self.passing.0 = left - 1;
            return None;
        }
        let began = Instant::now();
        while self.speaking.is_alone(self.connection) {
            let mut next = std::pin::pin!(wire.message());
            if let Poll::Ready(message) = futures::poll!(next.as_mut()) {
                self.passing = (0, 0);
                return Some(message);
            }
            if began.elapsed() > LINGER {
                let passed = (2 * passed + 1).min(PASSED_MAX);
                self.passing = (passed, passed);
                return None;
            }
            tokio::task::yield_now().await;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream};
    use tokio::time::sleep;

    use super::*;

    const SYNC: &[u8] = b"S\0\0\0\x04";

    fn wire() -> (Wire, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        (Wire::new(Box::new(ours)), theirs)
    }

    /// A connection that has spoken, and no other for a while.
    async fn alone(speaking: &Arc<Speaking>) -> Linger {
        let linger = Linger::new(speaking);
        speaking.note(linger.connection);
        sleep(2 * ALONE).await;
        assert!(speaking.is_alone(linger.connection));
        linger
    }

    #[tokio::test]
    async fn who_looks_in_vain_looks_the_less_and_who_finds_looks_again() {
        let (speaking, (mut wire, mut client)) = (Speaking::new(), wire());
        let mut linger = alone(&speaking).await;
        let mut looked = Vec::new();
        for message in 0..200 {
            if linger.passing.0 == 0 {
                looked.push(message);
            }
            assert!(linger.look(&mut wire).await.is_none());
        }
        assert_eq!(looked, [0, 2, 6, 14, 30, 62, 126, 190]);
        linger.passing.0 = 0;
        client.write_all(SYNC).await.unwrap();
        assert!(linger.look(&mut wire).await.is_some());
        assert_eq!(linger.passing, (0, 0));
    }

    #[tokio::test]
    async fn nobody_looks_while_others_speak() {
        let (speaking, (mut wire, mut client)) = (Speaking::new(), wire());
        let mut linger = alone(&speaking).await;
        let other = alone(&speaking).await;
        client.write_all(SYNC).await.unwrap();
        assert!(linger.look(&mut wire).await.is_none());
        assert_eq!(linger.passing, (0, 0), "that says nothing of its client");
        assert_eq!(linger.message(&mut wire).await.unwrap().0, b'S');
        assert!(!speaking.is_alone(other.connection));
        sleep(2 * ALONE).await;
        client.write_all(SYNC).await.unwrap();
        assert!(linger.look(&mut wire).await.is_some());
    }
}
