//! Begin, lock, log, commit, recover: records in, durable and ordered commits out.
//!
//! What enters is what a transaction wants to lock and what it wants to have written; what leaves is whether it may,
//! and when it is durable. This crate does not know what its users write: payloads are bytes, objects and rows are
//! numbers. In the order of a transaction's life:
//!
//! 1. [`transaction`]: [`Transactions::begin`] gives a [`Transaction`] its id; [`snapshot`]: [`Transactions::snapshot`]
//!    says what it sees, and is remembered until dropped, so that nothing it needs is vacuumed.
//! 2. [`locks`]: [`Locks`] are exact, by (object, row), (object, key), table or transaction; waiting is fair, ends in a
//!    grant, a deadlock or a withdrawal, and can be awaited or blocked on.
//! 3. [`wal`]: [`Wal::append`] gives a record its place in the log, [`Wal::wait_durable`] shares one sync among all that
//!    wait.
//! 4. [`transaction`] again: [`Transactions::pre_commit`] gives commit numbers in the order of the log; others see the
//!    commit from then on, and it is acknowledged once its record is durable.
//! 5. After a crash: [`LogReader`] gives the records back, and [`Wal::resume`] goes on behind them.
//!
//! ```text
//!  begin ──▶ lock … write ──▶ pre-commit ─────────▶ harden ──▶ acknowledge
//!              │                │ log record, number   │ one sync for all
//!              └ wait, deadlock └ visible from here    └ results that saw it may leave
//! ```
//!
//! Invariants: this crate starts no runtime and knows neither SQL nor pages; files change through
//! [`cleave_media::files`] alone. Nothing is acknowledged that is not durable; a sync that failed is never tried again.
//! Source: `design.md`, "Transactions"; rules 19 to 30; `update-ndp.txt`, 5 and 6.

pub mod locks;
pub mod snapshot;
pub mod transaction;
pub mod wal;

pub use locks::{LockError, LockKey, LockMode, LockOwner, LockWait, Locks, Requested};
pub use snapshot::{Snapshot, SnapshotHold};
pub use transaction::{CommitNumber, PreCommit, Transaction, TransactionId, Transactions};
pub use wal::{
    Appended, Durable, LogError, LogFigures, LogOptions, LogReader, LogRecord, Lsn, Record, Wal,
};
