//! The storage engine: one open database directory, without SQL.
//!
//! ```text
//!  changes ─▶ commit ─▶ log ─▶ delta ─▶ pages of devices ─▶ manifest
//!  snapshot ◀─ catalog version + delta ◀┘
//! ```
//!
//! 1. [`storage_engine`]: the [`Engine`](storage_engine::Engine), what is committed, and the step from one commit to
//!    the next.
//! 2. [`log`]: the changes of small commits, durable before pages are; [`delta`]: the same in memory until it becomes
//!    pages; [`versions`]: older catalog versions, for `as_of` and [refreshes](refresh_bases); [`sequences`]: numbers
//!    that are given out once.
//! 3. [`mod@write`]: appends, loads, index builds, vacuum. [`statistics`]: the results of ANALYZE, as they are stored.
//! 4. [`host_pages`] and [`buffer_pool`]: pages for the host's half of a query.
//! 5. [`device`]: links to devices, and the space on them, which the host owns.
//! 6. [`address_file`]: where other processes reach the one that has the directory open.
//!
//! Invariants: the host reaches a device only through a `Link`, and names no device implementation; nothing here parses
//! or plans SQL.

pub mod address_file;
pub mod buffer_pool;
pub mod delta;
pub mod device;
pub mod host_pages;
pub mod log;
pub mod refresh_bases;
pub mod sequences;
pub mod space_holders;
pub mod statistics;
pub mod storage_engine;
pub mod versions;
pub mod write;
