//! Queries: a statement and a snapshot in, batches out, over both sides of the link.
//!
//! 1. [`select`]: binding, planning, cuts; the tables that a query can name, `pg_catalog` among them.
//! 2. [`planner`]: the set-up of DataFusion, and the rules that Cleave adds to it.
//! 3. [`cooperative`]: the host's half of a split query: runs fragments on devices and takes their rows.
//! 4. [`point_path`] and [`range_path`]: look-ups by the key of an index, without any plan.
//! 5. [`analyze`] and [`listed_statistics`]: ANALYZE, and its results as rows; [`query_log`]: the last queries, with
//!    prediction and cost; [`statements`]: what statements of one kind have cost; [`check_constraints`]: CHECK.
//! 6. [`result_sets`]: rows of queries that stay on the devices that made them; [`populations`]: of materialized
//!    views, made in the background.
//! 7. [`outside_tables`]: tables that the program of a session offers to its statements. [`file_tables`]: files.
//!    `conditions`: by what scans of both leave rows out.
//! 8. `device_histories`: which conditions devices have evaluated before; `lent_cores`: how much others of their node
//!    helped them; `exchange_turns`: which exchange begins on them. [`query_engine`]: a storage engine with all of
//!    this.
//!
//! Invariant: a query reads the snapshot that it is handed, and makes nothing visible.

pub mod analyze;
pub mod check_constraints;
mod conditions;
pub mod cooperative;
mod device_histories;
mod exchange_turns;
pub mod file_tables;
mod lent_cores;
pub mod listed_statistics;
pub mod outside_tables;
pub mod planner;
pub mod point_path;
pub mod populations;
pub mod query_engine;
pub mod query_log;
pub mod range_path;
mod result_sets;
pub mod select;
pub mod statements;
