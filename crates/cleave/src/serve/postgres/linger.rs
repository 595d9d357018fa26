//! Looking for the next message for a moment before sleeping until it comes.
//!
//! A client that has its answer mostly asks on at once. Its server's thread, asleep by then, has to be woken on a processor
//! that has gone to rest as well; in a virtual machine that takes several times what the statement does, of both sides. So a
//! connection looks again and again for [`LINGER`] first. Only as long as few others work or look: a processor that looks is
//! one that nobody computes on. And only where it helps: a client that mostly thinks for longer is let go the sooner.
//!
//! Invariant: a connection that sleeps is not counted among those awake. Source: decision 0080.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use tokio::time::{Duration, Instant};

use super::wire::{Wire, WireError};

/// How long a connection looks before it sleeps: about what waking two threads takes.
const LINGER: Duration = Duration::from_micros(100);
/// Messages that a connection sleeps for at most, since it has looked in vain, before it looks again.
const PASSED_MAX: u32 = 63;

/// The connections that work or look.
#[derive(Debug, Clone)]
pub(crate) struct Awake {
    count: Arc<AtomicUsize>,
    /// Up to how many of them may look.
    looking_max: usize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Awake {
    /// None yet. Of the processors half are for those that compute and for the clients.
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { count: Arc::default(), looking_max: processors / 2 }
    }

    /// One more.
    pub(crate) fn enter(&self) -> Counted {
        self.count.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.count))
    }

    fn is_quiet(&self) -> bool {
        self.count.load(Ordering::Relaxed) <= self.looking_max
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a connection waits for its messages.
#[derive(Debug)]
pub(crate) struct Linger {
    awake: Awake,
    /// While it does not sleep.
    counted: Option<Counted>,
    /// How many messages it sleeps for before it looks again, and did when it last looked in vain.
    passing: (u32, u32),
}

impl Linger {
    /// Of one of those `awake`.
    pub(crate) fn new(awake: &Awake) -> Self {
        Self { awake: awake.clone(), counted: Some(awake.enter()), passing: (0, 0) }
    }

    /// The next message on `wire`.
    pub(crate) async fn message(&mut self, wire: &mut Wire) -> Result<(u8, Bytes), WireError> {
        if let Some(message) = self.look(wire).await {
            return message;
        }
        self.counted = None;
        let message = wire.message().await;
        self.counted = Some(self.awake.enter());
        message
    }

    /// The next message, if it comes within a moment; clients that take longer are hardly looked for.
    async fn look(&mut self, wire: &mut Wire) -> Option<Result<(u8, Bytes), WireError>> {
        let (left, passed) = self.passing;
        if left > 0 {
            self.passing.0 = left - 1;
            return None;
        }
        let began = Instant::now();
        while self.awake.is_quiet() {
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

    use super::*;

    const SYNC: &[u8] = b"S\0\0\0\x04";

    fn wire() -> (Wire, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        (Wire::new(Box::new(ours), 100), theirs)
    }

    fn awake(looking_max: usize) -> Awake {
        Awake { count: Arc::default(), looking_max }
    }

    #[tokio::test]
    async fn who_sleeps_is_not_counted() {
        let (awake, (mut wire, mut client)) = (awake(1), wire());
        let mut linger = Linger::new(&awake);
        let count = || awake.count.load(Ordering::Relaxed);
        {
            let mut message = std::pin::pin!(linger.message(&mut wire));
            while futures::poll!(message.as_mut()).is_pending() && count() > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(count(), 0, "it has looked in vain");
            client.write_all(SYNC).await.unwrap();
            assert_eq!(message.await.unwrap().0, b'S');
        }
        assert_eq!((count(), linger.passing), (1, (1, 1)));
        drop(linger);
        assert_eq!(count(), 0);
    }

    #[tokio::test]
    async fn who_looks_in_vain_looks_the_less_and_who_finds_looks_again() {
        let (awake, (mut wire, mut client)) = (awake(1), wire());
        let mut linger = Linger::new(&awake);
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
    async fn nobody_looks_while_others_work() {
        let (awake, (mut wire, mut client)) = (awake(1), wire());
        let mut linger = Linger::new(&awake);
        let other = awake.enter();
        client.write_all(SYNC).await.unwrap();
        assert!(linger.look(&mut wire).await.is_none());
        assert_eq!(linger.passing, (0, 0), "that says nothing of its client");
        drop(other);
        assert!(linger.look(&mut wire).await.is_some());
    }
}
