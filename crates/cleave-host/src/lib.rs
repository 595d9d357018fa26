//! Cleave's host: SQL in, rows out, over any number of storage devices. The façade that programs use.
//!
//! A script ([`Session::run`]) or a stream of batches ([`Session::load`]) goes in; [`Outcome`]s come out. Each layer
//! below is a crate of its own:
//!
//! ```text
//!  cleave-host ──▶ cleave-replica ─┐
//!       └────────▶ cleave-query ───┼─▶ cleave-engine ─┐
//!                       └──────────┴─▶ cleave-sql ────┴─▶ cleave-catalog
//! ```
//!
//! 1. [`session`]: a connection's settings; runs one statement after the other.
//! 2. [`database`]: an open database directory with its sessions. [`login`]: who may connect. [`autovacuum`]: automatic
//!    VACUUM. [`rebalance`]: tablets that move by themselves. [`temporary`]: the folder of a database in memory.
//! 3. What programs use of the layers below has the same names here: [`catalog`], [`error`], [`settings`], [`value`],
//!    [`statement`], [`copy`], [`device`], [`address_file`], [`query_log`], [`statements`], [`outside_tables`],
//!    [`backup`], [`check`], [`inspect`], [`log_replica`].
//!
//! Invariant: the host reaches a device only through a `Link` and names no device implementation. The program hands one
//! in ([`OpenOptions::embedded`]).

pub mod autovacuum;
pub mod database;
pub mod login;
mod paced;
pub mod rebalance;
pub mod session;
pub mod temporary;

pub use autovacuum::Changes;
pub use cleave_catalog::backends::TransactionStatus;
pub use cleave_catalog::catalog::{
    CatalogState, DeviceEntry, DeviceId, DeviceKind, LocalDevice, RemoteDevice, TableState,
    TabletState,
};
pub use cleave_catalog::error::{Error, NameKind, Position, Result};
pub use cleave_catalog::settings::{Admits, Client};
pub use cleave_catalog::storage_error::StorageError;
pub use cleave_catalog::{
    acting, activity, backends, catalog, commitment, error, index, password, role_fault, settings,
    storage_error, suggest, value,
};
pub use cleave_engine::device::{Device, EmbeddedFactory};
pub use cleave_engine::storage_engine::snapshot::SnapshotKind;
pub use cleave_engine::{
    address_file, buffer_pool, device, host_pages, statistics, storage_engine, write,
};
pub use cleave_query::analyze::Effort;
pub use cleave_query::{
    cooperative, outside_tables, planner, point_path, query_engine, query_log, select, statements,
};
pub use cleave_replica::{backup, check, inspect, log_replica, replication};
pub use cleave_sql::{copy, dialect, statement};
pub use database::{Database, OpenOptions};
pub use session::{
    BEGUN_QUERY_BYTES, ClientStreams, CountedFile, Described, Kept, KeptMemory, Outcome,
    ResultRows, ScriptMemory, SentRows, Session, Started,
};
