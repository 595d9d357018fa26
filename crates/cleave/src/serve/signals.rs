//! The signals that end a server, as a future.
//!
//! [`block`] must run before any thread is made: a signal that a thread does not block ends the program at once.

use nix::sys::signal::{SigSet, Signal};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// The stream of signals.
#[derive(Debug)]
pub(crate) struct Signals {
    come: mpsc::Receiver<()>,
}

fn ending() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT].into_iter().collect()
}

/// Blocks the signals for [`Signals::listen`], in this thread and those that it makes.
pub(crate) fn block() {
    // If that fails, a signal ends the program, which loses nothing that was committed.
    let _ = ending().thread_block();
}

impl Signals {
    /// Begins to wait for them.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let (give, come) = mpsc::channel(4);
        std::thread::Builder::new()
            .name("cleave-signals".to_owned())
            .spawn(move || while ending().wait().is_ok() && give.blocking_send(()).is_ok() {})?;
        Ok(Self { come })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        if self.come.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
