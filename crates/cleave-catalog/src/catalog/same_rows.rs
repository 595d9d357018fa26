//! Whether a table has the rows that it had at an earlier moment, without keeping that moment's pages.
//!
//! A VID is never given twice, a dead row stays dead, and each change of a stored page makes another directory of its
//! segment. So tablets that have given as many VIDs, have as many live rows, and have the same directories, have the
//! same rows. That holds along the commits of a database. It does not hold for uncommitted changes: two transactions
//! may both have inserted one row.
//!
//! Rows that were shipped are counted. Once they are flushed, a directory is another one, and the tables count as
//! different.

use std::sync::Arc;

use cleave_store::{SegmentDirectory, TableSchema};

use super::{CatalogState, TableState, TabletState};

/// The rows of a table at one moment.
#[derive(Debug, Clone)]
pub struct TableRows {
    schema: Arc<TableSchema>,
    tablets: Vec<TabletRows>,
}

#[derive(Debug, Clone)]
struct TabletRows {
    /// VIDs that were given, and live rows.
    counts: (u64, u64),
    /// Held, so that no other directory gets the address of one of them.
    heap: Vec<Arc<SegmentDirectory>>,
}

impl TableRows {
    /// Those of `table`, with what is shipped of it.
    #[must_use]
    pub fn of(table: &TableState) -> Self {
        let tablets = table.tablets.iter().map(|tablet| TabletRows::of(tablet)).collect();
        Self { schema: Arc::clone(&table.schema), tablets }
    }

    /// Whether the table has the same rows, and the same definition, in `state`. False also where a vacuum has written
    /// them anew.
    #[must_use]
    pub fn are_in(&self, state: &CatalogState) -> bool {
        state.table(&self.schema.name).is_some_and(|table| {
            Arc::ptr_eq(&table.schema, &self.schema)
                && table.tablets.len() == self.tablets.len()
                && self.tablets.iter().zip(&table.tablets).all(|(then, now)| then.are_of(now))
        })
    }
}

impl TabletRows {
    fn of(tablet: &TabletState) -> Self {
        Self { counts: counts(tablet), heap: tablet.indexed_heap().map(Arc::clone).collect() }
    }

    fn are_of(&self, tablet: &TabletState) -> bool {
        let mut now = tablet.indexed_heap();
        self.counts == counts(tablet)
            && self.heap.iter().all(|then| now.next().is_some_and(|now| Arc::ptr_eq(then, now)))
            && now.next().is_none()
    }
}

fn counts(tablet: &TabletState) -> (u64, u64) {
    (tablet.next_vid, tablet.row_count())
}
