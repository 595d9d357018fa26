//! What keeps a database elsewhere, or looks at it from outside: readers and keepers of commits.
//!
//! 1. [`backup`]: all of one commit in a folder of its own, and a database made of that again. [`archive`]: copies of
//!    the log, which bring it forward.
//! 2. [`log_replica`]: log replicas on devices, from which another host goes on. [`replication`]: what the engine
//!    tells both of each commit.
//! 3. [`check`]: whether all of it is as it was written; [`inspect`]: what it looks like.

pub mod archive;
pub mod backup;
pub mod check;
pub mod inspect;
pub mod log_replica;
pub mod replication;
