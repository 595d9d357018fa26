//! Tables whose pages stay as they are, because a transaction is making page versions of them.
//!
//! A flush of the delta replaces the last page of a hot segment by one with more rows. A page version of the replaced
//! page could not be committed. So an update fragment pins its table before it takes its snapshot, and until then and
//! the end of its transaction rows are appended to new pages only. Vacuum, the other writer that replaces pages, is
//! kept away by a lock of the table.
//!
//! Invariant: whoever publishes a longer last page, under the writer lock, has found no pin under the same hold of that
//! lock. A flush that writes without the lock ([`flush`](crate::storage_engine::commit)) looks again before it
//! publishes. So a transaction that pins a table, and then takes the lock once, keeps all pages that it reads from then
//! on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the [module](self). By table: how many transactions have pinned it.
#[derive(Debug, Default)]
pub struct TailPins(Mutex<BTreeMap<u32, usize>>);

/// A pinned table, until it is dropped.
#[derive(Debug)]
pub struct TailPin {
    pins: Arc<TailPins>,
    table: u32,
}

impl TailPins {
    /// Pins the table of this id.
    #[must_use]
    pub fn pin(self: &Arc<Self>, table: u32) -> TailPin {
        *self.pinned().entry(table).or_default() += 1;
        TailPin { pins: Arc::clone(self), table }
    }

    /// Whether the table of this id is pinned.
    pub(crate) fn has(&self, table: u32) -> bool {
        self.pinned().contains_key(&table)
    }

    fn pinned(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TailPin {
    fn drop(&mut self) {
        let mut pinned = self.pins.pinned();
        if let Some(count) = pinned.get_mut(&self.table) {
            *count -= 1;
            if *count == 0 {
                pinned.remove(&self.table);
            }
        }
    }
}
