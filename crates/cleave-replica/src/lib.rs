//! Backups, log replicas and checks: consumers of commits that keep a database elsewhere or look at it from outside.
//!
//! 1. [`backup`]: all of one commit in a folder of its own, and a new database made of that. [`archive`]: archived
//!    files of the log, which bring it forward. [`page_copies`]: pages that the log names, beside these files.
//! 2. [`log_replica`]: log replicas on devices, from which another host goes on. [`replication`]: the engine's calls to
//!    both at each commit.
//! 3. [`check`]: whether all of a database is as it was written; [`inspect`]: its contents as text.

pub mod archive;
pub mod backup;
pub mod check;
pub mod inspect;
pub mod log_replica;
mod page_copies;
pub mod replication;
