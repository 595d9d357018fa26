//! Counters of ANALYZE by table, as `pg_stat_all_tables` shows them, and changes that VIDs do not tell.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cleave_media::{Clock, SystemClock};

/// What was done for the statistics of the tables of an open database, by table id.
#[derive(Debug, Default)]
pub struct Analyses(Mutex<BTreeMap<u32, TableAnalyses>>);

/// The same of one table, since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableAnalyses {
    /// By ANALYZE statements: their number, and the time of the last, in microseconds since 1970.
    pub by_statement: (u64, Option<i64>),
    /// By the database itself.
    pub by_itself: (u64, Option<i64>),
    /// Rows that updates have changed in place since.
    pub changed_in_place: u64,
}

impl Analyses {
    /// Notes that the table `id`, or with `is_whole` all its columns, was analysed now.
    pub fn note(&self, id: u32, by_itself: bool, is_whole: bool) {
        let mut tables = self.tables();
        let table = tables.entry(id).or_default();
        let (count, last) = match by_itself {
            true => &mut table.by_itself,
            false => &mut table.by_statement,
        };
        *count += 1;
        *last = Some(SystemClock.wall());
        if is_whole {
            table.changed_in_place = 0;
        }
    }

    /// Notes that `rows` of the table `id` were changed in place.
    pub fn note_changed(&self, id: u32, rows: u64) {
        let mut tables = self.tables();
        let changed = &mut tables.entry(id).or_default().changed_in_place;
        *changed = changed.saturating_add(rows);
    }

    /// What was done for the table `id`.
    pub fn of(&self, id: u32) -> TableAnalyses {
        self.tables().get(&id).copied().unwrap_or_default()
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<u32, TableAnalyses>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
