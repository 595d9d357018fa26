//! Timeouts of a device's answers: which commands it has not answered, since when, and when the callers give up.
//!
//! 1. [`Device::sync`] and the other commands that carry no pages wait for the device's *timeout* (`--device-timeout`),
//!    and then fail with [`StorageError::Unanswered`]. The command was sent, so a task goes on waiting for its answer.
//! 2. Until that comes the device *owes an answer*. Another sync waits for it first, for what is left of the timeout,
//!    so that a device never has several syncs queued; when the timeout is over, all that follow are refused at once.
//! 3. A holder of the writer lock that needs the device only for the sake of others waits for [`WRITER_WAIT`] alone,
//!    and blocks the device's tables ([`cleave_catalog::catalog::blocked`]); while the device owes an answer only
//!    statements on these tables wait for it.
//!
//! Invariant: a device that does not answer delays statements on other tables once, and by [`WRITER_WAIT`]. Source:
//! `docs/design/wire-protocol.md`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_fragment::command::{Command, Reply, Request};
use cleave_fragment::link::Link;
use cleave_fragment::waiting;
use cleave_media::{Clock, SystemClock};
use tokio::sync::watch;

use super::Device;

/// The default timeout of a device.
pub const DEVICE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// How long a holder of the writer lock waits for a device that only other statements' tables need.
pub const WRITER_WAIT: Duration = Duration::from_secs(2);

/// The answers that a device owes. See the module's description.
#[derive(Debug)]
pub(super) struct Answers {
    timeout_ms: AtomicU64,
    number: AtomicU64,
    /// Commands whose callers gave up and that have no answer yet.
    owed: watch::Sender<BTreeMap<u64, Unanswered>>,
}

/// A command without an answer.
#[derive(Debug, Clone, Copy)]
struct Unanswered {
    /// When it was sent.
    since: Duration,
    /// It is not a sync alone that takes long.
    is_of_pages: bool,
}

/// An answer that a device owes, until it is dropped.
#[derive(Debug)]
pub(super) struct Owed {
    answers: Arc<Answers>,
    number: u64,
}

impl Default for Answers {
    fn default() -> Self {
        let (timeout_ms, number) = (AtomicU64::default(), AtomicU64::default());
        let answers = Self { timeout_ms, number, owed: watch::Sender::default() };
        answers.set_timeout(DEVICE_TIMEOUT_DEFAULT);
        answers
    }
}

impl Answers {
    fn set_timeout(&self, timeout: Duration) {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    /// Notes that it owes an answer since then, until what is returned is dropped.
    pub(super) fn owe(self: &Arc<Self>, since: Duration, is_of_pages: bool) -> Owed {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let command = Unanswered { since, is_of_pages };
        self.owed.send_modify(|owed| {
            owed.insert(number, command);
        });
        Owed { answers: Arc::clone(self), number }
    }

    fn is_owed(&self) -> bool {
        !self.owed.borrow().is_empty()
    }

    /// What is left of `patience` for a caller that comes now: the device has had some of it.
    fn left(&self, patience: Duration) -> Duration {
        let first = self.owed.borrow().values().map(|command| command.since).min();
        let waited = first.map_or(Duration::ZERO, |since| SystemClock.now().saturating_sub(since));
        patience.saturating_sub(waited)
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.answers.owed.send_modify(|owed| {
            owed.remove(&self.number);
        });
    }
}

impl Device {
    /// Waits for it so long from now on.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.answers.set_timeout(timeout);
    }

    /// How long it is waited for.
    pub fn timeout(&self) -> Duration {
        self.answers.timeout()
    }

    /// Whether it has not answered in time, and has not yet.
    pub fn owes_answer(&self) -> bool {
        match &self.mirror {
            Some(mirror) => mirror.current().iter().all(|copy| copy.owes_answer()),
            None => self.answers.is_owed(),
        }
    }

    /// How much longer its own tables' statements wait for what it owes: what is left of the timeout, and a moment in
    /// any case, since it may just be back.
    pub(crate) fn wait_left(&self) -> Duration {
        if let Some(mirror) = &self.mirror {
            let left = mirror.current().iter().map(|copy| copy.wait_left()).max();
            return left.unwrap_or_else(|| self.timeout());
        }
        self.answers.left(self.timeout()).max(WRITER_WAIT.min(self.timeout()))
    }

    /// Whether it owes no answer, at once or within `patience`.
    pub(crate) async fn has_answered(&self, patience: Duration) -> bool {
        if let Some(mirror) = &self.mirror {
            return mirror.has_answered(patience).await;
        }
        let mut owed = self.answers.owed.subscribe();
        // The sender lives as long as the device does.
        let answered = waiting::timeout(patience, owed.wait_for(BTreeMap::is_empty)).await;
        answered.is_some_and(|answered| answered.is_ok())
    }

    /// # Errors
    /// [`StorageError::Unanswered`] where it has owed an answer for as long as it is waited for.
    pub(crate) fn check_answers(&self, action: &'static str) -> Result<()> {
        if let Some(mirror) = &self.mirror {
            return mirror.unless_all(|copy| copy.check_answers(action));
        }
        match self.answers.is_owed() && self.answers.left(self.timeout()).is_zero() {
            true => Err(self.unanswered(action, self.timeout())),
            false => Ok(()),
        }
    }

    /// # Errors
    /// The same, where it is not a sync alone that it owes.
    pub(crate) fn check_writes(&self) -> Result<()> {
        if let Some(mirror) = &self.mirror {
            return mirror.unless_all(Self::check_writes);
        }
        match self.answers.owed.borrow().values().any(|command| command.is_of_pages) {
            true => self.check_answers("write"),
            false => Ok(()),
        }
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// As [`Device::call`]; [`StorageError::Unanswered`].
    pub async fn sync(&self) -> Result<()> {
        self.sync_within(self.timeout()).await
    }

    /// The same, for at most `patience`.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn sync_within(&self, patience: Duration) -> Result<()> {
        if let Some(mirror) = &self.mirror {
            return mirror.sync_within(patience).await;
        }
        let begun = SystemClock.now();
        if !self.has_answered(self.answers.left(patience)).await {
            return Err(self.unanswered("sync", patience));
        }
        let waited = SystemClock.now().saturating_sub(begun);
        let synced = self.call_within(patience.saturating_sub(waited), "sync", Request::Sync).await;
        match synced.map_err(|error| self.with_patience(error, patience))? {
            Reply::Done => Ok(()),
            other => Err(self.strange(&other, "sync")),
        }
    }

    /// Sends a command to `link`, and waits for its answer until `patience` is over.
    pub(super) async fn answer_within(
        &self,
        patience: Duration,
        action: &'static str,
        link: &Arc<dyn Link>,
        request: Request,
    ) -> Result<std::result::Result<Reply, cleave_fragment::link::LinkError>> {
        let begun = SystemClock.now();
        let (asked, command) = (Arc::clone(link), Command::new(self.header(), request));
        let mut asking = Box::pin(async move { asked.call(command).await });
        if let Some(answer) = waiting::timeout(patience, asking.as_mut()).await {
            return Ok(answer);
        }
        let owed = self.answers.owe(begun, false);
        spawn(async move {
            drop(asking.await);
            drop(owed);
        });
        Err(self.unanswered(action, patience))
    }

    /// Notes that it did not do in time what it was asked for, whatever that was: it owes an answer until it has synced
    /// what it has.
    pub(crate) fn note_slow(self: &Arc<Self>) {
        if let Some(mirror) = &self.mirror {
            mirror.current().iter().for_each(Self::note_slow);
            return;
        }
        if self.answers.is_owed() {
            return;
        }
        let owed = self.answers.owe(SystemClock.now(), true);
        let device = Arc::clone(self);
        spawn(async move {
            if let Ok(link) = device.link().await {
                let command = Command::new(device.header(), Request::Sync);
                if let Err(error) = link.call(command).await {
                    device.forget_if_useless(&link, &error).await;
                }
            }
            drop(owed);
        });
    }

    /// The error of a caller that has waited so long for it.
    pub(crate) fn unanswered(&self, action: &'static str, waited: Duration) -> Error {
        StorageError::Unanswered {
            device: self.entry.name.clone(),
            address: self.entry.address(),
            action,
            waited,
        }
        .into()
    }

    /// `error`; of a caller that waited, with how long that was in all.
    fn with_patience(&self, error: Error, patience: Duration) -> Error {
        match error.is_unanswered() {
            true => self.unanswered("sync", patience),
            false => error,
        }
    }
}

fn spawn(waiting: impl Future<Output = ()> + Send + 'static) {
    #[expect(
        clippy::disallowed_methods,
        reason = "a command that was sent is answered at some time, also where nobody waits for it any more; the \
            link ends it otherwise"
    )]
    drop(tokio::spawn(waiting));
}

#[cfg(test)]
mod tests;
