//! The sessions of a server as others see them (`pg_stat_activity`), and how others end what they do.
//!
//! ```text
//!  server: a connection ─▶ Listed ─▶ begins, rests ┐
//!                                                 ├─▶ Backends ─▶ pg_stat_activity
//!  pg_cancel_backend, pg_terminate_backend ─▶ Stopper ─▶ the connection
//! ```
//!
//! A session of this process that nobody connects to is not listed: it is number 0, as `pg_backend_pid` says.
//!
//! Invariant: an entry says what its session does as far as that is known outside of it; nothing waits for it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_media::{Clock, SystemClock};

/// Bytes of a statement's text that are kept, as PostgreSQL has it.
const QUERY_BYTES_MAX: usize = 1024;

/// Whether a session is in a transaction block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// It is not: each statement commits by itself.
    Idle,
    /// It is.
    Open,
    /// It is, and a statement has failed: nothing but ROLLBACK is done.
    Failed,
}

/// The sessions of a database's server, by their numbers.
#[derive(Debug, Default)]
pub struct Backends {
    entries: Mutex<BTreeMap<i32, Arc<Inner>>>,
}

/// Ends what a session does, from outside.
pub trait Stopper: Send + Sync {
    /// Ends the statement that runs, if one does.
    fn cancel(&self);
    /// Ends the session.
    fn terminate(&self);
}

/// A session's place among the others, until it is dropped.
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
    stopper: Arc<dyn Stopper>,
}

/// What a session does. Times are in microseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Doing {
    /// What the client calls itself.
    pub application_name: String,
    /// The statement that runs, or did last, as far as its text is kept.
    pub query: String,
    /// When that began.
    pub query_began: Option<i64>,
    /// When its transaction began.
    pub transaction_began: Option<i64>,
    /// When it last began or ended a statement.
    pub changed: i64,
    /// None: a statement runs.
    pub rests: Option<TransactionStatus>,
}

/// A session as others see it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its number.
    pub number: i32,
    /// The name that it logged in with.
    pub user: String,
    /// The role that it logged in as; None: one that the catalog does not know.
    pub role: Option<u32>,
    /// Where its client has connected from.
    pub client: Option<SocketAddr>,
    /// When it began, in microseconds since 1970.
    pub began: i64,
    /// What it does.
    pub doing: Doing,
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
        let inner = Arc::new(Inner { number, user, role, client, began, doing, stopper });
        self.entries().insert(number, Arc::clone(&inner));
        Listed { inner, backends: Arc::clone(self) }
    }

    /// All that there are, by number.
    pub fn seen(&self) -> Vec<Seen> {
        self.entries().values().map(|entry| entry.seen()).collect()
    }

    /// The session of this number.
    pub fn find(&self, number: i32) -> Option<Seen> {
        self.entries().get(&number).map(|entry| entry.seen())
    }

    /// Ends what the session of this number does, or the session itself; whether there is one.
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
    /// Says that a statement of this text begins.
    pub fn begins(&self, sql: &str) {
        let now = SystemClock.wall();
        let mut doing = self.inner.doing();
        let end = sql.floor_char_boundary(QUERY_BYTES_MAX);
        doing.query.clear();
        doing.query.push_str(sql.get(..end).unwrap_or_default());
        doing.query_began = Some(now);
        doing.transaction_began.get_or_insert(now);
        (doing.changed, doing.rests) = (now, None);
    }

    /// Says that none runs, and whether a transaction is open.
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

    /// Says what its client calls itself.
    pub fn is_called(&self, application_name: &str) {
        application_name.clone_into(&mut self.inner.doing().application_name);
    }
}

impl Inner {
    fn doing(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> Seen {
        Seen {
            number: self.number,
            user: self.user.clone(),
            role: self.role,
            client: self.client,
            began: self.began,
            doing: self.doing().clone(),
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
