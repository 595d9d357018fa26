//! Writing rows: one statement's rows become pages, durable and visible together or not at all.
//!
//! ```text
//!  rows ─▶ Conform ─┬─ few ──▶ insert: appended to the hot segment, keys to the memtable
//!                   └─ many ─▶ load:   a bulk segment, keys to a run of their own
//!                                 └─▶ SegmentSink ─▶ device
//! ```
//!
//! 1. Rows come as the table stores them; [`load::RowChecks`] evaluates CHECK constraints for those that are loaded.
//! 2. [`insert`] or [`load`] writes them to space that no catalog version names yet, and checks keys.
//! 3. [`route`] says which tablet each row goes to, [`unique`] checks keys that may lie in any tablet.
//! 4. [`build_index`] makes an index of existing rows; [`compact`] keeps the runs of an index few. [`merge_runs`]
//!    merges runs on the device where they lie, and [`vacuum`] leaves dead rows out of their segments: both are
//!    fragments that write ([`writing_fragment`]).
//! 5. [`change_pages`] changes columns of many rows, or marks them dead, by an update fragment. What a transaction has
//!    changed so waits as [`page_versions`] for its commit, while [`tail_pins`] keep pages in place; [`settled_pages`]
//!    says which pages can have versions. [`insert_pages`] adds pages with the rows of a query, which a fragment has
//!    written. [`logged_values`] redoes page versions on other pages than they were made of;
//!    [`version_writer`] writes those that the host makes.
//! 6. [`move_tablets`] copies tablets to other devices, beside readers and writers, also where [`balance_tablets`] says
//!    that they should lie; [`rebuild_tablets`] those of a restored database in place of lost ones. [`resync`] gives a
//!    copy of a mirror the pages that it lacks.
//! 7. The [edit](crate::storage_engine::catalog_edit) that they build commits, or leaves no trace.

pub mod balance_tablets;
pub mod begun;
pub mod build_index;
pub mod change_pages;
pub(crate) mod compact;
pub mod insert;
pub mod insert_pages;
pub(crate) mod key_run;
pub mod load;
pub mod logged_values;
pub(crate) mod merge_runs;
pub mod move_tablets;
mod new_rows;
pub mod page_versions;
pub mod rebuild_tablets;
pub mod resync;
pub mod route;
pub(crate) mod segment_sink;
pub mod settled_pages;
pub mod tail_pins;
pub mod unique;
pub mod vacuum;
mod version_writer;
pub mod vid_set;
pub mod writing_fragment;
