//! The catalog, the lowest layer of the host: the contents of a database at one commit, as an immutable value.
//!
//! 1. [`catalog`]: tables, indexes, views, sequences, roles and settings of one commit, and the manifest that keeps
//!    them; [`index`] reads the runs of an index through a `PageSource`.
//! 2. [`value`]: values to and from text. [`error`]: errors of statements; [`storage_error`]: errors of storage.
//! 3. [`settings`]: settings of a session. [`acting`], [`role_fault`], [`password`] and [`login_secret`]: roles and
//!    log-in.
//! 4. [`activity`], [`backends`], [`advisory_locks`], [`sequence_values`], [`session_objects`] and [`statement_cost`]:
//!    state that sessions show and share; [`outside`]: what their programs hand to them.
//! 5. [`tasks`], [`query_memory`], [`commitment`], [`identifiers`] and [`suggest`]: small helpers for all layers.
//!
//! Invariants: a catalog version never changes; nothing here opens a database, sends a command or parses SQL.

pub mod acting;
pub mod activity;
pub mod advisory_locks;
pub mod backends;
pub mod catalog;
pub mod commitment;
pub mod error;
pub mod identifiers;
pub mod index;
pub mod login_secret;
pub mod outside;
pub mod password;
pub mod query_memory;
pub mod role_fault;
pub mod sequence_values;
pub mod session_objects;
pub mod settings;
pub mod statement_cost;
pub mod storage_error;
pub mod suggest;
pub mod tasks;
pub mod value;
