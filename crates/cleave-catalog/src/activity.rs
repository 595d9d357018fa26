//! Counters of the work of a database's statements since it was opened: the table `cleave.activity`.
//!
//! Unlike times, they prove whether a statement ran on a fast path without a plan, and left the delta as it was.

pub mod analyses;
pub mod vacuums;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

use crate::error::Result;

/// Name of the table.
pub const TABLE: &str = "activity";

/// A counted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A query was planned: a statement's, or one over the rows that it has changed.
    Plan,
    /// One of these used a cached plan of the same query.
    CachedPlan,
    /// One of them gave a held result instead.
    ReusedResult,
    /// A query of WITH was written to a device.
    Stage,
    /// One was there already.
    ReusedStage,
    /// Rows were looked up by an index, on a fast path.
    LookUp,
    /// The delta was flushed to pages because a statement was planned.
    Flush,
    /// The delta was shipped with a planned statement.
    ShippedDelta,
    /// An update fragment changed the pages of a tablet.
    UpdateFragment,
    /// A fragment locked the rows of a query.
    LockingFragment,
    /// A fragment made a run of an index from rows.
    IndexFragment,
    /// The changes of a transaction were made pages in memory for its planned statements.
    ShippedOwn,
    /// A materialized view was refreshed by what has changed since its last refresh.
    RefreshByChanges,
    /// Rows or definitions were committed.
    Commit,
    /// A transaction block was rolled back.
    Rollback,
    /// A checkpoint was written.
    Checkpoint,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Activity {
    counts: [AtomicU64; Act::ALL.len()],
}

impl Act {
    const ALL: [Self; 16] = [
        Self::Plan,
        Self::CachedPlan,
        Self::ReusedResult,
        Self::Stage,
        Self::ReusedStage,
        Self::LookUp,
        Self::Flush,
        Self::ShippedDelta,
        Self::UpdateFragment,
        Self::LockingFragment,
        Self::IndexFragment,
        Self::ShippedOwn,
        Self::RefreshByChanges,
        Self::Commit,
        Self::Rollback,
        Self::Checkpoint,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Plan => "plans",
            Self::CachedPlan => "cached plans",
            Self::ReusedResult => "reused results",
            Self::Stage => "stages",
            Self::ReusedStage => "reused stages",
            Self::LookUp => "look-ups",
            Self::Flush => "flushes",
            Self::ShippedDelta => "shipped delta",
            Self::UpdateFragment => "update fragments",
            Self::LockingFragment => "locking fragments",
            Self::IndexFragment => "index fragments",
            Self::ShippedOwn => "shipped own changes",
            Self::RefreshByChanges => "refreshes by changes",
            Self::Commit => "commits",
            Self::Rollback => "rollbacks",
            Self::Checkpoint => "checkpoints",
        }
    }
}

impl Activity {
    /// Counts one event.
    pub fn note(&self, act: Act) {
        if let Some(count) = self.counts.get(act as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The count of an event.
    #[must_use]
    pub fn count(&self, act: Act) -> u64 {
        self.counts.get(act as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// All counts, with their names.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Act::ALL.into_iter().map(|act| (act.name(), self.count(act)))
    }

    /// The table's rows.
    ///
    /// # Errors
    /// None that a statement can cause.
    pub fn batch(&self) -> Result<RecordBatch> {
        let schema = Schema::new(vec![
            Field::new("what", DataType::Utf8, false),
            Field::new("count", DataType::Int64, false),
        ]);
        let names: StringArray = Act::ALL.iter().map(|act| Some(act.name())).collect();
        let counts = Act::ALL.iter().map(|act| i64::try_from(self.count(*act)).unwrap_or(i64::MAX));
        let counts = Int64Array::from_iter_values(counts);
        Ok(RecordBatch::try_new(Arc::new(schema), vec![Arc::new(names), Arc::new(counts)])?)
    }
}
