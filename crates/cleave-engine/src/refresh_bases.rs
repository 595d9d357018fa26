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
use std::time::Duration;

use cleave_catalog::catalog::same_rows::TableRows;
use cleave_catalog::catalog::view::Materialized;
use cleave_catalog::catalog::{CatalogState, TableState};

/// Views of which a base is held.
const COUNT_MAX: usize = 64;

/// What a refresh by changes takes for a changed row, in seconds, where no refresh of the view tells (measured).
const SECONDS_A_ROW: f64 = 1.2e-6;
/// Planning and committing a refresh by changes take as long as so many changed rows.
const ROWS_OF_NOTHING: f64 = 14_000.0;

/// How long the last refreshes of a view took.
#[derive(Debug, Clone, Copy)]
pub struct RefreshTimes {
    /// Computing all rows.
    all: Duration,
    /// By changes: for each changed row, in seconds.
    row: f64,
}

impl RefreshTimes {
    /// Those of a refresh that has computed all rows.
    #[must_use]
    pub fn of_all(all: Duration) -> Self {
        // What was slow once is tried again.
        Self { all, row: SECONDS_A_ROW }
    }

    /// With those of a refresh that has followed so many changes.
    #[must_use]
    pub fn of_changes(self, changes: Duration, changed_rows: u64) -> Self {
        Self { row: changes.as_secs_f64() / (changed_rows as f64 + ROWS_OF_NOTHING), ..self }
    }

    /// With tables that have `share` times the rows.
    #[must_use]
    pub fn of_tables(self, share: f64) -> Self {
        Self {
            all: Duration::try_from_secs_f64(self.all.as_secs_f64() * share).unwrap_or(self.all),
            ..self
        }
    }

    /// What computing all rows is expected to take.
    #[must_use]
    pub fn all(&self) -> Duration {
        self.all
    }

    /// What following so many changes is expected to take.
    #[must_use]
    pub fn by_changes(&self, changed_rows: u64) -> Duration {
        let seconds = self.row * (changed_rows as f64 + ROWS_OF_NOTHING);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// What a view was refreshed from.
#[derive(Debug)]
pub struct RefreshBase {
    /// The catalog version that the refresh has read, with all rows in pages.
    pub read: Arc<CatalogState>,
    /// How long refreshes took.
    pub times: RefreshTimes,
    query: Arc<Materialized>,
    rows: TableRows,
}

impl RefreshBase {
    /// That of the view `view`, as it is with the rows that its query has in `read`; None: it is no materialized view.
    #[must_use]
    pub fn new(view: &TableState, read: Arc<CatalogState>, times: RefreshTimes) -> Option<Self> {
        let query = Arc::clone(view.materialized.as_ref()?);
        Some(Self { read, times, query, rows: TableRows::of(view) })
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RefreshTimes;

    #[test]
    fn times_follow_what_refreshes_took() {
        let ms = Duration::from_millis;
        let whole = RefreshTimes::of_all(ms(100));
        assert!(whole.by_changes(0) > ms(10) && whole.by_changes(100_000) > whole.all());
        let slow = whole.of_changes(ms(300), 1000);
        assert!(slow.by_changes(1000).abs_diff(ms(300)) < ms(1));
        assert!(slow.by_changes(10) < ms(300) && slow.by_changes(10) > slow.all());
        assert_eq!(slow.of_tables(2.5).all(), ms(250));
        assert_eq!(RefreshTimes::of_all(ms(90)).by_changes(0), whole.by_changes(0));
    }
}
