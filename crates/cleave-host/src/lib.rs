//! Cleave's host: SQL in, rows out, over any number of storage devices.
//!
//! What enters is a script ([`Session::run`]) or a stream of batches ([`Session::load`]); what leaves
//! are [`Outcome`]s. In the order in which a statement passes through:
//!
//! 1. [`session`]: a connection's settings; runs statement after statement.
//! 2. [`statement`]: text to typed statements; the planning of queries.
//! 3. [`catalog`]: what the database holds at one commit, and the step from one commit to the next.
//! 4. [`point_path`]: a SELECT by the key of an index, without any plan.
//! 5. [`host_pages`] and [`buffer_pool`]: pages for the host's half of a query.
//! 6. [`device`]: links to devices, and the space on them, which the host owns.
//! 7. [`mod@write`]: rows in: INSERT, bulk loads, index builds. [`index`]: indexes.
//!    `log`: what small commits change, durable before pages are.
//! 8. [`storage_engine`]: one directory, open, without SQL; [`query_engine`]: with plans; [`database`]: with sessions.
//! 9. [`statistics`]: what ANALYZE found, for the planner.
//! 10. [`query_log`]: the last queries, with what was predicted of them and what they cost.
//! 11. [`value`] and [`copy`]: values to and from text, COPY's files.
//! 12. [`check`]: whether all of it is as it was written; [`inspect`]: what it looks like.
//! 13. [`backup`]: all of one commit in a folder of its own, and a database made of that again. `archive`: copies of
//!     the log, which bring it forward. [`log_copy`]: copies of it on devices, from which another host goes on.
//!     `versions`: older states, for `as_of`.
//! 14. [`password`] and [`login`]: who may connect. [`acting`]: as whom a session acts.
//!
//! Invariant: the host reaches a device only through a `Link`, and names no device implementation:
//! whoever builds a program hands one in ([`OpenOptions::embedded`]).

pub mod acting;
pub mod activity;
mod advisory_locks;
pub(crate) mod archive;
pub mod autovacuum;
pub mod backends;
pub mod backup;
pub mod buffer_pool;
pub mod catalog;
pub mod check;
pub(crate) mod check_constraints;
pub mod commitment;
pub mod cooperative;
pub mod copy;
pub mod database;
pub(crate) mod delta;
pub mod device;
pub mod dialect;
pub mod engine;
pub mod error;
pub mod host_pages;
pub(crate) mod identifiers;
pub mod index;
pub mod inspect;
pub(crate) mod log;
pub mod log_copy;
pub mod login;
mod login_secret;
pub mod password;
pub mod point_path;
pub mod query_engine;
pub mod query_log;
mod query_memory;
pub(crate) mod range_path;
mod replication;
pub mod role_fault;
mod sequence_values;
mod sequences;
pub mod session;
pub mod settings;
pub mod statement;
pub mod statistics;
pub mod storage_engine;
pub mod storage_error;
pub mod suggest;
mod tasks;
pub mod value;
pub(crate) mod versions;
pub mod write;

pub use backends::TransactionStatus;
pub use catalog::{
    CatalogState, DeviceEntry, DeviceId, DeviceKind, LocalDevice, RemoteDevice, TableState,
    TabletState,
};
pub use database::{Database, OpenOptions};
pub use device::{Device, EmbeddedFactory};
pub use error::{Error, NameKind, Position, Result};
pub use session::{ClientStreams, Described, Outcome, ResultRows, Session, Started};
pub use settings::Client;
pub use storage_engine::snapshot::SnapshotKind;
pub use storage_error::StorageError;
