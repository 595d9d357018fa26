//! Where a statement is cut, and in which order it joins: pure functions, equal inputs, equal plan.
//!
//! In the order a statement passes through them:
//!
//! 1. [`cardinality`]: how many rows a leaf keeps, from table sizes and the shape of its predicate.
//! 2. [`join_order`]: the inner joins of a logical plan in a new order, along join edges only.
//! 3. [`split`]: which operators of a physical plan run on a device, the cuts, and for what stays
//!    on the host, why.
//!
//! Deliberately absent: I/O, clocks, catalogs. Facts about tables come in through [`TableFacts`].

use datafusion_common::ScalarValue;

pub mod cardinality;
pub mod join_order;
pub mod split;

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
}
