//! Filter history: which rows of a page a condition is true for, kept by the side that has evaluated it.
//!
//! ```text
//!  scan ─▶ formula of a condition: AND, OR, NOT over leaves ─▶ rows of a page, per leaf ─┐
//!            │ not known: evaluated over all rows of the page, and noted                   ├▶ rows left, or the page
//!            └ a wider leaf is known: its rows are all that may be left                    ┘  is not read at all
//! ```
//!
//! 1. [`Formula::of`] takes a condition apart into [leaves](LeafKey): a column compared with a constant, found in a
//!    list, matched with a pattern, or NULL. `NOT` is pushed down to them.
//! 2. A [run](HistoryUse) numbers the leaves of its scans. What a leaf is true for is noted from the second run that
//!    has it, so that conditions that never come again cost nothing.
//! 3. [`FilterHistory::rows`] answers a formula for one page from what is known of its leaves;
//!    [`FilterHistory::note`] adds a leaf.
//! 4. Scans that are under way at the same time evaluate each other's leaves on the pages that they read (`live`).
//! 5. [`FilterHistory::foresee`] tells the planner how much of a scan is known.
//!
//! Invariants: rows are noted before visibility, for all rows of a page, and pages never change once something names
//! them, so that nothing here is ever out of date: dead rows are left out afterwards, by each reader for itself. A page
//! is known by where it is and the checksum of its header, which covers its chunks. Nothing is known of a condition
//! that may fail, nor of pages in memory. What is missing is evaluated; so the history changes time and never rows.
//!
//! Source: CORD, section V-E; `docs/design/filter-history.md`.

pub(crate) mod counts;
mod foreseen;
mod formula;
pub(crate) mod live;
mod rows;
mod store;

pub use counts::HistoryCounts;
pub use foreseen::KnownCount;
pub use formula::{CompareWith, Formula, Leaf, LeafKey, LeafKind};
pub use rows::{LeafRows, RowSet};
pub use store::{
    FILTER_HISTORY_BYTES, FilterHistory, HistoryFigures, HistoryMode, HistoryUse, LeafId, PageKey,
};

#[cfg(test)]
mod tests;
