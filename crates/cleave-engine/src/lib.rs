//! The storage engine: one database directory, open, without SQL.
//!
//! ```text
//!  changes ─▶ commit ─▶ log ─▶ delta ─▶ pages of devices ─▶ manifest
//!  snapshot ◀─ state + delta ◀┘
//! ```
//!
//! 1. [`storage_engine`]: the [`Engine`](storage_engine::Engine), what is committed, and the step from one commit to
//!    the next.
//! 2. [`log`]: what small commits change, durable before pages are; [`delta`]: the same in memory until it becomes
//!    pages; [`versions`]: older states, for `as_of`; [`sequences`]: numbers that nobody gets twice.
//! 3. [`mod@write`]: rows in: appends, loads, index builds, vacuum. [`statistics`]: what ANALYZE found, as it is
//!    stored.
//! 4. [`host_pages`] and [`buffer_pool`]: pages for the host's half of a query.
//! 5. [`device`]: links to devices, and the space on them, which the host owns.
//!
//! Invariants: the host reaches a device only through a `Link`, and names no device implementation; nothing here parses
//! or plans SQL.

pub mod buffer_pool;
pub mod delta;
pub mod device;
pub mod host_pages;
pub mod log;
pub mod sequences;
pub mod statistics;
pub mod storage_engine;
pub mod versions;
pub mod write;
