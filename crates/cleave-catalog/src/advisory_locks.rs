//! Advisory locks: numbers with a meaning of the user's own, locked until the session unlocks them or its transaction
//! ends.
//!
//! 1. [`AdvisoryLocks`] are those of one session. A lock of the session has an owner of its own in the host's lock
//!    table, and a count: it is free when it was unlocked as often as it was locked, or when the session ends. ROLLBACK
//!    leaves it.
//! 2. A lock of a transaction belongs to the transaction's owner: it ends with the transaction, and ROLLBACK TO frees
//!    those taken after the savepoint. Outside of a block it lasts as long as the statement.
//! 3. All owners of a session are in one [`LockGroup`]: they never conflict with each other, and a deadlock cycle
//!    through any of them is found.
//! 4. A query locks and unlocks only while its [`Stop`] is not raised, and the session raises it before it ends the
//!    statement. So a thread that still works for a failed query changes no lock of the session's next statement.
//!
//! Source: PostgreSQL's manual, "Advisory Locks" and "Advisory Lock Functions".

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cleave_fragment::{Stop, waiting};
use cleave_txn::{LockGroup, LockKey, LockMode, LockOwner, Locks, Requested, TransactionId};

use crate::error::{Error, Fault, Result};
use crate::settings::Limits;

/// The lock table, and a source of ids for new owners.
#[derive(Clone, Copy)]
pub struct NewOwners<'a> {
    /// All locks of the host.
    pub locks: &'a Arc<Locks>,
    /// Returns an id that no owner had since the database was opened.
    pub draw_id: &'a (dyn Fn() -> TransactionId + Sync),
}

/// The advisory locks of one session. See the module's description.
#[derive(Debug, Clone)]
pub struct AdvisoryLocks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    group: LockGroup,
    state: Mutex<AdvisoryInner>,
}

#[derive(Debug, Default)]
struct AdvisoryInner {
    /// The session's own locks, each with its count.
    session: BTreeMap<(LockKey, LockMode), (u32, Owned)>,
    /// The owner of the current transaction.
    transaction: Weak<LockOwner>,
    /// Locks requested so far; lowered only at the transaction's end, or by a rollback to a savepoint.
    transaction_count: usize,
    /// The owner of a statement outside of a transaction.
    statement: Option<Owned>,
}

impl AdvisoryInner {
    /// Fails if the session has as many locks as `limits` allow.
    fn check_room(&mut self, limits: &Limits) -> Result<()> {
        if self.transaction.strong_count() == 0 && self.statement.is_none() {
            self.transaction_count = 0;
        }
        let count_max = limits.advisory_locks as usize;
        match self.session.len() + self.transaction_count < count_max {
            true => Ok(()),
            false => Err(Error::Invalid {
                message: format!(
                    "out of shared memory: the session has {count_max} advisory locks; raise the \
                        setting advisory_locks_max"
                ),
                fault: Fault::TooManyLocks,
                position: None,
            }),
        }
    }
}

/// The duration of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Span {
    /// Until it is unlocked, or the session ends.
    Session,
    /// Until the transaction ends.
    Transaction,
}

/// An owner whose locks are free when it is dropped.
#[derive(Debug)]
struct Owned {
    locks: Arc<Locks>,
    owner: Arc<LockOwner>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.locks.release_all(&self.owner);
    }
}

impl AdvisoryLocks {
    /// No locks yet, for the connection with this number.
    #[must_use]
    pub fn new(backend: i32) -> Self {
        Self(Arc::new(Inner { group: LockGroup::new(backend), state: Mutex::default() }))
    }

    /// The group of all owners of the session.
    pub fn group(&self) -> LockGroup {
        self.0.group
    }

    /// Sets the owner of the transaction's locks from now on.
    pub fn begin(&self, owner: &Arc<LockOwner>) {
        let mut state = self.state();
        state.transaction = Arc::downgrade(owner);
        state.transaction_count = 0;
    }

    /// Frees the locks of a statement outside of a transaction.
    pub fn end_statement(&self) {
        let mut state = self.state();
        let ended = state.statement.take();
        if ended.is_some() {
            state.transaction_count = 0;
        }
        drop(state);
        drop(ended);
    }

    /// Locks `key`; false if others have it, and `timeout_ms` says not to wait (0: no limit).
    ///
    /// # Errors
    /// [`Error::Conflict`] for a deadlock or a timeout; [`Fault::TooManyLocks`].
    pub async fn lock(
        &self,
        (owners, limits, stop): (NewOwners<'_>, &Limits, &Stop),
        (key, mode, span): (LockKey, LockMode, Span),
        timeout_ms: Option<u64>,
    ) -> Result<bool> {
        let owned = match span {
            Span::Transaction => {
                let owner = self.transaction_owner(owners, limits, stop)?;
                let before = owner.lock_count();
                let locks = owners.locks;
                let is_locked = lock(locks, &owner, (key, mode), timeout_ms).await?;
                self.state().transaction_count += usize::from(owner.lock_count() > before);
                return Ok(is_locked);
            }
            Span::Session => {
                let mut state = self.running(stop)?;
                if let Some((count, _)) = state.session.get_mut(&(key, mode)) {
                    *count = count.saturating_add(1);
                    return Ok(true);
                }
                state.check_room(limits)?;
                self.new_owner(owners)
            }
        };
        let is_locked = lock(&owned.locks, &owned.owner, (key, mode), timeout_ms).await?;
        if is_locked {
            self.running(stop)?.session.insert((key, mode), (1, owned));
        }
        Ok(is_locked)
    }

    /// Releases one lock of the session; returns whether it had it.
    ///
    /// # Errors
    /// If `stop` is raised.
    pub fn unlock(&self, key: LockKey, mode: LockMode, stop: &Stop) -> Result<bool> {
        let mut state = self.running(stop)?;
        let Some((count, _)) = state.session.get_mut(&(key, mode)) else { return Ok(false) };
        *count = count.saturating_sub(1);
        if *count == 0 {
            let ended = state.session.remove(&(key, mode));
            drop(state);
            drop(ended);
        }
        Ok(true)
    }

    /// Releases all locks of the session.
    ///
    /// # Errors
    /// If `stop` is raised.
    pub fn unlock_all(&self, stop: &Stop) -> Result<()> {
        let ended = std::mem::take(&mut self.running(stop)?.session);
        drop(ended);
        Ok(())
    }

    /// The state, for a running query. The session raises `stop`, then changes the state: a caller that finds it not
    /// raised here comes before that.
    fn running(&self, stop: &Stop) -> Result<MutexGuard<'_, AdvisoryInner>> {
        let state = self.state();
        stop.check()?;
        Ok(state)
    }

    /// The owner of the transaction's next lock, or the statement's outside of a block.
    fn transaction_owner(
        &self,
        owners: NewOwners<'_>,
        limits: &Limits,
        stop: &Stop,
    ) -> Result<Arc<LockOwner>> {
        let mut state = self.running(stop)?;
        state.check_room(limits)?;
        Ok(state.transaction.upgrade().unwrap_or_else(|| {
            if state.statement.is_none() {
                state.transaction_count = 0;
            }
            Arc::clone(&state.statement.get_or_insert_with(|| self.new_owner(owners)).owner)
        }))
    }

    fn new_owner(&self, owners: NewOwners<'_>) -> Owned {
        let owner = LockOwner::in_group((owners.draw_id)(), self.0.group);
        Owned { locks: Arc::clone(owners.locks), owner }
    }

    fn state(&self) -> MutexGuard<'_, AdvisoryInner> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn lock(
    locks: &Arc<Locks>,
    owner: &Arc<LockOwner>,
    (key, mode): (LockKey, LockMode),
    timeout_ms: Option<u64>,
) -> Result<bool> {
    match timeout_ms {
        None => locks.try_lock(owner, key, mode).map_err(|error| Error::lock(&error)),
        Some(timeout_ms) => lock_within(locks, owner, (key, mode), timeout_ms).await.map(|()| true),
    }
}

/// Locks `key` for `owner`.
///
/// # Errors
/// [`Error::Conflict`] for a deadlock, or after `timeout_ms` (0: no limit).
pub async fn lock_within(
    locks: &Arc<Locks>,
    owner: &Arc<LockOwner>,
    (key, mode): (LockKey, LockMode),
    timeout_ms: u64,
) -> Result<()> {
    let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
    let requested = locks.request(owner, key, mode);
    let wait = match requested.map_err(|error| Error::lock(&error))? {
        Requested::Granted => return Ok(()),
        Requested::Waiting(wait) => wait,
    };
    let Some(limit) = timeout else {
        return wait.await.map_err(|error| Error::lock(&error));
    };
    let mut wait = wait;
    match waiting::timeout(limit, &mut wait).await {
        Some(outcome) => outcome.map_err(|error| Error::lock(&error)),
        None => wait.give_up().map_err(|error| Error::lock(&error)),
    }
}

impl Default for AdvisoryLocks {
    fn default() -> Self {
        Self::new(0)
    }
}

/// Clients are equal whatever locks they have.
impl PartialEq for AdvisoryLocks {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for AdvisoryLocks {}

impl Hash for AdvisoryLocks {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}
