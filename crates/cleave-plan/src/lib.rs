//! The planner's decisions: the order of inner joins, and where a plan is cut between host and device. Pure functions:
//! equal inputs give equal plans.
//!
//! In the order in which a statement passes through them:
//!
//! 1. [`statistics`]: the results of ANALYZE for a table and its columns.
//! 2. [`cardinality`]: how many rows a leaf keeps, from these, or from table sizes and the shape of its predicate; and
//!    how many leave each node of a physical plan.
//! 3. [`join_order`]: the inner joins of a logical plan in a new order, along join edges only.
//! 4. [`profile`]: what host, device and link can do. [`cost`]: what a split of the plan costs on them.
//! 5. [`split`]: which operators of a physical plan run on a device, the cuts, and the reasons for what stays on the
//!    host.
//! 6. [`pace`]: how many morsels of a run the host takes, and when, while both sides work.
//! 7. [`batch`]: which queries of a batch run at once.
//!
//! Deliberately absent: I/O, clocks, catalogs. Facts about tables come in through [`TableFacts`].

use std::sync::Arc;

use datafusion_common::ScalarValue;

pub mod batch;
pub mod cardinality;
pub mod cost;
pub mod join_order;
pub mod pace;
pub mod profile;
pub mod split;
pub mod statistics;

pub use cardinality::PlanEstimates;
pub use join_order::JoinedSamples;
pub use statistics::{ColumnStatistics, RowSample, SampledRows, StoredColumn, TableStatistics};

/// What the planner asks about tables.
pub trait TableFacts {
    /// Rows in `table`.
    fn row_count(&self, table: &str) -> Option<f64>;
    /// Different values in `column`, an estimate.
    fn distinct_count(&self, table: &str, column: &str) -> Option<f64>;
    /// What is known of the values of `column`.
    fn column(&self, _table: &str, _column: &str) -> ColumnFacts {
        ColumnFacts::default()
    }
    /// Some rows of `table`.
    fn sample(&self, _table: &str) -> Option<Arc<SampledRows>> {
        None
    }
    /// The cache of joined samples; None: there is no cache.
    fn joined_samples(&self) -> Option<&JoinedSamples> {
        None
    }
}

/// What is known of the values of a column; `None`: nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnFacts {
    /// Share of rows that are NULL.
    pub null_fraction: Option<f64>,
    /// No value is less.
    pub min: Option<ScalarValue>,
    /// No value is greater.
    pub max: Option<ScalarValue>,
    /// What ANALYZE found, of an older version.
    pub statistics: Option<Arc<ColumnStatistics>>,
}
