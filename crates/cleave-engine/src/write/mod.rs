//! Rows in: one statement's rows become pages, durable and visible together or not at all.
//!
//! ```text
//!  rows ─▶ Conform ─┬─ few ──▶ insert: appended to the hot segment, keys to the memtable
//!                   └─ many ─▶ load:   a bulk segment, keys to a run of their own
//!                                 └─▶ SegmentSink ─▶ device
//! ```
//!
//! 1. Rows come as the table stores them; [`load::RowChecks`] asks what CHECK says of those that are loaded.
//! 2. [`insert`] or [`load`] writes them to space that no state names yet, and checks keys.
//! 3. [`route`] says which tablet each row goes to, [`unique`] checks keys of which no tablet knows all.
//! 4. [`build_index`] makes an index of rows that are there; [`compact`] keeps the runs of an index few. Runs are
//!    merged by [`merge_runs`], on the device where they lie, and dead rows are left out of their segments
//!    by [`vacuum`]: both are fragments that write ([`writing_fragment`]).
//! 5. The [edit](crate::storage_engine::catalog_edit) that both build commits, or leaves no trace.

pub mod begun;
pub mod build_index;
pub(crate) mod compact;
pub mod insert;
pub(crate) mod key_run;
pub mod load;
pub(crate) mod merge_runs;
pub mod route;
pub(crate) mod segment_sink;
pub mod unique;
pub mod vacuum;
pub mod vid_set;
pub mod writing_fragment;
