//! Begin, lock, log, commit, recover: records in, durable and ordered commits out.
//!
//! What enters is what a transaction wants to lock and what it wants to have written; what leaves is whether it may,
//! and when it is durable. This crate does not know what its users write: payloads are bytes, objects and rows are
//! numbers. In the order of a transaction's life:
//!
//! 1. [`locks`]: [`Locks`] are exact, by (object, row), (object, key), table or transaction; waiting is fair, ends in a
//!    grant, a deadlock or a withdrawal, and can be awaited or blocked on.
//! 2. [`serializable`]: [`Dependencies`] knows what the transactions of level SERIALIZABLE have read and written, and
//!    says which of them must not commit.
//! 3. [`wal`]: [`Wal::append`] gives a record its place in the log, [`Wal::wait_durable`] shares one sync among all
//!    that wait.
//! 4. After a crash: [`LogReader`] gives the records back, and [`Wal::resume`] goes on behind them.
//!
//! ```text
//!  begin ──▶ lock … write ──▶ prepare ──▶ log record ──▶ published ──▶ durable ──▶ acknowledge
//!              │                │ no dangerous             │ seen from     │ one sync for all
//!              └ wait, deadlock └ dependencies             └ here          └ results that saw it may leave
//! ```
//!
//! Invariants: this crate starts no runtime and knows neither SQL nor pages; files change through
//! [`cleave_media::files`] alone. Nothing is acknowledged that is not durable; a sync that failed is never tried again.
//! Source: `docs/design/versions-and-commit.md`; rules 19 to 30; the Update NDP paper, 5 and 6.

pub mod locks;
pub mod serializable;
pub mod transaction;
pub mod wal;

pub use locks::{
    LockError, LockGroup, LockKey, LockMode, LockOwner, LockStatus, LockWait, Locks, Requested,
};
pub use serializable::{Dependencies, KeySpan, Safety, SerializationFailure, Tracked, Written};
pub use transaction::TransactionId;
pub use wal::{
    Appended, Durable, LogError, LogFigures, LogOptions, LogReader, LogRecord, Lsn, Record, Wal,
    release_reserve, reserve_for_start,
};
