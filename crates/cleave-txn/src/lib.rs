//! Transactions: locks, serializability checks and the write-ahead log; lock requests and log records in, durable and
//! ordered commits out.
//!
//! This crate does not interpret its users' data: payloads are bytes, objects and rows are numbers. In the order of a
//! transaction's life:
//!
//! 1. [`locks`]: [`Locks`] are exact, by (object, row), (object, key), table or transaction. Waiting is fair, ends in a
//!    grant, a deadlock error or a withdrawal, and can be awaited or blocked on.
//! 2. [`serializable`]: [`Dependencies`] tracks reads and writes of SERIALIZABLE transactions, and decides which of
//!    them must not commit.
//! 3. [`wal`]: [`Wal::append`] gives a record its place in the log, [`Wal::wait_durable`] shares one sync among all
//!    waiters.
//! 4. After a crash: [`LogReader`] returns the records, and [`Wal::resume`] continues behind them.
//!
//! ```text
//!  begin ──▶ lock … write ──▶ prepare ──▶ log record ──▶ published ──▶ durable ──▶ acknowledge
//!              │                │ no dangerous             │ visible       │ one sync for all
//!              └ wait, deadlock └ dependencies             └ from here     └ results that saw it may be sent
//! ```
//!
//! Invariants: this crate starts no runtime and knows neither SQL nor pages; files change through
//! [`cleave_media::files`] alone. Only durable commits are acknowledged; a failed sync is never retried.
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
