//! Interrupts of a statement from outside: a cancel request, another session, the server's shutdown, or a lost client.
//!
//! Invariant: a request affects the statement that runs when it arrives, and none after it.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cleave_fragment::wanted;
use cleave_host::Error;
use cleave_host::backends::Stopper;
use cleave_host::commitment::unless;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, Instant};

use super::complaint::Complaint;
use super::wire::{Wire, WireError};

/// The phase of a server's shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// Running statements may end; nothing new begins.
    Draining,
    /// Statements are stopped.
    Stopping,
}

/// Receives the cancel requests for one connection.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    count: AtomicU64,
    /// Whether the session is to end too.
    is_terminal: AtomicBool,
    told: Notify,
}

/// The connections that can be cancelled, with their secrets.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    next: AtomicU64,
    by_backend: Mutex<BTreeMap<i32, Entry>>,
}

/// The state of one connection.
#[derive(Debug)]
struct Entry {
    secret: i32,
    interrupt: Arc<Interrupt>,
    user: Box<str>,
}

/// One connection's entry, removed when dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    /// The connection's number.
    pub(crate) backend: i32,
    /// The secret that its client sends to cancel.
    pub(crate) secret: i32,
    /// Receives its cancel requests.
    pub(crate) interrupt: Arc<Interrupt>,
    registry: Arc<Registry>,
}

impl Interrupt {
    /// Ends the running statement.
    fn raise(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    /// Waits until the session is to end.
    pub(crate) async fn terminated(&self) {
        loop {
            let told = self.told.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.is_terminal.load(Ordering::SeqCst) {
                return;
            }
            told.await;
        }
    }

    /// How often it was raised, noted by a statement at its beginning.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until it is raised after `since`.
    async fn raised(&self, since: u64) {
        loop {
            let told = self.told.notified();
            tokio::pin!(told);
            // Registered before looking, so that nothing is missed between.
            told.as_mut().enable();
            if self.count() != since {
                return;
            }
            told.await;
        }
    }
}

impl Stopper for Interrupt {
    fn cancel(&self) {
        self.raise();
    }

    fn terminate(&self) {
        self.is_terminal.store(true, Ordering::SeqCst);
        self.raise();
    }
}

impl Registry {
    /// Enters a connection of `user`.
    pub(crate) fn register(
        self: &Arc<Self>,
        user: &str,
    ) -> Result<Registered, cleave_media::MediaError> {
        let number = self.next.fetch_add(1, Ordering::SeqCst) % i32::MAX.unsigned_abs() as u64 + 1;
        let backend = i32::try_from(number).unwrap_or(1);
        let secret = super::message::network_u32(cleave_media::random_bytes::<4>()?).cast_signed();
        let interrupt = Arc::new(Interrupt::default());
        let mut entries = self.by_backend.lock().unwrap_or_else(PoisonError::into_inner);
        let (user, told) = (user.into(), Arc::clone(&interrupt));
        entries.insert(backend, Entry { secret, interrupt: told, user });
        Ok(Registered { backend, secret, interrupt, registry: Arc::clone(self) })
    }

    /// Ends the statement of the connection with this number and secret, if there is one.
    pub(crate) fn cancel(&self, backend: i32, secret: i32) {
        let entries = self.by_backend.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&backend).filter(|entry| entry.secret == secret) {
            entry.interrupt.raise();
        }
    }

    /// How many connections `user` has.
    pub(crate) fn count_of(&self, user: &str) -> usize {
        let entries = self.by_backend.lock().unwrap_or_else(PoisonError::into_inner);
        entries.values().filter(|entry| &*entry.user == user).count()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut entries = self.registry.by_backend.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&self.backend);
    }
}

/// Why a statement was not completed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It failed, or was ended: tell the client.
    Failed(Complaint),
    /// The client is gone.
    Lost,
}

impl From<Complaint> for Stop {
    fn from(complaint: Complaint) -> Self {
        Self::Failed(complaint)
    }
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Lost => Self::Lost,
            WireError::Framing(complaint) | WireError::Refused(_, complaint) => {
                Self::Failed(complaint)
            }
        }
    }
}

/// The watch over the statements of one connection, one after the other.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The runtime that computes, so that this thread does not.
    compute: Handle,
    interrupt: Arc<Interrupt>,
    since: u64,
    phase: watch::Receiver<Phase>,
    /// The time limit of the statement.
    deadline: Option<Instant>,
    /// The time limit of its transaction.
    transaction_deadline: Option<Instant>,
}

impl Watch {
    /// For one connection's statements. Tasks that their work spawns run on `compute`.
    pub(crate) fn new(
        interrupt: &Arc<Interrupt>,
        phase: &watch::Receiver<Phase>,
        compute: &Handle,
    ) -> Self {
        let since = interrupt.count();
        Self {
            compute: compute.clone(),
            interrupt: Arc::clone(interrupt),
            since,
            phase: phase.clone(),
            deadline: None,
            transaction_deadline: None,
        }
    }

    /// Begins the next statement, limited to so many milliseconds (0 means unlimited), and to `transaction_deadline`,
    /// the time limit of its transaction.
    pub(crate) fn begin(&mut self, milliseconds: u32, transaction_deadline: Option<Instant>) {
        let limit = Duration::from_millis(u64::from(milliseconds));
        self.since = self.interrupt.count();
        self.deadline = (milliseconds > 0).then(|| Instant::now() + limit);
        self.transaction_deadline = transaction_deadline;
    }

    /// Waits until the statement is to end, and returns the reason.
    pub(crate) async fn ended(&mut self) -> Complaint {
        tokio::select! {
            () = self.interrupt.raised(self.since) => {
                match self.interrupt.is_terminal.load(Ordering::SeqCst) {
                    true => shutting_down(),
                    false => Complaint::error("57014", "canceling statement due to user request"),
                }
            }
            _ = self.phase.wait_for(|phase| *phase == Phase::Stopping) => shutting_down(),
            () = late(self.deadline) => {
                Complaint::error("57014", "canceling statement due to statement timeout")
            }
            () = late(self.transaction_deadline) => transaction_too_long(),
        }
    }

    /// Runs `work` of the database to its end or until the statement is to end, which is not checked while it commits.
    /// Messages that the client sends meanwhile are kept.
    pub(crate) async fn over<T>(
        &mut self,
        wire: &mut Wire,
        sql: &str,
        work: impl Future<Output = Result<T, Error>> + Unpin,
    ) -> Result<T, Stop> {
        self.over_unless(wire.closed(), sql, work).await
    }

    /// As [`Watch::over`], of a client who is gone once `lost` ends.
    pub(crate) async fn over_unless<T>(
        &mut self,
        lost: impl Future<Output = ()>,
        sql: &str,
        work: impl Future<Output = Result<T, Error>> + Unpin,
    ) -> Result<T, Stop> {
        let is_over = self.is_over();
        let work = self.entered(Box::pin(wanted::until(is_over.clone(), work)));
        let stop = async {
            tokio::select! {
                biased;
                complaint = self.ended() => Stop::Failed(complaint),
                () = lost => Stop::Lost,
            }
        };
        let done = unless(work, stop).await?;
        let is_cut_off = done.as_ref().is_err_and(|error| error.sqlstate() == "57014");
        if is_cut_off && is_over() {
            // A function has seen it before the reason was asked for.
            return Err(Stop::Failed(self.ended().await));
        }
        done.map_err(|error| Stop::Failed(Complaint::of(&error, sql)))
    }

    /// Whether the statement is to end, for functions that work for long between two looks at the reason.
    fn is_over(&self) -> impl Fn() -> bool + Clone + Send + Sync + use<> {
        let (interrupt, since) = (Arc::clone(&self.interrupt), self.since);
        let limits = [self.deadline, self.transaction_deadline];
        move || {
            let is_late = || limits.iter().flatten().any(|limit| Instant::now() >= *limit);
            interrupt.count() != since || is_late()
        }
    }

    /// Runs `work` of the database so that a plan's partitions run in parallel, and not one after the other on the
    /// thread that serves the client.
    pub(crate) fn entered<F: Future + Unpin>(
        &self,
        mut work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let compute = self.compute.clone();
        poll_fn(move |context| {
            let _entered = compute.enter();
            Pin::new(&mut work).poll(context)
        })
    }

    /// Sends the buffered answers; the statement can be ended even if the client does not read.
    pub(crate) async fn flush(&mut self, wire: &mut Wire) -> Result<(), Stop> {
        tokio::select! {
            biased;
            sent = wire.flush() => Ok(sent?),
            complaint = self.ended() => Err(Stop::Failed(complaint)),
        }
    }
}

/// The error for a transaction that has taken too long.
pub(crate) fn transaction_too_long() -> Complaint {
    Complaint::fatal("25P04", "terminating connection due to transaction timeout")
}

/// Waits for the deadline, if there is one.
pub(super) async fn late(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The error when the server shuts down, or somebody ends the session.
pub(crate) fn shutting_down() -> Complaint {
    Complaint::fatal("57P01", "terminating connection due to administrator command")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_ends_the_statement_that_runs_and_no_other() {
        let registry = Arc::new(Registry::default());
        let registered = registry.register("ada").unwrap();
        registry.cancel(registered.backend, registered.secret);
        let (_phase, receiver) = watch::channel(Phase::Serving);
        let mut later = Watch::new(&registered.interrupt, &receiver, &Handle::current());
        let (ours, _theirs) = tokio::io::duplex(100);
        let mut wire = Wire::new(Box::new(ours));
        assert_eq!(later.over(&mut wire, "", std::future::ready(Ok(1))).await.unwrap(), 1);
        registry.cancel(registered.backend, registered.secret.wrapping_add(1));
        assert_eq!(registered.interrupt.count(), 1, "a wrong secret cancels nothing");
        registry.cancel(registered.backend, registered.secret);
        let ended = later.over(&mut wire, "", std::future::pending::<Result<(), Error>>()).await;
        let Err(Stop::Failed(complaint)) = ended else { panic!("it goes on") };
        assert_eq!(complaint.sqlstate, "57014");
    }

    #[tokio::test]
    async fn a_client_that_goes_ends_its_statement() {
        let registry = Arc::new(Registry::default());
        let registered = registry.register("ada").unwrap();
        let (_phase, receiver) = watch::channel(Phase::Serving);
        let mut watch = Watch::new(&registered.interrupt, &receiver, &Handle::current());
        let (ours, theirs) = tokio::io::duplex(100);
        let mut wire = Wire::new(Box::new(ours));
        drop(theirs);
        let ended = watch.over(&mut wire, "", std::future::pending::<Result<(), Error>>()).await;
        assert!(matches!(ended, Err(Stop::Lost)));
    }
}
