//! Indexes: rows of a table in, key → VID out.
//!
//! ```text
//!   rows ─▶ IndexKey ─▶ key bytes ─┬─ few ─▶ Memtable ──────────┬─▶ get, KeyMerge
//!                                  └─ many ─▶ KeySorter ─▶ RunWriter ─▶ pages ─▶ Run
//! ```
//!
//! 1. [`IndexKey`] turns key columns into bytes whose order is the order of the values.
//! 2. Few new keys stay in a [`Memtable`]; a bulk load sorts its keys with a [`KeySorter`].
//! 3. [`RunWriter`] writes sorted keys as a segment of index pages, which [`Run`] looks up and scans. A [filter] saves
//!    look-ups of keys that a run does not have.
//! 4. [`KeyMerge`] reads a memtable and runs as one sorted stream: to compact, or to check that keys are unique. A
//!    [`PageCursor`] reads pages of a run on a device, which knows their names and not the run's directory.
//!
//! Invariant: runs never change. The reader of an index checks each entry against the visible version of its row (rule
//! 16). Deliberately absent: duplicate entries. In an index that is not unique, the VID is part of the entry.

pub mod filter;
pub mod key;
pub mod memtable;
pub mod merge;
pub mod page_cursor;
mod page_entries;
pub mod run;
pub mod sorter;

pub use key::{INDEX_KEY_BYTES, INDEX_KEY_BYTES_MAX, IndexKey, KeyColumn, after_prefix};
pub use memtable::Memtable;
pub use merge::{KeyMerge, MergeSource};
pub use page_cursor::PageCursor;
pub use run::{FinishedRun, IndexEntry, KeyBlock, KeyRange, Run, RunCursor, RunWriter, Walk};
pub use sorter::KeySorter;

#[cfg(test)]
pub(crate) mod fixture;
