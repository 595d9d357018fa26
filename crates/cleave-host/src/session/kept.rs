//! Memory that a session keeps for its client from one statement to the next: prepared statements, portals with their
//! values, cursors, and a message of which only a part has come.
//!
//! ```text
//!  Kept ─┐
//!  Kept ─┼─▶ KeptMemory: one a session ─▶ all sessions ─▶ the pool that all queries share
//!  Kept ─┘
//! ```
//! Nobody who waits for his statement's end gives this memory back, so it has limits of its own: one session keeps a
//! part of the memory of queries, and all together leave the rest to queries.
//!
//! Invariant: memory is charged before it is taken. Of a session, [`FREE_BYTES`] are not charged, so that short
//! statements do not meet at the pool.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_catalog::error::{Error, Result};
use datafusion::error::DataFusionError;

use super::charge::Charge;
use crate::database::Database;

/// The part of the memory of queries that one session may keep: one in so many.
const SESSION_SHARE: usize = 4;
/// The same of all sessions.
const ALL_SHARE: usize = 2;
/// What a session may keep at least.
const SESSION_BYTES_MIN: usize = 1 << 20;
/// Bytes that a session keeps without a charge; above, so many are charged at once.
const FREE_BYTES: usize = 256 << 10;

/// Bytes that all sessions of a database keep.
#[derive(Debug, Default)]
pub(crate) struct KeptByAll(AtomicUsize);

/// The memory that one session keeps for its client from one statement to the next.
pub struct KeptMemory {
    database: Arc<Database>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    bytes: usize,
    /// What is charged for them.
    charged: usize,
    charge: Option<Charge>,
}

/// A part of what a session keeps, given back when it is dropped.
#[derive(Debug)]
pub struct Kept {
    memory: Arc<KeptMemory>,
    what: &'static str,
    bytes: usize,
}

impl KeptMemory {
    /// Of a session that keeps nothing yet.
    pub(super) fn of(database: &Arc<Database>) -> Arc<Self> {
        Arc::new(Self { database: Arc::clone(database), inner: Mutex::default() })
    }

    /// Keeps `bytes` of `what`, a plural.
    ///
    /// # Errors
    /// 53200: the session, or all sessions, would keep more than they may.
    pub fn keep(self: &Arc<Self>, what: &'static str, bytes: usize) -> Result<Kept> {
        let mut kept = Kept { memory: Arc::clone(self), what, bytes: 0 };
        kept.set(bytes)?;
        Ok(kept)
    }

    fn change(&self, what: &'static str, before: usize, now: usize) -> Result<()> {
        let mut inner = self.inner();
        let bytes = inner.bytes.saturating_sub(before).saturating_add(now);
        let charged = match bytes > FREE_BYTES {
            true => bytes.checked_next_multiple_of(FREE_BYTES).unwrap_or(usize::MAX),
            false => 0,
        };
        if charged > inner.charged {
            self.charge(&mut inner, what, charged)?;
        } else if charged < inner.charged {
            self.database.kept.0.fetch_sub(inner.charged - charged, Ordering::Relaxed);
            match &inner.charge {
                Some(charge) if charged > 0 => charge.set(charged)?,
                _ => inner.charge = None,
            }
        }
        (inner.bytes, inner.charged) = (bytes, charged);
        Ok(())
    }

    /// Charges `charged` in total, which is more than before.
    fn charge(&self, inner: &mut Inner, what: &'static str, charged: usize) -> Result<()> {
        let limit = self.database.query_memory_max();
        let own_max = (limit / SESSION_SHARE).max(SESSION_BYTES_MIN);
        let more = charged - inner.charged;
        if charged > own_max {
            return Err(refused(what, more, ("a session keeps", own_max, inner.charged)));
        }
        let (of_all, all_max) = (&self.database.kept.0, (limit / ALL_SHARE).max(own_max));
        let fits = |all: usize| all.checked_add(more).filter(|all| *all <= all_max);
        of_all
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map_err(|all| refused(what, more, ("all sessions keep", all_max, all)))?;
        let charge =
            inner.charge.get_or_insert_with(|| Charge::named(&self.database, "what sessions keep"));
        charge.set(charged).inspect_err(|_| {
            of_all.fetch_sub(more, Ordering::Relaxed);
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeptMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeptMemory").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Kept {
    /// Keeps so many bytes from now on; where that is refused, as many as before.
    ///
    /// # Errors
    /// As [`KeptMemory::keep`]; never if they become fewer.
    pub fn set(&mut self, bytes: usize) -> Result<()> {
        if bytes != self.bytes {
            self.memory.change(self.what, self.bytes, bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        self.database.kept.0.fetch_sub(self.inner().charged, Ordering::Relaxed);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // To keep fewer bytes is never refused.
        drop(self.set(0));
    }
}

fn refused(what: &str, more: usize, (who, max, now): (&str, usize, usize)) -> Error {
    let message = format!(
        "out of memory: {what} need {more} bytes more; of --query-memory, {who} {max} bytes at most, and {now} are \
         in use"
    );
    DataFusionError::ResourcesExhausted(message).into()
}
