//! What is committed: the state and the delta behind it, for those who read one, the other or both.

use std::sync::{Arc, PoisonError};

use futures::future::{Either, select};

use super::Engine;
use crate::activity::Act;
use crate::catalog::CatalogState;
use crate::delta::Live;
use crate::error::Result;

impl Engine {
    /// The present tables, and their pages, in which the last small commits may not be yet. Hold it for as long as
    /// pages that it names are read.
    pub fn catalog(&self) -> Arc<CatalogState> {
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner).state)
    }

    /// All that is committed.
    pub(crate) fn live(&self) -> Live {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A state in whose pages all is that is committed by now: what a plan reads.
    ///
    /// # Errors
    /// Those of the device, where there was something to write.
    pub async fn settled(self: &Arc<Self>) -> Result<Arc<CatalogState>> {
        self.retry_held("").await;
        let mut wanted = None;
        loop {
            let told = self.flushed.notified();
            let live = self.live();
            let wanted = *wanted.get_or_insert(live.state.commit + live.number);
            if live.delta.is_settled() || live.state.commit >= wanted {
                return Ok(live.state);
            }
            // A large write that has the writer lock has settled first, and is not waited for; nor is anyone who settles for
            // others.
            let settling = Box::pin(self.flush_now());
            match select(std::pin::pin!(told), settling).await {
                Either::Left(_) => {}
                Either::Right((settled, _)) => settled?,
            }
        }
    }

    /// The same for who only reads it, and builds nothing on it: rows that take at most `bytes_max` in memory become no
    /// pages of devices, but are [passed along](crate::delta::passed).
    ///
    /// # Errors
    /// As [`Engine::settled`].
    pub(crate) async fn passed_along(
        self: &Arc<Self>,
        bytes_max: u64,
    ) -> Result<Arc<CatalogState>> {
        let live = self.live();
        let is_small = bytes_max > 0 && live.delta.is_within(bytes_max);
        // Of a device that is away the table is to be held, and who commits to be told.
        if live.delta.is_settled() || !is_small || !self.is_whole(&live.state) {
            return self.settled().await;
        }
        self.activity().note(Act::PassedAlong);
        self.last_passed.state(&live)
    }
}
