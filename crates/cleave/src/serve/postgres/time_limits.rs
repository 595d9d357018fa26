//! The time limits of a session: of each statement, of each transaction, and of the time between statements.
//!
//! 1. [`TimeLimits::begin`] limits a statement, which its [`Watch`] then ends.
//! 2. [`TimeLimits::rests`] notes, after statements, whether a transaction is open; [`TimeLimits::deadline`] and
//!    [`TimeLimits::idle`] say how long the session may wait for the next one.
//!
//! Source: PostgreSQL's manual, "Statement Behavior"; `docs/reference/server.md`.

use cleave_host::{Session, TransactionStatus};
use tokio::time::{Duration, Instant};

use super::complaint::Complaint;
use super::interrupt::Watch;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct TimeLimits {
    /// The server's limit between statements, where the session sets none.
    idle: Option<Duration>,
    /// Start of the open transaction.
    transaction_began: Option<Instant>,
}

impl TimeLimits {
    /// Those of a new session of a server with this limit between statements.
    pub(crate) fn new(idle: Option<Duration>) -> Self {
        Self { idle, transaction_began: None }
    }

    /// Begins to `watch` a statement of `session`.
    pub(crate) fn begin(&self, watch: &mut Watch, session: &Session) {
        let settings = session.settings();
        let (limit, milliseconds) =
            (settings.statement_timeout_ms, settings.timeouts.transaction_ms);
        // A statement outside a block is a transaction of its own.
        let alone = || Instant::now() + Duration::from_millis(u64::from(milliseconds));
        let transaction = self.deadline(session);
        let transaction = transaction.or_else(|| (milliseconds > 0).then(alone));
        watch.begin(limit, transaction);
    }

    /// Notes that the statements have ended, with a transaction in this state.
    pub(crate) fn rests(&mut self, status: TransactionStatus) {
        self.transaction_began = match status {
            TransactionStatus::Idle => None,
            TransactionStatus::Open | TransactionStatus::Failed => {
                self.transaction_began.or_else(|| Some(Instant::now()))
            }
        };
    }

    /// Notes that a statement has ended the transaction.
    pub(crate) fn transaction_ended(&mut self) {
        self.transaction_began = None;
    }

    /// When the open transaction of `session` is to end.
    pub(crate) fn deadline(&self, session: &Session) -> Option<Instant> {
        let milliseconds = session.settings().timeouts.transaction_ms;
        let limit = Duration::from_millis(u64::from(milliseconds));
        self.transaction_began.filter(|_| milliseconds > 0).map(|began| began + limit)
    }

    /// How long `session` may be idle, in its transaction or outside of one.
    pub(crate) fn idle(&self, session: &Session) -> Option<Duration> {
        let timeouts = &session.settings().timeouts;
        let limit = match is_open(session) {
            true => timeouts.idle_in_transaction_ms,
            false => timeouts.idle_ms,
        };
        let limit = (limit > 0).then(|| Duration::from_millis(u64::from(limit)));
        limit.or(self.idle)
    }
}

/// The error for a client whose `session` was idle for too long.
pub(crate) fn idle_too_long(session: &Session) -> Complaint {
    match is_open(session) {
        true => {
            let message = "terminating connection due to idle-in-transaction timeout";
            Complaint::fatal("25P03", message)
        }
        false => Complaint::fatal("57P05", "terminating connection due to idle-session timeout"),
    }
}

fn is_open(session: &Session) -> bool {
    session.transaction_status() != TransactionStatus::Idle
}
