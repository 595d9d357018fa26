//! The sessions of a server as others see them (`pg_stat_activity`), and how others cancel or terminate them.
//!
//! ```text
//!  server: a connection ─▶ Listed ─▶ begins, rests ┐
//!                                                 ├─▶ Backends ─▶ pg_stat_activity
//!  pg_cancel_backend, pg_terminate_backend ─▶ Stopper ─▶ the connection
//! ```
//!
//! A session of this process without a connection is not listed: its `pg_backend_pid` is 0.
//!
//! Invariant: an entry shows the state of its session as known outside of it; reading it never waits.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cleave_fragment::progress::Progress;
use cleave_media::{Clock, SystemClock};

/// Bytes of a statement's text that are kept: PostgreSQL's default.
const QUERY_BYTES_MAX: usize = 1024;

/// Whether a session is in a transaction block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// It is not: each statement commits by itself.
    Idle,
    /// It is.
    Open,
    /// It is, and a statement has failed: only ROLLBACK is accepted.
    Failed,
}

/// The sessions of a database's server, by their numbers.
#[derive(Debug, Default)]
pub struct Backends {
    entries: Mutex<BTreeMap<i32, Arc<Inner>>>,
}

/// Ends a session's statement or the session, from outside.
pub trait Stopper: Send + Sync {
    /// Cancels the running statement, if any.
    fn cancel(&self);
    /// Ends the session.
    fn terminate(&self);
}

/// A session's entry in the list, until it is dropped.
#[derive(Debug)]
pub struct Listed {
    inner: Arc<Inner>,
    backends: Arc<Backends>,
}

struct Inner {
    number: i32,
    user: String,
    role: Option<u32>,
    client: Option<SocketAddr>,
    /// When it began, in microseconds since 1970.
    began: i64,
    doing: Mutex<Doing>,
    /// Counts what its statement has done, once it is known.
    progress: OnceLock<Progress>,
    stopper: Arc<dyn Stopper>,
}

/// The present activity of a session. Times are in microseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Doing {
    /// The client's name for itself.
    pub application_name: String,
    /// The running statement, or the last one, truncated. A text that nobody else holds gives way to the next in place.
    pub query: Arc<String>,
    /// Start of that statement.
    pub query_began: Option<i64>,
    /// Start of its transaction.
    pub transaction_began: Option<i64>,
    /// Time of the last start or end of a statement.
    pub changed: i64,
    /// None: a statement runs.
    pub rests: Option<TransactionStatus>,
}

/// A session as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendStatus {
    /// Its number.
    pub number: i32,
    /// The name that it logged in with.
    pub user: String,
    /// The role that it logged in as; None: one that the catalog does not know.
    pub role: Option<u32>,
    /// The address of its client.
    pub client: Option<SocketAddr>,
    /// Its start, in microseconds since 1970.
    pub began: i64,
    /// Its activity.
    pub doing: Doing,
    /// How much of its statement's input was begun, and how much there is; 0: nothing is known.
    pub progress: (u64, u64),
}

impl Backends {
    /// Enters the session `number` of `user`, who has connected from `client`.
    pub fn enter(
        self: &Arc<Self>,
        number: i32,
        (user, role): (&str, Option<u32>),
        client: Option<SocketAddr>,
        stopper: Arc<dyn Stopper>,
    ) -> Listed {
        let began = SystemClock.wall();
        let doing =
            Doing { changed: began, rests: Some(TransactionStatus::Idle), ..Doing::default() };
        let doing = Mutex::new(doing);
        let user = user.to_owned();
        let progress = OnceLock::new();
        let inner = Arc::new(Inner { number, user, role, client, began, doing, progress, stopper });
        self.entries().insert(number, Arc::clone(&inner));
        Listed { inner, backends: Arc::clone(self) }
    }

    /// All sessions, by number.
    pub fn seen(&self) -> Vec<BackendStatus> {
        self.entries().values().map(|entry| entry.seen()).collect()
    }

    /// The session of this number.
    pub fn find(&self, number: i32) -> Option<BackendStatus> {
        self.entries().get(&number).map(|entry| entry.seen())
    }

    /// The running statement of the session with this number, or its last one, truncated.
    pub fn query_of(&self, number: i32) -> Option<Arc<String>> {
        let entry = self.entries().get(&number).map(Arc::clone)?;
        let query = Arc::clone(&entry.doing().query);
        Some(query)
    }

    /// The same, with when that statement began, in microseconds since 1970.
    pub fn statement_of(&self, number: i32) -> Option<(Arc<String>, i64)> {
        let entry = self.entries().get(&number).map(Arc::clone)?;
        let doing = entry.doing();
        Some((Arc::clone(&doing.query), doing.query_began?))
    }

    /// Cancels the statement of the session with this number, or terminates the session; returns whether there is one.
    pub fn stop(&self, number: i32, terminates: bool) -> bool {
        let stopper = self.entries().get(&number).map(|entry| Arc::clone(&entry.stopper));
        let Some(stopper) = stopper else { return false };
        match terminates {
            true => stopper.terminate(),
            false => stopper.cancel(),
        }
        true
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<Inner>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listed {
    /// Shows what `progress` counts, which is the session's.
    pub fn counts(&self, progress: Progress) {
        // There is one of a session.
        drop(self.inner.progress.set(progress));
    }

    /// Reports that a statement with this text begins.
    pub fn begins(&self, sql: &str) {
        let now = SystemClock.wall();
        if let Some(progress) = self.inner.progress.get() {
            progress.begin();
        }
        let mut doing = self.inner.doing();
        let end = sql.floor_char_boundary(QUERY_BYTES_MAX);
        let text = sql.get(..end).unwrap_or_default();
        match Arc::get_mut(&mut doing.query) {
            Some(query) => {
                query.clear();
                query.push_str(text);
            }
            None => doing.query = Arc::new(text.to_owned()),
        }
        doing.query_began = Some(now);
        doing.transaction_began.get_or_insert(now);
        (doing.changed, doing.rests) = (now, None);
    }

    /// Reports that no statement runs, and whether a transaction is open.
    pub fn rests(&self, status: TransactionStatus) {
        let mut doing = self.inner.doing();
        if doing.rests == Some(status) {
            return;
        }
        (doing.changed, doing.rests) = (SystemClock.wall(), Some(status));
        if status == TransactionStatus::Idle {
            doing.transaction_began = None;
        }
    }

    /// Reports the client's name for itself.
    pub fn is_called(&self, application_name: &str) {
        application_name.clone_into(&mut self.inner.doing().application_name);
    }
}

impl Inner {
    fn doing(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> BackendStatus {
        BackendStatus {
            number: self.number,
            user: self.user.clone(),
            role: self.role,
            client: self.client,
            began: self.began,
            doing: self.doing().clone(),
            progress: self.progress.get().map_or((0, 0), Progress::read),
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.backends.entries().remove(&self.inner.number);
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Listed").field("number", &self.number).finish_non_exhaustive()
    }
}
