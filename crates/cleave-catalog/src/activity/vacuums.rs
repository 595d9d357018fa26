//! Counters of vacuum by table, as `pg_stat_all_tables` shows them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cleave_media::{Clock, SystemClock};

/// Vacuums of the tables of an open database, by table id.
#[derive(Debug, Default)]
pub struct Vacuums(Mutex<BTreeMap<u32, TableVacuums>>);

/// Vacuums of one table since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableVacuums {
    /// By VACUUM statements: their number, and the time of the last, in microseconds since 1970.
    pub by_statement: (u64, Option<i64>),
    /// By automatic vacuum.
    pub by_itself: (u64, Option<i64>),
}

impl Vacuums {
    /// Notes that the table `id` was vacuumed now.
    pub fn note(&self, id: u32, by_itself: bool) {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = tables.entry(id).or_default();
        let (count, last) = match by_itself {
            true => &mut table.by_itself,
            false => &mut table.by_statement,
        };
        *count += 1;
        *last = Some(SystemClock.wall());
    }

    /// The vacuums of the table `id`.
    pub fn of(&self, id: u32) -> TableVacuums {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get(&id).copied().unwrap_or_default()
    }
}
