//! What materialized views were last refreshed from: for each view the catalog version that its rows are of, so that
//! the next refresh finds what has changed since.
//!
//! A version holds its pages (rule 30), as those of [`Versions`](crate::versions) do, and both are given up by one
//! rule: where what is held is as much as half of what is in use, or a device is full, the oldest go. All go before a
//! device is removed. A refresh without a base computes all rows.
//!
//! Invariant: a base belongs to certain rows of its view, which it names. One that a rollback has left behind names
//! rows that the view does not have. In memory alone: nothing is kept over a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_catalog::catalog::same_rows::TableRows;
use cleave_catalog::catalog::view::Materialized;
use cleave_catalog::catalog::{CatalogState, TableState};

/// Views of which a base is held.
const COUNT_MAX: usize = 64;

/// What a view was refreshed from.
#[derive(Debug)]
pub struct RefreshBase {
    /// The catalog version that the refresh has read, with all rows in pages.
    pub read: Arc<CatalogState>,
    query: Arc<Materialized>,
    rows: TableRows,
}

impl RefreshBase {
    /// That of the view `view`, as it is with the rows that its query has in `read`; None: it is no materialized view.
    #[must_use]
    pub fn new(view: &TableState, read: Arc<CatalogState>) -> Option<Self> {
        let query = Arc::clone(view.materialized.as_ref()?);
        Some(Self { read, query, rows: TableRows::of(view) })
    }

    /// Whether the view of `state` has the rows, and the query, that this is of.
    #[must_use]
    pub fn is_of(&self, view: &TableState, state: &CatalogState) -> bool {
        view.materialized.as_ref() == Some(&self.query) && self.rows.are_in(state)
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct RefreshBases {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// By the id of the view, each with its number, which ascends with time.
    bases: BTreeMap<u32, (u64, Arc<RefreshBase>)>,
    last_number: u64,
}

impl RefreshBases {
    /// The base of the view `id`.
    pub fn get(&self, id: u32) -> Option<Arc<RefreshBase>> {
        self.held().bases.get(&id).map(|(_, base)| Arc::clone(base))
    }

    /// Holds `base` of the view `id`; None: what is held of it goes.
    pub fn put(&self, id: u32, base: Option<RefreshBase>) {
        let mut held = self.held();
        held.bases.remove(&id);
        let Some(base) = base else { return };
        while held.bases.len() >= COUNT_MAX {
            held.drop_oldest();
        }
        held.last_number += 1;
        let number = held.last_number;
        held.bases.insert(id, (number, Arc::new(base)));
    }

    /// Gives all of them up.
    pub(crate) fn clear(&self) {
        self.held().bases.clear();
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.held().bases.is_empty()
    }

    /// Gives up the oldest, and those whose view `state` does not have; false where there is none.
    pub(crate) fn give_up_oldest(&self, state: &CatalogState) -> bool {
        let mut held = self.held();
        let count = held.bases.len();
        held.bases.retain(|id, _| state.has_table_id(*id));
        if held.bases.len() == count {
            held.drop_oldest();
        }
        held.bases.len() < count
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn drop_oldest(&mut self) {
        let oldest = self.bases.iter().min_by_key(|(_, (number, _))| *number);
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.bases.remove(&id);
        }
    }
}
