//! The signals that end a server, as a future.
//!
//! [`block`] must run before any thread is made: a signal that a thread does not block ends the program at once.

use cleave_shmem::{block_ending_signals, wait_for_ending_signal};
use tokio::sync::mpsc;

/// The stream of signals.
#[derive(Debug)]
pub struct Signals {
    come: mpsc::Receiver<()>,
}

/// Blocks the signals for [`Signals::listen`], in this thread and those that it makes.
pub fn block() {
    // If that fails, a signal ends the program, which loses nothing that was acknowledged.
    block_ending_signals().unwrap_or_default();
}

impl Signals {
    /// Begins to wait for them.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn listen() -> std::io::Result<Self> {
        let (give, come) = mpsc::channel(4);
        std::thread::Builder::new().name("cleave-signals".to_owned()).spawn(move || {
            while wait_for_ending_signal().is_ok() && give.blocking_send(()).is_ok() {}
        })?;
        Ok(Self { come })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        if self.come.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
