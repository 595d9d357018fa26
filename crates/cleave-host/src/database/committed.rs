//! What is committed: the state and the delta behind it, for those who read one, the other or both.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use futures::future::{Either, select};

use super::Database;
use crate::catalog::CatalogState;
use crate::catalog::commit::Transaction;
use crate::delta::Live;
use crate::error::Result;

impl Database {
    /// The present tables, and their pages, in which the last small commits may not be yet. Hold it for as long as pages that
    /// it names are read.
    pub fn catalog(&self) -> Arc<CatalogState> {
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner).state)
    }

    /// All that is committed.
    pub(crate) fn live(&self) -> Live {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state of the last commit, all of which is in pages: what a plan reads.
    ///
    /// # Errors
    /// Those of the device, where there was something to write.
    pub async fn settled(self: &Arc<Self>) -> Result<Arc<CatalogState>> {
        loop {
            let told = self.settled.notified();
            let live = self.live();
            if live.delta.is_empty() {
                return Ok(live.state);
            }
            // A large write that has the turn has settled first, and is not waited for.
            let turn = self.writer_turn();
            match select(std::pin::pin!(told), std::pin::pin!(turn)).await {
                Either::Left(_) => {}
                Either::Right((turn, _)) => {
                    drop(Box::pin(Transaction::settle(self, turn)).await?);
                }
            }
        }
    }

    /// What a session holds as long as it is there.
    pub(crate) fn session_place(&self) -> Arc<()> {
        Arc::clone(&self.sessions)
    }

    /// Whether no more than one session is there.
    pub(crate) fn has_one_session(&self) -> bool {
        Arc::strong_count(&self.sessions) <= 2
    }

    /// Makes a small commit, whose changes are in the delta, what new statements see.
    pub(crate) fn publish_small(&self, number: u64, log_end: u64) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.number = number;
        live.log_end = log_end;
        self.versions.note_commit();
    }

    /// How often something else than a small commit has changed rows, keys or tables.
    pub(crate) fn rewritten_count(&self) -> u64 {
        self.rewritten_count.load(Ordering::Acquire)
    }

    /// Notes that something else than a small commit does.
    pub(crate) fn note_rewritten(&self) {
        self.rewritten_count.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes `state` what new statements see.
    pub(crate) fn publish(&self, state: Arc<CatalogState>) {
        self.note_published(&state);
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Live::settled(state);
        self.settled.notify_waiters();
    }
}
