//! What vacuum has done, as `pg_stat_all_tables` shows it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cleave_media::{Clock, SystemClock};

/// What vacuum has done to the tables of an open database, by their ids.
#[derive(Debug, Default)]
pub struct Vacuums(Mutex<BTreeMap<u32, TableVacuums>>);

/// What vacuum has done to one table since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableVacuums {
    /// By statements: how often, and when the last time, in microseconds since 1970.
    pub by_statement: (u64, Option<i64>),
    /// By itself.
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

    /// What was done to the table `id`.
    pub fn of(&self, id: u32) -> TableVacuums {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get(&id).copied().unwrap_or_default()
    }
}
